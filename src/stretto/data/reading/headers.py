"""Headers of MatrixMarket and UCI bag-of-words files: parse the sizes they state and check them.

Headers are not trusted. Their sizes are compared with the size of the file before anything is allocated: a file of 60
bytes cannot have a trillion rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from stretto.data.reading.detect import Guess
from stretto.errors import FormatError

FREE = 1 << 24  # rows or columns that any file may have: counting their records takes 128 MiB
PACKED = 1000  # bytes that a byte of a packed file may stand for
_DIGITS = 18  # of a size, which fits 64 bits
_FIELDS = ("real", "double", "integer", "unsigned-integer", "pattern", "complex")
_SYMMETRIES = ("general", "symmetric", "skew-symmetric", "hermitian")
_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class DeclaredSize:
    """The sizes that the header of a MatrixMarket or bag-of-words file states."""

    guess: Guess  # the layout of the lines that follow
    n_rows: int
    n_cols: int
    entries: int
    symmetry: str = "general"  # one of MatrixMarket's
    dense: bool = False  # MatrixMarket's "array": every value, column after column, one a line


def bow_header(path: str, head: bytes) -> DeclaredSize:
    """UCI bag-of-words: three lines with the numbers of documents, words and entries."""
    lines = head.removeprefix(_MARK).split(b"\n")[:3]
    sizes = [_size(line) for line in lines]
    for k, size in enumerate(sizes):
        if size is None:
            raise FormatError(
                path, k + 1, f"expected one count (documents, words or entries), found {_shown(lines[k])}",
                "is this UCI bag-of-words?",
            )  # fmt: skip
    if len(sizes) < 3:
        raise FormatError(path, len(sizes), "the three header lines are incomplete", "is this UCI bag-of-words?")
    documents, words, entries = (size or 0 for size in sizes)
    return DeclaredSize(Guess("bow", "", " ", (0, 1, 2), 3, 3), documents, words, entries)


def mm_header(path: str, head: bytes) -> DeclaredSize:
    """MatrixMarket: the first line says what follows, the first one without % how much."""
    lines = head.removeprefix(_MARK).split(b"\n")
    words = lines[0].decode("latin-1").lower().split()
    if len(words) != 5 or words[:2] != ["%%matrixmarket", "matrix"] or words[2] not in {"coordinate", "array"}:
        raise FormatError(
            path, 1, f"expected '%%MatrixMarket matrix coordinate|array FIELD SYMMETRY', found {_shown(lines[0])}",
            "is this MatrixMarket?",
        )  # fmt: skip
    _, _, layout, field, symmetry = words
    for what, word, known in (("field", field, _FIELDS), ("symmetry", symmetry, _SYMMETRIES)):
        if word not in known:
            raise FormatError(path, 1, f"no {what} {word!r}; there are {', '.join(known)}", "repair the first line")
    if field == "complex" or symmetry == "hermitian":
        raise FormatError(
            path, 1, "the entries are complex numbers", "Stretto learns from real ones; take a part or the size"
        )
    dense = layout == "array"
    if dense and field == "pattern":
        raise FormatError(path, 1, "an array has no pattern: it stores every value", "repair the first line")
    for k, line in enumerate(lines[1:], start=1):
        if not line.strip() or line.startswith(b"%"):
            continue
        sizes = [_size(word) for word in line.split()]
        if len(sizes) != (2 if dense else 3) or None in sizes:
            wanted = "rows columns" if dense else "rows columns entries"
            raise FormatError(path, k + 1, f"expected '{wanted}', found {_shown(line)}", "repair the line")
        rows, cols, *more = (size or 0 for size in sizes)
        if symmetry != "general" and rows != cols:
            raise FormatError(path, k + 1, f"a {symmetry} matrix is square, not {rows} x {cols}", "repair the header")
        width = 2 if field == "pattern" else 3
        guess = Guess("mm", "", " ", (0, 1, -1 if field == "pattern" else 2), width, k + 1)
        return DeclaredSize(guess, rows, cols, more[0] if more else _stored(rows, cols, symmetry), symmetry, dense)
    raise FormatError(path, len(lines), "the line with the sizes is missing", "the file is incomplete")


def _stored(rows: int, cols: int, symmetry: str) -> int:
    """Values that an array file holds: all of them, or one triangle with or without the diagonal."""
    if symmetry == "general":
        return rows * cols
    return rows * (rows + 1) // 2 if symmetry == "symmetric" else rows * (rows - 1) // 2


def _size(text: bytes) -> int | None:
    text = text.strip()
    return int(text) if text.isdigit() and len(text) <= _DIGITS else None


def _shown(line: bytes) -> str:
    text = line.decode("latin-1").rstrip("\r")
    return repr(text if len(text) <= 60 else text[:57] + "...")


def most_entries(nbytes: int | None, packed: bool, smallest: int) -> int | None:
    """How many entries of `smallest` bytes or more a file can hold; None where its size is not known."""
    return None if nbytes is None else nbytes * (PACKED if packed else 1) // smallest + 1


def check_extent(path: str, size: int, what: str, claim: str, nbytes: int | None, packed: bool) -> None:
    """Refuse a number of rows or columns that is out of proportion to the file.

    size : how many
    what : "rows" or "columns"
    claim : where that comes from, as "the header promises"
    nbytes, packed : the size of the file, None where it is not known, and whether it is packed
    """
    most = FREE if nbytes is None else max(FREE, most_entries(nbytes, packed, 1) or 0)
    if size > most:
        have = "" if nbytes is None else f", which has {nbytes:,} bytes{' packed' if packed else ''}"
        raise FormatError(
            path, None, f"{claim} {size:,} {what}, more than can be true of this file{have}",
            "repair the number; for ids of any size, use a delimited format (user, item, rating)",
        )  # fmt: skip
