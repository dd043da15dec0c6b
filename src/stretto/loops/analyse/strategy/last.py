"""Strategies of loops that no static one runs in parallel: an inspection of the data, or the order of the loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..dependence import conflicts_text
from ..facts import Strategy, Vector
from .question import Answer, LoopQuestion
from .static import static_strategy


def inspected(question: LoopQuestion, vectors: Sequence[Vector], asked: bool) -> Answer:
    """Waves of iterations that do not meet. asked: whether by the user; counters of inner loops are inspected then."""
    if question.ordered and question.kind == "sparse":
        return "ordered=True: groups without conflicts keep the order of the records, not that of their indices"
    question = replace(question, ordered=False)  # iterations in conflict keep the order of the loop anyway
    unknown = ("any", "affine") if asked else ("any",)
    known = [v for v in vectors if not _has(v, unknown)]
    if len(known) == len(vectors):
        return f"no subscript is left to the data; whatever they are, {conflicts_text(vectors[0])}"
    if static_strategy(question, known)[0] is None:
        return f"whatever the data are, {conflicts_text(least_obstacles(question, known)[0])}"
    first = next(v for v in vectors if v not in known)
    return Strategy("inspected", (), f"the data decide which iterations meet: {conflicts_text(first)}")


def chain(question: LoopQuestion, vectors: Sequence[Vector], serial: bool) -> Answer:
    """Visits one after the other, in the order of the loop; for loops that could run in parallel in another order.

    With serial, for any loop.
    """
    others = [v for v in vectors if v.kind != "output"]
    rest, _ = static_strategy(replace(question, ordered=False), others)
    dims = in_order(question)
    if rest is None and serial:
        first = least_obstacles(replace(question, ordered=False), others)[0]
        return Strategy("chain", dims, f"serial=True, and nothing runs in parallel: {conflicts_text(first)}")
    if rest is None:
        return "a read is among the accesses that clash"
    free, _ = static_strategy(replace(question, ordered=False), vectors)
    if question.ordered and free is not None:
        why = f"the order of the loop is kept; with ordered=False, in another one, it runs as {free.name}"
        return Strategy("chain", dims, why)
    stores = next(v for v in vectors if v.kind == "output")
    return Strategy("chain", dims, f"only stores over stores stand in the way: {conflicts_text(stores)}")


def in_order(question: LoopQuestion) -> tuple[int, ...]:
    """What a chain cuts: records in their own order, the first index of other spaces."""
    return () if not question.dims or (question.kind == "sparse" and not question.ordered) else (0,)


def _has(vector: Vector, kinds: tuple[str, ...]) -> bool:
    """Whether a subscript of one of the two accesses is of one of these kinds."""
    return any(s.kind in kinds for access in (vector.first, vector.second) for s in access.subscripts)


def least_obstacles(question: LoopQuestion, vectors: Sequence[Vector]) -> list[Vector]:
    """A minimal set of vectors that together rule out every strategy."""
    distinct = {(v.entries, v.kind == "output"): v for v in reversed(vectors)}  # the earliest of each
    core = sorted(distinct.values(), key=vectors.index)
    for vector in reversed(core):
        fewer = [v for v in core if v is not vector]
        if static_strategy(question, fewer)[0] is None:
            core = fewer
    return core
