"""Messages between nodes about tables: immutable values.

From a cache to a shard: `Update`, `NodeClock`, `Fetch`, `Dropped`, `Announce`. From a shard to a cache: `Rows`,
`ShardClock`, `Demand`. Between one node and one shard they are delivered in the order they were sent, each once:
`comm.link` guarantees that, and everything in `store` relies on it.

Keys are int64 [n], each key once in a message; values are [n, width] in the table's dtype (the codec is part of
`nbytes` and was already applied: values arrive as they were decoded). `witness` [n, workers] int32 counts, for
each row, how many calls of `add` by each worker are in it. Only runs that record everything have it; it travels with
the values, and the replay checker reads it.
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

    An Update of a table whose changes go around a ring is passed on as it is: `node` is where it was made.

    A *running* Update holds all that the worker has added to these rows in this clock so far. It replaces earlier ones
    of the same (clock, worker, key). Other Updates are applied once each.
    """

    table: int
    node: int
    number: int  # counts the Updates of this node to this shard, from 1; of mirrored tables those to its own shard
    clock: int
    worker: int  # −1: all workers of the node
    keys: Keys
    deltas: NDArray[Any]  # [n, width]
    nbytes: int
    running: bool = False
    versions: NDArray[np.int32] | None = None  # [n] of the rows that the changes were computed from (versioned tables)
    witness: NDArray[np.int32] | None = None  # [n, workers]


@dataclass(slots=True, eq=False)
class NodeClock:
    """All updates of this node of clocks < clock were sent before this message."""

    node: int
    clock: int
    # (table, keys, versions) that the node needs no longer: no change computed from them will come
    released: tuple[tuple[int, Keys, NDArray[np.int32]], ...] = ()
    circulated: int = 0  # Updates of this node that went around the ring so far: they may arrive after this message

    @property
    def nbytes(self) -> int:
        return HEADER + sum((KEY + 4) * len(keys) for _, keys, _ in self.released)


@dataclass(slots=True, eq=False)
class Fetch:
    """Request: send these rows when they are through `need`, and push their changes from then on."""

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

    `versions` and `scale` are set where the table has them.
    """

    table: int
    shard: int
    keys: Keys
    values: NDArray[Any]  # [n, width]
    through: int
    seen: int  # the `number` of the receiving node's last Update that is in the rows
    nbytes: int
    reply: bool = False  # an answer to a Fetch; False: pushed
    versions: NDArray[np.int32] | None = None  # [n]
    scale: NDArray[np.float32] | None = None  # [n] the factor the server function last multiplied changes with
    witness: NDArray[np.int32] | None = None  # [n, workers]


@dataclass(slots=True, eq=False)
class ShardClock:
    """Every row of this shard that the receiver holds is through `clock` by now. seen: as in Rows."""

    shard: int
    clock: int
    seen: int

    @property
    def nbytes(self) -> int:
        return HEADER


@dataclass(slots=True, eq=False)
class Demand:
    """A node waits for rows through `need`: send the updates of clocks < need as soon as they are complete."""

    shard: int
    need: int

    @property
    def nbytes(self) -> int:
        return HEADER


ToShard = Update | NodeClock | Fetch | Dropped | Announce
ToCache = Rows | ShardClock | Demand
Message = ToShard | ToCache
