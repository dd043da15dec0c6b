"""What proofs find: violations, told in words up to a number, and the counts a report is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

SHOWN = 5  # violations told in words, of each kind and place; the others are counted


@dataclass(frozen=True)
class Violation:
    """One broken promise. kind: a word or two; what: a sentence with place and time; position: in the recording."""

    kind: str
    what: str
    position: int = -1
    now: float = float("nan")

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"


@dataclass
class Findings:
    """Violations so far, and the numbers the report tells. broken: {kind: how many}, those not told in words too."""

    violations: list[Violation] = field(default_factory=list)
    broken: dict[str, int] = field(default_factory=dict)
    numbers: dict[str, Any] = field(default_factory=dict)

    def add(self, kind: str, what: str, position: int = -1, now: float = float("nan")) -> None:
        """One violation, in words."""
        self.broken[kind] = self.broken.get(kind, 0) + 1
        self.violations.append(Violation(kind, what, position, now))

    def more(self, kind: str, count: int) -> None:
        """Violations that are counted and not told."""
        if count > 0:
            self.broken[kind] = self.broken.get(kind, 0) + count
