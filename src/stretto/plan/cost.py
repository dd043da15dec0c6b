"""What a plan costs, before any work is done: memory, bytes moved, time; and the refusal when it does not fit."""

from __future__ import annotations

import re
from dataclasses import dataclass

from stretto.checks import shown
from stretto.errors import NotEnoughMemory, PlanError

_UNITS = {
    "": 1,
    "b": 1,
    "k": 10**3,
    "kb": 10**3,
    "m": 10**6,
    "mb": 10**6,
    "g": 10**9,
    "gb": 10**9,
    "t": 10**12,
    "tb": 10**12,
}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


@dataclass(frozen=True)
class Cost:
    """Estimates in bytes and items."""

    entries: int
    entry_bytes: int  # all entries, laid out in blocks
    state_bytes: int  # all states
    moved_bytes: int  # read and written by all workers together in one epoch
    flops: int  # floating-point operations of one epoch

    @property
    def memory(self) -> int:
        """Bytes held while the whole plan is in memory."""
        return self.entry_bytes + self.state_bytes


def parse_bytes(text: str | int) -> int:
    """Bytes from a number or a text with a unit.

    >>> parse_bytes("2GiB"), parse_bytes("1.5 MB"), parse_bytes(10)
    (2147483648, 1500000, 10)
    """
    if isinstance(text, int):
        found: float | None = text
    else:
        match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([A-Za-z]*)\s*", text) if isinstance(text, str) else None
        unit = _UNITS.get(match[2].lower()) if match else None
        found = float(match[1]) * unit if match and unit else None
    if found is None or found <= 0:
        raise PlanError(f"cannot read {shown(text)} as an amount of memory; write for example '2GiB' or '500MB'")
    return int(found)


def show_bytes(n: float) -> str:
    """A number of bytes for people.

    >>> show_bytes(3 * 2**30)
    '3.0 GiB'
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n < 1024:
            return f"{n:.0f} B" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024
    return f"{n:.1f} TiB"


def show_flops(n: float) -> str:
    """A number of floating-point operations for people.

    >>> show_flops(7_700), show_flops(2.5e9)
    ('7.7 kflop', '2.5 Gflop')
    """
    for unit in ("flop", "kflop", "Mflop", "Gflop"):
        if n < 1000:
            return f"{n:.3g} {unit}"
        n /= 1000
    return f"{n:.3g} Tflop"


def refuse_if_over(need: int, budget: int | None, remedy: str) -> None:
    """Refuse before any work when `need` bytes exceed the budget (None: unlimited)."""
    if budget is not None and need > budget:
        raise NotEnoughMemory(need, budget, remedy)
