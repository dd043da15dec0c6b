"""The parts of the simulated cluster by themselves: the hub and the network."""

from __future__ import annotations

from typing import Any

import numpy as np

from stretto.comm.link import Frame
from stretto.runtime.simulated.faults import Delay, Reset, SlowLink
from stretto.runtime.simulated.network import FrameBatch, Network
from stretto.runtime.simulated.spec import Simulated
from stretto.runtime.simulated.virtual_time import Hub, Sleeper
from stretto.runtime.tables.job import WorkerExit

MB = 1_000_000


# -- the hub ----------------------------------------------------------------------------------------------------------


def test_things_happen_in_order_of_time_then_of_asking() -> None:
    hub = Hub()
    seen: list[Any] = []
    for when, name in ((2.0, "c"), (1.0, "a"), (2.0, "d"), (1.0, "b")):
        hub.at(when, seen.append, name)
    assert not hub.run()
    assert seen == ["a", "b", "c", "d"]
    assert hub.now == 2.0


def test_sleepers_sleep_park_and_are_held_up() -> None:
    hub = Hub()
    seen: list[Any] = []
    sleepers: dict[str, Sleeper] = {}

    def one() -> None:
        hub.sleep(sleepers["one"], 1.0)
        seen.append(("one", hub.now))
        hub.wake(sleepers["two"])
        hub.sleep(sleepers["one"], 1.0)
        seen.append(("one", hub.now))

    def two() -> None:
        hub.park(sleepers["two"])
        seen.append(("two", hub.now))
        hub.sleep(sleepers["two"], 0.25)
        seen.append(("two", hub.now))

    sleepers["one"], sleepers["two"] = hub.spawn(one), hub.spawn(two)
    hub.at(1.5, lambda sleeper: hub.hold_up(sleeper, 3.0), sleepers["one"])
    hub.wake(sleepers["two"])  # not parked yet: nothing happens
    hub.run()
    assert seen == [("one", 1.0), ("two", 1.0), ("two", 1.25), ("one", 5.0)]


def test_a_sleeper_is_ended_where_it_stands() -> None:
    hub = Hub()
    seen: list[Any] = []
    sleepers: list[Sleeper] = []

    def body() -> None:
        try:
            hub.park(sleepers[0])
        except WorkerExit:
            seen.append("ended")
            raise

    def guarded() -> None:
        try:
            body()
        except WorkerExit:
            return

    sleepers.append(hub.spawn(guarded))
    sleepers.append(hub.spawn(lambda: seen.append("never")))
    hub.end(sleepers[1], WorkerExit())
    hub.at(1.0, lambda sleeper: hub.end(sleeper, WorkerExit()), sleepers[0])
    hub.run()
    assert seen == ["ended"]
    assert all(sleeper.ended for sleeper in sleepers)
    hub.end(sleepers[0], WorkerExit())  # once is enough


# -- the network ------------------------------------------------------------------------------------------------------


class Net:
    """A network and what came out of it: (time, source, target, names of the frames)."""

    def __init__(self, **spec: Any) -> None:
        self.hub = Hub()
        self.seen: list[tuple[float, int, int, list[int]]] = []
        self.told: list[tuple[float, int, int]] = []
        given = {"nodes": 4, "link": "8Mbit", "latency": 0.5, **spec}  # a megabyte a second
        self.network = Network(
            Simulated(**given), self.hub, self._arrived, lambda ends: self.told.append((self.hub.now, *ends))
        )

    def _arrived(self, train: FrameBatch) -> None:
        self.seen.append((self.hub.now, train.source, train.target, [frame.sequence for frame in train.frames]))

    def send(self, when: float, source: int, target: int, nbytes: int, *names: int) -> None:
        frames = [Frame(0, source, name, 0, None, False, nbytes) for name in names or (0,)]
        self.hub.at(when, lambda _: self.network.send(source, target, frames, nbytes), None)

    def run(self) -> list[tuple[float, int, int]]:
        self.hub.run()
        return [(round(now, 9), source, target) for now, source, target, _ in self.seen]


def test_an_idle_way_takes_bytes_by_rate_and_the_latency() -> None:
    net = Net()
    net.send(1.0, 0, 1, 2 * MB)
    assert net.run() == [(3.5, 0, 1)]


def test_the_slower_link_counts() -> None:
    net = Net(link=["8Mbit", "4Mbit", "80Mbit", "8Mbit"])
    net.send(0.0, 0, 1, MB)
    net.send(10.0, 2, 0, MB)
    net.send(20.0, 1, 2, MB)
    assert net.run() == [(2.5, 0, 1), (11.5, 2, 0), (22.5, 1, 2)]


def test_messages_queue_at_the_sender_and_at_the_receiver() -> None:
    net = Net()
    net.send(0.0, 0, 1, MB)
    net.send(0.0, 0, 2, MB)  # waits for the sender's link
    net.send(0.1, 3, 1, MB)  # waits for the receiver's
    assert net.run() == [(1.5, 0, 1), (2.5, 0, 2), (2.5, 3, 1)]
    net = Net()
    for k in range(100):
        net.send(0.0, 0, 1 + k % 3, MB)
    assert [now for now, *_ in net.run()] == [1.5 + k for k in range(100)]


def test_a_message_that_waits_for_its_sender_does_not_hold_the_receiver() -> None:
    net = Net()
    net.send(0.0, 0, 2, 5 * MB)
    net.send(0.0, 0, 1, MB)  # begins at 5
    net.send(1.0, 3, 1, MB)  # finds the link of node 1 idle
    assert net.run() == [(2.5, 3, 1), (5.5, 0, 2), (6.5, 0, 1)]


def test_both_directions_of_a_link_are_independent() -> None:
    net = Net()
    net.send(0.0, 0, 1, MB)
    net.send(0.0, 1, 0, MB)
    assert net.run() == [(1.5, 0, 1), (1.5, 1, 0)]


def test_racks_share_their_uplinks() -> None:
    net = Net(racks=2, uplink="8Mbit")
    net.send(0.0, 0, 2, MB)
    net.send(0.0, 1, 3, MB)  # the uplink of rack 0 is taken
    net.send(0.0, 3, 2, MB)  # within rack 1, but node 2 receives already
    net.send(0.0, 2, 0, MB)  # the other direction is free
    assert sorted(net.run()) == [(1.5, 0, 2), (1.5, 2, 0), (2.5, 1, 3), (2.5, 3, 2)]
    free = Net(racks=2)
    free.send(0.0, 0, 2, MB)
    free.send(0.0, 1, 3, MB)
    assert free.run() == [(1.5, 0, 2), (1.5, 1, 3)]


def test_two_racks_into_one() -> None:
    net = Net(nodes=6, racks=3, uplink="8Mbit")
    net.send(0.0, 2, 0, MB)
    net.send(0.0, 4, 1, MB)  # both enter rack 0 by its one downlink
    assert net.run() == [(1.5, 2, 0), (2.5, 4, 1)]


def test_a_slow_link_slows_its_pair_only() -> None:
    net = Net(faults=[SlowLink(0, 1, at=1.0, seconds=10.0, factor=4.0)])
    net.send(0.0, 0, 1, MB)
    net.send(2.0, 1, 0, MB)
    net.send(2.0, 0, 2, MB)
    net.send(3.5, 0, 3, MB)
    net.send(20.0, 0, 1, MB)
    assert net.run() == [(1.5, 0, 1), (3.5, 0, 2), (5.0, 0, 3), (8.0, 1, 0), (21.5, 0, 1)]


def test_order_is_kept_between_two_nodes() -> None:
    net = Net(jitter=3.0, faults=[Delay(0, 1, at=0.0, seconds=2.0, extra=5.0)], seed=3)
    for k in range(200):
        net.send(0.05 * k, 0, 1, 1000, k)
        net.send(0.05 * k, 2, 1, 1000, k)
        net.send(0.05 * k, 2, 3, 1000, k)
    net.run()
    for pair in ((0, 1), (2, 1), (2, 3)):
        arrived = [(now, names[0]) for now, source, target, names in net.seen if (source, target) == pair]
        assert [name for _, name in arrived] == list(range(200))
        late = np.array([now - 0.05 * name for now, name in arrived])
        assert late.min() > 0.5
        assert late.max() < (3.6 if pair != (0, 1) else 8.6)
    mixed = [source for _, source, target, _ in net.seen if target == 1]
    assert mixed != sorted(mixed)
    again = Net(jitter=3.0, faults=[Delay(0, 1, at=0.0, seconds=2.0, extra=5.0)], seed=3)
    for k in range(200):
        again.send(0.05 * k, 0, 1, 1000, k)
        again.send(0.05 * k, 2, 1, 1000, k)
        again.send(0.05 * k, 2, 3, 1000, k)
    again.run()
    assert again.seen == net.seen


def test_a_reset_loses_the_last_messages_under_way() -> None:
    def after(lost: int, doubled: int = 0) -> list[list[int]]:
        net = Net(faults=[Reset(0, 1, at=1.2, lost=lost, doubled=doubled)])
        net.send(0.0, 0, 1, 1000, 1)  # has arrived
        net.send(1.0, 0, 1, 1000, 2, 3)
        net.send(1.1, 0, 1, 1000, 4)
        net.send(1.1, 0, 2, 1000, 5)  # another connection
        net.send(1.3, 0, 1, 1000, 6)  # written to a connection that is gone
        net.send(1.9, 0, 1, 1000, 7)
        net.run()
        assert net.told == [(1.7, 0, 1), (1.7, 1, 0)]
        return [names for _, source, target, names in net.seen if (source, target) != (0, 2)]

    assert after(lost=1_000) == [[1], [7]]
    assert after(lost=1) == [[1], [2, 3], [7]]
    assert after(lost=2) == [[1], [2], [7]]
    assert after(lost=0) == [[1], [2, 3], [4], [7]]
    assert after(lost=1, doubled=1) == [[1], [2, 3, 3], [7]]
    assert after(lost=0, doubled=3) == [[1], [2, 3, 2, 3], [4, 4], [7]]
