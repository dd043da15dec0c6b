"""AdaRevision as a user meets it: any learning rate will do, and going on is as if it had never stopped."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stretto.data.generate.ratings import ratings
from stretto.errors import Diverged
from stretto.models.factorization.estimator import MatrixFactorization

MADE = ratings(60_000, 700, 500, rank=4, noise=0.3, seed=5).data
TRAIN, TEST = MADE.split(0.1, seed=1)
RATES = (0.08, 0.15, 0.25, 0.4)


def model(**parameters: Any) -> MatrixFactorization:
    given: dict[str, Any] = {
        "n_components": 8,
        "max_iter": 15,
        "random_state": 0,
        "n_jobs": 2,
        "optimizer": "adarevision",
    }
    return MatrixFactorization(**given | parameters)


def error(optimizer: str, rate: float, **parameters: Any) -> float:
    """Test RMSE after training with a learning rate; infinity where it diverges."""
    try:
        fitted: MatrixFactorization = model(optimizer=optimizer, learning_rate=rate, **parameters).fit(TRAIN)
        return -fitted.score(TEST)
    except Diverged:
        return math.inf


def test_any_learning_rate_will_do() -> None:
    """From 0.08 to 0.4, as the paper found: AdaRevision hardly differs; plain SGD does, with or without a fall."""
    ours = [error("adarevision", rate) for rate in RATES]
    falling, constant = ([error("sgd", rate, schedule=how) for rate in RATES] for how in ("linear", "constant"))
    assert max(ours) < 1.03 * min(ours)
    assert falling[-1] > 1.2 * min(falling)
    assert constant[-2] > 1.5 * min(constant)
    assert max(ours) < min(constant)


def test_the_default_is_as_good_as_sgd() -> None:
    ours, plain = (-model(optimizer=name, max_iter=20).fit(TRAIN).score(TEST) for name in ("adarevision", "sgd"))
    assert ours < 1.03 * plain


def test_squares_are_one_for_each_element() -> None:
    fitted = model(max_iter=2).fit(TRAIN)
    shapes = {name: array.shape for name, array in fitted.squares_.items()}
    assert shapes == {"zw": (700, 8), "zh": (500, 8), "zb": (700,), "zc": (500,)}
    assert min(array.min() for array in fitted.squares_.values()) >= 1
    unrated = np.setdiff1d(np.arange(700), TRAIN.rows)
    rated = np.unique(TRAIN.rows)
    assert (fitted.squares_["zw"][unrated] == 1).all()
    assert (fitted.squares_["zw"][rated] > 1).all()
    assert {*model(biases=False, max_iter=2).fit(TRAIN).squares_} == {"zw", "zh"}
    assert model(optimizer="sgd", max_iter=2).fit(TRAIN).squares_ == {}
    assert model(solver="als", optimizer="sgd", max_iter=2).fit(TRAIN).squares_ == {}


def close(one: MatrixFactorization, two: MatrixFactorization) -> bool:
    """Whether two models are the same but for the rounding of the change of units."""
    names = ("user_factors_", "item_factors_", "user_bias_", "item_bias_")
    return all(np.allclose(getattr(one, name), getattr(two, name), atol=2e-3) for name in names)


@pytest.mark.parametrize("optimizer", ["adagrad", "adarevision"])
@pytest.mark.parametrize("way", ["warm_start", "partial_fit", "saved"])
def test_going_on_is_as_if_it_had_never_stopped(optimizer: str, way: str, tmp_path: Path) -> None:
    """The squared gradients come along; begun anew at 1, the steps would be large again."""
    whole = model(optimizer=optimizer, schedule="constant", max_iter=6).fit(TRAIN)
    parts = model(optimizer=optimizer, schedule="constant", max_iter=4, warm_start=True).fit(TRAIN)
    if way == "saved":
        parts.save(tmp_path / "model")
        parts = MatrixFactorization.load(tmp_path / "model")
    if way == "partial_fit":
        parts.partial_fit(TRAIN).partial_fit(TRAIN)
    else:
        parts.set_params(max_iter=2).fit(TRAIN)
    assert parts.n_iter_ == 6
    assert close(parts, whole)
    for name, squares in whole.squares_.items():
        np.testing.assert_allclose(parts.squares_[name], squares, rtol=1e-2)
    forgetful = model(optimizer=optimizer, schedule="constant", max_iter=4, warm_start=True).fit(TRAIN)
    forgetful.squares_ = {}
    assert not close(forgetful.set_params(max_iter=2).fit(TRAIN), whole)


def test_new_rows_begin_at_one() -> None:
    small = replace(TRAIN.take((TRAIN.rows < 400) & (TRAIN.cols < 300)), shape=(400, 300))
    fitted = model().partial_fit(small)
    known = {name: array.copy() for name, array in fitted.squares_.items()}
    fitted.partial_fit(TRAIN)
    assert fitted.squares_["zw"].shape == (700, 8)
    for name, array in known.items():
        assert (fitted.squares_[name][: len(array)] >= array).all()


def test_another_optimizer_begins_anew() -> None:
    fitted = model(optimizer="adagrad", warm_start=True, max_iter=2).fit(TRAIN)
    fitted.set_params(optimizer="adarevision").fit(TRAIN)
    assert {*fitted.squares_} == {"zw", "zh", "zb", "zc"}
    assert fitted.n_iter_ == 4


def test_the_squares_are_part_of_the_start() -> None:
    """Another start is another plan, and these are a part of it."""
    one, two = (model(warm_start=True, max_iter=2).fit(TRAIN) for _ in range(2))
    two.squares_["zw"] = two.squares_["zw"] + np.float32(1)
    assert one.fit(TRAIN).fingerprint_ != two.fit(TRAIN).fingerprint_


def test_memory_is_counted_for_every_element() -> None:
    plain, ours = (model(optimizer=name, max_iter=1).fit(TRAIN).plan_ for name in ("sgd", "adarevision"))
    assert ours.cost.state_bytes == 2 * plain.cost.state_bytes
    assert "zw [" in ours.explain()
    assert "optimizer=adarevision" in ours.explain()
    assert "schedule=constant" in ours.explain()


def test_a_streamed_fit_keeps_its_squares() -> None:
    whole, streamed = model(max_iter=3).fit(TRAIN), model(max_iter=3, memory=300_000).fit(TRAIN)
    assert streamed.plan_.physical.tile is not None
    assert streamed.fingerprint_ == whole.fingerprint_
    for name, squares in whole.squares_.items():
        np.testing.assert_array_equal(streamed.squares_[name], squares)
    np.testing.assert_array_equal(streamed.user_factors_, whole.user_factors_)
