"""Assign host addresses to storages: permanent ones to persistent storages, to others while they are off the device."""

from __future__ import annotations

from .instructions import OUT, READY, DeviceProgram


def places(program: DeviceProgram) -> tuple[dict[int, int], int]:
    """The offset of each storage in one host buffer, in bytes, and the size of the buffer.

    An offset is used again once its storage has been read back for the last time. That is safe: later copies to the
    host follow the computation, and the computation has waited for that read. Storage sizes are multiples of the
    device allocator's granularity, so consecutive offsets are aligned.
    """
    storages = program.graph.storages
    offset: dict[int, int] = {}
    top = 0
    leaving = {which for what, which in program.instructions if what == OUT}
    for s in sorted({*program.on_host, *(s for s in leaving if storages[s].persistent)}):
        offset[s], top = top, top + storages[s].nbytes
    last_read = {which: at for at, (what, which) in enumerate(program.instructions) if what == READY}
    free: dict[int, list[int]] = {}  # offsets by size
    for at, (what, which) in enumerate(program.instructions):
        if what not in (OUT, READY) or storages[which].persistent:
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
