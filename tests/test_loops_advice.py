"""What refusals advise is accepted: each construct that a message names, in a body that is planned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stretto as st
from loop_bodies import function
from stretto.errors import LoopError
from stretto.loops.front import functions, refusals

HERE = Path(__file__).parent
TEXTS = "\n".join((HERE / name).read_text(encoding="utf-8") for name in ("refused_loops.txt", "refused_bodies.txt"))
SAID = "\n".join([TEXTS, *functions._hints().values(), *functions.ATTRIBUTES.values(), *functions.USAGE.values(),
                  *(advice for _, advice in refusals.CONSTRUCTS.values())])  # fmt: skip

ADVICE = {
    "for a loop over range(...)|write a for loop over range(...)": "for k in range(3):\n    x = k",
    "small array: np.zeros(n)": "w = np.zeros(n)\nw[0] = 1.0",
    "with def outside the loop function, and call it": "x = own(W[i])",
    "a plain function is inlined, and takes rows": "x = own(W[i])",
    "write w[:] = value": "w = W[i]\nw[:] = 0.5",
    "name it on the line above": "row = W[i]\nfor x in row:\n    v[i] += x",
    "write np.array([a, b, c]) or np.array([[a, b], [c, d]])": "w = np.array([1.0, n, v[i]])\nA = np.array([[1], [3]])",
    "write np.linalg.solve(A, b)": "w = np.linalg.solve(T[i], v[0:3])",
    "write st.uniform(t, i, j), st.integers or st.normal": "x = st.uniform(1, i, 2) + st.integers(3, i) + st.normal(i)",
    "write math.floor(x + 0.5)": "x = v[i]\ny = math.floor(x + 0.5)",
    "np.float32(w), np.float64(w), np.int32(w) or np.int64(w)": "w = W[i]\nz = np.float64(w) + np.int32(w)",
    "np.where(mask, a, b)": "W[i] = np.where(W[i] > 0, W[i], 0.0)",
    "write A.shape[0]": "x = W.shape[0]",
    "np.sum(A, axis=0)": "w = np.sum(W, axis=0)",
    "or use @, np.sum or np.outer": "x = np.sum(W) + (W @ W[i]) @ v + np.sum(np.outer(v, W[i]))",
    "write A[...] = A @ B, or w[:] = A @ w": "w = T[i, 0]\nw[:] = T[i] @ w\nT[i, ...] = T[i] @ T[i]",
    "write np.full(n, value, np.float64)": "w = np.full(3, n, np.float64)",
    "write for k, x in enumerate(w) of one row": "w = W[i]\nfor k, x in enumerate(w):\n    v[i] += k * x",
    "write for x, y in zip(v, w) of rows": "for x, y in zip(W[i], T[i, 0]):\n    v[i] += x * y",
    "write continue to end one iteration": "if v[i] > 0: continue\nv[i] = 1.0",
    "write .copy() after the row": "g = W[i].copy()\ng[0] = 1.0",
    "or write into its elements: W[...] = …": "v[...] = 0.5 * v\nW[...] = 2 * W",
    "write float(x) ** y": "x = float(n) ** 1.5",
    "write math.log(x) / math.log(2)": "x = math.log(3.0) / math.log(2)",
    "write v @ w": "x = W[i] @ W[i]",
    "write np.clip(x, low, high)": "x = np.clip(v[i], 0, 1)",
}


def own(w: Any) -> Any:
    return w @ w


@pytest.mark.parametrize("said", ADVICE)
def test_advice_is_true(said: str) -> None:
    assert any(words in SAID for words in said.split("|")), "no message says this any more"
    body = "".join(f"        {line}\n" for line in ADVICE[said].splitlines())
    made = st.parallel(function("def loop(W, T, v, n):\n    for i in range(n):\n" + body, own=own))
    arguments = (np.ones((4, 3)), np.ones((4, 3, 3)), np.ones(4), 4)
    if "W[...]" in body:  # accepted, but every iteration needs the one before
        with pytest.raises(LoopError, match="no strategy runs this loop in parallel"):
            made.using(serial=False).plan(*arguments)
        return
    made.using(runtime=st.Serial(), ordered=False).plan(*arguments)
