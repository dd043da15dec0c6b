"""Choice of the parallelisation strategy of a loop from its dependence vectors, and why other strategies do not apply.

Strategies are tried in a fixed order, from the least to the most restricted:

    buffered        every write is through a buffer: the records are cut in their own order
    independent     no vectors: cut any dimension
    1d              a dimension that is 0 in every vector: its blocks never conflict
    2d unordered    two dimensions, one of them 0 in every vector: blocks that differ in both run together (rotation)
    nd unordered    three dimensions or more, one of them 0 in every vector: blocks that differ in all run together
    2d ordered      two dimensions that are ≥ 0 in every vector: block (a, b) waits for (a - 1, b) and (a, b - 1)
    2d transformed  the same after a unimodular transformation
    stepped         the values of outer dimensions one after the other; within one value, `1d` or `2d ordered`
    inspected       only subscripts known at run time prevent the strategies above; not with inspect=False, and with
                    serial=True only if the user passed inspect=True
    chain           visits follow one another in the order of the loop, where nothing else applies; refused with
                    serial=False

Iterations inside a visit keep the order of the loop. So a vector within a block is never an obstacle, and a dimension
that is not cut needs no proof.

Nested ranges keep their order unless the user passes ordered=False: all strategies but the unordered ones keep it for
iterations that depend on each other. The order of records has no meaning by default, so loops over data use the least
restricted strategy.

Of the dimensions (or pairs, space before time) that a strategy allows, the one that fills more of the `width` parts is
preferred, then the one that moves fewer elements in an epoch; `placement` counts them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from stretto.errors import PlanError
from stretto.loops.analyse.analysis import Analysis
from stretto.loops.analyse.dependence import accesses_text, conflicts_text
from stretto.loops.analyse.facts import Access, ArrayExtent, Dim, RejectedStrategy, Strategy, Vector
from stretto.loops.analyse.placement import moved, placements
from stretto.loops.analyse.serial_order import REFUSED
from stretto.loops.analyse.unimodular import Matrix, search

__all__ = ["choose", "placements"]


@dataclass(frozen=True, slots=True)
class _LoopFacts:
    """The input of the choice, except the vectors."""

    dims: tuple[Dim, ...]  # of the iteration space
    accesses: tuple[Access, ...]  # of the body
    extents: Mapping[str, ArrayExtent]  # sizes of the arrays
    ordered: bool  # whether dependent iterations keep the order of the loop
    buffered: bool  # whether some writes are buffered
    prefer: tuple[int, ...] | None  # dimensions that the user wants to cut
    records: int  # number of iterations
    width: int  # parts that should be able to run at once
    kind: str  # of the space: 'grid', 'dense', 'sparse' or 'ragged'
    asked: bool  # whether the user passed ordered=

    def singles(self) -> list[tuple[int, ...]]:
        """Dimensions that may be cut alone: those with more than one value."""
        if self.prefer is not None:
            return [self.prefer] if len(self.prefer) == 1 else []
        return [(d,) for d, dim in enumerate(self.dims) if dim.extent > 1]

    def pairs(self) -> list[tuple[int, ...]]:
        """Pairs (space, time) that may be cut together."""
        if self.prefer is not None:
            return [self.prefer] if len(self.prefer) == 2 else []
        return list(itertools.permutations([d for d, dim in enumerate(self.dims) if dim.extent > 1], 2))

    def names(self, cut: tuple[int, ...]) -> str:
        return " and ".join(self.dims[d].name for d in cut)

    def parts(self, d: int) -> int:
        return max(1, min(self.width, self.dims[d].extent, self.records))

    def cost(self, space: tuple[int, ...], parts: int, steps: int = 1) -> int:
        return moved(self.accesses, self.dims, self.extents, space, parts, math.ceil(parts * steps / self.width))


INSPECT = "leave inspect=False out: the data are searched for iterations that do not meet"  # a way out
MOST_STEPS = 2**17  # of outer indices: each is some visits

Answer: TypeAlias = "Strategy | str"  # a strategy, or in words why it does not apply


def choose(
    vectors: Sequence[Vector],
    dims: tuple[Dim, ...],
    accesses: Sequence[Access],
    extents: Mapping[str, ArrayExtent],
    *,
    ordered: bool | None = None,
    buffered: bool,
    prefer: tuple[int, ...] | None = None,
    inspect: bool | None = None,
    serial: bool | None = None,
    records: int,
    width: int,
    kind: str = "grid",
) -> Strategy:
    """Choose the strategy of a loop.

    A loop that none runs in parallel is a chain, which names the conflicting accesses and remedies; with serial=False
    they are a PlanError.

    Parameters
    ----------
    ordered : bool or None
        True: dependent iterations keep the order of the loop. False: any serial order. None: ranges keep theirs.
    buffered : bool
        Whether some writes are buffered, so that visits run in waves.
    prefer : tuple of int or None
        The dimension, or (space, time), to cut instead of the cheapest.
    inspect : bool or None
        Whether to let the data decide which iterations meet. None: if no other strategy applies and serial is not True.
    serial : bool or None
        Whether a loop that has no parallel strategy may run in its order, on one worker. None: yes, with a warning.
    records, width : int
        Number of iterations, and number of parts that should be able to run at once.
    kind : str
        Kind of the iteration space, as in `space`.
    """
    keeps, said = (kind == "grid" if ordered is None else ordered), ordered is not None
    question = _LoopFacts(dims, tuple(accesses), extents, keeps, buffered, prefer, records, width, kind, said)
    if prefer is not None:
        _check(prefer, dims)
    found, rejected = _static(question, vectors)
    if found is None and prefer is not None:
        asked = ("1d",) if len(prefer) == 1 else ("2d unordered", "2d ordered", "2d transformed")
        reasons = "\n".join(f"  {r.strategy}: {r.why}" for r in rejected if r.strategy in asked)
        raise PlanError(f"the loop cannot be cut along {question.names(prefer)} as cut= asks:\n{reasons}")
    if found is None and (inspect or (inspect is None and not serial)):
        found, rejected = _settle("inspected", _inspected(question, vectors, bool(inspect)), rejected)
    if found is None:
        found, rejected = _settle("chain", _chain(question, vectors, bool(serial)), rejected)
    single = [d for d, dim in enumerate(dims) if dim.extent == 1]
    if found is None and single:
        # Small data must not make a loop fail, so a dimension with a single value is accepted as a last resort.
        found = Strategy("1d", (single[0],), f"{dims[single[0]].name} has a single value: one visit does it all")
    if found is None:
        clashes, ways = _remedies(question, vectors, inspect)
        why = f"nothing runs in parallel: {clashes[0]}"
        found = Strategy("chain", _in_order(question), why, clashes=clashes, ways=ways)
    if serial is False and found.name == "chain":
        clashes = found.clashes or (found.why,)
        raise PlanError(refusal(clashes, (*found.ways, REFUSED)))
    return replace(found, rejected=rejected, waves=buffered)


def refusal(clashes: Sequence[str], ways: Sequence[str]) -> str:
    """What stands in the way of a parallel run, and the ways out, as lines of text."""
    what = ["no strategy runs this loop in parallel with the result of a serial one:", *(f"  {one}" for one in clashes)]
    return "\n".join([*what, *(["ways out:"] if ways else []), *(f"  {way}" for way in ways)])


def _check(prefer: tuple[int, ...], dims: tuple[Dim, ...]) -> None:
    if not (1 <= len(prefer) <= 2 and len(set(prefer)) == len(prefer) and all(0 <= d < len(dims) for d in prefer)):
        names = ", ".join(f"{d}: {dim.name}" for d, dim in enumerate(dims))
        raise PlanError(f"cut= takes one or two different indices of this loop, not {prefer}; they are {names}")


def _settle(
    name: str, answer: Answer, rejected: tuple[RejectedStrategy, ...]
) -> tuple[Strategy | None, tuple[RejectedStrategy, ...]]:
    return (None, (*rejected, RejectedStrategy(name, answer))) if isinstance(answer, str) else (answer, rejected)


def _static(question: _LoopFacts, vectors: Sequence[Vector]) -> tuple[Strategy | None, tuple[RejectedStrategy, ...]]:
    """The first strategy that needs only the vectors, and the strategies rejected before it."""
    attempts: list[tuple[str, Callable[[_LoopFacts, Sequence[Vector]], Answer]]] = [
        ("independent", _independent),
        ("1d", _one),
        ("2d unordered", _rotation),
        ("nd unordered", _rotation_of_several),
        ("2d ordered", _wavefront),
        ("2d transformed", _transformed),
        ("stepped", _stepped),
    ]
    if len(question.dims) < 3:
        attempts = [attempt for attempt in attempts if attempt[0] not in ("nd unordered", "stepped")]
    if question.buffered and question.prefer is None:
        attempts.insert(0, ("buffered", _buffered))
    found: Strategy | None = None
    rejected: tuple[RejectedStrategy, ...] = ()
    for name, attempt in attempts:
        found, rejected = _settle(name, attempt(question, vectors), rejected)
        if found is not None:
            break
    return found, rejected


# --- one function for each strategy ---------------------------------------------------------------------------------


def _buffered(question: _LoopFacts, vectors: Sequence[Vector]) -> Answer:
    if vectors:
        return f"writes that are not buffered clash: {conflicts_text(vectors[0])}"
    # Two records with the same indices could be in different parts and race on such a write.
    plain = [a for a in question.accesses if a.writes and all(s.kind != "record" for s in a.subscripts)]
    if plain and question.dims:
        return f"line {plain[0].line} writes {plain[0].text} without a buffer: a cut along an index keeps that safe"
    return Strategy("buffered", (), "every clash is between buffered writes: the records are cut as they come")


def _independent(question: _LoopFacts, vectors: Sequence[Vector]) -> Answer:
    if vectors:
        return conflicts_text(vectors[0])
    if question.prefer is not None and len(question.prefer) == 2:
        return "cut= asks for two indices"
    beside = " without a buffer" if question.buffered else ""
    why = f"no iteration writes{beside} what another one touches"
    cuts = question.singles() or [(d,) for d in range(len(question.dims))]
    return _cheapest(question, "independent", cuts, why) if cuts else Strategy("independent", (), why)


def _one(question: _LoopFacts, vectors: Sequence[Vector]) -> Answer:
    def obstacle(cut: tuple[int, ...]) -> Vector | None:
        return next((v for v in vectors if not v.entries[cut[0]].zero), None)

    return _allowed(question, "1d", question.singles(), obstacle, "is not 0", " is 0 in every vector")


def _rotation(question: _LoopFacts, vectors: Sequence[Vector]) -> Answer:
    if question.ordered:
        kept = "ordered=True keeps dependent iterations in" if question.asked else "nested ranges keep"
        free = "" if question.asked else "; ordered=False says that any serial order will do"
        return f"{kept} the order of the loop; a rotation does not{free}"

    def obstacle(cut: tuple[int, ...]) -> Vector | None:
        return next((v for v in vectors if not any(v.entries[d].zero for d in cut)), None)

    return _allowed(
        question, "2d unordered", question.pairs(), obstacle, "are both not 0", ": one of them is 0 in every vector"
    )


def _rotation_of_several(question: _LoopFacts, vectors: Sequence[Vector]) -> Answer:
    if question.ordered:
        return "the order of the loop is kept; a rotation does not"
    if question.prefer is not None:
        return f"cut= asks for {len(question.prefer)} of the indices"
    long = [d for d, dim in enumerate(question.dims) if dim.extent > 1]
    for count in range(3, len(long) + 1):
        cuts = [cut for cut in itertools.combinations(long, count)
                if all(any(v.entries[d].zero for d in cut) for v in vectors)]  # fmt: skip
        if cuts:
            best = max(cuts, key=lambda cut: min(question.dims[d].extent for d in cut))
            return Strategy("nd unordered", best, f"{question.names(best)}: one of them is 0 in every vector")
    return f"no three or more indices have a 0 in {vectors[0]}: {accesses_text(vectors[0])}"


def _wavefront(question: _LoopFacts, vectors: Sequence[Vector]) -> Answer:
    def obstacle(cut: tuple[int, ...]) -> Vector | None:
        return next((v for v in vectors if not all(v.entries[d].low >= 0 for d in cut)), None)

    return _allowed(question, "2d ordered", question.pairs(), obstacle, "are not both ≥ 0", " are ≥ 0 in every vector")


def _transformed(question: _LoopFacts, vectors: Sequence[Vector]) -> Answer:
    if question.kind not in ("grid", "dense"):
        return "records have no places in between; write it over range(...)"
    pairs = sorted({tuple(sorted(pair)) for pair in question.pairs()})
    best: tuple[bool, tuple[int, ...], Matrix] | None = None
    for pair in pairs:
        found = search([tuple(v.entries[d] for d in pair) for v in vectors], partial(_least, vectors, pair))
        if found is not None and (best is None or found[1] > best[0]):
            best = (found[1], pair, found[0])
    if best is None:
        return (
            _no_cut(question)
            if not pairs
            else "no small skew, interchange or reversal makes every vector point forward"
        )
    tiled, pair, matrix = best
    time, space = (in_words(row, [question.dims[d].name for d in pair]) for row in matrix)
    why = f"with time {time} and space {space} every vector " + (
        "is ≥ 0 in both" if tiled else "goes forward in time; one value of the first is one time step"
    )
    # No array is subscripted by the new indices, so nothing is owned.
    cost = ((f"time {time}, space {space}", question.cost((), question.parts(pair[1]), question.parts(pair[0]))),)
    return Strategy("2d transformed", pair, why, transform=matrix, tiled=tiled, moved=cost)


def _least(vectors: Sequence[Vector], pair: tuple[int, ...], row: Sequence[int], k: int) -> float:
    return vectors[k].least(pair, row)


def _stepped(question: _LoopFacts, vectors: Sequence[Vector]) -> Answer:
    """Outer dimensions one value after the other; within them, one dimension or two in blocks."""
    if question.kind not in ("grid", "dense"):
        return "records have no places in between; write it over range(...)"
    if question.prefer is not None or question.buffered:
        return (
            "writes are buffered" if question.buffered else f"cut= asks for {len(question.prefer or ())} of the indices"
        )
    long = [d for d, dim in enumerate(question.dims) if dim.extent > 1]
    for outer in range(1, len(question.dims)):
        steps = math.prod(dim.extent for dim in question.dims[:outer])
        inside = [v for v in vectors if all(entry.zero for entry in v.entries[:outer])]
        carried = [v for v in vectors if v not in inside]
        free = [d for d in long if d >= outer]
        if steps > MOST_STEPS:
            return f"{steps:,} values of {question.names(tuple(range(outer)))}, one after the other, are too many"
        ones = [(d,) for d in free if all(v.entries[d].zero for v in inside)]
        pairs = [
            pair for pair in itertools.combinations(free, 2) if all(v.entries[d].low >= 0 for v in inside for d in pair)
        ]
        # Blocks of two dimensions pass their turns on to the next value, so that none has to wait for all the others.
        passing = [pair for pair in pairs if all(any(v.entries[d].low >= 0 for d in pair) for v in carried)]
        for cuts, turns in ((passing, True), (ones, False), (pairs, False)):
            if cuts:
                best = max(cuts, key=lambda cut: (min(question.dims[d].extent for d in cut), cut))
                what = f"{question.names(best)} {'is 0' if cuts is ones else 'are ≥ 0'}"
                why = f"within one value of {question.names(tuple(range(outer)))}, {what} in every vector"
                return Strategy("stepped", best, why, tiled=turns, outer=outer)
    last = min(vectors, key=lambda v: [not entry.zero for entry in v.entries])
    return f"within one value of the outer indices, {accesses_text(last)}: {last}"


def _inspected(question: _LoopFacts, vectors: Sequence[Vector], asked: bool) -> Answer:
    """Waves of iterations that do not meet. asked: whether by the user; counters of inner loops are inspected then."""
    if question.ordered and question.kind == "sparse":
        return "ordered=True: groups without conflicts keep the order of the records, not that of their indices"
    question = replace(question, ordered=False)  # iterations in conflict keep the order of the loop anyway
    unknown = ("any", "affine") if asked else ("any",)
    known = [v for v in vectors if not _has(v, unknown)]
    if len(known) == len(vectors):
        return f"no subscript is left to the data; whatever they are, {conflicts_text(vectors[0])}"
    if _static(question, known)[0] is None:
        return f"whatever the data are, {conflicts_text(_core(question, known)[0])}"
    first = next(v for v in vectors if v not in known)
    return Strategy("inspected", (), f"the data decide which iterations meet: {conflicts_text(first)}")


def _chain(question: _LoopFacts, vectors: Sequence[Vector], serial: bool) -> Answer:
    """Visits one after the other, in the order of the loop; for loops that could run in parallel in another order.

    With serial, for any loop.
    """
    others = [v for v in vectors if v.kind != "output"]
    rest, _ = _static(replace(question, ordered=False), others)
    dims = _in_order(question)
    if rest is None and serial:
        first = _core(replace(question, ordered=False), others)[0]
        return Strategy("chain", dims, f"serial=True, and nothing runs in parallel: {conflicts_text(first)}")
    if rest is None:
        return "a read is among the accesses that clash"
    free, _ = _static(replace(question, ordered=False), vectors)
    if question.ordered and free is not None:
        why = f"the order of the loop is kept; with ordered=False, in another one, it runs as {free.name}"
        return Strategy("chain", dims, why)
    stores = next(v for v in vectors if v.kind == "output")
    return Strategy("chain", dims, f"only stores over stores stand in the way: {conflicts_text(stores)}")


def _in_order(question: _LoopFacts) -> tuple[int, ...]:
    """What a chain cuts: records in their own order, the first index of other spaces."""
    return () if not question.dims or (question.kind == "sparse" and not question.ordered) else (0,)


def _allowed(
    question: _LoopFacts,
    name: str,
    cuts: list[tuple[int, ...]],
    obstacle: Callable[[tuple[int, ...]], Vector | None],
    forbidden: str,
    proof: str,
) -> Answer:
    """The cheapest cut without an obstacle; if there is none, the obstacle of each cut in words."""
    obstacles = {cut: obstacle(cut) for cut in cuts}
    good = [cut for cut, vector in obstacles.items() if vector is None]
    if good:
        return _cheapest(question, name, good, proof)
    # (i, j) and (j, i) meet the same obstacle.
    told = {tuple(sorted(cut)): vector for cut, vector in obstacles.items() if vector is not None}
    reasons = [
        f"{question.names(cut)} {forbidden} in {vector}: {accesses_text(vector)}" for cut, vector in told.items()
    ]
    return "; ".join(reasons) if reasons else _no_cut(question)


def _no_cut(question: _LoopFacts) -> str:
    if question.prefer is not None:
        return f"cut= asks for {len(question.prefer)} of the indices"
    long = [dim.name for dim in question.dims if dim.extent > 1]
    return f"only {long[0]} has more than one value" if long else "no dimension has more than one value"


def _has(vector: Vector, kinds: tuple[str, ...]) -> bool:
    """Whether a subscript of one of the two accesses is of one of these kinds."""
    return any(s.kind in kinds for access in (vector.first, vector.second) for s in access.subscripts)


def in_words(row: Sequence[int], names: Sequence[str]) -> str:
    """A row of a matrix as a linear expression.

    >>> in_words((1, -2), ("i", "j")), in_words((0, 1), ("i", "j"))
    ('i - 2j', 'j')
    """
    text = ""
    for factor, name in zip(row, names, strict=True):
        if factor:
            sign = ("- " if factor < 0 else "+ ") if text else ("-" if factor < 0 else "")
            text += f"{' ' if text else ''}{sign}{'' if abs(factor) == 1 else abs(factor)}{name}"
    return text


# --- the cheapest cut -------------------------------------------------------------------------------------------------


def _cheapest(question: _LoopFacts, name: str, cuts: list[tuple[int, ...]], proof: str) -> Strategy:
    costs = {cut: question.cost(cut[:1], *(question.parts(d) for d in cut)) for cut in cuts}

    def rank(cut: tuple[int, ...]) -> tuple[int, int, int, tuple[int, ...]]:
        return -min(question.parts(d) for d in cut), costs[cut], -question.dims[cut[0]].extent, cut

    best = min(cuts, key=rank)
    told = tuple((_label(question, cut), costs[cut]) for cut in sorted(cuts, key=rank))
    if name == "independent":
        why = f"{proof}; cut along {question.names(best)}"
    else:
        why = f"{question.names(best)}{proof}"
    return Strategy(name, best, why, moved=told)


def _label(question: _LoopFacts, cut: tuple[int, ...]) -> str:
    names = [question.dims[d].name for d in cut]
    return names[0] if len(names) == 1 else f"space {names[0]}, time {names[1]}"


# --- when nothing applies -------------------------------------------------------------------------------------------


def _core(question: _LoopFacts, vectors: Sequence[Vector]) -> list[Vector]:
    """A minimal set of vectors that together rule out every strategy."""
    distinct = {(v.entries, v.kind == "output"): v for v in reversed(vectors)}  # the earliest of each
    core = sorted(distinct.values(), key=vectors.index)
    for vector in reversed(core):
        fewer = [v for v in core if v is not vector]
        if _static(question, fewer)[0] is None:
            core = fewer
    return core


def _summed(question: _LoopFacts, name: str) -> bool:
    """Whether every access to an array is an update of the same element."""
    mine = [access for access in question.accesses if access.array == name]
    written = {(access.line, access.text) for access in mine if access.writes}
    return all((access.line, access.text) in written for access in mine)


def _remedies(
    question: _LoopFacts, vectors: Sequence[Vector], inspect: bool | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(what rules every strategy out, ways out) of a loop that nothing runs in parallel."""
    # Stores over stores, or the order alone, would give a chain before, so other vectors are the reason.
    inspected = _inspected(question, vectors, bool(inspect))
    question = replace(question, ordered=False)
    left = [v for v in vectors if v.kind != "output"]
    core: list[Vector] = []
    arrays: list[str] = []
    while _static(question, left)[0] is None:  # each iteration finds arrays that are a sufficient reason
        core += _core(question, left)
        arrays = list(dict.fromkeys(v.first.array for v in core))
        left = [v for v in left if v.first.array not in arrays]
    what = [conflicts_text(vector) for vector in core]
    if inspect:
        what.append(f"inspect=True does not help: {inspected}")
    ways, fixed = [], []  # fixed: arrays that carry values over a fixed distance, which no buffer can change
    for name in arrays:
        if all(entry.exact for vector in core if vector.first.array == name for entry in vector.entries):
            fixed.append(name)
        else:
            ways.append(
                f"exempt the writes to {name}: pass d{name} = st.buffer({name}) as one more argument and write "
                f"d{name}[...] += …; other visits then see them later"
            )
    for name in arrays:
        if _summed(question, name):
            made = f"pass st.accumulator({name}) in its place, and read the result with get()"
            ways.insert(0, f"if {name} is only added to, make it a sum: {made}")
    if inspect is not None and not inspect and not isinstance(inspected, str):
        ways.insert(0, INSPECT)
    if any(v.first.line != v.second.line for v in core):
        ways.append("split the loop in two, so that the accesses above are in different loops")
    if fixed:
        carried = f"every iteration needs what an earlier one wrote to {' and '.join(fixed)}, at a fixed distance"
        what.append(carried)
    return tuple(what), tuple(ways)


def cut_names(analysis: Analysis) -> tuple[str, ...]:
    """What is cut into blocks, along the rows and along the columns of the grid: i and j, or i and i + j."""
    strategy = analysis.strategy
    names = tuple(analysis.space.dims[dim].name for dim in strategy.dims)
    if strategy.transform:
        return tuple(in_words(row, names) for row in strategy.transform)
    return names or ("records",)
