"""Use of a fitted `MatrixFactorization`: predictions, recommendations, new rows and scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from stretto.errors import DataError
from stretto.models import checks
from stretto.models.sklearn_base import check_is_fitted
from stretto.runtime.blocks.source import EntrySource
from stretto.solvers.factorization import factors as mf_serve

from . import scoring
from .arguments import as_pairs, known_indices
from .continue_fit import RatingBatches
from .fitting import FactorizationFitting
from .fold_in import NewRows, labelled
from .new_rows import add_items, new_rows

Array = NDArray[Any]


class FactorizationPrediction(FactorizationFitting):
    """The methods of a fitted model."""

    @property
    def components_(self) -> Array:
        """The column factors [n_components, n], as transformers name them."""
        check_is_fitted(self)
        return np.asarray(self.item_factors_.T)

    def predict(self, X: Any) -> NDArray[np.float32]:
        """Ratings of n pairs; with the logistic loss, log odds. Unknown rows and columns get the mean and known bias.

        Parameters
        ----------
        X : array [n, 2]
            Rows and columns; ids when the data had ids.
        """
        check_is_fitted(self)
        rows, cols = as_pairs(X, self.user_ids_, self.item_ids_)
        with self._here().open() as crew:
            return mf_serve.predict(mf_serve.served(self), rows, cols, crew)

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Factors of rows [m, n_components] from their ratings alone, whether they were in the training data or not.

        Row k is that of `fold_in(X).ids[k]`. `fold_in` has the rows' biases as well, and recommends to them.

        Parameters
        ----------
        X : sparse or dense matrix, three arrays, table, Data or path
            Ratings, as for `fit`; a matrix has the columns of `fit`.
        """
        new = self.fold_in(X)
        return cast("NDArray[np.float32]", labelled(self, new.factors, new.ids, X))

    @property
    def _n_features_out(self) -> int:
        return int(self.user_factors_.shape[1])

    def fold_in(self, X: Any = None, y: Any = None, *, user_features: Any = None) -> NewRows:
        """New rows, with the columns as they were learned: factors, biases, recommendations.

        They follow from ratings, from features, or from both: a row without ratings is what its features say, and of a
        model that was fitted with features, one without them is an average one. Ratings of columns that the model does
        not know are left out with a warning.

            new = model.fold_in(ratings_of_new_users)
            items, scores = new.recommend(n=10)       # row k is for new.ids[k]

        Parameters
        ----------
        X : sparse or dense matrix, three arrays, table, Data, path, pairs with y, or None, default None
            Ratings, as for `fit`; a matrix has the columns of `fit`.
        y : array [n] or None, default None
            The ratings of pairs X.
        user_features : data frame, (ids, matrix), path, sparse or dense matrix, or None, default None
            Features of the rows, as for `fit`. Rows are identified by ids where ratings and features have them, else
            by their order.

        Returns
        -------
        NewRows
        """
        check_is_fitted(self)
        return new_rows(self, X, y, user_features)

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
        add_items(self, item_features)
        return self

    def recommend(
        self, users: Any, n: int = 10, *, filter_seen: bool = True, items: Any = None
    ) -> tuple[Array, NDArray[np.float32]]:
        """The n best columns for each user: (ids [len(users), n], scores).

        If there are fewer than n columns, all are returned. Where a row has fewer than n left, the id is −1 (or "") and
        the score −inf. Without biases there is nothing to recommend to a row without ratings.

        Parameters
        ----------
        users : array
            Rows; ids when the data had ids.
        n : int, default 10
            Columns for each user.
        filter_seen : bool, default True
            Leave out what the row rated in training.
        items : array or None, default None
            Restrict the choice to these columns; None for all.
        """
        check_is_fitted(self)
        checks.of("recommend").number("n", n, least=1, whole=True)
        try:
            rows = known_indices(users, self.user_ids_, len(self.user_factors_), "row")
        except DataError as error:
            raise DataError(f"{error}; to rows that are new: model.fold_in(their ratings).recommend(n=10)") from None
        allowed = None
        if items is not None:
            allowed = np.zeros(len(self.item_factors_), bool)
            allowed[known_indices(items, self.item_ids_, len(self.item_factors_), "column")] = True
        model = mf_serve.served(self)
        base = model.b + np.float32(model.mean)
        with self._here().open() as crew:
            search = mf_serve.TopNIndex.over(model.H, model.c, crew)
            seen = self.seen() if filter_seen else None
            found, scores = search.best(model.W, rows, n, crew, base=base, seen=seen, allowed=allowed)
        if not self._learned.problem.biases:
            mf_serve.leave_blank((found, scores), model.W, rows)
        return mf_serve.names(found, self.item_ids_), scores

    def similar_items(self, items: Any, n: int = 10) -> tuple[Array, NDArray[np.float32]]:
        """The n columns with the most similar factors (cosine), without the column itself: (ids, similarities).

        Parameters
        ----------
        items : array
            Columns; ids when the data had ids.
        n : int, default 10
            Similar columns for each.
        """
        check_is_fitted(self)
        checks.of("similar_items").number("n", n, least=1, whole=True)
        cols = known_indices(items, self.item_ids_, len(self.item_factors_), "column")
        with self._here().open() as crew:
            found, scores = mf_serve.similar(self.item_factors_, cols, n, crew)
        return mf_serve.names(found, self.item_ids_), scores

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
        return scoring.score(self, X, y)

    def seen(self) -> mf_serve.RatedItems:
        """What each row rated in training, as compressed rows."""
        if self._seen is None:
            assert self._trained_on is not None
            scratch = None if self._scratch is None else Path(self._scratch.name)
            self._seen = mf_serve.RatedItems.of(self._trained_on, scratch)
        return self._seen

    def _values(self) -> EntrySource | None:
        """The training ratings; None for a loaded model, which has only their pairs."""
        source = self._trained_on
        return None if isinstance(source, RatingBatches) and not source.whole else source
