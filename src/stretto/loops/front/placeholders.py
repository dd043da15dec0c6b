"""Placeholders for missing arguments of `explain`: recognise accumulators and arrays by their use in the function."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from . import loop_tree


def folded_into(function: loop_tree.Function, name: str) -> bool:
    """Whether `name += …` occurs in a loop, with no assignment that would make it a variable of the body."""

    def found(statements: tuple[loop_tree.Stmt, ...]) -> bool:
        for statement in statements:
            match statement:
                case loop_tree.AugAssign(target=loop_tree.Name(name=target)) if target == name:
                    return True
                case loop_tree.If(body=yes, orelse=no):
                    if found(yes) or found(no):
                        return True
                case loop_tree.While(body=body) | loop_tree.For(body=body):
                    if found(body):
                        return True
        return False

    return any(found(step.body) for step in function.steps if isinstance(step, loop_tree.LoopNest))


def subscripted_at(function: loop_tree.Function, name: str) -> int:
    """The first line on which a name is used as an array (subscript, length, iteration); 0 if there is none."""

    def lines(x: object) -> Iterator[int]:
        if isinstance(x, loop_tree.Item | loop_tree.Shape) and x.base == name:
            yield x.line
        if isinstance(x, loop_tree.IteratedName) and x.name == name:
            yield x.line
        if isinstance(x, tuple):
            for part in x:
                yield from lines(part)
        elif is_dataclass(x):
            for field in fields(x):
                yield from lines(getattr(x, field.name))

    return min(lines(function.steps), default=0)
