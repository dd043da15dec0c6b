"""Constructors of states: `st.zeros`, `st.full`, `st.random`, `st.sparse_rows` and `st.state`."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from stretto.checks import choice, shown
from stretto.consistency.replication import replication_of
from stretto.data.records.data import Data
from stretto.errors import DataError, PlanError
from stretto.state.array_like import aligned, check_dtype
from stretto.state.partitioned import AutoState, ColumnState, DeclaredData, PartitionedState
from stretto.state.partitions import Ranges, ranges_of
from stretto.state.state import ReplicatedState, SparseRows, State
from stretto.state.transactions import TransactionState, checked_transactions

_made = count()


def zeros(shape: int | tuple[int, ...], dtype: DTypeLike = "f4") -> State:
    """A state of zeros.

    Parameters
    ----------
    shape : int or tuple of int
        Its shape.
    dtype : dtype, default "f4"
        Type of the numbers; may be structured.

    Returns
    -------
    State

    Examples
    --------
    >>> import stretto as st
    >>> st.zeros((2, 3)).dtype
    dtype('float32')
    """
    return full(shape, 0, dtype)


def full(shape: int | tuple[int, ...], value: ArrayLike, dtype: DTypeLike = "f4") -> State:
    """A state with one value everywhere.

    Parameters
    ----------
    shape : int or tuple of int
        Its shape.
    value : array_like
        The value, or an array that broadcasts to the shape.
    dtype : dtype, default "f4"
        Type of the numbers; may be structured.

    Returns
    -------
    State

    Examples
    --------
    >>> import stretto as st
    >>> st.full(3, 0.5).array.tolist()
    [0.5, 0.5, 0.5]
    """
    return _wrapped(shape, value, dtype)


def state(
    array: Any,
    dtype: DTypeLike | None = None,
    *,
    partition: Any = None,
    replicate: bool = False,
    merge: Any = None,
    filter: Any = None,
    every: int = 1,
    exchange: str = "auto",
    transactions: Any = None,
    placement: str | None = None,
) -> Any:
    """A state with a copy of an array; or data that the parts of a unit read where they run.

    Parameters
    ----------
    array : array_like, sparse matrix, Data, source, str or Path
        The numbers. A structured array makes a state of structs. With `partition`: also what units only read, namely a
        sparse matrix, `st.Data`, `st.files(…)`, `st.source(…)`, or a path as for `st.files`. Nodes read files and
        sources, each its own part; this process does not.
    dtype : dtype or None, default None
        Type of the numbers; None keeps that of the array.
    partition : {"rows", "columns"}, sequence, callable or None, default None
        Which part of a unit holds which rows or columns; other parts read and write them there. "rows", "columns": an
        even range for each part. A sequence: the first row of each range, or (start, stop) pairs that cover all rows; a
        unit with fewer parts has several ranges in one part. A function(rows [n], nodes) -> [n] the place of each row
        among the nodes, asked for the first row of every chunk (64 KiB). None: even shares of the nodes, with as few
        moves as possible. `partition=` of a unit comes first.
    replicate : bool, default False
        Whether each part of a unit has a full copy of its own, which is exchanged with the others at the end of every
        iteration and where the function yields.
    merge : Merge, callable or None, default None
        Replicated: how changes are combined. `st.add(gamma)`, `st.average()` or function(changes [n, cols], replicas)
        -> what is added; None for st.add(1).
    filter : Filter or None, default None
        Replicated: which changed rows are sent in an exchange. `st.top`, `st.random_share` or `st.round_robin`; None
        sends all. What is held back is sent later, and all of it at the end of the unit.
    every : int, default 1
        Replicated: yields of a function between two exchanges.
    exchange : {"auto", "shards", "holder", "all-to-all", "ring"}, default "auto"
        Replicated, on several nodes: how changes reach the others. "shards": rows are cut over the nodes; changes go to
        the nodes of their rows, merged rows come back. "holder": the same with one node, that with most parts.
        "all-to-all": each node sends its changes to every other. "ring": from neighbour to neighbour. "auto": the one
        with the least predicted time; `task.plan(…).explain()` says which, and why. No result depends on it under BSP.
    transactions : sequence of Transaction or None, default None
        The transactions (`st.transaction`) that change this state; nothing else does. The holder of a row applies them.
    placement : {"auto"} or None, default None
        "auto": `st.run` first measures which rows the parts of a task use, and places the state as `st.propose` says.
        Results are the same.

    Returns
    -------
    State

    Examples
    --------
    >>> import stretto as st
    >>> st.state([1.0, 2.0]).array.tolist()
    [1.0, 2.0]

    >>> def ones(worker, v):
    ...     v.array += 1.0
    >>> v = st.state([0.0, 0.0], replicate=True, merge=st.average())
    >>> result = st.run(st.unit(ones, v, parts=4, iterations=3), runtime=st.Serial())
    >>> v.array.tolist()
    [3.0, 3.0]
    """
    if placement is not None:
        choice("placement", placement, ("auto",), owner="state")
        given = {"partition": partition, "replicate": replicate or None, "transactions": transactions}
        declared = [name for name, value in given.items() if value is not None]
        if declared or _only_read(array):
            what = f"{declared[0]}=" if declared else "a source or sparse matrix"
            raise PlanError(f"state: placement='auto' and {what} contradict each other; leave one of them out")
        return AutoState(np.asarray(array, dtype=dtype))
    if _only_read(array):
        if transactions is not None:
            raise PlanError("state: sources and sparse matrices are only read; leave out transactions=")
        if replicate or merge is not None or filter is not None or every != 1:
            raise PlanError(
                "state: sources and sparse matrices are only read, so they are not replicated; leave out replicate= "
                "and its rules, or give a dense array"
            )
        return _declared(array, dtype, partition)
    numbers = np.asarray(array, dtype=dtype)
    if transactions is not None:
        ranges = "rows" if partition is None else partition
        ranges = ranges if callable(ranges) else ranges_of(ranges, {"rows": len(numbers)})
        return TransactionState(numbers, *checked_transactions(transactions, ranges, replicate))
    if partition is not None:
        if replicate:
            raise PlanError("state: partition= and replicate= contradict each other; leave one of them out")
        ranges = partition if callable(partition) else ranges_of(partition, {"rows": len(numbers)})
        if isinstance(ranges, Ranges) and ranges.axis == "columns":
            return ColumnState(numbers, ranges)
        return PartitionedState(numbers, ranges)
    if replicate:
        return ReplicatedState(numbers, replication_of(merge, filter, every, exchange))
    if merge is not None or filter is not None or every != 1 or exchange != "auto":
        raise PlanError(
            "state: merge=, filter=, every= and exchange= are rules of replicated states; give replicate=True"
        )
    return State(numbers)


def _only_read(given: Any) -> bool:
    """Whether a state of it is only read: a source, a path, a sparse matrix or `st.Data`."""
    return isinstance(given, str | Path | Data) or hasattr(given, "tocsr") or hasattr(given, "read_by_parts")


def _declared(given: Any, dtype: Any, partition: Any) -> DeclaredData:
    kind = "a path" if isinstance(given, str | Path) else type(given).__name__
    if partition is None or callable(partition):
        raise PlanError(
            f"state: {kind} with partition={shown(partition)}; give partition='rows': each part of a unit reads its "
            "own rows"
        )
    ranges = ranges_of(partition)
    sparse = hasattr(given, "tocsr")
    if not sparse and (ranges.axis == "columns" or (ranges.starts is not None and not isinstance(given, Data))):
        raise PlanError(
            f"state: {kind} with partition={shown(partition)}; what is read by parts is cut by rows, evenly: give "
            "partition='rows', or a matrix"
        )
    if dtype is not None and not sparse:
        raise PlanError(f"state: {kind} has its own numbers; leave out dtype=")
    if sparse:
        given = given.tocsr() if ranges.axis == "rows" else given.tocsc()
        given = given if dtype is None else given.astype(dtype)
    return DeclaredData(given, ranges)


def random(shape: int | tuple[int, ...], scale: float = 1.0, seed: int | None = None, dtype: DTypeLike = "f4") -> State:
    """A state of normally distributed numbers.

    The numbers come from a Philox stream keyed by `seed`. Without a seed the first state of a process has key 0, the
    second key 1, and so on: two factors differ, and a script starts from the same numbers every time. Give seeds where
    the order in which states are created may change.

    Parameters
    ----------
    shape : int or tuple of int
        Its shape.
    scale : float, default 1.0
        Standard deviation. The mean is 0.
    seed : int or None, default None
        Key of the stream.
    dtype : dtype, default "f4"
        Type of the numbers, a float.

    Returns
    -------
    State

    Examples
    --------
    >>> import stretto as st
    >>> W = st.random((100, 8), scale=0.1, seed=0)
    >>> W.shape, bool(abs(W.array.std() - 0.1) < 0.01)
    ((100, 8), True)
    """
    kind = np.dtype(dtype)
    if kind.kind != "f":
        raise DataError(f"random numbers are floats, so a state of {kind} cannot hold them; use dtype='f4' or 'f8'")
    key = [next(_made), 1] if seed is None else [seed % 2**64, 0]
    draw = np.random.Generator(np.random.Philox(key=np.array(key, dtype=np.uint64)))
    made = _wrapped(shape, 0, kind)
    if kind == np.float32:
        draw.standard_normal(dtype=np.float32, out=made.array)
    else:
        made.array[...] = draw.standard_normal(made.shape)
    made.array[...] *= scale
    return made


def sparse_rows(shape: int | tuple[int, ...], dtype: DTypeLike = "f4") -> SparseRows:
    """A state of zeros whose rows take memory when they are first written; see `SparseRows`.

    Parameters
    ----------
    shape : int or tuple of int
        Rows, and numbers in a row, as if every row existed.
    dtype : dtype, default "f4"
        Type of the numbers; may be structured.

    Returns
    -------
    SparseRows

    Examples
    --------
    >>> import stretto as st
    >>> W = st.sparse_rows((1_000_000, 16))
    >>> W[[7, 123_456]] = 1.0
    >>> W.touched
    array([     7, 123456])
    """
    return SparseRows(shape, dtype)


def _wrapped(shape: int | tuple[int, ...], value: ArrayLike, dtype: DTypeLike) -> State:
    kind = np.dtype(dtype)
    check_dtype(kind)
    array = aligned(shape, kind)
    array[...] = value
    return State._of(array)
