"""One node of the parameter server: its cache, its shard, its send queue and its links to other nodes.

A runtime calls read, add, tick and leave for its workers, receive and reset for events of the network (tend in place of
reset where the network does not report lost connections), and poll at `wake_at`. After every call it takes away

    frames     [(node, frame)] to be carried to other nodes, in this order
    woken      workers that were refused and may try again
    wake_at    when to call poll if nothing else happens before

    node = Node(layout, 0)
    if not node.read(now, worker, table, keys, out):       # nothing was written; missing rows have been requested
        ...                                                # wait until `woken` names the worker, then read again

Messages between a cache and a shard of the same node are delivered at once and cost nothing. All messages of a node to
another travel on one link, so between a cache and a shard they arrive once and in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.comm.link import Frame, Link, acknowledge_every
from stretto.comm.messages import Announce, Dropped, Fetch, Keys, Message, NodeClock, Rows, ToShard, Update
from stretto.comm.outbox import Outbox
from stretto.comm.policy import Managed
from stretto.consistency.clocks import FOREVER

from .cache.cache import Cache
from .layout import Layout
from .recording import Picked, Recording
from .ring import Ring
from .shard.shard import Shard
from .shard.table import KeyedRows

_FOR_SHARDS = frozenset((Update, NodeClock, Fetch, Dropped, Announce))


@dataclass(eq=False)
class NodePart:
    """A node's part of a checkpoint."""

    clock: int
    shard: dict[str, NDArray[Any]]  # arrays of the shard
    residuals: dict[str, NDArray[Any]] = field(default_factory=dict)  # rounding residuals of the cache


class StoreNode:
    """A cache and a shard with their send queues and links.

    Parameters
    ----------
    layout : Layout
        The tables of the run.
    node : int
        Number of this node.
    incarnation : int
        Of the run: it grows with every restart.
    recording : Recording or None
        Where events are recorded.
    locks : bool
        Whether several threads call read and add at the same time.
    saved : NodePart or None
        Part of a checkpoint to continue from.
    rows : mapping or None
        By table: rows that the shard uses in place.
    """

    def __init__(
        self,
        layout: Layout,
        node: int,
        *,
        incarnation: int = 0,
        recording: Recording | None = None,
        locks: bool = False,
        saved: NodePart | None = None,
        rows: Mapping[int, KeyedRows] | None = None,
    ) -> None:
        self.layout, self.number, self.incarnation, self.recording = layout, node, incarnation, recording
        self.cache = Cache(layout, node, locks, {table: used.kept for table, used in (rows or {}).items()})
        if saved is None:
            self.shard = Shard(layout, node, rows)
        else:
            self.shard = Shard.restore(layout, node, saved.shard, saved.clock)
            self.cache.restore(saved.clock, saved.residuals)
        self.frames: list[tuple[int, Frame]] = []
        self.woken: list[int] = []
        self.wake_at = np.inf
        policy = layout.policy
        self._managed = isinstance(policy, Managed)
        self._shard_picks = self._managed and not layout.rule.exact
        self._every = acknowledge_every(policy.window if isinstance(policy, Managed) else None)
        self._updates = Outbox(policy, "updates", node, layout.nodes, self.cache.pick)
        self._rows = Outbox(policy, "rows", node, layout.nodes, None if layout.rule.exact else self.shard.pick)
        self.cache.open, self.shard.open = self._updates.open, self._rows.open  # destinations that `pick` may choose
        self._links: dict[int, Link] = {}
        self._unacknowledged = [0] * layout.nodes
        self._local: deque[Message] = deque()  # messages between the cache and the shard of this node
        self._first = layout.workers_of(node).start
        self._delayed: list[tuple[int, int]] = []  # (worker, clock whose traffic has to leave first)
        self._full = recording is not None and recording.full
        rings = any(table.exchange == "ring" for table in layout.tables)
        self._ring = Ring(layout, node) if rings else None

    @property
    def direct(self) -> Cache:
        """What threads may read from and add to without the lock, by tables that need none."""
        return self.cache

    # -- what workers do --------------------------------------------------------------------------------------------

    def read(self, now: float, worker: int, table: int, keys: Keys, out: NDArray[Any]) -> bool:
        """Fill out [n, cols]; False: the rule does not allow it yet, and missing rows have been requested."""
        seen = np.empty((len(keys), self.layout.witnesses), dtype=np.int32) if self._full else None
        read = self.cache.read(worker, table, keys, out, seen)
        if not read and not (self._ask(now, worker, table, keys) and self.cache.read(worker, table, keys, out, seen)):
            return False
        if self._full:
            assert self.recording is not None
            assert seen is not None
            self.recording.read(now, worker, self.cache.clocks[worker - self._first], table, keys, seen, out)
        return True

    def ask(self, now: float, worker: int, table: int, keys: Keys) -> None:
        """Request the rows that are missing for a read at this clock."""
        self._ask(now, worker, table, keys)

    def _ask(self, now: float, worker: int, table: int, keys: Keys) -> bool:
        """As `ask`; whether this node's own shard had all missing rows."""
        for shard, fetch in self.cache.want(worker, table, keys):
            self._to_shard(shard, fetch)
        self._settle(now)
        if worker in self.woken:
            self.woken.remove(worker)
            return True
        return False

    def add(self, now: float, worker: int, table: int, keys: Keys, deltas: NDArray[Any]) -> None:
        """Add deltas [n, cols] to rows."""
        if self._full:
            assert self.recording is not None
            self.recording.added(now, worker, self.cache.clocks[worker - self._first], table, keys, deltas)
        self.cache.add(worker, table, keys, deltas)
        if self._managed:
            self._settle(now)

    def announce(self, now: float, worker: int, table: int, keys: Keys, clock: int) -> None:
        """Announce that in this clock the worker will add to no other rows of the table."""
        for shard, message in self.cache.announce(worker, table, clock, keys):
            self._to_shard(shard, message)
        self._settle(now)

    def tick(self, now: float, worker: int) -> bool:
        """Advance the worker's clock; False: it has to wait until messages of the clock before last were sent."""
        messages = self.cache.tick(worker)
        clock = self.cache.clocks[worker - self._first]
        if self._full:
            assert self.recording is not None
            self.recording.ticked(now, worker, clock)
        for shard, message in messages:
            self._to_shard(shard, message)
        self._settle(now)
        if self._updates.has_left(clock - 1):
            return True
        self._delayed.append((worker, clock - 1))
        return False

    def holds_up(self, worker: int) -> bool:
        """Whether the worker's last tick still has to wait."""
        return any(held == worker for held, _ in self._delayed)

    def leave(self, now: float, worker: int) -> None:
        """The worker has ended: its changes are sent, and no one waits for it any more."""
        for shard, message in self.cache.leave(worker):
            self._to_shard(shard, message)
        self._settle(now)

    # -- what the network does --------------------------------------------------------------------------------------

    def receive(self, now: float, source: int, *frames: Frame) -> None:
        """Take frames of another node. Those of another incarnation are dropped."""
        link = self._links.get(source) or self._link(source)
        for frame in frames:
            if frame.incarnation != self.incarnation:
                continue
            if frame.acknowledges > link.sent:  # impossible from a correct node; a wrong frame must not end the run
                link.ignored += 1
                continue
            for message in link.receive(frame):
                if self._full:
                    assert self.recording is not None
                    self.recording.delivered(now, source, self.number, frame.incarnation, frame.sequence)
                self._take(now, message)
        if link.replies:
            self._reply(now, source, link)
        if self._managed:
            left = link.unacknowledged
            if left < self._unacknowledged[source]:
                if self._updates.full:
                    self._updates.acknowledged()
                if self._rows.full:
                    self._rows.acknowledged()
            self._unacknowledged[source] = left
        self._settle(now)

    def reset(self, now: float, peer: int) -> None:
        """The connection to another node was lost and is up again."""
        for frame in self._link(peer).reset():
            self._again(now, peer, frame)

    def poll(self, now: float) -> None:
        """Send what may be sent now."""
        self._settle(now)

    def tend(self, now: float, peer: int | None = None) -> float:
        """Poll where it is due, and send what links have owed or missed for too long; returns when to call again.

        See `Link.tend`. peer: only the link to this node.
        """
        if self.wake_at <= now or (self._managed and (self.cache.dirty or self.shard.dirty)):
            self._settle(now)
        due = inf
        for other in self._links if peer is None else (peer,):
            link = self._link(other)
            due = min(due, link.tend(now))
            if link.replies:
                self._reply(now, other, link)
        return min(due, self.wake_at)

    # -- checkpoints ------------------------------------------------------------------------------------------------

    @property
    def clock(self) -> int:
        """The lowest clock of its workers; `FOREVER` without any."""
        return min(self.cache.clocks, default=FOREVER)

    # -- inside -----------------------------------------------------------------------------------------------------

    def _link(self, peer: int) -> Link:
        found = self._links.get(peer)
        if found is None:
            found = self._links[peer] = Link(self.number, peer, self.incarnation, self._every)
        return found

    def _to_shard(self, shard: int, message: ToShard) -> None:
        if shard == self.number:
            self._local.append(message)
        else:
            self._updates.put(shard, message)

    def _take(self, now: float, message: Message) -> None:
        """Pass a message to the cache or the shard."""
        kind = type(message)
        if kind in _FOR_SHARDS:
            if self._full and kind is Update:
                self.recording.given_update(now, self.number, message)  # type: ignore[union-attr, arg-type]
            if self._ring is not None and kind is NodeClock and self._ring.holds(message):  # type: ignore[arg-type]
                return
            self._to_own_shard(message)  # type: ignore[arg-type]
            if self._ring is not None and kind is Update:
                self._circulate(self._ring, message)  # type: ignore[arg-type]
            return
        if self._full and kind is Rows:
            self.recording.given_rows(now, self.number, message)  # type: ignore[union-attr, arg-type]
        woken = self.cache.receive(message)  # type: ignore[arg-type]
        if woken:
            self.woken += woken

    def _to_own_shard(self, message: ToShard) -> None:
        number = self.number
        for node, answer in self.shard.receive(message):
            if node == number:
                self._local.append(answer)
            else:
                self._rows.put(node, answer)

    def _circulate(self, ring: Ring, update: Update) -> None:
        """Pass an Update of the ring on; clocks that waited for it go to the shard."""
        target = ring.passes_to(update)
        if target is not None:
            self._updates.put(target, update)
        for clock in ring.arrived(update):
            self._to_own_shard(clock)

    def _settle(self, now: float) -> None:
        """Deliver messages within this node, and send those that may leave."""
        cache, here = self.cache, self._local
        while True:
            if cache.outgoing:
                messages, cache.outgoing = cache.outgoing, []
                for shard, message in messages:
                    self._to_shard(shard, message)
            if here:
                self._take(now, here.popleft())
                continue
            if not self._send(now):
                break
        if self._delayed:
            self._wake_delayed()

    def _send(self, now: float) -> bool:
        """Poll the outboxes; whether a message for this node itself was among them."""
        updates, rows = self._updates, self._rows
        if self._managed:
            if self.cache.dirty:
                updates.touch()
            if self._shard_picks and self.shard.dirty:
                rows.touch()
        here = False
        if updates.wake_at <= now:
            leaving = updates.poll(now, self._unacknowledged)
            if self._full:
                self._record_picks(now, "updates", self.cache.picked())
            for target, message, reason in leaving:
                here |= self._carry(now, target, message, "updates", reason)
        if rows.wake_at <= now:
            leaving = rows.poll(now, self._unacknowledged)
            if self._full:
                self._record_picks(now, "rows", self.shard.picked())
            for target, message, reason in leaving:
                here |= self._carry(now, target, message, "rows", reason)
        first, second = updates.wake_at, rows.wake_at
        self.wake_at = first if first <= second else second
        return here

    def _record_picks(self, now: float, side: str, picks: list[Picked]) -> None:
        for picked in picks:
            self.recording.picked(now, self.number, side, picked)  # type: ignore[union-attr]

    def _carry(self, now: float, target: int, message: Message, side: str, reason: str) -> bool:
        if target == self.number:
            self._local.append(message)
            return True
        link = self._links.get(target) or self._link(target)
        frame = link.send(message)
        self.frames.append((target, frame))
        if self._managed:
            self._unacknowledged[target] = link.unacknowledged
        if self.recording is not None:
            self.recording.sent(now, self.number, target, side, reason, frame.nbytes, message)
        return False

    def _reply(self, now: float, peer: int, link: Link) -> None:
        """Send frames of the link itself: acknowledgements, and frames that the other side requested again."""
        for frame in link.replies:
            self._again(now, peer, frame)
        link.replies.clear()

    def _again(self, now: float, peer: int, frame: Frame) -> None:
        self.frames.append((peer, frame))
        message = frame.message
        side = "" if message is None else "updates" if type(message) in _FOR_SHARDS else "rows"
        if message is not None:
            (self._updates if side == "updates" else self._rows).charge(now, peer, frame.nbytes)
            self.wake_at = min(self._updates.wake_at, self._rows.wake_at)
        if self.recording is not None:
            reason = "acknowledge" if message is None else "again"
            self.recording.sent(now, self.number, peer, side, reason, frame.nbytes, message)

    def _wake_delayed(self) -> None:
        """Wake workers whose messages were sent."""
        left = [entry for entry in self._delayed if not self._updates.has_left(entry[1])]
        if len(left) < len(self._delayed):
            self.woken += [worker for worker, clock in self._delayed if self._updates.has_left(clock)]
            self._delayed = left
