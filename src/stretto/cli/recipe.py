"""A recipe: what a run was asked to do, complete enough to do it again.

It is kept in the run record, where `resume` finds it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stretto.errors import DataError, RunError

if TYPE_CHECKING:
    from stretto.data.data import Data
    from stretto.models.factorization import MatrixFactorization
    from stretto.runtime.train import Saving

_KEY = "recipe"
_DEFAULT_READ = {"format": "auto", "duplicates": "error", "on_error": "raise"}
_EVERY = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([a-z]*)\s*")
_EPOCHS = ("", "epoch", "epochs")
_SECONDS = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1),
    **dict.fromkeys(("min", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hour", "hours"), 3600),
}


@dataclass(frozen=True)
class Recipe:
    """What to train, on what.

    file: where the ratings are. read: options of `stretto.read`. test: share held out. parameters: of the estimator.
    memory: budget within which a file is streamed from disk instead of being read.
    """

    file: str
    read: Mapping[str, str]
    test: float
    parameters: Mapping[str, Any]
    checkpoint_every: str | None = None
    memory: str | None = None

    @property
    def epochs(self) -> int:
        return int(self.parameters["epochs"])

    @property
    def epochs_are_planned(self) -> bool:
        """Whether the number of epochs decides the steps, so that a longer run is another run from its beginning."""
        return bool(self.parameters["solver"] == "sgd" and self.parameters["schedule"] == "linear")

    def ratings(self) -> Data | str:
        """The ratings, read; or, to be streamed, the file's name."""
        if self.memory is None:
            from stretto.data.read import read

            return read(self.file, **self.read)  # type: ignore[arg-type]
        from stretto.plan.cost import parse_bytes

        parse_bytes(self.memory)  # a wrong budget is told before any work
        if dict(self.read) != _DEFAULT_READ:
            raise DataError(
                "--memory streams the file as it is; --format, --duplicates and --on-error need it in memory: "
                "leave them out, or leave --memory out"
            )
        return self.file

    def model(self, workers: int | None) -> MatrixFactorization:
        """A fresh estimator. A policy for duplicates was applied in reading; here they are only checked for."""
        from stretto.models.factorization import MatrixFactorization

        duplicates = "keep" if self.read["duplicates"] == "keep" else "error"
        return MatrixFactorization(**self.parameters, duplicates=duplicates, n_jobs=workers, memory=self.memory)

    def saving(self, run: Path) -> Saving:
        """When checkpoints are saved, under the run's folder."""
        from stretto.runtime.train import Saving

        epochs, seconds = parse_every(self.checkpoint_every)
        return Saving(run / "checkpoints", epochs, seconds)

    def config(self) -> dict[str, Any]:
        """What the run record keeps."""
        return {_KEY: {**asdict(self), "file": outright(self.file)}}

    @classmethod
    def of(cls, config: Mapping[str, Any], run: Path) -> Recipe:
        """The recipe in a run's configuration."""
        try:
            return cls(**config[_KEY])
        except (KeyError, TypeError) as error:
            raise RunError(
                f"{run} was not made by `stretto train`, or by another version of it: its run.json holds no recipe; "
                "go on with the program that made it"
            ) from error


def outright(file: str) -> str:
    """The file by a name that means the same from any folder."""
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
