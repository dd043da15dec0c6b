"""`stretto infer RUN FILE`: infer topic shares of documents with a trained topic model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stretto.cli.json_output import answer
from stretto.cli.options import choices, documents, files, running, topic_model
from stretto.cli.output import say

EXAMPLES = (
    "Examples:\n\nstretto infer runs/topics new.txt.gz --out shares.npz\n\n"
    "stretto infer runs/letters new-letters/ --out shares.csv\n\n"
    "stretto infer runs/letters reviews.csv --text review --names title --out shares.csv\n\n"
    "stretto infer runs/topics new.txt.gz --out shares.csv --least 0.05"
)


def infer(
    run: Annotated[Path, typer.Argument(help="The folder of a run of `train lda`, or a model file.", metavar="RUN")],
    file: documents.Documents,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="Where to write: .npz (all shares) or .csv (document, topic, share)."),
    ],
    least: Annotated[
        float, typer.Option("--least", help="In a .csv file, leave out shares below this.", min=0.0, max=1.0)
    ] = 0.01,
    text: documents.TextOption = None,
    names: documents.NamesOption = None,
    encoding: documents.EncodingOption = None,
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
    perplexity: Annotated[
        bool, typer.Option("--perplexity", help="Say how well half of each document predicts the other half.")
    ] = False,
    workers: Annotated[
        int | None, typer.Option("--workers", "-w", help="Threads.", min=1, show_default="every core")
    ] = None,
    quiet: running.QuietOption = False,
) -> None:
    """Find the share of each topic in documents the model has not seen.

    A model that was trained on text reads text: it is cut into words as in training, and other words are left out.

    Where the file has a vocabulary of its own, its words are looked up in the model's by name; words the model does not
    know are left out. In the .npz file `shares` is [documents, topics], float32, rows add up to 1, and `documents` has
    their names, where they have some. In the .csv file documents without names are numbered from 0.
    """
    from stretto.cli import topic_shares
    from stretto.cli.documents import documents_of
    from stretto.cli.reading import reading
    from stretto.cli.text_input import documents_like
    from stretto.cli.vocabulary import vocabulary_of

    from .topics import load

    write = topic_shares.writer(out)  # reports a wrong name before any work
    model = load(run).set_params(n_jobs=workers)
    asked = {"text": text, "names": names, "encoding": encoding, "format": format, "on_error": on_error}
    counts = documents_like(file, model, asked, quiet=quiet)
    # Without names on the model's side, names on the file's side are of no use.
    unnamed = model.vocabulary_ is None or counts is not None
    words = None if unnamed else vocabulary_of(file, vocab, quiet=quiet)
    read = reading(
        format=format, sep=sep, columns=columns, user=user, item=item, rating=rating, ids=ids, zero_based=zero_based,
        on_error=on_error, cache=cache,
    )  # fmt: skip
    corpus = documents_of(file if counts is None else counts, model, words, read)
    seconds = write(model, corpus, out, least)
    answer(file=str(out), documents=corpus.n_documents, topics=model.topics_.n_topics, seconds=seconds)
    if not quiet:
        speed = corpus.n_documents / max(seconds, 1e-9)
        say(f"{out}: {corpus.n_documents:,} documents × {model.topics_.n_topics:,} topics, {speed:,.0f} documents/s")
    if perplexity:
        value = float(model.perplexity(corpus.data))
        answer(perplexity=value)
        say(f"perplexity {value:.1f} of half of each document, given the other half")
