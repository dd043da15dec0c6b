"""Clock messages of a node: when its changes go to each shard, and the clocks it reports.

Usually all changes of a clock are sent when it is over, and then NodeClock. Under a lazy policy changes of clock c wait
until the node's own workers need rows that hold them, or a shard demands them for others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stretto.comm.messages import Keys, NodeClock, ToShard, Update
from stretto.consistency.clocks import FOREVER
from stretto.store.layout import Layout

Sends = list[tuple[int, ToShard]]
_Released = tuple[int, Keys, NDArray[np.int32]]  # table, keys, versions
_Release = tuple[int, int, Keys, NDArray[np.int32]]  # the NodeClock it goes with, table, keys, versions


class ClockQueue:
    """Waiting Updates and versions to release, by shard.

    Each shard receives a NodeClock after its Updates, and one more for each further message of released versions.

    most : for each table, the most keys in one message; None for no bound.
    """

    def __init__(self, layout: Layout, node: int, most: Sequence[int | None]) -> None:
        self._most = most
        self._node, self._nodes = node, layout.nodes
        self._rule, self._lazy = layout.rule, layout.policy.lazy
        self._sent = [0] * layout.nodes  # the last NodeClock
        self._demanded: dict[int, int] = {}
        self._waiting: dict[int, deque[Update]] = {}
        self._releases: dict[int, list[_Release]] = {}
        self._ring = {table for table, spec in enumerate(layout.tables) if spec.exchange == "ring"}
        self._circulated = 0  # Updates that go around the ring, of all clocks so far

    def begin(self, clock: int) -> None:
        """Start with all workers at this clock."""
        self._sent = [clock] * self._nodes

    @property
    def sent_through(self) -> int:
        """All changes of clocks before this one were sent, to every shard."""
        return min(self._sent)

    def unsent(self, table: int) -> list[Keys]:
        """Rows of a table with changes that wait."""
        return [update.keys for waiting in self._waiting.values() for update in waiting if update.table == table]

    def due(self, clock: int, updates: list[tuple[int, Update]]) -> Sends:
        """The node has reached this clock, with Updates of earlier ones; returns what to send, own shard first."""
        for shard, update in updates:
            self._waiting.setdefault(shard, deque()).append(update)
            self._circulated += update.table in self._ring and shard != self._node
        sends: Sends = []
        for k in range(self._nodes):
            self._send((self._node + k) % self._nodes, clock, sends)
        return sends

    def demand(self, shard: int, need: int, clock: int) -> Sends:
        """Messages to send because a shard waits for changes of clocks < need."""
        self._demanded[shard] = max(need, self._demanded.get(shard, 0))
        sends: Sends = []
        self._send(shard, clock, sends)
        return sends

    def flush(self, clock: int) -> Sends:
        """Messages to send as if every shard had demanded all changes."""
        sends: Sends = []
        for shard in range(self._nodes):
            sends += self.demand(shard, clock, clock)
        return sends

    def release(self, shard: int, clock: int, table: int, keys: Keys, versions: NDArray[np.int32]) -> None:
        """These versions are not held any more; changes computed from them belong to clocks < clock."""
        self._releases.setdefault(shard, []).append((clock, table, keys, versions))

    def _send(self, shard: int, clock: int, sends: Sends) -> None:
        through = clock
        if self._lazy and clock < FOREVER:
            through = max(self._rule.need(clock), min(clock, self._demanded.get(shard, 0)))
        if through <= self._sent[shard]:
            return
        self._sent[shard] = through
        waiting = self._waiting.get(shard)
        while waiting and waiting[0].clock < through:
            sends.append((shard, waiting.popleft()))
        sends += [
            (shard, NodeClock(self._node, through, some, self._circulated)) for some in self._released(shard, through)
        ]

    def _released(self, shard: int, clock: int) -> list[tuple[_Released, ...]]:
        """Versions that the messages of this clock release, for at least one message."""
        releases = self._releases.get(shard)
        if not releases:
            return [()]
        ripe = [release for release in releases if release[0] <= clock]
        self._releases[shard] = [release for release in releases if release[0] > clock]
        found: list[_Released] = []
        for table in sorted({release[1] for release in ripe}):
            of = [release for release in ripe if release[1] == table]
            keys, versions = np.concatenate([r[2] for r in of]), np.concatenate([r[3] for r in of])
            step = self._most[table] or len(keys)
            found += [(table, keys[at : at + step], versions[at : at + step]) for at in range(0, len(keys), step)]
        if all(most is None for most in self._most):
            return [tuple(found)]
        return [(some,) for some in found] or [()]
