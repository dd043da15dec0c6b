"""`stretto recommend RUN`: print or write the best items for given users, in the ids of the ratings file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stretto.errors import DataError

EXAMPLES = (
    "Examples:\n\nstretto recommend runs/first --user 42 --user 7 -n 5\n\nstretto recommend runs/first --some 3\n\n"
    "stretto recommend runs/first --all --to best.csv\n\nstretto recommend model.safetensors --similar-to 1193"
)


def recommend(
    run: Annotated[Path, typer.Argument(help="The folder of a run, or a model file.", metavar="RUN")],
    user: Annotated[list[str] | None, typer.Option("--user", "-u", help="A user's id; may be repeated.")] = None,
    n: Annotated[int, typer.Option("-n", help="Items for each.", min=1)] = 10,
    some: Annotated[int, typer.Option("--some", help="Take this many users as examples.", min=0)] = 0,
    everyone: Annotated[bool, typer.Option("--all", help="Every user; needs --to.")] = False,
    to: Annotated[
        Path | None, typer.Option("--to", help="Write to this .csv or .npz file instead of printing.")
    ] = None,
    include_seen: Annotated[
        bool, typer.Option("--include-seen", help="Items the user rated in training, too.")
    ] = False,
    similar_to: Annotated[
        list[str] | None, typer.Option("--similar-to", help="Items like this one; may be repeated.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", "-w", help="Threads.", min=1, show_default="every core")
    ] = None,
) -> None:
    """Recommend items to users, or find items like another one.

    Ids are those of the ratings file. Items a user rated in training are left out unless --include-seen.
    """
    from stretto.cli import recommendations

    model = recommendations.load(run).set_params(n_jobs=workers)
    if similar_to:
        if user or some or everyone or to is not None:
            raise DataError("--similar-to prints items like others; leave --user, --some, --all and --to out")
        recommendations.print_similar(model, similar_to, n)
        return
    rows = recommendations.chosen(model, user or [], some, everyone)
    if to is not None:
        recommendations.write(model, rows, n, to, filter_seen=not include_seen)
    elif everyone:
        raise DataError("--all makes a long list; name a file for it: --to best.csv or --to best.npz")
    else:
        recommendations.print_best(model, rows, n, filter_seen=not include_seen)
