"""Random small loops, and what their iterations really touch, for the tests of dependences and strategies."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence

from stretto.loops.analyse.facts import Access, Dim, Subscript

SIZE = 9  # of every axis of every array

Point = tuple[int, ...]  # the number of an iteration along each dimension


def number(value: int) -> Subscript:
    return Subscript("number", offset=value)


def index(dim: int, offset: int = 0) -> Subscript:
    return Subscript("index", dim, offset)


def span(start: int, stop: int) -> Subscript:
    return Subscript("span", offset=start, stop=stop)


WHOLE, ANY, RECORD = Subscript("whole"), Subscript("any", why="features[k] is data"), Subscript("record")


def access(mode: str, array: str, *subscripts: Subscript, line: int = 1, text: str = "") -> Access:
    return Access(array, mode, subscripts, line, text or array)


def random_dims(draw: random.Random, most: int) -> tuple[Dim, ...]:
    dims = []
    for name in "ijk"[: draw.randint(1, most)]:
        start, step, extent = draw.randint(-1, 3), draw.choice((1, 1, 1, 2, 3, -1)), draw.choice((1, 2, 3, 4, 4, 5))
        dims.append(Dim(name, start, start + step * extent, step))
    return tuple(dims)


def random_subscript(draw: random.Random, dims: Sequence[Dim]) -> Subscript:
    kind = draw.choice(("index", "index", "index", "index", "number", "span", "whole", "any", "record"))
    if kind == "index":
        return index(draw.randrange(len(dims)), draw.randint(-3, 3))
    if kind == "number":
        return number(draw.randint(-3, SIZE - 1))
    if kind == "span":
        return span(draw.randint(-SIZE, SIZE), draw.randint(-SIZE, SIZE))
    return Subscript(kind)


def random_accesses(draw: random.Random, dims: Sequence[Dim], arrays: str, most: int) -> list[Access]:
    """Up to `most` accesses to every array, each array with 1 or 2 axes (3 where there are as many dimensions)."""
    found: list[Access] = []
    for array in arrays:
        axes = draw.randint(1, max(2, len(dims)))
        for _ in range(draw.randint(1, most)):
            mode = draw.choice(("read", "read", "write", "write", "update", "buffer"))
            subscripts = tuple(random_subscript(draw, dims) for _ in range(axes))
            found.append(Access(array, mode, subscripts, len(found) + 1, f"{array}{len(found)}"))
    return found


def space(dims: Sequence[Dim]) -> Iterator[Point]:
    return itertools.product(*(range(dim.extent) for dim in dims))


def dependent(accesses: Sequence[Access], dims: tuple[Dim, ...]) -> Iterator[tuple[Point, Point, Access, Access]]:
    """Every two different iterations, in the order of the loop, that touch one element, a plain write among them."""
    touched = {(p, k): _elements(a, p, dims) for p in space(dims) for k, a in enumerate(accesses)}
    for p, q in itertools.combinations(space(dims), 2):
        for (k, a), (m, b) in itertools.product(enumerate(accesses), repeat=2):
            clash = a.array == b.array and (a.writes or b.writes)
            if clash and all(_share(x, y) for x, y in zip(touched[p, k], touched[q, m], strict=True)):
                yield p, q, a, b


def _elements(access: Access, point: Point, dims: Sequence[Dim]) -> list[frozenset[object] | None]:
    """For each axis the positions that are touched, None for all of them."""
    axes: list[frozenset[object] | None] = []
    for s in access.subscripts:
        if s.kind == "index":
            axes.append(frozenset([dims[s.dim].start + dims[s.dim].step * point[s.dim] + s.offset]))
        elif s.kind == "number":
            axes.append(frozenset([range(SIZE)[s.offset]]))
        elif s.kind == "span":
            axes.append(frozenset(range(SIZE)[s.offset : s.stop]))
        elif s.kind == "record":
            axes.append(frozenset([point]))
        else:
            axes.append(None)
    return axes


def _share(x: frozenset[object] | None, y: frozenset[object] | None) -> bool:
    for one, other in ((x, y), (y, x)):
        if one is None:
            return other is None or bool(other)
        if any(isinstance(value, tuple) for value in one) and not any(isinstance(v, tuple) for v in other or ()):
            return other is None or bool(other)  # the number of a record may be any position
    return bool((x or frozenset()) & (y or frozenset()))
