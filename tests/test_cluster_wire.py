"""Wires over real sockets: everything arrives once and in order, from those who belong, never too much at a time."""

from __future__ import annotations

import pickle
import socket
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import zmq

from stretto.comm.link import BARE, Frame
from stretto.comm.messages import Demand, Update
from stretto.errors import RunError
from stretto.runtime.cluster.blocks.ring import Block
from stretto.runtime.cluster.hosts.calls import PROBE, RING, TABLES, Address
from stretto.runtime.cluster.net.curve_keys import KeyPair, new_pair
from stretto.runtime.cluster.net.envelope import MAX_PART, Envelopes
from stretto.runtime.cluster.net.frame_checks import RingCheck, TableCheck
from stretto.runtime.cluster.net.peer import BATCH_BYTES, Peer
from stretto.runtime.cluster.net.serialization import LARGEST
from wire_ends import JOB, End, ends, layout, raw, until, update

Caller = Callable[[End, KeyPair | None], zmq.Socket[bytes]]


@pytest.fixture
def caller() -> Iterator[Caller]:
    """caller(end, keys): a socket of somebody's own, connected to a wire; without keys it does not encrypt."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    sockets = []

    def call(to: End, keys: KeyPair | None) -> zmq.Socket[bytes]:
        made = context.socket(zmq.PUSH)
        sockets.append(made)
        made.linger, made.sndtimeo = 0, 20_000
        made.immediate = True
        if keys is not None:
            assert to.keys is not None
            made.curve_serverkey = to.keys.public.encode()
            made.curve_publickey, made.curve_secretkey = keys.public.encode(), keys.secret.encode()
        made.connect(to.wire.endpoint)
        return made

    yield call
    for made in sockets:
        made.close(0)
    context.term()


@pytest.mark.parametrize("plain", [False, True])
def test_everything_arrives_once_and_in_order_both_ways(plain: bool) -> None:
    with ends(plain=plain) as (here, there):
        for number in range(1, 301):
            here.send(update(number, 0, rows=[1, 8, 100, 5000][number % 4]))
            there.send(update(number, 1, rows=[7, 1][number % 2]))
        until(lambda: len(there.got) == 300 and len(here.got) == 300)
        assert here.numbers() == there.numbers() == list(range(1, 301))
        for message in there.got:
            assert isinstance(message, Update)
            assert (message.deltas == message.number).all()
        until(lambda: not here.link.unacknowledged and not there.link.unacknowledged)
        until(lambda: here.wire.backlog(1) == there.wire.backlog(0) == 0)
        counters = there.wire.counters
        assert (counters.malformed, counters.strangers, counters.failures) == (0, 0, 0)
        assert 0 < counters.received < 300  # small frames travel together


def test_connections_that_break_lose_nothing_in_the_end() -> None:
    with ends() as (here, there):
        for number in range(1, 401):
            here.send(update(number, 0, rows=2000))
            if number % 100 == 0:
                until(lambda: there.got)
                here.wire.cut(1)
        until(lambda: len(there.got) == 400)
        assert there.numbers() == list(range(1, 401))
        until(lambda: here.resets)
        assert set(here.resets) == {1}
        until(lambda: here.wire.counters.reconnects == len(here.resets))


def test_blocks_of_the_ring_travel() -> None:
    with ends(RingCheck({0: [[1_000_000]]})) as (here, there):
        data = np.random.default_rng(0).integers(0, 256, 1_000_000).astype(np.uint8)
        here.send(*[Block(0, epoch, 0, 0, (data,)) for epoch in range(20)])  # type: ignore[arg-type]
        until(lambda: len(there.got) == 20)
        for block in there.got:
            assert isinstance(block, Block)
            assert np.array_equal(block.parts[0], data)


def test_credit_holds_back_what_is_not_acknowledged() -> None:
    size = update(1, 0, rows=1000).nbytes
    with ends(credit=3 * size) as (here, there):
        there.acknowledges = False
        here.send(*[update(number, 0, rows=1000) for number in range(1, 11)])
        until(lambda: len(there.got) == 3)
        until(lambda: here.wire.counters.resent > 0)  # what is sent again passes, and only that
        assert len(there.got) == 3
        assert here.wire.backlog(1) >= 7 * size
        there.acknowledges = True
        there.wire.rouse()
        until(lambda: len(there.got) == 10)
        assert there.numbers() == list(range(1, 11))
        until(lambda: here.wire.backlog(1) == 0)


def test_what_waits_is_not_queued_again() -> None:
    """A link that sends everything again, again and again, while the other side is away."""
    here = End(0)
    try:
        nowhere = Address(1, "tcp://127.0.0.1:9", new_pair().public, "", 0, "")
        here.wire.meet({0: here.address(), 1: nowhere}, 0)
        messages = [update(number, 0, rows=1000) for number in range(1, 11)]
        size = sum(message.nbytes for message in messages)
        here.send(*messages)
        for _ in range(50):
            here.wire.post(1, TABLES, 0, 1, here.link.reset())
        # Once as it was sent first and once as it is sent again; and maybe a frame without a message, which asks.
        until(lambda: here.wire.backlog(1) < 2.1 * size)
        assert here.wire.backlog(1) >= size
    finally:
        here.wire.close()


def test_a_frame_waits_twice_at_most_however_often_it_is_sent_again() -> None:
    """The first one is on its way to the socket when the second is queued; a third must know of the second."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    peer = Peer(context, Address(1, "tcp://127.0.0.1:9", "", "", 0, ""), None, 1 << 30, 0.0)
    try:
        route, frames = (0, TABLES, 0, 1), [Frame(0, 0, k, 0, Demand(0, 1), False, BATCH_BYTES) for k in range(1, 11)]
        peer.put(route, frames)
        for _ in range(3):
            peer.put(route, frames)
            peer.send(0.0, lambda _, some: [bytes(len(some))])  # the socket takes nothing: no peer reads
        assert len(peer._ready) + len(peer._parts) == 2 * len(frames)
    finally:
        peer.close()
        context.destroy(0)


def test_frames_for_the_own_host_are_delivered_on_the_wires_thread() -> None:
    with ends() as (here, _):
        threads = []
        here.wire._deliver = lambda *args: threads.append((threading.current_thread().name, args[1:5]))
        here.wire.post(0, TABLES, 0, 0, [Frame(0, 0, 1, 0, Demand(0, 1), False, 48)])
        until(lambda: threads)
        assert threads == [("stretto-wire-0", (0, TABLES, 0, 0))]


@pytest.mark.parametrize("soon", [True, False])
def test_hosts_may_meet_one_after_the_other(soon: bool) -> None:
    """The first calls before the second has heard of it: it waits; later it is turned away, and tries again."""
    with ends(meet=False) as (here, there):
        roster = {0: here.address(), 1: there.address()}
        here.wire.meet(roster, 0, where=(0, 1), check=TableCheck(layout()))
        here.send(update(1))
        gate = there.wire._peers._gate
        assert gate is not None
        until(lambda: gate.waiting if soon else gate.refused)
        there.wire.meet(roster, 0, where=(0, 1), check=TableCheck(layout()))
        until(lambda: there.numbers() == [1])


def test_frames_of_the_next_incarnation_wait_for_it_and_older_ones_are_dropped() -> None:
    with ends() as (here, there):
        here.send(update(1))
        until(lambda: there.numbers() == [1])
        roster = {0: here.address(), 1: there.address()}
        with here.lock:
            here.link.restart(1)
        here.wire.meet(roster, 1, where=(0, 1), check=TableCheck(layout()))
        before = there.wire.counters.received
        here.send(update(2))
        until(lambda: there.wire.counters.received > before)
        assert there.numbers() == [1]
        with there.lock:
            there.link.restart(1)
        there.wire.meet(roster, 1, where=(0, 1), check=TableCheck(layout()))
        until(lambda: there.numbers() == [1, 2])
        dropped = here.wire.counters.dropped
        here.wire.post(1, TABLES, 0, 1, [Frame(0, 0, 9, 0, Demand(0, 1), False, 48)])  # somebody late
        until(lambda: here.wire.counters.dropped > dropped)
        assert here.wire.backlog(1) == 0


def test_a_host_that_is_off_the_roster_is_not_heard() -> None:
    with ends() as (here, there):
        here.send(update(1))
        until(lambda: there.numbers() == [1])
        there.wire.meet({1: there.address()}, 0, where=(0, 1))  # the connection is still there
        here.send(update(2))
        until(lambda: there.wire.counters.strangers > 0)
        assert there.numbers() == [1]
        there.wire.post(0, TABLES, 1, 0, [Frame(0, 1, 0, 0, None, False, BARE)])  # and is not spoken to
        assert there.wire.heard(0) == float("inf")


def test_silence_is_noticed_once_and_heartbeats_prevent_it() -> None:
    with ends(patience=0.4) as (here, there):
        until(lambda: here.wire.counters.received >= 15)  # nobody posts: all heartbeats
        assert not here.silences
        assert here.wire.heard(1) < 0.4
        there.wire.close()
        until(lambda: here.silences)
        assert here.wire.heard(1) > 0.4
        sent = here.wire.counters
        until(lambda: here.wire.heard(1) > 1.0)
        assert sent.malformed == 0
        ((host, seconds),) = here.silences
        assert host == 1
        assert 0.4 < seconds < 5


def test_a_callback_that_fails_does_not_end_the_wire(caplog: pytest.LogCaptureFixture) -> None:
    with ends() as (here, there):
        deliver = there.wire._deliver

        def fail(*args: object) -> None:
            there.wire._deliver = deliver
            raise ValueError("not today")

        there.wire._deliver = fail
        here.send(update(1))
        until(lambda: there.numbers() == [1])  # the link sent it again
        assert there.wire.counters.failures == 1
        assert "not today" in caplog.text


# -- who gets in -----------------------------------------------------------------------------------------------------


def test_a_stranger_cannot_connect(caller: Caller) -> None:
    with ends() as (here, there):
        of_another_job = End(0, job="another", keys=new_pair())
        callers = []
        try:
            for keys in (new_pair(), of_another_job.keys):
                callers.append(caller(there, keys))
            callers.append(caller(there, None))
            here.send(update(1))
            until(lambda: there.numbers() == [1])
            until(lambda: there.wire.counters.refused == 2)
            for stranger in callers:
                with pytest.raises(zmq.Again):
                    stranger.send(b"let me in", zmq.NOBLOCK)
            assert there.wire.counters.strangers == 0
            assert {host for host, *_ in there.seen} == {0}
        finally:
            of_another_job.wire.close()


def test_a_key_of_the_job_does_not_help_with_another_jobs_frames(caller: Caller) -> None:
    with ends() as (here, there):
        friend = caller(there, here.keys)
        frame = Frame(0, 0, 1, 0, update(1), False, 100)
        friend.send_multipart(raw(Envelopes("another", 0).encode(TABLES, 0, 1, [frame])))
        until(lambda: there.wire.counters.malformed == 1)
        assert there.wire.counters.reasons == {"another job": 1}
        assert not there.seen


@pytest.mark.parametrize(
    ("host", "source", "target", "reason"),
    [
        (0, 1, 1, "a node of another host"),  # it claims to be the receiver's own node
        (0, 0, 0, "a node of another host"),  # for a node that does not exist
        (0, 2, 1, "no such node"),
        (0, 0, 7, "no such node"),
        (1, 0, 1, "another host's name"),
    ],
)
def test_nobody_speaks_for_another(caller: Caller, host: int, source: int, target: int, reason: str) -> None:
    with ends() as (here, there):
        friend = caller(there, here.keys)
        frame = Frame(0, source, 1, 0, Demand(source, 1), False, 48)
        friend.send_multipart(raw(Envelopes(JOB, host).encode(TABLES, source, target, [frame])))
        until(lambda: there.wire.counters.malformed)
        assert there.wire.counters.reasons == {reason: 1}
        assert not there.seen


def test_nobody_acknowledges_what_was_not_sent(caller: Caller) -> None:
    with ends() as (here, there):
        there.send(update(1, 1))
        until(lambda: not there.link.unacknowledged)
        friend = caller(there, here.keys)
        frame = Frame(0, 0, 0, 2, None, False, BARE)
        friend.send_multipart(raw(Envelopes(JOB, 0).encode(TABLES, 0, 1, [frame])))
        until(lambda: there.wire.counters.malformed)
        assert there.wire.counters.reasons == {"acknowledges what was not sent": 1}


def test_what_is_too_large_closes_the_connection_it_came_on(caller: Caller) -> None:
    with ends() as (here, there):
        friend = caller(there, here.keys)
        lost = friend.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        friend.send(bytearray(MAX_PART + 1), copy=False)
        assert lost.poll(20_000)
        friend.disable_monitor()
        lost.close(0)
        here.send(update(1))
        until(lambda: there.numbers() == [1])
        assert there.wire.counters.malformed == 0


def test_recorded_traffic_cannot_be_played_again() -> None:
    """The bytes of a whole connection, sent once more by somebody who listened."""
    with ends(meet=False) as (here, there):
        listener = socket.create_server(("127.0.0.1", 0))
        recorded = bytearray()

        def pass_on(source: socket.socket, to: socket.socket, keep: bool) -> None:
            while data := source.recv(65536):
                if keep:
                    recorded.extend(data)
                to.sendall(data)

        def listen() -> None:
            address = there.wire.endpoint.removeprefix("tcp://").split(":")
            with listener.accept()[0] as near, socket.create_connection((address[0], int(address[1]))) as far:
                back = threading.Thread(target=pass_on, args=(far, near, False))
                back.start()
                pass_on(near, far, True)
                far.shutdown(socket.SHUT_RDWR)
                back.join()

        between = threading.Thread(target=listen)
        between.start()
        port = listener.getsockname()[1]
        check = TableCheck(layout())
        there.wire.meet({0: here.address(), 1: there.address()}, 0, where=(0, 1), check=check)
        here.wire.meet({0: here.address(), 1: there.address(f"tcp://127.0.0.1:{port}")}, 0, where=(0, 1), check=check)
        here.send(*[update(number) for number in range(1, 6)])
        until(lambda: there.numbers() == [1, 2, 3, 4, 5])
        here.wire.meet({0: here.address()}, 0)
        between.join()
        listener.close()
        received = there.wire.counters.received
        host, _, number = there.wire.endpoint.removeprefix("tcp://").partition(":")
        with socket.create_connection((host, int(number))) as replay:
            replay.settimeout(20)
            replay.sendall(bytes(recorded))
            while replay.recv(65536):  # until it is hung up on
                pass
        assert len(recorded) > 500
        assert there.wire.counters.received == received


# -- small things ----------------------------------------------------------------------------------------------------


def test_secrets_are_not_shown_and_do_not_travel() -> None:
    pair = new_pair()
    assert pair.secret not in repr(pair)
    with pytest.raises(TypeError, match="stays in its process"):
        pickle.dumps(pair)


def test_an_address_that_is_not_ours_is_refused() -> None:
    before = threading.active_count()
    with pytest.raises(RunError, match=r"cannot listen on 203\.0\.113\.1.*IP address of this machine"):
        End(0, ip="203.0.113.1")
    assert threading.active_count() == before


def test_a_message_that_could_never_travel_is_refused_at_once() -> None:
    with ends() as (here, _), pytest.raises(RunError, match="tick more often, or use more nodes"):
        here.wire.post(1, TABLES, 0, 1, [Frame(0, 0, 1, 0, Demand(0, 1), False, LARGEST + 1)])


def test_closing_leaves_no_thread_behind() -> None:
    before = set(threading.enumerate())
    with ends() as (here, there):
        here.send(update(1))
        until(lambda: there.got)
    left = [thread.name for thread in set(threading.enumerate()) - before]
    assert not [name for name in left if name.startswith("stretto")]
    here.wire.close()  # a second time is fine


def test_unknown_channels_and_probes_do_no_harm(caller: Caller) -> None:
    with ends() as (here, there):
        friend = caller(there, here.keys)
        post = Envelopes(JOB, 0)
        friend.send_multipart(raw(post.encode(PROBE, 50, 60, [])))
        friend.send_multipart(raw(post.encode(RING, 0, 1, [])))
        here.send(update(1))
        until(lambda: there.numbers() == [1])
        assert there.wire.counters.malformed == 0


def test_acknowledgements_that_wait_become_one() -> None:
    """Towards a host that is away: the last one says it all, and a question is not forgotten."""
    here = End(0)
    try:
        here.wire.meet({1: Address(1, "tcp://127.0.0.1:9", new_pair().public, "", 0, "")}, 0)
        for acknowledges, asks in ((3, False), (5, True), (4, False)):
            here.wire.post(1, TABLES, 0, 1, [Frame(0, 0, 0, acknowledges, None, asks, BARE)])
        until(lambda: here.wire.backlog(1) == BARE)
        (frame,) = here.wire._peers.by_host[1]._bare.values()
        assert (frame.acknowledges, frame.asks) == (5, True)
    finally:
        here.wire.close()
