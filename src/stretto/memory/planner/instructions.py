"""Instructions of a planned step, and the `DeviceProgram` that is a list of them.

Memory is allocated and freed on the compute stream only, in the order of the list, so the bytes in use at any point
follow from the list alone. Two other streams copy: one to the host, one from it.

    RUN n        run node n: allocate what it makes, run it
    RECOMPUTE n  run node n a second time: its results are needed once more; it writes nothing persistent
    OUT s        begin to copy storage s to the host, as it is now
    EVICT s      wait until that copy is done, then free s
    FREE s       free s (no copy is needed, or the host has one)
    IN s         allocate s and begin to copy it from the host
    READY s      wait until that copy is done
    HOLD n       allocate n unused bytes, so that the next allocation goes elsewhere (`addresses.steering`)
    UNHOLD k     free the k-th of the held allocations, where an operation is to allocate
    RELEASE n    free the n held allocations

Segments of a CUDA graph recording (`run.graph_segments`) also have ALLOCATE s, COPY_IN s (begin to copy s from the host
into its memory) and WAIT_OUT s (wait for a copy to the host whose memory is freed later).

A persistent storage is stored on the host or on the device between steps. If on the host, it has a permanent host
buffer. At the end of a step the device holds nothing of it, and its changes have been copied back. If on the device,
it is resident again when the step ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from .graph import Graph

RUN, RECOMPUTE, OUT, EVICT, FREE, IN, READY, ALLOCATE, WAIT_OUT, COPY_IN, HOLD, UNHOLD, RELEASE = range(13)
NAMES = (
    *("RUN", "RECOMPUTE", "OUT", "EVICT", "FREE", "IN", "READY", "ALLOCATE", "WAIT_OUT", "COPY_IN", "HOLD"),
    *("UNHOLD", "RELEASE"),
)

Instruction = tuple[int, int]  # (what, node or storage)


@dataclass(frozen=True, eq=False)
class DeviceProgram:
    """A planned step: the graph in the order in which it runs, and the instructions."""

    graph: Graph
    instructions: tuple[Instruction, ...]
    on_host: frozenset[int] = field(default_factory=frozenset)  # persistent storages that are stored on the host
    # HOLD, ALLOCATE and RELEASE: how persistent storages that are swapped within a step are allocated at first
    opening: tuple[Instruction, ...] = ()
    arena: int | None = None  # bytes of the block for large allocations, if it was planned (`addresses.steering`)

    def __str__(self) -> str:
        return "\n".join(f"{NAMES[what]} {which}" for what, which in self.instructions)


def total(instructions: Iterable[Instruction], what: int) -> int:
    """The number of instructions of one kind."""
    return sum(1 for kind, _ in instructions if kind == what)
