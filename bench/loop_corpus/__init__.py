"""Loops from textbooks, as their authors would write them first, beside Numba.

Tensors, ranking, dynamic programming, grids, graphs, mixtures, text, regression, linear algebra, simulation: written
before it was known what the compiler takes. A loop that is refused, or runs on one worker with a warning, stays, with
what its message advises; the version that follows the advice is named in the last column and has a line of its own.
The second lot was written later and counted before anything was changed for it.

`ours`: the whole call at one and at two threads, with its arguments prepared by an earlier call. `strict Numba`: the
same serial algorithm written by hand for Numba (the body itself, where that is how one would write it) with
`error_model="numpy"` and without `fastmath`; `fastmath Numba`: the same kernel with it; `plain Numba`: the body as it
stands under `numba.njit`. One thread is timed by the processor's clock, two by the wall's; the least of several
rounds in turns, in milliseconds. `strict / ours`: the time of strict Numba over ours at one thread; above 1, ours is
faster. `first call`: seconds of the first call of ours and of strict Numba, which compile. `equal bits`: whether 1, 2
and 4 workers had the bits of the reference interpreter, on small data.
"""

from . import dynamic, graphs, grids, linear, mixtures, ranking, regression, second, simulation, tensors, text
from .entry import CorpusLoop

THEMES = {
    "tensors": tensors,
    "ranking": ranking,
    "dynamic programming": dynamic,
    "grids": grids,
    "graphs": graphs,
    "mixtures and hidden states": mixtures,
    "text": text,
    "regression": regression,
    "linear algebra": linear,
    "simulation and series": simulation,
    "second lot": second,
}


def corpus() -> dict[str, CorpusLoop]:
    """Every loop by its name."""
    return {loop.name: loop for theme in THEMES.values() for loop in theme.LOOPS}


def main(arguments: list[str]) -> None:
    """Measure every loop and write the table; `--only NAME …` prints some lines and writes nothing."""
    from .page import main

    main(arguments)
