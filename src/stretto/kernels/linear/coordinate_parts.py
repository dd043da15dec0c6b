"""Kernels that run the stages of `coordinate` separately, for rounds that several processes share.

A node holds a `CoordinateProblem` of its own part of the data: some rows and all columns, or all rows and some columns.
The driver holds one with the ring buffers of all parts. Arithmetic and bits are those of the engine in one process.
"""

from __future__ import annotations

from stretto.kernels.core.compile import kernel

from . import coordinate


@kernel
def rows_round(problem, slot):
    """Gather all jobs of a round over a block of rows."""
    coordinate.gather_rows(problem, slot, 0)


@kernel
def columns_round(problem, slot):
    """Gather all jobs of a round over the columns of a part."""
    coordinate.gather_columns(problem, slot, 0, 1)


@kernel
def renew_round(problem, t, depth):
    """Add up the sums of round t and update β."""
    coordinate.renew(problem, t, depth)


@kernel
def apply_round(problem, t, first, end):
    """Add the changes of round t to the row blocks first … end − 1."""
    for b in range(first, end):
        coordinate.apply_changes(problem, t, b)
