"""Most probable words of topics, and similarity of topics.

The similarity of two topics is the Hellinger affinity of their distributions over words, Σ_w √(p_k(w) p_l(w)): 1 if
they are equal, 0 if they share no word. For topics [½, ½, 0] and [0, ½, ½] it is ½.

Both work on `components` [K, V]: weights or counts of words in topics, not negative, dense or sparse (CSR); rows need
not sum to 1. Ties are in index order, lower index first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.errors import DataError
from stretto.kernels.topics.cooccurrence import PANEL, affinity_worker
from stretto.models import checks
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.step import make_step, parts
from stretto.runtime.runtimes import Serial
from stretto.schedule.orders.rotation import independent

Array = NDArray[Any]

_DEPTH = 512  # words processed at a time: two panels of them stay in the second-level cache
_SUMS = 64 << 20  # bytes of sums, and of weights processed together
_PAIR = 2 * PANEL  # a tile needs whole pairs of panels


def top_words(components: Any, n: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """(index int32 [K, m], share float32 [K, m]), m = min(n, V): each topic's most probable words and their p_k(w).

    >>> index, share = top_words(np.array([[1, 2, 1], [0, 0, 0]]), 2)
    >>> index.tolist(), share.tolist()
    ([[1, 0], [0, 1]], [[0.5, 0.25], [0.0, 0.0]])
    """
    checks.number("n", n, least=0, whole=True)
    C = _weights(components)
    K, V = C.shape
    m = min(int(n), V)
    index, share = np.empty((K, m), np.int32), np.empty((K, m), np.float32)
    at_once = max(1, _SUMS // (8 * max(1, V)))
    total = _totals(C)
    for first in range(0, K, at_once):
        last = min(K, first + at_once)
        rows = C[first:last]
        rows = rows.toarray() if hasattr(rows, "toarray") else rows
        index[first:last] = _best(rows, m)
        values = np.take_along_axis(rows, index[first:last].astype(np.intp), axis=1)
        share[first:last] = values / np.where(total > 0, total, 1.0)[first:last, None]
    return index, share


def similar_topics(
    components: Any, count: int, crew: Crew | None = None
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """(index int32 [K, m], similarity float32 [K, m]), m = min(count, K − 1): the most similar topics, best first.

    A topic without weight is similar to no other. crew: None runs one thread; the bits do not depend on it. Sums are
    computed for as many topics at a time as fit in 64 MiB; 1000 topics of 25,000 words take 35 MiB in addition to the
    components.

        >>> index, similarity = similar_topics(np.array([[1, 1, 0], [0, 1, 1], [0, 0, 5]]), 1)
        >>> index.tolist(), similarity.tolist()
        ([[1], [2], [1]], [[0.5], [0.7071067690849304], [0.7071067690849304]])
    """
    checks.number("count", count, least=0, whole=True)
    C = _weights(components)
    K = C.shape[0]
    m = max(0, min(int(count), K - 1))
    index, similarity = np.empty((K, m), np.int32), np.empty((K, m), np.float32)
    if m == 0:
        return index, similarity
    length = np.sqrt(_totals(C))
    scale = np.divide(1.0, length, out=np.zeros(K), where=length > 0)
    columns = C.tocsc() if hasattr(C, "tocsc") else C
    with nullcontext(crew) if crew is not None else Serial().open() as workers:
        for first, sums in _sums(columns, workers):
            here = np.arange(first, min(K, first + len(sums)))
            alike = np.minimum(sums[: len(here), :K] * scale[here, None] * scale, 1.0).astype(np.float32)
            alike[here - first, here] = -1.0  # exclude the topic itself
            index[here] = _best(alike, m)
            similarity[here] = np.take_along_axis(alike, index[here].astype(np.intp), axis=1)
    return index, similarity


def affinities(components: Any, crew: Crew) -> NDArray[np.float64]:
    """[K, K] the similarity of every two topics; of a topic without weight 0, also with itself.

    >>> with Serial().open() as crew:
    ...     affinities(np.array([[1, 1, 0], [0, 2, 2]]), crew).round(3).tolist()
    [[1.0, 0.5], [0.5, 1.0]]
    """
    C = _weights(components)
    K = C.shape[0]
    length = np.sqrt(_totals(C))
    scale = np.divide(1.0, length, out=np.zeros(K), where=length > 0)
    found = np.empty((K, K))
    for first, sums in _sums(C.tocsc() if hasattr(C, "tocsc") else C, crew):
        last = min(K, first + len(sums))
        found[first:last] = np.minimum(sums[: last - first, :K] * scale[first:last, None] * scale, 1.0)
    return found


def _sums(columns: Any, crew: Crew) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """(first, S), block by block: S[i, j] = Σ_w √(c_(first + i)(w) c_j(w)), [·, K rounded up]."""
    K, V = columns.shape
    width = -(-K // _PAIR) * _PAIR
    rows = max(_PAIR, _SUMS // (8 * width) // _PAIR * _PAIR)
    half = rows >= width  # all of S fits: skip what is above the diagonal
    begun = False
    for first in range(0, width, rows):
        S = np.zeros((min(rows, width - first), width))
        bounds = first // PANEL + parts(len(S) // PANEL, 64, 1)
        for w in range(0, V, _DEPTH):
            P = _panels(columns[:, w : w + _DEPTH], width)
            order, weight = independent(len(bounds) - 1), np.diff(bounds**2 if half else bounds)
            step = make_step("alike", affinity_worker, order, weight, bounds, P, first // PANEL, half, S)
            crew.run(step, "exact", again=begun)
            begun = True
        yield first, np.tril(S) + np.tril(S, -1).T if half else S


def _panels(some: Any, width: int) -> NDArray[np.float64]:
    """[width / 16, words, 16] square roots of some columns of the components, zero after the last topic."""
    some = some.toarray() if hasattr(some, "toarray") else some
    roots = np.zeros((width, some.shape[1]))
    np.sqrt(some, out=roots[: len(some)], dtype=np.float64)  # in float64: roots of small integer types would be float16
    return np.ascontiguousarray(roots.reshape(width // PANEL, PANEL, -1).transpose(0, 2, 1))


def _best(values: Array, m: int) -> NDArray[np.int32]:
    """[rows, m] positions of the m largest of each row, largest first; ties by lower position."""
    found = np.empty((len(values), m), np.int32)
    if m == 0:
        return found
    edge = np.partition(values, values.shape[1] - m, axis=1)[:, values.shape[1] - m]
    for r, row in enumerate(values):
        above = np.flatnonzero(row > edge[r])
        level = np.flatnonzero(row == edge[r])[: m - len(above)]
        above = above[np.argsort(-row[above].astype(np.float64), kind="stable")]
        found[r, : len(above)], found[r, len(above) :] = above, level
    return found


def _weights(components: Any) -> Any:
    """Validate the components; return them as an array or CSR matrix [K, V]."""
    sparse = hasattr(components, "tocsr")
    C = components.tocsr() if sparse else np.asarray(components)
    if C.ndim != 2 or C.dtype.kind not in "iuf":
        raise DataError(f"components is {C.dtype} {list(C.shape)}; give numbers [topics, words]")
    values: Any = C.data if sparse else C
    # True if the minimum is negative or NaN, or the maximum is not finite.
    if values.size and not (values.min() >= 0 and values.max() < np.inf):
        raise DataError("components holds a negative number, infinity or NaN; weights of words are 0 or more")
    return C


def _totals(C: Any) -> NDArray[np.float64]:
    """[K] the sum of each row."""
    return np.asarray(C.sum(axis=1, dtype=np.float64)).reshape(-1)
