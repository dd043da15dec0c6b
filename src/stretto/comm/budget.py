"""Bandwidth budget: a leaky bucket, after Bösen's communication manager (section 3.3.1).

Sent bytes fill the bucket, which leaks at the rate of the budget. The next message may be sent once it is empty. So
between two messages at least the time passes that the first one takes at that rate, and over any interval T

    bytes sent ≤ rate · T + one message

A sender that always has messages and returns when the bucket is empty sends at the full rate.

    >>> bucket = Bucket(rate=1000.0)
    >>> bucket.take(0.5, 250)
    >>> bucket.ready_at()
    0.75

This module reads no clock: the time is an argument.
"""

from __future__ import annotations

from collections.abc import Mapping

from .policy import Managed
from .units import rate as rate_of

SIDES = ("updates", "rows")  # what caches send, what shards send


class Bucket:
    """One budget, in bytes per second; empty from `start` on."""

    __slots__ = ("_seconds", "empty_at")

    def __init__(self, rate: float, start: float = 0.0) -> None:
        self._seconds = 1.0 / rate  # that one byte takes to leak
        self.empty_at = start  # the result of `ready_at`, as an attribute for frequent readers

    def ready_at(self) -> float:
        """The time from which on a message may be sent."""
        return self.empty_at

    def unused(self, now: float, most: float) -> float:
        """Bytes that could have been sent since the bucket was empty, at most `most`: what is older is forfeited."""
        self.empty_at = max(self.empty_at, now - most * self._seconds)
        return max(0.0, now - self.empty_at) / self._seconds

    def spend(self, nbytes: float) -> None:
        """Use some of what `unused` returned."""
        self.empty_at += nbytes * self._seconds

    def take(self, now: float, nbytes: int) -> None:
        """Record that nbytes are sent now. Before `ready_at` that is an overdraft: later senders wait longer."""
        self.empty_at = max(now, self.empty_at) + nbytes * self._seconds


def share_of(policy: Managed, side: str) -> float:
    """The share of the budget for one side: `split` for updates, the rest for rows."""
    return policy.split if side == "updates" else 1.0 - policy.split


def node_bucket(policy: Managed, side: str) -> Bucket:
    """The budget of one side of a node."""
    return Bucket(rate_of(policy.budget) * share_of(policy, side))


def link_buckets(policy: Managed, side: str, node: int) -> Mapping[int, Bucket]:
    """The budgets of one side of a node on single links, by the node at the other end; split as the node's budget."""
    share = share_of(policy, side)
    return {to: Bucket(rate_of(limit) * share) for (source, to), limit in policy.links.items() if source == node}
