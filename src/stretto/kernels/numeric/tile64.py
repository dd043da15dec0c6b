"""Register tiles of float64: four rows by 32 columns of running sums, each one chain of fused multiply-adds.

    add_tile(C, at, step, sign, L, la, ls, R, ra, rb, rs, depth)
        C[at + r·step + c] += sign · Σ_k L[la + k·ls + r] · R[…]     r = 0 … 3, c = 0 … 31, k = 0 … depth − 1

with R's first sixteen columns at ra + k·rs and its next sixteen at rb + k·rs; offsets are counted in elements. Each
step uses four numbers of L and 32 of R in 128 products. Every sum is in the order of k, so neither the instruction set
nor the distribution of tiles over threads changes a bit. sign is 1.0 or −1.0.
"""

from __future__ import annotations

from stretto.kernels.core.compile import inner

from .vector import fma, get, load, splat, store

ROWS, COLUMNS = 4, 32


@inner
def add_tile(C, at, step, sign, L, la, ls, R, ra, rb, rs, depth):
    """Add the products to the tile at `at`."""
    c0, d0 = load(C, at), load(C, at + 16)
    c1, d1 = load(C, at + step), load(C, at + step + 16)
    c2, d2 = load(C, at + 2 * step), load(C, at + 2 * step + 16)
    c3, d3 = load(C, at + 3 * step), load(C, at + 3 * step + 16)
    for _ in range(depth):
        x, y = load(R, ra), load(R, rb)
        s = splat(sign * get(L, la))
        c0, d0 = fma(s, x, c0), fma(s, y, d0)
        s = splat(sign * get(L, la + 1))
        c1, d1 = fma(s, x, c1), fma(s, y, d1)
        s = splat(sign * get(L, la + 2))
        c2, d2 = fma(s, x, c2), fma(s, y, d2)
        s = splat(sign * get(L, la + 3))
        c3, d3 = fma(s, x, c3), fma(s, y, d3)
        ra += rs
        rb += rs
        la += ls
    store(C, at, c0)
    store(C, at + 16, d0)
    store(C, at + step, c1)
    store(C, at + step + 16, d1)
    store(C, at + 2 * step, c2)
    store(C, at + 2 * step + 16, d2)
    store(C, at + 3 * step, c3)
    store(C, at + 3 * step + 16, d3)
