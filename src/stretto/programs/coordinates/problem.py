"""`CoordinateProgramBase`: data, penalty and objective of a sparse regression, and how its rounds are cut."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.design.design import Design
from stretto.errors import DataError
from stretto.programs.base import ProgramBase
from stretto.programs.values import RunOptions
from stretto.schedule.columns import Columns, columns_of
from stretto.schedule.prioritised import prioritised
from stretto.schedule.spec import Schedule

from .arguments import MOST_BLOCKS, check_options, checked_schedule, row_blocks, target_of
from .state import CoordinateState, Cut

_JOBS_OF_TASK = 4
_ENTRIES_OF_BLOCK = 8  # of a column, on average; with fewer, cutting columns into blocks costs more than it gives


class CoordinateProgramBase(ProgramBase):
    """The problem of an `st.SparseRegression`, which documents the parameters."""

    def __init__(
        self,
        X: Any,
        y: Any,
        alpha: float,
        *,
        l1_ratio: float = 1.0,
        loss: str = "squared",
        intercept: bool = False,
        schedule: Schedule | str | None = None,
        by: str = "auto",
        blocks: int | None = None,
    ) -> None:
        check_options(loss, by, alpha, l1_ratio)
        self.schedule = prioritised() if schedule is None else checked_schedule(schedule)
        self.design = Design.of(X)
        if not self.design.shape[0]:
            raise DataError("SparseRegression: X has no rows; give it at least one sample")
        self.y = target_of(y, self.design.shape[0], loss)
        self.alpha, self.l1_ratio, self.loss, self.intercept = float(alpha), float(l1_ratio), loss, intercept
        self.by, self.blocks = by, row_blocks(blocks, self.design.shape[0])
        self.columns: Columns = columns_of(self.design, centred=intercept)
        self.size = self.design.shape[1]
        self.params: dict[str, NDArray[Any]] = {
            "coef": np.zeros(self.size),
            "intercept": np.full(1, self.y.mean() if intercept and loss == "squared" else 0.0),
            "fitted": np.zeros(self.design.shape[0]),
        }

    @property
    def penalty(self) -> tuple[float, float]:
        """Weights of ‖w‖₁ and ½‖w‖² in n times the objective."""
        scale = self.design.shape[0] * self.alpha
        return scale * self.l1_ratio, scale * (1.0 - self.l1_ratio)

    def cut(self, width: int) -> tuple[Cut, str]:
        """How a round is cut into tasks, and why.

        Parameters
        ----------
        width : int
            Coordinates of a round.
        """
        rows, size = self.design.shape
        blocks = self.blocks
        each = self.design.nnz / max(1, size) / blocks
        by_rows = self.by == "rows"
        why = "as asked"
        if self.by == "auto":
            by_rows = blocks > 1 and each >= _ENTRIES_OF_BLOCK
            enough = "enough to be worth" if by_rows else "too few to be worth"
            why = f"a column has {each:,.0f} entries in each of {blocks} blocks of rows on average, {enough} cutting"
            if blocks == 1:
                why = f"{rows:,} samples are too few to be cut"
        return Cut(by_rows, blocks, blocks if by_rows else max(1, min(MOST_BLOCKS, width // _JOBS_OF_TASK))), why

    def _check(self) -> None:
        """Nothing to do: the constructor checks all arguments, and the program has no functions of the user's."""

    def _state(self, options: RunOptions, cut: int, width: int, queues: int = 1) -> CoordinateState:
        """The arrays of a run. cut: width of a round, which decides how it is cut; queues: number of schedulers."""
        return CoordinateState(
            self.columns, self.y, self.cut(cut)[0], self.params, loss=self.loss, penalty=self.penalty,
            depth=options.pipeline, width=width, queues=queues,
        )  # fmt: skip

    def fingerprint(self, pipeline: int = 1, seed: int = 0) -> str:
        """A short hash of everything that can change a number: same fingerprint, same bits.

        Parameters
        ----------
        pipeline : int, default 1
            Pipeline depth.
        seed : int, default 0
            Seed of the run.
        """
        width = getattr(self.schedule, "width", 0) or 0
        said = (self.alpha, self.l1_ratio, self.loss, self.intercept, self.schedule, self.cut(width)[0], pipeline, seed)
        digest = hashlib.sha256(repr(said).encode())
        columns, start = self.columns, (self.params["coef"], self.params["intercept"])
        for array in (columns.values, columns.indices, columns.indptr, self.y, *start):
            digest.update(f"{array.dtype}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()[:16]

    def objective(self, data: Any, params: Any) -> float:
        """(1/n) Σ loss + penalty.

        Parameters
        ----------
        data : object
            The samples.
        params : mapping
            The arrays that are learned.
        """
        z, beta = params["fitted"] + params["intercept"][0], params["coef"]
        loss = 0.5 * (self.y - z) ** 2 if self.loss == "squared" else np.logaddexp(0.0, -self.y * z)
        l1, l2 = self.penalty
        return float((loss.sum() + l1 * np.abs(beta).sum() + 0.5 * l2 * (beta @ beta)) / len(self.y))
