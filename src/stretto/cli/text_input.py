"""Documents of text on the command line: which options say that a file is text, and how it is read.

The settings are part of the recipe of a run, complete enough to read the same documents again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stretto.errors import DataError

from .output import say
from .reading import plain

if TYPE_CHECKING:
    from stretto.data.documents.text_counts import TextCounts
    from stretto.models.topics.input import Corpus

WORD_OPTIONS = ("stop_words", "min_df", "max_df", "max_words", "ngrams", "lowercase", "token_pattern")
TEXT_OPTIONS = ("text", "names", "encoding", *WORD_OPTIONS)
_SNIPPETS = 200_000  # documents that are shown with their beginnings, at most


def text_settings(file: str, asked: Mapping[str, Any], *, quiet: bool) -> dict[str, Any] | None:
    """How the documents of a file are read, as arguments of `st.read_text`; None for a file of counts.

    A file is text if --text says so, or if it looks like text.
    """
    from stretto.data.documents.kind import holds_text
    from stretto.data.documents.options import TextOptions
    from stretto.data.documents.sources import table_of

    given = [name for name in TEXT_OPTIONS if asked.get(name) not in (None, True)]
    column = _column(asked.get("text"))
    counts = plain(asked.get("format")) not in (None, "auto")
    if column is None and asked.get("text") is None and (counts or not holds_text(file)):
        if table_of(file) == "json":
            raise DataError(f"{file}: holds JSON; say which field holds the text: --text FIELD")
        if given:
            options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            raise DataError(
                f"{file}: does not look like text, and {options} is an option of text; say --text COLUMN for a table, "
                "or --text lines (one document a line) or --text files (one a file), or leave it out"
            )
        return None
    words = {
        "lowercase": asked.get("lowercase", True),
        "stop_words": _stop_words(asked.get("stop_words")),
        "ngram_range": _range(asked.get("ngrams")),
        "min_df": _documents("--min-df", asked.get("min_df"), 1),
        "max_df": _documents("--max-df", asked.get("max_df"), 1.0),
        "max_features": asked.get("max_words"),
    }
    if asked.get("token_pattern") is not None:
        words["token_pattern"] = asked["token_pattern"]
    reading = {
        "column": None if table_of_any(file) is None and column in ("lines", "files") else column,
        "names": asked.get("names"),
        "encoding": asked.get("encoding") or "utf-8",
        "on_error": plain(asked.get("on_error")) or "raise",
    }
    if not quiet and asked.get("text") is None:
        what = "one document a file" if Path(file).is_dir() else "one document a line"
        say(f"{file}: read as text, {what} (--text names a column, --format a file of counts)")
    return {**reading, **TextOptions.of(**words).plain()}


def table_of_any(file: str) -> str | None:
    """What kind of table a file is, or the first file of a folder."""
    from stretto.data.documents.sources import table_of, text_files

    return table_of(text_files(file)[0][1]) if Path(file).is_dir() else table_of(file)


def read_documents(file: str, settings: Mapping[str, Any], like: Any = None) -> TextCounts:
    """The documents of a file. like: a fitted model, whose words are counted."""
    from stretto.data.documents.read_text import read_text

    source = ("column", "names", "encoding", "on_error")
    if like is not None:
        return read_text(file, like=like, **{name: settings[name] for name in source})
    given = dict(settings) | {"ngram_range": tuple(settings["ngram_range"])}
    return read_text(file, **given)


def documents_like(file: str, model: Any, asked: Mapping[str, Any], *, quiet: bool) -> TextCounts | None:
    """The documents of a file of text, counted in the words of a model that was trained on text; None for counts."""
    if model.text_options_ is None:
        if asked.get("text") is not None:
            raise DataError("--text: the model was trained on counts and cannot cut text into words; give it counts")
        return None
    settings = text_settings(file, asked, quiet=quiet)
    return None if settings is None else read_documents(file, settings, like=model)


def size_of(counts: TextCounts) -> str:
    """The size of a collection, in words."""
    empty = f", {counts.n_empty:,} of the documents without a word" if counts.n_empty else ""
    return f"{len(counts):,} documents × {counts.shape[1]:,} words, {counts.n_tokens:,} tokens{empty}"


def shown_corpus(counts: TextCounts, model: Any) -> Corpus:
    """The documents for the topic browser: named, and with how they begin."""
    from stretto.models.topics.input import as_corpus

    corpus = as_corpus(counts, words=model.n_features_in_, seed=0, vocabulary=model.vocabulary_, keyed_by="content")
    if len(counts) > _SNIPPETS:
        return corpus
    names = counts.documents or [f"document {number}" for number in range(len(counts))]
    shown = [f"{name}: {text}" if text else name for name, text in zip(names, counts.snippets, strict=True)]
    return replace(corpus, documents=shown)


def _column(text: Any) -> str | int | None:
    if text is None:
        return None
    return int(text) if text.isascii() and text.isdecimal() else str(text)


def _stop_words(given: Any) -> Any:
    if given in (None, "none"):
        return None
    if given == "english" and not Path(given).is_file():
        return given
    if not Path(given).is_file():
        raise DataError(f"--stop-words {given}: there is no such file; give 'english', 'none', or a file of words")
    from stretto.models.topics.input import read_vocabulary

    return [word for word in read_vocabulary(given) if word]


def _range(given: Any) -> tuple[int, int]:
    if given is None:
        return 1, 1
    parts = [part.strip() for part in str(given).split(",")]
    if len(parts) > 2 or not all(part.isascii() and part.isdecimal() for part in parts):
        raise DataError(f"--ngrams {given}: give the words of the shortest and the longest sequence, such as 1,2")
    return int(parts[0]), int(parts[-1])


def _documents(option: str, given: Any, default: float) -> float:
    if given is None:
        return default
    text = str(given)
    try:
        return int(text) if text.isascii() and text.isdecimal() else float(text)
    except ValueError:
        raise DataError(f"{option} {given}: give a number of documents, such as 5, or a share, such as 0.5") from None
