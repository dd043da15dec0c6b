"""MatrixFactorization among scikit-learn's own: its checks, cloning, searching, callbacks."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.callback import ProgressBar
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import stretto as st
from jobs import some_ratings
from stretto.models.factorization.estimator import MatrixFactorization

X = some_ratings(2000, 80, 60).to_csr()

_PAIRS = "predict takes (row, column) pairs, not the matrix of fit"
PREDICTS_THE_MATRIX = dict.fromkeys(
    (
        "check_dict_unchanged",
        "check_dtype_object",
        "check_estimator_sparse_array",
        "check_estimator_sparse_matrix",
        "check_estimators_dtypes",
        "check_estimators_nan_inf",
        "check_estimators_pickle",
        "check_f_contiguous_array_estimator",
        "check_fit_idempotent",
        "check_methods_sample_order_invariance",
        "check_methods_subset_invariance",
    ),
    _PAIRS,
)
OTHER_SHAPES = {"check_n_features_in_after_fitting": "partial_fit takes a larger matrix"}


class Transformer(MatrixFactorization):
    """The same estimator with predict out of sight, so that the checks above test everything else."""

    @property
    def predict(self) -> Any:
        raise AttributeError("predict takes pairs")


@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [
        MatrixFactorization(n_components=3, max_iter=3, random_state=0, n_jobs=1),
        Transformer(n_components=3, max_iter=3, random_state=0, n_jobs=2),
        Transformer(n_components=3, max_iter=2, solver="als", random_state=0, n_jobs=1),
    ],
    expected_failed_checks=lambda e: (
        (OTHER_SHAPES if hasattr(e, "partial_fit") else {})
        | ({} if isinstance(e, Transformer) else PREDICTS_THE_MATRIX)
    ),
)
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def test_parameters_go_in_and_out() -> None:
    model = MatrixFactorization(n_components=7, l2_regularization=0.3, runtime=st.Serial())
    assert model.get_params()["n_components"] == 7
    twin = clone(model)
    assert twin is not model
    assert twin.get_params() == model.get_params()
    assert twin.set_params(n_components=9, solver="als").n_components == 9
    with pytest.raises(ValueError, match="Invalid parameter 'ranks'"):
        model.set_params(ranks=3)
    assert "n_components=7" in repr(model)


def test_fit_changes_no_parameter() -> None:
    model = MatrixFactorization(n_components=4, max_iter=2, implicit=True, solver="als", random_state=0)
    before = copy.deepcopy(model.get_params())
    model.fit(X)
    assert model.get_params() == before


def test_pickles() -> None:
    model = MatrixFactorization(n_components=4, max_iter=2, random_state=0).fit(X)
    again = pickle.loads(pickle.dumps(model))
    pairs = [[0, 1], [5, 7]]
    np.testing.assert_array_equal(again.predict(pairs), model.predict(pairs))
    np.testing.assert_array_equal(again.recommend([3], 5)[0], model.recommend([3], 5)[0])
    assert again.fingerprint_ == model.fingerprint_
    assert again.plan_.explain() == model.plan_.explain()


def test_grid_search_over_rank() -> None:
    search = GridSearchCV(
        MatrixFactorization(max_iter=3, random_state=0, n_jobs=1),
        {"n_components": np.array([2, 4]), "l2_regularization": [0.02, 0.1]},
        cv=2,
    )
    search.fit(X)
    assert set(search.best_params_) == {"n_components", "l2_regularization"}
    assert search.best_score_ < 0
    assert search.best_estimator_.user_factors_.shape == (80, search.best_params_["n_components"])


def test_in_a_pipeline() -> None:
    from sklearn.preprocessing import MaxAbsScaler

    pipe = make_pipeline(MaxAbsScaler(), MatrixFactorization(n_components=3, max_iter=2, random_state=0))
    assert pipe.fit_transform(X).shape == (80, 3)
    assert list(pipe[-1].fit(X).components_.shape) == [3, 60]


class StopAfter:
    """A callback as scikit-learn 1.9 defines them: stops the fit after some epochs."""

    def __init__(self, epochs: int) -> None:
        self.epochs = epochs
        self.seen: list[Any] = []

    def setup(self, estimator: Any, context: Any) -> None:
        self.seen.append("setup")

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        pass

    def on_fit_task_end(self, estimator: Any, context: Any, *, metadata: Any, fitted_estimator: Any) -> bool:
        if context.parent is None:
            return False
        assert fitted_estimator.predict([[0, 1]]).shape == (1,)
        self.seen.append(metadata)
        return sum(isinstance(event, dict) for event in self.seen) >= self.epochs

    def teardown(self, estimator: Any, context: Any) -> None:
        self.seen.append("teardown")


def test_a_callback_may_stop_the_fit() -> None:
    callback = StopAfter(3)
    model = MatrixFactorization(n_components=3, max_iter=10, random_state=0)
    model.set_callbacks(callback).fit(X)
    assert model.n_iter_ == 3
    assert [history["objective"] for history in model.history_] == [
        e["objective"] for e in callback.seen if isinstance(e, dict)
    ]
    assert callback.seen[0] == "setup"
    assert callback.seen[-1] == "teardown"
    assert [e["epoch"] for e in callback.seen if isinstance(e, dict)] == [1, 2, 3]


def test_scikit_learns_own_progress_bar_works(capsys: pytest.CaptureFixture[str]) -> None:
    model = MatrixFactorization(n_components=3, max_iter=3, random_state=0)
    model.set_callbacks(ProgressBar()).fit(X)
    assert model.n_iter_ == 3
