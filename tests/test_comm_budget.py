"""The bucket: never above its rate over any stretch of time, and at its rate while there is something to send."""

from __future__ import annotations

import math
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stretto.comm.budget import Bucket, link_buckets, node_bucket
from stretto.comm.policy import Managed

RATES = st.floats(1.0, 1e9)
SIZES = st.lists(st.integers(1, 10**6), min_size=1, max_size=40)


def worst_excess(sends: list[tuple[float, int]], rate: float) -> float:
    """The most that any stretch of time holds above rate · T + its largest message, in bytes.

    It is enough to check stretches that begin and end with a message.
    """
    before = [0, *accumulate(nbytes for _, nbytes in sends)]
    excess = -math.inf
    for i in range(len(sends)):
        for j in range(i, len(sends)):
            largest = max(nbytes for _, nbytes in sends[i : j + 1])
            sent = before[j + 1] - before[i]
            excess = max(excess, sent - largest - rate * (sends[j][0] - sends[i][0]))
    return excess


@given(RATES, SIZES, st.lists(st.floats(0.0, 100.0), min_size=40, max_size=40), st.floats(0.0, 1e5))
def test_never_above_the_rate(rate: float, sizes: list[int], late: list[float], start: float) -> None:
    """Senders that come as late as they like; `late` is in units of the time a message takes."""
    bucket, sends = Bucket(rate, start), []
    for nbytes, wait in zip(sizes, late, strict=False):
        now = bucket.ready_at() + wait * nbytes / rate
        bucket.take(now, nbytes)
        sends.append((now, nbytes))
    slack = 1e-9 * sum(sizes) + rate * 1e-9 * (1 + sends[-1][0]) * 1e-3
    assert worst_excess(sends, rate) <= slack


@given(RATES, SIZES)
def test_the_whole_rate_is_used(rate: float, sizes: list[int]) -> None:
    """A sender that comes when the bucket is empty has sent at least rate · T at any time T, so 95 % is safe."""
    bucket, sent = Bucket(rate), 0
    for nbytes in sizes:
        now = bucket.ready_at()
        assert sent >= 0.95 * rate * now
        bucket.take(now, nbytes)
        sent += nbytes


def test_an_overdraft_is_paid_back() -> None:
    bucket = Bucket(100.0)
    bucket.take(1.0, 50)
    bucket.take(1.0, 100)  # what a reset made necessary
    assert bucket.ready_at() == pytest.approx(2.5)
    bucket.take(10.0, 100)  # and what was not used is not saved up
    assert bucket.ready_at() == pytest.approx(11.0)


def test_budgets_are_shared_out_between_the_sides() -> None:
    policy = Managed("8Mbit", split=0.25, links={(0, 1): "800kbit", (2, 1): 5.0, (0, 3): 1e5})
    updates, rows = node_bucket(policy, "updates"), node_bucket(policy, "rows")
    updates.take(0.0, 250_000)
    rows.take(0.0, 750_000)
    assert updates.ready_at() == rows.ready_at() == pytest.approx(1.0)
    links = link_buckets(policy, "updates", 0)
    assert sorted(links) == [1, 3]
    links[1].take(0.0, 25_000)
    assert links[1].ready_at() == pytest.approx(1.0)
    assert not link_buckets(policy, "rows", 1)
