"""`stretto topics RUN`: print the topics of a trained model, or write them as an HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stretto.cli.output import say, table, warn
from stretto.errors import DataError

if TYPE_CHECKING:
    from stretto.models.topics.estimator import LatentDirichletAllocation
    from stretto.models.topics.input import Corpus
    from stretto.observe.topics import TopicView

EXAMPLES = (
    "Examples:\n\nstretto topics runs/topics\n\nstretto topics runs/topics --all --words 15\n\n"
    "stretto topics runs/topics --topic 12 --topic 40\n\nstretto topics runs/topics --html topics.html"
)


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
            "--file", help="Documents for the browser.", show_default="the run's own, where they are still there"
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", "-w", help="Threads.", min=1, show_default="every core")
    ] = None,
) -> None:
    """Show the topics of a model: the largest in a table, single ones in detail, or all of them in one HTML file.

    Topics are numbered from 0. The HTML file shows, for each topic, its words, its size, the topics most like it, the
    documents with most of it and its coherence; it needs nothing else and can be mailed.
    """
    from stretto.models.topics.browse import browse

    model = load(run).set_params(n_jobs=workers)
    if html is not None:
        from stretto.observe.topics_page import write_topics

        corpus = _documents(run, file, model)
        write_topics(html, browse(model, corpus, title=run.resolve().name, words=max(words, 20)))
        say(f"{html}: {model.topics_.n_topics:,} topics" + ("" if corpus else ", without documents"))
        return
    view = browse(model, words=words)
    if topic:
        for number in topic:
            print_topic(view, number)
    else:
        print_topics(view, words=words, most=None if everything else 20)


def load(run: Path) -> LatentDirichletAllocation:
    """The topic model of a run folder, or of a file."""
    from stretto.cli.recipes.runs import model_file
    from stretto.models.topics.estimator import LatentDirichletAllocation

    return LatentDirichletAllocation.load(model_file(run))


def print_topics(view: TopicView, *, words: int, most: int | None) -> None:
    """A table of topics, the largest first. most: how many, None for all."""
    order = sorted(range(len(view.words)), key=lambda k: (-int(view.tokens[k]), k))
    shown = order[:most]
    rows = [(str(k), f"{int(view.tokens[k]):,}", " ".join(view.words[k][:words])) for k in shown]
    left = len(order) - len(shown)
    title = f"the {len(shown)} largest of {len(order):,} topics (--all shows every one)" if left else "topics"
    table(title, ("topic", "tokens", "words"), rows, numbers=("topic", "tokens"))


def print_topic(view: TopicView, number: int) -> None:
    """One topic in detail: its words with their probabilities, and the topics most like it."""
    count = len(view.words)
    if number >= count:
        raise DataError(f"there is no topic {number}: the model has {count:,}, numbered from 0 to {count - 1:,}")
    share = int(view.tokens[number]) / max(1, int(view.tokens.sum()))
    rows = [
        (word, f"{weight:.4f}") for word, weight in zip(view.words[number], view.weights[number].tolist(), strict=False)
    ]
    say(f"topic {number}: {int(view.tokens[number]):,} tokens, {share:.2%} of all")
    table(None, ("word", "probability"), rows, numbers=("probability",))
    pairs = zip(view.similar[number].tolist(), view.similarity[number].tolist(), strict=True)
    alike = [(str(k), f"{likeness:.3f}", " ".join(view.words[k][:10])) for k, likeness in pairs]
    if alike:
        say(f"most like topic {number}:")
        table(None, ("topic", "likeness", "words"), alike, numbers=("topic", "likeness"))


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
