"""Loops from textbooks as their authors write them first: those that are accepted have the bits of the reference
interpreter and the values of plain Python, those that are refused a message whose advice another loop follows.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest
from bench.loop_corpus import THEMES, corpus
from bench.loop_corpus.entry import CorpusLoop, flat
from bench.loop_corpus.plain_numba import plain

from loop_bodies import fresh, results, three_ways
from stretto.data.records.record_sets import RecordsBase
from stretto.errors import LoopError
from stretto.loops.analyse.serial_order import runs_serially
from stretto.loops.loop_plan import LoopPlan

LOOPS = corpus()
QUICK = {next(loop.name for loop in theme.LOOPS if not loop.refused and not loop.warns) for theme in THEMES.values()}
REORDERED = ("2d unordered", "3d unordered")  # strategies that visit records in another order than theirs


def cases() -> list[Any]:
    """Every loop; one of each theme compiles under `make test`."""
    return [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in LOOPS]


def planned(entry: CorpusLoop, arguments: dict[str, Any]) -> LoopPlan | None:
    """The plan of a loop; None for one that is refused."""
    try:
        plan: LoopPlan = entry.loop().plan(**arguments)
    except LoopError:
        return None
    return plan


def close(entry: CorpusLoop, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Compare with another run: the same integers, and floats within the tolerance of the loop."""
    for name, there in wanted.items():
        here = found[name]
        if there.dtype.kind in "iub":
            np.testing.assert_array_equal(here, there, err_msg=name)
            continue
        known = np.isfinite(there)
        size = np.abs(there[known]).max(initial=1e-300)
        np.testing.assert_allclose(here[known], there[known], rtol=0, atol=entry.tolerance * size, err_msg=name)
        np.testing.assert_array_equal(here[~known], there[~known], err_msg=name)


@pytest.mark.parametrize("name", LOOPS)
def test_loops_run_in_parallel_or_warn_or_are_refused_with_advice(name: str) -> None:
    """Nothing but inspections is compiled here: 0.1 seconds a loop."""
    entry = LOOPS[name]
    loop, arguments = entry.loop(), entry.arguments(entry.small)
    if not entry.refused:
        parts = loop.plan(**arguments).parts
        said = "\n".join(runs_serially(part.prepared.analysis) or "" for part in parts).strip()
        assert entry.warns in said if entry.warns else not said
        if entry.instead:
            there = LOOPS[entry.instead]
            assert there.warns == there.refused == "", "the advice does not help"
        return
    with pytest.raises(LoopError) as refusal:
        loop.plan(**arguments)
    assert entry.refused in str(refusal.value)
    assert entry.instead, "no loop follows the advice"
    assert not LOOPS[entry.instead].refused, "the advice leads to another refusal"


@pytest.mark.parametrize("name", cases())
def test_results_are_those_of_the_reference_and_of_plain_python(name: str) -> None:
    """1, 2 and 4 workers have the bits of the interpreter; plain Python over the order of the plan has the values."""
    entry = LOOPS[name]
    arguments = entry.arguments(entry.small)
    plan = planned(entry, arguments)
    if plan is None:
        assert entry.refused
        return
    found = results(three_ways(entry.loop(), arguments, threads=(1, 2, 4)))
    if not entry.serial:
        return
    again = fresh(arguments)
    with np.errstate(all="ignore"):
        entry.function(
            **{key: plan.order(value) if isinstance(value, RecordsBase) else value for key, value in again.items()}
        )
    close(entry, found, results(again))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, entry in LOOPS.items() if entry.hand is not None])
def test_kernels_by_hand_compute_the_same(name: str) -> None:
    """What a loop is timed beside is the same algorithm: in the order of the records, compiled by Numba alone."""
    entry = LOOPS[name]
    assert entry.hand is not None
    body, hand = entry.arguments(entry.small), entry.arguments(entry.small)
    numba.njit(plain(entry.function, body), error_model="numpy")(*flat(body))
    numba.njit(entry.hand, error_model="numpy")(*flat(hand, buffers=False))
    close(entry, results(body), results(hand))
