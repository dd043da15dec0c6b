"""NumPy 2's promotion, kept: a loop computes in the types that the undecorated function computes in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stretto as st
from loop_bodies import function, three_ways
from stretto.loops.types import typed_tree as t
from stretto.loops.types.promote import short

Array = np.ndarray[Any, Any]

BODY = """
def loop(A, out, c, n):
    for i in range(n):
        x = {}
        out[i] = x
"""

EXPRESSIONS = [
    "A[i] * c",
    "A[i] + c",
    "A[i] / c",
    "c / A[i]",
    "A[i] - c * A[i]",
    "A[i] * A[i] + c",
    "-A[i] * c",
    "A[i] * 3",
    "A[i] * 0.1 + 0.2",
    "A[i] / 3",
    "np.sqrt(A[i] * A[i])",
    "abs(A[i]) * c",
    "max(A[i], c)",
    "A[i] if A[i] > c else c",
    "np.float32(A[i]) * c",
    "np.float64(A[i]) * c",
    "float(A[i]) * c",
    "A[i] ** 2 * c",
    "np.where(A[i] > 0, A[i], c)",
]
KINDS = ["f4", "f8", "i4", "i8", "u4"]  # the root of a smaller integer is a float16 or float32 in NumPy alone
ONE: list[Any] = [0.1, np.float32(0.1), np.float64(0.1), 3, np.int32(3), np.int64(3)]


def values(dtype: str) -> Array:
    rng = np.random.default_rng(1)
    if dtype.startswith("f"):
        return (rng.normal(size=12) + 2).astype(dtype)
    return rng.integers(1, 100, 12).astype(dtype)


def numpy_kind(expression: str, A: Array, c: Any) -> str:
    """What NumPy makes of it, as our short name."""
    with np.errstate(over="ignore"):
        found = eval(expression, {"np": np, "A": A, "i": 0, "c": c})
    return short(np.asarray(found).dtype)


def kinds(source: str, **arguments: Any) -> dict[str, str]:
    """The kinds of the variables in the typed body, without the word for a plain Python number."""
    made = st.parallel(function(source)).using(runtime=st.Serial())
    body = made.plan(**arguments).parts[0].prepared.analysis.body
    places = [place for step in body.steps if isinstance(step, t.Store) for place in step.places]
    return {place.name: place.type.dtype for place in places if isinstance(place, t.VarPlace)}


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("c", ONE, ids=lambda c: f"{type(c).__name__}")
def test_kinds_are_numpys(dtype: str, c: Any) -> None:
    """The type of every expression. A choice joins its two kinds, whichever is taken."""
    lines = [f"        x{k} = {e}" for k, e in enumerate(EXPRESSIONS)]
    source = "def loop(A, out, c, n):\n    for i in range(n):\n" + "\n".join([*lines, "        out[i] = x0"]) + "\n"
    A = values(dtype)
    found = kinds(source, A=A, out=np.zeros(12), c=c, n=12)
    for k, expression in enumerate(EXPRESSIONS):
        picks = " if " in expression or "max(" in expression or "where" in expression
        wanted = numpy_kind("np.where(A[i] > 0, A[i], c)" if picks else expression, A, c)
        assert found[f"x{k}"] == wanted, expression


@pytest.mark.parametrize("dtype", KINDS)
def test_results_are_numpys_to_the_last_bit(dtype: str) -> None:
    """Scalars are never contracted, so a float32 that was secretly computed in float64 shows in its bits."""
    lines = [f"        out[i, {k}] = {e}" for k, e in enumerate(EXPRESSIONS)]
    source = "def loop(A, out, c, n):\n    for i in range(n):\n" + "\n".join(lines) + "\n"
    for c in (0.1, np.float32(0.1)):
        for to in ("f8", "f4"):
            A, out = values(dtype), np.zeros((12, len(EXPRESSIONS)), to)
            after = three_ways(st.parallel(function(source)), {"A": A, "out": out, "c": c, "n": 12})["out"]
            with np.errstate(over="ignore"):
                function(source)(A, out, c, 12)
            np.testing.assert_array_equal(after, out)


def test_float32_stays_float32() -> None:
    """What the test above relies on: these values do differ between the two precisions."""
    A = values("f4")
    narrow = np.array([x * 0.1 + 0.2 for x in A])
    wide = np.array([float(x) * 0.1 + 0.2 for x in A])
    assert narrow.dtype == np.float32
    assert (narrow != wide.astype(np.float32)).any()


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8"])
@pytest.mark.parametrize("layout", ["C", "F"])
def test_one_function_for_all_types_and_layouts(dtype: str, layout: str) -> None:
    """Nothing is kept from the call before that does not fit the next."""
    rng = np.random.default_rng(0)
    W = np.asarray(rng.integers(-9, 9, (10, 17)), dtype=dtype, order=layout)  # type: ignore[call-overload]
    H = np.asarray(rng.integers(-9, 9, (10, 17)), dtype=dtype, order=layout)  # type: ignore[call-overload]
    expect = W.copy()
    for i in range(10):
        expect[i] = expect[i] * 2 + (expect[i] @ H[i])
    double(W, H, 10)
    np.testing.assert_array_equal(W, expect)
    assert W.flags.c_contiguous == (layout == "C")


@st.parallel
def double(W: Array, H: Array, n: int) -> None:
    for i in range(n):
        W[i] = W[i] * 2 + (W[i] @ H[i])


ROWS = [("f4", "f4"), ("f4", "f8"), ("i4", "f4"), ("i4", "i8"), ("u1", "i4"), ("f4", "i8"), ("b1", "f4")]


@pytest.mark.parametrize(("first", "second"), ROWS)
def test_rows_promote_as_numpy_does(first: str, second: str) -> None:
    source = """
def loop(A, B, out, n):
    for i in range(n):
        g = A[i] + B[i]
        h = g * 0.1
        out[i] = h
        out[i, 0] = sum(g)
        out[i, 1] = A[i] @ B[i]
"""
    rng = np.random.default_rng(0)
    A, B = rng.integers(0, 2, (6, 20)).astype(first), rng.integers(1, 99, (6, 20)).astype(second)
    after = three_ways(st.parallel(function(source)), {"A": A, "B": B, "out": np.zeros((6, 20)), "n": 6})["out"]
    out = np.zeros((6, 20))
    function(source)(A, B, out, 6)
    np.testing.assert_allclose(after, out, rtol=3e-7)
    np.testing.assert_array_equal(after[:, 2:], out[:, 2:])


def test_variables_join_the_kinds_they_are_given() -> None:
    """z starts as Python's 0.0 and becomes float32 with the first addition, as in NumPy."""
    source = (
        "def loop(A, out, c, n):\n    for i in range(n):\n        x = 0.0\n        x += A[i] * c\n        out[i] = x\n"
    )
    for dtype, c, wanted in (("f4", 0.1, "f4"), ("f8", 0.1, "f8"), ("i4", 2, "f8")):
        assert kinds(source, A=values(dtype), out=np.zeros(12), c=c, n=12) == {"x": wanted}


def test_python_numbers_in_small_integers() -> None:
    """NumPy refuses a Python int that does not fit; so do we, or it wraps: never a wider type."""
    for expression, wanted in (("A[i] + 100", "u1"), ("A[i] * 2.5", "f8")):
        assert kinds(BODY.format(expression), A=values("u1"), out=np.zeros(12), c=1, n=12) == {"x": wanted}
