"""The driver's state of one step: what the nodes hold of it, which runs are not gathered, what to send next."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from stretto.cached import cached_property
from stretto.plan.arrays import Pieces, StepSpec
from stretto.runtime.blocks.step import BlockStep
from stretto.schedule.orders.order import Ints, Order
from stretto.schedule.orders.route import Route, owners

from .phases import Phase, phases_of, wave_owners
from .served_arrays import ServedArrays, ServeElements, Values, everything
from .step_messages import LoadStep, NodeRunResult, PutStates, StartRun, turns_of


@dataclass(frozen=True, eq=False)
class RepeatableRun:
    """The inputs of a run, kept so that it can be repeated if it is lost."""

    epoch: int
    finished: Ints  # visits that were made before
    numbers: dict[str, Any]  # arguments of single values
    wholes: dict[str, SharedArray]  # arrays that all nodes read
    parts: dict[str, NDArray[Any]]  # initial values of arrays per visit
    only: Ints | None = None  # the visits that it made, if it was stopped
    phase: Ints | None = None  # the visits that it makes, where a step runs wave by wave
    served: Values = ()  # the elements that the visits of the phase touch


class SharedArray(NamedTuple):
    """An array that all nodes read, as it was when a run began."""

    mark: bytes  # digest of the array
    array: NDArray[Any]


@dataclass(eq=False)
class CrewPlan:
    """The state of one step on the nodes.

    The driver's arrays hold the state after (base_epoch, base_turns). The nodes have made `made` of the runs in
    `since`, and are then at (epoch, turns).
    """

    number: int
    spec: StepSpec
    profile: str
    step: BlockStep  # the last one
    args: dict[str, Any]  # its arguments by name: the driver's arrays
    route: Route  # which node makes which visit
    turns: Ints  # [C] visits of each column block that the nodes have made in this epoch
    base_turns: Ints  # [C] the same for the driver's arrays
    epoch: int = 0
    base_epoch: int = 0
    loaded: bool = False  # the nodes have the constant data
    settled: bool = False  # the nodes know which blocks they hold
    warm: bool = False  # the nodes have compiled the worker
    stale: set[str] = field(default_factory=set)  # states of which the nodes do not have the driver's values
    memory: int | None = None  # bytes of owned arrays that a node may keep in memory
    since: list[RepeatableRun] = field(default_factory=list)  # runs since the arrays were last gathered
    made: int = 0  # how many of them the nodes have made
    served: ServedArrays = field(init=False)
    finished: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # visits of this epoch, made in earlier waves
    _marks: dict[str, bytes] = field(default_factory=dict)  # digests of the driver's states when they were sent
    _kept: dict[str, SharedArray] = field(
        default_factory=dict
    )  # the last kept version of each array that all nodes read
    _whole: dict[str, bytes] = field(default_factory=dict)  # digests of the versions that the nodes have
    _fresh: dict[str, NDArray[Any]] = field(default_factory=dict)  # values of fresh arrays at base_turns, if not zeros
    _parts: dict[str, NDArray[Any]] = field(default_factory=dict)  # initial values of arrays per visit in this epoch
    _phases: dict[bytes, list[Phase]] = field(default_factory=dict)  # by the visits of their wave

    @classmethod
    def of(cls, number: int, step: BlockStep, profile: str, nodes: int) -> Self:
        """Create the state of a step that was not run before."""
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
        """Whether the nodes have results that the driver's arrays do not hold."""
        return bool(self.since)

    @cached_property
    def learns(self) -> bool:
        """Whether nodes keep results of a run; otherwise the driver has everything after each run."""
        return bool(self.spec.cut(written=True))

    @property
    def order(self) -> Order:
        """The order of all visits."""
        return self.route.order

    def is_ahead_of(self, args: Iterable[Any]) -> bool:
        """Whether these arguments contain an array that the nodes have changed since."""
        if not self.ahead:
            return False
        out = [self.args[k] for k in self.spec.cut(written=True)]
        return any(np.may_share_memory(arg, mine) for arg in _arrays(args) for mine in out)

    def other_arrays(self, step: BlockStep) -> bool:
        """Whether a step stores what it learns in other arrays than the last one."""
        args = self.spec.flat(step.args)
        return any(args[k] is not self.args[k] for k in self.spec.states)

    # -- before a run ------------------------------------------------------------------------------------------------

    def take(self, step: BlockStep, turns: Ints, *, within: bool = False) -> None:
        """Prepare the next step: note which of its arrays differ from those on the nodes.

        Parameters
        ----------
        within : bool
            An epoch is in progress, in which the driver changes only what it merges between waves.
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
        # If this run is lost after the epoch's end, the driver's arrays will be zeros by then.
        self._fresh = {k: self.args[k].copy() for k in self.spec.fresh()} if turns.any() else {}
        self.turns = self.base_turns = turns
        self.base_epoch = self.epoch

    def _asked(self, turns: Ints) -> list[str]:
        """The states that a run depends on: at the start of an epoch, without those that are zeros then."""
        return [k for k in self.spec.states if turns.any() or not self.spec.arrays[k].fresh]

    def started(self, wave: Ints) -> Ints:
        """The visits that were made in this epoch before a wave; none if the wave starts an epoch."""
        if np.isin(wave, self.finished).any():
            self.finished = self.finished[:0]
        return self.finished

    def phases(self, wave: Ints) -> list[Phase]:
        """The phases of a wave; they are the same in every epoch."""
        key = wave.tobytes()
        if key not in self._phases:
            self._phases[key] = phases_of(self.spec, self.route, wave, self.served.nodes)
        return self._phases[key]

    def next_run(self, finished: Ints, phase: Phase | None = None) -> RepeatableRun:
        """The inputs of the next run.

        Parameters
        ----------
        phase : Phase or None
            The visits to make, where a step runs wave by wave.
        """
        args = self.args
        within = phase is not None and len(finished)
        if not within:  # those of finished visits hold the visits' results
            made = np.zeros(len(self.step.order) + 1, bool)
            made[finished] = True
            unmade = int(made.argmin())
            self._parts = {k: args[k][unmade : unmade + 1].copy() for k in self.spec.of("per visit")}
        for k in () if within else self.spec.of("replicated"):  # copied when they change: the caller writes to them
            mark = _digest(args[k])
            if k not in self._kept or self._kept[k].mark != mark:
                self._kept[k] = SharedArray(mark, args[k].copy())
        return RepeatableRun(
            self.epoch,
            finished,
            {k: args[k] for k in self.spec.of("number")},
            dict(self._kept),
            self._parts,
            phase=None if phase is None else phase.visits,
            served=() if phase is None else self.served.values(phase, args, keep=self.learns),
        )

    def serves(self, kept: RepeatableRun, *, again: bool) -> dict[int, ServeElements]:
        """By node, the elements that a run needs. `again`: it repeats a run that was lost."""
        return (
            everything(self.number, kept.served) if again else self.served.missing(self.number, kept.served, self.args)
        )

    def run_after(self, step: BlockStep) -> RepeatableRun | None:
        """The run of the next epoch if nothing that this one returns to the driver can change it; else None."""
        spec = self.spec
        known = (
            step.spec is spec
            and spec.waves is None
            and not (spec.of("replicated") or spec.of("per visit") or spec.fresh())
        )
        if not known or step.before is not None or self.step.after is not None or self.other_arrays(step):
            return None
        args, none = spec.flat(step.args), np.zeros(0, np.int64)
        return RepeatableRun(self.epoch + 1, none, {k: args[k] for k in spec.of("number")}, {}, {})

    def go(self, kept: RepeatableRun) -> StartRun:
        """The message that starts a run, with the arrays that the nodes do not have yet."""
        wholes = {}
        for k, (mark, array) in kept.wholes.items():
            if self._whole.get(k) != mark:
                wholes[k], self._whole[k] = array, mark
        return StartRun(
            self.number, kept.epoch, kept.finished, kept.numbers, wholes, kept.parts, only=kept.only, phase=kept.phase
        )

    def loads(self, nodes: int) -> dict[int, LoadStep]:
        """The constant data, by node."""
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
            found[node] = LoadStep(
                self.number, mine, order, owner, priority, profile, shapes, given, pieces, scratch, memory, nodes
            )
        return found

    def _owned_bytes(self, node: int) -> int:
        """Bytes of the arrays that stay on a node."""
        own = {"rows": self.route.own_rows(node), "visits": self.route.own_visits(node)}
        total = 0
        for k in self.spec.cut():
            ranges, array = self.spec.ranges(k), self.args[k]
            if ranges.by != "cols":
                count = sum(last - first for first, last in ranges.spans(own[ranges.by]))
                total += count * (array.nbytes // max(1, array.shape[ranges.axis]))
        return total

    def puts(self, nodes: int) -> dict[int, PutStates]:
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
            found[node] = PutStates(self.number, self.base_epoch, self.base_turns, pieces)
        return found

    @cached_property
    def entry_bytes(self) -> int:
        """Bytes that are sent once."""
        lists = sum(int(self.spec.touched(k).elements.nbytes) for k in self.spec.of("served"))
        return lists + sum(int(self.args[k].nbytes) for k in self.spec.entries)

    @cached_property
    def state_bytes(self) -> int:
        """Bytes of the states."""
        return sum(int(self.args[k].nbytes) for k in self.spec.states)

    @cached_property
    def block_bytes(self) -> int:
        """Bytes of the largest column block."""
        ranges = [(self.spec.ranges(k), self.args[k]) for k in self.spec.rotating]
        sizes = [(r.last - r.first).clip(0) * (a.nbytes // max(1, a.shape[r.axis])) for r, a in ranges]
        return int(sum(sizes).max(initial=0)) if sizes else 0

    @property
    def kept_bytes(self) -> int:
        """Bytes of the served elements that are kept for repeating lost runs."""
        found = (value for kept in self.since for node in kept.served for _, value in node.values())
        return sum(int(value.nbytes) for value in found if value is not None)

    # -- after a run -------------------------------------------------------------------------------------------------

    def collect(self, ran: dict[int, NodeRunResult]) -> int | None:
        """Copy the visits' results into the step's arrays; return the visit that failed, if one did."""
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

    def advance(self, kept: RepeatableRun, made: Ints, whole: bool) -> None:
        """Record a finished run: the nodes' position advances."""
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
        """Copy the gathered states into the driver's arrays, which are then as new as those of the nodes."""
        for pieces in answers:
            for k, found in pieces.items():
                self.spec.ranges(k).fill(self.args[k], found)
        self._marks = {k: _digest(self.args[k]) for k in self.spec.states}
        self._settled()

    def settle(self) -> None:
        """Record that the driver's arrays are up to date: the nodes keep no results of this step."""
        if not len(self.finished):  # the step only reads its states: recorded once an epoch
            self._marks = {k: _digest(self.args[k]) for k in self.spec.states}
        self._settled()

    def _settled(self) -> None:
        self.since.clear()
        self.made = 0
        self.base_epoch, self.base_turns = self.epoch, self.turns

    def forget(self) -> None:
        """The nodes have lost everything."""
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
    """A digest of an array's shape and bytes."""
    found = hashlib.blake2b(repr((array.shape, array.dtype)).encode(), digest_size=16)
    if array.size:
        found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8))  # type: ignore[arg-type]
    return found.digest()
