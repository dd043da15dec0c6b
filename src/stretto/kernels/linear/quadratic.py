"""Solve min ½ bᵀH b − qᵀb + Σ l1_j|b_j|, over b or b ≥ 0, by coordinate descent, then semismooth Newton steps.

Coordinate descent finds the right support after a few cheap sweeps, but on nearly collinear columns it needs thousands
of sweeps for the values. So after a few sweeps the proximal point method takes over. Each step minimises the same
objective plus ‖b − b₀‖²/2σ, by semismooth Newton steps on the dual (as Li, Sun and Toh do for the Lasso). Its iterate a
is a vector of coefficients too, since all vectors are in the range of H:

    v = b₀ − σ(H a − q)      p = soft(v, σ·l1)      J = {p ≠ 0}
    (H_JJ + I/σ) s = (H(a − p))_J          a ← a + t(p + s − a)     until H(a − p) is small, then b₀ ← p

A Newton step can add and remove any number of coordinates; σ grows, and the last steps are exact. H is used through the
factor of H_JJ and products with its rows; the gang shares the heavy loops.

Shapes: H [w, step] float64, step a multiple of 16 and w ≤ step; vectors [step], zero beyond w; U [size, size], size a
multiple of 64 and at least step. A `QuadraticWorkspace` has a few arrays instead of one for each vector, because more
arrays take longer to compile.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from stretto.kernels.core import gang
from stretto.kernels.core.claims import is_stopped, next_visit
from stretto.kernels.core.compile import inner, kernel
from stretto.kernels.numeric import blocked_cholesky

GATHER, FINISH, TRAIL, COMBINE = range(4)
# Offsets in `QuadraticWorkspace.words` after those of the gang: rows of the block being factorised, size of the system,
# length of J; then J itself [step].
TOP, LAST, SIZE, COUNT = range(gang.CONTROL, gang.CONTROL + 4)
J = gang.CONTROL + 8
# Rows of `QuadraticWorkspace.vectors`. UNIT: the unit of each violation; HA = H a; G = H (a − p); KEPT: b before a step
# that may fail; K: coefficients of a combination of rows of H; MADE: that combination; INVERSE: 1 / pivots.
Q, B, L1, UNIT, HA, A, P, G, S, KEPT, K, MADE, INVERSE = range(13)
VECTORS = 13
# Slots of `QuadraticWorkspace.numbers`: parameters and results.
TOLERANCE, SIGMA, GROWTH, SWEEPS, NEWTONS, POSITIVE, WORST, SWEPT, STEPPED, SHORTENED = range(10)
NUMBERS = 10
_LANES_OF_PIECE = 512
_SMALL = 96  # smaller systems are solved without the gang


class QuadraticWorkspace(NamedTuple):
    """Memory that all workers share."""

    words: Any  # [J + step] int64: gang control, sizes, J
    H: Any  # [w, step] the quadratic form
    vectors: Any  # [VECTORS, size] see the rows above
    U: Any  # [size, size] Cholesky factor
    numbers: Any  # [NUMBERS] parameters and results


@inner
def soft(v, t, positive):
    if v > t:
        return v - t
    if v < -t and not positive:
        return v + t
    return 0.0


@inner
def violation(b, pull, l1, positive):
    """Return the distance of 0 from the subdifferential; pull = −∂(smooth part)."""
    if b > 0.0:
        return abs(pull - l1)
    if b < 0.0:
        return abs(pull + l1)
    if positive:
        return max(0.0, pull - l1)
    return max(0.0, abs(pull) - l1)


@inner(apart=True)
def _work(room, kind, piece):
    words, H, U = room.words, room.H, room.U
    count, size, top, last = words[COUNT], words[SIZE], words[TOP], words[LAST]
    if kind == GATHER:
        # Sixteen rows of H_JJ, upper triangle, padded to whole tiles.
        for r in range(piece * 16, min(piece * 16 + 16, size)):
            if r >= count:
                for c in range(r, size):
                    U[r, c] = 0.0
                U[r, r] = 1.0
            else:
                row = words[J + r]
                for c in range(r, count):
                    U[r, c] = H[row, words[J + c]]
                for c in range(count, size):
                    U[r, c] = 0.0
    elif kind == FINISH:
        blocked_cholesky.finish(U, room.vectors[INVERSE], top, last, piece, size)
    elif kind == TRAIL:
        blocked_cholesky.trail(U, top, last, piece, size)
    else:
        first = piece * _LANES_OF_PIECE
        end = min(first + _LANES_OF_PIECE, H.shape[1])
        k, made = room.vectors[K], room.vectors[MADE]
        for c in range(first, end):
            made[c] = 0.0
        for u in range(count):
            row, x = words[J + u], k[u]
            for c in range(first, end):
                made[c] += x * H[row, c]


@inner(apart=True)
def _all(room, kind, pieces, alone):
    """Process every chunk: alone where that is faster than announcing the loop to helpers."""
    if alone:
        for piece in range(pieces):
            _work(room, kind, piece)
        return
    words = room.words
    gang.announce(words, kind, pieces)
    piece = gang.take(words)
    while piece >= 0:
        _work(room, kind, piece)
        gang.made(words)
        piece = gang.take(words)
    gang.wait(words)


@inner
def _help(room):
    words = room.words
    while True:
        piece = gang.take(words)
        if piece == gang.OVER:
            return
        if piece >= 0:
            _work(room, gang.kind(words), piece)
            gang.made(words)
        else:
            gang.atomics.rest()


@inner(apart=True)
def _combine(room, count):
    """MADE = Σ_u k_u H[J_u, :]."""
    room.words[COUNT] = count
    step = room.H.shape[1]
    _all(room, COMBINE, (step + _LANES_OF_PIECE - 1) // _LANES_OF_PIECE, count * step < 1 << 16)


@inner(apart=True)
def _solve(room, count, ridge):
    """Solve (H_JJ + ridge) s = g_J; the solution is in s[0 … count − 1]."""
    words, U = room.words, room.U
    g, s, inverse = room.vectors[G], room.vectors[S], room.vectors[INVERSE]
    size = (count + 63) // 64 * 64
    words[COUNT], words[SIZE] = count, size
    alone = count < _SMALL
    _all(room, GATHER, size // 16, alone)
    for r in range(count):
        U[r, r] += ridge
    for r in range(size):
        inverse[r] = U[r, r]
    for top in range(0, size, blocked_cholesky.BLOCK):
        last = min(top + blocked_cholesky.BLOCK, size)
        words[TOP], words[LAST] = top, last
        blocked_cholesky.diagonal(U, inverse, top, last, size)
        if last < size:
            _all(room, FINISH, (size - last + blocked_cholesky.CHUNK - 1) // blocked_cholesky.CHUNK, alone)
            _all(room, TRAIL, (size - last) // blocked_cholesky.STRIP, alone)
    for r in range(size):
        s[r] = g[words[J + r]] if r < count else 0.0
    blocked_cholesky.substitute(U, inverse, s, size)


@inner(apart=True)
def _worst(room, w, positive):
    """Return the largest violation at b, given HA = H b."""
    q, b, l1, unit, h = room.vectors[Q], room.vectors[B], room.vectors[L1], room.vectors[UNIT], room.vectors[HA]
    worst = 0.0
    for j in range(w):
        worst = max(worst, violation(b[j], q[j] - h[j], l1[j], positive) / unit[j])
    return worst


@inner(apart=True)
def _objective(room, w):
    """Return the objective at b, given HA = H b."""
    q, b, l1, h = room.vectors[Q], room.vectors[B], room.vectors[L1], room.vectors[HA]
    value = 0.0
    for j in range(w):
        value += (0.5 * h[j] - q[j]) * b[j] + l1[j] * abs(b[j])
    return value


@inner(apart=True)
def _refresh(room, w):
    """Compute HA = H b."""
    words, b, k, h, made = room.words, room.vectors[B], room.vectors[K], room.vectors[HA], room.vectors[MADE]
    count = 0
    for j in range(w):
        if b[j] != 0.0:
            words[J + count] = j
            k[count] = b[j]
            count += 1
    _combine(room, count)
    for j in range(room.H.shape[1]):
        h[j] = made[j]


@inner
def _sweep(room, w, positive):
    """Make one sweep over all coordinates; return how many signs (−, 0, +) changed. Keeps HA = H b."""
    H, q, b, l1, h = room.H, room.vectors[Q], room.vectors[B], room.vectors[L1], room.vectors[HA]
    moved = 0
    for j in range(w):
        d = H[j, j]
        if d <= 0.0:
            continue
        old = b[j]
        new = soft(q[j] - h[j] + d * old, l1[j], positive) / d
        if new != old:
            change = new - old
            b[j] = new
            if new * old <= 0.0:
                moved += 1
            for c in range(H.shape[1]):
                h[c] += change * H[j, c]
    return moved


@inner
def _step(room, w, sigma, positive):
    """Make one Newton step for the proximal problem at b. False: a is close enough to its solution p."""
    words, vectors = room.words, room.vectors
    q, b, l1, h = vectors[Q], vectors[B], vectors[L1], vectors[HA]
    a, p, g, s, k, made = vectors[A], vectors[P], vectors[G], vectors[S], vectors[K], vectors[MADE]
    count = 0
    travelled, value = 0.0, 0.0
    for j in range(w):
        p[j] = soft(b[j] - sigma * (h[j] - q[j]), sigma * l1[j], positive)
        if p[j] != 0.0:
            words[J + count] = j
            k[count] = p[j]
            count += 1
        travelled += (p[j] - b[j]) * (p[j] - b[j])
        value += 0.5 * a[j] * h[j] + p[j] * p[j] / (2.0 * sigma)
    _combine(room, count)
    left, size = 0.0, 0.0
    for j in range(w):
        g[j] = h[j] - made[j]
        left += (a[j] - p[j]) * g[j]
        size += q[j] * b[j]
    if left <= 0.04 / sigma * travelled or left <= 1e-26 * abs(size):
        return False
    _solve(room, count, 1.0 / sigma)
    for u in range(count):
        k[u] += s[u]
    _combine(room, count)
    # Line search towards a = p + s, whose product with H is `made`; the direction is d = p + s − a.
    for u in range(count):
        p[words[J + u]] += s[u]
    slope = 0.0
    for j in range(w):
        slope += (p[j] - a[j]) * g[j]
    t = 1.0
    while True:
        now = 0.0
        for j in range(w):
            at = a[j] + t * (p[j] - a[j])
            product = h[j] + t * (made[j] - h[j])
            there = soft(b[j] - sigma * (product - q[j]), sigma * l1[j], positive)
            now += 0.5 * at * product + there * there / (2.0 * sigma)
        # The last term is the rounding error of two equal sums.
        if now <= value + 1e-4 * t * slope + 1e-14 * abs(value):
            break
        if t < 1e-3:
            return False
        t *= 0.5
        room.numbers[SHORTENED] += 1.0
    for j in range(w):
        a[j] += t * (p[j] - a[j])
        h[j] += t * (made[j] - h[j])
    room.numbers[STEPPED] += 1.0
    return True


@inner(apart=True)
def _straight(room, w, sigma, positive):
    """Solve the linear system that is left once the support and its signs are right; return whether b moved.

    b does not move if a coordinate would change sign.
    """
    words, q, b, l1 = room.words, room.vectors[Q], room.vectors[B], room.vectors[L1]
    h, g, s = room.vectors[HA], room.vectors[G], room.vectors[S]
    count = 0
    for j in range(w):
        if b[j] != 0.0:
            words[J + count] = j
            count += 1
            g[j] = q[j] - h[j] - (l1[j] if b[j] > 0.0 else -l1[j])
    # A negligible ridge, but enough for identical columns.
    _solve(room, count, 1e-9 / sigma)
    for u in range(count):
        j = words[J + u]
        if b[j] * (b[j] + s[u]) <= 0.0:
            return False
    for u in range(count):
        b[words[J + u]] += s[u]
    room.numbers[STEPPED] += 1.0
    _refresh(room, w)
    room.numbers[WORST] = _worst(room, w, positive)
    return True


@inner
def _minimise(pass_, room):
    numbers = room.numbers
    w = room.H.shape[0]
    positive = numbers[POSITIVE] != 0.0
    tolerance = numbers[TOLERANCE]
    _refresh(room, w)
    numbers[WORST] = _worst(room, w, positive)
    steady = 0
    while numbers[WORST] > tolerance and numbers[SWEPT] < numbers[SWEEPS] and not is_stopped(pass_):
        moved = _sweep(room, w, positive)
        numbers[SWEPT] += 1.0
        numbers[WORST] = _worst(room, w, positive)
        # The support does not change any more: a linear system is left.
        steady = steady + 1 if moved == 0 else 0
        if steady == 3:
            break
    sigma = numbers[SIGMA]
    if steady == 3 and numbers[WORST] > tolerance:
        _straight(room, w, sigma, positive)
    q, b, l1, h = room.vectors[Q], room.vectors[B], room.vectors[L1], room.vectors[HA]
    a, kept = room.vectors[A], room.vectors[KEPT]
    best = _objective(room, w)
    failures = 0
    while numbers[WORST] > tolerance and numbers[STEPPED] < numbers[NEWTONS] and failures < 8 and not is_stopped(pass_):
        for j in range(w):
            a[j] = b[j]
        going = True
        while going:
            going = _step(room, w, sigma, positive) and numbers[STEPPED] < numbers[NEWTONS] and not is_stopped(pass_)
        changed = False
        for j in range(w):
            kept[j] = b[j]
            b[j] = soft(b[j] - sigma * (h[j] - q[j]), sigma * l1[j], positive)
            if b[j] * kept[j] <= 0.0 and b[j] != kept[j]:
                changed = True
        _refresh(room, w)
        now = _objective(room, w)
        if now <= best + 1e-13 * abs(best):
            best = min(now, best)
            numbers[WORST] = _worst(room, w, positive)
            sigma *= numbers[GROWTH]
            if not changed and numbers[WORST] > tolerance and not _straight(room, w, numbers[SIGMA], positive):
                failures += 1
        else:
            # The proximal problem was not solved accurately enough: use an easier one.
            for j in range(w):
                b[j] = kept[j]
            _refresh(room, w)
            sigma *= 0.01
            failures += 1


@kernel
def minimise_worker(pass_, worker, out, room):
    """Solve the problem: the first worker leads, the others help. Row b of the workspace is start and solution."""
    if gang.lead(room.words):
        visit = next_visit(pass_, worker)
        if visit >= 0:
            _minimise(pass_, room)
            next_visit(pass_, worker, visit)
        gang.end(room.words)
    else:
        _help(room)
