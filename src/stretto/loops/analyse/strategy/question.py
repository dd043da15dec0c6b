"""`LoopQuestion`: what the choice of a strategy reads besides the dependence vectors, and the cheapest of several cuts.

Of the dimensions (or pairs, space before time) that a strategy allows, the one that fills more of the `width` parts is
preferred, then the one that moves fewer elements in an epoch; `placement` counts them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ..dependence import accesses_text
from ..facts import Access, ArrayExtent, Dim, Strategy, Vector
from ..placement import moved

Answer: TypeAlias = "Strategy | str"  # a strategy, or in words why it does not apply


@dataclass(frozen=True, slots=True)
class LoopQuestion:
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


def allowed(
    question: LoopQuestion,
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
        return cheapest(question, name, good, proof)
    # (i, j) and (j, i) meet the same obstacle.
    told = {tuple(sorted(cut)): vector for cut, vector in obstacles.items() if vector is not None}
    reasons = [
        f"{question.names(cut)} {forbidden} in {vector}: {accesses_text(vector)}" for cut, vector in told.items()
    ]
    return "; ".join(reasons) if reasons else no_cut(question)


def no_cut(question: LoopQuestion) -> str:
    if question.prefer is not None:
        return f"cut= asks for {len(question.prefer)} of the indices"
    long = [dim.name for dim in question.dims if dim.extent > 1]
    return f"only {long[0]} has more than one value" if long else "no dimension has more than one value"


def cheapest(question: LoopQuestion, name: str, cuts: list[tuple[int, ...]], proof: str) -> Strategy:
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


def _label(question: LoopQuestion, cut: tuple[int, ...]) -> str:
    names = [question.dims[d].name for d in cut]
    return names[0] if len(names) == 1 else f"space {names[0]}, time {names[1]}"
