"""A node of the ring: which column blocks are here, when they leave, and what arrives. Pure: no thread, no memory.

A column block is in one place at a time. After the last of its visits on a node it leaves for the node of the next, as
a `Block` in a frame; after its last visit of an epoch it goes home, ready for the next epoch.

    ring = Ring(node, route)
    ring.settle(epoch, turns)               # blocks were put where they belong after turns[c] visits
    done = ring.start(epoch, turns)         # a run begins: [C] what to count as done, −1 for a block not yet here
    where = ring.leaves(block)              # it has come to the turn at which it leaves: where to, and as what
    turn = ring.arrives(Block(…))           # its visits from this turn on may be made, now or (None) in a later run
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stretto.comm.messages import HEADER
from stretto.schedule.orders.order import Ints
from stretto.schedule.orders.route import Route


@dataclass(slots=True, eq=False)
class Block:
    """Column block `block` after `turn` of its visits in an epoch: of every rotating array its bytes, in order.

    plan: which of the job's steps it belongs to. parts: one-dimensional uint8 arrays; nobody writes to them.
    """

    plan: int
    epoch: int
    block: int
    turn: int
    parts: tuple[NDArray[np.uint8], ...]

    @property
    def nbytes(self) -> int:
        return HEADER + sum(int(part.nbytes) for part in self.parts)


ENTRIES, TAKEN = -1, -2  # as `Block.plan`: entries that nodes exchange, and that some of them were taken


class Leave(NamedTuple):
    """Where a block goes, and after which turn of which epoch."""

    node: int
    epoch: int
    turn: int


class Ring:
    """What one node knows of the column blocks. Not safe for several threads: who uses it holds a lock."""

    def __init__(self, node: int, route: Route) -> None:
        self.node, self.route = node, route
        cols = route.order.cols
        self.epoch = 0
        self.here = np.zeros(cols, bool)
        self._came: list[tuple[int, int]] = [(0, 0)] * cols  # (epoch, turn) as which each block came last
        self._leaves: list[list[int]] = [[] for _ in range(cols)]  # turns at which it leaves in this run, last first
        self.leave_at = np.full(cols, -1, np.int64)  # [C] the next of them, −1: none

    def settle(self, epoch: int, turns: Ints) -> None:
        """Every block is where it belongs after turns[c] visits in this epoch."""
        self.epoch = epoch
        self.here[:] = False
        held = self.route.held(self.node, turns)
        self.here[held] = True
        for block in held.tolist():
            self._came[block] = (epoch, int(turns[block]))

    def start(self, epoch: int, turns: Ints) -> Ints:
        """A run begins in which turns[c] visits of each block are made already."""
        self.epoch = epoch
        done = turns.astype(np.int64)
        # A block may still be on its way, sent at the end of the run before.
        held = self.route.held(self.node, turns)
        done[held[~self.here[held]]] = -1
        # Another may have come already, from a node that began this run sooner.
        for block in np.flatnonzero(self.here).tolist():
            came, turn = self._came[block]
            if came == epoch:
                done[block] = max(int(done[block]), turn)
        self._leaves = [turns[::-1] for turns in self.route.departures(self.node, turns)]
        self.leave_at[:] = [turns[-1] if turns else -1 for turns in self._leaves]
        return done

    def leaves(self, block: int) -> Leave:
        """A block has come to leave_at[block]: it is gone from here."""
        turn = self._leaves[block].pop()
        left = self._leaves[block]
        self.leave_at[block] = left[-1] if left else -1
        self.here[block] = False
        to = self.route.holder(block, turn)
        whole = turn == self.route.turns[block]
        return Leave(to, self.epoch + 1, 0) if whole else Leave(to, self.epoch, turn)

    @property
    def departing(self) -> int:
        """How many times blocks leave from here until the run ends."""
        return sum(map(len, self._leaves))

    def refuses(self, message: Block) -> str:
        """Why a block cannot be one that belongs here, "" if it can. Links deliver each once and in order, so a block
        that is refused was made up."""
        block, cols = message.block, len(self.here)
        if not 0 <= block < cols or not 0 <= message.turn < max(1, int(self.route.turns[block])):
            return "no such block or turn"
        if self.here[block]:
            return "the block is here"
        if message.epoch not in (self.epoch, self.epoch + 1) or self.route.holder(block, message.turn) != self.node:
            return "it is not this node's turn"
        return ""

    def arrives(self, message: Block) -> int | None:
        """Note it; the turn from which its visits may be made in this run, None if they belong to the next."""
        self.here[message.block] = True
        self._came[message.block] = (message.epoch, message.turn)
        return message.turn if message.epoch == self.epoch else None

    def complete(self, turns: Ints) -> bool:
        """Whether every block that should be here after turns[c] visits has come."""
        return bool(self.here[self.route.held(self.node, turns)].all())


def raw(array: NDArray[Any]) -> NDArray[np.uint8]:
    """The bytes of an array, copied: what is sent stays as it was."""
    return np.frombuffer(array.tobytes(), np.uint8)
