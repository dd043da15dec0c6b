"""The network thread of a host: sends and receives the frames of its nodes over ZeroMQ.

    wire = Wire(0, job, keys=new_pair(), deliver=…, tend=…, silent=…)
    wire.meet(roster, incarnation, where=where, check=TableCheck(layout))
    wire.post(host, TABLES, source, target, frames)          # from any thread, never waits

One PULL socket receives. To every other host there are two PUSH sockets: one for messages, one for short urgent ones. A
PUSH socket that cannot send reports it, and the message waits in a queue; a ROUTER would drop it silently
(docs/decisions). The wire may lose what a broken connection had buffered. It never duplicates or changes anything:
`comm.link` numbers, acknowledges and retransmits.

The sender of a message is known from the key of its connection (see `allow_list`), and a node's frames are accepted
only from the host it is placed on. Invalid messages are counted, logged the first time, and dropped.

The callbacks run on the wire's thread and must not wait:
    deliver(now, source host, channel, source node, target node, frames)
    tend(now) -> time of the next call; also called after frames were delivered and after `rouse`
    silent(host, seconds)      nothing arrived for `patience` seconds from a host that takes part; once for each silence
    reset(now, host)           a lost connection was re-established: links should retransmit
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from math import ceil, inf
from typing import Any

import zmq

from stretto.comm.link import Frame
from stretto.errors import RunError
from stretto.runtime.cluster.hosts.calls import PROBE, Address

from .allow_list import DOMAIN
from .counters import Counters
from .curve_keys import KeyPair
from .envelope import MAX_PART, Buffer, Envelopes, ReceivedMessage, sendable_bytes
from .frame_checks import Checker, Malformed, NoCheck
from .freed_memory import keep_freed
from .incarnations import Incarnation, Incarnations
from .peer import QUEUED, Route
from .peers import Peers
from .wakeup import Wakeup

MIB = 1 << 20
_ROUND = 64  # messages received before replies are sent
_DEADLINE = 30.0  # seconds for a function that another thread runs on this one
_MONITOR_SECONDS = 0.25  # seconds between two reads of the connections' monitors
_EVENTS, _READABLE, _AT_ONCE = int(zmq.EVENTS), int(zmq.POLLIN), int(zmq.NOBLOCK)  # plain integers: see `connection`
_log = logging.getLogger("stretto.cluster")

Deliver = Callable[[float, int, int, int, int, list[Frame]], None]


class Wire:
    """The network thread of one host.

    Parameters
    ----------
    host : int
        The number of this host.
    job : str
        An unguessable id, the same on all hosts.
    ip : str
        The address to listen on.
    keys : KeyPair or None
        None: no encryption. Any process that reaches the port can then send as any host; for measurements only.
    deliver, tend, silent, reset : callables
        Callbacks on the network thread; see the module's docstring.
    credit : int
        Bytes in flight from one node to another at most.
    patience : float
        Seconds without a message after which a host's silence is reported.
    check : Checker or None
        Validation of frames until `meet` sets another.
    """

    def __init__(
        self,
        host: int,
        job: str,
        *,
        ip: str = "127.0.0.1",
        keys: KeyPair | None,
        deliver: Deliver,
        tend: Callable[[float], float],
        silent: Callable[[int, float], None],
        credit: int = 32 * MIB,
        patience: float = 5.0,
        check: Checker | None = None,
        reset: Callable[[float, int], None] | None = None,
    ) -> None:
        keep_freed()
        self.host = host
        self._keys, self._patience = keys, patience
        self._deliver, self._tend, self._silent, self._reset = deliver, tend, silent, reset
        self._incarnations = Incarnations({-1: Incarnation(None, check or NoCheck())})
        self._envelopes = Envelopes(job, host)
        self._counters = Counters()
        self._to_self: deque[tuple[Route, list[Frame]]] = deque()  # messages from a node of this host to another
        self._lock = threading.Lock()  # guards _inbox together with the byte counts of its content
        self._inbox: deque[tuple[int, Route, list[Frame]]] = deque()
        self._roused = self._ended = False
        self._tend_at = inf
        self._maintain_at = 0.0  # time of the next heartbeats and the next check for silent hosts
        self._bell = Wakeup(f"the wire of host {host}")
        self._peers = Peers(keys, credit)
        self._pull = self._peers.context.socket(zmq.PULL)
        try:
            self._bind(ip)
        except zmq.ZMQError as error:
            self._free()
            raise RunError(f"the host cannot listen on {ip}: {error}; give an IP address of this machine") from error
        self._thread = threading.Thread(target=self._run, name=f"stretto-wire-{host}", daemon=True)
        self._thread.start()

    # -- from any thread ---------------------------------------------------------------------------------------------

    def meet(
        self,
        roster: Mapping[int, Address],
        incarnation: int,
        *,
        where: Sequence[int] | None = None,
        check: Checker | None = None,
        oldest: int | None = None,
        ends: Collection[int] = (),
    ) -> None:
        """Begin an incarnation with these hosts; returns when done.

        Connects to new addresses, closes connections to removed ones, admits exactly the keys of the roster, and
        discards queued messages of incarnations that have ended. Frames that arrived before their incarnation began are
        delivered now.

        Parameters
        ----------
        roster : mapping
            Address of each host.
        incarnation : int
            Its number.
        where : sequence of int or None
            The host of each node; None: any host may send for any node.
        check : Checker or None
            Validation of frames; None: any consistent frame is accepted.
        oldest : int or None
            Incarnations from this one on may run beside it; None: it replaces all others.
        ends : collection of int
            Incarnations to end first, as by `end`.
        """
        begun = Incarnation(None if where is None else tuple(where), check or NoCheck())
        since = incarnation if oldest is None else oldest

        def begin() -> None:
            if ends:
                self._end(ends)
            self._meet(dict(roster), incarnation, begun, since)

        self._order(begin)

    def end(self, incarnations: Collection[int]) -> None:
        """End incarnations: their queued messages are discarded, and later ones are dropped."""
        self._order(lambda: self._end(incarnations))

    def post(self, host: int, channel: int, source: int, target: int, frames: Sequence[Frame]) -> None:
        """Send frames of one node to another. Frames to a host that is not on the roster are dropped."""
        size = sendable_bytes(frames, source, target)
        urgent = any(frame.sequence == 0 for frame in frames)
        with self._lock:
            peer = self._peers.by_host.get(host)
            if peer is not None:
                peer.posted += size
            self._inbox.append((host, (_incarnation_of(frames), channel, source, target), list(frames)))
        # If the socket's buffer is full, the thread already waits for it and then finds these frames.
        if urgent or peer is None or not peer.data.blocked:
            self._bell.ring()

    def backlog(self, host: int) -> int:
        """Bytes queued for a host, waiting for credit or for the connection."""
        peer = self._peers.by_host.get(host)
        return 0 if peer is None else max(0, peer.posted - peer.left)

    def heard(self, host: int) -> float:
        """Seconds since the last message of a host, or since it was added; 0 for this host, infinity for an unknown
        one.
        """
        peer = self._peers.by_host.get(host)
        if peer is None:
            return 0.0 if host == self.host else inf
        return max(0.0, time.monotonic() - peer.heard)

    def rouse(self) -> None:
        """Have `tend` called soon. From any thread."""
        self._roused = True
        self._bell.ring()

    def cut(self, host: int) -> None:
        """Break the connection to a host and reconnect; messages in flight may be lost. For tests of faults."""
        self._order(self._peers.by_host[host].reopen)

    @property
    def incarnation(self) -> int:
        """The newest incarnation that has begun; -1 before the first."""
        return self._incarnations.newest

    @property
    def counters(self) -> Counters:
        """The counters so far."""
        found = self._counters
        found.refused, found.resent = self._peers.refused, self._peers.resent
        return found

    def close(self) -> None:
        """Stop the thread and close all sockets; queued messages are lost. Not from a callback."""
        if not self._ended:
            self._ended = True
            self._bell.ring(always=True)
            self._thread.join()
            self._free()

    def _order(self, work: Callable[[], None]) -> None:
        if threading.current_thread() is self._thread:
            work()
        else:
            self._bell.order(work, _DEADLINE)

    # -- on the wire's thread ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._ended:
                now = time.monotonic()
                self._bell.take_orders()
                self._take_posts(now)
                self._send(now)
                received = self._receive(now)
                if received or self._roused or now >= self._tend_at:
                    self._roused = False
                    due = self._call(self._tend, now)
                    self._tend_at = now + 1.0 if due is None else due
                if now >= self._maintain_at:
                    self._maintain(now)
                if received < _ROUND and not self._inbox and not self._to_self:
                    self._sleep()
        except Exception:
            _log.exception("host %d: the network thread has failed", self.host)
            self._ended = True
            self._free()

    def _sleep(self) -> None:
        """Wait for a message, a wakeup, free space in a socket's buffer or the next timer."""
        bell = self._bell
        bell.asleep = True
        if self._inbox or bell.orders or self._roused or self._ended:
            bell.asleep = False
            return
        sockets: list[tuple[Any, int]] = [(self._pull, zmq.POLLIN), (bell.fd, zmq.POLLIN)]
        blocked = [line for peer in self._peers.by_host.values() for line in peer.lines if line.blocked]
        sockets += [(line.socket, zmq.POLLOUT) for line in blocked]
        left = min(self._tend_at, self._maintain_at) - time.monotonic()
        ready = {found for found, _ in zmq.zmq_poll(sockets, max(0, ceil(left * 1000)))}
        bell.asleep = False
        if bell.fd in ready:
            bell.answer()
        for line in blocked:
            if line.socket in ready:
                line.blocked = False  # otherwise the next poll would return at once while nothing is queued

    def _take_posts(self, now: float) -> None:
        inbox, peers = self._inbox, self._peers.by_host
        for _ in range(len(inbox)):
            host, route, frames = inbox.popleft()
            if frames and route[0] not in self._incarnations.live:
                peer = peers.get(host)
                if peer is not None:
                    peer.left += sum(frame.nbytes for frame in frames)
                self._counters.dropped += 1
            elif host == self.host:
                self._to_self.append((route, frames))
            elif host in peers:
                peers[host].put(route, frames)
            else:
                self._counters.stranger(self.host)

    def _send(self, now: float) -> None:
        counters = self._counters
        for peer in self._peers.by_host.values():
            if peer.waiting:
                messages, size = peer.send(now, self._encode)
                counters.sent += messages
                counters.bytes_sent += size

    def _encode(self, route: Route, frames: list[Frame]) -> list[Buffer]:
        incarnation, channel, source, target = route
        return self._envelopes.encode(channel, source, target, frames, self._incarnations.live[incarnation].check)

    def _receive(self, now: float) -> int:
        """Receive up to _ROUND messages; return how many."""
        count = 0
        while self._to_self and count < _ROUND:
            (_, channel, source, target), frames = self._to_self.popleft()
            self._call(self._deliver, now, self.host, channel, source, target, frames)
            count += 1
        pull, counters = self._pull, self._counters
        recv, asked = pull.recv, pull.get
        while count < _ROUND and int(asked(_EVENTS)) & _READABLE:  # asking is cheaper than an exception
            try:
                part = recv(_AT_ONCE, copy=False)
            except zmq.Again:  # the message belonged to a connection that has ended
                break
            count += 1
            parts, size = [part], len(part)
            while part.more:
                part = recv(_AT_ONCE, copy=False)
                parts.append(part)
                size += len(part)
            counters.received += 1
            counters.bytes_received += size
            try:
                host, letter = self._open(now, parts)
                if letter is not None and self._is_current(host, letter, size):
                    self._hand_over(now, host, letter)
            except Malformed as wrong:
                counters.wrong(self.host, str(wrong))
        return count

    def _open(self, now: float, parts: list[zmq.Frame]) -> tuple[int, ReceivedMessage | None]:
        """Identify the sender and decode the header; no letter for an unknown sender or a heartbeat."""
        host = self._peers.host_of(parts[0])
        letter = None
        if self._keys is None or host >= 0:
            letter = self._envelopes.open([part.buffer for part in parts])
            host = letter.host if self._keys is None else host
        peer = self._peers.by_host.get(host)
        if peer is None or letter is None:
            self._counters.stranger(self.host)
            return host, None
        peer.heard, peer.silent = now, False
        if letter.host != host:
            raise Malformed("another host's name")
        return host, None if letter.channel == PROBE else letter

    def _is_current(self, host: int, letter: ReceivedMessage, size: int) -> bool:
        """Whether a message is of an incarnation that runs; one of an incarnation to come is kept until that begins."""
        if letter.incarnation in self._incarnations.live:
            return True
        if not self._incarnations.keep(host, letter, size):
            self._counters.dropped += 1
        return False

    def _hand_over(self, now: float, host: int, letter: ReceivedMessage) -> None:
        frames = letter.frames(self._incarnations.checked(letter, host, self.host))
        back = (letter.incarnation, letter.channel, letter.target, letter.source)
        peer = self._peers.by_host[host]
        for frame in frames:
            if not peer.acknowledged(back, frame.acknowledges):
                raise Malformed("acknowledges what was not sent")
        if frames:
            self._call(self._deliver, now, host, letter.channel, letter.source, letter.target, frames)

    def _maintain(self, now: float) -> None:
        """Maintain connections, send heartbeats and report silent hosts."""
        beat = self._patience / 10
        self._maintain_at = now + min(beat / 2, _MONITOR_SECONDS)
        self._read_monitors(now)
        for host, peer in self._peers.by_host.items():
            for line in peer.lines:
                line.persist(now)
            if now - peer.spoke >= beat * 0.75:
                peer.speak(now, self._envelopes.encode(PROBE, 0, 0, ()))
            if now - peer.heard > self._patience and not peer.silent and self._incarnations.takes_part(host):
                peer.silent = True
                self._call(self._silent, host, now - peer.heard)

    def _read_monitors(self, now: float) -> None:
        """Read the connections' monitors.

        Not for every message: polling hundreds of monitors takes longer than handling a message.
        """
        for host, peer in self._peers.by_host.items():
            peer.express.news()
            if peer.data.news():
                self._counters.reconnects += 1
                if self._reset is not None:
                    self._call(self._reset, now, host)

    def _end(self, incarnations: Collection[int]) -> None:
        self._incarnations.end(incarnations)
        with self._lock:
            for peer in self._peers.by_host.values():
                peer.forget(incarnations)
            posts, self._inbox = self._inbox, deque()
            for post in posts:
                if post[1][0] not in incarnations:
                    self._inbox.append(post)
                elif post[0] in self._peers.by_host:
                    self._peers.by_host[post[0]].left += sum(frame.nbytes for frame in post[2])
        self._to_self = deque(entry for entry in self._to_self if entry[0][0] not in incarnations)

    def _meet(self, roster: dict[int, Address], incarnation: int, begun: Incarnation, oldest: int) -> None:
        now = time.monotonic()
        others = {host: address for host, address in roster.items() if host != self.host}
        if ended := self._incarnations.begin(incarnation, begun, oldest):
            self._end(ended)
        if self._peers.follow(others, now):
            self._maintain_at = 0.0
        for peer in self._peers.by_host.values():
            peer.heard, peer.silent = now, False
        for host, letter, size in self._incarnations.take_early():
            if host in self._peers.by_host and self._is_current(host, letter, size):
                try:
                    self._hand_over(now, host, letter)
                except Malformed as wrong:
                    self._counters.wrong(self.host, str(wrong))
        self._roused = True

    def _call(self, callback: Callable[..., Any], *args: Any) -> Any:
        """Call a callback; log its exception, so that the network thread goes on."""
        try:
            return callback(*args)
        except Exception:
            self._counters.failures += 1
            _log.exception("host %d: %s failed on the wire's thread", self.host, callback)
            return None

    # -- beginning and end -------------------------------------------------------------------------------------------

    def _bind(self, ip: str) -> None:
        self._pull.linger = 0
        self._pull.rcvhwm = QUEUED
        self._pull.maxmsgsize = MAX_PART
        self._pull.handshake_ivl = 5000
        if self._keys is not None:
            self._pull.curve_server = True
            self._pull.curve_secretkey = self._keys.secret.encode()
            self._pull.zap_domain = DOMAIN
        self._pull.bind(f"tcp://{ip}:*")
        self.endpoint = self._pull.getsockopt_string(zmq.LAST_ENDPOINT)

    def _free(self) -> None:
        self._pull.close(0)
        self._peers.close()
        self._bell.close()


def _incarnation_of(frames: Sequence[Frame]) -> int:
    return frames[0].incarnation if frames else -1
