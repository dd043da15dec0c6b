"""`stretto explain FILE`: the plan of a training, without the training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import options as o
from .show import say

if TYPE_CHECKING:
    from stretto.plan.plan import Plan

    from .recipe import Recipe

EXAMPLES = (
    "Examples:\n\nstretto explain ratings.dat --rank 64 --workers 16\n\nstretto explain ratings.dat --draw plan.svg"
)


def explain(
    file: o.Ratings,
    rank: o.RankOption = 32,
    reg: o.RegOption = 0.05,
    solver: o.SolverOption = o.Solver.sgd,
    epochs: o.EpochsOption = 20,
    seed: o.SeedOption = 0,
    width: o.WidthOption = 16,
    profile: o.ProfileOption = o.Profile.exact,
    format: o.FormatOption = o.Format.auto,
    duplicates: o.DuplicatesOption = o.Duplicates.error,
    on_error: o.OnErrorOption = o.OnError.stop,
    test: o.TestOption = None,
    workers: o.WorkersOption = None,
    draw: Annotated[Path | None, typer.Option("--draw", help="Draw the plan to this .svg or .png file.")] = None,
) -> None:
    """Print the plan of `train mf` with these options: grid, order, best possible efficiency, memory, what is promised.

    A training with the same fingerprint ends with the same bits.
    """
    from .recipe import Recipe

    parameters = {"rank": rank, "reg": reg, "solver": solver.value, "epochs": epochs}
    parameters |= {"random_state": seed, "width": width, "profile": profile.value}
    read = {"format": format.value, "duplicates": duplicates.value, "on_error": on_error.value}
    plan = plan_of(Recipe(file, read, 0.1 if test is None else test, parameters), workers)
    say(plan.explain())
    if draw is not None:
        plan.draw(str(draw))
        say(f"drawn in {draw}")


def plan_of(recipe: Recipe, workers: int | None) -> Plan:
    """The plan a training would run; the ratings are laid out for it, nothing is learned."""
    from stretto.models.mf_build import build
    from stretto.models.mf_feed import feed_from
    from stretto.plan.plan import Physical
    from stretto.runtime.runtimes import Threads

    model, runtime = recipe.model(workers), Threads(workers)
    feed = feed_from(
        recipe.ratings(),
        validation=recipe.test or None,
        duplicates="keep",
        seed=model._seed(),
        memory=None,
        scratch=None,
    )
    with runtime.open() as crew:
        job = build(
            model._problem(),
            feed,
            crew,
            seed=model._seed(),
            profile=model.profile,
            width=model.width,
            physical=Physical("threads", runtime.workers),
        )
    return job.plan
