"""Anderson extrapolation: from the last iterates of a descent to a point near their limit.

history [m + 1, size]: iterates, the oldest first. The point is Σ c_i history[i + 1] with Σ c_i = 1, where Σ c_i
(history[i + 1] − history[i]) is as short as possible. What is linear in the iterates takes the same c.
"""

from __future__ import annotations

from stretto.kernels.core.compile import inner, kernel

_RIDGE = 1e-12  # relative: differences become parallel near the limit
MOST = 5  # differences that one extrapolation takes


@inner(apart=True)
def weigh_differences(history, square, c):
    """Fill c [m]; False if the differences give none. square [m, m]: scratch."""
    m, size = c.shape[0], history.shape[1]
    trace = 0.0
    for a in range(m):
        for b in range(a + 1):
            product = 0.0
            for i in range(size):
                product += (history[a + 1, i] - history[a, i]) * (history[b + 1, i] - history[b, i])
            square[a, b] = square[b, a] = product
        trace += square[a, a]
    if not trace > 0.0:
        return False
    for a in range(m):
        square[a, a] += _RIDGE * trace
        c[a] = 1.0
    # The matrix is positive definite, so elimination needs no pivots.
    for a in range(m):
        if not square[a, a] > 0.0:
            return False
        for b in range(a + 1, m):
            factor = square[b, a] / square[a, a]
            for i in range(a, m):
                square[b, i] -= factor * square[a, i]
            c[b] -= factor * c[a]
    whole = 0.0
    for a in range(m - 1, -1, -1):
        for b in range(a + 1, m):
            c[a] -= square[a, b] * c[b]
        c[a] /= square[a, a]
        whole += c[a]
    if not abs(whole) > 0.0:
        return False
    for a in range(m):
        c[a] /= whole
    return True


@inner
def combine(history, c, out):
    """out [size] = Σ c_i history[i + 1]."""
    out[:] = 0.0
    for a in range(c.shape[0]):
        for i in range(out.shape[0]):
            out[i] += c[a] * history[a + 1, i]


@kernel
def extrapolate(history, follow, square, c, point, followed):
    """Extrapolate both histories with the weights of the first: point [size], followed; whether there is a point."""
    if not weigh_differences(history, square, c):
        return False
    combine(history, c, point)
    combine(follow, c, followed)
    return True
