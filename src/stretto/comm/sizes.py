"""Size in bytes of rows in a message: dense, or as nonzero values with their columns if that is shorter.

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

from stretto.kernels.tables import pending_changes

from .messages import HEADER, KEY
from .policy import Managed, Policy

VERSION = 4


def row_sizes(values: NDArray[Any], versions: bool, wire: int) -> NDArray[np.int64]:
    """[n] bytes of each row [n, width] with its key, and its version where there are `versions`; `wire` for a value."""
    sizes = np.empty(len(values), np.int64)
    pending_changes.row_bytes.exact(values, wire, KEY + (VERSION if versions else 0), sizes)
    return sizes


def rows_nbytes(values: NDArray[Any], versions: bool, wire: int) -> int:
    """Bytes of a message with these rows [n, width], its header included."""
    return HEADER + int(row_sizes(values, versions, wire).sum())


def keys_of_burst(policy: Policy, cols: int, wire: int) -> int | None:
    """The most keys (with versions) in a message of a cache, so that it is not longer than a burst of rows.

    None where there is no burst. Requests and released versions use the same bucket as rows.

    >>> keys_of_burst(Managed("1MB", burst=(100, 100)), cols=16, wire=4)
    600
    """
    if not isinstance(policy, Managed):
        return None
    return max(1, policy.burst[0] * (KEY + cols * wire) // (KEY + VERSION))
