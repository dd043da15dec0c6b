"""The shipped programs: they learn, and give the same bits on every runtime and under every switch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stretto as st
from examples_run import load
from programs_made import bits
from stretto.programs.run import run

RATINGS = st.generate_ratings(6_000, 200, 150, rank=2, noise=0.1, seed=1).data


def test_matrix_factorization_by_rotation(capsys: pytest.CaptureFixture[str]) -> None:
    example = load("program_mf_rotation")
    result = example.train(RATINGS, rounds=25, blocks=4)
    assert result.objective < 0.6 * result.history[1].objective
    assert "rotation of 4 blocks over 4 logical workers" in capsys.readouterr().out
    found = {bits(result)}
    for sync in ("macro", "micro"):
        for first in ("heaviest", "given"):
            for runtime in (st.Serial(), st.Threads(2), st.Threads(3)):
                made = example.Factorization(RATINGS, blocks=4, sync=sync, first=first)
                found.add(bits(run(made, rounds=25, runtime=runtime)))
    assert len(found) == 1


@pytest.mark.parametrize("pipeline", [1, 3])
def test_lasso_under_every_schedule(pipeline: int) -> None:
    example = load("program_lasso")
    X, y = example.generate(n=80, p=120)
    settings: dict[str, Any] = {"share": 0.2, "width": 8, "rounds": 240, "pipeline": pipeline}
    serial = example.compare(X, y, runtime=st.Serial(), **settings)
    for runtime in (st.Threads(2), st.Threads(3)):
        for name, result in example.compare(X, y, runtime=runtime, **settings).items():
            assert bits(result) == bits(serial[name]), f"{name} on {runtime}"
    best = serial["cyclic, one at a time"].objective
    checked, drawn = serial["prioritised, conflicts"], serial["random"]
    assert checked.objective < (1.01 if pipeline == 1 else 1.1) * best
    assert checked.history[1].objective < drawn.history[1].objective  # urgent and independent ones first pay at once
    r = y - X @ checked.params["beta"]
    np.testing.assert_allclose(checked.params["r"], r, atol=1e-8)
