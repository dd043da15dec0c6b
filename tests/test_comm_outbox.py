"""The outbox: required before picked, in order to each destination, within budgets and windows, nobody held up."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from numpy.typing import NDArray

from stretto.comm.messages import Announce, Demand, Dropped, Fetch, Message, NodeClock, Rows, ShardClock, Update
from stretto.comm.outbox import Outbox
from stretto.comm.policy import Eager, Lazy, Managed, Policy
from stretto.errors import PlanError, RunError
from test_comm_budget import worst_excess

KEYS = np.zeros(1, np.int64)
VALUES = np.zeros((1, 1), "f4")


def update(nbytes: int, number: int = 0) -> Update:
    return Update(0, 0, number, 0, -1, KEYS, VALUES, nbytes)


def free(nodes: int = 4) -> NDArray[np.int64]:
    return np.zeros(nodes, np.int64)


def managed(pick: object = None, *, nodes: int = 4, **options: object) -> Outbox:
    """100 bytes a second for each side, node 0."""
    policy = Managed(200.0, **options)  # type: ignore[arg-type]
    return Outbox(policy, "updates", 0, nodes, pick)  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", [Eager(), Lazy()])
def test_without_a_budget_everything_goes_at_once(policy: Policy) -> None:
    outbox = Outbox(policy, "updates", 0, 4, None)
    assert outbox.wake_at == inf
    for n in range(5):
        outbox.put(1 + n % 3, update(10**9, n))
    outbox.put(3, NodeClock(0, 7))
    assert outbox.wake_at == -inf
    assert (outbox.waiting, outbox.clocks_waiting, outbox.has_left(6), outbox.has_left(7)) == (6, 1, True, False)
    outbox.touch()
    outbox.acknowledged()
    sent = outbox.poll(0.0, free() + 1000)
    assert [(to, getattr(m, "number", None)) for to, m, _ in sent] == [
        (1, 0),
        (2, 1),
        (3, 2),
        (1, 3),
        (2, 4),
        (3, None),
    ]
    assert (outbox.waiting, outbox.clocks_waiting, outbox.has_left(7), outbox.wake_at) == (0, 0, True, inf)
    assert outbox.poll(1.0, free()) == []


def rows(reply: bool) -> Rows:
    return Rows(0, 0, KEYS, VALUES, 0, 0, 10, reply)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (update(10), "clock"),
        (NodeClock(0, 1), "clock"),
        (ShardClock(0, 1, 0), "clock"),
        (rows(reply=False), "clock"),
        (rows(reply=True), "fetch"),
        (Fetch(0, 0, KEYS, 1), "fetch"),
        (Dropped(0, 0, KEYS), "control"),
        (Announce(0, 0, 1, KEYS), "control"),
        (Demand(0, 1), "control"),
    ],
)
def test_reasons(message: Message, reason: str) -> None:
    for policy in (Eager(), Managed(1e9)):
        outbox = Outbox(policy, "updates", 0, 2, None)
        outbox.put(1, message)
        assert outbox.poll(0.0, free(2)) == [(1, message, reason)]


def test_one_message_at_a_time_and_the_oldest_first() -> None:
    outbox = managed()
    for n, to in enumerate([2, 1, 2, 3]):
        outbox.put(to, update(50, n))
    times, order, now = [], [], 0.0
    while outbox.wake_at < inf:
        now = max(now, outbox.wake_at)
        for _, message, _ in outbox.poll(now, free()):
            times.append(now)
            order.append(message.number)  # type: ignore[union-attr]
    assert order == [0, 1, 2, 3]
    assert times == pytest.approx([0.0, 0.5, 1.0, 1.5])
    assert outbox.poll(100.0, free()) == []


def test_the_rows_side_has_the_rest_of_the_budget() -> None:
    outbox = Outbox(Managed(200.0, split=0.25), "rows", 0, 4, None)
    for _ in range(2):
        outbox.put(1, ShardClock(0, 1, 0))
    assert len(outbox.poll(0.0, free())) == 1
    assert outbox.wake_at == pytest.approx(48 / 150)


def test_a_slow_link_holds_up_nobody_else() -> None:
    outbox = managed(links={(0, 1): 2.0, (3, 2): 1e-3})  # one byte a second for updates to node 1
    for n in range(6):
        outbox.put(1 + n % 2, update(10, n))
    log, now = [], 0.0
    while outbox.wake_at < inf:
        now = max(now, outbox.wake_at)
        log += [(round(now, 6), m.number) for _, m, _ in outbox.poll(now, free())]  # type: ignore[union-attr]
    assert log == [(0.0, 0), (0.1, 1), (0.2, 3), (0.3, 5), (10.0, 2), (20.0, 4)]


def test_a_full_window_closes_a_link_for_everything() -> None:
    outbox = managed(lambda n: [], window=2)
    outbox.put(1, Fetch(0, 0, KEYS, 1))
    outbox.put(2, NodeClock(0, 3))
    on_the_way = free()
    on_the_way[1] = 2
    assert [to for to, _, _ in outbox.poll(0.0, on_the_way)] == [2]
    assert outbox.poll(outbox.wake_at, on_the_way) == []
    assert outbox.wake_at == inf
    assert outbox.waiting == 1
    outbox.put(1, update(5))  # also what comes later stays behind
    assert outbox.poll(50.0, on_the_way) == []
    on_the_way[1] = 1
    outbox.acknowledged()
    assert outbox.wake_at <= 50.0
    assert [reason for _, _, reason in outbox.poll(50.0, on_the_way)] == ["fetch"]


def test_an_acknowledgement_wakes_only_who_waited_for_it() -> None:
    outbox = managed(lambda n: [])
    outbox.put(1, update(10))
    outbox.poll(0.0, free())
    outbox.poll(outbox.wake_at, free())
    assert outbox.wake_at == inf
    outbox.acknowledged()
    assert outbox.wake_at == inf
    outbox.touch()
    assert outbox.wake_at == pytest.approx(0.1)


def test_required_goes_before_picked() -> None:
    left = [[(1, update(10, 1)), (2, update(10, 2)), (3, update(10, 3))]]
    outbox = managed(lambda n: left.pop() if left else [])
    outbox.touch()
    sent = outbox.poll(0.0, free())
    outbox.put(3, NodeClock(0, 1))  # behind what was picked for node 3, but not behind that for node 2
    assert outbox.waiting == 1
    while outbox.wake_at < inf:
        sent += outbox.poll(outbox.wake_at, free())
    assert [(to, reason) for to, _, reason in sent] == [(1, "rank"), (3, "rank"), (3, "clock"), (2, "rank")]
    assert outbox.waiting == 0


def test_it_picks_only_when_nothing_required_could_go() -> None:
    asked: list[int] = []
    outbox = managed(lambda n: asked.append(n) or [], burst=(7, 9))  # type: ignore[func-returns-value]
    outbox.put(1, update(10))
    outbox.put(2, update(10))
    outbox.poll(0.0, free())
    outbox.poll(0.05, free())  # too early
    outbox.poll(0.1, free())
    assert asked == []
    outbox.poll(0.2, free())
    assert asked == [7]


def test_a_picker_is_told_where_nothing_can_go() -> None:
    seen: list[list[bool]] = []

    def pick(n: int) -> list[tuple[int, Message]]:
        seen.append(outbox.open.tolist())
        return []

    outbox = managed(pick, nodes=5, window=3, links={(0, 2): 2.0})
    outbox.put(2, update(10))
    outbox.put(2, update(10))
    on_the_way = np.array([0, 0, 0, 3, 2])
    outbox.poll(0.0, on_the_way)
    outbox.poll(0.1, on_the_way)
    assert seen == [[True, True, False, False, True]]
    assert outbox.wake_at == pytest.approx(10.0)  # when the slow link may be used again
    outbox.poll(10.0, on_the_way)
    outbox.poll(10.1, on_the_way)
    outbox.poll(20.0, on_the_way)
    assert seen[-1] == [True, True, True, False, True]
    assert outbox.wake_at == inf


def test_a_picker_that_does_not_listen_cannot_pile_up_more_than_a_few() -> None:
    made = 0

    def pick(n: int) -> list[tuple[int, Message]]:
        nonlocal made
        made += 2
        return [(1, update(10, made)), (2, update(10, made))]

    outbox = managed(pick, links={(0, 1): 0.02})
    now = 0.0
    outbox.touch()
    for _ in range(100):
        now = max(now, outbox.wake_at)
        outbox.poll(now, free())
    assert now > 100.0
    assert made < 2 * 120


def test_what_stays_on_the_node_is_free() -> None:
    left = [[(0, update(500)), (1, update(10)), (0, update(500))], [(0, update(500))]]
    outbox = managed(lambda n: left.pop() if left else [])
    outbox.touch()
    sent = outbox.poll(0.0, free())
    assert [(to, reason) for to, _, reason in sent] == [(0, "rank"), (0, "rank"), (0, "rank"), (1, "rank")]
    assert outbox.wake_at == pytest.approx(0.1)
    with pytest.raises(RunError, match="delivered, not sent"):
        outbox.put(0, NodeClock(0, 1))


def test_on_a_single_node_the_budget_sets_the_pace() -> None:
    outbox = managed(lambda n: [(0, update(50))], nodes=1)
    outbox.touch()
    assert len(outbox.poll(0.0, free(1))) == 1
    assert outbox.wake_at == pytest.approx(0.5)


def test_what_was_sent_again_is_charged() -> None:
    outbox = managed(links={(0, 1): 20.0})
    outbox.charge(0.0, 1, 100)
    outbox.put(1, update(10))
    outbox.put(2, update(10))
    assert outbox.wake_at == pytest.approx(1.0)
    assert [to for to, _, _ in outbox.poll(1.0, free())] == [2]
    assert outbox.poll(1.1, free()) == []
    assert outbox.wake_at == pytest.approx(10.0)
    Outbox(Eager(), "updates", 0, 2, None).charge(0.0, 1, 100)


def test_clocks_that_have_not_left() -> None:
    outbox = managed()
    for t in (1, 2):
        for to in (1, 2):
            outbox.put(to, NodeClock(0, t))
    left, waiting = [], []
    while outbox.wake_at < inf:
        left.append([outbox.has_left(t) for t in (0, 1, 2)])
        waiting.append(outbox.clocks_waiting)
        outbox.poll(max(0.0, outbox.wake_at), free())
    assert waiting == [4, 3, 2, 1]
    assert left == [[True, False, False]] * 2 + [[True, True, False]] * 2
    assert outbox.has_left(2)


def test_sides() -> None:
    with pytest.raises(PlanError, match="updates or rows"):
        Outbox(Eager(), "client", 0, 2, None)


@settings(max_examples=50)
@given(st.lists(st.integers(49, 5000), min_size=5, max_size=30), st.integers(2, 6), st.floats(10.0, 1e8))
def test_the_budget_is_used_and_kept(sizes: list[int], nodes: int, rate: float) -> None:
    """Always something to pick, polled when it says: at least 95 % of the rate at any time, and never more."""
    number = 0

    def pick(n: int) -> list[tuple[int, Message]]:
        nonlocal number
        number += 1
        return [(to, update(sizes[(number + to) % len(sizes)])) for to in range(nodes)]

    outbox = Outbox(Managed(2 * rate), "updates", 0, nodes, pick)
    outbox.touch()
    sends: list[tuple[float, int]] = []
    now = total = 0.0
    for k in range(100):
        if k % 9 == 0:
            outbox.put(1, NodeClock(0, k))
        now = max(now, outbox.wake_at)
        assert total >= 0.95 * rate * now
        for to, message, _ in outbox.poll(now, free(nodes)):
            if to != 0:
                sends.append((now, message.nbytes))
                total += message.nbytes
    assert worst_excess(sends, rate) <= 1e-9 * total


NODES, RATE, SLOW, WINDOW, BURST = 4, 100.0, 30.0, 3, 5


class Sender(RuleBasedStateMachine):
    """A node that puts, picks and is acknowledged at any time; node 2 lies behind a slow link."""

    def __init__(self) -> None:
        super().__init__()
        policy = Managed(2 * RATE, burst=(BURST, 1), window=WINDOW, links={(0, 2): 2 * SLOW, (1, 3): 1e-6})
        self.outbox = Outbox(policy, "updates", 0, NODES, self.pick)
        self.now = 0.0
        self.on_the_way = free(NODES)
        self.dirty = [0] * NODES
        self.made = 0
        self.expected: list[list[int]] = [[] for _ in range(NODES)]  # in the order they came, by destination
        self.required: set[int] = set()
        self.got: list[list[int]] = [[] for _ in range(NODES)]
        self.sends: list[tuple[float, int, int]] = []  # time, destination, bytes

    def pick(self, n: int) -> Sequence[tuple[int, Message]]:
        assert n == BURST
        assert not self.sendable(), "something required could go"
        picked: list[tuple[int, Message]] = []
        for to in range(NODES):
            take = min(n, self.dirty[to])
            if take and self.outbox.open[to]:
                n -= take
                self.dirty[to] -= take
                picked.append((to, self.message(to, 20 * take)))
        return picked

    def message(self, to: int, nbytes: int) -> Update:
        self.made += 1
        self.expected[to].append(self.made)
        return update(nbytes, self.made)

    def sendable(self) -> list[int]:
        """Destinations with something required that neither their window nor their link keeps back."""
        spent = sum(n for _, to, n in self.sends if to == 2)
        ready = max((t for t, to, _ in self.sends if to == 2), default=0.0)
        last = next((n for _, to, n in reversed(self.sends) if to == 2), 0)
        closed = spent and self.now < ready + last / SLOW - 1e-9
        return [
            to
            for to in range(1, NODES)
            if set(self.expected[to][len(self.got[to]) :]) & self.required
            and self.on_the_way[to] < WINDOW
            and not (to == 2 and closed)
        ]

    def run(self) -> None:
        """What a node does after every event."""
        while self.outbox.wake_at <= self.now:
            for to, message, reason in self.outbox.poll(self.now, self.on_the_way):
                assert isinstance(message, Update)
                self.got[to].append(message.number)
                assert (reason == "clock") == (message.number in self.required)
                if to != 0:
                    assert self.on_the_way[to] < WINDOW
                    self.on_the_way[to] += 1
                    self.sends.append((self.now, to, message.nbytes))
            assert self.outbox.wake_at > self.now

    @rule(to=st.integers(1, NODES - 1), nbytes=st.integers(1, 200))
    def put(self, to: int, nbytes: int) -> None:
        message = self.message(to, nbytes)
        self.required.add(message.number)
        self.outbox.put(to, message)
        self.run()

    @rule(to=st.integers(0, NODES - 1), rows=st.integers(1, 20))
    def change(self, to: int, rows: int) -> None:
        self.dirty[to] += rows
        self.outbox.touch()
        self.run()

    @rule(to=st.integers(1, NODES - 1), count=st.integers(1, WINDOW))
    def acknowledge(self, to: int, count: int) -> None:
        self.on_the_way[to] = max(0, self.on_the_way[to] - count)
        self.outbox.acknowledged()
        self.run()

    @rule(by=st.floats(0.0, 3.0))
    def pass_time(self, by: float) -> None:
        until = self.now + by
        while self.outbox.wake_at <= until:
            self.now = max(self.now, self.outbox.wake_at)
            self.run()
        self.now = until

    @precondition(lambda self: self.outbox.wake_at < inf)
    @rule()
    def oversleep(self) -> None:
        """A poll that comes late loses time and nothing else."""
        self.now = max(self.now, self.outbox.wake_at) + 0.5
        self.run()

    @invariant()
    def goes_in_order(self) -> None:
        for to in range(NODES):
            assert self.got[to] == self.expected[to][: len(self.got[to])]
        unsent = [n for to in range(NODES) for n in self.expected[to][len(self.got[to]) :]]
        assert self.outbox.waiting == len(self.required.intersection(unsent))

    @invariant()
    def is_not_idle_while_something_could_go(self) -> None:
        if self.outbox.wake_at == inf:
            assert not self.sendable()
            assert not any(
                rows and not self.expected[to][len(self.got[to]) :] and self.on_the_way[to] < WINDOW
                for to, rows in enumerate(self.dirty)
            )

    def teardown(self) -> None:
        while True:  # everything is acknowledged as soon as it is sent; it must come to rest by itself
            self.on_the_way[:] = 0
            self.outbox.acknowledged()
            if self.outbox.wake_at == inf:
                break
            self.now = max(self.now, self.outbox.wake_at)
            self.run()
        assert self.got == self.expected
        assert not any(self.dirty)
        everything = [(t, n) for t, _, n in self.sends]
        assert worst_excess(everything[-60:], RATE) <= 1e-6
        assert worst_excess([(t, n) for t, to, n in self.sends if to == 2][-60:], SLOW) <= 1e-6


TestSender = Sender.TestCase
TestSender.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
