"""Which host is lost, when some do not hear each other: a decision, without a clock or a network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

BUSY = 6.0  # times patience, for a host that answers the driver: it may compile, or be short of processor time


def lost_one(
    silences: Mapping[tuple[int, int], float], answering: Collection[int], patience: float
) -> tuple[int, int, float] | None:
    """(host, how many others do not hear it, for how long) of the one that counts as lost; None: nobody does yet.

    silences: (by, whom) → seconds in which `by` heard nothing of `whom`. answering: hosts that answer the driver.
    Of several the one that most others do not hear is lost, of equals the one with the highest number.

    >>> lost_one({(0, 2): 6.0, (1, 2): 7.0, (2, 0): 6.0}, answering=(), patience=5.0)
    (2, 2, 7.0)
    >>> lost_one({(0, 2): 6.0}, answering=(2,), patience=5.0)
    """
    votes = Counter(whom for _, whom in silences)
    for whom, count in sorted(votes.items(), key=lambda entry: (entry[1], entry[0]), reverse=True):
        longest = max(silence for (_, other), silence in silences.items() if other == whom)
        if longest > (BUSY if whom in answering else 1.0) * patience:
            return whom, count, longest
    return None
