"""`State` (`st.state`): a mutable array that a loop learns, aligned to a cache line and usable as a NumPy array.

    W = st.random((6040, 64), scale=0.1)
    W[3]              row 3, a view: `W[3] += 1` changes the state
    W[1:3, 2]         a set query
    W @ W.T           arithmetic gives plain arrays
    W.save("W.safetensors"); W = st.State.load("W.safetensors")
    st.sparse_rows((10**9, 64))     rows take memory when they are written: `sparse_rows.SparseRows`

NumPy accepts a state wherever it accepts an array. So a loop also runs without its decorator.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import ArrayLike, DTypeLike, NDArray

from stretto.errors import DataError
from stretto.text import show_mib

CACHE_LINE = 64  # bytes


def aligned(shape: int | tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """An uninitialised C-contiguous array that begins at a cache line."""
    kind = np.dtype(dtype)
    shape = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    room = np.empty(size + CACHE_LINE, dtype=np.uint8)
    skip = -room.ctypes.data % CACHE_LINE
    return room[skip : skip + size].view(kind).reshape(shape)


class State(NDArrayOperatorsMixin):
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
    __hash__ = None  # type: ignore[assignment]

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

    @property
    def array(self) -> NDArray[Any]:
        """The array itself, not a copy."""
        return self._array

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each dimension."""
        return self._array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the numbers."""
        return self._array.dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self._array.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._array.size

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self._array.nbytes

    @property
    def T(self) -> NDArray[Any]:
        """The transpose, a view."""
        return self._array.T

    def __len__(self) -> int:
        return len(self._array)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._array)

    def __getitem__(self, key: Any) -> Any:
        """An element, or rows and slices as views of the state."""
        return self._array[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._array[key] = value

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if dtype is not None and np.dtype(dtype) != self.dtype:
            if copy is False:
                raise ValueError(f"a state of {self.dtype} is an array of {np.dtype(dtype)} only as a copy")
            return self._array.astype(dtype)
        return self._array.copy() if copy else self._array

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """Arithmetic on the arrays inside; the result is a plain array, or the state that was written to."""
        out = options.get("out")
        if out is not None:
            options["out"] = tuple(_bare(x) for x in out)
        result = getattr(ufunc, method)(*(_bare(x) for x in inputs), **options)
        return result if out is None else out[0] if len(out) == 1 else out

    def __float__(self) -> float:
        return float(self._array)

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.shape)) or "one number"
        return f"State({shape}, {self.dtype}, {show_mib(self.nbytes)})"

    def __reduce__(self) -> Any:
        return State, (self._array,)

    def copy(self) -> State:
        """Another state with the same numbers."""
        return State(self._array)

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
        from stretto.state.sparse_rows import SparseRows

        kept = load(path)
        return State(kept.array) if kept.rows is None else SparseRows.from_rows(kept.rows, kept.array, kept.shape)


def _bare(x: Any) -> Any:
    return x.array if isinstance(x, State) else x


def check_dtype(dtype: np.dtype[Any]) -> None:
    """Refuse types that compiled loops do not support: objects, text, dates."""
    fields = [dtype] if dtype.fields is None else [field[0] for field in dtype.fields.values()]
    for field in fields:
        if field.kind not in "biufc":
            raise DataError(f"a state holds numbers, booleans or structs of them, not {field}; convert it first")
