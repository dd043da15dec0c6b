"""Which source chooses the rounds of a program: its own schedule, a ready one, "auto", or schedulers on nodes."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from stretto.errors import PlanError
from stretto.schedule.automatic.auto import Auto
from stretto.schedule.checks import whole
from stretto.schedule.scheduler_share import SchedulerShare, scheduler_share
from stretto.schedule.spec import Schedule

from .auto import AutoSource
from .base import ProgramBase
from .choosing import RemoteSpecSource, RoundSource, SpecSource, UserSource
from .values import RunOptions


def source_of(made: ProgramBase, options: RunOptions, first: NDArray[Any], data: Any) -> RoundSource:
    """The source of rounds. first: the first array of the parameters; its rows are the jobs unless `size` is given."""
    program, schedule, size = made.name, made.schedule, made.size
    if isinstance(schedule, RoundSource):
        return schedule
    if not isinstance(schedule, Schedule):
        return UserSource(program, schedule)
    if size is None and not first.ndim and schedule.waiting is None:
        raise PlanError(f"{program}: the first array of params is a single number; say how many jobs there are: size=…")
    rows = len(first) if first.ndim else 1
    if size is not None:
        whole(f"{program}: size", size)
        if size < 1:
            raise PlanError(f"{program}: size={size}: a schedule needs at least one job to choose from")
    count, by_row = rows if size is None else size, size is None or size == rows
    if isinstance(schedule, Auto):
        return AutoSource(schedule, count, options, data, made.objective, by_row=by_row)
    source = RemoteSpecSource if options.schedulers_on == "nodes" else SpecSource
    return source(schedule, count, options.seed, data, by_row=by_row)


def shares_of(made: ProgramBase, options: RunOptions, first: NDArray[Any], data: Any) -> list[SchedulerShare]:
    """The shares of schedulers on nodes; empty where the driver chooses."""
    if options.schedulers_on != "nodes":
        return []
    size = (len(first) if first.ndim else 1) if made.size is None else made.size
    schedule = made.schedule
    return [scheduler_share(schedule, size, options.seed, data, q) for q in range(schedule.schedulers)]
