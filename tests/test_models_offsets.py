"""Numbers far from zero: the answer is that of centred ones, and a gap that cannot be known is not said to be zero."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from stretto.models.linear.lasso import Lasso

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 6))
Y = X[:, 0] * 2.0 - X[:, 1] + 0.1 * RNG.normal(size=40)


@pytest.fixture(scope="module")
def right() -> Any:
    """The coefficients. Made when they are wanted: every process imports this file, and a first fit compiles."""
    return Lasso(0.1, tol=1e-10).fit(X, Y).coef_


def storages(matrix: Any) -> list[Any]:
    return [matrix, sp.csc_array(matrix)]


@pytest.mark.parametrize("away", [1e4, 1e6, 1e8])
def test_a_target_far_from_zero(away: float, right: Any) -> None:
    model = Lasso(0.1).fit(X, Y + away)
    np.testing.assert_allclose(model.coef_, right, atol=1e-4)
    assert model.dual_gap_ <= 1e-4 * np.var(Y) * 1.01


@pytest.mark.parametrize("away", [1e4, 1e6, 1e8])
@pytest.mark.parametrize("which", [0, 1], ids=["dense", "sparse"])
def test_columns_far_from_zero(away: float, which: int, right: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = Lasso(0.1, tol=1e-6).fit(storages(X + away)[which], Y)
    np.testing.assert_allclose(model.coef_, right, atol=1e-4)
    assert model.dual_gap_ > 0.0


def test_a_constant_column_is_scaled_by_one_whatever_the_storage() -> None:
    weight = np.random.default_rng(0).random(49)
    matrix, y = np.c_[np.ones(49), np.arange(49)], 3 + np.sin(np.arange(49))
    found = [Lasso(1.0, standardize=True, fit_intercept=False).fit(form, y, weight).coef_ for form in storages(matrix)]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)
