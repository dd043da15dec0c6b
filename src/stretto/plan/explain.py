"""explain() of a plan: program, order, placements, cost and grade as lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stretto.text import counted, fact_page, show_bytes, show_flops

from .cost import Cost

if TYPE_CHECKING:
    from stretto.schedule.orders.bound import Bound
    from stretto.schedule.orders.order import Order

    from .arrays import Array
    from .grid_plan import GridPlan, Physical

PROMISE = {
    "identical": "same fingerprint, same bits: serially and at any number of workers",
    "replayable": "a recording can be replayed and checked; two runs may differ",
    "statistical": "only the converged loss is promised",
}
PROFILE = {
    "exact": "16 fixed lanes and explicit fused multiply-adds: same bits on every x86-64 processor",
    "fast": "the compiler may reorder sums: same bits only for equal processors and Numba versions",
}


def explain(plan: GridPlan) -> str:
    """Several lines of text about a plan."""
    return fact_page(_heading(plan), _facts(plan))


def _heading(plan: GridPlan) -> str:
    shape = f"{len(plan.logical.rows):,} × {len(plan.logical.cols):,}"
    return f"plan {plan.fingerprint}: {plan.logical.program} on {shape}, {plan.cost.entries:,} entries"


def _facts(plan: GridPlan) -> list[tuple[str, str]]:
    logical, cost, order = plan.logical, plan.cost, plan.order
    settings = ", ".join(f"{name}={value}" for name, value in logical.parameters)
    facts = [
        *promise(plan),
        ("parameters", f"{settings}, seed={logical.seed}"),
        ("grid", f"{order.rows} × {order.cols} blocks from width {logical.width}, cut by histogram"),
        ("blocks", blocks(plan, "entries", cost.entries)),
        ("order", f"{order.name}: {len(order):,} visits a pass, {_waiting(order)}"),
        ("bound", busy(plan.bound())),
    ]
    facts += [("array", array_line(array)) for array in plan.arrays.values() if array.dtype]
    flops = f", {show_flops(cost.flops)}" if cost.flops else ""
    facts += [
        ("memory", memory(cost, "entries")),
        ("per epoch", f"{show_bytes(cost.moved_bytes)} read and written{flops}"),
        ("runs on", place(plan)),
    ]
    return facts


_CUT = {"rows": "cut by rows", "cols": "cut by columns", "visits": "cut by visits"}


def array_line(array: Array) -> str:
    """One array in words: its shape and type, where it is, how it is cut."""
    shape = "×".join(f"{n:,}" for n in array.shape)
    cut = f", {_CUT[array.cut]}" if array.cut else ""
    written = ", written" if array.written else ""
    kind = np.dtype(array.dtype).name
    return f"{array.name} [{shape}] {kind}: {array.placement}{cut}{written}, {show_bytes(array.nbytes)}"


def promise(plan: GridPlan) -> list[tuple[str, str]]:
    """Reproducibility of the results: the grade and the profile."""
    grade, profile = plan.grade, plan.logical.profile
    return [("grade", f"{grade}: {PROMISE[grade]}"), ("profile", f"{profile}: {PROFILE[profile]}")]


def blocks(plan: GridPlan, what: str, total: int) -> str:
    """How evenly the work is cut. what: unit of work, "entries" or "iterations"; total: number of them."""
    mean, heaviest = total / max(1, len(plan.order)), int(plan.weight.max(initial=0))
    return f"{mean:,.0f} {what} on average, {heaviest:,} in the heaviest"


def memory(cost: Cost, what: str) -> str:
    """Memory that the plan needs while it runs."""
    return f"{show_bytes(cost.memory)}: {what} {show_bytes(cost.entry_bytes)}, states {show_bytes(cost.state_bytes)}"


def busy(bound: Bound) -> str:
    """How busy an order can keep n workers."""
    chain = f"the longest chain is {bound.longest / max(1, bound.total):.1%} of the work"
    limit = f"no schedule of this order passes {bound.limit:.0%}"
    return f"{counted(bound.workers, 'worker')} can be busy {bound.efficiency:.0%} of the time ({chain}; {limit})"


def runs_on(physical: Physical) -> str:
    """A runtime and its workers."""
    workers = "" if physical.runtime == "serial" else f", {counted(physical.workers, 'worker')}"
    return f"{physical.runtime}{workers}"


def place(plan: GridPlan) -> str:
    """Where the plan runs: runtime, workers and memory."""
    physical = plan.physical
    where = runs_on(physical)
    if physical.tile is None or physical.memory is None:
        return where
    share = physical.tile**2 / (plan.order.rows * plan.order.cols)
    tile = f"{physical.tile} × {physical.tile} blocks ({share:.1%} of the grid) at a time"
    return f"{where}, streamed from disk within {show_bytes(physical.memory)}: {tile}"


def _waiting(order: Order) -> str:
    if order.row_turn.any() or order.col_turn.any():
        return "no barrier; a visit waits for the earlier visits of its two blocks"
    return "none waits for another"
