"""Send queue of a node: required messages first, then rows by rank within the bandwidth budget.

A node has two queues: "updates" for messages of its cache to shards, "rows" for messages of its shard to caches.

    put(destination, message)      queue a required message. First in, first out for each destination. The destination
                                   that has waited longest comes first, and a closed one does not block the others
    poll(now, unacknowledged)      the messages to send now, as [(destination, message, reason)]
    wake_at                        when to poll; put, touch and acknowledged report everything that could change it

Without a budget (`Eager`, `Lazy`) a poll returns everything. With one (`Managed`) a message is sent when the buckets of
the node and of its link are empty and fewer than `window` messages on the link are unacknowledged. When no required
message can be sent, the queue calls pick(rows) for the highest-ranked changes. Meanwhile `open` [nodes] holds which
destinations can be sent to. Changes that are not picked keep growing until their link is free again.

    outbox = Outbox(policy, "updates", node=0, nodes=4, pick=cache.pick)
    outbox.put(2, NodeClock(node=0, clock=1))
    if outbox.wake_at <= now:
        for destination, message, reason in outbox.poll(now, unacknowledged):
            ...

Reasons: "clock" (required by the end of a clock), "fetch" (requests and answers), "control", and "rank" (picked).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from math import inf

import numpy as np
from numpy.typing import NDArray

from stretto.errors import PlanError, RunError

from .budget import SIDES, Bucket, link_buckets, node_bucket
from .messages import Announce, Demand, Dropped, Fetch, Message, NodeClock, Rows, ShardClock, Update
from .policy import Managed, Policy

Counts = Sequence[int] | NDArray[np.int64]  # by node; scalars of a list are read faster than those of an array
Sent = tuple[int, Message, str]  # destination, message, reason
_Entry = tuple[int, int, Message, str]  # arrival number; then as in Sent

_REASONS: dict[type, str] = {
    Update: "clock",
    NodeClock: "clock",
    ShardClock: "clock",
    Fetch: "fetch",
    Dropped: "control",
    Announce: "control",
    Demand: "control",
}
# A picker that ignores `open` fills the queue of a slow link; beyond this length it is not called until that drains.
_PILE = 8


class Outbox:
    """One side of a node.

    Attributes
    ----------
    waiting : int
        Required messages that have not left.
    wake_at : float
        Poll then, not before.
    full : bool
        Whether the last poll found the window of some link full; only then does an acknowledgement change anything.
    """

    __slots__ = (
        "_aside",
        "_bucket",
        "_clocks",
        "_count",
        "_links",
        "_node",
        "_nodes",
        "_pick",
        "_picked",
        "_queue",
        "_ranked",
        "_rows",
        "_unlimited",
        "_window",
        "full",
        "open",
        "waiting",
        "wake_at",
    )

    def __init__(
        self,
        policy: Policy,
        side: str,
        node: int,
        nodes: int,
        pick: Callable[[int], Sequence[tuple[int, Message]]] | None = None,
    ) -> None:
        if side not in SIDES:
            raise PlanError(f"Outbox(side={side!r}): choose {' or '.join(SIDES)}")
        self.waiting = 0
        self.wake_at = inf
        self.open: NDArray[np.bool_] = np.ones(nodes, dtype=bool)
        self._node, self._nodes, self._pick = node, nodes, pick
        self._unlimited: list[Sent] = []
        self._clocks: dict[int, int] = {}  # of NodeClocks that have not left: clock -> how many
        self._bucket: Bucket | None = None
        self.full = False
        if isinstance(policy, Managed):
            self._bucket = node_bucket(policy, side)
            self._links: Mapping[int, Bucket] = link_buckets(policy, side, node)
            self._window, self._rows = policy.window, policy.burst[SIDES.index(side)]
            self._queue: deque[_Entry] = deque()  # required, oldest first
            # Messages that reached the head of the queue while their destination was closed; not empty, oldest first.
            self._aside: dict[int, deque[_Entry]] = {}
            self._ranked: deque[_Entry] = deque()  # picked, oldest first; at most about a burst
            self._picked: dict[int, int] = {}  # destination -> picked messages that have not left
            self._count = 0

    # -- what comes in ---------------------------------------------------------------------------------------------

    def put(self, destination: int, message: Message) -> None:
        """Queue a message that has to be sent."""
        kind = type(message)
        if kind is Rows:
            reason = "fetch" if message.reply else "clock"  # type: ignore[union-attr]
        else:
            reason = _REASONS[kind]
            if kind is NodeClock:
                clock: int = message.clock  # type: ignore[union-attr]
                self._clocks[clock] = self._clocks.get(clock, 0) + 1
        if destination == self._node:
            raise RunError(f"a {kind.__name__} from node {destination} to itself is delivered, not sent")
        self.waiting += 1
        if self._bucket is None:
            self._unlimited.append((destination, message, reason))
            self.wake_at = -inf
            return
        if destination in self._picked:
            self._promote(destination)
        self._count += 1
        self._queue.append((self._count, destination, message, reason))
        self.touch()

    def touch(self) -> None:
        """There may be changes to pick, where there were none the last time."""
        bucket = self._bucket
        if bucket is not None and bucket.empty_at < self.wake_at:
            self.wake_at = bucket.empty_at

    def acknowledged(self) -> None:
        """Some link has fewer unacknowledged messages than before."""
        if self.full:
            self.touch()

    def charge(self, now: float, destination: int, nbytes: int) -> None:
        """Charge the budget for bytes sent outside of this queue (again after a reset): later messages wait longer."""
        if self._bucket is not None:
            self._bucket.take(now, nbytes)
            if destination in self._links:
                self._links[destination].take(now, nbytes)
            self.wake_at = max(self.wake_at, self._bucket.empty_at)

    # -- what goes out ---------------------------------------------------------------------------------------------

    def poll(self, now: float, unacknowledged: Counts) -> list[Sent]:
        """Messages to send now, in order. unacknowledged [nodes]: messages in flight to each node, of both sides."""
        bucket = self._bucket
        if bucket is None:
            sent, self._unlimited = self._unlimited, []
            self.waiting, self.wake_at = 0, inf
            self._clocks.clear()
            return sent
        sent = []
        self.full = False
        while bucket.empty_at <= now:
            entry = self._next(now, unacknowledged)
            if entry is None:
                if not self._choose(now, unacknowledged, sent):
                    break
                continue
            _, destination, message, reason = entry
            bucket.take(now, message.nbytes)
            if self._links and destination in self._links:
                self._links[destination].take(now, message.nbytes)
            self._leave(destination, message, reason)
            sent.append((destination, message, reason))
        self.wake_at = bucket.empty_at
        if self.wake_at <= now:
            self.wake_at = self._link_opens_at(now, unacknowledged)
        elif self._pick is None and not self._queue and not self._aside:
            self.wake_at = inf
        return sent

    def has_left(self, clock: int) -> bool:
        """Whether everything up to the NodeClocks of this clock and of those before has been sent."""
        return not self._clocks or min(self._clocks) > clock

    @property
    def clocks_waiting(self) -> int:
        """NodeClocks that have not left."""
        return sum(self._clocks.values())

    # -- inside ----------------------------------------------------------------------------------------------------

    def _leave(self, destination: int, message: Message, reason: str) -> None:
        """Remove a message from the counts."""
        if reason == "rank":
            self._picked[destination] -= 1
            if not self._picked[destination]:
                del self._picked[destination]
            return
        self.waiting -= 1
        if type(message) is NodeClock:
            self._clocks[message.clock] -= 1
            if not self._clocks[message.clock]:
                del self._clocks[message.clock]

    def _may_go(self, now: float, destination: int, unacknowledged: Counts) -> bool:
        if unacknowledged[destination] >= self._window:
            self.full = True
            return False
        link = self._links.get(destination) if self._links else None
        return link is None or link.empty_at <= now

    def _next(self, now: float, unacknowledged: Counts) -> _Entry | None:
        """Take out the oldest required message that may be sent, else the oldest picked one; None if none may.

        That depends on the destination alone, so messages to one destination stay in order.
        """
        queue, aside = self._queue, self._aside
        if queue and not aside and self._may_go(now, queue[0][1], unacknowledged):  # nearly always
            return queue.popleft()
        best: _Entry | None = None
        for destination, line in aside.items():
            if (best is None or line[0][0] < best[0]) and self._may_go(now, destination, unacknowledged):
                best = line[0]
        while queue and (best is None or queue[0][0] < best[0]):
            entry = queue.popleft()
            destination = entry[1]
            if destination not in aside:
                if self._may_go(now, destination, unacknowledged):
                    return entry
                aside[destination] = deque()
            aside[destination].append(entry)
        if best is not None:
            line = aside[best[1]]
            line.popleft()
            if not line:
                del aside[best[1]]
            return best
        for i, entry in enumerate(self._ranked):
            if self._may_go(now, entry[1], unacknowledged):
                del self._ranked[i]
                return entry
        return None

    def _promote(self, destination: int) -> None:
        """Move messages picked for this destination before the required message that is about to follow them."""
        for entry in [entry for entry in self._ranked if entry[1] == destination]:
            self._ranked.remove(entry)
            self._count += 1
            self._queue.append((self._count, *entry[1:]))

    def _choose(self, now: float, unacknowledged: Counts, sent: list[Sent]) -> bool:
        """Queue picked messages, or deliver those for this node at once; whether there were any."""
        if self._pick is None or any(count >= _PILE for count in self._picked.values()):
            return False
        can = self.open
        np.less(unacknowledged, self._window, out=can)
        can[self._node] = True
        self.full = self.full or not can.all()
        for line in (self._aside, self._picked):
            for destination in line:
                can[destination] = False
        for destination, link in self._links.items():
            if link.empty_at > now:
                can[destination] = False
        picked = self._pick(self._rows)
        for destination, message in picked:
            if destination == self._node:
                sent.append((destination, message, "rank"))
                if self._nodes == 1 and self._bucket is not None:
                    self._bucket.take(now, message.nbytes)  # nothing travels: the budget only sets the pace
            else:
                self._count += 1
                self._ranked.append((self._count, destination, message, "rank"))
                self._picked[destination] = self._picked.get(destination, 0) + 1
        return bool(picked)

    def _link_opens_at(self, now: float, unacknowledged: Counts) -> float:
        """When a link that waits only for its budget may be used again."""
        later = inf
        for destination, link in self._links.items():
            ready = link.empty_at
            if now < ready < later and unacknowledged[destination] < self._window:
                later = ready
        return later
