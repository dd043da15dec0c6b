"""Constructors of states: `st.zeros`, `st.full`, `st.random`, `st.sparse_rows` and `st.state`."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from stretto.checks import choice, whole
from stretto.consistency.replication import replication_of
from stretto.errors import DataError, PlanError
from stretto.state.array_like import aligned, check_dtype
from stretto.state.state import PartitionedState, ReplicatedState, SparseRows, State

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
    array: ArrayLike,
    dtype: DTypeLike | None = None,
    *,
    partition: Any = None,
    replicate: bool = False,
    merge: Any = None,
    filter: Any = None,
    every: int = 1,
    exchange: str = "auto",
) -> State:
    """A state with a copy of an array.

    Parameters
    ----------
    array : array_like
        The numbers. A structured array makes a state of structs.
    dtype : dtype or None, default None
        Type of the numbers; None keeps that of the array.
    partition : "rows", sequence of int, callable or None, default None
        Which node of a stage holds which rows; units read and write them there. "rows": a contiguous range for each
        node, of equal size. A sequence: the first row of each node. A function(rows [n], nodes) -> [n] the place of
        each row among the nodes, asked for the first row of every chunk (64 KiB). None: even shares, with as few moves
        as possible. `partition=` of a unit comes first.
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
    numbers = np.asarray(array, dtype=dtype)
    if partition is not None:
        if replicate:
            raise PlanError("state: partition= and replicate= contradict each other; leave one of them out")
        return PartitionedState(numbers, _partition(partition))
    if replicate:
        return ReplicatedState(numbers, replication_of(merge, filter, every, exchange))
    if merge is not None or filter is not None or every != 1 or exchange != "auto":
        raise PlanError(
            "state: merge=, filter=, every= and exchange= are rules of replicated states; give replicate=True"
        )
    return State(numbers)


@dataclass(frozen=True)
class RowRanges:
    """A partition: the first row of each node."""

    starts: tuple[int, ...]

    def __call__(self, rows: NDArray[np.int64], nodes: int) -> NDArray[np.int64]:
        """[n] the place of each row."""
        if len(self.starts) != nodes:
            raise PlanError(
                f"state: partition={list(self.starts)} has ranges for {len(self.starts)} nodes, and the stage has "
                f"{nodes}; give one first row for each, or partition='rows'"
            )
        return np.searchsorted(self.starts, rows, side="right") - 1


def _partition(given: Any) -> Any:
    if isinstance(given, str):
        if given == "columns":
            raise PlanError("state: partition='columns' is not supported: give the transposed array, and 'rows'")
        choice("partition", given, ("rows",), owner="state")
        return "range"
    if callable(given):
        return given
    starts = tuple(whole("partition", start, 0, "state") for start in given)
    if not starts or starts[0] != 0 or list(starts) != sorted(starts):
        raise PlanError(f"state: partition={list(starts)}; give the first row of each node, in order, beginning with 0")
    return RowRanges(starts)


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
