"""The reference's arithmetic against exact fractions and against what is compiled, bit for bit."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from stretto.kernels.numeric import lanes
from stretto.kernels.numeric import vector as v
from stretto.loops.types.typed_tree import ScalarType
from stretto.testing import arithmetic
from stretto.testing.arithmetic import apply, convert, fma32, same_bits

SPECIAL = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e-45, -1e-45, 1.1754944e-38, 3.4028235e38, -2.5, 7.75]
compiled = numba.njit(error_model="numpy")
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


def floats(dtype: str, seed: int, size: int = 16) -> NDArray[Any]:
    """Ordinary numbers of every size, a third of them replaced by special ones."""
    rng = np.random.default_rng(seed)
    ordinary = rng.normal(size=size) * 10.0 ** rng.integers(-6, 7, size)
    return np.where(rng.random(size) < 0.35, rng.choice(SPECIAL, size), ordinary).astype(dtype)


def whole(dtype: str, seed: int, size: int = 16) -> NDArray[Any]:
    """Integers of the whole range, many of them small or at its ends."""
    rng, ends = np.random.default_rng(seed), np.iinfo(dtype)
    far = rng.integers(ends.min, ends.max, size, dtype, endpoint=True)
    return np.where(rng.random(size) < 0.5, far, rng.choice(np.array([ends.min, ends.max, 0, 1, 2, 3], dtype), size))


# --- float32 multiply-add -------------------------------------------------------------------------------------------


def rounded(exact: Fraction) -> np.float32:
    """The float32 nearest to a fraction, ties to even: by trying the neighbours."""
    with np.errstate(all="ignore"):
        guess = np.float32(float(exact))
        near = [np.nextafter(guess, np.float32(-np.inf)), guess, np.nextafter(guess, np.float32(np.inf))]

    def distance(x: np.float32) -> tuple[Fraction, int]:
        # Infinity stands for 2**128, where the next float32 would be.
        value = Fraction(float(x)) if np.isfinite(x) else Fraction(int(np.sign(x)) * 2**128)
        return abs(value - exact), int(x.view(np.int32)) & 1

    return min(near, key=distance)


@given(FLOATS, FLOATS, FLOATS)
@example(1 + 2**-23, 1 + 2**-23, 2.0**-70)
@example(1 + 2**-12, 1 - 2**-12, -(2.0**-80))
@example(2.0**-75, 2.0**-75, 2.0**-149)
@example(2.0**-75, 2.0**-74, -(2.0**-149))
@example(2.0**-100, 1 + 2.0**-23, 2.0**-126)
@example(2.0**64, 2.0**63, float(np.finfo(np.float32).max))
def test_multiply_add_rounds_once(x: float, y: float, z: float) -> None:
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    got = fma32(np.float32(x), np.float32(y), np.float32(z))
    if exact:
        assert same_bits(got, rounded(exact))
    else:
        assert got == 0


@compiled  # type: ignore[untyped-decorator]
def fma_each(x: Any, y: Any, z: Any, out: Any, alone: Any) -> None:
    v.store(out, 0, v.fma(v.load(x, 0), v.load(y, 0), v.load(z, 0)))
    for k in range(16):
        alone[k] = lanes.fma32(x[k], y[k], z[k])


@pytest.mark.parametrize("seed", range(100))
def test_multiply_add_is_the_compiled_one(seed: int) -> None:
    x, y, z = (floats("f4", 3 * seed + k) for k in range(3))
    with np.errstate(all="ignore"):
        if seed % 3 == 0:
            z = -(x * y)  # what is left is the rounding error alone
        if seed % 3 == 1:
            x *= np.float32(1e-20)
            y *= np.float32(1e-20)
    out, alone = np.zeros(16, np.float32), np.zeros(16, np.float32)
    fma_each(x, y, z, out, alone)
    assert same_bits(fma32(x, y, z), out)
    assert same_bits(out, alone)


# --- vectors --------------------------------------------------------------------------------------------------------


@compiled  # type: ignore[untyped-decorator]
def on_floats(x: Any, y: Any, n: int, out: Any, masks: Any, sums: Any) -> None:
    a, b = v.load(x, 0), v.load(y, 0)
    v.store(out, 0, v.add(a, b))
    v.store(out, 16, v.sub(a, b))
    v.store(out, 32, v.mul(a, b))
    v.store(out, 48, v.div(a, b))
    v.store(out, 64, v.larger(a, b))
    v.store(out, 80, v.smaller(a, b))
    v.store(out, 96, v.neg(a))
    v.store(out, 112, v.absolute(a))
    v.store(out, 128, v.root(a))
    v.store(out, 144, v.down(a))
    v.store(out, 160, v.up(a))
    v.store(out, 176, v.pick(v.less(a, b), a, b))
    v.store(out, 192, v.keep(a, n, y[0]))
    v.store_part(out, 208, n, v.load_part(x, 0, n))
    v.store(masks, 0, v.less(a, b))
    v.store(masks, 16, v.less_equal(a, b))
    v.store(masks, 32, v.equal(a, b))
    v.store(masks, 48, v.unequal(a, b))
    sums[0], sums[1], sums[2] = v.total(a), v.largest(a, n), v.least(a, n)


@compiled  # type: ignore[untyped-decorator]
def on_integers(x: Any, y: Any, n: int, out: Any, masks: Any, sums: Any) -> None:
    a, b = v.load(x, 0), v.load(y, 0)
    v.store(out, 0, v.add(a, b))
    v.store(out, 16, v.sub(a, b))
    v.store(out, 32, v.mul(a, b))
    v.store(out, 48, v.larger(a, b))
    v.store(out, 64, v.smaller(a, b))
    v.store(out, 80, v.neg(a))
    v.store(out, 96, v.absolute(a))
    v.store(out, 112, v.both(a, b))
    v.store(out, 128, v.either(a, b))
    v.store(out, 144, v.differ(a, b))
    v.store(out, 160, v.invert(a))
    v.store(masks, 0, v.less(a, b))
    v.store(masks, 16, v.less_equal(a, b))
    v.store(masks, 32, v.equal(a, b))
    v.store(masks, 48, v.unequal(a, b))
    sums[0], sums[1], sums[2] = v.total(a), v.largest(a, n), v.least(a, n)


def of_rows(op: str, x: NDArray[Any], y: NDArray[Any]) -> Any:
    if op in ("max", "min"):
        return (arithmetic.larger if op == "max" else arithmetic.smaller)(x, y)
    return apply(op, x) if op in ("neg", "abs", "sqrt", "floor", "ceil", "~") else apply(op, x, y)


ON_FLOATS = ("+", "-", "*", "/", "max", "min", "neg", "abs", "sqrt", "floor", "ceil")
ON_INTEGERS = ("+", "-", "*", "max", "min", "neg", "abs", "&", "|", "^", "~")


@pytest.mark.parametrize("dtype", ["f4", "f8", "i8", "i4", "u1"])
def test_vectors_compute_what_the_reference_does(dtype: str) -> None:
    floating = dtype[0] == "f"
    make, run, ops = (floats, on_floats, ON_FLOATS) if floating else (whole, on_integers, ON_INTEGERS)
    for seed, n in itertools.product(range(12), (0, 1, 5, 16)):
        x, y = make(dtype, 2 * seed), make(dtype, 2 * seed + 1)
        out, masks, sums = np.zeros(16 * 14, dtype), np.zeros(16 * 4, bool), np.zeros(3, dtype)
        run(x, y, n, out, masks, sums)
        for k, op in enumerate(ops):
            assert same_bits(of_rows(op, x, y), out[16 * k : 16 * k + 16]), (op, x, y)
        for k, op in enumerate(("<", "<=", "==", "!=")):
            assert same_bits(apply(op, x, y), masks[16 * k : 16 * k + 16]), (op, x, y)
        assert same_bits(arithmetic.total(x), sums[0])
        assert same_bits(arithmetic.extreme("max", x[:n]), sums[1]), (x, n)
        assert same_bits(arithmetic.extreme("min", x[:n]), sums[2]), (x, n)
        if floating:
            assert same_bits(np.where(x < y, x, y), out[176:192])
            assert same_bits(np.where(np.arange(16) < n, x, y[0]), out[192:208])
            assert same_bits(np.where(np.arange(16) < n, x, x.dtype.type(0)), out[208:])


@compiled  # type: ignore[untyped-decorator]
def on_masks(x: Any, y: Any, n: int, out: Any, sums: Any) -> None:
    a, b = v.load(x, 0), v.load(y, 0)
    v.store(out, 0, v.both(a, b))
    v.store(out, 16, v.either(a, b))
    v.store(out, 32, v.differ(a, b))
    v.store(out, 48, v.invert(a))
    v.store(out, 64, v.larger(a, b))
    v.store(out, 80, v.smaller(a, b))
    sums[0], sums[1] = v.largest(a, n), v.least(a, n)


def test_masks() -> None:
    for seed, n in itertools.product(range(4), (0, 1, 2, 16)):
        x, y = np.random.default_rng(seed).random((2, 16)) < 0.5
        out, sums = np.zeros(96, bool), np.zeros(2, bool)
        on_masks(x, y, n, out, sums)
        for k, op in enumerate(("&", "|", "^", "~", "max", "min")):
            assert same_bits(of_rows(op, x, y), out[16 * k : 16 * k + 16]), op
        assert (sums[0], sums[1]) == (arithmetic.extreme("max", x[:n]), arithmetic.extreme("min", x[:n]))


@compiled  # type: ignore[untyped-decorator]
def casts(f8: Any, f4: Any, i8: Any, i4: Any, u1: Any, b1: Any, o8: Any, o4: Any, oi8: Any, oi4: Any, ob: Any) -> None:
    d, f, q, i, u, b = v.load(f8, 0), v.load(f4, 0), v.load(i8, 0), v.load(i4, 0), v.load(u1, 0), v.load(b1, 0)
    v.store(o8, 0, v.cast(f, 1.0))
    v.store(o8, 16, v.cast(q, 1.0))
    v.store(o8, 32, v.cast(u, 1.0))
    v.store(o4, 0, v.cast(d, np.float32(1)))
    v.store(o4, 16, v.cast(q, np.float32(1)))
    v.store(o4, 32, v.cast(b, np.float32(1)))
    v.store(oi8, 0, v.cast(i, np.int64(1)))
    v.store(oi8, 16, v.cast(u, np.int64(1)))
    v.store(oi8, 32, v.cast(b, np.int64(1)))
    v.store(oi4, 0, v.cast(q, np.int32(1)))
    v.store(oi4, 16, v.cast(u, np.int32(1)))
    v.store(ob, 0, v.cast(d, True))
    v.store(ob, 16, v.cast(f, True))
    v.store(ob, 32, v.cast(i, True))


@compiled  # type: ignore[untyped-decorator]
def truncated(f8: Any, oi8: Any, oi4: Any) -> None:
    v.store(oi8, 0, v.cast(v.load(f8, 0), np.int64(1)))
    v.store(oi4, 0, v.cast(v.load(f8, 0), np.int32(1)))


@pytest.mark.parametrize("seed", range(8))
def test_casts(seed: int) -> None:
    source = {"f8": floats("f8", seed), "f4": floats("f4", seed), "i8": whole("i8", seed), "i4": whole("i4", seed)}
    source |= {"u1": whole("u1", seed), "b1": whole("u1", seed) < 100}
    outs = {dtype: np.zeros(48, dtype) for dtype in ("f8", "f4", "i8", "i4", "b1")}
    casts(*source.values(), *outs.values())
    pairs = {"f8": ("f4", "i8", "u1"), "f4": ("f8", "i8", "b1"), "i8": ("i4", "u1", "b1"), "i4": ("i8", "u1")}
    pairs["b1"] = ("f8", "f4", "i4")
    for dtype, froms in pairs.items():
        for k, name in enumerate(froms):
            wanted = np.array([convert(x, ScalarType(dtype)) for x in source[name]])
            assert same_bits(wanted, outs[dtype][16 * k : 16 * k + 16]), (name, dtype)
    inside = np.random.default_rng(seed).uniform(-2e9, 2e9, 16)
    wide, narrow = np.zeros(16, np.int64), np.zeros(16, np.int32)
    truncated(inside, wide, narrow)
    assert same_bits(np.array([convert(x, ScalarType("i8")) for x in inside]), wide)
    assert same_bits(np.array([convert(x, ScalarType("i4")) for x in inside]), narrow)


def test_a_conversion_of_an_integer_rounds_once() -> None:
    odd = 2**60 + 2**36 + 1  # by way of float64 it would become a tie, and go down
    assert convert(odd, ScalarType("f4")) == np.float32(2**60 + 2**37)
    assert convert(odd, ScalarType("f4")) != np.float32(float(odd))


# --- reductions -----------------------------------------------------------------------------------------------------


@compiled  # type: ignore[untyped-decorator]
def dot_of_rows(W: Any, H: Any) -> Any:
    return lanes.dot(W, 0, H, 0)


@compiled  # type: ignore[untyped-decorator]
def dot_of_vectors(x: Any, y: Any) -> Any:
    sums = v.mul(v.load(x, 0), v.splat(x[0] - x[0]))
    for at in range(0, len(x), 16):
        sums = v.add(sums, v.mul(v.load(x, at), v.load(y, at)))
    return v.total(sums)


def filled_up(row: NDArray[Any]) -> NDArray[Any]:
    out = np.zeros(lanes.padded(len(row)), row.dtype)
    out[: len(row)] = row
    return out


@pytest.mark.parametrize("width", [0, 1, 15, 16, 17, 64, 100])
def test_dot_is_the_compiled_one(width: int) -> None:
    rng = np.random.default_rng(width)
    for _ in range(10):
        x, y = rng.normal(size=(2, width)).astype(np.float32)
        assert same_bits(arithmetic.dot(x, y), np.float32(dot_of_rows(filled_up(x)[None], filled_up(y)[None])))
        x, y = rng.normal(size=(2, width))
        assert same_bits(arithmetic.dot(x, y), np.float64(dot_of_vectors(filled_up(x), filled_up(y))))
        x, y = rng.integers(-(2**62), 2**62, (2, width))
        assert same_bits(arithmetic.dot(x, y), np.int64(dot_of_vectors(filled_up(x), filled_up(y))))


def test_dot_carries_special_numbers() -> None:
    big = np.array([3e38, 3e38], "f4")
    assert np.isnan(arithmetic.dot(big, np.array([3e38, -3e38], "f4")))  # the lanes hold ∞ and −∞
    assert arithmetic.dot(np.array([np.inf, 1], "f4"), np.array([1, 1], "f4")) == np.inf
    assert not np.signbit(arithmetic.dot(np.array([-0.0], "f4"), np.array([1.0], "f4")))
    assert not np.signbit(arithmetic.total(np.array([-0.0])))


def test_integer_sums_wrap() -> None:
    assert arithmetic.total(np.array([127, 1], np.int8)) == -128
    assert arithmetic.dot(np.array([2**62, 2**62]), np.array([2, 1])) == -(2**62)


def test_the_extreme_of_nothing_and_of_nan() -> None:
    assert arithmetic.extreme("max", np.zeros(0, np.float32)) == -np.inf
    assert arithmetic.extreme("min", np.zeros(0, np.int16)) == 32767
    assert np.isnan(arithmetic.extreme("max", np.array([1.0] * 30 + [np.nan])))
    assert arithmetic.extreme("max", np.arange(40)) == 39
    # Lane 0 holds elements 0 and 16 and keeps the left of two equal ones; then lane 0 stands left of lane 8.
    row = np.full(17, -1.0)
    row[[0, 16]] = 0.0, -0.0
    assert not np.signbit(arithmetic.extreme("max", row))
    row[[0, 16, 8]] = -0.0, 0.0, 0.0
    assert np.signbit(arithmetic.extreme("max", row))


# --- functions and division -----------------------------------------------------------------------------------------


@compiled  # type: ignore[untyped-decorator]
def functions(x: Any, out: Any) -> None:
    v.store(out, 0, v.each_exp(v.load(x, 0)))
    v.store(out, 16, v.each_log(v.absolute(v.load(x, 0))))


@pytest.mark.parametrize("seed", range(20))
def test_exp_and_log_are_the_compiled_ones(seed: int) -> None:
    x = np.random.default_rng(seed).uniform(-750, 750, 16)
    x[:8] = math.nan, math.inf, -math.inf, -708.0, 709.0, 0.0, math.log(2) / 2, -0.0
    out = np.zeros(32)
    functions(x, out)
    assert same_bits(apply("exp", x), out[:16])
    x = 10.0 ** np.random.default_rng(seed).uniform(-320, 308, 16)
    functions(x, out)
    assert same_bits(apply("log", x), out[16:])


def test_log_at_the_edges() -> None:
    wanted = np.array([-np.inf, -np.inf, np.nan, np.nan, np.inf, np.nan])
    assert same_bits(apply("log", np.array([0.0, -0.0, -1.0, -np.inf, np.inf, np.nan])), wanted)
    assert same_bits(apply("exp", np.float32(1)), np.float32(math.e))


@compiled  # type: ignore[untyped-decorator]
def divided(x: Any, y: Any) -> Any:
    return x // y, x % y


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8"])
def test_division_is_the_compiled_one(dtype: str) -> None:
    special = np.array(SPECIAL if dtype[0] == "f" else [0, 1, -1, 2, -7, 7, 2**63 - 1, -(2**63)], dtype)
    make = floats if dtype[0] == "f" else whole
    pairs = [*itertools.product(special, special), *zip(make(dtype, 0, 400), make(dtype, 1, 400), strict=True)]
    for x, y in pairs:
        if dtype == "i8" and x == -(2**63) and y == -1:
            continue  # Numba gives 0 where NumPy, and we, wrap around
        quotient, rest = divided(x, y)
        assert same_bits(apply("//", x, y), x.dtype.type(quotient)), (x, y)
        assert same_bits(apply("%", x, y), x.dtype.type(rest)), (x, y)


def test_integers_wrap() -> None:
    least, one = np.int64(-(2**63)), np.int64(1)
    assert apply("//", least, -one) == least
    assert apply("%", least, -one) == 0
    assert apply("abs", least) == apply("neg", least) == least
    assert apply("-", least, one) == 2**63 - 1
    assert apply("*", np.int32(2**30), np.int32(4)) == 0
    assert (apply("//", one, np.int64(0)), apply("%", one, np.int64(0))) == (0, 0)
    assert apply("<<", one, np.int64(63)) == least


def test_max_and_min_of_scalars_take_the_second_only_if_it_is_beyond_the_first() -> None:
    nan, one = np.float32("nan"), np.float32(1)
    assert np.isnan(apply("max", nan, one))
    assert apply("max", one, nan) == 1
    assert np.signbit(apply("max", np.float64(-0.0), np.float64(0.0)))
    assert apply("min", np.int8(3), np.int8(-3)) == -3
