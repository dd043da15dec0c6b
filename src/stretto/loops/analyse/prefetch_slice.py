"""Program slicing for prefetch: reduce a loop body to the statements that compute its subscripts.

    for i, (y, features) in samples:            for i, (y, features) in samples:
        z = 0.0                                     for f, x in features:
        for f, x in features:            →              record read w[f]
            z += w[f] * x
        ...

    sliced = slice_body(body, {"w"})
    sliced.body         a typed body again, in which every read of `w` has become a record
    sliced.left_out     accesses that are not recorded, and why

This is a form of dead-code elimination: a statement stays if a recorded subscript, or a test or bound that leads to
one, depends on it; this is repeated until nothing changes. A subscript that needs values of arrays that the loop writes
is not known ahead, and neither is an access in a branch or loop that such values control. Arrays that the loop never
writes are read normally.

A record is a `BufferAdd` statement, for which the executor of the body calls a hook. Its buffer is the mode and the
array (`"read w"`), its index is the first element, its value the number of consecutive elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from stretto.loops.types.body import Body
from stretto.loops.types.statements import arrays_read, pruned, trimmed

from .slicer import LoopFrame, RecordedAccess, SkippedAccess, Slicer, mutable

MODES = ("read", "write", "buffer")


@dataclass(frozen=True, slots=True)
class PrefetchSlice:
    """A body of records.

    `numbers` and `reads` are the numbers and arrays whose values it needs; `arrays` includes those of which it needs
    only the shape.
    """

    body: Body  # the sliced body
    recorded: tuple[RecordedAccess, ...]  # accesses that are recorded
    left_out: tuple[SkippedAccess, ...]  # accesses that are not recorded, and why

    @property
    def numbers(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.body.numbers)

    @property
    def arrays(self) -> tuple[str, ...]:
        return tuple(array.name for array in self.body.arrays if array.role in ("state", "captured"))

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(name for name in self.arrays if name in arrays_read(self.body.steps))


def slice_body(
    body: Body,
    arrays: Iterable[str],
    *,
    modes: Iterable[str] = ("read",),
    behind: Mapping[str, tuple[str, ...]] | None = None,
    loosely: bool = False,
) -> PrefetchSlice:
    """The smallest body that still computes the subscripts with which `arrays` are accessed.

    Parameters
    ----------
    modes : set of str
        Accesses to record: 'read', 'write', 'buffer'.
    behind : mapping
        For each buffer its target, then the other arrays it changes.
    loosely : bool
        Also record what *may* be accessed, on both sides of a branch that is not known ahead.
    """
    slicer = Slicer(body, frozenset(arrays), frozenset(modes), behind or {}, loosely)
    while True:
        before = set(slicer.needed)
        slicer.recorded, slicer.left_out = {}, {}
        steps = slicer.block(body.steps, {}, "", LoopFrame())
        if slicer.needed == before:
            break
    left_out = tuple(slicer.left_out)
    bare = {(skipped.line, skipped.array, skipped.mode, skipped.text) for skipped in left_out}
    recorded = tuple(kept for kept in slicer.recorded if (kept.line, kept.array, kept.mode, kept.text) not in bare)
    return PrefetchSlice(pruned(body, trimmed(steps), slicer.behind), recorded, left_out)


__all__ = ["MODES", "PrefetchSlice", "RecordedAccess", "SkippedAccess", "mutable", "slice_body"]
