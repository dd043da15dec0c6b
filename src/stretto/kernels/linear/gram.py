"""Gram matrix of a working set's columns: G[a, b] = Σ_i d_i (x_ia − m_a)(x_ib − m_b).

Columns are assigned to *slots*. G [slots, slots] is kept; only products of new columns with all others are computed.

Dense columns, and sparse ones that are not very sparse, are packed sixteen to a panel, P [panels, n, 16] with
√d_i (x − m) in it, and multiplied tile by tile: a visit computes sixteen rows of G. Up to sixteen dense columns are not
packed. For very sparse columns only common
rows count: the entries are also stored by rows, and each entry of a column adds its row to one row of G. The means are
subtracted at the end: Σ d x_a x_b − D·m_a m_b, D = Σ d.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.claims import next_visit
from stretto.kernels.core.compile import inner, kernel
from stretto.kernels.core.scratch import empty
from stretto.kernels.numeric.tile64 import add_tile
from stretto.kernels.numeric.vector import add, cast, fma, get, load, load_part, mul, put, splat, total

PANEL = 16
ROWS = 512  # rows of sparse data processed together
FEW = 16  # dense columns up to which products are computed one by one: a panel would be mostly padding
_TOGETHER = 1024  # rows of which all such products are computed: their columns stay in the L1 cache
_ZERO = np.float64(0.0)
DEPTH = 512  # rows of dense data processed together: two panels of them fit in the L2 cache


@kernel
def pack_worker(pass_, worker, out, bounds, XT, column, mean, root, P):
    """Fill the panels bounds[v] … bounds[v + 1].

    XT [p, n]: columns of X as rows; column [slots] int64, −1 where a slot is empty; mean [p], root [n] = √d.
    """
    n = XT.shape[1]
    v = next_visit(pass_, worker)
    while v >= 0:
        for panel in range(bounds[v], bounds[v + 1]):
            # A few rows of all sixteen columns at a time, so that every cache line of P is written once.
            for first in range(0, n, 64):
                last = min(first + 64, n)
                for c in range(PANEL):
                    j = column[panel * PANEL + c]
                    if j < 0:
                        for i in range(first, last):
                            P[panel, i, c] = 0.0
                    else:
                        m = mean[j]
                        for i in range(first, last):
                            P[panel, i, c] = root[i] * (np.float64(XT[j, i]) - m)
        v = next_visit(pass_, worker, v)


@kernel(allocates=True)
def pack_sparse_worker(pass_, worker, out, bounds, indptr, indices, values, column, mean, root, P):
    """`pack_worker` for sparse columns that are dense enough to be packed."""
    n = P.shape[1]
    reached = empty(PANEL, np.int64)
    v = next_visit(pass_, worker)
    while v >= 0:
        for panel in range(bounds[v], bounds[v + 1]):
            for c in range(PANEL):
                reached[c] = indptr[max(0, column[panel * PANEL + c])]
            for first in range(0, n, 64):
                last = min(first + 64, n)
                for c in range(PANEL):
                    j = column[panel * PANEL + c]
                    m = mean[j] if j >= 0 else 0.0
                    for i in range(first, last):
                        P[panel, i, c] = -root[i] * m
                    t = reached[c]
                    while j >= 0 and t < indptr[j + 1] and indices[t] < last:
                        i = indices[t]
                        P[panel, i, c] = root[i] * (np.float64(values[t]) - m)
                        t += 1
                    reached[c] = t
        v = next_visit(pass_, worker, v)


@kernel
def dense_worker(pass_, worker, out, bounds, P, G):
    """Compute in visit v sixteen rows of G for each of the panels bounds[v] … bounds[v + 1].

    Against all columns up to their own, and the mirror image.
    """
    n, slots = P.shape[1], G.shape[1]
    size = n * PANEL
    v = next_visit(pass_, worker)
    while v >= 0:
        for panel in range(bounds[v], bounds[v + 1]):
            top = PANEL * panel
            for left in range(0, top + PANEL, 2 * PANEL):
                for r in range(top, top + PANEL):
                    for c in range(left, left + 2 * PANEL):
                        G[r, c] = 0.0
                other = left * n
                for first in range(0, n, DEPTH):
                    depth = min(DEPTH, n - first)
                    at = first * PANEL
                    for r in range(0, PANEL, 4):
                        add_tile(
                            G, (top + r) * slots + left, slots, 1.0, P, panel * size + at + r, PANEL,
                            P, other + at, other + size + at, PANEL, depth,
                        )  # fmt: skip
                if left + 2 * PANEL <= top:
                    for c in range(left, left + 2 * PANEL):
                        for r in range(top, top + PANEL):
                            G[c, r] = G[r, c]
        v = next_visit(pass_, worker, v)


@inner
def _product(XT, a, mean_a, b, mean_b, d, first, last):
    """Σ d_i (x_ia − mean_a)(x_ib − mean_b) over the rows first … last − 1."""
    n = d.shape[0]
    a, b = a * n, b * n
    s0, s1 = splat(0.0), splat(0.0)
    away_a, away_b = splat(-mean_a), splat(-mean_b)
    i = first
    while i + 32 <= last:
        x0, x1 = add(cast(load(XT, a + i), _ZERO), away_a), add(cast(load(XT, a + i + 16), _ZERO), away_a)
        y0, y1 = add(cast(load(XT, b + i), _ZERO), away_b), add(cast(load(XT, b + i + 16), _ZERO), away_b)
        s0 = fma(mul(x0, load(d, i)), y0, s0)
        s1 = fma(mul(x1, load(d, i + 16)), y1, s1)
        i += 32
    while i < last:
        rest = min(16, last - i)
        x0 = add(cast(load_part(XT, a + i, rest), _ZERO), away_a)
        y0 = add(cast(load_part(XT, b + i, rest), _ZERO), away_b)
        s0 = fma(mul(x0, load_part(d, i, rest)), y0, s0)
        i += 16
    return total(add(s0, s1))


@kernel
def few_worker(pass_, worker, out, bounds, XT, column, used, mean, d, parts):
    """Products of a few dense columns over the rows bounds[v] … bounds[v + 1], in parts[v].

    column [k] int64; parts [V, k, k]: zeros; filled for rows `used` … k − 1 of it, up to the diagonal.
    """
    v = next_visit(pass_, worker)
    while v >= 0:
        for first in range(bounds[v], bounds[v + 1], _TOGETHER):
            last = min(first + _TOGETHER, bounds[v + 1])
            for r in range(used, column.shape[0]):
                a = column[r]
                for c in range(r + 1):
                    b = column[c]
                    parts[v, r, c] += _product(XT, a, mean[a], b, mean[b], d, first, last)
        v = next_visit(pass_, worker, v)


@kernel
def by_rows(indptr, indices, values, column, count, name, start, whose, value):
    """Store the entries of column[0] … column[count − 1] by rows, in each row in that order.

    start [n + 1], whose and value [entries]; an entry of column[s] has the label name[s].
    """
    n = start.shape[0] - 1
    start[:] = 0
    for s in range(count):
        j = column[s]
        for t in range(indptr[j], indptr[j + 1]):
            start[indices[t] + 1] += 1
    for i in range(n):
        start[i + 1] += start[i]
    for s in range(count):
        j = column[s]
        for t in range(indptr[j], indptr[j + 1]):
            at = start[indices[t]]
            whose[at] = name[s]
            value[at] = values[t]
            start[indices[t]] = at + 1
    for i in range(n, 0, -1):
        start[i] = start[i - 1]
    start[0] = 0


@kernel(allocates=True)
def sparse_worker(
    pass_, worker, out, bounds, indptr, indices, values, column, place, sorted_, weight, total, mean, start, whose,
    value, G
):  # fmt: skip
    """Compute in visit v the rows bounds[v] … bounds[v + 1] of G, against all slots up to their own, and mirror them.

    weight [n] = d; total = D, or 0 where no means are subtracted; mean [p]. sorted_: `whose` are slots, ascending
    within a row; else they are columns, and place [p] holds the slot of a column, −1 for none.
    """
    n, slots = weight.shape[0], G.shape[1]
    v = next_visit(pass_, worker)
    while v >= 0:
        first, last = bounds[v], bounds[v + 1]
        reached = empty(last - first, np.int64)
        for a in range(first, last):
            reached[a - first] = indptr[column[a]]
            for b in range(a + 1):
                G[a, b] = 0.0
        # A block of rows at a time for all columns of the visit, so that those rows stay in the cache.
        for edge in range(ROWS, n + ROWS, ROWS):
            for a in range(first, last):
                t, stop, base = reached[a - first], indptr[column[a] + 1], a * slots
                while t < stop:
                    i = np.int64(indices[t])
                    if i >= edge:
                        break
                    x = weight[i] * np.float64(values[t])
                    if sorted_:
                        for u in range(start[i], start[i + 1]):
                            b = np.int64(get(whose, u))
                            if b > a:
                                break
                            put(G, base + b, get(G, base + b) + x * get(value, u))
                    else:
                        for u in range(start[i], start[i + 1]):
                            b = get(place, np.int64(get(whose, u)))
                            if 0 <= b <= a:
                                put(G, base + b, get(G, base + b) + x * get(value, u))
                    t += 1
                reached[a - first] = t
        for a in range(first, last):
            away = total * mean[column[a]]
            for b in range(a + 1):
                G[a, b] -= away * mean[column[b]]
                G[b, a] = G[a, b]
        v = next_visit(pass_, worker, v)
