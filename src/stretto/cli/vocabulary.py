"""Find the vocabulary of a word-count file: the one the user named, or the one stored beside the file."""

from __future__ import annotations

from pathlib import Path

from stretto.errors import DataError

from .output import say
from .recipes.recipe import outright

_PACKED = ("", ".gz", ".xz", ".bz2")
_NONE = "none"


def vocabulary_of(file: str, given: str | None, *, quiet: bool) -> str | None:
    """The vocabulary file to use: `given` ('none' for none), or the first of `candidates` beside the file.

    None if there is none. A vocabulary that was not named is reported on stderr, unless quiet.
    """
    if given == _NONE:
        return None
    if given is not None:
        if "://" not in given and not Path(given).is_file():
            raise DataError(f"{given}: there is no such vocabulary file; check the path, or leave --vocab out")
        return outright(given)
    if "://" in file:
        return None
    for name in candidates(Path(file).name):
        path = Path(file).parent / name
        if path.is_file():
            if not quiet:
                say(f"words from {path} (--vocab names another file, --vocab none uses numbers)")
            return outright(str(path))
    return None


def candidates(name: str) -> list[str]:
    """What the vocabulary of a file may be called, the likeliest first; each packed or not.

    >>> candidates("docword.news.txt.gz")[::4]
    ['vocab.news.txt', 'docword.news.vocab', 'docword.vocab', 'vocab.txt']
    >>> candidates("20news.train.libsvm.xz")[::4]
    ['20news.train.vocab', '20news.vocab', 'vocab.txt']
    """
    parts = name.split(".")
    if f".{parts[-1]}" in _PACKED[1:]:
        parts.pop()
    found = [f"vocab.{'.'.join(parts[1:-1])}.txt"] if parts[0] == "docword" and len(parts) > 2 else []
    # Names grow shorter from the right: 20news.train.libsvm may have a 20news.vocab.
    found += [f"{'.'.join(parts[:k])}.vocab" for k in range(max(1, len(parts) - 1), 0, -1)]
    found.append("vocab.txt")
    return [f"{name}{packed}" for name in found for packed in _PACKED]
