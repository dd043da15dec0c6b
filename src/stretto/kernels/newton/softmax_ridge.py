"""Vector operations of conjugate gradients over the weights [p + 1, K] of softmax regression.

Sums have the order of the elements. Padding, and intercepts that are not fitted, have `even` of zero and stay.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.compile import kernel


@kernel
def product(step, bent, ridge):
    """bent += ridge_j · step_j; returns Σ step · bent. ridge [p + 1]"""
    bend = 0.0
    for j in range(step.shape[0]):
        for c in range(step.shape[1]):
            bent[j, c] += ridge[j] * step[j, c]
            bend += step[j, c] * bent[j, c]
    return bend


@kernel
def move(t, step, bent, even, ridge, way, left):
    """Move t along the step: changes `way` and the residual `left`; returns Σ even·left² and Σ left²/ridge.

    Where there is no ridge, `even` stands for its inverse.
    """
    size, beyond = 0.0, 0.0
    for j in range(step.shape[0]):
        unit = 1.0 / ridge[j] if ridge[j] > 0.0 else 0.0
        for c in range(step.shape[1]):
            e = even[j, c]
            if e > 0.0:
                way[j, c] += t * step[j, c]
                r = left[j, c] - t * bent[j, c]
                left[j, c] = r
                size += e * r * r
                beyond += (unit if unit > 0.0 else e) * r * r
    return size, beyond


@kernel
def turn(ratio, even, left, step):
    """step = even · left + ratio · step."""
    for j in range(step.shape[0]):
        for c in range(step.shape[1]):
            step[j, c] = even[j, c] * left[j, c] + ratio * step[j, c]


@kernel
def intercepts(P, weight, left, H, step):
    """The step [k] of the intercepts alone after which the residuals `left` [k] of the model are zero; the last stays.

    P [n, K]: probabilities; H [k, k]: scratch. If a class has no curvature, the step is zero.
    """
    k, last = step.shape[0], step.shape[0] - 1
    for c in range(k):
        step[c] = 0.0
        for d in range(k):
            H[c, d] = 0.0
    for i in range(weight.shape[0]):
        s = weight[i]
        for c in range(last):
            a = s * np.float64(P[i, c])
            H[c, c] += a
            for d in range(c + 1):
                H[c, d] -= a * np.float64(P[i, d])
    for c in range(last):
        step[c] = left[c]
        for d in range(c):
            H[d, c] = H[c, d]
    for c in range(last):
        if not H[c, c] > 1e-300:
            for d in range(last):
                step[d] = 0.0
            return
        for d in range(c + 1, last):
            by = H[d, c] / H[c, c]
            for e in range(c, last):
                H[d, e] -= by * H[c, e]
            step[d] -= by * step[c]
    for c in range(last - 1, -1, -1):
        for d in range(c + 1, last):
            step[c] -= H[c, d] * step[d]
        step[c] /= H[c, c]
