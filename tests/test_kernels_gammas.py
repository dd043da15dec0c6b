"""lnΓ and ψ against SciPy's, against what defines them, and against bits that may never change."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
import pytest
import scipy.special
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stretto.kernels.functions.gammas import digamma, lgamma


@numba.njit  # type: ignore[untyped-decorator]
def lgamma_(x: float) -> Any:
    return lgamma(x)


@numba.njit  # type: ignore[untyped-decorator]
def digamma_(x: float) -> Any:
    return digamma(x)


def near(value: float) -> Any:
    """What the module promises."""
    return pytest.approx(value, abs=1e-14, rel=2e-15)


POSITIVE = st.floats(-690, 690).map(math.exp) | st.floats(1e-3, 40.0) | st.integers(1, 10**9).map(float)


@settings(max_examples=60)
@given(POSITIVE)
@example(1.0)
@example(2.0)
@example(1.4616321449683622)  # where lnΓ is least and ψ is 0
@example(10.0)
@example(float(np.nextafter(10.0, 0.0)))
@example(1e-300)
def test_both_are_what_scipy_says(x: float) -> None:
    assert lgamma_(x) == near(float(scipy.special.gammaln(x)))
    assert digamma_(x) == near(float(scipy.special.digamma(x)))


def test_thousands_of_arguments() -> None:
    """Where priors and counts are: hypothesis tries few, and the worst error is rare."""
    x = np.concatenate([np.geomspace(1e-7, 1e7, 4001), np.linspace(0.01, 30, 3000), np.arange(1.0, 2000.0) + 0.1])
    for ours, theirs in ((lgamma_, scipy.special.gammaln), (digamma_, scipy.special.digamma)):
        wanted = theirs(x)
        wrong = np.abs([ours(v) for v in x] - wanted)
        assert (wrong / np.maximum(1e-14, 2e-15 * np.abs(wanted))).max() < 1.0


@settings(max_examples=40)
@given(st.floats(1e-3, 200.0), st.integers(1, 40))
def test_a_step_up_is_a_factor_more(x: float, n: int) -> None:
    assert lgamma_(x + n) - lgamma_(x) == pytest.approx(math.fsum(math.log(x + i) for i in range(n)), abs=1e-12)
    assert digamma_(x + n) - digamma_(x) == pytest.approx(math.fsum(1 / (x + i) for i in range(n)), rel=1e-12)


def test_factorials() -> None:
    for n in range(1, 19):
        assert lgamma_(float(n + 1)) == near(math.log(math.factorial(n)))


def test_the_edges() -> None:
    assert lgamma_(0.0) == lgamma_(math.inf) == digamma_(math.inf) == math.inf
    assert digamma_(0.0) == -math.inf
    for wrong in (math.nan, -1.0, -0.5, -math.inf):
        assert math.isnan(lgamma_(wrong))
        assert math.isnan(digamma_(wrong))


def test_the_bits() -> None:
    """The same on every x86-64 processor; a change here changes the likelihood that every run reports."""
    assert [lgamma_(x).hex() for x in (0.01, 0.5, 7.25, 123.456)] == [
        "0x1.265de0d9b33c2p+2",
        "0x1.250d048e7a1b0p-1",
        "0x1.c35701a50ff07p+2",
        "0x1.d59b0522ff3bep+8",
    ]
    assert [digamma_(x).hex() for x in (0.01, 0.5, 7.25, 123.456)] == [
        "-0x1.923e58c1e9643p+6",
        "-0x1.f6a897d3214f8p+0",
        "0x1.e9137b7a7e564p+0",
        "0x1.33f502faf1dfdp+2",
    ]
