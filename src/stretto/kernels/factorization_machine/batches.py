"""Mini-batches laid out twice: by samples for predictions, and by features for gradients.

The samples of a batch are numbered from 0. By samples, a batch is a range of rows of a CSR matrix whose rows are
already in the order of the batches. By features, it lists every feature that occurs in it, in the order of first
occurrence, and the entries of each: `entry_row`, the sample's number, and `entry_value`.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.claims import next_visit
from stretto.kernels.core.compile import kernel
from stretto.kernels.numeric.vector import get, put

LARGEST = 1e9  # whose squares, and sums of them, are far from the largest float32


@kernel
def gather_worker(pass_, worker, out, bounds, order, indptr, indices, values, factor, starts, columns, numbers):
    """Rows order[bounds[v]] … of a CSR matrix, one after another: row r at starts[r] … starts[r + 1].

    factor [p]: multiplies the values of a column; larger products than LARGEST are set to it.
    """
    visit = next_visit(pass_, worker)
    while visit >= 0:
        for r in range(bounds[visit], bounds[visit + 1]):
            at = starts[r]
            for e in range(indptr[order[r]], indptr[order[r] + 1]):
                j = np.int64(get(indices, e))
                put(columns, at, np.int32(j))
                x = np.float64(get(values, e)) * get(factor, j)
                put(numbers, at, np.float32(min(max(x, -LARGEST), LARGEST)))
                at += 1
        out[visit] = 0.0
        visit = next_visit(pass_, worker, visit)


@kernel
def count_worker(pass_, worker, out, bounds, batches, starts, columns, mark, found):
    """found[b] = features that occur in batch b, for the batches bounds[v] … bounds[v + 1].

    batches [B + 1]: first row of each batch; mark [V, p] int32: −1 everywhere before and after.
    """
    visit = next_visit(pass_, worker)
    while visit >= 0:
        for b in range(bounds[visit], bounds[visit + 1]):
            first, last, many = starts[batches[b]], starts[batches[b + 1]], 0
            for e in range(first, last):
                j = np.int64(get(columns, e))
                if mark[visit, j] < 0:
                    mark[visit, j] = 0
                    many += 1
            for e in range(first, last):
                mark[visit, np.int64(get(columns, e))] = -1
            found[b] = many
        out[visit] = 0.0
        visit = next_visit(pass_, worker, visit)


@kernel
def turn_worker(
    pass_, worker, out, bounds, batches, starts, columns, numbers, first_feature, features, entries, entry_row,
    entry_value, mark,
):  # fmt: skip
    """The entries of each batch by features; see the module.

    Feature t of the list, of batch b for first_feature[b] ≤ t < first_feature[b + 1], has the entries entries[t] …
    entries[t + 1]. mark: as for `count_worker`.
    """
    visit = next_visit(pass_, worker)
    while visit >= 0:
        for b in range(bounds[visit], bounds[visit + 1]):
            first, last, begin, many = starts[batches[b]], starts[batches[b + 1]], first_feature[b], 0
            for e in range(first, last):  # entries[t + 1] counts the entries of feature t
                j = np.int64(get(columns, e))
                if mark[visit, j] < 0:
                    mark[visit, j] = many
                    features[begin + many] = j
                    entries[begin + many + 1] = 0
                    many += 1
                entries[begin + mark[visit, j] + 1] += 1
            at = first
            for t in range(begin, begin + many):  # entries[t + 1] is the first entry of feature t
                size = entries[t + 1]
                entries[t + 1] = at
                at += size
                mark[visit, features[t]] = t - begin
            for r in range(batches[b], batches[b + 1]):
                for e in range(starts[r], starts[r + 1]):
                    t = begin + mark[visit, np.int64(get(columns, e))]
                    to = entries[t + 1]
                    put(entry_row, to, np.int32(r - batches[b]))
                    put(entry_value, to, get(numbers, e))
                    entries[t + 1] = to + 1
            for t in range(begin, begin + many):
                mark[visit, features[t]] = -1
        out[visit] = 0.0
        visit = next_visit(pass_, worker, visit)
