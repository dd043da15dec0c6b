"""Readers in plain Python, slow and simple: what a file says, to compare the real ones with.

Each returns `Plain`: the records of the lines that are well-formed, in order, and the numbers of those that are not.
Nothing is guessed: the caller says what the file is. The rules, for delimited text:

- a line holds as many fields as most lines do (in doubt as many as the first); another number makes it a bad one;
- blanks around fields and quotes around whole fields are dropped; a separator inside quotes is none;
- integer ids are written as Python writes them, with 18 digits at most; text ids are anything but nothing;
- values are decimal numbers that fit a 32-bit float;
- blank lines do not count, nor, among integer ids, lines that begin with # or %.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
DIGITS = re.compile(r"[0-9]{1,18}")
NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")


@dataclass
class Plain:
    """records : (row, column, value); bad : lines from 1; labels : of rows; shape : where the file says one."""

    records: list[tuple[Any, Any, float]] = field(default_factory=list)
    bad: list[int] = field(default_factory=list)
    labels: list[float] = field(default_factory=list)
    shape: tuple[int, int] | None = None


def lines_of(content: bytes) -> list[str]:
    """Lines as Latin-1 text, which keeps every byte; ids are decoded later."""
    text = content.removeprefix(b"\xef\xbb\xbf").decode("latin-1")
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    return lines


def single(token: str) -> float | None:
    """The 32-bit float a token stands for; None where it stands for none."""
    if not NUMBER.fullmatch(token):
        return None
    with np.errstate(over="ignore"):
        value = np.float32(token)
    return float(value) if np.isfinite(value) else None


def split(line: str, sep: str) -> list[str] | None:
    """Fields; None where quotes are used otherwise than around whole fields."""
    fields: list[str] = []
    blank = " \t" if sep == " " else " "
    rest = line.rstrip(blank + "\r")
    while True:
        rest = rest.lstrip(blank)
        if rest.startswith('"'):
            end = 1
            while end < len(rest) and (rest[end] != '"' or rest[end + 1 : end + 2] == '"'):
                end += 2 if rest[end] == '"' else 1
            if end >= len(rest):
                return None
            fields.append(rest[: end + 1])
            rest = rest[end + 1 :]
            after = rest.lstrip(blank)
            if not after:
                return fields
            if sep == " ":
                if after == rest:
                    return None
                rest = after
                continue
            if not after.startswith(sep):
                return None
            rest = after[len(sep) :]
            continue
        if sep == " ":
            found = re.search(r"[ \t]", rest)
            at, size = (found.start(), 1) if found else (-1, 1)
        else:
            at, size = rest.find(sep), len(sep)
        if at < 0:
            fields.append(rest.strip(" "))
            return fields
        fields.append(rest[:at].strip(" "))
        rest = rest[at + size :]


def named(field: str) -> str:
    """A name in a header, as names are compared: by letters and digits."""
    return "".join(c for c in field.lower() if c.isascii() and c.isalnum())


def unquoted(token: str) -> str | None:
    """Without quotes around it; None where it has quotes inside, which ids and values may not have."""
    if token.startswith('"'):
        token = token[1:-1]
        return None if '"' in token else token
    return token


def read_delimited(
    content: bytes, sep: str, columns: tuple[int, int, int], header: list[str] | None, text: tuple[bool, bool]
) -> Plain:
    """Delimited text.

    columns : fields of row, column and value
    header : the fields of the first line where it is one
    text : whether ids of rows and columns are text
    """
    lines = lines_of(content)
    rows: list[tuple[int, list[str] | None]] = []
    begun = False
    for number, line in enumerate(lines, start=1):
        bare = line.strip(" \t\r")
        comment = bare.startswith(("#", "%"))
        if not bare or (comment and (not begun or not any(text))):
            continue
        begun = True
        rows.append((number, split(line, sep)))
    if header is not None and rows and _is_header(rows[0][1], header, columns):
        rows = rows[1:]
    found = Plain()
    widths = Counter(len(fields) for _, fields in rows if fields is not None)
    if not widths:
        found.bad = [number for number, _ in rows]
        return found
    first = next(len(fields) for _, fields in rows if fields is not None)
    width = max(max(widths, key=lambda size: (widths[size], size == first)), max(columns) + 1)
    for number, fields in rows:
        record = None if fields is None or len(fields) != width else _record(fields, columns, text)
        if record is None:
            found.bad.append(number)
        else:
            found.records.append(record)
    return found


def _is_header(fields: list[str] | None, header: list[str], columns: tuple[int, int, int]) -> bool:
    """Whether the columns that are used have their names."""
    return (
        fields is not None
        and len(fields) == len(header)
        and all(named(fields[at]) == named(header[at]) for at in columns)
    )


def _record(fields: list[str], columns: tuple[int, int, int], text: tuple[bool, bool]) -> tuple[Any, Any, float] | None:
    if max(columns) >= len(fields):
        return None
    ids: list[Any] = []
    for at, is_text in zip(columns[:2], text, strict=True):
        token = unquoted(fields[at])
        if token is None or not token or (not is_text and not INTEGER.fullmatch(token)):
            return None
        ids.append(token.encode("latin-1").decode("utf-8", errors="replace") if is_text else int(token))
    value_token = unquoted(fields[columns[2]])
    value = None if value_token is None else single(value_token)
    return None if value is None else (ids[0], ids[1], value)


def read_svmlight(content: bytes, counted: bool = False) -> Plain:
    """svmlight, or with `counted` lda-c; columns counted from 0."""
    found = Plain()
    entries: list[tuple[int, int, float]] = []
    for number, line in enumerate(lines_of(content), start=1):
        tokens = re.split(r"[ \t\r]+", line.partition("#")[0].strip(" \t\r"))
        if tokens == [""]:
            continue
        row = _svmlight_line(tokens, counted)
        if row is None:
            found.bad.append(number)
            continue
        entries += [(len(found.labels), index, value) for index, value in row[1]]
        found.labels.append(row[0])
    first = 0 if counted or any(index == 0 for _, index, _ in entries) else 1
    found.records = [(row, index - first, value) for row, index, value in entries]
    found.shape = (len(found.labels), max((index for _, index, _ in found.records), default=-1) + 1)
    return found


def _svmlight_line(tokens: list[str], counted: bool) -> tuple[float, list[tuple[int, float]]] | None:
    if not NUMBER.fullmatch(tokens[0]) or not np.isfinite(float(tokens[0])):
        return None
    pairs = []
    for token in tokens[1:]:
        if token.startswith("qid:"):
            continue
        index, colon, text = token.partition(":")
        value = single(text)
        if not colon or not DIGITS.fullmatch(index) or value is None:
            return None
        pairs.append((int(index), value))
    if counted and float(tokens[0]) != len(pairs):
        return None
    return float(tokens[0]), pairs


def read_sized(content: bytes) -> Plain:
    """UCI bag-of-words or MatrixMarket (coordinate or array); a header that is wrong is one bad line."""
    lines = lines_of(content)
    if lines and lines[0].lower().startswith("%%matrixmarket"):
        words = lines[0].lower().split()
        body = [(n, line) for n, line in enumerate(lines[1:], start=2) if line.strip() and not line.startswith("%")]
        return _matrix_market(words, body)
    found = Plain()
    sizes = [line.strip() for line in lines[:3]]
    if len(sizes) < 3 or not all(DIGITS.fullmatch(size) for size in sizes):
        return Plain(bad=[1])
    found.shape = (int(sizes[0]), int(sizes[1]))
    body = [(n, line) for n, line in enumerate(lines[3:], start=4) if line.strip() and not _is_remark(line)]
    return _counted(found, body, int(sizes[2]), "real")


def _is_remark(line: str) -> bool:
    return line.lstrip(" \t").startswith(("#", "%"))


def _matrix_market(words: list[str], body: list[tuple[int, str]]) -> Plain:
    fields = ("real", "double", "integer", "unsigned-integer", "pattern")
    if len(words) != 5 or words[1] != "matrix" or words[3] not in fields or not body:
        return Plain(bad=[1])
    layout, kind, symmetry = words[2:]
    sizes = body[0][1].split()
    if not all(DIGITS.fullmatch(size) for size in sizes) or symmetry not in ("general", "symmetric", "skew-symmetric"):
        return Plain(bad=[body[0][0]])
    if layout == "coordinate" and len(sizes) == 3:
        shape = (int(sizes[0]), int(sizes[1]))
        rest = [(number, line) for number, line in body[1:] if not _is_remark(line)]
        found = _counted(Plain(shape=shape), rest, int(sizes[2]), kind)
    elif layout == "array" and len(sizes) == 2 and kind != "pattern":
        found = _array(body[1:], int(sizes[0]), int(sizes[1]), symmetry)
    else:
        return Plain(bad=[body[0][0]])
    if symmetry != "general":
        if found.shape is None or found.shape[0] != found.shape[1]:
            return Plain(bad=[1])
        sign = -1.0 if symmetry == "skew-symmetric" else 1.0
        found.records += [(j, i, sign * v) for i, j, v in found.records if i != j]
    return found


def _counted(found: Plain, body: list[tuple[int, str]], entries: int, kind: str) -> Plain:
    assert found.shape is not None
    width = 2 if kind == "pattern" else 3
    for number, line in body:
        fields = [unquoted(token) for token in split(line, " ") or []]
        good = len(fields) == width and all(f is not None and INTEGER.fullmatch(f) for f in fields[:2])
        value = 1.0 if width == 2 else single(fields[2] or "") if good else None
        place = [int(f or 0) for f in fields[:2]] if good else [0, 0]
        if good and value is not None and all(1 <= p <= size for p, size in zip(place, found.shape, strict=True)):
            found.records.append((place[0] - 1, place[1] - 1, value))
        else:
            found.bad.append(number)
    if len(found.records) + len(found.bad) != entries:
        found.bad.append(-1)  # the number of entries is another one than the header promises
    return found


def _array(body: list[tuple[int, str]], rows: int, cols: int, symmetry: str) -> Plain:
    places = [(i, j) for j in range(min(cols, 1000)) for i in range(min(rows, 1000))]
    if symmetry == "symmetric":
        places = [(i, j) for i, j in places if i >= j]
    elif symmetry == "skew-symmetric":
        places = [(i, j) for i, j in places if i > j]
    values = [single(line.strip()) for _, line in body]
    if None in values or len(values) != len(places):
        return Plain(bad=[1], shape=(rows, cols))
    records = [(i, j, v) for (i, j), v in zip(places, values, strict=True) if v]
    return Plain(records, shape=(rows, cols))
