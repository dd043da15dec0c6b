"""Dependence vectors: distances between iterations that access the same element, one of them writing.

Every pair of references to an array is compared axis by axis, including a reference with itself in another iteration.
If both subscripts are the same index plus a constant, the distance between the two iterations in that dimension is
exact. Any other pair of subscripts either proves that the references never access the same element, or gives no
information; then the distance is ∞, any distance. Where subscripts are other linear forms of indices (2 i, i + j, two
different indices), or the tests and bounds around an access bound its iterations, `distances` solves the integer system
of both. So vectors are conservative: no dependence is missed.

    for i in range(1, n):                   line 2 writes A[i]      vector (1), flow
        A[i] = A[i] + A[i - 1]              line 2 reads A[i - 1]

Buffered writes and folds into accumulators are exempt: they conflict only with a plain write to the same array. Two
names count as two arrays; a check of the arguments ensures that they share no memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from . import distances
from .facts import Access, Dim, Subscript, Vector, VectorEntry

EVERY = VectorEntry(-math.inf, math.inf)
SAME = VectorEntry(0, 0)

VERBS = {"read": "reads", "write": "writes", "update": "updates", "buffer": "buffers", "fold": "folds into"}


def vectors(
    accesses: Sequence[Access], dims: tuple[Dim, ...], shapes: Mapping[str, tuple[int, ...]]
) -> tuple[Vector, ...]:
    """The lexicographically positive dependence vectors of a body.

    shapes: of every array that is accessed. Distances count iterations, so with a step of 2 the distance of A[i] and
    A[i - 2] is 1. Equal vectors of one kind and one array are reported once, from the earliest lines. In a space
    without dimensions a dependence is the empty vector: any two records may conflict.
    """
    if any(dim.extent == 0 for dim in dims):
        return ()
    found: dict[tuple[object, ...], Vector] = {}
    for number, first in enumerate(accesses):
        for second in accesses[number:]:
            if first.array != second.array or not (first.writes or second.writes):
                continue
            for vector in _between(first, second, dims, shapes[first.array]):
                key = (first.array, vector.kind, vector.entries, vector.corners)
                if key not in found or _lines(vector) < _lines(found[key]):
                    found[key] = vector
    return _without_repeats(list(found.values()))


def _without_repeats(found: list[Vector]) -> tuple[Vector, ...]:
    """Leave out vectors whose hull is known where another of the array and kind has the same entries without one."""
    boxes = {(v.first.array, v.kind, v.entries) for v in found if not v.corners}
    return tuple(v for v in found if not v.corners or (v.first.array, v.kind, v.entries) not in boxes)


def conflicts_text(vector: Vector) -> str:
    """The conflict in one line: `line 7 writes W[i], line 6 reads W[i - 1]: iterations p and p + (1, 0)`."""
    where = f"iterations p and p + {vector}" if vector.entries else "any two records"
    return f"{accesses_text(vector)}: {where}"


def accesses_text(vector: Vector) -> str:
    """The two accesses of a conflict: `line 7 writes W[i], line 6 reads W[i - 1]`."""
    pair = (vector.first, vector.second)
    if vector.first == vector.second:
        return f"line {pair[0].line} {VERBS[pair[0].mode]} {pair[0].text} twice"
    return ", ".join(f"line {access.line} {VERBS[access.mode]} {access.text}" for access in pair)


def positive(raw: tuple[VectorEntry, ...]) -> Iterator[tuple[VectorEntry, ...]]:
    """The lexicographically positive part of a set of distances, as disjoint vectors.

    A leading ∞ is split into +∞ and 0:

    >>> [[str(entry) for entry in part] for part in positive((EVERY, VectorEntry(1, 1)))]
    [['+∞', '1'], ['0', '1']]
    """
    for place, entry in enumerate(raw):
        if entry.high > 0:
            ahead = entry if entry.low > 0 else VectorEntry(1, entry.high)
            yield (SAME,) * place + (ahead,) + raw[place + 1 :]
        if not entry.low <= 0 <= entry.high:
            return


def _between(a: Access, b: Access, dims: tuple[Dim, ...], shape: tuple[int, ...]) -> Iterator[Vector]:
    """The vectors of a pair of accesses, from the integer system where that may tell more."""
    raw = _distance(a, b, dims, shape)
    if raw is None:
        return
    if not dims or not distances.worthwhile(a, b):
        yield from _oriented(raw, a, b)
        return
    for part in distances.parts(a, b, dims, shape):
        first, second = (a, b) if part.forward else (b, a)
        yield Vector(part.entries, _kind(first, second), first, second, part.corners)


def _oriented(raw: tuple[VectorEntry, ...], a: Access, b: Access) -> Iterator[Vector]:
    """Vectors of both orientations: a before b, and b before a. raw: distances from a's iteration to b's."""
    if not raw:
        yield Vector((), _kind(a, b), a, b)
        return
    for entries in positive(raw):
        yield Vector(entries, _kind(a, b), a, b)
    if a is not b:  # for an access and itself both orientations are the same
        for entries in positive(tuple(VectorEntry(-entry.high, -entry.low) for entry in raw)):
            yield Vector(entries, _kind(b, a), b, a)


def _kind(first: Access, second: Access) -> str:
    """The kind of a dependence: 'flow' if it may be several, 'output' only for two plain stores.

    Exempt accesses, which conflict only with a plain write, count as reading and writing.
    """
    if first.mode != "read" and second.mode != "write":
        return "flow"
    return "output" if first.mode == second.mode == "write" else "anti"


def _lines(vector: Vector) -> tuple[int, int]:
    a, b = vector.first.line, vector.second.line
    return min(a, b), max(a, b)


# --- one pair of references -----------------------------------------------------------------------------------------


def _distance(a: Access, b: Access, dims: tuple[Dim, ...], shape: tuple[int, ...]) -> tuple[VectorEntry, ...] | None:
    """Distances from the iteration of a to that of b at which they may access one element; None: they never do.

    The distance of all zeros, the same iteration, may be part of it.
    """
    entries = [SAME if dim.extent == 1 else EVERY for dim in dims]
    for size, one, two in zip(shape, a.subscripts, b.subscripts, strict=True):
        if one.kind == two.kind == "index" and one.dim == two.dim:
            dim = dims[one.dim]
            distance, rest = divmod(one.offset - two.offset, dim.step)
            known = entries[one.dim]
            if rest or abs(distance) >= dim.extent or not known.low <= distance <= known.high:
                return None
            entries[one.dim] = VectorEntry(distance, distance)
        elif one.kind == two.kind == "record":
            return None  # no two iterations share a record
        elif not _meet(_values(one, dims, size), _values(two, dims, size)):
            return None
    return tuple(entries)


class _Values(NamedTuple):
    """The values low, low + step, …, high."""

    low: int  # the smallest
    high: int  # the largest
    step: int  # 0 for a single value


def _values(subscript: Subscript, dims: tuple[Dim, ...], size: int) -> _Values | None:
    """The values of a subscript; None if unknown. size: of the axis; negative constants count from its end.

    An index that goes below 0 is not wrapped: such a loop is refused before it runs.
    """
    if subscript.kind == "index":
        dim = dims[subscript.dim]
        ends = (dim.start + subscript.offset, dim.start + subscript.offset + (dim.extent - 1) * dim.step)
        return _Values(min(ends), max(ends), abs(dim.step) if dim.extent > 1 else 0)
    if subscript.kind == "number":
        value = subscript.offset + size if subscript.offset < 0 else subscript.offset
        return _Values(value, value, 0)
    if subscript.kind == "span":
        low, stop = (max(0, end + size) if end < 0 else end for end in (subscript.offset, subscript.stop))
        return _Values(low, min(stop, size) - 1, 1)
    return None


def _meet(a: _Values | None, b: _Values | None) -> bool:
    """Whether two sets of values may share one. Steps are compared too: even and odd values never meet."""
    if any(values is not None and values.low > values.high for values in (a, b)):
        return False  # an empty slice accesses nothing
    if a is None or b is None:
        return True
    if max(a.low, b.low) > min(a.high, b.high):
        return False
    step = math.gcd(a.step, b.step)
    return (a.low - b.low) % step == 0 if step else True
