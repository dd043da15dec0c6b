"""Loops from textbooks, as their authors would write them first, beside Numba."""

from . import dynamic, graphs, grids, linear, mixtures, ranking, regression, simulation, tensors, text
from .entry import CorpusLoop

THEMES = {
    "tensors": tensors, "ranking": ranking, "dynamic programming": dynamic, "grids": grids, "graphs": graphs,
    "mixtures and hidden states": mixtures, "text": text, "regression": regression, "linear algebra": linear,
    "simulation and series": simulation,
}  # fmt: skip


def corpus() -> dict[str, CorpusLoop]:
    """Every loop by its name."""
    return {loop.name: loop for theme in THEMES.values() for loop in theme.LOOPS}
