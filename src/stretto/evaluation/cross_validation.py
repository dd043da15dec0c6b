"""`st.cross_validate`: folds over single ratings.

scikit-learn's tools split rows. The rows of a rating matrix are users, so they measure a model on unknown users. Here
every user and item stays in training with most of its ratings. The folds depend only on the seed and on positions.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.records.data import Data, splitmix64
from stretto.errors import DataError
from stretto.models import checks

from .held import key_of, ratings_of


def folds(data: Data, cv: int, seed: int) -> Iterator[tuple[Data, Data]]:
    """(train, test) for each of `cv` parts of the records, of nearly equal size."""
    order = np.argsort(splitmix64(np.arange(len(data), dtype=np.uint64) ^ key_of(seed)), kind="stable")
    part = np.empty(len(data), np.int64)
    part[order] = np.arange(len(data)) % cv
    for k in range(cv):
        yield data.take(part != k), data.take(part == k)


def cross_validate(
    model: Any, ratings: Any, y: Any = None, *, cv: int = 5, seed: int = 0, return_estimator: bool = False
) -> dict[str, Any]:
    """Fit on all but one part of the ratings and score on that part, for each part.

    Parameters
    ----------
    model : MatrixFactorization
        The estimator; it is cloned, never fitted itself.
    ratings : sparse or dense matrix, table, three arrays, Data, path, or pairs with y
        Ratings, as for `MatrixFactorization.fit`.
    y : array or None, default None
        Ratings of pairs.
    cv : int, default 5
        Parts, at least 2.
    seed : int, default 0
        Decides which rating is in which part.
    return_estimator : bool, default False
        Return the fitted models as well.

    Returns
    -------
    dict
        "test_score": [cv] what `model.score` returns for each part (higher is better: minus the RMSE, or NDCG@10);
        "fit_time", "score_time": [cv] seconds; "estimator": the fitted models, if asked for.

    Examples
    --------
    >>> import scipy.sparse as sp, stretto as st
    >>> X = sp.random(50, 40, density=0.3, format="csr", random_state=0)
    >>> st.cross_validate(st.MatrixFactorization(4, max_iter=5, random_state=0), X, cv=3)["test_score"].shape
    (3,)
    """
    from sklearn.base import clone

    checks.number("cv", cv, least=2, whole=True)
    data = ratings_of(ratings, y)
    if len(data) < 2 * cv:
        raise DataError(f"{len(data)} ratings are too few for cv={cv} parts; give more, or fewer parts")
    found: dict[str, list[Any]] = {"fit_time": [], "score_time": [], "test_score": [], "estimator": []}
    for train, test in folds(data, int(cv), seed):
        began = time.perf_counter()
        fitted = clone(model).fit(train)
        between = time.perf_counter()
        found["test_score"].append(fitted.score(test))
        found["fit_time"].append(between - began)
        found["score_time"].append(time.perf_counter() - between)
        if return_estimator:
            found["estimator"].append(fitted)
    arrays: dict[str, NDArray[np.float64]] = {
        name: np.asarray(values) for name, values in found.items() if name != "estimator"
    }
    return arrays | ({"estimator": found["estimator"]} if return_estimator else {})
