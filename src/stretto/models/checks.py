"""Parameters of estimators, checked before any work: which one is wrong, what it may be, what it is."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

import numpy as np

from stretto.errors import PlanError
from stretto.runtime.cluster.spec import Cluster
from stretto.runtime.runtimes import Runtime, Serial, Threads


def number(
    name: str,
    value: Any,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    whole: bool = False,
    why: str = "",
) -> None:
    """Refuse what is no finite number within these bounds. why: goes to the end of the message.

    >>> number("alpha", 0, above=0, why="use LinearRegression")
    Traceback (most recent call last):
    stretto.errors.PlanError: alpha must be a number more than 0; got 0; use LinearRegression
    """
    kind: Any = Integral if whole else Real
    fits = isinstance(value, kind) and not isinstance(value, bool | np.bool_) and bool(np.isfinite(float(value)))
    if fits:
        fits = (
            (least is None or value >= least)
            and (above is None or value > above)
            and (most is None or value <= most)
            and (below is None or value < below)
        )
    if fits:
        return
    bounds = [("at least", least), ("more than", above), ("at most", most), ("less than", below)]
    asked = " and ".join(f"{words} {bound:g}" for words, bound in bounds if bound is not None)
    text = f"{name} must be a {'whole ' if whole else ''}number {asked}".rstrip()
    raise PlanError(f"{text}; got {value!r}" + (f"; {why}" if why else ""))


def place(runtime: Any, n_jobs: Any, *, cluster: bool = False) -> Runtime:
    """Where to run: the runtime given, or so many threads. cluster: whether it may be one."""
    if isinstance(runtime, Cluster) and not cluster:
        raise PlanError(
            f"runtime={runtime!r}: a linear model looks at all its coordinates in one memory, which nodes do not have; "
            "use st.Threads(n), or write it as a worker function over tables (st.run), which runs on a cluster"
        )
    if runtime is not None and not isinstance(runtime, Serial | Threads | Cluster):
        others = ", st.Cluster(...)" if cluster else ""
        raise PlanError(f"runtime must be st.Threads(n), st.Serial(){others} or None; got {runtime!r}")
    found = Threads(n_jobs) if runtime is None else runtime
    _ = found.workers  # refuses what is no number of threads
    return found


def here(runtime: Any, n_jobs: Any) -> Runtime:
    """Where a fitted model is used: on this machine, wherever it was learned."""
    found = place(runtime, n_jobs, cluster=True)
    return Threads(n_jobs) if isinstance(found, Cluster) else found


def flags(**values: Any) -> None:
    """Refuse what is not True or False."""
    for name, value in values.items():
        if not isinstance(value, bool | np.bool_):
            raise PlanError(f"{name} must be True or False; got {value!r}")


def choice(name: str, value: Any, allowed: Iterable[str]) -> None:
    """Refuse what is not one of these words."""
    if value not in tuple(allowed):
        raise PlanError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {value!r}")
