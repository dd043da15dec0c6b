"""Read one part of a data file on a worker of a job, so that no node needs the whole file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from stretto.data.reading.scan import Triples, iter_triples

__all__ = ["Triples", "read_part"]


def read_part(
    path: str | os.PathLike[str], format: str, part: tuple[int, int], passes: int, options: dict[str, Any]
) -> Iterator[Triples]:
    """Part (k, n) of a file, `passes` times, as (rows, cols, values) of bounded length.

    Parameters
    ----------
    path, format : path and str
        The file.
    part : (int, int)
        Which part, of how many.
    passes : int
            How often. Every pass locates its part again, so a file that is replaced between two passes is read as it is
        then.
    options : dict
        As of `iter_triples`.
    """
    for _ in range(passes):
        yield from iter_triples(path, format, part=part, **options)
