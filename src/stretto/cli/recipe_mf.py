"""The recipe of `stretto train mf`: a ratings file in, recommendations out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from stretto.errors import DataError

from .recipe import Recipe

if TYPE_CHECKING:
    from stretto.data.data import Data
    from stretto.models.factorization import MatrixFactorization

_DEFAULT_READ = {"format": "auto", "duplicates": "error", "on_error": "raise"}


@dataclass(frozen=True, kw_only=True)
class MfRecipe(Recipe):
    """Matrix factorisation. read: options of `stretto.read`."""

    kind: ClassVar[str] = "mf"
    unit: ClassVar[str] = "ratings"
    read: Mapping[str, str]

    @property
    def epochs_are_planned(self) -> bool:
        from stretto.models.mf_base import Problem

        given = {name: self.parameters[name] for name in ("rank", "solver", "schedule", "optimizer")}
        return given["solver"] == "sgd" and Problem(**given).fall == "linear"

    def data(self) -> Data | str:
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

    def size(self, data: Data | str) -> str:
        if isinstance(data, str):
            return "streamed from disk"
        return f"{data.shape[0]:,} × {data.shape[1]:,}, {len(data):,} ratings"

    def model(self, workers: int | None) -> MatrixFactorization:
        """A fresh estimator. A policy for duplicates was applied in reading; here they are only checked for."""
        from stretto.models.factorization import MatrixFactorization

        duplicates = "keep" if self.read["duplicates"] == "keep" else "error"
        return MatrixFactorization(**self.parameters, duplicates=duplicates, n_jobs=workers, memory=self.memory)

    def use(self, run: str) -> str:
        return f"stretto recommend {run} --some 3"
