"""Which node reads and holds which part of the data. Pure: numbers in, numbers out.

- `parts_read_by`: the parts that a host reads. If any host can read any part, it takes every n-th, since files may be
  sorted by their amount of work; otherwise the parts that only it can read.
- `holder`: the node that holds a part from then on. Neighbouring parts are on one node.
- `shares`: parts for nodes that users run themselves, neighbours of about equal bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from stretto.errors import DataError


class Sized(Protocol):
    """Something with a number of bytes."""

    @property
    def nbytes(self) -> int: ...


Part = TypeVar("Part", bound=Sized)


def parts_read_by(host: int, hosts: int, count: int, readers: NDArray[np.int64] | None = None) -> Sequence[int]:
    """The parts that a host reads.

    Parameters
    ----------
    host, hosts : int
        Its number, and the number of hosts.
    count : int
        Number of parts.
    readers : ndarray of int [count] or None, default None
        The only host that can read each part; None: any host can.

    Examples
    --------
    >>> [list(parts_read_by(host, 2, 5)) for host in range(2)]
    [[0, 2, 4], [1, 3]]
    >>> parts_read_by(1, 2, 3, np.array([1, 0, 1]))
    [0, 2]
    """
    if readers is None:
        return range(host, count, hosts)
    found: list[int] = np.flatnonzero(readers == host).tolist()
    return found


def holder(part: int, count: int, nodes: int) -> int:
    """The node that holds a part of `count`.

    >>> [holder(part, 5, 2) for part in range(5)]
    [0, 0, 0, 1, 1]
    """
    return part * nodes // count


def shares(parts: Sequence[Part], n: int) -> list[list[Part]]:
    """The parts for each of n nodes: neighbours, of nearly equal bytes together.

    >>> [len(share) for share in shares(open_parts("ratings.dat").parts(16), 4)]   # doctest: +SKIP
    [4, 4, 4, 4]
    """
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise DataError(f"shares(parts, {n!r}): give the number of nodes, 1 or more")
    total = sum(part.nbytes for part in parts)
    out: list[list[Part]] = [[] for _ in range(n)]
    before = 0
    for part in parts:
        out[min(n - 1, (2 * before + part.nbytes) * n // max(1, 2 * total))].append(part)
        before += part.nbytes
    return out
