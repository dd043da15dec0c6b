"""Losses that rank: NDCG@10 and samples per second at two threads, beside BPR of implicit and of cornac.

A fifth of the entries is held out; an item is relevant if the user has it in that part. Every model ranks all items
that the user does not have in training, and the same NDCG@10 judges all. All have 64 factors. Peers have their default
settings and 100 epochs, their default; cornac also has a learning rate of 0.01, as its own is small. Stretto has its
defaults. A sample is a pair of a user's item and a drawn one; of WARP, which draws until a pair is ranked wrongly, all
draws for an item count as one. Seconds are of the fit alone, with kernels compiled before.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

import stretto as st

from . import report, sets

RANK, THREADS, EPOCHS, USERS = 64, 2, 100, 5000
# Wall time, or with BENCH_CLOCK=cpu the processor time of all threads, which other work hardly changes.
SHARED = os.environ.get("BENCH_CLOCK") == "cpu"
_CLOCK = time.process_time if SHARED else time.perf_counter
_NOTE = (
    "**The machine was shared while this was measured** (`BENCH_CLOCK=cpu`): seconds are those of the processor, of "
    "all threads together.\n\n"
)


@dataclass(frozen=True)
class RankingSet:
    """Train and test part of a set, as CSR matrices of float32."""

    name: str
    train: Any
    test: Any


def counted(users: int = 20_000, items: int = 5_000, actions: int = 2_000_000, seed: int = 2) -> Any:
    """Counts of actions by tastes of rank 8 and a popularity that falls by Zipf's law."""
    rng = np.random.default_rng(seed)
    left, right = rng.standard_normal((users, 8)), rng.standard_normal((8, items))
    popular = np.log(np.arange(1, items + 1)) * -0.8
    each = max(1, actions // users)
    rows, cols = [], []
    for first in range(0, users, 1000):
        scores = 0.7 * left[first : first + 1000] @ right + popular
        scores += rng.gumbel(size=scores.shape)  # the best of these are a draw without replacement
        best = np.argpartition(-scores, each, axis=1)[:, :each]
        rows.append(np.repeat(np.arange(first, first + len(best)), each))
        cols.append(best.ravel())
    at = np.concatenate(rows), np.concatenate(cols)
    return sp.csr_matrix((np.ones(len(at[0]), np.float32), at), shape=(users, items))


def ranking_sets() -> Iterator[RankingSet]:
    """MovieLens-1M and Epinions where they are present, and a generated set."""
    folder = sets.real_data()
    if folder is not None:
        for name, path in (("MovieLens-1M", "movielens-1m"), ("Epinions", "epinions")):
            yield _split(name, st.read(folder / path / "ratings.tsv.xz", duplicates="last").to_csr())
    yield _split("generated 2M", counted())


def _split(name: str, X: Any) -> RankingSet:
    entries = X.tocoo()
    held = np.random.default_rng(0).random(entries.nnz) < 0.2
    parts = (
        sp.csr_matrix((entries.data[m].astype(np.float32), (entries.row[m], entries.col[m])), shape=X.shape)
        for m in (~held, held)
    )
    return RankingSet(name, *parts)


def ndcg(W: Any, H: Any, c: Any, data: RankingSet, places: int = 10) -> float:
    """Mean NDCG of at most `USERS` users with something held out; scores are W Hᵀ + c."""
    users = np.flatnonzero(np.diff(data.test.indptr))
    users = users[np.linspace(0, len(users) - 1, min(USERS, len(users))).astype(np.int64)]
    gain = 1.0 / np.log2(np.arange(2, places + 2))
    total = 0.0
    for first in range(0, len(users), 200):
        some = users[first : first + 200]
        scores = np.asarray(W[some] @ H.T + c)
        known, relevant = data.train[some], data.test[some].toarray() > 0
        scores[np.repeat(np.arange(len(some)), np.diff(known.indptr)), known.indices] = -np.inf
        best = np.argpartition(-scores, places, axis=1)[:, :places]
        order = np.argsort(-np.take_along_axis(scores, best, 1), axis=1)
        hits = np.take_along_axis(relevant, np.take_along_axis(best, order, 1), 1)
        total += float(((hits @ gain) / np.cumsum(gain)[np.minimum(relevant.sum(axis=1), places) - 1]).sum())
    return total / len(users)


@dataclass(frozen=True)
class Scored:
    """A fitted model: seconds of its fit, samples that it made, factors and biases."""

    seconds: float
    samples: int
    W: Any
    H: Any
    c: Any = 0.0


def timed(fit: Callable[[], Any]) -> tuple[float, Any]:
    """(seconds, result) of a call."""
    began = _CLOCK()
    result = fit()
    return _CLOCK() - began, result


def ours(data: RankingSet, **options: Any) -> Scored:
    """Stretto with a loss."""
    model = st.MatrixFactorization(RANK, random_state=0, n_jobs=THREADS, **options)
    model.fit(data.train[:200])  # compiles
    seconds, model = timed(lambda: model.fit(data.train))
    made = {"bpr": 2, "warp": 1, "logistic": 4}.get(options["loss"], 0) * model.n_iter_ * data.train.nnz
    return Scored(seconds, made, model.user_factors_, model.item_factors_, model.item_bias_)


def implicit_bpr(data: RankingSet, **options: Any) -> Scored:
    """BPR of implicit."""
    from implicit.cpu.bpr import BayesianPersonalizedRanking

    model = BayesianPersonalizedRanking(RANK, num_threads=THREADS, random_state=0, iterations=EPOCHS, **options)
    seconds, _ = timed(lambda: model.fit(data.train, show_progress=False))
    return Scored(seconds, EPOCHS * data.train.nnz, model.user_factors, model.item_factors)


def cornac_bpr(data: RankingSet, **options: Any) -> Scored:
    """BPR of cornac."""
    from cornac.data import Dataset
    from cornac.models import BPR

    entries = data.train.tocoo()
    triples = list(zip(entries.row.tolist(), entries.col.tolist(), entries.data.tolist(), strict=True))
    known = Dataset.build(triples, seed=0)
    model = BPR(k=RANK, max_iter=EPOCHS, num_threads=THREADS, seed=0, **options)
    seconds, _ = timed(lambda: model.fit(known))
    users, items = (np.array(list(index)) for index in (known.uid_map, known.iid_map))
    W, H = (np.zeros((size, RANK), np.float32) for size in data.train.shape)
    c = np.full(data.train.shape[1], -np.inf, np.float32)
    W[users], H[items], c[items] = model.u_factors, model.i_factors, model.i_biases
    return Scored(seconds, EPOCHS * data.train.nnz, W, H, c)


def popularity(data: RankingSet) -> Scored:
    """The same list for everybody."""
    counts = np.bincount(data.train.indices, minlength=data.train.shape[1]).astype(np.float32)
    return Scored(0.0, 0, np.zeros((data.train.shape[0], 1)), np.zeros((len(counts), 1)), counts)


MODELS: dict[str, Callable[[RankingSet], Scored]] = {
    "popularity": popularity,
    "implicit, BPR": implicit_bpr,
    "cornac, BPR": cornac_bpr,
    "cornac, BPR, rate 0.01": lambda data: cornac_bpr(data, learning_rate=0.01),
    "Stretto, bpr": lambda data: ours(data, loss="bpr"),
    "Stretto, warp": lambda data: ours(data, loss="warp"),
    "Stretto, logistic": lambda data: ours(data, loss="logistic", implicit=True),
    "Stretto, als (every pair)": lambda data: ours(data, loss="squared", solver="als", implicit=True),
}


def main() -> None:
    """Measure every model on every set."""
    rows = []
    for data in ranking_sets():
        for name, fit in MODELS.items():
            try:
                found = fit(data)
            except ImportError as error:
                print(f"{name}: left out ({error})")
                continue
            rate = f"{found.samples / found.seconds / 1e6:.1f} M" if found.samples else ""
            quality = ndcg(found.W, found.H, found.c, data)
            rows.append([data.name, data.train.nnz, name, f"{quality:.4f}", f"{found.seconds:.2f}", rate])
            print(rows[-1], flush=True)
    columns = ["set", "entries", "model", "NDCG@10", "seconds", "samples per second"]
    body = (_NOTE if SHARED else "") + report.table(columns, rows)
    report.save("ranking", "Losses that rank", report.text(__doc__), body, ("implicit", "cornac"))
