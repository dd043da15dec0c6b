"""Parts of `orion_distributed`: convergence by iteration, loops beside programs by hand, and beside mini-batches."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from bench.orders import factorise

import stretto as st
from stretto.observe.events import EpochDone
from stretto.runtime.session import Session

from . import report
from .orion_loops import MACHINES, RANK, TOPICS, app, cluster, movies, tokens

SIZE, WORKERS, EPOCHS = 1_500, 4, 10
STEP = 0.03  # of the loop
SHOWN = (1, 2, 4, 6, 10)
BATCHES = {"a quarter of the data": 4, "a fortieth": 40}
RATES = (0.1, 0.3, 1.0)  # of a mini-batch, for gradients averaged over a row's ratings in it


def converged() -> str:
    """Iteration by iteration: in order on one worker, unordered on 48 simulated ones."""
    rows: list[list[object]] = []
    n = MACHINES * WORKERS
    for name in ("sgd", "adarevision", "lda"):
        job = app(name, SIZE)
        ways: dict[str, dict[str, Any]] = {
            "serial, in order": {"runtime": st.Serial(), "ordered": True},
            f"ordered, {n} workers": {"runtime": cluster(job, MACHINES, WORKERS), "ordered": True, "blocks": (n, n)},
            f"unordered, {n} workers": {"runtime": cluster(job, MACHINES, WORKERS), "blocks": (n, 2 * n)},
        }
        for way, options in ways.items():
            _, call = job.make(measure=True, **options)
            seen = [call(epoch) for epoch in range(EPOCHS)]
            rows.append([job.title, way, *(f"{seen[k - 1]:.4g}" for k in SHOWN)])
            print(*rows[-1], sep=" | ", flush=True)
    head = ["application", "loop", *(f"iteration {k}" for k in SHOWN)]
    return f"{report.table(head, rows)}\n\nLDA: perplexity of the collection after the iteration."


class Watch:
    """CPU seconds at the ends of epochs; everything runs on this thread."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def note(self, event: Any) -> None:
        """A listener."""
        if isinstance(event, EpochDone):
            self.ends.append(time.process_time())

    @property
    def epoch(self) -> float:
        """Of an epoch, the median, the first left out."""
        return float(np.median(np.diff(self.ends)))


def estimator(name: str) -> tuple[float, str]:
    """CPU seconds of an epoch of the estimator in serial, and what it came to."""
    watch = Watch()
    same: dict[str, Any] = {"max_iter": EPOCHS, "random_state": 0, "runtime": st.Serial()}
    session = Session(listeners=[watch.note])
    if name == "lda":
        topics = st.LatentDirichletAllocation(
            TOPICS, sampler="sparse", first_topics="random", evaluate_every=100, doc_topic_prior=0.1,
            topic_word_prior=0.01, **same,
        ).fit(tokens(SIZE), session=session)  # fmt: skip
        return watch.epoch, f"perplexity {topics.perplexity(tokens(SIZE)):.4g} (inferred anew)"
    model = st.MatrixFactorization(
        RANK, biases=False, optimizer=name, duplicates="keep", l2_regularization=0.02, **same
    )
    model.fit(movies(SIZE), session=session)
    return watch.epoch, f"error {model.history_[-1]['train_rmse'] ** 2:.4g}"


def by_hand() -> str:
    """Loops beside the estimators' kernels: CPU time of an item on one thread, and what ten iterations come to."""
    rows = []
    for name in ("sgd", "adarevision", "lda"):
        job = app(name, SIZE)
        _, call = job.make(measure=False, runtime=st.Serial())
        ends, seen = [], 0.0
        for epoch in range(EPOCHS):
            seen = call(epoch)
            ends.append(time.process_time())
        mine = float(np.median(np.diff(ends)))
        if name == "lda":
            _, call = job.make(measure=True, runtime=st.Serial())
            seen = [call(epoch) for epoch in range(EPOCHS)][-1]
        theirs, learned = estimator(name)
        what = f"{'perplexity' if name == 'lda' else 'error'} {seen:.4g}"
        rows.append([job.title, f"{1e9 * mine / job.items:.1f}", f"{1e9 * theirs / job.items:.1f}",
                     f"{mine / theirs:.2f}", what, learned])  # fmt: skip
        print(*rows[-1], sep=" | ", flush=True)
    head = ["application", "loop: ns of CPU an item", "by hand: ns", "loop / by hand",
            f"loop: after {EPOCHS} iterations", "by hand"]  # fmt: skip
    return (
        f"{report.table(head, rows)}\n\nBy hand: the estimators `MatrixFactorization` and "
        f"`LatentDirichletAllocation` (sparse sampler). One thread each, rank {RANK}, {TOPICS} topics."
    )


def mini_batch(parts: int, rate: float) -> tuple[Callable[[], None], Callable[[], float]]:
    """Mini-batch SGD in PyTorch: (an iteration, the mean squared error now). Nothing is updated within a batch."""
    import torch

    data = movies(SIZE)
    draw = np.random.default_rng(0).permutation(len(data))
    users, items = (torch.from_numpy(np.asarray(side, np.int64)[draw]) for side in (data.rows, data.cols))
    values = torch.from_numpy(np.asarray(data.values, np.float32)[draw])
    # The factors that the loop begins with.
    W, H = (torch.from_numpy(st.random((SIZE, RANK), scale=0.1, seed=seed).array.copy()) for seed in (1, 2))

    def iterate() -> None:
        for i, j, r in zip(users.chunk(parts), items.chunk(parts), values.chunk(parts), strict=True):
            w, h = W[i], H[j]
            e = (r - (w * h).sum(1))[:, None]
            for side, index, change in ((W, i, e * h), (H, j, e * w)):
                count = torch.bincount(index, minlength=SIZE).clamp_(min=1)[:, None]
                side.mul_(1 - 0.02 * rate).add_(torch.zeros_like(side).index_add_(0, index, change) / count, alpha=rate)

    return iterate, lambda: float(((values - (W[users] * H[items]).sum(1)) ** 2).mean())


def batches() -> str:
    """The loop beside mini-batches in PyTorch, one thread each: CPU time and error by iteration."""
    import torch

    torch.set_num_threads(1)
    data = movies(SIZE)
    loop = factorise.using(runtime=st.Serial())
    W, H = (st.random((SIZE, RANK), scale=0.1, seed=seed) for seed in (1, 2))

    def call() -> None:
        loop(data, W, H, STEP, 0.02, st.accumulator(0.0))

    def error() -> float:
        return float(((data.values - np.einsum("nk,nk->n", W.array[data.rows], H.array[data.cols])) ** 2).mean())

    runs: dict[str, tuple[float, tuple[Callable[[], None], Callable[[], float]]]] = {"loop": (STEP, (call, error))}
    for name, parts in BATCHES.items():
        rate = min(RATES, key=lambda rate: best(parts, rate))
        runs[f"PyTorch, batches of {name}"] = rate, mini_batch(parts, rate)
    rows: list[list[object]] = []
    first = 0.0
    for name, (step, (iterate, now)) in runs.items():
        took, seen = [], []
        for _ in range(EPOCHS):
            began = time.process_time()
            iterate()
            took.append(time.process_time() - began)
            seen.append(now())
        middle = statistics.median(took[1:])
        first = first or middle
        rows.append([name, f"{step:g}", f"{1e3 * middle:.1f}", f"{middle / first:.1f}×",
                     *(f"{seen[k - 1]:.4g}" for k in SHOWN)])  # fmt: skip
        print(*rows[-1], sep=" | ", flush=True)
    head = ["program", "step", "ms of CPU an iteration", "beside the loop", *(f"error after {k}" for k in SHOWN)]
    return (
        f"{report.table(head, rows)}\n\n{len(data):,} ratings, rank {RANK}, one thread each, CPU time. The paper's "
        "TensorFlow is not installed here; PyTorch does the same: gather rows, multiply, add up gradients, update "
        "after the batch. The gradient of a row is the mean over its ratings in the batch; the step is the best of "
        f"{', '.join(map(str, RATES))} after {EPOCHS} iterations."
    )


def best(parts: int, rate: float) -> float:
    """The error after all iterations with one step; infinite if it diverges."""
    iterate, now = mini_batch(parts, rate)
    for _ in range(EPOCHS):
        iterate()
    found = now()
    return found if np.isfinite(found) else np.inf
