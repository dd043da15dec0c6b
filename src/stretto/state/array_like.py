"""What makes a state usable as a NumPy array: aligned memory, subscripts, arithmetic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import DTypeLike, NDArray

from stretto.errors import DataError

CACHE_LINE = 64  # bytes


def aligned(shape: int | tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """An uninitialised C-contiguous array that begins at a cache line."""
    kind = np.dtype(dtype)
    shape = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    room = np.empty(size + CACHE_LINE, dtype=np.uint8)
    skip = -room.ctypes.data % CACHE_LINE
    return room[skip : skip + size].view(kind).reshape(shape)


def check_dtype(dtype: np.dtype[Any]) -> None:
    """Refuse types that compiled loops do not support: objects, text, dates."""
    fields = [dtype] if dtype.fields is None else [field[0] for field in dtype.fields.values()]
    for field in fields:
        if field.kind not in "biufc":
            raise DataError(f"a state holds numbers, booleans or structs of them, not {field}; convert it first")


class ArrayHolder(NDArrayOperatorsMixin):
    """An object around one array, `_array`, which NumPy takes wherever it takes an array."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    _array: NDArray[Any]

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


def _bare(x: Any) -> Any:
    return x.array if isinstance(x, ArrayHolder) else x
