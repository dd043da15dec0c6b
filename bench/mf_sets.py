"""Rating sets on which defaults of factorisation are chosen and judged: dense, sparse, small, of several units."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import stretto as st

from . import sets


@dataclass(frozen=True)
class Shape:
    """A generated set: users, items, ratings, range of the ratings, and what they are made of."""

    users: int
    items: int
    ratings: int
    low: float
    high: float
    unit: float  # of the biases, structure and noise below
    biases: tuple[float, float]  # standard deviation of those of users and items
    structure: float
    noise: float
    skew: tuple[float, float]  # exponents of the popularity of users and items
    whole: bool = True  # whether ratings are integers


SHAPES = {
    "0.4 M, 1–10": Shape(60_000, 120_000, 400_000, 1, 10, 1.9, (0.55, 0.3), 0.35, 0.7, (0.9, 0.7)),
    "small, 0.1 M": Shape(943, 1_682, 100_000, 1, 5, 1.05, (0.5, 0.4), 0.5, 0.7, (0.6, 0.7)),
    "sparse, 0.6 M": Shape(40_000, 60_000, 600_000, 1, 5, 1.1, (0.5, 0.4), 0.3, 0.8, (0.8, 0.8)),
    "percent, 1 M": Shape(6_000, 4_000, 1_000_000, 0, 100, 18.0, (0.5, 0.4), 0.6, 0.6, (0.5, 0.6), whole=False),
}


def _factors(rng: np.random.Generator, users: int, items: int) -> tuple[NDArray[Any], NDArray[Any]]:
    weight = 0.7 ** np.arange(8)
    return rng.standard_normal((users, 8)) * weight / np.linalg.norm(weight), rng.standard_normal((items, 8))


def dense(users: int, items: int, seed: int) -> st.Data:
    """Ratings from −10 to 10 of nearly three quarters of all pairs; two users of five have rated everything."""
    rng = np.random.default_rng(seed)
    left, right = _factors(rng, users, items)
    biases = 0.8 + 1.2 * rng.standard_normal(items) + 2.4 * rng.standard_normal((users, 1))
    ratings = np.clip(biases + 2.3 * left @ right.T + 3.9 * rng.standard_normal((users, items)), -10, 10)
    share = np.where(rng.random(users) < 0.4, 1.0, rng.uniform(0.2, 0.85, users))
    rows, cols = np.nonzero(rng.random((users, items)) < share[:, None])
    return st.Data.from_arrays(rows, cols, ratings[rows, cols], (users, items), source="dense ratings")


def drawn(shape: Shape, seed: int) -> st.Data:
    """Ratings of pairs drawn by popularity."""
    rng = np.random.default_rng(seed)
    sizes = (shape.users, shape.items)
    pairs = []
    for size, skew in zip(sizes, shape.skew, strict=True):
        weight = np.arange(1, size + 1) ** -skew
        pairs.append(rng.permutation(size)[rng.choice(size, int(1.15 * shape.ratings), p=weight / weight.sum())])
    keys = np.unique(pairs[0].astype(np.int64) * shape.items + pairs[1])
    rows, cols = np.divmod(rng.permutation(keys)[: shape.ratings], shape.items)
    left, right = _factors(rng, *sizes)
    user, item = (spread * rng.standard_normal(size) for spread, size in zip(shape.biases, sizes, strict=True))
    parts = user[rows] + item[cols] + shape.structure * np.einsum("ij,ij->i", left[rows], right[cols])
    middle = shape.low + 0.65 * (shape.high - shape.low)
    values = middle + shape.unit * (parts + shape.noise * rng.standard_normal(len(rows)))
    values = np.clip(np.rint(values) if shape.whole else values, shape.low, shape.high)
    return st.Data.from_arrays(rows, cols, values, sizes, source="drawn ratings")


def all_sets() -> dict[str, Callable[[], st.Data]]:
    """Name → how to make or read it. The first four are those on which the default was chosen."""
    found: dict[str, Callable[[], st.Data]] = {"dense, 1.7 M": lambda: dense(24_000, 100, 3)}
    folder = sets.real_data()
    if folder is not None:
        found["MovieLens-1M"] = lambda: st.read(folder / "movielens-1m/ratings.tsv.xz", duplicates="last")
    found |= {name: partial(drawn, shape, k) for k, (name, shape) in enumerate(SHAPES.items(), 5)}
    found["dense, 0.8 M"] = lambda: dense(8_000, 140, 11)
    found["generated, 2 M"] = lambda: sets.generated(2_000_000, 20_000, 6_000)
    if folder is not None:
        found["Epinions"] = lambda: st.read(folder / "epinions/ratings.tsv.xz", duplicates="last")
    return found


CHOSEN = ("dense, 1.7 M", "MovieLens-1M", "0.4 M, 1–10", "small, 0.1 M")
