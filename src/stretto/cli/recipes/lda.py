"""Recipe of `stretto train lda`: reads a file of word counts and fits a topic model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from stretto.cli.reading import READING, plain, reading, refuse_reading
from stretto.cli.vocabulary import vocabulary_of
from stretto.errors import DataError

from .recipe import Recipe

if TYPE_CHECKING:
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
    show_all: bool = False  # print every topic at the end

    def data(self) -> Corpus | str:
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

    def size(self, data: Corpus | str) -> str:
        if isinstance(data, str):
            return "streamed from disk"
        return f"{data.n_documents:,} documents × {data.n_words:,} words, {data.n_tokens:,} tokens"

    def model(self, workers: int | None) -> LatentDirichletAllocation:
        from stretto.models.topics.estimator import LatentDirichletAllocation

        return LatentDirichletAllocation(**self.parameters, n_jobs=workers, memory=self.memory)

    def fit(self, model: LatentDirichletAllocation, data: Corpus | str, session: Session) -> None:
        X, words = (data, self.vocabulary) if isinstance(data, str) else (data.data, data.vocabulary)
        model.fit(X, validation=self.test or None, vocabulary=words, session=session)

    def plan(self, model: LatentDirichletAllocation, data: Corpus | str) -> Plan:
        X, words = (data, self.vocabulary) if isinstance(data, str) else (data.data, data.vocabulary)
        return model.plan(X, validation=self.test or None, vocabulary=words)

    def finish(self, model: LatentDirichletAllocation, data: Corpus | str, folder: Path, *, quiet: bool) -> list[str]:
        """Write the topic browser, and print the topics."""
        from stretto.cli.commands.topics import print_topics
        from stretto.cli.documents import first_documents
        from stretto.models.topics.browse import browse
        from stretto.observe.topics_page import write_topics

        corpus = first_documents(data, model) if isinstance(data, str) else data
        view = browse(model, corpus, title=folder.resolve().name)
        write_topics(folder / BROWSER, view)
        if not quiet:
            print_topics(view, words=10, most=None if self.show_all else 20)
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
        *("strict", "width", "profile", "early_stopping"),
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
    test: float | None,
    checkpoint_every: str | None,
    memory: str | None,
    early_stopping: bool,
    everything: bool,
    quiet: bool,
    **asked: Any,
) -> LdaRecipe:
    """The recipe of the options of `stretto train lda`."""
    asked["early_stopping"] = early_stopping
    return LdaRecipe(
        file=file,
        vocabulary=vocabulary_of(file, vocab, quiet=quiet),
        read=reading(**{name: asked[name] for name in READING if name in asked}),
        test=held_share(test, early_stopping, memory),
        parameters={name: plain(asked[option]) for option, name in _PARAMETERS.items()},
        checkpoint_every=checkpoint_every,
        memory=memory,
        show_all=everything,
    )
