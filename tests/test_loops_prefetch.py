"""Sliced bodies record what the loop really touches: against an interpreter that watches every access."""
# ruff: noqa: B007  the loops are written as users write them

from __future__ import annotations

import linecache
import math
import random
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import stretto as st
from stretto.errors import PlanError
from stretto.loops.analyse.prefetch_slice import PrefetchSlice, slice_body
from stretto.loops.analyse.space import Space, space_of
from stretto.loops.execute.prefetcher import Prefetch, behind
from stretto.loops.front.bind import BoundValues, bind
from stretto.loops.front.loop_tree import LoopNest
from stretto.loops.front.parse import parse
from stretto.loops.types import typed_tree as t
from stretto.loops.types.body import Body
from stretto.loops.types.body_types import fuse
from stretto.loops.types.statements import every_step
from stretto.testing.evaluate import Environment, Index, Subscripted
from stretto.testing.reference import Interpreter

Touch = tuple[int, str, str, int]  # line, mode, array, element

MODES = {t.Element: "read", t.RowLoad: "read", t.ElementPlace: "write", t.RowPlace: "write", t.BufferAdd: "buffer"}


class Watching(Environment):
    """Notes every element of the caller's arrays that an iteration touches."""

    log: list[Touch]

    def index(self, array: str, node: Subscripted) -> Index:
        found = super().index(array, node)
        if type(node) in MODES:
            self.note(node.line, MODES[type(node)], array, found, 1)
        return found

    def span(self, node: t.RowLoad | t.RowPlace) -> tuple[int | slice, ...]:
        found = super().span(node)
        last = found[-1]
        assert isinstance(last, slice)
        start = tuple(k for k in found if isinstance(k, int))
        if last.start < last.stop:
            self.note(node.line, MODES[type(node)], node.array, (*start, last.start), last.stop - last.start)
        return found

    def note(self, line: int, mode: str, array: str, index: Index, length: int) -> None:
        if array not in self.locals:
            first = int(np.ravel_multi_index(index, self.arrays[array].shape))
            self.log += [(line, mode, array, first + k) for k in range(length)]


def typed(fn: Callable[..., Any], **arguments: Any) -> tuple[Body, BoundValues, Space]:
    """The body of a function's only loop."""
    function = parse(fn)
    (loop,) = (step for step in function.steps if isinstance(step, LoopNest))
    held = bind(arguments, {name: fn.__globals__[name] for name in function.captured})
    space = space_of(loop, held.infos, {})
    return fuse(function, loop, held.infos, space, {})[0], held, space


def records(space: Space) -> Iterable[tuple[tuple[int, ...], dict[str, Any], dict[str, tuple[NDArray[Any], ...]]]]:
    for at in range(len(space)):
        fields = {name: column.values[at].item() for name, column in space.fields}
        ragged = {
            name: tuple(part[column.ptr[at] : column.ptr[at + 1]] for part in column.parts)
            for name, column in space.ragged
        }
        yield (at,), fields, ragged


def watched(body: Body, held: BoundValues, space: Space) -> list[list[Touch]]:
    """What each iteration of the loop itself touches; the arrays are changed as they are by the loop."""
    arrays = {name: array.copy() for name, array in held.arrays.items()}
    targets = {name: arrays[names[0]] for name, names in behind(held).items()}
    machine = Interpreter(body, {**arrays, **targets}, held.numbers)
    machine._env.__class__ = Watching
    watching = machine._env
    assert isinstance(watching, Watching)
    found = []
    for index, fields, ragged in records(space):
        watching.log = []
        machine.iterate(index, fields, ragged)
        found.append(watching.log)
    return found


def listed(sliced: PrefetchSlice, held: BoundValues, space: Space) -> list[list[Touch]]:
    """What the slice records for each iteration, by the same interpreter; arrays that it does not need are spoilt."""
    log: list[Touch] = []

    def record(name: str, index: Index, value: Any) -> None:
        mode, _, array = name.partition(" ")
        first = int(np.ravel_multi_index(index, held.arrays[array].shape))
        log.extend((0, mode, array, first + k) for k in range(int(value)))

    arrays = {name: array for name, array in held.arrays.items() if name in sliced.arrays}
    shapes = {array.name: held.arrays[array.name.partition(" ")[2]] for array in sliced.body.arrays
              if array.role == "buffer"}  # fmt: skip
    machine = Interpreter(sliced.body, {**arrays, **shapes}, held.numbers, None, record)
    found = []
    for index, fields, ragged in records(space):
        log.clear()
        machine.iterate(index, fields, ragged)
        found.append(list(log))
    return found


def check(fn: Callable[..., Any], arrays: set[str], **arguments: Any) -> PrefetchSlice:
    """A strict slice records exactly what it says it records, in order; a loose one at least what may be touched."""
    body, held, space = typed(fn, **arguments)
    truth = watched(body, held, space)
    modes = ("read", "write")
    for loosely in (False, True):
        sliced = slice_body(body, arrays, modes=modes, behind=behind(held), loosely=loosely)
        out = {(skipped.line, skipped.mode, skipped.array) for skipped in sliced.left_out}
        for real, found in zip(truth, listed(sliced, held, space), strict=True):
            mine = [touch for touch in real if touch[2] in arrays and touch[1] in modes]
            sure = [touch[1:] for touch in mine if (touch[0], touch[1], touch[2]) not in out]
            got = [touch[1:] for touch in found]
            if loosely:
                assert set(sure) <= set(got)
            elif not out:
                assert sure == got
            else:
                # The same line may hold a recorded and an unrecorded access: then it records some of its own.
                assert set(sure) <= set(got) <= {touch[1:] for touch in mine}
    return slice_body(body, arrays, modes=modes, behind=behind(held))


def samples(n: int = 12, columns: int = 9, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    X = rng.random((n, columns)) * (rng.random((n, columns)) < 0.4)
    return st.samples(X, rng.integers(0, 2, n))


# --- bodies we know -------------------------------------------------------------------------------------------------


def logistic(samples, w, lr):  # type: ignore[no-untyped-def]
    for i, (y, features) in samples:
        z = 0.0
        for f, x in features:
            z += w[f] * x
        g = 1.0 / (1.0 + math.exp(-z)) - y
        for f, x in features:
            w[f] -= lr * g * x


def test_logistic_keeps_nothing_but_subscripts() -> None:
    sliced = check(logistic, {"w"}, samples=samples(), w=np.zeros(9), lr=0.1)
    assert not sliced.left_out
    assert not any(isinstance(step, t.Store) for step in every_step(sliced.body.steps))
    assert sliced.body.numbers == ()
    assert sliced.body.fields == ()
    assert sliced.reads == ()
    assert [(kept.text, kept.mode) for kept in sliced.recorded] == [
        ("w[f]", "read"),
        ("w[f]", "read"),
        ("w[f]", "write"),
    ]


def chained(samples, w, u):  # type: ignore[no-untyped-def]
    for i, (y, features) in samples:
        for f, x in features:
            k = u[f]
            w[k] += 1.0
            u[f] = (k + 1) % 9


def test_a_subscript_that_needs_a_written_array_is_left_out_and_says_so() -> None:
    sliced = check(chained, {"w", "u"}, samples=samples(), w=np.zeros(9), u=np.zeros(9, np.int64))
    assert {(out.text, out.mode, out.why) for out in sliced.left_out} == {
        ("w[k]", "read", "it depends on u"),
        ("w[k]", "write", "it depends on u"),
    }
    assert {kept.array for kept in sliced.recorded} == {"u"}


def through_a_table(samples, w, table):  # type: ignore[no-untyped-def]
    for i, (y, features) in samples:
        for f, x in features:
            w[table[f]] += x


def test_arrays_that_the_loop_never_writes_are_read_ahead() -> None:
    table = np.random.default_rng(0).integers(0, 9, 9)
    sliced = check(through_a_table, {"w"}, samples=samples(), w=np.zeros(9), table=table)
    assert not sliced.left_out
    assert sliced.reads == ("table",)


def stopping(samples, w, n):  # type: ignore[no-untyped-def]
    for i, (y, features) in samples:
        if i % 3 == 1:
            continue
        k = 0
        for f, x in features:
            k += 1
            if k > n:
                break
            if f % 2 == 0:
                continue
            w[f] += x
        if w[0] > 0.5:
            w[8] = 0.0


def test_control_flow_is_kept_and_what_values_decide_is_not() -> None:
    sliced = check(stopping, {"w"}, samples=samples(), w=np.zeros(9), n=2)
    assert [(out.text, out.why) for out in sliced.left_out] == [("w[8]", "it depends on w")]
    assert sliced.numbers == ("n",)
    kinds = {type(step) for step in every_step(sliced.body.steps)}
    assert {t.Jump, t.Branch, t.RaggedLoop, t.Store, t.BufferAdd} == kinds


def rows(samples, W, H):  # type: ignore[no-untyped-def]
    for i, (y, features) in samples:
        for f, x in features:
            e = x - W[i] @ H[f]
            W[i] += 0.1 * e * H[f]
            H[f, 1:3] = H[f, 0:2] * e


def test_rows_are_recorded_whole() -> None:
    rng = np.random.default_rng(0)
    sliced = check(rows, {"W", "H"}, samples=samples(), W=rng.random((12, 5)), H=rng.random((9, 5)))
    assert not sliced.left_out


def swapped(samples, w):  # type: ignore[no-untyped-def]
    for i, (y, features) in samples:
        a, b = 0, 5
        for f, x in features:
            a, w[a] = f, x
            w[b], b = x, a
        a, b = b, a
        w[a] = w[b] if a < b and w[a] > 0 else 0.0


def test_places_see_what_was_assigned_before_them() -> None:
    sliced = check(swapped, {"w"}, samples=samples(), w=np.ones(9))
    assert [out.text for out in sliced.left_out] == ["w[b]"]


def waiting(samples, w, c):  # type: ignore[no-untyped-def]
    for i, (y, features) in samples:
        k = i % 5
        while c[k] > 2 and k < 8:
            k += 1
            if k == 6:
                continue
            w[k] += 1.0


def test_a_test_that_reads_is_recorded_every_time_it_is_made() -> None:
    c = np.random.default_rng(1).integers(0, 9, 9)
    sliced = check(waiting, {"w", "c"}, samples=samples(), w=np.zeros(9), c=c)
    assert not sliced.left_out


def passed_on(samples, w, u):  # type: ignore[no-untyped-def]
    for i, (y, features) in samples:
        k = 0
        for f, x in features:
            w[k] += x
            k = u[f] % 9
            if f % 2 == 0:
                continue
            k = f
        u[i % 9] += 1


def skipped(samples, w, u):  # type: ignore[no-untyped-def]
    for i, (y, features) in samples:
        k = 0
        for f, x in features:
            w[k] += x
            if w[f] > 0.5:
                continue
            k = f
        u[i % 9] += 1


@pytest.mark.parametrize(("fn", "why"), [(passed_on, "it depends on u"), (skipped, "it depends on w")])
def test_what_one_round_leaves_to_the_next_is_known_only_if_every_way_through_makes_it_so(
    fn: Callable[..., Any], why: str
) -> None:
    u = np.random.default_rng(0).integers(0, 9, 9)
    sliced = check(fn, {"w", "u"}, samples=samples(), w=np.zeros(9), u=u)
    assert {out.why for out in sliced.left_out if out.text == "w[k]"} == {why}
    assert "u[i % 9]" in {kept.text for kept in sliced.recorded}


def until(samples, w, u):  # type: ignore[no-untyped-def]
    for i, (y, features) in samples:
        k = i % 3
        while k < 5:
            w[k] += 1.0
            if u[k] >= 0:
                break
        u[i % 9] = 0


def test_a_while_loop_that_values_end_is_not_run_ahead() -> None:
    sliced = check(until, {"w"}, samples=samples(), w=np.zeros(9), u=np.zeros(9, np.int64))
    assert {(out.text, out.why) for out in sliced.left_out} == {("w[k]", "it depends on u")}
    assert sliced.body.steps == ()


# --- bodies at random -----------------------------------------------------------------------------------------------


class Author:
    """Writes loops: integers everywhere, every subscript taken modulo, some of it decided by what the loop writes."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.fresh = 0
        self.lines = ["def made(samples, u, v, c, n):", "    for i, (y, features) in samples:", "        a, b = i, n",
                      "        p = np.zeros(4, np.int64)"]  # fmt: skip
        self.block(2, ["i", "a", "b", "n", "y"], "", 5)

    def value(self, names: list[str], depth: int = 2) -> str:
        kind = self.draw.choice(("name", "name", "number", "add", "u", "v", "c", "p", "pick", "random"))
        if depth == 0 or kind == "name":
            return self.draw.choice(names)
        if kind == "number":
            return str(self.draw.randint(0, 9))
        inner = self.value(names, depth - 1)
        if kind == "add":
            return f"({inner} {self.draw.choice('+-*')} {self.value(names, depth - 1)})"
        if kind in ("u", "v"):
            return f"{kind}[{inner} % 7]" if self.draw.random() < 0.5 else inner
        if kind == "random":
            return f"st.integers(5, i, {inner})"
        if kind == "pick":
            return f"({inner} if {self.test(names, depth - 1)} else {self.value(names, depth - 1)})"
        return f"{kind}[{inner} % 4]"

    def test(self, names: list[str], depth: int = 1) -> str:
        one = f"{self.value(names, depth)} > {self.draw.randint(-2, 6)}"
        return (
            one if self.draw.random() < 0.7 else f"{one} {self.draw.choice(('and', 'or'))} {self.value(names, 1)} < 3"
        )

    def block(self, depth: int, names: list[str], inside: str, size: int) -> None:
        for _ in range(self.draw.randint(1, size)):
            self.statement(depth, names, inside, size - 1)

    def write(self, depth: int, line: str) -> None:
        self.lines.append("    " * depth + line)

    def statement(self, depth: int, names: list[str], inside: str, size: int) -> None:
        kinds = ["a", "two", "u", "u", "v", "p", "fold"]
        if size > 0 and depth < 6:
            kinds += ["if", "if", "range", "walk", "while", "leave"]
        kind = self.draw.choice(kinds)
        self.fresh += 1
        match kind:
            case "a":
                self.write(depth, f"{self.draw.choice('ab')} {self.draw.choice(('=', '+='))} {self.value(names)}")
            case "two":
                self.write(depth, f"a, u[{self.value(names)} % 7] = {self.value(names)}, {self.value(names)}")
            case "u" | "v":
                self.write(
                    depth, f"{kind}[{self.value(names)} % 7] {self.draw.choice(('=', '+='))} {self.value(names)}"
                )
            case "p":
                self.write(depth, f"p[{self.value(names)} % 4] = {self.value(names)}")
            case "fold":
                self.write(depth, f"b = {self.value(names)} % 11")
            case "if":
                self.write(depth, f"if {self.test(names)}:")
                self.block(depth + 1, names, inside, size)
                if self.draw.random() < 0.5:
                    self.write(depth, "else:")
                    self.block(depth + 1, names, inside, size)
            case "range":
                self.write(depth, f"for k{self.fresh} in range({self.value(names, 1)} % 4):")
                self.block(depth + 1, [*names, f"k{self.fresh}"], "loop", size)
            case "walk":
                self.write(depth, f"for f{self.fresh}, x{self.fresh} in features:")
                self.block(depth + 1, [*names, f"f{self.fresh}"], "loop", size)
            case "while":
                self.write(depth, f"q{self.fresh} = {self.value(names, 1)} % 4")
                self.write(depth, f"while q{self.fresh} > 0:")
                self.write(depth + 1, f"q{self.fresh} -= 1")
                self.block(depth + 1, [*names, f"q{self.fresh}"], "loop", size)
            case "leave":
                self.write(depth, f"if {self.test(names)}:")
                if self.draw.random() < 0.5:
                    self.write(depth + 1, f"{self.draw.choice('ab')} = {self.value(names)}")
                self.write(depth + 1, self.draw.choice(("break", "continue")) if inside else "continue")

    def function(self) -> Callable[..., Any]:
        source = "\n".join(self.lines) + "\n"
        file = f"<made {hash(source)}>"
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        names: dict[str, Any] = {"np": np, "st": st}
        exec(compile(source, file, "exec"), names)
        made: Callable[..., Any] = names["made"]
        return made


def made_arguments(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {"samples": samples(6, seed=seed), "u": rng.integers(0, 7, 7), "v": rng.integers(0, 7, 7),
            "c": rng.integers(0, 9, 4), "n": 3}  # fmt: skip


def check_random(seed: int) -> None:
    fn = Author(seed).function()
    try:
        check(fn, {"u", "v"}, **made_arguments(seed))
    except AssertionError as problem:
        raise AssertionError("\n".join([f"seed {seed}", *Author(seed).lines])) from problem


@pytest.mark.parametrize("seed", range(40))
def test_random_bodies(seed: int) -> None:
    check_random(seed)


@pytest.mark.slow
def test_many_random_bodies() -> None:
    for seed in range(1000, 2000):
        check_random(seed)


# --- compiled -------------------------------------------------------------------------------------------------------


@st.parallel
def buffered(samples, w, out, table, lr):  # type: ignore[no-untyped-def]
    for i, (y, features) in samples:
        z = 0.0
        for f, x in features:
            if f != lr:
                z += w[table[f]] * x
        for f, x in features:
            out[table[f]] += z * x


def expected(plan: Any, prefetch: Prefetch) -> list[NDArray[Any]]:
    """The elements of w that each visit reads, from the interpreter."""
    from stretto.loops.layout.traversal import iterations

    analysis, visits = plan.parts[0].prepared.analysis, plan.parts[0].prepared.visits
    truth = watched(analysis.body, plan.held, analysis.space)
    return [
        np.unique([e for _, at in iterations(visits, analysis.space, v) for _, mode, a, e in truth[at]
                   if (mode, a) == ("read", "w")])
        for v in range(len(visits))
    ]  # fmt: skip


def test_compiled_lists_are_those_of_the_interpreter_and_are_kept_while_nothing_changes() -> None:
    data, w, table = samples(300, 40), st.zeros(40), np.random.default_rng(0).permutation(40)
    loop = buffered.using(blocks=(5,), runtime=st.Threads(2))

    def ahead(number: int) -> tuple[Any, Prefetch]:
        plan = loop.plan(data, w, st.buffer(w), table, number)
        return plan, plan.prefetch()

    plan, prefetch = ahead(3)
    assert prefetch.arrays == ("w",)
    found = prefetch.elements()
    ptr, elements = found.of("w")
    want = expected(plan, prefetch)
    assert len(want) == 5
    for v, visit in enumerate(want):
        np.testing.assert_array_equal(elements[ptr[v] : ptr[v + 1]], visit)
    assert ahead(3)[1].elements() is found
    assert ahead(5)[1].elements() is not found
    again = ahead(3)[1].elements()
    table[[0, 1]] = table[[1, 0]]
    assert ahead(3)[1].elements() is not again
    with pytest.raises(PlanError, match="nothing is recorded of v"):
        found.of("v")
    assert prefetch.describe() == [
        f"line {parse(buffered.plain).line + 5}: w[table[f]] is read, listed ahead",
    ]


@st.parallel
def factor(ratings, W, H):  # type: ignore[no-untyped-def]
    for (i, j), r in ratings:
        e = r - W[i] @ H[j]
        W[i], H[j] = W[i] + 0.1 * e * H[j], H[j] + 0.1 * e * W[i]


def test_a_grid_of_blocks_lists_its_rows() -> None:
    rng = np.random.default_rng(0)
    data = st.Data.from_arrays(rng.integers(0, 30, 900), rng.integers(0, 20, 900), rng.random(900))
    plan = factor.using(blocks=(3,)).plan(data, st.random((30, 4)), st.random((20, 4)))
    found = plan.prefetch(arrays=("W", "H")).elements()
    visits = plan.parts[0].prepared.visits
    ptr, elements = found.of("H")
    index = visits.arrays["index1", ""]
    for v in range(len(visits)):
        lo, hi = visits.arrays["ptr", ""][v : v + 2]
        cols = np.unique(index[lo:hi].astype(np.int64) + visits.arrays["base1", ""][v])
        np.testing.assert_array_equal(elements[ptr[v] : ptr[v + 1]], (cols[:, None] * 4 + np.arange(4)).ravel())


@st.parallel(inspect=True)
def past_the_end(samples, w):  # type: ignore[no-untyped-def]
    for i, (y, features) in samples:
        for f, x in features:
            w[f] += x
            if w[f] > 90.0:
                w[f + 9] = 0.0


def test_what_is_out_of_range_and_never_reached_does_no_harm() -> None:
    w = np.zeros(12)
    past_the_end(st.samples(np.eye(9), np.zeros(9)), w)
    np.testing.assert_array_equal(w, [1.0] * 9 + [0.0] * 3)


def ends(samples, w):  # type: ignore[no-untyped-def]
    for i, (y, features) in samples:
        for k in range(w.shape[0] - 2, len(w)):
            w[k] += 1.0


def test_the_shape_of_an_array_is_not_its_values() -> None:
    sliced = check(ends, {"w"}, samples=samples(), w=np.zeros(9))
    assert not sliced.left_out
    assert sliced.reads == ()
