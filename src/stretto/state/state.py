"""`State` (`st.state`) and `SparseRows` (`st.sparse_rows`): mutable arrays that a loop learns.

    W = st.random((6040, 64), scale=0.1)
    W[3]              row 3, a view: `W[3] += 1` changes the state
    W[1:3, 2]         a set query
    W @ W.T           arithmetic gives plain arrays
    W.save("W.safetensors"); W = st.State.load("W.safetensors")

A state begins at a cache line. NumPy accepts it where it accepts an array, so a loop also runs without its decorator.

Of a `SparseRows`, only rows that were written take memory:

    W = st.sparse_rows((100_000_000, 64))       25 GB if every row existed; no memory yet
    epoch(ratings, W, H, 0.1)                   a loop takes it as any state, with the same subscripts and the same bits
    W.touched                                   [n] the rows that exist
    W.nbytes_used                               bytes they take
    W.save("W.safetensors")                     these rows and no others
    W.to_scipy(), W.to_dense()

Address space is reserved for all rows. The operating system allocates a page when it is first written
(`stretto.pages`). A page has 4 KiB, so neighbouring rows share pages. A row exists while any of its bits is set: a row
of zeros is the same as a row that was never written.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from stretto.consistency.replication import Replication
from stretto.errors import DataError
from stretto.pages import Pages
from stretto.state.array_like import ArrayHolder, aligned, check_dtype
from stretto.text import show_gib, show_mib

_MOST = 2**46  # bytes: of the addresses a process has, half


class State(ArrayHolder):
    """A mutable array that a loop reads and writes. NumPy takes it wherever it takes an array.

    Parameters
    ----------
    array : array_like
        The numbers, which are copied.

    Examples
    --------
    >>> import stretto as st
    >>> W = st.State([[1.0, 2.0], [3.0, 4.0]])
    >>> W[0] += 10
    >>> W.array.tolist()
    [[11.0, 12.0], [3.0, 4.0]]
    """

    __slots__ = ("__weakref__", "_array")

    def __init__(self, array: ArrayLike) -> None:
        """A copy of `array`."""
        given = np.asarray(array)
        check_dtype(given.dtype)
        self._array = aligned(given.shape, given.dtype.newbyteorder("="))
        self._array[...] = given

    @classmethod
    def _of(cls, array: NDArray[Any]) -> State:
        """A state that uses an aligned array without copying it."""
        made = cls.__new__(cls)
        made._array = array
        return made

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.shape)) or "one number"
        return f"State({shape}, {self.dtype}, {show_mib(self.nbytes)})"

    def __reduce__(self) -> Any:
        return State, (self._array,)

    def copy(self) -> State:
        """Another state with the same numbers."""
        return State(self._array)

    @property
    def stored(self) -> State:
        """The state as tables hold it: itself, unless its columns are partitioned."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> State:
        return self.copy()

    def save(self, path: str | Path) -> None:
        """Write the state to a safetensors file with a checksum. The file appears complete or not at all.

        Parameters
        ----------
        path : str or Path
            The file.
        """
        from stretto.runtime.files.state_file import save

        save(path, *self._kept())

    def _kept(self) -> tuple[NDArray[Any], NDArray[np.int64] | None, tuple[int, ...]]:
        """What `save` writes: an array, which rows of the state these are (None for all), the shape of the state."""
        return self._array, None, self.shape

    @classmethod
    def load(cls, path: str | Path) -> State:
        """Read a state that `save` wrote; a state with sparse rows if it was one.

        Parameters
        ----------
        path : str or Path
            The file.

        Raises
        ------
        CheckpointError
            If the file is missing or damaged.
        """
        from stretto.runtime.files.state_file import load

        kept = load(path)
        return State(kept.array) if kept.rows is None else SparseRows.from_rows(kept.rows, kept.array, kept.shape)


class ReplicatedState(State):
    """A state of which every part of a unit has a copy. Made by `st.state(…, replicate=True)`."""

    __slots__ = ("replication",)

    def __init__(self, array: ArrayLike, replication: Replication) -> None:
        super().__init__(array)
        self.replication = replication

    def __reduce__(self) -> Any:
        return ReplicatedState, (self._array, self.replication)

    def copy(self) -> ReplicatedState:
        """Another state with the same numbers and rules."""
        return ReplicatedState(self._array, self.replication)


class SparseRows(State):
    """A state of zeros whose rows, slices along the first axis, take memory when they are first written.

    Parameters
    ----------
    shape : int or tuple of int
        Shape, as if every row existed.
    dtype : dtype, default "f4"
        Type of the numbers.

    Examples
    --------
    >>> import stretto as st
    >>> W = st.SparseRows((1_000_000, 4))
    >>> W[5] = 1.0
    >>> W.touched.tolist(), W.shape
    ([5], (1000000, 4))
    """

    __slots__ = ("_pages",)

    def __init__(self, shape: int | tuple[int, ...], dtype: DTypeLike = "f4") -> None:
        kind = np.dtype(dtype).newbyteorder("=")
        check_dtype(kind)
        sizes = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
        if not sizes or min(sizes) < 0:
            raise DataError(f"sparse_rows({shape!r}): give the number of rows, and the numbers in each: (rows, width)")
        nbytes = math.prod(int(size) for size in sizes) * kind.itemsize
        try:
            if nbytes > _MOST:
                raise OSError
            self._pages = Pages(sizes, kind, huge=False)
        except OSError:
            raise DataError(
                f"sparse_rows({shape!r}): {show_gib(nbytes, 0)} of addresses are more than this system gives to a "
                "process; take fewer rows, or a table: st.tables.Table(sparse=True) with any int64 keys"
            ) from None
        self._array = self._pages.array

    @classmethod
    def from_rows(cls, rows: ArrayLike, values: ArrayLike, shape: tuple[int, ...]) -> SparseRows:
        """A state with the given rows, and zeros elsewhere.

        Parameters
        ----------
        rows : array_like of int [n]
            Numbers of the rows.
        values : array_like [n, …]
            Their values.
        shape : tuple of int
            Shape of the state.
        """
        given, at = np.asarray(values), np.asarray(rows)
        if given.shape != (len(at), *shape[1:]):
            raise DataError(
                f"from_rows: values {list(given.shape)} for {len(at)} rows of a state {list(shape)}; give "
                f"{[len(at), *shape[1:]]}"
            )
        if len(at) and (at.dtype.kind not in "iu" or not 0 <= int(at.min()) <= int(at.max()) < shape[0]):
            raise DataError(f"from_rows: rows of a state {list(shape)} are integers from 0 to {shape[0] - 1}")
        made = cls(shape, given.dtype)
        if len(at):
            made._array[at] = given
        return made

    @classmethod
    def from_scipy(cls, matrix: Any, dtype: DTypeLike | None = None) -> SparseRows:
        """A state with the numbers of a SciPy sparse matrix; entries that occur twice add up.

        Parameters
        ----------
        matrix : sparse matrix
            The numbers.
        dtype : dtype or None, default None
            Type of the numbers; None keeps that of the matrix.
        """
        entries = matrix.tocoo()
        made = cls(tuple(matrix.shape), entries.dtype if dtype is None else dtype)
        np.add.at(made._array, (entries.row, entries.col), entries.data)
        return made

    @property
    def touched(self) -> NDArray[np.int64]:
        """[n] numbers of the rows that exist, ascending. Reads the pages that are in memory."""
        return self._pages.nonzero_rows()

    @property
    def nbytes_used(self) -> int:
        """Bytes of memory that the rows take, in whole pages; `nbytes` would be taken if every row existed."""
        return self._pages.nonzero_bytes(self.touched)

    def to_dense(self) -> State:
        """A state that holds every row."""
        made = aligned(self.shape, self.dtype)
        made[...] = np.zeros((), self.dtype)
        rows = self.touched
        made[rows] = self._array[rows]
        return State._of(made)

    def to_scipy(self) -> Any:
        """The numbers that are not zero, as a `scipy.sparse.coo_array` [rows, width] or [rows, 1].

        Converting it to CSR takes memory for every row.
        """
        from scipy.sparse import coo_array

        if self.ndim > 2 or self.dtype.names:
            raise DataError(f"to_scipy: SciPy has matrices of numbers, and this is {self!r}; take to_dense()")
        rows = self.touched
        values = self._array[rows].reshape(len(rows), -1)
        of, cols = np.nonzero(values)
        width = 1 if self.ndim == 1 else self.shape[1]
        return coo_array((values[of, cols], (rows[of], cols)), shape=(self.shape[0], width))

    def copy(self) -> SparseRows:
        """Another state with the same rows."""
        rows = self.touched
        return type(self).from_rows(rows, self._array[rows], self.shape)

    def __reduce__(self) -> Any:
        rows = self.touched
        return type(self).from_rows, (rows, self._array[rows], self.shape)

    def __repr__(self) -> str:
        return f"SparseRows({' x '.join(map(str, self.shape))}, {self.dtype}, {show_mib(self.nbytes)} if dense)"

    def _kept(self) -> tuple[NDArray[Any], NDArray[np.int64] | None, tuple[int, ...]]:
        rows = self.touched
        return self._array[rows], rows, self.shape
