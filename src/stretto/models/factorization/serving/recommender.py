"""`Recommender`: fitted factors for servers, loaded without the estimator, scikit-learn or a compiler.

    model = st.Recommender.load("model.safetensors")      # some milliseconds
    ids, scores = model.recommend(["ada"], n=10)          # the first call loads the compiled search

It keeps the padded factors and the items laid out for the search between calls, so that a request does only its own
work.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from stretto.models.factorization.model_file import FittedFile, read_fitted

from .methods import FactorServing

if TYPE_CHECKING:
    from stretto.data.records.ids import IdMap
    from stretto.models.factorization.fitted_problem import FittedProblem
    from stretto.runtime.blocks.crew import Crew
    from stretto.runtime.runtimes import Runtime
    from stretto.solvers.factorization.factors import PaddedFactors, TopNIndex
    from stretto.solvers.factorization.rated_items import RatedItems

Floats = NDArray[np.float32]
_ARRAYS = ("user_factors_", "item_factors_", "user_bias_", "item_bias_", "mean_", "n_features_in_")


class Recommender(FactorServing):
    """Fitted factors of a `MatrixFactorization`, to recommend with; they never change.

    `Recommender.load` reads what `MatrixFactorization.save` wrote, `MatrixFactorization.recommender` takes a fitted
    model. Its methods give the same bits as those of the estimator.

    Attributes
    ----------
    user_factors_ : ndarray of float32 [m, n_components]
        Factors of the rows.
    item_factors_ : ndarray of float32 [n, n_components]
        Factors of the columns.
    user_bias_ : ndarray of float32 [m]
        Biases of the rows.
    item_bias_ : ndarray of float32 [n]
        Biases of the columns.
    mean_ : float
        Mean of the ratings; 0 without biases.
    n_features_in_ : int
        Number of columns seen by `fit`.
    n_jobs : int or None
        Threads; None uses every core that this process may use.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, stretto as st
    >>> X = sp.random(50, 40, density=0.3, format="csr", random_state=0)
    >>> model = st.MatrixFactorization(4, max_iter=5, random_state=0).fit(X).recommender()
    >>> model.recommend([0, 1], n=3)[0].shape
    (2, 3)
    """

    n_features_in_: int
    n_jobs: int | None
    _file: FittedFile
    _user_ids: IdMap | None
    _item_ids: IdMap | None
    _problem: FittedProblem | None
    _factors: PaddedFactors | None
    _panels: TopNIndex | None

    def __init__(self) -> None:
        raise TypeError("a Recommender is made by Recommender.load(path), or by model.recommender()")

    @classmethod
    def _made(cls, n_jobs: int | None) -> Self:
        made = cls.__new__(cls)
        made.n_jobs, made._factors, made._panels = n_jobs, None, None
        return made

    @classmethod
    def load(cls, path: str | Path, *, n_jobs: int | None = None) -> Self:
        """Read a model that `MatrixFactorization.save` wrote.

        Parameters
        ----------
        path : str or Path
            The file.
        n_jobs : int or None, default None
            Threads; None uses every core that this process may use. Never changes the answer.
        """
        made = cls._made(n_jobs)
        made._take(read_fitted(path, state=False))
        return made

    @classmethod
    def of(cls, model: Any) -> Self:
        """The factors of a fitted estimator, as they are now.

        Parameters
        ----------
        model : MatrixFactorization
            The estimator.
        """
        made = cls._made(model.n_jobs if model.n_jobs != "auto" else None)
        made._take(FittedFile.of(model, values=model._values() is not None))
        return made

    def _take(self, file: FittedFile) -> None:
        for name in _ARRAYS:
            setattr(self, name, file.attributes[name])
        self.user_feature_map_ = file.attributes["user_feature_map_"]
        self._file = file

    def __repr__(self) -> str:
        users, items = len(self.user_factors_), len(self.item_factors_)
        return f"Recommender({users:,} users, {items:,} items, {self.user_factors_.shape[1]} components)"

    @property
    def user_ids_(self) -> IdMap | None:  # type: ignore[override]
        """Ids of the rows, where the data had them."""
        return self._file.ids("user_ids_")

    @property
    def item_ids_(self) -> IdMap | None:  # type: ignore[override]
        """Ids of the columns, where the data had them."""
        return self._file.ids("item_ids_")

    @property
    def has_ratings(self) -> bool:
        """Whether the values of the training ratings are known, as `explain_recommendation` needs them."""
        return self._file.values is not None

    @property
    def _learned(self) -> FittedProblem:  # type: ignore[override]
        return self._file.learned()

    def _require_fitted(self) -> None:
        pass

    def _here(self) -> Runtime:
        from stretto.models import checks

        return checks.here(None, self.n_jobs, owner="Recommender")

    def seen(self) -> RatedItems:
        return self._file.seen()

    def _ratings_of(self, row: int) -> tuple[NDArray[np.int32], Floats] | None:
        seen, values = self._file.seen(), self._file.values
        if values is None:
            return None
        at = slice(*seen.indptr[row : row + 2])
        return seen.indices[at], values[at]

    def _padded(self) -> PaddedFactors:
        if self._factors is None:
            self._factors = super()._padded()
        return self._factors

    def _index(self, model: PaddedFactors, crew: Crew) -> TopNIndex:
        if self._panels is None:
            self._panels = super()._index(model, crew)
        return self._panels
