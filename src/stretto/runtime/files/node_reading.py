"""Reading on the nodes: what a worker of a job takes from a file by itself, so that no node needs all of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from stretto.data.reading.scan import Triples, iter_triples

__all__ = ["Triples", "read_part"]


def read_part(
    path: str | os.PathLike[str], format: str, part: tuple[int, int], passes: int, options: dict[str, Any]
) -> Iterator[Triples]:
    """Part (k, n) of a file, `passes` times, as (rows, cols, values) of bounded length; options as of `iter_triples`.

    Every pass finds its part anew, so a file that is replaced between two passes is read as it is then.
    """
    for _ in range(passes):
        yield from iter_triples(path, format, part=part, **options)
