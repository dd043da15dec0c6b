"""How a step is spread over nodes: which node makes which visits, and what of every argument it needs for them.

Row blocks belong to nodes, in runs of neighbours; a node makes all visits of its row blocks. So what is cut by row
blocks stays where it is, what is cut by column blocks goes round with the visits, and the rest is everywhere:

    sgd_worker(pass_, worker, out,  ptr, u, i, r, row_base, col_base,  W, H, b, c,  step, lam, …)
                                    SAME by_visits  SAME               by_rows(W, b)  NUMBER
                                                                       by_cols(H, c)

An array has the same shape and the same subscripts on every node; of one that is cut a node has only the ranges of its
own blocks, and pages of memory that nobody touches take no room. So the compiled worker is the same as on one machine.
Where an argument is a named tuple of arrays, its role is the same named tuple, of roles.

    spread = Spread(named_kernel(sgd_worker), (SAME, by_visits(ptr), …))
    owner = owners(order, weight, nodes)              # [R] the node of each row block
    route = Route(order, owner)                       # where column blocks are, turn by turn
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stretto.cached import cached_property
from stretto.errors import PlanError
from stretto.schedule.order import Ints, Order

if TYPE_CHECKING:
    from stretto.kernels.compile import Kernel

Span = tuple[int, int]
Pieces = list[tuple[int, NDArray[Any]]]  # (where it begins along the axis that is cut, what is there)


@dataclass(frozen=True)
class Role:
    """What an argument is to a spread step. kind:

    number   sent with every run             same     the same in every run: sent once
    whole    read by all, may change         parts    [V, …] one for each visit: written by visits, brought back
    fault    written by a visit that fails   scratch  [workers, …]: every node makes its own, for its own workers
    cut      one range for each block, see `Ranges`
    """

    kind: str


NUMBER, SAME, WHOLE, PARTS, FAULT, SCRATCH = (
    Role(kind) for kind in ("number", "same", "whole", "parts", "fault", "scratch")
)


@dataclass(frozen=True, eq=False)
class Ranges(Role):
    """An array cut along `axis`: block b has first[b] to last[b]. by: "visits", "rows" or "cols", what the blocks are.

    Ranges of different blocks do not overlap unless the array is only read (`written` is False). fresh: zeros whenever
    an epoch begins, on the nodes as in the driver's array; of those cut by rows the driver is told what a run left.
    """

    kind: str
    by: str
    first: Ints
    last: Ints
    axis: int = 0
    written: bool = False
    fresh: bool = False

    def spans(self, blocks: Sequence[int] | Ints) -> list[Span]:
        """The ranges of some blocks, in order, neighbours joined.

        >>> by_rows([0, 4, 6, 9]).spans([0, 1])
        [(0, 6)]
        """
        which = np.asarray(blocks, np.int64)
        found: list[Span] = []
        for lo, hi in sorted(zip(self.first[which].tolist(), self.last[which].tolist(), strict=True)):
            if lo >= hi:
                continue
            if found and lo <= found[-1][1]:
                found[-1] = (found[-1][0], max(hi, found[-1][1]))
            else:
                found.append((lo, hi))
        return found

    def view(self, array: NDArray[Any], span: Span) -> NDArray[Any]:
        """That part of an array, live."""
        return array[(slice(None),) * self.axis + (slice(*span),)]

    def pieces(self, array: NDArray[Any], blocks: Sequence[int] | Ints) -> Pieces:
        """What some blocks hold."""
        return [(span[0], self.view(array, span)) for span in self.spans(blocks)]

    def fill(self, array: NDArray[Any], pieces: Pieces) -> None:
        """Write what `pieces` gave."""
        for at, piece in pieces:
            self.view(array, (at, at + piece.shape[self.axis]))[...] = piece


def by_visits(ptr: Any, last: Any = None, *, written: bool = False) -> Ranges:
    """Entries of visit v: ptr[v] to ptr[v + 1], or ptr[v] to last[v] when those are given."""
    return _ranges("visits", ptr, last, 0, written, False)


def by_rows(bounds: Any, last: Any = None, *, axis: int = 0, written: bool = True, fresh: bool = False) -> Ranges:
    """Of row block b: bounds[b] to bounds[b + 1], or to last[b]."""
    return _ranges("rows", bounds, last, axis, written, fresh)


def by_cols(bounds: Any, last: Any = None, *, axis: int = 0, written: bool = True, fresh: bool = False) -> Ranges:
    """Of column block b: bounds[b] to bounds[b + 1], or to last[b]."""
    return _ranges("cols", bounds, last, axis, written, fresh)


def _ranges(by: str, first: Any, last: Any, axis: int, written: bool, fresh: bool) -> Ranges:
    first = np.asarray(first, np.int64)
    first, last = (first[:-1], first[1:]) if last is None else (first, np.asarray(last, np.int64))
    return Ranges("cut", by, first, last, axis, written, fresh)


@dataclass(frozen=True, eq=False)
class Found:
    """How another process finds a compiled worker: its module and name, or the source that it was made from.

    users: functions of the user's that the source calls, pickled by value.
    """

    module: str
    name: str
    source: str = ""
    users: bytes = b""
    digests: tuple[str, ...] = ()

    def load(self) -> Kernel:
        """The kernel, in this process."""
        if not self.source:
            import importlib

            return getattr(importlib.import_module(self.module), self.name)  # type: ignore[no-any-return]
        import pickle

        from stretto.kernels import generated

        users = pickle.loads(self.users) if self.users else ()
        return generated.load(self.source, users, self.digests)[self.name]


def named_kernel(kernel: Kernel) -> Found:
    """A kernel of the library."""
    return Found(kernel.py.__module__, kernel.py.__name__)


def made_kernel(name: str, source: str, users: Sequence[Any], digests: Sequence[str]) -> Found:
    """A kernel of a source that was written at run time (`kernels.generated`)."""
    from numba import cloudpickle

    try:
        packed = cloudpickle.dumps(tuple(users), protocol=5) if users else b""
    except Exception as error:
        raise PlanError(
            f"a function that the loop calls cannot be sent to other processes: {error}; make it a function of a "
            "module, or one that uses only numbers and arrays"
        ) from error
    return Found("", name, source, packed, tuple(digests))


class Reader(Protocol):
    """Where a node gets entries from that the driver does not have. It is pickled, and called on every node."""

    def pieces(self, visits: Ints, threads: int) -> dict[int, Pieces]:
        """Of the arguments in `Spread.entries`, what these visits read."""


@dataclass(frozen=True, eq=False)
class Spread:
    """How to spread a step; one role for each argument. Steps with one and the same spread have the same order, and the
    same arrays where the role says so.

    Arguments are numbered as they lie in `flat`: the fields of a named tuple count one by one. reader: who has the
    entries; None: the driver's arrays have them.
    """

    kernel: Found
    given: tuple[Role | tuple[Any, ...], ...]
    reader: Reader | None = None

    @cached_property
    def roles(self) -> tuple[Role, ...]:
        """Of the arguments, named tuples field by field."""
        return tuple(self.flat(self.given))

    def flat(self, args: Sequence[Any]) -> list[Any]:
        """Arguments of the worker, named tuples field by field."""
        found: list[Any] = []
        for role, value in zip(self.given, args, strict=True):
            found += value if isinstance(role, tuple) else [value]
        return found

    def nested(self, flat: Sequence[Any]) -> list[Any]:
        """The other way round: arguments as the worker takes them."""
        found, at = [], 0
        for role in self.given:
            if isinstance(role, tuple):
                found.append(type(role)(*flat[at : at + len(role)]))
                at += len(role)
            else:
                found.append(flat[at])
                at += 1
        return found

    def cut(self, by: str = "", *, written: bool = False) -> list[int]:
        """Which arguments are cut: by what, and only those that are written."""
        return [
            k
            for k, role in enumerate(self.roles)
            if isinstance(role, Ranges) and by in ("", role.by) and (role.written or not written)
        ]

    def of(self, kind: str) -> list[int]:
        """Which arguments have a role."""
        return [k for k, role in enumerate(self.roles) if role.kind == kind]

    def ranges(self, k: int) -> Ranges:
        """The role of an argument that is cut."""
        role = self.roles[k]
        assert isinstance(role, Ranges)
        return role

    @cached_property
    def states(self) -> list[int]:
        """Arguments cut by rows or columns, or written by visits: what is learned, and what it is learned from by
        index."""
        return [*self.cut("rows"), *self.cut("cols"), *self.cut("visits", written=True)]

    @cached_property
    def entries(self) -> list[int]:
        """Arguments cut by visits that are only read: sent once."""
        return [k for k in self.cut("visits") if k not in self.states]

    def fresh(self, by: str = "") -> list[int]:
        """Arguments that are zeros when an epoch begins."""
        return [k for k in self.cut(by) if self.ranges(k).fresh]

    @cached_property
    def rotating(self) -> list[int]:
        """Arguments that go round."""
        return self.cut("cols")


def owners(order: Order, weight: Ints, nodes: int) -> Ints:
    """[R] the node of each row block: runs of neighbours with about equal weight.

    Neighbours, because the exchange order keeps aligned groups of row and column blocks together for a long while: with
    32 blocks and 4 nodes a column block changes its node 4 times an epoch, and not 32 times.

    >>> from stretto.schedule.rotation import rotation
    >>> owners(rotation(4), np.ones(16, np.int64), 2).tolist()
    [0, 0, 1, 1]
    """
    work = np.bincount(order.row_block, weights=weight, minlength=order.rows)
    middle = np.cumsum(work) - work / 2
    share = middle * nodes / max(float(work.sum()), 1e-300)
    return np.clip(share.astype(np.int64), 0, nodes - 1)


class Route:
    """Where column blocks go: the node of every visit of each, in turn order.

    A block rests with the node of its next visit; after its last it goes home, to the node of its first, for the next
    epoch. A block that no visit touches is at home on node 0 and stays there.
    """

    def __init__(self, order: Order, owner: Ints) -> None:
        self.order, self.owner = order, owner
        self.node = owner[order.row_block]  # [V]
        by_block = np.argsort(order.col_block, kind="stable")
        self.turns = np.bincount(order.col_block, minlength=order.cols).astype(np.int64)  # [C] visits of each block
        self._nodes: list[list[int]] = [
            nodes.tolist() for nodes in np.split(self.node[by_block], np.cumsum(self.turns)[:-1])
        ]
        self._leaves: dict[int, list[list[int]]] | None = None  # by node and block: turns at which it leaves

    def holder(self, block: int, turn: int) -> int:
        """The node that has a block after `turn` of its visits."""
        nodes = self._nodes[block]
        if not nodes:
            return 0
        return nodes[turn] if turn < len(nodes) else nodes[0]

    def held(self, node: int, turns: Ints) -> Ints:
        """The blocks that a node has when turns[c] visits of each are made."""
        return np.array([c for c in range(self.order.cols) if self.holder(c, int(turns[c])) == node], np.int64)

    def own_rows(self, node: int) -> Ints:
        """The row blocks of a node."""
        return np.flatnonzero(self.owner == node).astype(np.int64)

    def own_visits(self, node: int) -> Ints:
        """The visits of a node."""
        return np.flatnonzero(self.node == node).astype(np.int64)

    def own(self, node: int, turns: Ints) -> dict[str, Ints]:
        """The blocks of a node when turns[c] visits of each column block are made, by what arrays are cut by."""
        return {"rows": self.own_rows(node), "cols": self.held(node, turns), "visits": self.own_visits(node)}

    def departures(self, node: int, turns: Ints) -> list[list[int]]:
        """By block: the turns, after turns[c], at which it leaves the node."""
        if self._leaves is None:  # of all nodes in one go: a simulation asks for each of them
            self._leaves = {}
            for block, nodes in enumerate(self._nodes):
                for turn, here in enumerate(nodes, 1):
                    if nodes[turn % len(nodes)] != here:
                        self._leaves.setdefault(here, [[] for _ in self._nodes])[block].append(turn)
        made = turns.tolist()
        every = self._leaves.get(node) or [[] for _ in self._nodes]
        return [[turn for turn in leaves if turn > made[c]] for c, leaves in enumerate(every)]

    def moves(self) -> int:
        """Times that a block changes its node in an epoch."""
        nodes = range(int(self.owner.max(initial=0)) + 1)
        return sum(len(turns) for node in nodes for turns in self.departures(node, 0 * self.turns))
