"""Rows that get another name for the last time: `alpha = new`, after which `new` is not read before it is made anew.

    new = np.empty(n)
    ...                                  elements of new
    alpha = new                          in NumPy a second name, here a copy: nobody can tell

A name stands for one row of its own all through a body. Where it is assigned in several places, `alpha = new` cannot
make it another name for a second row, but may copy that if no other name of that row is left. These assignments are
found by the liveness of names, and marked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from stretto.loops.front import loop_tree
from stretto.loops.front.parse import read_names

from .scope import assigned, inlined, names_in

_Names = frozenset[str]
_NONE: _Names = frozenset()


def with_moves(body: tuple[loop_tree.Stmt, ...]) -> tuple[loop_tree.Stmt, ...]:
    """The body with such assignments marked."""
    counts = assigned(body)
    candidates = {
        id(statement) for statement in _every(body)
        if (pair := _pair(statement)) and counts.get(pair[0], 0) > 1 and _own(pair[1], body)
    }  # fmt: skip
    if not candidates:
        return body
    walk = _Liveness(candidates)
    walk.block(body, _NONE, _NONE, _NONE)
    dead = candidates - walk.alive
    return _marked(body, dead) if dead else body


def _pair(statement: loop_tree.Stmt) -> tuple[str, str] | None:
    """(a, b) of a = b."""
    match statement:
        case loop_tree.Assign(targets=(loop_tree.Name(name=a),), values=(loop_tree.Name(name=b),)):
            return a, b
    return None


def _own(name: str, body: tuple[loop_tree.Stmt, ...]) -> bool:
    """Whether a name is only assigned values that are nobody else's, and gets at most one other name."""
    made, other, flat = False, 0, True
    for statement in _every(body):
        if not isinstance(statement, loop_tree.Assign):
            continue
        for target, value in zip(statement.targets, statement.values, strict=True):
            if isinstance(target, loop_tree.Name) and target.name == name:
                if not isinstance(value, loop_tree.LocalArray | loop_tree.Binary | loop_tree.Compare):
                    return False
                made, flat = True, flat and isinstance(value, loop_tree.LocalArray) and len(value.shape) == 1
            elif isinstance(value, loop_tree.Name) and value.name == name:
                other += 1
    parts = any(
        isinstance(value, loop_tree.Item) and value.base == name
        for statement in _every(body) if isinstance(statement, loop_tree.Assign)
        for target, value in zip(statement.targets, statement.values, strict=True) if isinstance(target, loop_tree.Name)
    )  # fmt: skip
    slices = any(
        isinstance(part, loop_tree.Span)
        for statement in _every(body) if isinstance(statement, loop_tree.Assign)
        for value in statement.values if isinstance(value, loop_tree.Item) and value.base == name
        for part in value.index
    )  # fmt: skip
    return made and other == 1 and not slices and (flat or not parts)


def _blocks(statement: loop_tree.Stmt) -> tuple[tuple[loop_tree.Stmt, ...], ...]:
    match statement:
        case loop_tree.If(body=body, orelse=orelse):
            return body, orelse
        case loop_tree.While(body=body) | loop_tree.For(body=body):
            return (body,)
    return ()


def _every(body: tuple[loop_tree.Stmt, ...]) -> Iterator[loop_tree.Stmt]:
    """All statements, also those of blocks and of inlined calls."""
    for statement in body:
        for call in inlined(statement):
            yield from _every(call.steps)
        yield statement
        for block in _blocks(statement):
            yield from _every(block)


@dataclass
class _Liveness:
    """Which names are read after a statement before they are assigned again."""

    candidates: set[int]  # identities of assignments a = b
    alive: set[int] = field(default_factory=set)  # of those after which b is read

    def block(self, body: tuple[loop_tree.Stmt, ...], after: _Names, leave: _Names, again: _Names) -> _Names:
        """Live names before some statements. after: behind them; leave, again: after a `break` and a `continue`."""
        live = after
        for statement in reversed(body):
            live = self.statement(statement, live, leave, again)
        return live

    def statement(self, x: loop_tree.Stmt, after: _Names, leave: _Names, again: _Names) -> _Names:
        match x:
            case loop_tree.Assign(targets=targets, values=values):
                pair = _pair(x)
                if pair and id(x) in self.candidates and pair[1] in after:
                    self.alive.add(id(x))
                plain = {target.name for target in targets if isinstance(target, loop_tree.Name)}
                places = tuple(target for target in targets if not isinstance(target, loop_tree.Name))
                return (after - plain) | _read((values, places))
            case loop_tree.If(test=test, body=body, orelse=orelse):
                both = self.block(body, after, leave, again) | self.block(orelse, after, leave, again)
                return both | _read(test)
            case loop_tree.While(test=test, body=body):
                return self.loop(body, _read(test), after, frozenset())
            case loop_tree.For(pattern=pattern, over=over, body=body):
                return self.loop(body, _NONE, after, frozenset(names_in(pattern))) | _read(over)
            case loop_tree.LoopExit(kind=kind):
                return leave if kind == "break" else again
        return after | _read(x)

    def loop(self, body: tuple[loop_tree.Stmt, ...], test: _Names, after: _Names, counters: _Names) -> _Names:
        head = after | test
        while True:
            found = head | (self.block(body, head, after, head) - counters)
            if found == head:
                return head
            head = found


def _read(node: Any) -> _Names:
    return frozenset(read_names(node))


def _marked(body: tuple[loop_tree.Stmt, ...], dead: set[int]) -> tuple[loop_tree.Stmt, ...]:
    made: list[loop_tree.Stmt] = []
    for statement in body:
        match statement:
            case loop_tree.Assign(line=line, values=values) if id(statement) in dead:
                made.append(replace(statement, values=(loop_tree.Unary(line, "moved", values[0]),)))
            case loop_tree.If(body=yes, orelse=no):
                made.append(replace(statement, body=_marked(yes, dead), orelse=_marked(no, dead)))
            case loop_tree.While(body=inner) | loop_tree.For(body=inner):
                made.append(replace(statement, body=_marked(inner, dead)))
            case _:
                made.append(statement)
    return tuple(made)
