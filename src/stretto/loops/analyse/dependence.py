"""Dependence vectors: which iterations touch the same element, one of them writing, and how far apart they are.

Every two references to an array are compared axis by axis, and so is a reference with itself in another iteration.
Where both subscripts are the same index plus a constant, the distance between the two iterations in that dimension is
exact; every other pair of subscripts either proves that the references never meet or says nothing, and what nothing is
said about stays ∞, any distance. So a vector may claim too much and never too little.

    for i in range(1, n):                   line 2 writes A[i]      vector (1), flow
        A[i] = A[i] + A[i - 1]              line 2 reads A[i - 1]

Buffered writes and folds into accumulators are exempt: they clash with a plain write to the same array and with
nothing else. Two names are taken for two arrays; that they share no memory is checked where the arguments come in.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from stretto.loops.analyse.facts import Access, Dim, Entry, Subscript, Vector

EVERY = Entry(-math.inf, math.inf)
SAME = Entry(0, 0)

VERBS = {"read": "reads", "write": "writes", "update": "updates", "buffer": "buffers", "fold": "folds into"}


def vectors(
    accesses: Sequence[Access], dims: tuple[Dim, ...], shapes: Mapping[str, tuple[int, ...]]
) -> tuple[Vector, ...]:
    """The lexicographically positive dependence vectors of a body.

    shapes: of every array that is accessed. Distances count iterations, so a step of 2 makes A[i] and A[i - 2] one
    apart. Equal vectors of one kind and one array are reported once, from the earliest lines. In a space without
    dimensions a dependence is the empty vector: any two records may clash.
    """
    if any(dim.extent == 0 for dim in dims):
        return ()
    found: dict[tuple[str, str, tuple[Entry, ...]], Vector] = {}
    for number, first in enumerate(accesses):
        for second in accesses[number:]:
            if first.array != second.array or not (first.writes or second.writes):
                continue
            raw = _distance(first, second, dims, shapes[first.array])
            for vector in () if raw is None else _oriented(raw, first, second):
                key = (first.array, vector.kind, vector.entries)
                if key not in found or _lines(vector) < _lines(found[key]):
                    found[key] = vector
    return tuple(found.values())


def conflicts_text(vector: Vector) -> str:
    """The clash in one line: `line 7 writes W[i], line 6 reads W[i - 1]: iterations p and p + (1, 0)`."""
    where = f"iterations p and p + {vector}" if vector.entries else "any two records"
    return f"{accesses_text(vector)}: {where}"


def accesses_text(vector: Vector) -> str:
    """The two accesses of a clash alone: `line 7 writes W[i], line 6 reads W[i - 1]`."""
    pair = (vector.first, vector.second)
    if vector.first == vector.second:
        return f"line {pair[0].line} {VERBS[pair[0].mode]} {pair[0].text} twice"
    return ", ".join(f"line {access.line} {VERBS[access.mode]} {access.text}" for access in pair)


def positive(raw: tuple[Entry, ...]) -> Iterator[tuple[Entry, ...]]:
    """The lexicographically positive part of a set of distances, as disjoint vectors.

    A leading ∞ is split into what lies ahead and what stays in place:

    >>> [[str(entry) for entry in part] for part in positive((EVERY, Entry(1, 1)))]
    [['+∞', '1'], ['0', '1']]
    """
    for place, entry in enumerate(raw):
        if entry.high > 0:
            ahead = entry if entry.low > 0 else Entry(1, entry.high)
            yield (SAME,) * place + (ahead,) + raw[place + 1 :]
        if not entry.low <= 0 <= entry.high:
            return


def _oriented(raw: tuple[Entry, ...], a: Access, b: Access) -> Iterator[Vector]:
    """Vectors of both orientations: a before b, and b before a. raw: distances from a's iteration to b's."""
    if not raw:
        yield Vector((), _kind(a, b), a, b)
        return
    for entries in positive(raw):
        yield Vector(entries, _kind(a, b), a, b)
    if a is not b:  # an access and itself: the second orientation says the same again
        for entries in positive(tuple(Entry(-entry.high, -entry.low) for entry in raw)):
            yield Vector(entries, _kind(b, a), b, a)


def _kind(first: Access, second: Access) -> str:
    """One word for what may be several: a read behind a write matters most, two plain stores least.

    Exempt accesses, which appear here only beside a plain write, count as reading and writing.
    """
    if first.mode != "read" and second.mode != "write":
        return "flow"
    return "output" if first.mode == second.mode == "write" else "anti"


def _lines(vector: Vector) -> tuple[int, int]:
    a, b = vector.first.line, vector.second.line
    return min(a, b), max(a, b)


# --- one pair of references -----------------------------------------------------------------------------------------


def _distance(a: Access, b: Access, dims: tuple[Dim, ...], shape: tuple[int, ...]) -> tuple[Entry, ...] | None:
    """Distances from the iteration of a to that of b at which they may meet; None when they never do.

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
            entries[one.dim] = Entry(distance, distance)
        elif one.kind == two.kind == "record":
            return None  # no two iterations share a record
        elif not _meet(_values(one, dims, size), _values(two, dims, size)):
            return None
    return tuple(entries)


class _Values(NamedTuple):
    """low, low + step, …, high; step 0 when there is one value."""

    low: int
    high: int
    step: int


def _values(subscript: Subscript, dims: tuple[Dim, ...], size: int) -> _Values | None:
    """Every value a subscript takes, None where nothing is known. size: of the axis; negative constants count from it.

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
    """Whether two sets of values may share one; steps that never fall on the same value are told apart as well."""
    if any(values is not None and values.low > values.high for values in (a, b)):
        return False  # an empty slice touches nothing
    if a is None or b is None:
        return True
    if max(a.low, b.low) > min(a.high, b.high):
        return False
    step = math.gcd(a.step, b.step)
    return (a.low - b.low) % step == 0 if step else True
