"""The updates of a program on a node, as a pure state machine: messages in, updates to run, reports out.

    node.take(number, message)      # messages are numbered from 0, and are handled in that order
    update = node.next_update()     # None: no update can start now
    node.made(update, outcome)      # a Report, once all updates of a message are made

Messages: `LoadWork` (the program's part of the work, parameters, saved states), `AssignUpdates` (updates of one round,
with the changed parameters), `SaveStates`, and `ChooseRound` where schedulers run on nodes. Where parts have state,
the updates of a part run one after another in the order of arrival, and its state is saved between the updates before
`SaveStates` and those after it. A scheduler is a part whose updates are choices.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from stretto.errors import RunError
from stretto.runtime.cluster.hosts.remote_errors import portable
from stretto.runtime.pickled import pickled

from .patches import Arrays, Patch, apply_patch, copied, touched_by

STATE = -1  # number of the update that saves the state of a part
CHOICE = -2  # number of the update in which a scheduler chooses a round


class NodeWork(Protocol):
    """The functions that a node calls to make updates; sent by the driver."""

    @property
    def stateful(self) -> bool:
        """Whether parts have state that updates write to."""
        ...

    def start(self, states: Mapping[int, bytes] | None) -> None:
        """Create the state of its parts, or restore what `state` returned."""
        ...

    def view(self, arrays: Arrays) -> Any:
        """The parameters in the form that `update` takes."""
        ...

    def update(self, job: Any, part: int, params: Any, check: str = "") -> Any:
        """The result of a job on a part. `check`: how the update is checked, as the driver's work says."""
        ...

    def choose(self, part: int, request: bytes) -> Any:
        """The jobs of a round, chosen by the scheduler with this part number."""
        ...

    def state(self, part: int) -> bytes:
        """The pickled state of a part."""
        ...

    def items(self, job: Any) -> float:
        """How many items an update of this job processes, for virtual time."""
        ...


@dataclass(frozen=True, eq=False)
class LoadWork:
    """The first message."""

    work: NodeWork | bytes  # pickled where hosts are other processes, so that errors are reported and not fatal
    states: Mapping[int, bytes] | None  # saved states by part; None: create them


@dataclass(frozen=True, eq=False)
class AssignUpdates:
    """Updates of one round."""

    round: int
    base: Arrays | None  # the parameters to start from; None: those that the node has
    patches: tuple[Patch, ...]  # changes of the parameters
    jobs: bytes  # pickled [(number in the round, job, part)]
    silent: frozenset[int] = frozenset()  # numbers of updates that are not reported
    checks: Mapping[int, str] = field(default_factory=dict)  # by number: updates that are checked, and how


@dataclass(frozen=True, eq=False)
class SaveStates:
    """Save the states of these parts after all updates that were assigned before."""

    round: int
    parts: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class ChooseRound:
    """Have a scheduler on this node choose a round."""

    round: int
    part: int  # of the scheduler
    request: bytes
    silent: bool  # not reported


class UpdateOutcome(NamedTuple):
    """The outcome of an update: the pickled result or state, or an error."""

    number: int  # of the update in its round; of a state, its part
    result: bytes | None
    error: BaseException | None = None


@dataclass(frozen=True, eq=False)
class UpdateReport:
    """All outcomes of a message."""

    round: int
    states: bool  # of a SaveStates
    outcomes: tuple[UpdateOutcome, ...]
    seconds: float  # processor time of all updates together
    choice: bool = False  # of a ChooseRound


@dataclass(slots=True, eq=False)
class _Version:
    """A version of the parameters."""

    arrays: Arrays
    view: Any
    readers: int = 0  # unfinished updates that read it


@dataclass(slots=True, eq=False)
class _Batch:
    """The updates of one message."""

    round: int
    states: bool
    left: int  # updates not made yet
    outcomes: list[UpdateOutcome] = field(default_factory=list)
    seconds: float = 0.0
    choice: bool = False


@dataclass(slots=True, eq=False)
class NodeUpdate:
    """One update to be made."""

    number: int  # in its round, or STATE, or CHOICE
    job: Any
    part: int
    silent: bool
    batch: _Batch
    version: _Version | None
    check: str = ""


class RoundsNode:
    """The updates of one incarnation on a host."""

    def __init__(self) -> None:
        self.work: NodeWork | None = None
        self._next = 0
        self._early: dict[int, Any] = {}
        self._version: _Version | None = None
        self._queue: deque[NodeUpdate] = deque()
        self._busy: set[int] = set()  # parts whose state is in use

    def take(self, number: int, message: Any) -> None:
        """Receive a message; it is handled after all earlier ones."""
        self._early[number] = message
        while self._next in self._early:
            self._handle(self._early.pop(self._next))
            self._next += 1

    def _handle(self, message: Any) -> None:
        if isinstance(message, LoadWork):
            self.work = pickle.loads(message.work) if isinstance(message.work, bytes) else message.work
            self.work.start(message.states)
        elif isinstance(message, AssignUpdates):
            self._renew(message)
            jobs = pickle.loads(message.jobs)
            batch = _Batch(message.round, False, len(jobs))
            assert self._version is not None
            self._version.readers += len(jobs)
            for number, job, part in jobs:
                silent, check = number in message.silent, message.checks.get(number, "")
                self._queue.append(NodeUpdate(number, job, part, silent, batch, self._version, check))
        elif isinstance(message, SaveStates):
            batch = _Batch(message.round, True, len(message.parts))
            self._queue.extend(NodeUpdate(STATE, None, part, False, batch, None) for part in message.parts)
        elif isinstance(message, ChooseRound):
            batch = _Batch(message.round, False, 1, choice=True)
            self._queue.append(NodeUpdate(CHOICE, message.request, message.part, message.silent, batch, None))
        else:
            raise RunError(
                f"a node received a {type(message).__name__}, which a program does not use; please report this"
            )

    def _renew(self, message: AssignUpdates) -> None:
        """Bring the parameters to the version of a message. Versions that updates still read are not changed."""
        assert self.work is not None
        if message.base is not None:
            arrays = {name: copied(array) for name, array in message.base.items()}
            self._version = _Version(arrays, self.work.view(arrays))
        for patch in message.patches:
            version = self._version
            assert version is not None
            if version.readers:
                arrays = dict(version.arrays)
                arrays |= {name: copied(arrays[name]) for name in touched_by(patch)}
                version = self._version = _Version(arrays, self.work.view(arrays))
            apply_patch(version.arrays, patch)

    def next_update(self) -> NodeUpdate | None:
        """The oldest update that may start."""
        assert self.work is not None or not self._queue
        if self.work is None or not self.work.stateful:
            return self._queue.popleft() if self._queue else None
        passed: set[int] = set()
        for place, update in enumerate(self._queue):
            if update.part not in self._busy and update.part not in passed:
                del self._queue[place]
                self._busy.add(update.part)
                return update
            passed.add(update.part)
        return None

    def run(self, update: NodeUpdate) -> UpdateOutcome:
        """Make an update: call the program and pickle its result. Called without a lock."""
        assert self.work is not None
        if update.number == STATE:
            return _tried(update.part, lambda work: work.state(update.part), self.work)
        if update.number == CHOICE:
            return _tried(update.part, lambda work: _packed(work.choose(update.part, update.job)), self.work)
        assert update.version is not None
        view, what = update.version.view, (update.job, update.part)
        return _tried(update.number, lambda work: _packed(work.update(*what, view, update.check)), self.work)

    def made(self, update: NodeUpdate, outcome: UpdateOutcome, seconds: float) -> UpdateReport | None:
        """Record a finished update; return the report of its message if it was the last one."""
        self._busy.discard(update.part)
        if update.version is not None:
            update.version.readers -= 1
        batch = update.batch
        batch.left -= 1
        batch.seconds += seconds
        if not update.silent:
            batch.outcomes.append(outcome)
        if batch.left or not batch.outcomes:
            return None
        return UpdateReport(batch.round, batch.states, tuple(batch.outcomes), batch.seconds, batch.choice)


class NotPicklable(TypeError):
    """A result that cannot be sent to the driver."""


def _packed(result: Any) -> bytes:
    what = f"it returned a {type(result).__name__}, which cannot be pickled to be sent to the driver"
    advice = "return numbers, arrays, text, or tuples, lists and dicts of these"
    return pickled(result, lambda error: NotPicklable(f"{what} ({error}); {advice}"))


def _tried(number: int, call: Any, work: NodeWork) -> UpdateOutcome:
    try:
        return UpdateOutcome(number, call(work))
    except Exception as error:
        return UpdateOutcome(number, None, portable(error))
