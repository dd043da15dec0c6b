"""Links between the nodes of a task that sends blocks: numbered, acknowledged, sent again after a loss.

    links = TaskLinks(host, begin, RING)
    links.send(node, to, block)
    for block in links.receive(source, target, frames): …
    links.tend(now)

May be called from any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from math import inf
from typing import Any, cast

from stretto.comm.link import Frame, Link
from stretto.runtime.cluster.blocks.ring import Block
from stretto.runtime.cluster.hosts.calls import BeginTask, HostApi


class TaskLinks:
    """The links of one task on one host."""

    def __init__(self, host: HostApi, begin: BeginTask, channel: int) -> None:
        self._host, self._begin, self._channel = host, begin, channel
        self._links: dict[tuple[int, int], Link] = {}
        self._lock = threading.Lock()  # guards the links: frames are posted in the order of their sequence numbers
        self._touched: set[tuple[int, int]] = set()  # links that have sent or received since `tend`
        self._due: dict[tuple[int, int], float] = {}  # links with a timer, and its time
        self._wake = inf  # at most the first of these times
        self.halted = False

    def halt(self) -> None:
        """Send nothing any more."""
        with self._lock:
            self.halted = True

    def send(self, node: int, to: int, block: Block) -> None:
        """Send a block from a node of this host to another."""
        with self._lock:
            if self.halted:
                return
            link = self._link(node, to)
            self._touched.add((node, to))
            quiet = not link.unacknowledged
            frame = link.send(cast(Any, block))
            self._host.post(self._begin, node, to, self._channel, [frame])
        if quiet:
            self._host.rouse()  # so that the link's timer is set for the acknowledgement

    def receive(self, source: int, target: int, frames: Sequence[Frame]) -> list[Block]:
        """Take frames of another node; returns the blocks in order, each once."""
        with self._lock:
            link = self._link(target, source)
            self._touched.add((target, source))
            blocks: list[Any] = []
            for frame in frames:
                if frame.incarnation == self._begin.incarnation:
                    blocks += link.receive(frame)
            replies, link.replies[:] = list(link.replies), []
            if replies and not self.halted:
                self._host.post(self._begin, target, source, self._channel, replies)
        return [block for block in blocks if isinstance(block, Block)]

    def tend(self, now: float) -> float:
        """Send acknowledgements and retransmissions that are due; return when to call again."""
        with self._lock:
            if self.halted:
                return inf
            touched, self._touched = self._touched, set()
            for ends in sorted(touched):
                self._tend_link(ends, now)
            if self._wake <= now:
                for ends, due in list(self._due.items()):
                    if due <= now:
                        self._tend_link(ends, now)
                self._wake = min(self._due.values(), default=inf)
        return self._wake

    def reset(self, nodes: Sequence[int]) -> None:
        """The lost connection to these nodes was re-established."""
        with self._lock:
            for (node, peer), link in self._links.items():
                again = link.reset() if peer in nodes and not self.halted else []
                if again:
                    self._touched.add((node, peer))
                    self._host.post(self._begin, node, peer, self._channel, again)

    def counters(self) -> tuple[int, int]:
        """Frames that came twice, and gaps."""
        links = self._links.values()
        return sum(link.duplicates for link in links), sum(link.gaps for link in links)

    def _link(self, node: int, peer: int) -> Link:
        link = self._links.get((node, peer))
        if link is None:
            link = self._links[node, peer] = Link(node, peer, self._begin.incarnation)
        return link

    def _tend_link(self, ends: tuple[int, int], now: float) -> None:
        link = self._links[ends]
        due = link.tend(now)
        if due < inf:
            self._due[ends] = due
            self._wake = min(self._wake, due)
        else:
            self._due.pop(ends, None)
        if link.replies:
            replies, link.replies[:] = list(link.replies), []
            self._host.post(self._begin, *ends, self._channel, replies)
