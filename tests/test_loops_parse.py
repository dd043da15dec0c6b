"""From source to loop tree: what each construct becomes, where it stands, and how everything else is refused."""

from __future__ import annotations

import difflib
import heapq
import inspect
import itertools
import linecache
import math
import random
import re
import statistics
import textwrap
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest

from stretto.errors import LoopError
from stretto.loops.analyse.view_swaps import refuse_swap, views_swapped
from stretto.loops.front import loop_tree
from stretto.loops.front.loop_tree import (  # fmt: skip
    Assign,
    AugAssign,
    Binary,
    BoolOp,
    Call,
    Compare,
    For,
    If,
    IfExp,
    Item,
    IteratedName,
    Level,
    LocalArray,
    LoopExit,
    LoopNest,
    Name,
    Number,
    Range,
    Setup,
    Shape,
    Span,
    Unary,
    While,
)
from stretto.loops.front.parse import parse

FILE = "<ipython-input-7-abc>"


def helper(x: float) -> float:
    return x


class Compiled:
    """Looks like a function that numba compiled."""

    __name__ = "squash"
    py_func = staticmethod(helper)

    def __call__(self, x: float) -> float:
        return x


class Keyed:
    """Looks like one of Stretto's own functions."""

    __stretto_function__ = "uniform"

    def __call__(self, *keys: int) -> float:
        return 0.5


squash, uniform = Compiled(), Keyed()
OUTSIDE: dict[str, Any] = {
    "math": math, "np": np, "numpy": np, "itertools": itertools, "random": random, "exponential": math.exp,
    "squash": squash, "uniform": uniform, "helper": helper, "LIMIT": 3, "TABLE": np.zeros(4), "PAIR": (1, 2),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    linecache.cache.pop(FILE, None)


def typed(source: str, name: str = "f") -> Callable[..., Any]:
    """A function as a notebook makes it: run from text, which linecache keeps."""
    source = textwrap.dedent(source).lstrip("\n")
    linecache.cache[FILE] = (len(source), None, source.splitlines(keepends=True), FILE)
    scope = dict(OUTSIDE)
    exec(compile(source, FILE, "exec"), scope)
    made: Callable[..., Any] = scope[name]
    return made


def in_loop(body: str) -> Callable[..., Any]:
    """A function with this body of a loop over records."""
    head = "def f(data, W, H, A, n, x, y, lr):\n    for (i, j), r in data:\n"
    return typed(head + textwrap.indent(textwrap.dedent(body).strip("\n"), " " * 8) + "\n")


def body(source: str) -> tuple[loop_tree.Stmt, ...]:
    return loops(in_loop(source))[0].body


def loops(fn: Callable[..., Any]) -> list[LoopNest]:
    return [step for step in parse(fn).steps if isinstance(step, LoopNest)]


def value(source: str) -> loop_tree.Expr:
    """The tree of one expression."""
    (assign,) = body(f"t = {source}")
    assert isinstance(assign, Assign)
    return assign.values[0]


# Trees without their lines, which have tests of their own.
def num(v: float) -> Number:
    return Number(ANY, v)


def var(name: str) -> Name:
    return Name(ANY, name)


def item(base: str, *index: loop_tree.Expr | Span, field: str = "") -> Item:
    return Item(ANY, base, index, field)


def call(function: str, *args: loop_tree.Expr) -> Call:
    return Call(ANY, function, args)


def two(left: loop_tree.Expr, op: str, right: loop_tree.Expr) -> Binary:
    return Binary(ANY, op, left, right)


def put(target: loop_tree.Target, new: loop_tree.Expr) -> Assign:
    return Assign(ANY, (target,), (new,))


X, Y, ROW, COLUMN = var("x"), var("y"), var("i"), var("j")
WI, HJ = item("W", ROW), item("H", COLUMN)
COUNTDOWN = Range(ANY, two(var("n"), "-", num(1)), num(-1), num(-1))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("2", num(2)),
        ("-1.5", num(-1.5)),
        ("True", num(True)),
        ("x", X),
        ("-x", Unary(ANY, "-", X)),
        ("not x", Unary(ANY, "not", X)),
        ("~i", Unary(ANY, "~", ROW)),
        ("W[i] @ H[j]", two(WI, "@", HJ)),
        ("x ** 2 // 3 % y", two(two(two(X, "**", num(2)), "//", num(3)), "%", Y)),
        ("i << 1 & 3", two(two(ROW, "<<", num(1)), "&", num(3))),
        ("4 | 5 ^ n >> j", two(num(4), "|", two(num(5), "^", two(var("n"), ">>", COLUMN)))),
        ("x < y", Compare(ANY, "<", X, Y)),
        ("0 <= x != y", BoolOp(ANY, "and", (Compare(ANY, "<=", num(0), X), Compare(ANY, "!=", X, Y)))),
        ("x and y or n", BoolOp(ANY, "or", (BoolOp(ANY, "and", (X, Y)), var("n")))),
        ("x if y else 0", IfExp(ANY, Y, X, num(0))),
        ("math.pi", num(math.pi)),
        ("np.inf", num(math.inf)),
        ("float('inf')", num(math.inf)),
        ("LIMIT", var("LIMIT")),
        ("np.exp(x)", call("numpy", call("exp", X))),
        ("numpy.exp(x)", call("numpy", call("exp", X))),
        ("math.exp(x)", call("exp", call("float", X))),
        ("exponential(2.0)", call("exp", num(2.0))),
        ("np.log(x) + np.sqrt(y)", two(call("numpy", call("log", X)), "+", call("numpy", call("sqrt", Y)))),
        ("abs(x)", call("abs", X)),
        ("np.abs(x)", call("numpy", call("abs", X))),
        ("math.fabs(x)", call("abs", call("float", X))),
        ("np.floor(x)", call("numpy", call("floor", X))),
        ("math.ceil(x)", call("int", call("ceil", X))),
        ("max(x, y, 0)", call("max", X, Y, num(0))),
        ("np.maximum(x, y)", call("numpy", call("maximum", X, Y))),
        ("max(W[i])", call("max", WI)),
        ("np.min(W[i])", call("min_all", WI)),
        ("W[i].max()", call("max_all", WI)),
        ("sum(W[i])", call("sum", WI)),
        ("np.sum(W[i])", call("sum_all", WI)),
        ("(W[i] * H[j]).sum()", call("sum_all", two(WI, "*", HJ))),
        ("np.dot(W[i], H[j])", two(WI, "@", HJ)),
        ("W[i].dot(H[j])", two(WI, "@", HJ)),
        ("np.where(x > 0, x, 0)", call("numpy", call("where", Compare(ANY, ">", X, num(0)), X, num(0)))),
        ("np.float32(x) + int(y)", two(call("float32", X), "+", call("int", Y))),
        ("np.bool_(x)", call("bool", X)),
        ("uniform(i, j)", call("uniform", ROW, COLUMN)),
        ("squash(x)", Call(ANY, "user", (X,), squash, "squash")),
        ("W[i].copy()", Unary(ANY, "+", WI)),
        ("W[i, 2]", item("W", ROW, num(2))),
        ("W[i][2]", item("W", ROW, num(2))),
        ("W[i, 1:n]", item("W", ROW, Span(ANY, num(1), var("n")))),
        ("W[i][:]", item("W", ROW, Span(ANY, None, None))),
        ("x[()]", item("x")),
        ("A[i]['age']", item("A", ROW, field="age")),
        ("A['age'][i]", item("A", ROW, field="age")),
        ("TABLE[W[i, 0]]", item("TABLE", item("W", ROW, num(0)))),
        ("W.shape[1]", Shape(ANY, "W", 1)),
        ("len(W)", Shape(ANY, "W", 0)),
        ("len(W[i])", Shape(ANY, "W", 1)),
        ("np.zeros(n)", LocalArray(ANY, "zeros", (var("n"),), "f8")),
        ("np.empty((n, 3), dtype=np.float32)", LocalArray(ANY, "empty", (var("n"), num(3)), "f4")),
        ("np.zeros(4, int)", LocalArray(ANY, "zeros", (num(4),), "i8")),
        ("np.zeros(shape=4, dtype='b1')", LocalArray(ANY, "zeros", (num(4),), "b1")),
    ],
)  # fmt: skip
def test_expressions(source: str, expected: loop_tree.Expr) -> None:
    assert value(source) == expected


def test_booleans_stay_booleans() -> None:
    found = value("True")
    assert isinstance(found, Number)
    assert found.value is True


def test_a_typed_number_of_a_module_keeps_its_type() -> None:
    math.tiny = np.float32(0.5)  # type: ignore[attr-defined]
    try:
        assert value("math.tiny") == call("float32", num(0.5))
    finally:
        del math.tiny  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("e = x", (put(var("e"), X),)),
        ("e: float = x", (put(var("e"), X),)),
        ("W[i], H[j] = x, y", (Assign(ANY, (WI, HJ), (X, Y)),)),
        ("a = b = 0", (put(var("a"), num(0)), put(var("b"), num(0)))),
        ("W[i] -= lr * x", (AugAssign(ANY, WI, "-", two(var("lr"), "*", X)),)),
        ("r -= 1", (AugAssign(ANY, var("r"), "-", num(1)),)),
        ("'''words'''\npass\ne: int\n...", ()),
        ("if x:\n    continue", (If(ANY, X, (LoopExit(ANY, "continue"),), ()),)),
        (
            "if x:\n    e = 1\nelif y:\n    e = 2\nelse:\n    pass",
            (If(ANY, X, (put(var("e"), num(1)),), (If(ANY, Y, (put(var("e"), num(2)),), ()),)),),
        ),
        ("while x < 1:\n    break", (While(ANY, Compare(ANY, "<", X, num(1)), (LoopExit(ANY, "break"),)),)),
        (
            "for k in range(n - 1, -1, -1):\n    W[i, k] = 0",
            (For(ANY, "k", COUNTDOWN, (put(item("W", ROW, var("k")), num(0)),)),),
        ),
        ("for f, v in r:\n    pass", (For(ANY, ("f", "v"), IteratedName(ANY, "r"), ()),)),
        ("for k in range(2):\n    for m in range(k):\n        break", ANY),
    ],
)  # fmt: skip
def test_statements(source: str, expected: tuple[loop_tree.Stmt, ...]) -> None:
    assert body(source) == expected


# --- the shape of a function ----------------------------------------------------------------------------------------


def levels(source: str) -> list[tuple[loop_tree.Pattern, str]]:
    """Pattern and kind of each level of the only loop."""
    (loop,) = loops(typed(source))
    return [(level.pattern, type(level.over).__name__) for level in loop.levels]


def test_a_perfect_nest_of_ranges_is_one_loop() -> None:
    (loop,) = loops(
        typed("""
        def f(G, m, n):
            for i in range(1, m):
                '''rows'''
                for j in range(n):
                    G[i, j] += 1
        """)
    )
    first = Level(2, "i", Range(2, Number(2, 1), Name(2, "m"), Number(2, 1)))
    second = Level(4, "j", Range(4, Number(4, 0), Name(4, "n"), Number(4, 1)))
    update = AugAssign(5, Item(5, "G", (Name(5, "i"), Name(5, "j"))), "+", Number(5, 1))
    assert loop == LoopNest(2, (first, second), (update,))


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("for i in range(m):\n  for j in range(n):\n    for k in range(3):\n      G[i, j] = k", ["i", "j", "k"]),
        ("for i, j in itertools.product(range(m), range(n)):\n  G[i, j] = 0", ["i", "j"]),
        ("for i in range(m):\n  for j, k in itertools.product(range(n), range(n)):\n    G[i, j] = 0", ["i", "j", "k"]),
        ("for i in range(m):\n  for j in range(i):\n    G[i, j] = 0", ["i"]),  # depends on the outer index
        ("for i in range(m):\n  for j in range(G[0, 0]):\n    G[i, j] = 0", ["i"]),  # on what the loop writes
        ("for i in range(m):\n  for j in range(n):\n    n = 3", ["i"]),
        ("for i in range(m):\n  for j in range(n):\n    if G[i, j]:\n      break", ["i"]),  # cut short
        ("for i in range(m):\n  for j in range(n):\n    while G[i, j]:\n      break", ["i", "j"]),
        ("for i in range(m):\n  x = 0\n  for j in range(n):\n    G[i, j] = x", ["i"]),  # not perfect
        ("for i in range(m):\n  for (j, k), r in data:\n    G[j, k] = r", ["i"]),
        ("for (i, j), r in data:\n  for k in range(3):\n    G[i, j] = r", [(("i", "j"), "r")]),
        ("for i, (y, row) in data:\n  for j, x in row:\n    G[i, j] = x", [("i", ("y", "row"))]),
        ("for _ in range(m):\n  for _ in range(n):\n    pass", ["_", "_"]),
    ],
)  # fmt: skip
def test_which_loops_are_levels(head: str, expected: list[loop_tree.Pattern]) -> None:
    found = levels("def f(data, G, m, n):\n" + textwrap.indent(head, "  "))
    assert [pattern for pattern, _ in found] == expected


def test_a_function_is_loops_and_the_lines_between_them() -> None:
    function = parse(
        typed("""
        @(lambda g: g)
        def f(A, *, scale: float = 2.0):
            '''Two loops.'''
            n, m = A.shape
            half: int = n // 2
            for i in range(half):
                A[i, 0] = scale
            half += LIMIT
            for i in range(half):
                A[i, 1] = LIMIT + TABLE[i]
            return None
        """)
    )
    assert (function.name, function.file, function.line, function.params) == ("f", FILE, 2, ("A", "scale"))
    setups = [step for step in function.steps if isinstance(step, Setup)]
    assert setups == [
        Setup(4, ("n", "m"), "n, m = A.shape"),
        Setup(5, ("half",), "half = n // 2"),
        Setup(8, ("half",), "half += LIMIT"),
    ]
    assert [type(step).__name__ for step in function.steps] == ["Setup", "Setup", "LoopNest", "Setup", "LoopNest"]
    assert function.captured == ("LIMIT", "TABLE")
    assert function.lines[0].startswith("def f(A,")
    assert function.lines[-1] == "    return None"


# --- where the source is --------------------------------------------------------------------------------------------


def same(fn: Callable[..., Any]) -> Callable[..., Any]:
    return fn


def test_lines_are_those_of_the_file_and_closures_are_seen() -> None:
    scale, logarithm = 2.0, math.log

    @same
    @same
    def fn(data: Any, W: Any) -> None:
        """Words
        to the left
        """
        for i, r in data:
            W[i] = scale * logarithm(r)  # the line

    function = parse(fn)
    (loop,) = loops(fn)
    here = inspect.getsourcelines(fn)[1]
    assert function.file == __file__
    assert function.line == here + 2
    assert function.lines[loop.body[0].line - function.line].endswith("# the line")
    assert loop.line == here + 6
    assert function.captured == ("scale",)
    log = call("log", call("float", var("r")))
    assert loop.body == (put(item("W", ROW), two(var("scale"), "*", log)),)


def test_names_without_a_value_yet_are_captured() -> None:
    def make() -> Callable[..., Any]:
        def fn(data: Any, W: Any) -> None:
            for i, _ in data:
                W[i] = later + much_later  # type: ignore[name-defined]  # noqa: F821

        function = parse(fn)
        later = 1
        assert function.captured == ("later", "much_later")
        return fn if later else make

    make()


def test_locals_hide_functions() -> None:
    (assign, _) = body("exponential = 1\nt = exponential + 1")
    assert isinstance(assign, Assign)
    with pytest.raises(LoopError, match="exponential is a variable of this function and cannot be called"):
        parse(in_loop("exponential = 1\nt = exponential(2)"))


def test_a_prompt_keeps_no_source() -> None:
    scope: dict[str, Any] = {}
    exec(compile("def epoch(n):\n    for i in range(n): pass", "<stdin>", "exec"), scope)
    with pytest.raises(LoopError) as caught:
        parse(scope["epoch"])
    assert str(caught.value) == (
        "<stdin>:1: the source of epoch is not kept here, so it cannot be read; "
        "put the function in a file and import it, or use IPython or Jupyter, which keep what is typed"
    )


EDITS = ["", "x = 1\n", "def f(n, m):\n    pass\n", "def g(n):\n  pass\n", "def f(n\n", ")\n", "  '''"]


@pytest.mark.parametrize("now", EDITS)
def test_source_that_was_edited(now: str) -> None:
    fn = typed("def f(n):\n    for i in range(n): pass\n")
    linecache.cache[FILE] = (len(now), None, now.splitlines(keepends=True), FILE)
    with pytest.raises(LoopError, match=r"has changed since Python read it|is not kept here"):
        parse(fn)


def test_only_plain_functions_are_read() -> None:
    @wraps(helper)
    def wrapped(x: float) -> float:
        return x

    async def waits(n: int) -> None:
        pass

    for fn, problem in [
        (lambda n: n, "a lambda cannot be compiled"),
        (squash, "squash is not a Python function but a Compiled"),
        (len, "len is not a Python function"),
        (wrapped, "helper is wrapped by another decorator"),
        (waits, "an async function cannot be compiled"),
    ]:
        with pytest.raises(LoopError, match=problem):
            parse(fn)  # type: ignore[arg-type]


@pytest.mark.parametrize("module", [statistics, textwrap, heapq, difflib, random, inspect])
def test_any_function_is_read_or_refused(module: Any) -> None:
    """Whatever Python there is, nothing but LoopError comes out."""
    owners = [module, *(value for value in vars(module).values() if inspect.isclass(value))]
    functions = [fn for owner in owners for fn in vars(owner).values() if inspect.isfunction(fn)]
    assert functions
    for fn in functions:
        with suppress(LoopError):
            parse(fn)


def test_a_sum_over_a_generator_is_a_loop() -> None:
    assert strip(body("s = sum(W[k] * x for k in range(n) if k > 2)")) == strip(
        body("s = 0\nfor k in range(n):\n    if k > 2:\n        s += W[k] * x")
    )
    with pytest.raises(LoopError, match="generator expression"):
        body("s = 1\ns = sum(s * k for k in range(n))")


def strip(statements: object) -> str:
    """The tree without its line numbers."""
    return re.sub(r"line=\d+, ", "", repr(statements))


# --- what is refused ------------------------------------------------------------------------------------------------


def refused() -> list[tuple[str, str]]:
    """Bodies of loops, or whole functions `f`, and what is said about them."""
    entries = (Path(__file__).parent / "refused_loops.txt").read_text(encoding="utf-8").strip().split("\n\n")
    return [(source, message) for source, _, message in (entry.partition("\n=> ") for entry in entries)]


@pytest.mark.parametrize(("source", "message"), refused())
def test_refused(source: str, message: str) -> None:
    with pytest.raises(LoopError) as caught:
        parse(typed(source) if source.startswith("def f(") else in_loop(source))
    error = caught.value
    assert str(error).splitlines()[0] == f"{FILE}:{error.line}: {message}"
    assert error.problem
    assert error.remedy


def test_the_error_points_at_the_place() -> None:
    with pytest.raises(LoopError) as caught:
        parse(in_loop("größe = 1\nt = größe + [k for k in W][0]"))
    error = caught.value
    assert (error.file, error.line) == (FILE, 4)
    assert error.problem == "only a name can be subscripted: [k for k in W][0]"
    assert error.remedy == "give what is before the bracket a name, then subscript that"
    assert str(error).splitlines()[1:] == [
        "    t = größe + [k for k in W][0]",
        "                ^^^^^^^^^^^^^^^^^",
    ]
    with pytest.raises(LoopError) as caught:
        parse(in_loop("t = max(x,\n        {1: 2,\n         3: 4})"))
    assert str(caught.value).splitlines()[1:] == ["    {1: 2,", "    ^^^^^^"]
    assert caught.value.line == 4


# --- swapped views --------------------------------------------------------------------------------------------------

AXES = {"W": 2, "H": 2, "x": 1, "w": 1}


@pytest.mark.parametrize(
    ("source", "swapped"),
    [
        ("W[0], W[1] = W[1], W[0]", True),
        ("W[i], W[j] = W[j], W[i]", True),
        ("W[i], H[j] = H[j], W[i]", True),  # W[i] is stored before it is read
        ("W[i, 1:], W[j, 1:] = W[j, 1:], W[i, 1:]", True),
        ("t, W[i] = W[i], x", True),  # t goes on as a view of what is overwritten
        ("W[i], W[j] = W[j], W[i] if y else x", True),
        ("x[:], t = 0, x", True),
        ("W[0], W[1] = W[2], W[3]", False),
        ("W[0], W[1] = W[1].copy(), W[0].copy()", False),
        ("W[0], W[1] = W[1], W[0].copy()", False),  # the first is read in time
        ("W[0], W[1] = W[1] + 0, 1 * W[0]", False),
        ("W[i, 0], W[i, 1] = W[i, 1], W[i, 0]", False),  # numbers
        ("x[0], x[1] = x[1], x[0]", False),
        ("W[i], H[j] = W[j], H[i]", False),
        ("W[i], t = W[j], x", False),
        ("a, b = x, y", False),
    ],
)
def test_swapped_views(source: str, swapped: bool) -> None:
    (assign,) = body(source)
    assert isinstance(assign, Assign)
    assert views_swapped(assign, lambda name: AXES.get(name, 0)) is swapped


def test_swapped_views_behind_a_name() -> None:
    function = parse(in_loop("w = W[0]\nW[0], W[1] = W[1], w"))
    (loop,) = [step for step in function.steps if isinstance(step, LoopNest)]
    assign = loop.body[1]
    assert isinstance(assign, Assign)
    assert not views_swapped(assign, lambda name: AXES.get(name, 0))
    assert views_swapped(assign, lambda name: AXES.get(name, 0), root=lambda name: {"w": "W"}.get(name, name))
    assert str(refuse_swap(function, assign)).splitlines() == [
        f"{FILE}:4: rows are swapped as views, of which NumPy makes two copies of one row; "
        "write .copy() after each bare row on the right: W[0].copy()",
        "    W[0], W[1] = W[1], w",
        "    ^^^^^^^^^^^^^^^^^^^^",
    ]
