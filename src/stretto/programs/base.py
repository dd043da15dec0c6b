"""`ProgramBase`: the functions and attributes of a program, and their checks."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from stretto.errors import PlanError
from stretto.schedule.automatic.auto import ready_schedule
from stretto.schedule.checks import uncalled
from stretto.schedule.spec import Schedule

from .values import ProgramIdentity, ProgramResult, RunOptions

_NEEDED = {
    "schedule": 'a ready schedule such as st.schedule.cyclic(), "auto", or a method schedule(self, state) -> jobs',
    "update": "a method update(self, job, data, params) -> result",
    "aggregate": "a method aggregate(self, results, params)",
}
_TAKES = {"schedule": ("state",), "update": ("job", "data", "params"), "aggregate": ("results", "params")}


class ProgramBase(ABC):
    """What a run reads of an `st.Program`, which documents the attributes."""

    data: Any = None
    params: Any
    schedule: Any
    update: Any
    aggregate: Any
    objective: Any = None
    parts: Any = None
    merge: Any = None
    local: Any = None
    size: int | None = None
    columns: Any = None

    @property
    def name(self) -> str:
        """Name of the program in messages."""
        return type(self).__name__

    def samples(self, jobs: Sequence[Any]) -> int:
        """Number of data samples that these jobs read, for `Look.samples`; 0 if they are not counted.

        Parameters
        ----------
        jobs : sequence
            Jobs of a round.
        """
        return 0

    def _check(self) -> None:
        """Refuse a program without a required function or attribute."""
        check(self)

    @abstractmethod
    def launch(self, options: RunOptions) -> ProgramResult:
        """Run the program."""

    @abstractmethod
    def identity(self, pipeline: int, seed: int) -> ProgramIdentity:
        """What decides the bits of a run, by name."""

    @abstractmethod
    def explain(self, *, pipeline: int | None = None, runtime: Any = None) -> str:
        """How the program would run and what is promised, in words."""


def settle_schedule(program: ProgramBase) -> None:
    """Replace the name of a schedule, "auto", by the schedule."""
    if isinstance(getattr(program, "schedule", None), str):
        program.schedule = ready_schedule(program.schedule)


def check(program: ProgramBase) -> None:
    """Refuse a program without a required attribute, or with a function of the wrong signature."""
    settle_schedule(program)
    for part, needed in _NEEDED.items():
        found = getattr(program, part, None)
        if found is None:
            raise PlanError(f"{program.name} has no `{part}`; give it {needed}")
        if part == "schedule" and isinstance(found, Schedule):
            continue
        if part == "schedule" and (instead := uncalled(found)):
            raise PlanError(f"{program.name}: `schedule` is a function that makes one; write schedule={instead}")
        if not callable(found):
            raise PlanError(f"{program.name}: `{part}` is {found!r}, which cannot be called; give it {needed}")
        takes = _TAKES[part]
        if part == "update" and program.parts is not None:
            takes = ("job", "part", "params")
        if part == "update" and program.local is not None:
            takes = (*takes, "local")
        _check_signature(program.name, part, found, takes)
    _check_parts(program)
    if not hasattr(program, "params"):
        raise PlanError(f"{program.name} has no `params`; set self.params to a dict of the arrays that are learned")
    if program.objective is not None:
        _check_signature(program.name, "objective", program.objective, ("data", "params"))


def _check_parts(program: ProgramBase) -> None:
    name, schedule = program.name, program.schedule
    for part, takes in (("merge", ("a", "b")), ("local", ("part",))):
        found = getattr(program, part)
        if found is None:
            continue
        if program.parts is None:
            raise PlanError(f"{name}: `{part}` is for data that are cut; give parts= as well, a list or a number")
        if not callable(found):
            raise PlanError(f"{name}: `{part}` is {found!r}, which cannot be called; give {part}({', '.join(takes)})")
        _check_signature(name, part, found, takes)
    if program.parts is not None and isinstance(schedule, Schedule) and schedule.waiting is not None:
        raise PlanError(
            f"{name}: jobs of {schedule!r} wait for each other within a round, and with parts= a round is merged as a "
            "whole; leave parts out"
        )


def _check_signature(name: str, part: str, function: Callable[..., Any], takes: tuple[str, ...]) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some compiled functions have no signature
        return
    try:
        signature.bind(*takes)
    except TypeError as problem:
        raise PlanError(
            f"{name}: `{part}` takes {signature}, and will be given ({', '.join(takes)}): {problem}"
        ) from None
