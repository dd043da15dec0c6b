"""Paths and cross-validation: every point of a path is the fit at that penalty."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import linear_model as sk
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GroupKFold, KFold

from stretto.errors import DataError, PlanError
from stretto.models.linear.cross_validation.elastic_net_cv import ElasticNetCV
from stretto.models.linear.cross_validation.lasso_cv import LassoCV
from stretto.models.linear.lasso import ElasticNet, Lasso
from stretto.models.linear.path import enet_path, lasso_path
from stretto.runtime.runtimes import Serial

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 18)) * (RNG.random((60, 18)) < 0.6)
Y = 2.0 * X[:, 3] - X[:, 7] + RNG.normal(size=60) + 3.0
WEIGHT = RNG.uniform(0.1, 2.0, 60)
FORMS: dict[str, Any] = {"dense": X, "csc": sp.csc_array(X), "csr": sp.csr_matrix(X)}
SAME: Any = {"rtol": 1e-3, "atol": 1e-4}


# --- paths ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("options", [{}, {"positive": True}, {"l1_ratio": 0.4}], ids=["lasso", "positive", "elastic"])
def test_agrees_with_scikit_learn(form: str, options: dict[str, Any]) -> None:
    alphas, coefs, gaps = lasso_path(FORMS[form], Y, n_alphas=15, tol=1e-10, **options)
    their_alphas, their_coefs, _ = sk.enet_path(X, Y, alphas=15, tol=1e-11, **({"l1_ratio": 1.0} | options))
    np.testing.assert_allclose(alphas, their_alphas)
    np.testing.assert_allclose(coefs, their_coefs, **SAME)
    assert coefs.shape == (18, 15)
    assert not coefs[:, 0].any(), "the first point is the smallest penalty that gives all zeros"
    assert coefs[:, 1].any()
    assert gaps.shape == (15,)
    assert np.all((gaps >= 0) & (gaps <= 1e-10 * np.mean(Y**2)))


@pytest.mark.parametrize(
    "options", [{}, {"fit_intercept": True}, {"fit_intercept": True, "standardize": True}], ids=str
)
def test_every_point_is_the_fit_at_its_penalty(options: dict[str, Any]) -> None:
    path = lasso_path(
        sp.csr_array(X), Y, alphas=[0.01, 0.3, 0.1], l1_ratio=0.8, tol=1e-11, sample_weight=WEIGHT, **options
    )
    assert path.alphas.tolist() == [0.3, 0.1, 0.01], "in falling order"
    for k, alpha in enumerate(path.alphas):
        model = ElasticNet(alpha, l1_ratio=0.8, tol=1e-11, **({"fit_intercept": False} | options)).fit(X, Y, WEIGHT)
        np.testing.assert_allclose(path.coefs[:, k], model.coef_, **SAME)
        np.testing.assert_allclose(path.intercepts[k], model.intercept_, **SAME)
        assert path.gaps[k] <= 1e-11 * np.mean(Y**2) * 2
    assert np.all(path.rounds >= 0)


def test_the_path_of_the_elastic_net() -> None:
    alphas, coefs, gaps = enet_path(sp.csc_array(X), Y, n_alphas=9, tol=1e-10)
    their_alphas, their_coefs, _ = sk.enet_path(X, Y, alphas=9, tol=1e-11)
    np.testing.assert_allclose(alphas, their_alphas)
    np.testing.assert_allclose(coefs, their_coefs, **SAME)
    same = lasso_path(sp.csc_array(X), Y, n_alphas=9, tol=1e-10, l1_ratio=0.5)
    np.testing.assert_array_equal(coefs, same.coefs)
    np.testing.assert_array_equal(gaps, same.gaps)
    with pytest.raises(PlanError, match=r"enet_path: l1_ratio must be"):
        enet_path(X, Y, l1_ratio=-1)


def test_sparse_coefficients_are_the_same() -> None:
    dense = lasso_path(X, Y, n_alphas=8)
    sparse = lasso_path(X, Y, alphas=8, sparse=True)
    assert sparse.coefs.format == "csc"
    assert sparse.coefs.nnz == np.count_nonzero(dense.coefs)
    np.testing.assert_array_equal(sparse.coefs.toarray(), dense.coefs)


@pytest.mark.parametrize("form", ["dense", "csc"])
def test_threads_never_change_the_path(form: str) -> None:
    runs: list[dict[str, Any]] = [{"n_jobs": 1}, {"n_jobs": 2}, {"n_jobs": 3}, {"runtime": Serial()}]
    paths = [lasso_path(FORMS[form], Y, n_alphas=10, fit_intercept=True, **where) for where in runs]
    for path in paths[1:]:
        np.testing.assert_array_equal(path.coefs, paths[0].coefs)
        np.testing.assert_array_equal(path.gaps, paths[0].gaps)
        np.testing.assert_array_equal(path.intercepts, paths[0].intercepts)


def test_a_target_that_nothing_explains() -> None:
    path = lasso_path(X, np.zeros(60), n_alphas=4)
    assert not path.coefs.any()
    assert np.all(path.alphas > 0)


def test_a_path_that_does_not_converge_says_so_once() -> None:
    rng = np.random.default_rng(2)
    with pytest.warns(ConvergenceWarning, match=r"of 3 points of the path stopped after 1 rounds") as told:
        lasso_path(rng.normal(size=(60, 300)), rng.normal(size=60), alphas=[1e-3, 1e-4, 1e-5], tol=1e-13, max_iter=1)
    assert len(told) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alphas": [0.1, 0.0]}, "alphas must be numbers more than 0"),
        ({"alphas": []}, "alphas must be numbers more than 0"),
        ({"alphas": [np.nan]}, "alphas must be numbers"),
        ({"n_alphas": 0}, "n_alphas must be a whole number at least 1"),
        ({"eps": 0}, "eps must be a number more than 0"),
        ({"l1_ratio": 0.0}, "with l1_ratio=0 no penalty gives all zeros"),
        ({"l1_ratio": 2}, "l1_ratio must be"),
        ({"tol": None}, "tol must be"),
    ],
    ids=["zero", "empty", "nan", "none", "eps", "ridge", "ratio", "tol"],
)
def test_wrong_parameters_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        lasso_path(X, Y, **options)


def test_unbounded_numbers_are_refused() -> None:
    broken = X.copy()
    broken[4, 2] = np.inf
    with pytest.raises(DataError, match="row 4, column 2"):
        lasso_path(broken, Y)
    with pytest.raises(ValueError, match="Input y contains NaN"):
        lasso_path(X, np.where(np.arange(60) == 2, np.nan, Y))


def test_verbose_tells_every_point(capsys: pytest.CaptureFixture[str]) -> None:
    lasso_path(X, Y, n_alphas=3, verbose=1)
    said = capsys.readouterr().err.splitlines()
    assert [line.split("  ")[0] for line in said] == ["alpha 1/3", "alpha 2/3", "alpha 3/3"]


# --- cross-validation -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("weighted", [False, True], ids=["equal", "weighted"])
@pytest.mark.parametrize("options", [{}, {"fit_intercept": False, "positive": True}], ids=["plain", "positive"])
def test_cross_validation_agrees_with_scikit_learn(form: str, weighted: bool, options: dict[str, Any]) -> None:
    weight = WEIGHT if weighted else None
    folds = KFold(4, shuffle=True, random_state=0)
    ours = LassoCV(n_alphas=12, cv=folds, tol=1e-10, **options).fit(FORMS[form], Y, weight)
    theirs = sk.LassoCV(alphas=12, cv=folds, tol=1e-11, max_iter=100_000, **options).fit(X, Y, weight)
    np.testing.assert_allclose(ours.alphas_, theirs.alphas_)
    np.testing.assert_allclose(ours.mse_path_, theirs.mse_path_, rtol=1e-4)
    assert ours.alpha_ == pytest.approx(theirs.alpha_)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, **SAME)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, **SAME)
    assert ours.score(X, Y) == pytest.approx(theirs.score(X, Y), abs=1e-3)


def test_the_last_fit_is_that_of_lasso() -> None:
    model = LassoCV(n_alphas=10, standardize=True).fit(sp.csr_array(X), Y, WEIGHT)
    alone = Lasso(model.alpha_, standardize=True).fit(sp.csr_array(X), Y, WEIGHT)
    np.testing.assert_array_equal(model.coef_, alone.coef_)
    assert (model.intercept_, model.dual_gap_, model.objective_) == (
        alone.intercept_,
        alone.dual_gap_,
        alone.objective_,
    )
    assert model.alpha_ == model.alphas_[model.mse_path_.mean(axis=1).argmin()]


def test_penalties_and_folds_may_be_given() -> None:
    folds = [(np.arange(30), np.arange(30, 60)), (np.arange(59, 29, -1), np.arange(30))]
    model = LassoCV(alphas=[0.01, 0.5, 0.1], cv=folds).fit(X, Y)
    assert model.alphas_.tolist() == [0.5, 0.1, 0.01]
    assert model.mse_path_.shape == (3, 2)
    by_hand = Lasso(0.1).fit(X[30:], Y[30:])
    assert model.mse_path_[1, 1] == pytest.approx(np.mean((by_hand.predict(X[:30]) - Y[:30]) ** 2), rel=1e-2)
    assert LassoCV(alphas=4).fit(X, Y).alphas_.shape == (4,)
    grouped = LassoCV(alphas=4, cv=GroupKFold(3)).fit(X, Y, groups=np.arange(60) % 3)
    assert grouped.mse_path_.shape == (4, 3)


def test_samples_named_twice_weigh_twice() -> None:
    train = np.array([*range(20, 60), *range(20, 40)])
    twice = LassoCV(alphas=[0.1], cv=[(train, np.arange(20))], tol=1e-10).fit(X, Y)
    by_hand = Lasso(0.1, tol=1e-10).fit(X[train], Y[train])
    assert twice.mse_path_[0, 0] == pytest.approx(np.mean((by_hand.predict(X[:20]) - Y[:20]) ** 2), rel=1e-4)


@pytest.mark.parametrize("form", FORMS)
def test_data_that_nothing_can_be_learned_from(form: str) -> None:
    model = LassoCV(n_alphas=3).fit(FORMS[form], np.full(60, 2.0))
    assert not model.coef_.any()
    assert model.intercept_ == pytest.approx(2.0)
    with pytest.raises(DataError, match="the samples of a fold all weigh 0"):
        LassoCV(n_alphas=3).fit(FORMS[form], Y, (np.arange(60) < 12).astype(float))


def test_threads_never_change_the_choice() -> None:
    models = [LassoCV(n_alphas=8, cv=3, n_jobs=n).fit(sp.csr_array(X), Y) for n in (1, 2, 3)]
    for model in models[1:]:
        np.testing.assert_array_equal(model.mse_path_, models[0].mse_path_)
        np.testing.assert_array_equal(model.coef_, models[0].coef_)


def test_verbose_tells_every_fold(capsys: pytest.CaptureFixture[str]) -> None:
    LassoCV(n_alphas=3, cv=2, verbose=2).fit(X, Y)
    said = [line.split("  ")[0] for line in capsys.readouterr().err.splitlines()]
    assert said[:4] == ["alpha 1/3", "alpha 2/3", "alpha 3/3", "fold 1/2"]
    assert said[8].startswith("all data, round 1")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("ratio", [0.3, [0.2, 0.7, 1.0]], ids=["one", "several"])
def test_the_elastic_net_is_chosen_as_by_scikit_learn(form: str, ratio: Any) -> None:
    folds = KFold(4, shuffle=True, random_state=0)
    ours = ElasticNetCV(l1_ratio=ratio, n_alphas=12, cv=folds, tol=1e-10).fit(FORMS[form], Y, WEIGHT)
    theirs = sk.ElasticNetCV(l1_ratio=ratio, alphas=12, cv=folds, tol=1e-11, max_iter=100_000).fit(X, Y, WEIGHT)
    np.testing.assert_allclose(ours.alphas_, theirs.alphas_)
    np.testing.assert_allclose(ours.mse_path_, theirs.mse_path_, rtol=1e-4)
    assert (ours.l1_ratio_, ours.alpha_) == (theirs.l1_ratio_, pytest.approx(theirs.alpha_))
    np.testing.assert_allclose(ours.coef_, theirs.coef_, **SAME)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, **SAME)
    alone = ElasticNet(ours.alpha_, l1_ratio=ours.l1_ratio_, tol=1e-10).fit(FORMS[form], Y, WEIGHT)
    np.testing.assert_array_equal(ours.coef_, alone.coef_)


def test_given_penalties_are_tried_with_every_ratio() -> None:
    model = ElasticNetCV(l1_ratio=[0.0, 0.5], alphas=[0.1, 1.0], cv=3, tol=1e-9).fit(X, Y)
    theirs = sk.ElasticNetCV(l1_ratio=[0.0, 0.5], alphas=[0.1, 1.0], cv=3, tol=1e-10, max_iter=10_000).fit(X, Y)
    assert model.alphas_.tolist() == theirs.alphas_.tolist() == [1.0, 0.1]
    np.testing.assert_allclose(model.mse_path_, theirs.mse_path_, rtol=1e-4)
    with pytest.raises(PlanError, match="with l1_ratio=0 no penalty gives all zeros"):
        ElasticNetCV(l1_ratio=[0.0, 0.5]).fit(X, Y)


@pytest.mark.parametrize("ratio", [[], "half", [0.5, 2.0], None, [[0.5]]], ids=str)
def test_wrong_ratios_are_refused(ratio: Any) -> None:
    with pytest.raises(PlanError, match="l1_ratio must be"):
        ElasticNetCV(l1_ratio=ratio).fit(X, Y)


def test_threads_never_change_the_choice_of_a_ratio() -> None:
    models = [ElasticNetCV(l1_ratio=[0.5, 0.9], n_alphas=6, cv=3, n_jobs=n).fit(X, Y) for n in (1, 3)]
    np.testing.assert_array_equal(models[0].mse_path_, models[1].mse_path_)
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)


def test_verbose_tells_the_ratio_of_every_fold(capsys: pytest.CaptureFixture[str]) -> None:
    ElasticNetCV(l1_ratio=[0.5, 0.9], n_alphas=3, cv=2, verbose=1).fit(X, Y)
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("fold 1/2  least error ")
    assert " and l1_ratio 0." in said[0]
