"""Conjugate gradients for the normal equations of weighted sparse columns, one pass over the rows per iteration.

Solves (XᵀDX + ridge) way = slack, X [n, k] centred by `mean`, D = diag(d). Each row is multiplied with the step and
adds its part of the result while it is in the cache, so each iteration reads the entries once.
"""

from __future__ import annotations

from stretto.kernels.core.compile import inner, kernel


@inner
def _apply(start, whose, value, d, mean, ridge, step, out, back):
    """out [n] = X step; back [k] = (XᵀDX + ridge) step; returns step · back."""
    k, n = step.shape[0], out.shape[0]
    shift = 0.0
    for j in range(k):
        shift += step[j] * mean[j]
        back[j] = ridge[j] * step[j]
    mass = 0.0
    for i in range(n):
        z = -shift
        for t in range(start[i], start[i + 1]):
            z += value[t] * step[whose[t]]
        out[i] = z
        u = d[i] * z
        mass += u
        for t in range(start[i], start[i + 1]):
            back[whose[t]] += value[t] * u
    bend = 0.0
    for j in range(k):
        back[j] -= mean[j] * mass
        bend += step[j] * back[j]
    return bend


@inner
def _small(left, unit, most, largest):
    """Whether the residual sums to at most `most` units, or is at most `largest` units everywhere."""
    total, top = 0.0, 0.0
    for j in range(left.shape[0]):
        size = abs(left[j]) / unit[j]
        total += size
        top = max(top, size)
    return total <= most or top <= largest


@kernel
def conjugate(
    start, whose, value, d, mean, ridge, curve, unit, most, largest, iterations, way, left, step, back, product, out
):  # fmt: skip
    """Solve for way [k] and product = X way [n], both zero on entry; return the number of iterations.

    start [n + 1], whose, value: the entries by rows, whose [·] are columns in 0 … k − 1; curve [k]: the diagonal of the
    matrix; left [k]: slack on entry, the residual on return; step, back [k] and out [n]: scratch.
    """
    k, n = left.shape[0], d.shape[0]
    size = 0.0
    for j in range(k):
        step[j] = left[j] / curve[j]
        size += left[j] * step[j]
    first = size
    for made in range(iterations):
        bend = _apply(start, whose, value, d, mean, ridge, step, out, back)
        if not bend > 0.0:
            return made + 1
        t = size / bend
        for i in range(n):
            product[i] += t * out[i]
        now = 0.0
        for j in range(k):
            way[j] += t * step[j]
            left[j] -= t * back[j]
            now += left[j] * left[j] / curve[j]
        if now <= 1e-16 * first or _small(left, unit, most, largest):
            return made + 1
        for j in range(k):
            step[j] = left[j] / curve[j] + now / size * step[j]
        size = now
    return iterations
