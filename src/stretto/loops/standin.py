"""Guessing what an argument is that `explain` was not given: only accumulators look different from numbers."""

from __future__ import annotations

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
