"""Which run records are meant, and what they are called on a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stretto.errors import RunError
from stretto.observe.log import EVENTS, RUN, no_record

MOST = 6  # runs on one page: more curves could not be distinguished


def is_record(folder: Path) -> bool:
    """Whether a folder holds the record of a run."""
    return (folder / RUN).is_file() or (folder / EVENTS).is_file()


def records_in(folder: Path) -> list[Path]:
    """The folder itself if it is a record, otherwise the records directly inside it, the oldest first."""
    if is_record(folder):
        return [folder]
    if not folder.is_dir():
        raise RunError(f"{folder} does not exist; name the folder of a run, or a folder of runs")
    found = [inner for inner in folder.iterdir() if inner.is_dir() and is_record(inner)]
    if not found:
        raise no_record(folder)
    return sorted(found, key=lambda inner: (_changed(inner), inner.name))


def chosen(folders: Sequence[Path]) -> list[Path]:
    """The records of all folders named, each once; at most as many as a page shows."""
    found = list(dict.fromkeys(record.resolve() for folder in folders for record in records_in(folder)))
    if len(found) > MOST:
        raise RunError(f"a page shows at most {MOST} runs, and these are {len(found)}; name the ones to compare")
    return found


def names_of(folders: Sequence[Path]) -> list[str]:
    """The last parts of the paths, as many as tell the folders apart.

    >>> names_of([Path("a/first"), Path("b/first")]), names_of([Path("runs/first")])
    (['a/first', 'b/first'], ['first'])
    """
    parts = [folder.resolve().parts for folder in folders]
    for length in range(1, max(map(len, parts), default=0) + 1):
        names = ["/".join(part[-length:]) for part in parts]
        if len(set(names)) == len(set(parts)):
            return names
    return [str(folder) for folder in folders]


def _changed(folder: Path) -> float:
    path = folder / RUN
    return path.stat().st_mtime if path.is_file() else 0.0
