"""CoCoA with samples cut into parts, in the dual: s·Σ loss(y_i, x_i·w) + ½·ridge·‖w‖², w = Σ a_i x_i / ridge.

A part improves the dual variables of its own samples by dual coordinate descent (SDCA). It assumes that its change of w
counts σ′ times: that covers what the other parts change at the same time. `linear.dual_losses` says how the variable b
of a sample is stored.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.compile import kernel
from stretto.kernels.linear.dual_losses import SQUARED, conjugate_of, dual_step, loss_of

from .sample_rows import add_row, dot_row

LOSS, GAP = range(2)  # slots of the sums of a part
SUMS = 2


@kernel
def descend_rows(code, values, indices, indptr, p, order, y, b, w, change, norm, s, ridge, sigma):
    """Visit samples in this order. b [k] and w [p] + σ′·(its change) are updated; change [p] += its change.

    norm [k] ‖x_i‖².
    """
    for at in range(order.shape[0]):
        i = order[at]
        z = dot_row(values, indices, indptr, p, i, w)
        new = dual_step(code, y[i], z, b[i], s, sigma * norm[i] / ridge)
        d = new - b[i]
        if d != 0.0:
            b[i] = new
            step = d / ridge if code == SQUARED else y[i] * d / ridge
            add_row(values, indices, indptr, p, i, sigma * step, w)
            add_row(values, indices, indptr, p, i, step, change)


@kernel
def row_sums(code, values, indices, indptr, p, y, b, w, s, sums):
    """Fill sums [2]: the loss of the samples, and their duality gap s·loss(z) + s·loss*(−a) + a·z, never negative."""
    loss, gap = 0.0, 0.0
    for i in range(b.shape[0]):
        z = dot_row(values, indices, indptr, p, i, w)
        mine = s * loss_of(code, y[i], z)
        loss += mine
        gap += mine + conjugate_of(code, y[i], b[i], s) + (b[i] * z if code == SQUARED else y[i] * b[i] * z)
    sums[LOSS], sums[GAP] = loss, gap


@kernel
def row_norms(values, indptr, p, norm):
    """norm[i] = ‖x_i‖²."""
    for i in range(norm.shape[0]):
        first, last = i * p, (i + 1) * p
        if indptr.shape[0] > 0:
            first, last = indptr[i], indptr[i + 1]
        square = 0.0
        for e in range(first, last):
            square += np.float64(values[e]) * np.float64(values[e])
        norm[i] = square
