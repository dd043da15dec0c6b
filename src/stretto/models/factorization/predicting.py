"""Use of a fitted `MatrixFactorization`: what scikit-learn's interface asks for, and what the model was fitted on."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from stretto.models.sklearn_base import check_is_fitted
from stretto.runtime.blocks.source import EntrySource
from stretto.solvers.factorization.rated_items import RatedItems

from .continue_fit import RatingBatches
from .fitting import FactorizationFitting
from .serving.methods import FactorServing
from .serving.recommender import Recommender

Array = NDArray[Any]


class FactorizationPrediction(FactorizationFitting, FactorServing):
    """The methods of a fitted model."""

    def _require_fitted(self) -> None:
        check_is_fitted(self)

    @property
    def components_(self) -> Array:
        """The column factors [n_components, n], as transformers name them."""
        check_is_fitted(self)
        return np.asarray(self.item_factors_.T)

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Factors of rows [m, n_components] from their ratings alone, whether they were in the training data or not.

        Row k is that of `fold_in(X).ids[k]`. `fold_in` has the rows' biases as well, and recommends to them.

        Parameters
        ----------
        X : sparse or dense matrix, three arrays, table, Data or path
            Ratings, as for `fit`; a matrix has the columns of `fit`.
        """
        from .new_rows import labelled

        new = self.fold_in(X)
        return cast("NDArray[np.float32]", labelled(self, new.factors, new.ids, X))

    @property
    def _n_features_out(self) -> int:
        return int(self.user_factors_.shape[1])

    def add_items(self, item_features: Any) -> Self:
        """Add columns that have features and no ratings, so that they can be predicted and recommended.

        Their factors and biases are what the map of features says. Columns are numbered by sorted ids, so those of the
        model may move; without ids, new columns follow the others.

        Parameters
        ----------
        item_features : data frame, (ids, matrix), path, sparse or dense matrix
            Features of the new columns, as for `fit`.
        """
        check_is_fitted(self)
        from .side.cold_rows import add_items

        add_items(self, item_features)
        return self

    def score(self, X: Any, y: Any = None) -> float:
        """How well ratings are predicted, higher is better: minus the RMSE (mean absolute error, log loss), or NDCG@10.

        Users and items of pairs, tables and `Data` are identified by their names, and those that training never saw are
        predicted as `predict` does it. The rows of a matrix are those of training where its entries say so; otherwise
        they are new ones, as in scikit-learn's cross-validation: each is folded in from four fifths of its ratings and
        measured on the others. Where the entries do not decide it, it is refused.

        For implicit feedback NDCG@10 ranks, for each row, the items that it does not have in training, and asks which
        of the first ten are in X with a positive value.

        Parameters
        ----------
        X : sparse or dense matrix, three arrays, table, Data, path, or pairs with y
            Ratings, as for `fit`.
        y : array [n] or None, default None
            The ratings of pairs X.
        """
        check_is_fitted(self)
        from . import scoring

        return scoring.score(self, X, y)

    def seen(self) -> RatedItems:
        """What each row rated in training, as compressed rows."""
        if self._seen is None:
            assert self._trained_on is not None
            scratch = None if self._scratch is None else Path(self._scratch.name)
            self._seen = RatedItems.of(self._trained_on, scratch)
        return self._seen

    def _values(self) -> EntrySource | None:
        """The training ratings; None for a loaded model, which has only their pairs."""
        source = self._trained_on
        return None if isinstance(source, RatingBatches) and not source.whole else source

    def _ratings_of(self, row: int) -> tuple[NDArray[np.int32], NDArray[np.float32]] | None:
        source = self._values()
        if source is None:
            return None
        cols, values = [np.zeros(0, np.int32)], [np.zeros(0, np.float32)]
        for rows, others, ratings in source.chunks():
            mine = np.flatnonzero(rows == row)
            cols.append(np.asarray(others[mine], np.int32))
            values.append(np.asarray(ratings[mine], np.float32))
        return np.concatenate(cols), np.concatenate(values)

    def recommender(self) -> Recommender:
        """What serves these factors, without the estimator: it keeps the items laid out between calls.

        Returns
        -------
        Recommender
        """
        check_is_fitted(self)
        return Recommender.of(self)
