"""Recipe of `stretto train lda`: reads a file of word counts and fits a topic model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from stretto.cli.reading import READING, plain, reading, refuse_reading
from stretto.cli.seeds import read_seeds
from stretto.cli.text_input import read_documents, shown_corpus, size_of, text_settings
from stretto.cli.vocabulary import vocabulary_of
from stretto.errors import DataError

from .recipe import Recipe

if TYPE_CHECKING:
    from stretto.data.documents.text_counts import TextCounts
    from stretto.models.topics.estimator import LatentDirichletAllocation
    from stretto.models.topics.input import Corpus
    from stretto.plan.plan import Plan
    from stretto.runtime.session import Session

BROWSER = "topics.html"
_HELD = 0.05  # share of the documents held out for early stopping, unless given


@dataclass(frozen=True, kw_only=True)
class LdaRecipe(Recipe):
    """The settings of `stretto train lda`."""

    kind: ClassVar[str] = "lda"
    unit: ClassVar[str] = "tokens"
    vocabulary: str | None = None  # the file of the words
    read: Mapping[str, Any] = field(default_factory=dict)  # arguments of `stretto.read` that differ from its defaults
    text: Mapping[str, Any] | None = None  # arguments of `stretto.read_text`, where the file is text
    show_all: bool = False  # print every topic at the end

    def data(self) -> Corpus | TextCounts | str:
        if self.text is not None:
            return read_documents(self.file, self.text)
        from stretto.checks import parse_bytes
        from stretto.models.topics.input import as_corpus

        if self.memory is not None:
            parse_bytes(self.memory)  # reports a wrong budget before any work
            refuse_reading(self.read)
            return self.file
        model = self.model(None)
        return as_corpus(
            self.file, strict=model.strict, seed=model._seed(), vocabulary=self.vocabulary, read_as=self.read
        )

    def size(self, data: Corpus | TextCounts | str) -> str:
        if isinstance(data, str):
            return "streamed from disk"
        if self.text is not None:
            return size_of(cast("TextCounts", data))
        data = cast("Corpus", data)
        return f"{data.n_documents:,} documents × {data.n_words:,} words, {data.n_tokens:,} tokens"

    def model(self, workers: int | None) -> LatentDirichletAllocation:
        from stretto.models.topics.estimator import LatentDirichletAllocation

        return LatentDirichletAllocation(**self.parameters, n_jobs=workers, memory=self.memory)

    def fit(self, model: LatentDirichletAllocation, data: Corpus | TextCounts | str, session: Session) -> None:
        X, words = self.inputs(data)
        model.fit(X, validation=self.test or None, vocabulary=words, session=session)

    def plan(self, model: LatentDirichletAllocation, data: Corpus | TextCounts | str) -> Plan:
        X, words = self.inputs(data)
        return model.plan(X, validation=self.test or None, vocabulary=words)

    def inputs(self, data: Corpus | TextCounts | str) -> tuple[Any, Any]:
        """(documents, their words) as the estimator takes them."""
        if isinstance(data, str):
            return data, self.vocabulary
        if self.text is not None:
            return data, None
        corpus = cast("Corpus", data)
        return corpus.data, corpus.vocabulary

    def finish(
        self, model: LatentDirichletAllocation, data: Corpus | TextCounts | str, folder: Path, *, quiet: bool
    ) -> list[str]:
        """Write the topic browser, and print the topics."""
        from stretto.cli.commands.topics import print_topics
        from stretto.cli.documents import first_documents
        from stretto.models.topics.browse import browse
        from stretto.observe.topics_page import write_topics

        corpus: Corpus | None
        if isinstance(data, str):
            corpus = first_documents(data, model)
        else:
            corpus = cast("Corpus", data) if self.text is None else shown_corpus(cast("TextCounts", data), model)
        view = browse(model, corpus, title=folder.resolve().name)
        write_topics(folder / BROWSER, view)
        if not quiet:
            print_topics(view, words=10, most=None if self.show_all else 20, named=model.seed_names_)
        return [f"{BROWSER} to look through"]

    def lasting(self, epochs: int) -> LdaRecipe:
        """Warm-up and averages stay where they were: by default they follow from the number of epochs."""
        given = self.model(None)
        times = given._schedule(self.epochs)
        kept = {name: times[name] for name in ("warm_up", "burn_in", "average_every")}
        return replace(self, parameters={**self.parameters, **kept, "max_iter": epochs})

    def use(self, run: str) -> str:
        return f"stretto topics {run} --topic 0"


def held_share(test: float | None, early_stopping: bool, memory: str | None) -> float:
    """The share of the documents to hold out, which a file that is streamed cannot have."""
    share = (_HELD if early_stopping else 0.0) if test is None else test
    if early_stopping and not share:
        raise DataError("--early-stopping watches documents that are held out; leave --test 0 out")
    if share and memory is not None:
        asked = "--test" if test else "--early-stopping"
        raise DataError(
            f"{asked} holds documents out, and a file that is streamed with --memory has none to hold out: "
            f"leave {asked} out, or leave --memory out"
        )
    return share


# Options that are parameters of the estimator, by the names it has for them.
_PARAMETERS = {
    name: name
    for name in (
        *("sampler", "optimize_every", "warm_up", "burn_in", "average_every", "mh_steps", "evaluate_every"),
        *("strict", "width", "profile", "early_stopping", "seeds", "seed_weight"),
    )
} | {
    "topics": "n_components",
    "epochs": "max_iter",
    "alpha": "doc_topic_prior",
    "beta": "topic_word_prior",
    "seed": "random_state",
}


def lda_recipe(
    *,
    file: str,
    vocab: str | None,
    seeds: str | None = None,
    seed_weight: float | None = None,
    test: float | None,
    checkpoint_every: str | None,
    memory: str | None,
    early_stopping: bool,
    everything: bool,
    quiet: bool,
    **asked: Any,
) -> LdaRecipe:
    """The recipe of the options of `stretto train lda`."""
    asked |= {"early_stopping": early_stopping, "seed_weight": seed_weight}
    asked["seeds"] = None if seeds is None else read_seeds(seeds)
    text = text_settings(file, asked, quiet=quiet)
    if text is not None and vocab not in (None, "none"):
        raise DataError("--vocab names the columns of a file of counts; text brings its own words: leave --vocab out")
    return LdaRecipe(
        file=file,
        text=text,
        vocabulary=vocabulary_of(file, vocab, quiet=quiet) if text is None else None,
        read={} if text is not None else reading(**{name: asked[name] for name in READING if name in asked}),
        test=held_share(test, early_stopping, None if text is not None else memory),
        parameters={name: plain(asked[option]) for option, name in _PARAMETERS.items()},
        checkpoint_every=checkpoint_every,
        memory=memory,
        show_all=everything,
    )
