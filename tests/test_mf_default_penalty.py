"""The default penalty of factors: in standard deviations of the ratings, so that their unit does not matter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stretto as st


def dense_ratings(factor: float = 1.0) -> tuple[st.Data, st.Data]:
    """(train, test): ratings from −10 to 10 of which users gave most, with more noise than structure."""
    rng = np.random.default_rng(3)
    users, items = 1500, 60
    structure = rng.standard_normal((users, 4)) @ rng.standard_normal((4, items))
    ratings = 2.4 * rng.standard_normal((users, 1)) + structure + 3.9 * rng.standard_normal((users, items))
    rows, cols = np.nonzero(rng.random((users, items)) < 0.7)
    values = np.clip(ratings, -10, 10)[rows, cols] * factor
    data = st.Data.from_arrays(rows, cols, values, (users, items), source="dense ratings")
    return data.split(0.1, seed=0)


def errors(train: st.Data, test: st.Data, **settings: Any) -> list[float]:
    model = st.MatrixFactorization(32, random_state=0, **settings).fit(train, validation=test)
    return [epoch["test_rmse"] for epoch in model.history_]


def test_dense_ratings_of_wide_range_do_not_overfit() -> None:
    train, test = dense_ratings()
    twenty, fixed = errors(train, test), errors(train, test, l2_regularization=0.05)
    assert twenty[-1] <= 1.002 * min(twenty)
    assert fixed[-1] > 1.05 * min(fixed)  # what a fixed penalty did
    assert twenty[-1] < min(fixed)


@pytest.mark.parametrize("solver", ["sgd", "als", "ccd"])
def test_the_unit_of_the_ratings_does_not_matter(solver: str) -> None:
    settings: dict[str, Any] = {"solver": solver, "max_iter": 3}
    plain, large = errors(*dense_ratings(), **settings), errors(*dense_ratings(64.0), **settings)
    np.testing.assert_allclose(np.array(large) / 64.0, plain, rtol=1e-4)


def test_the_default_is_a_twentieth_of_the_standard_deviation() -> None:
    train, test = dense_ratings()
    scale = float(st.MatrixFactorization(4, max_iter=1, random_state=0).fit(train).scale_)
    named = errors(train, test, max_iter=3, l2_regularization=0.05 * scale)
    np.testing.assert_allclose(errors(train, test, max_iter=3), named, rtol=1e-6)
