"""Problems for `bench.penalties`: features, targets of each kind, and groups of features."""

from __future__ import annotations

import csv
import lzma
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import sets, sparse_sets

Floats = NDArray[np.float64]

SIZE = 10  # features of a group
TASKS = 10  # targets of the generated sets
REVIEWS, SEEN = 5_000, 20  # of IMDB: reviews, and reviews that a word must be in
COMMENTS = 20_000  # rows of BlogFeedback


@dataclass(frozen=True)
class Penalised:
    """Features X [n, p], and a target of each kind that the set has."""

    title: str
    X: Any
    plain: Floats | None = None  # for groups
    tasks: Floats | None = None  # [n, k]
    counts: Floats | None = None
    outliers: Floats | None = None
    epsilon: float = 1.0


def _targets(rng: Any, X: Any) -> dict[str, Any]:
    """Targets of every kind from a model with ten groups of ten features."""
    p = X.shape[1]
    first = rng.choice(p // SIZE, 10, replace=False) * SIZE
    which = (first[:, None] + np.arange(SIZE)).ravel()
    W = np.zeros((p, TASKS))
    W[which] = rng.standard_normal((len(which), TASKS))
    Z = X @ W
    Z /= Z.std(axis=0)
    noise = 0.5 * rng.standard_normal(Z.shape)
    heavy = Z[:, 0] + 0.2 * rng.standard_cauchy(len(Z))
    counts = rng.poisson(np.exp(0.7 * Z[:, 0])).astype(np.float64)
    return {"plain": Z[:, 0] + noise[:, 0], "tasks": Z + noise, "counts": counts, "outliers": heavy, "epsilon": 0.5}


def _blocks(rng: Any, n: int, p: int, block: int, rho: float) -> Floats:
    """Normal features; those of a block have correlation rho."""
    shared = np.repeat(rng.standard_normal((n, p // block)), block, axis=1)
    return np.asfortranarray(np.sqrt(rho) * shared + np.sqrt(1 - rho) * rng.standard_normal((n, p)))


def tall() -> Penalised:
    """More samples than features."""
    rng = np.random.default_rng(0)
    X = _blocks(rng, 5_000, 500, SIZE, 0.3)
    return Penalised("dense 5,000 × 500", X, **_targets(rng, X))


def wide() -> Penalised:
    """Many more features than samples."""
    rng = np.random.default_rng(1)
    X = _blocks(rng, 300, 10_000, SIZE, 0.3)
    return Penalised("wide 300 × 10,000", X, **_targets(rng, X))


def correlated() -> Penalised:
    """Blocks of nearly equal features."""
    rng = np.random.default_rng(2)
    X = _blocks(rng, 1_000, 3_000, 50, 0.95)
    return Penalised("correlated 1,000 × 3,000", X, **_targets(rng, X))


def sparse() -> Penalised:
    """Sparse features of normal size."""
    import scipy.sparse

    rng = np.random.default_rng(3)
    X = scipy.sparse.random(
        5_000, 20_000, density=0.005, format="csc", random_state=3, data_rvs=rng.standard_normal
    )  # fmt: skip
    return Penalised("sparse 5,000 × 20,000, 0.5 %", _int32(X), **_targets(rng, X))


def imdb() -> Penalised:
    """Log counts of words; the target is the number of stars, and which it is."""
    X, y = sparse_sets.load("imdb")
    rows = np.linspace(0, len(y) - 1, REVIEWS).astype(np.int64)
    X, y = X.tocsr()[rows].tocsc(), y[rows]
    often = np.flatnonzero(np.diff(X.indptr) >= SEEN)
    X = X[:, often[: len(often) // SIZE * SIZE]]
    tasks = (y[:, None] == np.unique(y)).astype(np.float64)
    return Penalised(f"IMDB {len(y):,} × {X.shape[1]:,}", _int32(X), y, tasks, y, y, 1.0)


def blog() -> Penalised:
    """Features of blog posts; the target is the number of comments in the next day."""
    X, y = sparse_sets.load("blog")
    X, y = X.tocsr()[:COMMENTS].tocsc(), y[:COMMENTS]
    size = np.abs(X).max(axis=0).toarray().ravel()
    used = np.flatnonzero(np.diff(X.indptr) > 0)
    used = used[: len(used) // SIZE * SIZE]
    import scipy.sparse

    X = X[:, used] @ scipy.sparse.diags_array(1.0 / size[used])  # features of up to 10⁴ make e^z overflow everywhere
    tasks = np.column_stack([np.log1p(y), np.sqrt(y), y > 0, y > 10]).astype(np.float64)
    return Penalised(f"BlogFeedback {len(y):,} × {len(used)}", _int32(X.tocsc()), np.log1p(y), tasks, y, y, 1.0)


def mice() -> Penalised:
    """Genotypes; targets are the body-mass index, and what blood tests found."""
    folder = sets.real_data()
    assert folder is not None
    X, y = sparse_sets.load("mice")
    with lzma.open(folder / "mice-gwas" / "phenotypes.csv.xz", "rt", encoding="utf-8") as file:
        found = [row for row in csv.DictReader(file) if row["Obesity.BMI"] not in ("", "NA")]
    names = [name for name in found[0] if name.startswith("Biochem.") and ".Date." not in name]
    blood = np.array([[float(row[name]) if row[name] not in ("", "NA") else np.nan for name in names] for row in found])
    known = np.isfinite(blood).all(axis=1)
    if known.sum() < len(y) // 4:  # a test that few mice have
        kept = np.isfinite(blood).mean(axis=0) > 0.8
        blood = blood[:, kept]
        known = np.isfinite(blood).all(axis=1)
    blood = (blood[known] - blood[known].mean(axis=0)) / blood[known].std(axis=0)
    X = np.asfortranarray(X[known][:, : X.shape[1] // SIZE * SIZE])
    y = y[known] / y[known].std()
    litter = np.array([float(row["Litter"]) if row["Litter"] not in ("", "NA") else 0.0 for row in found])[known]
    return Penalised(f"mice GWAS {len(y):,} × {X.shape[1]:,}", X, y, blood, litter, y, 0.5)


SETS: dict[str, Callable[[], Penalised]] = {
    "dense": tall, "wide": wide, "correlated": correlated, "sparse": sparse, "imdb": imdb, "blog": blog, "mice": mice,
}  # fmt: skip
REAL = {"imdb", "blog", "mice"}
CHOSEN_ON = ("dense", "wide", "sparse")  # sets that the defaults were chosen on


def chosen() -> Iterator[tuple[str, Penalised]]:
    """The sets that are present."""
    import os

    asked = [name for name in os.environ.get("BENCH_SETS", "").split(",") if name]
    for name, make in SETS.items():
        if (not asked or name in asked) and (name not in REAL or sets.real_data() is not None):
            yield name, make()


def _int32(X: Any) -> Any:
    """CSC with 32-bit indices, which every program takes without a copy."""
    import scipy.sparse

    X = scipy.sparse.csc_matrix(X)
    X.sort_indices()
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return X
