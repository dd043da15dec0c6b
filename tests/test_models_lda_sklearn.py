"""scikit-learn's own checks of the topic model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import stretto as st


@pytest.mark.filterwarnings("ignore:.*counts are fractional")
@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [
        st.LatentDirichletAllocation(3, max_iter=5, random_state=0, n_jobs=1),
        st.LatentDirichletAllocation(3, max_iter=5, random_state=0, n_jobs=1, sampler="mh"),
    ]
)
def test_scikit_learn_checks(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)
