"""Example loops that call the helpers of users' loops, so that the helpers are compiled and cached."""

from __future__ import annotations

from typing import Any

import numpy as np

import stretto as st


@st.parallel
def factorise(ratings: Any, W: Any, H: Any, rate: float, loss: Any) -> None:
    """Matrix factorisation, as in the README."""
    for (i, j), r in ratings:
        e = r - W[i] @ H[j]
        loss += e * e
        W[i], H[j] = W[i] + rate * e * H[j], H[j] + rate * e * W[i]


@st.parallel
def smooth(x: Any, share: float, seed: int) -> None:
    """Functions of numbers, and random numbers by key."""
    for i in range(x.shape[0]):
        x[i] = share * np.exp(-abs(x[i])) + np.log(1.0 + st.uniform(seed, i)) + st.normal(seed, i)


def run_loops() -> None:
    """Run each once."""
    data = st.generate_ratings(2_000, 300, 200, seed=0).data
    for dtype in (np.float32, np.float64):
        W, H = np.ones((data.shape[0], 24), dtype), np.ones((data.shape[1], 24), dtype)
        factorise(data, W, H, 0.01, st.accumulator(0.0))
    smooth(np.ones(50), 0.5, 1)
