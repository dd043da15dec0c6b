"""Hosts for tests of rounds, all in this process and without threads: chance says what happens next.

Messages to a host overtake each other, events come late, hosts crash and are replaced, or their nodes move to others.
Everything that passes is pickled, so nothing is shared.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import cloudpickle

from stretto.runtime.cluster.hosts.calls import BeginTask, HostEvent, HostLost
from stretto.runtime.cluster.rounds.driver import HostRounds
from stretto.runtime.cluster.rounds.task import RoundsTask


class SteppedTask(RoundsTask):
    """A task that makes an update when the fleet says so."""

    def start(self) -> None:
        pass

    def halt(self) -> None:
        self._halted = True

    def step(self) -> bool:
        update = self.node.next_update()
        if update is None:
            return False
        self.report(self.node.made(update, self.node.run(update), 0.001))
        return True


class SteppedHost:
    threads = 1

    def __init__(self, number: int, fleet: SteppedHosts) -> None:
        self.number, self._fleet = number, fleet
        self.task: SteppedTask | None = None
        self.calls: list[bytes] = []

    def tell(self, event: HostEvent) -> None:
        self._fleet.told.append((self, cloudpickle.dumps(event)))


class SteppedHosts:
    """crash: how likely a host crashes at each step; gone: how likely nothing comes in its place; late: how likely the
    choice of a scheduler waits for one more step."""

    def __init__(
        self, nodes: int, chance: random.Random, *, crash: float = 0.0, gone: float = 0.0, late: float = 0.0
    ) -> None:
        self.nodes, self.where, self.incarnation = nodes, tuple(range(nodes)), 0
        self.told: list[tuple[SteppedHost, bytes]] = []
        self.losses = self.steps = 0
        self._chance, self._crash, self._gone, self._late = chance, crash, gone, late
        self._hosts = {number: SteppedHost(number, self) for number in range(nodes)}

    def begin(self, make: Any, payloads: Any) -> None:
        self.incarnation += 1
        left = sorted(self._hosts)
        self.where = tuple(n if n in self._hosts else left[n % len(left)] for n in range(self.nodes))
        for number, host in self._hosts.items():
            self._maybe_crash(number)
            if self._chance.random() < 0.5:
                host.calls.clear()  # else calls of the last incarnation come late
            host.task = SteppedTask(host, BeginTask(self.incarnation, {}, self.where, make))  # type: ignore[arg-type]

    def ask_each(
        self, what: str, args: Mapping[int, tuple[Any, ...]], *, timeout: float | None = None
    ) -> dict[int, Any]:
        for number, mine in args.items():
            self._maybe_crash(number)
            task = self._hosts[number].task
            assert task is not None
            task.ask(what, *pickle.loads(cloudpickle.dumps(mine)))
        return {}

    def send(self, host: int, what: str, *args: Any) -> None:
        self._maybe_crash(host)
        self._hosts[host].calls.append(cloudpickle.dumps((what, args)))

    def events(self, wait: float) -> list[HostEvent]:
        for _ in range(10_000):
            self.steps += 1
            number = self._chance.choice(sorted(self._hosts))
            self._maybe_crash(number)
            host, act = self._hosts[number], self._chance.random()
            assert host.task is not None
            if act < 0.4 and host.calls:
                what, args = pickle.loads(host.calls.pop(self._chance.randrange(len(host.calls))))
                host.task.ask(what, *args)
            elif act < 0.8:
                host.task.step()
            elif self.told:
                teller, event = self.told.pop(self._chance.randrange(len(self.told)))
                told: HostEvent = pickle.loads(event)
                if self._late and getattr(told.value, "choice", False) and self._chance.random() < self._late:
                    self.told.append((teller, event))
                    continue
                if teller is self._hosts.get(told.host) and told.incarnation == self.incarnation:
                    return [told]
        raise AssertionError("nothing is left to happen")

    def _maybe_crash(self, number: int) -> None:
        if self._chance.random() < self._crash:
            raise HostLost(number, "crashed by the test")

    def lose(self, lost: HostLost) -> None:
        self.losses += 1
        del self._hosts[lost.host]
        if not self._hosts or self._chance.random() >= self._gone:
            self._hosts[lost.host] = SteppedHost(lost.host, self)

    def progressed(self) -> None:
        pass


class Stepped:
    """A runtime. hosts: those of the last run."""

    hosts: SteppedHosts

    def __init__(self, nodes: int, chance: random.Random | int, **faults: Any) -> None:
        self.nodes, self.workers, self._faults = nodes, nodes, faults
        self._chance = random.Random(chance) if isinstance(chance, int) else chance

    def open(self) -> None:
        raise AssertionError("a program asks for rounds, not for a crew")

    @contextmanager
    def rounds(self, pipeline: Any, work: Any) -> Iterator[HostRounds]:
        self.hosts = SteppedHosts(self.nodes, self._chance, **self._faults)
        yield HostRounds(pipeline, work, self.hosts, SteppedTask, pack=cloudpickle.dumps)
