"""Parse Python statements into the loop tree: assignments, if, while and inner loops; refuse all others."""

from __future__ import annotations

import ast
from typing import Any, cast

import numpy as np

from stretto.loops.front import loop_tree
from stretto.loops.front.functions import USAGE, has_hint, known, remedy
from stretto.loops.front.inline import can_inline, inline
from stretto.loops.front.library import replaced
from stretto.loops.front.names import UNKNOWN, NameScope, stored
from stretto.loops.front.parse_expressions import OPERATORS, data_name, expression, item
from stretto.loops.front.refusals import shorten

_ROWS = (ast.Name, ast.Subscript)  # what a row may be written as, where its elements are read one by one
_FRESH = ("zeros", "empty", "ones", "full", "eye")  # make local arrays


def block(nodes: list[ast.stmt], names: NameScope) -> tuple[loop_tree.Stmt, ...]:
    """The statements of a body, without those that have no effect."""
    return tuple(made for node in nodes for made in _statement(node, names))


def idle(node: ast.stmt) -> bool:
    """Whether a statement has no effect: pass, a docstring, a bare string, `...`, or a type declaration."""
    match node:
        case ast.Pass() | ast.AnnAssign(target=ast.Name(), value=None):
            return True
        case ast.Expr(ast.Constant(value=value)):
            return isinstance(value, str) or value is ...
    return False


def _statement(node: ast.stmt, names: NameScope) -> tuple[loop_tree.Stmt, ...]:
    line = node.lineno
    if idle(node):
        return ()
    match node:
        case ast.Assign():
            return _assign(node, names)
        case ast.AnnAssign(value=ast.expr() as value):
            return (loop_tree.Assign(line, (_target(node.target, names),), (expression(value, names),)),)
        case ast.AugAssign():
            target = _target(node.target, names)
            return (loop_tree.AugAssign(line, target, OPERATORS[type(node.op)], expression(node.value, names)),)
        case ast.If():
            test = expression(node.test, names)
            return (loop_tree.If(line, test, block(node.body, names), block(node.orelse, names)),)
        case ast.While():
            no_else(node, names)
            body = block(node.body, names.within(frozenset(), inner=True))
            return (loop_tree.While(line, expression(node.test, names), body),)
        case ast.For():
            counted = _counted(node, names)
            return block(counted, names) if counted is not None else (_inner_loop(node, names),)
        case ast.Continue():
            return (loop_tree.LoopExit(line, "continue"),)
        case ast.Break():
            if not names.inner:
                advice = "its iterations run side by side: skip with if or continue, or put the search in an inner loop"
                raise names.refuse(node, "a break cannot leave a parallel loop", advice)
            return (loop_tree.LoopExit(line, "break"),)
        case ast.Return(value=None):
            raise names.refuse(node, "a return inside a loop cannot be compiled", "write continue to end one iteration")
        case ast.Expr(ast.Call() as call) if can_inline(_callee(call, names)):
            return inline(call, _callee(call, names), names, results=0).steps
        case ast.Expr():
            raise _bare_expression(node.value, names)
    raise names.not_compiled(node)


# --- assignments ----------------------------------------------------------------------------------------------------


def _assign(node: ast.Assign, names: NameScope) -> tuple[loop_tree.Stmt, ...]:
    line = node.lineno
    if len(node.targets) > 1:
        if any(isinstance(target, ast.Tuple | ast.List) for target in node.targets):
            raise names.refuse(node, f"this assignment cannot be compiled: {shorten(node)}", "write one line for each")
        value = expression(node.value, names)
        if not isinstance(value, loop_tree.Number):
            problem = f"a = b = … is compiled only for a literal: {shorten(node)}"
            raise names.refuse(node, problem, "write one assignment to a line")
        return tuple(loop_tree.Assign(line, (_target(target, names),), (value,)) for target in node.targets)
    target = node.targets[0]
    if (summed := _summed(node, names)) is not None:
        return block(summed, names)
    if isinstance(node.value, ast.Call) and can_inline(_callee(node.value, names)):
        targets = tuple(target.elts) if isinstance(target, ast.Tuple | ast.List) else (target,)
        count = len(targets)
        call = inline(node.value, _callee(node.value, names), names, results=count)
        return (*call.steps, loop_tree.Assign(line, tuple(_target(part, names) for part in targets), call.values))
    if isinstance(target, ast.Subscript) and isinstance(node.value, ast.Tuple):
        row, count = item(target, names), len(node.value.elts)
        values = tuple(expression(value, names) for value in node.value.elts)
        return (loop_tree.Assign(line, tuple(loop_tree.Unpacked(line, row, k, count) for k in range(count)), values),)
    if not isinstance(target, ast.Tuple | ast.List):
        return (loop_tree.Assign(line, (_target(target, names),), (expression(node.value, names),)),)
    if isinstance(node.value, ast.Subscript) and not isinstance(node.value.value, ast.Attribute):
        row, count = item(node.value, names), len(target.elts)
        elements = tuple(loop_tree.Unpacked(line, row, place, count) for place in range(count))
        return (loop_tree.Assign(line, tuple(_target(part, names) for part in target.elts), elements),)
    if not isinstance(node.value, ast.Tuple):
        raise names.refuse(node.value, f"this cannot be unpacked here: {shorten(node.value)}", _unpacking(node.value))
    if len(target.elts) != len(node.value.elts):
        counts = f"{len(target.elts)} on the left, {len(node.value.elts)} on the right"
        raise names.refuse(node, f"the two sides of the assignment differ in length: {counts}", "make them equal")
    if _separate(target.elts, node.value.elts, names):
        parts = zip(target.elts, node.value.elts, strict=True)
        return tuple(loop_tree.Assign(line, (_target(a, names),), (expression(b, names),)) for a, b in parts)
    values = tuple(expression(value, names) for value in node.value.elts)
    return (loop_tree.Assign(line, tuple(_target(part, names) for part in target.elts), values),)


def _separate(targets: list[ast.expr], values: list[ast.expr], names: NameScope) -> bool:
    """Whether `a, b = np.zeros(n), np.zeros(m)` is one assignment after another: no value reads a name it assigns.

    A local array is declared by an assignment of its own.
    """
    assigned = {target.id for target in targets if isinstance(target, ast.Name)}
    read = {part.id for value in values for part in ast.walk(value) if isinstance(part, ast.Name)}
    if len(assigned) < len(targets) or not assigned.isdisjoint(read):
        return False
    functions = [known(names.value(value.func)) for value in values if isinstance(value, ast.Call)]
    return any(function is not None and function.name in _FRESH for function in functions)


def _callee(node: ast.Call, names: NameScope) -> object:
    """The function that is called; UNKNOWN for those of a body's own and for methods."""
    value = names.value(node.func)
    return UNKNOWN if value is UNKNOWN or known(value) is not None or has_hint(value) else replaced(value)


def _summed(node: ast.Assign, names: NameScope) -> list[ast.stmt] | None:
    """`s = sum(x for k, x in entries)` as a loop: s = 0, then s += x for each; None for other assignments."""
    match node:
        case ast.Assign(
            targets=[ast.Name(id=name)],
            value=ast.Call(func=function, args=[ast.GeneratorExp(elt=each, generators=[part])], keywords=[]),
        ) if names.value(function) is sum and not part.is_async:
            used = {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)}
            if name in used:
                return None
        case _:
            return None
    adding: ast.stmt = ast.AugAssign(ast.Name(name, ast.Store()), ast.Add(), each)
    for test in reversed(part.ifs):
        adding = ast.If(test, [adding], [])
    made: list[ast.stmt] = [
        ast.Assign([ast.Name(name, ast.Store())], ast.Constant(0)),
        ast.For(part.target, part.iter, [adding], []),
    ]
    return [ast.fix_missing_locations(ast.copy_location(statement, node)) for statement in made]


def _unpacking(value: ast.expr) -> str:
    match value:
        case ast.Attribute(attr="shape"):
            return f"write n = {shorten(value)}[0], or unpack it in a line above the loop"
        case ast.Name():
            return "unpack it where the loop begins: for i, (y, features) in samples"
        case ast.Call():
            return "write the function in plain Python, without numba.njit: several results of it can be unpacked"
    return "write as many values as there are names: a, b = x, y"


def _target(node: ast.expr, names: NameScope) -> loop_tree.Target:
    match node:
        case ast.Name():
            if node.id in names.indices:
                advice = "use another name for the new value"
                raise names.refuse(node, f"{node.id} is an index of the loop and cannot be assigned", advice)
            return loop_tree.Name(node.lineno, node.id)
        case ast.Subscript(value=ast.Attribute(attr="shape")):
            raise names.refuse(
                node, f"a shape cannot be assigned: {shorten(node)}", "make an array of that shape outside"
            )
        case ast.Subscript():
            return item(node, names)
        case ast.Starred():
            raise names.refuse(node, f"a starred target cannot be compiled: {shorten(node)}", "name each value")
        case ast.Attribute():
            advice = f"pass the array as a parameter and write to its elements: {node.attr}[i] = …"
            raise names.refuse(node, f"an attribute cannot be assigned in a loop: {shorten(node)}", advice)
    raise names.refuse(node, f"a nested target cannot be compiled: {shorten(node)}", "write one assignment to a line")


def _bare_expression(node: ast.expr, names: NameScope) -> Exception:
    """The error for an expression on a line of its own: the loop tree has no effects except assignments."""
    if not isinstance(node, ast.Call):
        if isinstance(node, ast.Yield | ast.YieldFrom | ast.Await | ast.NamedExpr | ast.JoinedStr):
            return names.not_compiled(node)
        return names.refuse(node, f"the value of this line is not used: {shorten(node)}", "assign it, or drop the line")
    value = names.value(node.func)
    if isinstance(node.func, ast.Attribute) and value is UNKNOWN:
        expression(node, names)  # refuses most methods, each with its own advice
    if value is not UNKNOWN and known(value) is None and not hasattr(value, "py_func"):
        return names.refuse(node, f"{shorten(node.func)} cannot be called in a loop", remedy(value))
    advice = "assign it: x = f(…); what a function writes into its arguments is not seen by the analysis"
    return names.refuse(node, f"a call on a line of its own cannot be compiled: {shorten(node)}", advice)


# --- loops ----------------------------------------------------------------------------------------------------------


def _inner_loop(node: ast.For, names: NameScope) -> loop_tree.For:
    no_else(node, names)
    over = iterated(node.iter, names)
    binds = pattern(node.target, over, names)
    body = block(node.body, names.within(index_names(binds, over), inner=True))
    return loop_tree.For(node.lineno, binds, over, body)


def _counted(node: ast.For, names: NameScope) -> list[ast.stmt] | None:
    """Loops over a part of an array, enumerate(row) and zip(rows) as loops over ranges; None for other loops.

    None also where the body assigns the name of a row: Python would go on with the old one.
    """
    rows_of = node.iter.args if isinstance(node.iter, ast.Call) else [node.iter]
    bases = {part.id for row in rows_of for part in ast.walk(row) if isinstance(part, ast.Name)}
    if bases & set(stored(ast.Module(node.body, []))):
        return None
    match node.iter:
        case ast.Subscript():
            row = ast.Name(names.invented("row"), ast.Store())
            named = ast.Assign([row], node.iter)
            loop = ast.For(node.target, ast.Name(row.id, ast.Load()), node.body, node.orelse)
            return [_placed(named, node), _placed(loop, node)]
        case ast.Call(func=function, args=[given], keywords=[]) if names.value(function) is enumerate:
            match node.target:
                case ast.Tuple(elts=[ast.Name() as counter, ast.Name() as each]) if isinstance(given, _ROWS):
                    return [_over_rows(node, counter.id, [each], [given])]
        case ast.Call(func=function, args=[_, *_] as rows, keywords=[]) if names.value(function) is zip:
            targets = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
            if all(isinstance(row, _ROWS) for row in rows) and len(targets) == len(rows):
                return [_over_rows(node, names.invented("k"), targets, rows)]
    return None


def _over_rows(node: ast.For, counter: str, targets: list[ast.expr], rows: list[ast.expr]) -> ast.stmt:
    """for counter in range(length of the shortest): targets = elements of the rows; body."""
    length, least, counting = (ast.Constant(cast(Any, function)) for function in (len, min, range))
    lengths: list[ast.expr] = [ast.Call(length, [row], []) for row in rows]
    stop = lengths[0] if len(rows) == 1 else ast.Call(least, lengths, [])
    count = ast.Call(counting, [stop], [])
    read = ast.Name(counter, ast.Load())
    elements = [
        ast.Assign([target], ast.Subscript(row, read, ast.Load())) for target, row in zip(targets, rows, strict=True)
    ]
    return _placed(ast.For(ast.Name(counter, ast.Store()), count, [*elements, *node.body], node.orelse), node)


def _placed(made: ast.stmt, at: ast.stmt) -> ast.stmt:
    return ast.fix_missing_locations(ast.copy_location(made, at))


def no_else(node: ast.For | ast.While, names: NameScope) -> None:
    if node.orelse:
        word = "for" if isinstance(node, ast.For) else "while"
        advice = "set a variable before break and test it after the loop"
        raise names.refuse(node.orelse[0], f"else after {word} cannot be compiled", advice)


def iterated(node: ast.expr, names: NameScope) -> loop_tree.Range | loop_tree.IteratedName:
    """The iterable after `in`: range(...) or the name of data."""
    if isinstance(node, ast.Name):
        name, value = data_name(node, names), names.value(node)
        if isinstance(value, np.ndarray | list | tuple | range | str | dict | set):
            first = "" if isinstance(value, np.ndarray) else "make an array of it; "
            advice = f"{first}write for k in range(len({name})) and read {name}[k]"
            raise names.refuse(node, f"{name} is {_kind(value)}, which a loop cannot go through by itself", advice)
        return loop_tree.IteratedName(node.lineno, name)
    if isinstance(node, ast.Call):
        return _range(node, names)
    if isinstance(node, ast.Subscript | ast.Attribute):
        advice = f"name it on the line above: row = {shorten(node)}; or write for k in range(n) and read its elements"
        raise names.refuse(node, f"a loop goes through range(...) or a name: {shorten(node)}", advice)
    raise names.refuse(node, f"a loop cannot go through this: {shorten(node)}", "write for k in range(...)")


def _range(node: ast.Call, names: NameScope) -> loop_tree.Range:
    value, spelled = names.value(node.func), shorten(node.func)
    function = None if value is UNKNOWN else known(value)
    if function is not None and function.name == "product":
        advice = "write one for inside the other"
        raise names.refuse(node, f"an inner loop cannot go through a product: {shorten(node)}", advice)
    if function is None or function.name != "range":
        advice = (
            "name it on the line above the loop, or write for k in range(...)" if value is UNKNOWN else remedy(value)
        )
        raise names.refuse(node, f"a loop cannot go through {spelled}(…): {shorten(node)}", advice)
    if node.keywords or not 1 <= len(node.args) <= 3:
        raise names.refuse(node, f"range takes {function.arity()}: {shorten(node)}", USAGE["range"])
    line, ends = node.lineno, [expression(arg, names) for arg in node.args]
    zero, one = loop_tree.Number(line, 0), loop_tree.Number(line, 1)
    if len(ends) == 1:
        return loop_tree.Range(line, zero, ends[0], one)
    step = ends[2] if len(ends) == 3 else one
    if isinstance(step, loop_tree.Number) and step.value == 0:
        raise names.refuse(node, f"the step of a range cannot be 0: {shorten(node)}", "write 1, or another step")
    return loop_tree.Range(line, ends[0], ends[1], step)


def pattern(node: ast.expr, over: loop_tree.Range | loop_tree.IteratedName, names: NameScope) -> loop_tree.Pattern:
    """The names that a `for` binds, checked against its iterable."""
    if isinstance(over, loop_tree.Range) and not isinstance(node, ast.Name):
        raise names.refuse(node, f"a range gives one number, not {shorten(node)}", "write for k in range(...)")
    return bound(node, names)


def bound(node: ast.expr, names: NameScope) -> loop_tree.Pattern:
    """The names of a target as nested tuples, each new and used once (except `_`, which is ignored)."""
    parts = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
    for k, part in enumerate(parts):
        if part.id != "_" and part.id in names.indices.union(other.id for other in parts[:k]):
            raise names.refuse(part, f"{part.id} is an index of the loop already", "use another name")

    def shape(part: ast.expr) -> loop_tree.Pattern:
        match part:
            case ast.Name():
                return part.id
            case ast.Tuple() | ast.List():
                return tuple(shape(element) for element in part.elts)
        advice = "write names only: for (i, j), r in ratings"
        raise names.refuse(part, f"a loop cannot bind this: {shorten(part)}", advice)

    return shape(node)


def index_names(binds: loop_tree.Pattern, over: loop_tree.Range | loop_tree.IteratedName) -> frozenset[str]:
    """Which of the names are indices: all of a range's, and the first part of a record (key, value)."""
    if isinstance(over, loop_tree.IteratedName):
        binds = binds[0] if isinstance(binds, tuple) and binds else ()
    return frozenset(_flat(binds)) - {"_"}


def _flat(binds: loop_tree.Pattern) -> list[str]:
    return [binds] if isinstance(binds, str) else [name for part in binds for name in _flat(part)]


def _kind(value: object) -> str:
    return "an array" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
