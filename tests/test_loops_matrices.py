"""Matrices, local arrays of run-time size and reductions in bodies: bits of the interpreter, values of NumPy."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import stretto as st
from loop_bodies import function, three_ways
from ring_fleet import InProcess
from stretto.errors import LoopError, RunError

HEAD = "def loop(A, B, X, Y, S, out, k, acc, n):\n    for i in range(n):\n"


def arguments(dtype: str = "f8") -> dict[str, Any]:
    rng = np.random.default_rng(0)

    def floats(*shape: int) -> Any:
        return rng.normal(size=shape).astype(dtype)

    return {
        "A": floats(9, 4, 5),
        "B": floats(9, 5, 4),
        "X": floats(9, 5),
        "Y": floats(9, 4),
        "S": floats(4, 5),
        "out": np.zeros(9, dtype),
        "k": rng.integers(0, 4, 9),
        "acc": st.accumulator(np.zeros((4, 5), dtype)),
        "n": 9,
    }


def loop(body: str, **around: Any) -> Any:
    return st.parallel(function(HEAD + "".join(f"        {line}\n" for line in body.splitlines()), **around))


BODIES = {
    "matrix and row": "Y[i] = A[i] @ X[i]",
    "transposed and row": "X[i] = A[i].T @ Y[i]",
    "row and matrix": "X[i] = Y[i] @ A[i]",
    "row and transposed": "Y[i] = X[i] @ A[i].T",
    "one for all": "Y[i] = S @ X[i]",
    "products in a line": "out[i] = (S @ X[i]) @ Y[i] + np.dot(S, X[i]) @ Y[i]",
    "outer": "A[i] += np.outer(Y[i], X[i]) * 0.5",
    "elementwise": "A[i] = np.tanh(A[i]) - S * np.clip(A[i], -0.5, X[i, 0]) + np.sign(A[i])",
    "where": "Y[i] = np.where(A[i] > 0, A[i], X[i]) @ X[i]",
    "product": "C = A[i] @ B[i]\nout[i] = np.sum(C) + C[1, 2] + np.max(C) + C.mean() + np.min(C)",
    "with transposed": "C = A[i] @ A[i].T\nY[i] = C[1]\nD = A[i].T @ B[i].T\nout[i] = np.sum(D)",
    "both": "C = A[i].T @ A[i]\nX[i] = C[1] + C[:, 2]",
    "along an axis": "Y[i] = S.sum(axis=1) - np.max(A[i], axis=1) + np.mean(A[i], axis=-1)\n"
    "X[i] = np.sum(S, axis=0) + np.min(A[i], axis=0) * A[i].mean(axis=0)",
    "view": "M = A[i]\nM[1:3, 2:4] = 0.5\nM[0] = X[i]\nout[i] = M[k[i], 2] + len(M) + M.shape[1]",
    "changed in place": "M = A[i]\nM *= 2\nM += X[i]\nM[:] = M ** 2",
    "over itself": "A[i] = A[i, 0]\nA[i, 0:2] = A[i, 1:3]\nA[i, 1:3] -= A[i, 0:2] @ np.outer(X[i], X[i])",
    "named columns": "v = S[:, 1]\nA[i, :, 0] = v * 2\nw = A[i, :, 0]\nA[i, :, 0] = w / (w @ w)\n"
    "w = A[i, :, 0]\nout[i] = w[0]",
    "copies": "M = A[i].T.copy()\nM[0, 1] = 3.0\nv = A[i, :, 1].copy()\nA[i, 1] = 8.0\nv[1] = 2.0\n"
    "out[i] = M[1, 0] + M[0, 1] + v[0] + v[1]",
    "named transposed": "M = A[i].T\nA[i] += M.T\nL = np.ones((4, 5))\nL[1] = X[i]\nN = L.T\nout[i] = N[0, 1]",
    "copy": "C = A[i].copy()\nC[0] = 1.0\nout[i] = C.sum() + A[i, 0, 0]",
    "position": "k[i] = np.argmax(A[i] @ X[i]) + X[i].argmin() * 10",
    "moments": "out[i] = np.mean(X[i]) + np.var(X[i]) + X[i].std() + np.mean(A[i])",
    "Python's sum": "X[i] = sum(A[i]) + sum(S)",
    "eye": "P = 0.5 * np.eye(4)\nP += np.outer(Y[i], Y[i])\nY[i] = P @ Y[i]",
    "column": "w = A[i, :, 2]\nout[i] = w @ Y[i] + S[:, 1] @ Y[i] + S[1:3, 2].sum()",
    "columns": "A[i, :, 1] = Y[i] * 2\nA[i, :, 0] += A[i, 0:4, 1]\nA[i, 1:3, 3] = 0.5\nA[i, :, 2] *= A[i, :, 1]",
    "filled": "D = np.full((2, 3), 0.25)\nE = np.ones((2, 3))\nF = D + E\nG = F\nG[1, 1] = 7\n"
    "out[i] = F.sum() + D[0, 0]",
    "two at once": "a, b = np.zeros(3), np.ones(2)\nout[i] = a[0] + b[1]",
    "size of run time": "w = np.zeros(k[i] + 1)\nw[k[i]] = 2.5\nout[i] = np.sum(w) + len(w)",
    "part of a row": "w = X[i, 0:k[i]] * 2\nv = w + 1\nout[i] = v @ w",
    "matrix of run time": "C = np.zeros((k[i] + 1, 5))\nC[k[i]] = X[i]\nout[i] = np.sum(C @ X[i])\n"
    "C = C * 2\nout[i] += C.sum()",
    "sizes in a loop": "for m in range(4):\n    w = np.ones(m)\n    out[i] += w.sum() + len(w)",
    "rows of functions": "X[i] = np.tanh(X[i]) + np.clip(X[i], 0, 1) * np.sign(X[i]) + np.minimum(X[i], S[0])",
    "in an inner loop": "for m in range(3):\n    if m == 1:\n        continue\n"
    "    A[i] += np.outer(Y[i], A[i, m])\n    if A[i, 0, 0] > 5: break",
    "only where needed": "x = np.argmax(X[i]) if k[i] > 1 else 7\n"
    "if k[i] > 0 and np.argmin(Y[i]) == 2:\n    x += 10\nk[i] = x",
    "elements of a row": "for x in A[i, 1]:\n    if x < 0: continue\n    out[i] += x"
    "\nw = X[i]\nfor x in w:\n    out[i] -= x / 2",
    "numbered elements": "for m, x in enumerate(X[i]):\n    out[i] += m * x\n"
    "for x, y in zip(X[i], Y[i]):\n    out[i] += x * y",
    "of a computed row": "w = X[i] * 2\nfor x in w:\n    out[i] += x\nfor m, x in enumerate(w):\n    out[i] -= m * x",
    "unpacked": "a, b, c, d = Y[i]\nY[i] = d, c, b, a + 1\nA[i, 0] = Y[i, 0], a, b, c, d\na, b = b, a\nout[i] = a",
    "dots": "A[i, ...] = A[i] * 2\nX[i, ...] = 0.5 * X[i]\nM = A[i]\nM[...] = M + 1\nw = X[i]\nw[...] = w * 2",
    "sorted": "w = np.sort(X[i])\nout[i] = w[0] + 2 * w[4]\nY[i] = np.sort(A[i] @ X[i]) + np.sort(Y[i])",
    "sorted at run time": "w = np.sort(X[i, 0:k[i]] * 2)\nout[i] = w.sum() + len(w)",
    "accumulated": "acc += A[i] - 0.5 * S\nacc[1] += X[i]",
}


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_body(body: str, dtype: str) -> None:
    made, given = loop(body), arguments(dtype)
    after = three_ways(made, given)
    plain = copy.deepcopy(given)
    if "acc" in body:
        plain["acc"] = sum(given["A"] - 0.5 * given["S"])
        plain["acc"][1] += given["X"].sum(axis=0)
        after["acc"], given["acc"] = after["acc"].array, given["acc"].array
    else:
        made.plain(**plain)
    changed = False
    for name in ("A", "X", "Y", "out", "k", *(("acc",) if "acc" in body else ())):
        np.testing.assert_allclose(after[name], plain[name], rtol=1e-4 if dtype == "f4" else 1e-12, atol=1e-5)
        changed |= not np.array_equal(plain[name], given[name])
    assert changed


def test_an_enumeration_may_be_all_there_is() -> None:
    made = st.parallel(function("def loop(X, out):\n    for i in range(len(X)):\n        for k, x in enumerate(X[i]):\n"
                                "            out[i] += k * x\n"))  # fmt: skip
    given = {"X": arguments()["X"], "out": np.zeros(9)}
    after = three_ways(made, given)
    np.testing.assert_allclose(after["out"], given["X"] @ np.arange(5))


def test_integers_and_bools_too() -> None:
    rng = np.random.default_rng(1)
    source = """
    def loop(N, v, F, out):
        for i in range(len(out)):
            out[i] = np.sum(N[i] @ v) + np.argmax(N[i, 0]) + np.sum(N[i]) + np.max(N[i]) + np.argmax(F[i]) + np.sum(F)
    """
    for dtype in ("i8", "i4", "u1"):
        given = {
            "N": rng.integers(0, 9, (5, 3, 17)).astype(dtype),
            "v": rng.integers(0, 9, 17).astype(dtype),
            "F": rng.random((5, 17)) < 0.2,
            "out": np.zeros(5, np.int64),
        }
        made = st.parallel(function(source))
        after, plain = three_ways(made, given), copy.deepcopy(given)
        made.plain(**plain)
        assert after["out"].tolist() == plain["out"].tolist()


def test_sorted_rows_of_every_length_with_nan() -> None:
    source = "def loop(R, n):\n    for i in range(len(n)):\n        m = n[i]\n        R[i, 0:m] = np.sort(R[i, 0:m])\n"
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(70, 70)).round(1)
    rows[rng.random(rows.shape) < 0.05] = np.nan
    given = {"R": rows, "n": np.arange(70)}
    after = three_ways(st.parallel(function(source)), given)
    for n, row in enumerate(rows):
        np.testing.assert_array_equal(after["R"][n], np.concatenate([np.sort(row[:n]), row[n:]]))


def test_positions_of_nan_and_of_nothing() -> None:
    made = loop("k[i] = np.argmax(X[i, 0:k[i]])")
    given = arguments()
    given["X"][:, 1] = np.nan
    given["X"][3, 0] = np.nan
    after = three_ways(made, given)
    expected = [int(np.argmax(x[:n])) if n else -1 for x, n in zip(given["X"], given["k"], strict=True)]
    assert after["k"].tolist() == expected
    assert -1 in expected
    assert 1 in expected


def test_nodes_run_the_same_code() -> None:
    body = "Y[i] = S @ X[i]\nA[i] += np.outer(Y[i], X[i])\nw = np.ones(k[i])\nout[i] = np.sum(w) + A[i].mean()"
    here, there = arguments(), arguments()
    loop(body).using(runtime=st.Serial())(**here)
    loop(body).using(runtime=InProcess(2))(**there)
    assert all(here[name].tobytes() == there[name].tobytes() for name in ("A", "Y", "out"))


def test_a_matrix_that_is_only_read_is_replicated() -> None:
    plan = loop("Y[i] = S @ X[i]").plan(**arguments())
    placed = {name: where for name, where, _ in plan.parts[0].prepared.analysis.placements}
    assert placed == {"S": "replicated", "X": "owned", "Y": "owned"}


@pytest.mark.parametrize(("size", "said"), [("k[i] - 2", "-[12] elements"), ("k[i] + 2**31", "2147483[0-9]+ elements")])
def test_a_size_that_cannot_be(size: str, said: str) -> None:
    made = loop(f"w = np.zeros({size})\nout[i] = np.sum(w)")
    for runtime in (st.Serial(), st.Threads(2)):
        with pytest.raises(RunError, match=f"local array of {said}"):
            made.using(runtime=runtime)(**arguments())


def test_subscripts_of_matrices_are_checked() -> None:
    for body in ("M = A[i]\nout[i] = M[k[i] + 2, 0]", "C = A[i, k[i]:4] @ B[i, 0:5]\nout[i] = C[3, 0]",
                 "w = A[i, 0:3 + k[i], 0]\nout[i] = w.sum()"):  # fmt: skip
        with pytest.raises(RunError):
            loop(body)(**arguments())


REFUSED = {
    "x = A[i] @ Y[i]": "5.* meet 4|4.* meet 5|5 elements meets one of 4",
    "C = A[i] @ A[i]": "5 rows or columns meet 4",
    "out[i] = A[i]": "a matrix is assigned to a row or a number",
    "C = A[i] + B[i]": "4 rows or columns meet 5",
    "A[i] @= A[i]": "@= is not supported; write",
    "x = np.var(A[i])": "np.var of a matrix; work on one row at a time",
    "x = np.sum(A[i], axis=2)": "axis=2 of something with 2 axes; write axis=0 or axis=1",
    "x = np.sum(A[i], axis=k)": "takes a row, or a matrix and axis=0 or 1",
    "A[i], B[i] = A[i] * 2, B[i]": "one assignment to a line",
    "C = np.outer(A[i], X[i])": "np.outer takes two rows",
    "C = np.full(3, lr)": "the type of this array is not known",
    "if A[i]: pass": "a whole matrix stands where",
    "a, b = X[i]": "a row of 5 elements is unpacked into 2",
    "X[i] = 1.0, 2.0": "a row of 5 elements is unpacked into 2",
    "w = X[i] * 2\nfor x in w:\n    w = X[i] * x": "w is assigned in the loop over its elements",
    "w = X[i]\nfor m, x in enumerate(w):\n    w = X[m]": "a loop cannot go through enumerate",
    "x = max(A[i])": "Python's max of a matrix compares its rows; write np.max",
    "M = A[i]\nx = M[0, 0, 0]": "takes two subscripts",
    "M = A[i].T\nM[0, 1] = 5.0": "a transposed matrix is changed, and it is a copy here; write .copy",
    "M = A[i]\nM = M.T\nM += 1": "a transposed matrix is changed",
    "v = A[i, :, 0]\nv[0] = 5.0": "a column or a transposed matrix is changed",
    "v = A[i, :, 0]\nv += 1": "a column or a transposed matrix is changed",
    "first(A[i, :, 0])": "a column or a transposed matrix is changed",
    "v = A[i, :, 0]\nA[i, 0, 0] = 5.0\nout[i] = v[0]": "v, .* is read after A was written, and it is a copy here",
    "M = A[i].T\nN = M.T\nif out[i] > 0:\n    A[i] = 2.0\nout[i] = N[0, 0]": "N, .* read after A or M was written",
    "v = A[i, :, 0]\nfor m in range(4):\n    out[i] += v[m]\n    A[i, 0, 0] = 1.0": "v, .* read after A was written",
    "for x in A[i, :, 0]:\n    A[i, 1, 0] = 9.0\n    out[i] += x": "is read after A was written",
    "M = choose(A[i], A[0], k[i])\nM[0, 0] = 3.0": "that a function chose among several is changed",
    "w = choose(X[i], A[i, 0], k[i])\nX[i, 0] = 3.0\nout[i] = w[0]": "several is read after A or X was written",
}


def choose(a: Any, b: Any, t: Any) -> Any:
    if t > 1:
        return a
    return b


def first(v: Any) -> None:
    v[0] = 3.0


def turned(x: Any) -> Any:
    M = np.zeros((5, 4))
    M[0, 1] = x
    return M.T


def test_what_a_function_made_itself_may_be_changed() -> None:
    made, given = loop("K = turned(out[i] + 2)\nK[0, 0] = 4.0\nout[i] = K[0, 0] + K[1, 0]", turned=turned), arguments()
    made(**given)
    assert given["out"].tolist() == [6.0] * 9


@pytest.mark.parametrize("body", REFUSED)
def test_what_is_refused(body: str) -> None:
    with pytest.raises(LoopError, match=REFUSED[body]):
        loop(body, lr=0.5, choose=choose, first=first).plan(**arguments())
