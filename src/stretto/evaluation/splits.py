"""`st.split`: ratings to learn from and ratings to measure on, held out in one of six ways."""

from __future__ import annotations

from typing import Any

import numpy as np

from stretto import checks
from stretto.data.records.data import Data
from stretto.errors import DataError

METHODS = ("random", "leave_k_out", "by_time", "by_user", "cold_users", "cold_items")


class Splits:
    """Ways to hold out ratings: each takes ratings and returns (train, test).

    Both parts are `Data` with the shape and the ids of the whole. Ratings are what `MatrixFactorization.fit` takes: a
    sparse or dense matrix, a table, three arrays, `Data`, a path, or pairs with y. The same data and seed are split the
    same way on every machine.

    Examples
    --------
    >>> import scipy.sparse as sp, stretto as st
    >>> X = sp.random(50, 40, density=0.3, format="csr", random_state=0)
    >>> train, test = st.split.leave_k_out(X, k=2)
    >>> train.shape, len(test)
    ((50, 40), 100)
    """

    def __call__(self, ratings: Any, y: Any = None, *, test: float = 0.1, seed: int = 0) -> tuple[Data, Data]:
        """Hold out single ratings, as `random`."""
        return self.random(ratings, y, test=test, seed=seed)

    def random(self, ratings: Any, y: Any = None, *, test: float = 0.1, seed: int = 0) -> tuple[Data, Data]:
        """Hold out single ratings, by a hash of their positions.

        Parameters
        ----------
        ratings : sparse or dense matrix, table, three arrays, Data, path, or pairs with y
            Ratings, as for `MatrixFactorization.fit`.
        y : array or None, default None
            Ratings of pairs.
        test : float, default 0.1
            Share held out, between 0 and 1.
        seed : int, default 0
            Decides which.

        Returns
        -------
        train : Data
            The ratings that stay, with their ids.
        test : Data
            The ratings held out, in the same numbering.
        """
        _share(test)
        return _ratings(ratings, y).split(float(test), seed=seed)

    def leave_k_out(
        self, ratings: Any, y: Any = None, *, k: int = 1, times: Any = None, seed: int = 0
    ) -> tuple[Data, Data]:
        """Hold out k ratings of each user who has more than k; with times the last ones.

        Parameters
        ----------
        ratings : sparse or dense matrix, table, three arrays, Data, path, or pairs with y
            Ratings, as for `MatrixFactorization.fit`.
        y : array or None, default None
            Ratings of pairs.
        k : int, default 1
            Ratings of each user.
        times : array, str, int or None, default None
            Time of each rating, in their order; or the name of a column of a table or file (of a file also its
            position). Of equal times the later rating is held out first. None draws by the seed.
        seed : int, default 0
            Decides which.

        Returns
        -------
        train : Data
            The ratings that stay, with their ids.
        test : Data
            The ratings held out, in the same numbering.
        """
        from . import held

        checks.number("k", k, least=1, whole=True, owner="leave_k_out")
        data = held.ratings_of(ratings, y)
        sizes = np.bincount(data.rows, minlength=data.shape[0])
        key = held.draws(len(data), seed) if times is None else held.times_of(times, ratings, data)
        return _cut(data, held.largest_of_rows(data, np.where(sizes > k, int(k), 0), key), "leave_k_out")

    def by_user(
        self, ratings: Any, y: Any = None, *, test: float = 0.1, times: Any = None, seed: int = 0
    ) -> tuple[Data, Data]:
        """Hold out a share of each user's ratings: at least one of two, and never all; with times the last ones.

        Parameters
        ----------
        ratings : sparse or dense matrix, table, three arrays, Data, path, or pairs with y
            Ratings, as for `MatrixFactorization.fit`.
        y : array or None, default None
            Ratings of pairs.
        test : float, default 0.1
            Share held out, between 0 and 1.
        times : array, str, int or None, default None
            Time of each rating, or a column, as for `leave_k_out`; None draws by the seed.
        seed : int, default 0
            Decides which.

        Returns
        -------
        train : Data
            The ratings that stay, with their ids.
        test : Data
            The ratings held out, in the same numbering.
        """
        from . import held

        _share(test)
        data = held.ratings_of(ratings, y)
        key = held.draws(len(data), seed) if times is None else held.times_of(times, ratings, data)
        return _cut(data, held.largest_of_rows(data, held.share_of_rows(data, float(test)), key), "by_user")

    def by_time(self, ratings: Any, y: Any = None, *, times: Any, test: float = 0.1) -> tuple[Data, Data]:
        """Hold out the latest ratings of all users together: learn from the past, measure on what came after.

        Parameters
        ----------
        ratings : sparse or dense matrix, table, three arrays, Data, path, or pairs with y
            Ratings, as for `MatrixFactorization.fit`.
        y : array or None, default None
            Ratings of pairs.
        times : array, str or int
            Time of each rating, or a column, as for `leave_k_out`.
        test : float, default 0.1
            Share held out, between 0 and 1; less where ratings at the limit have the same time.

        Returns
        -------
        train : Data
            The ratings that stay, with their ids.
        test : Data
            The ratings held out, in the same numbering.
        """
        from . import held

        _share(test)
        data = held.ratings_of(ratings, y)
        return _cut(data, held.latest(held.times_of(times, ratings, data), float(test)), "by_time")

    def cold_users(self, ratings: Any, y: Any = None, *, test: float = 0.1, seed: int = 0) -> tuple[Data, Data]:
        """Hold out every rating of some users, who are new to the model.

        `st.evaluate` folds them in from four fifths of these ratings and measures on the others.

        Parameters
        ----------
        ratings : sparse or dense matrix, table, three arrays, Data, path, or pairs with y
            Ratings, as for `MatrixFactorization.fit`.
        y : array or None, default None
            Ratings of pairs.
        test : float, default 0.1
            Share of the users, between 0 and 1.
        seed : int, default 0
            Decides which.

        Returns
        -------
        train : Data
            The ratings that stay, with their ids.
        test : Data
            The ratings held out, in the same numbering.
        """
        from . import held

        _share(test)
        data = held.ratings_of(ratings, y)
        return _cut(data, held.all_of_some(data.rows, data.shape[0], float(test), seed), "cold_users")

    def cold_items(self, ratings: Any, y: Any = None, *, test: float = 0.1, seed: int = 0) -> tuple[Data, Data]:
        """Hold out every rating of some items, which are new to the model.

        Parameters
        ----------
        ratings : sparse or dense matrix, table, three arrays, Data, path, or pairs with y
            Ratings, as for `MatrixFactorization.fit`.
        y : array or None, default None
            Ratings of pairs.
        test : float, default 0.1
            Share of the items, between 0 and 1.
        seed : int, default 0
            Decides which.

        Returns
        -------
        train : Data
            The ratings that stay, with their ids.
        test : Data
            The ratings held out, in the same numbering.
        """
        from . import held

        _share(test)
        data = held.ratings_of(ratings, y)
        return _cut(data, held.all_of_some(data.cols, data.shape[1], float(test), seed), "cold_items")


split = Splits()
"""Hold out ratings to measure on: `st.split(ratings, test=0.1)`, or in another way: `st.split.leave_k_out(ratings)`.

The methods are those of `Splits`: `random` (the call itself), `leave_k_out`, `by_user`, `by_time`, `cold_users` and
`cold_items`. scikit-learn's tools split rows, which are users; most of these split ratings, so that every user stays
in training.

Examples
--------
>>> import scipy.sparse as sp, stretto as st
>>> X = sp.random(50, 40, density=0.3, format="csr", random_state=0)
>>> train, test = st.split(X, test=0.2)
>>> st.MatrixFactorization(4, max_iter=5, random_state=0).fit(train).score(test) < 0
True
"""


def _ratings(ratings: Any, y: Any) -> Data:
    from .held import ratings_of

    return ratings_of(ratings, y)


def _share(test: Any) -> None:
    checks.number("test", test, above=0, below=1)


def _cut(data: Data, mask: Any, method: str) -> tuple[Data, Data]:
    train, test = data.take(~mask), data.take(mask)
    if not len(test) or not len(train):
        empty = "to measure on" if not len(test) else "to learn from"
        raise DataError(f"{method}: there are no ratings left {empty}, of {len(data)}; give more, or another share")
    return train, test
