"""The comparison of two source trees: ratios by round, the order of turns, options, and one measured case."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import plan_overhead
from bench.plan_overhead import AGAIN, NEW, OLD, Ratio, Tree

ROOT = Path(__file__).parents[1]


def test_a_ratio_compares_rounds_that_belong_together() -> None:
    # The machine is twice as slow in the last rounds: the ratio of a round does not see it.
    ratio = Ratio.of([1.1, 1.1, 2.2, 2.2], [1.0, 1.0, 2.0, 2.0])
    assert (ratio.low, ratio.middle, ratio.high) == pytest.approx((1.1, 1.1, 1.1))
    assert str(Ratio.of([3.0], [2.0])) == "1.50 (1.50–1.50)"


def test_every_tree_begins_equally_often() -> None:
    orders = list(plan_overhead.turns((OLD, NEW, AGAIN), 6))
    assert sorted(order[0] for order in orders) == sorted([OLD, NEW, AGAIN] * 2)
    assert all(sorted(order) == sorted((OLD, NEW, AGAIN)) for order in orders)


def test_a_row_has_milliseconds_ratios_and_noise() -> None:
    found = {
        OLD: {"epochs": [0.010, 0.020], "passes": [0.01, 0.01]},
        NEW: {"epochs": [0.011, 0.022], "passes": [0.01, 0.01]},
        AGAIN: {"epochs": [0.010, 0.020], "passes": [0.01, 0.01]},
    }
    old, new, whole, inside, noise, same = plan_overhead.row_of(found, True)
    assert (old, new, same) == ("15.00", "16.50", "yes")
    assert [str(each)[:4] for each in (whole, inside, noise)] == ["1.10", "1.00", "1.00"]


def test_options_that_do_not_exist_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        plan_overhead.options(["--against", ".", "--cases", "mf-sgd,mf-magic"])
    assert "mf-magic is not known; there are mf-sgd" in capsys.readouterr().err
    assert plan_overhead.options(["--against", ".", "--threads", "1,16"]).threads == [1, 16]
    with pytest.raises(SystemExit, match="no src/stretto"):
        Tree(OLD, ROOT / "docs", "python")


def test_a_tree_is_measured_by_a_process_of_its_own() -> None:
    import sys

    tree = Tree(NEW, ROOT, sys.executable)
    try:
        answers = [tree.ask(case="loop-mf", size="small", threads=threads, epochs=2) for threads in (1, 2)]
    finally:
        tree.close()
    assert len(answers[0]["epochs"]) == len(answers[0]["passes"]) == 2
    assert answers[0]["bits"] == answers[1]["bits"]
    assert Path(answers[0]["tree"]).is_relative_to(ROOT / "src")
