"""`inspect`: report a file's format, content and all its problems, without stopping at the first."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stretto.data.convert.roles import column_choice
from stretto.data.describe import Description
from stretto.data.reading import array_files
from stretto.data.reading.one_file import assemble
from stretto.data.reading.parsing import Parsing, ReadOptions
from stretto.data.reading.report import LineProblem, LineReport
from stretto.data.reading.source import as_path, size_of
from stretto.data.records.data import Data
from stretto.data.records.duplicates import REMEDY, outside_name
from stretto.data.records.repeated_pairs import find_duplicates
from stretto.text import plural, show_mib

BINS = 10
SHOWN = 5  # repeated pairs that are named


@dataclass(frozen=True, slots=True)
class Info:
    """The report of `stretto info FILE`; `text()` renders it."""

    path: str
    format: str
    why: str
    compression: str | None
    size: int | None
    description: Description
    values: tuple[tuple[str, int], ...]  # (value or range, records), a histogram of at most ten bars
    hot_row: str  # id of the row with most records
    hot_col: str  # id of the column with most records
    labels: int
    bad_lines: int  # lines that were dropped
    problems: tuple[LineProblem, ...]  # the first of each kind, with line and remedy

    @property
    def ok(self) -> bool:
        """Whether `read` takes the file with its default policies."""
        return not self.problems

    def text(self) -> str:
        """A plain report of some twenty lines."""
        d = self.description
        size = (
            ""
            if self.size is None
            else f", {show_mib(self.size, 2)}" + (f" packed ({self.compression})" if self.compression else "")
        )
        lines = [
            f"{self.path}{size}",
            f"  format    {self.format}: {self.why}",
            f"  shape     {d.shape[0]} rows x {d.shape[1]} columns, {d.nnz} records (density {d.density:.3g}), "
            f"{show_mib(d.nbytes)} in memory",
            f"  values    {d.min:g} to {d.max:g}, mean {d.mean:.4g}, standard deviation {d.std:.4g}",
        ]
        most = max((count for _, count in self.values), default=1)
        lines += [f"    {name:>16}  {count:>11}  {'#' * round(40 * count / most)}" for name, count in self.values]
        if self.labels:
            lines.append(f"  labels    {self.labels} distinct, one per row")
        for title, s, name in (("rows", d.rows, self.hot_row), ("columns", d.cols, self.hot_col)):
            lines.append(
                f"  {title:<9} hottest is {name} with {s.hottest_share:.2%} of the records; {s.empty} empty; "
                f"Gini {s.gini:.2f}, Zipf exponent {s.zipf:.2f}"
            )
        if self.ok:
            return "\n".join([*lines, "  problems  none"])
        bad, repeated = plural("bad line", self.bad_lines), plural("repeated pair", d.duplicates)
        lines.append(f"  problems  {self.bad_lines} {bad}, {d.duplicates} {repeated}")
        lines += [f"    line {p.line}: {p.text}" for p in self.problems]
        lines += [f"    -> {remedy}" for remedy in dict.fromkeys(p.remedy for p in self.problems)]
        return "\n".join(lines)


def inspect(
    path: str | os.PathLike[str],
    format: str = "auto",
    *,
    sep: str | None = None,
    columns: Sequence[int | str] | None = None,
    user: str | None = None,
    item: str | None = None,
    rating: str | None = None,
    ids: str = "auto",
    zero_based: bool | None = None,
) -> Info:
    """Read all of a file and report on it; arguments as for `read`.

    Only a file that holds no record at all, that cannot be read, or whose layout is not clear, raises.
    """
    path = as_path(path)
    options = ReadOptions(format, sep, column_choice(columns, user, item, rating), ids, zero_based=zero_based)
    report = LineReport(path, "collect")
    with Parsing(path, options, report) as parsing:
        guess, compression = parsing.guess, parsing.text.compression
        if parsing.is_text:
            data = assemble(parsing, options)
        else:
            data = array_files.load(path, guess.format, options, "keep")
    positions, pairs = find_duplicates(data.rows, data.cols, data.shape[1])
    problems = [*report.problems]
    if len(positions):
        problems += (
            _repeated(data, options, positions, pairs)
            if parsing.is_text
            else [LineProblem(0, "repeated pairs", REMEDY)]
        )
    d = data.describe()
    return Info(
        path=path,
        format=guess.format,
        why=guess.why,
        compression=compression,
        size=size_of(path),
        description=d,
        values=_bars(data),
        hot_row=outside_name(data.row_ids, d.rows.hottest),
        hot_col=outside_name(data.col_ids, d.cols.hottest),
        labels=0 if data.labels is None else len(np.unique(data.labels)),
        bad_lines=report.count,
        problems=tuple(sorted(problems, key=lambda p: p.line)),
    )


def _repeated(data: Data, options: ReadOptions, positions: np.ndarray, pairs: np.ndarray) -> list[LineProblem]:
    """The first few repeated pairs with the lines of their first two records."""
    groups: dict[int, list[int]] = {}
    for position, pair in zip(positions.tolist(), pairs.tolist(), strict=True):
        groups.setdefault(pair, []).append(position)
    chosen = sorted(groups.values(), key=lambda g: g[1])[:SHOWN]
    wanted = sorted({p for g in chosen for p in g[:2]})
    lines: dict[int, int] = {}
    start = 0
    with Parsing(data.source, options, LineReport(data.source, "collect")) as parsing:
        for chunk in parsing:
            stop = start + len(chunk.values)
            lines |= {p: chunk.lines[p - start] for p in wanted if start <= p < stop}
            start = stop
    found = []
    for a, b, *_ in chosen:
        row, col = outside_name(data.row_ids, data.rows[a]), outside_name(data.col_ids, data.cols[a])
        values = f"{data.values[a]:g} there, {data.values[b]:g} here"
        text = f"the pair ({row}, {col}) was on line {lines.get(a, 0)} already ({values})"
        found.append(LineProblem(lines.get(b, 0), text, REMEDY))
    return found


def _bars(data: Data) -> tuple[tuple[str, int], ...]:
    """Each value when there are at most ten, else ten equal ranges."""
    if not len(data):
        return ()
    some = np.unique(data.values[: 1 << 16])
    if len(some) <= BINS:
        distinct, counts = np.unique(data.values, return_counts=True)
        if len(distinct) <= BINS:
            return tuple((f"{v:g}", int(n)) for v, n in zip(distinct.tolist(), counts.tolist(), strict=True))
    counts, edges = np.histogram(data.values, bins=BINS)
    return tuple((f"{edges[k]:.4g}..{edges[k + 1]:.4g}", int(counts[k])) for k in range(BINS))
