"""Parse svmlight / libsvm lines, `label index:value ...`, and lda-c lines, `count index:count ...`.

Indices start at 1 in most files and at 0 in some, and no file states which. Unless the caller does, they start at 0 if
a 0 occurs, otherwise at 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.reading.detect import Guess
from stretto.data.reading.report import LineReport
from stretto.data.reading.source import LineReader
from stretto.data.reading.triples import SKIP, Chunk, LineNumbers, settle_notes

NOTES = 1 << 13


def parse(text: LineReader, guess: Guess, report: LineReport) -> Iterator[Chunk]:
    """Entries with rows counted from 0 through the whole file and columns as written; labels of each chunk's rows."""
    from stretto.kernels.text.parse import svmlight

    notes = np.empty((NOTES, 5), dtype=np.int64)
    n_rows = 0
    room = 0
    for buf in text:
        start = 3 if text.at_start and buf[:3].tobytes() == b"\xef\xbb\xbf" else 0
        if len(buf) > room:
            room = len(buf)
            most = room // 4 + 16  # " 1:1" is the shortest entry
            rows, cols, values = np.empty(most, np.int32), np.empty(most, np.int64), np.empty(most, np.float32)
            labels, lines = np.empty(most // 2, np.float64), np.empty(most // 2, np.int32)
        while start < len(buf):
            before = start
            n, r, walked, noted, start = svmlight(
                buf, start, len(buf), n_rows, rows, cols, values, labels, lines, notes
            )
            if start == before:  # a line with more slow numbers than the buffer holds
                notes = np.empty((2 * len(notes), 5), dtype=np.int64)
                continue
            drop = settle_notes(buf, notes[:noted], values[:n], labels[:r], text.walked, guess, report)
            bad = np.zeros(r, dtype=np.bool_)
            bad[rows[drop] - n_rows] = True
            _check_labels(labels[:r], rows[:n] - n_rows, lines[:r], bad, text.walked, guess, report)
            places = LineNumbers(text.walked + 1, lines[:r], rows[:n], n_rows)
            chunk = Chunk(rows[:n], cols[:n], values[:n], places, labels[:r])
            if bad.any():
                chunk = _without_lines(chunk, bad, n_rows)
            text.walked += walked
            n_rows += len(chunk.labels)
            yield chunk


def _check_labels(
    labels: NDArray[np.float64],
    of: NDArray[Any],
    lines: NDArray[np.int32],
    bad: NDArray[np.bool_],
    walked: int,
    guess: Guess,
    report: LineReport,
) -> None:
    """Mark lines whose label is infinite or, in lda-c, not the number of their pairs. of [entries] : their lines."""
    wrong = ~np.isfinite(labels)
    counts = np.bincount(of, minlength=len(labels))
    if guess.format == "lda-c":
        wrong |= labels != counts
    for at in np.flatnonzero(wrong & ~bad).tolist():
        if np.isfinite(labels[at]):
            problem = f"the line promises {labels[at]:g} pairs and has {counts[at]}"
        else:
            problem = "the label does not fit a 64-bit float"
        report.bad(walked + 1 + int(lines[at]), "label", problem, SKIP)
    bad |= wrong


def _without_lines(chunk: Chunk, bad: NDArray[np.bool_], n_rows: int) -> Chunk:
    """The chunk without its bad lines; rows are numbered from `n_rows` without gaps."""
    stays = ~bad
    of = chunk.rows - n_rows
    kept = stays[of]
    rows = (n_rows + np.cumsum(stays) - 1)[of[kept]].astype(np.int32)
    places = LineNumbers(chunk.lines.first, chunk.lines.offsets[stays], rows, n_rows)
    return Chunk(rows, chunk.cols[kept], chunk.values[kept], places, chunk.labels[stays])
