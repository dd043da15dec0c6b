"""Recipes of `stretto train lasso` and `stretto train logistic`: read samples from a file and fit a linear model."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from stretto.cli.reading import plain
from stretto.errors import DataError

from .recipe import Recipe

if TYPE_CHECKING:
    from stretto.cli.samples.read import Samples
    from stretto.plan.plan import Plan
    from stretto.runtime.session import Session

COEFFICIENTS, SCORES = "coefficients.csv", "scores.json"
_SHARE, _FEW = 0.1, 50  # held out by default; of fewer samples none


@dataclass(frozen=True, kw_only=True)
class LinearRecipe(Recipe):
    """The settings that both trainings have."""

    unit: ClassVar[str] = "values"
    step: ClassVar[str] = "round"
    draws: ClassVar[bool] = False
    converges: ClassVar[bool] = True
    target: str | None = None  # the column that is predicted
    drop: tuple[str, ...] = ()  # columns that are left out
    on_error: str = "raise"  # with a missing value

    def data(self) -> Samples:
        from stretto.cli.samples.read import read_samples

        return read_samples(self.file, target=self.target, drop=tuple(self.drop), on_error=self.on_error)

    def settled(self, data: Samples) -> LinearRecipe:
        if self.test is not None:
            return self
        return replace(self, test=_SHARE if len(data.y) >= _FEW else 0.0)

    def size(self, data: Samples) -> str:
        n, p = data.X.shape
        return f"{n:,} samples × {p:,} features"

    def fit(self, model: Any, data: Samples, session: Session) -> None:
        train, _ = self.parts(data)
        model.fit(train.X, train.y, session=session)

    def plan(self, model: Any, data: Samples) -> Plan:
        train, _ = self.parts(data)
        made: Plan = model.plan(train.X, train.y)
        return made

    def parts(self, data: Samples) -> tuple[Samples, Samples]:
        """(training part, held-out part): by a hash of the position and the seed."""
        from stretto.data.records.data import held_out

        held = held_out(0, len(data.y), self.test or 0.0, int(self.parameters["random_state"]))
        if self.test and (held.all() or not held.any()):
            raise DataError(
                f"--test {self.test:g} holds out {held.sum()} of {len(held)} samples; use another share, or 0"
            )
        return data.part(~held), data.part(held)

    def scores(self, model: Any, data: Samples) -> dict[str, float]:
        """Scores of the training part, and of the held-out part if there is one."""
        found: dict[str, float] = {}
        for name, part in zip(("train", "test"), self.parts(data), strict=True):
            if len(part.y):
                found |= {f"{name}_{metric}": value for metric, value in self.measured(model, part).items()}
        return found

    def measured(self, model: Any, part: Samples) -> dict[str, float]:
        """Metrics of a fitted model on some samples."""
        raise NotImplementedError

    def finish(self, model: Any, data: Samples, folder: Path, *, quiet: bool) -> list[str]:
        """Write the coefficients with the names of the features, and the scores."""
        from stretto.atomic import replacing
        from stretto.observe.log import to_json

        with replacing(folder / COEFFICIENTS) as fresh, open(fresh, "w", newline="", encoding="utf-8") as file:
            out = csv.writer(file, lineterminator="\n")
            out.writerow(["class", "feature", "coefficient"])
            out.writerows(_lines(model, data.names))
        with replacing(folder / SCORES) as fresh:
            fresh.write_bytes(to_json(self.scores(model, data)) + b"\n")
        return [COEFFICIENTS, SCORES]

    def use(self, run: str) -> str:
        return f"python: st.{type(self).estimator}.load({run + '/model.safetensors'!r}).predict(X)"

    estimator: ClassVar[str]  # its name in `st`


@dataclass(frozen=True, kw_only=True)
class LassoRecipe(LinearRecipe):
    """The settings of `stretto train lasso`."""

    kind: ClassVar[str] = "lasso"
    estimator: ClassVar[str] = "ElasticNet"

    def model(self, workers: int | None) -> Any:
        from stretto.models.linear.lasso import ElasticNet

        return ElasticNet(**self.parameters, n_jobs=workers)

    def data(self) -> Samples:
        found = super().data()
        if found.y.dtype.kind not in "biuf":
            raise DataError(
                f"{self.file}: the target holds text, such as {str(found.y[0])!r}, and a Lasso predicts numbers; name "
                "another column with --target, or use: stretto train logistic"
            )
        return found

    def measured(self, model: Any, part: Samples) -> dict[str, float]:
        y = part.y.astype(np.float64)
        error = y - model.predict(part.X)
        spread = float(np.square(y - y.mean()).sum())
        return {
            "r2": 1.0 - float(np.square(error).sum()) / spread if spread else float("nan"),
            "rmse": float(np.sqrt(np.square(error).mean())),
            "mae": float(np.abs(error).mean()),
        }


@dataclass(frozen=True, kw_only=True)
class LogisticRecipe(LinearRecipe):
    """The settings of `stretto train logistic`."""

    kind: ClassVar[str] = "logistic"
    estimator: ClassVar[str] = "LogisticRegression"

    def model(self, workers: int | None) -> Any:
        from stretto.models.linear.logistic import LogisticRegression

        return LogisticRegression(**self.parameters, n_jobs=workers)

    def data(self) -> Samples:
        found = super().data()
        if found.y.dtype.kind == "f":
            raise DataError(
                f"{self.file}: the target holds fractions, such as {found.y[0]:g}, which are no classes; name another "
                "column with --target, or use: stretto train lasso"
            )
        return found

    def measured(self, model: Any, part: Samples) -> dict[str, float]:
        """Accuracy, and the mean of −log of the probability of the true class; a class unknown to the model counts
        as if it had none of 10⁻¹⁵."""
        shares = model.predict_proba(part.X)
        at = np.searchsorted(model.classes_, part.y).clip(max=len(model.classes_) - 1)
        known = model.classes_[at] == part.y
        share = np.where(known, shares[np.arange(len(at)), at], 0.0)
        return {
            "accuracy": float((model.classes_[shares.argmax(axis=1)] == part.y).mean()),
            "log_loss": float(-np.log(np.maximum(share, 1e-15)).mean()),
        }


def _lines(model: Any, names: list[str]) -> Iterator[tuple[str, str, str]]:
    """(class, feature, coefficient) of every feature and intercept; the class is empty where there is one model."""
    rows, intercepts = np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)
    classes = getattr(model, "classes_", None)
    for k, (row, intercept) in enumerate(zip(rows.tolist(), intercepts.tolist(), strict=True)):
        label = "" if classes is None else str(classes[k if len(rows) > 1 else 1])
        yield label, "(intercept)", repr(intercept)
        for name, value in zip(names, row, strict=True):
            yield label, name, repr(value)


_PARAMETERS = {
    "lasso": ("alpha", "l1_ratio", "positive"),
    "logistic": ("C", "l1_ratio", "class_weight"),
}
_SHARED = {"intercept": "fit_intercept", "seed": "random_state"} | {
    name: name for name in ("standardize", "tol", "max_iter", "profile")
}


def _recipe(kind: type[LinearRecipe], asked: dict[str, Any]) -> LinearRecipe:
    names = {name: name for name in _PARAMETERS[kind.kind]} | _SHARED
    return kind(
        file=asked["file"],
        test=asked["test"],
        target=asked["target"],
        drop=tuple(asked["drop"] or ()),
        on_error=plain(asked["on_error"]),
        parameters={name: plain(asked[option]) for option, name in names.items()},
        checkpoint_every=asked["checkpoint_every"],
    )


def lasso_recipe(**asked: Any) -> Recipe:
    """The recipe of the options of `stretto train lasso`."""
    return _recipe(LassoRecipe, asked)


def logistic_recipe(**asked: Any) -> Recipe:
    """The recipe of the options of `stretto train logistic`."""
    return _recipe(LogisticRecipe, asked)
