"""`CorpusLoop`: a loop as its author would write it first, with data and a serial kernel written by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import stretto as st
from stretto.data.records.record_sets import RecordsBase
from stretto.data.records.records import Column
from stretto.state.accumulator import Accumulator
from stretto.state.buffer import Buffer
from stretto.state.state import State


@dataclass(frozen=True)
class CorpusLoop:
    """One loop of the corpus.

    Parameters
    ----------
    function : callable
        The loop, undecorated.
    make : callable
        make(rng, *sizes) returns the arguments of a call by name.
    small, large : tuple of int
        Sizes for checking and for timing.
    hand : callable or None
        The same serial algorithm as a Numba programmer would write it, over `flat(arguments, buffers=False)`; None
        where it is the body itself.
    options : dict
        Options of `st.parallel`.
    refused : str
        Part of the message of a loop that is refused, the advice or the reason; "" for the others.
    warns : str
        Part of the warning of a loop that runs on one worker, at the small sizes; "" for the others.
    instead : str
        Name of the loop that follows the advice of the refusal or the warning; "" if there is none.
    follows : bool
        Whether the loop follows such advice.
    lot : int
        1 for loops that were written before the compiler took them, 2 for those that were added later and counted
        before anything was changed for them.
    title : str
        Name of a loop that shares its function with another; the function's name unless given.
    tolerance : float
        How far floats may be from those of plain Python, relative to the largest of the array.
    """

    function: Callable[..., None]
    make: Callable[..., dict[str, Any]]
    small: tuple[int, ...]
    large: tuple[int, ...]
    hand: Callable[..., None] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    refused: str = ""
    warns: str = ""
    instead: str = ""
    follows: bool = False
    lot: int = 1
    title: str = ""
    tolerance: float = 1e-10

    @property
    def name(self) -> str:
        return self.title or self.function.__name__

    @property
    def serial(self) -> bool:
        """Whether the result is that of a serial execution; writes through buffers are seen later."""
        return not any(isinstance(value, Buffer) for value in self.arguments(self.small).values())

    def arguments(self, sizes: tuple[int, ...], seed: int = 0) -> dict[str, Any]:
        """Arguments of a call, the same for the same sizes and seed."""
        return self.make(np.random.default_rng(seed), *sizes)

    def loop(self) -> Any:
        """The loop, decorated."""
        return st.parallel(**self.options)(self.function)


def flat(arguments: dict[str, Any], buffers: bool = True) -> list[Any]:
    """Arguments as Numba takes them: arrays and numbers; records as their index arrays, then their columns.

    A ragged column is its bounds and then its parts; an accumulator of one number is an array of one element. Buffers,
    which kernels by hand do without, are the arrays behind them or left out.
    """
    found: list[Any] = []
    for value in arguments.values():
        if isinstance(value, RecordsBase):
            records = value.records()
            found += records.index
            for column in records.columns:
                found += [column.values] if isinstance(column, Column) else [column.ptr, *column.parts]
        elif isinstance(value, Accumulator):
            found.append(value.array.reshape(value.shape or 1))
        elif isinstance(value, Buffer):
            found += [value.target] if buffers else []
        else:
            found.append(value.array if isinstance(value, State) else value)
    return found
