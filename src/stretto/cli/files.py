"""`stretto info FILE` and `stretto generate FILE`: looking at ratings, and making some."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stretto.errors import DataError

from .options import Format, FormatOption
from .show import say

INFO_EXAMPLES = "Examples:\n\nstretto info ratings.dat\n\nstretto info log.tsv.gz --format triples"
GENERATE_EXAMPLES = (
    "Examples:\n\nstretto generate ratings.dat --ratings 1000000 --rows 6000 --cols 4000\n\n"
    "stretto generate big.npz --ratings 10000000 --rows 100000 --cols 50000 --max-share 0.015"
)
_PACKED = {".gz", ".xz", ".bz2"}


def info(
    file: Annotated[str, typer.Argument(help="A file of ratings or records.", metavar="FILE")],
    format: FormatOption = Format.auto,
) -> None:
    """Tell what a file is: format, size, values, skew, and what is wrong with it, with lines and remedies.

    The exit code is 0 when training takes the file as it is, 1 when there are problems, 2 when it cannot be read.
    """
    from stretto.data.info import inspect

    found = inspect(file, format.value)
    say(found.text())
    if not found.ok:
        raise typer.Exit(1)


def generate(
    file: Annotated[
        Path,
        typer.Argument(
            help="Where to write; .dat (MovieLens), .npz, .mtx, .svm, .parquet, else triples.", metavar="FILE"
        ),
    ],
    ratings: Annotated[int, typer.Option("--ratings", help="How many.", min=1)] = 100_000,
    rows: Annotated[int, typer.Option("--rows", help="Users.", min=1)] = 1_000,
    cols: Annotated[int, typer.Option("--cols", help="Items.", min=1)] = 800,
    rank: Annotated[int, typer.Option("--rank", help="Of the truth behind the ratings.", min=1)] = 8,
    noise: Annotated[float, typer.Option("--noise", help="What no model can predict, in stars.", min=0.0)] = 0.3,
    max_share: Annotated[
        float | None,
        typer.Option(
            "--max-share", help="Most of all ratings that one user or item may have.", show_default="no limit"
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Same seed, same file.", min=0)] = 0,
) -> None:
    """Make a ratings file with a known truth: few users and items have most of the ratings, as in life."""
    from stretto.data.generate import ratings as make
    from stretto.data.write import write

    if file.suffix in _PACKED:
        raise DataError(f"{file}: generated files are written unpacked; leave {file.suffix} off")
    made = make(ratings, rows, cols, rank=rank, noise=noise, max_share=max_share, seed=seed)
    file.parent.mkdir(parents=True, exist_ok=True)
    write(made.data, file, "movielens" if file.suffix == ".dat" else "auto")
    size = file.stat().st_size / 2**20
    say(
        f"{file}: {ratings:,} ratings by {rows:,} users of {cols:,} items, {size:.1f} MiB; "
        f"the best possible RMSE is about {noise:g}, and a little more for rounding to half stars"
    )
