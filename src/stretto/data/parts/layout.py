"""Format and columns of each file of a data set: detected once, when parts are planned, and carried by the parts.

A node that reads a part never guesses: the driver read every file's first bytes and made sure that the files fit
together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from stretto.data.parts.files import FileState, state_of
from stretto.data.reading import array_files
from stretto.data.reading.parsing import DetectedFormat, Parsing, ReadOptions
from stretto.data.reading.report import LineReport
from stretto.errors import DataError, FormatError

DELIMITED = ("triples", "movielens")
_APART = "give a glob or a list of the files that belong together"


@dataclass(frozen=True, slots=True)
class FileLayout:
    """How a file is read.

    Parameters
    ----------
    settled : DetectedFormat
        Format and, for text, layout.
    kind : {"bytes", "row groups", "whole"}
        What its parts are.
    columns : tuple of str
        The columns of a Parquet file: user, item and, unless every value is 1, rating.
    """

    settled: DetectedFormat
    kind: str
    columns: tuple[str, ...] = ()

    @property
    def format(self) -> str:
        return self.settled.guess.format

    @property
    def loaded(self) -> bool:
        """Whether the file is loaded rather than streamed: archives, and matrices of which a file has one triangle."""
        sized = self.settled.sized
        return self.format == "npz" or (sized is not None and (sized.dense or sized.symmetry != "general"))


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of a data set.

    Parameters
    ----------
    path : str
        Absolute, or a URL.
    state : FileState
        To notice a change.
    layout : FileLayout
        How it is read.
    groups : tuple of int
        Bytes of a Parquet file's row groups.
    """

    path: str
    state: FileState
    layout: FileLayout
    groups: tuple[int, ...] = ()

    @property
    def nbytes(self) -> int:
        return sum(self.groups) or self.state.size or 1


def survey(paths: Sequence[str], options: ReadOptions, copies: bool) -> tuple[DataFile, ...]:
    """Detect the formats of the files. Empty files among several are left out: parts of a job's output may be empty."""
    files = []
    for path in paths:
        state = state_of(path, copies)
        if state.size == 0 and len(paths) > 1:
            continue
        files.append(_look(path, state, options))
    if not files:
        raise DataError(f"{paths[0]} and {len(paths) - 1} more files are empty; check how they were made")
    return united(files, options)


def _look(path: str, state: FileState, options: ReadOptions) -> DataFile:
    with Parsing(path, options, LineReport(path)) as parsing:
        settled, packed = parsing.settled, parsing.text.compression is not None
    splits = not packed and state.size is not None
    if settled.guess.format == "parquet":
        columns, groups = _parquet_parts(path, options)
        kind = "row groups" if splits else "whole"
        return DataFile(path, state, FileLayout(settled, kind, columns), groups)
    layout = FileLayout(settled, "bytes")
    return DataFile(path, state, layout if splits and not layout.loaded else replace(layout, kind="whole"))


def _parquet_parts(path: str, options: ReadOptions) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The columns to read, and the bytes that they take in each row group."""
    with array_files.open_parquet(path) as file:
        columns = tuple(array_files.parquet_columns(path, file, options.choice))
        about = file.metadata
        wanted = [k for k in range(about.num_columns) if about.schema.column(k).path.split(".")[0] in columns]
        sizes = [
            sum(about.row_group(g).column(k).total_compressed_size for k in wanted) for g in range(about.num_row_groups)
        ]
    return columns, tuple(sizes)


def united(files: list[DataFile], options: ReadOptions) -> tuple[DataFile, ...]:
    """The files with one common type of ids; refused where formats or headers differ."""
    first = files[0]
    guess = first.layout.settled.guess
    for other in files[1:]:
        theirs = other.layout.settled.guess
        if _family(theirs.format) != _family(guess.format):
            raise FormatError(
                other.path, None, f"it is {theirs.format} ({theirs.why}), and {first.path} is {guess.format}", _APART
            )
        if theirs.names != guess.names and not options.choice.positions:
            raise FormatError(
                other.path, None, f"its header is {_header(theirs.names)}, that of {first.path} {_header(guess.names)}",
                "write them alike, or give positions: columns=(0, 1, 2)",
            )  # fmt: skip
    _same_width(files)
    # Where one file names its rows by text, integers in another are names, too.
    text = {
        name: any(getattr(file.layout.settled.guess, name) for file in files) for name in ("row_text", "col_text")
    }  # fmt: skip
    return tuple(replace(file, layout=_with_ids(file.layout, text)) for file in files)


def _same_width(files: list[DataFile]) -> None:
    """Files that state their columns must agree: another number of words is another vocabulary."""
    sized = [(file.path, file.layout.settled.sized.n_cols) for file in files if file.layout.settled.sized is not None]
    for path, width in sized[1:]:
        if width != sized[0][1]:
            problem = f"its header promises {width} columns, that of {sized[0][0]} {sized[0][1]}"
            raise FormatError(path, None, problem, f"files of one data set have the same columns; {_APART}")


def _with_ids(layout: FileLayout, text: dict[str, Any]) -> FileLayout:
    if layout.format not in DELIMITED:
        return layout
    return replace(layout, settled=replace(layout.settled, guess=replace(layout.settled.guess, **text)))


def _family(format: str) -> str:
    return "triples" if format in DELIMITED else format


def _header(names: Sequence[str]) -> str:
    return ",".join(names[:6]) + (",…" if len(names) > 6 else "") if names else "missing"
