"""Record in which order an operation allocates and frees memory on a GPU.

The address of a result depends on what the operation allocated before it and freed meanwhile: a convolution that
allocates its workspace first leaves a gap in front of its result. The planner simulates torch's allocator, so it needs
the order. Operations with one result and no workspace of a megabyte need no record: their order is known.

    with recorded(device) as events:
        result = torch.ops.aten.convolution(...)
    order = allocations(events, [result])     # ((-1, 8388608), (0, 4194304), (-2, 0)): workspace, result, free
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch

from stretto.memory.planner.graph import FREED, TEMPORARY

from .arena import SMALL

_EVENTS = 10_000  # events that torch keeps

Order = tuple[tuple[int, int], ...]


@contextmanager
def recorded(device: torch.device) -> Iterator[list[dict[str, Any]]]:
    """Collect the allocator's events within the block.

    The list is filled when the block ends; it stays empty where this version of torch keeps no record.
    """
    events: list[dict[str, Any]] = []
    mark: Any = None
    with suppress(RuntimeError, TypeError, AttributeError):
        torch.cuda.memory._record_memory_history("all", context=None, max_entries=_EVENTS)
        mark = torch.empty(1, dtype=torch.uint8, device=device)  # events before it belong to others
    try:
        yield events
    finally:
        with suppress(RuntimeError, TypeError, AttributeError, KeyError, IndexError):
            if mark is not None:
                traces = torch.cuda.memory._snapshot()["device_traces"]
                found = next(one for one in traces if any(_begins(event, mark) for event in one))
                last = max(at for at, event in enumerate(found) if _begins(event, mark))
                events += found[last + 1 :]
        with suppress(RuntimeError, TypeError, AttributeError):
            torch.cuda.memory._record_memory_history(None)


def _begins(event: dict[str, Any], mark: torch.Tensor) -> bool:
    return bool(event["action"] == "alloc" and event["addr"] == mark.data_ptr())


def allocations(events: Sequence[dict[str, Any]], results: Sequence[Any]) -> Order:
    """The large allocations among the events.

    Returns
    -------
    tuple of (int, int)
        (k, bytes) for the k-th result, (TEMPORARY, bytes) for other allocations, (FREED, n) where entry n of this list
        is freed.
    """
    numbered = [(k, one) for k, one in enumerate(results) if isinstance(one, torch.Tensor)]
    number = {one.untyped_storage().data_ptr(): k for k, one in reversed(numbered)}
    order: list[tuple[int, int]] = []
    live: dict[int, int] = {}  # by address: the index of its allocation in `order`
    for event in events:
        if event["action"] == "alloc" and event["size"] > SMALL:
            live[event["addr"]] = len(order)
            order.append((TEMPORARY, int(event["size"])))
        elif event["action"] == "free_requested" and event["addr"] in live:
            order.append((FREED, live.pop(event["addr"])))
    for address, at in live.items():  # an allocation that is live at the end is a result
        if address in number:
            order[at] = number[address], order[at][1]
    return tuple(order)


def plain(order: Order, sizes: Sequence[int]) -> bool:
    """Whether an order adds nothing: at most one large allocation, for a result of about its size."""
    if len(order) > 1:
        return False
    return all(what >= 0 and nbytes <= sizes[what] + SMALL // 2 for what, nbytes in order)
