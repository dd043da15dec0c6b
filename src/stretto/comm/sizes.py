"""Bytes of rows in a message: a row travels dense, or as its nonzero values with their columns if that is shorter.

>>> import numpy as np
>>> rows = np.zeros((2, 64), dtype="f4"); rows[1] = 1.0
>>> row_sizes(rows, False, 4).tolist()          # 8 for the key; then 2, or 64 · 4
[10, 264]
>>> rows_nbytes(rows, False, 4)
322
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.kernels import slips

from .messages import HEADER, KEY

VERSION = 4


def row_sizes(values: NDArray[Any], versions: bool, wire: int) -> NDArray[np.int64]:
    """[n] bytes of each row [n, width] with its key, and its version where there are `versions`; `wire` for a value."""
    sizes = np.empty(len(values), np.int64)
    slips.row_bytes.exact(values, wire, KEY + (VERSION if versions else 0), sizes)
    return sizes


def rows_nbytes(values: NDArray[Any], versions: bool, wire: int) -> int:
    """Bytes of a message with these rows [n, width], its header included."""
    return HEADER + int(row_sizes(values, versions, wire).sum())
