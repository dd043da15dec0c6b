"""The joint model of `LogisticRegression`: scikit-learn's optimum, proven, at any number of threads."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import log_softmax
from sklearn import linear_model as sk
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning

from stretto.errors import DataError, PlanError
from stretto.models.linear.logistic import LogisticRegression
from stretto.runtime.runtimes import Serial
from stretto.solvers.softmax import solver

RNG = np.random.default_rng(0)
X = RNG.normal(size=(150, 12)) * (RNG.random((150, 12)) < 0.6)
X[7] = 0.0  # an empty row
Y = np.argmax(X[:, :4] @ RNG.normal(size=(4, 4)) + 0.7 * RNG.normal(size=(150, 4)), axis=1)
WEIGHT = RNG.uniform(0.1, 2.0, 150)
FORMS: dict[str, Any] = {"dense": X, "csr": sp.csr_array(X), "csc": sp.csc_matrix(X)}


# With an even number of classes an L1 penalty leaves coefficients undecided: the same number may be added to those of a
# feature in all classes, as long as half of them stay on either side of zero. Probabilities are decided.


def objective(model: Any, X: Any, y: Any, C: float, l1_ratio: float, weight: Any = 1.0) -> float:
    """scikit-learn's: C Σ s·log loss + penalty."""
    which = np.unique(y, return_inverse=True)[1]
    scores = np.asarray(X @ model.coef_.T + model.intercept_)
    loss = -(weight * log_softmax(scores, axis=1)[np.arange(len(y)), which]).sum()
    w = model.coef_
    return float(C * loss + l1_ratio * np.abs(w).sum() + 0.5 * (1 - l1_ratio) * (w * w).sum())


def theirs(X: Any, y: Any, C: float, l1_ratio: float, weight: Any = None, **options: Any) -> Any:
    how = {"solver": "newton-cg", "tol": 1e-9} if l1_ratio == 0 else {"solver": "saga", "tol": 1e-7, "random_state": 0}
    model = sk.LogisticRegression(C=C, l1_ratio=l1_ratio, max_iter=20_000, **how, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # saga does not always get there
        return model.fit(X, y, weight)


@functools.cache
def their_weighted(C: float, l1_ratio: float) -> Any:
    """scikit-learn's model of X and Y with weights, which takes far longer than ours."""
    return theirs(X, Y, C, l1_ratio, WEIGHT)


@functools.cache
def least(C: float, l1_ratio: float, tol: float) -> float:
    """The smallest objective for X and Y, to a tolerance."""
    return float(LogisticRegression(C, l1_ratio=l1_ratio, tol=tol).fit(X, Y).objective_[0])


# --- scikit-learn's optimum -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("C", [0.05, 1.0, 20.0])
@pytest.mark.parametrize("l1_ratio", [0.0, 0.4, 1.0])
def test_agrees_with_scikit_learn(form: str, C: float, l1_ratio: float) -> None:
    ours = LogisticRegression(C, l1_ratio=l1_ratio, tol=1e-9).fit(FORMS[form], Y, WEIGHT)
    other = their_weighted(C, l1_ratio)
    found, best = (objective(model, X, Y, C, l1_ratio, WEIGHT) for model in (ours, other))
    assert found <= best * (1 + 1e-8)
    assert ours.objective_[0] == pytest.approx(found, rel=1e-10)
    if best - found <= 1e-6 * best:  # saga may stop far from it where the penalty is weak
        np.testing.assert_allclose(ours.predict_proba(FORMS[form]), other.predict_proba(X), atol=5e-3)
    else:
        assert l1_ratio > 0
    assert ours.coef_.shape == (4, 12)
    assert ours.intercept_.shape == (4,)
    assert ours.n_iter_.shape == ours.dual_gap_.shape == ours.objective_.shape == (1,)


@pytest.mark.parametrize("l1_ratio", [0.0, 1.0])
def test_without_an_intercept(l1_ratio: float) -> None:
    ours = LogisticRegression(0.5, l1_ratio=l1_ratio, fit_intercept=False, tol=1e-10).fit(X, Y)
    other = theirs(X, Y, 0.5, l1_ratio, fit_intercept=False)
    assert not ours.intercept_.any()
    np.testing.assert_allclose(ours.predict_proba(X), other.predict_proba(X), atol=2e-3)


@pytest.mark.parametrize("C", [0.1, 3.0])
@pytest.mark.parametrize("tol", [1e-1, 1e-2, 1e-4])
@pytest.mark.parametrize("l1_ratio", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("form", ["dense", "csr"])
def test_the_gap_bounds_what_is_left_to_gain(C: float, tol: float, l1_ratio: float, form: str) -> None:
    best = least(C, l1_ratio, 1e-11)
    model = LogisticRegression(C, l1_ratio=l1_ratio, tol=tol).fit(FORMS[form], Y)
    assert -1e-9 <= model.objective_[0] - best <= model.dual_gap_[0] + 1e-9
    share = np.bincount(Y) / len(Y)
    assert model.dual_gap_[0] <= tol * -C * len(Y) * np.sum(share * np.log(share))


def test_a_small_c_gives_all_zeros() -> None:
    share = np.bincount(Y) / len(Y)
    largest = np.abs(X.T @ (np.eye(4)[Y] - share)).max()
    model = LogisticRegression(0.999 / largest, tol=1e-10, l1_ratio=1.0).fit(FORMS["csr"], Y)
    assert not model.coef_.any()
    np.testing.assert_allclose(model.predict_proba(X[:1])[0], share, atol=1e-5)
    assert np.count_nonzero(model.set_params(C=1.01 / largest).fit(FORMS["csr"], Y).coef_) >= 1


@pytest.mark.parametrize("form", ["dense", "csr"])
def test_l1_finds_zeros(form: str) -> None:
    model = LogisticRegression(0.3, tol=1e-9, l1_ratio=1.0).fit(FORMS[form], Y)
    zeros = np.count_nonzero(model.coef_ == 0.0)
    assert zeros == np.count_nonzero(np.abs(theirs(X, Y, 0.3, 1.0).coef_) < 1e-6)
    assert zeros > 10


@pytest.mark.parametrize("class_weight", ["balanced", {0: 3.0, 1: 0.5, 2: 1.0, 3: 2.0}], ids=["balanced", "given"])
def test_class_weights_agree_with_scikit_learn(class_weight: Any) -> None:
    ours = LogisticRegression(0.5, l1_ratio=0.0, class_weight=class_weight, tol=1e-11).fit(X, Y, WEIGHT)
    other = theirs(X, Y, 0.5, 0.0, WEIGHT, class_weight=class_weight)
    np.testing.assert_allclose(ours.coef_, other.coef_, atol=1e-4)


# --- the same whatever carries it -------------------------------------------------------------------------------------


def wide(form: str) -> tuple[Any, Any]:
    rng = np.random.default_rng(5)
    data = rng.normal(size=(900, 90)) * (rng.random((900, 90)) < 0.5)
    y = np.argmax(data[:, :5] + 0.5 * rng.normal(size=(900, 5)), axis=1)
    return (data if form == "dense" else sp.csr_array(data)), y


# Both types are compared under each penalty; the other profile compiles everything anew.
@pytest.mark.parametrize("form", ["dense", "csr"])
@pytest.mark.parametrize(
    ("options", "single"),
    [
        pytest.param({"l1_ratio": 0.0}, False, id="l2-float64"),
        pytest.param({"l1_ratio": 0.0}, True, id="l2-float32"),
        pytest.param({}, False, id="l1-float64"),
        pytest.param({}, True, id="l1-float32"),
        pytest.param({"profile": "fast"}, False, id="fast-float64", marks=pytest.mark.slow),
        pytest.param({"profile": "fast"}, True, id="fast-float32", marks=pytest.mark.slow),
    ],
)
def test_threads_never_change_the_answer(
    form: str, options: dict[str, Any], single: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, y = wide(form)
    if single:
        # As for large data: passes in float32, a short memory of float32.
        monkeypatch.setattr(solver, "_LARGE", 0)
        monkeypatch.setattr(solver, "_MANY", 0)
        data = data.astype(np.float32)
    runs: list[dict[str, Any]] = [{"n_jobs": 1}, {"n_jobs": 2}, {"n_jobs": 3}, {"runtime": Serial()}]
    models = [LogisticRegression(1.0, tol=1e-6, **{"l1_ratio": 1.0} | options, **where).fit(data, y) for where in runs]
    for model in models[1:]:
        for name in ("coef_", "intercept_", "dual_gap_", "objective_", "n_iter_"):
            np.testing.assert_array_equal(getattr(model, name), getattr(models[0], name))
    best = LogisticRegression(1.0, tol=1e-9, l1_ratio=options.get("l1_ratio", 1.0)).fit(*wide("csr")).objective_[0]
    assert models[0].objective_[0] == pytest.approx(best, rel=1e-5)


@pytest.mark.parametrize("form", ["dense", "csr"])
@pytest.mark.parametrize("l1_ratio", [0.0, 1.0])
def test_weights_count_as_repeated_samples(form: str, l1_ratio: float) -> None:
    times = np.random.default_rng(3).integers(0, 4, 150)
    times[[np.flatnonzero(c == Y)[0] for c in range(4)]] = 1
    model = LogisticRegression(0.7, l1_ratio=l1_ratio, tol=1e-11)
    weighted = model.fit(FORMS[form], Y, times.astype(float)).predict_proba(X)
    repeated = model.fit(np.repeat(X, times, axis=0), np.repeat(Y, times)).predict_proba(X)
    np.testing.assert_allclose(weighted, repeated, atol=1e-5)


@pytest.mark.parametrize("l1_ratio", [0.0, 1.0])
def test_names_of_classes_only_order_the_rows(l1_ratio: float) -> None:
    turn = np.array([2, 0, 3, 1])
    model = LogisticRegression(0.7, l1_ratio=l1_ratio, tol=1e-11)
    plain = model.fit(X, Y).predict_proba(X)
    turned = model.fit(X, turn[Y]).predict_proba(X)
    np.testing.assert_allclose(turned[:, turn], plain, atol=1e-5)
    names = np.array(["low", "mid", "top", "zzz"])
    np.testing.assert_array_equal(
        model.fit(X, names[Y]).predict(X), names[LogisticRegression(**model.get_params()).fit(X, Y).predict(X)]
    )


def test_forms_agree() -> None:
    models = [LogisticRegression(0.7, l1_ratio=0.3, tol=1e-11).fit(form, Y) for form in FORMS.values()]
    long = sp.csr_array(X)
    long.indices, long.indptr = long.indices.astype(np.int64), long.indptr.astype(np.int64)
    models.append(LogisticRegression(0.7, l1_ratio=0.3, tol=1e-11).fit(long, Y))
    for model in models[1:]:
        np.testing.assert_allclose(model.coef_, models[0].coef_, atol=1e-6)


@pytest.mark.parametrize("l1_ratio", [0.0, 1.0])
def test_standardize_equals_scaling_by_hand(l1_ratio: float) -> None:
    stretched = X * np.logspace(-2, 2, 12)
    mean = np.average(stretched, axis=0, weights=WEIGHT)
    spread = np.sqrt(np.average((stretched - mean) ** 2, axis=0, weights=WEIGHT))
    for form in (stretched, sp.csr_array(stretched)):
        model = LogisticRegression(0.5, l1_ratio=l1_ratio, standardize=True, tol=1e-11, max_iter=300)
        by_hand = LogisticRegression(0.5, l1_ratio=l1_ratio, tol=1e-11).fit(stretched / spread, Y, WEIGHT)
        found = model.fit(form, Y, WEIGHT).predict_proba(stretched)
        np.testing.assert_allclose(found, by_hand.predict_proba(stretched / spread), atol=1e-5)


# --- awkward data -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("l1_ratio", [0.0, 1.0])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "csr"])
def test_awkward_columns(form: Any, l1_ratio: float) -> None:
    awkward = X.copy()
    awkward[:, 3] = 2.0  # constant
    awkward[:, 5] = 0.0
    awkward[:, 6] = awkward[:, 4]
    awkward[:, 8] *= 50.0
    model = LogisticRegression(1.0, l1_ratio=l1_ratio, tol=1e-8, max_iter=300).fit(form(awkward), Y)
    assert objective(model, awkward, Y, 1.0, l1_ratio) <= objective(
        theirs(awkward, Y, 1.0, l1_ratio), awkward, Y, 1.0, l1_ratio
    ) * (1 + 1e-6)
    assert not model.coef_[:, 5].any()


def test_more_features_than_samples_and_many_classes() -> None:
    rng = np.random.default_rng(2)
    data, y = rng.normal(size=(80, 120)), np.arange(80) % 40
    for form in (data, sp.csr_array(data)):
        for l1_ratio in (0.0, 1.0):
            model = LogisticRegression(1.0, l1_ratio=l1_ratio, tol=1e-5, max_iter=300).fit(form, y)
            assert model.coef_.shape == (40, 120)
            assert model.score(form, y) > 0.9


def test_one_class_and_idle_classes_are_refused() -> None:
    with pytest.raises(DataError, match="one class: 'a'"):
        LogisticRegression(l1_ratio=1.0).fit(X, ["a"] * 150)
    with pytest.raises(DataError, match="class 2 has no weight"):
        LogisticRegression(l1_ratio=1.0).fit(X, Y, (Y != 2).astype(float))


def test_unbounded_numbers_and_broken_matrices_are_refused() -> None:
    broken = X.copy()
    broken[4, 2] = np.inf
    for form in (broken, sp.csr_array(broken)):
        with pytest.raises(DataError, match="row 4, column 2"):
            LogisticRegression(l1_ratio=1.0).fit(form, Y)
    damaged = sp.csr_array(X)
    damaged.indices = damaged.indices.copy()
    damaged.indices[3] = 99
    with pytest.raises(DataError, match="damaged"):
        LogisticRegression(n_jobs=1, l1_ratio=1.0).fit(damaged, Y)


@pytest.mark.parametrize("C", [0.3, 1.0, 30.0])
def test_weights_that_send_one_another_through_zero(C: float) -> None:
    """Correlated features: Newton's step frees two weights of one feature, and together they go the wrong way."""
    flowers, kind = load_iris(return_X_y=True)
    model = LogisticRegression(C, tol=1e-12, l1_ratio=1.0).fit(flowers - flowers.mean(), kind)  # warnings are errors
    assert model.dual_gap_[0] <= 1e-12 * C * 150 * np.log(3)


# --- using it ---------------------------------------------------------------------------------------------------------


def test_a_warm_start_begins_where_the_last_fit_ended() -> None:
    model = LogisticRegression(2.0, l1_ratio=0.0, tol=1e-6, warm_start=True).fit(X, Y)
    rounds, coef = model.n_iter_[0], model.coef_.copy()
    assert model.fit(X, Y).n_iter_[0] <= min(rounds, 1)
    np.testing.assert_allclose(model.coef_, coef, atol=1e-3)
    assert model.fit(X, Y > 1).coef_.shape == (1, 12)


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adarevision"])
@pytest.mark.parametrize("form", ["dense", "csr"])
@pytest.mark.parametrize("l1_ratio", [0.0, 1.0])
def test_stochastic_steps_come_near_and_depend_on_the_seed_alone(optimizer: str, form: str, l1_ratio: float) -> None:
    best = least(1.0, l1_ratio, 1e-8)
    options: dict[str, Any] = {"solver": "sgd", "optimizer": optimizer, "max_iter": 60, "l1_ratio": l1_ratio}
    found = []
    for where in ({"n_jobs": 1}, {"n_jobs": 3}, {"runtime": Serial()}):
        with pytest.warns(ConvergenceWarning, match="60 epochs"):
            found.append(LogisticRegression(1.0, tol=1e-12, random_state=4, **options, **where).fit(FORMS[form], Y))
    for model in found[1:]:
        np.testing.assert_array_equal(model.coef_, found[0].coef_)
    empty = 150 * np.log(4)
    assert found[0].objective_[0] - best <= 0.1 * (empty - best)
    assert found[0].objective_[0] <= best + found[0].dual_gap_[0]
    with pytest.warns(ConvergenceWarning):
        other = LogisticRegression(1.0, tol=1e-12, random_state=5, **options).fit(FORMS[form], Y)
    assert np.any(other.coef_ != found[0].coef_)


def test_a_callback_sees_every_round_and_may_stop() -> None:
    class Stop:
        seen: tuple[Any, ...] = ()

        def setup(self, estimator: Any, context: Any) -> None: ...
        def teardown(self, estimator: Any, context: Any) -> None: ...
        def on_fit_task_begin(self, estimator: Any, context: Any) -> None: ...

        def on_fit_task_end(self, estimator: Any, context: Any, *, metadata: Any, fitted_estimator: Any) -> bool:
            if context.parent is None:
                return False
            assert fitted_estimator.predict(X).shape == (150,)
            self.seen = (*self.seen, metadata)
            return len(self.seen) == 2

    stop = Stop()
    model = (
        LogisticRegression(100.0, tol=1e-13, l1_ratio=1.0).set_callbacks(stop).fit(X, Y)
    )  # no warning: the caller asked for it
    assert [one["round"] for one in stop.seen] == [1, 2]
    assert model.n_iter_[0] == 2
    assert stop.seen[0]["objective"] >= stop.seen[1]["objective"] - 1e-9


def test_too_few_rounds_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(ConvergenceWarning, match="stopped after 1 rounds .* duality gap"):
        LogisticRegression(100.0, tol=1e-12, max_iter=1, verbose=1, l1_ratio=1.0).fit(X, Y)
    assert "round 1  objective" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"multi_class": "multi"}, "multi_class must be one of 'deprecated', 'multinomial', 'ovr'"),
        ({"solver": "lbfgs"}, "solver must be one of"),
        ({"optimizer": "adam"}, "optimizer must be one of"),
        ({"learning_rate": 0}, "learning_rate must be a number more than 0"),
        ({"solver": "sgd", "multi_class": "ovr"}, "three classes or more jointly"),
    ],
    ids=["multi_class", "solver", "optimizer", "rate", "sgd against the rest"],
)
def test_wrong_parameters_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        LogisticRegression(**options).fit(X, Y)


def test_a_schedule_is_for_one_problem_at_a_time() -> None:
    import stretto as st

    with pytest.raises(PlanError, match="OneVsRestClassifier"):
        LogisticRegression(schedule=st.schedule.prioritised(), l1_ratio=1.0).fit(X, Y)
    with pytest.raises(PlanError, match="for two"):
        LogisticRegression(solver="sgd", l1_ratio=1.0).fit(X, Y > 1)


def test_explain_says_what_would_be_done() -> None:
    text = LogisticRegression(0.5, l1_ratio=0.8, n_jobs=1).explain(sp.csc_array(X), Y)
    for words in (
        "0.5 Σ −log softmax(z)_y + 0.8 ‖W‖₁ + ½ 0.2 ‖W‖²",
        "4 classes jointly",
        "CSC turned into CSR once",
        "a CSC copy is made once",
        "working sets of features",
        "1 worker",
    ):
        assert words in text
    assert "conjugate gradients" in LogisticRegression(l1_ratio=0.0).explain(sp.csc_array(X), Y)
    assert "Newton steps of all features" in LogisticRegression(l1_ratio=0.0).explain(X, Y)
    assert "products of all features" in LogisticRegression(l1_ratio=0.0).explain(np.tile(X, 12), Y)
    assert "adarevision" in LogisticRegression(solver="sgd", optimizer="adarevision", l1_ratio=1.0).explain(X, Y)
