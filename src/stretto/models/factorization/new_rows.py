"""`NewRows`: rows that a model was not trained on, folded in, and what they are used for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.records.ids import IdMap
from stretto.errors import DataError
from stretto.models import checks
from stretto.runtime.runtimes import Runtime
from stretto.solvers.factorization import factors as mf_serve
from stretto.solvers.factorization.factors import PaddedFactors, TopNIndex
from stretto.solvers.factorization.rated_items import RatedItems

from .arguments import as_pairs, known_indices
from .fitted_problem import FittedProblem
from .fold_in import fold_in
from .serving.explaining import explain
from .serving.filters import item_filter
from .serving.frames import frame_kind, list_frame
from .serving.search import best_items
from .side.cold_rows import NewRatings, compressed, expected, read_new, rows_of

Array = NDArray[Any]
Floats = NDArray[np.float32]


def new_rows(model: Any, X: Any, y: Any, user_features: Any) -> NewRows:
    """The result of `MatrixFactorization.fold_in`: the rows of X and of features, folded into a fitted estimator."""
    if X is None and user_features is None:
        raise DataError("fold_in needs the ratings of new rows, or user_features, or both; got neither")
    table = None if user_features is None else read_new(model.user_feature_map_, user_features, "user_features")
    ratings = None if X is None else NewRatings.of(model, X, y)
    ids, size = rows_of(ratings, table)
    columns, runtime = model._padded(), model._here()
    kept = compressed(ratings, ids, (size, len(model.item_factors_)))
    with runtime.open() as crew:
        means = expected(model.user_feature_map_, table, ids, size, crew)
        W, b = fold_in(columns, kept, model._learned, crew, means)
    names = np.arange(size) if ids is None else ids.ids
    seen = RatedItems(kept.indptr, kept.indices)
    return NewRows(names, W, b, ids, model.item_ids_, columns, seen, kept.values, model._learned, runtime)


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
    _values: Floats  # of `_seen`
    _learned: FittedProblem
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

    def recommend(
        self,
        n: int = 10,
        *,
        filter_seen: bool = True,
        items: Any = None,
        exclude: Any = None,
        as_frame: bool | str = False,
    ) -> Any:
        """The n best columns for each row: (ids [m, n], scores [m, n]), as `MatrixFactorization.recommend` gives them.

        Parameters
        ----------
        n : int, default 10
            Columns for each row.
        filter_seen : bool, default True
            Leave out what the row has rated here.
        items : array, mapping or None, default None
            Restrict the choice to these columns; None for all. A mapping {id of a row: columns} does it for single
            rows.
        exclude : array, mapping or None, default None
            Columns to leave out; a mapping {id of a row: columns} for single rows.
        as_frame : bool or {"pandas", "polars", "arrow"}, default False
            A data frame of user, item, rank and score. True: of the first library that is installed.

        Returns
        -------
        (ids, scores), or a data frame
        """
        checks.of("recommend").number("n", n, least=1, whole=True)
        kind = frame_kind(as_frame, owner="recommend")
        chosen = item_filter(items, exclude, (self._col_ids, len(self._columns.H)), (self._row_ids, len(self)))
        model, rows = self._served(), np.arange(len(self), dtype=np.int32)
        seen = self._seen if filter_seen else None
        with self._runtime.open() as crew:
            index = TopNIndex.over(model.H, model.c, crew)
            biased = self._learned.problem.biases
            found, scores = best_items(model, index, rows, n, crew, seen=seen, chosen=chosen, biased=biased)
        best = mf_serve.names(found, self._col_ids)
        return (best, scores) if kind is None else list_frame(kind, ("user", "item"), self.ids, best, scores)

    def explain_recommendation(self, user: Any, item: Any) -> Any:
        """Why an item has its score for one of these rows, as `MatrixFactorization.explain_recommendation` says it.

        The contributions of the row's ratings, the mean and the bias of the item add up to the score: `rest` is 0, up
        to rounding.

        Parameters
        ----------
        user : int or str
            Id of a row.
        item : int, str, or list of them
            What to explain; for a list, a list of explanations.

        Returns
        -------
        Explanation, or list of Explanation
        """
        row = known_indices(user, self._row_ids, len(self), "row")
        if len(row) != 1:
            raise DataError(f"explain_recommendation takes one user, got {len(row)}; call it for each")
        targets = known_indices(item, self._col_ids, len(self._columns.H), "column")
        at = slice(*self._seen.indptr[row[0] : row[0] + 2])
        past, name = (self._seen.indices[at], self._values[at]), self.ids[row].tolist()[0]
        with self._runtime.open() as crew:
            made = explain(self._served(), row, past, targets, self, crew, name)
        return made if np.ndim(item) > 0 else made[0]

    @property
    def item_ids_(self) -> IdMap | None:
        """Ids of the columns, where the data had them."""
        return self._col_ids
