"""`Recipe`: the complete settings of a training run, stored in the run record so that it can be repeated.

`resume` reads it from the run record. This class has what every model needs; how one model reads its file, and which
files it writes, is defined in its own module: `cli.recipes.mf`, `cli.recipes.lda`.
"""

from __future__ import annotations

import importlib
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from stretto.errors import DataError, RunError

if TYPE_CHECKING:
    from stretto.plan.plan import Plan
    from stretto.runtime.files.run_checkpoints import Saving
    from stretto.runtime.session import Session

_KEY, _MODEL = "recipe", "model"
_KINDS = {
    "mf": "mf:MfRecipe",
    "lda": "lda:LdaRecipe",
    "lasso": "linear:LassoRecipe",
    "logistic": "linear:LogisticRecipe",
}
_EVERY = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([a-z]*)\s*")
_EPOCHS = ("", "epoch", "epochs")
_SECONDS = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1),
    **dict.fromkeys(("min", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hour", "hours"), 3600),
}


@dataclass(frozen=True, kw_only=True)
class Recipe(ABC):
    """The settings of a training run."""

    kind: ClassVar[str]  # as in `stretto train KIND`
    unit: ClassVar[str]  # what an epoch passes over
    step: ClassVar[str] = "epoch"
    draws: ClassVar[bool] = True  # whether its plan has a picture
    converges: ClassVar[bool] = False  # whether it ends by itself, before `epochs`
    file: str  # path of the data
    test: float | None  # share held out; None: the model's default (`settled`)
    parameters: Mapping[str, Any]  # of the estimator
    checkpoint_every: str | None = None
    memory: str | None = None  # budget within which a file is streamed from disk instead of being read

    @abstractmethod
    def data(self) -> Any:
        """The data to fit, read into memory; or the file's name, if it is streamed."""

    def settled(self, data: Any) -> Recipe:
        """The recipe with the settings that depend on the data filled in."""
        return self

    @abstractmethod
    def size(self, data: Any) -> str:
        """The size of the data, in words."""

    @abstractmethod
    def model(self, workers: int | None) -> Any:
        """A fresh estimator."""

    @abstractmethod
    def use(self, run: str) -> str:
        """A command that uses the model in the folder `run`."""

    def fit(self, model: Any, data: Any, session: Session) -> None:
        model.fit(data, validation=self.test or None, session=session)

    def plan(self, model: Any, data: Any) -> Plan:
        """The plan that `fit` runs."""
        return cast("Plan", model.plan(data, validation=self.test or None))

    def finish(self, model: Any, data: Any, folder: Path, *, quiet: bool) -> list[str]:
        """Write and show further results besides model and record; returns the names of what was written."""
        return []

    def scores(self, model: Any, data: Any) -> dict[str, float] | None:
        """Scores of the model on the part held out, which are not among the metrics of epochs; None: none are."""
        return None

    @property
    def epochs(self) -> int:
        return int(self.parameters["max_iter"])

    @property
    def epochs_are_planned(self) -> bool:
        """Whether the steps depend on the number of epochs, so that a longer run differs from its beginning."""
        return False

    def lasting(self, epochs: int) -> Recipe:
        """The recipe with another number of epochs, which agrees with this one in those that both have."""
        return replace(self, parameters={**self.parameters, "max_iter": epochs})

    def saving(self, run: Path) -> Saving:
        """When checkpoints are saved, under the run's folder."""
        from stretto.runtime.files.run_checkpoints import Saving

        epochs, seconds = parse_every(self.checkpoint_every)
        return Saving(run / "checkpoints", epochs, seconds)

    def config(self) -> dict[str, Any]:
        """What the run record keeps."""
        return {_KEY: {_MODEL: self.kind, **asdict(self), "file": outright(self.file)}}

    @staticmethod
    def of(config: Mapping[str, Any], run: Path) -> Recipe:
        """The recipe in a run's configuration."""
        from stretto.models.renamed import under_current_names

        try:
            told = dict(config[_KEY])
            told["parameters"] = under_current_names(told["parameters"])
            module, name = _KINDS[told.pop(_MODEL, "mf")].split(":")
            found: Recipe = getattr(importlib.import_module(f".{module}", __package__), name)(**told)
        except (KeyError, TypeError) as error:
            raise RunError(
                f"{run} was not made by `stretto train`, or by another version of it: its run.json holds no recipe; "
                "go on with the program that made it"
            ) from error
        return found


def outright(file: str) -> str:
    """The file by an absolute path or URL."""
    return file if "://" in file else os.path.abspath(file)


def parse_every(text: str | None) -> tuple[int | None, float | None]:
    """(epochs, seconds) of a checkpoint interval; one of them, or neither, is None.

    >>> parse_every("5 epochs"), parse_every("30s"), parse_every("2min"), parse_every(None)
    ((5, None), (None, 30.0), (None, 120.0), (None, None))
    """
    if text is None:
        return None, None
    match = _EVERY.fullmatch(text.lower())
    if match is not None:
        number, unit = float(match[1]), match[2]
        if unit in _EPOCHS and number >= 1 and number == int(number):
            return int(number), None
        if unit in _SECONDS and number > 0:
            return None, number * _SECONDS[unit]
    raise DataError(f"cannot read {text!r} as a checkpoint interval; write '5 epochs', '30s' or '10min'")
