"""`stretto explain FILE`: the plan of a training, without the training.

`stretto explain script.py:function` does the same for a loop decorated with `@st.parallel`.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import options as o
from .show import say

if TYPE_CHECKING:
    from stretto.plan.plan import Plan

    from .recipe_lda import LdaRecipe
    from .recipe_mf import MfRecipe

EXAMPLES = (
    "Examples:\n\nstretto explain ratings.dat --rank 64 --workers 16\n\nstretto explain ratings.dat --draw plan.svg\n\n"
    "stretto explain docword.txt.gz --model lda --topics 1000 --workers 16\n\n"
    "stretto explain train.py:epoch --arg ratings=data:6040x3706:1000000 --arg W=f4:6040x64 --arg H=f4:3706x64\n\n"
    "stretto explain train.py:epoch --run --draw plan.svg"
)
_LOOP, _TOPICS = "A loop in a script", "A topic model"


class Model(StrEnum):
    mf = "mf"
    lda = "lda"


def explain(
    file: Annotated[
        str,
        typer.Argument(
            help="A file of ratings or documents, or script.py:function for a decorated loop.", metavar="FILE"
        ),
    ],
    model: Annotated[
        Model | None,
        typer.Option("--model", help="What would be trained.", show_default="mf, with --topics lda"),
    ] = None,
    rank: o.RankOption = 32,
    reg: o.RegOption = 0.05,
    solver: o.SolverOption = o.Solver.sgd,
    epochs: o.EpochsOption = 20,
    seed: o.SeedOption = 0,
    width: o.WidthOption = 16,
    profile: o.ProfileOption = o.Profile.exact,
    format: o.FormatOption = o.Format.auto,
    sep: o.SepOption = None,
    columns: o.ColumnsOption = None,
    user: o.UserOption = None,
    item: o.ItemOption = None,
    rating: o.RatingOption = None,
    ids: o.IdsOption = o.Ids.auto,
    zero_based: o.ZeroOption = None,
    duplicates: o.DuplicatesOption = o.Duplicates.error,
    on_error: o.OnErrorOption = o.OnError.stop,
    cache: o.CacheOption = True,
    test: o.TestOption = None,
    topics: Annotated[
        int | None,
        typer.Option("--topics", help="How many to find.", rich_help_panel=_TOPICS, min=1, show_default="100"),
    ] = None,
    sampler: Annotated[o.Sampler, typer.Option("--sampler", rich_help_panel=_TOPICS)] = o.Sampler.auto,
    optimize_every: Annotated[int, typer.Option("--optimize-every", rich_help_panel=_TOPICS, min=0)] = 0,
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
    """Print the plan of `train mf`, or `train lda`, with these options.

    It tells the grid, the order, the best possible efficiency, the memory, and what is promised.

    A training with the same fingerprint ends with the same bits.

    With script.py:function, explain a loop decorated with @st.parallel: iteration space, accesses, dependence vectors,
    the strategy and why. Its arguments come from --arg, from a function example_FUNCTION() in the script that returns
    them, or from the script's own first call (--run).
    """
    from .reading import reading
    from .script import script_target

    target = script_target(file)
    if target is not None:
        say(_explained_loop(target, arg or [], run=run, ordered=ordered, workers=workers, draw=draw))
        return
    common = {"random_state": seed, "width": width, "profile": profile.value}
    read = reading(
        format=format, sep=sep, columns=columns, user=user, item=item, rating=rating, ids=ids, zero_based=zero_based,
        duplicates=duplicates, on_error=on_error, cache=cache,
    )  # fmt: skip
    if model == Model.lda or (model is None and topics is not None):
        from .recipe_lda import LdaRecipe

        chosen = {"n_components": topics or 100, "sampler": sampler.value, "optimize_every": optimize_every}
        read.pop("duplicates", None)  # counts of one word in one document are added up
        plan = lda_plan(LdaRecipe(file=file, read=read, test=test or 0.0, parameters=chosen | common), workers)
    else:
        from .recipe_mf import MfRecipe

        parameters = {"rank": rank, "reg": reg, "solver": solver.value, "epochs": epochs} | common
        plan = mf_plan(MfRecipe(file=file, read=read, test=test, parameters=parameters), workers)
    say(plan.explain())
    if draw is not None:
        plan.draw(str(draw))
        say(f"drawn in {draw}")


def _explained_loop(
    target: tuple[Path, str], arg: list[str], *, run: bool, ordered: bool, workers: int | None, draw: Path | None
) -> str:
    from stretto.runtime.runtimes import Threads

    from . import script
    from .friendly import in_python
    from .specs import read_specs

    path, function = target
    in_python()
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


def mf_plan(recipe: MfRecipe, workers: int | None) -> Plan:
    """The plan a training would run; the ratings are laid out for it, nothing is learned."""
    from stretto.models.mf_build import build
    from stretto.models.mf_feed import feed_from
    from stretto.plan.plan import Physical
    from stretto.runtime.runtimes import Threads

    model, runtime, data = recipe.model(workers), Threads(workers), recipe.data()
    feed = feed_from(
        data,
        validation=recipe.settled(data).test or None,
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


def lda_plan(recipe: LdaRecipe, workers: int | None) -> Plan:
    """The plan a training of a topic model would run; the tokens are laid out for it, nothing is learned."""
    from stretto.models.lda_base import settled
    from stretto.models.lda_input import split_documents
    from stretto.models.lda_job import build_lda
    from stretto.models.lda_layout import take_census
    from stretto.plan.plan import Physical
    from stretto.runtime.runtimes import Threads
    from stretto.runtime.source import InMemory

    model, runtime, corpus = recipe.model(workers), Threads(workers), recipe.data()
    assert not isinstance(corpus, str)  # nothing is streamed
    seed = model._seed()
    if recipe.test:
        corpus, _ = split_documents(corpus, recipe.test, seed)
    source = InMemory(corpus.data)
    with runtime.open() as crew:
        census = take_census(source, crew)
        problem = model._settings(seed, model.epochs, None).problem
        job = build_lda(
            settled(problem, census),
            source,
            crew,
            seed=seed,
            profile=model.profile,
            width=model.width,
            physical=Physical("threads", runtime.workers),
            census=census,
        )
    return job.plan
