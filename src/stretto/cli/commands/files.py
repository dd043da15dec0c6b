"""`stretto info FILE` describes a data file; `stretto generate FILE` writes a synthetic one."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from stretto.cli.errors import in_options
from stretto.cli.json_output import answer
from stretto.cli.options import choices, files
from stretto.cli.output import say
from stretto.cli.reading import reading
from stretto.errors import DataError
from stretto.text import show_mib

INFO_EXAMPLES = (
    "Examples:\n\nstretto info ratings.dat\n\nstretto info log.tsv.gz --format triples\n\n"
    "stretto info plays.csv --user listener --item song --rating plays"
)
GENERATE_EXAMPLES = (
    "Examples:\n\nstretto generate ratings.dat --ratings 1000000 --rows 6000 --cols 4000\n\n"
    "stretto generate big.npz --ratings 10000000 --rows 100000 --cols 50000 --max-share 0.015\n\n"
    "stretto generate docword.txt.gz --documents 100000 --words 20000 --topics 100 --length 100"
)
_PACKED = {".gz", ".xz", ".bz2"}
_CORPUS = "A corpus of documents"


def info(
    file: Annotated[str, typer.Argument(help="A file of ratings or records.", metavar="FILE")],
    format: files.FormatOption = choices.Format.auto,
    sep: files.SepOption = None,
    columns: files.ColumnsOption = None,
    user: files.UserOption = None,
    item: files.ItemOption = None,
    rating: files.RatingOption = None,
    ids: files.IdsOption = choices.Ids.auto,
    zero_based: files.ZeroOption = None,
) -> None:
    """Describe a file: format, size, values, skew, and its problems with lines and remedies.

    The exit code is 0 when training takes the file as it is, 1 when there are problems, 2 when it cannot be read.
    """
    from stretto.data.reading.inspect import inspect

    read = reading(
        format=format, sep=sep, columns=columns, user=user, item=item, rating=rating, ids=ids, zero_based=zero_based
    )
    found = inspect(file, **read)
    text = in_options(found.text(), of=("train", "mf"))
    answer(
        file=file,
        ok=found.ok,
        format=found.format,
        shape=found.description.shape,
        records=found.description.nnz,
        problems=[asdict(one) | {"remedy": in_options(one.remedy, of=("train", "mf"))} for one in found.problems],
        text=text,
    )
    say(text)
    if not found.ok:
        say("    (options of `stretto train mf`)")
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
    rank: Annotated[int, typer.Option("--rank", help="Rank of the model that the ratings are drawn from.", min=1)] = 8,
    noise: Annotated[float, typer.Option("--noise", help="What no model can predict, in stars.", min=0.0)] = 0.3,
    max_share: Annotated[
        float | None,
        typer.Option(
            "--max-share", help="Most of all ratings that one user or item may have.", show_default="no limit"
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Same seed, same file.", min=0)] = 0,
    documents: Annotated[
        int | None,
        typer.Option(
            "--documents",
            help="Make a corpus of so many documents instead (UCI docword; packed with .gz).",
            rich_help_panel=_CORPUS,
            min=1,
            show_default="ratings",
        ),
    ] = None,
    words: Annotated[int, typer.Option("--words", help="Of the vocabulary.", rich_help_panel=_CORPUS, min=1)] = 5_000,
    topics: Annotated[int, typer.Option("--topics", help="Behind the documents.", rich_help_panel=_CORPUS, min=1)] = 20,
    length: Annotated[
        float, typer.Option("--length", help="Tokens of a document, on average.", rich_help_panel=_CORPUS, min=1.0)
    ] = 100.0,
) -> None:
    """Write a synthetic data file: ratings from known factors, or with --documents a corpus from known topics.

    Few users, items and words have most of the ratings and tokens, as in real data.
    """
    if documents is not None:
        _generate_corpus(file, documents, words, topics, length, seed)
        return
    from stretto.data.generate.ratings import ratings as make
    from stretto.data.write import write

    if file.suffix in _PACKED:
        raise DataError(f"{file}: generated files are written unpacked; leave {file.suffix} off")
    made = make(ratings, rows, cols, rank=rank, noise=noise, max_share=max_share, seed=seed)
    file.parent.mkdir(parents=True, exist_ok=True)
    write(made.data, file, "movielens" if file.suffix == ".dat" else "auto")
    answer(file=str(file), bytes=file.stat().st_size, shape=(rows, cols), entries=ratings)
    size = show_mib(file.stat().st_size)
    say(
        f"{file}: {ratings:,} ratings by {rows:,} users of {cols:,} items, {size}; "
        f"the best possible RMSE is about {noise:g}, and a little more for rounding to half stars"
    )


def _generate_corpus(file: Path, documents: int, words: int, topics: int, length: float, seed: int) -> None:
    from stretto.data.generate.corpus import write_corpus

    if file.suffix in _PACKED - {".gz"} or file.suffix in {".npz", ".mtx", ".svm", ".parquet"}:
        raise DataError(f"{file}: a corpus is written as text in UCI's docword format; use a name in .txt or .txt.gz")
    file.parent.mkdir(parents=True, exist_ok=True)
    entries, tokens = write_corpus(file, documents, words, topics, length, seed=seed)
    answer(file=str(file), bytes=file.stat().st_size, shape=(documents, words), entries=entries, tokens=tokens)
    size = show_mib(file.stat().st_size)
    say(
        f"{file}: {documents:,} documents of {words:,} words from {topics:,} topics, {tokens:,} tokens in {entries:,} "
        f"entries, {size}"
    )
