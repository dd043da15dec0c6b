"""Generate ratings from known factors, with rows and columns used as unevenly as real ones.

How many ratings a row gets follows a Zipf law over the rows (`row_skew` is its exponent), likewise for columns; pairs
are drawn from the product of the two laws without repetition. The value is `mean + W[i] @ H[j] + noise`, cut to the
scale and rounded to its steps. A perfect model has a test error of about `noise`; a lower one means that test data
leaked into training.

    >>> made = ratings(10_000, 500, 300, seed=1)
    >>> len(made.data), made.data.shape
    (10000, (500, 300))

A seed determines the set: draws come from NumPy's Philox streams, keyed by the seed and by their purpose.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stretto.data.records.arrays import SLICE
from stretto.data.records.data import Data
from stretto.errors import DataError


@dataclass(frozen=True, slots=True, eq=False)
class Generated:
    """Generated ratings and the factors behind them.

    Attributes
    ----------
    data : Data
        The ratings.
    W : ndarray of float32 [rows, rank]
        Factors of the rows. A value is `mean + W[i] @ H[j]` before noise, clipping and rounding.
    H : ndarray of float32 [cols, rank]
        Factors of the columns.
    mean : float
        Mean of the values.
    noise : float
        Standard deviation of what no model can predict, without the rounding.
    """

    data: Data
    W: NDArray[np.float32]
    H: NDArray[np.float32]
    mean: float
    noise: float


def ratings(
    n_ratings: int,
    n_rows: int,
    n_cols: int,
    *,
    rank: int = 8,
    noise: float = 0.3,
    row_skew: float = 0.8,
    col_skew: float = 0.9,
    low: float = 1.0,
    high: float = 5.0,
    step: float | None = 0.5,
    max_share: float | None = None,
    seed: int = 0,
) -> Generated:
    """Generate ratings of distinct pairs from random factors, in random order.

    Parameters
    ----------
    n_ratings : int
        Number of ratings.
    n_rows : int
        Rows of the matrix.
    n_cols : int
        Columns of the matrix.
    rank : int, default 8
        Length of the factors.
    noise : float, default 0.3
        Standard deviation of the noise.
    row_skew : float, default 0.8
        Zipf exponent of the ratings of a row; 0 is even.
    col_skew : float, default 0.9
        Zipf exponent of the ratings of a column; 0 is even.
    low : float, default 1.0
        Smallest rating.
    high : float, default 5.0
        Largest rating.
    step : float or None, default 0.5
        Ratings are rounded to multiples of this; None leaves them as they are.
    max_share : float or None, default None
        The most that one row or column may have of all ratings, such as 1/64. A row cannot be cut, so its share limits
        how far a plan can be distributed.
    seed : int, default 0
        Decides everything that is drawn.

    Returns
    -------
    Generated

    Examples
    --------
    >>> import stretto as st
    >>> made = st.generate_ratings(200, 30, 20, seed=1)
    >>> made.data.shape, made.W.shape
    ((30, 20), (30, 8))
    """
    _check(n_ratings, n_rows, n_cols, rank, noise, low, high, max_share)
    row_law = _law(n_rows, row_skew, max_share, _stream(seed, 0))
    col_law = _law(n_cols, col_skew, max_share, _stream(seed, 1))
    keys = _distinct_pairs(n_ratings, row_law, col_law, max_share, _stream(seed, 2))
    rows, cols = (keys // n_cols).astype(np.int32), (keys % n_cols).astype(np.int32)
    del keys
    truth = _stream(seed, 3)
    spread = (high - low) / 5.0  # of W[i] @ H[j]: most of the scale is used and little is cut off
    scale = np.float32(np.sqrt(spread / np.sqrt(rank)))
    W = truth.standard_normal((n_rows, rank), dtype=np.float32) * scale
    H = truth.standard_normal((n_cols, rank), dtype=np.float32) * scale
    mean = (low + high) / 2.0
    values = np.empty(n_ratings, dtype=np.float32)
    noises = _stream(seed, 4)
    for lo in range(0, n_ratings, SLICE):
        part = slice(lo, lo + SLICE)
        exact = np.einsum("kr,kr->k", W[rows[part]], H[cols[part]]) + np.float32(mean)
        exact += noises.standard_normal(len(exact), dtype=np.float32) * np.float32(noise)
        if step is not None:
            exact = np.float32(low) + np.round((exact - np.float32(low)) / np.float32(step)) * np.float32(step)
        values[part] = np.clip(exact, low, high)
    source = f"generated(n={n_ratings}, rows={n_rows}, cols={n_cols}, seed={seed})"
    return Generated(Data(rows, cols, values, (n_rows, n_cols), source=source), W, H, mean, noise)


def _stream(seed: int, purpose: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=np.array([seed % 2**64, purpose], dtype=np.uint64)))


def _check(
    n: int, n_rows: int, n_cols: int, rank: int, noise: float, low: float, high: float, max_share: float | None
) -> None:
    if min(n_rows, n_cols, rank) < 1 or n < 0 or noise < 0 or not low < high:
        raise DataError("ratings need at least one row, column and factor, noise >= 0 and low < high")
    if n > 0.5 * n_rows * n_cols:
        raise DataError(f"{n} distinct pairs are more than half of the {n_rows} x {n_cols} cells; enlarge the matrix")
    if max_share is not None and max_share * min(n_rows, n_cols) < 1.0:
        raise DataError(f"max_share {max_share:g} is below an even share; use at least {1 / min(n_rows, n_cols):g}")


def _law(size: int, skew: float, max_share: float | None, stream: np.random.Generator) -> NDArray[np.float64]:
    """Probabilities (size,) falling as rank^-skew, none above `max_share`, ranks dealt out at random."""
    law = np.arange(1, size + 1, dtype=np.float64) ** -skew
    law /= law.sum()
    if max_share is not None:
        cap = max_share * 0.97  # a margin for random variation; excess draws are repeated
        for _ in range(100):  # cutting the top raises the rest, which may then need cutting
            over = law >= cap
            if law.max() <= cap * (1 + 1e-12) or over.all():
                break
            free = 1.0 - cap * np.count_nonzero(over)
            law[over] = cap
            law[~over] *= free / law[~over].sum()
    return law[stream.permutation(size)]


def _distinct_pairs(
    n: int,
    row_law: NDArray[np.float64],
    col_law: NDArray[np.float64],
    max_share: float | None,
    stream: np.random.Generator,
) -> NDArray[np.int64]:
    """`n` distinct keys `row * n_cols + col` in random order.

    Each round draws the missing keys and a few more, sorts them and drops duplicates. Frequent cells saturate, so the
    laws flatten a little where the matrix is nearly full. After some rounds the rest is drawn uniformly, which always
    ends.
    """
    n_cols = len(col_law)
    row_sum, col_sum = np.cumsum(row_law), np.cumsum(col_law)
    keys = np.empty(0, dtype=np.int64)
    for round_ in range(60):
        missing = n - len(keys)
        if missing <= 0:
            break
        want = missing + missing // 4 + 64
        if round_ < 30:
            new = _draw(row_sum, want, stream).astype(np.int64)
            new *= n_cols
            new += _draw(col_sum, want, stream)
        else:
            new = stream.integers(0, len(row_law) * n_cols, size=want)
        keys = np.concatenate((keys, new))
        del new
        keys.sort()
        keys = keys[np.concatenate(([True], keys[1:] != keys[:-1]))]
        if max_share is not None:
            keys = _capped(keys, len(row_law), n_cols, int(max_share * n), stream)
    if len(keys) < n:
        raise DataError(f"could only place {len(keys)} of {n} distinct pairs; enlarge the matrix or raise max_share")
    stream.shuffle(keys)
    return keys[:n]


def _draw(cumulative: NDArray[np.float64], count: int, stream: np.random.Generator) -> NDArray[np.int32]:
    """`count` indices by inversion, a slice at a time."""
    out = np.empty(count, dtype=np.int32)
    for lo in range(0, count, SLICE):
        u = stream.random(min(SLICE, count - lo))
        u.sort()  # sequential access in searchsorted; the order is shuffled below
        out[lo : lo + SLICE] = np.minimum(
            np.searchsorted(cumulative, u * cumulative[-1], side="right"), len(cumulative) - 1
        )
        stream.shuffle(out[lo : lo + SLICE])
    return out


def _capped(
    keys: NDArray[np.int64], n_rows: int, n_cols: int, cap: int, stream: np.random.Generator
) -> NDArray[np.int64]:
    """`keys` (sorted) without a random choice of those that put a row or column above `cap`."""
    for of_rows in (True, False):
        index, size = (keys // n_cols, n_rows) if of_rows else (keys % n_cols, n_cols)
        counts = np.bincount(index, minlength=size)
        drop = [
            stream.choice(np.flatnonzero(index == hot), size=int(counts[hot] - cap), replace=False)
            for hot in np.flatnonzero(counts > cap)
        ]
        if drop:
            keys = np.delete(keys, np.concatenate(drop))
    return keys
