"""`stretto evaluate RUN [FILE]`: ranking metrics of a factorisation, with confidence intervals."""

from __future__ import annotations

import math
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stretto.cli.json_output import answer
from stretto.cli.options import choices, files
from stretto.cli.output import say, table
from stretto.cli.recipes.ratings import ratings_of
from stretto.errors import DataError

if TYPE_CHECKING:
    from stretto.evaluation.table import Evaluation

EXAMPLES = (
    "Examples:\n\nstretto evaluate runs/first\n\n"
    "stretto evaluate runs/first held-out.csv --metrics ndcg@10,recall@50\n\n"
    "stretto evaluate runs/first --split leave-k-out --times timestamp --popular\n\n"
    "stretto evaluate runs/first --threshold 4 --to table.csv"
)
_DEFAULT = "precision@10,recall@10,ndcg@10,map@10,mrr@10,hit_rate@10,coverage@10"


class SplitChoice(StrEnum):
    random = "random"
    leave_k_out = "leave-k-out"
    by_user = "by-user"
    by_time = "by-time"
    cold_users = "cold-users"
    cold_items = "cold-items"


def evaluate(
    run: Annotated[Path, typer.Argument(help="The folder of a run of `train mf`, or a model file.", metavar="RUN")],
    file: Annotated[
        str | None,
        typer.Argument(help="Held-out ratings.", metavar="[FILE]", show_default="what the run held out"),
    ] = None,
    metrics: Annotated[
        str,
        typer.Option(
            "--metrics",
            "-m",
            help="precision, recall, ndcg, map, mrr, hit_rate, auc, coverage, novelty, popularity_bias, each with @K; "
            "rmse, mae.",
            metavar="A@K,B@K",
        ),
    ] = _DEFAULT,
    split: Annotated[
        SplitChoice | None,
        typer.Option("--split", help="Train anew on a part of the run's file and measure on the rest, split this way."),
    ] = None,
    test: Annotated[float, typer.Option("--test", help="With --split: share held out.", min=0.0, max=0.99)] = 0.1,
    k: Annotated[int, typer.Option("-k", help="With --split leave-k-out: ratings of each user.", min=1)] = 1,
    times: Annotated[
        str | None,
        typer.Option(
            "--times", help="With --split: column of the times, by name or position from 0.", metavar="COLUMN"
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="With --split: decides what is held out.", min=0)] = 0,
    threshold: Annotated[
        float | None,
        typer.Option("--threshold", help="Ratings from here on are relevant.", show_default="above 0"),
    ] = None,
    graded: Annotated[bool, typer.Option("--graded", help="Ratings are the gains of NDCG.")] = False,
    include_seen: Annotated[
        bool, typer.Option("--include-seen", help="Rank what users rated in training, too.")
    ] = False,
    popular: Annotated[
        bool, typer.Option("--popular", help="Also measure recommending the most popular items.")
    ] = False,
    confidence: Annotated[float, typer.Option("--confidence", help="Level of the intervals.")] = 0.95,
    to: Annotated[Path | None, typer.Option("--to", help="Write to this .csv, .json or .html file as well.")] = None,
    format: files.FormatOption = choices.Format.auto,
    sep: files.SepOption = None,
    columns: files.ColumnsOption = None,
    user: files.UserOption = None,
    item: files.ItemOption = None,
    rating: files.RatingOption = None,
    ids: files.IdsOption = choices.Ids.auto,
    on_error: files.OnErrorOption = choices.OnError.stop,
    workers: Annotated[
        int | None, typer.Option("--workers", "-w", help="Threads.", min=1, show_default="every core")
    ] = None,
) -> None:
    """Say how well a factorisation ranks items for held-out users.

    Without FILE it is measured on the ratings that the run held out. With --split the model of the run is trained anew,
    with its settings, on one part of its file, and measured on the other. Options of reading are those of FILE.
    """
    from stretto.cli.reading import reading
    from stretto.evaluation.evaluate import evaluate as measured

    if to is not None and to.suffix not in {".csv", ".json", ".html"}:
        raise DataError(f"cannot write metrics to {to}; use a name that ends in .csv, .json or .html")
    given: dict[str, Any] = {
        "metrics": [name.strip() for name in metrics.split(",")],
        "threshold": threshold,
        "graded": graded,
        "filter_seen": not include_seen,
        "popular": popular,
        "confidence": confidence,
    }
    read = reading(
        format=format, sep=sep, columns=columns, user=user, item=item, rating=rating, ids=ids, on_error=on_error
    )
    if file is not None:
        if split is not None:
            raise DataError("--split cuts the file of the run; leave FILE out, or leave --split out")
        from stretto.cli.recommendations import load
        from stretto.data.reading.read import read as read_file

        found = measured(load(run).set_params(n_jobs=workers), read_file(file, **read), **given)
    elif split is not None:
        found = _anew(
            run, split.value.replace("-", "_"), {"test": test, "k": k, "times": times, "seed": seed}, workers, given
        )
    else:
        found = _held_out(run, workers, given)
    answer(metrics=[vars(one) for one in found.scores], note=found.note(), file=None if to is None else str(to))
    _print(found)
    if to is not None:
        _write(found, to)


def _held_out(run: Path, workers: int | None, given: dict[str, Any]) -> Evaluation:
    from stretto.cli.recommendations import load
    from stretto.evaluation.evaluate import evaluate as measured

    model = load(run).set_params(n_jobs=workers)
    recipe, data = ratings_of(run)
    if not recipe.test:
        raise DataError(f"{run} held nothing out; name a file of held-out ratings, or train anew with --split by-user")
    return measured(model, data.split(recipe.test, seed=recipe.model(None)._seed())[1], **given)


def _anew(run: Path, method: str, asked: dict[str, Any], workers: int | None, given: dict[str, Any]) -> Evaluation:
    from stretto.evaluation.evaluate import evaluate as measured
    from stretto.evaluation.held import times_of
    from stretto.evaluation.splits import split

    recipe, data = ratings_of(run)
    takes = {
        "leave_k_out": ("k", "times", "seed"),
        "by_user": ("test", "times", "seed"),
        "by_time": ("test", "times"),
    }.get(method, ("test", "seed"))
    options = {name: asked[name] for name in takes}
    if asked["times"] is None and method == "by_time":
        raise DataError("--split by-time needs the column of the times: --times timestamp, or --times 3")
    if asked["times"] is not None:
        if "times" not in takes:
            raise DataError("--times is for --split leave-k-out, by-user and by-time")
        column = int(asked["times"]) if asked["times"].isdecimal() else asked["times"]
        options["times"] = times_of(column, recipe.file, data)
    parts = getattr(split, method)(data, **options)
    return measured(recipe.model(workers), None, split=parts, **given)


def _print(found: Evaluation) -> None:
    heads, rows = found.cells()
    table(None, heads, rows, numbers=heads[1:])
    say(found.note())


def _or_none(value: Any) -> Any:
    """None instead of NaN, which JSON does not have."""
    return None if isinstance(value, float) and math.isnan(value) else value


def _write(found: Evaluation, to: Path) -> None:
    import csv
    import json

    from stretto.atomic import replacing

    lines = [vars(one) for one in found.scores]
    to.parent.mkdir(parents=True, exist_ok=True)
    with replacing(to) as fresh:
        if to.suffix == ".csv":
            with open(fresh, "w", newline="", encoding="utf-8") as file:
                out = csv.DictWriter(file, lines[0], lineterminator="\n")
                out.writeheader()
                out.writerows(lines)
        elif to.suffix == ".json":
            whole = [{name: _or_none(value) for name, value in line.items()} for line in lines]
            fresh.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
        else:
            fresh.write_text(f"<!doctype html><meta charset='utf-8'>{found._repr_html_()}\n", encoding="utf-8")
    say(f"{to}: {len(lines)} metrics")
