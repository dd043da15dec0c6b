"""`schedule="auto"` in programs: cost of a round on a runtime, pipeline depth, and evaluation of progress.

The cost of a round follows from the latency of the runtime's specification, never from measured time or the number of
workers, so the same program, seed, pipeline and latency make the same choices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from stretto.checks import whole
from stretto.runtime.chosen import one_memory
from stretto.schedule.automatic.auto import Auto, AutoChooser
from stretto.schedule.automatic.candidates import PYTHON, RoundCost
from stretto.schedule.automatic.trials import Decision
from stretto.schedule.waiting import JobOrder

from .base import ProgramBase
from .choosing import Situation, SpecSource
from .values import RunOptions, number_of

IN_FLIGHT = 3  # rounds, between machines: one is chosen, one updated and one aggregated at the same time
_LATENCY = 200e-6  # seconds between machines, where the runtime does not say
_ENTRIES_PER_SECOND = 1e9


def latency_of(runtime: Any) -> float:
    """Seconds that a message takes, from the specification of a runtime; 0 in one memory."""
    return 0.0 if one_memory(runtime) else float(getattr(runtime, "latency", _LATENCY))


def depth_of(schedule: Any, pipeline: int | None, runtime: Any) -> int:
    """Pipeline depth: the given one, else 1, or with `schedule="auto"` as many rounds as hide the runtime's latency."""
    if pipeline is not None:
        return whole("pipeline", pipeline, 1)
    if not isinstance(schedule, Auto):
        return 1
    return IN_FLIGHT if (latency_of(runtime) if schedule.latency is None else schedule.latency) > 0 else 1


def round_cost(schedule: Auto, runtime: Any, depth: int, base: RoundCost = PYTHON) -> RoundCost:
    """The cost of a round on a runtime: one message each way, shared by the rounds in flight."""
    latency = latency_of(runtime) if schedule.latency is None else schedule.latency
    waiting = 2.0 * latency * _ENTRIES_PER_SECOND / depth
    return RoundCost(base.round + waiting, base.job)


class AutoSource(SpecSource):
    """Chooses by `schedule="auto"`; evaluates the objective itself, on the parameters that a round reads."""

    def __init__(
        self,
        spec: Auto,
        size: int,
        options: RunOptions,
        data: Any,
        objective: Callable[..., Any] | None,
        *,
        by_row: bool,
    ) -> None:
        cost = round_cost(spec, options.runtime, options.pipeline)
        self._objective = objective
        self._auto: AutoChooser = spec.begin(
            size, options.seed, data, cost, depth=options.pipeline, objective=objective is not None, learns=by_row
        )
        super().__init__(spec, size, options.seed, data, by_row=by_row, chooser=self._auto)
        self.learns = self._auto.learns

    @property
    def choices(self) -> tuple[Decision, ...]:
        """The choices made so far."""
        return self._auto.decisions

    def choose(self, now: Situation) -> tuple[tuple[Any, ...], JobOrder | None]:
        chooser, known = self._auto, 0
        if now.last is not None:
            known, numbers = now.last.round, self._numbers.pop(now.last.round)
            chooser.learn(numbers, np.zeros(len(numbers)) if now.last.changes is None else now.last.changes)
        if chooser.due:
            assert self._objective is not None
            chooser.observe(known, number_of(self._objective(now.data, now.params)))
        numbers = self._numbers[now.round] = chooser.choose()
        return tuple(self._spec.named(numbers)), None


def candidate_facts(
    program: ProgramBase, size: int, data: Any, pipeline: int, runtime: Any, base: RoundCost | None = None
) -> Sequence[tuple[str, str]]:
    """What `schedule="auto"` would try, for explain()."""
    schedule: Auto = program.schedule
    by_row = program.size is None or base is not None or size == _rows(program.params)
    found = schedule.candidates(
        size, data, round_cost(schedule, runtime, pipeline, base or PYTHON), depth=pipeline,
        objective=program.objective is not None, learns=by_row,
    )  # fmt: skip
    return [("", line) for line in found.lines()]


def _rows(params: Mapping[str, Any]) -> int:
    first = np.asarray(next(iter(params.values())))
    return len(first) if first.ndim else 1
