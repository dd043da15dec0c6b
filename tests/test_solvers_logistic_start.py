"""Logistic regression of many samples: the start from some of them, gaps on the way, and the loss sixteen at a time."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from stretto.data.design.design import Design
from stretto.kernels.core.transpose import transpose
from stretto.kernels.linear import sample_losses
from stretto.runtime.runtimes import Serial
from stretto.solvers.linear.few_features import solver as few
from stretto.solvers.linear.few_features.sampled_start import sampled_problem
from stretto.solvers.linear.regression import Fit, RegressionProblem
from working_made import Floats

PENALTIES = [(40.0, 0.0), (10.0, 5.0), (0.0, 3.0)]


def made(n: int = 20_000, p: int = 6, *, share: float = 0.3, sort: bool = False) -> RegressionProblem:
    rng = np.random.default_rng(n + p)
    X = rng.standard_normal((n, p)) + 3.0
    score = 2.0 * X[:, 0] - X[:, 1] + rng.logistic(size=n)
    y = np.where(score > np.quantile(score, 1.0 - share), 1.0, -1.0)
    order = np.argsort(y, kind="stable") if sort else np.arange(n)
    return RegressionProblem(Design.of(X[order]), y[order], rng.uniform(0.5, 2.0, n), "logistic", intercept=True)


def solved(problem: RegressionProblem, l1: float, l2: float, gap: float, *, rounds: int = 100) -> Fit:
    with Serial().open() as crew:
        return few.FewFeaturesSolver(problem, crew).fit(l1, l2, gap=gap, max_rounds=rounds)


@pytest.mark.parametrize("sort", [False, True])
@pytest.mark.parametrize(("l1", "l2"), PENALTIES)
def test_a_start_from_some_samples_saves_rounds_and_leads_to_the_same_solution(
    l1: float, l2: float, sort: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = made(sort=sort)
    close = solved(problem, l1, l2, 1e-8)
    quick = solved(problem, l1, l2, 50.0)
    monkeypatch.setattr(few, "sampled_problem", lambda problem: None)
    plain, slow = solved(problem, l1, l2, 1e-8), solved(problem, l1, l2, 50.0)
    assert close.converged
    assert plain.converged
    np.testing.assert_allclose(close.coef, plain.coef, rtol=1e-5, atol=1e-7)
    assert close.intercept == pytest.approx(plain.intercept, rel=1e-5)
    assert quick.rounds < slow.rounds


def test_some_samples_are_a_sixteenth_of_all_in_blocks_and_weigh_as_much() -> None:
    problem = made(sort=True)
    some = sampled_problem(problem)
    assert some is not None
    assert some.design.shape == (19 * 64, 6)
    assert some.weight.sum() == pytest.approx(problem.weight.sum())
    assert np.mean(some.y > 0) == pytest.approx(np.mean(problem.y > 0), abs=0.05)
    np.testing.assert_array_equal(some.design.parts[0][:, 64:128], problem.design.parts[0][:, 1024:1088])


def test_few_samples_or_rare_classes_have_no_such_start() -> None:
    assert sampled_problem(made(10_000)) is None
    assert sampled_problem(made(20_000, share=0.002)) is None


@pytest.mark.parametrize(("l1", "l2"), PENALTIES)
def test_the_gap_is_true_after_every_round(l1: float, l2: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between rounds the intercept is not the best one, and the dual point is corrected for that."""
    monkeypatch.setattr(few, "sampled_problem", lambda problem: None)
    problem = made(3_000)
    best = solved(problem, l1, l2, 1e-9).objective
    last = np.inf
    for rounds in range(1, 7):
        found = solved(problem, l1, l2, 1e-9, rounds=rounds)
        assert found.objective - best <= found.gap + 1e-9
        assert found.gap <= 2.0 * last
        last = found.gap
    assert last < 1e-3 * best


@pytest.mark.parametrize("n", [1, 15, 16, 100])
def test_loss_gradient_and_curvature(n: int) -> None:
    rng = np.random.default_rng(n)
    z: Floats = np.concatenate([[0.0, 800.0, -800.0, 1e-12, 36.0, -36.0], rng.normal(size=n) * 20])[:n]
    y, weight = np.where(rng.random(n) < 0.5, 1.0, -1.0), rng.uniform(0.1, 3.0, n)
    v, d = np.empty(n), np.empty(n)
    value, pull, bend = sample_losses.look_logistic.exact(y, z, weight, 0.25, v, d)
    t = y * (z + 0.25)
    assert value == pytest.approx(float(np.sum(weight * np.logaddexp(0.0, -t))), rel=1e-14)
    np.testing.assert_allclose(v, weight * y * special.expit(-t), rtol=4e-15, atol=1e-300)
    np.testing.assert_allclose(d, weight * special.expit(t) * special.expit(-t), rtol=4e-15, atol=1e-300)
    assert pull == pytest.approx(float(v.sum()), rel=1e-12, abs=1e-12)
    assert bend == pytest.approx(float(d.sum()), rel=1e-12)
    z[0] = np.nan
    assert np.isnan(sample_losses.look_logistic.exact(y, z, weight, 0.25, v, d)[0])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", [(1, 1), (7, 9), (8, 8), (77, 35), (130, 200)])
def test_transposing(shape: tuple[int, int], dtype: type) -> None:
    X: Floats = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    to = np.empty(shape[::-1], dtype)
    transpose.exact(X, to)
    np.testing.assert_array_equal(to, X.T)
