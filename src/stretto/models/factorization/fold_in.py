"""Fold-in: factors and biases of rows that were not in training, from their ratings and the learned columns.

Each row minimises the objective of training with the columns fixed: half of an ALS epoch for squared loss and implicit
feedback, Newton steps for the other losses, steps of SGD for those that rank. Everything is computed in the
standardised units of training.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.partition import straight
from stretto.data.records.ids import IdMap
from stretto.errors import DataError
from stretto.kernels.factorization import als
from stretto.kernels.factorization.fold_in import newton_worker
from stretto.kernels.factorization.fold_in_ranking import fold_in_ranking_worker
from stretto.kernels.factorization.losses import CODES
from stretto.kernels.factorization.ranking import METHODS
from stretto.kernels.numeric.lanes import padded
from stretto.models import checks
from stretto.runtime.blocks.compressed import Compressed
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.step import make_step, parts
from stretto.runtime.runtimes import Runtime
from stretto.schedule.orders.rotation import independent
from stretto.solvers.factorization import factors as mf_serve
from stretto.solvers.factorization.factors import PaddedFactors, RatedItems, TopNIndex
from stretto.solvers.factorization.penalties import penalties
from stretto.solvers.factorization.prior_means import NO_PRIOR
from stretto.solvers.factorization.problem import RANKING_RATES, FactorizationProblem
from stretto.solvers.factorization.ranking import ranking_penalties

from .arguments import as_pairs, known_indices

Array = NDArray[Any]
Floats = NDArray[np.float32]
_PARTS = 64
_PASSES = 30  # over the values of a row that is folded in by SGD
_NO_GRAM = np.zeros((0, 0), np.float32)
_NO_BIAS = np.zeros(0, np.float32)
Means = tuple[Floats, Floats]  # [m, rank] factors and [m] biases


@dataclass(frozen=True)
class FittedProblem:
    """The problem of a fit, and the units it was solved in."""

    problem: FactorizationProblem
    mean: float  # mean of the ratings
    scale: float  # standard deviation of the ratings
    confidence: float  # confidence of implicit feedback per unit of a value


def fold_in(
    model: PaddedFactors, rows: Compressed, learned: FittedProblem, crew: Crew, means: Means | None = None
) -> tuple[Floats, Floats]:
    """([m, rank] factors, [m] biases) of new rows; those of `means`, or 0, for a row without ratings.

    means : what the rows are expected to be before their ratings are seen, in the same form
    """
    W, b = _folded_in(model, rows, learned, crew, means)
    if means is not None:
        empty = np.diff(rows.indptr) == 0
        W[empty], b[empty] = means[0][empty], means[1][empty]
    return W, b


def _folded_in(
    model: PaddedFactors, rows: Compressed, learned: FittedProblem, crew: Crew, means: Means | None
) -> tuple[Floats, Floats]:
    problem = learned.problem
    if problem.ranking:
        return _fold_in_ranking(model, rows, learned, crew, means)
    rank, implicit = problem.rank, problem.implicit
    biased = problem.biases and not implicit
    root, scale = np.float32(math.sqrt(learned.scale)), np.float32(learned.scale)
    width = padded(rank + biased)
    Y = np.zeros((len(model.H), width), np.float32)
    np.divide(model.H[:, :rank], root, out=Y[:, :rank])
    if biased:
        Y[:, rank] = 1.0
    X = np.zeros((len(rows.counts), width), np.float32)
    values = rows.values if implicit else (rows.values - np.float32(learned.mean)) / scale
    prior = NO_PRIOR if means is None else np.zeros_like(X)
    if means is not None:
        np.divide(means[0], root, out=prior[:, :rank])
        if biased:
            np.divide(means[1], scale, out=prior[:, rank])
    offset = model.c / scale if biased else _NO_BIAS
    reg, own = penalties(problem, learned.scale), rank if biased else -1
    per_rating = (np.float32(reg.factors), own, np.float32(reg.biases))
    cut = straight(rows.counts, max(1, min(256, len(values) // 1024)))
    data: tuple[Any, ...] = (cut.bounds, rows.indptr, rows.indices, values, X, Y)
    weight = np.diff(rows.indptr[cut.bounds])
    if problem.loss == "squared":
        gram = gramian(Y, crew) if implicit else _NO_GRAM
        data += (gram, offset, np.float32(0.0), *per_rating, np.float32(learned.confidence), prior)
        data += (np.float32(reg.ridge), np.float32(reg.bias_ridge), als.scratch(crew.workers, width))
        kernel = als.cholesky_worker
    else:
        data += (offset, *per_rating, prior, CODES[problem.loss])
        kernel = newton_worker
    mf_serve.run(crew, make_step("fold in", kernel, independent(cut.blocks), weight, *data))
    W = np.ascontiguousarray(X[:, :rank]) * root
    b = X[:, rank] * scale if biased else np.zeros(len(X), np.float32)
    if not (np.isfinite(W).all() and np.isfinite(b).all()):
        raise DataError(
            "fold in: the factors of a row do not fit 32-bit floats; its values are too far from those of training"
        )
    return W, b


def _fold_in_ranking(
    model: PaddedFactors, rows: Compressed, learned: FittedProblem, crew: Crew, means: Means | None
) -> tuple[Floats, Floats]:
    """`fold_in` of a ranking loss: steps of SGD on the new rows alone."""
    problem, biased = learned.problem, learned.problem.biases
    cut = straight(rows.counts, max(1, min(256, len(rows.values) // 1024)))
    X, b = np.zeros((len(rows.counts), model.H.shape[1]), np.float32), np.zeros(len(rows.counts), np.float32)
    prior = NO_PRIOR
    if means is not None:
        X[:, : problem.rank], b[:] = means
        prior = X.copy()
    pool = np.flatnonzero(model.H.any(axis=1)).astype(np.int32)
    mean_weight = 1.0 + learned.confidence * float(rows.values.mean(dtype=np.float64) if len(rows.values) else 0.0)
    rate = RANKING_RATES[problem.loss]
    numbers = (rate, *ranking_penalties(problem, rate), learned.confidence, max(mean_weight, 1.0))
    step = make_step(
        "fold in",
        fold_in_ranking_worker,
        independent(cut.blocks),
        np.diff(rows.indptr[cut.bounds]),
        cut.bounds,
        rows.indptr,
        rows.indices,
        rows.values,
        X,
        model.H,
        b if biased else _NO_BIAS,
        model.c if biased else _NO_BIAS,
        pool,
        prior,
        *(np.float32(each) for each in numbers),
        METHODS[problem.loss],
        problem.draws,
        _PASSES,
    )
    mf_serve.run(crew, step)
    return np.ascontiguousarray(X[:, : problem.rank]), b


def gramian(Y: Floats, crew: Crew) -> Floats:
    """Yᵀ Y, summed in fixed blocks."""
    bounds = parts(len(Y), _PARTS, 1024)
    width = Y.shape[1]
    partial, gram = np.zeros((len(bounds) - 1, width, width), np.float32), np.zeros((width, width), np.float32)
    mf_serve.run(
        crew, make_step("gram", als.gram_worker, independent(len(bounds) - 1), np.diff(bounds), bounds, Y, partial)
    )
    als.fold_gram(partial, gram)
    return gram


def labelled(model: Any, factors: Floats, ids: Array, X: Any) -> Any:
    """Factors of rows for `transform`: a data frame by row id, or an array.

    A data frame if X is a table and pandas output is configured. scikit-learn would give it the index of X, which has
    a row for each rating.
    """
    import sklearn

    asked = getattr(model, "_sklearn_output_config", {}).get("transform", sklearn.get_config()["transform_output"])
    if asked != "pandas" or not hasattr(X, "iloc"):
        return factors
    import pandas

    return pandas.DataFrame(factors, index=ids, columns=model.get_feature_names_out())


@dataclass(frozen=True, eq=False)
class NewRows:
    """Rows that a model was not trained on, folded in: row k of everything here belongs to `ids[k]`.

    Attributes
    ----------
    ids : [m] array
        Ids of the rows, sorted; their positions where the data had no ids.
    factors : [m, n_components] float32
        Factors of the rows.
    bias : [m] float32
        Biases of the rows; 0 for implicit feedback and without biases.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, stretto as st
    >>> X = sp.random(50, 40, density=0.3, format="csr", random_state=0)
    >>> new = st.MatrixFactorization(4, max_iter=5, random_state=0).fit(X[:45]).fold_in(X[45:])
    >>> items, scores = new.recommend(n=3)
    >>> items.shape, new.ids.tolist()
    ((5, 3), [0, 1, 2, 3, 4])
    """

    ids: Array
    factors: Floats
    bias: Floats
    _row_ids: IdMap | None
    _col_ids: IdMap | None
    _columns: PaddedFactors  # the model's columns; its rows are not used
    _seen: RatedItems
    _biased: bool
    _runtime: Runtime

    def __len__(self) -> int:
        return len(self.factors)

    def __repr__(self) -> str:
        return f"NewRows({len(self)} rows, rank {self.factors.shape[1]})"

    def _served(self) -> PaddedFactors:
        columns = self._columns
        return PaddedFactors(mf_serve.whole_lanes(self.factors), columns.H, self.bias, columns.c, columns.mean)

    def predict(self, X: Any) -> Floats:
        """Ratings of n pairs, as `MatrixFactorization.predict` gives them for rows of training.

        Parameters
        ----------
        X : array [n, 2]
            Pairs: an id of these rows and a column. An unknown row or column adds nothing.
        """
        rows, cols = as_pairs(X, self._row_ids, self._col_ids)
        with self._runtime.open() as crew:
            return mf_serve.predict(self._served(), rows, cols, crew)

    def recommend(self, n: int = 10, *, filter_seen: bool = True, items: Any = None) -> tuple[Array, Floats]:
        """The n best columns for each row: (ids [m, n], scores [m, n]), as `MatrixFactorization.recommend` gives them.

        Parameters
        ----------
        n : int, default 10
            Columns for each row.
        filter_seen : bool, default True
            Leave out what the row has rated here.
        items : array or None, default None
            Restrict the choice to these columns; None for all.
        """
        checks.of("recommend").number("n", n, least=1, whole=True)
        allowed = None
        if items is not None:
            allowed = np.zeros(len(self._columns.H), bool)
            allowed[known_indices(items, self._col_ids, len(allowed), "column")] = True
        model = self._served()
        with self._runtime.open() as crew:
            search = TopNIndex.over(model.H, model.c, crew)
            found, scores = search.best(
                model.W,
                np.arange(len(self), dtype=np.int32),
                n,
                crew,
                base=model.b + np.float32(model.mean),
                seen=self._seen if filter_seen else None,
                allowed=allowed,
            )
        if not self._biased:
            mf_serve.leave_blank((found, scores), model.W, np.arange(len(self)))
        return mf_serve.names(found, self._col_ids), scores
