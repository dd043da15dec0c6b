"""Loops that the typing of a body refuses: what is said of each, word for word.

What the parser refuses is in test_loops_parse.py. The cases in refused_bodies.txt are bodies of a loop over `i`; after
the arrow comes the message, without file and line.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

import stretto as st
from loop_bodies import function
from stretto.errors import LoopError, PlanError

CASES = (Path(__file__).parent / "refused_bodies.txt").read_text(encoding="utf-8").strip()


@numba.njit
def twice(x):  # type: ignore[no-untyped-def]
    return 2 * x


@numba.njit
def broken(x):  # type: ignore[no-untyped-def]
    return x.nothing


@numba.njit
def pair(x):  # type: ignore[no-untyped-def]
    return x, x


def said(body: str) -> str:
    """The message for a body, without file and line."""
    head = "def loop(d, W, T, F, K, v, lr, acc, B, S, n, U, Q):\n    for i in range(n):\n"
    source = head + "".join(f"        {line}\n" for line in body.splitlines())
    made = st.parallel(function(source, twice=twice, broken=broken, pair=pair, table=np.zeros(3)))
    arguments: dict[str, Any] = {
        "d": st.dense(np.arange(3.0)),
        "W": np.zeros((4, 5), np.float32),
        "T": np.zeros((4, 5, 2)),
        "F": np.zeros((4, 5), np.bool_),
        "K": np.zeros((4, 3), np.int64),
        "v": np.zeros(7),
        "lr": 0.5,
        "acc": st.accumulator(0.0),
        "B": st.buffer(np.zeros(4)),
        "S": np.zeros(4, [("x", "f4")]),
        "n": 4,
        "U": np.zeros((4, 3), np.uint8),
        "Q": np.zeros(4, np.uint64),
    }
    try:
        made.using(runtime=st.Serial()).plan(**arguments)
    except LoopError as problem:
        first = str(problem).splitlines()[0]
        return first.split(": ", 1)[1]
    return "(accepted)"


def test_every_refusal_reads_well() -> None:
    found = []
    for case in CASES.split("\n\n"):
        body = case.rpartition("\n=> ")[0]
        found.append(f"{body}\n=> {said(body)}")
    difference = difflib.unified_diff(CASES.splitlines(), "\n\n".join(found).splitlines(), lineterm="")
    assert not list(difference), "\n".join(difference)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.float16(1), "float16"),
        (2**63, "64 bits"),
        (1j, "complex"),
        ("text", "str"),
        (None, "NoneType"),
        ([1.0], "list"),
        (np.zeros(3, np.complex64), "complex64"),
    ],
)
def test_arguments_that_a_loop_cannot_use(value: Any, words: str) -> None:
    made = st.parallel(function("def loop(s, c, n):\n    for i in range(n):\n        s[i] = c\n"))
    with pytest.raises(PlanError, match=f"c .*{words}"):
        made.plan(np.zeros(3), value, 3)


def test_data_that_a_loop_cannot_use() -> None:
    made = st.parallel(function("def loop(d, s):\n    for i, x in d:\n        s[i] = x\n"))
    with pytest.raises(PlanError, match="x of d holds float16"):
        made.plan(st.dense(np.zeros(3, "f2")), np.zeros(3))
    made.plan(st.dense(np.zeros(3, ">f4")), np.zeros(3))  # data put their numbers in this machine's order


def test_a_field_that_a_loop_cannot_use_does_no_harm() -> None:
    made = st.parallel(function('def loop(A, n):\n    for i in range(n):\n        A[i]["x"] = i\n'))
    A = np.zeros(3, [("name", "U8"), ("x", "f4"), ("z", "c8")])
    made(A, 3)
    assert A["x"].tolist() == [0, 1, 2]
    wrong = st.parallel(function('def loop(A, n):\n    for i in range(n):\n        A[i]["z"] = i\n'))
    with pytest.raises(LoopError, match="'z'"):
        wrong.plan(A, 3)
