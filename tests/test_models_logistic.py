"""LogisticRegression: optimal by its own certificate, the same answer as scikit-learn, at any number of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as some
from sklearn import linear_model as sk
from sklearn.exceptions import ConvergenceWarning
from sklearn.multiclass import OneVsRestClassifier

from linear_problems import Made, assert_optimal, objective, problems
from stretto.errors import DataError, PlanError
from stretto.models.linear.logistic import LogisticRegression
from stretto.runtime.runtimes import Serial

RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 12)) * (RNG.random((90, 12)) < 0.6)
SCORE = 2.0 * X[:, 3] - X[:, 7] + RNG.normal(size=90) + 0.5
Y = (SCORE > 0).astype(int)
THREE = np.array(["low", "mid", "top"])[np.digitize(SCORE, [-0.5, 1.0])]
WEIGHT = RNG.uniform(0.1, 2.0, 90)
FORMS: dict[str, Any] = {"dense": X, "csc": sp.csc_array(X), "csr": sp.csr_matrix(X)}
SAME: Any = {"rtol": 1e-3, "atol": 2e-4}


def saga(**options: Any) -> Any:
    return sk.LogisticRegression(solver="saga", tol=1e-8, max_iter=100_000, random_state=0, **options)


# --- the same answer as scikit-learn ----------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("l1_ratio", [1.0, 0.5, 0.0])
@pytest.mark.parametrize("intercept", [True, False], ids=["intercept", "none"])
def test_agrees_with_saga(form: str, l1_ratio: float, intercept: bool) -> None:
    ours = LogisticRegression(0.7, l1_ratio=l1_ratio, fit_intercept=intercept, tol=1e-11).fit(FORMS[form], Y, WEIGHT)
    theirs = saga(C=0.7, l1_ratio=l1_ratio, fit_intercept=intercept).fit(X, Y, WEIGHT)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, **SAME)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, **SAME)
    np.testing.assert_allclose(ours.predict_proba(FORMS[form]), theirs.predict_proba(X), **SAME)
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), rtol=1e-2, atol=2e-3)
    np.testing.assert_array_equal(ours.predict(FORMS[form]), theirs.predict(X))
    assert ours.coef_.shape == (1, 12)
    assert ours.intercept_.shape == ours.dual_gap_.shape == ours.n_iter_.shape == (1,)


@pytest.mark.parametrize("C", [0.05, 0.5, 20.0])
def test_agrees_with_liblinear(C: float) -> None:
    ours = LogisticRegression(C, fit_intercept=False, tol=1e-11, l1_ratio=1.0).fit(X, Y)
    theirs = sk.LogisticRegression(
        C=C, l1_ratio=1.0, solver="liblinear", fit_intercept=False, tol=1e-10, max_iter=10_000, random_state=0
    ).fit(X, Y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, **SAME)


@pytest.mark.parametrize("class_weight", ["balanced", {0: 3.0, 1: 0.5}], ids=["balanced", "given"])
def test_class_weights_agree_with_scikit_learn(class_weight: Any) -> None:
    ours = LogisticRegression(0.5, l1_ratio=0.0, class_weight=class_weight, tol=1e-11).fit(X, Y, WEIGHT)
    theirs = sk.LogisticRegression(C=0.5, solver="newton-cholesky", tol=1e-10, class_weight=class_weight)
    theirs.fit(X, Y, WEIGHT)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, **SAME)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, **SAME)


def test_three_classes_are_each_learned_against_the_rest() -> None:
    ours = LogisticRegression(0.5, tol=1e-11, multi_class="ovr", l1_ratio=1.0).fit(X, THREE)
    theirs = OneVsRestClassifier(saga(C=0.5, l1_ratio=1.0)).fit(X, THREE)
    assert ours.classes_.tolist() == ["low", "mid", "top"]
    assert ours.coef_.shape == (3, 12)
    assert ours.dual_gap_.shape == ours.objective_.shape == ours.n_iter_.shape == (3,)
    np.testing.assert_allclose(ours.coef_, np.vstack([e.coef_ for e in theirs.estimators_]), **SAME)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), **SAME)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    assert ours.decision_function(X).shape == (90, 3)
    assert ours.sparse_coef_.shape == (3, 12)


# --- optimal ----------------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(
    made=problems(),
    C=some.sampled_from([0.01, 0.3, 5.0]),
    l1_ratio=some.sampled_from([1.0, 1.0, 0.5, 0.0]),
    intercept=some.booleans(),
)
def test_optimality(made: Made, C: float, l1_ratio: float, intercept: bool) -> None:
    model = LogisticRegression(C, l1_ratio=l1_ratio, fit_intercept=intercept, tol=1e-8, max_iter=2000)
    model.fit(made.given, made.signs, made.weight)
    weight, coef, bias, gap = C * made.weight, model.coef_[0], float(model.intercept_[0]), float(model.dual_gap_[0])
    assert_optimal(
        made, made.signs, weight, coef, bias, l1_ratio, 1.0 - l1_ratio, gap, loss="logistic", fit_intercept=intercept
    )
    found = objective(made.X, made.signs, weight, coef, bias, l1_ratio, 1.0 - l1_ratio, "logistic")
    assert model.objective_[0] == pytest.approx(found, rel=1e-9)


@pytest.mark.parametrize("intercept", [True, False])
def test_small_c_gives_all_zeros(intercept: bool) -> None:
    signs = 2.0 * Y - 1.0
    share = Y.mean() if intercept else 0.5
    slope = np.abs(X.T @ (Y - share))
    model = LogisticRegression(fit_intercept=intercept, tol=1e-12, l1_ratio=1.0)
    assert not model.set_params(C=(1 - 1e-9) / slope.max()).fit(X, signs).coef_.any()
    assert np.flatnonzero(model.set_params(C=1.02 / slope.max()).fit(X, signs).coef_[0]).tolist() == [slope.argmax()]


@pytest.mark.parametrize("tol", [1e-1, 1e-2, 1e-3, 1e-5])
@pytest.mark.parametrize("C", [0.1, 1.0, 10.0])
def test_the_gap_bounds_what_is_left_to_gain(C: float, tol: float) -> None:
    best = LogisticRegression(C, tol=1e-12, l1_ratio=1.0).fit(X, Y).objective_[0]
    model = LogisticRegression(C, tol=tol, l1_ratio=1.0).fit(X, Y)
    assert -1e-10 <= model.objective_[0] - best <= model.dual_gap_[0] + 1e-10
    share = Y.mean()
    empty = -90 * C * (share * np.log(share) + (1 - share) * np.log(1 - share))
    assert model.dual_gap_[0] <= tol * empty


# --- using it ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("y", "multi_class"),
    [(Y, "deprecated"), (THREE, "deprecated"), (THREE, "ovr")],
    ids=["two", "three", "against the rest"],
)
def test_probabilities_add_up(y: Any, multi_class: str) -> None:
    model = LogisticRegression(2.0, multi_class=multi_class, l1_ratio=1.0).fit(X, y)
    far = 1e4 * X  # log odds beyond what exp can hold
    for data in (X, far):
        chance = model.predict_proba(data)
        np.testing.assert_allclose(chance.sum(axis=1), 1.0)
        np.testing.assert_allclose(np.exp(model.predict_log_proba(data)), chance)
        assert np.isfinite(model.predict_log_proba(data)).all()
    np.testing.assert_array_equal(model.classes_[model.predict_proba(X).argmax(axis=1)], model.predict(X))
    assert 0.5 < model.score(X, y) <= 1.0


@pytest.mark.parametrize("form", ["dense", "csc"])
def test_threads_never_change_the_answer(form: str) -> None:
    rng = np.random.default_rng(5)
    wide = rng.normal(size=(100, 150)) * (rng.random((100, 150)) < 0.5)
    y = (wide[:, :10].sum(axis=1) + rng.normal(size=100) > 0).astype(int)
    matrix = wide if form == "dense" else sp.csc_array(wide)
    runs: list[dict[str, Any]] = [{"n_jobs": 1}, {"n_jobs": 2}, {"n_jobs": 3}, {"runtime": Serial()}]
    models = [LogisticRegression(1.0, l1_ratio=1.0, tol=1e-7, **where).fit(matrix, y) for where in runs]
    for model in models[1:]:
        for name in ("coef_", "intercept_", "dual_gap_", "objective_", "n_iter_"):
            np.testing.assert_array_equal(getattr(model, name), getattr(models[0], name))


def test_standardize_equals_scaling_by_hand() -> None:
    stretched = X * np.logspace(-2, 2, 12)
    mean = np.average(stretched, axis=0, weights=WEIGHT)
    spread = np.sqrt(np.average((stretched - mean) ** 2, axis=0, weights=WEIGHT))
    model = LogisticRegression(0.5, standardize=True, tol=1e-11, l1_ratio=1.0).fit(sp.csr_array(stretched), Y, WEIGHT)
    by_hand = LogisticRegression(0.5, tol=1e-11, l1_ratio=1.0).fit(stretched / spread, Y, WEIGHT)
    np.testing.assert_allclose(model.coef_ * spread, by_hand.coef_, **SAME)


def test_a_warm_start_begins_where_the_last_fit_ended() -> None:
    model = LogisticRegression(2.0, tol=1e-9, warm_start=True, multi_class="ovr", l1_ratio=1.0).fit(X, THREE)
    rounds, coef = model.n_iter_, model.coef_.copy()
    assert np.all(model.fit(X, THREE).n_iter_ <= rounds)
    np.testing.assert_allclose(model.coef_, coef, **SAME)
    assert model.fit(X, Y).coef_.shape == (1, 12)


def test_too_few_rounds_are_told() -> None:
    rng = np.random.default_rng(2)
    hard = rng.normal(size=(60, 200))
    with pytest.warns(ConvergenceWarning, match="LogisticRegression stopped after max_iter=1 rounds"):
        LogisticRegression(100.0, tol=1e-12, max_iter=1, l1_ratio=1.0).fit(hard, rng.random(60) < 0.5)


def test_one_class_is_refused() -> None:
    with pytest.raises(DataError, match="at least 2 classes; the data contain one class: 'a'"):
        LogisticRegression(l1_ratio=1.0).fit(X, ["a"] * 90)
    with pytest.raises(DataError, match="class 0 has no weight"):
        LogisticRegression(l1_ratio=1.0).fit(X, Y, Y.astype(float))
    with pytest.raises(ValueError, match="Unknown label type"):
        LogisticRegression(l1_ratio=1.0).fit(X, SCORE)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"C": 0}, "C must be a number more than 0"),
        ({"C": np.inf}, "C must be .*take a large C"),
        ({"l1_ratio": -0.1}, "l1_ratio must be"),
        ({"standardize": None}, "standardize must be True or False"),
    ],
    ids=["zero", "infinite", "ratio", "flag"],
)
def test_wrong_parameters_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        LogisticRegression(**options).fit(X, Y)


def test_unbounded_numbers_are_refused() -> None:
    broken = X.copy()
    broken[4, 2] = np.nan
    for form in (broken, sp.csr_array(broken)):
        with pytest.raises(DataError, match="row 4, column 2"):
            LogisticRegression(l1_ratio=1.0).fit(form, Y)
    with pytest.raises(ValueError, match="sample_weight contains NaN"):
        LogisticRegression(l1_ratio=1.0).fit(X, Y, np.where(np.arange(90) == 3, np.nan, 1.0))


def test_explain_says_what_would_be_done() -> None:
    text = LogisticRegression(0.5, l1_ratio=0.8, n_jobs=1).explain(sp.csr_array(X), Y)
    for words in (
        "0.5 Σ log(1 + exp(−y z)) + 0.8 ‖w‖₁ + ½ 0.2 ‖w‖²",
        "all coefficients are zero up to C",
        "CSR turned into CSC once",
        "the duality gap is at most 0.0001 × the objective",
        "1 worker",
    ):
        assert words in text
    assert "for each of 3 classes against the rest" in LogisticRegression(multi_class="ovr", l1_ratio=1.0).explain(
        X, THREE
    )
    assert "no coefficient is set to zero" in LogisticRegression(l1_ratio=0.0).explain(X, Y)
