"""Strategies that the dependence vectors alone decide: one function for each, in the order in which they are tried.

A function returns the strategy, or in words why it does not apply.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial

from ..dependence import accesses_text, conflicts_text
from ..facts import RejectedStrategy, Strategy, Vector
from .cut_names import in_words
from .question import Answer, LoopQuestion, allowed, cheapest, no_cut
from .unimodular import Matrix, search

MOST_STEPS = 2**17  # of outer indices: each is some visits


def static_strategy(
    question: LoopQuestion, vectors: Sequence[Vector]
) -> tuple[Strategy | None, tuple[RejectedStrategy, ...]]:
    """The first strategy that needs only the vectors, and the strategies rejected before it."""
    attempts: list[tuple[str, Callable[[LoopQuestion, Sequence[Vector]], Answer]]] = [
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
        found, rejected = settle(name, attempt(question, vectors), rejected)
        if found is not None:
            break
    return found, rejected


def settle(
    name: str, answer: Answer, rejected: tuple[RejectedStrategy, ...]
) -> tuple[Strategy | None, tuple[RejectedStrategy, ...]]:
    return (None, (*rejected, RejectedStrategy(name, answer))) if isinstance(answer, str) else (answer, rejected)


def _buffered(question: LoopQuestion, vectors: Sequence[Vector]) -> Answer:
    if vectors:
        return f"writes that are not buffered clash: {conflicts_text(vectors[0])}"
    # Two records with the same indices could be in different parts and race on such a write.
    plain = [a for a in question.accesses if a.writes and all(s.kind != "record" for s in a.subscripts)]
    if plain and question.dims:
        return f"line {plain[0].line} writes {plain[0].text} without a buffer: a cut along an index keeps that safe"
    return Strategy("buffered", (), "every clash is between buffered writes: the records are cut as they come")


def _independent(question: LoopQuestion, vectors: Sequence[Vector]) -> Answer:
    if vectors:
        return conflicts_text(vectors[0])
    if question.prefer is not None and len(question.prefer) == 2:
        return "cut= asks for two indices"
    beside = " without a buffer" if question.buffered else ""
    why = f"no iteration writes{beside} what another one touches"
    cuts = question.singles() or [(d,) for d in range(len(question.dims))]
    return cheapest(question, "independent", cuts, why) if cuts else Strategy("independent", (), why)


def _one(question: LoopQuestion, vectors: Sequence[Vector]) -> Answer:
    def obstacle(cut: tuple[int, ...]) -> Vector | None:
        return next((v for v in vectors if not v.entries[cut[0]].zero), None)

    return allowed(question, "1d", question.singles(), obstacle, "is not 0", " is 0 in every vector")


def _rotation(question: LoopQuestion, vectors: Sequence[Vector]) -> Answer:
    if question.ordered:
        kept = "ordered=True keeps dependent iterations in" if question.asked else "nested ranges keep"
        free = "" if question.asked else "; ordered=False says that any serial order will do"
        return f"{kept} the order of the loop; a rotation does not{free}"

    def obstacle(cut: tuple[int, ...]) -> Vector | None:
        return next((v for v in vectors if not any(v.entries[d].zero for d in cut)), None)

    return allowed(
        question, "2d unordered", question.pairs(), obstacle, "are both not 0", ": one of them is 0 in every vector"
    )


def _rotation_of_several(question: LoopQuestion, vectors: Sequence[Vector]) -> Answer:
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


def _wavefront(question: LoopQuestion, vectors: Sequence[Vector]) -> Answer:
    def obstacle(cut: tuple[int, ...]) -> Vector | None:
        return next((v for v in vectors if not all(v.entries[d].low >= 0 for d in cut)), None)

    return allowed(question, "2d ordered", question.pairs(), obstacle, "are not both ≥ 0", " are ≥ 0 in every vector")


def _transformed(question: LoopQuestion, vectors: Sequence[Vector]) -> Answer:
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
            no_cut(question) if not pairs else "no small skew, interchange or reversal makes every vector point forward"
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


def _stepped(question: LoopQuestion, vectors: Sequence[Vector]) -> Answer:
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
