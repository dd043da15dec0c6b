"""Product of a sparse matrix of features, or of its transpose, with a dense one."""

from __future__ import annotations

from stretto.kernels.core.claims import next_visit
from stretto.kernels.core.compile import kernel


@kernel
def product_worker(pass_, worker, out, bounds, indptr, indices, values, dense, result):
    """result [m, q] = X dense, for X [m, p] as indptr [m + 1], indices, values [n] and dense [p, q], all float64.

    bounds [V + 1]: rows of each visit. Each row is summed in the order of its entries. out is not used.
    """
    q = dense.shape[1]
    v = next_visit(pass_, worker)
    while v >= 0:
        for i in range(bounds[v], bounds[v + 1]):
            for k in range(q):
                result[i, k] = 0.0
            for t in range(indptr[i], indptr[i + 1]):
                j, value = indices[t], values[t]
                for k in range(q):
                    result[i, k] += value * dense[j, k]
        v = next_visit(pass_, worker, v)
