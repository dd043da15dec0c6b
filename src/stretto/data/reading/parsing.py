"""Parse one text file in one pass: open it, settle its layout, and yield its records in bounded chunks.

`read`, `scan` and `inspect` use the same chunks in different ways.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from numpy.typing import NDArray

from stretto.data.convert.roles import ColumnChoice
from stretto.data.reading import svmlight, triples
from stretto.data.reading.detect import Guess, detect
from stretto.data.reading.headers import DeclaredSize, bow_header, check_extent, mm_header
from stretto.data.reading.part_report import PartReport
from stretto.data.reading.report import LineReport
from stretto.data.reading.source import CHUNK, LineReader, size_of
from stretto.errors import DataError

BINARY = ("npz", "parquet")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of a file that are otherwise detected.

    Parameters
    ----------
    format : str
        One of `FORMATS`, or "auto".
    sep : str or None
        The separator.
    choice : ColumnChoice
        Which columns hold user, item and rating.
    ids : {"auto", "integer", "text"}
        What the ids are.
    raw_ids : bool
        Integer ids are positions as they stand, counted from 0.
    zero_based : bool or None
        Indices of svmlight start at 0, at 1, or as the file suggests.
    """

    format: str = "auto"
    sep: str | None = None
    choice: ColumnChoice = field(default_factory=ColumnChoice)
    ids: str = "auto"
    raw_ids: bool = False
    zero_based: bool | None = None

    def __post_init__(self) -> None:
        for name in ("format", "ids"):
            if not isinstance(getattr(self, name), str):
                raise DataError(f"{name}={getattr(self, name)!r}: give text")
        if self.sep is not None and not isinstance(self.sep, str):
            raise DataError(f"sep={self.sep!r}: give the separator as text")
        for name, known in (("raw_ids", (True, False)), ("zero_based", (True, False, None))):
            if getattr(self, name) not in known:
                raise DataError(f"{name}={getattr(self, name)!r}; there are {', '.join(map(str, known))}")


@dataclass(frozen=True, slots=True)
class DetectedFormat:
    """Format and sizes of a file, from its first bytes.

    Parameters
    ----------
    guess : Guess
        Format and layout.
    sized : DeclaredSize or None
        The sizes its header promises.
    """

    guess: Guess
    sized: DeclaredSize | None = None


class Parsing:
    """Iterate to get `Chunk`s; afterwards `names` knows the text ids. Use as a context manager.

    guess : what the file is;  sized : the sizes its header promises, or None
    part : (k, n) to read the k-th of n parts only; what the file is, its first bytes say to all
    report : the one that was given, or for a part one of its own
    settled : what the file is, where that was found before; its first bytes are then not read again, and text ids are
        numbered within the part
    """

    def __init__(
        self,
        path: str,
        options: ReadOptions,
        report: LineReport,
        names: triples.TextIds | None = None,
        chunk: int = CHUNK,
        part: tuple[int, int] | None = None,
        settled: DetectedFormat | None = None,
    ) -> None:
        self.path, self.report = path, report
        self.names = names or triples.TextIds.new()
        self.text = LineReader(path, chunk)
        try:
            found = self._detect(options) if settled is None else settled
            self.guess: Guess = found.guess
            self.sized: DeclaredSize | None = found.sized
            if part is not None:
                self._narrow(*part, numbered=settled is not None)
        except BaseException:
            self.text.close()
            raise

    def _detect(self, options: ReadOptions) -> DetectedFormat:
        path = self.path
        head, whole = self.text.head()
        guess = detect(path, head, options.format, sep=options.sep, choice=options.choice, ids=options.ids, whole=whole)
        if guess.format not in {"bow", "mm"}:
            return DetectedFormat(guess)
        sized = (bow_header if guess.format == "bow" else mm_header)(path, head)
        self.check_extent(sized.n_rows, "rows", "the header promises")
        self.check_extent(sized.n_cols, "columns", "the header promises")
        return DetectedFormat(guess, sized)

    @property
    def settled(self) -> DetectedFormat:
        """What the file is, for walks to come."""
        return DetectedFormat(self.guess, self.sized)

    def _narrow(self, number: int, parts: int, numbered: bool) -> None:
        guess = self.guess if self.sized is None else self.sized.guess
        if not self.is_text or self.is_dense:
            raise DataError(
                f"{self.path}: {guess.format} files like this one are read whole, no part of them alone; write it as "
                "text (triples), or read it whole"
            )
        if not numbered and (guess.row_text or guess.col_text):
            raise DataError(
                f"{self.path}: the ids are text, which is numbered as it is met, and so otherwise in each part; write "
                "the file with integer ids, or read it whole"
            )
        self.report = PartReport(self.path, self.report.on_error, self.text.narrow(number, parts, guess.skip))
        self.guess = replace(self.guess, skip=0)
        if self.sized is not None:
            self.sized = replace(self.sized, guess=replace(guess, skip=0))

    def check_extent(self, size: int, what: str, claim: str) -> None:
        """Refuse rows or columns out of proportion to the file; see `headers.check_extent`."""
        check_extent(self.path, size, what, claim, size_of(self.path), self.text.compression is not None)

    @property
    def is_text(self) -> bool:
        """Whether the file is walked in chunks; what is not is loaded whole by `arrays`."""
        return self.guess.format not in BINARY

    @property
    def is_dense(self) -> bool:
        """Whether it is MatrixMarket's dense form, whose values have their place by their number."""
        return self.sized is not None and self.sized.dense

    def __enter__(self) -> Parsing:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.text.close()

    def __iter__(self) -> Iterator[triples.Chunk]:
        if self.sized is not None:
            if self.sized.dense:
                return triples.parse_array(self.text, self.sized)
            return triples.parse_sized(self.text, self.sized, self.report)
        if self.guess.format in {"svmlight", "lda-c"}:
            return svmlight.parse(self.text, self.guess, self.report)
        return triples.parse(self.text, self.guess, self.report, self.names)


def starts_at_zero(cols: NDArray[Any], format: str, options: ReadOptions) -> bool:
    """Whether the columns of an svmlight or lda-c file count from 0, by what occurs and what the caller said."""
    if format == "lda-c":
        return True
    found = len(cols) > 0 and int(cols.min()) == 0
    if options.zero_based is False and found:
        raise DataError("zero_based=False was given, but the file holds the index 0; leave zero_based= out")
    return found if options.zero_based is None else options.zero_based
