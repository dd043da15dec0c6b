"""How unevenly coefficients converge: Figure 5.

A coefficient has converged by a sweep if from there on it never is further from where it ends than a thousandth of the
largest one. Serial coordinate descent in turn, many sweeps; "ever moved" counts those that were not zero at any time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import stretto as st
from stretto.figures import FAINT
from stretto.programs.run import run

from . import report, smpframe_sets
from .smpframe_runs import figure
from .smpframe_sets import Task

PARTS = (3, 10, 30, 100)
SWEEPS = 200
NEAR = 1e-3


def _path(task: Task) -> np.ndarray[Any, np.dtype[np.float64]]:
    """[SWEEPS + 1, p] coefficients after each sweep."""
    program = task.program(st.schedule.cyclic(1))
    size = task.X.shape[1]
    path = np.zeros((SWEEPS + 1, size))
    for sweep in range(1, SWEEPS + 1):
        run(program, rounds=size, every=size, runtime=st.Serial())
        path[sweep] = program.params["coef"]
    return path


def fig5() -> tuple[str, str]:
    """Share of coefficients that have converged by each sweep, for several λ."""
    rows: list[list[object]] = []
    panels, found = [], []
    base = smpframe_sets.lasso()
    for task in base[:2]:
        curves = {}
        for part in PARTS:
            # λ alone changes: the optimum is not needed here.
            path = _path(Task(task.name, task.X, task.y, task.alpha * 10 / part, "squared", task.start, 0.0))
            away = np.abs(path - path[-1]) > NEAR * np.abs(path[-1]).max()
            # the first sweep from which on it stays near
            last = np.where(away.any(axis=0), SWEEPS - np.argmax(away[::-1], axis=0), -1) + 1
            share = np.array([(last <= sweep).mean() for sweep in range(SWEEPS + 1)])
            moved = (path != 0).any(axis=0)
            among = float((last[moved] <= 5).mean())
            curves[f"λ_max/{part}"] = share
            rows.append(
                [task.name, f"λ_max/{part}", f"{(path[-1] != 0).mean():.1%}", f"{moved.mean():.1%}",
                 *(f"{share[at]:.1%}" for at in (1, 5, 20, 100)), f"{among:.1%}"]
            )  # fmt: skip
        found.append(f"{task.name}: " + ", ".join(f"{name} {curve[5]:.0%}" for name, curve in curves.items()))

        def draw(axes: Any, curves: dict[str, Any] = curves) -> None:
            for name, curve in curves.items():
                axes.plot(range(1, SWEEPS + 1), 100 * curve[1:], label=name)
            axes.axvline(5, color=FAINT, linewidth=1)
            axes.set_xscale("log")

        panels.append((f"Lasso, {task.name}", "sweep over the data", "% of coefficients converged", draw))
    figure("smpframe-fig5.png", panels)
    columns = [
        "set", "λ", "not zero in the end", "ever moved", *(f"by sweep {at}" for at in (1, 5, 20, 100)),
        "by sweep 5, of those that ever moved",
    ]  # fmt: skip
    return "by sweep 5: " + "; ".join(found), report.table(columns, rows)
