"""`Analysis`: what is known of one loop before it runs; `analyse_loop` finds it out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stretto.loops.front import loop_tree
from stretto.loops.types.body import Body

from .facts import Access, Strategy, Vector
from .space import Space

if TYPE_CHECKING:
    from stretto.schedule.spec import Schedule

WIDTH = 16


@dataclass(frozen=True, slots=True)
class LoopOptions:
    """Options of `st.parallel` for one loop."""

    ordered: bool | None = None  # whether dependent iterations keep the order of the loop; None: only in ranges
    inspect: bool | None = (
        None  # whether to read the data for iterations that do not conflict; None: if nothing else helps
    )
    serial: bool | None = (
        None  # a loop without a parallel strategy: True runs in its order, None warns too, False raises
    )
    cut: tuple[str, ...] = ()  # names of the indices to cut, space dimension first
    blocks: tuple[int, ...] = ()  # blocks along each of them
    width: int = WIDTH  # visits that may run at the same time; a constant of the plan, not the number of workers
    profile: str = "exact"  # numeric profile
    schedule: Schedule | None = None  # chooses the iterations round by round
    seed: int = 0  # of the schedule
    watch: str = ""  # name of the state whose changes the schedule learns from
    objective: Callable[..., Any] | None = None  # of the arguments of a call; "auto" compares candidates by it


@dataclass(frozen=True, eq=False)
class Analysis:
    """The results of the analysis of one loop of a function."""

    function: loop_tree.Function  # the function
    loop: loop_tree.LoopNest  # the loop
    space: Space  # its iteration space
    body: Body  # its typed body
    accesses: tuple[Access, ...]  # of the body to arrays
    vectors: tuple[Vector, ...]  # dependence vectors
    strategy: Strategy  # how it runs in parallel
    placements: tuple[tuple[str, str, str], ...]  # (array, placement, why)
    options: LoopOptions  # of the user
    consulted: Mapping[str, int]  # numbers whose values the range proofs used
    behind: int  # elements of the arrays behind buffers; every visit has a copy of them
    written: frozenset[str]  # arrays that the loop changes, directly or through a buffer
