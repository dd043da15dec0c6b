"""Vector operations of a quasi-Newton method over weights [p + 1, K]: the work between two passes over the data.

H [m, N] holds the last steps and changes of gradient, N = (p + 1)·K numbers each, float32 where there are many.
Visits of `products_worker` and `mix_worker` take the elements bounds[v] … bounds[v + 1], those of the others features.
Each visit returns one partial sum, and the caller adds them in the order of the visits.

The penalty of feature j is l1[j]|w| + ½ridge[j]w²; l1 and ridge [p + 1], zero for the intercepts. With round > 0 the
kink of |w| is smoothed, √(w² + round²); with round = 0 steps stay inside an orthant: a weight stops at zero instead of
changing its sign, and a weight at zero moves by the sign of its slope.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.claims import next_visit
from stretto.kernels.core.compile import kernel
from stretto.kernels.numeric.vector import add, cast, fma, load, load_part, mul, splat, store, store_part, total

_ZERO = np.float64(0.0)
_BLOCK = 2048


@kernel
def products_worker(pass_, worker, out, bounds, H, count, X, made):
    """made[v, i, r] = H[i]·X[r] over the elements of visit v, i < count; X [r, N] float64."""
    size = H.shape[1]
    visit = next_visit(pass_, worker)
    while visit >= 0:
        made[visit] = 0.0
        for first in range(bounds[visit], bounds[visit + 1], _BLOCK):
            last = min(first + _BLOCK, bounds[visit + 1])
            for i in range(count):
                for r in range(X.shape[0]):
                    s, t = splat(0.0), splat(0.0)
                    at = first
                    while at + 32 <= last:
                        s = fma(cast(load(H, i * size + at), _ZERO), load(X, r * size + at), s)
                        t = fma(cast(load(H, i * size + at + 16), _ZERO), load(X, r * size + at + 16), t)
                        at += 32
                    while at < last:
                        rest = min(16, last - at)
                        here = cast(load_part(H, i * size + at, rest), _ZERO)
                        s = fma(here, load_part(X, r * size + at, rest), s)
                        at += 16
                    made[visit, i, r] += total(add(s, t))
        visit = next_visit(pass_, worker, visit)


@kernel
def mix_worker(pass_, worker, out, bounds, H, count, factor, scale, x, made):
    """made [N] = scale·x + Σ_i factor[i]·H[i], i < count."""
    size = H.shape[1]
    visit = next_visit(pass_, worker)
    while visit >= 0:
        for at in range(bounds[visit], bounds[visit + 1], 16):
            rest = min(16, bounds[visit + 1] - at)
            s = mul(splat(scale), load_part(x, at, rest))
            if rest == 16:
                for i in range(count):
                    s = fma(splat(factor[i]), cast(load(H, i * size + at), _ZERO), s)
                store(made, at, s)
            else:
                for i in range(count):
                    s = fma(splat(factor[i]), cast(load_part(H, i * size + at, rest), _ZERO), s)
                store_part(made, at, rest, s)
        visit = next_visit(pass_, worker, visit)


@kernel
def trial_worker(pass_, worker, out, bounds, W, d, t, slope, l1, ridge, round_, free, there, cast_, sums):
    """there = W + t·d, and cast_ the same in the type of the next pass.

    In an orthant, weights whose step goes up their slope do not move; free: no orthants. sums [V, 3]: the penalty,
    slope·(there − W), and the penalty without smoothing.
    """
    visit = next_visit(pass_, worker)
    while visit >= 0:
        penalty, fall, plain = 0.0, 0.0, 0.0
        for j in range(bounds[visit], bounds[visit + 1]):
            corner, q = l1[j], ridge[j]
            bound = corner > 0.0 and round_ == 0.0 and not free
            for c in range(W.shape[1]):
                w = W[j, c]
                x = w + t * d[j, c]
                if bound:
                    side = w if w != 0.0 else -slope[j, c]
                    if d[j, c] * slope[j, c] >= 0.0:
                        x = w
                    elif not ((side > 0.0 and x > 0.0) or (side < 0.0 and x < 0.0)):
                        x = 0.0
                there[j, c] = x
                cast_[j, c] = x
                fall += slope[j, c] * (x - w)
                curved = 0.5 * q * x * x
                sharp = corner * abs(x)
                plain += sharp + curved
                penalty += curved + (corner * np.sqrt(x * x + round_ * round_) if round_ > 0.0 else sharp)
        sums[visit, 0] = penalty
        sums[visit, 1] = fall
        sums[visit, 2] = plain
        visit = next_visit(pass_, worker, visit)


@kernel
def turn_worker(
    pass_, worker, out, bounds, W, there, G, l1, ridge, round_, scale, g, slope, step, change, scaled,
    share, G0, mass, tilt, sums
):  # fmt: skip
    """Update gradient, slope and step pair after a step from W to `there`, where the gradient of the loss is G.

    g: the gradient of the smooth part, replaced by that at `there`; slope: the same, but at a kink of |w| that of
    steepest descent. step = (there − W) / scale, change = scale·(change of g), scaled = scale·slope, with
    scale [p + 1].

    sums [V, 2] are of the dual point whose pull on the weights is u = −(1 − share)·G + share·(mass·tilt − G0), G0
    [p + 1, K], mass [p + 1], tilt [K]: Σ max(|u| − l1, 0)² / 2·ridge over the features with a ridge, and max |u| / l1.
    """
    features = there.shape[0] - 1
    visit = next_visit(pass_, worker)
    while visit >= 0:
        cost, most = 0.0, 0.0
        for j in range(bounds[visit], bounds[visit + 1]):
            corner, q, unit = l1[j], ridge[j], scale[j]
            for c in range(W.shape[1]):
                x = there[j, c]
                now = G[j, c] + q * x
                if round_ > 0.0 and corner > 0.0:
                    now += corner * x / np.sqrt(x * x + round_ * round_)
                step[j, c] = (x - W[j, c]) / unit
                change[j, c] = unit * (now - g[j, c])
                g[j, c] = now
                if corner > 0.0 and round_ == 0.0:
                    if x > 0.0:
                        now += corner
                    elif x < 0.0:
                        now -= corner
                    else:
                        now = now - corner if now > corner else (now + corner if now < -corner else 0.0)
                slope[j, c] = now
                scaled[j, c] = unit * now
                if j < features:
                    u = -G[j, c]
                    if share > 0.0:
                        u = (1.0 - share) * u + share * (mass[j] * tilt[c] - G0[j, c])
                    u = abs(u)
                    if q > 0.0 and u > corner:
                        cost += (u - corner) * (u - corner) / (2.0 * q)
                    if corner > 0.0:
                        most = max(most, u / corner)
        sums[visit, 0] = cost
        sums[visit, 1] = most
        visit = next_visit(pass_, worker, visit)
