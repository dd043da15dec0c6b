"""Tests whether the innermost index is near the start of its range, decided before the loop where that is possible.

`if j == 0:` inside a loop over j keeps the compiler from using the last element it computed, or from vector
instructions. So the innermost loop is written twice: up to that value with the test, and beyond it without.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

from stretto.loops.types import typed_tree as t
from stretto.loops.types.body import Body
from stretto.loops.types.inventory import nodes
from stretto.loops.types.promote import whole

from .visit_form import VisitForm

_NEAR = range(4)  # values that an index is compared with
_LONGEST = 300  # nodes of a body that is written twice
# Of j op c for j ≥ c + 1.
_BEYOND = {"==": False, "!=": True, "<": False, "<=": False, ">": True, ">=": True}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def boundary(body: Body, form: VisitForm) -> int | None:
    """The first value of the innermost index for which no test of this kind is left; None if there is none."""
    if form.kind != "grid" or form.dense or form.steps[-1] != 1 or body.fields or body.ragged:
        return None
    index, count, found = body.indices[-1], 0, -1
    for node in nodes(body.steps):
        count += 1
        compared = _compared(node, index)
        if compared is not None and compared[1] in _NEAR:
            found = max(found, compared[1])
        if isinstance(node, t.VarPlace) and node.name == index:
            return None
    return found + 1 if found >= 0 and count <= _LONGEST else None


def beyond(x: Any, index: str, least: int) -> Any:
    """A part of a body with the tests decided that are known for index ≥ least."""
    if isinstance(x, tuple):
        found: list[Any] = []
        for part in x:
            new = beyond(part, index, least)
            if isinstance(new, t.Branch) and isinstance(new.test, t.Const):
                found += new.body if new.test.value else new.orelse
            else:
                found.append(new)
        return tuple(found)
    compared = _compared(x, index)
    if compared is not None and compared[1] < least:
        return t.Const(x.type, _BEYOND[compared[0]])
    if not is_dataclass(x) or type(x).__module__ != t.__name__:
        return x
    parts = {part.name: (getattr(x, part.name), beyond(getattr(x, part.name), index, least)) for part in fields(x)}
    changed = {name: new for name, (old, new) in parts.items() if new != old}
    return _decided(replace(x, **changed)) if changed else x  # type: ignore[type-var]


def _compared(x: Any, index: str) -> tuple[str, int] | None:
    """(op, number) of a test of the index against a constant."""
    if not isinstance(x, t.Test):
        return None
    left, right, op = _bare(x.x), _bare(x.y), x.op
    if isinstance(left, t.Const):
        left, right, op = right, left, _MIRRORED.get(op, op)
    if isinstance(left, t.Var) and left.name == index and isinstance(right, t.Const) and whole(right.type):
        return op, int(right.value)
    return None


def _bare(x: t.Scalar) -> t.Scalar:
    """A number without a conversion between integers, which changes no index."""
    return x.x if isinstance(x, t.Cast) and x.type.dtype == "i8" and whole(x.x.type) else x


def _decided(x: Any) -> Any:
    """A condition or a choice, shorter where a part of it is decided."""
    match x:
        case t.Logic(op="not", args=(t.Const(value=value),)):
            return t.Const(x.type, not value)
        case t.Logic(op="and" | "or" as op, args=args):
            ends = op == "or"  # the value that decides it
            left: list[t.Scalar] = []
            for arg in args:
                if not isinstance(arg, t.Const):
                    left.append(arg)
                elif bool(arg.value) == ends:
                    left.append(arg)
                    break
            if not left:
                return t.Const(x.type, not ends)
            return left[0] if len(left) == 1 else replace(x, args=tuple(left))
        case t.Select(test=t.Const(value=value), yes=yes, no=no):
            return yes if value else no
    return x
