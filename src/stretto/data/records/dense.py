"""`Dense`: every cell of an array as a record, in row-major order.

for (i, j), x in st.dense(A):        two dimensions
for i, x in st.dense(a):             one
for i, (x, y) in st.dense(points):   a structured array: the fields in order
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from stretto.data.records.recorded import RecordsBase
from stretto.data.records.records import Column, Records, Value
from stretto.errors import DataError


class Dense(RecordsBase):
    """Records of every element of an array, row by row. Made by `st.dense`.

    Attributes
    ----------
    source : str
        Where the data came from, for messages.
    """

    __slots__ = ("__weakref__", "_records", "source")

    def __init__(self, records: Records, *, source: str = "array") -> None:
        self._records = records
        self.source = source

    def records(self) -> Records:
        """The view that loops are compiled against."""
        return self._records

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self._records.shape

    def __repr__(self) -> str:
        return f"Dense({' x '.join(map(str, self.shape))}, {self.source})"


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
