"""CoCoA with columns cut into parts: f(v) + l1·‖a‖₁ + ½·l2·‖a‖², v = Aa, where every part has some of the columns.

f(v) = s·Σ loss(y, v) with the squared or the logistic loss. A part minimises, over the change d of its coefficients,

    ∇f(v)·A_k d + ½·curve·‖A_k d‖² + l1·‖a_k + d‖₁ + ½·l2·‖a_k + d‖²,        curve = σ′/τ

by coordinate descent. The other parts are in σ′ alone. A_k is stored by columns, as `samples.sample_rows` stores rows:
column j is "row" j, of n numbers.
"""

from __future__ import annotations

from stretto.kernels.core.compile import kernel
from stretto.kernels.samples.sample_rows import add_row, dot_row

from .dual_losses import LOGISTIC, conjugate_of, loss_of, sigmoid
from .quadratic import soft

LARGEST, EXCESS, NORM_1, NORM_2 = range(4)  # slots of the sums of a part
SUMS = 4


@kernel
def gradient(code, y, v, s, u):
    """u = ∇f(v)."""
    for i in range(v.shape[0]):
        u[i] = -s * y[i] * sigmoid(-y[i] * v[i]) if code == LOGISTIC else s * (v[i] - y[i])


@kernel
def descend_columns(values, indices, indptr, n, order, a, u, change, norm, l1, l2, curve):
    """Visit columns in this order. a [k] and u [n] = ∇f(v) + curve·A_k d are updated; change [n] += A_k d.

    norm [k] ‖x_j‖². A column of zeros gets the coefficient 0.
    """
    for at in range(order.shape[0]):
        j = order[at]
        h = curve * norm[j]
        old, new = a[j], 0.0
        if h > 0.0:
            new = soft(h * old - dot_row(values, indices, indptr, n, j, u), l1, False) / (h + l2)
        d = new - old
        if d != 0.0:
            a[j] = new
            add_row(values, indices, indptr, n, j, curve * d, u)
            add_row(values, indices, indptr, n, j, d, change)


@kernel
def column_sums(values, indices, indptr, n, a, u, l1, sums):
    """Fill sums [4] for the duality gap: largest |x_j·u|, Σ (|x_j·u| − l1)₊², Σ |a_j|, Σ a_j²."""
    largest, excess, norm_1, norm_2 = 0.0, 0.0, 0.0, 0.0
    for j in range(a.shape[0]):
        size = abs(dot_row(values, indices, indptr, n, j, u))
        largest = max(largest, size)
        over = max(0.0, size - l1)
        excess += over * over
        norm_1 += abs(a[j])
        norm_2 += a[j] * a[j]
    sums[LARGEST], sums[EXCESS], sums[NORM_1], sums[NORM_2] = largest, excess, norm_1, norm_2


@kernel
def residual_sums(y, v, first, last, sums):
    """Fill sums [2] for the squared loss, over the samples first … last − 1: Σ r², Σ y·r, where r = y − v."""
    square, product = 0.0, 0.0
    for i in range(first, last):
        r = y[i] - v[i]
        square += r * r
        product += y[i] * r
    sums[0], sums[1] = square, product


@kernel
def logistic_sums(y, v, s, first, last, shares, sums):
    """Fill sums [1 + k] for the logistic loss, over the samples first … last − 1: f(v), and f*(share·∇f(v)) for each of
    the shares [k], which are in [0, 1].
    """
    for slot in range(sums.shape[0]):
        sums[slot] = 0.0
    for i in range(first, last):
        sums[0] += s * loss_of(LOGISTIC, y[i], v[i])
        b = s * sigmoid(-y[i] * v[i])
        for at in range(shares.shape[0]):
            sums[1 + at] += conjugate_of(LOGISTIC, y[i], shares[at] * b, s)
