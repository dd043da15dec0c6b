"""What stands in the way of a loop that nothing runs in parallel, and changes of the loop that would help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..dependence import conflicts_text
from ..facts import Vector
from .last import inspected, least_obstacles
from .question import LoopQuestion
from .static import static_strategy

INSPECT = "leave inspect=False out: the data are searched for iterations that do not meet"  # a way out


def refusal(clashes: Sequence[str], ways: Sequence[str]) -> str:
    """What stands in the way of a parallel run, and the ways out, as lines of text."""
    what = ["no strategy runs this loop in parallel with the result of a serial one:", *(f"  {one}" for one in clashes)]
    return "\n".join([*what, *(["ways out:"] if ways else []), *(f"  {way}" for way in ways)])


def _summed(question: LoopQuestion, name: str) -> bool:
    """Whether every access to an array is an update of the same element."""
    mine = [access for access in question.accesses if access.array == name]
    written = {(access.line, access.text) for access in mine if access.writes}
    return all((access.line, access.text) in written for access in mine)


def remedies(
    question: LoopQuestion, vectors: Sequence[Vector], inspect: bool | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(what rules every strategy out, ways out) of a loop that nothing runs in parallel."""
    # Stores over stores, or the order alone, would give a chain before, so other vectors are the reason.
    found = inspected(question, vectors, bool(inspect))
    question = replace(question, ordered=False)
    left = [v for v in vectors if v.kind != "output"]
    core: list[Vector] = []
    arrays: list[str] = []
    while static_strategy(question, left)[0] is None:  # each iteration finds arrays that are a sufficient reason
        core += least_obstacles(question, left)
        arrays = list(dict.fromkeys(v.first.array for v in core))
        left = [v for v in left if v.first.array not in arrays]
    what = [conflicts_text(vector) for vector in core]
    if inspect:
        what.append(f"inspect=True does not help: {found}")
    ways, fixed = [], []  # fixed: arrays that carry values over a fixed distance, which no buffer can change
    for name in arrays:
        if all(entry.exact for vector in core if vector.first.array == name for entry in vector.entries):
            fixed.append(name)
        else:
            ways.append(
                f"exempt the writes to {name}: pass d{name} = st.buffer({name}) as one more argument and write "
                f"d{name}[...] += …; other visits then see them later"
            )
    for name in arrays:
        if _summed(question, name):
            made = f"pass st.accumulator({name}) in its place, and read the result with get()"
            ways.insert(0, f"if {name} is only added to, make it a sum: {made}")
    if inspect is not None and not inspect and not isinstance(found, str):
        ways.insert(0, INSPECT)
    if any(v.first.line != v.second.line for v in core):
        ways.append("split the loop in two, so that the accesses above are in different loops")
    if fixed:
        carried = f"every iteration needs what an earlier one wrote to {' and '.join(fixed)}, at a fixed distance"
        what.append(carried)
    return tuple(what), tuple(ways)
