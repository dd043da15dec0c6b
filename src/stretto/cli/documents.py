"""Read documents for a trained topic model: a whole file, or its first documents where the file is too large."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from stretto.errors import DataError

if TYPE_CHECKING:
    from stretto.data.documents.text_counts import TextCounts
    from stretto.models.topics.estimator import LatentDirichletAllocation
    from stretto.models.topics.input import Corpus

_ENTRIES = 1 << 21  # entries of a streamed file that are read: 24 MiB


def first_documents(file: str, model: LatentDirichletAllocation) -> Corpus | None:
    """The first documents of a file, up to two million entries.

    None if the entries are not in the order of the documents: then none is complete before the end.
    """
    from stretto.data.reading.scan import scan
    from stretto.data.records.data import Data

    found = scan(file)
    parts: list[Any] = []
    entries = 0
    for part in found.chunks():
        parts.append(part)
        entries += len(part[2])
        if entries >= _ENTRIES:
            break
    rows, cols, values = (np.concatenate(column)[:_ENTRIES] for column in zip(*parts, strict=True))
    if np.any(rows[1:] < rows[:-1]):
        return None
    documents = found.shape[0]
    if len(rows) < found.nnz:  # the last document may continue
        documents = int(rows[-1])
        whole = int(np.searchsorted(rows, documents))
        rows, cols, values = rows[:whole], cols[:whole], values[:whole]
    words = found.shape[1] if found.col_ids is not None else model.n_features_in_
    data = Data.from_arrays(rows, cols, values, (documents, words), col_ids=found.col_ids, source=file)
    corpus = _in_its_words(data, model)
    if found.row_ids is None:
        return corpus
    return replace(corpus, documents=[str(name) for name in found.row_ids.ids[:documents].tolist()])


def _in_its_words(X: Any, model: LatentDirichletAllocation, read: Mapping[str, Any] | None = None) -> Corpus:
    """A corpus with the columns of the model."""
    from stretto.models.topics.input import as_corpus

    words, names = model.n_features_in_, model.vocabulary_
    return as_corpus(X, words=words, strict=model.strict, seed=0, vocabulary=names, keyed_by="content", read_as=read)


def documents_of(
    file: str | TextCounts,
    model: LatentDirichletAllocation,
    vocabulary: str | None,
    read: Mapping[str, Any] | None = None,
) -> Corpus:
    """All documents of a file, or of counted text, in the model's words.

    vocabulary : the file's own words, where they are not the model's: they are looked up there by name, and those it
        does not have are left out with a warning
    read : arguments of `stretto.read`
    """
    from stretto.models.topics.input import as_corpus

    if vocabulary is None or model.vocabulary_ is None:
        return _in_its_words(file, model, read)
    corpus = as_corpus(file, strict=model.strict, seed=0, vocabulary=vocabulary, keyed_by="content", read_as=read)
    if corpus.vocabulary == model.vocabulary_ or corpus.vocabulary is None:
        return corpus
    return _translated(corpus, corpus.vocabulary, model.vocabulary_, str(file))


def _translated(corpus: Corpus, said: list[str], known: list[str], file: str) -> Corpus:
    from stretto.data.records.data import Data

    place = {word: k for k, word in enumerate(known)}
    to = np.array([place.get(word, -1) for word in said], np.int32)
    data = corpus.data
    cols = to[data.cols]
    there = cols >= 0
    if not there.any():
        raise DataError(
            f"{file}: none of its words is among those the model was trained on; check that both have the same "
            "language and preparation, and that --vocab belongs to the file"
        )
    if not there.all():
        lost = float(data.values[~there].sum(dtype=np.float64))
        warnings.warn(
            f"{file}: {lost:,.0f} of {corpus.n_tokens:,} tokens are words that the model was not trained on; they were "
            "left out",
            UserWarning,
            stacklevel=2,
        )
    moved = Data.from_arrays(
        data.rows[there], cols[there], data.values[there], (corpus.n_documents, len(known)), source=file
    )
    return replace(corpus, data=moved, vocabulary=known)
