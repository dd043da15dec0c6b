"""Logistic regression with an L2 penalty in terms of the products of the rows, K = XXᵀ, by Newton steps.

    min over α, b:   Σ_i w_i log(1 + e^(−y_i (z_i + b)))  +  ½ l2·αᵀKα,     z = Kα

β = Xᵀα is the solution in terms of the columns. With v and d, minus the first and the second derivatives of the loss by
z, and g = v − l2·α, the step δ of α and c of b solve

    (l2 I + D K) δ = g − c·d,     Σ (α + δ) = 0

through B = I + D^½ K D^½ / l2, which is never singular: δ = (q − D^½ B⁻¹ D^½ K q / l2) / l2 with q = g − c·d. v is a
dual point where b is optimal, so that Σ v = 0; the duality gap there is gᵀKg / 2 l2.
"""

from __future__ import annotations

import math

from stretto.kernels.core.claims import is_stopped, next_visit
from stretto.kernels.core.compile import inner, kernel
from stretto.kernels.linear.sample_losses import evaluated, log_odds, settled
from stretto.kernels.numeric import blocked_cholesky
from stretto.kernels.numeric.vector import fma, load, splat, total

# Rows of `vectors` [VECTORS, size]: α, Kα, minus the derivatives of the loss by Kα, its curvatures and their roots,
# g and K g; K d; steps for g and for d; K δ, the predictions after a step, 1 / pivots, and scratch.
ALPHA, Z, V, D, ROOT, G, KG, KD, STEP, LEAN, WAY, THERE, INVERSE, COST = range(14)
VECTORS = 14
# Slots of `numbers`: intercept, objective and gap, steps made.
INTERCEPT, OBJECTIVE, GAP, STEPS = range(4)
NUMBERS = 4
_DECREASE = 1e-4  # share of the predicted decrease that a step must achieve
_HALVINGS = 30
_IDLE = 3  # steps that neither lower the gap nor the objective, after which the fit ends


@inner
def _multiply(K, x, n, to):
    """to = K x; x [size] is zero beyond n."""
    size = K.shape[1]
    for i in range(n):
        s, t = splat(0.0), splat(0.0)
        at = i * size
        for j in range(0, size, 32):
            s = fma(load(K, at + j), load(x, j), s)
            t = fma(load(K, at + j + 16), load(x, j + 16), t)
        to[i] = total(s) + total(t)


@inner
def _dot(a, b, n):
    """a · b."""
    s = splat(0.0)
    for i in range(0, a.shape[0], 16):
        s = fma(load(a, i), load(b, i), s)
    return total(s)


@inner(apart=True)
def _factor(K, l2, n, vectors, U):
    """The factor of B."""
    root, inverse = vectors[ROOT], vectors[INVERSE]
    size = K.shape[1]
    for i in range(size):
        root[i] = math.sqrt(vectors[D, i])
    for r in range(size):
        by = root[r] / l2
        for c in range(r, size):
            U[r, c] = by * K[r, c] * root[c]
        U[r, r] += 1.0
        inverse[r] = U[r, r]
    for top in range(0, size, blocked_cholesky.BLOCK):
        last = min(top + blocked_cholesky.BLOCK, size)
        blocked_cholesky.diagonal(U, inverse, top, last, size)
        for piece in range((size - last + blocked_cholesky.CHUNK - 1) // blocked_cholesky.CHUNK):
            blocked_cholesky.finish(U, inverse, top, last, piece, size)
        for piece in range((size - last) // blocked_cholesky.STRIP):
            blocked_cholesky.trail(U, top, last, piece, size)


@inner(apart=True)
def _solve(U, l2, n, vectors, q, product, x):
    """x = (q − D^½ B⁻¹ D^½ K q / l2) / l2, where product = K q."""
    root = vectors[ROOT]
    for i in range(n):
        x[i] = root[i] * product[i] / l2
    blocked_cholesky.substitute(U, vectors[INVERSE], x, U.shape[0])
    for i in range(n):
        x[i] = (q[i] - root[i] * x[i]) / l2


@inner(apart=True)
def _advance(K, y, weight, intercept, l2, value, b, vectors):
    """Move α, Kα and b towards the model's minimum; return the new b and loss, and the share of the way, 0 if none."""
    n = y.shape[0]
    alpha, z, v, d = vectors[ALPHA], vectors[Z], vectors[V], vectors[D]
    step, lean, way, there = vectors[STEP], vectors[LEAN], vectors[WAY], vectors[THERE]
    turn = 0.0
    if intercept:
        sums, both = 0.0, 0.0
        for i in range(n):
            sums += alpha[i] + step[i]
            both += lean[i]
        turn = sums / both if both > 0.0 else 0.0
        for i in range(n):
            step[i] -= turn * lean[i]
    _multiply(K, step, n, way)
    slope = -_dot(vectors[G], way, n)
    size, along, bend = _dot(alpha, z, n), _dot(alpha, way, n), _dot(step, way, n)
    old = value + 0.5 * l2 * size
    t = 1.0
    for _ in range(_HALVINGS):
        for i in range(n):
            there[i] = z[i] + t * way[i]
        value, _, _ = evaluated(y, there, weight, b + t * turn, v, d)
        # The last term is the rounding error of two equal sums.
        now = value + 0.5 * l2 * (size + t * (2.0 * along + t * bend))
        if now <= old + _DECREASE * t * slope + 4e-15 * abs(old):
            for i in range(n):
                alpha[i] += t * step[i]
            _multiply(K, alpha, n, z)
            return b + t * turn, value, t
        t *= 0.5
    return b, value, 0.0


@kernel
def fit_worker(pass_, worker, out, K, y, weight, intercept, l2, goal, share, least, steps, U, vectors, numbers):
    """Make Newton steps until the gap is at most min(goal, max(share · objective, least)), at most `steps`.

    K [size, size]: both triangles, zero beyond n. vectors: zeros; the solution is its row ALPHA. U: scratch.
    """
    n = y.shape[0]
    alpha, z, v, d, g, cost = vectors[ALPHA], vectors[Z], vectors[V], vectors[D], vectors[G], vectors[COST]
    visit = next_visit(pass_, worker)
    while visit >= 0:
        b = log_odds(y, weight, cost) if intercept else 0.0
        low, narrow, idle = math.inf, math.inf, 0
        while True:
            if intercept:
                b, value, _ = settled(y, z, weight, b, v, d, cost, False, 0.0)
            else:
                value, _, _ = evaluated(y, z, weight, b, v, d)
            for i in range(n):
                g[i] = v[i] - l2 * alpha[i]
            _multiply(K, g, n, vectors[KG])
            objective = value + 0.5 * l2 * _dot(alpha, z, n)
            gap = max(0.0, 0.5 * _dot(g, vectors[KG], n) / l2)
            numbers[INTERCEPT], numbers[OBJECTIVE], numbers[GAP] = b, objective, gap
            idle = 0 if gap < narrow or objective < low else idle + 1
            narrow, low = min(narrow, gap), min(low, objective)
            if (
                not gap > min(goal, max(share * objective, least))
                or numbers[STEPS] == steps
                or idle == _IDLE
                or is_stopped(pass_)
            ):
                break
            _factor(K, l2, n, vectors, U)
            _solve(U, l2, n, vectors, g, vectors[KG], vectors[STEP])
            if intercept:
                _multiply(K, d, n, vectors[KD])
                _solve(U, l2, n, vectors, d, vectors[KD], vectors[LEAN])
            b, _, t = _advance(K, y, weight, intercept, l2, value, b, vectors)
            if t == 0.0:
                break
            numbers[STEPS] += 1.0
        visit = next_visit(pass_, worker, visit)
