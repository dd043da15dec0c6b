"""`Stop` and `Shown`: a stop of the tour, and what it found out; pictures out of characters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_WIDTH = 40  # characters of the longest bar


@dataclass(frozen=True)
class Shown:
    """What a stop shows."""

    picture: str  # lines of text
    says: str  # what it means, in plain words
    facts: dict[str, Any]  # name → value
    record: Path | None = None  # a run record, for the page


@dataclass(frozen=True)
class Stop:
    """A stop of the tour."""

    title: str
    asks: str  # the question that it answers
    run: Callable[[Path], Shown] = field(repr=False)  # gets a folder for its files


def bars(rows: Sequence[tuple[str, float, str]]) -> str:
    """A bar for each (label, value, value in words).

    >>> print(bars([("one", 2.0, "2 s"), ("other", 1.0, "1 s")]))
      one    ████████████████████████████████████████  2 s
      other  ████████████████████                      1 s
    """
    wide = max(len(label) for label, _, _ in rows)
    most = max((value for _, value, _ in rows), default=0.0) or 1.0
    return "\n".join(
        f"  {label:<{wide}}  {'█' * max(1, round(_WIDTH * value / most)):<{_WIDTH}}  {words}"
        for label, value, words in rows
    )
