"""Plans made at random, for tests of executors: arrays of every kind, cuts of every kind, orders of every kind.

A plan has one step or two. Two either swap what is cut by rows and by columns, as a sweep over rows and one over
columns do, or solve one side while they read all of the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as some

from stretto.schedule.orders.order import Order
from stretto.schedule.orders.rotation import independent, panels, rotation
from stretto.schedule.orders.wavefront import chain, wavefront

# Types of (rows, cols, wide, seen_rows, seen_cols, entries, state, shared). Few: each is compiled.
TYPES = (
    ("f4", "f4", "f4", "f4", "f4", "f4", "f4", "f4"),
    ("f8", "f8", "i2", "u1", "i8", "u2", "i4", "f8"),
)
Bounds = tuple[list[int], list[int]]  # first and last of each block


@dataclass(frozen=True)
class StepCase:
    """One step.

    ranges : of each array that is cut, by its name in the kernel
    plain : nothing is fresh, replicated or per visit, so that epochs may be announced ahead
    gathers : before and after read and write what is learned
    goes_on : visits read what their part of the arrays per visit begins as
    spin : how long a visit takes
    """

    order: Order
    weight: list[int]
    ranges: dict[str, Bounds]
    wide_by: str
    plain: bool
    gathers: bool
    goes_on: bool
    spin: int


@dataclass(frozen=True)
class PlanCase:
    """A plan.

    types : of the arrays, as in `TYPES`
    shapes : of the arrays by their names in the plan: "rows 0" is what step 0 calls rows
    alias : arrays of a step that are another step's
    """

    types: tuple[str, ...]
    steps: tuple[StepCase, ...]
    shapes: dict[str, tuple[int, ...]]
    alias: dict[str, str]
    epochs: int
    seed: int

    def called(self, name: str, step: int) -> str:
        """The name in the plan of what step `step` calls so."""
        mine = f"{name} {step}"
        return self.alias.get(mine, mine)


# --- drawing --------------------------------------------------------------------------------------------------------


@some.composite
def orders(draw: some.DrawFn) -> Order:
    """Any order."""
    kind = draw(some.sampled_from(["random", "exchange", "ring", "panels", "wavefront", "independent", "chain"]))
    few = some.integers(1, 5)
    if kind == "exchange":
        return rotation(2 ** draw(some.integers(0, 3)))
    if kind == "ring":
        return rotation(draw(few), "ring")
    if kind == "panels":
        return panels(2 ** draw(some.integers(0, 2)), draw(some.integers(1, 3)))
    if kind == "wavefront":
        return wavefront(draw(few), draw(few))
    if kind == "independent":
        return independent(draw(some.integers(1, 9)))
    if kind == "chain":
        return chain(draw(some.integers(1, 6)))
    rows, cols = draw(few), draw(few)
    pairs = draw(
        some.lists(some.tuples(some.integers(0, rows - 1), some.integers(0, cols - 1)), min_size=1, max_size=20)
    )
    row, col = np.array(pairs, np.int64).T
    return Order("random", rows, cols, np.ascontiguousarray(row), np.ascontiguousarray(col))


def _cut(draw: some.DrawFn, blocks: int) -> tuple[Bounds, int]:
    """Neighbouring ranges, some of them empty; and how long an array has to be."""
    sizes = draw(some.lists(some.integers(0, 4), min_size=blocks, max_size=blocks))
    ends = np.cumsum([0, *sizes]).tolist()
    return (ends[:-1], ends[1:]), ends[-1]


def _overlapping(draw: some.DrawFn, blocks: int) -> tuple[Bounds, int]:
    """Any ranges."""
    pairs = draw(some.lists(some.tuples(some.integers(0, 12), some.integers(0, 6)), min_size=blocks, max_size=blocks))
    first, last = [lo for lo, _ in pairs], [lo + size for lo, size in pairs]
    return (first, last), max(last, default=0)


@some.composite
def steps(draw: some.DrawFn, goes_on: bool) -> tuple[StepCase, dict[str, tuple[int, ...]]]:
    """A step and the shapes of its arrays."""
    order = draw(orders())
    visits, wide_by = len(order), draw(some.sampled_from(["rows", "cols"]))
    # A row of 700 numbers fills a page of memory or more: then blocks do not share one.
    width = some.sampled_from([1, 3, 3, 700])
    ranges: dict[str, Bounds] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for name, blocks in (("rows", order.rows), ("cols", order.cols)):
        ranges[name], length = _cut(draw, blocks)
        shapes[name] = (length, draw(width))
    ranges["wide"], length = _cut(draw, order.rows if wide_by == "rows" else order.cols)
    shapes["wide"] = (draw(some.integers(1, 3)), length)
    for name, blocks in (("seen_rows", order.rows), ("seen_cols", order.cols), ("entries", visits)):
        ranges[name], length = _overlapping(draw, blocks)
        shapes[name] = (length,)
    ranges["state"], length = _cut(draw, visits)
    shapes["state"] = (length,)
    shapes["shared"] = (draw(some.integers(1, 4)), 2)
    weight = draw(some.lists(some.integers(0, 1000), min_size=visits, max_size=visits))
    plain = draw(some.booleans())
    gathers = not plain and draw(some.booleans())
    spin = draw(some.sampled_from([0, 2000, 20_000]))
    return StepCase(order, weight, ranges, wide_by, plain, gathers, goes_on, spin), shapes


@some.composite
def plans(draw: some.DrawFn, goes_on: bool = True) -> PlanCase:
    """A plan of one step or two."""
    kind = draw(some.sampled_from(["one", "one", "swapped", "sides"]))
    drawn = [draw(steps(goes_on)) for _ in range(1 if kind == "one" else 2)]
    alias, cases = {}, [case for case, _ in drawn]
    shapes = {f"{name} {k}": shape for k, (_, made) in enumerate(drawn) for name, shape in made.items()}
    if kind == "swapped":
        alias = {"cols 1": "rows 0", "rows 1": "cols 0"}
    elif kind == "sides":
        alias = {"shared 0": "rows 1", "shared 1": "rows 0"}
    if alias:
        # An array that both steps use is as long as the longer of its two cuts.
        for mine, other in alias.items():
            length = max(shapes[mine][0], shapes[other][0])
            shapes[other] = (length, shapes[other][1])
        for mine in alias:
            del shapes[mine]
        cases = [_shared(case, kind) for case in cases]
    types, epochs, seed = draw(some.sampled_from(TYPES)), draw(some.integers(1, 3)), draw(some.integers(0, 99))
    return PlanCase(types, tuple(cases), shapes, alias, epochs, seed)


def _shared(case: StepCase, kind: str) -> StepCase:
    """With two steps that share arrays, what one writes in between is no constant of the other."""
    return replace(case, plain=case.plain and kind != "sides")
