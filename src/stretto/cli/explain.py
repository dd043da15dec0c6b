"""`stretto explain FILE`: the plan of a training, without the training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import options as o
from .show import say

EXAMPLES = (
    "Examples:\n\nstretto explain ratings.dat --rank 64 --workers 16\n\nstretto explain ratings.dat --draw plan.svg"
)


def explain(
    file: o.Ratings,
    rank: o.RankOption = 32,
    solver: o.SolverOption = o.Solver.sgd,
    seed: o.SeedOption = 0,
    width: o.WidthOption = 16,
    profile: o.ProfileOption = o.Profile.exact,
    format: o.FormatOption = o.Format.auto,
    duplicates: o.DuplicatesOption = o.Duplicates.error,
    on_error: o.OnErrorOption = o.OnError.stop,
    workers: o.WorkersOption = None,
    draw: Annotated[Path | None, typer.Option("--draw", help="Draw the plan to this .svg or .png file.")] = None,
) -> None:
    """Print the plan of a matrix factorisation: grid, order, best possible efficiency, memory, and what is promised."""
    from stretto.data.read import read
    from stretto.models.factorization import MatrixFactorization

    data = read(file, format.value, duplicates=duplicates.value, on_error=on_error.value)
    # No epochs: everything is prepared, nothing is learned.
    model = MatrixFactorization(
        rank=rank,
        solver=solver.value,
        epochs=0,
        width=width,
        profile=profile.value,
        random_state=seed,
        n_jobs=workers,
        duplicates="keep" if duplicates is o.Duplicates.keep else "error",
    ).fit(data)
    say(model.plan_.explain())
    if draw is not None:
        model.plan_.draw(str(draw))
        say(f"drawn in {draw}")
