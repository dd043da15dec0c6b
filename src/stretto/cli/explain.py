"""`stretto explain FILE`: the plan of a training, without the training.

`stretto explain script.py:function` does the same for a loop decorated with `@st.parallel`.
"""

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
    "Examples:\n\nstretto explain ratings.dat --rank 64 --workers 16\n\nstretto explain ratings.dat --draw plan.svg\n\n"
    "stretto explain train.py:epoch --arg ratings=data:6040x3706:1000000 --arg W=f4:6040x64 --arg H=f4:3706x64\n\n"
    "stretto explain train.py:epoch --run --draw plan.svg"
)
_LOOP = "A loop in a script"


def explain(
    file: Annotated[
        str, typer.Argument(help="A ratings file, or script.py:function for a decorated loop.", metavar="FILE")
    ],
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
    arg: Annotated[
        list[str] | None,
        typer.Option(
            "--arg",
            "-a",
            metavar="NAME=SPEC",
            rich_help_panel=_LOOP,
            help="An argument: data:ROWSxCOLS:RECORDS, samples:ROWSxCOLS:ENTRIES, dense:SHAPE, file:PATH, f4:SHAPE, "
            "buffer:NAME, accumulator or a number. Numbers and accumulators may be left out.",
        ),
    ] = None,
    run: Annotated[
        bool, typer.Option("--run", rich_help_panel=_LOOP, help="Run the script up to its first call of the function.")
    ] = False,
    ordered: Annotated[
        bool, typer.Option("--ordered", rich_help_panel=_LOOP, help="Keep the order of the loop.")
    ] = False,
) -> None:
    """Print the plan of `train mf` with these options: grid, order, best possible efficiency, memory, what is promised.

    A training with the same fingerprint ends with the same bits.

    With script.py:function, explain a loop decorated with @st.parallel: iteration space, accesses, dependence vectors,
    the strategy and why. Its arguments come from --arg, from a function example_FUNCTION() in the script that returns
    them, or from the script's own first call (--run).
    """
    from .script import script_target

    target = script_target(file)
    if target is not None:
        say(_explained_loop(target, arg or [], run=run, ordered=ordered, workers=workers, draw=draw))
        return
    from .recipe import Recipe

    parameters = {"rank": rank, "reg": reg, "solver": solver.value, "epochs": epochs}
    parameters |= {"random_state": seed, "width": width, "profile": profile.value}
    read = {"format": format.value, "duplicates": duplicates.value, "on_error": on_error.value}
    plan = plan_of(Recipe(file, read, 0.1 if test is None else test, parameters), workers)
    say(plan.explain())
    if draw is not None:
        plan.draw(str(draw))
        say(f"drawn in {draw}")


def _explained_loop(
    target: tuple[Path, str], arg: list[str], *, run: bool, ordered: bool, workers: int | None, draw: Path | None
) -> str:
    from stretto.runtime.runtimes import Threads

    from . import script
    from .specs import read_specs

    path, function = target
    names = script.import_script(path)
    loop = script.find(names, path, function)
    if run:
        loop, (args, kwargs) = script.first_call_of_script(path, loop.plain.__name__)
    else:
        args, kwargs = (), script.example_of(names, loop) | read_specs(arg)
        script.need_more(loop, kwargs)
    if workers is not None:
        loop = loop.using(runtime=Threads(workers))
    plan = (loop.using(ordered=True) if ordered else loop).plan(*args, **kwargs)
    told = plan.explain()
    if draw is not None:
        plan.draw(str(draw))
        told += f"\ndrawn in {draw}"
    return told


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
