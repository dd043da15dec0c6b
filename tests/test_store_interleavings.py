"""Small scope, nothing left out: 2 workers × 2 clocks × 2 rows in every order of worker steps and message deliveries.

The rule, as the design page has it: a read at clock t sees all adds of clocks ≤ t − s − 1. A walk notes of every read,
in every order, how far it was

    behind    t − the clock of the first add of the other worker that was missing: s at most; 0 is the open clock, and
              below 0 are clocks the reader has not reached
    ahead     the clock of the last add that was shown − t: −1 at most under BSP, which shows no open clock

How others count. The SoCC text blocks a read at clock t of a row of age a (our `through`) while t − a ≥ S, so that
a ≥ t − S + 1 is needed: its S is our s + 1, and S = 0 would wait for a clock that cannot end before the read has. Alt's
τ_max is the number of clocks that may be missing, the open one counted: s + 1 too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pytest

from interleave import Step, Walk
from stretto.comm.policy import Lazy, Policy
from stretto.consistency.rules import ASP, BSP, SSP

BOTH = (0, 1)
# In each of two clocks a worker reads both rows and adds: to a row of its own, which is on its own node, or to both.
# Nobody else sees an add before the tick, so the two are one step.
OWN: tuple[tuple[Step, ...], ...] = tuple((("read", BOTH), ("add tick", (row,))) * 2 for row in (0, 1))
EACH: tuple[tuple[Step, ...], ...] = ((("read", BOTH), ("add tick", BOTH)) * 2,) * 2
# One worker only adds, the other only reads, a last time when both clocks are over.
WRITER: tuple[Step, ...] = (("add tick", BOTH),) * 2
READER: tuple[Step, ...] = (("read tick", BOTH),) * 2 + (("read", BOTH),)
LEAVE: tuple[Step, ...] = (("leave", ()),)
TINY: tuple[tuple[Step, ...], ...] = ((("add tick", (0,)),) * 2, (("read tick", (0,)),) * 2 + (("read", (0,)),))


@dataclass(frozen=True)
class SoCC:
    """The rule of the SoCC text, as printed."""

    S: int
    exact: bool = False
    speculate: bool = False

    def need(self, clock: int) -> int:
        return clock - self.S + 1


@dataclass(frozen=True)
class Late:
    """SSP(s) with the mistake that the texts invite: one clock too many may be missing."""

    s: int
    exact: bool = False
    speculate: bool = False

    def need(self, clock: int) -> int:
        return clock - self.s - 1


@lru_cache
def walked(rule: Any, scripts: tuple[tuple[Step, ...], ...], policy: Policy | None = None) -> Walk:
    """A walk in which nothing was lost, doubled or made up, and no worker waits without end."""
    walk = Walk(rule, scripts, policy).run()
    assert walk.wrong == []
    assert walk.stuck == []
    return walk


@pytest.mark.parametrize(
    ("rule", "interleavings", "states"),
    [(BSP(), 203_956_200, 78_638), (SSP(0), 196_896_492, 70_926), (SSP(1), 103_852_578, 71_308)],
    ids=str,
)
def test_every_order(rule: BSP | SSP, interleavings: int, states: int) -> None:
    walk = walked(rule, OWN)
    assert max(walk.behind) == getattr(rule, "s", 0)  # the bound is kept, and reached
    assert (max(walk.ahead) >= 0) == isinstance(rule, SSP)  # floors may show more, BSP never does
    assert (walk.interleavings, walk.states) == (interleavings, states)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "interleavings"), [(BSP(), 4_673_191_320), (SSP(0), 4_673_191_320), (SSP(1), 4_361_331_858)], ids=str
)
def test_every_order_when_both_add_to_both_rows(rule: BSP | SSP, interleavings: int) -> None:
    walk = walked(rule, EACH)
    assert max(walk.behind) == getattr(rule, "s", 0)
    assert (max(walk.ahead) >= 0) == isinstance(rule, SSP)
    assert walk.interleavings == interleavings


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "interleavings"), [(BSP(), 797_677_208), (SSP(0), 797_677_208), (SSP(1), 2_963_960)], ids=str
)
def test_every_order_of_a_lazy_run(rule: BSP | SSP, interleavings: int) -> None:
    walk = walked(rule, (WRITER + LEAVE, READER + LEAVE), Lazy())
    assert max(walk.behind) == getattr(rule, "s", 0)
    assert walk.interleavings == interleavings


def test_ssp_of_zero_may_show_more_but_misses_nothing() -> None:
    """Against BSP: the same floor; beyond it reads differ from order to order."""
    for scripts in (OWN, TINY):
        walk, exact = walked(SSP(0), scripts), walked(BSP(), scripts)
        assert max(walk.behind) == max(exact.behind) == 0
        assert max(exact.ahead) == -1
        assert {-1, 0} <= walk.ahead  # of closed clocks only, and of the open one


def test_the_walk_sees_an_off_by_one() -> None:
    assert max(walked(Late(0), TINY).behind) == 1


def test_asp_has_no_floor() -> None:
    assert max(walked(ASP(), TINY).behind) == 2


def test_the_socc_text() -> None:
    """Its S is our s + 1: the same rows are needed, clock by clock; and S = 0 stalls at once, in every order."""
    for s in range(4):
        assert [SoCC(s + 1).need(t) for t in range(s, 9)] == [SSP(s).need(t) for t in range(s, 9)]
    walk = Walk(SoCC(0), (WRITER, READER)).run()
    assert walk.behind == set()  # nobody ever read
    assert all(reader.done == 0 for _, reader in walk.stuck)
    assert len(walk.stuck) == walk.ends


def test_alts_tau_max() -> None:
    """Clocks of which something may be missing, the open one among them."""
    for s in (0, 1):
        walk = walked(SSP(s), OWN)
        missing = {behind for behind in walk.behind if behind >= 0}
        assert missing == set(range(s + 1))
        assert len(missing) == s + 1  # = τ_max
