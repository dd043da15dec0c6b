"""Constructs that a loop rewrites before it compiles them: to the bits of the interpreter, and like plain Python."""

# mypy: allow-untyped-defs
from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest

import stretto as st
from loop_bodies import function, three_ways
from stretto.errors import LoopError, RunError

HEAD = "def loop(W, H, out, k, rate):\n    for i in range(len(W)):\n"


def arguments(dtype: str = "f8") -> dict[str, Any]:
    rng = np.random.default_rng(0)
    W, H = rng.normal(size=(9, 5)).astype(dtype), rng.normal(size=(5, 5)).astype(dtype)
    return {"W": W, "H": H, "out": np.zeros(9, dtype), "k": np.zeros(9, np.int64), "rate": 0.1}


def body(text: str) -> str:
    return HEAD + "".join(f"        {line}\n" for line in text.splitlines())


def agrees(source: str, dtype: str = "f8", **options: Any) -> dict[str, Any]:
    """1 and 3 workers have the bits of the interpreter, and plain Python the values."""
    given = arguments(dtype)
    after = three_ways(st.parallel(**options)(function(source, np=np, math=math)), given, threads=(3,))
    plain = copy.deepcopy(given)
    function(source, np=np, math=math)(**plain)
    for name in ("W", "out", "k"):
        np.testing.assert_allclose(after[name], plain[name], rtol=1e-5 if dtype == "f4" else 1e-10, err_msg=name)
    return after


BODIES = {
    "an array of numbers": "v = np.array([W[i, 0], 2, rate])\nout[i] = np.sum(v) + len(v)",
    "a matrix": "A = np.array([[1.0, rate], [W[i, 0], 3.0]])\nx = A @ np.array([1.0, W[i, 1]])\nout[i] = x[0] - x[1]",
    "of whole numbers": "v = np.array([i, 2, 3])\nk[i] = v[0] // v[1] + np.sum(v)",
    "of a type": "v = np.array([1, W[i, 0]], dtype=np.float32)\nout[i] = v[1] * v[0]",
    "of itself": "v = np.array([W[i, 0], W[i, 1]])\nv = np.array([v[1], v[0]])\nout[i] = v[0] - 3 * v[1]",
    "a norm": "out[i] = np.linalg.norm(W[i]) + np.linalg.norm(W[i] - H[0])",
    "a system": "W[i] = np.linalg.solve(H + rate * np.eye(5), W[i])",
    "one that needs pivots": "A = H.copy()\nA[0, 0] = 0.0\nA[1, 1] = 0.0\nx = np.linalg.solve(A, W[i])\nW[i] = x",
    "a system with columns": "A = H.copy()\nA[0, 0] = 0.0\nX = np.linalg.solve(A, H * W[i, 0] + 1)\nout[i] = X[1, 2]",
    "an element of a value": "out[i] = np.sort(W[i])[2] + (W[i] - H[1])[3] * (H @ W[i])[0]",
    "part of a value": "v = (2 * W[i])[1:3]\nout[i] = v[0] + v[1]",
    "a tuple": "at = (i, 2)\nif i % 2: at = (at[1], at[0])\nk[i] = 10 * at[0] + at[1]",
    "a tuple among others": "best, at = W[i, 0], (0, 0)\nfor a in range(5):\n    if W[i, a] > best:\n"
    "        best, at = W[i, a], (a, i)\nx, y = at\nk[i] = x + 100 * y\nout[i] = best",
    "a row that is passed on": "v = W[i] * 1.0\nfor t in range(3):\n    new = np.empty(5)\n    for a in range(5):\n"
    "        new[a] = v @ H[a] + v[(a + 1) % 5]\n    v = new\n    v[0] += 1.0\nout[i] = v[0] + v[4]",
    "a row by another name": "d = W[i] - H[0]\nif i % 3 == 0:\n    g = d\nelif i % 3 == 1:\n    g = -d\nelse:\n"
    "    continue\ng[1] = 7.0\nout[i] = g @ W[i] + g[2]",
    "from the end": "out[i] = W[i, -1] + H[-2, -1] * H[-1][-5] + np.sum(W[i, :-1])\nw = H[0]\nout[i] += w[-2]",
    "a hypotenuse": "out[i] = math.hypot(W[i, 0], W[i, 1])",
    "matrices at once": "A, b = H * 2.0, W[i] + 1\nout[i] = (A @ b)[0]",
}


@pytest.mark.parametrize("name", BODIES)
def test_like_plain_python(name: str) -> None:
    agrees(body(BODIES[name]))


@pytest.mark.parametrize("name", ["an array of numbers", "a norm", "a system", "an element of a value"])
def test_types_are_those_of_numpy(name: str) -> None:
    agrees(body(BODIES[name]), "f4")


NESTED = """
def loop(W, H, out, k, rate):
    half = rate / 2

    def slope(x, y=2.0):
        z = half * x + y
        return z, twice(x)

    def twice(x):
        return 2 * x * rate

    for i in range(len(W)):
        a, b = slope(W[i, 0])
        out[i] = a + b + twice(W[i, 1])
    for i in range(len(W)):

        out[i] += slope(W[i, 2], 1.0)[0] if False else twice(W[i, 3])
"""


def test_functions_inside_read_the_names_around_them() -> None:
    agrees(NESTED.replace("slope(W[i, 2], 1.0)[0] if False else ", ""))


def test_functions_inside_see_what_is_around_the_loop_function() -> None:
    factor = 2.0

    def loop(x: Any, n: int) -> None:
        def scaled(v: Any) -> Any:
            return factor * v + n

        for i in range(len(x)):
            x[i] = scaled(x[i])

    made = st.parallel(loop)
    x = np.ones(4)
    made(x, 3)
    assert x.tolist() == [5.0] * 4
    factor = 10.0
    made(x, 0)
    assert x.tolist() == [50.0] * 4


def test_arrays_are_enumerated() -> None:
    agrees(
        "def loop(W, H, out, k, rate):\n    for i, w in enumerate(W):\n        out[i] = w @ H[0]\n        k[i] = i\n"
    )


def test_names_of_functions_inside_are_their_own() -> None:
    source = """
        def loop(x, n):
            def f(v):
                half = v / 2
                return half

            for i in range(n):
                x[i] = f(x[i]) + half
        """
    x = np.ones(3)
    st.parallel(function(source, half=10.0))(x, 3)
    assert x.tolist() == [10.5] * 3


REFUSED = {
    "row by another name": "v = W[i] * 1.0\nfor t in range(3):\n    new = 2 * v\n    v = new\n    new[0] = 5.0",
    "may stand for": "d = W[i] - H[0]\nif i % 2:\n    g = d\nelse:\n    g = -d\nd[0] = 1.0\nout[i] = g[0]",
    "a tuple used as a value": "at = (i, 2)\nk[i] = at[i % 2]",
}


@pytest.mark.parametrize("name", REFUSED)
def test_where_python_would_see_another_value_it_stays_refused(name: str) -> None:
    said = {"row by another name": "another name for new here"}.get(name, name)
    with pytest.raises(LoopError, match=said):
        st.parallel(function(body(REFUSED[name]), np=np)).plan(**arguments())


def test_a_system_that_does_not_fit_is_no_part_of_itself() -> None:
    source = body("v = np.linalg.solve(W, H[0])\nout[i] = v[0]")
    with pytest.raises((LoopError, RunError)):
        st.parallel(runtime=st.Serial())(function(source, np=np, math=math))(**arguments())


def test_functions_inside_that_cannot_be_made_beforehand() -> None:
    source = (
        "def loop(x, n):\n    def f(v, by=n):\n        return v * by\n    for i in range(3):\n        x[i] = f(x[i])\n"
    )
    with pytest.raises(LoopError, match="a default of f is not a number"):
        st.parallel(function(source)).plan(np.ones(3), 2)
