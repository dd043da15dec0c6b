"""`stretto infer RUN FILE`: the topic shares of documents, by a model that was trained before."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import options as o
from .show import say

EXAMPLES = (
    "Examples:\n\nstretto infer runs/topics new.txt.gz --out shares.npz\n\n"
    "stretto infer runs/topics new.txt.gz --out shares.csv --least 0.05"
)


def infer(
    run: Annotated[Path, typer.Argument(help="The folder of a run of `train lda`, or a model file.", metavar="RUN")],
    file: o.Documents,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="Where to write: .npz (all shares) or .csv (document, topic, share)."),
    ],
    least: Annotated[
        float, typer.Option("--least", help="In a .csv file, leave out shares below this.", min=0.0, max=1.0)
    ] = 0.01,
    vocab: o.VocabularyOption = None,
    perplexity: Annotated[
        bool, typer.Option("--perplexity", help="Say how well half of each document foretells the other half.")
    ] = False,
    workers: Annotated[
        int | None, typer.Option("--workers", "-w", help="Threads.", min=1, show_default="every core")
    ] = None,
    quiet: o.QuietOption = False,
) -> None:
    """Find the share of each topic in documents the model has not seen.

    Where the file has a vocabulary of its own, its words are looked up in the model's by name; words the model does not
    know are left out. In the .npz file `shares` is [documents, topics], float32, rows add up to 1, and `documents` has
    their names, where they have some. In the .csv file documents without names are numbered from 0.
    """
    from . import shares
    from .documents import documents_of
    from .topics import load
    from .vocabulary import vocabulary_of

    write = shares.writer(out)  # a wrong name is told before any work
    model = load(run).set_params(n_jobs=workers)
    # Without names on the model's side, names on the file's side are of no use.
    words = None if model.vocabulary_ is None else vocabulary_of(file, vocab, quiet=quiet)
    corpus = documents_of(file, model, words)
    seconds = write(model, corpus, out, least)
    if not quiet:
        speed = corpus.n_documents / max(seconds, 1e-9)
        say(f"{out}: {corpus.n_documents:,} documents × {model.topics_.n_topics:,} topics, {speed:,.0f} documents/s")
    if perplexity:
        say(f"perplexity {model.perplexity(corpus.data):.1f} of half of each document, given the other half")
