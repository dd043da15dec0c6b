"""Read the k-th of n parts of a text file by seeking, without the records of other parts.

    >>> from io import BytesIO
    >>> stream = BytesIO(b"1 1 5\\n1 2 3\\n2 1 4\\n")
    >>> [(p.begin, p.end) for p in (cut(stream, k, 2) for k in range(2))]
    [(0, 12), (12, 18)]

The file's bytes are cut into n even ranges, and a line belongs to the part in whose range it begins. The starts of
lines depend on the file alone, so parts have no gaps or overlaps although their readers do not communicate.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import index
from typing import Any, BinaryIO

from stretto.errors import DataError, FormatError

NEAR, FAR = 1 << 12, 1 << 20  # bytes read to find the end of a line: few at first, most lines are short


@dataclass(frozen=True, slots=True)
class FilePart:
    """Bytes `begin` to `end`, whole lines."""

    number: int  # of this part, from 0
    parts: int  # in all
    begin: int
    end: int
    walked: int | None  # lines of the file before `begin`; None if they were not counted


def wrong(part: FilePart | None, path: str, line: int, problem: str, remedy: str) -> FormatError:
    """The error about a line, which is counted from the file's first one or, if need be, from the part's."""
    if part is None or part.walked is not None:
        return FormatError(path, line, problem, remedy)
    return FormatError(path, None, f"line {line} {origin(part)}: {problem}", remedy)


def origin(part: FilePart) -> str:
    """From where lines are counted if not from the file's first one."""
    return f"from byte {part.begin} on, where part {part.number} (from 0) of {part.parts} begins"


def asked(part: Any) -> tuple[int, int] | None:
    """`part=(k, n)` as a caller gave it, checked; None for the whole file, as the only part is: that may be packed."""
    if part is None:
        return None
    try:
        number, parts = (index(x) for x in part)
    except (TypeError, ValueError):
        number, parts = 0, 0
    if not 0 <= number < parts:
        raise DataError(f"part={part!r}; give (k, n), the k-th of n parts, counted from 0")
    return (number, parts) if parts > 1 else None


def cut(stream: BinaryIO, number: int, parts: int, skip: int = 0) -> FilePart:
    """Part `number` of `parts`, without the first `skip` lines. Reads the part's two ends, whatever lies between."""
    size = stream.seek(0, 2)
    body = 0
    for _ in range(skip):
        body = _line_start(stream, body + 1, size)
    low, high = size * number // parts, size * (number + 1) // parts
    walked = skip if low <= body else None
    # A part inside one long line stops searching at the end of its own range: no line begins in it.
    begin = _line_start(stream, max(low, body), high)
    end = _line_start(stream, high, size) if begin < high else begin
    return FilePart(number, parts, begin, end, walked)


def _line_start(stream: BinaryIO, at: int, limit: int) -> int:
    """Where the first line begins that begins at `at` or later; `limit` where it would be there or beyond."""
    if at == 0:
        return 0
    place, step = at - 1, NEAR
    stream.seek(place)
    while place < limit and (piece := stream.read(min(step, limit - place))):
        found = piece.find(b"\n")
        if found >= 0:
            return min(place + found + 1, limit)
        place += len(piece)
        step = min(4 * step, FAR)
    return max(at, limit)
