"""Links over connections that lose, repeat and delay: every message arrives once and in order, both ways."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from stretto.comm.link import EVERY, Frame, Link, acknowledge_every
from stretto.comm.messages import Message, NodeClock
from stretto.errors import RunError

SIDES = st.sampled_from([0, 1])


def clock(n: int) -> NodeClock:
    return NodeClock(0, n)


def numbers(messages: list[Message]) -> list[int]:
    return [m.clock for m in messages if isinstance(m, NodeClock)]


class Connection(RuleBasedStateMachine):
    """Two links and what is between them. Side k sends into pipe k, which ends at the other side."""

    kind: ClassVar[type[Link]] = Link

    def __init__(self) -> None:
        super().__init__()
        self.links = [self.kind(0, 1, every=3), self.kind(1, 0, every=3)]
        self.pipes: list[list[Frame]] = [[], []]
        self.history: list[list[Frame]] = [[], []]  # all that was ever in a pipe
        self.down = [False, False]  # this side has not noticed yet that the connection was cut
        self.dropped = False  # something went without a cut
        self.sent = [0, 0]
        self.got: list[list[int]] = [[], []]  # by sender

    def carry(self, side: int, frames: list[Frame]) -> None:
        self.history[side] += frames
        if not self.down[side]:
            self.pipes[side] += frames

    def hand_over(self, side: int, frame: Frame) -> None:
        there = self.links[1 - side]
        self.got[side] += numbers(there.receive(frame))
        self.carry(1 - side, there.replies)
        there.replies = []

    @rule(side=SIDES, count=st.integers(1, 5))
    def send(self, side: int, count: int) -> None:
        for _ in range(count):
            self.sent[side] += 1
            self.carry(side, [self.links[side].send(clock(self.sent[side]))])

    @rule(side=SIDES, count=st.integers(1, 6))
    def deliver(self, side: int, count: int) -> None:
        for _ in range(min(count, len(self.pipes[side]))):
            self.hand_over(side, self.pipes[side].pop(0))

    @rule(side=SIDES, back=st.integers(0, 40))
    def deliver_again(self, side: int, back: int) -> None:
        """A frame of any time arrives (once more, or for the first time): a duplicate, a latecomer, or a gap."""
        if self.history[side]:
            self.hand_over(side, self.history[side][-1 - back % len(self.history[side])])

    @rule(side=SIDES, at=st.integers(0, 5))
    def drop(self, side: int, at: int) -> None:
        """A frame is lost without a report; what follows it shows a gap."""
        if self.pipes[side]:
            del self.pipes[side][at % len(self.pipes[side])]
            self.dropped = True

    @rule(side=SIDES)
    def timer(self, side: int) -> None:
        frame = self.links[side].acknowledgement()
        if frame is not None:
            self.carry(side, [frame])

    @rule(kept=st.tuples(st.integers(0, 4), st.integers(0, 4)))
    def cut(self, kept: tuple[int, int]) -> None:
        """Some of what is on its way still arrives, the rest does not, nor what is sent before the cut is noticed."""
        for side in (0, 1):
            del self.pipes[side][kept[side] :]
            self.down[side] = True

    @rule(side=SIDES)
    def notice(self, side: int) -> None:
        if self.down[side]:
            self.down[side] = False
            self.carry(side, self.links[side].reset())

    @rule()
    def reset_for_nothing(self) -> None:
        """A reset without a loss: everything unacknowledged arrives twice."""
        for side in (0, 1):
            if not self.down[side]:
                self.carry(side, self.links[side].reset())

    @invariant()
    def arrives_in_order_and_once(self) -> None:
        for side in (0, 1):
            assert self.got[side] == list(range(1, len(self.got[side]) + 1))
            assert self.sent[side] - len(self.got[side]) <= self.links[side].unacknowledged

    def teardown(self) -> None:
        if self.dropped:  # if nothing follows what was lost, only a reset brings it
            self.cut((3, 3))
        for side in (0, 1):
            self.notice(side)
        for _ in range(3):  # what is on its way, then what a last acknowledgement says
            while self.pipes[0] or self.pipes[1]:
                for side in (0, 1):
                    self.deliver(side, 1)
            assert self.got == [list(range(1, n + 1)) for n in self.sent]
            for side in (0, 1):
                self.timer(side)
        assert [link.unacknowledged for link in self.links] == [0, 0]
        assert not self.pipes[0]
        assert not self.pipes[1]


TestConnection = Connection.TestCase
TestConnection.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def pair(every: int = EVERY) -> tuple[Link, Link]:
    return Link(0, 1, every=every), Link(1, 0, every=every)


def test_a_quiet_connection() -> None:
    here, there = pair()
    frames = [here.send(clock(n)) for n in range(1, 8)]
    assert [f.sequence for f in frames] == [1, 2, 3, 4, 5, 6, 7]
    assert [numbers(there.receive(f)) for f in frames] == [[n] for n in range(1, 8)]
    assert (here.unacknowledged, there.replies) == (7, [])
    here.receive(there.send(clock(1)))  # carries the acknowledgement along
    assert here.unacknowledged == 0
    assert there.acknowledgement() is None
    frame = here.acknowledgement()
    assert frame is not None
    assert (frame.message, frame.sequence, frame.acknowledges, frame.asks) == (None, 0, 1, False)
    there.receive(frame)
    assert there.unacknowledged == 0
    assert here.acknowledgement() is None


def test_an_acknowledgement_goes_by_itself_after_some_frames() -> None:
    here, there = pair()
    for n in range(1, 2 * EVERY + 1):
        there.receive(here.send(clock(n)))
    assert [f.acknowledges for f in there.replies] == [EVERY, 2 * EVERY]
    here.receive(there.replies[1])
    assert here.unacknowledged == 0
    here.receive(there.replies[0])  # an older one says nothing new
    assert here.unacknowledged == 0


@pytest.mark.parametrize("window", [1, 2, 3, 5, 16, 32])
def test_a_sender_that_stops_at_its_window_is_not_left_waiting(window: int) -> None:
    """One way only, without timers: acknowledgements come early enough."""
    here, there = pair(acknowledge_every(window))
    sent, got = 0, 0
    while sent < 100:
        assert here.unacknowledged < window, "the sender never sends again"
        sent += 1
        here.send(clock(sent))
        if here.unacknowledged == window or sent % 7 == 0 or sent == 100:
            for frame in here.reset():  # nothing of it had arrived
                got += len(there.receive(frame))
            for reply in there.replies:
                here.receive(reply)
            there.replies.clear()
    assert got == sent


@pytest.mark.parametrize("window", [1, 4, 32])
def test_a_lost_acknowledgement_is_given_again(window: int) -> None:
    """All arrived, and nothing of what was said about it: what comes a second time is dropped, and acknowledged."""
    here, there = pair(acknowledge_every(window))
    for n in range(1, window + 1):
        there.receive(here.send(clock(n)))
    assert there.reset() == []
    assert (here.unacknowledged, there.acknowledgement()) == (window, None)
    for frame in here.reset():
        assert there.receive(frame) == []
    for reply in there.replies:
        here.receive(reply)
    assert here.unacknowledged == 0


def test_a_gap_asks_once() -> None:
    here, there = pair()
    frames = [here.send(clock(n)) for n in range(1, 7)]
    assert numbers(there.receive(frames[0])) == [1]
    for frame in frames[2:]:
        assert there.receive(frame) == []
    assert [(f.asks, f.acknowledges) for f in there.replies] == [(True, 1)]
    assert here.receive(there.replies[0]) == []
    assert [f.sequence for f in here.replies] == [2, 3, 4, 5, 6]
    assert there.gaps == 4
    # The answer is lost as well: a timer or a reset makes it ask again.
    there.replies.clear()
    there.receive(frames[5])
    assert there.replies == []
    again = there.acknowledgement()
    assert again is not None
    assert again.asks
    assert there.reset() == []
    there.receive(frames[5])
    assert [f.asks for f in there.replies] == [True]
    assert [numbers(there.receive(f)) for f in here.replies] == [[2], [3], [4], [5], [6]]
    last = there.acknowledgement()
    assert last is not None
    assert not last.asks


def test_a_reset_gives_new_frames_that_say_what_is_known_now() -> None:
    here, there = pair()
    old = [here.send(clock(1)), here.send(clock(2))]
    here.receive(there.send(clock(1)))
    again = here.reset()
    assert [(f.sequence, f.acknowledges) for f in again] == [(1, 1), (2, 1)]
    assert [f.acknowledges for f in old] == [0, 0]  # those on their way are left alone
    assert [f.message for f in again] == [f.message for f in old]
    assert here.acknowledgement() is None
    for frame in [*again, *old]:
        there.receive(frame)
    assert there.duplicates == 2


def test_incarnations() -> None:
    here, there = pair()
    stale = here.send(clock(1))
    there.send(clock(9))
    new = Link(0, 1, incarnation=1)
    assert numbers(there.receive(new.send(clock(5)))) == [5]  # adopted
    assert (there.incarnation, there.unacknowledged) == (1, 0)
    assert there.receive(stale) == []
    assert there.receive(stale) == []
    assert there.ignored == 2
    back = there.send(clock(6))
    assert (back.incarnation, back.sequence, back.acknowledges) == (1, 1, 1)
    assert numbers(new.receive(back)) == [6]
    assert new.unacknowledged == 0


def test_a_message_travels_by_reference_and_is_counted_by_its_own_bytes() -> None:
    here, there = pair()
    message = clock(3)
    frame = here.send(message)
    assert frame.nbytes == message.nbytes
    assert there.receive(frame)[0] is message


def test_what_cannot_be_is_said() -> None:
    here, _ = pair()
    with pytest.raises(RunError, match="node 7 reached the link of node 0 to node 1"):
        here.receive(Frame(0, 7, 1, 0, clock(1), False, 48))
    with pytest.raises(RunError, match="acknowledges frame 4 of node 0, which has sent 0"):
        here.receive(Frame(0, 1, 1, 4, clock(1), False, 48))


# The adversary above is worth something only if it reaches every case. Hypothesis draws steps as it likes, and
# another version draws others, so that is shown on walks of our own over the same steps: each of them meets everything.


def walk(seed: int, kind: type[Link] = Link, steps: int = 300) -> Connection:
    """The machine after n steps, drawn from the seed, and its end."""
    draw = random.Random(seed)

    class Walked(Connection):
        pass

    Walked.kind = kind
    machine = Walked()

    def step(side: int) -> None:
        name = draw.choices(
            ("send", "deliver", "again", "drop", "timer", "cut", "notice", "reset"), (8, 10, 4, 2, 2, 1, 3, 1)
        )[0]
        if name == "send":
            machine.send(side, draw.randint(1, 5))
        elif name == "deliver":
            machine.deliver(side, draw.randint(1, 6))
        elif name == "again":
            machine.deliver_again(side, draw.randint(0, 40))
        elif name == "drop":
            machine.drop(side, draw.randint(0, 5))
        elif name == "timer":
            machine.timer(side)
        elif name == "cut":
            machine.cut((draw.randint(0, 4), draw.randint(0, 4)))
        elif name == "notice":
            machine.notice(side)
        else:
            machine.reset_for_nothing()

    for _ in range(steps):
        step(draw.randint(0, 1))
        machine.arrives_in_order_and_once()
    machine.teardown()
    return machine


def met(machine: Connection) -> Counter[str]:
    frames = [frame for side in machine.history for frame in side]
    return Counter(
        duplicates=sum(link.duplicates for link in machine.links),
        gaps=sum(link.gaps for link in machine.links),
        asks=sum(frame.asks for frame in frames),
        resent=sum(frame.message is not None for frame in frames) - sum(machine.sent),
    )


def test_the_machine_meets_what_it_should() -> None:
    """Duplicates, gaps, questions and resends in every walk, and a thousand of each in all."""
    walks = [met(walk(seed)) for seed in range(40)]
    assert all(min(found[name] for found in walks) >= 10 for name in walks[0]), walks
    total = sum(walks, Counter())
    assert min(total.values()) > 1000, total


class Believes(Link):
    """Takes what was seen before."""

    def receive(self, frame: Frame) -> list[Message]:
        again = frame.message is not None and frame.sequence <= self._received
        found = super().receive(frame)
        return [frame.message] if again and frame.message is not None else found


class Hurries(Link):
    """Takes what comes too early."""

    def receive(self, frame: Frame) -> list[Message]:
        self._received = max(self._received, frame.sequence - 1)
        return super().receive(frame)


class Forgets(Link):
    """Does not send the first unacknowledged message again."""

    def _again(self, *which: Any) -> list[Frame]:
        return super()._again(*which)[1:]


class Flatters(Link):
    """Acknowledges one more than it has."""

    def _bare(self, asks: bool = False) -> Frame:
        frame = super()._bare(asks)
        frame.acknowledges += 1
        return frame


@pytest.mark.parametrize("kind", [Believes, Hurries, Forgets, Flatters])
def test_a_wrong_link_is_found_out(kind: type[Link]) -> None:
    found = 0
    for seed in range(10):
        try:
            walk(seed, kind)
        except (AssertionError, RunError):
            found += 1
    assert found == 10
