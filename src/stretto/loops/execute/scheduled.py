"""Planning of loops with a schedule (`schedule=`): strategy of a round, watched state, and columns for conflicts.

    @st.parallel(schedule=st.schedule.prioritised(width=64))
    def sweep(columns, r, beta, scale, lam):
        for j, column in columns:
            ...
            beta[j] = new

Decided before the run: how the iterations of a round run (in parallel, in parallel with buffered writes, or one after
the other), which state is *watched* for the changes that a schedule learns from, and from which data it computes
conflicts between iterations. `loops.layout.round_visits` cuts rounds into visits, `rounds` runs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stretto.checks import function
from stretto.errors import PlanError
from stretto.loops.analyse.dependence import conflicts_text
from stretto.loops.analyse.facts import Access, Strategy, Vector
from stretto.loops.analyse.space import Space
from stretto.loops.front import loop_tree
from stretto.loops.front.bind import BoundValues
from stretto.loops.front.refusals import refuse
from stretto.schedule.automatic.auto import Auto
from stretto.schedule.spec import Schedule

if TYPE_CHECKING:
    from stretto.loops.analyse.analysis import Analysis, LoopOptions

TOGETHER, BUFFERED, IN_TURN = "scheduled together", "scheduled buffered", "scheduled in turn"


@dataclass(frozen=True, eq=False)
class IterationColumns:
    """The data of the iterations, one column for each."""

    matrix: Any = None  # None if unknown
    source: str = ""  # where the columns come from, in words
    why: str = ""  # why they are unknown, in words


def check(options: LoopOptions) -> None:
    """Refuse options that contradict each other."""
    schedule = options.schedule
    if schedule is None:
        for name, given in (("watch", options.watch), ("seed", options.seed), ("objective", options.objective)):
            if given:
                raise PlanError(f"{name}={given!r} is for loops with a schedule; pass schedule= too, or leave it out")
        return
    if options.objective is not None and not isinstance(schedule, Auto):
        raise PlanError(f'objective= is for schedule="auto", and the schedule is {schedule!r}; leave it out')
    if options.objective is not None:
        function("objective", options.objective, "the arguments of the loop", owner="st.parallel")
    if not isinstance(schedule, Schedule):
        raise TypeError(
            f"schedule={schedule!r} is not a schedule; give one of st.schedule, such as st.schedule.prioritised()"
        )
    try:
        hash(schedule)
    except TypeError:
        raise TypeError(f"schedule={schedule!r} cannot be hashed; make it a frozen dataclass") from None
    if schedule.waiting is not None:
        raise PlanError(
            f"schedule={schedule!r}: its jobs wait for each other, and those of a round of a loop do not; leave it "
            "out, a loop over two indices rotates by itself"
        )
    for name in ("ordered", "inspect", "serial", "cut", "blocks"):
        if getattr(options, name):
            raise PlanError(
                f"{name}= and schedule= contradict each other: a schedule chooses which iterations run, and in which "
                "order; leave out one of them"
            )


def strategy_of(
    function: loop_tree.Function,
    loop: loop_tree.LoopNest,
    space: Space,
    vectors: Sequence[Vector],
    accesses: Sequence[Access],
) -> Strategy:
    """How the iterations of a round run. Raise LoopError if a schedule cannot choose among the iterations."""
    loops = [step for step in function.steps if isinstance(step, loop_tree.LoopNest)]
    if len(loops) > 1:
        problem = f"a schedule chooses the iterations of one loop, and {function.name} has {len(loops)}"
        raise refuse(function, loops[1].line, problem, "make a function of each loop")
    if len(space.dims) != 1 or space.kind == "sparse":
        names = ", ".join(dim.name for dim in space.dims)
        raise refuse(
            function,
            loop.line,
            f"a schedule chooses among the values of one index, and an iteration of this loop is one of ({names})",
            "loop over range(...), or over the rows of st.samples(...) or data.group_by(axis)",
        )
    if space.dims[0].step < 0:
        problem = "a schedule numbers the iterations upwards, and this loop counts downwards"
        raise refuse(function, loop.line, problem, "write the range upwards: the schedule chooses the order anyway")
    buffered = any(access.mode == "buffer" for access in accesses)
    if vectors:
        return Strategy(IN_TURN, (0,), conflicts_text(vectors[0]), waves=buffered)
    if buffered:
        return Strategy(BUFFERED, (0,), "every clash is between buffered writes", waves=True)
    return Strategy(TOGETHER, (0,), "no iteration writes what another one touches")


# --- input of a schedule --------------------------------------------------------------------------------------------


def watched(analysis: Analysis, held: BoundValues) -> str:
    """The state whose changes a schedule learns from: the one that an iteration writes at its own index."""
    name, dim = _watched(analysis), analysis.space.dims[0]
    rows, last = len(held.arrays[name]), dim.start + (dim.extent - 1) * dim.step
    if dim.start < 0 or last >= rows:
        raise refuse(
            analysis.function,
            analysis.loop.line,
            f"{dim.name} goes from {dim.start} to {last}, and {name}, which the schedule learns from, has {rows} rows",
            f"loop over what {name} has, or give it a row for each iteration",
        )
    return name


def _watched(analysis: Analysis) -> str:
    space, options = analysis.space, analysis.options
    index = space.dims[0].name
    found = [name for name in sorted(analysis.written) if _follows(analysis, name)]
    wanted = options.watch
    if wanted:
        if wanted in found:
            return wanted
        raise refuse(
            analysis.function,
            analysis.loop.line,
            f"watch={wanted!r}: the loop does not write {wanted}[{index}] and nothing else of it",
            f"watch {' or '.join(found)}" if found else "",
        )
    if len(found) == 1:
        return found[0]
    does = "learns from how far the state of an iteration moves"
    if not found:
        problem = f"{_name(options)} {does}, and no array is written at [{index}] alone"
        remedy = f"write what an iteration finds to an array at [{index}], or take a schedule that does not learn"
    else:
        problem = f"{_name(options)} {does}, and {' and '.join(found)} are both written at [{index}]"
        remedy = f"say which with watch={found[0]!r}"
    raise refuse(analysis.function, analysis.loop.line, problem, remedy)


def _follows(analysis: Analysis, array: str) -> bool:
    """Whether every write to an array is at the iteration's own index."""
    written = [a for a in analysis.accesses if a.array == array and (a.writes or a.mode == "buffer")]
    return bool(written) and all(_own(access) for access in written)


def _own(access: Access) -> bool:
    first = access.subscripts[0] if access.subscripts else None
    return first is not None and first.kind == "index" and first.offset == 0


def _name(options: LoopOptions) -> str:
    return type(options.schedule).__name__


def columns(analysis: Analysis, held: BoundValues) -> IterationColumns:
    """The columns from which a schedule may compute conflicts between iterations.

    A ragged field of (row, value) entries gives a sparse matrix; an array that is read at [j] and nowhere else gives
    [n, p], a view.
    """
    space, dim = analysis.space, analysis.space.dims[0]
    if space.ragged:
        _, column = space.ragged[0]
        if len(space.ragged) > 1 or len(column.parts) != 2 or column.parts[0].dtype.kind not in "iu":
            return IterationColumns(
                why=f"the records of {space.source} hold more, or less, than one list of (row, value)"
            )
        from scipy.sparse import csc_matrix

        rows, values = column.parts
        shape = (int(rows.max(initial=-1)) + 1, len(column))
        made = csc_matrix((values, rows, column.ptr), shape=shape)
        return IterationColumns(made, f"the entries of {space.source}")
    names = matrices(analysis, held)
    if len(names) != 1:
        both = f"{' and '.join(names)} are all read at [{dim.name}]"
        return IterationColumns(why=both if names else f"no matrix is read at [{dim.name}] alone")
    rows_read = held.arrays[names[0]][dim.start : dim.stop : dim.step]
    return IterationColumns(rows_read.T, f"the rows {names[0]}[{dim.name}]")


def matrices(analysis: Analysis, held: BoundValues) -> list[str]:
    """Matrices that are only read, and only at the iteration's own index."""
    found: dict[str, bool] = {}
    for access in analysis.accesses:
        array = held.arrays.get(access.array)
        if array is not None and array.ndim == 2 and access.array not in analysis.written:
            found[access.array] = found.get(access.array, True) and _own(access)
    return [name for name, whole in found.items() if whole]
