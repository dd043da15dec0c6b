"""`stretto explain FILE`: print the plan of a training run without training.

`stretto explain script.py:function` does the same for a loop decorated with `@st.parallel`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stretto.cli.json_output import answer
from stretto.cli.merged_options import MergedOptions
from stretto.cli.output import say

from . import train

if TYPE_CHECKING:
    from stretto.cli.recipes.recipe import Recipe
    from stretto.plan.plan import Plan

EXAMPLES = (
    "Examples:\n\nstretto explain ratings.dat --rank 64 --workers 16\n\nstretto explain ratings.dat --draw plan.svg\n\n"
    "stretto explain docword.txt.gz --model lda --topics 1000 --workers 16\n\n"
    "stretto explain train.py:epoch --arg ratings=data:6040x3706:1000000 --arg W=f4:6040x64 --arg H=f4:3706x64\n\n"
    "stretto explain train.py:epoch --run --draw plan.svg"
)
_LOOP = "A loop in a script"


_MERGED = MergedOptions({"mf": train.mf, "lda": train.lda, "lasso": train.lasso, "logistic": train.logistic})


class ModelChoice(StrEnum):
    mf = "mf"
    lda = "lda"
    lasso = "lasso"
    logistic = "logistic"


def explain(
    file: Annotated[
        str,
        typer.Argument(
            help="A file of ratings or documents, or script.py:function for a decorated loop.", metavar="FILE"
        ),
    ],
    model: Annotated[
        ModelChoice | None,
        typer.Option("--model", help="What would be trained.", show_default="mf, with an option of lda alone lda"),
    ] = None,
    size: Annotated[
        int | None, typer.Option("-k", help="--rank of mf, --topics of lda.", min=1, show_default=False)
    ] = None,
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
    **options: Any,
) -> None:
    """Print the plan of `train mf`, or another training (--model), with these options.

    It takes every option of `train`, and prints the grid, the order, the best possible efficiency, the memory, and what
    is promised. Nothing is trained.

    A training with the same fingerprint ends with the same bits.

    With script.py:function, explain a loop decorated with @st.parallel: iteration space, accesses, dependence vectors,
    the strategy and why. Its arguments come from --arg, from a function example_FUNCTION() in the script that returns
    them, or from the script's own first call (--run).
    """
    from stretto.cli.runtime_option import place
    from stretto.cli.script import script_target

    asked = options["runtime"], options["workers"], options["nodes"]
    where = place(*asked)
    target = script_target(file)
    if target is not None:
        there = None if asked == (None, None, None) else where  # a loop may have a runtime of its own
        say(_explained_loop(target, arg or [], run=run, ordered=ordered, where=there, draw=draw))
        return
    kind = _MERGED.chosen(options, None if model is None else model.value)
    if size is not None:
        options["topics" if kind == "lda" else "rank"] = size
    plan = _planned(kind, file, _MERGED.asked(kind, options), where)
    answer(fingerprint=plan.fingerprint, text=plan.explain(), file=None if draw is None else str(draw))
    say(plan.explain())
    if draw is not None:
        plan.draw(str(draw))
        say(f"drawn in {draw}")


# Options of `train` belong to `explain` as well.
_OWN = [p for p in inspect.signature(explain, eval_str=True).parameters.values() if p.name != "options"]
_ALL = [*_OWN, *_MERGED.parameters(short="-k")]
explain.__signature__ = inspect.Signature(_ALL)  # type: ignore[attr-defined]
explain.__annotations__ = {p.name: p.annotation for p in _ALL}


def _planned(kind: str, file: str, asked: dict[str, Any], where: Any) -> Plan:
    """The plan of a training: that of its recipe."""
    from stretto.cli.recipes.lda import lda_recipe
    from stretto.cli.recipes.linear import lasso_recipe, logistic_recipe
    from stretto.cli.recipes.mf import mf_recipe

    made: dict[str, Callable[..., Recipe]] = {
        "mf": mf_recipe,
        "lda": lda_recipe,
        "lasso": lasso_recipe,
        "logistic": logistic_recipe,
    }
    recipe = made[kind](file=file, **asked | {"quiet": True})
    data = recipe.data()
    recipe = recipe.settled(data)
    model = recipe.model(asked["workers"])
    model.set_params(runtime=where)
    return recipe.plan(model, data)


def _explained_loop(
    target: tuple[Path, str], arg: list[str], *, run: bool, ordered: bool, where: Any, draw: Path | None
) -> str:
    from stretto.cli import script
    from stretto.cli.errors import in_python
    from stretto.cli.specs import read_specs

    path, function = target
    in_python()
    names = script.import_script(path)
    loop = script.find(names, path, function)
    if run:
        loop, (args, kwargs) = script.first_call_of_script(path, loop.plain.__name__)
    else:
        args, kwargs = (), script.example_of(names, loop) | read_specs(arg)
        script.need_more(loop, kwargs)
    if where is not None:
        loop = loop.using(runtime=where)
    plan = (loop.using(ordered=True) if ordered else loop).plan(*args, **kwargs)
    told = plan.explain()
    answer(fingerprint=plan.fingerprint, text=told, file=None if draw is None else str(draw))
    if draw is not None:
        plan.draw(str(draw))
        told += f"\ndrawn in {draw}"
    return told
