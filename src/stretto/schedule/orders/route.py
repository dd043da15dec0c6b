"""Routes of column blocks between nodes: which node runs which visits, and which node holds a column block when.

A node runs all visits of its row blocks. A column block moves: after the last of its consecutive visits on a node it
goes to the node of its next visit.

    owner = owners(order, weight, nodes)              # [R] the node of each row block
    route = Route(order, owner)
    route.holder(block, turn)                         # the node that has a column block after `turn` of its visits
"""

from __future__ import annotations

import numpy as np

from .order import Ints, Order


def owners(order: Order, weight: Ints, nodes: int) -> Ints:
    """[R] the node of each row block: contiguous ranges with about equal weight.

    Contiguous, because the exchange order keeps aligned groups of row and column blocks together: with 32 blocks and 4
    nodes a column block changes its node 4 times an epoch instead of 32 times.

    >>> from stretto.schedule.orders.rotation import rotation
    >>> owners(rotation(4), np.ones(16, np.int64), 2).tolist()
    [0, 0, 1, 1]
    """
    work = np.bincount(order.row_block, weights=weight, minlength=order.rows)
    # Panels of an order follow one another, so each panel is distributed over all nodes.
    panels = order.rows // order.cols if "panels" in order.name else 1
    owner = np.zeros(order.rows, np.int64)
    for rows in np.split(np.arange(order.rows), panels):
        middle = np.cumsum(work[rows]) - work[rows] / 2
        share = middle * nodes / max(float(work[rows].sum()), 1e-300)
        owner[rows] = np.clip(share.astype(np.int64), 0, nodes - 1)
    return owner


class Route:
    """The nodes that each column block visits, in turn order.

    A block waits on the node of its next visit. After its last visit it returns to the node of its first, for the next
    epoch. A block without visits stays on node 0.
    """

    def __init__(self, order: Order, owner: Ints) -> None:
        self.order, self.owner = order, owner
        self.node = owner[order.row_block]  # [V]
        by_block = np.argsort(order.col_block, kind="stable")
        self.turns = np.bincount(order.col_block, minlength=order.cols).astype(np.int64)  # [C] visits of each block
        self._all = self.node[by_block]  # nodes of the visits of each block, block after block
        self._first = np.cumsum(self.turns) - self.turns
        self._nodes: list[list[int]] = [nodes.tolist() for nodes in np.split(self._all, self._first[1:])]
        self._leaves: dict[int, list[list[int]]] | None = None  # by node and block: turns at which it leaves

    def holder(self, block: int, turn: int) -> int:
        """The node that holds a block after `turn` of its visits."""
        nodes = self._nodes[block]
        if not nodes:
            return 0
        return nodes[turn] if turn < len(nodes) else nodes[0]

    def held(self, node: int, turns: Ints) -> Ints:
        """The column blocks that a node holds after turns[c] visits of each block."""
        holder = np.zeros(self.order.cols, np.int64)
        some = self.turns > 0
        at = self._first + np.where(turns < self.turns, turns, 0)
        holder[some] = self._all[at[some]]
        return np.flatnonzero(holder == node).astype(np.int64)

    def own_rows(self, node: int) -> Ints:
        """The row blocks of a node."""
        return np.flatnonzero(self.owner == node).astype(np.int64)

    def own_visits(self, node: int) -> Ints:
        """The visits of a node."""
        return np.flatnonzero(self.node == node).astype(np.int64)

    def own(self, node: int, turns: Ints) -> dict[str, Ints]:
        """The row and column blocks of a node after turns[c] visits of each column block, by "rows" and "cols"."""
        return {"rows": self.own_rows(node), "cols": self.held(node, turns), "visits": self.own_visits(node)}

    def departures(self, node: int, turns: Ints) -> list[list[int]]:
        """By block: the turns after turns[c] at which it leaves the node."""
        if self._leaves is None:  # computed for all nodes at once: a simulation needs each of them
            self._leaves = {}
            for block, nodes in enumerate(self._nodes):
                for turn, here in enumerate(nodes, 1):
                    if nodes[turn % len(nodes)] != here:
                        self._leaves.setdefault(here, [[] for _ in self._nodes])[block].append(turn)
        made = turns.tolist()
        every = self._leaves.get(node) or [[] for _ in self._nodes]
        return [[turn for turn in leaves if turn > made[c]] for c, leaves in enumerate(every)]

    def moves(self) -> int:
        """Number of moves of blocks between nodes in an epoch."""
        nodes = range(int(self.owner.max(initial=0)) + 1)
        return sum(len(turns) for node in nodes for turns in self.departures(node, 0 * self.turns))
