"""One walk through one text file: open it, settle what it is, and yield its records in bounded chunks.

`read`, `scan` and `inspect` differ in what they do with the chunks; how to get them is said once, here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stretto.data import svmlight, triples
from stretto.data.detect import Guess, detect
from stretto.data.partreport import PartReport
from stretto.data.report import Report
from stretto.data.source import CHUNK, Lines
from stretto.errors import DataError

BINARY = ("npz", "parquet")


@dataclass(frozen=True, slots=True)
class Options:
    """What a caller may say about a file instead of letting it be guessed.

    sep : the separator;  columns : positions or header names of row, column and value (two of them: every value is 1)
    ids : "integer", "text" or "auto";  raw_ids : integer ids are indices as they stand, counted from 0
    zero_based : svmlight indices start at 0, at 1, or (None) as the file suggests
    """

    format: str = "auto"
    sep: str | None = None
    columns: Sequence[int | str] | None = None
    ids: str = "auto"
    raw_ids: bool = False
    zero_based: bool | None = None


class Parsing:
    """Iterate to get `Chunk`s; afterwards `names` knows the text ids. Use as a context manager.

    guess : what the file is;  sized : the sizes its header promises, or None
    part : (k, n) to read the k-th of n parts only; what the file is, its first bytes say to all
    report : the one that was given, or for a part one of its own
    """

    def __init__(
        self,
        path: str,
        options: Options,
        report: Report,
        names: triples.Names | None = None,
        chunk: int = CHUNK,
        part: tuple[int, int] | None = None,
    ) -> None:
        self.path, self.report = path, report
        self.names = names or triples.Names.new()
        self.text = Lines(path, chunk)
        try:
            head = self.text.head()
            self.guess: Guess = detect(
                path, head, options.format, sep=options.sep, columns=options.columns, ids=options.ids
            )
            self.sized: triples.Sized | None = None
            if self.guess.format == "bow":
                self.sized = triples.bow_header(path, head)
            elif self.guess.format == "mm":
                self.sized = triples.mm_header(path, head)
            if part is not None:
                self._narrow(*part)
        except BaseException:
            self.text.close()
            raise

    def _narrow(self, number: int, parts: int) -> None:
        guess = self.guess if self.sized is None else self.sized.guess
        if not self.is_text:
            raise DataError(
                f"{self.path}: {guess.format} files like this one are read whole, no part of them alone; write it as "
                "text (triples), or read it whole"
            )
        if guess.row_text or guess.col_text:
            raise DataError(
                f"{self.path}: the ids are text, which is numbered as it is met, and so otherwise in each part; write "
                "the file with integer ids, or read it whole"
            )
        self.report = PartReport(self.path, self.report.on_error, self.text.narrow(number, parts, guess.skip))
        self.guess = replace(self.guess, skip=0)
        if self.sized is not None:
            self.sized = replace(self.sized, guess=replace(guess, skip=0))

    @property
    def is_text(self) -> bool:
        """Whether the file can be walked in chunks; what cannot is loaded whole by `arrays`."""
        return self.guess.format not in BINARY and not (self.guess.format == "mm" and self.sized is None)

    def __enter__(self) -> Parsing:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.text.close()

    def __iter__(self) -> Iterator[triples.Chunk]:
        if self.sized is not None:
            return triples.parse_sized(self.text, self.sized, self.report)
        if self.guess.format in {"svmlight", "lda-c"}:
            return svmlight.parse(self.text, self.guess, self.report)
        return triples.parse(self.text, self.guess, self.report, self.names)
