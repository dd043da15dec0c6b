"""docs/support.md: it lists everything there is, and says what a run says."""

from __future__ import annotations

import pytest
from bench.support import PAGE, cells, load, page, read_page, shown
from bench.support_cells import Result, cell, first_sentence, rows
from sklearn.base import BaseEstimator

import stretto as st
from plan_cases import ESTIMATORS, LOOPS
from stretto.loops.explain import _MEANING

TEXT = PAGE.read_text(encoding="utf-8")
WRITTEN = read_page(TEXT)
# A few cells that are quick: each runtime, each storage, some that are refused.
TRIED = [
    ("MatrixFactorization, sgd", "memory", "cluster"),
    ("MatrixFactorization, sgd", "disk", "threads"),
    ("MatrixFactorization, sgd", "file", "simulated"),
    ("MatrixFactorization, als", "disk", "serial"),
    ("MatrixFactorization, als", "memory", "simulated"),
    ("LatentDirichletAllocation, sparse", "disk", "serial"),
    ("LatentDirichletAllocation, sparse", "memory", "cluster"),
    ("Lasso", "memory", "simulated"),
    ("1d", "memory", "cluster"),
    ("inspected", "memory", "threads"),
    ("chain", "memory", "simulated"),
]


@pytest.mark.parametrize("which", TRIED, ids=" ".join)
def test_the_page_says_what_runs(which: tuple[str, str, str]) -> None:
    row, storage, runtime = which
    assert shown(cell(row, storage, runtime, cluster="in-process")) == WRITTEN[which]


def test_every_cell_is_on_the_page() -> None:
    assert list(WRITTEN) == cells()
    assert "not run" not in WRITTEN.values()
    assert page(load()) == TEXT


def test_every_estimator_and_strategy_has_a_row() -> None:
    public = [getattr(st, name) for name in st.__all__]
    names = [one.__name__ for one in public if isinstance(one, type) and issubclass(one, BaseEstimator)]
    assert {"MatrixFactorization", "Lasso", "LogisticRegression"} <= set(names)
    for name in names:
        assert any(row.split(", ")[0] == name for row in rows()), name
    assert len(rows()) >= len(ESTIMATORS) + len(LOOPS)
    strategies = {"scheduled" if name.startswith("scheduled") else name for name in _MEANING}
    assert strategies <= set(rows())


def test_wording_of_cells() -> None:
    assert shown(Result("equal")) == "✓"
    assert shown(Result("equal", tiled=False)) == "✓ (in memory)"
    assert shown(Result("refused", "it is too late")) == "refused: it is too late"
    assert shown(Result("no answer", "nothing after 5 s")) == "**no answer**: nothing after 5 s"
    assert first_sentence("f, line 3: it | does not. Do this") == "it / does not"
    assert first_sentence("no (this; that); do this") == "no (this; that)"
    assert len(first_sentence("long " * 100)) == 160
