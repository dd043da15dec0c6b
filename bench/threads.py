"""Ratings per second of SGD at 1, 2, 4, 8, 16 threads, and where the time goes.

Every thread logs when each visit began and ended. So what is lost splits up: *idle* before a thread's first visit of an
epoch, between its visits (waiting for blocks) and after its last (waiting for the others and for Python), and *slower
visits*, how much longer a rating takes inside a visit than on one thread (shared caches, memory, clock speed). The
*machine's own limit* is the same kernel with every thread on small private data: nothing is shared and nobody waits.
"""

from __future__ import annotations

import statistics
import threading
import time
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

import stretto as st
from stretto.models.factorization.build import build_in_memory
from stretto.plan.plan import Physical
from stretto.runtime.blocks import pass_control
from stretto.runtime.runtimes import Threads
from stretto.solvers.factorization.problem import FactorizationProblem
from stretto.solvers.factorization.sgd import SgdJob

from . import report, sets

RANK, EPOCHS, ROUNDS = 64, 5, 5
COUNTS = (1, 2, 4, 8, 16)
# Ratings, rows, columns.
SIZES = ((10_000_000, 70_000, 12_000), (50_000_000, 150_000, 20_000))
PRIVATE = (600_000, 30_000, 6_000)


@dataclass(frozen=True)
class Lap:
    """An epoch: M ratings/s, shares of the threads' time that were idle, nanoseconds of a rating inside a visit."""

    rate: float
    early: float
    between: float
    late: float
    inside: float


def build(data: st.Data, threads: int, profile: str) -> SgdJob:
    """The job of the hand-written kernel, laid out with every core."""
    with Threads().open() as crew:
        physical = Physical("threads", threads)
        settings: dict[str, Any] = {"seed": 0, "profile": profile, "width": 16, "physical": physical}
        job: SgdJob = build_in_memory(FactorizationProblem(RANK), data, crew, **settings)
        return job


def epochs_of(job: SgdJob, threads: int, profile: str) -> list[Lap]:
    """Some epochs; the first, which touches the memory for the first time, does not count."""
    laps = []
    with Threads(threads).open() as crew:
        for epoch in range(EPOCHS):
            done = crew.run(job.steps(epoch)[0], profile)
            wall, log = done.seconds * 1e9, done.log
            visiting = int((log[:, 3] - log[:, 2]).sum())
            lanes = [lane for lane in (log[log[:, 1] == worker] for worker in range(threads)) if len(lane)]
            early = sum(int(lane[:, 2].min()) for lane in lanes) / (threads * wall)
            late = sum(wall - int(lane[:, 3].max()) for lane in lanes) / (threads * wall)
            between = 1 - visiting / (threads * wall) - early - late
            laps.append(Lap(job.items / done.seconds / 1e6, early, between, late, visiting / job.items))
    return laps[1:]


def median(laps: list[Lap]) -> Lap:
    """The median of each number."""
    return Lap(*(statistics.median(column) for column in zip(*map(astuple, laps), strict=True)))


def alone_together(jobs: list[SgdJob]) -> float:
    """Nanoseconds of one rating when each thread works through a job of its own, all at once."""
    ready, taken = threading.Barrier(len(jobs)), [0.0] * len(jobs)

    def work(k: int) -> None:
        step = jobs[k].steps(0)[0]
        script = np.arange(len(step.order))
        prepared = [pass_control.start(step.order, step.weight, script=script) for _ in range(10)]
        ready.wait()
        began = time.perf_counter()
        for pass_ in prepared:
            step.kernel.exact(pass_.words, 0, step.out, *step.args)
        taken[k] = (time.perf_counter() - began) / (len(prepared) * jobs[k].items) * 1e9

    threads = [threading.Thread(target=work, args=(k,)) for k in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statistics.mean(taken)


def limits(counts: list[int]) -> dict[int, float]:
    """The machine's own limit: efficiency of threads that have nothing to do with each other."""
    jobs = [build(st.generate_ratings(*PRIVATE, seed=k).data, 1, "exact") for k in range(max(counts))]
    alone_together(jobs[:1])
    costs = {n: statistics.median(alone_together(jobs[:n]) for _ in range(3)) for n in counts}
    return {n: costs[1] / cost for n, cost in costs.items()}


def main() -> None:
    """Measure at every number of threads this machine has cores for."""
    counts = [n for n in COUNTS if n <= report.cores()]
    ceiling = limits(counts)
    rows, notes = [], []
    for size in SIZES if report.cores() > 2 else SIZES[:1]:
        data = sets.generated(*size)
        hottest = max(np.bincount(data.rows).max(), np.bincount(data.cols).max()) / len(data)
        digests = set()
        for profile in ("exact", "fast"):
            laps: dict[int, list[Lap]] = {threads: [] for threads in counts}
            # In rounds, so that a slow minute of the machine falls on every number of threads.
            for _ in range(ROUNDS):
                for threads in counts:
                    job = build(data, threads, profile)
                    laps[threads] += epochs_of(job, threads, profile)
                    if profile == "exact":
                        digests.add(hash(job.factors.W.array.tobytes() + job.factors.H.array.tobytes()))
            first = median(laps[counts[0]])
            for threads in counts:
                lap, bound = median(laps[threads]), job.plan.bound(threads).efficiency
                shares = [f"{lap.rate / (threads * first.rate):.0%}", f"{ceiling[threads]:.0%}", f"{bound:.0%}"]
                idle = [f"{share:.1%}" for share in (lap.early, lap.between, lap.late)]
                slower = f"{lap.inside / first.inside - 1:+.0%}"
                rows.append([f"{len(data) // 10**6} M", profile, threads, f"{lap.rate:.1f}", *shares, *idle, slower])
                print(rows[-1], flush=True)
        same = "the same bits" if len(digests) == 1 else "DIFFERENT BITS"
        notes.append(
            f"{len(data):,} ratings, {data.shape[0]:,} × {data.shape[1]:,}, hottest row or column {hottest:.2%} of "
            f"them; profile exact gave {same} at every number of threads."
        )
    columns = ["set", "profile", "threads", "M ratings/s", "efficiency", "machine's own limit", "bound of the order"]
    columns += ["idle: start", "between", "end", "slower visits"]
    about = "\n".join([report.text(__doc__), f"Rank {RANK}, median of {ROUNDS * (EPOCHS - 1)} epochs.", *notes])
    report.save("threads", "Threads", about, report.table(columns, rows))
