"""explain() of a loop: strategy and its reason, rejected strategies, dependences, placements, order and cost.

    print(epoch.explain(ratings, W, H))         # numbers and accumulators may be left out

The most important lines come first: the strategy and its reason, then the evidence (space, accesses, dependence
vectors), then the placement of every array, the arithmetic, and the order of the blocks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from stretto.loops.analyse.strategy.cut_names import cut_names, in_words
from stretto.plan import explain as words
from stretto.plan.plan import Plan
from stretto.text import WIDE, counted, fact_lines, show_bytes

from .analyse import serial_order
from .analyse.dependence import VERBS, accesses_text
from .analyse.facts import Access, Dim, Subscript
from .analyse.placement import moved_by_worker
from .analyse.space import Space
from .execute.prefetcher import iterations_in
from .execute.rounds import progress_of
from .front import loop_tree
from .front.bind import BufferInfo
from .types import inventory

if TYPE_CHECKING:
    from .planned_call import PlannedCall, PlannedLoop

Fact = tuple[str, str]

_MEANING = {
    "independent": "no iteration needs another: all blocks may run at once",
    "1d": "blocks of {0} never touch what another one writes: all may run at once",
    "2d unordered": "blocks that differ in both {0} and {1} run together",
    "nd unordered": "blocks that differ in all of {all} run together",
    "2d ordered": "a block waits for those before it along {0} and {1}: dependent iterations keep their order",
    "2d transformed": "a block waits for those before it along {0} and {1}: dependent iterations keep their order",
    "stepped": "the values of {outer} one after the other; in each of them, blocks of {all} as they depend on others",
    "buffered": "the records are cut as they come; a visit does not see what others of its wave write",
    "chain": "one visit after the other, in the order of the loop: no faster than one worker",
    "inspected": "the data were inspected: iterations that meet nowhere run together",
    "scheduled together": "the iterations of a round run at once; none needs another",
    "scheduled buffered": "a round is cut into visits that run at once; none sees what others of its round write",
    "scheduled in turn": "the iterations of a round run one after the other, the most urgent first, on one worker",
}

_STEPS = "one value of {0} after the other; blocks of {1} that belong to it run together"


def explain(plan: PlannedCall) -> str:
    """The text of `explain` for all loops of the function."""
    function = plan.loop.tree
    count = len(plan.parts)
    loops = "" if count == 1 else f", {count} loops"
    lines = [f"{function.name} in {_file(function)}:{function.line}, plan {plan.fingerprint}{loops}"]
    for part, made in zip(plan.parts, plan.plans, strict=True):
        lines += ["", f"line {part.prepared.analysis.loop.line}: {_header(part)}"] if count > 1 else [_header(part)]
        lines += fact_lines(_facts(plan, part, made), WIDE)
    return "\n".join(lines)


def _facts(plan: PlannedCall, part: PlannedLoop, made: Plan) -> Iterator[Fact]:
    yield from _strategy(part)
    if part.prepared.analysis.options.schedule is not None:
        yield from _schedule(plan, part)
    yield "result", serial_order.in_words(part.prepared.analysis)
    for message in (serial_order.warning(part.prepared.analysis), serial_order.runs_serially(part.prepared.analysis)):
        if message:
            yield "warning", message.partition(": ")[2].partition("\n")[0].rstrip(":")
    yield from _ways_out(part)
    yield from words.promise(made)
    yield "space", space_text(part.prepared.analysis.space)
    yield from _accesses(part)
    yield from _vectors(part)
    yield from _rejected(part)
    yield from _placements(plan, part)
    yield from _buffers(plan, part)
    yield from _arithmetic(part)
    if part.prepared.analysis.options.schedule is None:
        yield from _ahead(plan, part)
        yield from _order(part, made)
        yield from _moved(plan, part)
    yield "memory", words.memory(made.cost, "iterations")
    yield "runs on", words.place(made)


def _file(function: loop_tree.Function) -> str:
    return function.file.replace("\\", "/").rpartition("/")[2]


def _header(part: PlannedLoop) -> str:
    """The source lines on which the loop begins."""
    function = part.prepared.analysis.function
    lines = dict.fromkeys(level.line for level in part.prepared.analysis.loop.levels)
    return " ".join(_source(function, line) for line in lines)


def _source(function: loop_tree.Function, line: int) -> str:
    row = line - function.line
    return function.lines[row].strip() if 0 <= row < len(function.lines) else ""


# --- how it runs, and why -------------------------------------------------------------------------------------------


def _strategy(part: PlannedLoop) -> Iterator[Fact]:
    analysis = part.prepared.analysis
    strategy = analysis.strategy
    names = cut_names(analysis)
    meaning = _STEPS if strategy.name == "2d transformed" and not strategy.tiled else _MEANING[strategy.name]
    outer = " and ".join(dim.name for dim in analysis.space.dims[: strategy.outer])
    yield "strategy", f"{strategy.name}: {meaning.format(*names, all=' and '.join(names), outer=outer)}"
    if strategy.waves and strategy.name not in ("buffered", "scheduled buffered"):
        yield "", "in waves, because some writes are buffered: a visit does not see what others of its wave write"
    yield "because", strategy.why
    if part.prepared.visits.found:
        yield "found", part.prepared.visits.found
    if len(strategy.moved) > 1:
        costs = "; ".join(f"{count:,} as {label}" for label, count in strategy.moved)
        yield "", f"elements moved in an epoch, for {analysis.options.width} workers: {costs}"


def _ways_out(part: PlannedLoop) -> Iterator[Fact]:
    """What stands in the way of a parallel run, and changes of the loop that would make it run in parallel."""
    strategy = part.prepared.analysis.strategy
    for name, lines in (("clashes", strategy.clashes), ("ways out", strategy.ways)):
        for k, line in enumerate(lines):
            yield "" if k else name, line


def _schedule(plan: PlannedCall, part: PlannedLoop) -> Iterator[Fact]:
    """The schedule that chooses the iterations, and its input."""
    analysis = part.prepared.analysis
    options, size, index = analysis.options, len(analysis.space), analysis.space.dims[0].name
    assert options.schedule is not None
    if not size:
        yield "schedule", "there is nothing to choose from"
        return
    progress = progress_of(part.prepared, plan.held)
    most = int(max(iterations_in(part.prepared.visits)[wave].sum() for wave in part.prepared.visits.waves))
    yield "schedule", f"{options.schedule.explain()}; seed {options.seed}"
    for line in getattr(progress.chooser, "lines", ()):
        yield "", line
    for choice in progress.choices:
        yield "", f"after round {choice.round:,}: {choice.schedule}, {choice.why}"
    yield "", f"a call makes rounds of up to {most:,} iterations until {size:,} are made"
    yield "learns", f"from how far {progress.watch}[{index}] moves" if progress.watch else "nothing"
    if progress.source and getattr(options.schedule, "conflicts", None):
        yield "conflicts", f"between {progress.source}"


def _rejected(part: PlannedLoop) -> Iterator[Fact]:
    name = "rejected"
    for rejected in part.prepared.analysis.strategy.rejected:
        yield name, f"{rejected.strategy}: {rejected.why}"
        name = ""


# --- the evidence ---------------------------------------------------------------------------------------------------


def space_text(space: Space) -> str:
    """The iteration space in words: `ratings: 900 records; i 0 to 29, j 0 to 19; each with r (float)`."""
    dims = ", ".join(dim_text(dim) for dim in space.dims)
    if space.records is None:
        return f"{dims}: {len(space):,} iterations"
    parts = [f"{name} ({kind}{_own(name, space)})" for name, kind in space.field_kinds]
    for (name, column), ragged in zip(space.ragged, space.ragged_kinds, strict=True):
        kinds = ", ".join(map(str, ragged.types))
        mean = int(column.ptr[-1]) / max(1, len(column.ptr) - 1)
        parts.append(f"{name} (ragged: {kinds}; {mean:,.1f} entries on average)")
    each = f"; each with {', '.join(parts)}" if parts else ""
    return f"{space.source}: {len(space):,} {space.kind} records; {dims}{each}"


def _own(name: str, space: Space) -> str:
    return ", the record's own number" if name in space.unique else ""


def dim_text(dim: Dim) -> str:
    """
    >>> dim_text(Dim("i", 1, 100, 3)), dim_text(Dim("j", 0, 0))
    ('i 1 to 97 by 3', 'j over nothing')
    """
    if not dim.extent:
        return f"{dim.name} over nothing"
    last = dim.start + (dim.extent - 1) * dim.step
    return f"{dim.name} {dim.start:,} to {last:,}" + (f" by {dim.step}" if dim.step != 1 else "")


def _accesses(part: PlannedLoop) -> Iterator[Fact]:
    analysis = part.prepared.analysis
    by_line: dict[int, list[Access]] = {}
    for access in analysis.accesses:
        by_line.setdefault(access.line, []).append(access)
    wide = max((len(access.text) for access in analysis.accesses), default=0)
    name = "accesses"
    for line, group in sorted(by_line.items()):
        yield name, f"line {line}: {_source(analysis.function, line)}"
        name = ""
        for access in group:
            known = "; ".join(subscript_text(s, analysis.space.dims, len(access.subscripts)) for s in access.subscripts)
            yield "", f"  {VERBS[access.mode]:<10} {access.text:<{wide}}  {known}".rstrip()


def subscript_text(subscript: Subscript, dims: tuple[Dim, ...], axes: int = 1) -> str:
    """What is known of one subscript, in words.

    >>> subscript_text(Subscript("index", 0, -1), (Dim("i", 0, 9),))
    'i - 1, exact'
    """
    match subscript.kind:
        case "index":
            offset = subscript.offset
            shift = f" {'-' if offset < 0 else '+'} {abs(offset)}" if offset else ""
            return f"{dims[subscript.dim].name}{shift}, exact"
        case "affine":
            assert subscript.form is not None
            factors = dict(subscript.form.terms)
            text = in_words([factors.get(d, 0) for d in range(len(dims))], [dim.name for dim in dims])
            offset = subscript.form.constant
            shift = f" {'-' if offset < 0 else '+'} {abs(offset)}" if offset else ""
            return f"{text}{shift}, exact"
        case "number":
            return f"always {subscript.offset}"
        case "span":
            return f"{subscript.offset} to {subscript.stop - 1}"
        case "whole":
            return "whole row" if axes > 1 else "every element"
        case "record":
            return "the record's own number: no other iteration has it"
    return f"may be any: {subscript.why or 'known only as it runs'}"


def _vectors(part: PlannedLoop) -> Iterator[Fact]:
    analysis = part.prepared.analysis
    if not analysis.vectors:
        exempt = any(access.mode == "buffer" for access in analysis.accesses)
        why = "what clashes is written through a buffer" if exempt else "no iteration writes what another one touches"
        yield "vectors", f"none: {why}"
        return
    names = ", ".join(dim.name for dim in analysis.space.dims)
    yield "vectors", f"iterations p and p + ({names}) touch the same element, one of them writing it:"
    wide = max(len(str(vector)) for vector in analysis.vectors)
    for vector in analysis.vectors:
        yield "", f"  {vector!s:<{wide}}  {vector.kind:<6}  {accesses_text(vector)}"


# --- placements, and what is computed -------------------------------------------------------------------------------


def _placements(plan: PlannedCall, part: PlannedLoop) -> Iterator[Fact]:
    name = "placements"
    for array, placement, why in part.prepared.analysis.placements:
        yield name, f"{array}: {placement}, {_size(plan, array)}; {why}"
        name = ""


def _size(plan: PlannedCall, array: str) -> str:
    held = plan.held.arrays.get(array)
    if held is None:
        held = plan.held.accumulators[array].array
    shape = " × ".join(f"{n:,}" for n in held.shape) or "one number"
    return f"{shape} of {held.dtype.str[1:]} ({show_bytes(held.nbytes)})"


def _buffers(plan: PlannedCall, part: PlannedLoop) -> Iterator[Fact]:
    analysis, visits = part.prepared.analysis, part.prepared.visits
    used = {array.name for array in analysis.body.arrays if array.role == "buffer"}
    name = "buffers"
    for info in plan.held.infos.values():
        if isinstance(info, BufferInfo) and info.name in used:
            yield name, f"{info.name} stands before {info.target}: {_applied(plan, info)}"
            name = ""
    if visits.waves and analysis.options.schedule is None:
        count, largest = len(visits.waves), max(len(wave) for wave in visits.waves)
        many = (
            f"{count:,} waves of up to {counted(largest, 'visit')}"
            if count > 1
            else f"1 wave of {counted(largest, 'visit')}"
        )
        after = "what a wave wrote is folded in, visit after visit, before the next begins"
        step = "one wave is one time step" if analysis.strategy.transform else "a wave waits for the one before it"
        yield "waves", f"{many}; {after if used else step}"
        if used:
            most = max(int(iterations_in(visits)[wave].sum()) for wave in visits.waves)
            sums = f"a wave adds up the steps of up to {most:,} iterations"
            yield "", f"{sums}; if they are too long for that, use more blocks"


def _applied(plan: PlannedCall, info: BufferInfo) -> str:
    if info.plain:
        return "additions, seen at once by the visit that makes them and by others from the next wave on"
    apply = plan.held.buffers[info.name].apply
    seen = (f"{info.helpers[info.snapshot]} as it was when read",) if info.snapshot >= 0 else ()
    call = f"{getattr(apply, '__name__', 'apply')}({', '.join((info.target, 'delta', *info.helpers, *seen))})"
    call = re.sub(rf"\b{re.escape(info.name)}\.with(\d+)", r"with_[\1]", call)  # a helper that is not an argument
    often = "when a visit ends" if info.every is None else f"every {info.every} iterations"
    return f"{call} for each element, {often if info.every != 1 else 'after every iteration'}"


def _arithmetic(part: PlannedLoop) -> Iterator[Fact]:
    body = part.prepared.analysis.body
    numbers = [f"{name}: {kind}" for name, kind in body.numbers]
    if numbers:
        yield "numbers", f"{', '.join(numbers)} (a Python number takes the type of what it meets)"
    if kinds := inventory.variables(body):
        yield "variables", ", ".join(f"{name}: {kind}" for name, kind in kinds.items())
    fused = [
        " and ".join(f"{n} {where}" for n, where in ((rows, "in rows"), (dots, "in products of rows")) if n)
        + f" on line {line}"
        for line, rows, dots in inventory.fused(body)
    ]
    if fused:
        yield "fused", f"multiply-adds rounded once: {'; '.join(fused)}"
    proven, unsure = inventory.checked(body)
    name = "subscripts"
    if proven:
        yield name, f"proven in range before the loop runs: {', '.join(proven)}"
        name = ""
    if unsure:
        yield name, f"checked as it runs: {', '.join(unsure)}"


def _ahead(plan: PlannedCall, part: PlannedLoop) -> Iterator[Fact]:
    """The accesses that the prefetch function can list before a visit, of arrays with subscripts from the data."""
    reads = [access for access in part.prepared.analysis.accesses if access.reads and access.array in plan.held.arrays]
    if not any(subscript.kind == "any" for access in reads for subscript in access.subscripts):
        return
    sliced = plan.prefetch(plan.parts.index(part)).sliced
    name = "prefetch"
    if listed := list(dict.fromkeys(kept.text for kept in sliced.recorded)):
        yield name, f"a visit's elements of {', '.join(listed)} can be listed before it runs (plan.prefetch())"
        name = ""
    for out in dict.fromkeys((out.text, out.why) for out in sliced.left_out):
        yield name, f"not {out[0]}: {out[1]}"
        name = ""


# --- the order, and its cost ----------------------------------------------------------------------------------------


def _order(part: PlannedLoop, made: Plan) -> Iterator[Fact]:
    order, strategy, visits = made.order, part.prepared.analysis.strategy, part.prepared.visits
    ragged = bool(part.prepared.analysis.space.ragged)
    total = int(visits.weight.sum()) if ragged else made.cost.entries
    blocks = words.blocks(made, "records and their entries" if ragged else "iterations", total)
    sides = (made.logical.rows.blocks, made.logical.cols.blocks)
    grid = f"{sides[0]} × {sides[1]} blocks" if strategy.name.startswith("2d") else counted(len(order), "block")
    yield "grid", f"{grid} from width {made.logical.width}; {blocks}"
    yield "order", f"{order.name}: {counted(len(order), 'visit')} an epoch, {_waiting(part)}"
    yield "bound", words.busy(made.bound())


def _waiting(part: PlannedLoop) -> str:
    strategy, visits = part.prepared.analysis.strategy, part.prepared.visits
    if visits.waves and len(visits.waves) > 1:
        return "a wave waits for the one before it"
    if len(visits) == 1:
        return "all iterations in one"
    if strategy.name == "chain":
        return "each waits for the one before it"
    if strategy.name.startswith(("2d", "nd")) or (strategy.name == "stepped" and strategy.tiled):
        return "no barrier; a visit waits for the earlier visits of its two blocks"
    return "none waits for another"


def _moved(plan: PlannedCall, part: PlannedLoop) -> Iterator[Fact]:
    analysis, waves = part.prepared.analysis, max(1, len(part.prepared.visits.waves))
    arrays = {**{name: a.array for name, a in plan.held.accumulators.items()}, **plan.held.arrays}
    workers = plan.runtime.workers
    shares = {
        name: round(elements * arrays[name].itemsize)
        for name, elements in moved_by_worker(analysis, {n: a.shape for n, a in arrays.items()}, workers, waves)
    }
    listed = ", ".join(f"{name} {show_bytes(share)}" for name, share in shares.items() if share)
    total = show_bytes(sum(shares.values()))
    count = f"each of {workers} workers" if workers > 1 else "the only worker"
    none = "nothing: no worker needs what another one holds"
    yield "moved", f"at most {total} an epoch by {count}: {listed}" if listed else none
