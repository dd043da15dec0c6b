"""The two engines of the working-set solver, inner products and sweeps over the data: one answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from linear_problems import Made, assert_optimal, objective
from stretto.schedule.working_sets import working_sets
from stretto.solvers.linear import newton, sweeping
from stretto.solvers.linear.newton import SetSolver
from stretto.solvers.linear.sweeping import best_along
from working_made import LOSSES, numbers, solving, target, weights, whole


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("storage", ["dense", "sparse"])
@pytest.mark.parametrize("positive", [False, True], ids=["", "positive"])
@pytest.mark.parametrize("l2", [0.0, 3.0])
@pytest.mark.parametrize("intercept", [False, True], ids=["", "intercept"])
def test_sweeps_over_the_data_agree_with_the_table(
    loss: str, storage: str, positive: bool, l2: float, intercept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = numbers(90, 60, 0.3 if storage == "sparse" else 1.0)
    X[:, 7], X[:, 8], X[:, 30] = X[:, 3], 0.0, X[:, 1] - 0.5 * X[:, 2]
    y, weight = target(X, loss), weights(90)
    made = Made(X, y, weight, storage == "sparse")
    fits = []
    for tabled in (True, False):
        monkeypatch.setattr(SetSolver, "_tabled", lambda self, chosen, tabled=tabled: tabled)
        with solving(
            X, y, weight, loss=loss, storage=storage, intercept=intercept, positive=positive, scale=np.ones(60)
        ) as works:
            l1, gap = 0.05 * works.largest_l1(), 1e-9 * whole(works)
            fit = works.fit(l1, l2, gap=gap)
        assert fit.converged
        assert fit.objective == pytest.approx(objective(X, y, weight, fit.coef, fit.intercept, l1, l2, loss), rel=1e-11)
        assert_optimal(
            made, y, weight, fit.coef, fit.intercept, l1, l2, fit.gap,
            loss=loss, positive=positive, fit_intercept=intercept,
        )  # fmt: skip
        fits.append(fit)
    assert abs(fits[0].objective - fits[1].objective) <= 2 * gap


@pytest.mark.parametrize("loss", LOSSES)
def test_few_slots_mean_sweeps(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A set larger than the table is swept over the data."""
    X = numbers(600, 400)  # so many samples that a set is not solved in one compiled call
    y = target(X, loss)
    calls: list[int] = []
    swept = sweeping.minimise_swept

    def counted(model: Any, *args: Any) -> Any:
        calls.append(len(model.which))
        return swept(model, *args)

    monkeypatch.setattr(newton, "minimise_swept", counted)
    fits = []
    for slots in (256, 8192):
        with solving(X, y, loss=loss, slots=slots, schedule=working_sets(300)) as works:
            fits.append(works.fit(0.01 * works.largest_l1(), gap=1e-8 * whole(works)))
        assert fits[-1].converged
        assert bool(calls) == (slots == 256)
        assert all(k > 256 for k in calls)
        calls.clear()
    np.testing.assert_allclose(fits[0].coef, fits[1].coef, rtol=0, atol=1e-3 * np.abs(fits[1].coef).max())


@pytest.mark.parametrize("mean", [0.0, 1e2, 1e4])
@pytest.mark.parametrize("storage", ["dense", "sparse"])
@pytest.mark.parametrize("loss", LOSSES)
def test_columns_far_from_zero_are_the_intercept_s_business(loss: str, storage: str, mean: float) -> None:
    """A column moved by a constant is the same column where there is an intercept."""
    X = numbers(120, 25)
    y = target(X, loss)
    with solving(X, y, loss=loss) as works:
        l1, gap = 0.05 * works.largest_l1(), 1e-9 * whole(works)
        best = works.fit(l1, gap=gap)
    with solving(X + mean, y, loss=loss, storage=storage) as works:
        fit = works.fit(l1, gap=gap, max_rounds=20)
    assert fit.converged
    assert fit.objective == pytest.approx(best.objective, rel=1e-8)
    assert fit.intercept == pytest.approx(best.intercept - mean * best.coef.sum(), abs=1e-3 * max(1.0, mean))


@settings(max_examples=200)
@given(seed=some.integers(0, 2**31), k=some.integers(1, 12), positive=some.booleans())
def test_the_best_place_along_a_line(seed: int, k: int, positive: bool) -> None:
    rng = np.random.default_rng(seed)
    b = rng.normal(size=k)
    b = np.abs(b) if positive else b
    way, l1 = rng.normal(size=k) * rng.choice([0.0, 0.3, 3.0], k), rng.uniform(0.0, 2.0, k)
    slope, bend = -float(rng.exponential()), float(rng.exponential(2.0)) + 0.01

    def along(t: Any) -> Any:
        at = b + np.multiply.outer(t, way)
        bent = np.abs(at) - np.abs(b) - np.multiply.outer(t, np.sign(b) * way)
        return slope * t + 0.5 * bend * t**2 + bent @ l1

    t = best_along(b, way, slope, bend, l1, positive)
    assert 0.0 < t <= 1.0
    tried = np.linspace(0.0, 1.0, 2001)
    if positive:
        allowed = np.all(b + np.multiply.outer(tried, way) >= 0.0, axis=1)
        tried = tried[allowed]
        assert np.all(b + t * way >= -1e-12)
    assert along(t) <= along(tried).min() + 1e-12
    # And no better place between two of those tried.
    assert along(t) >= along(tried).min() - 2e-3 * (abs(slope) + bend + 2.0 * float(l1 @ np.abs(way)))
