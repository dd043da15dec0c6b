"""Layout of delimited text: separator, header, which fields to read, and the type of the ids.

The layout is detected from the first lines, and ambiguous files are refused: fields beyond user, item and rating that
are no time stamps and have no header, a header with other names, values that look like time stamps, tables with one
column for each item.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass
from typing import NoReturn

from stretto.data.convert.roles import USER_NAMES, ColumnChoice, find_roles, is_known, plain_name
from stretto.errors import DataError, FormatError

SEPARATORS = ("::", "\t", "|", ",", ";", " ")
MISSING = frozenset(["", "na", "n/a", "nan", "null", "none", "nil", "?", "-", "."])

_INT = re.compile(r"0|-?[1-9][0-9]{0,17}")
_BANNER = re.compile(r"\bmatrix\s+(coordinate|array)\b")  # of MatrixMarket
_PAIR = re.compile(r"[0-9]+:[-+0-9.eE]*")
_TIME = re.compile(r"[0-9]{9,19}(\.0*)?")  # seconds since 1970, from 1973 on, or finer
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\b.*|[0-9]{1,2}[./][0-9]{1,2}[./][0-9]{2,4}\b.*")
_SAY = "say which columns hold user, item and rating, counted from 0, such as columns=(0, 1, 2)"


@dataclass(frozen=True, slots=True)
class LineLayout:
    """How to cut lines into records."""

    sep: str  # "::", tab, "|", ",", ";" or " " (any run of blanks)
    columns: tuple[int, int, int]  # fields of user, item and rating; the rating is -1 where every value is 1
    width: int  # fields of a line, 0 for any number
    skip: int  # lines before the first record
    names: tuple[str, ...]  # the header's fields, if there is one
    row_text: bool  # ids of rows are not integers
    col_text: bool  # ids of columns are not integers

    @property
    def why(self) -> str:
        """What was found, in words."""
        shown = {"\t": "tabs", " ": "blanks"}.get(self.sep, repr(self.sep))
        header = f", header {', '.join(self.names[:4])}" if self.names else ", no header"
        return f"lines of {self.width} fields separated by {shown}{header}"


def find_layout(
    path: str, lines: list[str], format: str, sep: str | None, choice: ColumnChoice, ids: str
) -> LineLayout:
    """The layout of the file that begins with `lines`.

    Parameters
    ----------
    path : str
        The file, for messages and for the format that its name suggests.
    lines : list of str
        Its first lines, all of them whole.
    format : str
        "movielens", "triples" or "auto".
    sep : str or None
        The separator, where it was given.
    choice : ColumnChoice
        The columns that the caller named.
    ids : str
        "integer", "text" or "auto".
    """
    start = next((k for k, line in enumerate(lines) if line.strip() and not _is_comment(line)), None)
    if start is None:
        raise FormatError(path, None, "there are only comments and blank lines", "check how the file was made")
    if sep is not None and sep not in SEPARATORS:
        known = ", ".join(repr(s) for s in SEPARATORS)
        raise DataError(f"no separator {sep!r}; there are {known} (' ' is any run of blanks)")
    _refuse_other_formats(path, lines, start)
    sep = sep or _separator(lines[start : start + 20])
    first = fields_of(lines[start], sep)
    following = [fields_of(line, sep) for line in lines[start + 1 :] if line.strip() and not _is_comment(line)]
    header = _is_header(first, following[:5])
    body = following if header else [first, *following]
    width = _common_width(body, len(first))
    names = tuple(first) if header else _commented_header(lines[:start], sep, width)
    columns = _columns(path, start + 1, names, width, body, format, sep, choice)
    # Errors name the fewest fields of a record; a line of another width is a bad line.
    width = max(width, max(columns) + 1)
    if choice == ColumnChoice() and columns[2] >= 0:
        _refuse_times(path, body, columns)
    full = [fields for fields in body if len(fields) > max(columns)]
    if ids == "auto":
        kinds = [_is_text(path, full, columns[k], name, choice) for k, name in ((0, "user"), (1, "item"))]
    else:
        kinds = [ids == "text"] * 2
    if any(kinds):
        _refuse_commented_records(path, lines[:start], sep, width, columns)
    return LineLayout(sep, columns, width, start + 1 if header else start, names, kinds[0], kinds[1])


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith(("#", "%"))


def _refuse_other_formats(path: str, lines: list[str], start: int) -> None:
    """Raise for files of other formats with damaged first lines, whose sizes would be read as a record."""
    for k, line in enumerate(lines):
        banner = "matrixmarket" in line.lower() if _is_comment(line) else k == start and _BANNER.search(line.lower())
        if banner or (k < start and line.lstrip().startswith("%%")):
            raise FormatError(
                path, k + 1, "the line looks like MatrixMarket's first one, and is not the file's first or not right",
                "put '%%MatrixMarket matrix coordinate real general' on the first line",
            )  # fmt: skip
    full = [line.split() for line in lines[start:] if line.strip()]
    first, rest = full[:3], full[3:20]
    single = [fields[0] for fields in first if len(fields) == 1]
    counts = len(single) >= 2 and any(token.isdigit() for token in single)
    if counts and 2 * sum(len(fields) == 3 for fields in rest) >= len(rest) > 0:
        raise FormatError(
            path, start + 1, "the file begins with single numbers as UCI bag-of-words files do, but not with three",
            'repair the three lines with the numbers of documents, words and entries (format="bow")',
        )  # fmt: skip


def fields_of(line: str, sep: str) -> list[str]:
    """The fields of a line, without quotes and blanks around them; a separator inside quotes does not separate.

    >>> fields_of('7, "Smith, J.", 5', ",")
    ['7', 'Smith, J.', '5']
    """
    if '"' not in line:
        return line.split() if sep == " " else [field.strip() for field in line.split(sep)]
    fields: list[str] = []
    at, size = 0, len(line)
    while True:
        while at < size and (line[at] == " " or (sep == " " and line[at].isspace())):
            at += 1
        if sep == " " and at == size and fields:
            return fields
        if at < size and line[at] == '"':
            end = at + 1
            while end < size and (line[end] != '"' or line[end + 1 : end + 2] == '"'):
                end += 2 if line[end] == '"' else 1
            text, at = line[at + 1 : end].replace('""', '"'), end + 1
            stop = _next_separator(line, at, sep)
            fields.append(text + line[at:stop].strip())
        else:
            stop = _next_separator(line, at, sep)
            fields.append(line[at:stop].strip())
        if stop >= size:
            return fields
        at = stop + len(sep)


def _next_separator(line: str, at: int, sep: str) -> int:
    if sep == " ":
        return next((k for k in range(at, len(line)) if line[k].isspace()), len(line))
    found = line.find(sep, at)
    return found if found >= 0 else len(line)


def _separator(lines: list[str]) -> str:
    """The separator that cuts most lines into the same number of fields; ties go to the rarer-in-text one."""

    def score(sep: str) -> tuple[int, int]:
        counts = [len(fields_of(line, sep)) for line in lines if line.strip()]
        several = [c for c in counts if c > 1]  # a line without the separator may be a bad one
        common = max(set(several), key=several.count, default=1)
        return several.count(common), min(common, 3)

    return max(SEPARATORS, key=lambda s: (score(s)[1] >= 2, score(s)[1] == 3, score(s)[0]))


def _is_header(first: list[str], following: list[list[str]]) -> bool:
    if sum(is_known(field) for field in first) >= 2:
        return True
    numbers = [_is_number(field) for field in first]
    # A table with one numbered column for each item, the column of users named or, as pandas' index, not.
    if len(first) >= 3 and all(numbers[1:]) and (first[0] == "" or plain_name(first[0]) in USER_NAMES):
        return True
    if any(number or field.lower() in MISSING for number, field in zip(numbers, first, strict=True)):
        return False
    return any(_is_number(field) for fields in following for field in fields)


def _commented_header(before: list[str], sep: str, width: int) -> tuple[str, ...]:
    """The names in a comment right before the first record, as NumPy's `savetxt` writes them."""
    if not before or not _is_comment(before[-1]):
        return ()
    fields = fields_of(before[-1].lstrip("#% \t"), sep)
    return tuple(fields) if len(fields) == width and sum(is_known(field) for field in fields) >= 2 else ()


def _common_width(body: list[list[str]], first: int) -> int:
    """How many fields most lines have, those of the first line in case of doubt."""
    counts = Counter(len(fields) for fields in body)
    return max(counts, key=lambda width: (counts[width], width == first), default=first)


def _columns(
    path: str,
    line: int,
    names: tuple[str, ...],
    width: int,
    body: list[list[str]],
    format: str,
    sep: str,
    choice: ColumnChoice,
) -> tuple[int, int, int]:
    if choice.positions:
        last = max(int(one) for one in choice.columns or ())
        return find_roles(range(max(width, len(names), last + 1)), choice)
    if names:
        if len(names) != width:
            raise FormatError(
                path, line, f"the header has {len(names)} fields and the lines after it have {width}",
                "write both alike (look for decimal commas, unquoted separators or row names), or give positions: "
                "columns=(0, 1, 2)",
            )  # fmt: skip
        try:
            return find_roles(names, choice)
        except DataError as error:
            raise FormatError(path, line, str(error)) from None
    if choice != ColumnChoice():
        wanted = choice.columns or [name for name in (choice.user, choice.item, choice.rating) if name is not None]
        named = next(name for name in wanted if isinstance(name, str))
        raise FormatError(path, line, f"there is no column {named!r}: the file has no header", _SAY)
    if width > 3 and format != "movielens" and not (width == 4 and (sep == "::" or _is_extra(body))):
        raise FormatError(
            path, line, f"lines of {width} fields without a header: is it a table with one column for each item?", _SAY
        )
    if width == 2:
        raise FormatError(
            path, line, "lines of two fields: a user and an item without a rating",
            "pass columns=(0, 1) if every value is 1",
        )  # fmt: skip
    return 0, 1, 2


def _is_extra(body: list[list[str]]) -> bool:
    """Whether the fourth field is no rating: a time stamp, a date, or nothing after a last separator."""
    last = [fields[3] for fields in body if len(fields) == 4]
    return all(not field for field in last) or all(_TIME.fullmatch(field) or _DATE.fullmatch(field) for field in last)


def _refuse_times(path: str, body: list[list[str]], columns: tuple[int, int, int]) -> None:
    values = [fields[columns[2]] for fields in body if len(fields) > columns[2]]
    if values and all(_TIME.fullmatch(value) for value in values):
        raise FormatError(
            path, None, f"the values, such as {values[0]}, look like time stamps rather than ratings",
            f"pass columns={columns[:2]} if every value is 1, or columns={columns} if they are values",
        )  # fmt: skip


def _is_text(path: str, body: list[list[str]], at: int, role: str, choice: ColumnChoice) -> bool:
    """Mostly not integers. A rare exception among integers is more likely a bad line than a name, and is reported as
    one.
    """
    tokens = [fields[at] for fields in body]
    others = [token for token in tokens if not _INT.fullmatch(token)]
    if 2 * len(others) <= len(tokens):
        return False
    if all("." in token and _is_number(token) for token in others):
        _refuse_fractions(path, others[0], role)
    if choice == ColumnChoice() and all(_DATE.fullmatch(token) for token in others):
        raise FormatError(path, None, f"the ids of the {role} column, such as {others[0]}, are dates", _SAY)
    if choice == ColumnChoice() and all(_PAIR.fullmatch(token) for token in others):
        raise FormatError(
            path, None, f"the ids of the {role} column, such as {others[0]}, look like svmlight's index:value",
            'pass format="svmlight", or columns=(0, 1, 2) if they are ids',
        )  # fmt: skip
    return True


def _refuse_fractions(path: str, token: str, role: str) -> NoReturn:
    raise FormatError(
        path, None, f"the ids of the {role} column, such as {token}, are written as fractional numbers",
        'name the right columns with columns=(0, 1, 2), write the ids as integers, or pass ids="text" to take them as '
        "they stand",
    )  # fmt: skip


def _refuse_commented_records(
    path: str, before: list[str], sep: str, width: int, columns: tuple[int, int, int]
) -> None:
    """Among text ids, "#ann" may be a name; a first record must not be lost as a comment."""
    for k, line in enumerate(before):
        fields = fields_of(line, sep) if line.strip() else []
        if len(fields) == width and columns[2] >= 0 and _is_number(fields[columns[2]]):
            raise FormatError(
                path, k + 1, f"the line begins with {line.lstrip()[0]!r}, as comments do, and is a record otherwise",
                "put the id into quotes, or drop the line",
            )  # fmt: skip


def is_movielens(path: str, layout: LineLayout) -> bool:
    """Whether the file is laid out as one of the MovieLens sets."""
    numbers = layout.width == 4 and not (layout.row_text or layout.col_text)
    base = os.path.basename(path).lower()
    as_dat = layout.sep == "::" and numbers
    as_csv = layout.sep == "," and tuple(n.lower() for n in layout.names[:3]) == ("userid", "movieid", "rating")
    as_100k = layout.sep == "\t" and numbers and not layout.names and base.startswith("u") and ".data" in base
    return as_dat or as_csv or as_100k


def _is_number(token: str) -> bool:
    try:
        float(token)
    except ValueError:
        return False
    return True
