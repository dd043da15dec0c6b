"""Parse Python expressions into the loop tree; refuse unsupported ones with file and line."""

from __future__ import annotations

import ast
import copy
import types
from dataclasses import replace

import numpy as np

from stretto.loops.front import loop_tree
from stretto.loops.front.functions import (
    ALONG,
    ATTRIBUTES,
    METHODS,
    USAGE,
    dtype_name,
    has_hint,
    is_plain,
    known,
    remedy,
)
from stretto.loops.front.inline import Own, can_inline, inline
from stretto.loops.front.library import replaced
from stretto.loops.front.names import UNKNOWN, NameScope, is_function
from stretto.loops.front.refusals import shorten

OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.MatMult: "@", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>",
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
_UNARY: dict[type[ast.unaryop], str] = {ast.USub: "-", ast.UAdd: "+", ast.Not: "not", ast.Invert: "~", Own: "own"}


def expression(node: ast.expr, names: NameScope) -> loop_tree.Expr:
    """One expression as a tree."""
    line = node.lineno
    match node:
        case ast.Constant():
            return loop_tree.Number(line, literal(node, names))
        case ast.Name():
            return loop_tree.Name(line, data_name(node, names))
        case ast.UnaryOp(ast.USub(), ast.Constant(value=int() | float() as value)) if not isinstance(value, bool):
            return loop_tree.Number(line, -value)
        case ast.UnaryOp():
            return loop_tree.Unary(line, _UNARY[type(node.op)], expression(node.operand, names))
        case ast.BinOp():
            left, right = expression(node.left, names), expression(node.right, names)
            return loop_tree.Binary(line, OPERATORS[type(node.op)], left, right)
        case ast.BoolOp():
            op = "and" if isinstance(node.op, ast.And) else "or"
            return loop_tree.BoolOp(line, op, tuple(expression(value, names) for value in node.values))
        case ast.Compare():
            return _compare(node, names)
        case ast.IfExp():
            yes, no = expression(node.body, names), expression(node.orelse, names)
            return loop_tree.IfExp(line, expression(node.test, names), yes, no)
        case ast.Call():
            return _call(node, names)
        case ast.Subscript():
            return _shape(node, names) or _of_value(node, names) or item(node, names)
        case ast.Attribute():
            return _attribute(node, names)
    raise names.not_compiled(node)


def literal(node: ast.Constant, names: NameScope) -> int | float | bool:
    """The value of a literal number."""
    value = node.value
    if isinstance(value, int | float):
        if isinstance(value, int) and value >= 2**64:
            raise names.refuse(node, f"{shorten(node, 24)} does not fit in 64 bits", "write it as a float: 1e30")
        return value
    if isinstance(value, complex):
        raise names.refuse(
            node, f"a complex number cannot be compiled: {value!r}", "keep real and imaginary parts apart"
        )
    if value is None:
        raise names.refuse(
            node, "None cannot be compiled", "use a number that stands for nothing, such as -1 or np.nan"
        )
    if value is ...:
        raise names.refuse(node, "... cannot be compiled", "write the number that is meant")
    what = "a string" if isinstance(value, str) else "bytes"
    raise names.refuse(
        node, f"{what} cannot be compiled: {shorten(node)}", "use numbers: 0 for one case, 1 for another"
    )


def data_name(node: ast.Name, names: NameScope) -> str:
    """The name, if it may be data: a variable, a parameter, or a captured value that is not a function."""
    value = names.value(node)
    if isinstance(value, types.ModuleType):
        raise names.refuse(node, f"{node.id} is a module", f"name what you need of it: {node.id}.something")
    if is_function(value):
        raise names.refuse(node, f"{node.id} is a function and is not called", f"call it: {node.id}(...)")
    return node.id


def _compare(node: ast.Compare, names: NameScope) -> loop_tree.Expr:
    operands = [node.left, *node.comparators]
    for op in node.ops:
        if type(op) not in _COMPARE:
            word = {ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in"}[type(op)]
            advice = "compare numbers with == or !=" if "is" in word else "compare one by one: x == a or x == b"
            raise names.refuse(node, f"{word!r} cannot be compiled: {shorten(node)}", advice)
    values = [expression(operand, names) for operand in operands]
    pairs = tuple(
        loop_tree.Compare(left.line, _COMPARE[type(op)], left, right)
        for op, left, right in zip(node.ops, values, values[1:], strict=False)
    )
    return pairs[0] if len(pairs) == 1 else loop_tree.BoolOp(node.lineno, "and", pairs)


# --- attributes -----------------------------------------------------------------------------------------------------


def _attribute(node: ast.Attribute, names: NameScope) -> loop_tree.Expr:
    value = names.value(node)
    if value is not UNKNOWN:
        return _constant(node, value, names)
    root = node.value
    if node.attr == "T":
        return loop_tree.Unary(node.lineno, "T", expression(root, names))
    if isinstance(root, ast.Name) and root.id in names.own and node.attr not in ATTRIBUTES:
        advice = f"pass it as a parameter of its own, or name it above the loop: {node.attr} = {shorten(node)}"
    else:
        advice = ATTRIBUTES.get(node.attr, f"name it outside the function: {node.attr} = {shorten(node)}")
    raise names.refuse(node, f"an attribute cannot be compiled: {shorten(node)}", advice)


def _constant(node: ast.Attribute, value: object, names: NameScope) -> loop_tree.Expr:
    """A number defined in a module, such as math.pi."""
    if isinstance(value, np.generic):  # typed: takes part in type promotion, unlike a Python number
        function = value.dtype.name
        if function in loop_tree.FUNCTIONS:
            return loop_tree.Call(node.lineno, function, (loop_tree.Number(node.lineno, value.item()),))
    elif isinstance(value, int | float):
        return loop_tree.Number(node.lineno, value)
    if is_function(value):
        raise names.refuse(node, f"{shorten(node)} is a function and is not called", f"call it: {shorten(node)}(...)")
    if isinstance(value, types.ModuleType):
        raise names.refuse(node, f"{shorten(node)} is a module", f"name what you need of it: {shorten(node)}.something")
    advice = f"name it outside the function: {node.attr} = {shorten(node)}"
    raise names.refuse(node, f"{shorten(node)} is not a number but a {type(value).__name__}", advice)


# --- subscripts -----------------------------------------------------------------------------------------------------


def _of_value(node: ast.Subscript, names: NameScope) -> loop_tree.Inlined | None:
    """np.sort(w)[k], (A @ x)[k]: the value gets a name, and the subscript is of that. None for subscripts of names."""
    inner = node
    while isinstance(inner.value, ast.Subscript):
        inner = inner.value
    if not isinstance(inner.value, ast.Call | ast.BinOp):
        return None
    line, name = node.lineno, names.invented("value")
    given = loop_tree.Assign(line, (loop_tree.Name(line, name),), (expression(inner.value, names),))
    renamed = copy.deepcopy(node)
    inner = renamed
    while isinstance(inner.value, ast.Subscript):
        inner = inner.value
    inner.value = ast.copy_location(ast.Name(name, ast.Load()), inner.value)
    return loop_tree.Inlined(line, "", (given,), (item(renamed, replace(names, own=names.own | {name})),))


def item(node: ast.Subscript, names: NameScope) -> loop_tree.Item:
    """W[i], W[i, k], W[i][k], w[2:5], A[i]["x"]."""
    parts: list[ast.Subscript] = []
    base: ast.expr = node
    while isinstance(base, ast.Subscript):
        parts.insert(0, base)
        base = base.value
    if not isinstance(base, ast.Name):
        advice = "give what is before the bracket a name, then subscript that"
        raise names.refuse(node, f"only a name can be subscripted: {shorten(node)}", advice)
    name, field = data_name(base, names), ""
    index: list[loop_tree.Expr | loop_tree.Span] = []
    for part in parts:
        if isinstance(part.slice, ast.Constant) and isinstance(part.slice.value, str):
            if field:
                raise names.refuse(
                    node, f"a field of a field cannot be compiled: {shorten(node)}", "use one flat struct"
                )
            field = part.slice.value
            continue
        if any(isinstance(position, loop_tree.Span) for position in index):
            advice = "write one subscript: W[i, 2 + k] for W[i, 2:5][k]"
            raise names.refuse(node, f"a subscript of a slice cannot be compiled: {shorten(node)}", advice)
        positions = list(part.slice.elts) if isinstance(part.slice, ast.Tuple) else [part.slice]
        if positions and isinstance(positions[-1], ast.Constant) and positions[-1].value is ...:
            positions.pop()  # what is left out is taken whole
        axes = range(len(index), len(index) + len(positions))
        fields = any(isinstance(one.slice, ast.Constant) and isinstance(one.slice.value, str) for one in parts)
        index += [
            _position(position, part, names, None if fields else loop_tree.Shape(node.lineno, name, axis))
            for axis, position in zip(axes, positions, strict=True)
        ]
    return loop_tree.Item(node.lineno, name, tuple(index), field)


def _position(
    node: ast.expr, within: ast.Subscript, names: NameScope, size: loop_tree.Shape | None
) -> loop_tree.Expr | loop_tree.Span:
    """One position of a subscript. size: of its axis; None for a field."""
    if isinstance(node, ast.Slice):
        if node.step is not None:
            raise names.refuse(
                node, f"a slice with a step cannot be compiled: {shorten(node)}", "write a for loop with range"
            )
        start, stop = (None if end is None else _place(end, within, names, size) for end in (node.lower, node.upper))
        return loop_tree.Span(node.lineno, start, stop)
    return _place(node, within, names, size)


def _place(node: ast.expr, within: ast.Subscript, names: NameScope, size: loop_tree.Shape | None) -> loop_tree.Expr:
    match node:
        case ast.UnaryOp(ast.USub(), ast.Constant(value=int() as back)) if size is not None and back:
            return loop_tree.Binary(node.lineno, "-", size, loop_tree.Number(node.lineno, back))
        case ast.UnaryOp(ast.USub(), ast.Constant(value=int() as back)):
            advice = f"write {shorten(within).replace(f'-{back}', f'n - {back}')}, where n is the length"
            raise names.refuse(node, f"subscripts never wrap: {shorten(within)}", advice)
        case ast.Constant(value=v) if v is ...:
            raise names.refuse(node, "... in a subscript cannot be compiled", "write : for each axis that is meant")
        case ast.List() | ast.Set() | ast.ListComp():
            advice = "write a for loop over the elements"
            raise names.refuse(node, f"a list as a subscript cannot be compiled: {shorten(node)}", advice)
        case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()) | ast.Constant(value=bool()):
            advice = "write a for loop with an if, or np.where(mask, a, b)"
            raise names.refuse(node, f"a mask as a subscript cannot be compiled: {shorten(node)}", advice)
        case ast.Constant(value=float()):
            raise names.refuse(node, f"a subscript is an integer, not {shorten(node)}", "write the integer")
    value = names.value(node)
    if value is None or (isinstance(node, ast.Constant) and node.value is None):
        raise names.refuse(node, "a new axis cannot be compiled", "write out the loop over the other axis")
    return expression(node, names)


def _shape(node: ast.Subscript, names: NameScope) -> loop_tree.Shape | None:
    """A.shape[k] and W[i].shape[0]; None for any other subscript."""
    if not (isinstance(node.value, ast.Attribute) and node.value.attr == "shape"):
        return None
    if not (isinstance(node.slice, ast.Constant) and type(node.slice.value) is int):
        advice = "write the axis as a number from 0: A.shape[1]"
        raise names.refuse(node, f"which axis is not known: {shorten(node)}", advice)
    return _extent(node, node.value.value, node.slice.value, names)


def _extent(node: ast.expr, array: ast.expr, axis: int, names: NameScope) -> loop_tree.Shape:
    """The length of an array, or of a row of it, along one axis."""
    match array:
        case ast.Name():
            return loop_tree.Shape(node.lineno, data_name(array, names), axis)
        case ast.Subscript():
            row = item(array, names)
            if not row.field and not any(isinstance(position, loop_tree.Span) for position in row.index):
                return loop_tree.Shape(node.lineno, row.base, len(row.index) + axis)
    advice = "give the row a name first: w = W[i], then len(w)"
    raise names.refuse(node, f"the length of this is not known: {shorten(array)}", advice)


# --- calls ----------------------------------------------------------------------------------------------------------


def _call(node: ast.Call, names: NameScope) -> loop_tree.Expr:
    value, spelled = names.value(node.func), shorten(node.func)
    if value is UNKNOWN:
        if isinstance(node.func, ast.Attribute):
            return _method(node, node.func, names)
        if isinstance(node.func, ast.Name) and node.func.id not in names.own:
            raise names.refuse(node, f"{spelled} is not defined yet", "define or import it above the function")
        advice = "call functions by the name they have outside the loop"
        raise names.refuse(node, f"{spelled} is a variable of this function and cannot be called", advice)
    function = known(value)
    if function is None:
        if hasattr(value, "py_func"):
            label = getattr(value, "__name__", spelled)
            return loop_tree.Call(node.lineno, "user", _arguments(node, spelled, names), target=value, label=label)
        plain = replaced(value)
        if can_inline(plain) and not has_hint(value):
            return inline(node, plain, names)
        problem = f"{spelled} is plain Python and" if is_plain(value) else spelled
        raise names.refuse(node, f"{problem} cannot be called in a loop", remedy(value))
    if function.name in ALONG and len(node.args) + len(node.keywords) == 2:
        return _along(node, function.name, node.args[0] if node.args else None, node.args[1:], names)
    if not function.least <= len(node.args) + len(node.keywords) <= function.most:
        raise names.refuse(node, f"{spelled} takes {function.arity()} here: {shorten(node)}", USAGE[function.name])
    if function.name in ("empty", "zeros", "ones", "full", "eye"):
        return _fresh(node, function.name, names)
    if function.name == "array":
        return _display(node, names)
    _no_keywords(node, spelled, names)
    match function.name:
        case "len":
            return _extent(node, node.args[0], 0, names)
        case "range" | "product":
            raise names.refuse(node, f"{spelled} stands only after `in`: {shorten(node)}", "write for k in range(...)")
        case "float" if isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str):
            return _float_of_text(node.args[0], names)
    return function.call(node.lineno, _arguments(node, spelled, names))


def _method(node: ast.Call, func: ast.Attribute, names: NameScope) -> loop_tree.Expr:
    """row.sum(), row.max(), row.dot(other), row.copy()."""
    spelled = f".{func.attr}()"
    function = METHODS.get(func.attr)
    if function is None:
        advice = ATTRIBUTES.get(func.attr, "call a function of numbers and rows instead, such as np.exp(w)")
        raise names.refuse(node, f"the method {spelled} cannot be compiled: {shorten(node)}", advice)
    if function.name in ALONG and len(node.args) + len(node.keywords) == 1:
        return _along(node, function.name, func.value, node.args, names)
    args = (expression(func.value, names), *_arguments(node, spelled, names))
    if not function.least <= len(args) <= function.most:
        count = function.most - 1 or "no"
        raise names.refuse(node, f"{spelled} takes {count} argument here: {shorten(node)}", USAGE[function.name])
    # A copy is a value and not a view; +w has the same meaning.
    return loop_tree.Unary(node.lineno, "+", args[0]) if func.attr == "copy" else function.call(node.lineno, args)


def _along(node: ast.Call, name: str, array: ast.expr | None, rest: list[ast.expr], names: NameScope) -> loop_tree.Expr:
    """np.sum(A, axis=0)."""
    short = name.removesuffix("_all")
    given = rest[0] if rest else node.keywords[0].value if node.keywords[0].arg == "axis" else None
    match given:
        case ast.Constant(value=int() as axis) if not isinstance(axis, bool):
            pass
        case ast.UnaryOp(ast.USub(), ast.Constant(value=int() as back)):
            axis = -back
        case _:
            said = f"np.{short} takes a row, or a matrix and axis=0 or 1: {shorten(node)}"
            raise names.refuse(node, said, USAGE[name])
    if array is None:
        raise names.refuse(node, f"this has no array: {shorten(node)}", USAGE[name])
    args = (expression(array, names), loop_tree.Number(node.lineno, axis))
    return loop_tree.Call(node.lineno, f"{short}_axis", args)


def _arguments(node: ast.Call, spelled: str, names: NameScope) -> tuple[loop_tree.Expr, ...]:
    _no_keywords(node, spelled, names)
    return tuple(expression(arg, names) for arg in node.args)


def _no_keywords(node: ast.Call, spelled: str, names: NameScope) -> None:
    for keyword in node.keywords:
        what = f"{keyword.arg}=" if keyword.arg else "**"
        raise names.refuse(
            node, f"{spelled} with {what} cannot be compiled: {shorten(node)}", "pass plain arguments by position"
        )


def _float_of_text(node: ast.Constant, names: NameScope) -> loop_tree.Number:
    """float("inf") and its kind."""
    try:
        return loop_tree.Number(node.lineno, float(str(node.value)))
    except ValueError:
        raise names.refuse(node, f"{node.value!r} is not a number", 'write float("inf") or a number') from None


def _fresh(node: ast.Call, fill: str, names: NameScope) -> loop_tree.LocalArray:
    """np.zeros(n), np.empty((n, m), dtype=np.float32), np.full(n, 0.5), np.eye(n)."""
    order = {"full": ("shape", "fill_value", "dtype"), "eye": ("N", "M")}.get(fill, ("shape", "dtype"))
    allowed = (*order, "dtype")
    given: dict[str, ast.expr] = dict(zip(order, node.args, strict=False))
    for keyword in node.keywords:
        if keyword.arg not in allowed or keyword.arg in given:
            raise names.refuse(node, f"np.{fill} takes a shape and a dtype here: {shorten(node)}", USAGE[fill])
        given[keyword.arg] = keyword.value
    if fill == "eye" and "N" in given:
        given["shape"] = ast.Tuple([given["N"], given.get("M", given["N"])], ast.Load())
    if "shape" not in given or (fill == "full" and "fill_value" not in given):
        raise names.refuse(node, f"np.{fill} takes a shape: {shorten(node)}", USAGE[fill])
    shape = given["shape"]
    sizes = [expression(size, names) for size in (shape.elts if isinstance(shape, ast.Tuple) else [shape])]
    dtype = _dtype(given["dtype"], names) if "dtype" in given else "f8"
    value: loop_tree.Expr | None = loop_tree.Number(node.lineno, 1) if fill == "ones" else None
    if fill == "full":
        value = expression(given["fill_value"], names)
        if "dtype" not in given and not (isinstance(value, loop_tree.Number) and isinstance(value.value, float)):
            advice = "write np.full(n, value, np.float64), with the type you want"
            raise names.refuse(node, f"the type of this array is not known: {shorten(node)}", advice)
    return loop_tree.LocalArray(node.lineno, "full" if value is not None else fill, tuple(sizes), dtype, value)


def _display(node: ast.Call, names: NameScope) -> loop_tree.LocalArray:
    """np.array([a, b]), np.array([[a, b], [c, d]], np.float32)."""
    rows = node.args[0].elts if isinstance(node.args[0], ast.List | ast.Tuple) else []
    nested = all(isinstance(row, ast.List | ast.Tuple) for row in rows)
    parts = [row.elts for row in rows if isinstance(row, ast.List | ast.Tuple)] if nested else [rows]
    keywords = [keyword.value for keyword in node.keywords if keyword.arg == "dtype"]
    given = [*node.args[1:], *keywords]
    if not rows or len({len(part) for part in parts}) > 1 or len(given) > 1 or len(keywords) < len(node.keywords):
        raise names.refuse(node, f"np.array takes a list of numbers here: {shorten(node)}", USAGE["array"])
    sizes = (len(rows), len(parts[0])) if nested else (len(rows),)
    shape = tuple(loop_tree.Number(node.lineno, size) for size in sizes)
    dtype = _dtype(given[0], names) if given else ""
    elements = tuple(expression(one, names) for part in parts for one in part)
    return loop_tree.LocalArray(node.lineno, "elements", shape, dtype, elements=elements)


def _dtype(node: ast.expr, names: NameScope) -> str:
    """NumPy's short name of a type written as np.float32, 'f4', float, …"""
    dtype = dtype_name(node.value if isinstance(node, ast.Constant) else names.value(node))
    if dtype is None:
        advice = "write np.float32, np.float64, np.int32, np.int64 or bool"
        raise names.refuse(node, f"not a type that a local array can have: {shorten(node)}", advice)
    return dtype
