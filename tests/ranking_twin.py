"""A pass of a ranking loss in plain Python and double precision, visit by visit: the reference of the compiled one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from stretto.kernels.factorization.ranking import MOST_WEIGHT, TRIES

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


def scramble(x: int) -> int:
    """SplitMix64's finaliser."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> shift)) * factor & MASK
    return x ^ (x >> 31)


def mix(*keys: int) -> int:
    """64 random bits for four keys."""
    x = 0
    for key in keys:
        x = scramble(x ^ (key + GOLDEN & MASK))
    return x


class Twin:
    """Double-precision factors that a pass moves.

    Parameters
    ----------
    blocks : Blocks
        The entries of each visit.
    states : sequence of array
        W, H, b, c; copied.
    pool, first, end : array
        As of the kernel.
    """

    def __init__(self, blocks: Any, states: Any, pool: Any, first: Any, end: Any) -> None:
        self.blocks, self.pool, self.first, self.end = blocks, pool, first, end
        self.W, self.H, self.b, self.c = (np.array(state, np.float64) for state in states)

    def run(
        self,
        loss: str,
        *,
        step: float,
        lam: float = 0.0,
        lam_bias: float = 0.0,
        confidence: float = 0.0,
        mean_weight: float = 1.0,
        draws: int = 1,
        seed: int = 0,
        epoch: int = 0,
    ) -> list[float]:
        """One pass; the loss of each visit."""
        blocks, self.step, self.keep, self.keep_bias = blocks_of(self.blocks), step, 1 - step * lam, 1 - step * lam_bias
        totals = []
        for v, (entries, row_at, col_at) in enumerate(blocks):
            preferred = {(u, i) for u, i, r in entries if r > 0}
            choice, state, total = self.end[v] - self.first[v], mix(seed, epoch, v, 0), 0.0
            for u, i, r in entries:
                if r <= 0 and loss != "logistic":
                    continue
                x, y = row_at + u, col_at + i
                weight = min((1 + confidence * abs(r)) / mean_weight, MOST_WEIGHT)
                if loss == "logistic":
                    total += self.logistic(x, y, 1.0 if r > 0 else -1.0, weight)
                    if r <= 0:
                        continue
                made = 0
                for _ in range(draws):
                    j = None
                    for _ in range(TRIES):
                        state = state + GOLDEN & MASK
                        k = int(self.pool[self.first[v] + ((scramble(state) >> 32) * int(choice) >> 32)])
                        if (u, k - col_at) not in preferred:
                            j = k
                            break
                    if j is None:
                        break
                    made += 1
                    if loss == "logistic":
                        total += self.logistic(x, j, -1.0, 1.0)
                        continue
                    d = self.score(x, y) - self.score(x, j)
                    if loss == "bpr":
                        total += math.log1p(math.exp(-d))
                        self.apart(x, y, j, weight / (1 + math.exp(d)))
                    elif d < 1:
                        level = math.log(1 + (len(self.pool) - 1) / made) / math.log(1 + len(self.pool))
                        total += level * (1 - d)
                        self.apart(x, y, j, weight * level)
                        break
            totals.append(total)
        return totals

    def score(self, x: int, j: int) -> float:
        return float(self.W[x] @ self.H[j]) + (float(self.c[j]) if len(self.c) else 0.0)

    def apart(self, x: int, y: int, j: int, pull: float) -> None:
        g, w = self.step * pull, self.W[x].copy()
        self.W[x] = self.keep * w + g * (self.H[y] - self.H[j])
        self.H[y] = self.keep * self.H[y] + g * w
        self.H[j] = self.keep * self.H[j] - g * w
        if len(self.c):
            self.c[y] = self.keep_bias * self.c[y] + g
            self.c[j] = self.keep_bias * self.c[j] - g

    def logistic(self, x: int, j: int, sign: float, weight: float) -> float:
        p = self.score(x, j) + (float(self.b[x]) if len(self.b) else 0.0)
        g, w = self.step * weight * sign / (1 + math.exp(sign * p)), self.W[x].copy()
        self.W[x] = self.keep * w + g * self.H[j]
        self.H[j] = self.keep * self.H[j] + g * w
        if len(self.b):
            self.b[x] = self.keep_bias * self.b[x] + g
            self.c[j] = self.keep_bias * self.c[j] + g
        return math.log1p(math.exp(-sign * p))


def blocks_of(blocks: Any) -> list[tuple[list[tuple[int, int, float]], int, int]]:
    """(entries, first row, first column) of each visit."""
    found = []
    for v, (lo, hi) in enumerate(zip(blocks.ptr[:-1], blocks.ptr[1:], strict=True)):
        entries = zip(blocks.u[lo:hi].tolist(), blocks.i[lo:hi].tolist(), blocks.r[lo:hi].tolist(), strict=True)
        found.append((list(entries), int(blocks.row_base[v]), int(blocks.col_base[v])))
    return found
