"""Safe width of parallel coordinate descent: the spectral radius, and how many random coordinates may run together.

For columns of norm 1, let ρ be the largest eigenvalue of XᵀX: 1 if all columns are orthogonal, their number if all are
equal. Of M coordinates, P drawn at random converge if (P − 1)(ρ − 1)/M < 1 (Theorem 1 of Kim et al., SMPFRAME; Bradley
et al., Shotgun). So fewer than 1 + M/(ρ − 1) may run together.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .columns import columns_of

ITERATIONS, TOLERANCE = 100, 1e-3


def spectral_radius(
    X: Any, *, centred: bool = False, tolerance: float = TOLERANCE, iterations: int = ITERATIONS
) -> float:
    """The largest eigenvalue of XᵀX with columns of norm 1, by power iteration from a fixed start.

    Parameters
    ----------
    X : array or sparse matrix [n, p]
        Samples × features.
    centred : bool, default False
        Subtract the means of the columns first.
    tolerance : float, default 0.001
        End when two estimates differ by less than this share. An estimate is never above the true value.
    iterations : int, default 100
        The most iterations.

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np, stretto as st
    >>> round(st.schedule.spectral_radius(np.array([[1.0, 1.0], [0.0, 0.0]])), 3)
    2.0
    """
    from stretto.kernels.linear.columns import times, times_transposed_worker

    columns = columns_of(X, centred=centred)
    scale, mean = columns.inverse_norm, columns.mean
    matrix = (columns.values, columns.indices, columns.indptr, columns.rows)
    # The start is positive, as the leading eigenvector of correlated features often is, and not constant.
    x = (1.0 + (np.arange(columns.size) * 0.6180339887498949) % 1.0) * (scale > 0)
    z, rho = np.empty(columns.rows), 0.0
    for _ in range(iterations):
        size = math.sqrt(math.fsum(x * x))
        if size == 0.0:
            return 0.0
        x /= size
        times(*matrix, scale, x, z)
        z -= math.fsum(mean * scale * x)
        before, rho = rho, math.fsum(z * z)
        if abs(rho - before) <= tolerance * rho:
            break
        times_transposed_worker(np.zeros(1, np.int64), *matrix, scale, mean * math.fsum(z), z, x)
    return rho


def safe_width(rho: float, size: int) -> int:
    """The largest safe width for parallel coordinate descent: the largest integer below 1 + size/(ρ − 1).

    Parameters
    ----------
    rho : float
        Spectral radius of the data.
    size : int
        Number of coordinates.

    Returns
    -------
    int
        At least 1 and at most `size`.

    Examples
    --------
    >>> import stretto as st
    >>> st.schedule.safe_width(11.0, 1000), st.schedule.safe_width(1.0, 1000)
    (100, 1000)
    """
    if rho <= 1.0:
        return size
    return max(1, min(size, math.ceil(1.0 + size / (rho - 1.0)) - 1))
