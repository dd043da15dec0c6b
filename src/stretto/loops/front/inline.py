"""Inlining of plain Python functions that a loop body calls: their statements become part of the body.

    def distance(a, b):                         for i in range(n):
        d = a - b                                   distance.1.d = X[i] - c
        return d @ d                                distance.1.result = distance.1.d @ distance.1.d
                                        →           out[i] = distance.1.result
    for i in range(n):
        out[i] = distance(X[i], c)

Local names get the name of the function and the number of the call in front. A parameter that the function does not
rebind stands for its argument where that is a name or a number; otherwise the argument is assigned to it, which is what
Python does: a row that is passed is a view of the caller's. Numbers and arrays around the function are captured under
names such as `distance.EPS` and read at each call of the loop.
"""

from __future__ import annotations

import ast
import copy
import itertools
import sys
import types
from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from stretto.errors import LoopError
from stretto.loops.front import loop_tree
from stretto.loops.front.library import PLAIN
from stretto.loops.front.names import UNKNOWN, InlinedCalls, NameScope, is_function, names_of, stored
from stretto.loops.front.refusals import InlinedLine, shorten
from stretto.loops.front.source_text import FunctionSource, parameters, read

# The sign of a value that is copied if it is a row; the name is for `ast.unparse`.
Own: type[ast.unaryop] = type("UAdd", (ast.UAdd,), {})

_DEEPEST = 16  # calls inside calls
_LONGEST = 20_000  # nodes of Python's syntax tree of one call, after its returns have become assignments


def can_inline(value: object) -> bool:
    """Whether a function is plain Python of the user's, and not one of Python's own library or of NumPy's."""
    if value in PLAIN.values():
        return True
    package = str(getattr(value, "__module__", "")).partition(".")[0]
    ours = package in sys.stdlib_module_names and package != "__main__"
    return isinstance(value, types.FunctionType) and not ours and package not in ("numpy", "numba", "scipy", "stretto")


def inline(node: ast.Call, value: object, names: NameScope, *, results: int = 1) -> loop_tree.Inlined:
    """A call of a plain Python function as its statements and its results.

    results: numbers or rows that the caller uses; 0 if the call stands on a line of its own.
    """
    fn, spelled = cast(types.FunctionType, value), shorten(node.func)
    text = _source(node, fn, spelled, names)
    if fn in names.stack:
        advice = "write a while loop, with a small local array for what is still to be done"
        raise names.refuse(node, f"{spelled} calls itself, and a recursive function cannot be inlined", advice)
    if len(names.stack) >= _DEEPEST:
        raise names.refuse(node, f"{spelled} is {_DEEPEST} calls deep", "write some of them out")
    tree = copy.deepcopy(text.node)
    calls = names.calls
    assert calls is not None
    if fn not in calls.functions:
        calls.functions.append(fn)
    prefix = f"{fn.__name__}.{next(calls.counter)}"
    inner = names_of(fn, text)
    given, setup = _arguments(node, fn, tree, prefix, names)
    own = {name: f"{prefix}.{name}" for name in inner.own}
    outside = _captured(fn, tree, inner, calls)
    body = _returning(tree, prefix, results, node, spelled, names)
    calls.names |= {*own.values(), *_results(prefix, max(results, 1)), f"{prefix}.returned"}
    lines = _Lines(node.lineno, text)
    placed = [lines.visit(_Renamed({**outside, **own, **given}).visit(statement)) for statement in body]
    aliases = {name.id for name in given.values() if isinstance(name, ast.Name)}
    scope = NameScope(
        text,
        frozenset({*own.values(), *outside.values(), *aliases, *_results(prefix, max(results, 1)),
                   f"{prefix}.returned", *_shared(fn, names)}),
        inner.outside,
        stack=(*names.stack, fn),
        calls=calls,
    )  # fmt: skip
    steps = (*setup, *calls.block(placed, scope))
    values = tuple(loop_tree.Name(node.lineno, name) for name in _results(prefix, results))
    return loop_tree.Inlined(node.lineno, fn.__name__, steps, values)


def _results(prefix: str, count: int) -> list[str]:
    return [f"{prefix}.result{k or ''}" for k in range(count)]


def _source(node: ast.Call, fn: types.FunctionType, spelled: str, names: NameScope) -> FunctionSource:
    if hasattr(fn, "__wrapped__"):
        advice = "call the function below the decorator"
        raise names.refuse(node, f"{spelled} is wrapped by another decorator, which hides its source", advice)
    if fn.__code__.co_name == "<lambda>":
        raise names.refuse(node, f"{spelled} is a lambda, which cannot be inlined", "write it as a function with def")
    try:
        return read(fn)
    except LoopError as problem:
        said = str(problem).splitlines()[0].rpartition(": ")[2]
        raise names.refuse(node, f"{spelled} cannot be inlined: {said}") from None


# --- arguments ------------------------------------------------------------------------------------------------------


def _arguments(
    node: ast.Call, fn: types.FunctionType, tree: ast.FunctionDef, prefix: str, names: NameScope
) -> tuple[dict[str, ast.expr], list[loop_tree.Stmt]]:
    """What stands for the parameters that are not rebound, and assignments of the others."""
    assert names.calls is not None
    rebound = set(stored(ast.Module(tree.body, [])))
    given: dict[str, ast.expr] = {}
    setup: list[loop_tree.Stmt] = []
    for name, argument in _bound(node, fn, tree, names).items():
        made = names.calls.expression(argument, names)
        line = node.lineno
        if name not in rebound and isinstance(made, loop_tree.Name):
            given[name] = ast.Name(made.name, ast.Load())
        elif name not in rebound and isinstance(made, loop_tree.Number):
            given[name] = ast.Constant(made.value)
        else:
            setup.append(loop_tree.Assign(line, (loop_tree.Name(line, f"{prefix}.{name}"),), (made,)))
    return given, setup


def _bound(node: ast.Call, fn: types.FunctionType, tree: ast.FunctionDef, names: NameScope) -> dict[str, ast.expr]:
    """The argument of each parameter, in the order of the parameters."""
    spelled, wanted = shorten(node.func), parameters(tree)
    if tree.args.vararg or tree.args.kwarg:
        advice = "write a function with named parameters"
        raise names.refuse(node, f"{spelled} takes any number of arguments, which cannot be inlined", advice)
    if any(isinstance(arg, ast.Starred) for arg in node.args) or any(k.arg is None for k in node.keywords):
        raise names.refuse(node, f"arguments are given one by one: {shorten(node)}", "write out each of them")
    positions = (*tree.args.posonlyargs, *tree.args.args)
    found: dict[str, ast.expr] = {arg.arg: value for arg, value in zip(positions, node.args, strict=False)}
    for keyword in node.keywords:
        assert keyword.arg is not None
        if keyword.arg in found or keyword.arg not in wanted or keyword.arg in {a.arg for a in tree.args.posonlyargs}:
            raise names.refuse(node, f"{spelled} does not take {keyword.arg}= here: {shorten(node)}", "see its def")
        found[keyword.arg] = keyword.value
    defaults: dict[str, Any] = dict(fn.__kwdefaults__ or {})
    values = fn.__defaults__ or ()
    defaults |= {arg.arg: value for arg, value in zip(positions[len(positions) - len(values) :], values, strict=True)}
    for name in wanted:
        if name not in found and isinstance(defaults.get(name), bool | int | float):
            found[name] = ast.copy_location(ast.Constant(defaults[name]), node)
        elif name not in found and name in defaults:
            problem = f"{name} of {spelled} has a default that is not a number"
            raise names.refuse(node, problem, f"give it here: {name}=…")
    missing = [name for name in wanted if name not in found]
    if missing or len(node.args) > len(positions):
        problem = f"{spelled} takes {', '.join(wanted) or 'no arguments'}: {shorten(node)}"
        raise names.refuse(node, problem, "give one argument for each parameter")
    return {name: found[name] for name in wanted}


# --- names ----------------------------------------------------------------------------------------------------------


def _captured(fn: types.FunctionType, tree: ast.FunctionDef, inner: NameScope, calls: InlinedCalls) -> dict[str, str]:
    """New names for the numbers and arrays that a function reads from around it."""
    found: dict[str, str] = {}
    for part in ast.walk(tree):
        if not isinstance(part, ast.Name) or part.id in inner.own or part.id in found:
            continue
        if part.id not in inner.outside:
            continue
        value = inner.outside[part.id]
        if value is UNKNOWN and part.id in fn.__code__.co_freevars:
            continue  # of the loop function that defines this one
        if is_function(value) or isinstance(value, types.ModuleType | type | str | np.dtype):
            continue
        name, count = f"{fn.__name__}.{part.id}", itertools.count(2)
        while name in calls.captured and calls.captured[name] != (fn, part.id):
            name = f"{fn.__name__}{next(count)}.{part.id}"
        calls.captured[name] = (fn, part.id)
        found[part.id] = name
    return found


def _shared(fn: types.FunctionType, names: NameScope) -> set[str]:
    """Names that a function has in common with the loop function that defines it."""
    return set(fn.__code__.co_freevars) & names.own


class _Renamed(ast.NodeTransformer):
    """Puts other names, or numbers, in the place of names."""

    def __init__(self, names: Mapping[str, str | ast.expr]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        found = self.names.get(node.id)
        if found is None:
            return node
        if isinstance(found, str):
            return ast.copy_location(ast.Name(found, node.ctx), node)
        return ast.copy_location(copy.copy(found), node)


class _Lines(ast.NodeTransformer):
    """Gives every node the line of the call, with its own line attached for messages."""

    def __init__(self, line: int, text: FunctionSource) -> None:
        self.line, self.text = line, text

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.stmt | ast.expr) and not isinstance(node.lineno, InlinedLine):
            node.lineno = InlinedLine(self.line, self.text, node.lineno)
        return super().generic_visit(node)


# --- returns --------------------------------------------------------------------------------------------------------


def _returning(
    tree: ast.FunctionDef, prefix: str, results: int, node: ast.Call, spelled: str, names: NameScope
) -> list[ast.stmt]:
    """The statements of a function with assignments of its results in the place of every `return`."""
    for part in ast.walk(tree):
        if isinstance(part, ast.Return):
            given = part.value.elts if isinstance(part.value, ast.Tuple) else [part.value] if part.value else []
            given = [] if isinstance(part.value, ast.Constant) and part.value.value is None else given
            if results and len(given) != results:
                said = f"returns {len(given) or 'no'} {'value' if len(given) == 1 else 'values'}"
                advice = "unpack as many as it returns: a, b = f(…)" if given else "return a number or a row"
                raise names.refuse(
                    node, f"{spelled} {said}, and {results} {'is' if results == 1 else 'are'} used here", advice
                )
    if results and not _always(tree.body):
        raise names.refuse(node, f"{spelled} may end without a return", "end it with a return of its value")
    several = sum(isinstance(part, ast.Return) for part in ast.walk(tree)) > 1
    made = _Returns(prefix, results, several=several).block(tree.body)
    if sum(1 for statement in made for _ in ast.walk(statement)) > _LONGEST:
        advice = "return from fewer places: assign the value to a variable, and return that at the end"
        raise names.refuse(node, f"{spelled} is too long to be inlined", advice)
    return [ast.fix_missing_locations(statement) for statement in made]


def _always(body: list[ast.stmt]) -> bool:
    """Whether a block certainly returns or fails to reach its end."""
    for statement in body:
        if isinstance(statement, ast.Return | ast.Raise):
            return True
        if isinstance(statement, ast.If) and _always(statement.body) and _always(statement.orelse):
            return True
        if isinstance(statement, ast.While) and isinstance(statement.test, ast.Constant) and statement.test.value:
            return not any(isinstance(part, ast.Break) for part in ast.walk(statement))
    return False


def _returns(node: ast.stmt) -> bool:
    return any(isinstance(part, ast.Return) for part in ast.walk(node))


class _Returns:
    """Rewrites `return`: what follows an `if` that returns goes into its other branch; loops are left by `break`."""

    def __init__(self, prefix: str, results: int, *, several: bool) -> None:
        self.several = several  # whether there are several: a row is copied then, because each may be another one
        self.results, self.flag = _results(prefix, results), f"{prefix}.returned"

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        made: list[ast.stmt] = []
        for k, statement in enumerate(body):
            rest = body[k + 1 :]
            match statement:
                case ast.Return():
                    return [*made, *self.store(statement)]
                case ast.If() if _returns(statement):
                    yes = self.block([*statement.body, *([] if _always(statement.body) else rest)])
                    no = self.block([*statement.orelse, *([] if _always(statement.orelse) else rest)])
                    branch = ast.If(statement.test, yes or [ast.Pass()], no)
                    return [*made, ast.copy_location(branch, statement)]
                case ast.For() | ast.While() if _returns(statement):
                    # A value to begin with: a bool has no influence on the type of the result.
                    made += [self.assign(name, ast.Constant(False), statement) for name in (*self.results, self.flag)]
                    made.append(self.loop(statement))
                    if not rest:
                        return made
                    flag = ast.Name(self.flag, ast.Load())
                    test = ast.If(ast.UnaryOp(ast.Not(), flag), self.block(rest), [])
                    return [*made, ast.copy_location(test, statement)]
            made.append(statement)
        return made

    def loop(self, node: ast.For | ast.While) -> ast.stmt:
        """A loop that is left by `break` where it returned."""
        made = copy.copy(node)
        made.body = self.inside(node.body)
        return made

    def inside(self, body: list[ast.stmt]) -> list[ast.stmt]:
        made: list[ast.stmt] = []
        for statement in body:
            match statement:
                case ast.Return():
                    flag = self.assign(self.flag, ast.Constant(True), statement)
                    return [*made, *self.store(statement), flag, ast.copy_location(ast.Break(), statement)]
                case ast.If() if _returns(statement):
                    yes, no = self.inside(statement.body), self.inside(statement.orelse)
                    made.append(ast.copy_location(ast.If(statement.test, yes, no), statement))
                case ast.For() | ast.While() if _returns(statement):
                    made.append(self.loop(statement))
                    leave = ast.If(ast.Name(self.flag, ast.Load()), [ast.Break()], [])
                    made.append(ast.copy_location(leave, statement))
                case _:
                    made.append(statement)
        return made

    def store(self, node: ast.Return) -> list[ast.stmt]:
        if not self.results or node.value is None:
            return []
        values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        if self.several:
            views = (ast.Name, ast.Subscript, ast.Call)
            values = [ast.UnaryOp(Own(), value) if isinstance(value, views) else value for value in values]
        if len(self.results) == 1:
            return [self.assign(self.results[0], values[0], node)]
        targets = ast.Tuple([ast.Name(name, ast.Store()) for name in self.results], ast.Store())
        return [ast.copy_location(ast.Assign([targets], ast.Tuple(values, ast.Load())), node)]

    def assign(self, name: str, value: ast.expr, at: ast.stmt) -> ast.stmt:
        return ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], ast.copy_location(value, at)), at)
