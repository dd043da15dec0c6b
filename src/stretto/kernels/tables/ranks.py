"""Rank rows by the size of their changes, and select the largest without a full sort.

Scores are [m] float64, or uint64 if they are random or counts. The larger score goes first, and of equal ones the
earlier row. A row that contains NaN scores infinity, so that the error shows soon.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.compile import inner, kernel
from stretto.kernels.numeric.random import mix

_DRAW = 0x72616E6B  # key that separates these random numbers from others


@inner
def _length(rows, i):
    """Return Σ |rows[i, k]| in float64, with four accumulators: the same bits everywhere, and short dependencies."""
    width = rows.shape[1]
    if width == 1:
        return abs(np.float64(rows[i, 0]))
    whole = width - width % 4
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    for k in range(0, whole, 4):
        a += abs(np.float64(rows[i, k]))
        b += abs(np.float64(rows[i, k + 1]))
        c += abs(np.float64(rows[i, k + 2]))
        d += abs(np.float64(rows[i, k + 3]))
    for k in range(whole, width):
        a += abs(np.float64(rows[i, k]))
    return (a + b) + (c + d)


@inner
def _seen(score):
    return np.inf if np.isnan(score) else score


@kernel
def absolute(deltas, scores):
    """scores[i] = Σ |deltas[i]|. deltas [m, width] of any dtype."""
    for i in range(deltas.shape[0]):
        scores[i] = _seen(_length(deltas, i))


@kernel
def relative(deltas, rows, held, scores):
    """scores[i] = Σ |deltas[i]| / Σ |rows[i]|; the first sum alone where the row is zero or held[i] is False."""
    for i in range(deltas.shape[0]):
        score = _length(deltas, i)
        if held[i]:
            size = _length(rows, i)
            if size != 0.0:
                score /= size
        scores[i] = _seen(score)


@kernel
def effective(deltas, scale, scores):
    """scores[i] = |scale[i]| · Σ |deltas[i]|: the size of the change after scaling."""
    for i in range(deltas.shape[0]):
        scores[i] = _seen(_length(deltas, i) * abs(np.float64(scale[i])))


@kernel
def drawn(seed, draw, keys, scores):
    """scores[i] [m] uint64: random bits of (seed, draw, keys[i])."""
    for i in range(keys.shape[0]):
        scores[i] = mix(seed, draw, keys[i], _DRAW)


@inner
def _sink(scores, heap, at, end):
    """Sift heap[at] down in heap[at … end − 1], so that none of its children goes after it."""
    moving = heap[at]
    score = scores[moving]
    while True:
        child = 2 * at + 1
        if child >= end:
            break
        last, other = heap[child], child + 1
        if other < end:
            i = heap[other]
            if scores[i] < scores[last] or (scores[i] == scores[last] and i > last):
                child, last = other, i
        if not (scores[last] < score or (scores[last] == score and last > moving)):
            break
        heap[at] = last
        at = child
    heap[at] = moving


@kernel
def best(scores, chosen):
    """Fill chosen [n] int64 with the indices of the n ≤ m largest of scores [m], in descending order.

    `chosen` is a heap with the smallest on top, so that most scores need one comparison.
    """
    n = chosen.shape[0]
    for i in range(n):
        chosen[i] = i
    for at in range(n // 2 - 1, -1, -1):
        _sink(scores, chosen, at, n)
    if n > 0:
        least = scores[chosen[0]]
        for i in range(n, scores.shape[0]):
            if scores[i] > least:
                chosen[0] = i
                _sink(scores, chosen, 0, n)
                least = scores[chosen[0]]
    for end in range(n - 1, 0, -1):
        last = chosen[0]
        chosen[0] = chosen[end]
        chosen[end] = last
        _sink(scores, chosen, 0, end)
