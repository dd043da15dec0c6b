"""Choose the records of each row that are held out: those with the largest keys.

Shapes: indptr [rows + 1] and position [n] int64, the records of each row; key [n] int64 of each record; counts [rows]
how many to hold out; held [n] bool.
"""

from __future__ import annotations

from stretto.kernels.core.claims import next_visit
from stretto.kernels.core.compile import kernel
from stretto.kernels.core.scratch import empty


@kernel(allocates=True)  # Numba's sort allocates
def hold_out_worker(pass_, worker, out, bounds, indptr, position, key, counts, held):
    """Set `held` for the counts[i] records of row i with the largest keys; of equal keys the later record is held out.

    out [V]: how many.
    """
    longest = 0
    for i in range(indptr.shape[0] - 1):
        longest = max(longest, indptr[i + 1] - indptr[i])
    keys = empty(longest, key.dtype)
    v = next_visit(pass_, worker)
    while v >= 0:
        found = 0.0
        for i in range(bounds[v], bounds[v + 1]):
            first, last, left = indptr[i], indptr[i + 1], counts[i]
            if left <= 0:
                continue
            for t in range(first, last):
                keys[t - first] = key[position[t]]
            keys[: last - first].sort()
            least = keys[last - first - left]
            for t in range(last - first - left, last - first):
                if keys[t] > least:
                    left -= 1  # what is left after these have the key `least`
            for t in range(last - 1, first - 1, -1):
                at = position[t]
                if key[at] > least:
                    held[at] = True
                    found += 1.0
                elif key[at] == least and left > 0:
                    held[at] = True
                    left -= 1
                    found += 1.0
        out[v] = found
        v = next_visit(pass_, worker, v)
