"""Validation of the arguments of `SparseRegression`."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from stretto.checks import whole
from stretto.errors import DataError, PlanError
from stretto.schedule.automatic.auto import ready_schedule
from stretto.schedule.checks import uncalled
from stretto.schedule.spec import Floats, Schedule

LOSSES = ("squared", "logistic")
WAYS = ("auto", "rows", "columns")
MOST_BLOCKS, _ROWS_OF_BLOCK = 16, 256


def check_options(loss: Any, by: Any, alpha: Any, l1_ratio: Any) -> None:
    """Refuse unknown losses and ways to sum, and penalties out of range."""
    if loss not in LOSSES:
        raise PlanError(f"SparseRegression: loss={loss!r} is not one of {', '.join(LOSSES)}")
    if by not in WAYS:
        raise PlanError(f"SparseRegression: by={by!r} is not one of {', '.join(WAYS)}")
    numbers = all(isinstance(value, Real) for value in (alpha, l1_ratio))
    if not numbers or not (np.isfinite(alpha) and alpha >= 0) or not 0 <= l1_ratio <= 1:
        raise PlanError(
            f"SparseRegression: alpha is 0 or more and l1_ratio from 0 to 1, got alpha={alpha!r}, l1_ratio={l1_ratio!r}"
        )


def row_blocks(blocks: Any, rows: int) -> int:
    """The number of row blocks."""
    if blocks is None:
        return max(1, min(MOST_BLOCKS, rows // _ROWS_OF_BLOCK))
    count = whole("blocks", blocks, 1, "SparseRegression")
    if count > rows:
        raise PlanError(f"SparseRegression: blocks={count}, and X has {rows} rows; give at most {rows}")
    return count


def checked_schedule(schedule: Any) -> Schedule:
    """Return the schedule; refuse one that cannot choose single coordinates."""
    schedule = ready_schedule(schedule)
    if instead := uncalled(schedule):
        raise PlanError(f"SparseRegression: schedule is a function that makes one; write schedule={instead}")
    if not isinstance(schedule, Schedule):
        raise PlanError(
            f"SparseRegression: schedule={schedule!r} does not choose rounds; give one that does, such as "
            "st.schedule.prioritised()"
        )
    if schedule.waiting is not None:
        raise PlanError(
            f"SparseRegression: jobs of {schedule!r} are blocks that wait for each other, and those of a regression "
            "are single coordinates; take another schedule, such as st.schedule.prioritised()"
        )
    return schedule


def target_of(y: Any, rows: int, loss: str) -> Floats:
    """y as float64, checked; the logistic loss wants −1 and 1."""
    target = np.ascontiguousarray(y, dtype=np.float64)
    if target.shape != (rows,):
        raise DataError(f"y has shape {target.shape}, and X has {rows} rows; give one number for each row")
    if not np.isfinite(target).all():
        raise DataError(f"y holds NaN or infinity at row {int(np.flatnonzero(~np.isfinite(target))[0])}")
    if loss == "logistic":
        found = set(np.unique(target).tolist())
        if found <= {0.0, 1.0}:
            target = 2.0 * target - 1.0
        elif not found <= {-1.0, 1.0}:
            raise DataError("the logistic loss takes y of −1 and 1, or of 0 and 1; encode the classes first")
    return target
