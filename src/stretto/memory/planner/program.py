"""Account for a program: bytes in use, seconds, and whether a device can run its instructions at all.

`account` defines what the instructions mean (`instructions`): planners are checked against it, and executors behave
like it.
"""

from __future__ import annotations

from dataclasses import dataclass

from .host_slots import places
from .instructions import EVICT, FREE, HOLD, IN, NAMES, OUT, READY, RECOMPUTE, RELEASE, RUN, UNHOLD, DeviceProgram


@dataclass(frozen=True, slots=True)
class HostLink:
    """Speed of copies between the device and the host."""

    out: float = 50e9  # bytes per second to the host
    into: float = 50e9  # bytes per second from the host
    latency: float = 10e-6  # seconds before the first byte

    def out_seconds(self, nbytes: int) -> float:
        """Seconds of a copy to the host."""
        return self.latency + nbytes / self.out

    def in_seconds(self, nbytes: int) -> float:
        """Seconds of a copy from the host."""
        return self.latency + nbytes / self.into


@dataclass(frozen=True, slots=True)
class Costs:
    """The cost of a program."""

    peak: int  # the most bytes on the device at once
    peak_at: int  # the instruction at the peak
    host: int  # bytes of the host buffer (`host_slots.places`)
    seconds: float
    waited: float  # of `seconds`, those that the compute stream waited for copies
    repeated: float  # of `seconds`, those that it recomputed nodes
    bytes_out: int
    bytes_in: int


class IllegalProgram(ValueError):
    """Instructions that no device could run: the instruction and why."""


def account(program: DeviceProgram, link: HostLink | None = None) -> Costs:
    """The cost of a program; raises `IllegalProgram` where a device could not run it."""
    return Ledger(program, link or HostLink()).run()


def curve(program: DeviceProgram) -> list[int]:
    """Bytes in use on the device after each instruction; for nodes, while they run. Plots show this."""
    ledger = Ledger(program, HostLink())
    ledger.run()
    return ledger.curve


def bytes_after(program: DeviceProgram) -> list[int]:
    """Bytes in use on the device once each instruction is over: what the device's own counter should show."""
    ledger = Ledger(program, HostLink())
    ledger.run()
    return ledger.bytes_after


class Ledger:
    """Bytes and seconds of a program, one instruction after another."""

    def __init__(self, program: DeviceProgram, link: HostLink) -> None:
        self.program, self.graph, self.link = program, program.graph, link
        graph = self.graph
        self.resident = {s for s, one in enumerate(graph.storages) if one.kind == "input"}
        self.resident |= {s for s, one in enumerate(graph.storages) if one.persistent and s not in program.on_host}
        self.in_use = sum(graph.storages[s].nbytes for s in self.resident)
        self.peak, self.peak_at = self.in_use, -1
        self.copied = set(program.on_host)  # the host has its present value, or will once `leaving` is over
        self.leaving: dict[int, float] = {}  # when its copy to the host will be done
        self.coming: dict[int, float] = {}
        self.changed: set[int] = set()
        self.now = self.out_free = self.in_free = 0.0
        self.waited = self.repeated = 0.0
        self.bytes_out = self.bytes_in = 0
        self.curve: list[int] = []
        self.bytes_after: list[int] = []
        self.ran: dict[int, tuple[int, ...]] = {}  # by node: the versions of the storages that it read
        self.version: dict[int, int] = {}
        self.landed: dict[int, float] = {}  # copies to the host: when they are done

    def run(self) -> Costs:
        """Account for all instructions."""
        for at in range(len(self.program.instructions)):
            self.advance(at)
        return self.finish()

    def advance(self, at: int) -> None:
        """Account for the next instruction, number `at`."""
        what, which = self.program.instructions[at]
        try:
            most = self._one(what, which)
        except IllegalProgram as error:
            raise IllegalProgram(f"instruction {at}, {NAMES[what]} {which}: {error}") from None
        self.curve.append(most)
        self.bytes_after.append(self.in_use)
        if most > self.peak:
            self.peak, self.peak_at = most, at

    def wait(self, until: float) -> None:
        """Let the compute stream wait until a time."""
        if until > self.now:
            self.waited += until - self.now
            self.now = until

    def finish(self) -> Costs:
        """The costs, once all instructions are accounted for."""
        self._end()
        host = places(self.program)[1]
        ended = max(self.now, self.out_free)
        return Costs(self.peak, self.peak_at, host, ended, self.waited, self.repeated, self.bytes_out, self.bytes_in)

    def _one(self, what: int, which: int) -> int:
        if what in (RUN, RECOMPUTE):
            return self._run(which, what == RECOMPUTE)
        if what in (HOLD, UNHOLD, RELEASE):
            return self.in_use  # held memory is free memory
        size = self.graph.storages[which].nbytes
        if what == OUT:
            self._need(which)
            if which in self.leaving:
                raise IllegalProgram("its copy to the host has already begun")
            self.out_free = max(self.out_free, self.now) + self.link.out_seconds(size)
            self.leaving[which] = self.landed[which] = self.out_free
            self.bytes_out += size
            self.copied.add(which)
        elif what == EVICT:
            if which not in self.leaving:
                raise IllegalProgram("no copy to the host has begun")
            self.wait(self.leaving.pop(which))
            self._give(which)
        elif what == FREE:
            if which in self.leaving or which in self.coming:
                raise IllegalProgram("it is being copied")
            if self.graph.storages[which].persistent and which not in self.copied:
                raise IllegalProgram("its only copy would be lost")
            self._give(which)
        elif what == IN:
            if which in self.resident or which in self.coming:
                raise IllegalProgram("it is on the device already")
            if which not in self.copied:
                raise IllegalProgram("the host has no copy of it")
            begin = max(self.in_free, self.now, self.landed.get(which, 0.0))
            self.in_free = begin + self.link.in_seconds(size)
            self.coming[which] = self.in_free
            self.bytes_in += size
            self.in_use += size
        elif what == READY:
            if which not in self.coming:
                raise IllegalProgram("no copy from the host has begun")
            self.wait(self.coming.pop(which))
            self.resident.add(which)
        return self.in_use

    def _run(self, n: int, again: bool) -> int:
        node, storages = self.graph.nodes[n], self.graph.storages
        if again and (n not in self.ran or not node.recomputable):
            raise IllegalProgram(f"{node.name} cannot be run a second time")
        if not again and n in self.ran:
            raise IllegalProgram(f"{node.name} was run before")
        versions = tuple(self.version.get(s, 0) for s in node.reads)
        if again and versions != self.ran[n]:
            raise IllegalProgram(f"{node.name} would read a value that has changed since it first ran")
        self._need(*node.reads)
        if not again:
            self._need(*node.writes)
        made = [s for s in node.makes if not (again and s in self.resident)]
        for s in made:
            if s in self.resident or s in self.coming:
                raise IllegalProgram(f"storage {s} is on the device already")
            self.in_use += storages[s].nbytes
        self.resident.update(made)
        doubled = sum(storages[s].nbytes for s in node.makes) - sum(storages[s].nbytes for s in made)
        most = self.in_use + node.workspace + doubled  # a resident result is recomputed and discarded
        self.now += node.seconds
        if again:
            self.repeated += node.seconds
        else:
            self.ran[n] = versions
            for s in node.writes:
                if s in self.leaving:
                    raise IllegalProgram(f"storage {s} is changed while it is copied")
                self.copied.discard(s)
                self.version[s] = self.version.get(s, 0) + 1
        return most

    def _need(self, *which: int) -> None:
        for s in which:
            if s not in self.resident:
                state = "still being copied" if s in self.coming else "not on the device"
                raise IllegalProgram(f"storage {s} ({self.graph.storages[s].name}) is {state}")

    def _give(self, s: int) -> None:
        self._need(s)
        self.resident.remove(s)
        self.in_use -= self.graph.storages[s].nbytes

    def _end(self) -> None:
        graph, program = self.graph, self.program
        if len(self.ran) != len(graph.nodes):
            raise IllegalProgram(f"{len(graph.nodes) - len(self.ran)} nodes were not run")
        for s, one in enumerate(graph.storages):
            if s in self.coming or s in self.leaving:
                raise IllegalProgram(f"storage {s} is still being copied when the step ends")
            if s in program.on_host and (s in self.resident or s not in self.copied):
                raise IllegalProgram(f"storage {s} is not on the host when the step ends")
            if one.persistent and s not in program.on_host and s not in self.resident:
                raise IllegalProgram(f"storage {s} is not on the device when the step ends")
        self._need(*graph.results)
