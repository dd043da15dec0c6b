"""Operations that processors and compilers disagree about have one answer, NumPy's, compiled and interpreted alike.

Shifts by all the bits or more, floats that no integer fits, division by zero and of the least integer, NaN among the
extremes: every width, as elements of arrays (long enough for a vectorised body and a tail), as numbers among the
arguments, and as constants.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stretto as st
from loop_bodies import function, three_ways
from stretto.testing import arithmetic

Array = np.ndarray[Any, Any]
INTS = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")


def edges(dtype: str) -> list[int]:
    info = np.iinfo(dtype)
    found = (0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 255, -1, -2, -3, -8, -64, -65)
    return [x for x in (*found, info.max, info.max - 1, info.min, info.min + 1) if info.min <= x <= info.max]


def pairs(dtype: str) -> tuple[Array, Array]:
    """Every two of the edges; an odd number of them, so that a vectorised loop has a tail."""
    grid = np.meshgrid(np.array(edges(dtype), dtype), np.array(edges(dtype), dtype), indexing="ij")
    x, y = (np.append(part.ravel(), part.ravel()[:7]).astype(dtype) for part in grid)
    return (x, y) if len(x) % 2 else (x[:-1], y[:-1])


def run(source: str, **arguments: Any) -> dict[str, Any]:
    return three_ways(st.parallel(function(source)), arguments, threads=(2,))


INTEGER = {"+": np.add, "-": np.subtract, "*": np.multiply, "//": np.floor_divide, "%": np.remainder,
           "<<": np.left_shift, ">>": np.right_shift}  # fmt: skip


@pytest.mark.parametrize("dtype", INTS)
def test_integers_at_their_edges(dtype: str) -> None:
    """Element by element: what is undefined in C is defined in NumPy, and here."""
    x, y = pairs(dtype)
    body = "".join(f"        out[{k}, i] = x[i] {op} y[i]\n" for k, op in enumerate(INTEGER))
    body += "        out[7, i] = -x[i]\n        out[8, i] = abs(x[i])\n        out[9, i] = ~x[i]\n"
    source = f"def loop(x, y, out, n):\n    for i in range(n):\n{body}"
    found = run(source, x=x, y=y, out=np.zeros((10, len(x)), dtype), n=len(x))["out"]
    with np.errstate(all="ignore"):
        wanted = [op(x, y) for op in INTEGER.values()] + [np.negative(x), np.abs(x), np.invert(x)]
    for name, a, b in zip((*INTEGER, "-", "abs", "~"), found, wanted, strict=True):
        np.testing.assert_array_equal(a, b, err_msg=name)


COUNTS = (0, 1, 7, 8, 31, 32, 63, 64, 65, 100, 127)


@pytest.mark.parametrize("dtype", INTS)
def test_shifts_by_a_constant_and_by_an_argument(dtype: str) -> None:
    """The count is a literal, an argument of Python's, one of NumPy's; beyond the width only the sign is left."""
    x = np.array(edges(dtype), dtype)
    body = ""
    for k, count in enumerate(COUNTS):
        body += f"        out[0, {k}, i] = x[i] << {count}\n        out[1, {k}, i] = x[i] >> {count}\n"
        body += f"        out[2, {k}, i] = x[i] << p{k}\n        out[3, {k}, i] = x[i] >> q{k}\n"
    given = {f"p{k}": count for k, count in enumerate(COUNTS)}
    given |= {f"q{k}": np.dtype(dtype).type(count) for k, count in enumerate(COUNTS)}
    source = f"def loop(x, out, n, {', '.join(given)}):\n    for i in range(n):\n{body}"
    found = run(source, x=x, out=np.zeros((4, len(COUNTS), len(x)), dtype), n=len(x), **given)["out"]
    for k, count in enumerate(COUNTS):
        left, right = np.left_shift(x, np.array(count, dtype)), np.right_shift(x, np.array(count, dtype))
        for way, wanted in enumerate((left, right, left, right)):
            np.testing.assert_array_equal(found[way, k], wanted, err_msg=f"{count}, way {way}")


def test_shifts_of_pythons_integers() -> None:
    """They have 64 bits here, whatever is shifted out is gone; in plain Python nothing is."""
    source = """
def loop(out, n):
    for i in range(n):
        out[0, i] = 100 << i
        out[1, i] = (i - 70) >> i
        out[2, i] = (i - 70) << 70
        out[3, i] = (1 << 63) >> i
        out[4, i] = (3 << 64) + (3 << 200)
"""
    found = run(source, out=np.zeros((5, 140), np.int64), n=140)["out"]

    def wrapped(x: int) -> int:
        return (x + 2**63) % 2**64 - 2**63

    for i in range(140):
        assert found[:, i].tolist() == [wrapped(100 << i), (i - 70) >> i, 0, -(2**63) >> i, 0], i


def test_a_shift_by_a_negative_count() -> None:
    """Of an array element it is taken for a count beyond the width, as NumPy does; a literal is refused elsewhere."""
    source = """
def loop(x, y, out, n):
    for i in range(n):
        out[0, i] = x[i] << y[i]
        out[1, i] = x[i] >> y[i]
"""
    x, y = np.arange(-20, 20), np.full(40, -1)
    found = run(source, x=x, y=y, out=np.zeros((2, 40), np.int64), n=40)["out"]
    np.testing.assert_array_equal(found, [np.left_shift(x, y), np.right_shift(x, y)])


# --- floats to integers ---------------------------------------------------------------------------------------------

FLOATS = [0.0, -0.0, 0.9, -0.9, 1.5, -1.5, 127.9, 128.0, -128.9, -129.0, 255.5, 256.0, 300.0, 32768.0, -32769.0,
          65536.0, 2147483647.0, 2147483648.0, -2147483648.0, -2147483904.0, 4294967295.0, 4294967296.0, 3e9, -3e9,
          1e10, 1e15, 2.0**53, 2.0**62, 2.0**63, -(2.0**63), 2.0**63 * 1.5, -(2.0**63) * 1.5, 2.0**64,
          1e19, 1e30, -1e30, np.inf, -np.inf, np.nan]  # fmt: skip


@pytest.mark.parametrize("dtype", INTS)
def test_floats_become_integers(dtype: str) -> None:
    """As elements, as an argument, as rows of a length that fills lanes and leaves some over."""
    x, z = np.array(FLOATS, "f4"), np.array(FLOATS, "f8")
    rows, tall = np.resize(x, (3, 41)), np.resize(z, (3, 41))
    source = """
def loop(x, z, out, rows, tall, made, c, n, m):
    for i in range(n):
        out[0, i] = x[i]
        out[1, i] = x[i] + c
        out[2, i] = z[i]
        out[3, i] = z[i] * 1.0
    for i in range(m):
        made[0, i] = rows[i]
        made[1, i] = tall[i]
"""
    out, made = np.zeros((4, len(x)), dtype), np.zeros((2, *rows.shape), dtype)
    after = run(source, x=x, z=z, out=out, rows=rows, tall=tall, made=made, c=np.float32(0), n=len(x), m=3)
    wanted = [arithmetic.cast(part, dtype) for part in (x, x, z, z)]
    np.testing.assert_array_equal(after["out"], wanted)
    np.testing.assert_array_equal(after["made"], [arithmetic.cast(rows, dtype), arithmetic.cast(tall, dtype)])


def test_what_no_integer_fits_is_what_numpy_makes_of_it_one_by_one() -> None:
    """On x86-64, where NumPy's own answer for whole arrays of uint32 is another; a single number takes one road."""
    import platform

    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("what NumPy makes of such floats depends on the processor; here it is defined")
    for given in ("f4", "f8"):
        for dtype in INTS:
            for x in np.array(FLOATS, given):
                with np.errstate(all="ignore"):
                    assert arithmetic.cast(np.asarray(x), dtype) == np.asarray(x).astype(dtype), (x, dtype)


@pytest.mark.parametrize("name", ["int", "np.int64", "np.int32", "math.floor", "math.ceil"])
def test_functions_that_make_integers(name: str) -> None:
    import math

    source = f"def loop(x, out, n):\n    for i in range(n):\n        out[i] = {name}(x[i])\n"
    fn = function(source, math=math)
    x = np.array(FLOATS)
    after = three_ways(st.parallel(fn), {"x": x, "out": np.zeros(len(x), np.int64), "n": len(x)}, threads=(2,))
    with np.errstate(all="ignore"):
        shifted = np.floor(x) if "floor" in name else np.ceil(x) if "ceil" in name else x
    wanted = arithmetic.cast(shifted, "i4" if name == "np.int32" else "i8")
    np.testing.assert_array_equal(after["out"], wanted)
    inside = np.isfinite(x) & (np.abs(x) < 2.0**31)
    plain = np.zeros(int(inside.sum()), np.int64)
    fn(x[inside], plain, len(plain))
    np.testing.assert_array_equal(after["out"][inside], plain)


def test_functions_of_the_users_own_that_return_floats_for_integers() -> None:
    """An accumulator, and an array behind a buffer, of integers: what they are given is converted the same way."""

    def mean(a: Any, b: Any) -> Any:
        return (a + b) / 2

    def grown(value: Any, delta: Any) -> Any:
        return value * 1e18 + delta

    source = """
def loop(x, acc, b, n):
    for i in range(n):
        acc += x[i]
        b[i % 3] += 1
"""
    target = np.array([1, 2, 3])
    arguments = {"x": np.arange(9), "acc": st.accumulator(0, op=mean, identity=0), "b": st.buffer(target, apply=grown),
                 "n": 9}  # fmt: skip
    after = run(source, **arguments)
    assert after["b"].target.min() == np.iinfo("i8").min


# --- floats ---------------------------------------------------------------------------------------------------------

SPECIAL = [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 5.0, 3.0, 0.1, np.inf, -np.inf, np.nan, 1e30, -1e30, 1e-40]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_floats_at_their_edges(dtype: str) -> None:
    """Signs of // and %, NaN and infinities, as NumPy has them; NumPy's maximum has NaN win, Python's max the first."""
    x, y = (part.ravel() for part in np.meshgrid(np.array(SPECIAL, dtype), np.array(SPECIAL, dtype)))
    source = """
def loop(x, y, out, n):
    for i in range(n):
        out[0, i] = x[i] // y[i]
        out[1, i] = x[i] % y[i]
        out[2, i] = x[i] / y[i]
        out[3, i] = np.maximum(x[i], y[i])
        out[4, i] = np.minimum(x[i], y[i])
        out[5, i] = max(x[i], y[i])
        out[6, i] = min(x[i], y[i])
        out[7, i] = np.sqrt(x[i])
        out[8, i] = np.floor(x[i])
        out[9, i] = abs(x[i])
"""
    found = run(source, x=x, y=y, out=np.zeros((10, len(x)), dtype), n=len(x))["out"]
    with np.errstate(all="ignore"):
        wanted = [np.floor_divide(x, y), np.remainder(x, y), np.divide(x, y), np.maximum(x, y), np.minimum(x, y),
                  [max(a, b) for a, b in zip(x, y, strict=True)], [min(a, b) for a, b in zip(x, y, strict=True)],
                  np.sqrt(x), np.floor(x), np.abs(x)]  # fmt: skip
    np.testing.assert_array_equal(found, np.array(wanted, dtype))  # NaN equals NaN here
    signs = [k for k in range(10) if k not in (3, 4)]  # of 0.0 and -0.0 NumPy's maximum takes either
    same = np.signbit(found[signs]) == np.signbit(np.array(wanted, dtype)[signs])
    assert (same | np.isnan(found[signs])).all()


# --- two types beside each other ------------------------------------------------------------------------------------

COMPARED = ("<", "<=", ">", ">=", "==", "!=")


@pytest.mark.parametrize(
    "right", ["i8", "u8", pytest.param("i1", marks=pytest.mark.slow), pytest.param("u1", marks=pytest.mark.slow)]
)
def test_integers_of_two_types_are_compared_by_value(right: str) -> None:
    """-1 is less than every unsigned integer, and 2⁶³ more than every signed one, whatever type would hold both."""
    lefts = ("i1", "i8", "u1", "u8", "int")
    grids = [np.meshgrid(np.array(edges(left if left != "int" else "i8"), left if left != "int" else "i8"),
                         np.array(edges(right), right)) for left in lefts]  # fmt: skip
    size = max(grid[0].size for grid in grids)
    given: dict[str, Any] = {}
    lines = []
    for k, (left, (a, b)) in enumerate(zip(lefts, grids, strict=True)):
        given[f"x{k}"], given[f"y{k}"] = np.resize(a.ravel(), size), np.resize(b.ravel(), size)
        first = f"int(x{k}[i])" if left == "int" else f"x{k}[i]"
        for m, op in enumerate(COMPARED):
            lines.append(f"        out[{k}, {m}, i] = {first} {op} y{k}[i]")
            lines.append(f"        out[{k}, {m + 6}, i] = y{k}[i] {op} {first}")
    source = f"def loop(out, n, {', '.join(given)}):\n    for i in range(n):\n" + "\n".join(lines) + "\n"
    found = run(source, out=np.zeros((len(lefts), 12, size), bool), n=size, **given)["out"]
    for k, left in enumerate(lefts):
        for m, op in enumerate(COMPARED):
            exact = [(int(p), int(q)) for p, q in zip(given[f"x{k}"], given[f"y{k}"], strict=True)]
            assert found[k, m].tolist() == [eval(f"p {op} q", {"p": p, "q": q}) for p, q in exact], (left, op)
            assert found[k, m + 6].tolist() == [eval(f"q {op} p", {"p": p, "q": q}) for p, q in exact], (left, op)


def test_rows_are_compared_by_value() -> None:
    source = """
def loop(U, Q, I, out, k, n):
    for i in range(n):
        out[0, i] = U[i] < 300
        out[1, i] = U[i] == k
        out[2, i] = Q[i] > I[i]
        out[3, i] = I[i] >= Q[i]
        out[4, i] = Q[i] != I[i]
        out[5, i] = Q[i] > -1
        out[6, i] = I[i] == Q[i]
"""
    rng = np.random.default_rng(0)
    U = rng.integers(0, 256, (3, 21)).astype("u1")
    Q = rng.choice(np.array(edges("u8"), "u8"), (3, 21))
    I = rng.choice(np.array(edges("i8"), "i8"), (3, 21))  # noqa: E741
    found = run(source, U=U, Q=Q, I=I, out=np.zeros((7, 3, 21), bool), k=300 + 44, n=3)["out"]
    wanted = [U < 300, U == 344, Q > I, I >= Q, Q != I, np.full(Q.shape, True), I == Q]
    np.testing.assert_array_equal(found, wanted)


def test_a_value_that_is_kept_is_not_cut_to_the_type_beside_it() -> None:
    """A choice, and a variable with two values, hold what they are given: 300 beside a uint8 stays 300."""
    source = """
def loop(u, out, k, n):
    for i in range(n):
        out[0, i] = max(u[i], 300)
        out[1, i] = min(u[i], -i)
        out[2, i] = u[i] if i % 2 == 0 else 300 + i
        z = 300
        if i > 2:
            z = u[i]
        out[3, i] = z
        y = u[i]
        if i == 4:
            y = i * k
        out[4, i] = y
        s = 0
        for q in range(3):
            s += u[i]
        out[5, i] = s
"""
    u = np.arange(250, 256).astype("u1")
    after = run(source, u=u, out=np.zeros((6, 6), np.int64), k=1000, n=6)
    plain = np.zeros((6, 6), np.int64)
    with np.errstate(all="ignore"):
        function(source)(u, plain, 1000, 6)
    np.testing.assert_array_equal(after["out"], plain)


def test_functions_of_numpys_make_numbers_of_numpys() -> None:
    """np.sqrt(2.0) is a float64, which widens what it meets; math.sqrt(2.0) is Python's, which does not."""
    source = """
def loop(w, out, c, n):
    for i in range(n):
        out[0, i] = np.sqrt(c) * w[i]
        out[1, i] = np.exp(0.1) + w[i]
        out[2, i] = np.maximum(c, 0.5) * w[i]
        out[3, i] = np.where(i > 2, c, 0.5) * w[i]
        out[4, i] = abs(c) * w[i]
        out[5, i] = np.abs(c) * w[i]
"""
    w = np.linspace(0, 1, 7).astype("f4")
    after = run(source, w=w, out=np.zeros((6, 7)), c=0.1, n=7)["out"]
    plain = np.zeros((6, 7))
    function(source)(w, plain, 0.1, 7)
    np.testing.assert_allclose(after, plain, rtol=1e-14)  # not 1e-7: nothing was rounded to float32 on the way
