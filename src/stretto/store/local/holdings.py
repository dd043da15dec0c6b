"""Which node holds which chunk of a state between stages, and what has to move before the next one.

    holdings = Holdings()
    holdings.add(0, ChunkGrid(rows=10_000, bits=10))                 # with the driver at first
    moves = holdings.spread(0, nodes=[0, 1, 2])                      # before a wide stage: cut over its nodes
    moves = holdings.gather(0, node=1)                               # before a stage on one node: all chunks there
    holdings.changed(0, 1, chunks)                                   # after one that took chunks on demand

A chunk has one holder with its fresh rows: a node, or the driver. From one node to another it moves directly. Balancing
moves as few chunks as it can: a node keeps what it holds up to its share.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .grid import ChunkGrid

DRIVER = -1  # in place of a node
Chunks = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Move:
    """Chunks of a state that go from one holder to another."""

    state: int
    source: int  # a node, or DRIVER
    target: int
    chunks: Chunks


class Holdings:
    """The holders of all states of a session."""

    def __init__(self) -> None:
        self._holders: dict[int, NDArray[np.int64]] = {}
        self._mirrors: dict[int, frozenset[int]] = {}  # by state: nodes that have all of its fresh rows

    def add(self, state: int, grid: ChunkGrid) -> None:
        """A new state; the driver has it. One that is known stays as it is."""
        self._holders.setdefault(state, np.full(grid.chunks, DRIVER, np.int64))

    def holders(self, state: int) -> NDArray[np.int64]:
        """[chunks] the holder of each chunk."""
        return self._holders[state].copy()

    def at_driver(self, state: int) -> bool:
        """Whether the driver has all of it."""
        return bool((self._holders[state] == DRIVER).all())

    def spread(self, state: int, nodes: Sequence[int], wish: NDArray[np.int64] | None = None) -> list[Move]:
        """Cut a state over nodes. wish: the node of each chunk; None: even shares, with as few moves as possible."""
        now = self._holders[state]
        return self._to(state, _balanced(now, nodes) if wish is None else wish)

    def mirror(self, state: int, nodes: Sequence[int], before: NDArray[np.int64]) -> list[Move]:
        """Copies that a state needs to be on all of these nodes, besides the moves of `spread`; holders stay.

        before: the holder of each chunk without these moves, from which others copy it. What the driver had is copied
        from the holder that gets it.
        """
        if self._mirrors.get(state) == frozenset(nodes):
            return []
        self._mirrors[state] = frozenset(nodes)
        now = self._holders[state]
        source = np.where(before == DRIVER, now, before)
        found = []
        for node in nodes:
            lacking = np.flatnonzero((before != node) & (now != node))
            found += [
                Move(state, holder, node, lacking[source[lacking] == holder])
                for holder in np.unique(source[lacking]).tolist()
            ]
        return found

    def unmirror(self, state: int) -> None:
        """A stage changes the rows of holders only: copies on other nodes are out of date."""
        self._mirrors.pop(state, None)

    def gather(self, state: int, node: int) -> list[Move]:
        """Bring all of a state to one node, or to the driver."""
        return self._to(state, np.full(len(self._holders[state]), node, np.int64))

    def upload(self, state: int, node: int) -> list[Move]:
        """Bring to a node what the driver has."""
        now = self._holders[state]
        return self._to(state, np.where(now == DRIVER, node, now))

    def vacate(self, node: int, others: Sequence[int]) -> list[Move]:
        """Bring what a node holds to others, as evenly as what they hold allows: the node leaves."""
        moves = []
        for state, now in self._holders.items():
            mine = np.flatnonzero(now == node)
            if not len(mine):
                continue
            held = {other: int((now == other).sum()) for other in others}
            wanted = now.copy()
            for chunk in mine.tolist():
                least = min(others, key=lambda other: held[other])
                wanted[chunk] = least
                held[least] += 1
            moves += self._to(state, wanted)
        return moves

    def changed(self, state: int, node: int, chunks: Iterable[int] | Chunks) -> None:
        """A node has changed chunks: its rows are the fresh ones."""
        self.unmirror(state)
        self._holders[state][np.asarray(chunks, np.int64)] = node

    def reset(self, state: int) -> None:
        """The driver has all of it again, as after a restart or where it starts from its first values."""
        self.unmirror(state)
        self._holders[state][:] = DRIVER

    def lost(self, nodes: Iterable[int]) -> list[int]:
        """The states of which nodes that are lost had chunks."""
        gone = np.array(sorted(nodes), np.int64)
        return [state for state, now in self._holders.items() if np.isin(now, gone).any()]

    def forget(self, state: int) -> None:
        """The state is not needed any more."""
        self.unmirror(state)
        self._holders.pop(state, None)

    def _to(self, state: int, wanted: NDArray[np.int64]) -> list[Move]:
        now = self._holders[state]
        moved = np.flatnonzero(now != wanted)
        if len(moved):
            self.unmirror(state)
        found = []
        pairs = np.stack([now[moved], wanted[moved]])
        for source, target in np.unique(pairs, axis=1).T.tolist():
            found.append(Move(state, source, target, moved[(pairs[0] == source) & (pairs[1] == target)]))
        now[:] = wanted
        return found


def _balanced(now: NDArray[np.int64], nodes: Sequence[int]) -> NDArray[np.int64]:
    """[chunks] a node for each: even shares, the first nodes one more; a node keeps the first of what it holds."""
    share, more = divmod(len(now), len(nodes))
    wanted = np.full(len(now), DRIVER, np.int64)
    places: list[int] = []
    for place, node in enumerate(nodes):
        size = share + (place < more)
        mine = np.flatnonzero(now == node)[:size]
        wanted[mine] = node
        places.append(size - len(mine))
    free = np.flatnonzero(wanted == DRIVER)
    # The rest is dealt out in turns, so that neighbouring chunks, which are often used together, are on many nodes.
    turns = np.repeat(np.asarray(nodes), places)
    rounds = np.concatenate([np.arange(size) for size in places]) if places else np.empty(0, np.int64)
    wanted[free] = turns[np.argsort(rounds, kind="stable")]
    return wanted


@dataclass(frozen=True, eq=False)
class ChunkPartition:
    """The shard of each key where shards hold chunks: a partition of a table. shards [chunks]."""

    bits: int
    shards: NDArray[np.int64]

    def __call__(self, keys: NDArray[np.int64], shards: int) -> NDArray[np.int64]:
        """[n] the shard of each key."""
        found: NDArray[np.int64] = self.shards[keys >> self.bits]
        return found
