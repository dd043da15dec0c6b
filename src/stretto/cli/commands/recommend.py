"""`stretto recommend RUN`: print or write the best items for given users, in the ids of the ratings file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stretto.errors import DataError

EXAMPLES = (
    "Examples:\n\nstretto recommend runs/first --user 42 --user 7 -n 5\n\nstretto recommend runs/first --some 3\n\n"
    "stretto recommend runs/first --all --to best.csv\n\nstretto recommend runs/first --user 42 --exclude 318\n\n"
    "stretto recommend runs/first --user 42 --why 1193\n\nstretto recommend model.safetensors --similar-to 1193"
)


def recommend(
    run: Annotated[Path, typer.Argument(help="The folder of a run, or a model file.", metavar="RUN")],
    user: Annotated[list[str] | None, typer.Option("--user", "-u", help="A user's id; may be repeated.")] = None,
    n: Annotated[int, typer.Option("-n", help="Items for each.", min=1)] = 10,
    some: Annotated[int, typer.Option("--some", help="Take this many users as examples.", min=0)] = 0,
    everyone: Annotated[bool, typer.Option("--all", help="Every user; needs --to.")] = False,
    to: Annotated[
        Path | None,
        typer.Option("--to", help="Write to this .csv, .parquet, .jsonl or .npz file instead of printing."),
    ] = None,
    include_seen: Annotated[
        bool, typer.Option("--include-seen", help="Items the user rated in training, too.")
    ] = False,
    exclude: Annotated[
        list[str] | None, typer.Option("--exclude", help="An item to leave out; may be repeated.", metavar="ITEM")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="Choose among these items alone; may be repeated.", metavar="ITEM"),
    ] = None,
    why: Annotated[
        str | None,
        typer.Option("--why", help="Why this item has its score for the user of --user.", metavar="ITEM"),
    ] = None,
    similar_to: Annotated[
        list[str] | None, typer.Option("--similar-to", help="Items like this one; may be repeated.", metavar="ITEM")
    ] = None,
    similar_users: Annotated[
        list[str] | None, typer.Option("--similar-users", help="Users like this one; may be repeated.", metavar="USER")
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", "-w", help="Threads.", min=1, show_default="every core")
    ] = None,
) -> None:
    """Recommend items to users, say why, or find items or users like another one.

    Ids are those of the ratings file. Items a user rated in training are left out unless --include-seen.
    """
    from stretto.cli import recommendations as serve

    model = serve.served(run, workers)
    alike = {"--similar-to": similar_to, "--similar-users": similar_users, "--why": why}
    chosen = [name for name, given in alike.items() if given]
    lists = user if why is None else None
    if len(chosen) > 1 or (chosen and (lists or some or everyone or exclude or only or to is not None)):
        what = {"--similar-to": "items like others", "--similar-users": "users like others", "--why": "one explanation"}
        rest = [name for name in alike if name != chosen[0]]
        rest += ["--user"] * (why is None) + ["--some", "--all", "--exclude", "--only", "--to"]
        raise DataError(f"{chosen[0]} prints {what[chosen[0]]}; leave {', '.join(rest[:-1])} and {rest[-1]} out")
    if similar_to or similar_users:
        serve.print_similar(model, similar_to or similar_users or [], n, users=bool(similar_users))
        return
    if why is not None:
        serve.print_why(model, run, user or [], why)
        return
    rows = serve.chosen(model, user or [], some, everyone)
    filters = serve.filters(model, only, exclude, filter_seen=not include_seen)
    if to is not None:
        serve.write(model, rows, n, to, filters)
    elif everyone:
        raise DataError("--all makes a long list; name a file for it: --to best.csv or --to best.parquet")
    else:
        serve.print_best(model, rows, n, filters)
