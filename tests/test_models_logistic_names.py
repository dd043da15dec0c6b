"""`LogisticRegression` has an L2 penalty unless another is asked for, and learns several classes jointly."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression as Theirs
from sklearn.multiclass import OneVsRestClassifier

import stretto as st

X = np.random.default_rng(0).normal(size=(120, 8))
THREE = np.digitize(X[:, 0] - X[:, 1], [-0.7, 0.7])


@pytest.mark.parametrize("y", [THREE > 0, THREE], ids=["two", "three"])
def test_the_defaults_are_those_of_scikit_learn(y: np.ndarray) -> None:
    ours, theirs = st.LogisticRegression(tol=1e-9).fit(X, y), Theirs(tol=1e-9, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-4)
    assert st.LogisticRegression().l1_ratio == 0.0
    assert np.count_nonzero(st.LogisticRegression(0.1, l1_ratio=1.0).fit(X, y).coef_) < np.count_nonzero(ours.coef_)


def test_multi_class_works_and_warns_at_the_line_of_the_user() -> None:
    model = clone(st.LogisticRegression(l1_ratio=1.0, multi_class="ovr", n_jobs=1))
    with pytest.warns(FutureWarning, match=r"multi_class='ovr'\) is deprecated .*OneVsRestClassifier") as caught:
        model.fit(X, THREE)
    assert caught[0].filename == __file__
    rest = OneVsRestClassifier(st.LogisticRegression(l1_ratio=1.0, n_jobs=1)).fit(X, THREE)
    np.testing.assert_array_equal(model.coef_, np.concatenate([one.coef_ for one in rest.estimators_]))
    with pytest.warns(FutureWarning, match=r"multi_class='multinomial'\) is deprecated .*learns classes jointly"):
        joint = st.LogisticRegression(multi_class="multinomial").fit(X, THREE)
    plain = st.LogisticRegression().fit(X, THREE)
    assert joint.fingerprint_ == plain.fingerprint_
    np.testing.assert_array_equal(joint.coef_, plain.coef_)
