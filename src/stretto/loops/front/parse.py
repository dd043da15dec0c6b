"""The parser of `st.parallel` functions: from the source of a function to a loop tree, without running it.

A function is a sequence of steps: `for` loops, which become parallel loops, and plain assignments between them, which
Python runs on the driver. A perfect nest of ranges is one loop of several levels:

    for i in range(m):
        for j in range(n):                  Loop(levels=(Level("i", Range(0, m)), Level("j", Range(0, n))), body=…)
            G[i, j] = …

`source_text` finds the source, `names` and `functions` resolve names, `parse_expressions` and `parse_statements`
translate, `refusals` creates the errors for what is not supported.
"""

from __future__ import annotations

import ast
import dataclasses
import itertools
import types
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

from stretto.loops.front import loop_tree
from stretto.loops.front.functions import known
from stretto.loops.front.names import UNKNOWN, InlinedCalls, NameScope, names_of, stored
from stretto.loops.front.nested import with_nested
from stretto.loops.front.parse_expressions import expression
from stretto.loops.front.parse_statements import block, bound, idle, index_names, iterated, no_else, pattern
from stretto.loops.front.refusals import shorten
from stretto.loops.front.source_text import FunctionSource, parameters, read


def parse(fn: Callable[..., Any]) -> loop_tree.Function:
    """The loop tree of a Python function; raise LoopError, with file and line, for what cannot be compiled."""
    text = read(fn)
    calls = InlinedCalls(expression, block)
    names = with_nested(replace(names_of(cast(types.FunctionType, fn), text), calls=calls), fn)
    _check_parameters(text, names)
    steps = tuple(_steps(text, names))
    loops = [step for step in steps if isinstance(step, loop_tree.LoopNest)]
    if not any(isinstance(node, ast.For) for node in _body(text.node)):
        raise names.refuse(text.node, f"{text.node.name} has no for loop", "write one: for (i, j), r in data: …")
    return loop_tree.Function(
        name=text.node.name,
        file=text.file,
        line=text.line,
        params=parameters(text.node),
        steps=steps,
        captured=tuple(
            dict.fromkeys(
                name for loop in loops for name in read_names(loop) if name not in names.own and name not in calls.names
            )
        ),
        lines=text.lines,
        inlined=tuple(calls.functions),
        around=tuple((name, fn, own) for name, (fn, own) in calls.captured.items()),
    )


def read_names(node: object) -> Iterator[str]:
    """Every name of data in a subtree, in the order of the text; names may repeat."""
    match node:
        case tuple():
            for part in node:
                yield from read_names(part)
        case loop_tree.Name() | loop_tree.IteratedName():
            yield node.name
        case loop_tree.Item() | loop_tree.Shape():
            yield node.base
            yield from read_names(node.index if isinstance(node, loop_tree.Item) else ())
        case loop_tree.Call():
            yield from read_names(node.args)
        case loop_tree.Assign():
            yield from read_names((node.values, node.targets))
        case loop_tree.Level() | loop_tree.For():
            yield from read_names((node.over, node.body if isinstance(node, loop_tree.For) else ()))
        case _ if dataclasses.is_dataclass(node):
            for field in dataclasses.fields(node):
                yield from read_names(getattr(node, field.name))


def _check_parameters(text: FunctionSource, names: NameScope) -> None:
    arguments = text.node.args
    if star := arguments.vararg or arguments.kwarg:
        what = f"*{star.arg}" if arguments.vararg else f"**{star.arg}"
        raise names.refuse(text.node, f"parameters are named one by one here, not {what}", "write out each of them")


def _body(node: ast.FunctionDef) -> list[ast.stmt]:
    """The statements with an effect; a `return` without a value at the end is left out."""
    body = [statement for statement in node.body if not idle(statement) and not isinstance(statement, ast.FunctionDef)]
    match body[-1:]:
        case [ast.Return(value=None | ast.Constant(value=None))]:
            body.pop()
    return body


def _steps(text: FunctionSource, names: NameScope) -> Iterator[loop_tree.LoopNest | loop_tree.Setup]:
    """Loops and the statements between them. A statement may use names assigned between loops, not those of loops."""
    made = set(parameters(text.node))
    for node in _with_loops(_body(text.node)):
        if isinstance(node, ast.For):
            yield _loop(_numbered(node, names), names)
            continue
        step = _setup(node, names)
        for part in ast.walk(node):
            read = isinstance(part, ast.Name) and (isinstance(part.ctx, ast.Load) or isinstance(node, ast.AugAssign))
            if read and part.id in names.own - made:  # type: ignore[attr-defined]
                problem = f"{part.id} has no value here: what a loop assigns ends with its iterations"  # type: ignore[attr-defined]
                raise names.refuse(node, problem, "compute it between the loops, or pass it as an argument")
        made |= set(step.names)
        yield step


# --- between the loops ----------------------------------------------------------------------------------------------

# These create a scope or have side effects, so the line cannot run on its own.
_NOT_IN_SETUP = (
    ast.Lambda,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
    ast.NamedExpr,
    ast.Yield,
    ast.YieldFrom,
    ast.Await,
)


def _with_loops(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a function, with those that write elements between the loops in a loop of one iteration.

    `s[0] = x[0]` is compiled like any other line, so every runtime knows what it reads and writes.
    """
    for writes, group in itertools.groupby(body, _writes_elements):
        nodes = list(group)
        if not writes:
            yield from nodes
            continue
        once = ast.parse("for _ in range(1): pass").body[0]
        assert isinstance(once, ast.For)
        for part in ast.walk(once):
            ast.copy_location(part, nodes[0])
        once.body = nodes
        yield once


def _writes_elements(node: ast.stmt) -> bool:
    """Whether a statement between the loops assigns elements of arrays, and no names."""
    if not isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.If):
        return False
    places = [part for part in ast.walk(node) if isinstance(part, ast.Subscript) and isinstance(part.ctx, ast.Store)]
    return bool(places) and not stored(node)


def _setup(node: ast.stmt, names: NameScope) -> loop_tree.Setup:
    """A statement that Python runs: an assignment of names, from any expression."""
    match node:
        case ast.Assign():
            plain: ast.stmt = node
        case ast.AugAssign(target=ast.Name()):
            plain = node
        case ast.AnnAssign(target=ast.Name(), value=ast.expr() as value):
            plain = ast.copy_location(ast.Assign([node.target], value), node)
        case ast.Return():
            raise names.refuse(
                node, "a loop function returns nothing", "write results into arrays or an st.accumulator"
            )
        case ast.If() | ast.While():
            word = type(node).__name__.lower()
            raise names.refuse(node, f"{word} cannot stand between the loops", "put it inside a loop, or in the caller")
        case ast.Expr() | ast.AugAssign() | ast.AnnAssign():
            advice = "only loops and assignments of names stand here; do it in the caller, or inside a loop"
            raise names.refuse(node, f"this cannot stand between the loops: {shorten(node)}", advice)
        case _:
            raise names.not_compiled(node)
    for part in ast.walk(plain):
        if isinstance(part, _NOT_IN_SETUP):
            raise names.not_compiled(cast(ast.expr, part))
        if isinstance(part, ast.Subscript | ast.Attribute) and isinstance(part.ctx, ast.Store):
            advice = "write elements of arrays on a line of their own"
            if isinstance(part, ast.Attribute):
                advice = "write it inside a loop, or in the caller"
            raise names.refuse(part, f"only names are assigned between the loops: {shorten(part)}", advice)
    return loop_tree.Setup(node.lineno, tuple(stored(plain)), ast.unparse(plain))


def _numbered(node: ast.For, names: NameScope) -> ast.For:
    """`for i, x in enumerate(X):` over an array as `for i in range(len(X)): x = X[i]`."""
    match node:
        case ast.For(
            target=ast.Tuple(elts=[ast.Name() as index, ast.Name() as value]),
            iter=ast.Call(func=called, args=[ast.Name() as array], keywords=[]),
        ) if names.value(called) is enumerate and array.id not in stored(node):
            head = f"for {index.id} in range(len({array.id})):\n    {value.id} = {array.id}[{index.id}]"
            made = ast.parse(head).body[0]
            assert isinstance(made, ast.For)
            for part in ast.walk(made):
                ast.copy_location(part, node.iter)
            made.body += node.body
            made.orelse = node.orelse
            return ast.copy_location(made, node)
    return node


# --- parallel loops -------------------------------------------------------------------------------------------------


def _loop(node: ast.For, names: NameScope) -> loop_tree.LoopNest:
    """A parallel loop: the levels of its perfect nest, and the body of the innermost."""
    rebound = frozenset(stored(node))
    changed = rebound | _written(node)
    levels = _levels(node, names)
    inner = node
    within = names.within(_indices(levels), inner=False)
    while (next_ := _only_loop(inner)) and all(isinstance(level.over, loop_tree.Range) for level in levels):
        if not _may_merge(next_, within, rebound, changed):
            break
        more = _levels(next_, within)
        levels, inner = (*levels, *more), next_
        within = within.within(_indices(more), inner=False)
    made = loop_tree.LoopNest(node.lineno, levels, block(inner.body, within))
    if not all(isinstance(level.over, loop_tree.Range) for level in levels):
        return made
    deeper = _deeper(node, inner, levels, within, rebound, changed)
    return made if deeper is None else dataclasses.replace(made, deeper=deeper)


def _deeper(
    node: ast.For,
    inner: ast.For,
    levels: tuple[loop_tree.Level, ...],
    within: NameScope,
    rebound: frozenset[str],
    changed: frozenset[str],
) -> loop_tree.LoopNest | None:
    """The nest with the inner ranges that depend on outer indices as levels too; None if there is none."""
    tests: list[loop_tree.Expr] = []
    while next_ := _only_loop(inner):
        outer = frozenset(str(level.pattern) for level in levels)
        if not _may_merge(next_, within, rebound - outer, changed - outer) or not isinstance(next_.target, ast.Name):
            break
        (more,) = _levels(next_, within)
        if not isinstance(more.over, loop_tree.Range):
            break
        tested = _inside(more, outer)
        if tested is None:
            break
        tests += tested
        levels, inner = (*levels, more), next_
        within = within.within(_indices((more,)), inner=False)
    if not tests:
        return None
    test = tests[0] if len(tests) == 1 else loop_tree.BoolOp(node.lineno, "and", tuple(tests))
    return loop_tree.LoopNest(node.lineno, levels, (loop_tree.If(inner.lineno, test, block(inner.body, within), ()),))


def _inside(level: loop_tree.Level, outer: frozenset[str]) -> list[loop_tree.Expr] | None:
    """Tests that hold where an index of the box is in its range; None if the range cannot be a level."""
    over, line = level.over, level.line
    assert isinstance(over, loop_tree.Range)
    match over.step:
        case loop_tree.Number(value=int(step)) if step:
            pass
        case loop_tree.Unary(op="-", operand=loop_tree.Number(value=int(back))) if back:
            step = -back
        case _:
            return None
    first, past = (">=", "<") if step > 0 else ("<=", ">")
    index = loop_tree.Name(line, str(level.pattern))
    starts, stops = (not outer.isdisjoint(read_names(end)) for end in (over.start, over.stop))
    if starts and abs(step) != 1:
        return None  # which values the range has depends on where it starts
    tests: list[loop_tree.Expr] = []
    if starts:
        tests.append(loop_tree.Compare(line, first, index, over.start))
    if stops:
        tests.append(loop_tree.Compare(line, past, index, over.stop))
    return tests


def _levels(node: ast.For, names: NameScope) -> tuple[loop_tree.Level, ...]:
    """The levels of a `for`: one, or one for each range of itertools.product."""
    no_else(node, names)
    factors = _factors(node.iter, names)
    if factors is None:
        over = iterated(node.iter, names)
        return (loop_tree.Level(node.lineno, pattern(node.target, over, names), over),)
    binds = bound(node.target, names)
    if not isinstance(binds, tuple) or len(binds) != len(factors) or not all(isinstance(part, str) for part in binds):
        wanted = ", ".join("ijklmnop"[: len(factors)])
        problem = f"a product of {len(factors)} ranges gives {len(factors)} numbers, not {shorten(node.target)}"
        raise names.refuse(node.target, problem, f"write for {wanted} in product(…)")
    return tuple(
        loop_tree.Level(node.lineno, name, _range_only(factor, names))
        for name, factor in zip(binds, factors, strict=True)
    )


def _factors(node: ast.expr, names: NameScope) -> list[ast.expr] | None:
    """The arguments of itertools.product(...); None for anything else."""
    value = names.value(node.func) if isinstance(node, ast.Call) else UNKNOWN
    function = None if value is UNKNOWN else known(value)
    if not isinstance(node, ast.Call) or function is None or function.name != "product":
        return None
    if node.keywords or not node.args:
        raise names.refuse(node, f"product takes ranges: {shorten(node)}", "write product(range(m), range(n))")
    return node.args


def _range_only(node: ast.expr, names: NameScope) -> loop_tree.Range:
    over = iterated(node, names)
    if isinstance(over, loop_tree.IteratedName):
        advice = "write product(range(m), range(n)), or one for inside the other"
        raise names.refuse(node, f"a product is one of ranges, and {over.name} is none", advice)
    return over


def _only_loop(node: ast.For) -> ast.For | None:
    """The inner loop of a perfect nest."""
    match [statement for statement in node.body if not idle(statement)]:
        case [ast.For() as inner]:
            return inner
    return None


def _may_merge(node: ast.For, names: NameScope, rebound: frozenset[str], changed: frozenset[str]) -> bool:
    """Whether an inner loop may be a level: over ranges that are the same in every iteration, and without `break`.

    An array that is written to keeps its shape.
    """
    if node.orelse or _breaks(node.body):
        return False
    ranges = _factors(node.iter, names) or [node.iter]
    if not all(isinstance(part, ast.Call) and names.value(part.func) not in (enumerate, zip) for part in ranges):
        return False
    bounds = tuple(iterated(part, names) for part in ranges)
    shapes = [shape.base for shape in _shapes(bounds)]
    values = Counter(read_names(bounds)) - Counter(shapes)
    return changed.isdisjoint(values) and rebound.isdisjoint(shapes)


def _shapes(node: object) -> Iterator[loop_tree.Shape]:
    """Every use of a shape in a subtree."""
    if isinstance(node, loop_tree.Shape):
        yield node
    elif isinstance(node, tuple):
        for part in node:
            yield from _shapes(part)
    elif dataclasses.is_dataclass(node):
        for field in dataclasses.fields(node):
            yield from _shapes(getattr(node, field.name))


def _written(node: ast.For) -> frozenset[str]:
    """Arrays of which an element is assigned while the loop runs."""
    arrays: frozenset[str] = frozenset()
    for part in ast.walk(node):
        if isinstance(part, ast.Subscript) and isinstance(part.ctx, ast.Store):
            base: ast.expr = part
            while isinstance(base, ast.Subscript | ast.Attribute):
                base = base.value
            arrays |= {base.id} if isinstance(base, ast.Name) else set()
    return arrays


def _breaks(nodes: list[ast.stmt]) -> bool:
    """Whether a `break` among these statements leaves the loop whose body they are."""
    for node in nodes:
        match node:
            case ast.Break():
                return True
            case ast.For() | ast.While():
                continue
            case ast.If() if _breaks(node.body) or _breaks(node.orelse):
                return True
    return False


def _indices(levels: tuple[loop_tree.Level, ...]) -> frozenset[str]:
    return frozenset().union(*(index_names(level.pattern, level.over) for level in levels))
