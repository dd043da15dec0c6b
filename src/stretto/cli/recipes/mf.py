"""Recipe of `stretto train mf`: reads a ratings file and fits a matrix factorisation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

from stretto.cli.reading import READING, plain, reading, refuse_reading

from .recipe import Recipe, outright

if TYPE_CHECKING:
    from stretto.data.records.data import Data
    from stretto.models.factorization.estimator import MatrixFactorization
    from stretto.plan.plan import Plan
    from stretto.runtime.session import Session

_FEW = 1000  # ratings, of which a tenth by chance may be none


@dataclass(frozen=True, kw_only=True)
class MfRecipe(Recipe):
    """The settings of `stretto train mf`."""

    kind: ClassVar[str] = "mf"
    unit: ClassVar[str] = "ratings"
    read: Mapping[str, Any]  # arguments of `stretto.read` that differ from its defaults
    user_features: str | None = None  # paths of CSV files
    item_features: str | None = None

    @property
    def epochs_are_planned(self) -> bool:
        from stretto.solvers.factorization.problem import FactorizationProblem

        given = {name: self.parameters[name] for name in ("solver", "schedule", "optimizer")}
        falls = ("linear", "adaptive")
        return given["solver"] == "sgd" and FactorizationProblem(self.parameters["n_components"], **given).fall in falls

    def data(self) -> Data | str:
        if self.memory is None:
            from stretto.data.reading.read import read

            return read(self.file, **self.read)
        from stretto.checks import parse_bytes

        parse_bytes(self.memory)  # reports a wrong budget before any work
        refuse_reading(self.read)
        return self.file

    def fit(self, model: Any, data: Any, session: Session) -> None:
        model.fit(data, validation=self.test or None, session=session, **self._features())

    def plan(self, model: Any, data: Any) -> Plan:
        return cast("Plan", model.plan(data, validation=self.test or None, **self._features()))

    def _features(self) -> dict[str, str | None]:
        return {"user_features": self.user_features, "item_features": self.item_features}

    def settled(self, data: Data | str) -> MfRecipe:
        """By default a tenth of the ratings is held out; of a few ratings, none, where that would be none or all."""
        if self.test is not None:
            return self
        from stretto.data.records.data import held_out

        share = 0.1
        if not isinstance(data, str) and len(data) < _FEW:
            chosen = held_out(0, len(data), share, self.model(None)._seed())
            share = share if chosen.any() and not chosen.all() else 0.0
        return replace(self, test=share)

    def size(self, data: Data | str) -> str:
        if isinstance(data, str):
            return "streamed from disk"
        return f"{data.shape[0]:,} × {data.shape[1]:,}, {len(data):,} ratings"

    def model(self, workers: int | None) -> MatrixFactorization:
        """A fresh estimator. A policy for duplicates was applied in reading; here they are only checked for."""
        from stretto.models.factorization.estimator import MatrixFactorization

        duplicates = "keep" if self.read.get("duplicates") == "keep" else "error"
        return MatrixFactorization(**self.parameters, duplicates=duplicates, n_jobs=workers, memory=self.memory)

    def use(self, run: str) -> str:
        return f"stretto recommend {run} --some 3"


# Options that are parameters of the estimator, by the names it has for them.
_PARAMETERS = {
    name: name
    for name in (
        *("loss", "biases", "implicit", "alpha", "negatives", "solver", "learning_rate"),
        *("schedule", "optimizer", "width", "profile", "early_stopping"),
    )
} | {
    "rank": "n_components",
    "reg": "l2_regularization",
    "bias_reg": "bias_l2_regularization",
    "epochs": "max_iter",
    "seed": "random_state",
}


def mf_recipe(
    *,
    file: str,
    test: float | None,
    checkpoint_every: str | None,
    memory: str | None,
    user_features: str | None = None,
    item_features: str | None = None,
    **asked: Any,
) -> Recipe:
    """The recipe of the options of `stretto train mf`."""
    return MfRecipe(
        file=file,
        read=reading(**{name: asked[name] for name in READING}),
        test=test,
        parameters={name: plain(asked[option]) for option, name in _PARAMETERS.items()},
        checkpoint_every=checkpoint_every,
        memory=memory,
        user_features=None if user_features is None else outright(user_features),
        item_features=None if item_features is None else outright(item_features),
    )
