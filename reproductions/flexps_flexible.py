"""Figures 6 and 7, Tables 3 and 4: SVRG and SGD with growing batches, each stage with its own width or all with one.

*Fixed* is the best of the widths tried for the whole job (the paper's FlexPS-): on several nodes, as the paper's, or on
one node, where our stages send nothing. *Own* is the best for each unit, found beforehand (FlexPS-Opt), *auto*
`workers="auto"` (FlexPS-Auto).

Jobs at a fixed width make at most 100 (SVRG: 20) iterations of a unit, and their time is scaled to all. Iterations on
one node take the same time each; on several they change by about a tenth while caches fill.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import stretto as st

from . import report
from .flexps_jobs import (
    KDD,
    PARTS,
    PER_NONZERO,
    THREADS,
    WEBSPAM,
    SparseSet,
    cluster,
    full,
    loss,
    scales,
    sgd_unit,
    svrg,
)

WIDTHS = (12, 24, 48, 96)
# Epochs of SVRG have many steps: fewer samples.
SHORT_KDD = SparseSet("kdd-like", 24_000, 163_840, 10)
SHORT_WEBSPAM = SparseSet("webspam-like", 9_600, 40_960, 100)
Widths = Mapping[str, Any]  # by unit


@dataclass(frozen=True)
class Job:
    """A task in terms of the widths of its units."""

    data: SparseSet
    iterations: Mapping[str, int]  # by unit
    make: Callable[[Widths, int, int], tuple[Any, Any]]  # (widths, most iterations of a unit, turns) -> task, model
    turns: int  # of the automatic one: it searches in the first
    per_nonzero: float
    most: int  # iterations of a unit at a fixed width
    unsearched: tuple[str, ...] = ()  # units of a single iteration, which keep their own width


def svrg_job(data: SparseSet, batch: int, turns: int, per_nonzero: float) -> Job:
    """SVRG: a full gradient, then steps that pass twice over the data."""
    steps = 2 * data.samples // batch
    scale = scales(data)

    def make(widths: Widths, most: int, turns: int) -> tuple[Any, Any]:
        w, start, mean = data.state(), data.state(), data.state()
        turn = st.seq(
            st.unit(
                full, *data.arrays, w, start, mean, data.samples, parts=PARTS, workers=widths["full"], fresh=[mean],
            ),
            st.unit(
                svrg, *data.arrays, w, start, mean, st.whole(scale), batch, parts=PARTS, iterations=min(most, steps),
                workers=widths["svrg"], batch=batch, preparation="whole",
            ),
        )  # fmt: skip
        return st.loop(turn, times=turns), w

    return Job(data, {"full": 1, "svrg": steps}, make, turns, per_nonzero, 20, ("full",))


def growing_job(data: SparseSet, shares: Sequence[float], per_nonzero: float) -> Job:
    """SGD in phases with growing batches, the data seen once in each."""
    batches = [round(share * data.samples) for share in shares]
    iterations = {f"sgd {batch}": data.samples // batch for batch in batches}

    def make(widths: Widths, most: int, turns: int) -> tuple[Any, Any]:
        w = data.state()
        units = []
        for batch, (name, count) in zip(batches, iterations.items(), strict=True):
            # Phases are one algorithm: the search of the next begins at the best width of the last.
            units.append(sgd_unit(data, w, batch, min(most, count), workers=widths[name], name="sgd"))
        return st.seq(*units), w

    return Job(data, iterations, make, 1, per_nonzero, 100)


def fig6() -> tuple[str, str]:
    """SVRG, by epoch."""
    return _compare([svrg_job(SHORT_KDD, 96, 2, PER_NONZERO), svrg_job(SHORT_WEBSPAM, 96, 2, PER_NONZERO / 10)])


def fig7() -> tuple[str, str]:
    """SGD with growing batches."""
    kdd = growing_job(KDD, (0.001, 0.01, 0.1), PER_NONZERO)
    return _compare([kdd, growing_job(WEBSPAM, (0.005, 0.05, 0.5), PER_NONZERO / 10)])


def _compare(jobs: Sequence[Job]) -> tuple[str, str]:
    """All ways for each job."""
    rows: list[list[Any]] = []
    found, agrees = [], True
    for job in jobs:
        names = list(job.iterations)
        fixed = {width: _fixed(job, width) for width in WIDTHS}
        seconds = {width: sum(units) for width, units in fixed.items()}
        wide = min((width for width in WIDTHS if width > THREADS), key=lambda width: seconds[width])
        for width in sorted({wide, THREADS}):
            rows.append([job.data.name, f"fixed: {width}", f"{seconds[width]:.3f}", "", f"{seconds[width] * width:.1f}",
                         "", ""])  # fmt: skip
            print(*rows[-1], flush=True)
        own = {name: min(WIDTHS, key=lambda width: fixed[width][at]) for at, name in enumerate(names)}
        auto = {name: own[name] if name in job.unsearched else "auto" for name in names}
        for called, widths, turns in (("own", own, 1), ("auto", auto, job.turns)):
            task, w = job.make(widths, max(job.iterations.values()), turns)
            result = st.run(task, runtime=cluster(seconds_per_item=job.per_nonzero))
            each, busy = result.seconds / turns, result.worker_seconds / turns
            shown = ", ".join(str(width) for width in _last_widths(result))
            less = {width: f"{1 - each / seconds[width]:.0%}" for width in (wide, THREADS)}
            fewer = {width: f"{seconds[width] * width / busy:.1f}×" for width in (wide, THREADS)}
            rows.append([job.data.name, f"{called}: {shown}", f"{each:.3f}", f"{less[wide]}, {less[THREADS]}",
                         f"{busy:.1f}", f"{fewer[wide]}, {fewer[THREADS]}",
                         f"{loss(job.data, w.array):.3f}"])  # fmt: skip
            print(*rows[-1], flush=True)
            found.append(
                f"{job.data.name}, {called}: {less[wide]} less time than {wide} workers and {fewer[wide]} fewer "
                f"worker-seconds ({less[THREADS]} and {fewer[THREADS]} against one node)"
            )
            agrees = agrees and each < 0.7 * seconds[wide] and seconds[wide] * wide > 2 * busy
    columns = ["data", "widths", "seconds", "less time than wide, one node", "worker-seconds",
               "fewer than wide, one node", "loss at the end"]  # fmt: skip
    verdict = "agrees against several nodes, smaller against one" if agrees else "direction only"
    return f"{verdict}: {'; '.join(found)}", report.table(columns, rows)


def _fixed(job: Job, width: int) -> list[float]:
    """Seconds of each unit at one width, scaled to all of its iterations."""
    task, _ = job.make(dict.fromkeys(job.iterations, width), job.most, 1)
    result = st.run(task, runtime=cluster(seconds_per_item=job.per_nonzero))
    return [
        stage.transition + stage.seconds * count / stage.iterations
        for stage, count in zip(result.stages, job.iterations.values(), strict=True)
    ]


def _last_widths(result: Any) -> list[int]:
    """The width that each unit ended with."""
    return list({stage.path: stage.width for stage in result.stages}.values())
