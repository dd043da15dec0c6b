"""Random loops run by the interpreter, by compiled code on one thread and on several: the same bits, or a refusal."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, note, settings

from loop_bodies import Written, bodies, three_ways
from stretto.errors import LoopError, PlanError

MANY = int(os.environ.get("STRETTO_LOOP_BODIES", "5000"))
REFUSED_AT_MOST = 0.3


def check_all(count: int, *, derandomize: bool = False) -> None:
    """So many random loops, most of which run: a generator whose loops are all refused would test nothing."""
    tally = {"run": 0, "refused": 0}

    def check(written: Written) -> None:
        note(repr(written))
        try:
            three_ways(written.loop(), written.arguments)
        except (LoopError, PlanError):
            tally["refused"] += 1
            return
        tally["run"] += 1

    settings(max_examples=count, derandomize=derandomize, database=None)(given(bodies())(check))()
    assert tally["run"] + tally["refused"] >= count
    assert tally["refused"] < REFUSED_AT_MOST * count, tally


def test_a_few_bodies() -> None:
    check_all(8, derandomize=True)


@pytest.fixture
def cache_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of compiled loops are of no use to anybody later."""
    monkeypatch.setenv("STRETTO_CACHE", str(tmp_path))


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.usefixtures("cache_apart")
def test_many_bodies() -> None:
    """How many: STRETTO_LOOP_BODIES."""
    check_all(MANY)
