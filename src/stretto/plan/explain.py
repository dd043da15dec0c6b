"""A plan in words a person can check: what runs, in which order, where things live, what it costs, what is promised."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .cost import show_bytes

if TYPE_CHECKING:
    from stretto.schedule.order import Order

    from .plan import Plan

_PROMISE = {
    "identical": "same fingerprint, same bits: serially and at any number of workers",
    "replayable": "a recording can be replayed and checked; two runs may differ",
    "statistical": "only the converged loss is promised",
}
_PROFILE = {
    "exact": "16 fixed lanes and explicit fused multiply-adds: same bits on every x86-64 processor",
    "fast": "the compiler may reorder sums: same bits only for equal processors and Numba versions",
}


def explain(plan: Plan) -> str:
    """Several lines of text about a plan."""
    return "\n".join([_heading(plan), *(f"  {name:<11} {text}" for name, text in _facts(plan))])


def _heading(plan: Plan) -> str:
    shape = f"{len(plan.logical.rows):,} × {len(plan.logical.cols):,}"
    return f"plan {plan.fingerprint}: {plan.logical.program} on {shape}, {plan.cost.entries:,} entries"


def _facts(plan: Plan) -> list[tuple[str, str]]:
    logical, cost, order = plan.logical, plan.cost, plan.order
    settings = ", ".join(f"{name}={value}" for name, value in logical.parameters)
    mean, heaviest = cost.entries / max(1, len(order)), int(plan.weight.max(initial=0))
    facts = [
        ("grade", f"{plan.grade}: {_PROMISE[plan.grade]}"),
        ("profile", f"{logical.profile}: {_PROFILE[logical.profile]}"),
        ("parameters", f"{settings}, seed={logical.seed}"),
        ("grid", f"{order.rows} × {order.cols} blocks from width {logical.width}, cut by histogram"),
        ("blocks", f"{mean:,.0f} entries on average, {heaviest:,} in the heaviest"),
        ("order", f"{order.name}: {len(order):,} visits a pass, {_waiting(order)}"),
        ("bound", _bound(plan)),
    ]
    for binding in plan.bindings:
        where = "" if binding.axis == "none" else f", in blocks along the {binding.axis}"
        facts.append(("state", f"{binding.state}: {binding.placement}{where}, {show_bytes(binding.nbytes)}"))
    held = f"entries {show_bytes(cost.entry_bytes)}, states {show_bytes(cost.state_bytes)}"
    facts += [
        ("memory", f"{show_bytes(cost.memory)}: {held}"),
        ("per epoch", f"{show_bytes(cost.moved_bytes)} read and written, {cost.flops / 1e9:.2f} Gflop"),
        ("runs on", _place(plan)),
    ]
    return facts


def _workers(count: int) -> str:
    return f"{count} worker{'s' if count > 1 else ''}"


def _bound(plan: Plan) -> str:
    bound = plan.bound()
    chain = f"the longest chain is {bound.longest / max(1, bound.total):.1%} of the work"
    limit = f"no schedule of this order passes {bound.limit:.0%}"
    return f"{_workers(bound.workers)} can be busy {bound.efficiency:.0%} of the time ({chain}; {limit})"


def _place(plan: Plan) -> str:
    physical = plan.physical
    place = f"{physical.runtime}, {_workers(physical.workers)}"
    if physical.tile is None or physical.memory is None:
        return place
    share = (physical.tile / plan.order.rows) ** 2
    tile = f"{physical.tile} × {physical.tile} blocks ({share:.1%} of the grid) at a time"
    return f"{place}, streamed from disk within {show_bytes(physical.memory)}: {tile}"


def _waiting(order: Order) -> str:
    if order.row_turn.any() or order.col_turn.any():
        return "no barrier; a visit waits for the earlier visits of its two blocks"
    return "none waits for another"
