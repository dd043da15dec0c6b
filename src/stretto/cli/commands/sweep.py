"""`stretto sweep FILE`: topic models with several numbers of topics, compared on held-out documents."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from stretto.cli.json_output import answer
from stretto.cli.options import choices, documents, files, running, topic_model
from stretto.cli.output import say, table
from stretto.errors import DataError

EXAMPLES = (
    "Examples:\n\nstretto sweep docword.txt.gz --topics 10,20,50,100\n\n"
    "stretto sweep docword.txt.gz --topics 50,100,200 --repeats 5 --epochs 200 --out runs/how-many\n\n"
    "stretto sweep docword.txt.gz --topics 20,40,80 --optimize-every 10 --test 0.2"
)
FILES = ("sweep.csv", "sweep.json", "sweep.png")


class Coherence(StrEnum):
    npmi = "npmi"
    umass = "umass"
    c_v = "c_v"


def sweep(
    file: documents.Documents,
    topics: Annotated[
        str, typer.Option("--topics", "-k", help="Numbers of topics to try.", metavar="N,N,…")
    ] = "10,20,50,100",
    repeats: Annotated[
        int, typer.Option("--repeats", help="Fits of each number, with random states 0, 1, 2, …", min=1)
    ] = 3,
    test: Annotated[
        float, typer.Option("--test", help="Share of the documents held out to measure on.", min=0.001, max=0.9)
    ] = 0.1,
    coherence: Annotated[Coherence, typer.Option("--coherence", help="Measure of coherence.")] = Coherence.npmi,
    words: Annotated[int, typer.Option("--words", help="Words of a topic whose coherence is measured.", min=2)] = 10,
    alpha: topic_model.TopicAlphaOption = None,
    beta: topic_model.BetaOption = None,
    optimize_every: topic_model.OptimizeOption = 0,
    warm_up: topic_model.WarmUpOption = None,
    burn_in: topic_model.BurnInOption = None,
    average_every: topic_model.AverageOption = None,
    sampler: topic_model.SamplerOption = choices.Sampler.auto,
    mh_steps: topic_model.StepsOption = 2,
    epochs: topic_model.PassesOption = 100,
    seed: Annotated[int, typer.Option("--seed", help="Decides which documents are held out.", min=0)] = 0,
    width: running.WidthOption = 16,
    profile: running.ProfileOption = choices.Profile.exact,
    vocab: topic_model.VocabularyOption = None,
    format: files.FormatOption = choices.Format.auto,
    sep: files.SepOption = None,
    columns: files.ColumnsOption = None,
    user: files.UserOption = None,
    item: files.ItemOption = None,
    rating: files.RatingOption = None,
    ids: files.IdsOption = choices.Ids.auto,
    zero_based: files.ZeroOption = None,
    on_error: files.OnErrorOption = choices.OnError.stop,
    cache: files.CacheOption = True,
    strict: topic_model.StrictOption = False,
    workers: running.WorkersOption = None,
    out: Annotated[
        str | None,
        typer.Option("--out", "-o", help="Folder of the results, not there yet.", show_default="runs/sweep-1, -2, …"),
    ] = None,
    quiet: running.QuietOption = False,
) -> None:
    """Train topic models with several numbers of topics and seeds, and compare them.

    Measured are the perplexity of held-out documents (half of each, given the other half), the coherence of the topics,
    and how alike the topics of different seeds are. The folder then holds sweep.csv (a line for each number of topics),
    sweep.json (every fit and every topic as well) and sweep.png.
    """
    asked = dict(locals())
    from stretto.cli.recipes.lda import lda_recipe
    from stretto.cli.recipes.runs import new_folder
    from stretto.models.topics.analysis.sweep import sweep_topics

    numbers = _numbers(asked.pop("topics"))
    for name in ("repeats", "test", "coherence", "words", "workers", "out"):
        asked.pop(name)
    folder = new_folder(None, "sweep") if out is None else Path(out)
    if any((folder / name).exists() for name in FILES):
        raise DataError(f"{folder} holds a sweep already; name another folder with --out, or remove it")
    recipe = lda_recipe(
        **asked, topics=numbers[0], seeds=None, seed_weight=None, evaluate_every=0, test=None,
        checkpoint_every=None, memory=None, early_stopping=False, everything=False,
    )  # fmt: skip
    corpus = recipe.data()
    assert not isinstance(corpus, str)
    if not quiet:
        say(f"{file}: {recipe.size(corpus)}, {test:.0%} of the documents held out")
    X, vocabulary = recipe.inputs(corpus)
    found = sweep_topics(
        X, numbers, model=recipe.model(workers), random_states=repeats, test=test, coherence=coherence.value,
        words=words, vocabulary=vocabulary, seed=seed, verbose=0 if quiet else 1,
    )  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    found.write(folder / "sweep.csv")
    found.write(folder / "sweep.json")
    found.plot(folder / "sweep.png", f"How many topics? {Path(file).name}")
    table_rows = [asdict(row) for row in found.table]
    answer(folder=str(folder), files=FILES, table=table_rows, best=found.best(), note=found.note())
    if quiet:
        return
    heads, rows = found.cells()
    table(None, heads, rows, numbers=heads)
    say(found.note())
    say(f"{folder}: {', '.join(FILES)}")
    say(f"next: stretto train lda {file} --topics {found.best()}")


def _numbers(text: str) -> list[int]:
    """The numbers of topics that were asked for."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts):
        raise DataError(f"--topics {text}: give numbers of topics from 1 up, such as 10,20,50")
    return [int(part) for part in parts]
