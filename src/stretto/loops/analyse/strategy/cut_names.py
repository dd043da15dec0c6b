"""Names of what a loop is cut along: indices, and linear expressions of them."""

from __future__ import annotations

from collections.abc import Sequence

from ..analysis import Analysis


def in_words(row: Sequence[int], names: Sequence[str]) -> str:
    """A row of a matrix as a linear expression.

    >>> in_words((1, -2), ("i", "j")), in_words((0, 1), ("i", "j"))
    ('i - 2j', 'j')
    """
    text = ""
    for factor, name in zip(row, names, strict=True):
        if factor:
            sign = ("- " if factor < 0 else "+ ") if text else ("-" if factor < 0 else "")
            text += f"{' ' if text else ''}{sign}{'' if abs(factor) == 1 else abs(factor)}{name}"
    return text


def cut_names(analysis: Analysis) -> tuple[str, ...]:
    """What is cut into blocks, along the rows and along the columns of the grid: i and j, or i and i + j."""
    strategy = analysis.strategy
    names = tuple(analysis.space.dims[dim].name for dim in strategy.dims)
    if strategy.transform:
        return tuple(in_words(row, names) for row in strategy.transform)
    return names or ("records",)
