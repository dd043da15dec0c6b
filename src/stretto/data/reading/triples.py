"""Parse delimited triples: drives the compiled parser, also for formats that are triples after a header.

`parse` yields bounded `Chunk`s. MatrixMarket and UCI bag-of-words state their size first and count from 1; every chunk
is checked against the stated size (`headers`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.reading.columns import Interner
from stretto.data.reading.delimited import fields_of
from stretto.data.reading.detect import Guess
from stretto.data.reading.headers import DeclaredSize
from stretto.data.reading.report import LineReport
from stretto.data.reading.source import LineReader
from stretto.errors import FormatError

NOTES = 1 << 12
NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
FIX = "repair the file: an array has every value, one a line"
_COMMA = re.compile(r"[0-9]+,[0-9]+")
SKIP = 'repair or drop the line, or pass on_error="skip"'


@dataclass(slots=True)
class LineNumbers:
    """The line of each record, computed on request, since it is rarely needed.

    Record k is on line `first + offsets[k]`, or `first + offsets[of[k] - start]` where one line holds many records.
    """

    first: int
    offsets: NDArray[np.int32]
    of: NDArray[Any] | None = None
    start: int = 0

    def __getitem__(self, k: int) -> int:
        return self.first + int(self.offsets[k if self.of is None else int(self.of[k]) - self.start])

    def only(self, stays: NDArray[np.bool_]) -> LineNumbers:
        if self.of is None:
            return LineNumbers(self.first, self.offsets[stays])
        return LineNumbers(self.first, self.offsets, self.of[stays], self.start)


@dataclass(slots=True)
class Chunk:
    """Some records of a file; the arrays are views that the next chunk overwrites."""

    rows: NDArray[np.int64] | NDArray[np.int32]  # [n] ids as written, or numbers from an `Interner` (int32)
    cols: NDArray[np.int64] | NDArray[np.int32]  # [n] likewise
    values: NDArray[np.float32]  # [n]
    lines: LineNumbers  # the line of each record, counted from 1
    labels: NDArray[np.float64]  # of the rows that end in this chunk (svmlight), otherwise empty


NO_LABELS = np.empty(0, dtype=np.float64)


@dataclass(slots=True)
class TextIds:
    """The interners that number text ids of rows and columns."""

    rows: Interner
    cols: Interner

    @classmethod
    def new(cls) -> TextIds:
        return cls(Interner(), Interner())


def parse(text: LineReader, guess: Guess, report: LineReport, names: TextIds) -> Iterator[Chunk]:
    """Records of a delimited file, in order; bad lines go to `report`."""
    from stretto.kernels.text.parse import triples

    s1, s2 = ord(guess.sep[0]), ord(guess.sep[1]) if len(guess.sep) > 1 else 0
    spaces = guess.sep == " "
    at_row, at_col, at_val = guess.columns
    notes = np.empty((NOTES, 5), dtype=np.int64)
    room = 0
    skip = guess.skip
    for buf in text:
        start = 0
        if text.at_start and buf[:3].tobytes() == b"\xef\xbb\xbf":
            start = 3
        while skip and start < len(buf):
            start += int(np.argmax(buf[start:] == 10)) + 1
            skip -= 1
            text.walked += 1
        if len(buf) // 6 + 16 > room:
            room = len(buf) // 6 + 16  # "1 1 1" and a newline; shorter lines take a second round
            rows, cols = np.empty(room, np.int64), np.empty(room, np.int64)
            row_len = np.empty(room if guess.row_text else 1, np.int32)
            col_len = np.empty(room if guess.col_text else 1, np.int32)
            values, lines = np.empty(room, np.float32), np.empty(room, np.int32)
        while start < len(buf):
            n, walked, noted, start = triples(
                buf, start, len(buf), s1, s2, spaces, at_row, at_col, at_val,
                guess.row_text, guess.col_text, guess.width, rows, cols, row_len, col_len, values, lines, notes,
            )  # fmt: skip
            drop = settle_notes(buf, notes[:noted], values[:n], NO_LABELS, text.walked, guess, report)
            chunk = Chunk(
                names.rows.codes(buf, rows[:n], row_len[:n]) if guess.row_text else rows[:n],
                names.cols.codes(buf, cols[:n], col_len[:n]) if guess.col_text else cols[:n],
                values[:n],
                LineNumbers(text.walked + 1, lines[:n]),
                NO_LABELS,
            )
            text.walked += walked
            yield without(chunk, drop) if drop else chunk


def settle_notes(
    buf: NDArray[np.uint8],
    notes: NDArray[np.int64],
    values: NDArray[np.float32],
    labels: NDArray[np.float64],
    walked: int,
    guess: Guess,
    report: LineReport,
) -> list[int]:
    """Parse slow numbers and report bad lines; returns the entries whose slow number is not a 32-bit float."""
    from stretto.kernels.text import parse as codes

    drop: list[int] = []
    for code, entry, start, end, line in notes.tolist():
        text = buf[start:end].tobytes().decode("utf-8", errors="replace")
        if code == codes.SLOW_LABEL:
            labels[entry] = float(text)
        elif code == codes.SLOW_VALUE:
            with np.errstate(over="ignore"):
                values[entry] = np.float32(text)
            if not np.isfinite(values[entry]):
                report.bad(walked + line + 1, "value", f"the value {shown(text)} does not fit a 32-bit float", SKIP)
                drop.append(entry)
        else:
            kind, problem, remedy = _explain(code, text, guess)
            report.bad(walked + line + 1, kind, problem, remedy)
    return drop


def without(chunk: Chunk, drop: list[int]) -> Chunk:
    """The chunk without some of its entries."""
    stays = np.ones(len(chunk.values), dtype=np.bool_)
    stays[drop] = False
    return Chunk(chunk.rows[stays], chunk.cols[stays], chunk.values[stays], chunk.lines.only(stays), chunk.labels)


def shown(text: str) -> str:
    """`text` for a message: quoted, and cut when long."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


def _explain(code: int, text: str, guess: Guess) -> tuple[str, str, str]:
    from stretto.kernels.text import parse as codes

    text = text.rstrip("\r")
    if code in {codes.FEW_FIELDS, codes.MANY_FIELDS}:
        need, found = guess.width or max(guess.columns) + 1, len(fields_of(text, guess.sep))
        remedy = SKIP
        if found == 2 and code == codes.FEW_FIELDS and guess.format in {"triples", "movielens"}:
            remedy = f"{SKIP}, or columns=(0, 1) if the file has no values"
        empty = " (one is empty)" if found == need else ""
        return "column count", f"expected {need} fields, found {found}{empty} in {shown(text)}", remedy
    if code == codes.BAD_VALUE:
        return _explain_value(text)
    if code == codes.BAD_LABEL:
        return "label", f"the label {shown(text)} is not a number", SKIP
    if code == codes.BAD_INDEX:
        return "index", f"expected index:value, found {shown(text)}", SKIP
    if code == codes.BAD_QUOTE:
        return "quotes", f"a quoted field does not end where the next begins in {shown(text)}", SKIP
    return (
        "id",
        f"the id {shown(text)} is not a plain integer as the others are",
        SKIP + ', or ids="text" to take all ids as text',
    )


def _explain_value(text: str) -> tuple[str, str, str]:
    word = text.strip().strip('"').lower().lstrip("+-")
    if word in {"nan", "na", "n/a", "null", "none", ""}:
        return "missing value", f"the value {shown(text)} is missing (not a number)", SKIP
    if word in {"inf", "infinity"}:
        return "value", f"the value {shown(text)} is infinite", SKIP
    if _COMMA.fullmatch(word):
        return "value", f"the value {shown(text)} has a decimal comma", "write a decimal point, as in 3.5"
    return "value", f"the value {shown(text)} is not a number", SKIP


def parse_sized(text: LineReader, sized: DeclaredSize, report: LineReport) -> Iterator[Chunk]:
    """Records counted from 0 and inside the stated size; others are added to `report`."""
    seen, outside = 0, 0
    for chunk in parse(text, sized.guess, report, TextIds.new()):
        seen += len(chunk.values)
        bad = np.zeros(len(chunk.values), dtype=np.bool_)
        for name, index, size in (("row", chunk.rows, sized.n_rows), ("column", chunk.cols, sized.n_cols)):
            if len(index) and (int(index.min()) < 1 or int(index.max()) > size):
                wrong = ~bad & ((index < 1) | (index > size))
                bad |= wrong
                outside += int(np.count_nonzero(wrong))
                for at in np.flatnonzero(wrong).tolist():
                    problem = f"{name} {int(index[at])} is outside 1..{size}, which the header promises"
                    report.bad(chunk.lines[at], "index", problem, SKIP)
        chunk.rows -= 1
        chunk.cols -= 1
        yield without(chunk, np.flatnonzero(bad).tolist()) if bad.any() else chunk
    found = seen + report.count - outside  # lines that could not be read were entries, too
    if found != sized.entries:
        report.bad(
            text.walked,
            "entry count",
            f"the header promises {sized.entries} entries, the file has {found}",
            "the file may be incomplete",
        )


def parse_array(text: LineReader, sized: DeclaredSize) -> Iterator[Chunk]:
    """MatrixMarket's dense form, the values of one column after the other: those that are not 0, counted from 0."""
    numbers: list[float] = []
    lines: list[int] = []
    for buf in text:
        for raw in buf.tobytes()[:-1].split(b"\n"):
            text.walked += 1
            token = raw.strip().decode("latin-1")
            if text.walked <= sized.guess.skip or not token or token.startswith("%"):
                continue
            if not NUMBER.fullmatch(token) or not np.isfinite(np.float32(token)):
                raise FormatError(text.path, text.walked, f"the value {shown(token)} is not a 32-bit number", FIX)
            numbers.append(float(token))
            lines.append(text.walked)
            if len(numbers) > sized.entries:
                break
    if len(numbers) != sized.entries:
        have = f"more than {sized.entries}" if len(numbers) > sized.entries else str(len(numbers))
        # It is unknown which value is missing, so that all positions are in doubt and none can be skipped.
        problem = f"the header promises {sized.entries} values, the file has {have}"
        raise FormatError(text.path, text.walked, problem, FIX)
    places = _places(sized)
    values = np.array(numbers, dtype=np.float32)
    keep = np.flatnonzero(values)
    yield Chunk(
        places[1][keep], places[0][keep], values[keep], LineNumbers(0, np.array(lines, np.int32)[keep]), NO_LABELS
    )  # fmt: skip


def _places(sized: DeclaredSize) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(columns, rows) of the values, in their order."""
    if sized.symmetry == "general":
        cols, rows = np.divmod(np.arange(sized.entries, dtype=np.int64), max(sized.n_rows, 1))
        return cols, rows
    cols, rows = np.triu_indices(sized.n_cols, k=0 if sized.symmetry == "symmetric" else 1)
    return cols.astype(np.int64), rows.astype(np.int64)
