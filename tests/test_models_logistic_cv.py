"""`LogisticRegressionCV`: scikit-learn's choice, paths and scores, at any number of threads, and after a crash."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import linear_model as sk
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GroupKFold, StratifiedKFold

import stretto as st
from stretto.errors import DataError, PlanError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(150, 12)) * (RNG.random((150, 12)) < 0.7)
Z = 2.0 * X[:, 3] - X[:, 7] + RNG.logistic(size=150)
TWO, THREE = np.where(Z > 0.5, "up", "down"), np.digitize(Z, [-0.7, 0.9])
WEIGHT = RNG.uniform(0.2, 2.0, 150)
FORMS: dict[str, Any] = {"dense": X, "csc": sp.csc_array(X), "csr": sp.csr_matrix(X)}
FOLDS = StratifiedKFold(4, shuffle=True, random_state=0)
CS = [0.01, 0.1, 1.0, 10.0]


def theirs(ratios: list[float], y: Any, **options: Any) -> Any:
    """scikit-learn's estimator at the accuracy of a test."""
    solver = "lbfgs" if not any(ratios) else "saga"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sk.LogisticRegressionCV(
            Cs=CS, l1_ratios=ratios, solver=solver, tol=1e-9, max_iter=20_000, cv=FOLDS, random_state=0,
            use_legacy_attributes=False, **({"scoring": "neg_log_loss"} | options),
        ).fit(X, y, WEIGHT)  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("ratios", [[0.0], [1.0, 0.3]], ids=["ridge", "elastic"])
@pytest.mark.parametrize("y", [TWO, THREE], ids=["two", "three"])
def test_the_choice_is_that_of_scikit_learn(form: str, ratios: list[float], y: Any) -> None:
    ours = st.LogisticRegressionCV(Cs=CS, l1_ratios=ratios, tol=1e-10, cv=FOLDS).fit(FORMS[form], y, WEIGHT)
    other = theirs(ratios, y)
    assert (ours.C_, ours.l1_ratio_) == (pytest.approx(other.C_), other.l1_ratio_)
    assert ours.scores_.shape == other.scores_.shape == (4, len(ratios), 4)
    settled = slice(int(any(ratios)), None)  # with C = 0.01 all is zero, and saga does not learn the intercept
    np.testing.assert_allclose(ours.scores_[..., settled], other.scores_[..., settled], rtol=1e-4)
    assert ours.coefs_paths_.shape == other.coefs_paths_.shape
    paths = [one.coefs_paths_[:, :, settled, :, :-1] for one in (ours, other)]
    np.testing.assert_allclose(paths[0], paths[1], rtol=1e-2, atol=2e-3)
    np.testing.assert_allclose(ours.coef_, other.coef_, rtol=1e-2, atol=2e-3)
    assert ours.score(X, y, WEIGHT) == pytest.approx(other.score(X, y, sample_weight=WEIGHT), abs=1e-4)
    np.testing.assert_allclose(ours.predict_proba(X), other.predict_proba(X), atol=1e-3)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("y", [TWO, THREE], ids=["two", "three"])
@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_the_last_fit_is_that_of_the_plain_estimator(form: str, y: Any, ratio: float) -> None:
    rules: dict[str, Any] = {"standardize": True, "class_weight": "balanced", "tol": 1e-6}
    ours = st.LogisticRegressionCV(Cs=5, l1_ratios=[ratio], cv=3, **rules).fit(FORMS[form], y, WEIGHT)
    alone = st.LogisticRegression(ours.C_, l1_ratio=ratio, **rules).fit(FORMS[form], y, WEIGHT)
    np.testing.assert_array_equal(ours.coef_, alone.coef_)
    np.testing.assert_array_equal(ours.intercept_, alone.intercept_)
    np.testing.assert_array_equal(ours.dual_gap_, alone.dual_gap_)


@pytest.mark.parametrize("scoring", ["accuracy", None, "roc_auc"])
def test_other_scores(scoring: str | None) -> None:
    ours = st.LogisticRegressionCV(Cs=CS, tol=1e-9, cv=FOLDS, scoring=scoring).fit(X, TWO, WEIGHT)
    other = theirs([0.0], TWO, scoring=scoring)
    np.testing.assert_allclose(ours.scores_, other.scores_, atol=1e-3)
    assert pytest.approx(other.C_) == ours.C_
    assert ours.score(X, TWO) == pytest.approx(other.score(X, TWO), abs=1e-3)


def test_a_scorer_may_be_given() -> None:
    seen: list[Any] = []

    def shrinking(model: Any, X: Any, y: Any) -> float:
        seen.append((model.classes_.tolist(), len(y)))
        return -float(np.abs(model.coef_).sum())

    model = st.LogisticRegressionCV(Cs=CS, cv=3, scoring=shrinking, n_jobs=1).fit(X, TWO)
    assert model.C_ == 0.01
    assert seen == [(["down", "up"], 50)] * 12


def test_a_score_that_is_not_a_number_chooses_nothing() -> None:
    with pytest.raises(DataError, match="is NaN on the held-out samples of a fold"):
        st.LogisticRegressionCV(Cs=CS, cv=3, scoring=lambda model, X, y: np.nan, n_jobs=1).fit(X, TWO)


def test_longdouble_is_read_as_float64() -> None:
    one, other = (
        st.LogisticRegressionCV(Cs=CS, cv=3, scoring="neg_log_loss").fit(A, TWO) for A in (X, X.astype(np.longdouble))
    )
    np.testing.assert_array_equal(one.scores_, other.scores_)


def test_without_a_last_fit_the_best_of_the_folds_are_averaged() -> None:
    for y in (TWO, THREE):
        ours = st.LogisticRegressionCV(Cs=CS, tol=1e-10, cv=FOLDS, refit=False).fit(X, y, WEIGHT)
        other = theirs([0.0], y, refit=False)
        assert (ours.C_, ours.l1_ratio_) == (pytest.approx(other.C_), 0.0)
        np.testing.assert_allclose(ours.coef_, other.coef_, rtol=1e-2, atol=2e-3)
        assert not hasattr(ours, "dual_gap_")


@pytest.mark.parametrize("form", ["dense", "csr"])
@pytest.mark.parametrize("y", [TWO, THREE], ids=["two", "three"])
def test_threads_never_change_a_bit(form: str, y: Any) -> None:
    rules: dict[str, Any] = {"Cs": 4, "l1_ratios": [0.2, 1.0], "cv": 3}
    runs: list[dict[str, Any]] = [{"n_jobs": 1}, {"n_jobs": 2}, {"n_jobs": 5}, {"runtime": st.Serial()}]
    models = [st.LogisticRegressionCV(**rules, **where).fit(FORMS[form], y) for where in runs]
    for model in models[1:]:
        for name in ("scores_", "coefs_paths_", "coef_", "intercept_", "n_iter_"):
            np.testing.assert_array_equal(getattr(model, name), getattr(models[0], name))


def test_groups_and_folds_may_be_given() -> None:
    model = st.LogisticRegressionCV(Cs=[1.0, 0.1], cv=GroupKFold(3)).fit(X, TWO, groups=np.arange(150) % 3)
    assert model.Cs_.tolist() == [0.1, 1.0]
    assert model.scores_.shape == (3, 1, 2)
    twice = np.array([*range(50, 150), *range(50, 80)])
    model = st.LogisticRegressionCV(Cs=[1.0], cv=[(twice, np.arange(50))], tol=1e-10).fit(X, TWO)
    alone = st.LogisticRegression(1.0, tol=1e-10).fit(X[twice], TWO[twice])
    np.testing.assert_allclose(model.coefs_paths_[0, 0, 0, :, :-1], alone.coef_, rtol=1e-4, atol=1e-6)


def test_a_class_that_a_fold_has_not() -> None:
    rare = np.where(np.arange(150) == 0, "rare", TWO)
    for y in (rare, np.where(np.arange(150) == 0, "a", "b")):
        folds = [(np.arange(75, 150), np.arange(75))]
        with pytest.raises(DataError, match=r"the training samples of a fold have none of class '(rare|a)'"):
            st.LogisticRegressionCV(cv=folds).fit(X, y)


def test_classes_smaller_than_the_number_of_folds() -> None:
    with pytest.raises(DataError, match=r"10 samples cannot be cut into folds by cv=2 .*give fewer folds"):
        st.LogisticRegressionCV(cv=2).fit(X[:10], np.arange(10))


def test_fits_that_do_not_converge_are_counted_once() -> None:
    with pytest.warns(ConvergenceWarning, match=r"of 6 fits of the folds stopped after max_iter=1 rounds") as told:
        st.LogisticRegressionCV(Cs=[1.0, 100.0], cv=3, tol=1e-14, max_iter=1, refit=False).fit(X, TWO)
    assert len(told) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"Cs": 0}, "Cs must be a whole number at least 1"),
        ({"Cs": []}, "Cs must be how many values of C, or numbers from"),
        ({"Cs": [1.0, 0.0]}, "Cs must be how many"),
        ({"l1_ratios": []}, "l1_ratios must be numbers from 0 to 1"),
        ({"l1_ratios": 0.5}, "l1_ratios must be numbers from 0 to 1"),
        ({"l1_ratios": [1.1]}, "l1_ratios must be numbers from 0 to 1"),
        ({"scoring": "best"}, "scoring must be a name of"),
        ({"scoring": int}, "scoring must be a name of .* a scorer is a function f.estimator, X, y."),
        ({"scoring": len}, "scoring must be a name of .* a scorer is a function f.estimator, X, y."),
        pytest.param(
            {"scoring": lambda model, X, y: "good"},
            "returned 'good'; a scorer returns one number",
            id="scoring is text",
        ),
        ({"refit": "yes"}, "refit must be"),
        ({"cv": "five"}, "cv must be a number of folds"),
    ],
    ids=str,
)
def test_wrong_parameters_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        st.LogisticRegressionCV(**options).fit(X, TWO)


def test_a_fit_goes_on_from_its_folds(tmp_path: Path) -> None:
    rules: dict[str, Any] = {"Cs": 3, "l1_ratios": [1.0], "cv": 4, "n_jobs": 1}
    whole = st.LogisticRegressionCV(**rules).fit(X, THREE)
    folds: list[int] = []

    class Stop(BaseException):
        pass

    def kill(event: Any) -> None:
        if type(event).__name__ == "CheckpointSaved":
            folds.append(1)
            if len(folds) == 2:
                raise Stop

    saving = st.Saving(tmp_path / "saved", every_epochs=1)
    with pytest.raises(Stop):
        st.LogisticRegressionCV(**rules).fit(X, THREE, session=st.Session(saving=saving, listeners=[kill]))
    rounds: list[Any] = []
    listener = [lambda event: rounds.append(event) if type(event).__name__ == "EpochDone" else None]
    again = st.LogisticRegressionCV(**rules).fit(
        X, THREE, session=st.Session(saving=saving, resume=True, listeners=listener)
    )
    np.testing.assert_array_equal(again.coef_, whole.coef_)
    np.testing.assert_array_equal(again.coefs_paths_, whole.coefs_paths_)
    assert len(rounds) <= 2 * 3 + 20, "two of four folds were kept"


def test_every_fold_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    st.LogisticRegressionCV(Cs=3, l1_ratios=[0.0, 1.0], cv=2, verbose=1).fit(X, TWO)
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("fold 1/2  best score -0.")
    assert " and l1_ratio " in said[0]
    assert said[1].startswith("fold 2/2")
