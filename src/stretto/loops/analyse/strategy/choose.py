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
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from stretto.errors import PlanError

from ..facts import Access, ArrayExtent, Dim, Strategy, Vector
from ..placement import placements
from ..serial_order import REFUSED
from .last import chain, in_order, inspected
from .question import LoopQuestion
from .remedies import refusal, remedies
from .static import settle, static_strategy

__all__ = ["choose", "placements"]


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
    question = LoopQuestion(dims, tuple(accesses), extents, keeps, buffered, prefer, records, width, kind, said)
    if prefer is not None:
        check_cut(prefer, dims)
    found, rejected = static_strategy(question, vectors)
    if found is None and prefer is not None:
        asked = ("1d",) if len(prefer) == 1 else ("2d unordered", "2d ordered", "2d transformed")
        reasons = "\n".join(f"  {r.strategy}: {r.why}" for r in rejected if r.strategy in asked)
        raise PlanError(f"the loop cannot be cut along {question.names(prefer)} as cut= asks:\n{reasons}")
    if found is None and (inspect or (inspect is None and not serial)):
        found, rejected = settle("inspected", inspected(question, vectors, bool(inspect)), rejected)
    if found is None:
        found, rejected = settle("chain", chain(question, vectors, bool(serial)), rejected)
    single = [d for d, dim in enumerate(dims) if dim.extent == 1]
    if found is None and single:
        # Small data must not make a loop fail, so a dimension with a single value is accepted as a last resort.
        found = Strategy("1d", (single[0],), f"{dims[single[0]].name} has a single value: one visit does it all")
    if found is None:
        clashes, ways = remedies(question, vectors, inspect)
        why = f"nothing runs in parallel: {clashes[0]}"
        found = Strategy("chain", in_order(question), why, clashes=clashes, ways=ways)
    if serial is False and found.name == "chain":
        clashes = found.clashes or (found.why,)
        raise PlanError(refusal(clashes, (*found.ways, REFUSED)))
    return replace(found, rejected=rejected, waves=buffered)


def check_cut(prefer: tuple[int, ...], dims: tuple[Dim, ...]) -> None:
    if not (1 <= len(prefer) <= 2 and len(set(prefer)) == len(prefer) and all(0 <= d < len(dims) for d in prefer)):
        names = ", ".join(f"{d}: {dim.name}" for d, dim in enumerate(dims))
        raise PlanError(f"cut= takes one or two different indices of this loop, not {prefer}; they are {names}")
