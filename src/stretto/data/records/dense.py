"""`dense`: every cell of an array as a record, in row-major order.

for (i, j), x in st.dense(A):        two dimensions
for i, x in st.dense(a):             one
for i, (x, y) in st.dense(points):   a structured array: the fields in order
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from stretto.data.records.record_sets import Dense
from stretto.data.records.records import Column, Records, Value
from stretto.errors import DataError


def dense(array: ArrayLike) -> Dense:
    """Data of every element of an array. A contiguous array is not copied.

    Parameters
    ----------
    array : array_like
        The elements. Of a structured array, a value is the tuple of its fields.

    Returns
    -------
    Dense

    Examples
    --------
    >>> import stretto as st
    >>> list(st.dense([[1, 2], [3, 4]]))
    [((0, 0), 1), ((0, 1), 2), ((1, 0), 3), ((1, 1), 4)]
    """
    cells = np.asarray(array)
    if not cells.ndim:
        raise DataError("dense needs an array of one dimension or more; a single number is no data")
    names = cells.dtype.names
    flat = cells.reshape(-1)
    value: Value
    if names is None:
        value = Column(flat)
    else:
        value = tuple(Column(flat[name]) for name in names)
    return Dense(Records("dense", cells.shape, (), value))
