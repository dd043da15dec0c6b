"""Implicit feedback: how the confidence of an entry should grow with its value.

An entry has confidence 1 + alpha·value / mean |value|, a missing one 1. Every row is a set with a fifth of its entries
held out, and shows NDCG@10 (mean of two splits) of ranking by popularity and of `MatrixFactorization(n_components=32,
solver="als", implicit=True, linear_solver="cg", max_iter=10)` at several alpha; everything else is at its default.
"1 + 40·value" is the rule that is usual for counts of television watched. Values are stars, ones in their place, counts
of words in documents, or generated counts; sets differ in density, skew and size.

The default, alpha = 1, was chosen on the sets above the line and judged on those below it.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import stretto as st
from stretto.solvers.factorization.ndcg import PLACES, Ranking, ndcg

from . import report, sets

ALPHAS = (0.1, 0.3, 1.0, 3.0, 10.0)
FORMER = 40.0
SPLITS = (0, 1)
HELD = 0.2
DOCUMENTS = 15_000  # of the largest set of documents


@dataclass(frozen=True)
class CountSet:
    """A set of entries, and whether the default was chosen on it."""

    name: str
    data: st.Data
    chosen_on: bool


def generated(rows: int, cols: int, entries: int, rank: int, taste: float, *, heavy: bool, seed: int) -> st.Data:
    """Entries drawn by popularity (Zipf) times exp(taste · w·h); heavy: with counts of a long tail, else with ones."""
    rng = np.random.default_rng(seed)
    popular = rng.permutation(np.arange(1, cols + 1) ** -0.9)
    active = rng.permutation(np.arange(1, rows + 1) ** -0.7)
    W, H = rng.normal(size=(rows, rank)) / np.sqrt(rank), rng.normal(size=(cols, rank))
    draws = np.minimum(rng.poisson(np.maximum(active / active.sum() * entries, 3)), cols // 2)
    found: list[tuple[NDArray[Any], NDArray[Any], NDArray[Any]]] = []
    for i in range(rows):
        chance = popular * np.exp(taste * (H @ W[i]))
        index, counts = np.unique(
            rng.choice(cols, draws[i] * (3 if heavy else 1), p=chance / chance.sum()), return_counts=True
        )
        tail = np.ceil(counts * np.exp(rng.normal(size=len(index)))) if heavy else np.ones(len(index))
        found.append((np.full(len(index), i), index, tail))
    r, c, v = (np.concatenate(part) for part in zip(*found, strict=True))
    return st.Data.from_arrays(r, c, v, (rows, cols), source=f"generated, seed {seed}")


def _ones(data: st.Data) -> st.Data:
    return replace(data, values=np.ones_like(data.values))


def _plain(path: Path, **how: Any) -> st.Data:
    return replace(st.read(path, **how), row_ids=None, col_ids=None, labels=None)


def _first(data: st.Data, rows: int) -> st.Data:
    part = data.take(data.rows < rows)
    return replace(part, shape=(rows, data.shape[1]))


def count_sets() -> Iterator[CountSet]:
    """Those that the default was chosen on, then those that it is judged on."""
    real = sets.real_data()
    if real is None:
        print("the real sets were not found; set STRETTO_DATA to their folder to include them")
    else:
        stars = _plain(real / "movielens-1m/ratings.tsv.xz")
        yield CountSet("MovieLens-1M, stars", stars, True)
        yield CountSet("MovieLens-1M, a fifth of it", stars.split(0.2, seed=9)[1], True)
        yield CountSet("AP, words", _plain(real / "ap/ap.dat.xz"), True)
    yield CountSet("generated, counts", generated(4000, 2000, 280_000, 8, 2.0, heavy=True, seed=1), True)
    yield CountSet("generated, dense counts", generated(2000, 500, 170_000, 6, 1.0, heavy=True, seed=3), True)
    yield CountSet("generated, sparse counts", generated(10_000, 8000, 130_000, 8, 2.0, heavy=True, seed=4), True)
    if real is not None:
        thin = _plain(real / "epinions/ratings.tsv.xz", duplicates="last")
        yield CountSet("Epinions, stars", thin, False)
        yield CountSet("Epinions, ones", _ones(thin), False)
        yield CountSet("MovieLens-1M, ones", _ones(stars), False)
        yield CountSet("20 newsgroups, words", _plain(real / "20news/20news.train.libsvm.xz"), False)
        yield CountSet("IMDB, words", _first(_plain(real / "imdb/docword.imdb.txt.xz"), DOCUMENTS), False)
    yield CountSet("generated, ones", generated(8000, 6000, 350_000, 12, 1.5, heavy=False, seed=2), False)
    yield CountSet("generated, flat tastes", generated(5000, 3000, 250_000, 20, 0.7, heavy=True, seed=5), False)


def popularity(train: st.Data, ranking: Ranking) -> float:
    """NDCG@10 of the items with most entries, those of the row left out."""
    order = np.argsort(-np.bincount(train.cols, minlength=train.shape[1]), kind="stable").astype(np.int32)
    found = np.full((len(ranking), PLACES), -1, np.int32)
    for k in range(len(ranking)):
        out = ranking.left_out.indices[ranking.left_out.indptr[k] : ranking.left_out.indptr[k + 1]]
        top = order[: PLACES + len(out)]
        best = top[~np.isin(top, out)][:PLACES]
        found[k, : len(best)] = best
    return ndcg(found, ranking.relevant)


def fitted(train: st.Data, alpha: float) -> st.MatrixFactorization:
    """The model at its defaults but for alpha."""
    how: dict[str, Any] = {"solver": "als", "implicit": True, "linear_solver": "cg", "max_iter": 10, "random_state": 0}
    model: st.MatrixFactorization = st.MatrixFactorization(n_components=32, alpha=alpha, duplicates="keep", **how).fit(
        train
    )
    return model


def measured(data: st.Data) -> list[float]:
    """[popularity, one for each alpha, one for the former rule], means over the splits."""
    rows: list[list[float]] = []
    for seed in SPLITS:
        train, test = data.split(HELD, seed=seed)
        alphas = (*ALPHAS, FORMER * float(np.abs(train.values).mean()))
        models = [fitted(train, alpha) for alpha in alphas]
        ranking = Ranking.of(test, models[0].seen(), train.shape[1])
        rows.append([popularity(train, ranking), *(model.score(test) for model in models)])
    return [statistics.fmean(column) for column in zip(*rows, strict=True)]


def main() -> None:
    """Measure every set."""
    rows: list[list[str]] = []
    judged = False
    for one in count_sets():
        if not one.chosen_on and not judged:
            rows.append(["**judged on**", *[""] * (len(ALPHAS) + 4)])
            judged = True
        m, n = one.data.shape
        found = measured(one.data)
        best = max(found[1:])
        shown = [f"**{value:.3f}**" if value == best else f"{value:.3f}" for value in found[1:]]
        rows.append([one.name, f"{m:,} × {n:,}", f"{len(one.data) / (m * n):.2%}", f"{found[0]:.3f}", *shown])
        print(rows[-1], flush=True)
    columns = ["set", "size", "density", "popularity", *(f"alpha {a:g}" for a in ALPHAS), "1 + 40·value"]
    report.save("confidence", "Confidence of implicit feedback", report.text(__doc__), report.table(columns, rows))
