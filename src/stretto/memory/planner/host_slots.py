"""Places in host memory for what is away from the device: lasting storages for good, others while they are away."""

from __future__ import annotations

from .program import OUT, READY, Program


def places(program: Program) -> tuple[dict[int, int], int]:
    """Where each storage lies in one slab on the host (offset in bytes), and how large the slab is.

    A place is given out again once its storage has been read back for the last time: whatever is copied out after that
    follows the computing, and the computing has waited for the reading. Sizes of storages are whole pieces of what a
    device gives out, so places that follow one another are aligned.
    """
    storages = program.graph.storages
    offset: dict[int, int] = {}
    top = 0
    leaving = {which for what, which in program.instructions if what == OUT}
    for s in sorted({*program.on_host, *(s for s in leaving if storages[s].lasting)}):
        offset[s], top = top, top + storages[s].nbytes
    last_read = {which: at for at, (what, which) in enumerate(program.instructions) if what == READY}
    free: dict[int, list[int]] = {}  # offsets by size
    for at, (what, which) in enumerate(program.instructions):
        if what not in (OUT, READY) or storages[which].lasting:
            continue
        size = storages[which].nbytes
        if what == OUT and which not in offset:
            spare = free.get(size)
            if spare:
                offset[which] = spare.pop()
            else:
                offset[which], top = top, top + size
        elif what == READY and last_read[which] == at:
            free.setdefault(size, []).append(offset[which])
    return offset, top
