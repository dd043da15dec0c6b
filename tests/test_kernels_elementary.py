"""Elementary functions against the machine's own mathematics, and in loops against NumPy and the interpreter."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest

import stretto
from loop_bodies import fresh, function, three_ways
from stretto.kernels.numeric import elementary
from stretto.loops.types.typed_tree import ELEMENTARY

RNG = np.random.default_rng(0)
SMALL = np.concatenate([10.0 ** RNG.uniform(-300, 0, 300), -(10.0 ** RNG.uniform(-300, 0, 300)), [0.0, -0.0]])


def near(count: int, low: float, high: float) -> Any:
    return RNG.uniform(low, high, count)


# Arguments at which each function is tested: inside, near the borders of its cases, special values.
ARGUMENTS: dict[str, Any] = {
    "expm1": np.concatenate([SMALL, near(500, -0.36, 0.36), near(300, -40, 700), [-np.inf, np.inf, np.nan]]),
    "log1p": np.concatenate(
        [SMALL[SMALL > -0.9], near(500, -0.26, 0.26), near(300, -1, 1e6), [-1, -2, np.inf, np.nan]]
    ),
    "tanh": np.concatenate([SMALL, near(500, -0.4, 0.4), near(500, -23, 23), [-1e9, np.inf, -np.inf, np.nan]]),
    "sin": np.concatenate([SMALL, near(500, -9, 9), 10.0 ** near(500, 0, 15), np.pi * np.arange(1, 300), [np.nan]]),
    "cos": np.concatenate([SMALL, near(500, -9, 9), 10.0 ** near(500, 0, 15), np.pi * np.arange(0.5, 300), [np.nan]]),
    "erf": np.concatenate([SMALL, near(300, -0.6, 0.6), near(500, -7, 7), [np.inf, -np.inf, np.nan]]),
    "lgamma": np.concatenate([10.0 ** near(500, -3, 6), [0.5, 3.0, 1e300, np.inf, np.nan]]),
    "sign": np.array([-2.0, -0.0, 0.0, 3.0, np.inf, -np.inf, np.nan, 5e-324]),
}


def expected(name: str, x: float) -> float:
    with np.errstate(all="ignore"):
        return float(getattr(np, name)(x)) if hasattr(np, name) else float(getattr(math, name)(x))


def compiled(scalar: Callable[..., Any]) -> Callable[..., Any]:
    @numba.njit(error_model="numpy")  # type: ignore[untyped-decorator]
    def every(x: Any, out: Any) -> None:
        for i in range(len(x)):
            out[i] = scalar(x[i])

    return every  # type: ignore[no-any-return]


def test_every_function_is_tested() -> None:
    assert set(ARGUMENTS) == set(ELEMENTARY)


@pytest.mark.parametrize("name", ELEMENTARY)
def test_errors_are_within_the_bounds_that_are_stated(name: str) -> None:
    x = np.asarray(ARGUMENTS[name], np.float64)
    found = np.empty_like(x)
    compiled(getattr(elementary, name))(x, found)
    bound = {"rel": 2e-15, "abs": 1e-14} if name == "lgamma" else {"rel": 1.2e-15, "abs": 0.0}
    for at, value in zip(x, found, strict=True):
        assert value == pytest.approx(expected(name, float(at)), nan_ok=True, **bound), at
        assert value != 0.0 or math.copysign(1, value) == math.copysign(1, expected(name, float(at)))


BODY = """
def loop(W, u, out, rows, n):
    for i in range(n):
        w = W[i]
        rows[i] = np.tanh(w) + np.sin(w) * np.log1p(w * w) - np.expm1(w) * np.cos(w) + np.sign(w)
        rows[i] += np.clip(w, -0.5, 0.5) + np.where(np.isnan(w), 0.0, 1.0) + np.abs(w) ** 1.7 + np.square(w)
        x = W[i, 0]
        out[i] = math.erf(x) + math.lgamma(abs(x) + 0.1) + abs(x) ** u[i] + np.tanh(x) + math.log1p(x * x)
        out[i] += math.sin(x) * math.cos(x) + pow(2.0, x) + np.sign(u[i]) + x ** -2 + math.expm1(x) + np.sign(i - 5)
"""


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_functions_in_loops_have_the_interpreters_bits_and_numpys_values(dtype: Any) -> None:
    rng = np.random.default_rng(1)
    plain = function(BODY)
    arguments: dict[str, Any] = {
        "W": rng.standard_normal((40, 19)).astype(dtype),
        "u": rng.standard_normal(40),
        "out": np.zeros(40),
        "rows": np.zeros((40, 19), dtype),
        "n": 40,
    }
    after = three_ways(stretto.parallel(plain), arguments)
    wanted: dict[str, Any] = fresh(arguments)
    plain(**wanted)
    close = 1e-13 if dtype == np.float64 else 2e-5
    np.testing.assert_allclose(after["rows"], wanted["rows"], rtol=close, atol=close)
    np.testing.assert_allclose(after["out"], wanted["out"], rtol=close, atol=close)
