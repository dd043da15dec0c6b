"""Names of tuples become a name for each element: `at = (a, b)` is `at_0, at_1 = a, b`, and `at[1]` is `at_1`.

That is what a tuple of numbers means in a loop. Names that are used in any other way stay as they are and are refused
where that happens.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from typing import TypeVar

_Node = TypeVar("_Node", bound=ast.AST)


def without_tuples(node: _Node) -> _Node:
    """The function without names of tuples; the node itself if it has none."""
    lengths = _lengths(node)
    if not lengths:
        return node
    made = _Elements(lengths).visit(copy.deepcopy(node))
    found: _Node = ast.fix_missing_locations(made)
    return found


def _pairs(targets: list[ast.expr], value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """(target, value) of an assignment; those of its parts where both sides are written out."""
    for target in targets:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            yield from zip(target.elts, value.elts, strict=True)
        else:
            yield target, value


def _lengths(node: ast.AST) -> dict[str, int]:
    """Elements of every name that only ever stands for a tuple, and whose elements alone are read."""
    lengths: dict[str, int] = {}
    usual: set[int] = set()  # identities of the names in uses that can be rewritten
    every = list(ast.walk(node))
    for part in every:
        if isinstance(part, ast.Assign) and len(part.targets) == 1:
            for target, value in _pairs(part.targets, part.value):
                if isinstance(target, ast.Name) and isinstance(value, ast.Tuple) and value.elts:
                    if lengths.setdefault(target.id, len(value.elts)) == len(value.elts):
                        usual.add(id(target))
                elif isinstance(target, ast.Tuple) and isinstance(value, ast.Name):
                    usual.add(id(value))
    for part in every:
        match part:
            case ast.Subscript(value=ast.Name(id=name) as base, slice=ast.Constant(value=int() as k), ctx=ast.Load()):
                if 0 <= k < lengths.get(name, 0):
                    usual.add(id(base))
    names = [part for part in every if isinstance(part, ast.Name)]
    taken = {part.id for part in names} | {part.arg for part in every if isinstance(part, ast.arg)}
    other = {part.id for part in names if id(part) not in usual} | {
        part.arg for part in every if isinstance(part, ast.arg)
    }
    return {
        name: length for name, length in lengths.items()
        if name not in other and taken.isdisjoint(f"{name}_{k}" for k in range(length))
    }  # fmt: skip


class _Elements(ast.NodeTransformer):
    """Puts the names of elements in the place of those of tuples."""

    def __init__(self, lengths: dict[str, int]) -> None:
        self.lengths = lengths

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        (target,) = node.targets if len(node.targets) == 1 else (None,)
        if target is None:
            return self.generic_visit(node)
        targets: list[ast.expr] = []
        values: list[ast.expr] = []
        for one, value in _pairs([target], node.value):
            if isinstance(one, ast.Name) and one.id in self.lengths and isinstance(value, ast.Tuple):
                targets += self.names(one, ast.Store())
                values += [self.visit(part) for part in value.elts]
            elif isinstance(value, ast.Name) and value.id in self.lengths:
                targets.append(self.visit(one))
                values.append(ast.copy_location(ast.Tuple(self.names(value, ast.Load()), ast.Load()), value))
            else:
                targets.append(self.visit(one))
                values.append(self.visit(value))
        if len(targets) == 1:
            return ast.copy_location(ast.Assign(targets, values[0]), node)
        left, right = ast.Tuple(targets, ast.Store()), ast.Tuple(values, ast.Load())
        return ast.copy_location(
            ast.Assign([ast.copy_location(left, target)], ast.copy_location(right, node.value)), node
        )

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        match node:
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int() as k)) if name in self.lengths:
                return ast.copy_location(ast.Name(f"{name}_{k}", ast.Load()), node)
        return self.generic_visit(node)

    def names(self, node: ast.Name, context: ast.expr_context) -> list[ast.expr]:
        count = self.lengths[node.id]
        return [ast.copy_location(ast.Name(f"{node.id}_{k}", context), node) for k in range(count)]
