"""A program on a node: its functions, the node's parts of the data, and the state of those parts."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stretto.errors import RunError
from stretto.runtime.pickled import pickled
from stretto.schedule.scheduler_share import Scheduler, SchedulerShare

from .base import ProgramBase
from .params import Arrays, Params
from .part_sources import read_parts
from .parts import packed
from .repeatable import NOTHING, made_twice

WHOLE_DATA = -1  # the part of a program whose data are not cut

# Attributes that only the driver needs; they are not sent to nodes.
_DRIVERS = ("params", "parts", "columns", "data", "schedule", "aggregate", "objective", "merge")


@dataclass(eq=False)
class NodeProgram:
    """The `NodeWork` of a program.

    Attributes
    ----------
    program : Program
        Without the attributes that only the driver needs.
    parts : dict of int to any
        The parts of the data on this node, or their sources. Data without parts are stored under WHOLE_DATA.
    count : int
        Parts of the data on all nodes; 1 for data without parts.
    """

    program: Any
    parts: dict[int, Any]
    count: int
    schedulers: dict[int, SchedulerShare] = field(default_factory=dict)  # schedulers on this node, by part
    _states: dict[int, Any] = field(default_factory=dict)
    _started: dict[int, Scheduler] = field(default_factory=dict)

    @property
    def stateful(self) -> bool:
        return self._local or bool(self.schedulers)

    @property
    def _local(self) -> bool:
        return self.program.local is not None

    def start(self, states: Mapping[int, bytes] | None) -> None:
        """Read the parts, then create their states or restore them."""
        self.parts = read_parts(self.program.name, self.parts, self.count, packed)
        for part, share in self.schedulers.items():
            self._started[part] = share.start()
            if states is not None:
                self._started[part].restore(unpacked(states[part]))
        if self._local:
            for part, data in self.parts.items():
                self._states[part] = local_state(self.program, part, data) if states is None else unpacked(states[part])

    def view(self, arrays: Arrays) -> Params:
        """Parameters, read-only."""
        return Params(arrays, writable=False)

    def update(self, job: Any, part: int, params: Any, check: str = "") -> Any:
        """Run a job on a part and return its result. check: see `update_of`."""
        state = self._states[part] if self._local else NOTHING
        return update_of(self.program, job, self.parts[part], params, state, check)

    def choose(self, part: int, request: bytes) -> Any:
        """Choose the jobs of a round."""
        return self._started[part].choose(unpacked(request))

    def state(self, part: int) -> bytes:
        """The state of a part, or of a scheduler, as bytes."""
        return packed_state(self._started[part].state() if part in self._started else self._states.get(part))

    def items(self, job: Any) -> float:
        """Samples that an update reads: its share of `samples`, or 1 if the program does not count samples."""
        counted = int(self.program.samples([job]))
        return counted / self.count if counted else 1.0


def node_program(
    program: ProgramBase, parts: Sequence[Any] | None, held: Sequence[int], schedulers: dict[int, SchedulerShare]
) -> NodeProgram:
    """The program for a node with some of the parts, or with all data if there are no parts."""
    sent = copy.copy(program)
    for name in _DRIVERS:
        if name in vars(sent):
            setattr(sent, name, None)
    if parts is None:
        if "data" in vars(sent):
            sent.data = program.data
        return NodeProgram(sent, {WHOLE_DATA: program.data}, 1, schedulers)
    return NodeProgram(sent, {part: parts[part] for part in held}, len(parts), schedulers)


def update_of(program: Any, job: Any, data: Any, params: Any, state: Any, check: str = "") -> Any:
    """Run an update and return its result.

    Parameters
    ----------
    state : any
        State of the part; NOTHING if it has none.
    check : str
        "": run it once. "cheap": twice if it takes little time. "always": twice. Two calls must give the same bits.
    """

    def call(state: Any) -> Any:
        return program.update(job, data, params, *(() if state is NOTHING else (state,)))

    return made_twice(call, state, always=check == "always") if check else call(state)


def local_state(program: ProgramBase, part: int, data: Any) -> Any:
    """The state of a part before the first round."""
    try:
        return program.local(data)
    except Exception as error:
        words = f"{program.name}: `local` failed for part {part + 1}: {type(error).__name__}: {error}"
        raise RunError(words) from error


def packed_state(state: Any) -> bytes:
    """A state as bytes."""
    advice = "keep numbers, arrays, text, lists, tuples and dicts in the state of a part"
    return pickled(
        state, lambda error: RunError(f"a {type(state).__name__} cannot be pickled to be saved ({error}); {advice}")
    )


def unpacked(state: bytes) -> Any:
    """The state that `packed_state` made bytes of."""
    return pickle.loads(state)
