"""How much may be sent: a leaky bucket, after Bösen's communication manager (section 3.3.1).

What is sent goes into the bucket, which leaks at the rate of the budget; something more may be sent once it is empty.
So between two messages there is at least the time that the first one takes at that rate, and over any stretch of time T

    bytes sent ≤ rate · T + one message

while a sender that always has something, and comes back when the bucket is empty, sends at the full rate.

    >>> bucket = Bucket(rate=1000.0)
    >>> bucket.take(0.5, 250)
    >>> bucket.ready_at()
    0.75

No clock is read here: the time is an argument.
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
        self._seconds = 1.0 / rate  # that a byte takes to leak
        self.empty_at = start  # what ready_at gives; for those who look often

    def ready_at(self) -> float:
        """From when on something may be sent."""
        return self.empty_at

    def take(self, now: float, nbytes: int) -> None:
        """nbytes are sent now. Before `ready_at` that is an overdraft, which later senders wait for all the longer."""
        self.empty_at = max(now, self.empty_at) + nbytes * self._seconds


def share_of(policy: Managed, side: str) -> float:
    """The part of a budget that belongs to one side: `split` to updates, the rest to rows."""
    return policy.split if side == "updates" else 1.0 - policy.split


def node_bucket(policy: Managed, side: str) -> Bucket:
    """The budget of one side of a node."""
    return Bucket(rate_of(policy.budget) * share_of(policy, side))


def link_buckets(policy: Managed, side: str, node: int) -> Mapping[int, Bucket]:
    """The budgets of one side of a node on its single links, by the node at the other end; shared out like its own."""
    share = share_of(policy, side)
    return {to: Bucket(rate_of(limit) * share) for (source, to), limit in policy.links.items() if source == node}
