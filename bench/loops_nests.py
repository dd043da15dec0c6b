"""Random loop nests with affine subscripts, for the oracle of the loop analysis.

A nest has one to four ranges, some of which count down, in steps of two, or from and to bounds that depend on outer
indices; its body has one or two statements over arrays with one to three axes, some of them under a test. Subscripts
are an index plus a constant or other linear forms: 2 * i, n - 1 - i, i + j, i * m + j. Distances between subscripts
of one array are small, so that most nests have dependences.
"""

from __future__ import annotations

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
    if crossing := depth > 2 and draw.random() < 0.12:
        axes["A"] = 2
    texts: list[tuple[Reference, str, list[Reference], tuple[Form, ...]]] = []
    for _ in range(statements):
        test: tuple[Form, ...] = (_test(draw, depth),) if draw.random() < 0.15 and depth > 1 else ()
        target = _reference(draw, depth, "A" if draw.random() < 0.8 else "B", axes, True, test)
        reads = [_reference(draw, depth, draw.choice("AAB"), axes, False, test) for _ in range(draw.choice((1, 1, 2)))]
        if crossing:
            target, *reads = _crossing(draw, depth, test)
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
    arrays = {name: rng.integers(-40, 40, [size[name, axis] for axis in range(axes[name])]) for name in "AB"}
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
    if kind < 0.72 or (depth == 1 and kind < 0.8):
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


def _crossing(draw: random.Random, depth: int, test: tuple[Form, ...]) -> list[Reference]:
    """A[i, j] from A[i, k] and A[k, j], as in Floyd and Warshall's loop, for an outer index k; shifted a little."""
    one, two, outer = depth - 2, depth - 1, draw.randrange(depth - 2)

    def at(dim: int, shift: int = 0) -> Form:
        return tuple(int(d == dim) for d in range(depth)), shift

    read = [(at(one), at(outer, draw.choice((0, 0, 1)))), (at(outer, draw.choice((0, 0, -1))), at(two))]
    read += [(at(one, draw.choice((0, -1))), at(two, draw.choice((0, -1))))] * draw.randrange(2)
    found = [Reference("A", (at(one), at(two)), True, test)]
    return found + [Reference("A", axes, False, test) for axes in draw.sample(read, draw.choice((1, 2, len(read))))]


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
