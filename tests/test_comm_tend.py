"""Links and nodes on a network that loses without a word: timers alone bring everything, once and in order."""

from __future__ import annotations

import random

import numpy as np
import pytest

from stretto.comm.link import ASK_AGAIN, SEND_AGAIN, SLOW, SOON, Frame, Link
from stretto.comm.messages import Message, NodeClock
from stretto.comm.policy import Eager, Managed, Policy
from stretto.consistency.rules import BSP, SSP, Rule
from stretto.store.layout import Layout, TableSpec
from stretto.store.node import StoreNode
from stretto.store.shard.functions import add


def clock(n: int) -> NodeClock:
    return NodeClock(0, n)


def drained(link: Link) -> list[Frame]:
    frames, link.replies = link.replies, []
    return frames


def test_an_acknowledgement_waits_a_little_for_company() -> None:
    here, there = Link(0, 1), Link(1, 0)
    there.receive(here.send(clock(1)))
    assert there.tend(5.0) == 5.0 + SOON
    assert there.tend(5.0 + SOON / 2) == 5.0 + SOON
    assert not there.replies
    assert there.tend(5.0 + SOON) == np.inf
    [told] = drained(there)
    assert (told.acknowledges, told.message) == (1, None)
    here.receive(told)
    assert here.tend(6.0) == np.inf
    # One that travels with a message need not go by itself.
    there.receive(here.send(clock(2)))
    there.tend(7.0)
    there.send(clock(1))
    there.tend(7.0 + 2 * SOON)
    assert not drained(there)


def test_a_question_is_asked_again_ever_less_often() -> None:
    here, there = Link(0, 1), Link(1, 0)
    here.send(clock(1))
    there.receive(here.send(clock(2)))
    assert [frame.asks for frame in drained(there)] == [True]
    now, asked = 0.0, []
    while now < 30.0:
        then = there.tend(now)
        asked += [now for frame in drained(there) if frame.asks]
        now = then
    assert asked[0] == ASK_AGAIN
    gaps = np.diff(asked)
    assert gaps.tolist()[:6] == [0.5, 1.0, 2.0, 4.0, 8.0, 8.0]


def test_the_oldest_goes_again_and_the_answer_tells_what_else_was_lost() -> None:
    here, there = Link(0, 1), Link(1, 0)
    frames = [here.send(clock(n)) for n in range(1, 7)]
    for frame in frames[:3]:
        there.receive(frame)  # the other three are lost, and so is every acknowledgement
    due = here.tend(1.0)
    assert due == 1.0 + SEND_AGAIN + frames[0].nbytes / SLOW
    here.tend(due - 0.01)
    assert not here.replies
    here.tend(due)
    [again] = drained(here)
    assert again.sequence == 1
    late = here.send(clock(7))  # sent after the question: on its way for all one knows
    assert there.receive(again) == []
    there.tend(2.0)
    there.tend(3.0)
    here.receive(drained(there)[-1])
    assert [frame.sequence for frame in here.replies] == [4, 5, 6]
    for frame in [*drained(here), late]:
        assert len(there.receive(frame)) == 1
    assert there.duplicates == 1


def test_nothing_goes_again_while_acknowledgements_come() -> None:
    here, there = Link(0, 1, every=1), Link(1, 0, every=1)
    for n in range(1, 50):
        there.receive(here.send(clock(2 * n)))
        there.receive(here.send(clock(2 * n + 1)))
        here.tend(0.3 * n)
        here.receive(drained(there)[0])  # always one behind
        here.tend(0.3 * n + 0.1)
        drained(there)
        assert not here.replies


def test_it_gives_up_its_haste_but_not_the_frame() -> None:
    here = Link(0, 1)
    here.send(clock(1))
    now, sent = here.tend(0.0), []
    while now < 60.0:
        then = here.tend(now)
        sent += [now for _ in drained(here)]
        now = then
    assert np.diff(sent)[:5] == pytest.approx([2.0, 4.0, 8.0, 8.0, 8.0], abs=1e-3)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_lost_comes_in_the_end(seed: int) -> None:
    """Two links, both ways, a third of all frames lost, no reset ever noticed; virtual time."""
    dice = random.Random(seed)
    links = Link(0, 1, every=3), Link(1, 0, every=3)
    due, sent = [np.inf, np.inf], [0, 0]
    got: tuple[list[int], list[int]] = ([], [])
    wires: list[list[tuple[float, Frame]]] = [[], []]
    lost = 0
    now = 0.0

    def carry(side: int, frames: list[Frame]) -> None:
        nonlocal lost
        for frame in frames:
            if dice.random() < 0.33 and now < 100:
                lost += 1
            else:
                wires[side].append((now + 0.001, frame))

    while now < 400:
        for side, link in enumerate(links):
            if now < 20 and dice.random() < 0.3:
                sent[side] += 1
                carry(side, [link.send(clock(sent[side]))])
            while wires[1 - side] and wires[1 - side][0][0] <= now:
                messages: list[Message] = link.receive(wires[1 - side].pop(0)[1])
                got[side].extend(message.clock for message in messages if isinstance(message, NodeClock))
                carry(side, drained(link))
            due[side] = link.tend(now)
            carry(side, drained(link))
        ahead = [at for wire in wires for at, _ in wire[:1]]
        now = min(now + 0.05, *ahead, *due) if now < 20 else min(*due, *ahead, now + 10)
    assert lost > 20
    assert got[0] == list(range(1, sent[1] + 1))
    assert got[1] == list(range(1, sent[0] + 1))
    assert [link.unacknowledged for link in links] == [0, 0]


# -- nodes -------------------------------------------------------------------------------------------------------------


def pair(rule: Rule, policy: Policy) -> list[StoreNode]:
    layout = Layout((TableSpec("x", add, rows=20, cols=2),), 2, 2, rule, policy)
    return [StoreNode(layout, 0), StoreNode(layout, 1)]


@pytest.mark.parametrize("policy", [Eager(), Managed("1Mbit", window=4)], ids=["eager", "managed"])
@pytest.mark.parametrize("rule", [BSP(), SSP(1)], ids=repr)
@pytest.mark.parametrize("seed", range(4))
def test_two_nodes_over_a_lossy_network(rule: Rule, policy: Policy, seed: int) -> None:
    """Ten clocks of two workers, a fifth of all frames lost, and none of it reported."""
    dice = random.Random(seed)
    nodes = pair(rule, policy)
    keys = np.arange(20)
    clocks, now, lost = [0, 0], 0.0, 0
    out = np.empty((20, 2), np.float32)
    held = [False, False]
    while now < 4000 and (min(clocks) < 10 or min(node.shard.clock for node in nodes) < 10):
        due = np.inf
        for node in nodes:
            worker = node.number
            while clocks[worker] < 10 and not (held[worker] and node.holds_up(worker)):
                if not node.read(now, worker, 0, keys, out):
                    break
                node.add(now, worker, 0, keys, np.ones((20, 2), np.float32))
                clocks[worker] += 1
                held[worker] = not node.tick(now, worker)
            node.woken.clear()
        for node in nodes:
            due = min(due, node.tend(now))
            frames, node.frames = node.frames, []
            for target, frame in frames:
                if dice.random() < 0.2:
                    lost += 1
                else:
                    nodes[target].receive(now, node.number, frame)
                    due = min(due, nodes[target].tend(now, node.number))
        now = max(now + 0.001, min(due, now + 1.0))
    assert clocks == [10, 10]
    assert lost > 3
    total = np.concatenate([node.shard.table(0)[1] for node in nodes])
    assert total.shape == (20, 2)
    assert (total == 20).all()


def test_an_acknowledgement_of_what_was_never_sent_is_dropped() -> None:
    node = pair(BSP(), Eager())[0]
    node.receive(0.0, 1, Frame(0, 1, 1, 99, NodeClock(1, 1), False, 48))
    assert node.shard.clock == 0
    node.receive(0.0, 1, Frame(0, 1, 1, 0, NodeClock(1, 1), False, 48))
    node.tick(0.0, 0)
    assert node.shard.clock == 1
