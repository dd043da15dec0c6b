"""Names of rows and matrices that are copies in a loop body and would be views in NumPy.

    v = W[:, j]                 M = A[i].T                  r = choose(W[i], V[i], t)

A column, a transposed matrix and a row that a function chose among several are copied. That makes no difference unless
the name is written through, which is refused where it happens, or is read after what it was copied from was written:

    v = W[:, j]
    W[0, j] = 1.0
    s += v[0]                   refused: NumPy reads 1.0 here
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from stretto.loops.front.refusals import InlinedLine

from . import typed_tree as t
from .inventory import nodes
from .statements import blocks_of, expressions


@dataclass(frozen=True, slots=True)
class NamedCopy:
    """What a name is a copy of."""

    chosen: bool  # whether a function chose it among several rows; otherwise a column or a transposed matrix
    sources: frozenset[str]  # arrays and rows that it was copied from

    @property
    def what(self) -> str:
        return "a row that a function chose among several" if self.chosen else "a column or a transposed matrix"

    @property
    def remedy(self) -> str:
        if self.chosen:
            return "let the function return a number that says which, or change the row in the function"
        return "write .copy() after it if it is to be a copy, or subscript the array itself"


def read_too_late(
    steps: tuple[t.Step, ...], copies: Mapping[str, NamedCopy], targets: Mapping[str, str]
) -> tuple[int, str] | None:
    """(line, name) of a copy that is read after its source was written; None if there is none.

    targets: the array behind each buffer, by the name of the buffer.
    """
    return next(_Reading(copies, targets).block(steps), None) if copies else None


class _Reading:
    """A walk through the statements of a body.

    Statements that one line of the user's became count as one: it reads all it needs before it writes.
    """

    def __init__(self, copies: Mapping[str, NamedCopy], targets: Mapping[str, str]) -> None:
        self.copies, self.targets = copies, targets
        self.old: frozenset[str] = frozenset()  # copies whose sources have changed since
        self.changed: frozenset[str] = frozenset()  # the same of the present line
        self.line: tuple[int, ...] = ()  # the present line
        self.left: frozenset[str] = frozenset()  # copies that were old at some `break` or `continue`

    def block(self, steps: tuple[t.Step, ...]) -> Iterator[tuple[int, str]]:
        for step in steps:
            self.enter(_place(step.line))
            for name in _read(expressions(step)):
                if name in self.old:
                    yield step.line, name
            match step:
                case t.Store(places=places):
                    self.wrote({_owner(place) for place in places})
                case t.BufferAdd(buffer=buffer):
                    self.wrote({self.targets.get(buffer, "")})
                case t.Branch(body=body, orelse=orelse):
                    before = self.old, self.changed
                    yield from self.block(body)
                    first = self.old | self.changed
                    self.old, self.changed = before
                    yield from self.block(orelse)
                    self.old |= first
                case t.Jump():
                    self.left |= self.old | self.changed
                case t.RangeLoop() | t.RaggedLoop() | t.WhileLoop():
                    yield from self.loop(step)

    def loop(self, step: t.Step) -> Iterator[tuple[int, str]]:
        (body,) = blocks_of(step)
        if body and all(_place(inner.line) == _place(step.line) for inner in body):
            yield from self.block(body)  # a line of the user's, element by element
            return
        outer, before = self.left, self.old | self.changed
        for _ in range(2):
            yield from self.block(body)
            self.old |= self.changed | self.left | before
        self.left = outer

    def enter(self, line: tuple[int, ...]) -> None:
        if line != self.line:
            self.old, self.changed, self.line = self.old | self.changed, frozenset(), line

    def wrote(self, names: set[str]) -> None:
        made = names & self.copies.keys()
        self.old, self.changed = self.old - made, self.changed - made
        self.changed |= {name for name, copy in self.copies.items() if copy.sources & names} - made


def _place(line: int) -> tuple[int, ...]:
    """The place of a line in the source: lines of an inlined function differ from that of its call."""
    return (line, line.inner) if isinstance(line, InlinedLine) else (line,)


def _owner(place: t.Place) -> str:
    return place.name if isinstance(place, t.VarPlace | t.RowName) else place.array


def _read(values: tuple[Any, ...]) -> Iterator[str]:
    """Arrays and rows that are read in some expressions."""
    for node in nodes(values):
        if isinstance(node, t.Element | t.RowLoad):
            yield node.array
        elif isinstance(node, t.RowLocal):
            yield node.name
