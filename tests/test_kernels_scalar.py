"""exp, log and the losses against the machine's own mathematics."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stretto.kernels.factorization.loss_codes import ABSOLUTE, CODES, LOGISTIC, SQUARED
from stretto.kernels.factorization.losses import cost_of, pull_of
from stretto.kernels.numeric.scalar import exp, log, log_normal


@numba.njit  # type: ignore[untyped-decorator]
def exp_(x: float) -> Any:
    return exp(x)


@numba.njit  # type: ignore[untyped-decorator]
def log_(x: float) -> Any:
    return log(x)


@numba.njit(error_model="numpy")  # type: ignore[untyped-decorator]
def logs_(x: Any, many: Any) -> None:
    for i in range(len(x)):
        many[i] = log_normal(x[i])


@numba.njit  # type: ignore[untyped-decorator]
def loss_(code: int, y: np.float32, p: np.float32) -> Any:
    return cost_of(code, y, p), pull_of(code, y, p)


@given(st.floats(-708, 709))
@example(0.0)
@example(math.log(2) / 2)
@example(-math.log(2) / 2)
@example(-708.0)
@example(709.0)
def test_exp(x: float) -> None:
    assert exp_(x) == pytest.approx(math.exp(x), rel=1e-14, abs=0)


def test_log_normal_has_the_bits_of_log() -> None:
    rng = np.random.default_rng(0)
    near = 1.0 + np.arange(-50, 50) * 2.0**-52
    ends = [2.2250738585072014e-308, 1.7e308, 1.0, 0.5, 2.0, math.sqrt(0.5), np.nextafter(math.sqrt(0.5), 0.0)]
    x = np.concatenate([np.exp(rng.uniform(-700, 700, 2_000)), rng.uniform(0, 3, 2_000), near, ends])
    many = np.empty_like(x)
    logs_(x, many)
    np.testing.assert_array_equal(many, [log_(one) for one in x])


@given(st.floats(2.3e-308, 1.7e308))
@example(1.0)
@example(math.sqrt(0.5))
@example(np.nextafter(1.0, 2.0))
@example(np.nextafter(1.0, 0.0))
@example(2.2250738585072014e-308)
def test_log(x: float) -> None:
    assert log_(x) == pytest.approx(math.log(x), rel=1e-14, abs=0)


@given(st.floats(-700, 700))
def test_log_undoes_exp(x: float) -> None:
    assert log_(exp_(x)) == pytest.approx(x, rel=1e-13, abs=1e-14)


def test_the_edges() -> None:
    assert exp_(-746.0) == exp_(-math.inf) == 0.0
    assert exp_(710.0) == exp_(math.inf) == math.inf
    assert exp_(709.7) == pytest.approx(math.exp(709.7), rel=1e-13)
    assert exp_(-740.0) == pytest.approx(math.exp(-740.0), rel=1e-2)  # few bits are left there
    assert exp_(0.0) == 1.0
    assert log_(1.0) == 0.0
    assert log_(0.0) == -math.inf
    assert log_(math.inf) == math.inf
    assert all(math.isnan(x) for x in (exp_(math.nan), log_(math.nan), log_(-1.0)))


@given(st.sampled_from(sorted(CODES)), st.floats(-50, 50, width=32), st.floats(-50, 50, width=32))
def test_losses(name: str, y: float, p: float) -> None:
    cost, pull = loss_(CODES[name], np.float32(y), np.float32(p))
    if name == "squared":
        wanted = (y - p) ** 2, y - p
    elif name == "absolute":
        wanted = abs(y - p), float(np.sign(y - p))
    else:
        z = p if y > 0 else -p
        wanted = np.logaddexp(0.0, -z), float(y > 0) - 1 / (1 + math.exp(-p))
    assert cost == pytest.approx(wanted[0], rel=1e-12, abs=1e-15)
    assert pull == pytest.approx(wanted[1], rel=1e-6, abs=1e-7)


@given(st.sampled_from([SQUARED, ABSOLUTE, LOGISTIC]), st.floats(-5, 5, width=32), st.floats(-5, 5, width=32))
def test_the_pull_goes_down_the_loss(code: int, y: float, p: float) -> None:
    cost, pull = loss_(code, np.float32(y), np.float32(p))
    moved, _ = loss_(code, np.float32(y), np.float32(p + 1e-3 * pull))
    # The absolute loss pulls with the same force however near the rating is, and may step over it.
    assert moved <= cost + (1.1e-3 if code == ABSOLUTE else 1e-6)


@pytest.mark.parametrize("p", [-800.0, -100.0, 100.0, 800.0])
def test_the_logistic_loss_never_overflows(p: float) -> None:
    for y in (0.0, 1.0):
        cost, pull = loss_(LOGISTIC, np.float32(y), np.float32(p))
        assert np.isfinite(cost)
        assert abs(pull) <= 1
