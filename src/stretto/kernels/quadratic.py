"""min ½ bᵀH b − qᵀb + Σ l1_j|b_j|, over b or over b ≥ 0: sweeps first, then Newton steps that change the support.

A sweep of coordinate descent is cheap and soon right about which coordinates matter, but on columns that nearly hang
together thousands of them are needed to settle how much. So after a few sweeps the proximal point method takes over:
each step minimises the same plus ‖b − b₀‖²/2σ, by semismooth Newton steps on the dual (as Li, Sun and Toh do for the
Lasso). Its iterate a is a vector of coefficients too, since everything happens in the range of H:

    v = b₀ − σ(H a − q)      p = soft(v, σ·l1)      J = {p ≠ 0}
    (H_JJ + I/σ) s = (H(a − p))_J          a ← a + t(p + s − a)     until H(a − p) is small, then b₀ ← p

A Newton step can bring in and throw out any number of coordinates; σ grows, and steps near the end are exact. H enters
by the factor of H_JJ and by products with rows of it; the heavy loops are shared with the gang.

Shapes: H [w, step] float64, step a multiple of 16 and w ≤ step; vectors [step], zero beyond w; U [size, size], size a
multiple of 64 larger than w; J [step] int64.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from . import factor, gang
from .claims import is_stopped, next_visit
from .compile import inner, kernel

GATHER, FINISH, TRAIL, COMBINE = range(4)
# Slots of `Room.at`: rows of the block that is being factorised, size of the system, length of J.
TOP, LAST, SIZE, COUNT = range(4)
# Slots of `Room.given`: what is asked for.
TOLERANCE, SIGMA, GROWTH, SWEEPS, NEWTONS, POSITIVE = range(6)
# Slots of `Room.said`: what came of it.
WORST, SWEPT, STEPPED, SHORTENED = range(4)
_LANES_OF_PIECE = 512
_SMALL = 96  # systems below this are not worth announcing


class Room(NamedTuple):
    """Everything the workers share."""

    control: Any  # [gang.CONTROL]
    H: Any  # [w, step]
    q: Any
    b: Any
    l1: Any
    unit: Any  # [step] a violation counts in these units
    h: Any  # H a
    a: Any
    p: Any
    g: Any  # H (a − p)
    s: Any
    kept: Any  # [step] b before a step that may fail
    k: Any  # [step] coefficients of a combination of rows of H
    made: Any  # [step] the combination
    U: Any
    inverse: Any
    J: Any
    at: Any  # [4] int64
    given: Any  # [6] float64
    said: Any  # [4] float64


@inner
def soft(v, t, positive):
    if v > t:
        return v - t
    if v < -t and not positive:
        return v + t
    return 0.0


@inner
def violation(b, pull, l1, positive):
    """How far 0 is from the subdifferential; pull = −∂(smooth part)."""
    if b > 0.0:
        return abs(pull - l1)
    if b < 0.0:
        return abs(pull + l1)
    if positive:
        return max(0.0, pull - l1)
    return max(0.0, abs(pull) - l1)


@inner
def _work(room, kind, piece):
    at = room.at
    if kind == GATHER:
        # Sixteen rows of H_JJ, upper triangle, padded to whole tiles.
        count, size = at[COUNT], at[SIZE]
        for r in range(piece * 16, min(piece * 16 + 16, size)):
            if r >= count:
                for c in range(r, size):
                    room.U[r, c] = 0.0
                room.U[r, r] = 1.0
            else:
                row = room.H[room.J[r]]
                for c in range(r, count):
                    room.U[r, c] = row[room.J[c]]
                for c in range(count, size):
                    room.U[r, c] = 0.0
    elif kind == FINISH:
        factor.finish(room.U, room.inverse, at[TOP], at[LAST], piece, at[SIZE])
    elif kind == TRAIL:
        factor.trail(room.U, at[TOP], at[LAST], piece, at[SIZE])
    else:
        first = piece * _LANES_OF_PIECE
        last = min(first + _LANES_OF_PIECE, room.made.shape[0])
        made = room.made
        for c in range(first, last):
            made[c] = 0.0
        for u in range(at[COUNT]):
            row, x = room.H[room.J[u]], room.k[u]
            for c in range(first, last):
                made[c] += x * row[c]


@inner
def _all(room, kind, pieces, alone):
    """Make every piece: alone where that is quicker than telling others."""
    if alone:
        for piece in range(pieces):
            _work(room, kind, piece)
        return
    gang.announce(room.control, kind, pieces)
    piece = gang.take(room.control)
    while piece >= 0:
        _work(room, kind, piece)
        gang.made(room.control)
        piece = gang.take(room.control)
    gang.wait(room.control)


@inner
def _help(room):
    from_whom = room.control
    while True:
        piece = gang.take(from_whom)
        if piece == gang.OVER:
            return
        if piece >= 0:
            _work(room, gang.kind(from_whom), piece)
            gang.made(from_whom)
        else:
            gang.atomics.rest()


@inner
def _combine(room, count):
    """made = Σ_u k_u H[J_u, :]."""
    room.at[COUNT] = count
    step = room.made.shape[0]
    _all(room, COMBINE, (step + _LANES_OF_PIECE - 1) // _LANES_OF_PIECE, count * step < 1 << 16)


@inner
def _solve(room, count, ridge):
    """s_J: the solution of (H_JJ + ridge) s = g_J, at places 0 … count − 1 of s."""
    at = room.at
    size = (count + 63) // 64 * 64
    at[COUNT], at[SIZE] = count, size
    alone = count < _SMALL
    _all(room, GATHER, size // 16, alone)
    for r in range(count):
        room.U[r, r] += ridge
    for r in range(size):
        room.inverse[r] = room.U[r, r]
    for top in range(0, size, factor.BLOCK):
        last = min(top + factor.BLOCK, size)
        at[TOP], at[LAST] = top, last
        factor.diagonal(room.U, room.inverse, top, last, size)
        if last < size:
            _all(room, FINISH, (size - last + factor.CHUNK - 1) // factor.CHUNK, alone)
            _all(room, TRAIL, (size - last) // factor.STRIP, alone)
    for r in range(size):
        room.s[r] = room.g[room.J[r]] if r < count else 0.0
    factor.substitute(room.U, room.inverse, room.s, size)


@inner
def _worst(room, w, positive):
    """The largest violation at b, given h = H b."""
    worst = 0.0
    for j in range(w):
        worst = max(worst, violation(room.b[j], room.q[j] - room.h[j], room.l1[j], positive) / room.unit[j])
    return worst


@inner
def _objective(room, w):
    """The objective at b, given h = H b."""
    value = 0.0
    for j in range(w):
        value += (0.5 * room.h[j] - room.q[j]) * room.b[j] + room.l1[j] * abs(room.b[j])
    return value


@inner
def _refresh(room, w):
    """h = H b."""
    count = 0
    for j in range(w):
        if room.b[j] != 0.0:
            room.J[count] = j
            room.k[count] = room.b[j]
            count += 1
    _combine(room, count)
    for j in range(room.h.shape[0]):
        room.h[j] = room.made[j]


@inner
def _sweep(room, w, positive):
    """One pass over all coordinates; how many changed sign or came from or went to zero. Keeps h = H b."""
    H, b, h, q, l1 = room.H, room.b, room.h, room.q, room.l1
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
            row = H[j]
            for c in range(h.shape[0]):
                h[c] += change * row[c]
    return moved


@inner
def _step(room, w, sigma, positive):
    """One Newton step for the proximal problem at b. False: a is as near to its solution p as is worth while."""
    a, p, g, h, b, q, l1 = room.a, room.p, room.g, room.h, room.b, room.q, room.l1
    count = 0
    travelled, value = 0.0, 0.0
    for j in range(w):
        p[j] = soft(b[j] - sigma * (h[j] - q[j]), sigma * l1[j], positive)
        if p[j] != 0.0:
            room.J[count] = j
            room.k[count] = p[j]
            count += 1
        travelled += (p[j] - b[j]) * (p[j] - b[j])
        value += 0.5 * a[j] * h[j] + p[j] * p[j] / (2.0 * sigma)
    _combine(room, count)
    left, size = 0.0, 0.0
    for j in range(w):
        g[j] = h[j] - room.made[j]
        left += (a[j] - p[j]) * g[j]
        size += q[j] * b[j]
    if left <= 0.04 / sigma * travelled or left <= 1e-26 * abs(size):
        return False
    _solve(room, count, 1.0 / sigma)
    for u in range(count):
        room.k[u] += room.s[u]
    _combine(room, count)
    # Towards a = p + s, whose product with H is `made`; the way there is d = p + s − a.
    for u in range(count):
        p[room.J[u]] += room.s[u]
    slope = 0.0
    for j in range(w):
        slope += (p[j] - a[j]) * g[j]
    t = 1.0
    while True:
        now = 0.0
        for j in range(w):
            at = a[j] + t * (p[j] - a[j])
            product = h[j] + t * (room.made[j] - h[j])
            there = soft(b[j] - sigma * (product - q[j]), sigma * l1[j], positive)
            now += 0.5 * at * product + there * there / (2.0 * sigma)
        # The last term is what rounding may add to two sums that are the same.
        if now <= value + 1e-4 * t * slope + 1e-14 * abs(value):
            break
        if t < 1e-3:
            return False
        t *= 0.5
        room.said[SHORTENED] += 1.0
    for j in range(w):
        a[j] += t * (p[j] - a[j])
        h[j] += t * (room.made[j] - h[j])
    room.said[STEPPED] += 1.0
    return True


@inner
def _straight(room, w, sigma, positive):
    """Where the support and its signs are right, what is left is a linear system: solve it. Whether b moved; where a
    coordinate would change sign it does not.
    """
    count = 0
    for j in range(w):
        if room.b[j] != 0.0:
            room.J[count] = j
            count += 1
            room.g[j] = room.q[j] - room.h[j] - (room.l1[j] if room.b[j] > 0.0 else -room.l1[j])
    # As good as no ridge at all, but enough for columns that are the same.
    _solve(room, count, 1e-9 / sigma)
    for u in range(count):
        if room.b[room.J[u]] * (room.b[room.J[u]] + room.s[u]) <= 0.0:
            return False
    for u in range(count):
        room.b[room.J[u]] += room.s[u]
    room.said[STEPPED] += 1.0
    _refresh(room, w)
    room.said[WORST] = _worst(room, w, positive)
    return True


@inner
def _minimise(pass_, room):
    given, said = room.given, room.said
    w = room.H.shape[0]
    positive = given[POSITIVE] != 0.0
    tolerance = given[TOLERANCE]
    _refresh(room, w)
    said[WORST] = _worst(room, w, positive)
    steady = 0
    while said[WORST] > tolerance and said[SWEPT] < given[SWEEPS] and not is_stopped(pass_):
        moved = _sweep(room, w, positive)
        said[SWEPT] += 1.0
        said[WORST] = _worst(room, w, positive)
        # Nothing enters or leaves any more: what is left is a linear system.
        steady = steady + 1 if moved == 0 else 0
        if steady == 3:
            break
    sigma = given[SIGMA]
    if steady == 3 and said[WORST] > tolerance:
        _straight(room, w, sigma, positive)
    best = _objective(room, w)
    failures = 0
    while said[WORST] > tolerance and said[STEPPED] < given[NEWTONS] and failures < 8 and not is_stopped(pass_):
        for j in range(room.a.shape[0]):
            room.a[j] = room.b[j]
        while _step(room, w, sigma, positive) and said[STEPPED] < given[NEWTONS] and not is_stopped(pass_):
            pass
        changed = False
        for j in range(w):
            room.kept[j] = room.b[j]
            room.b[j] = soft(room.b[j] - sigma * (room.h[j] - room.q[j]), sigma * room.l1[j], positive)
            if room.b[j] * room.kept[j] <= 0.0 and room.b[j] != room.kept[j]:
                changed = True
        _refresh(room, w)
        now = _objective(room, w)
        if now <= best + 1e-13 * abs(best):
            best = min(now, best)
            said[WORST] = _worst(room, w, positive)
            sigma *= given[GROWTH]
            if not changed and said[WORST] > tolerance and not _straight(room, w, given[SIGMA], positive):
                failures += 1
        else:
            # The proximal problem was not solved well enough to be of use: an easier one.
            for j in range(w):
                room.b[j] = room.kept[j]
            _refresh(room, w)
            sigma *= 0.01
            failures += 1


@kernel
def minimise_worker(pass_, worker, out, room):
    """The first worker leads, the others help. b of the room is the start and becomes the solution."""
    if gang.lead(room.control):
        visit = next_visit(pass_, worker)
        if visit >= 0:
            _minimise(pass_, room)
            next_visit(pass_, worker, visit)
        gang.end(room.control)
    else:
        _help(room)
