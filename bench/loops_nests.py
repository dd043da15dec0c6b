"""Random loop nests with affine subscripts, and what the integer set library (islpy) says of them.

A nest has one to four ranges, some of which count down, in steps of two, or from and to bounds that depend on outer
indices; its body has one or two statements over arrays with one to three axes, some of them under a test. Subscripts are
an index plus a constant or other linear forms: 2 * i, n - 1 - i, i + j, i * m + j. Distances between subscripts of one
array are small, so that most nests have dependences.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Form = tuple[tuple[int, ...], int]  # factors of the indices, and a constant
Point = tuple[int, ...]

NAMES = "ijkl"


@dataclass(frozen=True)
class Loop:
    """for name in range(low, high, step); low and high (inclusive) are forms of outer indices."""

    low: Form
    high: Form
    step: int  # of ranges with fixed bounds; 1 or -1 where a bound depends on an outer index


@dataclass(frozen=True)
class Reference:
    """One access: its array and the form of every axis."""

    array: str
    axes: tuple[Form, ...]
    write: bool
    test: tuple[Form, ...] = ()  # forms that are ≥ 0 where it runs


@dataclass
class Nest:
    """A random nest: its source, its arguments, its loops and references."""

    source: str
    arguments: dict[str, Any]
    loops: list[Loop]
    references: list[Reference]
    factor: int = 1  # the value of the argument m
    plain_ranges: bool = field(default=True)  # whether no bound depends on an outer index

    @property
    def depth(self) -> int:
        return len(self.loops)

    def points(self) -> Iterator[Point]:
        """The values of the indices, in the order of the loop."""
        yield from _points(self.loops, ())


def _points(loops: list[Loop], outer: Point) -> Iterator[Point]:
    if len(outer) == len(loops):
        yield outer
        return
    loop = loops[len(outer)]
    low, high = value(loop.low, outer), value(loop.high, outer)
    values = range(low, high + 1, loop.step) if loop.step > 0 else range(high, low - 1, loop.step)
    for x in values:
        yield from _points(loops, (*outer, x))


def value(form: Form, point: Point) -> int:
    return sum(a * x for a, x in zip(form[0], point, strict=False)) + form[1]


def nest(draw: random.Random) -> Nest:
    """A random nest."""
    depth = draw.choice((1, 2, 2, 3, 3, 4))
    loops = [_loop(draw, depth, k) for k in range(depth)]
    points = list(_points(loops, ()))
    if len(points) < 4:
        return nest(draw)
    statements = draw.choice((1, 1, 1, 2))
    axes = {name: draw.choice((1, depth, depth, max(1, depth - 1))) for name in "AB"}
    axes = {name: min(3, count) for name, count in axes.items()}
    raw: list[Reference] = []
    texts: list[tuple[Reference, str, list[Reference], tuple[Form, ...]]] = []
    for _ in range(statements):
        test = (_test(draw, depth),) if draw.random() < 0.15 and depth > 1 else ()
        target = _reference(draw, depth, "A" if draw.random() < 0.8 else "B", axes, True, test)
        reads = [_reference(draw, depth, draw.choice("AAB"), axes, False, test) for _ in range(draw.choice((1, 1, 2)))]
        sign = draw.choice(("=", "=", "+="))
        raw += [target, *reads, *([Reference(target.array, target.axes, False, test)] if sign == "+=" else [])]
        texts.append((target, sign, reads, test))
    # Shift every axis so that the least subscript is 0: subscripts never wrap.
    low, size = {}, {}
    for name in "AB":
        for axis in range(axes[name]):
            values = [value(r.axes[axis], p) for r in raw if r.array == name for p in points] or [0]
            low[name, axis], size[name, axis] = min(values), max(values) - min(values) + 1
    shifted = {r: _shifted(r, low) for r in raw}
    factor = next((a for r in shifted.values() for f in r.axes for a in f[0] if a > 2), 1)
    rng = np.random.default_rng(draw.randrange(2**30))
    arrays = {
        name: rng.integers(-40, 40, [size[name, axis] for axis in range(axes[name])]) for name in "AB"
    }
    source = "def loop(A, B, m):\n"
    for k, loop in enumerate(loops):
        source += f"{'    ' * (k + 1)}for {NAMES[k]} in {_range(loop)}:\n"
    for target, sign, reads, test in texts:
        pad = "    " * (depth + 1)
        if test:
            source += f"{pad}if {text(test[0])} >= 0:\n"
            pad += "    "
        total = " + ".join(_access(shifted[r], factor) for r in reads)
        source += f"{pad}{_access(shifted[target], factor)} {sign} ({total}) % 97 + 1\n"
    return Nest(
        source,
        {**arrays, "m": factor},
        loops,
        list(dict.fromkeys(shifted.values())),
        factor,
        all(not any(loop.low[0]) and not any(loop.high[0]) for loop in loops),
    )


def _loop(draw: random.Random, depth: int, k: int) -> Loop:
    none = (0,) * k
    extent = draw.randint(3, 6 if depth < 4 else 4)
    start = draw.randint(0, 2)
    if k and draw.random() < 0.15:
        outer = tuple(int(at == draw.randrange(k)) for at in range(k))
        if any(outer):
            step = draw.choice((1, 1, -1))
            if draw.random() < 0.5:  # from an outer index
                return Loop((outer, draw.randint(0, 1)), (none, 6), step)
            return Loop((none, start), (outer, draw.randint(0, 1)), step)
    step = draw.choice((1, 1, 1, 1, 2, -1))
    return Loop((none, start), (none, start + abs(step) * (extent - 1)), step)


def _form(draw: random.Random, depth: int, dim: int) -> Form:
    factors = [0] * depth
    kind = draw.random()
    if kind < 0.72 or depth == 1 and kind < 0.8:
        factors[dim] = 1
    elif kind < 0.8:
        factors[dim], factors[draw.randrange(depth)] = 1, draw.choice((1, -1))
    elif kind < 0.87:
        factors[dim] = 2
    elif kind < 0.93:
        factors[dim] = -1
    elif kind < 0.96:
        factors[dim], factors[(dim + 1) % depth] = 7, 1
    return tuple(factors), draw.choice((0, 0, 0, 1, -1, 2))


def _reference(
    draw: random.Random, depth: int, array: str, axes: dict[str, int], write: bool, test: tuple[Form, ...]
) -> Reference:
    count = axes[array]
    dims = list(range(depth))[-count:] if draw.random() < 0.5 else [draw.randrange(depth) for _ in range(count)]
    if draw.random() < 0.6:
        dims = (list(range(depth)) * 3)[:count]
    return Reference(array, tuple(_form(draw, depth, d) for d in dims), write, test)


def _test(draw: random.Random, depth: int) -> Form:
    factors = [0] * depth
    one, two = draw.sample(range(depth), 2)
    factors[one], factors[two] = 1, -1
    return tuple(factors), draw.choice((0, -1, 1))


def _shifted(r: Reference, low: dict[tuple[str, int], int]) -> Reference:
    forms = tuple((factors, constant - low[r.array, axis]) for axis, (factors, constant) in enumerate(r.axes))
    return Reference(r.array, forms, r.write, r.test)


def text(form: Form, factor: int = 0) -> str:
    """A form as source text; `factor` is written as the name m."""
    found = ""
    for name, a in zip(NAMES, form[0], strict=False):
        if a:
            sign = ("- " if a < 0 else "+ ") if found else ("-" if a < 0 else "")
            times = f"{name} * m" if abs(a) == factor > 2 else name if abs(a) == 1 else f"{abs(a)} * {name}"
            found += f"{' ' if found else ''}{sign}{times}"
    if not found:
        return str(form[1])
    return found + (f" {'-' if form[1] < 0 else '+'} {abs(form[1])}" if form[1] else "")


def _access(r: Reference, factor: int) -> str:
    return f"{r.array}[{', '.join(text(form, factor) for form in r.axes)}]"


def _range(loop: Loop) -> str:
    low, high = loop.low, loop.high
    past = text((high[0], high[1] + 1))
    if loop.step == 1:
        return f"range({text(low)}, {past})"
    if loop.step > 0:
        return f"range({text(low)}, {past}, {loop.step})"
    return f"range({text(high)}, {text((low[0], low[1] - 1))}, {loop.step})"


# --- the integer set library ----------------------------------------------------------------------------------------


class Oracle:
    """The exact dependences of a nest, and whether the scheduler of the library finds parallelism."""

    def __init__(self, given: Nest) -> None:
        import islpy

        self.isl, self.nest = islpy, given
        depth = given.depth
        self.names = [f"p{k}" for k in range(depth)]
        self.space = f"S[{', '.join(self.names)}]"
        bounds = " and ".join(self._bounds(k) for k in range(depth))
        self.domain = islpy.UnionSet(f"{{ {self.space} : {bounds} }}")
        self.order = self._order()
        reads, writes = self._accesses(False), self._accesses(True)
        meets = [
            one.apply_range(two.reverse())
            for one, two in ((writes, reads), (reads, writes), (writes, writes))
        ]
        union = meets[0].union(meets[1]).union(meets[2])
        self.dependences = union.intersect_domain(self.domain).intersect_range(self.domain).intersect(self.order)

    def _bounds(self, k: int) -> str:
        """p{k}: the value of the index, counted from its first value in the box around the nest, in its direction."""
        loop, x = self.nest.loops[k], self._value(k)
        return f"{self._text(loop.low)} <= {x} <= {self._text(loop.high)}"

    def _value(self, k: int) -> str:
        """The value of index k: numbers of iterations count from the first value."""
        loop = self.nest.loops[k]
        first = self.first(k)
        return f"({first} + {loop.step} * p{k})"

    def first(self, k: int) -> int:
        """The first value of index k in the box around the nest."""
        loop = self.nest.loops[k]
        points = _hull(self.nest.loops, k)
        return min(value(loop.low, p) for p in points) if loop.step > 0 else max(value(loop.high, p) for p in points)

    def _text(self, form: Form) -> str:
        terms = [f"{a} * {self._value(k)}" for k, a in enumerate(form[0]) if a]
        return " + ".join([*terms, str(form[1])])

    def _order(self) -> Any:
        """Pairs of iterations of which the first comes before the second."""
        n = range(self.nest.depth)
        cases = [
            " and ".join([f"p{m} = q{m}" for m in range(k)] + [f"p{k} < q{k}"]) for k in n
        ]
        after = ", ".join(f"q{k}" for k in n)
        return self.isl.UnionMap(f"{{ {self.space} -> S[{after}] : {' or '.join(f'({case})' for case in cases)} }}")

    def _accesses(self, write: bool) -> Any:
        found = self.isl.UnionMap("{}")
        for r in self.nest.references:
            if r.write == write:
                where = " and ".join([f"{self._text(form)} >= 0" for form in r.test] or ["true"])
                axes = ", ".join(self._text(form) for form in r.axes)
                found = found.union(self.isl.UnionMap(f"{{ {self.space} -> {r.array}[{axes}] : {where} }}"))
        return found

    def distances(self) -> Any:
        """All distances between dependent iterations, as a set."""
        if self.dependences.is_empty():
            n = ", ".join(self.names)
            return self.isl.Set(f"{{ S[{n}] : false }}")
        return self.isl.Map.from_union_map(self.dependences).deltas()

    def covered(self, vectors: Any) -> bool:
        """Whether every distance is in one of the vectors of our analysis."""
        distances = self.distances()
        for vector in vectors:
            bounds = ["true"]
            for name, entry in zip(self.names, vector.entries, strict=True):
                if entry.low != -math.inf:
                    bounds.append(f"{name} >= {int(entry.low)}")
                if entry.high != math.inf:
                    bounds.append(f"{name} <= {int(entry.high)}")
            distances = distances.subtract(self.isl.Set(f"{{ {self.space} : {' and '.join(bounds)} }}"))
        return bool(distances.is_empty())

    def parallel(self) -> bool:
        """Whether the library's schedule has a parallel loop, or a permutable band of two loops or more."""
        if self.dependences.is_empty():
            return True
        constraints = self.isl.ScheduleConstraints.on_domain(self.domain)
        constraints = constraints.set_validity(self.dependences).set_coincidence(self.dependences)
        return self._band(constraints.compute_schedule().get_root())

    def _band(self, node: Any) -> bool:
        if node.get_type() == self.isl.schedule_node_type.band:
            members = node.band_n_member()
            if members > 1 and node.band_get_permutable():
                return True
            if any(node.band_member_get_coincident(k) for k in range(members)):
                return True
        return any(self._band(node.get_child(k)) for k in range(node.n_children()))


def _hull(loops: list[Loop], k: int) -> list[Point]:
    """Corners of the box around the outer k indices."""
    ranges: list[tuple[int, int]] = []
    for at in range(k):
        points = list(itertools.product(*ranges))
        ranges.append((min(value(loops[at].low, p) for p in points), max(value(loops[at].high, p) for p in points)))
    return list(itertools.product(*ranges))


# --- what runs before what in a plan --------------------------------------------------------------------------------


def before(visits: Any) -> list[int]:
    """For each visit the set of visits that are certainly finished when it starts, as bits."""
    found = [0] * len(visits)
    done = 0
    every = range(len(visits))
    order = visits.order
    for wave in [[int(v) for v in wave] for wave in visits.waves] or [list(every)]:
        last_row: dict[int, int] = {}
        last_col: dict[int, int] = {}
        for v in sorted(wave):
            mine = done
            for last, block in ((last_row, int(order.row_block[v])), (last_col, int(order.col_block[v]))):
                if block in last:
                    mine |= found[last[block]] | 1 << last[block]
                last[block] = v
            found[v] = mine
        for v in wave:
            done |= 1 << v
    return found


def conflicts(given: Nest) -> Iterator[tuple[Point, Point]]:
    """Pairs of iterations that touch one element, in the order of the loop; others follow from these."""
    written: dict[Any, Point] = {}
    read: dict[Any, list[Point]] = {}
    for point in given.points():
        for write in (False, True):
            for r in given.references:
                if r.write == write and all(value(form, point) >= 0 for form in r.test):
                    key = (r.array, *(value(form, point) for form in r.axes))
                    if write:
                        yield from ((other, point) for other in read.pop(key, []) if other != point)
                    if written.get(key, point) != point:
                        yield written[key], point
                    if write:
                        written[key] = point
                    else:
                        read.setdefault(key, []).append(point)
