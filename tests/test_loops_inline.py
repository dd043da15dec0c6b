"""Plain functions in loops: inlined with rows, numbers and arrays, to the bits of the interpreter and like Python."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import loop_helpers
import stretto as st
from loop_bodies import function, three_ways
from ring_fleet import InProcess
from stretto.errors import LoopError

HEAD = "def loop(W, H, out, k, rate):\n    for i in range(W.shape[0]):\n"
HELPERS = {name: value for name, value in vars(loop_helpers).items() if callable(value)}


def arguments(dtype: str = "f8", width: int = 5) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "W": rng.normal(size=(19, width)).astype(dtype),
        "H": rng.normal(size=(6, width)).astype(dtype),
        "out": np.zeros(19, dtype),
        "k": np.zeros(19, np.int64),
        "rate": 0.1,
    }


def loop(body: str, **around: Any) -> Any:
    lines = "".join(f"        {line}\n" for line in body.strip("\n").splitlines())
    return st.parallel(function(HEAD + lines, helpers=loop_helpers, **{**HELPERS, **around}))


BODIES = {
    "a row": "out[i] = norm(W[i])",
    "calls inside calls": "out[i] = distance(W[i], H[0]) + 2 * distance(b=W[i], a=H[1])",
    "a module's": "out[i] = helpers.distance(W[i], H[2])",
    "a row is returned": "W[i] = shortened(W[i])\nw = shortened(H[0], 1.5, most=2)\nout[i] = w @ W[i]",
    "rows are changed": "descend(W[i], H[3], rate)\nw = W[i]\ndescend(w, H[0] * 2, 0.25)",
    "elements of a result": "w = shortened(W[i])\nout[i] = w[0] + w[1]",
    "one of two rows": "w = chosen(W[i], H[0])\nout[i] = w @ W[i]",
    "two values": "a, b = ordered(W[i, 0], 0.25)\nout[i] = a - 2 * b",
    "out of a loop": "k[i] = first_above(W[i], 0.5)",
    "out of two loops": "k[i] = first_pair(W[i], 0.5)",
    "an array around it": "out[i] = looked_up(i)",
    "a parameter is rebound": "x = W[i, 1]\nout[i] = halved(x, 3) + x",
    "powers": "out[i] = square(W[i, 0]) + square(W[i]) @ H[0]",
    "in a test": "if norm(W[i]) > 2 and distance(W[i], H[0]) > 3 or norm(H[1]) < 1:\n    out[i] = 1",
    "in a choice": "out[i] = norm(W[i]) if i % 2 == 0 else distance(W[i], H[1])",
    "in a while": "n = 0\nwhile n < 5 and distance(W[i], H[n]) < 4.0:\n    n += 1\nk[i] = n",
    "in an inner loop": "for j in range(6):\n    if j == 4: continue\n    out[i] += distance(W[i], H[j])",
    "in a subscript": "W[i, first_above(W[i], -9.0)] += norm(H[0])",
    "changes and returns": "x = lowered(W[i])\nout[i] = x + W[i, 1]",
    "of the bounds": "for j in range(first_above(W[i], 0.0) + 2):\n    out[i] += j",
}


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_body_with_helpers(body: str, dtype: str) -> None:
    made, given = loop(body), arguments(dtype)
    after = three_ways(made, given)
    plain = copy.deepcopy(given)
    made.plain(**plain)
    changed = False
    for name in ("W", "out", "k"):
        np.testing.assert_allclose(after[name], plain[name], rtol=1e-5 if dtype == "f4" else 1e-13)
        changed |= not np.array_equal(plain[name], given[name])
    assert changed


def test_nodes_run_the_same_code() -> None:
    body = "descend(W[i], H[i % 6], rate)\nout[i] = distance(W[i], H[1]) + looked_up(i)"
    here, there = arguments(), arguments()
    loop(body).using(runtime=st.Serial())(**here)
    loop(body).using(runtime=InProcess(2))(**there)
    assert all(here[name].tobytes() == there[name].tobytes() for name in ("W", "out"))


def test_constants_around_a_helper_are_read_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    made = loop("out[i] = norm(W[i])")
    before, after = arguments(), arguments()
    made(**before)
    monkeypatch.setattr(loop_helpers, "SLACK", 7.25)
    made(**after)
    np.testing.assert_allclose(after["out"], before["out"] + 7)


def test_a_helper_that_is_defined_again_is_inlined_again() -> None:
    made = loop("out[i] = halfway(W[i, 0])", halfway=lambda x: x)
    for factor in (2, 3):
        made.plain.__globals__["halfway"] = function(f"def loop(x):\n    return x * {factor}\n")
        given = arguments()
        made(**given)
        np.testing.assert_array_equal(given["out"], given["W"][:, 0] * factor)
    outer = function("def loop(x):\n    return inner(x) + 1\n", inner=HELPERS["square"])
    made.plain.__globals__["halfway"] = outer
    made(**(given := arguments()))
    outer.__globals__["inner"] = HELPERS["norm"].__globals__["looked_up"]
    monthly = arguments() | {"k": np.arange(19)}
    with pytest.raises(LoopError, match="whole number"):
        made(**monthly)


REFUSED = {
    "x = forever(W[i, 0])": "forever calls itself",
    "x = nothing(W[i, 0])": "nothing may end without a return; end it with a return of its value",
    "x = any_number(W[i, 0])": "any_number takes any number of arguments",
    "x = printing(W[i, 0])": "print cannot be called in a loop",
    "x = norm()": r"norm takes w: norm\(\); give one argument for each parameter",
    "x = norm(v=W[i])": "norm does not take v= here",
    "a, b = norm(W[i])": "norm returns 1 value, and 2 are used here",
    "x = ordered(1.0, 2.0)": "ordered returns 2 values, and 1 is used here; unpack as many as it returns",
    "x = descend(W[i], W[i], 0.5)": "descend returns no values, and 1 is used here",
    "x = 1 + halved(lowered(W[i]), 2)": "lowered changes W in the middle of an expression",
    "w = chosen(W[i], H[0])\nw -= 1.0": "a row that a function chose among several is changed",
    "w = chosen(W[i], H[0])\nw[0] = 1.0": "a row that a function chose among several is changed",
    "x = small(W[i])": "small is a lambda, which cannot be inlined; write it as a function with def",
}


@pytest.mark.parametrize("body", REFUSED)
def test_what_cannot_be_inlined(body: str) -> None:
    with pytest.raises(LoopError, match=REFUSED[body]):
        loop(body, small=lambda w: w).plan(**arguments())


def test_an_error_shows_the_line_of_the_helper() -> None:
    with pytest.raises(LoopError) as caught:
        loop("x = printing(W[i, 0])").plan(**arguments())
    assert "loop_helpers.py" in str(caught.value)
    assert "print(x)" in str(caught.value)
    with pytest.raises(LoopError) as caught:  # found by the types, not by the parser
        loop("x = halved(W[i], W[i])").plan(**arguments())
    assert "loop_helpers.py" in str(caught.value)
