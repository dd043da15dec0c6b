"""`stretto topics RUN`: print the topics of a trained model, their shares over time, or write them as an HTML page."""

from __future__ import annotations

import math
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stretto.cli.json_output import answer
from stretto.cli.output import say, table, warn
from stretto.errors import DataError

if TYPE_CHECKING:
    from stretto.models.topics.estimator import LatentDirichletAllocation
    from stretto.models.topics.input import Corpus
    from stretto.observe.topics import TopicView

EXAMPLES = (
    "Examples:\n\nstretto topics runs/topics\n\nstretto topics runs/topics --all --words 15\n\n"
    "stretto topics runs/topics --topic 12 --topic 40\n\nstretto topics runs/topics --html topics.html\n\n"
    "stretto topics runs/topics --by dates.csv --freq month --plot shares.png --to shares.csv"
)


class Freq(StrEnum):
    day = "day"
    week = "week"
    month = "month"
    quarter = "quarter"
    year = "year"
    none = "none"


def topics(
    run: Annotated[Path, typer.Argument(help="The folder of a run of `train lda`, or a model file.", metavar="RUN")],
    words: Annotated[int, typer.Option("--words", help="Words of each topic.", min=1)] = 10,
    topic: Annotated[
        list[int] | None, typer.Option("--topic", "-t", help="Only this one, with its weights; may be repeated.", min=0)
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every topic, not only the 20 largest.")] = False,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write the topic browser to this file instead of printing.")
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(
            "--file", help="Documents for --html and --by.", show_default="the run's own, where they are still there"
        ),
    ] = None,
    by: Annotated[
        Path | None,
        typer.Option("--by", help="A CSV file with a date or label for each document: print shares of topics by them."),
    ] = None,
    column: Annotated[
        str | None, typer.Option("--column", help="With --by: its column.", metavar="NAME", show_default="date")
    ] = None,
    freq: Annotated[
        Freq, typer.Option("--freq", help="With --by: length of a period; 'none' groups by the values themselves.")
    ] = Freq.month,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="With --by: draw the largest topics, or those of --topic, there.")
    ] = None,
    to: Annotated[Path | None, typer.Option("--to", help="With --by: write every share to this .csv file.")] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", "-w", help="Threads.", min=1, show_default="every core")
    ] = None,
) -> None:
    """Show the topics of a model: the largest in a table, single ones in detail, or all of them in one HTML file.

    Topics are numbered from 0. The HTML file shows, for each topic, its words, its size, the topics most like it, the
    documents with most of it and its coherence; it needs nothing else and can be mailed. With --by the mean shares of
    topics in the documents of each period are shown instead; the file has a line for each document, or names them in a
    column `document`.
    """
    from stretto.models.topics.browse import browse

    if by is None and (plot is not None or to is not None or column is not None):
        raise DataError("--plot, --to and --column belong to --by; name a file of dates or labels with --by")
    model = load(run).set_params(n_jobs=workers)
    if by is not None:
        if html is not None:
            raise DataError("--html writes the browser and --by shows shares by date; leave one of them out")
        _by(model, run, file, by, column, freq, topic, plot, to)
        return
    if html is not None:
        from stretto.observe.topics_page import write_topics

        corpus = _documents(run, file, model)
        answer(files=[str(html)])
        write_topics(html, browse(model, corpus, title=run.resolve().name, words=max(words, 20)))
        say(f"{html}: {model.topics_.n_topics:,} topics" + ("" if corpus else ", without documents"))
        return
    view = browse(model, words=words)
    answer(topics=_rows(view, words, topic, None if everything else 20, model.seed_names_), files=[])
    if topic:
        for number in topic:
            print_topic(view, number, model.seed_names_)
    else:
        print_topics(view, words=words, most=None if everything else 20, named=model.seed_names_)


def load(run: Path) -> LatentDirichletAllocation:
    """The topic model of a run folder, or of a file."""
    from stretto.cli.recipes.runs import model_file
    from stretto.models.topics.estimator import LatentDirichletAllocation

    return LatentDirichletAllocation.load(model_file(run))


def _rows(
    view: TopicView, words: int, only: list[int] | None, most: int | None, named: list[str | None] | None
) -> list[dict[str, Any]]:
    """The topics that are shown, the largest first, for --json."""
    for number in only or ():
        _refuse_unknown(number, len(view.words))
    return [
        {
            "topic": k,
            "tokens": int(view.tokens[k]),
            "name": None if named is None else named[k],
            "words": view.words[k][:words],
            "weights": view.weights[k][:words].tolist(),
        }
        for k in only or _largest(view)[:most]
    ]


def _largest(view: TopicView) -> list[int]:
    return sorted(range(len(view.words)), key=lambda k: (-int(view.tokens[k]), k))


def _refuse_unknown(number: int, count: int) -> None:
    if number >= count:
        raise DataError(f"there is no topic {number}: the model has {count:,}, numbered from 0 to {count - 1:,}")


def print_topics(view: TopicView, *, words: int, most: int | None, named: list[str | None] | None = None) -> None:
    """A table of topics, the largest first. most: how many, None for all. named: the names of topics with seeds."""
    order = _largest(view)
    shown = order[:most]
    names = [[] if named is None else [named[k] or ""] for k in shown]
    rows = [
        (str(k), f"{int(view.tokens[k]):,}", *name, " ".join(view.words[k][:words]))
        for k, name in zip(shown, names, strict=True)
    ]
    columns = ("topic", "tokens", *([] if named is None else ["name"]), "words")
    left = len(order) - len(shown)
    title = f"the {len(shown)} largest of {len(order):,} topics (--all shows every one)" if left else "topics"
    table(title, columns, rows, numbers=("topic", "tokens"))


def print_topic(view: TopicView, number: int, named: list[str | None] | None = None) -> None:
    """One topic in detail: its name by seeds, words with their probabilities, and the topics most like it."""
    _refuse_unknown(number, len(view.words))
    share = int(view.tokens[number]) / max(1, int(view.tokens.sum()))
    rows = [
        (word, f"{weight:.4f}") for word, weight in zip(view.words[number], view.weights[number].tolist(), strict=False)
    ]
    name = None if named is None else named[number]
    called = f"topic {number}" if name is None else f"topic {number}, {name}"
    say(f"{called}: {int(view.tokens[number]):,} tokens, {share:.2%} of all")
    table(None, ("word", "probability"), rows, numbers=("probability",))
    pairs = zip(view.similar[number].tolist(), view.similarity[number].tolist(), strict=True)
    alike = [(str(k), f"{likeness:.3f}", " ".join(view.words[k][:10])) for k, likeness in pairs]
    if alike:
        say(f"most like topic {number}:")
        table(None, ("topic", "likeness", "words"), alike, numbers=("topic", "likeness"))


def _by(
    model: LatentDirichletAllocation,
    run: Path,
    file: str | None,
    by: Path,
    column: str | None,
    freq: Freq,
    topic: list[int] | None,
    plot: Path | None,
    to: Path | None,
) -> None:
    """Print, write and draw the shares of topics by period or label."""
    from stretto.cli.document_labels import document_labels

    if to is not None and to.suffix != ".csv":
        raise DataError(f"cannot write shares to {to}; use a name that ends in .csv")
    corpus = _documents(run, file, model)
    if corpus is None:
        raise DataError(f"the documents of {run} are not known; name them with --file")
    labels = document_labels(by, column, corpus.n_documents, corpus.documents)
    found = model.topic_shares(corpus.data, by=labels, freq=None if freq is Freq.none else freq.value)
    for number in topic or ():
        _refuse_unknown(number, len(found.names))
    shown = (topic or found.largest())[:6]
    heads = ["period" if freq is not Freq.none else "group", "documents", *(f"{k}: {found.names[k]}" for k in shown)]
    rows = [
        [period, f"{int(found.documents[p]):,}", *(_percent(found.shares[p, k]) for k in shown)]
        for p, period in enumerate(found.periods)
    ]
    answer(
        periods=[
            {"period": period, "documents": int(found.documents[p]), "shares": found.shares[p].tolist()}
            for p, period in enumerate(found.periods)
        ],
        files=[str(path) for path in (to, plot) if path is not None],
    )
    table("mean share of the documents", heads, rows, numbers=heads[1:])
    if found.left_out:
        warn(f"{found.left_out:,} documents have no date and were left out")
    if to is not None:
        found.write(to)
        say(f"{to}: {len(found.periods):,} periods × {len(found.names):,} topics")
    if plot is not None:
        found.plot(plot, shown)
        say(f"drawn in {plot}")


def _percent(share: float) -> str:
    return "–" if math.isnan(share) else f"{share:.1%}"


def _documents(run: Path, file: str | None, model: LatentDirichletAllocation) -> Corpus | None:
    """The documents a browser shows: those named, those of the run, or none where they are gone."""
    from stretto.cli.documents import documents_of, first_documents
    from stretto.cli.text_input import documents_like, read_documents, shown_corpus

    if file is not None:
        text = documents_like(file, model, {}, quiet=True)
        return documents_of(file, model, None) if text is None else shown_corpus(text, model)
    if not run.is_dir():
        return None
    from stretto.cli.recipes.recipe import Recipe
    from stretto.observe.record import RunRecord

    recipe = Recipe.of(RunRecord.load(run).config, run)
    if "://" not in recipe.file and not Path(recipe.file).exists():
        warn(f"{recipe.file} is gone, so the browser has no documents; name them with --file")
        return None
    settings = getattr(recipe, "text", None)
    if settings is not None:
        return shown_corpus(read_documents(recipe.file, settings, like=model), model)
    if recipe.memory:
        return first_documents(recipe.file, model)
    return documents_of(recipe.file, model, None, getattr(recipe, "read", {}))
