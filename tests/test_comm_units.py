"""Rates, times, the rules BSP, SSP and ASP against how others count, and clocks with a lowest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stretto.comm.units import rate, seconds
from stretto.consistency.clocks import FOREVER, Clocks
from stretto.consistency.rules import ASP, BSP, SSP
from stretto.errors import PlanError, RunError


@pytest.mark.parametrize(
    ("text", "bytes_per_second"),
    [
        ("100Mbit", 12.5e6),
        ("100 mbit/s", 12.5e6),
        ("100Mbps", 12.5e6),
        ("1Gb", 125e6),
        ("8b", 1.0),
        ("2MB", 2e6),
        ("2MB/s", 2e6),
        ("2MBps", 2e6),  # bytes, however the seconds are written
        ("1.5GB", 1.5e9),
        ("3kB", 3e3),
        ("0.5TB", 5e11),
        (1000, 1000.0),
        (2.5, 2.5),
    ],
)
def test_rates(text: str | float, bytes_per_second: float) -> None:
    assert rate(text) == pytest.approx(bytes_per_second, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("100us", 1e-4),
        ("100µs", 1e-4),
        ("100\u03bcs", 1e-4),
        ("2 ms", 2e-3),
        ("5ns", 5e-9),
        ("1.5s", 1.5),
        ("2min", 120.0),
        ("1h", 3600.0),
        (0, 0.0),
    ],
)
def test_times(text: str | float, expected: float) -> None:
    assert seconds(text) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    "bad", ["", "fast", "100", "Mbit", "-3MB", "1.2.3MB", ".", 0, -1.0, float("nan"), float("inf"), True, None]
)
def test_what_is_no_rate(bad: object) -> None:
    with pytest.raises(PlanError, match="not a rate"):
        rate(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", ["", "soon", "5", "-1s", "1.2.3s", -1.0, float("nan"), float("inf"), False, None])
def test_what_is_no_time(bad: object) -> None:
    with pytest.raises(PlanError, match="not a time"):
        seconds(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [-1, 1.5, "2", None])
def test_what_is_no_bound(bad: object) -> None:
    with pytest.raises(PlanError, match="SSP: s must be a whole number at least 0; got"):
        SSP(bad)  # type: ignore[arg-type]


# -- the rule, as others write it down ------------------------------------------------------------------------------


def waits(s: int, clock: int, through: int) -> bool:
    """A worker at `clock` may not read a row that is through `through`."""
    return through < SSP(s).need(clock)


@given(st.integers(0, 8), st.integers(0, 40), st.integers(0, 40))
def test_the_rule_in_three_texts(s: int, clock: int, through: int) -> None:
    # The dissertation, section 3.1: at clock t all updates of clocks ≤ t − s − 1 are seen. Through c: all clocks < c.
    due = set(range(clock - s))
    assert waits(s, clock, through) == (not due <= set(range(through)))
    # The SoCC text: block while t − age ≥ S; age is the oldest clock with updates missing. Its S is s + 1.
    age = through
    assert waits(s, clock, through) == (clock - age >= s + 1)
    # Alt: go on as long as the difference to the slowest stays below τ_max. τ_max is s + 1 as well.
    slowest = through
    assert waits(s, clock, through) == (not clock - slowest < s + 1)


def test_the_papers_own_examples() -> None:
    # Bösen, figure 2: S = 3 and clock 4, everything before clock 1 is seen. (The figure counts as we do, its text not.)
    assert SSP(3).need(4) == 1
    # Alt, figure 2-4: with τ_max = 3, so s = 2, a worker has done three iterations and cannot begin the fourth while
    # the slowest is in its first.
    assert reads_before_waiting(SSP(2), slowest=0) == 3


def reads_before_waiting(rule: SSP | BSP, slowest: int) -> int:
    """Reads of a worker, one in each clock from 0 on, while the slowest stalls and all else arrives at once."""
    clock = 0
    while slowest >= rule.need(clock):
        clock += 1
    return clock


@pytest.mark.parametrize("s", range(6))
@pytest.mark.parametrize("slowest", [0, 1, 7])
def test_a_worker_gets_s_clocks_ahead_and_no_further(s: int, slowest: int) -> None:
    """Its last read happens at clock slowest + s."""
    assert reads_before_waiting(SSP(s), slowest) == slowest + s + 1


def test_without_slack_it_is_bsp_and_nobody_waits_for_ever() -> None:
    for clock in range(5):
        assert SSP(0).need(clock) == BSP().need(clock) == clock  # with everybody at `clock` a row can be through it
        # The SoCC text with S = 0 taken literally: clock − age ≥ 0 holds even for the freshest row there can be.
        assert clock - clock >= 0
    assert [BSP().exact, SSP(0).exact, ASP().exact] == [True, False, False]


def test_there_is_nothing_before_clock_0_and_asp_needs_nothing() -> None:
    assert [SSP(3).need(clock) for clock in range(6)] == [0, 0, 0, 0, 1, 2]
    assert {ASP().need(clock) for clock in (0, 5, 10**9)} == {0}


# -- clocks ---------------------------------------------------------------------------------------------------------


@given(st.integers(1, 6), st.integers(0, 3), st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=60))
def test_clocks_know_their_lowest(n: int, start: int, steps: list[tuple[int, int]]) -> None:
    clocks = Clocks(n, start)
    for i, by in steps:
        before = clocks.low
        moved = clocks.advance(i % n, clocks[i % n] + by)
        assert clocks.low == min(clocks.values)
        assert moved == (clocks.low > before)
        assert clocks.high == max(clocks.values)


def test_clocks_that_end() -> None:
    clocks = Clocks([3, 1, 2])
    assert (clocks.low, clocks.high, len(clocks), list(clocks)) == (1, 3, 3, [3, 1, 2])
    assert clocks.retire(1)
    assert (clocks.low, clocks.high) == (2, 3)
    assert clocks.tick(2)
    assert not clocks.retire(0)
    assert clocks.retire(2)
    assert clocks.low == clocks.high == FOREVER
    nobody = Clocks(0, 4)
    assert (nobody.low, nobody.high) == (4, 4)


def test_a_clock_does_not_go_back() -> None:
    clocks = Clocks(2, 5)
    assert not clocks.advance(0, 5)
    with pytest.raises(RunError, match="clock 0 went back from 5 to 4"):
        clocks.advance(0, 4)
