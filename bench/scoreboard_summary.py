"""How many cells of the scoreboard are won: tables of its page and of docs/benchmarks.md, and the gate of a release.

A cell is one problem at one number of threads. Its ratio is the best peer's time over ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from . import report, scoreboard_sets
from .scoreboard_rows import Row

PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"
BEGIN, END = "<!-- scoreboard: begin -->", "<!-- scoreboard: end -->"
LEAST, SHARE = 0.8, 0.9  # the gate: no ratio below LEAST, and SHARE of all cells at least 1
COLUMNS = ["work", "threads", "half", "cells", "ratio ≥ 1", "ratio ≥ 2", "median", "least"]
SHORT_COLUMNS = ["work", "threads", "problems", "not slower", "twice as fast", "median ratio", "least ratio"]


def _counts(rows: Sequence[Row]) -> list[object]:
    """Cells, those of at least 1 and 2, the median and the least ratio; rows that no peer solved do not count."""
    ratios = sorted(row.ratio for row in rows if row.ratio is not None)
    if not ratios:
        return []
    won, twice = (sum(ratio >= bar for ratio in ratios) for bar in (1.0, 2.0))
    return [len(ratios), won, twice, f"{ratios[len(ratios) // 2]:.2f}", f"{ratios[0]:.2f}"]


def _kinds(rows: Sequence[Row]) -> Iterator[tuple[str, int]]:
    yield from sorted({(row.work, row.threads) for row in rows})


def summary(rows: Sequence[Row]) -> str:
    """How many cells each kind of problem wins in each half of the sets."""
    lines = []
    for work, threads in _kinds(rows):
        for half in (scoreboard_sets.FIRST, scoreboard_sets.SECOND):
            chosen = [row for row in rows if (row.work, row.threads, row.half) == (work, threads, half)]
            if counts := _counts(chosen):
                lines.append([work, threads, half, *counts])
    return report.table(COLUMNS, lines)


def short_table(rows: Sequence[Row]) -> str:
    """The same for docs/benchmarks.md, both halves together."""
    lines = []
    for work, threads in _kinds(rows):
        if counts := _counts([row for row in rows if (row.work, row.threads) == (work, threads)]):
            lines.append([work, threads, *counts])
    return report.table(SHORT_COLUMNS, lines)


def write_short(rows: Sequence[Row], file: Path = PAGE) -> None:
    """Replace the table between the two marks of a page."""
    text = file.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    file.write_text(f"{before}{BEGIN}\n{short_table(rows)}\n{END}{after}", encoding="utf-8")


def failures(rows: Sequence[Row]) -> list[str]:
    """What keeps a release back: cells that are too slow, and too many cells below 1."""
    counted = [(row, row.ratio) for row in rows if row.ratio is not None]
    slow = [
        f"{row.work} / {row.name}, {row.penalty}, {row.threads} threads: {ratio:.2f} of the speed of {row.best}"
        for row, ratio in counted
        if ratio < LEAST
    ]
    won = sum(ratio >= 1.0 for _, ratio in counted)
    if won < SHARE * len(counted):
        slow.append(f"{won} of {len(counted)} cells are not slower than the best peer; {SHARE:.0%} are asked for")
    return slow
