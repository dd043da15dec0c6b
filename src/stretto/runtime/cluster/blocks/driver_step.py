"""One step as the driver knows it: what the nodes have of it, how far they are ahead, and what a loss would cost."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from stretto.cached import cached_property
from stretto.plan.arrays import Pieces, StepSpec
from stretto.runtime.blocks.step import Step
from stretto.schedule.orders.order import Ints, Order
from stretto.schedule.orders.route import Route, owners

from .node import Go, Load, Put, Ran, turns_of
from .phases import Phase, phases_of, wave_owners
from .served_arrays import Serve, ServedArrays, Values, everything


@dataclass(frozen=True, eq=False)
class Kept:
    """A run, to be repeated should it be lost. only: the visits that it made, if it was stopped.

    phase: the visits that it makes, and served: the elements that they touch, where a step is run wave by wave.
    """

    epoch: int
    finished: Ints
    numbers: dict[str, Any]
    wholes: dict[str, Whole]
    parts: dict[str, NDArray[Any]]
    only: Ints | None = None
    phase: Ints | None = None
    served: Values = ()


class Whole(NamedTuple):
    """An array that all nodes read, as it was when a run began, and the digest of it."""

    mark: bytes
    array: NDArray[Any]


@dataclass(eq=False)
class CrewPlan:
    """step: the last one; args: its arguments, by name: the driver's arrays.

    Those are as they were at (base_epoch, base_turns); the nodes have made `made` of the runs `since`, and are then at
    (epoch, turns). stale: states of which the nodes do not have what the driver has. finished: visits of this epoch
    that were made in earlier waves.
    """

    number: int
    spec: StepSpec
    profile: str
    step: Step
    args: dict[str, Any]
    route: Route
    turns: Ints
    base_turns: Ints
    epoch: int = 0
    base_epoch: int = 0
    loaded: bool = False
    settled: bool = False  # the nodes know which blocks they have
    warm: bool = False
    stale: set[str] = field(default_factory=set)
    memory: int | None = None  # bytes of owned arrays that a node may have in memory
    since: list[Kept] = field(default_factory=list)
    made: int = 0
    served: ServedArrays = field(init=False)
    finished: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    _marks: dict[str, bytes] = field(default_factory=dict)  # digests of the driver's states when the nodes got them
    _kept: dict[str, Whole] = field(default_factory=dict)  # of the arrays that all nodes read, the last that was kept
    _whole: dict[str, bytes] = field(default_factory=dict)  # digests of those that the nodes have
    _fresh: dict[str, NDArray[Any]] = field(default_factory=dict)  # what fresh arrays were at base_turns, if not zeros
    _parts: dict[str, NDArray[Any]] = field(default_factory=dict)  # what arrays per visit begin as in this epoch
    _phases: dict[bytes, list[Phase]] = field(default_factory=dict)  # by the visits of their wave

    @classmethod
    def of(cls, number: int, step: Step, profile: str, nodes: int) -> Self:
        """For a step that was not run before."""
        assert step.spec is not None
        waves = step.spec.waves
        if waves is None:
            route = Route(step.order, owners(step.order, step.weight, nodes))
        else:
            route = Route(waves.order, wave_owners(waves, nodes))
        none = np.zeros(route.order.cols, np.int64)
        args, stale = step.spec.flat(step.args), set(step.spec.states)
        found = cls(number, step.spec, profile, step, args, route, none, none.copy(), stale=stale)
        found.served = ServedArrays(step.spec, nodes)
        return found

    @property
    def ahead(self) -> bool:
        """Whether the nodes know more than the driver's arrays hold."""
        return bool(self.since)

    @cached_property
    def learns(self) -> bool:
        """Whether nodes keep something that they have changed: else the driver has everything after each run."""
        return bool(self.spec.cut(written=True))

    @property
    def order(self) -> Order:
        """Of all visits."""
        return self.route.order

    def is_ahead_of(self, args: Iterable[Any]) -> bool:
        """Whether these arguments hold something that the nodes have changed since."""
        if not self.ahead:
            return False
        out = [self.args[k] for k in self.spec.cut(written=True)]
        return any(np.may_share_memory(arg, mine) for arg in _arrays(args) for mine in out)

    def other_arrays(self, step: Step) -> bool:
        """Whether a step has other arrays than the last one for what is learned."""
        args = self.spec.flat(step.args)
        return any(args[k] is not self.args[k] for k in self.spec.states)

    # -- before a run ------------------------------------------------------------------------------------------------

    def take(self, step: Step, turns: Ints, *, within: bool = False) -> None:
        """The next step: note which of its arrays the nodes do not have as they are.

        within: an epoch has begun, in which the driver changes nothing but what it merges between waves.
        """
        self.step, self.args = step, self.spec.flat(step.args)
        self.served.compare(self.args, [k for k in self.served.names if not within or self.spec.arrays[k].merged])
        if self.ahead or within:
            return
        if not np.array_equal(turns, self.turns):
            self.stale.update(self.spec.states)
            self.settled = False
        for k in self._asked(turns):
            if k not in self.stale and self._marks.get(k) != _digest(self.args[k]):
                self.stale.add(k)
        # Should this run be lost after the epoch's end, the driver's are zeros again by then.
        self._fresh = {k: self.args[k].copy() for k in self.spec.fresh()} if turns.any() else {}
        self.turns = self.base_turns = turns
        self.base_epoch = self.epoch

    def _asked(self, turns: Ints) -> list[str]:
        """The states that say where a run stands: when an epoch begins, those that are zeros then do not."""
        return [k for k in self.spec.states if turns.any() or not self.spec.arrays[k].fresh]

    def started(self, wave: Ints) -> Ints:
        """The visits that were made in this epoch before a wave; none where the wave begins one."""
        if np.isin(wave, self.finished).any():
            self.finished = self.finished[:0]
        return self.finished

    def phases(self, wave: Ints) -> list[Phase]:
        """The phases of a wave; the same in every epoch."""
        key = wave.tobytes()
        if key not in self._phases:
            self._phases[key] = phases_of(self.spec, self.route, wave, self.served.nodes)
        return self._phases[key]

    def next_run(self, finished: Ints, phase: Phase | None = None) -> Kept:
        """What the next run is given. phase: the visits to make, where a step is run wave by wave."""
        args = self.args
        within = phase is not None and len(finished)
        if not within:  # those of visits that were made hold what the visits have left there
            made = np.zeros(len(self.step.order) + 1, bool)
            made[finished] = True
            unmade = int(made.argmin())
            self._parts = {k: args[k][unmade : unmade + 1].copy() for k in self.spec.of("per visit")}
        for k in () if within else self.spec.of("replicated"):  # copied when they change: their owner writes to them
            mark = _digest(args[k])
            if k not in self._kept or self._kept[k].mark != mark:
                self._kept[k] = Whole(mark, args[k].copy())
        return Kept(
            self.epoch,
            finished,
            {k: args[k] for k in self.spec.of("number")},
            dict(self._kept),
            self._parts,
            phase=None if phase is None else phase.visits,
            served=() if phase is None else self.served.values(phase, args, keep=self.learns),
        )

    def serves(self, kept: Kept, *, again: bool) -> dict[int, Serve]:
        """By node the elements that a run needs. again: it was made before, and was lost."""
        return (
            everything(self.number, kept.served) if again else self.served.missing(self.number, kept.served, self.args)
        )

    def run_after(self, step: Step) -> Kept | None:
        """The run of the next epoch, when nothing that this one leaves in the driver can change it; else None."""
        spec = self.spec
        known = (
            step.spec is spec
            and spec.waves is None
            and not (spec.of("replicated") or spec.of("per visit") or spec.fresh())
        )
        if not known or step.before is not None or self.step.after is not None or self.other_arrays(step):
            return None
        args, none = spec.flat(step.args), np.zeros(0, np.int64)
        return Kept(self.epoch + 1, none, {k: args[k] for k in spec.of("number")}, {}, {})

    def go(self, kept: Kept) -> Go:
        """A run as the nodes are told of it: with those arrays that they do not have yet."""
        wholes = {}
        for k, (mark, array) in kept.wholes.items():
            if self._whole.get(k) != mark:
                wholes[k], self._whole[k] = array, mark
        return Go(
            self.number, kept.epoch, kept.finished, kept.numbers, wholes, kept.parts, only=kept.only, phase=kept.phase
        )

    def loads(self, nodes: int) -> dict[int, Load]:
        """What never changes, by node."""
        args, spec, order = self.args, self.spec, self.order
        weight = self.step.weight if spec.waves is None else spec.waves.weight
        priority = np.ascontiguousarray(order.tails(weight))
        shapes = {k: (args[k].shape, args[k].dtype) for k in (*spec.cut(), *spec.of("served"), *spec.of("per slot"))}
        scratch = {k: (args[k].shape[1:], args[k].dtype) for k in spec.of("per worker")}
        given = {k: args[k] for k in (*spec.of("constant"), *spec.of("fault"))}
        found = {}
        for node in range(nodes):
            own = self.route.own_visits(node)
            sent = spec.entries if spec.reader is None else []
            pieces = {k: spec.ranges(k).pieces(args[k], own) for k in sent}
            owner, profile, memory = self.route.owner, self.profile, self.memory
            if memory is not None and self._owned_bytes(node) <= memory:
                memory = None
            mine = spec.for_node(own)
            found[node] = Load(
                self.number, mine, order, owner, priority, profile, shapes, given, pieces, scratch, memory, nodes
            )
        return found

    def _owned_bytes(self, node: int) -> int:
        """Of everything that stays with a node."""
        own = {"rows": self.route.own_rows(node), "visits": self.route.own_visits(node)}
        total = 0
        for k in self.spec.cut():
            ranges, array = self.spec.ranges(k), self.args[k]
            if ranges.by != "cols":
                count = sum(last - first for first, last in ranges.spans(own[ranges.by]))
                total += count * (array.nbytes // max(1, array.shape[ranges.axis]))
        return total

    def puts(self, nodes: int) -> dict[int, Put]:
        """States that the nodes do not have, by node."""
        found = {}
        for node in range(nodes):
            own = self.route.own(node, self.base_turns)
            pieces = {}
            for k in sorted(self.stale):
                ranges = self.spec.ranges(k)
                if not self.spec.arrays[k].fresh:
                    pieces[k] = ranges.pieces(self.args[k], own[ranges.by])
                elif k in self._fresh:
                    pieces[k] = ranges.pieces(self._fresh[k], own[ranges.by])
            found[node] = Put(self.number, self.base_epoch, self.base_turns, pieces)
        return found

    @cached_property
    def entry_bytes(self) -> int:
        """Of what is sent once."""
        lists = sum(int(self.spec.touched(k).elements.nbytes) for k in self.spec.of("served"))
        return lists + sum(int(self.args[k].nbytes) for k in self.spec.entries)

    @cached_property
    def state_bytes(self) -> int:
        """Of what is learned."""
        return sum(int(self.args[k].nbytes) for k in self.spec.states)

    @cached_property
    def block_bytes(self) -> int:
        """Of the largest column block."""
        ranges = [(self.spec.ranges(k), self.args[k]) for k in self.spec.rotating]
        sizes = [(r.last - r.first).clip(0) * (a.nbytes // max(1, a.shape[r.axis])) for r, a in ranges]
        return int(sum(sizes).max(initial=0)) if sizes else 0

    @property
    def kept_bytes(self) -> int:
        """Of the served elements that are kept for runs that may be lost."""
        found = (value for kept in self.since for node in kept.served for _, value in node.values())
        return sum(int(value.nbytes) for value in found if value is not None)

    # -- after a run -------------------------------------------------------------------------------------------------

    def collect(self, ran: dict[int, Ran]) -> int | None:
        """Put the visits' results where the step's owner looks for them; the visit that failed, if one did."""
        step, failed = self.step, None
        place = np.arange(len(self.order))
        if self.spec.waves is not None and step.visits is not None:
            place[step.visits] = np.arange(len(step.visits))
        for node, one in ran.items():
            step.out[place[one.made]] = one.out
            for k, elements in one.served.items():
                self.served.changed(node, k, elements, self.args[k])
            for k, elements in one.slots.items():
                slots = np.zeros((len(one.slot_visits), *self.args[k].shape[1:]), self.args[k].dtype)
                elements.write(slots.reshape(-1))
                self.args[k][place[one.slot_visits]] = slots
                self.served.returned += elements.nbytes
            for k, part in one.parts.items():
                self.args[k][one.made] = part
            for k, left in one.fresh.items():
                self.spec.ranges(k).fill(self.args[k], left)
            if one.failed >= 0:
                failed = one.failed
                for k, fault in one.faults.items():
                    self.args[k][...] = fault
        return failed

    def advance(self, kept: Kept, made: Ints, whole: bool) -> None:
        """A run was made; where the nodes stand now."""
        if whole:
            self.epoch, self.turns = self.epoch + 1, np.zeros_like(self.turns)
        else:
            self.turns = turns_of(self.order, made)
        if self.spec.waves is not None:
            self.finished = made[:0] if whole else made
            self.since.append(kept)
        else:
            self.since.append(kept if whole else replace(kept, only=made))
        self.made = len(self.since)

    def gathered(self, answers: list[dict[str, Pieces]]) -> None:
        """Everything that was learned has come: the driver's arrays are where the nodes are."""
        for pieces in answers:
            for k, found in pieces.items():
                self.spec.ranges(k).fill(self.args[k], found)
        self._marks = {k: _digest(self.args[k]) for k in self.spec.states}
        self._settled()

    def settle(self) -> None:
        """The driver's arrays are where the nodes are, for those have nothing that the driver does not."""
        if not len(self.finished):  # the states of the step are only read: noted once an epoch
            self._marks = {k: _digest(self.args[k]) for k in self.spec.states}
        self._settled()

    def _settled(self) -> None:
        self.since.clear()
        self.made = 0
        self.base_epoch, self.base_turns = self.epoch, self.turns

    def forget(self) -> None:
        """The nodes have nothing any more."""
        self.loaded = self.settled = self.warm = False
        self.stale = set(self.spec.states)
        self.made = 0
        self._whole.clear()
        self.served.forget()


def _arrays(args: Iterable[Any]) -> Iterator[NDArray[Any]]:
    """The arrays among arguments, and in named tuples among them."""
    for arg in args:
        if isinstance(arg, np.ndarray):
            yield arg
        elif isinstance(arg, tuple):
            yield from _arrays(arg)


def _digest(array: NDArray[Any]) -> bytes:
    """Of an array's shape and bytes."""
    found = hashlib.blake2b(repr((array.shape, array.dtype)).encode(), digest_size=16)
    if array.size:
        found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8))  # type: ignore[arg-type]
    return found.digest()
