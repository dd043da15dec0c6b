"""exp, log and powers by tables: against exact results, special values, and in loops."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import stretto
from loop_bodies import function, three_ways
from stretto.kernels.functions import tables
from stretto.kernels.numeric import scalar

RNG = np.random.default_rng(0)


def drawn(low: float, high: float) -> list[float]:
    return list(RNG.uniform(low, high, 600).tolist())


def units(found: float, exact: Decimal) -> float:
    """How far a result is from the exact one, in units of its last place."""
    return abs(float((Decimal(found) - exact) / Decimal(math.ulp(float(exact)))))


@pytest.mark.parametrize("bounds", [(-707.9, 708.9), (-1.0, 1.0), (-1e-3, 1e-3), (-1e-9, 1e-9)])
def test_exp_is_within_its_bound(bounds: tuple[float, float]) -> None:
    with localcontext() as context:
        context.prec = 40
        assert max(units(tables.exp(x), Decimal(x).exp()) for x in drawn(*bounds)) <= 0.51


@pytest.mark.parametrize("bounds", [(1e-307, 1e300), (0.6, 1.4), (0.99, 1.01), (1.0, 1.0 + 1 / 128), (1 - 1e-9, 1.0)])
def test_log_is_within_its_bound(bounds: tuple[float, float]) -> None:
    with localcontext() as context:
        context.prec = 40
        assert max(units(tables.log(x), Decimal(x).ln()) for x in drawn(*bounds)) <= 0.53


@pytest.mark.parametrize(
    ("base", "exponent"),
    [((0.1, 3), (-30, 30)), ((0.99, 1.01), (-1e4, 1e4)), ((0.5, 2), (-900, 900)), ((1e-310, 2e-308), (-0.9, 0.9))],
)
def test_power_is_within_its_bound(base: tuple[float, float], exponent: tuple[float, float]) -> None:
    with localcontext() as context:
        context.prec = 40
        for x, y in zip(drawn(*base), drawn(*exponent), strict=True):
            found = tables.power(x, y)
            if 1e-305 < found < math.inf:
                assert units(found, (Decimal(x).ln() * Decimal(y)).exp()) <= 0.52, (x, y)


@pytest.mark.parametrize("x", [0.0, -0.0, math.inf, -math.inf, math.nan, -1.0, 709.9, -745.2, -720.3, 5e-324, 1e-310])
def test_outside_of_the_tables_they_are_those_of_polynomials(x: float) -> None:
    for found, wanted in ((tables.exp(x), scalar.exp(x)), (tables.log(x), scalar.log(x))):
        assert np.float64(found).tobytes() == np.float64(wanted).tobytes()


def test_exact_results() -> None:
    assert tables.exp(0.0) == tables.exp(-0.0) == 1.0
    assert tables.log(1.0) == 0.0
    assert [tables.power(2.0, float(k)) for k in range(-60, 61)] == [2.0**k for k in range(-60, 61)]
    assert [tables.power(float(k), 2.0) for k in range(-50, 51)] == [float(k * k) for k in range(-50, 51)]


@numba.njit(error_model="numpy")  # type: ignore[untyped-decorator]
def power_(x: float, y: float) -> Any:
    return tables.power(x, y)


@given(st.floats(1e-300, 1e300), st.floats(-900, 900))
@example(1.0000000000000002, 1e15)
@example(5e-324, 0.5)
def test_powers(x: float, y: float) -> None:
    try:
        expect = math.pow(x, y)
    except OverflowError:
        expect = math.inf
    if 0.0 < expect < 1e-307:
        return  # fewer digits there
    assert power_(x, y) == pytest.approx(expect, rel=4e-16, abs=0)


def test_powers_of_special_values_are_numpys() -> None:
    special = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, np.inf, -np.inf, np.nan, 1e308, 5e-324, -5e-324]
    with np.errstate(all="ignore"):
        for x in special:
            for y in special:
                if y == 0.5:
                    continue  # NumPy takes the square root: −0 of −0, NaN of −∞
                expect, found = np.power(np.float64(x), np.float64(y)), power_(x, y)
                assert found == pytest.approx(expect, rel=2e-15, abs=0, nan_ok=True), (x, y)
                assert math.isnan(found) or math.copysign(1, found) == math.copysign(1, expect), (x, y)


BODY = """
def loop(u, rows, out):
    for i in range(len(u)):
        x = u[i]
        out[i] = math.exp(x) + math.log(abs(x)) + abs(x) ** 1.3
        rows[i] = np.exp(rows[i]) + np.log(rows[i] * rows[i]) + np.abs(rows[i]) ** x
        out[i] += np.exp(rows[i, 0]) if rows[i, 0] < 5 else np.log(rows[i, 0])
"""


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_in_loops_numbers_and_rows_have_the_interpreters_bits(dtype: Any) -> None:
    draw = np.random.default_rng(1)
    arguments = {
        "u": draw.standard_normal(40).astype(dtype),
        "rows": draw.standard_normal((40, 19)).astype(dtype),
        "out": np.zeros(40, dtype),
    }
    three_ways(stretto.parallel(function(BODY)), arguments)
