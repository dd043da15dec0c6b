"""What the integer set library (islpy) says of a random nest, and whether a plan of it keeps every dependence."""

from __future__ import annotations

import itertools
import linecache
import math
import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import stretto as st
from stretto.errors import PlanError
from stretto.loops.layout.traversal import iterations
from stretto.testing.loops import reference

from .loops_nests import NAMES, Form, Loop, Nest, Point, conflicts, nest, value

FINEST = (64, 64)  # blocks: more than any of these indices has values, so that every value is a block


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
        meets = [one.apply_range(two.reverse()) for one, two in ((writes, reads), (reads, writes), (writes, writes))]
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
        cases = [" and ".join([f"p{m} = q{m}" for m in range(k)] + [f"p{k} < q{k}"]) for k in n]
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


# --- one nest -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What became of a nest."""

    depth: int
    triangular: bool  # whether a bound depends on an outer index
    parallel: bool  # whether the library finds parallelism
    strategy: str  # ours; 'refused' where there is none
    exact: bool  # whether we found no dependence where there is none

    @property
    def found(self) -> bool:
        """Whether we run it in parallel."""
        return self.strategy not in ("refused", "chain")


def plain_function(source: str, name: str) -> Callable[..., Any]:
    """The function `loop` of a source text."""
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    around: dict[str, Any] = {}
    exec(compile(source, name, "exec"), around)
    made: Callable[..., Any] = around["loop"]
    return made


def examine(seed: int, *, interpreted: bool = False, compiled: bool = False) -> Outcome:
    """Plan the nest of a seed, and check the plan; AssertionError where a dependence is missed or a result differs.

    The vectors contain every distance that the library finds; the plan, cut as finely as possible, runs every iteration
    once, and dependent ones in their order whatever the timing; plain Python in the order of the plan gives what it
    gives in the order of the loop, and so do the reference interpreter with `interpreted` and two threads with
    `compiled`, bit for bit.
    """
    given = nest(random.Random(seed))
    oracle = Oracle(given)
    plain = plain_function(given.source, f"<nest {seed}>")
    loop = st.parallel(blocks=FINEST)(plain)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            plan = loop.plan(**_fresh(given))
        except PlanError:
            return Outcome(given.depth, not given.plain_ranges, oracle.parallel(), "refused", False)
    part = plan.parts[0].prepared
    analysis, visits = part.analysis, part.visits
    dims = len(analysis.space.dims)
    if dims == given.depth:
        assert oracle.covered(analysis.vectors), f"a distance is missed in nest {seed}:\n{given.source}"
    every, visit, points = {point[:dims] for point in given.points()}, {}, []
    waves = [wave.tolist() for wave in visits.waves] or [list(range(len(visits)))]
    for v in itertools.chain(*waves):
        for point, _ in iterations(visits, analysis.space, v):
            visit[point] = v
            points.append(point)
    inside = [point for point in points if point in every]
    assert len(inside) == len(every) == len(set(inside)), f"iterations are left out of nest {seed}:\n{given.source}"
    finished = before(visits)
    for p, q in conflicts(given):
        first, second = visit[p[:dims]], visit[q[:dims]]
        assert first == second or finished[second] >> first & 1, f"{p} and {q} race in nest {seed}:\n{given.source}"
    wanted = _fresh(given)
    plain(**wanted)
    found = [_in_order(given, dims, inside, seed)]
    if interpreted:
        found.append(reference(plan).arrays)
    if compiled:
        found.append(_fresh(given))
        loop.using(runtime=st.Threads(2))(**found[-1])
    for arrays in found:
        same = all(np.array_equal(arrays[name], wanted[name]) for name in "AB")
        assert same, f"nest {seed} differs:\n{given.source}"
    exact = not oracle.dependences.is_empty() or not analysis.vectors
    return Outcome(given.depth, not given.plain_ranges, oracle.parallel(), analysis.strategy.name, exact)


def _in_order(given: Nest, dims: int, points: list[Point], seed: int) -> dict[str, Any]:
    """The arrays after a run of the body in plain Python over the values of the outer `dims` indices, in this order."""
    head, *lines = given.source.splitlines()
    body = [line[4 * (dims - 1) :] for line in lines[dims:]]
    over = [head.replace("loop(", "loop(points, "), f"    for ({', '.join(NAMES[:dims])},) in points:", *body]
    arrays = _fresh(given)
    plain_function("\n".join(over) + "\n", f"<nest {seed} in order>")(points, **arrays)
    return arrays


def _fresh(given: Nest) -> dict[str, Any]:
    return {name: x.copy() if isinstance(x, np.ndarray) else x for name, x in given.arguments.items()}
