"""One walk through one text file: open it, settle what it is, and yield its records in bounded chunks.

`read`, `scan` and `inspect` differ in what they do with the chunks; how to get them is said once, here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from stretto.data import svmlight, triples
from stretto.data.detect import Guess, detect
from stretto.data.report import Report
from stretto.data.source import CHUNK, Lines

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
    """

    def __init__(
        self,
        path: str,
        options: Options,
        report: Report,
        names: triples.Names | None = None,
        chunk: int = CHUNK,
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
        except BaseException:
            self.text.close()
            raise

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
