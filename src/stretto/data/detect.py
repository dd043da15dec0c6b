"""What a file is: a guess from its name and first bytes, with the reason said.

    >>> detect("ratings.dat", b"1::1193::5::978300760\\n1::661::3::978302109\\n").format
    'movielens'

Content decides, the name only breaks ties: files are renamed more often than rewritten.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from stretto.data.convert import COL_NAMES, ROW_NAMES, VALUE_NAMES, choose_columns
from stretto.errors import DataError, FormatError

FORMATS = ("movielens", "triples", "svmlight", "lda-c", "bow", "mm", "npz", "parquet")
SEPARATORS = ("::", "\t", ",", ";", " ")
SAMPLE = 200  # lines looked at

_INT = re.compile(r"-?(0|[1-9][0-9]{0,17})$")
_PAIR = re.compile(r"[0-9]+:[-+0-9.eE]+$")


@dataclass(frozen=True, slots=True)
class Guess:
    """A format and, for delimited text, its layout.

    sep : "::", tab, ",", ";" or " " (any run of blanks);  columns : fields of row, column and value (-1: value 1)
    skip : lines before the first record;  names : the header's fields, if there is one
    row_text, col_text : ids that are not integers;  exact : there are no fields beyond the ones used
    """

    format: str
    why: str
    sep: str = " "
    columns: tuple[int, int, int] = (0, 1, 2)
    skip: int = 0
    names: tuple[str, ...] = ()
    row_text: bool = False
    col_text: bool = False
    exact: bool = False


def detect(
    path: str,
    head: bytes,
    format: str = "auto",
    *,
    sep: str | None = None,
    columns: Sequence[int | str] | None = None,
    ids: str = "auto",
) -> Guess:
    """Guess from the first bytes of the unpacked file; a given `format`, `sep`, `columns` or `ids` is taken as said."""
    if format != "auto" and format not in FORMATS:
        raise DataError(f"no format {format!r}; there are auto, {', '.join(FORMATS)}")
    if ids not in {"auto", "integer", "text"}:
        raise DataError(f"ids must be 'auto', 'integer' or 'text', got {ids!r}")
    if not head.strip():
        raise FormatError(path, None, "the file is empty", "check how it was made")
    binary = _binary(path, head)
    if binary is not None:
        if format not in {"auto", binary.format}:
            raise FormatError(path, None, f"this is no {format} file: {binary.why}", "leave the format to be detected")
        return binary
    if format in {"npz", "parquet"}:
        raise FormatError(path, None, f"this is no {format} file: it holds text", "leave the format to be detected")
    lines = _sample(head)
    if format == "auto" and columns is None and sep is None:
        structured = _structured(head, lines)
        if structured is not None:
            return structured
    elif format in {"svmlight", "lda-c", "bow", "mm"}:
        return Guess(format, "as asked")
    return _delimited(path, lines, format, sep, columns, ids)


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


def _sample(head: bytes) -> list[str]:
    """The first lines, the last one dropped when it may be cut."""
    text = head.removeprefix(b"\xef\xbb\xbf").decode("utf-8", errors="replace")
    lines = text.split("\n")
    if len(lines) > 2:
        lines.pop()
    return [line.rstrip("\r") for line in lines[:SAMPLE]]


def _structured(head: bytes, lines: list[str]) -> Guess | None:
    """Formats that tell themselves by structure rather than by a separator."""
    if head[:14].lower() == b"%%matrixmarket":
        return Guess("mm", "begins with %%MatrixMarket")
    full = [line.split("#")[0].split() for line in lines if line.split("#")[0].strip()]
    sizes = len(full) >= 4 and all(len(f) == 1 and f[0].isdigit() for f in full[:3])
    if sizes and all(len(f) == 3 and f[0].isdigit() and f[1].isdigit() for f in full[3:20]):
        return Guess("bow", "three lines with one count each (documents, words, entries), then triples")
    body = full[:50]
    pairs = [[t for t in f[1:] if not t.startswith("qid:")] for f in body]
    both = list(zip(body, pairs, strict=True))
    if any(pairs) and all(_is_number(f[0]) and all(_PAIR.match(t) for t in p) for f, p in both):
        if all(_INT.match(f[0]) and int(f[0]) == len(p) for f, p in both):
            return Guess("lda-c", "each line is a count followed by as many index:count pairs")
        return Guess("svmlight", "each line is a label followed by index:value pairs")
    return None


def _delimited(
    path: str, lines: list[str], format: str, sep: str | None, columns: Sequence[int | str] | None, ids: str
) -> Guess:
    start = next((k for k, line in enumerate(lines) if line.strip() and not line.lstrip().startswith(("#", "%"))), None)
    if start is None:
        raise FormatError(path, None, "there are only comments and blank lines", "check how the file was made")
    if sep is not None and sep not in SEPARATORS:
        known = ", ".join(repr(s) for s in SEPARATORS)
        raise DataError(f"no separator {sep!r}; there are {known} (' ' is any run of blanks)")
    sep = sep or _separator(lines[start : start + 20])
    first = fields_of(lines[start], sep)
    header = _is_header(first, [fields_of(line, sep) for line in lines[start + 1 : start + 2]])
    names = tuple(f.strip().strip('"') for f in first) if header else ()
    chosen = _chosen(path, columns, names)
    skip = start + 1 if header else start
    body = [fields_of(line, sep) for line in lines[skip:] if line.strip()]
    full = [fields for fields in body if len(fields) > max(chosen)]
    width = len(full[0]) if full else len(first)
    guess = Guess("triples", "", sep, chosen, skip, names, exact=width == max(chosen) + 1)
    if ids != "auto":
        guess = replace(guess, row_text=ids == "text", col_text=ids == "text")
    else:
        guess = replace(guess, row_text=_is_text(full, chosen[0]), col_text=_is_text(full, chosen[1]))
    shown = {"\t": "tabs", " ": "blanks"}.get(sep, f"{sep!r}")
    header_why = f", header {', '.join(names[:4])}" if header else ", no header"
    why = f"lines of {width} fields separated by {shown}{header_why}"
    movielens = _movielens(path, guess, width)
    if movielens:
        why += ", as MovieLens has"
    return replace(guess, format=(movielens or "triples") if format == "auto" else format, why=why)


def _movielens(path: str, guess: Guess, width: int) -> str | None:
    base = os.path.basename(path).lower()
    numbers = width == 4 and not (guess.row_text or guess.col_text)
    as_dat = guess.sep == "::" and numbers
    as_csv = guess.sep == "," and tuple(n.lower() for n in guess.names[:3]) == ("userid", "movieid", "rating")
    as_100k = guess.sep == "\t" and numbers and not guess.names and base.startswith("u") and ".data" in base
    return "movielens" if as_dat or as_csv or as_100k else None


def fields_of(line: str, sep: str) -> list[str]:
    """Fields of a sample line; quoted separators are not split."""
    if sep == " ":
        return line.split()
    if '"' not in line:
        return [f.strip() for f in line.split(sep)]
    quoted = re.findall(rf'(?:^|{re.escape(sep)})\s*(?:"([^"]*)"|((?:(?!{re.escape(sep)}).)*))', line)
    return [a or b.strip() for a, b in quoted]


def _separator(lines: list[str]) -> str:
    """The separator that cuts most lines into the same number of fields; ties go to the rarer-in-text one."""

    def score(sep: str) -> tuple[int, int]:
        counts = [len(fields_of(line, sep)) for line in lines if line.strip()]
        several = [c for c in counts if c > 1]  # a line without the separator may be a bad one
        common = max(set(several), key=several.count, default=1)
        return several.count(common), min(common, 3)

    return max(SEPARATORS, key=lambda s: (score(s)[1] >= 2, score(s)[1] == 3, score(s)[0]))


def _is_header(first: list[str], following: list[list[str]]) -> bool:
    known = {f.strip('"').lower() for f in first} & {*ROW_NAMES, *COL_NAMES, *VALUE_NAMES}
    if len(known) >= 2:
        return True
    if any(_is_number(f.strip('"')) for f in first):
        return False
    return bool(following) and any(_is_number(f.strip('"')) for f in following[0])


def _chosen(path: str, columns: Sequence[int | str] | None, names: tuple[str, ...]) -> tuple[int, int, int]:
    if columns is None:
        return choose_columns(names) if len(names) >= 3 else (0, 1, 2)
    if len(columns) not in {2, 3}:
        raise DataError(f"columns names row, column and value (or the first two), got {list(columns)}")
    found = []
    for c in columns:
        if isinstance(c, str):
            if c not in names:
                have = ", ".join(names) if names else "no header"
                raise FormatError(path, 1, f"there is no column {c!r}", f"the file has {have}; positions work too")
            found.append(names.index(c))
        else:
            found.append(int(c))
    return (found[0], found[1], found[2] if len(found) == 3 else -1)


def _is_text(body: list[list[str]], at: int) -> bool:
    """Mostly not integers. A rare exception among integers is more likely a bad line than a name, and is reported as
    one.
    """
    tokens = [f[at].strip().strip('"') for f in body]
    return 2 * sum(not _INT.match(t) for t in tokens) > len(tokens)


def _is_number(token: str) -> bool:
    try:
        float(token)
    except ValueError:
        return False
    return True
