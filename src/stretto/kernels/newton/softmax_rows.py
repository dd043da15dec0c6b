"""Rows of X in blocks of columns, and the sums over them that Newton steps of softmax regression need.

`packed` holds blocks of `ROWS` samples. A block is `span` columns of ROWS numbers: the p features, centred about their
means; ones, for the intercepts; from column `lead` on, the residuals of the k classes. Columns are padded with zeros to
tiles, and the last block to ROWS samples of weight 0. Scores and probabilities are blocks of k columns.

A coefficient is a coordinate j·k + c of feature j and class c; feature p is the intercept. One row of sixteen samples
is a vector, so sums have one order.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.compile import inner
from stretto.kernels.linear.sample_losses import added
from stretto.kernels.numeric.vector import (
    add,
    div,
    equal,
    fma,
    larger,
    load,
    mul,
    neg,
    pick,
    root,
    splat,
    store,
    sub,
)
from stretto.kernels.numeric.vector_exp import exp, log

from .block_products import ROWS, add_tile, multiply

# Rows of `scores` [SCORES, blocks·k·ROWS]: scores, those of a step, those after it, and probabilities.
Z, WAY, THERE, P = range(4)
SCORES = 4
# Rows of `samples` [SAMPLES, blocks·ROWS]: weight, class, probability of the other classes, entropy of the
# probabilities, and scratch.
WEIGHT, CLASS, WRONG, SPREAD, COST = range(5)
SAMPLES = 5
_GROUP = 8  # columns that are copied together: one line of the cache
_LEAST = 1e-300  # whose product with its logarithm is negligible


@inner
def sixteens(n, top):
    """Samples of the block that begins at `top`, rounded up to vectors."""
    return (min(ROWS, n - top) + 15) // 16 * 16


@inner(apart=True)
def pack(X, mean, span, packed):
    """Copy X [n, p] into blocks, centred, with ones as the last column."""
    n, p = X.shape
    for i in range(packed.shape[0]):
        packed[i] = 0.0
    for top in range(0, n, ROWS):
        count, to = min(ROWS, n - top), top * span
        for first in range(0, p, _GROUP):
            last = min(first + _GROUP, p)
            for i in range(count):
                for j in range(first, last):
                    packed[to + j * ROWS + i] = np.float64(X[top + i, j]) - mean[j]
        for i in range(count):
            packed[to + p * ROWS + i] = 1.0


@inner(apart=True)
def evaluate(z, n, k, span, lead, packed, chance, samples):
    """Σ weight·loss at the scores z; fills probabilities, residuals, and the samples' `WRONG` and `SPREAD`."""
    weight, own, wrong, spread = samples[WEIGHT], samples[CLASS], samples[WRONG], samples[SPREAD]
    cost = samples[COST]
    one, none = splat(1.0), splat(0.0)
    for top in range(0, n, ROWS):
        base, to = top * k, (top // ROWS * span + lead) * ROWS
        for i in range(0, sixteens(n, top), 16):
            most = load(z, base + i)
            for c in range(1, k):
                most = larger(load(z, base + c * ROWS + i), most)
            mine, class_ = none, load(own, top + i)
            whole, others, mean = none, none, none
            for c in range(k):
                a = sub(load(z, base + c * ROWS + i), most)
                e = exp(a)
                store(chance, base + c * ROWS + i, e)
                here = equal(class_, splat(np.float64(c)))
                whole, mean = add(whole, e), fma(e, a, mean)
                others, mine = add(others, pick(here, none, e)), pick(here, a, mine)
            high, part = log(whole), div(one, whole)
            s, apart = load(weight, top + i), mul(others, part)
            store(wrong, top + i, apart)
            store(spread, top + i, sub(high, mul(mean, part)))
            store(cost, top + i, mul(s, sub(high, mine)))
            for c in range(k):
                share = mul(load(chance, base + c * ROWS + i), part)
                store(chance, base + c * ROWS + i, share)
                # The class's own residual is the sum of the others: 1 − p would lose digits for p near 1.
                here = equal(class_, splat(np.float64(c)))
                store(packed, to + c * ROWS + i, mul(s, pick(here, neg(apart), share)))
    return added(cost)


@inner(apart=True)
def gradient(n, p, k, span, lead, packed, tile, pull):
    """pull[j·k + c] = −∂loss/∂w_jc from the residuals. tile [8]: scratch."""
    for a in range((p + 1) * k):
        pull[a] = 0.0
    for top in range(0, n, ROWS):
        at, count = top * span, sixteens(n, top)
        for j in range(0, p + 1, 2):
            for c in range(0, k, 4):
                for t in range(8):
                    tile[t] = 0.0
                add_tile(packed, at + j * ROWS, at + (lead + c) * ROWS, ROWS, count, tile, 0, 4)
                for r in range(min(2, p + 1 - j)):
                    for q in range(min(4, k - c)):
                        pull[(j + r) * k + c + q] -= tile[r * 4 + q]


@inner(apart=True)
def spread_step(n, p, k, span, packed, coef, way):
    """Scores `way` of coefficients [(p + 1)·k]."""
    for top in range(0, n, ROWS):
        base, at, count = top * k, top * span, sixteens(n, top)
        for c in range(k):
            for i in range(0, count, 16):
                store(way, base + c * ROWS + i, splat(0.0))
        for j in range(0, p + 1, 4):
            last = min(j + 4, p + 1)
            for c in range(k):
                used = False
                for r in range(j, last):
                    used = used or coef[r * k + c] != 0.0
                if not used:
                    continue
                to = base + c * ROWS
                if last - j == 4:
                    f0, f1 = splat(coef[j * k + c]), splat(coef[(j + 1) * k + c])
                    f2, f3 = splat(coef[(j + 2) * k + c]), splat(coef[(j + 3) * k + c])
                    x = at + j * ROWS
                    for i in range(0, count, 16):
                        s = fma(f0, load(packed, x + i), load(way, to + i))
                        s = fma(f1, load(packed, x + ROWS + i), s)
                        s = fma(f2, load(packed, x + 2 * ROWS + i), s)
                        store(way, to + i, fma(f3, load(packed, x + 3 * ROWS + i), s))
                else:
                    for r in range(j, last):
                        f = splat(coef[r * k + c])
                        for i in range(0, count, 16):
                            store(way, to + i, fma(f, load(packed, at + r * ROWS + i), load(way, to + i)))


@inner(apart=True)
def pair_products(n, k, span, packed, chance, weight, feature, m, width, even, block, products):
    """Products of m features under weight·p_c·p_d, for all c < d in turn, from pair·width² on in `products`.

    even : the probabilities are the same for all samples: one product under the weights alone.
    """
    pairs = 1 if even else k * (k - 1) // 2
    for i in range(pairs * width * width):
        products[i] = 0.0
    for i in range(m * ROWS, width * ROWS):
        block[i] = 0.0
    for top in range(0, n, ROWS):
        base, at, count = top * k, top * span, sixteens(n, top)
        pair = 0
        for c in range(k):
            for d in range(c + 1, k):
                if pair == pairs:
                    break
                for i in range(0, count, 16):
                    q = load(weight, top + i)
                    if not even:
                        q = mul(q, mul(load(chance, base + c * ROWS + i), load(chance, base + d * ROWS + i)))
                    store(block, width * ROWS + i, root(q))
                for a in range(m):
                    x = at + feature[a] * ROWS
                    for i in range(0, count, 16):
                        store(block, a * ROWS + i, mul(load(packed, x + i), load(block, width * ROWS + i)))
                multiply(block, 0, m, count, products, pair * width * width, width)
                pair += 1


@inner(apart=True)
def mixed_entropy(samples, share):
    """Σ weight·entropy of share·p + (1 − share)·(all on the sample's own class)."""
    weight, wrong, spread, cost = samples[WEIGHT], samples[WRONG], samples[SPREAD], samples[COST]
    n = weight.shape[0]
    least, one, less, c = splat(_LEAST), splat(1.0), splat(1.0 - share), splat(share)
    if share == 1.0:
        for i in range(0, n, 16):
            store(cost, i, mul(load(weight, i), load(spread, i)))
        return added(cost)
    of_share = mul(c, log(splat(share)))
    for i in range(0, n, 16):
        apart = load(wrong, i)
        own = larger(sub(one, apart), least)
        mixed = larger(larger(sub(one, mul(c, apart)), less), least)
        here = sub(sub(mul(mul(c, own), log(own)), mul(mixed, log(mixed))), mul(of_share, apart))
        store(cost, i, mul(load(weight, i), add(mul(c, load(spread, i)), here)))
    return added(cost)
