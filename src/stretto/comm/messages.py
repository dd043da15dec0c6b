"""What nodes say to each other about tables. A message is a value; nobody changes one after it was handed over.

From a cache to a shard: `Update`, `NodeClock`, `Fetch`, `Dropped`, `Announce`. From a shard to a cache: `Rows`,
`ShardClock`, `Demand`. Between one node and one shard they are delivered in the order they were sent, each once:
`comm.link` sees to that, and everything in `store` relies on it.

Keys are int64 [n], each key once in a message; values are [n, width] in the table's dtype (the codec is part of
`nbytes` and was already applied: values arrive as they were decoded). `witness` [n, workers] int32 counts, for
each row, how many calls of `add` by each worker are in it; it is there only in runs that record everything, travels
the way the values travel, and is what the replay checker looks at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.int64]
HEADER = 48  # bytes of a message without rows: kind, table, clock, counters, sizes
KEY = 8


@dataclass(slots=True, eq=False)
class Update:
    """Changes of one clock, made by one logical worker (exact runs), or by all of a node's (worker = −1).

    number: counts the Updates of this node to this shard, from 1. running: the deltas are all that the worker added to
    these rows in this clock so far and take the place of what came before for (clock, worker, key); otherwise they are
    to be applied once. versions [n] int32: which version of the row the change was computed from (versioned tables).
    """

    table: int
    node: int
    number: int
    clock: int
    worker: int
    keys: Keys
    deltas: NDArray[Any]
    nbytes: int
    running: bool = False
    versions: NDArray[np.int32] | None = None
    witness: NDArray[np.int32] | None = None


@dataclass(slots=True, eq=False)
class NodeClock:
    """All updates of this node of clocks < clock were sent before this. released: (table, keys, versions) no longer
    needed by this node: no change computed from them will come."""

    node: int
    clock: int
    released: tuple[tuple[int, Keys, NDArray[np.int32]], ...] = ()

    @property
    def nbytes(self) -> int:
        return HEADER + sum((KEY + 4) * len(keys) for _, keys, _ in self.released)


@dataclass(slots=True, eq=False)
class Fetch:
    """Send these rows when they are through `need`, and keep me informed of them."""

    node: int
    table: int
    keys: Keys
    need: int

    @property
    def nbytes(self) -> int:
        return HEADER + KEY * len(self.keys)


@dataclass(slots=True, eq=False)
class Dropped:
    """This node no longer holds these rows; versions: which it held (versioned tables)."""

    node: int
    table: int
    keys: Keys
    versions: NDArray[np.int32] | None = None

    @property
    def nbytes(self) -> int:
        return HEADER + (KEY + (4 if self.versions is not None else 0)) * len(self.keys)


@dataclass(slots=True, eq=False)
class Announce:
    """In `clock`, workers of this node will add to these rows of the table and to no others (speculation)."""

    node: int
    table: int
    clock: int
    keys: Keys

    @property
    def nbytes(self) -> int:
        return HEADER + KEY * len(self.keys)


@dataclass(slots=True, eq=False)
class Rows:
    """Rows as the shard has them, through clock `through`.

    seen: the `number` of this node's last Update that is in them. versions [n] int32 and scale [n] float32 (what the
    server function last multiplied changes of the row with) where the table has them. reply: an answer to a Fetch;
    otherwise pushed.
    """

    table: int
    shard: int
    keys: Keys
    values: NDArray[Any]
    through: int
    seen: int
    nbytes: int
    reply: bool = False
    versions: NDArray[np.int32] | None = None
    scale: NDArray[np.float32] | None = None
    witness: NDArray[np.int32] | None = None


@dataclass(slots=True, eq=False)
class ShardClock:
    """Every row of this shard that you hold is through `clock` with what was sent before this. seen: as in Rows."""

    shard: int
    clock: int
    seen: int

    @property
    def nbytes(self) -> int:
        return HEADER


@dataclass(slots=True, eq=False)
class Demand:
    """Somebody waits for rows through `need`: send your updates of clocks < need as soon as there will be no more."""

    shard: int
    need: int

    @property
    def nbytes(self) -> int:
        return HEADER


ToShard = Update | NodeClock | Fetch | Dropped | Announce
ToCache = Rows | ShardClock | Demand
Message = ToShard | ToCache
