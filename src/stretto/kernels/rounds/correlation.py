"""Selection of columns that may be updated together: all their correlations are below a threshold.

Two sparse columns of up to `SHORT` entries are compared exactly. Longer ones are stored densely on a fixed sample of
the rows, with no more numbers than they have entries, and compared there; dense columns likewise. For a short and a
long column, entries of the short one are searched for in the long one: as many as keep the error well below the
threshold. If no column is longer than SHORT, and for dense columns with no more rows than the sample, everything is
exact. A constant column has norm 0 and conflicts with no other.

There are two algorithms. Columns that move are candidates often: the result for a pair of them is kept as a bit
(`pair_verdicts`), and a candidate is compared with all taken columns at once, 64 to a word; the bits change no result.
For columns that are candidates rarely nothing is kept. Short ones are compared through the rows they share: each row
has a list of the entries of the columns already taken, so a candidate meets only the entries it shares with them. For a
long one a bound is tried first,

    |a·b| ≤ min(√entries(a) · ‖a‖ · size(b), √entries(b) · ‖b‖ · size(a))

which decides most pairs of a rare and a frequent feature. size is the largest entry; where columns are sampled anyway
it is the size of a typical entry.

p columns, n rows, S sampled rows, Q schedulers (each has its own lists and bits).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from stretto.kernels.core.compile import inner, kernel, merged
from stretto.kernels.numeric import vector

# Slots of `CorrelationTable.facts`.
MODE, ROWS, SAMPLED = range(3)
FACTS = 3
SHORT = 512  # entries of a short column at most
FREE, CHECKED = 0, 1  # modes: no conflicts at all; correlations are checked
# Entries of a short column searched for in a long one: enough that the standard error is at most half the threshold.
_LEAST_LOOKS, _LOOKS = 4, 1.0
_AHEAD = 6  # prefetch distance, in candidates


# Columns of `CorrelationTable.facts_of`: 1 / norm, of the centred column if the program has an intercept (0 for a
# constant column); √n · mean / norm, 0 where columns are not centred; √entries · (uncentred norm) / norm; size of an
# entry / norm; the first two on the sample; where a long column begins in the sample, or −1; entries.
INVERSE, SHIFT, SPREAD, PEAK, S_INVERSE, S_SHIFT, S_PLACE, LENGTH = range(8)
FACTS_OF = 8


class CorrelationTable(NamedTuple):
    """The data that correlations are computed from. Dense: `values` by columns, `indices` is empty."""

    facts: Any  # [3] int64: see the slots above
    values: Any  # [entries]
    indices: Any  # [entries] int32
    indptr: Any  # [p + 1] int64
    facts_of: Any  # [p, 8] statistics of each column in one cache line; see the columns above
    sampled: Any  # [L · S] the long columns on the sampled rows; dense and exact: `values`
    filled: Any  # [Q, n / 64] uint64: a bit for each row whose list is not empty; small enough to stay in the cache
    head: Any  # [Q, n] int32: the first node of such a list
    link: Any  # [Q, nodes] int32: the next node, or −1
    owner: Any  # [Q, nodes] int32: index of the taken column
    entry: Any  # [Q, nodes] the value of the entry
    dots: Any  # [Q, width] products with a candidate; zero between two candidates
    met: Any  # [Q, nodes] int32: taken columns that a candidate shares rows with


@inner
def _between_short_and_long(values, indices, indptr, rows, a, b, looks):
    """Estimate a·b from about `looks` evenly spaced entries of a, searched for in b."""
    dot = 0.0
    begin, end = indptr[b], indptr[b + 1]
    low = begin
    size = indptr[a + 1] - indptr[a]
    step = max(1, size // looks)
    for e in range(indptr[a], indptr[a + 1], step):
        row = indices[e]
        # Rows are spread about evenly: start at the expected position, then search with growing steps.
        at = max(low, begin + np.int64(row) * (end - begin) // rows)
        stride = 8
        if at < end and indices[at] < row:
            low, high = at + 1, at + stride
            while high < end and indices[high] < row:
                low, stride = high + 1, 2 * stride
                high += stride
            high = min(high, end)
        else:
            high = min(at, end)
            at = high - stride
            while at > low and indices[at] >= row:
                high, stride = at, 2 * stride
                at -= stride
            low = max(low, at)
        while low < high:
            middle = (low + high) // 2
            if indices[middle] < row:
                low = middle + 1
            else:
                high = middle
        if low == end:
            break
        if indices[low] == row:
            dot += np.float64(values[e]) * np.float64(values[low])
    return dot * (size / ((size + step - 1) // step))


@inner
def _between_dense(values, rows, left, right):
    """Return the product of two runs of `rows` numbers, in sixteen lanes."""
    kind = np.float64(0.0)
    total = vector.splat(kind)
    whole = rows - rows % 16
    for at in range(0, whole, 16):
        x = vector.cast(vector.load(values, left + at), kind)
        total = vector.fma(x, vector.cast(vector.load(values, right + at), kind), total)
    dot = vector.total(total)
    for at in range(whole, rows):
        dot += np.float64(values[left + at]) * np.float64(values[right + at])
    return dot


@merged
def correlation_of(table, a, b, threshold):
    """Return the correlation of columns a and b as float32, from a sample if one is long; see above."""
    indptr, of = table.indptr, table.facts_of
    if min(of[a, S_PLACE], of[b, S_PLACE]) < 0.0:
        few, many = (a, b) if indptr[a + 1] - indptr[a] <= indptr[b + 1] - indptr[b] else (b, a)
        looks = size = indptr[few + 1] - indptr[few]
        if of[many, S_PLACE] >= 0.0:
            wanted = _LOOKS / (threshold * threshold) * size / (indptr[many + 1] - indptr[many])
            looks = min(size, max(_LEAST_LOOKS, np.int64(wanted)))
        dot = _between_short_and_long(table.values, table.indices, indptr, table.facts[ROWS], few, many, max(1, looks))
        return np.float32(dot * (of[a, INVERSE] * of[b, INVERSE]) - of[a, SHIFT] * of[b, SHIFT])
    left, right = np.int64(of[a, S_PLACE]), np.int64(of[b, S_PLACE])
    dot = _between_dense(table.sampled, table.facts[SAMPLED], left, right)
    return np.float32(dot * (of[a, S_INVERSE] * of[b, S_INVERSE]) - of[a, S_SHIFT] * of[b, S_SHIFT])


@merged
def _near(of, a, b):
    """Return an upper bound of the correlation of two columns."""
    most = min(of[a, SPREAD] * of[b, PEAK], of[b, SPREAD] * of[a, PEAK])
    return most + abs(of[a, SHIFT] * of[b, SHIFT])


@merged
def too_close(table, a, b, threshold):
    """Whether two columns may not be updated together."""
    if table.facts[MODE] != CHECKED or _near(table.facts_of, a, b) < threshold:
        return False
    return abs(correlation_of(table, min(a, b), max(a, b), threshold)) >= np.float32(threshold)


@merged
def independent(table, q, queues, threshold, width, count, candidates, chosen, taken):
    """Take the candidates [count] in order, each if it is independent of all taken before; at most `width`.

    Candidates are numbered within scheduler q: column number · queues + q. taken [Q, ≥ count]: 1 where taken; chosen
    [Q, ≥ width]: the columns.
    """
    checked = table.facts[MODE] == CHECKED
    values, indices, indptr, of = table.values, table.indices, table.indptr, table.facts_of
    filled, head, link, owner, entry = table.filled, table.head, table.link, table.owner, table.entry
    dots, met = table.dots, table.met
    limit = np.float32(threshold)
    kept, nodes = 0, 0
    # The largest values among the taken columns, and the largest shift of a short one.
    most_spread, most_peak, most_shift, most_short = 0.0, 0.0, 0.0, 0.0
    for word in range(filled.shape[1]):
        filled[q, word] = 0
    for i in range(count):
        taken[q, i] = 0
        if checked:
            j = candidates[q, i] * queues + q
            vector.ahead(of, j * of.shape[1])
            vector.ahead(indptr, j)
    for i in range(count):
        if kept >= width:
            break
        if checked and i + _AHEAD < count:  # prefetch: memory latency would dominate
            j = candidates[q, i + _AHEAD] * queues + q
            if of[j, LENGTH] <= SHORT:
                vector.ahead(indices, indptr[j])
                vector.ahead(values, indptr[j])
        j = candidates[q, i] * queues + q
        fits, first = True, nodes
        if checked and of[j, INVERSE] > 0.0:
            slope = abs(of[j, SHIFT])
            if of[j, LENGTH] <= SHORT:
                n_met = 0
                for e in range(indptr[j], indptr[j + 1]):  # most are taken: add its entries to the lists at once
                    row, x = np.int64(vector.get(indices, e)), np.float64(vector.get(values, e))
                    bit, at = np.uint64(1) << np.uint64(row & 63), -1
                    if filled[q, row >> 6] & bit:
                        at = head[q, row]
                    else:
                        filled[q, row >> 6] |= bit
                    link[q, nodes], owner[q, nodes], entry[q, nodes] = at, kept, x
                    head[q, row] = nodes
                    nodes += 1
                    while at >= 0:
                        k = owner[q, at]
                        if dots[q, k] == 0.0:
                            met[q, n_met] = k
                            n_met += 1
                        dots[q, k] += x * entry[q, at]
                        at = link[q, at]
                if slope * most_short >= threshold:
                    n_met = 0  # columns without common rows may conflict too: check all
                    for k in range(kept):
                        if of[chosen[q, k], LENGTH] <= SHORT:
                            met[q, n_met] = k
                            n_met += 1
                for m in range(n_met):
                    k = met[q, m]
                    other = chosen[q, k]
                    both = of[j, INVERSE] * of[other, INVERSE]
                    if abs(np.float32(dots[q, k] * both - of[j, SHIFT] * of[other, SHIFT])) >= limit:
                        fits = False
                    dots[q, k] = 0.0
            near = min(of[j, SPREAD] * most_peak, most_spread * of[j, PEAK]) + slope * most_shift
            if fits and near >= threshold:
                for k in range(kept):
                    other = chosen[q, k]
                    if max(of[j, LENGTH], of[other, LENGTH]) > SHORT and too_close(table, j, other, threshold):
                        fits = False
                        break
        if not fits:
            for node in range(first, nodes):  # remove them from the lists
                row = np.int64(indices[indptr[j] + node - first])
                if link[q, node] >= 0:
                    head[q, row] = link[q, node]
                else:
                    filled[q, row >> 6] &= ~(np.uint64(1) << np.uint64(row & 63))
            nodes = first
            continue
        taken[q, i] = 1
        chosen[q, kept] = j
        kept += 1
        if checked:
            most_shift = max(most_shift, abs(of[j, SHIFT]))
            most_peak = max(most_peak, of[j, PEAK])
            most_spread = max(most_spread, of[j, SPREAD])
            if of[j, LENGTH] <= SHORT:
                most_short = max(most_short, abs(of[j, SHIFT]))


@kernel
def correlations(table, columns, threshold, out):
    """out[i, k]: the correlation of columns[i] and columns[k]; 1 on the diagonal."""
    for i in range(columns.shape[0]):
        out[i, i] = 1.0
        for k in range(i):
            a, b = min(columns[i], columns[k]), max(columns[i], columns[k])
            out[i, k] = out[k, i] = correlation_of(table, a, b, threshold)


@merged
def independent_by(conflicts, threshold, width, before, count, taken, q):
    """`independent` from a matrix of conflicts, whose first `before` rows are jobs in progress; return how many."""
    kept = 0
    for i in range(count):
        fits = kept < width
        for k in range(before + i):
            if fits and (k < before or taken[q, k - before] != 0) and abs(conflicts[before + i, k]) >= threshold:
                fits = False
        taken[q, i] = 1 if fits else 0
        kept += taken[q, i]
    return kept
