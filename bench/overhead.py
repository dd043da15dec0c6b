"""What choosing costs: the share of a run that is spent on the schedule, at 2 threads, on the sparse sets.

*Rounds*: `st.SparseRegression` with `st.schedule.prioritised(width=64)`: thread time in choosing (priorities,
candidates, conflicts) over thread time in choosing, updating and aggregating, for the first 20 000 rounds. *Working
sets*: `st.Lasso` to a duality gap of 1e-6·‖y − ȳ‖²: time in screening and choosing sets over the time of the fit; an
evaluation of all columns, which gives the gap that ends the fit and the distances the choice is made by, is a column
of its own.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import stretto as st
from stretto.solvers.linear.columns import ColumnPasses
from stretto.solvers.linear.working_sets import WorkingSetSolver

from . import report, sparse_sets

SETS = ("imdb", "20news", "blog")
ROUNDS = 20_000


@contextmanager
def timed(owner: type, *names: str) -> Iterator[Counter[str]]:
    """Seconds spent in these methods while the context lasts."""
    spent: Counter[str] = Counter()
    kept = {name: getattr(owner, name) for name in names}

    def watch(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return method(*args, **named)
            finally:
                spent[name] += time.perf_counter() - began  # type: ignore[assignment]

        return watched

    for name, method in kept.items():
        setattr(owner, name, watch(name, method))
    try:
        yield spent
    finally:
        for name, method in kept.items():
            setattr(owner, name, method)


def by_sets(X: Any, y: Any, alpha: float) -> list[str]:
    """Share of choosing and of looking in a fit by working sets."""
    model = st.Lasso(alpha, tol=1e-6, n_jobs=2).fit(X, y)
    with (
        timed(WorkingSetSolver, "_screen", "_choose", "_tolerance") as chosen,
        timed(ColumnPasses, "price", "survey") as looked,
    ):
        began = time.perf_counter()
        model.fit(X, y)
        whole = time.perf_counter() - began
    return [f"{whole:.3g}", f"{sum(chosen.values()) / whole:.1%}", f"{sum(looked.values()) / whole:.1%}"]


def by_rounds(X: Any, y: Any, alpha: float, pipeline: int) -> str:
    """Share of choosing in rounds of the prioritised schedule."""
    program = st.SparseRegression(X, y, alpha, intercept=True, schedule=st.schedule.prioritised(width=64))
    st.run(program, rounds=10, every=10, pipeline=pipeline, runtime=st.Threads(2))
    program = st.SparseRegression(X, y, alpha, intercept=True, schedule=st.schedule.prioritised(width=64))
    result = st.run(program, rounds=ROUNDS, every=ROUNDS, pipeline=pipeline, runtime=st.Threads(2))
    return f"{result.schedule_seconds / result.busy_seconds:.1%}"


def main() -> None:
    """Measure and save."""
    rows = []
    for name in sparse_sets.chosen(SETS):
        X, y = sparse_sets.load(name)
        top = float(np.abs(X.T @ (y - y.mean())).max()) / len(y)
        for divisor in (10, 100):
            alpha = top / divisor
            rounds = [by_rounds(X, y, alpha, pipeline) for pipeline in (1, 3)]
            rows.append([sparse_sets.title(name), f"λ_max/{divisor}", *by_sets(X, y, alpha), *rounds])
            print(*rows[-1], sep=" | ", flush=True)
    columns = ["set", "penalty", "fit, s", "choosing sets", "evaluating all", "rounds: choosing", "with 3 in flight"]
    report.save("overhead", "What choosing costs", report.text(__doc__), report.table(columns, rows))
