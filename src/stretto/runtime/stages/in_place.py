"""Sessions whose states are arrays of this process, and jobs that run on copies of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from stretto.runtime.tables.job import TableOutcome
from stretto.state.state import State

from .stage_runs import StageRun


class InPlace:
    """A session in whose process the states are: there is nothing to collect, and no node can be lost."""

    fallible = False

    def collect(self, owner: str, states: Mapping[int, State]) -> int:
        """The states have their values already."""
        return 0

    def reset(self, owner: str, states: Mapping[int, State]) -> None:
        """The arrays are used in place."""

    def release(self, owner: str, number: int | None = None) -> None:
        """Nothing is held."""


def start_values(stage: StageRun) -> None:
    """Write the values that states start from into their arrays."""
    for used in stage.states:
        if used.fill is not None:
            used.state.array[...] = used.fill
        elif used.first is not None:
            used.state.array[...] = used.first


def serve_copies(runtime: Any, stage: StageRun) -> TableOutcome:
    """Run a stage whose tables start with copies of the states, and write the results back."""
    start_values(stage)
    tables = list(stage.job.tables)
    for place, used in enumerate(stage.states):
        array = used.state.array
        tables[place] = replace(tables[place], start=array.reshape(len(array), -1).copy())
    outcome: TableOutcome = runtime.serve(replace(stage.job, tables=tuple(tables)))
    for used, rest in zip(stage.states, outcome.tables, strict=False):
        array = used.state.array
        array.reshape(len(array), -1)[rest.keys] = rest.values
    return outcome
