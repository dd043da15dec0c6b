"""Predictions and losses against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelrun import WAYS, cut, run
from stretto.kernels.factorization import predict
from stretto.kernels.factorization.loss_codes import ABSOLUTE, LOGISTIC, SQUARED
from stretto.kernels.numeric import lanes

f4 = np.float32


def model(m: int, n: int, rank: int, seed: int, biased: bool) -> tuple[Any, ...]:
    random = np.random.default_rng(seed)
    W, H = lanes.aligned((m, lanes.padded(rank))), lanes.aligned((n, lanes.padded(rank)))
    W[:, :rank], H[:, :rank] = random.normal(size=(m, rank)), random.normal(size=(n, rank))
    if not biased:
        return W, H, np.zeros(0, f4), np.zeros(0, f4), f4(3.5)
    return W, H, random.normal(size=m).astype(f4), random.normal(size=n).astype(f4), f4(3.5)


def twin(rows: Any, cols: Any, W: Any, H: Any, b: Any, c: Any, mean: float) -> Any:
    """The same in float64, pair by pair."""
    result = []
    for i, j in zip(rows, cols, strict=True):
        known_i, known_j = 0 <= i < len(W), 0 <= j < len(H)
        p = np.float64(mean)
        p += b[i] if known_i and len(b) else 0.0
        p += c[j] if known_j and len(c) else 0.0
        p += W[i].astype(float) @ H[j].astype(float) if known_i and known_j else 0.0
        result.append(p)
    return np.array(result)


@settings(max_examples=25, deadline=None)
@given(
    m=st.integers(1, 20),
    n=st.integers(1, 20),
    rank=st.integers(1, 40),
    pairs=st.integers(0, 50),
    biased=st.booleans(),
    blocks=st.integers(1, 9),
    wide=st.booleans(),
    seed=st.integers(0, 99),
)
def test_predictions_match_numpy(
    m: int, n: int, rank: int, pairs: int, biased: bool, blocks: int, wide: bool, seed: int
) -> None:
    arrays = model(m, n, rank, seed, biased)
    random = np.random.default_rng(seed)
    kind = np.int64 if wide else np.int32
    rows, cols = random.integers(-1, m + 1, pairs).astype(kind), random.integers(-1, n + 1, pairs).astype(kind)
    expected = twin(rows, cols, *arrays)
    seen = []
    for way in WAYS:
        result = np.full(pairs, np.nan, f4)
        out = run(predict.predict_worker, cut(pairs, blocks), rows, cols, *arrays, result, way=way)
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(out.sum(), result.astype(float).sum(), atol=1e-9)
        seen.append((result.tobytes(), out.tobytes()))
    assert len(set(seen)) == 1


@pytest.mark.parametrize("loss", [SQUARED, ABSOLUTE, LOGISTIC])
def test_costs_match_numpy(loss: int) -> None:
    arrays = model(30, 20, 10, 3, True)
    random = np.random.default_rng(0)
    rows, cols = random.integers(-1, 30, 200), random.integers(-1, 20, 200)
    values = random.choice([-1.0, 1.0], 200).astype(f4)
    p = twin(rows, cols, *arrays)
    expected = {
        SQUARED: (values - p) ** 2,
        ABSOLUTE: np.abs(values - p),
        LOGISTIC: np.logaddexp(0.0, -values * p),
    }[loss]
    bounds = cut(200, 7)
    totals = [run(predict.cost_worker, bounds, rows, cols, values, *arrays, loss, way=way) for way in WAYS]
    np.testing.assert_allclose(totals[0], [s.sum() for s in np.split(expected, bounds[1:-1])], rtol=1e-5)
    assert len({t.tobytes() for t in totals}) == 1


def test_a_prediction_that_is_not_finite_stops_the_pass() -> None:
    W, H, b, c, mean = model(4, 4, 3, 0, False)
    H[2, 0] = np.inf
    rows, cols = np.zeros(4, np.int32), np.arange(4, dtype=np.int32)
    run(predict.predict_worker, cut(4, 2), rows, cols, W, H, b, c, mean, np.zeros(4, f4), fails=True)
