"""Read documents one after another: a folder of files, a file of lines, a column of a table.

    for name, text in documents("letters", TextSource(), Skipped("raise")):
        ...

A name is the path of a file below its folder, or what the column of names holds; None where documents have none.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from stretto.data.parts.files import expand, is_several
from stretto.data.reading.source import as_path, compression_of, is_url, open_plain
from stretto.errors import DataError, FormatError

from .skipped import ENCODING, Skipped

Document = tuple[str | None, str]
_PACKED = (".gz", ".xz", ".bz2")
_TABLES = {".csv": "csv", ".tsv": "csv", ".tab": "csv", ".jsonl": "json", ".ndjson": "json"}
_TABLES |= {".parquet": "parquet", ".pq": "parquet"}
_SEPARATORS = ",\t;|"
_LONGEST_FIELD = (1 << 31) - 1
_AT_ONCE = 4096  # rows of a Parquet file that are converted together


@dataclass(frozen=True, slots=True)
class TextSource:
    """How documents are found in files."""

    column: str | int | None = None  # of a table, by name or by position from 0; of JSON lines, the field
    names: str | int | None = None  # the column of the documents' names
    encoding: str = "utf-8"


def documents(source: str, how: TextSource, skipped: Skipped) -> Iterator[Document]:
    """(name, text) of every document of a file, a folder or a glob, in order."""
    check_encoding(how.encoding)
    files = text_files(source)
    tables = [table_of(file) for _, file in files]
    if how.names is not None and how.column is None:
        raise DataError(f"names={how.names!r} is a column of a table; name the column of the text, too: column=")
    if how.column is None and any(tables):
        file = next(file for (_, file), kind in zip(files, tables, strict=True) if kind)
        raise DataError(f'{file}: is a table; say which column holds the text: column="…"')
    one = len(files) == 1 and not is_several(source)
    for (name, file), kind in zip(files, tables, strict=True):
        if how.column is not None:
            yield from _table(file, kind or "csv", how, skipped)
        elif one:
            yield from _lines(file, how, skipped)
        else:
            text = _whole(file, how, skipped)
            if text is not None:
                yield name, text


def text_files(source: str) -> list[tuple[str, str]]:
    """(name, path) of the files of a source, sorted by name; those of folders within a folder too.

    Hidden files, and those that begin with "_", are not read.
    """
    if is_url(source) or not os.path.isdir(source):
        found = expand(source) if is_several(source) else [as_path(source)]
        start = os.path.commonpath([os.path.dirname(file) for file in found]) if len(found) > 1 else None
        return [(os.path.basename(file) if start is None else _below(start, file), file) for file in found]
    found = []
    for folder, inside, files in os.walk(source):
        inside[:] = [name for name in inside if not name.startswith((".", "_"))]
        found += [os.path.join(folder, name) for name in files if not name.startswith((".", "_"))]
    if not found:
        raise DataError(f"{source}: is a folder without files; check the path")
    return sorted((_below(source, file), file) for file in found)


def _below(folder: str, file: str) -> str:
    return os.path.relpath(file, folder).replace(os.sep, "/")


def table_of(file: str) -> str | None:
    """What kind of table a file is by its name: csv, json or parquet; None for plain text."""
    stem = file.lower()
    for packed in _PACKED:
        stem = stem.removesuffix(packed)
    return _TABLES.get(os.path.splitext(stem)[1])


def check_encoding(encoding: str) -> None:
    try:
        "".encode(encoding)
    except (LookupError, TypeError):
        raise DataError(f"encoding={encoding!r} is not known to Python; names are utf-8, latin-1, cp1252, …") from None


def _whole(file: str, how: TextSource, skipped: Skipped) -> str | None:
    """The text of a file; None where it cannot be read."""
    try:
        with bytes_of(file) as stream:
            raw = stream.read()
    except FormatError as error:
        skipped.bad(error.path, error.line, error.problem)
        return None
    except DataError as error:
        if skipped.on_error == "raise":
            raise
        skipped.bad(file, None, str(error).removeprefix(f"{file}: "))
        return None
    return _decoded(raw, file, None, how, skipped)


@contextmanager
def bytes_of(file: str) -> Iterator[Any]:
    """The unpacked bytes of a file; errors while they are read name the file."""
    import zlib
    from lzma import LZMAError

    try:
        if is_url(file):
            with open_plain(file) as (stream, _):
                yield stream
            return
        # Thousands of small files: most are not packed, and are opened only once.
        with open(file, "rb") as raw:
            packed = compression_of(raw.peek(8)[:8])
            if packed is None:
                yield raw
                return
        with open_plain(file) as (stream, _):
            yield stream
    except (EOFError, zlib.error, LZMAError) as error:
        raise FormatError(file, None, f"the packed file is damaged ({error})", "copy or download it again") from error
    except FileNotFoundError as error:
        raise DataError(f"{file}: no such file; check the path") from error
    except PermissionError as error:
        raise DataError(f"{file}: no permission to read it; change its mode or run as its owner") from error
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error.strerror or error}); check the file") from error


def _decoded(raw: bytes, file: str, line: int | None, how: TextSource, skipped: Skipped) -> str | None:
    try:
        text = raw.decode(how.encoding)
    except UnicodeDecodeError as error:
        problem = f"is not {how.encoding} text: byte 0x{raw[error.start]:02x} at position {error.start}"
        skipped.bad(file, line, problem, ENCODING)
        return None
    if "\0" in text:
        skipped.bad(file, line, "holds zero bytes, so it is not plain text")
        return None
    return text.removeprefix("\ufeff")


def _lines(file: str, how: TextSource, skipped: Skipped) -> Iterator[Document]:
    """One document a line, also empty ones, so that document k is line k + 1."""
    text = None
    wide = how.encoding.lower().replace("_", "-").startswith(("utf-16", "utf-32", "utf16", "utf32"))
    with bytes_of(file) as stream:
        if not wide:
            for number, raw in enumerate(stream, 1):
                text = _decoded(raw.rstrip(b"\r\n"), file, number, how, skipped)
                if text is not None:
                    yield None, text
            return
        text = _decoded(stream.read(), file, None, how, skipped)
    for line in io.StringIO(text or ""):
        yield None, line.rstrip("\r\n")


def _table(file: str, kind: str, how: TextSource, skipped: Skipped) -> Iterator[Document]:
    rows = {"csv": _csv_rows, "json": _json_rows, "parquet": _parquet_rows}[kind]
    for line, text, name in rows(file, how, skipped):
        if text is None:
            text = ""  # a missing value is an empty document
        if not isinstance(text, str):
            skipped.bad(file, line, f"column {how.column!r} holds {text!r}, which is not text")
            continue
        yield None if how.names is None else "" if name is None else str(name), text


def _csv_rows(file: str, how: TextSource, skipped: Skipped) -> Iterator[tuple[int | None, Any, Any]]:
    """Rows of delimited text with quotes as in RFC 4180. A column by position: the file has no line of names."""
    before = csv.field_size_limit(_LONGEST_FIELD)
    try:
        with bytes_of(file) as stream:
            text = io.TextIOWrapper(stream, encoding=how.encoding, errors="surrogateescape", newline="")
            head = text.readline().removeprefix("\ufeff")
            if not head:
                raise FormatError(file, None, "the file is empty", "check how it was made")
            table = csv.reader(_rejoined(head, text), delimiter=max(_SEPARATORS, key=head.count))
            if isinstance(how.column, str):
                header = next(table)
                at = [_position(file, header, name) for name in (how.column, how.names)]
            else:
                at = [name if isinstance(name, int) else None for name in (how.column, how.names)]
            while True:
                try:
                    row = next(table)
                except StopIteration:
                    return
                except csv.Error as error:
                    skipped.bad(file, table.line_num, f"is no delimited text ({error})")
                    continue
                if not row:
                    continue
                values = [None if k is None or k >= len(row) else row[k] for k in at]
                if values[0] is None:
                    skipped.bad(file, table.line_num, f"has {len(row)} columns, and the text is in column {at[0]}")
                elif not _is_clean("".join(value or "" for value in values)):
                    skipped.bad(file, table.line_num, f"is not {how.encoding} text", ENCODING)
                else:
                    yield table.line_num, values[0], values[1]
    finally:
        csv.field_size_limit(before)


def _rejoined(head: str, rest: Any) -> Iterator[str]:
    yield head
    yield from rest


def _is_clean(text: str) -> bool:
    """Whether there are no bytes left that could not be decoded."""
    return text.isascii() or not any("\udc80" <= char <= "\udcff" for char in text)


def _position(file: str, header: list[str], name: str | int | None) -> int | None:
    if name is None or isinstance(name, int):
        return name
    if name not in header:
        shown = ", ".join(repr(one) for one in header[:8])
        raise FormatError(file, 1, f"there is no column {name!r} among {shown}", 'name one of them: column="…"')
    return header.index(name)


def _json_rows(file: str, how: TextSource, skipped: Skipped) -> Iterator[tuple[int | None, Any, Any]]:
    """A JSON object a line."""
    import msgspec

    read = msgspec.json.Decoder().decode
    with bytes_of(file) as stream:
        for number, raw in enumerate(stream, 1):
            if raw.isspace():
                continue
            try:
                row = read(raw.removeprefix(b"\xef\xbb\xbf"))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                skipped.bad(file, number, f"is no JSON ({error})")
                continue
            if not isinstance(row, dict) or how.column not in row:
                skipped.bad(file, number, f"has no field {how.column!r}", 'name another with column="…", or repair it')
                continue
            yield number, row[how.column], row.get(how.names)


def _parquet_rows(file: str, how: TextSource, skipped: Skipped) -> Iterator[tuple[int | None, Any, Any]]:
    from stretto.data.reading.array_files import open_parquet

    with open_parquet(file) as table:
        columns = list(table.schema_arrow.names)
        at = [_position(file, columns, name) for name in (how.column, how.names)]
        wanted = [columns[k] for k in at if k is not None]
        for batch in table.iter_batches(_AT_ONCE, columns=wanted):
            values = [batch.column(name).to_pylist() for name in wanted]
            for k, text in enumerate(values[0]):
                yield None, text, values[1][k] if len(values) > 1 else None
