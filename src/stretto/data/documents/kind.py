"""Whether files hold text, or counts and records: from their first bytes."""

from __future__ import annotations

import os

from stretto.data.reading.source import is_url
from stretto.errors import DataError

from .sources import bytes_of, table_of, text_files

_HEAD = 1 << 16  # bytes that are examined
_FILES = 3  # of a folder
_WORDS = 0.5  # share of words of letters alone that text has at least
_LONGER = 4.0  # words of a line of text, on average: records have fewer fields
_EDGES = ".,;:!?\"'()[]{}<>-_*/…“”‘’«»"


def holds_text(path: str) -> bool:
    """Whether a folder holds one document a file, or a file one document a line.

    Most words of text consist of letters alone; files of counts hold numbers, and records have few fields. Tables are
    no text: which column holds it has to be said.
    """
    if is_url(path):
        return False
    try:
        if os.path.isdir(path):
            files = [file for _, file in text_files(path)[:_FILES]]
            return not any(table_of(file) for file in files) and all(_is_prose(_head(file), 0.0) for file in files)
        return os.path.isfile(path) and table_of(path) is None and _is_prose(_head(path), _LONGER)
    except DataError:
        return False


def _head(file: str) -> str:
    with bytes_of(file) as stream:
        raw: bytes = stream.read(_HEAD)
    return raw.decode("utf-8", "replace").removeprefix("\ufeff")


def _is_prose(text: str, longer: float) -> bool:
    """Whether most words are of letters alone, and lines have more than so many of them."""
    if "\0" in text:
        return False
    lines = [line.split() for line in text.splitlines() if line.strip()]
    words = [word for line in lines for word in line]
    if not words:
        return longer == 0.0  # an empty document
    plain = sum(word.strip(_EDGES).replace("'", "").isalpha() for word in words)
    return plain >= _WORDS * len(words) and plain > longer * len(lines)
