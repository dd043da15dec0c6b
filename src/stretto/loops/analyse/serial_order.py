"""The serial order that a parallel loop is equivalent to, and the warning when it differs from the user's order.

Ranges, ragged records and inspected loops keep their order for all iterations that depend on each other. Sparse and
dense records may be visited in another order. If every iteration adds to an array, as in stochastic gradient descent,
any order is acceptable. If an iteration *overwrites* what another wrote, the result depends on which comes last; then a
loop without `ordered=` warns.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .facts import Access

if TYPE_CHECKING:
    from stretto.loops.front.loop_tree import Function

    from .analysis import Analysis

SILENT = "serial=True: keep it in order, on one worker, without this warning"
_MAY = "serial=True says that this may be"
REFUSED = "leave serial=False out: the loop is compiled and runs in its order, on one worker"


def keeps_order(analysis: Analysis) -> bool:
    """Whether dependent iterations run in the order of the loop as it is written."""
    name, kind = analysis.strategy.name, analysis.space.kind
    if name.endswith("unordered"):
        return False
    sorted_records = kind == "sparse" and (name == "2d ordered" or bool(analysis.options.ordered))
    return not (sorted_records and analysis.vectors)


def in_words(analysis: Analysis) -> str:
    """The serial order that gives the same result, in words."""
    name, kind, ordered = analysis.strategy.name, analysis.space.kind, analysis.options.ordered
    if name.startswith("scheduled"):
        return "that of the chosen iterations, one after the other in the order they were chosen"
    if analysis.strategy.waves or name == "buffered":
        return "that of the visits, wave by wave: within a wave none sees what another adds to a buffer"
    if name.endswith("unordered"):
        other = "the iterations" if kind == "grid" else f"{analysis.space.source}"
        said = "" if ordered is None else ", as ordered=False allows"
        keep = "; ordered=True keeps the order of the indices" if ordered is None else ""
        return f"that of a serial loop over {other} in another order, the plan's{said}{keep}"
    if kind == "sparse" and analysis.vectors and (name == "2d ordered" or ordered):
        return f"that of a serial loop over {analysis.space.source} in the order of its indices, row by row"
    return "that of the loop run serially, in its own order"


def overwritten(analysis: Analysis) -> Access | None:
    """A write that conflicts with other iterations, to an element that its iteration does not read first; or None."""
    read = {(access.array, access.subscripts) for access in analysis.accesses if access.reads}
    for vector in analysis.vectors:
        for access in (vector.first, vector.second):
            if access.mode == "write" and (access.array, access.subscripts) not in read:
                return access
    return None


def warning(analysis: Analysis) -> str | None:
    """The warning for a loop that overwrites elements and has no `ordered=`; None if no warning is needed."""
    if analysis.options.ordered is not None or analysis.options.schedule is not None or keeps_order(analysis):
        return None
    access = overwritten(analysis)
    if access is None:
        return None
    data = analysis.space.source
    return (
        f"{_file(analysis)}:{access.line}: {access.text} is overwritten, and {data} is visited in the order of the "
        "plan, not in its own, so that another record may be the last to write it; pass ordered=True to visit "
        f"{data} in the order of its indices, or ordered=False if any order will do"
    )


def runs_serially(analysis: Analysis) -> str | None:
    """The warning for a loop whose visits run one after the other; None if the user asked for it."""
    if analysis.strategy.name != "chain" or len(analysis.space) < 2 or analysis.options.serial:
        return None
    strategy = analysis.strategy
    head = f"{_file(analysis)}:{analysis.loop.line}: the iterations of this loop run one after the other, on one worker"
    if not strategy.clashes:
        return f"{head}: {strategy.why}; explain() says what stands in the way of each strategy, and {_MAY}"
    what = "\n".join(f"  {one}" for one in strategy.clashes)
    ways = "\n".join(f"  {way}" for way in (*strategy.ways, SILENT))
    told = f"no strategy runs it in parallel with the same result:\n{what}\nways out:\n{ways}"
    return f"{head}; {with_sources(told, analysis.function)}"


def with_sources(problem: str, function: Function) -> str:
    """Add the source of every line that a message names."""
    told: list[str] = []
    shown: set[int] = set()
    for said in problem.splitlines():
        told.append(said)
        lines = {int(n) for n in re.findall(r"\bline (\d+)\b", said)} - shown
        rows = [(n, n - function.line) for n in sorted(lines) if 0 <= n - function.line < len(function.lines)]
        told += [f"      {n} | {function.lines[row].strip()}" for n, row in rows]
        shown |= lines
    return "\n".join(told)


def _file(analysis: Analysis) -> str:
    return analysis.function.file.replace("\\", "/").rpartition("/")[2]
