"""Lasso and ElasticNet: optimal by their own certificate, the same answer as scikit-learn, at any number of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as some
from sklearn import linear_model as sk
from sklearn.exceptions import ConvergenceWarning

from linear_problems import Made, assert_optimal, objective, problems
from stretto.errors import DataError, PlanError
from stretto.models.linear.lasso import ElasticNet, Lasso
from stretto.runtime.runtimes import Serial
from stretto.runtime.simulated.spec import Simulated
from stretto.schedule.working_sets import working_sets

RNG = np.random.default_rng(0)
X = RNG.normal(size=(70, 25)) * (RNG.random((70, 25)) < 0.6)
Y = 2.0 * X[:, 3] - X[:, 7] + 0.5 * X[:, 11] + RNG.normal(size=70) + 3.0
WEIGHT = RNG.uniform(0.0, 2.0, 70)

FORMS: dict[str, Any] = {
    "dense": X,
    "fortran": np.asfortranarray(X),
    "csc": sp.csc_array(X),
    "csr": sp.csr_matrix(X),
    "coo": sp.coo_array(X),
}
SAME: Any = {"rtol": 1e-4, "atol": 5e-5}  # what a gap of 1e-11 implies for these data


def wide_indices() -> Any:
    matrix = sp.csr_array(X)
    matrix.indptr, matrix.indices = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64)
    return matrix


def largest_alpha(made: Made, *, intercept: bool = True, positive: bool = False) -> float:
    weight = made.weight / made.weight.sum()
    centre = (weight * made.y).sum() if intercept else 0.0
    slope = made.X.T @ (weight * (made.y - centre))
    top = float((slope if positive else np.abs(slope)).max())
    return top if top > 1e-9 else 0.0  # rounding, where a constant column meets an intercept


# --- the same answer as scikit-learn ----------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "options",
    [{}, {"fit_intercept": False}, {"positive": True}, {"fit_intercept": False, "positive": True}],
    ids=["plain", "no-intercept", "positive", "positive-no-intercept"],
)
@pytest.mark.parametrize("weighted", [False, True], ids=["equal", "weighted"])
def test_lasso_agrees_with_scikit_learn(form: str, options: dict[str, Any], weighted: bool) -> None:
    weight = WEIGHT if weighted else None
    ours = Lasso(0.05, tol=1e-11, **options).fit(FORMS[form], Y, weight)
    theirs = sk.Lasso(0.05, tol=1e-12, max_iter=100_000, **options).fit(X, Y, weight)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, **SAME)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, **SAME)
    np.testing.assert_allclose(ours.predict(FORMS[form]), theirs.predict(X), rtol=1e-3, atol=1e-3)
    assert (
        0.0
        <= ours.dual_gap_
        <= 1e-11 * np.average((Y if options.get("fit_intercept") is False else Y - Y.mean()) ** 2) * 1.5
    )
    assert ours.sparse_coef_.shape == (1, 25)
    np.testing.assert_array_equal(ours.sparse_coef_.toarray()[0], ours.coef_)


@pytest.mark.parametrize("l1_ratio", [0.0, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("form", ["dense", "csc"])
def test_elastic_net_agrees_with_scikit_learn(form: str, l1_ratio: float) -> None:
    ours = ElasticNet(0.2, l1_ratio=l1_ratio, tol=1e-12).fit(FORMS[form], Y, WEIGHT)
    if l1_ratio == 0.0:  # scikit-learn's elastic net has no gap without ‖w‖₁
        theirs = sk.Ridge(alpha=0.2 * WEIGHT.sum()).fit(X, Y, WEIGHT)
    else:
        theirs = sk.ElasticNet(0.2, l1_ratio=l1_ratio, tol=1e-13, max_iter=100_000).fit(X, Y, WEIGHT)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, **SAME)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, **SAME)


@pytest.mark.parametrize("matrix", [X.astype(np.float32), sp.csr_array(X.astype(np.float32))], ids=["dense", "sparse"])
def test_single_precision_data(matrix: Any) -> None:
    ours = Lasso(0.05, tol=1e-11).fit(matrix, Y.astype(np.float32))
    exact = Lasso(0.05, tol=1e-11).fit(X.astype(np.float32).astype(np.float64), Y.astype(np.float32).astype(np.float64))
    np.testing.assert_allclose(ours.coef_, exact.coef_, **SAME)
    assert ours.coef_.dtype == np.float64


def test_wide_indices() -> None:
    np.testing.assert_array_equal(Lasso(0.05).fit(wide_indices(), Y).coef_, Lasso(0.05).fit(sp.csr_array(X), Y).coef_)


def test_every_form_gives_the_same_answer_as_its_columns() -> None:
    """Conversions change no number: forms that end as the same arrays end as the same coefficients."""
    for one, other in (("dense", "fortran"), ("csc", "csr"), ("csc", "coo")):
        a, b = (Lasso(0.05).fit(FORMS[form], Y) for form in (one, other))
        np.testing.assert_array_equal(a.coef_, b.coef_)
        assert a.intercept_ == b.intercept_


# --- optimal ----------------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(
    made=problems(),
    share=some.sampled_from([0.9, 0.5, 0.1, 0.02]),
    l1_ratio=some.sampled_from([1.0, 1.0, 0.5, 0.1]),
    intercept=some.booleans(),
    positive=some.booleans(),
)
def test_optimality(made: Made, share: float, l1_ratio: float, intercept: bool, positive: bool) -> None:
    alpha = share * largest_alpha(made, intercept=intercept, positive=positive) / l1_ratio or 1.0
    model = ElasticNet(
        alpha, l1_ratio=l1_ratio, fit_intercept=intercept, positive=positive, tol=1e-9, max_iter=1000
    ).fit(made.given, made.y, made.weight)
    n = len(made.y)
    weight = made.weight * n / made.weight.sum()
    l1, l2 = alpha * l1_ratio * n, alpha * (1.0 - l1_ratio) * n
    assert_optimal(
        made, made.y, weight, model.coef_, model.intercept_, l1, l2, model.dual_gap_ * n,
        positive=positive, fit_intercept=intercept,
    )  # fmt: skip
    found = objective(made.X, made.y, weight, model.coef_, model.intercept_, l1, l2) / n
    assert model.objective_ == pytest.approx(found, rel=1e-9, abs=1e-12)
    assert model.coef_[~made.X.any(axis=0)].tolist() == [0.0] * int((~made.X.any(axis=0)).sum())


@settings(max_examples=40)
@given(made=problems(), intercept=some.booleans(), positive=some.booleans())
def test_from_the_largest_penalty_on_all_is_zero(made: Made, intercept: bool, positive: bool) -> None:
    top = largest_alpha(made, intercept=intercept, positive=positive)
    model = Lasso(top * (1 + 1e-9) or 1.0, fit_intercept=intercept, positive=positive, tol=1e-12)
    model.fit(made.given, made.y, made.weight)
    assert not model.coef_.any()
    assert model.dual_gap_ <= 1e-8 * np.average(made.y**2, weights=made.weight)
    if intercept:
        assert model.intercept_ == pytest.approx(np.average(made.y, weights=made.weight))
    if top:
        assert model.set_params(alpha=0.98 * top).fit(made.given, made.y, made.weight).coef_.any()


@pytest.mark.parametrize("tol", [1e-1, 1e-2, 1e-3, 1e-5])
@pytest.mark.parametrize("alpha", [0.3, 0.03, 0.003])
def test_the_gap_bounds_what_is_left_to_gain(alpha: float, tol: float) -> None:
    best = Lasso(alpha, tol=1e-13).fit(X, Y, WEIGHT).objective_
    model = Lasso(alpha, tol=tol).fit(X, Y, WEIGHT)
    assert -1e-12 <= model.objective_ - best <= model.dual_gap_ + 1e-12
    mean = np.average(Y, weights=WEIGHT)
    assert model.dual_gap_ <= tol * np.average((Y - mean) ** 2, weights=WEIGHT)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_constant_column_is_left_to_the_intercept(sparse: bool) -> None:
    """Its slope is rounding, and no penalty is so small that rounding may enter the model."""
    constant = np.column_stack([np.full(70, 1.1), np.full(70, 1e6), np.zeros(70)])
    model = Lasso(1e-12).fit(sp.csc_array(constant) if sparse else constant, Y)
    assert not model.coef_.any()
    assert model.intercept_ == pytest.approx(Y.mean())
    beside = Lasso(0.05, tol=1e-11).fit(np.column_stack([X, constant]), Y)
    np.testing.assert_allclose(beside.coef_[:25], Lasso(0.05, tol=1e-11).fit(X, Y).coef_, **SAME)


def test_a_constant_target_is_the_intercept() -> None:
    model = Lasso(0.1).fit(X, np.full(70, 5.0))
    assert not model.coef_.any()
    assert model.intercept_ == pytest.approx(5.0)


# --- parameters -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["dense", "csr"])
@pytest.mark.parametrize("weighted", [False, True], ids=["equal", "weighted"])
def test_standardize_equals_scaling_by_hand(form: str, weighted: bool) -> None:
    weight = WEIGHT if weighted else np.ones(70)
    stretched = X * np.logspace(-2, 2, 25)
    stretched[:, 20] = 0.0
    mean = np.average(stretched, axis=0, weights=weight)
    spread = np.sqrt(np.average((stretched - mean) ** 2, axis=0, weights=weight))
    spread[20] = 1.0
    for ratio in (1.0, 0.5):
        model = ElasticNet(0.1, l1_ratio=ratio, standardize=True, tol=1e-12)
        model.fit(stretched if form == "dense" else sp.csr_array(stretched), Y, weight)
        by_hand = ElasticNet(0.1, l1_ratio=ratio, tol=1e-12).fit(stretched / spread, Y, weight)
        np.testing.assert_allclose(model.coef_ * spread, by_hand.coef_, **SAME)
        np.testing.assert_allclose(model.intercept_, by_hand.intercept_, **SAME)


@pytest.mark.parametrize("form", ["fortran", "csc"])
def test_threads_never_change_the_answer(form: str) -> None:
    rng = np.random.default_rng(5)
    wide = rng.normal(size=(120, 400)) * (rng.random((120, 400)) < 0.5)
    y = wide[:, :20].sum(axis=1) + rng.normal(size=120)
    matrix = wide if form == "fortran" else sp.csc_array(wide)
    runs: list[dict[str, Any]] = [{"n_jobs": 1}, {"n_jobs": 2}, {"n_jobs": 3}, {"runtime": Serial()}]
    models = [Lasso(0.02, tol=1e-8, **where).fit(matrix, y) for where in runs]
    for model in models[1:]:
        np.testing.assert_array_equal(model.coef_, models[0].coef_)
        assert (model.intercept_, model.dual_gap_, model.objective_, model.n_iter_) == (
            models[0].intercept_,
            models[0].dual_gap_,
            models[0].objective_,
            models[0].n_iter_,
        )


def test_a_warm_start_begins_where_the_last_fit_ended() -> None:
    model = Lasso(0.01, tol=1e-10, warm_start=True).fit(X, Y)
    rounds, coef = model.n_iter_, model.coef_.copy()
    assert model.fit(X, Y).n_iter_ <= rounds
    np.testing.assert_allclose(model.coef_, coef, **SAME)
    model.set_params(alpha=0.02, positive=True).fit(X, Y)
    np.testing.assert_allclose(model.coef_, Lasso(0.02, tol=1e-10, positive=True).fit(X, Y).coef_, **SAME)
    model.fit(X[:, :5], Y)
    assert model.coef_.shape == (5,)


def test_too_few_rounds_are_told() -> None:
    rng = np.random.default_rng(2)
    hard = rng.normal(size=(60, 300))
    with pytest.warns(
        ConvergenceWarning, match=r"Lasso stopped after max_iter=1 rounds at a duality gap of .* raise"
    ) as told:
        model = Lasso(1e-4, tol=1e-13, max_iter=1).fit(hard, rng.normal(size=60))
    assert told[0].filename == __file__, "it points to the caller's line"
    assert model.n_iter_ == 1
    assert model.dual_gap_ > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 0}, "alpha must be a number more than 0; got 0; .*LinearRegression"),
        ({"alpha": -1.0}, "alpha must be a number more than 0"),
        ({"alpha": "1"}, "alpha must be a number more than 0; got '1'"),
        ({"alpha": np.nan}, "alpha must be"),
        ({"tol": -1e-4}, "tol must be a number at least 0"),
        ({"max_iter": 0}, "max_iter must be a whole number at least 1"),
        ({"max_iter": 2.5}, "max_iter must be a whole number"),
        ({"positive": 1}, "positive must be True or False; got 1"),
        ({"fit_intercept": "yes"}, "fit_intercept must be True or False"),
        ({"profile": "quick"}, "profile must be one of"),
        ({"schedule": "cyclic"}, "schedule must be a spec of st.schedule"),
        ({"n_jobs": 0}, "n_jobs=0"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_wrong_parameters_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        Lasso(**options).fit(X, Y)
    with pytest.raises(PlanError, match=r"l1_ratio must be a number at least 0 and at most 1; got 1\.5"):
        ElasticNet(l1_ratio=1.5).fit(X, Y)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_unbounded_numbers_are_refused(bad: float) -> None:
    broken = X.copy()
    broken[4, 2] = bad
    for form in (broken, sp.csr_array(broken), sp.csc_array(broken)):
        with pytest.raises(DataError, match="row 4, column 2"):
            Lasso().fit(form, Y)
    wide = np.ones((70, 300))  # such a shape is read by working sets, not for moments
    wide[4, 2] = bad
    for form in (wide, np.asfortranarray(wide.astype(np.float32))):
        for options in ({}, {"fit_intercept": False}, {"runtime": Simulated(nodes=2)}, {"schedule": working_sets()}):
            with pytest.raises(DataError, match="row 4, column 2"):
                Lasso(**options).fit(form, Y)
    with pytest.raises(ValueError, match="Input y contains"):
        Lasso().fit(X, np.where(np.arange(70) == 3, bad, Y))
    with pytest.raises(ValueError, match="sample_weight contains"):
        Lasso().fit(X, Y, np.where(np.arange(70) == 3, bad, 1.0))
    with pytest.raises(ValueError, match=r"[Nn]egative"):
        Lasso().fit(X, Y, -np.ones(70))
    with pytest.raises(ValueError, match="zero"):
        Lasso().fit(X, Y, np.zeros(70))


def test_explain_says_what_would_be_done() -> None:
    text = Lasso(0.1, n_jobs=2).explain(sp.csr_array(X), Y)
    assert text.splitlines()[0] == "Lasso on 70 × 25"
    for words in (
        "minimise (1/2n) Σ (y − z)² + 0.1 ‖w‖₁, z = Xw + b",
        "CSR turned into CSC once",
        "sufficient statistics",
        "identical",
        "threads, 2 workers",
        "0.0001 × ‖y − ȳ‖²/n",
    ):
        assert words in text
    top = largest_alpha(Made(X, Y, np.ones(70), False))
    assert f"all coefficients are zero from alpha {top:.4g} on" in text
    dense = ElasticNet(0.1, fit_intercept=False, standardize=True, runtime=Serial()).explain(np.asfortranarray(X), Y)
    for words in ("½ 0.05 ‖w‖², z = Xw\n", "none: the arrays", "serial", "standard deviation"):
        assert words in dense


def test_verbose_tells_every_round(capsys: pytest.CaptureFixture[str]) -> None:
    model = Lasso(0.01, verbose=1).fit(X, Y)
    said = capsys.readouterr().err.splitlines()
    assert [line.split("  ")[0] for line in said] == [f"round {k}" for k in range(1, model.n_iter_ + 1)]
    assert "gap" in said[-1]
    Lasso(0.01).fit(X, Y)
    assert capsys.readouterr().err == ""
