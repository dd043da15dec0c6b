"""Detect the format of a file from its name and first bytes, and give the reason.

    >>> detect("ratings.dat", b"1::1193::5::978300760\\n1::661::3::978302109\\n").format
    'movielens'

Content decides, the name only breaks ties: files are renamed more often than rewritten.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from stretto.data.convert.roles import ColumnChoice
from stretto.data.reading.delimited import find_layout, is_movielens
from stretto.errors import DataError, FormatError

FORMATS = ("movielens", "triples", "svmlight", "lda-c", "bow", "mm", "npz", "parquet")
SAMPLE = 200  # lines that are examined

_MARKUP = re.compile(r"\s*(\{\s*\"|\[\s*[\[{]|<[!?a-zA-Z]+[\s>])")
_COUNT = re.compile(r"0|[1-9][0-9]{0,8}")
_PAIR = re.compile(r"([0-9]+):([-+0-9.eE]+)")
_NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Guess:
    """A format and, for delimited text, its layout.

    sep, columns, width, skip, names, row_text, col_text : as in `Layout`
    """

    format: str
    why: str
    sep: str = " "
    columns: tuple[int, int, int] = (0, 1, 2)
    width: int = 0
    skip: int = 0
    names: tuple[str, ...] = ()
    row_text: bool = False
    col_text: bool = False


def detect(
    path: str,
    head: bytes,
    format: str = "auto",
    *,
    sep: str | None = None,
    choice: ColumnChoice | None = None,
    ids: str = "auto",
    whole: bool = True,
) -> Guess:
    """Guess what a file is.

    Parameters
    ----------
    path : str
        Its name.
    head : bytes
        Its first bytes, unpacked.
    format, sep, choice, ids
        Options of the caller, which replace detection.
    whole : bool
        Whether `head` is all of the file; otherwise its last line may be cut and is ignored.
    """
    if format != "auto" and format not in FORMATS:
        raise DataError(f"no format {format!r}; there are auto, {', '.join(FORMATS)}")
    if ids not in ("auto", "integer", "text"):
        raise DataError(f"ids must be 'auto', 'integer' or 'text', got {ids!r}")
    if not head.removeprefix(_MARK).strip():
        raise FormatError(path, None, "the file is empty", "check how it was made")
    binary = _binary(path, head)
    if binary is not None:
        if format not in {"auto", binary.format}:
            raise FormatError(path, None, f"this is no {format} file: {binary.why}", "leave the format to be detected")
        return binary
    if format in {"npz", "parquet"}:
        raise FormatError(path, None, f"this is no {format} file: it holds text", "leave the format to be detected")
    lines = _sample(path, head, whole)
    choice = choice or ColumnChoice()
    if format == "auto" and choice == ColumnChoice() and sep is None:
        structured = _structured(path, lines)
        if structured is not None:
            return structured
    elif format in {"svmlight", "lda-c", "bow", "mm"}:
        return Guess(format, "as asked")
    layout = find_layout(path, lines, format, sep, choice, ids)
    movielens = is_movielens(path, layout)
    return Guess(
        ("movielens" if movielens else "triples") if format == "auto" else format,
        layout.why + (", as MovieLens has" if movielens else ""),
        layout.sep, layout.columns, layout.width, layout.skip, layout.names, layout.row_text, layout.col_text,
    )  # fmt: skip


_MARK = b"\xef\xbb\xbf"  # a byte order mark


def _binary(path: str, head: bytes) -> Guess | None:
    if head.startswith(b"PK\x03\x04"):
        return Guess("npz", "a zip archive, as .npz files are")
    if head.startswith(b"PAR1"):
        return Guess("parquet", "begins with PAR1")
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise FormatError(path, 1, "the text is UTF-16", "convert it to UTF-8 (iconv -f UTF-16 -t UTF-8)")
    if b"\0" in head:
        raise FormatError(path, None, "not a text file and no known binary format", f"known: {', '.join(FORMATS)}")
    return None


def _sample(path: str, head: bytes, whole: bool) -> list[str]:
    """The first lines; unless they are the whole file, without the last one, which may be cut."""
    text = head.removeprefix(_MARK).decode("utf-8", errors="replace")
    if "\r" in text and "\n" not in text:
        raise FormatError(
            path, 1, "lines end with a carriage return alone, as on old Macs", "convert them (tr '\\r' '\\n')"
        )
    lines = text.split("\n")
    if not whole and len(lines) > 1:
        lines.pop()
    return [line.rstrip("\r") for line in lines[:SAMPLE]]


def _structured(path: str, lines: list[str]) -> Guess | None:
    """Formats that are recognised by structure rather than by a separator."""
    if lines[0][:14].lower() == "%%matrixmarket":
        return Guess("mm", "begins with %%MatrixMarket")
    markup = _MARKUP.match(lines[0])
    if markup:
        kind = "XML or HTML" if markup[1].startswith("<") else "JSON"
        raise FormatError(path, 1, f"this looks like {kind}", "convert it to CSV, such as with pandas, and read that")
    full = [line.split("#")[0].split() for line in lines if line.split("#")[0].strip()]
    sizes = len(full) >= 3 and all(len(f) == 1 and f[0].isascii() and f[0].isdigit() for f in full[:3])
    if sizes and 2 * sum(len(f) == 3 for f in full[3:]) >= len(full) - 3:
        return Guess("bow", "three lines with one count each (documents, words, entries), then triples")
    body = full[:50]
    pairs = [[t for t in f[1:] if not t.startswith("qid:")] for f in body]
    fits = [
        bool(_NUMBER.fullmatch(f[0])) and all(_PAIR.fullmatch(t) for t in p)
        for f, p in zip(body, pairs, strict=True)
    ]  # fmt: skip
    if any(pairs) and any(p for p, fit in zip(pairs, fits, strict=True) if fit) and _mostly(fits):
        good = [(f, p) for f, p, fit in zip(body, pairs, fits, strict=True) if fit]
        return _labels_or_counts(path, good)
    return None


def _mostly(fits: list[bool]) -> bool:
    """A few lines may be bad ones, which reading names."""
    return 5 * sum(fits) >= 4 * len(fits) and bool(fits)


def _labels_or_counts(path: str, lines: list[tuple[list[str], list[str]]]) -> Guess:
    """svmlight, whose first field is a label, or lda-c, where it is the number of pairs."""
    counted = [_COUNT.fullmatch(f[0]) is not None and int(f[0]) == len(p) for f, p in lines]
    whole = all(_COUNT.fullmatch(t.partition(":")[2]) for _, p in lines for t in p)
    if not (_mostly(counted) and whole):
        return Guess("svmlight", "each line is a label followed by index:value pairs")
    from_zero = any(t.startswith("0:") for _, p in lines for t in p)
    if from_zero or len({f[0] for f, _ in lines}) >= 3:
        return Guess("lda-c", "each line is a count followed by as many index:count pairs")
    raise FormatError(
        path, None, "each line begins with the number of its pairs: a label (svmlight) or a count (lda-c)?",
        'say which: format="svmlight" or format="lda-c"',
    )  # fmt: skip
