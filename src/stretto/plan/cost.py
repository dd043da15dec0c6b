"""Estimated cost of a plan: memory, bytes moved, floating-point operations; and the error if it exceeds the budget."""

from __future__ import annotations

from dataclasses import dataclass

from stretto.errors import NotEnoughMemory


@dataclass(frozen=True)
class Cost:
    """Estimated memory and work of a plan."""

    entries: int  # number of entries of the data
    entry_bytes: int  # all entries, laid out in blocks
    state_bytes: int  # all states
    moved_bytes: int  # read and written by all workers together in one epoch
    flops: int  # floating-point operations of one epoch

    @property
    def memory(self) -> int:
        """Bytes held while the whole plan is in memory."""
        return self.entry_bytes + self.state_bytes


def refuse_if_over(need: int, budget: int | None, remedy: str) -> None:
    """Refuse before any work when `need` bytes exceed the budget (None: unlimited)."""
    if budget is not None and need > budget:
        raise NotEnoughMemory(need, budget, remedy)
