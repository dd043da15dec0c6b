"""One spread as the driver knows it: what the nodes have of it, how far they are ahead, and what a loss would cost."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from stretto.runtime.step import Step
from stretto.schedule.order import Ints

from .ring_node import Go, Load, Put, Ran, turns_of
from .spread import Pieces, Route, Spread, owners


@dataclass(frozen=True, eq=False)
class Kept:
    """A run, to be made again should it be lost."""

    epoch: int
    finished: Ints
    numbers: dict[int, Any]
    wholes: dict[int, NDArray[Any]]
    parts: dict[int, NDArray[Any]]


@dataclass(eq=False)
class CrewPlan:
    """step: the last one; its arguments are the driver's arrays.

    Those are as they were at (base_epoch, base_turns); the nodes have made `made` of the runs `since`, and are then at
    (epoch, turns). stale: states of which the nodes do not have what the driver has.
    """

    number: int
    spread: Spread
    profile: str
    step: Step
    route: Route
    turns: Ints
    base_turns: Ints
    epoch: int = 0
    base_epoch: int = 0
    loaded: bool = False
    settled: bool = False  # the nodes know which blocks they have
    warm: bool = False
    stale: set[int] = field(default_factory=set)
    since: list[Kept] = field(default_factory=list)
    made: int = 0
    _marks: dict[int, bytes] = field(default_factory=dict)  # digests of the driver's states when the nodes got them
    _whole: dict[int, bytes] = field(default_factory=dict)  # of the arrays that all nodes read

    @classmethod
    def of(cls, number: int, step: Step, profile: str, nodes: int) -> Self:
        """For a step that was not run before."""
        assert step.spread is not None
        route = Route(step.order, owners(step.order, step.weight, nodes))
        none = np.zeros(step.order.cols, np.int64)
        return cls(number, step.spread, profile, step, route, none, none.copy(), stale=set(step.spread.states))

    @property
    def ahead(self) -> bool:
        """Whether the nodes know more than the driver's arrays hold."""
        return bool(self.since)

    def is_ahead_of(self, args: Iterable[Any]) -> bool:
        """Whether these arguments hold something that the nodes have changed since."""
        if not self.ahead:
            return False
        out = [self.step.args[k] for k in self.spread.cut(written=True)]
        return any(np.may_share_memory(arg, mine) for arg in args if isinstance(arg, np.ndarray) for mine in out)

    def other_arrays(self, step: Step) -> bool:
        """Whether a step has other arrays than the last one for what is learned."""
        return any(step.args[k] is not self.step.args[k] for k in self.spread.states)

    # -- before a run ------------------------------------------------------------------------------------------------

    def take(self, step: Step, turns: Ints) -> None:
        """The next step: note which of its arrays the nodes do not have as they are."""
        self.step = step
        if self.ahead:
            return
        if not np.array_equal(turns, self.turns):
            self.stale.update(self.spread.states)
            self.settled = False
        for k in self.spread.states:
            if k not in self.stale and self._marks.get(k) != _digest(step.args[k]):
                self.stale.add(k)
        self.turns = self.base_turns = turns
        self.base_epoch = self.epoch

    def next_run(self, finished: Ints) -> Kept:
        """What the next run is given."""
        args = self.step.args
        return Kept(
            self.epoch,
            finished,
            {k: args[k] for k in self.spread.of("number")},
            {k: args[k] for k in self.spread.of("whole")},
            {k: args[k][:1].copy() for k in self.spread.of("parts")},
        )

    def go(self, kept: Kept) -> Go:
        """A run as the nodes are told of it: with those arrays that they do not have yet."""
        wholes = {}
        for k, array in kept.wholes.items():
            mark = _digest(array)
            if self._whole.get(k) != mark:
                wholes[k], self._whole[k] = array, mark
        return Go(self.number, kept.epoch, kept.finished, kept.numbers, wholes, kept.parts)

    def loads(self, nodes: int) -> dict[int, Load]:
        """What never changes, by node."""
        args, spread, order = self.step.args, self.spread, self.step.order
        priority = np.ascontiguousarray(order.tails(self.step.weight))
        shapes = {k: (args[k].shape, args[k].dtype) for k in spread.cut()}
        given = {k: args[k] for k in (*spread.of("same"), *spread.of("fault"))}
        found = {}
        for node in range(nodes):
            own = self.route.own_visits(node)
            pieces = {k: spread.ranges(k).pieces(args[k], own) for k in spread.cut("visits")}
            owner, profile = self.route.owner, self.profile
            found[node] = Load(self.number, spread, order, owner, priority, profile, shapes, given, pieces)
        return found

    def puts(self, nodes: int) -> dict[int, Put]:
        """States that the nodes do not have, by node."""
        found = {}
        for node in range(nodes):
            own = {"rows": self.route.own_rows(node), "cols": self.route.held(node, self.base_turns)}
            pieces = {}
            for k in sorted(self.stale):
                ranges = self.spread.ranges(k)
                pieces[k] = ranges.pieces(self.step.args[k], own[ranges.by])
            found[node] = Put(self.number, self.base_epoch, self.base_turns, pieces)
        return found

    @cached_property
    def entry_bytes(self) -> int:
        """Of what is sent once."""
        return sum(int(self.step.args[k].nbytes) for k in self.spread.cut("visits"))

    @cached_property
    def state_bytes(self) -> int:
        """Of what is learned."""
        return sum(int(self.step.args[k].nbytes) for k in self.spread.states)

    # -- after a run -------------------------------------------------------------------------------------------------

    def collect(self, ran: dict[int, Ran]) -> int | None:
        """Put the visits' results where the step's owner looks for them; the visit that failed, if one did."""
        step, failed = self.step, None
        for one in ran.values():
            step.out[one.made] = one.out
            for k, part in one.parts.items():
                step.args[k][one.made] = part
            if one.failed >= 0:
                failed = one.failed
                for k, fault in one.faults.items():
                    step.args[k][...] = fault
        return failed

    def advance(self, kept: Kept, made: Ints, whole: bool) -> None:
        """A run was made; where the nodes stand now."""
        if whole:
            self.epoch, self.turns = self.epoch + 1, np.zeros_like(self.turns)
        else:
            self.turns = turns_of(self.step.order, made)
        self.since.append(kept)
        self.made = len(self.since)

    def gathered(self, answers: list[dict[int, Pieces]]) -> None:
        """Everything that was learned has come: the driver's arrays are where the nodes are."""
        for pieces in answers:
            for k, found in pieces.items():
                self.spread.ranges(k).fill(self.step.args[k], found)
        self._marks = {k: _digest(self.step.args[k]) for k in self.spread.states}
        self.since.clear()
        self.made = 0
        self.base_epoch, self.base_turns = self.epoch, self.turns

    def forget(self) -> None:
        """The nodes have nothing any more."""
        self.loaded = self.settled = self.warm = False
        self.stale = set(self.spread.states)
        self.made = 0
        self._whole.clear()


def _digest(array: NDArray[Any]) -> bytes:
    """Of an array's shape and bytes."""
    found = hashlib.blake2b(repr((array.shape, array.dtype)).encode(), digest_size=16)
    if array.size:
        found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8))  # type: ignore[arg-type]
    return found.digest()
