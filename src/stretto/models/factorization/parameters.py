"""The parameters of `MatrixFactorization`: their checks, and the problem and runtime that they describe."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stretto.checks import parse_bytes
from stretto.data.records.duplicates import POLICIES
from stretto.data.records.ids import IdMap
from stretto.kernels.core.profiles import PROFILES
from stretto.models import checks
from stretto.models.options import refuse_unused
from stretto.models.renamed import RenamedParameters
from stretto.models.sklearn_base import (
    BaseEstimator,
    CallbackSupportMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from stretto.plan.plan import Plan
from stretto.runtime.blocks.source import EntrySource
from stretto.runtime.runtimes import Runtime
from stretto.solvers.factorization.problem import FactorizationProblem, parameter_of
from stretto.solvers.factorization.rated_items import RatedItems

from .fitted_problem import FittedProblem
from .options import unused_options
from .side.feature_map import FeatureMap


class FactorizationParameters(
    RenamedParameters,
    CallbackSupportMixin,  # type: ignore[misc]
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """The parameters of `st.MatrixFactorization`, which documents them, and what follows from them."""

    # The parameters, which the constructor of the estimator takes.
    n_components: int
    solver: str
    loss: str
    l2_regularization: float | None
    bias_l2_regularization: float | None
    max_iter: int
    learning_rate: float | None
    schedule: str | None
    optimizer: str
    biases: bool
    implicit: bool
    alpha: float
    negatives: int | None
    linear_solver: str
    inner: int
    init_scale: float | None
    early_stopping: bool | str
    validation_fraction: float
    n_iter_no_change: int
    tol: float
    warm_start: bool
    duplicates: str
    width: int
    profile: str
    random_state: Any
    n_jobs: int | Literal["auto"] | None
    runtime: Runtime | None
    memory: int | str | None
    verbose: int

    # What a fit leaves.
    user_factors_: NDArray[np.float32]
    item_factors_: NDArray[np.float32]
    user_bias_: NDArray[np.float32]
    item_bias_: NDArray[np.float32]
    mean_: float
    scale_: float
    confidence_: float
    n_ratings_: int
    n_iter_: int
    n_features_in_: int
    history_: list[dict[str, float]]
    plan_: Plan
    fingerprint_: str
    user_ids_: IdMap | None
    item_ids_: IdMap | None
    squares_: dict[str, NDArray[np.float32]]
    user_feature_map_: FeatureMap | None
    item_feature_map_: FeatureMap | None
    _learned: FittedProblem
    _seen: RatedItems | None
    _trained_on: EntrySource | None

    def _policy(self) -> str:
        # Laying out the blocks finds repeated pairs at no cost; finding them earlier would need a sort.
        return "keep" if self.duplicates == "error" else self.duplicates

    def _budget(self) -> int | None:
        return None if self.memory is None else parse_bytes(self.memory)

    def _seed(self) -> int:
        return checks.seed(self.random_state, owner=type(self).__name__)

    def _problem(self) -> FactorizationProblem:
        """The problem that the parameters describe; PlanError for a wrong parameter, or one without effect."""
        given = self.get_params(deep=False)
        names = {field.name: parameter_of(field.name) for field in fields(FactorizationProblem)}
        problem = FactorizationProblem(**{name: given[own] for name, own in names.items() if own in given}).checked()
        check = checks.of(self)
        check.choice("profile", self.profile, PROFILES)
        check.choice("duplicates", self.duplicates, POLICIES)
        check.flags(warm_start=self.warm_start)
        if isinstance(self.early_stopping, str):
            from stretto.solvers.factorization.watched import metric_of

            metric_of(self.early_stopping)
        else:
            check.flags(early_stopping=self.early_stopping)
        check.number("width", self.width, least=1, whole=True)
        check.number("n_iter_no_change", self.n_iter_no_change, least=1, whole=True)
        check.number("tol", self.tol, least=0)
        check.number("validation_fraction", self.validation_fraction, above=0, below=1)
        check.level(self.verbose)
        self._budget()
        self._runtime()
        refuse_unused(self, unused_options(given), chosen=f"solver={self.solver!r}")
        # Least squares count every pair of implicit feedback, seen or not: there is no bias to learn.
        return replace(problem, biases=False) if problem.implicit and not problem.ranking else problem

    def _runtime(self, other: Any = None) -> Runtime:
        """The runtime: `other` if given, else from the parameters."""
        given = self.runtime if other is None else other
        return checks.place(given, self.n_jobs, owner=type(self).__name__)

    def _here(self) -> Runtime:
        """The runtime for using a fitted model: this machine, even if it was trained on a cluster."""
        return checks.here(self.runtime, self.n_jobs, owner=type(self).__name__)

    def _is_fitted(self) -> bool:
        return hasattr(self, "user_factors_")

    __sklearn_is_fitted__ = _is_fitted
