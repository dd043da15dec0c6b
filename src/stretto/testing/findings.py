"""Violations that the replay checker finds: the first few in words, all of them counted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

SHOWN = 5  # violations described in words, of each kind and place; the others are counted


@dataclass(frozen=True)
class Violation:
    """One violated guarantee."""

    kind: str  # a word or two
    what: str  # a sentence with place and time
    position: int = -1  # in the recording
    now: float = float("nan")

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"


@dataclass
class Findings:
    """Violations found so far, and the numbers of the report."""

    violations: list[Violation] = field(default_factory=list)  # those described in words
    broken: dict[str, int] = field(default_factory=dict)  # {kind: count of all violations}
    numbers: dict[str, Any] = field(default_factory=dict)  # of the report

    def add(self, kind: str, what: str, position: int = -1, now: float = float("nan")) -> None:
        """Add one violation, described in words."""
        self.broken[kind] = self.broken.get(kind, 0) + 1
        self.violations.append(Violation(kind, what, position, now))

    def more(self, kind: str, count: int) -> None:
        """Add violations that are only counted."""
        if count > 0:
            self.broken[kind] = self.broken.get(kind, 0) + count
