"""Inventory of a typed body for explain(): types of variables, fused multiply-adds, proven and checked subscripts.

It is collected from the tree that is compiled and interpreted, so it describes what is executed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from stretto.loops.analyse.access import shown, shown_row
from stretto.loops.types.body import Body

from . import typed_tree as t


def nodes(x: Any) -> Iterator[Any]:
    """Every node of a tree, parents first."""
    if isinstance(x, tuple):
        for part in x:
            yield from nodes(part)
    elif is_dataclass(x) and type(x).__module__ == t.__name__:
        yield x
        for field in fields(x):
            yield from nodes(getattr(x, field.name))


def variables(body: Body) -> dict[str, str]:
    """Type of every local variable, row and array, in the order in which they appear: {"e": "f4", "w": "f4 row"}."""
    found: dict[str, str] = {}
    for node in nodes(body.steps):
        match node:
            case t.VarPlace(type=kind, name=name):
                found.setdefault(name, str(kind))
            case t.RowName(dtype=dtype, name=name):
                found.setdefault(name, f"{dtype} row")
            case t.RangeLoop(name=name):
                found.setdefault(name, "int")
            case t.RaggedLoop(names=names, types=types):
                for name, kind in zip(names, types, strict=True):
                    found.setdefault(name, str(kind))
    for array in body.arrays:
        if array.role == "local":
            found.setdefault(array.name, f"{array.dtype} array")
    return {name: kind for name, kind in found.items() if "." not in name}  # names with a dot are generated


def fused(body: Body) -> list[tuple[int, int, int]]:
    """(line, multiply-adds in rows, products of rows) of every statement that has some."""
    counts: dict[int, list[int]] = {}
    for line, node in _lined(body.steps):
        if isinstance(node, t.RowFma):
            counts.setdefault(line, [0, 0])[0] += 1
        elif isinstance(node, t.Dot) and node.type.dtype == "f4":
            counts.setdefault(line, [0, 0])[1] += 1
    return [(line, rows, dots) for line, (rows, dots) in sorted(counts.items())]


def checked(body: Body) -> tuple[list[str], list[str]]:
    """(proven, checked at run time): references whose subscripts are all proven to be in range, and the others."""
    proven: dict[str, None] = {}
    unsure: dict[str, None] = {}
    local = {array.name for array in body.arrays if array.role == "local"}
    for node in nodes(body.steps):
        match node:
            case (
                t.Element(array=array, index=index, checked=flags)
                | t.ElementPlace(array=array, index=index, checked=flags)
            ):
                text = shown(array, index)
            case t.RowLoad(array=array, checked=flags) | t.RowPlace(array=array, checked=flags):
                text = shown_row(node)
            case (
                t.Fold(accumulator=array, index=index, checked=flags)
                | t.BufferAdd(buffer=array, index=index, checked=flags)
            ):
                text = shown(array, index)
            case _:
                continue
        if flags and array not in local:
            (unsure if any(flags) else proven).setdefault(text)
    return [text for text in proven if text not in unsure], list(unsure)


def _lined(steps: tuple[t.Step, ...]) -> Iterator[tuple[int, Any]]:
    """Every node below each statement, with the line of the innermost statement it is in."""
    for step in steps:
        inner: tuple[t.Step, ...] = ()
        for name in ("body", "orelse"):
            inner += getattr(step, name, ())
        yield from _lined(inner)
        for field in fields(step):
            if field.name not in ("body", "orelse"):
                for node in nodes(getattr(step, field.name)):
                    yield step.line, node
