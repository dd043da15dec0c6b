"""Keyed random numbers: plain and compiled twins agree in every bit, and the numbers are what they say."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

import stretto
from stretto.errors import DataError
from stretto.kernels.numeric import keyed
from stretto.keyed import integers, normal, uniform

keys = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5)


@numba.njit  # type: ignore[untyped-decorator]
def compiled(keys: NDArray[Any], n: int) -> Any:
    u, k, x = keyed.UNIFORM, keyed.INTEGERS, keyed.NORMAL
    for key in keys:
        u, k, x = keyed.absorb(u, key), keyed.absorb(k, key), keyed.absorb(x, key)
    return keyed.unit(u), keyed.below(k, n), keyed.gauss(x)


@numba.njit  # type: ignore[untyped-decorator]
def gauss_of(states: NDArray[np.uint64]) -> Any:
    out = np.empty(len(states))
    for k in range(len(states)):
        out[k] = keyed.gauss(states[k])
    return out


@given(keys, st.integers(1, 2**31))
@example([0], 1)
@example([-1, -1], 2**31)
def test_plain_and_compiled_give_the_same_bits(some: list[int], n: int) -> None:
    assert compiled(np.array(some, np.int64), n) == (uniform(*some), integers(n, *some), normal(*some))


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint8, np.uint32, np.uint64, np.bool_])
def test_every_integer_type_is_the_same_key(dtype: Any) -> None:
    typed = np.array([1, 0, 100 if dtype != np.bool_ else 1], dtype)
    assert compiled(typed, 9) == compiled(typed.astype(np.int64), 9)
    assert uniform(*typed.astype(np.int64)) == uniform(*typed.astype(int).tolist())
    if np.dtype(dtype).kind == "i":
        low = np.array([-1, -128], dtype)
        assert compiled(low, 9)[0] == uniform(-1, -128)


def test_the_normal_tail_too() -> None:
    """The inverse distribution function against the standard library's, out to both ends of what can be drawn."""
    steps = np.unique(np.concatenate([2 ** np.arange(52), 2**52 - 2 ** np.arange(52), np.arange(1, 2**52, 2**40)]))
    steps = np.concatenate([[0], steps[steps < 2**52]])
    found = gauss_of(steps.astype(np.uint64) << np.uint64(12))
    wanted = [NormalDist().inv_cdf((int(k) + 0.5) * 2.0**-52) for k in steps]
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-15)
    assert np.abs(found).max() < 8.3


def test_numbers_are_spread_as_they_should_be() -> None:
    n = 20_000
    u = np.array([uniform(7, k) for k in range(n)])
    x = np.array([normal(7, k) for k in range(n)])
    k = np.bincount([integers(10, 7, k) for k in range(n)], minlength=10)
    assert 0.0 <= u.min() < u.max() < 1.0
    assert np.sum((np.histogram(u, 16, (0, 1))[0] - n / 16) ** 2 / (n / 16)) < 44.3
    assert np.sum((k - n / 10) ** 2 / (n / 10)) < 33.7
    assert x.mean() == pytest.approx(0.0, abs=4 / n**0.5)
    assert x.std() == pytest.approx(1.0, abs=4 / (2 * n) ** 0.5)
    assert abs(np.corrcoef(u, x)[0, 1]) < 4 / n**0.5  # the same keys, another kind of number


@given(keys)
def test_more_keys_make_another_number(some: list[int]) -> None:
    assert uniform(*some) != uniform(*some, 0)
    assert normal(*some) != normal(*some, 0)


def test_fixed_for_good() -> None:
    """A recorded run must be found again by every later version."""
    assert uniform(1, 2, 3).hex() == FIXED[0]
    assert normal(1, 2, 3).hex() == FIXED[1]
    assert integers(1000, 1, 2, 3) == FIXED[2]


FIXED = ("0x1.b0f23597be41cp-3", "0x1.23d7b39949237p-3", 630)


def test_what_is_refused() -> None:
    with pytest.raises(DataError, match="at least one key"):
        uniform()
    with pytest.raises(DataError, match="1 to 2147483648"):
        integers(0, 1)
    with pytest.raises(TypeError):
        uniform(0.5)  # type: ignore[arg-type]


def test_a_loop_can_recognise_them() -> None:
    marks = [vars(function)["__stretto_function__"] for function in (uniform, integers, normal)]
    assert marks == ["uniform", "integers", "normal"]
    assert stretto.uniform is uniform
