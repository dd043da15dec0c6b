"""`sparse`: records with any number of indices, from arrays.

for (i, j, k), x in st.sparse((users, items, weeks), values):     a tensor of three axes
for i, (y, z) in st.sparse(rows, (y, z)):                         one index, two values
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stretto.data.records.record_sets import Sparse
from stretto.data.records.records import Column, Records
from stretto.errors import DataError


def sparse(
    indices: Sequence[ArrayLike] | ArrayLike,
    values: Sequence[ArrayLike] | ArrayLike,
    shape: Sequence[int] | None = None,
) -> Sparse:
    """Sparse records with any number of indices, such as the nonzero elements of a tensor.

    Parameters
    ----------
    indices : tuple of array_like [n], or array_like [n]
        One array of integers for each axis; a single array for one axis.
    values : array_like [n], or tuple of array_like [n]
        The value of each record; a tuple of arrays makes records with several values.
    shape : sequence of int or None, default None
        Size of each axis; None: one more than the largest index.

    Returns
    -------
    Sparse

    Examples
    --------
    >>> import stretto as st
    >>> ratings = st.sparse(([0, 1], [2, 0], [3, 3]), [5.0, 4.0], shape=(2, 3, 7))
    >>> list(ratings)
    [((0, 2, 3), 5.0), ((1, 0, 3), 4.0)]
    """
    axes = [_index(axis) for axis in (indices if isinstance(indices, tuple) else (indices,))]
    columns = [np.asarray(column) for column in (values if isinstance(values, tuple) else (values,))]
    if not axes or not columns or {column.shape for column in (*axes, *columns)} != {(len(columns[0]),)}:
        sizes = ", ".join(str(column.shape) for column in (*axes, *columns))
        raise DataError(f"sparse: indices and values are flat arrays of one length, got shapes {sizes}")
    least = tuple(int(axis.max(initial=-1)) + 1 for axis in axes)
    if shape is not None and (len(shape) != len(axes) or any(n < m for n, m in zip(shape, least, strict=False))):
        raise DataError(f"sparse: shape={tuple(shape)} does not hold the indices, which need at least {least}")
    value = tuple(Column(column) for column in columns)
    made = tuple(least if shape is None else (int(n) for n in shape))
    return Sparse(
        Records("sparse", made, tuple(axes), value if isinstance(values, tuple) else value[0]), source="arrays"
    )


def _index(axis: ArrayLike) -> NDArray[Any]:
    """An index as an array of its own, 32 bits wide where that is enough."""
    given = np.asarray(axis)
    if given.dtype.kind not in "iu" and given.size:
        raise DataError(f"sparse: an index is an array of integers, got {given.dtype}")
    if given.size and int(given.min()) < 0:
        raise DataError(f"sparse: an index is 0 or more, got {int(given.min())}")
    if given.size and int(given.max()) >= 2**63:
        raise DataError(f"sparse: an index is at most 2**63 - 1, got {int(given.max())}")
    small = int(given.max(initial=0)) < 2**31
    return np.array(given, np.int32 if small else np.int64)
