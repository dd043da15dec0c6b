"""`FactorServing`: the methods that only use fitted factors, for the estimator and for `Recommender`.

Importing this imports no compiler: kernels are loaded when a method first needs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stretto.checks import choice, of
from stretto.errors import DataError

from .frames import frame_kind, list_frame
from .search import best_items

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stretto.data.records.ids import IdMap
    from stretto.models.factorization.fitted_problem import FittedProblem
    from stretto.models.factorization.new_rows import NewRows
    from stretto.models.factorization.side.feature_map import FeatureMap
    from stretto.runtime.blocks.crew import Crew
    from stretto.runtime.runtimes import Runtime
    from stretto.solvers.factorization.factors import PaddedFactors, TopNIndex
    from stretto.solvers.factorization.rated_items import RatedItems


Array = NDArray[Any]
Floats = NDArray[np.float32]
_NEW_USERS = "; for new users: model.recommend_new(their ratings, n=10), or model.fold_in(their ratings)"


class FactorServing:
    """Predictions, recommendations, similar rows and explanations of fitted factors."""

    user_factors_: Floats
    item_factors_: Floats
    user_bias_: Floats
    item_bias_: Floats
    mean_: float
    user_ids_: IdMap | None
    item_ids_: IdMap | None
    user_feature_map_: FeatureMap | None
    _learned: FittedProblem

    def _require_fitted(self) -> None:
        raise NotImplementedError

    def _here(self) -> Runtime:
        raise NotImplementedError

    def seen(self) -> RatedItems:
        """What each row rated in training, as compressed rows."""
        raise NotImplementedError

    def _ratings_of(self, row: int) -> tuple[NDArray[np.int32], Floats] | None:
        """Columns and values of a row in training; None if the values are not known any more."""
        raise NotImplementedError

    def _padded(self) -> PaddedFactors:
        """The factors for the kernels."""
        from stretto.solvers.factorization.factors import served

        return served(self)

    def _index(self, model: PaddedFactors, crew: Crew) -> TopNIndex:
        """The items, laid out for the search."""
        from stretto.solvers.factorization.factors import TopNIndex

        return TopNIndex.over(model.H, model.c, crew)

    @contextmanager
    def _crew(self) -> Iterator[Crew]:
        with self._here().open() as crew:
            yield crew

    def _indices(self, names: Any, what: str, advice: str = "") -> NDArray[np.int32]:
        """Indices of users ("row") or items ("column") that must be known."""
        from stretto.models.factorization.arguments import known_indices

        sides = {"row": (self.user_ids_, len(self.user_factors_)), "column": (self.item_ids_, len(self.item_factors_))}
        try:
            return known_indices(names, *sides[what], what)
        except DataError as error:
            raise DataError(f"{error}{advice}") from None

    def predict(self, X: Any) -> Floats:
        """Ratings of n pairs; with the logistic loss, log odds. Unknown rows and columns get the mean and known bias.

        Parameters
        ----------
        X : array [n, 2]
            Rows and columns; ids when the data had ids.
        """
        self._require_fitted()
        from stretto.models.factorization.arguments import as_pairs
        from stretto.solvers.factorization.factors import predict

        rows, cols = as_pairs(X, self.user_ids_, self.item_ids_)
        with self._crew() as crew:
            return predict(self._padded(), rows, cols, crew)

    def fold_in(self, X: Any = None, y: Any = None, *, user_features: Any = None) -> NewRows:
        """New rows, with the columns as they were learned: factors, biases, recommendations.

        They follow from ratings, from features, or from both: a row without ratings is what its features say, and of a
        model that was fitted with features, one without them is an average one. Ratings of columns that the model does
        not know are left out with a warning.

            new = model.fold_in(ratings_of_new_users)
            items, scores = new.recommend(n=10)       # row k is for new.ids[k]

        Parameters
        ----------
        X : mapping, sparse or dense matrix, three arrays, table, Data, path, pairs with y, or None, default None
            Ratings, as for `fit`; a matrix has the columns of `fit`. A mapping is {item: rating} for one user, or
            {user: {item: rating}}, or {user: [items]} where values are all 1.
        y : array [n] or None, default None
            The ratings of pairs X.
        user_features : data frame, (ids, matrix), path, sparse or dense matrix, or None, default None
            Features of the rows, as for `fit`. Rows are identified by ids where ratings and features have them, else
            by their order.

        Returns
        -------
        NewRows
        """
        self._require_fitted()
        from stretto.models.factorization.new_rows import new_rows

        if _is_mapping(X):
            from .new_ratings import from_mapping

            X = from_mapping(X, "fold_in")
        return new_rows(self, X, y, user_features)

    def recommend(
        self,
        users: Any,
        n: int = 10,
        *,
        filter_seen: bool = True,
        items: Any = None,
        exclude: Any = None,
        as_frame: bool | str = False,
    ) -> Any:
        """The n best columns for each user: (ids [len(users), n], scores), or a data frame.

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
        items : array, mapping or None, default None
            Restrict the choice to these columns; None for all. A mapping {user: columns} does it for single users.
        exclude : array, mapping or None, default None
            Columns to leave out; a mapping {user: columns} for single users.
        as_frame : bool or {"pandas", "polars", "arrow"}, default False
            A data frame of user, item, rank (from 1) and score, one line for each item. True: of the library that
            `users` is from, else the first that is installed.

        Returns
        -------
        (ids, scores), or a data frame
        """
        self._require_fitted()
        from stretto.solvers.factorization.factors import names

        from .filters import item_filter

        of("recommend").number("n", n, least=1, whole=True)
        kind = frame_kind(as_frame, users, owner="recommend")
        rows = self._indices(users, "row", _NEW_USERS)
        sides = (self.item_ids_, len(self.item_factors_)), (self.user_ids_, len(self.user_factors_))
        chosen, seen = item_filter(items, exclude, *sides), self.seen() if filter_seen else None
        with self._crew() as crew:
            model = self._padded()
            found, scores = best_items(
                model, self._index(model, crew), rows, n, crew, seen=seen, chosen=chosen, biased=self._biased
            )
        best = names(found, self.item_ids_)
        return (best, scores) if kind is None else list_frame(kind, ("user", "item"), self._users(rows), best, scores)

    @property
    def _biased(self) -> bool:
        return self._learned.problem.biases

    def _users(self, rows: NDArray[np.int32]) -> Array:
        return rows if self.user_ids_ is None else self.user_ids_.decode(rows)

    def recommend_new(
        self,
        ratings: Any,
        y: Any = None,
        n: int = 10,
        *,
        filter_seen: bool = True,
        items: Any = None,
        exclude: Any = None,
        as_frame: bool | str = False,
    ) -> Any:
        """The n best columns for users that training did not see, from a few ratings of theirs.

            users, items, scores = model.recommend_new({"ada": {"film 7": 5, "film 9": 2}}, n=3)

        It is `fold_in(ratings).recommend(n)`, for every solver and loss. Ratings of unknown columns are left out with a
        warning.

        Parameters
        ----------
        ratings : mapping, sparse or dense matrix, three arrays, table, Data, path, or pairs with y
            Ratings, as for `fold_in`: {item: rating} for one user, {user: {item: rating}}, or {user: [items]}.
        y : array [n] or None, default None
            The ratings of pairs.
        n : int, default 10
            Columns for each user.
        filter_seen : bool, default True
            Leave out what the user has rated.
        items : array, mapping or None, default None
            Restrict the choice to these columns; None for all. A mapping {user: columns} does it for single users.
        exclude : array, mapping or None, default None
            Columns to leave out; a mapping {user: columns} for single users.
        as_frame : bool or {"pandas", "polars", "arrow"}, default False
            A data frame of user, item, rank and score. True: of the library that `ratings` is from, else the first that
            is installed.

        Returns
        -------
        (users [m], ids [m, n], scores [m, n]), or a data frame
        """
        of("recommend_new").number("n", n, least=1, whole=True)
        kind = frame_kind(as_frame, ratings, owner="recommend_new")
        new = self.fold_in(ratings, y)
        best = new.recommend(n, filter_seen=filter_seen, items=items, exclude=exclude, as_frame=kind or False)
        return best if kind is not None else (new.ids, *best)

    def similar_items(self, items: Any, n: int = 10, *, metric: str = "cosine", as_frame: bool | str = False) -> Any:
        """The n columns with the most similar factors, without the column itself: (ids, similarities), or a data frame.

        Parameters
        ----------
        items : array
            Columns; ids when the data had ids.
        n : int, default 10
            Similar columns for each.
        metric : {"cosine", "dot"}, default "cosine"
            The angle between the factors, or their inner product, which is larger for items with longer factors.
        as_frame : bool or {"pandas", "polars", "arrow"}, default False
            A data frame of item, similar, rank and score.

        Returns
        -------
        (ids, similarities), or a data frame
        """
        self._require_fitted()
        kind = _checked("similar_items", n, metric, as_frame, items)
        at = self._indices(items, "column")
        return self._similar(self.item_factors_, at, n, metric, kind, ("item", "similar"), self.item_ids_)

    def similar_users(self, users: Any, n: int = 10, *, metric: str = "cosine", as_frame: bool | str = False) -> Any:
        """The n rows with the most similar factors, without the row itself: (ids, similarities), or a data frame.

        Parameters
        ----------
        users : array
            Rows; ids when the data had ids.
        n : int, default 10
            Similar rows for each.
        metric : {"cosine", "dot"}, default "cosine"
            The angle between the factors, or their inner product, which is larger for users with longer factors.
        as_frame : bool or {"pandas", "polars", "arrow"}, default False
            A data frame of user, similar, rank and score.

        Returns
        -------
        (ids, similarities), or a data frame
        """
        self._require_fitted()
        kind = _checked("similar_users", n, metric, as_frame, users)
        at = self._indices(users, "row")
        return self._similar(self.user_factors_, at, n, metric, kind, ("user", "similar"), self.user_ids_)

    def _similar(
        self,
        factors: Floats,
        at: NDArray[np.int32],
        n: int,
        metric: str,
        kind: str | None,
        heads: tuple[str, str],
        ids: IdMap | None,
    ) -> Any:
        from stretto.solvers.factorization.factors import names, similar

        with self._crew() as crew:
            found, scores = similar(factors, at, n, crew, metric)
        best = names(found, ids)
        if kind is None:
            return best, scores
        return list_frame(kind, heads, at if ids is None else ids.decode(at), best, scores)

    def explain_recommendation(self, user: Any, item: Any, *, ratings: Any = None) -> Any:
        """Why an item has its score for a user: what each of the user's ratings adds to it.

            print(model.explain_recommendation("ada", "film 7"))

        score = mean + item_bias + Σ contributions + rest. The contributions are those of folding the user in: for als,
        ccd and the squared loss the terms of the weighted least-squares solution, for the other losses of ratings those
        of the last Newton step, for ranking losses the sums of the steps made for each item. They add up exactly to the
        score of the folded-in user; `rest` is what the factors of training add to that: nothing for new users (see
        `NewRows.explain_recommendation`), little for als.

        Parameters
        ----------
        user : int or str
            A user of training.
        item : int, str, or list of them
            What to explain; for a list, a list of explanations.
        ratings : mapping {item: rating} or None, default None
            The user's ratings; None for those of training, which a model from a file has only if it was saved with
            `ratings=True`.

        Returns
        -------
        Explanation, or list of Explanation
        """
        self._require_fitted()
        row = self._indices(user, "row", "; for new users: model.fold_in(their ratings).explain_recommendation")
        if len(row) != 1:
            raise DataError(f"explain_recommendation takes one user, got {len(row)}; call it for each")
        past = self._past(int(row[0]), ratings)
        from .explaining import explain

        with self._crew() as crew:
            model = self._padded()
            made = explain(model, row, past, self._indices(item, "column"), self, crew, self._users(row).tolist()[0])
        return made if _is_several(item) else made[0]

    def _past(self, row: int, ratings: Any) -> tuple[NDArray[np.int32], Floats]:
        """Columns and values of the user to explain."""
        if ratings is None:
            found = self._ratings_of(row)
            if found is None:
                raise DataError(
                    "explain_recommendation: a model from a file does not know the values of the ratings; give those "
                    "of the user, ratings={item: rating}, or save it with model.save(path, ratings=True)"
                )
            return found
        if not _is_mapping(ratings):
            raise DataError(
                f"explain_recommendation: ratings is a mapping {{item: rating}}, got {type(ratings).__name__}"
            )
        from .new_ratings import from_mapping

        data = from_mapping(ratings, "explain_recommendation")
        if data.shape[0] != 1 or data.col_ids is None:
            raise DataError("explain_recommendation: ratings are those of one user: {item: rating}")
        return self._indices(data.col_ids.ids, "column")[data.cols], data.values

    def to_numpy(self) -> dict[str, Any]:
        """The model as plain arrays, from which scores follow without Stretto.

        mean + user_bias[i] + item_bias[j] + user_factors[i] @ item_factors[j] is what `predict` gives for user
        user_ids[i] and item item_ids[j], up to the order of the float32 additions.

        Returns
        -------
        dict
            user_factors [m, k], item_factors [n, k], user_bias [m], item_bias [n] float32; mean float; user_ids [m],
            item_ids [n]: integers or text, the position where the data had no ids.
        """
        self._require_fitted()
        from .plain_arrays import plain_arrays

        return plain_arrays(self)

    def export(self, path: str | Path) -> None:
        """Write the arrays of `to_numpy` to a file or folder that needs NumPy alone.

        Parameters
        ----------
        path : str or Path
            A name that ends in .npz for one file; else a folder, which gets a file NAME.npy for each array, so that
            large factors can be mapped: np.load(path, mmap_mode="r").
        """
        self._require_fitted()
        from .plain_arrays import write_arrays

        write_arrays(self.to_numpy(), Path(path))


def _checked(owner: str, n: Any, metric: Any, as_frame: Any, given: Any) -> str | None:
    """The kind of frame, after n and metric are checked."""
    of(owner).number("n", n, least=1, whole=True)
    choice("metric", metric, ("cosine", "dot"), owner=owner)
    return frame_kind(as_frame, given, owner=owner)


def _is_mapping(given: Any) -> bool:
    """Whether these are ratings by item or by user; matrices in SciPy's DOK format are dicts, but matrices."""
    return isinstance(given, Mapping) and not hasattr(type(given), "tocoo")


def _is_several(item: Any) -> bool:
    return not isinstance(item, str | bytes) and np.ndim(item) > 0
