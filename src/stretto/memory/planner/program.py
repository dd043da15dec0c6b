"""What the device is told to do in one step: a list of instructions, and what it costs.

Memory is taken and given back on the compute stream alone, in the order of the list, so the bytes in use at any point
follow from the list and from nothing else. Two other streams copy: one to the host, one from it.

    RUN n     run node n: take room for what it makes, run it
    AGAIN n   run node n a second time (its results are wanted once more; nothing that lasts is written)
    OUT s     begin to copy storage s to the host, as it is now
    GONE s    wait until that copy is made, then give the room back
    FREE s    give the room of s back (no copy is wanted, or the host has one)
    IN s      take room for s and begin to copy it from the host
    READY s   wait until that copy is made
    HOLD n    allocate n bytes that nothing uses, so that the next allocation goes elsewhere (`steering`)
    UNHOLD k  free the k-th of the held allocations, where an operation is to allocate
    RELEASE n free the n held allocations

Segments of a recording (`segments`) also have ROOM s (allocate s), BEGIN s (begin to copy it from the host into that
memory) and LEFT s (wait for a copy to the host whose memory is freed later).

A lasting storage whose *home* is the host has its room there for good; at the end of a step nothing of it is on the
device, and what was changed has been copied home. One whose home is the device is there again when the step ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from .graph import Graph

RUN, AGAIN, OUT, GONE, FREE, IN, READY, ROOM, LEFT, BEGIN, HOLD, UNHOLD, RELEASE = range(13)
NAMES = ("RUN", "AGAIN", "OUT", "GONE", "FREE", "IN", "READY", "ROOM", "LEFT", "BEGIN", "HOLD", "UNHOLD", "RELEASE")

Instruction = tuple[int, int]  # (what, node or storage)


@dataclass(frozen=True, slots=True)
class Link:
    """How fast storages travel: bytes a second to the host and from it, seconds before the first byte."""

    out: float = 50e9
    into: float = 50e9
    latency: float = 10e-6

    def out_seconds(self, nbytes: int) -> float:
        return self.latency + nbytes / self.out

    def in_seconds(self, nbytes: int) -> float:
        return self.latency + nbytes / self.into


@dataclass(frozen=True, slots=True)
class Costs:
    """What a list of instructions costs: the most bytes on the device at once and at which instruction, bytes of the
    slab on the host (`hosting.places`), seconds, and of them those the compute stream waited for copies and those that
    it ran nodes again."""

    peak: int
    peak_at: int
    host: int
    seconds: float
    waited: float
    repeated: float
    bytes_out: int
    bytes_in: int


@dataclass(frozen=True, eq=False)
class Program:
    """A graph (in the order it will run), the homes of its lasting storages on the host, and the instructions."""

    graph: Graph
    instructions: tuple[Instruction, ...]
    on_host: frozenset[int] = field(default_factory=frozenset)  # lasting storages whose home is the host
    opening: tuple[Instruction, ...] = ()  # HOLD, ROOM and RELEASE: how travelling storages are allocated at first
    arena: int | None = None  # bytes of the block that large allocations are cut from, if it was planned (`steering`)

    def __str__(self) -> str:
        return "\n".join(f"{NAMES[what]} {which}" for what, which in self.instructions)


class Illegal(ValueError):
    """A list of instructions that no device could follow: the place and why."""


def account(program: Program, link: Link | None = None) -> Costs:
    """Follow a list of instructions with a ledger and a clock; raises `Illegal` where it cannot be followed.

    This is the meaning of the instructions: planners are checked against it, executors behave like it.
    """
    return Ledger(program, link or Link()).follow()


def curve(program: Program) -> list[int]:
    """Bytes in use on the device after each instruction, for nodes while they run: what a picture of the step shows."""
    ledger = Ledger(program, Link())
    ledger.follow()
    return ledger.curve


def held(program: Program) -> list[int]:
    """Bytes in use on the device once each instruction is over: what a device's own counter should say."""
    ledger = Ledger(program, Link())
    ledger.follow()
    return ledger.held


class Ledger:
    """Bytes and seconds of a program, one instruction after another. now: seconds on the compute stream."""

    def __init__(self, program: Program, link: Link) -> None:
        self.program, self.graph, self.link = program, program.graph, link
        graph = self.graph
        self.here = {s for s, one in enumerate(graph.storages) if one.kind == "input"}
        self.here |= {s for s, one in enumerate(graph.storages) if one.lasting and s not in program.on_host}
        self.in_use = sum(graph.storages[s].nbytes for s in self.here)
        self.peak, self.peak_at = self.in_use, -1
        self.copied = set(program.on_host)  # the host has its present value (or will, once `leaving` is over)
        self.leaving: dict[int, float] = {}  # when its copy to the host will be made
        self.coming: dict[int, float] = {}
        self.changed: set[int] = set()
        self.now = self.out_free = self.in_free = 0.0
        self.waited = self.repeated = 0.0
        self.bytes_out = self.bytes_in = 0
        self.curve: list[int] = []
        self.held: list[int] = []
        self.ran: dict[int, tuple[int, ...]] = {}  # by node: the versions of the lasting storages that it read
        self.version: dict[int, int] = {}
        self.landed: dict[int, float] = {}  # copies to the host: when they are made

    def follow(self) -> Costs:
        for at in range(len(self.program.instructions)):
            self.advance(at)
        return self.finish()

    def advance(self, at: int) -> None:
        """Follow one instruction: the next one."""
        what, which = self.program.instructions[at]
        try:
            most = self._one(what, which)
        except Illegal as error:
            raise Illegal(f"instruction {at}, {NAMES[what]} {which}: {error}") from None
        self.curve.append(most)
        self.held.append(self.in_use)
        if most > self.peak:
            self.peak, self.peak_at = most, at

    def wait(self, until: float) -> None:
        """Let the compute stream stand still until then."""
        if until > self.now:
            self.waited += until - self.now
            self.now = until

    def finish(self) -> Costs:
        """What it cost, once all instructions were followed."""
        from .host_slots import places

        self._end()
        host = places(self.program)[1]
        ended = max(self.now, self.out_free)
        return Costs(self.peak, self.peak_at, host, ended, self.waited, self.repeated, self.bytes_out, self.bytes_in)

    def _one(self, what: int, which: int) -> int:
        if what in (RUN, AGAIN):
            return self._run(which, what == AGAIN)
        if what in (HOLD, UNHOLD, RELEASE):
            return self.in_use  # of memory that is free
        size = self.graph.storages[which].nbytes
        if what == OUT:
            self._need(which)
            if which in self.leaving:
                raise Illegal("its copy is under way already")
            self.out_free = max(self.out_free, self.now) + self.link.out_seconds(size)
            self.leaving[which] = self.landed[which] = self.out_free
            self.bytes_out += size
            self.copied.add(which)
        elif what == GONE:
            if which not in self.leaving:
                raise Illegal("no copy to the host was begun")
            self.wait(self.leaving.pop(which))
            self._give(which)
        elif what == FREE:
            if which in self.leaving or which in self.coming:
                raise Illegal("it is being copied")
            if self.graph.storages[which].lasting and which not in self.copied:
                raise Illegal("its only copy would be lost")
            self._give(which)
        elif what == IN:
            if which in self.here or which in self.coming:
                raise Illegal("it is on the device already")
            if which not in self.copied:
                raise Illegal("the host has no copy of it")
            begin = max(self.in_free, self.now, self.landed.get(which, 0.0))
            self.in_free = begin + self.link.in_seconds(size)
            self.coming[which] = self.in_free
            self.bytes_in += size
            self.in_use += size
        elif what == READY:
            if which not in self.coming:
                raise Illegal("no copy from the host was begun")
            self.wait(self.coming.pop(which))
            self.here.add(which)
        return self.in_use

    def _run(self, n: int, again: bool) -> int:
        node, storages = self.graph.nodes[n], self.graph.storages
        if again and (n not in self.ran or not node.again):
            raise Illegal(f"{node.name} cannot be run a second time")
        if not again and n in self.ran:
            raise Illegal(f"{node.name} was run before")
        versions = tuple(self.version.get(s, 0) for s in node.reads)
        if again and versions != self.ran[n]:
            raise Illegal(f"{node.name} would read a value that has changed since it first ran")
        self._need(*node.reads)
        if not again:
            self._need(*node.writes)
        made = [s for s in node.makes if not (again and s in self.here)]
        for s in made:
            if s in self.here or s in self.coming:
                raise Illegal(f"storage {s} is on the device already")
            self.in_use += storages[s].nbytes
        self.here.update(made)
        doubled = sum(storages[s].nbytes for s in node.makes) - sum(storages[s].nbytes for s in made)
        most = self.in_use + node.workspace + doubled  # what is there already is made again and thrown away
        self.now += node.seconds
        if again:
            self.repeated += node.seconds
        else:
            self.ran[n] = versions
            for s in node.writes:
                if s in self.leaving:
                    raise Illegal(f"storage {s} is changed while it is copied")
                self.copied.discard(s)
                self.version[s] = self.version.get(s, 0) + 1
        return most

    def _need(self, *which: int) -> None:
        for s in which:
            if s not in self.here:
                state = "still on its way" if s in self.coming else "not on the device"
                raise Illegal(f"storage {s} ({self.graph.storages[s].name}) is {state}")

    def _give(self, s: int) -> None:
        self._need(s)
        self.here.remove(s)
        self.in_use -= self.graph.storages[s].nbytes

    def _end(self) -> None:
        graph, program = self.graph, self.program
        if len(self.ran) != len(graph.nodes):
            raise Illegal(f"{len(graph.nodes) - len(self.ran)} nodes were not run")
        for s, one in enumerate(graph.storages):
            if s in self.coming or s in self.leaving:
                raise Illegal(f"storage {s} is still being copied when the step ends")
            if s in program.on_host and (s in self.here or s not in self.copied):
                raise Illegal(f"storage {s} is not at home on the host when the step ends")
            if one.lasting and s not in program.on_host and s not in self.here:
                raise Illegal(f"storage {s} is not at home on the device when the step ends")
        self._need(*graph.results)


def total(instructions: Iterable[Instruction], what: int) -> int:
    """How many instructions of a kind there are."""
    return sum(1 for kind, _ in instructions if kind == what)
