"""Input of a topic model: convert matrices, data frames and files of word counts to a `Corpus`.

The same matrix gives the same `Corpus` whatever its format and the order of its entries.

    >>> corpus = as_corpus([[2, 0, 1], [0, 0, 0]], seed=0)
    >>> corpus.n_documents, corpus.n_words, corpus.n_tokens
    (2, 3, 3)
    >>> list(corpus.data)
    [((0, 0), 2.0), ((0, 2), 1.0)]

A fractional count (tf-idf, averages) is rounded up with the probability of its fraction, so that it is right on
average. The draw is `st.uniform` of seed, document and word; the order of entries does not matter.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array

from stretto.checks import shown
from stretto.data.convert.frames import EagerFrame, as_frame
from stretto.data.convert.roles import ITEM_NAMES, RATING_NAMES, USER_NAMES, plain_name
from stretto.data.documents.text_counts import TextCounts
from stretto.data.generate.corpus import absorb, start, unit
from stretto.data.reading.parsing import Parsing, ReadOptions
from stretto.data.reading.read import read, read_for_fit
from stretto.data.reading.report import LineReport
from stretto.data.reading.source import LineReader, as_path
from stretto.data.records.arrays import SLICE
from stretto.data.records.data import Data, held_out, splitmix64
from stretto.errors import DataError
from stretto.models import checks
from stretto.models.sklearn_base import check_array, validate_data

Array = NDArray[Any]
Words = Sequence[str] | str | os.PathLike[str]

LARGEST = 2**24 - 1  # float32 holds every integer up to it
OPEN_ENDED = ("svmlight", "lda-c")  # formats that do not give the number of words
# Names of unnamed columns, and those of a table with one count per row: document, word, count.
_IDS = {"docid", "documentid", "wordid", "termid", "userid", "itemid"}
_RECORDS = (USER_NAMES, ITEM_NAMES, RATING_NAMES)
_ROUND, _DEAL = 1, 2  # keys of the random draws: rounding, splitting
_DEALT = 1 << 16  # tokens of one entry that are drawn one by one


class FractionalCountsWarning(UserWarning):
    """Counts were rounded by a draw because they are not integers."""


class UnknownWordsWarning(UserWarning):
    """Words were left out because the vocabulary does not contain them."""


@dataclass(frozen=True, eq=False)
class Corpus:
    """Documents × words. Documents without words are rows without entries."""

    data: Data  # counts as float32, integers from 1 up, sorted by document and then by word
    vocabulary: list[str] | None = None  # [V] words
    documents: list[str] | None = None  # [D] names of the documents

    @property
    def n_documents(self) -> int:
        return self.data.shape[0]

    @property
    def n_words(self) -> int:
        return self.data.shape[1]

    @property
    def n_tokens(self) -> int:
        return int(self.data.values.sum(dtype=np.float64))


def as_corpus(
    X: Any,
    *,
    words: int | None = None,
    strict: bool = False,
    seed: int,
    vocabulary: Words | None = None,
    estimator: Any = None,
    reset: bool = True,
    keyed_by: str = "position",
    read_as: Mapping[str, Any] | None = None,
) -> Corpus:
    """A corpus from a sparse or dense matrix, a DataFrame, `Data`, `TextCounts`, or a path that `st.read` reads.

    words      : number of words that the model was trained on; X must have as many, and may then have no tokens
    strict     : refuse fractional counts
    vocabulary : the words in column order, or a file with one word a line; data with named words are
                 put into its order, and words that it does not contain are left out with a warning
    estimator  : for checks by scikit-learn's rules, which set n_features_in_ (`reset`) or compare with it
    keyed_by   : key of a document in the rounding draw: its "position" (row), or its "content", with which a
                 document is rounded in the same way in any corpus
    read_as    : arguments of `stretto.read`, if X is a path
    """
    if keyed_by not in {"position", "content"}:
        raise DataError(f"keyed_by must be 'position' or 'content', got {keyed_by!r}")
    names = None if vocabulary is None else read_vocabulary(vocabulary)
    learning = words is None and (estimator is None or reset)
    documents: list[str] | None = None
    if isinstance(X, (str, os.PathLike)):
        known = getattr(estimator, "n_features_in_", None) if not reset else None
        X = _from_path(as_path(X), max(words or 0, known or 0, len(names or ())), read_as)
    frame = None if isinstance(X, Data | TextCounts) else as_frame(X, "X")
    if isinstance(X, Data):
        X, names, documents = _from_data(X, names)
    elif isinstance(X, TextCounts):
        X, names, documents = _from_text(X, names)
    elif frame is not None:
        _refuse_records(frame)
        if names is None and all(isinstance(name, str) for name in frame.names):
            names = list(frame.names)
        index = getattr(frame.native, "index", None)  # of pandas; others have none
        if index is not None and type(index).__name__ != "RangeIndex":
            documents = [str(name) for name in index]
        X = frame.native
    X = _validated(checks.plain(X, owner="" if estimator is None else type(estimator).__name__), estimator, reset)
    width = X.shape[1]
    if words is not None and width != words:
        raise DataError(f"X has {width} words, the model was trained on {words}; give the same columns in their order")
    if names is not None and len(names) != width:
        raise DataError(f"the vocabulary has {len(names)} words, X has {width}; give one name a column, in their order")
    rows, cols, values = _entries(X)
    who = "the topic model (input X)" if estimator is None else f"{type(estimator).__name__} (input X)"
    rows, cols, counts = _counts(rows, cols, values, who, strict, seed, keyed_by)
    if learning and not len(counts):
        more = "; its fractional counts were all rounded to nothing, so scale them up" if np.any(values) else ""
        raise DataError(f"X has {X.shape[0]} documents and no tokens{more}; there is nothing to learn from zeros")
    data = Data.from_arrays(rows, cols, counts, (int(X.shape[0]), int(width)), source="documents")
    return Corpus(data, names, documents)


def _refuse_records(frame: EagerFrame) -> None:
    """Refuse a frame with one row per count: a matrix has a row for each document and a column for each word."""
    plain = [plain_name(name) for name in frame.names]
    ids = [str(name) for name, short in zip(frame.names, plain, strict=True) if short in _IDS]
    records = len(plain) <= 4 and all(any(name in names for name in plain) for names in _RECORDS)
    if ids or records:
        raise DataError(
            f"X is a frame with the columns {', '.join(map(str, frame.names[:6]))}; a topic model takes a column for "
            "each word. If each row is a document, a word and a count, pass st.as_data(X); if a column names the "
            "documents, make it the index (pandas: X.set_index(…)) or drop it"
        )


def names_its_words(X: Any) -> bool:
    """Whether X may name its words; then they are matched by name with those of a fitted model."""
    return isinstance(X, str | os.PathLike | Data | TextCounts)


def read_vocabulary(given: Words) -> list[str]:
    if not isinstance(given, (str, os.PathLike)):
        return [str(word) for word in given]
    path = as_path(given)
    with LineReader(path) as lines:
        raw = b"".join(chunk.tobytes() for chunk in lines)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: the vocabulary is not UTF-8 text ({error}); convert the file first") from error
    return [word.strip() for word in text.rstrip().split("\n")] if text.strip() else []


def _from_path(path: str, at_least: int, read_as: Mapping[str, Any] | None) -> Data:
    """The entries of a file. at_least: number of words, for formats that do not give it."""
    data = read_for_fit(path, "sum") if read_as is None else read(path, duplicates="sum", **read_as)
    if data.shape[1] < at_least and data.col_ids is None:
        with Parsing(path, ReadOptions((read_as or {}).get("format", "auto")), LineReport(path)) as parsing:
            if parsing.guess.format in OPEN_ENDED:
                return replace(data, shape=(data.shape[0], at_least))
    return data


def _from_data(data: Data, names: list[str] | None) -> tuple[Any, list[str] | None, list[str] | None]:
    """A sparse matrix of the records, in the order of `names` if the data name their words; names of both axes."""
    rows, cols, values, shape = data.rows, data.cols, data.values, data.shape
    own = data.col_ids
    if own is not None:
        called = [str(name) for name in own.ids.tolist()]
        if names is None:
            names = called
        elif own.is_text or all(name.isdecimal() for name in names):
            rows, cols, values = _by_name(called, names, rows, cols, values, data.source)
            shape = shape[0], len(names)
    documents = None if data.row_ids is None else [str(name) for name in data.row_ids.ids.tolist()]
    return coo_array((values, (rows, cols)), shape=shape), names, documents


def _from_text(X: TextCounts, names: list[str] | None) -> tuple[Any, list[str], list[str] | None]:
    """A sparse matrix of counted text, in the order of `names` if given; names of both axes."""
    if names is None or names == X.vocabulary:
        return X.counts, X.vocabulary, X.documents
    counts = X.counts.tocoo()
    rows, cols, values = _by_name(X.vocabulary, names, counts.row, counts.col, counts.data, X.source)
    return coo_array((values, (rows, cols)), shape=(X.shape[0], len(names))), names, X.documents


def _by_name(
    called: list[str], names: list[str], rows: Array, cols: Array, values: Array, source: str
) -> tuple[Array, Array, Array]:
    """Entries whose columns are called so, in the order of `names`; words that it lacks are left out with a warning."""
    place = {name: k for k, name in enumerate(names)}
    to = np.array([place.get(name, -1) for name in called], np.int64)
    cols = to[cols]
    known = cols >= 0
    if not known.all():
        said = f"words not in the vocabulary were left out: {np.count_nonzero(to < 0):,}, with "
        said += f"{values[~known].sum(dtype=np.float64):,.0f} tokens; add them to the vocabulary to keep them"
        warnings.warn(f"{source}: {said}", UnknownWordsWarning, stacklevel=4)
    return rows[known], cols[known], values[known]


def _validated(X: Any, estimator: Any, reset: bool) -> Any:
    """X as a two-dimensional array or sparse matrix of numbers, by scikit-learn's rules and with its messages."""
    flat = isinstance(X, list | tuple) or (isinstance(X, np.ndarray) and X.ndim == 1)
    if flat and len(X) and isinstance(X[0], str):
        raise DataError(
            f"X holds text, such as {shown(str(X[0]))}, and a topic model takes counts, documents × words; count the "
            "words first, with st.read_text(X) or scikit-learn's CountVectorizer"
        )
    # NaN and infinity are checked later, where the message can give their position.
    rules = {"accept_sparse": True, "dtype": "numeric", "ensure_all_finite": False}
    try:
        return check_array(X, **rules) if estimator is None else validate_data(estimator, X, reset=reset, **rules)
    except ValueError as error:
        raise DataError(str(error)) from error


def _entries(X: Any) -> tuple[Array, Array, Array]:
    """(rows, cols, values) by row and then by column, pairs unique, with stored zeros; X is not changed."""
    if isinstance(X, np.ndarray):
        rows, cols = np.nonzero(X)
        return rows, cols, X[rows, cols]
    X = X.tocoo(copy=False)
    same = X.row[1:] == X.row[:-1]
    if not np.all((X.row[1:] > X.row[:-1]) | (same & (X.col[1:] > X.col[:-1]))):
        # As float64, because small integers would overflow in sums.
        X = coo_array((X.data.astype(np.float64), (X.row, X.col)), shape=X.shape).tocsr().tocoo()
    return X.row, X.col, X.data


def _counts(
    rows: Array, cols: Array, values: Array, who: str, strict: bool, seed: int, keyed_by: str
) -> tuple[Array, Array, NDArray[np.float32]]:
    """The entries with integer counts from 1 up; an invalid count raises an error with its position."""
    if not len(values):
        return rows, cols, np.empty(0, np.float32)
    low, high = float(values.min()), float(values.max())  # NaN if there is one

    def at(bad: NDArray[np.bool_]) -> str:
        k = int(np.argmax(bad))
        return f"{values[k]} at row {rows[k]}, column {cols[k]}"

    if not (np.isfinite(low) and np.isfinite(high)):
        where = at(~np.isfinite(values))
        raise DataError(f"Input X contains NaN or infinity (inf): {where}; drop those documents or fill the gaps")
    if low < 0:
        raise DataError(f"Negative values in data passed to {who}: {at(values < 0)}; a count is 0 or more")
    if high > LARGEST:
        raise DataError(f"a count is above 2^24 − 1: {at(values > LARGEST)}; scale the counts down")
    if values.dtype.kind == "f":
        whole = np.floor(values)
        odd = np.flatnonzero(whole != values)
        if len(odd):
            said = f"{len(odd):,} of {len(values):,} counts are fractional, the first {at(whole != values)}"
            if strict:
                raise DataError(f"{said}; round them, or leave strict off to have them rounded by a draw")
            said += "; each was rounded up or down by a draw keyed by the seed. strict=True refuses them"
            warnings.warn(said, FractionalCountsWarning, stacklevel=4)
            document = rows if keyed_by == "position" else _contents(rows, cols, values)
            for k in range(0, len(odd), SLICE):
                some = odd[k : k + SLICE]
                drawn = unit(absorb(absorb(start(seed, _ROUND), document[some]), cols[some]))
                whole[some] += drawn < values[some].astype(np.float64) - whole[some]
            low = 0.0  # rounding may have given zeros
        values = whole
    counts = values.astype(np.float32)
    if low >= 1:
        return rows, cols, counts
    left = counts > 0
    return rows[left], cols[left], counts[left]


def _contents(rows: Array, cols: Array, values: Array) -> NDArray[np.uint64]:
    """[nnz] a hash of each entry's document: the sum of the hashes of its entries, without stored zeros."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
    hashes = splitmix64(splitmix64(np.asarray(cols).astype(np.uint64)) ^ bits)
    hashes[values == 0] = 0
    starts = np.flatnonzero(np.diff(rows, prepend=-1))
    sums = np.add.reduceat(hashes, starts)
    return np.repeat(sums, np.diff(starts, append=len(rows)))


def split_tokens(corpus: Corpus, share: float, seed: int) -> tuple[Corpus, Corpus]:
    """(observed, held): each token is held with probability `share`, by a draw keyed by document, word and number.

    Both parts have all documents and words: infer a document's topics from one part, measure them on the other. Of a
    word that a document has more than 65,536 times, only that many tokens are drawn, and the others are divided in
    proportion, so the cost is bounded by the number of entries.
    """
    _check_share(share)
    data = corpus.data
    every = data.values.astype(np.int64)
    counts = np.minimum(every, _DEALT)
    ends = np.cumsum(counts)
    held = np.empty(len(counts), np.int64)
    low = 0
    while low < len(counts):  # about SLICE tokens at a time, at least one entry
        high = max(low + 1, int(np.searchsorted(ends, ends[low] - counts[low] + SLICE, side="right")))
        some = slice(low, high)
        state = absorb(absorb(start(seed, _DEAL), data.rows[some]), data.cols[some])
        begins = ends[some] - counts[some] - (ends[low] - counts[low])
        number = np.arange(counts[some].sum()) - np.repeat(begins, counts[some])
        drawn = unit(absorb(np.repeat(state, counts[some]), number)) < share
        held[some] = np.add.reduceat(drawn, begins, dtype=np.int64)
        low = high
    large = every > _DEALT
    held[large] = held[large] * every[large] // _DEALT
    remedy = "give documents of at least two tokens, or more of them"
    return _part(corpus, every - held, "observed", remedy), _part(corpus, held, "held", remedy)


def split_documents(corpus: Corpus, share: float, seed: int) -> tuple[Corpus, Corpus]:
    """(kept, held): each document is held with probability `share`, by a draw keyed by its position.

    If the draw holds none, or all, of several documents, one is moved.
    """
    _check_share(share)
    mask = held_out(0, corpus.n_documents, share, seed)
    with_tokens = np.unique(corpus.data.rows)
    if len(with_tokens) > 1 and mask[with_tokens].all() == mask[with_tokens].any():
        moved = with_tokens[seed % len(with_tokens)]
        mask[moved] = not mask[moved]
    return _some_documents(corpus, ~mask, "kept"), _some_documents(corpus, mask, "held")


def _check_share(share: float) -> None:
    if not 0 < share < 1:
        raise DataError(f"a share of {share} cannot be held out; choose one between 0 and 1")


def _some_documents(corpus: Corpus, chosen: NDArray[np.bool_], name: str) -> Corpus:
    remedy = "give at least two documents with tokens, or documents of their own as validation"
    part = _part(corpus, np.where(chosen[corpus.data.rows], corpus.data.values, 0), name, remedy)
    rows = (np.cumsum(chosen, dtype=np.int32) - 1)[part.data.rows]
    names = corpus.documents and [corpus.documents[d] for d in np.flatnonzero(chosen)]
    return replace(part, data=replace(part.data, rows=rows, shape=(int(chosen.sum()), corpus.n_words)), documents=names)


def _part(corpus: Corpus, counts: Array, name: str, remedy: str) -> Corpus:
    """The corpus with these counts [nnz] instead, without empty entries."""
    some = counts > 0
    if not some.any():
        raise DataError(f"the {name} part of the documents would have no tokens; {remedy}")
    data = corpus.data
    part = replace(data, rows=data.rows[some], cols=data.cols[some], values=counts[some].astype(np.float32))
    return replace(corpus, data=part)
