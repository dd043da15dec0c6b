"""Problems found in a file, and what the reader does about each (`on_error`).

"raise"   the first bad line ends the reading with a `FormatError` that names it
"skip"    bad lines are left out and counted; one warning at the end gives their number and the first of them
"collect" as "skip", but silent and with the first of each kind kept, for `stretto info`
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field

from stretto.errors import DataError, FormatError

KEPT = 10  # problems of one kind that are kept with their lines


class BadLinesWarning(UserWarning):
    """Lines were left out because `on_error="skip"` was asked for."""


@dataclass(frozen=True, slots=True)
class LineProblem:
    line: int
    text: str
    remedy: str


@dataclass(slots=True)
class LineReport:
    """Collects the problems that a reader finds; `kinds` counts them by kind."""

    path: str
    on_error: str = "raise"
    kinds: dict[str, int] = field(default_factory=dict)
    problems: list[LineProblem] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.on_error not in ("raise", "skip", "collect"):
            raise DataError(f"on_error={self.on_error!r}; there are raise and skip")

    @property
    def count(self) -> int:
        return sum(self.kinds.values())

    def bad(self, line: int, kind: str, text: str, remedy: str) -> None:
        """One bad line, counted from 1."""
        if self.on_error == "raise":
            raise FormatError(self.path, line, text, remedy)
        seen = self.kinds.get(kind, 0)
        self.kinds[kind] = seen + 1
        if seen < KEPT:
            self.problems.append(LineProblem(line, text, remedy))

    def close(self) -> None:
        """Warn once about the lines that were left out."""
        if self.on_error == "skip" and self.count:
            first = min(self.problems, key=lambda p: p.line)
            lines = "1 line was" if self.count == 1 else f"{self.count} lines were"
            warnings.warn(
                f"{self.path}: {lines} left out; the first is line {first.line}: {first.text}",
                BadLinesWarning,
                stacklevel=3,
            )
