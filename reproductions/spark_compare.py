"""Linear models of MLlib and of Stretto side by side: seconds to the same objective, from the start, and curves.

`spark_elastic_net` and `spark_logistic` say on which problems.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from . import report
from .spark_linear import Fitted, Problem, frame, pose, shared_file, spark_fit, stretto_fit
from .spark_objectives import Penalty
from .spark_session import (
    START,
    THREADS,
    Session,
    Timed,
    alone,
    first_within,
    from_start,
    in_turn,
    open_session,
    timed,
    times,
)

CLOSE = (1e-3, 1e-5)  # shares above the least objective known
MOST = 300  # iterations of MLlib
CURVE = (5, 20, 80)  # besides MOST
TOLS = tuple(10.0**-power for power in range(1, 10))


@dataclass(frozen=True)
class Compared:
    """What one problem gave."""

    problem: Problem
    least: float
    rows: list[list[object]]  # seconds to the objective
    whole: list[object]  # from the start of a process
    curves: dict[str, list[tuple[float, float]]]  # program → (seconds, share above the least objective)


def compare(problem: Problem, session: Session) -> Compared:
    """All measurements on one problem; `session` is warm."""
    path = shared_file(problem)
    features = problem.X.shape[1]
    data = frame(session, path, features)
    ours: Callable[[float], Fitted] = partial(stretto_fit, problem.penalty, problem.X, problem.y, problem.classes)
    least = problem.objective(ours(1e-10))
    histories, longest = {}, {}
    for solver in problem.solvers:
        longest[solver] = timed(partial(spark_fit, problem, data, solver, MOST), session)
        found, histories[solver] = longest[solver].value
        least = min(least, problem.objective(found))
        off = abs(problem.objective(found) / histories[solver][-1] - 1)
        print(f"{problem.title}: MLlib's own value of its objective ({solver}) is off ours by {off:.1e}", flush=True)
    reached: list[tuple[float, Timed, float]] = []
    for tol in TOLS:
        one = timed(partial(ours, tol), session)
        reached.append((tol, one, problem.objective(one.value)))
        if reached[-1][2] <= least * (1 + CLOSE[-1]):
            break
    rows: list[list[object]] = []
    chosen: dict[str, Any] = {}
    for close in CLOSE:
        target = least * (1 + close)
        tol = next(tol for tol, _, value in reached if value <= target)
        steps = {solver: first_within(history, target) for solver, history in histories.items()}
        programs: dict[str, Callable[[], Any]] = {"Stretto": partial(ours, tol)}
        for solver, step in steps.items():
            if step is not None:
                programs[solver] = partial(spark_fit, problem, data, solver, max(step, 1))
        took = in_turn(programs, session)
        mine = took["Stretto"]
        for solver, step in steps.items():
            cells: list[object] = [problem.title, f"{100 * close:g} %", f"{mine.seconds:.3f}", f"{mine.processor:.3f}"]
            if step is None:
                rows.append([*cells, solver, f"not in {MOST}", "", "", "", ""])
                continue
            theirs = took[solver]
            value = problem.objective(theirs.value[0])
            share = f"{100 * (value / least - 1):.2g} %"
            ratios = [times(mine.seconds, theirs.seconds), times(mine.processor, theirs.processor)]
            rows.append(
                [*cells, f"{solver}, {step}", share, f"{theirs.seconds:.2f}", f"{theirs.processor:.2f}", *ratios]
            )
            if close == CLOSE[0] and theirs.seconds < chosen.get("seconds", np.inf):
                chosen = {"solver": solver, "step": step, "seconds": theirs.seconds}
        print(rows[-1], flush=True)
        if close == CLOSE[0]:
            chosen["tol"] = tol
    curves = {"Stretto": [(one.seconds, value / least - 1) for _, one, value in reached]}
    for solver, last in longest.items():
        fits = [timed(partial(spark_fit, problem, data, solver, iterations), session) for iterations in CURVE]
        points = [(one.seconds, problem.objective(one.value[0]) / least - 1) for one in (*fits, last)]
        curves[f"MLlib, {solver}"] = sorted(points)
    data.unpersist()
    return Compared(problem, least, rows, whole_runs(problem, chosen), curves)


def whole_runs(problem: Problem, chosen: dict[str, Any]) -> list[object]:
    """Both programs in processes of their own, from their start to the objective."""
    if "solver" not in chosen:
        return [problem.title, *["–"] * 8]
    mine = alone("reproductions.spark_linear", "stretto", problem.key, f"{chosen['tol']}")
    theirs = alone("reproductions.spark_linear", "spark", problem.key, f"{chosen['step']}", chosen["solver"])
    return [problem.title, *from_start(mine, theirs)]


COLUMNS = ["data", "above the best", "Stretto, s", "processor s", "MLlib solver, iterations", "its objective"]
COLUMNS += ["MLlib, s", "processor s", "faster", "by processor s"]


def page(name: str, title: str, about: str, keys: Sequence[str]) -> list[Compared]:
    """Measure the problems and write the page of results, after each problem with what has been measured."""
    made: list[Compared] = []
    with open_session() as session:
        warm(keys[0], session)
        for key in keys:
            made.append(compare(pose(key), session))
            report.save(name, title, about, text_of(made, session.start), ("pyspark", "scikit-learn"))
    return made


def text_of(made: Sequence[Compared], start: float) -> str:
    """The tables. start: seconds of the session's start."""
    sets = [
        [one.problem.title, *map(str, one.problem.X.shape), f"{one.problem.penalty.l1:.4g}",
         f"{one.problem.penalty.l2:.4g}", f"{one.least:.6g}"]
        for one in made
    ]  # fmt: skip
    points = [
        [one.problem.title, program, *(f"{seconds:.2f}: {100 * max(share, 0):.2g} %" for seconds, share in series)]
        for one in made
        for program, series in one.curves.items()
    ]
    longest = max(len(row) for row in points)
    return "\n\n".join(
        [
            "## Problems", report.table(["data", "samples", "features", "L1", "L2", "best objective"], sets),
            "## Seconds to the same objective, start-up excluded",
            report.table(COLUMNS, [row for one in made for row in one.rows]),
            "## From the start of a process, to 0.1 % above the best",
            report.table(["data", *START], [one.whole for one in made]),
            f"Starting the session took {start:.1f} s in the run of the first table.",
            "## Objective against time", "Each cell is a fit: seconds, and how far above the best objective it ended.",
            report.table(
                ["data", "program", *[""] * (longest - 2)], [row + [""] * (longest - len(row)) for row in points]
            ),
        ]
    )  # fmt: skip


def warm(key: str, session: Session) -> None:
    """Compile on both sides: some fits of a small problem."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2_000, 50))
    y = X[:, 0] + rng.normal(size=2_000)
    classes = key.startswith("logistic")
    small = Problem(key, "small", X, np.sign(y) if classes else y, Penalty(0.01, 0 if classes else 0.01))
    from pyspark.ml.linalg import Vectors

    label = (y > 0).astype(float) if classes else y
    rows = [(float(one), Vectors.dense(row.tolist())) for row, one in zip(X, label, strict=True)]
    data = session.spark.createDataFrame(rows, ["label", "features"]).repartition(THREADS).cache()
    for solver in small.solvers:
        for _ in range(2):
            spark_fit(small, data, solver, 50)
    import scipy.sparse

    for kind in (np.asfortranarray, scipy.sparse.csc_matrix):
        stretto_fit(small.penalty, kind(X), small.y, classes, 1e-4)
