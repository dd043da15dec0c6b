"""`read_text`: from documents of text to counts of words."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from stretto.errors import DataError

from .counting import count_known, count_words, in_order
from .options import TOKEN_PATTERN, TextOptions
from .skipped import Skipped
from .sources import Document, TextSource, documents
from .text_counts import TextCounts
from .tokens import CHARACTERS, Tokenizer, Tokens

SNIPPET = 80  # characters of a document that are kept to show it
_AT_ONCE = 1024  # documents read together


def read_text(
    source: Any,
    *,
    column: str | int | None = None,
    names: str | int | Sequence[str] | None = None,
    like: Any = None,
    vocabulary: Sequence[str] | None = None,
    lowercase: bool = True,
    token_pattern: str = TOKEN_PATTERN,
    stop_words: str | Sequence[str] | None = None,
    ngram_range: tuple[int, int] = (1, 1),
    min_df: float = 1,
    max_df: float = 1.0,
    max_features: int | None = None,
    encoding: str = "utf-8",
    on_error: str = "raise",
) -> TextCounts:
    """Read documents of text and count their words.

    The words and counts are those of scikit-learn's `CountVectorizer` with the same options.

    Parameters
    ----------
    source : str, Path, or a list of str
        A folder (one document a file, in the order of the sorted paths), a file with one document a line, a table
        (.csv, .tsv, .jsonl, .parquet; with `column`), a glob, or the texts themselves as a list. Files may be packed
        (gzip, xz, bzip2).
    column : str, int or None, default None
        The column of a table that holds the text; a position from 0 for a .csv file without a line of names.
    names : str, int, sequence of str or None, default None
        The column of the documents' names; of a list of texts, the names themselves. None: the paths of the files of a
        folder, below it; other documents have no names.
    like : TextCounts, LatentDirichletAllocation or None, default None
        Count the words of these counts, or of this fitted model, with its options of text.
    vocabulary : sequence of str or None, default None
        The words to count, in the order of the columns; None: those of the documents, sorted.
    lowercase : bool, default True
        Convert to lower case.
    token_pattern : str, default r"(?u)\\b\\w\\w+\\b"
        What a word is, as a regular expression: by default two or more letters, digits or underscores.
    stop_words : "english", sequence of str or None, default None
        Words that are left out.
    ngram_range : tuple of int, default (1, 1)
        The shortest and the longest sequence of words that is counted; (1, 2) counts pairs of neighbours too.
    min_df : int or float, default 1
        Leave out words that fewer documents have: a number, or a share (float).
    max_df : int or float, default 1.0
        Leave out words that more documents have: a number, or a share (float).
    max_features : int or None, default None
        Keep this many words, the most frequent ones.
    encoding : str, default "utf-8"
        The encoding of the files.
    on_error : {"raise", "skip"}, default "raise"
        Raise at the first document that cannot be read, or leave such documents out and warn once with their number.

    Returns
    -------
    TextCounts

    Examples
    --------
    >>> import stretto as st
    >>> letters = st.read_text(["Dear Ada, the cat is well.", "Dear Eve, the dog is not."], stop_words=["the", "is"])
    >>> letters.vocabulary
    ['ada', 'cat', 'dear', 'dog', 'eve', 'not', 'well']
    >>> st.read_text(["Is Ada well?"], like=letters).counts.toarray().tolist()
    [[1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]]
    """
    options = TextOptions.of(
        lowercase=lowercase, token_pattern=token_pattern, stop_words=stop_words, ngram_range=ngram_range,
        min_df=min_df, max_df=max_df, max_features=max_features,
    )  # fmt: skip
    if like is not None:
        if vocabulary is not None or options != TextOptions():
            raise DataError("like= brings its own words and options of text; leave the others out")
        options, vocabulary = words_of(like)
    skipped = Skipped(on_error)
    found, where = _documents(source, column, names, encoding, skipped)
    counts = count_documents(found, options, vocabulary, source=where)
    skipped.close()
    return counts


def count_documents(
    found: Iterable[Document], options: TextOptions, vocabulary: Sequence[str] | None = None, *, source: str = "texts"
) -> TextCounts:
    """Counts of documents (name, text). vocabulary: the words to count; None chooses them by the options."""
    tokenizer = Tokenizer(options)
    names: list[str | None] = []
    snippets: list[str] = []
    for some in _batches(found):
        names += [name for name, _ in some]
        texts = [text for _, text in some]
        snippets += [beginning(text) for text in texts]
        tokenizer.add(texts)
    if not names:
        raise DataError(f"{source}: holds no documents; check the path")
    tokens = tokenizer.finish()
    if vocabulary is None:
        counts, words = count_words(tokens, options)
    else:
        words = [str(word) for word in vocabulary]
        counts = count_known(tokens, options, words)
    known = None if names[0] is None else [name or "" for name in names]
    return TextCounts(counts, words, known, options, snippets, source)


def words_in_order(texts: Any, like: Any) -> Tokens:
    """The words of a list of texts in their order, in the numbers of a model or of counts; -1: a word it lacks."""
    options, words = words_of(like)
    tokenizer = Tokenizer(options)
    tokenizer.add(texts.to_list() if hasattr(texts, "to_list") else list(texts))
    return in_order(tokenizer.finish(), options, words)


def words_of(like: Any) -> tuple[TextOptions, list[str]]:
    """The options of text and the words of counts, or of a fitted model."""
    if isinstance(like, TextCounts):
        return like.options, like.vocabulary
    options, words = getattr(like, "text_options_", None), getattr(like, "vocabulary_", None)
    if options is None or words is None:
        raise DataError(
            f"like= is a {type(like).__name__} that was not made from text; give what st.read_text returned, or a "
            "model that was fitted to it"
        )
    return TextOptions.of(**options), words


def is_texts(X: Any) -> bool:
    """Whether X is a flat sequence of texts: a list, a tuple, an array or a column of a frame."""
    if isinstance(X, list | tuple):
        return bool(X) and all(isinstance(text, str) for text in X)
    flat = getattr(X, "ndim", 0) == 1 or (type(X).__name__ == "Series" and hasattr(X, "to_list"))
    listed = getattr(X, "to_list", None) or getattr(X, "tolist", None)
    if not flat or listed is None:  # a sparse array with one dimension has neither
        return False
    values = listed()
    return bool(values) and all(isinstance(text, str) for text in values)


def beginning(text: str) -> str:
    """How a text begins, on one line.

    >>> beginning("  One\\n two  three")
    'One two three'
    """
    some = " ".join(text[: 3 * SNIPPET].split())
    return some if len(some) <= SNIPPET else f"{some[: SNIPPET - 1].rstrip()}…"


def _documents(
    source: Any, column: Any, names: Any, encoding: str, skipped: Skipped
) -> tuple[Iterator[Document] | Iterable[Document], str]:
    """(documents, where they come from)."""
    if isinstance(source, str | os.PathLike):
        if names is not None and not isinstance(names, str | int):
            raise DataError("names= is a column of the table where the source is a path; give its name")
        path = os.fspath(source)
        return documents(path, TextSource(column, names, encoding), skipped), path
    if column is not None:
        raise DataError("column= belongs to a table in a file; pass a column of a frame itself")
    if not is_texts(source):
        raise DataError(
            f"the source is a {type(source).__name__}; give a path, or a flat list of texts (str), with at least one"
        )
    texts = source.to_list() if hasattr(source, "to_list") else list(source)
    if names is None:
        return ((None, text) for text in texts), "texts"
    if isinstance(names, str | int) or len(names) != len(texts):
        raise DataError(f"names= must hold a name for each of the {len(texts):,} texts")
    return zip(map(str, names), texts, strict=True), "texts"


def _batches(found: Iterable[Document]) -> Iterator[list[Document]]:
    """A few documents at a time, fewer where they are long."""
    stream = iter(found)
    while some := list(islice(stream, 1)):
        size = len(some[0][1])
        while size < CHARACTERS and len(some) < _AT_ONCE * 16:
            more = list(islice(stream, 256))
            if not more:
                break
            some += more
            size += sum(len(text) for _, text in more)
        yield some
