"""The reference page of loops agrees with the code: every option, function, strategy and row of its tables."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from scipy.sparse import csr_matrix, random_array

import stretto as st
from loop_bodies import function
from ring_fleet import InProcess
from stretto.errors import LoopError, PlanError
from stretto.loops.analyse.analysis import LoopOptions
from stretto.loops.analyse.serial_order import keeps_order
from stretto.loops.explain import _MEANING
from stretto.loops.front import functions
from stretto.loops.parallel import Loop
from stretto.state.accumulator import Accumulator
from stretto.state.buffer import Buffer
from stretto.state.state import State

PAGE = (Path(__file__).parents[1] / "docs" / "loops-reference.md").read_text(encoding="utf-8")
AROUND = {"np": np, "math": math, "st": st, "itertools": itertools}


def section(title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert found is not None, title
    return found[1]


def table(text: str) -> list[list[str]]:
    """The rows of the first table, without its head."""
    rows = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert rows is not None
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in rows[0].splitlines()[2:]]


def spelled(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def tensor() -> Any:
    draw = np.random.default_rng(2)
    return st.sparse(tuple(draw.integers(0, n, 500) for n in (30, 20, 10)), draw.integers(1, 6, 500), (30, 20, 10))


def ratings() -> Any:
    rng = np.random.default_rng(0)
    return st.Data.from_arrays(rng.integers(0, 30, 500), rng.integers(0, 20, 500), rng.random(500), (30, 20))


def features() -> Any:
    return st.samples(random_array((300, 4000), density=0.0005, format="csr", rng=np.random.default_rng(0)))


# --- options and functions -------------------------------------------------------------------------------------------


def test_every_option_is_there() -> None:
    named = {name for row in table(PAGE) for code in spelled(row[0]) for name in re.findall(r"(\w+)=", code)[:1]}
    assert named == {field.name for field in dataclasses.fields(LoopOptions)} | {"runtime"}


def functions_named() -> set[str]:
    """The functions of the page, each as it would be written."""
    (row,) = (row for row in table(section("What a body may contain")) if row[0] == "functions")
    lists = row[1].partition("; your own")[0]
    both = re.search(r"((?:`\w+`,? ?)+) of `math` and NumPy", lists)
    assert both is not None
    shared = set(spelled(both[1]))
    return (set(spelled(lists)) - shared - {"math"}) | {f"{room}.{name}" for room in ("math", "np") for name in shared}


def test_every_function_is_known_and_every_known_one_is_there() -> None:
    named = {id(eval(name, dict(AROUND))): name for name in functions_named()}
    known = set(functions._table())
    assert {name for key, name in named.items() if key not in known} == set()
    assert known - set(named) == set()


def test_random_numbers_are_there() -> None:
    for name in ("uniform", "integers", "normal"):
        assert f"`st.{name}(" in section("What a body may contain")
        assert functions.known(getattr(st, name)) is not None


# --- strategies -------------------------------------------------------------------------------------------------------

STRATEGIES: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "buffered": (
        "def loop(d, b):\n    for (i, j), r in d:\n        b[0] += r\n",
        lambda: (ratings(), st.buffer(np.zeros(3))),
        {},
    ),
    "independent": ("def loop(s, n):\n    for i in range(n):\n        s[i] = i\n", lambda: (np.zeros(99), 99), {}),
    "1d": ("def loop(d, s):\n    for (i, j), r in d:\n        s[i] += r\n", lambda: (ratings(), np.zeros(30)), {}),
    "2d unordered": (
        "def loop(d, s, t):\n    for (i, j), r in d:\n        s[i] += r * t[j]\n        t[j] += r\n",
        lambda: (ratings(), np.zeros(30), np.zeros(20)),
        {},
    ),
    "nd unordered": (
        """
        def loop(d, s, t, u):
            for (i, j, k), r in d:
                s[i] += t[j]
                t[j] += u[k]
                u[k] += r
        """,
        lambda: (tensor(), np.zeros(30), np.zeros(20), np.zeros(10)),
        {},
    ),
    "2d ordered": (
        """
        def loop(s, t, n):
            for i in range(n):
                for j in range(n):
                    s[i] += 0.01 * t[j]
                    t[j] += 0.01 * s[i]
        """,
        lambda: (np.linspace(1, 2, 30), np.linspace(-1, 1, 30), 30),
        {},
    ),
    "2d transformed": (
        """
        def loop(A, n):
            for i in range(1, n):
                for j in range(1, n - 1):
                    A[i, j] = A[i - 1, j + 1] + A[i - 1, j - 1] + A[i, j - 1]
        """,
        lambda: (np.ones((30, 30)), 30),
        {},
    ),
    "stepped": (
        """
        def loop(D, n):
            for k in range(n):
                for i in range(n):
                    for j in range(n):
                        D[i, j] = min(D[i, j], D[i, k] + D[k, j])
        """,
        lambda: (np.random.default_rng(0).random((12, 12)), 12),
        {"blocks": 3},
    ),
    "inspected": (
        "def loop(d, w):\n    for i, features in d:\n        for f, x in features:\n            w[f] = 2 * w[f] + x\n",
        lambda: (features(), np.zeros(4000)),
        {"inspect": True},
    ),
    "chain": ("def loop(d, s):\n    for (i, j), r in d:\n        s[0] = r\n", lambda: (ratings(), np.zeros(3)), {}),
}


def analysed(name: str) -> Any:
    source, arguments, options = STRATEGIES[name]
    return st.parallel(**options)(function(source)).plan(*arguments()).parts[0].prepared


def test_every_strategy_is_there_in_the_order_they_are_tried() -> None:
    rows = [spelled(row[0])[0] for row in table(section("Strategies"))]
    assert rows == list(STRATEGIES)
    assert set(rows) == {name for name in _MEANING if not name.startswith("scheduled")}


@pytest.mark.parametrize("row", table(section("Strategies")), ids=lambda row: row[0].strip("`"))
def test_a_strategy_is_what_its_row_says(row: list[str]) -> None:
    name, (_, _, order, cluster) = row[0].strip("`"), row[1:]
    prepared = analysed(name)
    assert prepared.analysis.strategy.name == name
    if name != "buffered":
        assert keeps_order(prepared.analysis) == (order == "kept")
    source, arguments, options = STRATEGIES[name]
    assert runs_on_nodes(source, arguments, **options) == cluster.startswith("yes")


def runs_on_nodes(source: str, arguments: Any, **options: Any) -> bool:
    """Whether a loop runs on several nodes, to the bits of one worker; a refusal says where it does run."""
    there, here = arguments(), arguments()
    try:
        st.parallel(runtime=cast(Any, InProcess(2)), **options)(function(source))(*there)
    except PlanError as problem:
        refusal = str(problem)
    else:
        refusal = ""
    if refusal:
        assert "st.Threads()" in refusal
        return False
    st.parallel(runtime=st.Serial(), **options)(function(source))(*here)
    assert learned(there) == learned(here) != learned(arguments())
    return True


def learned(arguments: tuple[Any, ...]) -> list[bytes]:
    """What a loop may have changed."""
    values = [one.get() if isinstance(one, Accumulator) else one for one in arguments]
    values = [one.target if isinstance(one, Buffer) else one for one in values]
    values = [one.array if isinstance(one, State) else one for one in values]
    return [np.asarray(one).tobytes() for one in values if isinstance(one, float | np.ndarray)]


# --- what runs where --------------------------------------------------------------------------------------------------

# For each row: a loop, what it is called with, and the array that has the placement.
ROWS: dict[str, tuple[str, Any, str]] = {
    "cut into visits, read only": (*STRATEGIES["1d"][:2], ""),
    "`owned`, by an index": (*STRATEGIES["1d"][:2], "s"),
    "`owned`, by the record": (
        "def loop(d, z):\n    for (i, j), p in d:\n        z[p] = i\n",
        lambda: (ratings().numbered(values=False), np.zeros(500)),
        "z",
    ),
    "`rotating`": (*STRATEGIES["2d unordered"][:2], "t"),
    "`shared`": (*STRATEGIES["2d transformed"][:2], "A"),
    "`replicated`": (
        "def loop(s, t, n):\n    for i in range(n):\n        s[i] = t[0]\n",
        lambda: (np.zeros(9), np.ones(3), 9),
        "t",
    ),
    "`served`, read": (
        "def loop(s, t, n):\n    for i in range(n):\n        s[i] = t[(3 * i) % 5]\n",
        lambda: (np.zeros(9), np.ones(5), 9),
        "t",
    ),
    "`served`, written": (
        "def loop(s, n):\n    for i in range(n):\n        s[(3 * i) % 5] = i\n",
        lambda: (np.zeros(9), 9),
        "s",
    ),
    "`served`, behind a buffer": (*STRATEGIES["buffered"][:2], "b.target"),
    "as dense, field by field": (
        'def loop(S, n):\n    for i in range(n):\n        S[i]["x"] += 1\n',
        lambda: (np.zeros(9, [("x", "f8"), ("y", "i4")]), 9),
        "S.x",
    ),
    "as dense; memory for rows that are written": (
        "def loop(S, n):\n    for i in range(n):\n        S[i, 1] = i + 1.0\n",
        lambda: (st.sparse_rows((40, 3), "f8"), 9),
        "S",
    ),
    "accumulator": (
        "def loop(d, acc):\n    for (i, j), r in d:\n        acc += r\n",
        lambda: (ratings(), st.accumulator(0.0)),
        "acc",
    ),
}
READ = "def loop(A, s, n):\n    for i in range(n):\n        s[i] = A[i]\n"
REFUSED: dict[str, list[Any]] = {
    "sparse matrix of SciPy's": [csr_matrix(np.eye(3)), random_array((3, 3), density=0.5)],
    "masked array, NumPy matrix": [np.ma.masked_array(np.ones(3)), np.ones((3, 1)).view(np.matrix)],
    "element types other than bool, integers, float32, float64": [
        np.zeros(3, "f2"),
        np.zeros(3, complex),
        np.zeros(3, object),
        np.zeros(3, "M8[s]"),
        np.zeros(3, "U3"),
        np.zeros(3, np.longdouble),
    ],
}


def supported() -> list[list[str]]:
    return table(section("What is supported"))


def label(row: list[str]) -> str:
    return row[0] if row[0] in REFUSED or row[0] == "accumulator" else row[1]


def test_every_row_has_its_case() -> None:
    assert [label(row) for row in supported()] == [*ROWS, *REFUSED]


@pytest.mark.parametrize("row", [row for row in supported() if label(row) in ROWS], ids=label)
def test_what_is_supported(row: list[str]) -> None:
    source, arguments, array = ROWS[label(row)]
    loop = st.parallel(function(source))
    runtimes: tuple[Any, ...] = (st.Serial(), st.Threads(2))
    for cell, runtime in zip(row[2:4], runtimes, strict=True):
        assert cell == "yes"
        loop.using(runtime=runtime, ordered=False)(*arguments())
    prepared = loop.plan(*arguments()).parts[0].prepared
    placements = {name: placement for name, placement, _ in prepared.analysis.placements}
    if array:
        assert placements[array] in spelled(row[1]) + ["owned"] * row[1].startswith("as dense")
    assert runs_on_nodes(source, arguments, ordered=False) == (row[4] == "yes")


@pytest.mark.parametrize("row", [row for row in supported() if label(row) in REFUSED], ids=label)
def test_what_is_not_supported(row: list[str]) -> None:
    assert row[2:5] == ["no", "no", "no"]
    for value in REFUSED[label(row)]:
        with pytest.raises(PlanError, match="A "):
            st.parallel(function(READ))(value, np.zeros(3), 3)


def test_a_simulated_cluster_runs_what_a_cluster_runs() -> None:
    assert "`st.Simulated` runs the loops that a cluster runs" in PAGE
    mine, theirs = np.zeros(3), np.zeros(3)
    for runtime, out in ((st.Simulated(nodes=2), mine), (st.Serial(), theirs)):
        st.parallel(function(READ)).using(runtime=runtime)(np.arange(3.0), out, 3)
    assert np.array_equal(mine, theirs)


# --- order ------------------------------------------------------------------------------------------------------------

RECORDS = """
def loop(d, s, t):
    for (i, j), r in d:
        s[i] = 2 * s[i] + t[j]
        t[j] = 2 * t[j] + s[i] % 5
"""
AS_RECORDS = RECORDS.replace("(i, j), r", "i, j")  # over the indices alone
ORDERED: dict[str, tuple[str, Any]] = {
    "ranges": (
        """
def loop(d, s, t):
    for i in range(30):
        for j in range(20):
            s[i] = 2 * s[i] + t[j]
            t[j] = 2 * t[j] + s[i] % 5
""",
        None,
    ),
    "ragged records": (
        """
def loop(d, s, t):
    for i, entries in d:
        for j, r in entries:
            s[i] = 2 * s[i] + r
""",
        lambda: ratings().group_by(0),
    ),
    "sparse records": (RECORDS, ratings),
    "the elements of an array": (RECORDS, lambda: st.dense(np.ones((30, 20)))),
}


def test_every_kind_of_loop_has_its_row() -> None:
    assert [row[0] for row in table(section("Order"))] == list(ORDERED)


@pytest.mark.parametrize("row", table(section("Order")), ids=lambda row: row[0])
def test_the_order_is_what_its_row_says(row: list[str]) -> None:
    """The integers are those of plain Python over the records as they are, sorted, or in the order of the plan."""
    source, make = ORDERED[row[0]]
    data: Any = make() if make is not None else 0
    for ordered, said in zip((None, True, False), row[1:], strict=True):
        loop = Loop(function(source), LoopOptions(ordered=ordered, blocks=(4, 4)), st.Threads(2))
        found = [np.ones(30, np.int64), np.ones(20, np.int64)]
        loop(data, *found)

        def plain(records: Any) -> list[list[int]]:
            made = [np.ones(30, np.int64), np.ones(20, np.int64)]
            with np.errstate(over="ignore"):
                function(source)(records, *made)
            return [array.tolist() for array in made]

        as_written = plain(data)
        expected = as_written
        if said == "of their indices, row by row":
            expected = plain(sorted(data, key=lambda record: record[0]))
        elif "the plan's" in said or said.startswith("the same"):
            plan = loop.plan(data, *found)
            if make is None:
                made = [np.ones(30, np.int64), np.ones(20, np.int64)]
                with np.errstate(over="ignore"):
                    function(AS_RECORDS)(plan.order(), *made)
                expected = [array.tolist() for array in made]
            else:
                expected = plain(plan.order(data))
            assert expected != as_written
        assert [array.tolist() for array in found] == expected, (ordered, said)


# --- arithmetic -------------------------------------------------------------------------------------------------------


def test_the_table_of_arithmetic() -> None:
    """One case for each row; whole families of them are in test_loops_defined."""
    found = re.search(r"\*\*Arithmetic\*\*(.*?)\Z", section("What a body may contain"), re.DOTALL)
    assert found is not None
    rows = [row[0] for row in table(found[1])]
    lines = {
        rows[0]: ("9223372036854775807 + x[0]", -(2**63)),
        rows[2]: ("5 // x[1] + 5 % x[1]", 0),
        rows[3]: ("f[0] / x[1] == np.inf", 1),
        rows[4]: ("(-5 >> 70 - x[1]) + (x[0] << 64)", -1),
        rows[5]: ("-1 < u[0]", 1),
        rows[6]: ("int(f[1])", -(2**63)),
        rows[7]: ("max(f[0], f[1]) == f[0]", 1),
        rows[8]: ("np.maximum(f[0], f[1]) != np.maximum(f[0], f[1])", 1),
        rows[10]: ("int(f[2] ** 0.5)", 4),
        rows[11]: ("sum(u)", 600),
        rows[12]: ("int(1e6 * np.sqrt(u[0]))", int(1e6 * math.sqrt(200))),
        rows[13]: ("np.isnan((f[0] - f[2]) ** 1.5)", 1),
        rows[14]: ("np.isnan(np.sin(1e300))", 1),
        rows[15]: ("np.isnan(math.lgamma(-0.5))", 1),
    }
    body = "".join(f"        out[{k}] = {text}\n" for k, (text, _) in enumerate(lines.values()))
    loop = st.parallel(function(f"def loop(x, f, u, out, n):\n    for i in range(n):\n{body}"))
    out = np.zeros(len(lines), np.int64)
    loop(np.array([1, 0]), np.array([1.0, np.nan, 16.0]), np.full(3, 200, "u1"), out, 1)
    assert out.tolist() == [value for _, value in lines.values()]
    for row, line in ((rows[1], "u[0] + 300"), (rows[9], "x[0] or 7")):
        assert "refused" in {r[0]: r[1] for r in table(found[1])}[row]
        with pytest.raises(LoopError):
            st.parallel(
                function(f"def loop(x, u, n):\n    for i in range(n):\n        y = {line}\n        x[i] = y\n")
            )(np.zeros(3, np.int64), np.zeros(3, "u1"), 3)
