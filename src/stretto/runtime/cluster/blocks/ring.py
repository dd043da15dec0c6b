"""Track which column blocks are on a node of the ring, when they leave and arrive. Pure: no thread, no memory.

A column block is on one node at a time. After its last visit there it moves to the node of its next visit, as a `Block`
in a frame; after its last visit of an epoch it moves to the node of the first visit of the next.

    ring = Ring(node, route)
    ring.settle(epoch, turns)               # blocks are on the nodes where they belong after turns[c] visits
    done = ring.start(epoch, turns)         # a run begins: [C] visits that count as made, −1 for an absent block
    where = ring.leaves(block)              # a block leaves: the target node, epoch and turn
    turn = ring.arrives(Block(…))           # its visits from this turn on may be made; None: in a later run
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
    """Column block `block` after `turn` of its visits in an epoch."""

    plan: int  # the step it belongs to
    epoch: int
    block: int
    turn: int
    parts: tuple[NDArray[np.uint8], ...]  # bytes of each rotating array's block [n]; read-only

    @property
    def nbytes(self) -> int:
        return HEADER + sum(int(part.nbytes) for part in self.parts)


ENTRIES, TAKEN = -1, -2  # values of `Block.plan`: exchanged entries, and the acknowledgement of some


class NextHop(NamedTuple):
    """The target node of a block, and its epoch and turn on arrival."""

    node: int
    epoch: int
    turn: int


class Ring:
    """One node's record of the column blocks. Not thread-safe: the caller holds a lock."""

    def __init__(self, node: int, route: Route) -> None:
        self.node, self.route = node, route
        cols = route.order.cols
        self.epoch = 0
        self.here = np.zeros(cols, bool)
        self._came: list[tuple[int, int]] = [(0, 0)] * cols  # (epoch, turn) of each block's last arrival
        self._leaves: list[list[int]] = [[] for _ in range(cols)]  # turns at which it leaves in this run, last first
        self.leave_at = np.full(cols, -1, np.int64)  # [C] the next of them, −1: none

    def settle(self, epoch: int, turns: Ints) -> None:
        """Every block is on the node where it belongs after turns[c] visits in this epoch."""
        self.epoch = epoch
        self.here[:] = False
        held = self.route.held(self.node, turns)
        self.here[held] = True
        for block in held.tolist():
            self._came[block] = (epoch, int(turns[block]))

    def start(self, epoch: int, turns: Ints) -> Ints:
        """Begin a run in which turns[c] visits of each block are already made."""
        self.epoch = epoch
        done = turns.astype(np.int64)
        # A block may still be in flight, sent at the end of the previous run.
        held = self.route.held(self.node, turns)
        done[held[~self.here[held]]] = -1
        # Another may have arrived already, from a node that began this run earlier.
        for block in np.flatnonzero(self.here).tolist():
            came, turn = self._came[block]
            if came == epoch:
                done[block] = max(int(done[block]), turn)
        self._leaves = [turns[::-1] for turns in self.route.departures(self.node, turns)]
        self.leave_at[:] = [turns[-1] if turns else -1 for turns in self._leaves]
        return done

    def leaves(self, block: int) -> NextHop:
        """A block has reached leave_at[block] and leaves this node."""
        turn = self._leaves[block].pop()
        left = self._leaves[block]
        self.leave_at[block] = left[-1] if left else -1
        self.here[block] = False
        to = self.route.holder(block, turn)
        whole = turn == self.route.turns[block]
        return NextHop(to, self.epoch + 1, 0) if whole else NextHop(to, self.epoch, turn)

    @property
    def departing(self) -> int:
        """How many times blocks leave this node until the run ends."""
        return sum(map(len, self._leaves))

    def refuses(self, message: Block) -> str:
        """Why a received block cannot belong to this node, "" if it can.

        Links deliver each block once and in order, so a refused block is a protocol error.
        """
        block, cols = message.block, len(self.here)
        if not 0 <= block < cols or not 0 <= message.turn < max(1, int(self.route.turns[block])):
            return "no such block or turn"
        if self.here[block]:
            return "this node already has the block"
        if message.epoch not in (self.epoch, self.epoch + 1) or self.route.holder(block, message.turn) != self.node:
            return "it is not this node's turn"
        return ""

    def arrives(self, message: Block) -> int | None:
        """Record an arrival; return the turn from which its visits may be made in this run, None if they belong to the
        next.
        """
        self.here[message.block] = True
        self._came[message.block] = (message.epoch, message.turn)
        return message.turn if message.epoch == self.epoch else None

    def complete(self, turns: Ints) -> bool:
        """Whether every block that belongs to this node after turns[c] visits has arrived."""
        return bool(self.here[self.route.held(self.node, turns)].all())


def raw(array: NDArray[Any]) -> NDArray[np.uint8]:
    """A copy of an array's bytes: later changes do not affect the message."""
    return np.frombuffer(array.tobytes(), np.uint8)
