"""`Layout`: the tables of a run and their shards; every cache and shard is built from it.

    layout = Layout((TableSpec("weights", rows=10_000, cols=64),), nodes=4, workers=16, rule=SSP(2))
    layout.shard_of(0, keys)          # the shard of each row

Shard k is on node k. Logical worker w is on node w · nodes // workers, unless `homes` says otherwise.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stretto.cached import cached_property
from stretto.comm.policy import Eager, Policy
from stretto.consistency.rules import BSP, Rule
from stretto.errors import PlanError

if TYPE_CHECKING:
    from .shard.functions import ServerFunction

DTYPES = ("f2", "f4", "f8", "i4", "i8")
Partition = str | Callable[[NDArray[np.int64], int], NDArray[Any]]
Start = float | NDArray[Any] | Callable[[NDArray[np.int64]], NDArray[Any]]
_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, eq=False)
class TableSpec:
    """The definition of one table, as caches and shards need it."""

    name: str
    apply: ServerFunction
    rows: int | None = None  # keys are 0 … rows − 1; None: any int64 keys
    cols: int = 1  # width of a row
    dtype: str = "f4"  # one of DTYPES; f2 tables are kept and summed as f4 and travel as f2
    # Values of rows before the first update: a number, an array [rows, cols], or function(keys [n]) -> [n, cols].
    start: Start = 0.0
    partition: Partition = "hash"  # "hash", "range" (needs rows), or function(keys [n], shards) -> shards [n]
    shards: tuple[int, ...] | None = None  # the shards that hold rows of this table; None: all
    cache_rows: int | None = None  # the most rows that a cache keeps; None: no limit
    check_finite: bool = False  # refuse NaN and infinity in `add`
    # As `start`, for each state array of the server function, where a table continues an earlier run; empty: as the
    # server function initialises them.
    states: tuple[Start, ...] = ()
    sparse: bool = False  # caches allocate a row when it is first touched, also with `Layout.reserve`
    # How changes reach other nodes: "shards" (to the shards of their rows, which send the merged rows back). Or every
    # node with workers stores all rows, and changes go to each ("all-to-all") or from neighbour to neighbour ("ring").
    exchange: str = "shards"

    @property
    def kept(self) -> np.dtype[Any]:
        """The dtype in which rows are stored."""
        return np.dtype("f4" if self.dtype == "f2" else self.dtype)

    @property
    def own_writes(self) -> bool:
        """Whether reads see changes of their own node at once; False where only the server knows the result."""
        return self.apply.additive

    @property
    def versioned(self) -> bool:
        return self.apply.versioned

    @property
    def mirrored(self) -> bool:
        """Whether every node with workers stores all rows."""
        return self.exchange != "shards"


@dataclass(frozen=True, eq=False)
class Layout:
    """Tables, nodes, workers, the rule and the policy of one run."""

    tables: tuple[TableSpec, ...]
    nodes: int = 1
    workers: int = 1
    rule: Rule = field(default_factory=BSP)
    policy: Policy = field(default_factory=Eager)
    witness: bool = False  # count in every row which calls of add it contains
    reserve: bool = False  # caches reserve a slot for every row of non-sparse tables, so that threads share them
    seed: int = 0
    homes: tuple[int, ...] = ()  # the node of each worker, ascending; (): evenly over all nodes
    here: int = 0  # the node whose cache uses this layout: its own shard stores the rows of mirrored tables

    def at(self, node: int) -> Layout:
        """The layout as the cache of a node sees it."""
        return replace(self, here=node) if self.mirrors else self

    @cached_property
    def mirrors(self) -> tuple[int, ...]:
        """The nodes that store all rows of mirrored tables, ascending: those with workers. () without such tables."""
        if not any(table.mirrored for table in self.tables):
            return ()
        return tuple(node for node in range(self.nodes) if len(self.workers_of(node)))

    def stores(self, table: int, node: int) -> bool:
        """Whether the rows of a table are read from this node's shard: of a mirrored table from the first one."""
        return not self.tables[table].mirrored or node == self.mirrors[0]

    @cached_property
    def all_mirrored(self) -> bool:
        """Whether all tables are mirrored: no cache holds rows of another node's shard."""
        return all(table.mirrored for table in self.tables)

    def node_of(self, worker: int) -> int:
        """The node of a logical worker."""
        return self.homes[worker] if self.homes else worker * self.nodes // self.workers

    def workers_of(self, node: int) -> range:
        """The logical workers of a node."""
        if self.homes:
            return range(bisect_left(self.homes, node), bisect_left(self.homes, node + 1))
        first = -(-node * self.workers // self.nodes)
        return range(first, -(-(node + 1) * self.workers // self.nodes))

    @property
    def witnesses(self) -> int:
        """Columns of the witness: one for each worker, or none."""
        return self.workers if self.witness else 0

    def reserved(self, table: int) -> int | None:
        """Rows of a table, if caches reserve a slot for each; None: slots are made on first use."""
        spec = self.tables[table]
        return spec.rows if self.reserve and not spec.sparse else None

    def shard_of(self, table: int, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """[n] the shard of each row of a table; of a mirrored one the shard of this layout's node."""
        spec = self.tables[table]
        if spec.mirrored:
            return np.full(len(keys), self.here, np.int64)
        among = self._shards[table]
        if callable(spec.partition):
            place = np.asarray(spec.partition(keys, len(among))).astype(np.int64)
        elif spec.partition == "range" and spec.rows is not None:
            place = _range(keys, len(among), spec.rows)
        else:
            place = ((keys.astype(np.uint64) * _MIX) >> np.uint64(33)).astype(np.int64) % len(among)
        return among[place]

    @cached_property
    def _shards(self) -> tuple[NDArray[np.int64], ...]:
        every = range(self.nodes)
        return tuple(np.array(every if t.shards is None else t.shards, dtype=np.int64) for t in self.tables)

    def start_rows(self, table: int, keys: NDArray[np.int64]) -> NDArray[Any]:
        """[n, cols] values of rows before the first update."""
        return self._begin(table, self.tables[table].start, keys)

    def start_states(self, table: int, keys: NDArray[np.int64]) -> tuple[NDArray[Any], ...] | None:
        """State arrays [n, cols] of the server function; None: as its own `create` makes them."""
        spec = self.tables[table]
        real = spec.kept if spec.kept.kind == "f" else np.dtype("f8")
        return tuple(self._begin(table, state, keys, real) for state in spec.states) if spec.states else None

    def _begin(
        self, table: int, start: Start, keys: NDArray[np.int64], dtype: np.dtype[Any] | None = None
    ) -> NDArray[Any]:
        spec = self.tables[table]
        dtype = spec.kept if dtype is None else dtype
        if isinstance(start, np.ndarray):
            start = start[keys]
        elif callable(start):
            start = np.asarray(start(keys))
            if start.size != len(keys) * spec.cols or start.dtype.kind not in "fiub":
                shape = f"[{len(keys)}, {spec.cols}]"
                raise PlanError(
                    f"table {spec.name!r}: start(keys) gave {start.dtype} {list(start.shape)} for {len(keys)} keys; "
                    f"return a row of numbers for each, {shape if spec.cols > 1 else shape + f' or [{len(keys)}]'}"
                )
        else:
            return np.full((len(keys), spec.cols), start, dtype=dtype)
        return np.ascontiguousarray(start, dtype=dtype).reshape(len(keys), spec.cols)


def _range(keys: NDArray[np.int64], shards: int, rows: int) -> NDArray[np.int64]:
    """[n] the range of each key, where the rows are cut into one equal range for each shard."""
    if rows * shards < 2**63:
        return keys * shards // max(1, rows)
    return keys // -(-rows // shards)  # the product would not fit in 64 bits
