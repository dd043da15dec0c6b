"""The linear models among scikit-learn's own: its checks, cloning, pickling, searching, callbacks."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.callback import ProgressBar
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from stretto.models.linear.cross_validation.elastic_net_cv import ElasticNetCV
from stretto.models.linear.cross_validation.lasso_cv import LassoCV
from stretto.models.linear.cross_validation.logistic_cv import LogisticRegressionCV
from stretto.models.linear.groups.group_lasso import GroupLasso
from stretto.models.linear.groups.multi_task import MultiTaskElasticNet, MultiTaskLasso
from stretto.models.linear.lasso import ElasticNet, Lasso
from stretto.models.linear.logistic import LogisticRegression
from stretto.models.linear.losses.huber import HuberElasticNet
from stretto.models.linear.losses.poisson import PoissonRegressor
from stretto.models.linear.svc import LinearSVC
from stretto.runtime.runtimes import Serial

BINARY = dict.fromkeys(
    ("check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data"),
    "the fit ends when the gap is within rounding, and coefficients are equal to the root of that",
) | {"check_classifier_not_supporting_multiclass": "the message says what to take for several classes"}


class BinaryRegression(LogisticRegression):
    """It says that it learns two classes, as solver="svrg" does."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


# Some of the checks fit features that are not scaled, for which these solvers take many passes.
@pytest.mark.filterwarnings("ignore:(LinearSVC|BinaryRegression) stopped after max_iter")
@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [
        Lasso(alpha=0.1, tol=1e-12),
        ElasticNet(alpha=0.1, tol=1e-12, standardize=True, n_jobs=1),
        LassoCV(n_alphas=5, cv=3, tol=1e-12),
        ElasticNetCV(l1_ratio=[0.5, 1.0], n_alphas=4, cv=3, tol=1e-12),
        GroupLasso(alpha=0.1, tol=1e-12),
        MultiTaskLasso(alpha=0.1, tol=1e-12, n_jobs=1),
        MultiTaskElasticNet(alpha=0.1, tol=1e-12, runtime=Serial()),
        PoissonRegressor(alpha=0.1, tol=1e-13),
        PoissonRegressor(alpha=0.1, l1_ratio=0.5, tol=1e-13, n_jobs=1),
        HuberElasticNet(alpha=0.1, tol=1e-13),
        LogisticRegression(tol=1e-12, l1_ratio=1.0),
        LogisticRegression(tol=1e-12, l1_ratio=0.0, runtime=Serial()),
        LogisticRegression(tol=1e-11, multi_class="ovr", l1_ratio=1.0),
        LogisticRegressionCV(Cs=3, cv=3, tol=1e-12),
        BinaryRegression(solver="svrg", tol=1e-14, max_iter=100, variance_reduction="svrg++"),
        LinearSVC(tol=1e-18, max_iter=20_000),
        LinearSVC(loss="hinge", tol=1e-12, max_iter=20_000, C=0.1, runtime=Serial()),
    ],
    expected_failed_checks=lambda e: BINARY if isinstance(e, BinaryRegression) else {},
)
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 8))
Y = 2.0 * X[:, 3] - X[:, 5] + RNG.normal(size=60)
CLASS = np.where(Y > 0, "up", "down")
EVERY: list[tuple[Any, Any]] = [
    (Lasso(0.1), Y),
    (ElasticNet(0.1, l1_ratio=0.3), Y),
    (LassoCV(n_alphas=5), Y),
    (ElasticNetCV(l1_ratio=0.7, n_alphas=5), Y),
    (GroupLasso(0.1, groups=2), Y),
    (MultiTaskLasso(0.1), np.c_[Y, Y + X[:, 0]]),
    (PoissonRegressor(0.1, l1_ratio=0.5), np.round(np.exp(0.3 * Y))),
    (HuberElasticNet(0.1), Y),
    (LogisticRegression(0.5, l1_ratio=1.0), CLASS),
    (LogisticRegressionCV(Cs=3, cv=3), CLASS),
    (LinearSVC(0.5), CLASS),
]
each = pytest.mark.parametrize(("model", "y"), EVERY, ids=lambda value: getattr(type(value), "__name__", ""))


@each
def test_parameters_go_in_and_out(model: Any, y: Any) -> None:
    twin = clone(model)
    assert twin is not model
    assert twin.get_params() == model.get_params()
    assert twin.set_params(tol=1e-3, runtime=Serial()).tol == 1e-3
    with pytest.raises(ValueError, match="Invalid parameter 'tolerance'"):
        model.set_params(tolerance=1)
    without = Lasso | LassoCV | LinearSVC | LogisticRegressionCV | MultiTaskLasso
    assert ("l1_ratio" in model.get_params()) != isinstance(model, without)


@each
def test_fit_changes_no_parameter(model: Any, y: Any) -> None:
    fitted = clone(model).fit(X, y)
    assert fitted.get_params() == model.get_params()


@each
def test_pickles(model: Any, y: Any) -> None:
    fitted = clone(model).fit(X, y)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
    np.testing.assert_array_equal(again.coef_, fitted.coef_)
    assert again.score(X, y) == fitted.score(X, y)


@each
def test_feature_names(model: Any, y: Any) -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(X, columns=[f"x{j}" for j in range(8)])
    fitted = clone(model).fit(table, y)
    assert fitted.feature_names_in_.tolist() == list(table.columns)
    np.testing.assert_array_equal(fitted.coef_, clone(model).fit(X, y).coef_)
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(table[table.columns[::-1]])


def test_in_a_search_and_a_pipeline() -> None:
    search = GridSearchCV(Lasso(n_jobs=1), {"alpha": [10.0, 0.01]}, cv=3).fit(X, Y)
    assert search.best_params_ == {"alpha": 0.01}
    pipe = make_pipeline(StandardScaler(), LogisticRegression(l1_ratio=1.0)).fit(X, CLASS)
    assert pipe.score(X, CLASS) > 0.8


class StopAfter:
    """A callback as scikit-learn 1.9 defines them: stops the fit after some tasks."""

    def __init__(self, tasks: int) -> None:
        self.tasks = tasks
        self.seen: list[tuple[str, Any]] = []
        self.hooks: list[str] = []

    def setup(self, estimator: Any, context: Any) -> None:
        self.hooks.append("setup")

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        self.hooks.append("begin")

    def on_fit_task_end(self, estimator: Any, context: Any, *, metadata: Any, fitted_estimator: Any) -> bool:
        if context.parent is None:
            return False
        if "round" in metadata:
            assert fitted_estimator.predict(X).shape == (60,)
        self.seen.append((context.task_name, metadata))
        return len(self.seen) >= self.tasks

    def teardown(self, estimator: Any, context: Any) -> None:
        self.hooks.append("teardown")


@pytest.mark.parametrize(
    ("model", "y"),
    [(Lasso(1e-4, tol=1e-14), Y), (LogisticRegression(1e3, tol=1e-14, l1_ratio=1.0), CLASS)],
    ids=["Lasso", "LogisticRegression"],
)
def test_a_callback_sees_every_round_and_may_stop(model: Any, y: Any) -> None:
    callback = StopAfter(1)
    model = clone(model).set_callbacks(callback).fit(X, y)  # no warning: the caller asked for it
    assert np.all(model.n_iter_ == 1)
    assert [name for name, _ in callback.seen] == ["round 1"]
    metadata = callback.seen[0][1]
    assert metadata["round"] == 1
    assert metadata["gap"] == np.ravel(model.dual_gap_)[0]
    assert metadata["objective"] == np.ravel(model.objective_)[0]
    assert (callback.hooks[0], callback.hooks[-1]) == ("setup", "teardown")


def test_a_callback_sees_every_class() -> None:
    callback = StopAfter(1000)
    LogisticRegression(1.0, tol=1e-9, multi_class="ovr", l1_ratio=1.0).set_callbacks(callback).fit(
        X, np.digitize(Y, [-1.0, 1.0])
    )
    assert [name for name, data in callback.seen if data["round"] == 1] == [f"class {k}, round 1" for k in range(3)]


def test_a_callback_may_end_the_folds() -> None:
    callback = StopAfter(2)
    model = LassoCV(n_alphas=4, cv=5).set_callbacks(callback).fit(X, Y)
    assert model.mse_path_.shape == (4, 2)
    assert [name for name, _ in callback.seen[:2]] == ["fold 1", "fold 2"]


@each
def test_scikit_learns_own_progress_bar_works(model: Any, y: Any, capsys: pytest.CaptureFixture[str]) -> None:
    fitted = clone(model).set_callbacks(ProgressBar()).fit(X, y)
    assert np.all(fitted.n_iter_ >= 1)
