"""Queries on typed statements: names they assign and use, arrays they read, and removal of unused parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from stretto.loops.analyse.access import children
from stretto.loops.types.body import Body

from . import typed_tree as t
from .typed_tree import Row, Scalar


def subscripts(place: t.ElementPlace | t.RowPlace) -> tuple[Scalar, ...]:
    return place.index if isinstance(place, t.ElementPlace) else (*place.lead, place.start, place.length)


def target_of(place: t.Place, local: set[str]) -> str:
    """The variable, local row or local array that a place belongs to; '' for the caller's arrays."""
    if isinstance(place, t.VarPlace | t.RowName):
        return place.name
    return place.array if place.array in local else ""


def names_of(x: Scalar | Row, local: set[str]) -> Iterator[str]:
    """Variables, local rows and local arrays in an expression."""
    if isinstance(x, t.Var | t.RowLocal):
        yield x.name
    elif isinstance(x, t.Element | t.RowLoad) and x.array in local:
        yield x.array
    for part in parts_of(x):
        yield from names_of(part, local)


def parts_of(x: Scalar | Row) -> tuple[Scalar | Row, ...]:
    """The operands of a node; of a row also its length."""
    return (*children(x), x.length) if t.is_row(x) else children(x)


def every_step(steps: tuple[t.Step, ...]) -> Iterator[t.Step]:
    """All statements, including nested ones."""
    for step in steps:
        yield step
        for block in blocks_of(step):
            yield from every_step(block)


def blocks_of(step: t.Step) -> tuple[tuple[t.Step, ...], ...]:
    match step:
        case t.Branch(body=body, orelse=orelse):
            return body, orelse
        case t.WhileLoop(body=body) | t.RangeLoop(body=body) | t.RaggedLoop(body=body):
            return (body,)
    return ()


def assigned(steps: tuple[t.Step, ...], local: set[str]) -> frozenset[str]:
    """Names that statements assign."""
    found: set[str] = set()
    for step in every_step(steps):
        match step:
            case t.Store(places=places):
                found |= {target_of(place, local) for place in places} - {""}
            case t.ZeroFill(array=array) | t.Allocate(array=array):
                found.add(array)
            case t.RangeLoop(name=name):
                found.add(name)
            case t.RaggedLoop(names=names):
                found |= set(names)
    return frozenset(found)


def substantive(steps: tuple[t.Step, ...]) -> bool:
    """Whether statements record or compute anything."""
    return any(
        isinstance(step, t.BufferAdd | t.Store | t.Allocate | t.ZeroFill | t.RangeLoop | t.RaggedLoop)
        for step in every_step(steps)
    )


def trimmed(steps: tuple[t.Step, ...]) -> tuple[t.Step, ...]:
    """The statements up to the last one with an effect: a `continue` after it has none."""
    while steps and not substantive(steps[-1:]) and "break" not in repr(steps[-1]):
        steps = steps[:-1]
    return steps


def expressions(step: t.Step) -> tuple[Scalar | Row, ...]:
    """The expressions of one statement, including those of its places, without those of nested blocks."""
    match step:
        case t.Store(places=places, values=values):
            found: list[Scalar | Row] = list(values)
            for place in places:
                if isinstance(place, t.ElementPlace | t.RowPlace):
                    found += subscripts(place)
                elif isinstance(place, t.RowName):
                    found.append(place.length)
            return tuple(found)
        case t.BufferAdd(index=index, value=value) | t.Fold(index=index, value=value):
            return (*index, value)
        case t.Allocate(sizes=sizes):
            return sizes
        case t.Branch(test=test) | t.WhileLoop(test=test):
            return (test,)
        case t.RangeLoop(start=start, stop=stop, step=stride):
            return start, stop, stride
    return ()


def arrays_read(steps: tuple[t.Step, ...]) -> frozenset[str]:
    """Arrays of which statements read elements."""
    found: set[str] = set()

    def look(x: Scalar | Row) -> None:
        if isinstance(x, t.Element | t.RowLoad):
            found.add(x.array)
        for part in parts_of(x):
            look(part)

    for step in every_step(steps):
        for x in expressions(step):
            look(x)
    return frozenset(found)


def pruned(body: Body, steps: tuple[t.Step, ...], behind: Mapping[str, tuple[str, ...]]) -> Body:
    """The body with these statements, and only what they refer to."""
    names: set[str] = set()
    ragged: set[str] = set()

    def look(x: Scalar | Row) -> None:
        match x:
            case t.Var(name=name):
                names.add(name)
            case t.Element(array=array) | t.RowLoad(array=array) | t.AxisSize(array=array):
                names.add(array)
            case t.RaggedSize(ragged=field_):
                ragged.add(field_)
        for part in parts_of(x):
            look(part)

    records: dict[str, None] = {}
    for step in every_step(steps):
        for x in expressions(step):
            look(x)
        match step:
            case t.RaggedLoop(ragged=field_):
                ragged.add(field_)
            case t.ZeroFill(array=name) | t.Allocate(array=name):
                names.add(name)
            case t.Store(places=places):
                names |= {place.array for place in places if isinstance(place, t.ElementPlace | t.RowPlace)}
            case t.BufferAdd(buffer=name):
                records.setdefault(name)
    for array in body.arrays:
        if array.name in names and not array.allocated:
            for size in array.sizes:
                look(size)
    kept = [array for array in body.arrays if array.name in names]
    known = {behind[array.name][0]: array for array in body.arrays if array.name in behind}
    known |= {array.name: array for array in body.arrays}
    kept += [replace(known[name.partition(" ")[2]], name=name, role="buffer") for name in records]
    return Body(
        body.line,
        body.indices,
        tuple((name, kind) for name, kind in body.fields if name in names),
        tuple(one for one in body.ragged if one.name in ragged),
        tuple((name, kind) for name, kind in body.numbers if name in names),
        tuple(kept),
        steps,
    )
