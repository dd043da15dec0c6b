"""CoCoA with samples cut into parts, in the dual: s·Σ loss(y_i, x_i·w) + ½·ridge·‖w‖², w = Σ a_i x_i / ridge.

A part improves the dual variables of its own samples by dual coordinate descent (SDCA). It assumes that its change of w
counts σ′ times: that covers what the other parts change at the same time. `linear.dual_losses` says how the variable b
of a sample is stored.
"""

from __future__ import annotations

from stretto.kernels.core.compile import kernel
from stretto.kernels.linear.dual_losses import SQUARED, conjugate_of, dual_step, loss_of

from .sample_rows import add_row, dot_row, row_square

LOSS, GAP, NORM = range(3)  # slots of the sums of a part
SUMS = 3


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
def row_sums(code, values, indices, indptr, p, y, b, w, s, first, last, sums):
    """Fill sums [3]: the loss of the samples, their duality gap s·loss(z) + s·loss*(−a) + a·z, which is never negative,
    and the squares of w[first … last − 1]: every part adds some of them.
    """
    loss, gap = 0.0, 0.0
    for i in range(b.shape[0]):
        z = dot_row(values, indices, indptr, p, i, w)
        mine = s * loss_of(code, y[i], z)
        loss += mine
        gap += mine + conjugate_of(code, y[i], b[i], s) + (b[i] * z if code == SQUARED else y[i] * b[i] * z)
    square = 0.0
    for j in range(first, last):
        square += w[j] * w[j]
    sums[LOSS], sums[GAP], sums[NORM] = loss, gap, square


@kernel
def row_norms(values, indptr, p, norm):
    """norm[i] = ‖x_i‖²."""
    for i in range(norm.shape[0]):
        norm[i] = row_square(values, indptr, p, i)
