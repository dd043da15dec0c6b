"""Ranking metrics of every user in one pass over ranked lists and sparse held-out rows.

For user u, let L be the first k items of the list, and R the relevant items: those held out, without the items that the
user has in training. h(i) is the number of relevant items among the first i, d(i) = 1 / log₂(i + 1), and N the number
of items that may be ranked and are not relevant.

    precision     h(k) / k
    recall        h(k) / |R|
    ndcg          Σ_i g(L_i) d(i) / (the largest such sum), where g is 1 for a relevant item, or its gain
    map           Σ_i [L_i ∈ R] h(i) / i, divided by min(k, |R|)
    mrr           1 / place of the first relevant item; 0 without one
    hit_rate      1 if h(k) > 0, else 0
    auc           share of the pairs (relevant, other) in the right order, where the items after place k are in random
                  order; relevant items that are not among `items`, which cannot be ranked, are left out
    novelty       mean information of L, where the information of an item is −log₂ of its share of the users
    popularity_bias   mean information of R − mean information of L

Users without relevant items get NaN.

Shapes: users [m] rows of `wanted` and `seen`; found [m, n] item ids, best first, −1 for none; wanted_ptr, wanted, gains
(compressed rows, ascending and unique; gains of length 0 stand for 1); seen_ptr, seen (compressed rows, ascending; of
length 0 for nothing); information [items] float64 or length 0; places [P] ascending values of k; columns [P, 9] where
in a row of `values` a metric goes, −1 if nowhere; values [m, any] float64.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.claims import next_visit
from stretto.kernels.core.compile import inner, kernel
from stretto.kernels.core.scratch import empty
from stretto.kernels.numeric.scalar import log

MEASURES = ("precision", "recall", "ndcg", "map", "mrr", "hit_rate", "auc", "novelty", "popularity_bias")
_LN2 = 0.6931471805599453


@inner
def _put(values, t, column, value):
    if column >= 0:
        values[t, column] = value


@inner
def _position(items, count, item):
    """Where an item is among the first `count`, which ascend; −1 if it is not."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if items[middle] < item:
            low = middle + 1
        else:
            high = middle
    if low < count and items[low] == item:
        return low
    return -1


@inner
def _into_best(best, filled, gain):
    """Insert a gain into the largest ones, in descending order; return how many there are."""
    at = filled
    if at == best.shape[0]:
        at -= 1
        if gain <= best[at]:
            return filled
    while at > 0 and best[at - 1] < gain:
        best[at] = best[at - 1]
        at -= 1
    best[at] = gain
    return min(filled + 1, best.shape[0])


@inner
def _relevant(mine, gain, u, wanted_ptr, wanted, gains, seen_ptr, seen):
    """Copy the relevant items of a user and their gains; return how many there are."""
    count = 0
    at, end = np.int64(0), np.int64(0)
    if seen.shape[0] > 0:
        at, end = seen_ptr[u], seen_ptr[u + 1]
    for t in range(wanted_ptr[u], wanted_ptr[u + 1]):
        item = np.int64(wanted[t])
        while at < end and seen[at] < item:
            at += 1
        if at < end and seen[at] == item:
            continue
        mine[count] = item
        gain[count] = gains[t] if gains.shape[0] > 0 else 1.0
        count += 1
    return count


@inner
def _mean_information(information, mine, count):
    """Mean information of the relevant items; NaN if none is known."""
    total, known = 0.0, 0
    for t in range(count):
        if mine[t] < information.shape[0]:
            total += information[mine[t]]
            known += 1
    return total / known if known > 0 else np.nan


@kernel(allocates=True)
def measure_worker(
    pass_,
    worker,
    out,
    bounds,
    users,
    found,
    wanted_ptr,
    wanted,
    gains,
    seen_ptr,
    seen,
    items,
    information,
    places,
    columns,
    values,
):
    """Fill `values`. out [V]: users of a visit that have relevant items.

    items : how many there are, for auc
    """
    longest = 0
    for t in range(users.shape[0]):
        longest = max(longest, wanted_ptr[users[t] + 1] - wanted_ptr[users[t]])
    mine = empty(longest, np.int64)
    gain = empty(longest, np.float64)
    deepest = places[places.shape[0] - 1]
    best = empty(deepest, np.float64)
    discount = empty(deepest, np.float64)
    for i in range(deepest):
        discount[i] = _LN2 / log(i + 2.0)
    v = next_visit(pass_, worker)
    while v >= 0:
        measured = 0.0
        for t in range(bounds[v], bounds[v + 1]):
            u = users[t]
            count = _relevant(mine, gain, u, wanted_ptr, wanted, gains, seen_ptr, seen)
            if count == 0:
                for c in range(values.shape[1]):
                    values[t, c] = np.nan
                continue
            measured += 1.0
            filled = 0
            for j in range(count):
                filled = _into_best(best, filled, gain[j])
            known = count
            while known > 0 and mine[known - 1] >= items:
                known -= 1
            others = items - known - (seen_ptr[u + 1] - seen_ptr[u] if seen.shape[0] > 0 else 0)
            taste = _mean_information(information, mine, count)
            hits, misses, shown, first, p = 0, 0, 0, 0, 0
            area, gained, ideal, precisions, surprise = 0.0, 0.0, 0.0, 0.0, 0.0
            for i in range(deepest):
                item = np.int64(found[t, i]) if i < found.shape[1] else np.int64(-1)
                if i < filled:
                    ideal += best[i] * discount[i]
                if item >= 0:
                    shown += 1
                    if item < information.shape[0]:
                        surprise += information[item]
                    at = _position(mine, count, item)
                    if at >= 0:
                        hits += 1
                        gained += gain[at] * discount[i]
                        precisions += hits / (i + 1.0)
                        if first == 0:
                            first = i + 1
                    else:
                        misses += 1
                        area += hits
                k = i + 1
                if k == places[p]:
                    rest = max(0, others - misses)
                    pairs = np.float64(known) * (misses + rest)
                    order = (area + 0.5 * (hits + known) * rest) / pairs if pairs > 0.0 else np.nan
                    novelty = surprise / shown if shown > 0 else np.nan
                    _put(values, t, columns[p, 0], hits / np.float64(k))
                    _put(values, t, columns[p, 1], hits / np.float64(count))
                    _put(values, t, columns[p, 2], gained / ideal if ideal > 0.0 else 0.0)
                    _put(values, t, columns[p, 3], precisions / min(k, count))
                    _put(values, t, columns[p, 4], 1.0 / first if first > 0 else 0.0)
                    _put(values, t, columns[p, 5], 1.0 if hits > 0 else 0.0)
                    _put(values, t, columns[p, 6], order)
                    _put(values, t, columns[p, 7], novelty)
                    _put(values, t, columns[p, 8], taste - novelty)
                    p += 1
        out[v] = measured
        v = next_visit(pass_, worker, v)


@kernel
def fill_information(counts, users, information):
    """information[i] = −log₂((counts[i] + 1) / (users + 1)), where counts [items] are users that have item i."""
    whole = log(users + 1.0)
    for i in range(counts.shape[0]):
        information[i] = (whole - log(counts[i] + 1.0)) / _LN2
