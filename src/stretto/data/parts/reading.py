"""Read one part of any file format in chunks: ids as written, values, and a checksum of all of it.

Text ids come as codes, numbered in the order in which the part mentions them; the names behind the codes are in
`row_names` and `col_names`. Memory holds one chunk and the names.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.convert.frames import as_frame, ids_of_column, ratings_of_column
from stretto.data.parts.part_range import Entries, PartRange
from stretto.data.reading import array_files
from stretto.data.reading.columns import Interner
from stretto.data.reading.one_file import read_file
from stretto.data.reading.parsing import Parsing, ReadOptions
from stretto.data.reading.part_report import PartReport
from stretto.data.reading.report import LineReport
from stretto.data.reading.source import CHUNK
from stretto.data.records.arrays import as_values
from stretto.data.records.data import Data
from stretto.data.records.ids import TEXT, IdMap, plain_ids, text_array
from stretto.errors import DataError

_LEAST, _PER_RECORD = 1 << 16, 16  # bytes of text parsed at once: at least, and for each record of a chunk


class TextCodes:
    """Numbers distinct texts in the order they are met, as `Interner` does, for columns of Arrow."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._codes)

    def codes(self, column: Any) -> NDArray[np.int32]:
        """The codes of an Arrow array of text without missing entries."""
        encoded = column.dictionary_encode()
        known = self._codes
        fresh = [known.setdefault(name, len(known)) for name in encoded.dictionary.to_pylist()]
        codes: NDArray[np.int32] = np.array(fresh, dtype=np.int32)[encoded.indices.to_numpy(zero_copy_only=False)]
        return codes

    def texts(self, first: int, source: str) -> list[str]:
        return list(self._codes)[first:]

    def ranks(self, source: str) -> tuple[NDArray[np.int32], IdMap]:
        """For every number the rank of its text, and the map of the texts in rank order."""
        ordered = sorted(self._codes)
        rank = np.empty(len(ordered), dtype=np.int32)
        rank[[self._codes[name] for name in ordered]] = np.arange(len(ordered), dtype=np.int32)
        return rank, IdMap(text_array(ordered))

    def digest(self) -> int:
        """A checksum of the texts in the order of their numbers."""
        return zlib.crc32("\0".join(self._codes).encode())


class PartReader:
    """Iterate to get (rows, cols, values, labels) of a part; the arrays are views that the next ones may overwrite.

    Attributes
    ----------
    row_names, col_names : Interner, TextCodes or None
        The names behind the codes, where ids are text.
    loaded : Data or None
        The records of a file that is loaded rather than streamed.
    report : LineReport
        Bad lines.
    records, digest : int
        After the last chunk: how many, and a checksum of ids, values and their order.
    """

    def __init__(self, part: PartRange, chunk: int) -> None:
        if isinstance(chunk, bool) or not isinstance(chunk, int) or chunk < 1:
            raise DataError(f"chunk={chunk!r}; give the most records at once, 1 or more")
        self.part, self.chunk = part, chunk
        guess = part.layout.settled.guess
        self.row_names: Interner | TextCodes | None = Interner() if guess.row_text else None
        self.col_names: Interner | TextCodes | None = Interner() if guess.col_text else None
        self.loaded: Data | None = None
        self.report: LineReport = PartReport(part.path, part.on_error, None)
        self.records = self.digest = 0

    def __iter__(self) -> Iterator[tuple[NDArray[Any], NDArray[Any], NDArray[np.float32], NDArray[np.float64]]]:
        part, sums = self.part, [0, 0, 0, 0]
        part.check()
        if part.layout.loaded:
            walk = self._load()
        else:
            walk = self._row_groups() if part.layout.format == "parquet" else self._lines()
        for piece in walk:
            for k, array in enumerate(piece):
                sums[k] = zlib.crc32(np.ascontiguousarray(array).data, sums[k])
            self.records += len(piece[2])
            yield piece
        names = [names.digest() for names in (self.row_names, self.col_names) if names is not None]
        self.digest = zlib.crc32(np.array([*sums, *names], dtype=np.uint64).data)
        part.check()  # also refuses a file that changed while it was read

    def _lines(self) -> Iterator[Any]:
        from stretto.data.reading.triples import TextIds

        part = self.part
        nothing = Interner()
        rows, cols = (names if isinstance(names, Interner) else nothing for names in (self.row_names, self.col_names))
        size = min(CHUNK, max(_LEAST, _PER_RECORD * self.chunk))
        share = part.share if part.kind == "bytes" else None
        with Parsing(
            part.path, part.options, self.report, TextIds(rows, cols), size, share, part.layout.settled
        ) as parsing:
            self.report = parsing.report
            for chunk in parsing:
                yield chunk.rows, chunk.cols, chunk.values, chunk.labels

    def _load(self) -> Iterator[Any]:
        part = self.part
        options = ReadOptions(part.layout.format, choice=part.options.choice)
        self.loaded = data = read_file(part.path, options, duplicates="keep", on_error=part.on_error)
        labels = np.empty(0) if data.labels is None else data.labels
        for lo in range(0, max(1, len(data)), self.chunk):
            at = slice(lo, lo + self.chunk)
            yield data.rows[at], data.cols[at], data.values[at], labels if lo == 0 else np.empty(0)

    def _row_groups(self) -> Iterator[Any]:
        part = self.part
        user, item, *rating = part.layout.columns
        with array_files.open_parquet(part.path) as file:
            schema = file.schema_arrow
            self.row_names = TextCodes() if _is_text(schema.field(user).type) else None
            self.col_names = TextCodes() if _is_text(schema.field(item).type) else None
            groups = range(part.begin, part.end)
            for batch in file.iter_batches(self.chunk, row_groups=groups, columns=list(part.layout.columns)):
                yield (
                    _ids(batch, user, "user", self.row_names, part.path),
                    _ids(batch, item, "item", self.col_names, part.path),
                    _values(batch, rating, part.path),
                    np.empty(0),
                )


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _ids(batch: Any, name: str, role: str, names: Interner | TextCodes | None, path: str) -> NDArray[Any]:
    if isinstance(names, TextCodes) and not batch[name].null_count:
        column = batch[name]
        return names.codes(column.dictionary_decode() if hasattr(column, "dictionary_decode") else column)
    return plain_ids(ids_of_column(_series(batch, name, path), role, name, path))  # refuses missing ids


def _values(batch: Any, rating: list[str], path: str) -> NDArray[np.float32]:
    if not rating:
        return np.ones(len(batch), dtype=np.float32)
    return as_values(ratings_of_column(_series(batch, rating[0], path), rating[0], path), path)


def _series(batch: Any, name: str, path: str) -> Any:
    frame = as_frame(batch.select([name]), path)
    if frame is None:
        raise DataError(f"{path}: the column {name!r} cannot be read")
    return frame.column(0)


def as_written(part: PartRange, chunk: int) -> Iterator[Entries]:
    """`DataPart.triples`."""
    reader = PartReader(part, chunk)
    known: list[NDArray[Any]] = [np.empty(0, dtype=TEXT), np.empty(0, dtype=TEXT)]
    for rows, cols, values, _ in reader:
        said: list[NDArray[Any]] = []
        maps = (None, None) if reader.loaded is None else (reader.loaded.row_ids, reader.loaded.col_ids)
        for k, (codes, names) in enumerate(((rows, reader.row_names), (cols, reader.col_names))):
            mapped = maps[k]
            if names is not None:
                if len(names) > len(known[k]):
                    known[k] = np.concatenate((known[k], text_array(names.texts(len(known[k]), part.path))))
                said.append(known[k][codes])
            else:
                said.append(codes.astype(np.int64) if mapped is None else mapped.ids[codes])
        for lo in range(0, len(values), chunk):
            at = slice(lo, lo + chunk)
            yield said[0][at], said[1][at], values[at].copy()
    reader.report.close()
