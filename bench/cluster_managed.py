"""Managed communication on a link that is really limited: cables of 100 Mbit in the laboratory, four machines.

Matrix factorisation (16 million generated ratings, 40,000 users, 1,500 items, rank 32; both factors served, users' rows
at home with the worker that has them) and data-parallel LDA (IMDB's 100,000 reviews and their 4,000 most frequent
words, 100 topics), SSP(2), a clock a pass. BS: nothing but ends of clocks, as fast as the cable is. MC: within a budget
for each machine (25 Mbit for MF, 40 Mbit for LDA), ends of clocks included, and what is left is used between them, rows
by random (R) or relative (RM) rank. Budgets are below the cables' rate because handling messages takes from half a
processor what computing needs.

Targets are what BS reaches in two numbers of passes (5 and 7, 5 and 8, 10 and 16), which were fixed before this run and
after trial runs on a busy machine. Before the first pass is a clock in which rows are fetched, kernels loaded and
nothing learned; seconds count from its end and are interpolated between ends of passes. Objectives are computed
afterwards from what the runs wrote to files: looking takes nothing from processors, and from cables only the tables of
MF (5 MB a pass, through Ray). "Most" is the most that a machine sent in any second, headers and acknowledgements of TCP
included, by the kernel's counters of the data plane's ports; it should stay below 1.05 × the budget. Where workers take
the steps (add), BS has the largest of 0.002, 0.003 and 0.004 that does not diverge, tried on the simulator; MC has that
one, and 0.005, which it bears and BS does not.

Then the same stratified factorisation (MovieLens-1M, rank 32) with its item factor in three placements: rotating (the
estimator), served block by block, and replicated (everybody holds all of it); the last two under barriers.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import cluster_managed_jobs as jobs
from . import report
from .laboratory import HOSTS, drive, laboratory
from .table_runs import said

LINK = "100Mbit"
BUDGETS = {"ratings": ("25Mbit", 3.125e6), "corpus": ("40Mbit", 5e6)}  # and bytes a second
BS, R, RM = ("BS", "random"), ("MC-R", "random"), ("MC-RM", "relative")
SIZES = jobs.Sizes()
ADD = {"server": "add", "decay": 0.98}
Mode = tuple[str, str]
# What it is called, the job, the seed of its data, passes of BS that fix the two targets; then the runs, BS first.
RUNS: tuple[tuple[str, str, int, tuple[int, int], list[tuple[Mode, dict[str, Any]]]], ...] = (
    ("MF, adarevision", "ratings", 0, (5, 7), [(mode, {"server": "adarevision", "rate": 0.2}) for mode in (BS, R, RM)]),
    (
        "MF, add",
        "ratings",
        0,
        (5, 8),
        [(BS, {**ADD, "rate": 0.003}), (R, {**ADD, "rate": 0.003}), *((m, {**ADD, "rate": 0.005}) for m in (R, RM))],
    ),
    ("LDA", "corpus", 0, (10, 16), [(mode, {}) for mode in (BS, R, RM)]),
    ("LDA, seed 1", "corpus", 1, (10, 16), [(mode, {}) for mode in (BS, R, RM)]),
)
PASSES = 10  # of the placements


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder that all machines see."""
    folder = Path(tempfile.mkdtemp(prefix="stretto-managed-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def reached(ends: list[float], objectives: list[float], target: float) -> tuple[float, float]:
    """(passes, seconds) until the objective is reached, both interpolated; infinite if it never is.

    ends [passes + 1]: when passes ended, the first: when they began.
    """
    for clock in range(1, len(objectives)):
        before, after = objectives[clock - 1], objectives[clock]
        if after >= target:
            share = 1.0 if before >= target or after == before else (target - before) / (after - before)
            return clock - 1 + share, ends[clock - 1] + share * (ends[clock] - ends[clock - 1]) - ends[0]
    return math.inf, math.inf


def convergence(lab: Any, folders: dict[tuple[str, int], Path]) -> list[list[object]]:
    """Each job under each mode."""
    rows: list[list[object]] = []
    for name, job, seed, passes, runs in RUNS:
        targets, first = (math.nan,) * 2, (math.nan,) * 2
        folder, last = folders[job, seed], passes[-1]
        for (mode, rank), options in runs:
            budget, limit = BUDGETS[job] if mode != "BS" else (None, math.inf)
            with scratch() as looks:
                told = drive(
                    lab, job, module="bench.cluster_managed_jobs", folder=str(folder), looks=str(looks), nodes=HOSTS,
                    workers=HOSTS, budget=budget, rank=rank, passes=last, **options,
                )  # fmt: skip
                found = OBJECTIVES[job](folder, looks, last)
            if mode == "BS":
                targets = found[passes[0]], found[passes[1]]
            needed = [reached(told["ends"], found, target) for target in targets]
            if mode == "BS":
                first = needed[0][1], needed[1][1]
            most, sent = max(told["kernel_most"]), sum(told["kernel_bytes"])
            row: list[object] = [name, f"{mode}, step {options['rate']}" if "rate" in options else mode]
            for target, (clocks, seconds), of_bs in zip(targets, needed, first, strict=True):
                row += [f"{target:.4g}", said(clocks, 1), said(seconds, 1), f"**{of_bs / seconds:.2f}×**"]
            row += [
                f"{(told['ends'][-1] - told['ends'][1]) / (last - 1):.2f}", f"{told['cpu'][0]:.2f}",
                f"{sent / HOSTS / last / 1e6:.2f}", f"{most / 1e6:.2f}",
                "–" if budget is None else f"{most / limit:.3f}",
            ]  # fmt: skip
            rows.append(row)
            print("  ", *row, [f"{value:.5g}" for value in found], flush=True)
    return rows


OBJECTIVES = {"ratings": jobs.objective_ratings, "corpus": jobs.objective_corpus}


def placements(lab: Any) -> list[list[object]]:
    """Stratified factorisation: bytes and time of a pass."""
    rows: list[list[object]] = []
    ways: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("rotating", "rotation", {}),
        ("served", "strata", {}),
        ("replicated", "strata", {"whole": True}),
    )
    for name, job, options in ways:
        told = drive(lab, job, nodes=HOSTS, passes=PASSES, **options)
        rows.append([name, f"{told['pace']:.3f}", f"{sum(told['kernel_bytes']) / PASSES / 1e6:.2f}"])
        print("  ", *rows[-1], flush=True)
    return rows


def main() -> None:
    """Both tables."""
    prepare = {"ratings": jobs.prepare_ratings, "corpus": jobs.prepare_corpus}
    folders = {(job, seed): prepare[job](SIZES, HOSTS, seed) for _, job, seed, *_ in RUNS}
    with laboratory(link=LINK) as lab:
        second = report.table(["item factor", "s a pass", "MB a pass, all machines"], placements(lab))
        each = ["target", "passes", "s", "faster than BS"]
        first = report.table(
            ["job", "mode", *each, *each, "s a pass", "CPU s a pass", "MB a machine and pass", "most MB in a second",
             "of the budget"],
            convergence(lab, folders),
        )  # fmt: skip
    body = f"{first}\n\n{second}"
    report.save("cluster_managed", "Managed communication at 100 Mbit", report.text(__doc__), body, ["ray", "pyzmq"])


if __name__ == "__main__":
    main()
