"""The shipped example of multiclass regression over tables: it learns, and is the same wherever it runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stretto as st
from examples_run import load

example = load("tables_mlr")
X, Y = example.generate(samples=600, words=200, classes=3, length=15)
PLACES = (st.Serial(), st.Threads(2), st.Simulated(nodes=2, threads=2))
FUNCTIONS = [st.tables.adagrad(0.5), st.tables.adarevision(0.5)]


@pytest.mark.parametrize("apply", FUNCTIONS, ids=str)
def test_the_same_bits_everywhere_under_bsp(apply: Any, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [example.train(X, Y, apply, epochs=3, batch=25, runtime=place) for place in PLACES]
    assert len({run.tables["weights"].tobytes() for run in runs}) == 1
    assert len({run.objective for run in runs}) == 1
    assert runs[0].objective < 0.8 * np.log(3)  # what a model that knows nothing loses
    assert f"{apply}, clock 18: loss" in capsys.readouterr().out


@pytest.mark.parametrize("apply", FUNCTIONS, ids=str)
@pytest.mark.parametrize("place", PLACES[1:], ids=["threads", "simulated"])
def test_it_comes_near_the_optimum_though_reads_are_stale(apply: Any, place: Any) -> None:
    """Beside the estimator with the same ridge: lam for a batch's mean is lam·n for the sum, over the rows in use."""
    result = example.train(X, Y, apply, epochs=20, batch=25, lam=1e-3, sync=st.tables.SSP(2), runtime=place)
    best = st.LogisticRegression(C=1 / (1e-3 * len(Y)), l1_ratio=0.0).fit(X, Y)
    probabilities = best.predict_proba(X)[np.arange(len(Y)), Y]
    assert result.objective < -np.log(probabilities).mean() + 0.15
    weights = result.tables["weights"]
    found = np.argmax(X @ weights[:-1] + weights[-1], axis=1)
    assert np.mean(found == best.predict(X)) > 0.95
    assert result.history[-1].objective < result.history[0].objective


def test_it_says_how_to_run_it() -> None:
    assert "python examples/tables_mlr.py  " in str(example.__doc__)
