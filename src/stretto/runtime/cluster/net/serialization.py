"""Serialize messages as integers and arrays, and deserialize them.

    numbers, arrays = pack(message, check)
    message = unpack(numbers, take, source, target, check, rows)     take(dtype, count) -> the next array
    prove(rows, check)                                               at the end: check the keys of all messages at once

The first number is the kind. The sender is not among the numbers: `node` and `shard` are derived from the route, so no
node can impersonate another. Rows are encoded as `comm.sizes` counts them: values as 16-bit floats where the table says
so (they were rounded before, nothing is lost), and, where that is shorter, only the non-zero values of a row with their
columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.comm.messages import (
    HEADER,
    KEY,
    Announce,
    Demand,
    Dropped,
    Fetch,
    Keys,
    Message,
    NodeClock,
    Rows,
    ShardClock,
    Update,
)
from stretto.comm.sizes import VERSION
from stretto.runtime.cluster.blocks.ring import Block

from .frame_checks import Checker, Malformed, RowFormat

Numbers = tuple[int, ...]
Arrays = list[NDArray[Any]]
Take = Callable[[str, int], NDArray[Any]]
Claims = dict[tuple[int, int], list[Keys]]  # (table, shard): keys that the shard should store

LARGEST = 1 << 30  # bytes of an array at most, before and after unpacking
UPDATE, NODE_CLOCK, FETCH, DROPPED, ANNOUNCE, ROWS, SHARD_CLOCK, DEMAND, BLOCK = range(1, 10)
DTYPES = ("f4", "f8", "i4", "i8")
_RUNNING, _REPLY, _VERSIONS, _SCALE, _NARROW, _SHORT = 1, 1, 2, 4, 8, 16  # bits of the flags
_DENSE = 0xFFFF  # value count of a row that is sent with all its values
_SPARE = 0.95  # leaving out zeros must save 5 %


def pack(message: Message | Block, check: Checker) -> tuple[Numbers, Arrays]:
    """Numbers and contiguous arrays; the message's own arrays where no conversion is needed."""
    kind = type(message)
    if kind is Update:
        return _pack_rows(message, message.deltas, check)  # type: ignore[arg-type, union-attr]
    if kind is Rows:
        return _pack_rows(message, message.values, check)  # type: ignore[arg-type, union-attr]
    if isinstance(message, Block):
        parts = [np.ascontiguousarray(part) for part in message.parts]
        sizes = [part.nbytes for part in parts]
        return (BLOCK, message.plan, message.epoch, message.block, message.turn, *sizes), parts
    if isinstance(message, NodeClock):
        arrays: Arrays = []
        numbers = [NODE_CLOCK, message.clock, message.circulated]
        for table, keys, versions in message.released:
            numbers += [table, len(keys)]
            arrays += [keys, versions]
        return tuple(numbers), [np.ascontiguousarray(array) for array in arrays]
    if isinstance(message, Fetch):
        return (FETCH, message.table, len(message.keys), message.need), [np.ascontiguousarray(message.keys)]
    if isinstance(message, Announce):
        return (ANNOUNCE, message.table, len(message.keys), message.clock), [np.ascontiguousarray(message.keys)]
    if isinstance(message, Dropped):
        held = message.versions is not None
        arrays = [message.keys] if message.versions is None else [message.keys, message.versions]
        return (DROPPED, message.table, len(message.keys), int(held)), [np.ascontiguousarray(a) for a in arrays]
    if isinstance(message, ShardClock):
        return (SHARD_CLOCK, message.clock, message.seen), []
    if isinstance(message, Demand):
        return (DEMAND, message.need), []
    raise TypeError(f"{kind.__name__} is not a message that travels between hosts")


def unpack(numbers: Numbers, take: Take, source: int, target: int, check: Checker, rows: Claims) -> Message | Block:
    """Deserialize one message; raises Malformed.

    Arrays are those that `take` returns, or are built from them after their sizes are checked. The rows that the
    message names are added to `rows`; `prove` checks them before the message is delivered.
    """
    kind, given = numbers[0], numbers[1:]
    if kind in (UPDATE, ROWS):
        return _unpack_rows(kind, given, take, source, target, check, rows)
    if kind == BLOCK:
        _at_least(given, 4)
        plan, epoch, block, turn, *sizes = given
        check.block(plan, block, sizes)
        return Block(plan, epoch, block, turn, tuple(take("u1", size) for size in sizes))
    if kind == NODE_CLOCK:
        if len(given) < 2 or len(given) % 2:
            raise Malformed("numbers missing")
        released = []
        for i in range(2, len(given), 2):
            shape = check.table(given[i])
            keys = _keys(take, given[i], given[i + 1], False, target, rows)
            if shape is not None and not shape.versioned:
                raise Malformed("versions of a table without")
            released.append((given[i], keys, take("i4", given[i + 1])))
        return NodeClock(source, given[0], tuple(released), given[1])
    if kind in (FETCH, ANNOUNCE, DROPPED):
        _exactly(given, 3)
        table, count, other = given
        shape = check.table(table)
        keys = _keys(take, table, count, False, target, rows)
        if kind == FETCH:
            return Fetch(source, table, keys, other)
        if kind == ANNOUNCE:
            return Announce(source, table, other, keys)
        if shape is not None and bool(other) != shape.versioned:
            raise Malformed("versions of a table without")
        return Dropped(source, table, keys, take("i4", count) if other else None)
    if kind == SHARD_CLOCK:
        _exactly(given, 2)
        return ShardClock(source, given[0], given[1])
    if kind == DEMAND:
        _exactly(given, 1)
        return Demand(source, given[0])
    raise Malformed("no such kind of message")


def prove(rows: Claims, check: Checker) -> None:
    """Raise Malformed unless every named row belongs to the shard that received or sent it."""
    for (table, shard), keys in rows.items():
        check.keys(table, keys[0] if len(keys) == 1 else np.concatenate(keys), shard)


# -- rows: Update and Rows -------------------------------------------------------------------------------------------


def _pack_rows(message: Update | Rows, values: NDArray[Any], check: Checker) -> tuple[Numbers, Arrays]:
    """Serialize rows.

    The numbers are (kind, table, flags, dtype, n, cols, witnesses, sparse values, dense rows, nbytes, a, b, c, d). The
    arrays are keys, versions, scale, witness, values (or counts, columns, sparse values, dense rows).
    """
    shape = check.table(message.table)
    keys, versions, witness = message.keys, message.versions, message.witness
    n, cols = values.shape
    dtype = values.dtype.str[1:]
    flags = 0 if versions is None else _VERSIONS
    if shape is not None and shape.narrow:
        flags |= _NARROW
        keys = keys.astype(np.int32)
    arrays: Arrays = [keys]
    if versions is not None:
        arrays.append(versions)
    if isinstance(message, Update):
        flags |= _RUNNING if message.running else 0
        passed_on = shape is not None and bool(shape.ring)
        last = (message.number, message.clock, message.worker, message.node + 1 if passed_on else 0)
    else:
        flags |= _REPLY if message.reply else 0
        last = (message.through, message.seen, 0, 0)
        if message.scale is not None:
            flags |= _SCALE
            arrays.append(message.scale)
    if witness is not None:
        arrays.append(witness)
    if shape is not None and shape.short and dtype[0] == "f":
        flags |= _SHORT
        values = values.astype(np.float16)
    few = _without_zeros(values) if message.nbytes < _SPARE * _dense_bytes(flags, n, cols, values.itemsize) else None
    if few is None:
        arrays.append(values)
        sparse, dense = 0, -1
    else:
        arrays += few
        sparse, dense = len(few[2]), len(few[3])
    kind = UPDATE if isinstance(message, Update) else ROWS
    width = 0 if witness is None else witness.shape[1]
    numbers = (kind, message.table, flags, DTYPES.index(dtype), n, cols, width, sparse, dense, message.nbytes, *last)
    return numbers, [np.ascontiguousarray(array) for array in arrays]


def _unpack_rows(
    kind: int, given: Numbers, take: Take, source: int, target: int, check: Checker, rows: Claims
) -> Update | Rows:
    _exactly(given, 13)
    table, flags, code, n, cols, width, sparse, dense, nbytes, *last = given
    shape = check.table(table)
    if not 0 <= code < len(DTYPES) or n < 0 or cols < 1 or width < 0 or nbytes < 0 or n * cols * 8 > LARGEST:
        raise Malformed("sizes that cannot be")
    dtype = DTYPES[code]
    if shape is not None:
        _fits(shape, kind, dtype, cols, flags, width)
    keys = _keys(take, table, n, bool(flags & _NARROW), target if kind == UPDATE else source, rows)
    versions = take("i4", n) if flags & _VERSIONS else None
    scale = take("f4", n) if flags & _SCALE else None
    witness = take("i4", n * width).reshape(n, width) if width else None
    wire = "f2" if flags & _SHORT else dtype
    if dense < 0:
        values = take(wire, n * cols).reshape(n, cols)
    else:
        values = _with_zeros(take, wire, n, cols, sparse, dense)
    if flags & _SHORT:
        values = values.astype(dtype)
    if kind == UPDATE:
        number, clock, worker, origin = last
        if origin:  # a change that goes around a ring
            if shape is None or origin - 1 not in shape.ring:
                raise Malformed("a change of a node that is not in the ring")
            source = origin - 1
        running = bool(flags & _RUNNING)
        return Update(table, source, number, clock, worker, keys, values, nbytes, running, versions, witness)
    through, seen, _, _ = last
    reply = bool(flags & _REPLY)
    return Rows(table, source, keys, values, through, seen, nbytes, reply, versions, scale, witness)


def _fits(shape: RowFormat, kind: int, dtype: str, cols: int, flags: int, width: int) -> None:
    """Raise Malformed unless the format is that of the table."""
    if dtype != shape.dtype or cols != shape.cols:
        raise Malformed("rows of another table")
    if bool(flags & _VERSIONS) != shape.versioned:
        raise Malformed("versions of a table without")
    if width != shape.witnesses or (flags & _SCALE and kind == UPDATE):
        raise Malformed("columns that do not belong")


def _dense_bytes(flags: int, n: int, cols: int, value: int) -> int:
    """Bytes that a message with all values counts."""
    return HEADER + n * (KEY + (VERSION if flags & _VERSIONS else 0) + cols * value)


def _without_zeros(values: NDArray[Any]) -> Arrays | None:
    """Split rows into sparse and dense ones; None if that is not shorter anywhere.

    Returned: counts [n], columns and values of the sparse rows, the dense rows. A zero has no bit set: −0.0 is kept.
    """
    cols = values.shape[1]
    column = np.dtype("u2" if cols <= _DENSE + 1 else "u4")
    filled = np.ascontiguousarray(values).view(f"u{values.itemsize}") != 0
    counts = filled.sum(axis=1)
    sparse = (2 + counts * (column.itemsize + values.itemsize) < cols * values.itemsize) & (counts < _DENSE)
    if not sparse.any():
        return None
    filled &= sparse[:, None]
    _, columns = np.nonzero(filled)
    return [
        np.where(sparse, counts, _DENSE).astype(np.uint16),
        columns.astype(column),
        values[filled],
        values[~sparse],
    ]


def _with_zeros(take: Take, dtype: str, n: int, cols: int, sparse: int, dense: int) -> NDArray[Any]:
    counts = take("u2", n)
    columns = take("u2" if cols <= _DENSE + 1 else "u4", sparse)
    given, full = take(dtype, sparse), take(dtype, dense * cols)
    whole = counts == _DENSE
    of = np.where(whole, 0, counts).astype(np.int64)
    if int(whole.sum()) != dense or int(of.sum()) != sparse or (sparse and int(columns.max()) >= cols):
        raise Malformed("rows that do not add up")
    values = np.zeros((n, cols), dtype)
    values[np.repeat(np.arange(n), of), columns] = given
    values[whole] = full.reshape(dense, cols)
    return values


def _keys(take: Take, table: int, count: int, narrow: bool, shard: int, rows: Claims) -> Keys:
    keys: Keys = take("i4", count).astype(np.int64) if narrow else take("i8", count)
    found = rows.get((table, shard))
    if found is None:
        rows[table, shard] = [keys]
    else:
        found.append(keys)
    return keys


def _exactly(given: Sequence[int], count: int) -> None:
    if len(given) != count:
        raise Malformed("numbers missing")


def _at_least(given: Sequence[int], count: int) -> None:
    if len(given) < count:
        raise Malformed("numbers missing")
