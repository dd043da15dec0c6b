"""Minimise ½ bᵀH b − qᵀb + Σ l1_j|b_j| with few coordinates, in one thread.

Sweeps of coordinate descent find the support. Where a sweep changes no sign, a Cholesky factor of H on the support
gives the minimum on it. A step towards that minimum ends at the first coordinate that becomes zero, so that the
objective never grows.

In softmax regression a constant added to all classes of a feature changes no probability, and H is singular along it.
Without an L2 penalty, the constant that lowers the L1 penalty most is added before a factor; one class becomes zero.

All inner loops add one row to another, and vectorise without changing the order of a sum.
"""

from __future__ import annotations

from stretto.kernels.core.compile import inner
from stretto.kernels.linear.quadratic import soft
from stretto.kernels.newton.softmax_descent import cheapest_shift
from stretto.kernels.numeric.vector import fma, load, load_part, splat, store, store_part

_TOGETHER = 4  # pivots whose updates of the other rows are made in one pass
_LOST = 1e-13  # share of its diagonal below which a pivot is rounding error
_SWEEPS, _FACTORS = 60, 16  # at most
_FIRST, _REGULARLY = 2, 8  # sweeps before the first factor, and before one although signs change


@inner(apart=True)
def _solve(U, count, inverse, s):
    """Solve U s = s in place; U [count, ·]: upper triangle, becomes its factor. A lost pivot's unknown is 0."""
    for k in range(count):
        inverse[k] = U[k, k]
    for first in range(0, count, _TOGETHER):
        last = min(first + _TOGETHER, count)
        for k in range(first, last):
            pivot = U[k, k]
            if not pivot > _LOST * inverse[k]:
                inverse[k] = 0.0
                s[k] = 0.0
                continue
            inverse[k] = 1.0 / pivot
            row = U[k]
            for i in range(k + 1, last):
                x = row[i] * inverse[k]
                below = U[i]
                for c in range(i, count):
                    below[c] -= x * row[c]
            x = s[k] * inverse[k]
            for c in range(k + 1, count):
                s[c] -= x * row[c]
        if last == count:
            break
        # All other rows: four updates while a row is in a register, in the order of the pivots.
        width = U.shape[1]
        r0, r1, r2, r3 = first * width, (first + 1) * width, (first + 2) * width, (first + 3) * width
        for i in range(last, count):
            x0, x1 = splat(-U[first, i] * inverse[first]), splat(-U[first + 1, i] * inverse[first + 1])
            x2, x3 = splat(-U[first + 2, i] * inverse[first + 2]), splat(-U[first + 3, i] * inverse[first + 3])
            below, c = i * width, i
            while c + 16 <= count:
                x = fma(x1, load(U, r1 + c), fma(x0, load(U, r0 + c), load(U, below + c)))
                store(U, below + c, fma(x3, load(U, r3 + c), fma(x2, load(U, r2 + c), x)))
                c += 16
            if c < count:
                rest = count - c
                x = fma(x0, load_part(U, r0 + c, rest), load_part(U, below + c, rest))
                x = fma(x2, load_part(U, r2 + c, rest), fma(x1, load_part(U, r1 + c, rest), x))
                store_part(U, below + c, rest, fma(x3, load_part(U, r3 + c, rest), x))
    for k in range(count - 1, -1, -1):
        row = U[k]
        rest = s[k]
        for c in range(k + 1, count):
            rest -= row[c] * s[c]
        s[k] = rest * inverse[k]


@inner
def _add_row(H, j, x, k, h):
    """h += x · H[j]."""
    at, by, c = j * H.shape[1], splat(x), 0
    while c + 16 <= k:
        store(h, c, fma(by, load(H, at + c), load(h, c)))
        c += 16
    if c < k:
        store_part(h, c, k - c, fma(by, load_part(H, at + c, k - c), load_part(h, c, k - c)))


@inner(apart=True)
def _multiply(H, k, b, h):
    """h = H b."""
    for c in range(k):
        h[c] = 0.0
    for j in range(k):
        if b[j] != 0.0:
            _add_row(H, j, b[j], k, h)


@inner(apart=True)
def _straight(H, q, l1, k, b, h, U, inverse, s, which):
    """Step to the minimum on the support of b, or to the first coordinate that becomes zero: return whether one did.

    The support is all coordinates where l1 is 0.
    """
    count = 0
    for j in range(k):
        if H[j, j] > 0.0 and (b[j] != 0.0 or l1[j] == 0.0):
            which[count] = j
            s[count] = q[j] - h[j] - (l1[j] if b[j] > 0.0 else -l1[j])
            count += 1
    for r in range(count):
        row, to = H[which[r]], U[r]
        for c in range(r, count):
            to[c] = row[which[c]]
    _solve(U, count, inverse, s)
    t, first = 1.0, -1
    for r in range(count):
        j = which[r]
        if l1[j] > 0.0 and b[j] * (b[j] + t * s[r]) < 0.0:
            t, first = -b[j] / s[r], j
    for r in range(count):
        b[which[r]] += t * s[r]
    if first >= 0:
        b[first] = 0.0
    _multiply(H, k, b, h)
    return first >= 0


@inner(apart=True)
def _shift(l1, k, b, column, classes, order):
    """Add to all classes of a feature what lowers the penalty most: it changes no probability. order: scratch."""
    a = 0
    while a + classes <= k:
        if column[a] % classes == 0 and column[a + classes - 1] == column[a] + classes - 1:
            by = cheapest_shift(b[a : a + classes], classes, l1[a], 0.0, order)
            for c in range(a, a + classes):
                b[c] = b[c] - by if b[c] != by else 0.0
            a += classes
        else:
            a += 1


@inner(apart=True)
def minimise(H, q, l1, unit, k, tolerance, b, h, U, inverse, s, which, column, classes):
    """Minimise over b [k], the start and the solution, until a sweep changes no gradient by more than tolerance · unit.

    H [k, ·]: zero diagonal where a coordinate must not move. h, inverse, s [k], U [k, ·] and which [k] int64: scratch.
    classes : 0; or of a softmax regression without an L2 penalty, where column [k] are feature · classes + class
    Returns the number of sweeps and factors.
    """
    _multiply(H, k, b, h)
    plain = True
    for j in range(k):
        plain = plain and l1[j] == 0.0
    if plain:
        _straight(H, q, l1, k, b, h, U, inverse, s, which)
        return 1
    made, factors = 0, 0
    while made < _SWEEPS:
        worst, moved = 0.0, 0
        for j in range(k):
            d = H[j, j]
            if d <= 0.0:
                continue
            old = b[j]
            new = soft(q[j] - h[j] + d * old, l1[j], False) / d
            if new != old:
                change = new - old
                b[j] = new
                worst = max(worst, abs(change) * d / unit[j])
                if new * old <= 0.0:
                    moved += 1
                _add_row(H, j, change, k, h)
        made += 1
        if worst <= tolerance:
            break
        if ((moved == 0 and made >= _FIRST) or made % _REGULARLY == 0) and factors < _FACTORS:
            if classes > 0:
                _shift(l1, k, b, column, classes, inverse)
                _multiply(H, k, b, h)
            cut = True
            while cut and factors < _FACTORS:
                cut = _straight(H, q, l1, k, b, h, U, inverse, s, which)
                factors += 1
    return made + factors
