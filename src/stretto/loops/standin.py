"""Guessing what an argument is that `explain` was not given: only accumulators look different from numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from . import tree


def folded_into(function: tree.Function, name: str) -> bool:
    """Whether `name += …` occurs in a loop, with no assignment that would make it a variable of the body."""

    def found(statements: tuple[tree.Stmt, ...]) -> bool:
        for statement in statements:
            match statement:
                case tree.Update(target=tree.Name(name=target)) if target == name:
                    return True
                case tree.If(body=yes, orelse=no):
                    if found(yes) or found(no):
                        return True
                case tree.While(body=body) | tree.For(body=body):
                    if found(body):
                        return True
        return False

    return any(found(step.body) for step in function.steps if isinstance(step, tree.Loop))


def subscripted_at(function: tree.Function, name: str) -> int:
    """The first line on which a name is subscripted, measured or iterated over, and so is no number; 0 if none."""

    def lines(x: object) -> Iterator[int]:
        if isinstance(x, tree.Item | tree.Shape) and x.base == name:
            yield x.line
        if isinstance(x, tree.Source) and x.name == name:
            yield x.line
        if isinstance(x, tuple):
            for part in x:
                yield from lines(part)
        elif is_dataclass(x):
            for field in fields(x):
                yield from lines(getattr(x, field.name))

    return min(lines(function.steps), default=0)
