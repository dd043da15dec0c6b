"""Distances between iterations whose affine subscripts meet, from an integer system with a domain for each access.

For two accesses a and b the unknowns are the distance d, the iteration p of a (that of b is p + d) and the counters of
the inner loops around either. The equations say that all subscripts agree; the inequalities that both iterations are in
the space and satisfy the tests and bounds around the access. The system is solved once, then cut into the parts in
which the first nonzero entry of d, or of -d, is entry k. Each part is a polytope: its corners bound every linear
combination of the entries, exactly over the rationals.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from . import integer_system
from .facts import Access, Dim, Subscript, VectorEntry
from .integer_system import Inequality
from .linear import Linear

Corners = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Part:
    """Distances of one orientation with the first nonzero entry at one place."""

    forward: bool  # whether from a's iteration to b's
    entries: tuple[VectorEntry, ...]  # the least box around them
    corners: Corners  # of their convex hull; () if only the box is known


def form_of(s: Subscript) -> Linear | None:
    """A subscript as a linear form; None if it is none."""
    if s.form is not None:
        return s.form
    if s.kind == "index":
        return Linear(((s.dim, 1),), s.offset)
    if s.kind == "number" and s.offset >= 0:
        return Linear((), s.offset)
    return None


def worthwhile(a: Access, b: Access) -> bool:
    """Whether the integer system may find out more than subscripts compared one axis at a time."""
    if a.domain or b.domain:
        return any(condition.dims for access in (a, b) for condition in access.domain) or _tied(a, b)
    return _tied(a, b)


def _tied(a: Access, b: Access) -> bool:
    """Whether an axis has an index on one side, and not the same index plus a constant on both."""
    for one, two in zip(a.subscripts, b.subscripts, strict=True):
        if one.kind == two.kind == "index" and one.dim == two.dim:
            continue
        forms = form_of(one), form_of(two)
        if None not in forms and any(form.dims for form in forms if form):
            return True
        spans = [s for s in (one, two) if s.kind == "span"]
        if spans and any(form and form.dims for form in forms):
            return True
    return False


def parts(a: Access, b: Access, dims: tuple[Dim, ...], sizes: tuple[int, ...]) -> tuple[Part, ...]:
    """All distances between different iterations at which a and b meet.

    sizes: of the axes of the array. Only one orientation for an access and itself: the other is the same.
    """
    return _parts(Sides(a.subscripts, a.domain, b.subscripts, b.domain), a == b, dims, sizes)


class Sides(NamedTuple):
    """What the distances of two accesses depend on."""

    one: tuple[Subscript, ...]  # subscripts of the first
    where: tuple[Linear, ...]  # its domain
    two: tuple[Subscript, ...]  # of the second
    there: tuple[Linear, ...]


@lru_cache(maxsize=4096)
def _parts(sides: Sides, same: bool, dims: tuple[Dim, ...], sizes: tuple[int, ...]) -> tuple[Part, ...]:
    built = _System(sides, dims, sizes)
    solved = integer_system.solve(built.equations, built.size)
    if solved is None:
        return ()
    base, columns = solved
    n = len(dims)
    pivots = integer_system.echelon(columns, n)
    basis = [column for _, column in pivots] + columns
    inequalities = [_substituted(inequality, base, basis) for inequality in built.inequalities]
    projected = integer_system.project(inequalities, len(pivots))
    if projected is None:
        return ()
    found = []
    for sign in (1,) if same else (1, -1):
        for level in range(n):
            part = _part(sign, level, base[:n], pivots, projected, dims)
            if part is not None:
                found.append(part)
    return tuple(found)


def _substituted(inequality: Inequality, base: Sequence[int], basis: Sequence[Sequence[int]]) -> Inequality:
    row, bound = inequality
    used = [(k, x) for k, x in enumerate(row) if x]
    return (
        tuple(sum(x * column[k] for k, x in used) for column in basis),
        bound - sum(x * base[k] for k, x in used),
    )


class _System:
    """The equations and inequalities of a pair of accesses."""

    def __init__(self, sides: Sides, dims: tuple[Dim, ...], sizes: tuple[int, ...]) -> None:
        self.dims = dims
        each = ((sides.one, sides.where), (sides.two, sides.there))
        counters = [(side, counter) for side, access in enumerate(each) for counter in _counters(*access)]
        self.place = {key: 2 * len(dims) + k for k, key in enumerate(counters)}
        self.size = 2 * len(dims) + len(counters)
        self.equations: list[Inequality] = []
        self.inequalities: list[Inequality] = []
        n = len(dims)
        for k, dim in enumerate(dims):
            for entries, low, high in (
                ({n + k: 1}, 0, dim.extent - 1),
                ({n + k: 1, k: 1}, 0, dim.extent - 1),
                ({k: 1}, 1 - dim.extent, dim.extent - 1),
            ):
                row = self._row(entries)
                self.inequalities += [(row, low), (tuple(-x for x in row), -high)]
        for side, (_, domain) in enumerate(each):
            for condition in domain:
                row, constant = self._form(condition, side)
                self.inequalities.append((row, -constant))
        for one, two, size in zip(sides.one, sides.two, sizes, strict=True):
            self._axis(one, two, size)

    def _axis(self, one: Subscript, two: Subscript, size: int) -> None:
        forms = form_of(one), form_of(two)
        if forms[0] is not None and forms[1] is not None:
            (left, low), (right, high) = self._form(forms[0], 0), self._form(forms[1], 1)
            self.equations.append((tuple(x - y for x, y in zip(left, right, strict=True)), high - low))
            return
        for side, (form, other) in enumerate(zip(forms, (two, one), strict=True)):
            if form is not None and other.kind == "span":
                low, stop = (max(0, end + size) if end < 0 else end for end in (other.offset, other.stop))
                row, constant = self._form(form, side)
                self.inequalities.append((row, low - constant))
                self.inequalities.append((tuple(-x for x in row), constant - min(stop, size) + 1))

    def _form(self, form: Linear, side: int) -> tuple[tuple[int, ...], int]:
        """A form of the values of indices, as a row over the unknowns (numbers of iterations) and a constant."""
        n, entries, constant = len(self.dims), {}, form.constant
        for variable, factor in form.terms:
            if variable < 0:
                entries[self.place[side, variable]] = factor
                continue
            dim = self.dims[variable]
            constant += factor * dim.start
            entries[n + variable] = factor * dim.step
            if side:
                entries[variable] = factor * dim.step
        return self._row(entries), constant

    def _row(self, entries: dict[int, int]) -> tuple[int, ...]:
        return tuple(entries.get(k, 0) for k in range(self.size))


def _counters(subscripts: tuple[Subscript, ...], domain: tuple[Linear, ...]) -> Iterator[int]:
    forms = [form for s in subscripts if (form := form_of(s)) is not None]
    yield from dict.fromkeys(counter for form in (*forms, *domain) for counter in form.counters)


def _part(
    sign: int,
    level: int,
    start: Sequence[int],
    pivots: list[tuple[int, list[int]]],
    inequalities: list[Inequality],
    dims: tuple[Dim, ...],
) -> Part | None:
    """The distances whose entries before `level` are 0, and whose entry there is positive, times `sign`."""
    n = len(dims)
    base = list(start)
    fixed: dict[int, int] = {}
    for place, (row, column) in enumerate(pivots):
        if row < level:
            value, rest = divmod(-base[row], column[row])
            if rest:
                return None
            fixed[place] = value
            base = [x + value * column[k] for k, x in enumerate(base)]
    if any(base[:level]):
        return None
    free = [place for place in range(len(pivots)) if place not in fixed]
    kept = [
        (tuple(row[place] for place in free), bound - sum(row[place] * value for place, value in fixed.items()))
        for row, bound in inequalities
    ]
    columns = [[sign * x for x in pivots[place][1][:n]] for place in free]
    base = [sign * x for x in base]
    kept.append((tuple(column[level] for column in columns), 1 - base[level]))
    tight = integer_system.tightened(kept)
    if tight is None:
        return None
    found = integer_system.corners(tight, len(free))
    if found is None:  # too large for corners: every distance of this orientation and level
        if integer_system.project(tight, 0) is None:
            return None
        ends = [VectorEntry(0, 0)] * level + [VectorEntry(1, math.inf)]
        return Part(sign > 0, tuple(ends + [VectorEntry(-math.inf, math.inf)] * (n - level - 1)), ())
    points = [tuple(base[k] + sum(t * column[k] for t, column in zip(point, columns, strict=True)) for k in range(n))
              for point in found]  # fmt: skip
    if not points:
        return None
    entries = []
    for k, dim in enumerate(dims):
        low = math.ceil(min(point[k] for point in points) - 1e-6)
        high = math.floor(max(point[k] for point in points) + 1e-6)
        if low > high:
            return None
        entries.append(_entry(low, high, dim.extent))
    return Part(sign > 0, tuple(entries), tuple(points))


def _entry(low: int, high: int, extent: int) -> VectorEntry:
    """As an entry; ends that only the size of the space sets are infinite."""
    if low == high:
        return VectorEntry(low, high)
    return VectorEntry(low if low > 1 - extent else -math.inf, high if high < extent - 1 else math.inf)
