"""Evaluating a recommender: the first ten of 100,000 items for every user, and their metrics, beside `implicit`.

Both get the same factors (rank 64), the same ratings of training, which are left out of the lists, and the same
held-out ratings. `st.evaluate` computes precision, recall, NDCG, MAP, MRR, hit rate and AUC at 10 with confidence
intervals; `implicit.evaluation.ranking_metrics_at_k` computes precision, NDCG, MAP and AUC. Both define NDCG and MAP
the same. `implicit` is measured on some of the users, since its time is proportional to their number.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import stretto as st

from . import report
from .same_objective import CAUTION, SHARED, clock

RANK, K = 64, 10
METRICS = tuple(f"{name}@{K}" for name in ("precision", "recall", "ndcg", "map", "mrr", "hit_rate", "auc"))


def timed(call: Callable[[], Any]) -> tuple[float, float, Any]:
    """(seconds by the clock, seconds passed, result) of one call."""
    began, passed = clock(), time.perf_counter()
    found = call()
    return clock() - began, time.perf_counter() - passed, found


def peer(model: st.MatrixFactorization, train: Any, test: Any, threads: int) -> dict[str, float]:
    """The metrics of `implicit` for the users of these rows."""
    from implicit.cpu.als import AlternatingLeastSquares
    from implicit.evaluation import ranking_metrics_at_k

    other = AlternatingLeastSquares(factors=RANK, num_threads=threads)
    other.user_factors, other.item_factors = model.user_factors_[: train.shape[0]], model.item_factors_
    with threadpool_limits(threads, "blas"):
        found: dict[str, float] = ranking_metrics_at_k(
            other, train, test, K=K, show_progress=False, num_threads=threads
        )
    return found


def main(given: Sequence[str] = ()) -> None:
    """Measure at one and two threads; all users once, with every core."""
    options = argparse.ArgumentParser(prog="python -m bench evaluate", description=__doc__)
    options.add_argument("--users", type=int, default=1_000_000, help="users of the set")
    options.add_argument("--items", type=int, default=100_000, help="items of the set")
    options.add_argument("--some", type=int, default=10_000, help="users that implicit is measured on")
    asked = options.parse_args(list(given))
    data = st.generate_ratings(10 * asked.users, asked.users, asked.items, rank=12, noise=0.5, seed=1).data
    # Every rating is an action: implicit counts stored values, we those above 0.
    train, test = st.split(data, test=0.2)
    test = replace(test, values=np.ones(len(test), np.float32))
    model = st.MatrixFactorization(
        RANK, max_iter=3, random_state=0, biases=False, duplicates="keep", learning_rate=0.02
    ).fit(train)
    few = test.take(test.rows < asked.some)
    mine, held = (part.to_csr()[: asked.some] for part in (train, few))
    st.evaluate(model, few.take(np.arange(1000)), metrics=METRICS)  # loads the kernels
    peer(model, mine[:100], held[:100], 1)
    rows: list[list[object]] = []
    for threads in (1, 2):
        model.set_params(n_jobs=threads)
        ours, _, found = timed(lambda: st.evaluate(model, few, metrics=METRICS))
        theirs, _, others = timed(partial(peer, model, mine, held, threads))
        same = [f"{found[f'ndcg@{K}']:.6f}, {others['ndcg']:.6f}", f"{found[f'map@{K}']:.6f}, {others['map']:.6f}"]
        rows.append([threads, f"{asked.some:,}", f"{theirs:.2f}", f"{ours:.2f}", f"{theirs / ours:.1f}×", *same])
        print(rows[-1], flush=True)
    model.set_params(n_jobs=None)
    ours, passed, found = timed(lambda: st.evaluate(model, test, metrics=METRICS))
    scaled = float(str(rows[-1][2])) * asked.users / asked.some
    heads = ["threads", "users", "implicit, s", "Stretto, s", "faster", "NDCG@10 of both", "MAP@10 of both"]
    count = found.score(f"ndcg@{K}").users
    body = report.table(heads, rows) + (
        f"\n\nAll {asked.users:,} users × {asked.items:,} items in one pass, every core: {ours:.0f} s, {passed:.0f} s "
        f"by the wall clock ({count:,} users have held-out ratings); implicit's time for as many users, in proportion, "
        f"is {scaled:.0f} s.\n\n```\n{found}\n```"
    )
    about = report.text(__doc__) + CAUTION * SHARED
    report.save(
        "evaluate", "Ranking metrics for every user", about, body, ("implicit",), " ".join(["evaluate", *given])
    )
