"""Fit a topic model: read the corpus, build the job in memory or on disk, run it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from stretto.data.parts.node_files import NodeFiles
from stretto.errors import DataError, PlanError
from stretto.models import checks
from stretto.models.factorization.input import at_once, is_path
from stretto.plan.plan import Physical, Plan, PlanSettings
from stretto.plan.planned import refuse_changed
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.job import EpochReport
from stretto.runtime.blocks.source import EntrySource, InMemory
from stretto.runtime.blocks.train import JobTrainer, Patience
from stretto.runtime.chosen import here, name_of, one_memory
from stretto.runtime.runtimes import Runtime
from stretto.runtime.session import Session

from .corpus_files import CountFile, on_disk
from .count_layout import Census
from .counted_plan import CountedCorpus, count_lda
from .input import Corpus, as_corpus, names_its_words, split_documents, split_tokens
from .job import LdaJob, lay_out_in_memory, lay_out_lda
from .layout import take_census
from .monitor import LikelihoodMonitor
from .problem import TopicProblem
from .seeding.prior_tokens import with_seeds
from .seeding.seeds import Seeds
from .topics import Topics

_HELD = 0.5  # held-out share of a validation document's tokens


@dataclass(frozen=True, eq=False)
class FitSettings:
    """Settings of a fit."""

    problem: TopicProblem
    seed: int
    epochs: int
    profile: str
    width: int
    runtime: Runtime
    memory: int | None  # budget in bytes; None: no limit
    strict: bool  # whether fractional counts are refused
    evaluate_every: int  # epochs between two evaluations of the likelihood
    validation: Any  # documents, or a share of X, to measure on
    patience: tuple[int, float] | None
    parameters: Mapping[str, Any]
    seeds: Seeds | None = None
    seed_weight: float = 0.0


@dataclass(frozen=True, eq=False)
class TopicFit:
    """Result of a fit."""

    topics: Topics
    plan: Plan
    epochs: int  # epochs completed
    history: list[dict[str, float]]
    vocabulary: list[str] | None
    stopped: bool  # whether the user stopped it before its end


@dataclass(frozen=True, eq=False)
class CorpusInput:
    """Documents to learn from and to measure on."""

    source: EntrySource
    corpus: Corpus | None  # None if the documents are on disk
    held: tuple[Any, Any] | None  # (observed, rest) tokens of validation documents
    vocabulary: list[str] | None


Stop = Callable[[Any, "Corpus | None", int, EpochReport, Callable[[], Topics]], bool]


def place_for(runtime: Any, n_jobs: Any) -> Runtime:
    """The runtime of a fit; PlanError if the fit cannot run there."""
    found = checks.place(runtime, n_jobs, owner="LatentDirichletAllocation")
    return found


def learn(
    estimator: Any,
    X: Any,
    settings: FitSettings,
    session: Session,
    *,
    stop: Stop,
    vocabulary: Any = None,
    start: Topics | None = None,
    scratch: Any = None,
    made: Plan | None = None,
) -> TopicFit:
    """Learn topics from X.

    start : topics to continue from
    made : the plan to run; PlanError if the plan of this fit would now differ
    """
    folder = None if scratch is None else Path(scratch.name)
    with ExitStack() as stack:
        crew = stack.enter_context(settings.runtime.open()) if _is_read_by_nodes(X, settings) else None
        feed = _feed(estimator, X, settings, vocabulary, reset=start is None, folder=folder, crew=crew)
        return _learn(estimator, feed, settings, session, stop, start, folder, made, crew)


def _is_read_by_nodes(X: Any, settings: FitSettings) -> bool:
    """Whether the nodes of a cluster read X: files, with a memory budget."""
    return is_path(X) and settings.memory is not None and not one_memory(settings.runtime)


def _learn(
    estimator: Any,
    feed: CorpusInput,
    settings: FitSettings,
    session: Session,
    stop: Stop,
    start: Topics | None,
    folder: Path | None,
    made: Plan | None,
    opened: Crew | None,
) -> TopicFit:
    """Run a fit. opened: an open crew of the runtime, if there is one."""
    problem = settings.problem
    if start is not None:
        problem = _going_on(problem, start)
    runtime = settings.runtime
    watch = LikelihoodMonitor(settings.evaluate_every, settings.epochs, feed.held)
    root = estimator._init_callback_context(max_subtasks=None)
    root.call_on_fit_task_begin(estimator=estimator, X=None if feed.corpus is None else feed.corpus.data, y=None)
    with runtime.open() if opened is None else nullcontext(opened) as crew, session.listen() as tell:
        job = _job(problem, feed, crew, settings, watch, start, folder, made)
        patience = None
        if settings.patience is not None and feed.held is not None:
            epochs, share = settings.patience
            patience = Patience(epochs, metric="held_perplexity", share=share, least=problem.settling)
        trainer = JobTrainer(
            job,
            crew,
            tell=tell,
            saving=session.saving,
            patience=patience,
            stop_after=lambda epoch, report: stop(root, feed.corpus, epoch, report, job.topics),
            widths=checks.width_search(runtime),
        )
        about = {
            "estimator": type(estimator).__name__,
            "parameters": dict(settings.parameters),
            "seed": settings.seed,
            "data": _described(feed),
            "workers": runtime.workers,
        }
        outcome = session.drive(trainer, settings.epochs, about)
        history = [{"objective": r.objective} | r.metrics for r in outcome.reports]
        learned = TopicFit(
            job.topics(), job.plan, outcome.epochs, history, feed.vocabulary, outcome.status == "stopped"
        )
    root.call_on_fit_task_end(estimator=estimator, X=None if feed.corpus is None else feed.corpus.data, y=None)
    return learned


def plan_topics(estimator: Any, X: Any, settings: FitSettings, vocabulary: Any) -> Plan:
    """The plan that `learn` runs, from counts of the corpus. estimator: receives the names of X's columns."""
    with here(settings.runtime).open() as crew:
        feed = _feed(estimator, X, settings, vocabulary, reset=True, folder=None, crew=crew)
        census = take_census(feed.source, crew)
        if isinstance(feed.source, CountFile):
            feed.source.warn_unknown()
        problem, start = _seeded(settings.problem, feed, settings, census, None)
        return _counted(problem, feed, settings, census, crew, start, stream=settings.memory is not None).plan


def _feed(
    estimator: Any,
    X: Any,
    settings: FitSettings,
    vocabulary: Any,
    *,
    reset: bool,
    folder: Path | None,
    crew: Crew | None,
) -> CorpusInput:
    """The documents of a fit.

    folder : where a streamed file is written in blocks; None: the file is only counted, and read in place
    crew : reads files in parts
    """
    if isinstance(X, NodeFiles) and not _is_read_by_nodes(X, settings):
        raise X.unread()
    if is_path(X) and settings.memory is not None:
        if isinstance(settings.validation, float):
            raise PlanError(
                "documents cannot be held out of a file that is streamed: give validation= documents of their own, "
                "or fit without memory="
            )
        source: EntrySource
        if folder is None or not one_memory(settings.runtime):
            by_nodes = crew if _is_read_by_nodes(X, settings) else None
            source = CountFile(X, vocabulary, at_once=at_once(settings.memory), crew=by_nodes)
            names = source.names
        else:
            source, names = on_disk(X, settings.memory, folder, vocabulary)
        held = None if settings.validation is None else _halves(_other(settings, source.shape[1], names), settings.seed)
        return CorpusInput(source, None, held, names)
    corpus = as_corpus(
        X, strict=settings.strict, seed=settings.seed, vocabulary=vocabulary, estimator=estimator, reset=reset
    )
    held = None
    if isinstance(settings.validation, float):
        corpus, aside = split_documents(corpus, settings.validation, settings.seed)
        held = _halves(aside, settings.seed)
    elif settings.validation is not None:
        held = _halves(_other(settings, corpus.n_words, corpus.vocabulary), settings.seed)
    source = InMemory(corpus.data, None if settings.memory is None else at_once(settings.memory))
    names = corpus.vocabulary
    if names is None and not reset:
        names = getattr(estimator, "vocabulary_", None)
    return CorpusInput(source, corpus, held, names)


def _other(settings: FitSettings, words: int, names: list[str] | None) -> Corpus:
    """The validation documents, with the vocabulary of the training documents."""
    X = settings.validation
    named = names if names_its_words(X) else None
    return as_corpus(X, words=words, strict=settings.strict, seed=settings.seed, vocabulary=named)


def _halves(corpus: Corpus, seed: int) -> Any:
    """(observed, rest) of every document, as matrices."""
    observed, rest = (part.data for part in split_tokens(corpus, _HELD, seed))
    return tuple(csr_array((part.values, (part.rows, part.cols)), shape=part.shape) for part in (observed, rest))


def _described(feed: CorpusInput) -> str:
    D, V = feed.source.shape
    where = "on disk" if feed.corpus is None else f"{feed.corpus.n_tokens:,} tokens"
    return f"{D:,} documents × {V:,} words, {where}"


def _going_on(problem: TopicProblem, start: Topics) -> TopicProblem:
    """The problem of a fit that starts from earlier counts; the start is part of the plan."""
    if start.n_topics != problem.topics:
        raise DataError(
            f"n_components is {problem.topics} now and was {start.n_topics} when partial_fit was first called; "
            "keep it, or fit anew"
        )
    digest = hashlib.blake2b(digest_size=8)
    for array in (start.indptr, start.topic, start.count):
        digest.update(np.ascontiguousarray(array).tobytes())
    if problem.optimise_every:
        problem = replace(problem, alpha=tuple(start.alpha.tolist()), beta=float(start.beta))
    return replace(problem, start=digest.hexdigest())


def _seeded(
    problem: TopicProblem, feed: CorpusInput, settings: FitSettings, census: Census, start: Topics | None
) -> tuple[TopicProblem, Topics | None]:
    """The problem and the topics to start from, with the seed words; a fit that continues has them already."""
    if start is not None or settings.seeds is None:
        return problem, start
    return with_seeds(problem, settings.seeds, settings.seed_weight, feed.vocabulary, census)


def _plan_settings(settings: FitSettings) -> PlanSettings:
    physical = Physical(name_of(settings.runtime), settings.runtime.workers, settings.memory)
    return PlanSettings(settings.seed, settings.profile, settings.width, physical)


def _counted(
    problem: TopicProblem,
    feed: CorpusInput,
    settings: FitSettings,
    census: Census,
    crew: Crew,
    start: Topics | None = None,
    *,
    stream: bool = False,
) -> CountedCorpus:
    runtime = settings.runtime
    return count_lda(
        problem,
        feed.source,
        census,
        crew,
        _plan_settings(settings),
        earlier=start,
        stream=stream,
        in_memory=feed.corpus is not None,
        by_nodes=isinstance(feed.source, CountFile) and not one_memory(runtime),
    )


def _job(
    problem: TopicProblem,
    feed: CorpusInput,
    crew: Crew,
    settings: FitSettings,
    watch: LikelihoodMonitor,
    start: Topics | None,
    folder: Path | None,
    made: Plan | None,
) -> LdaJob:
    """The job: in memory, or on disk if the budget requires it."""
    census = take_census(feed.source, crew)
    problem, start = _seeded(problem, feed, settings, census, start)
    if made is None and folder is None and feed.corpus is not None:
        return lay_out_in_memory(
            problem,
            InMemory(feed.corpus.data),
            census,
            crew,
            _plan_settings(settings),
            watch=watch,
            earlier=start,
        )
    counted = _counted(problem, feed, settings, census, crew, start, stream=folder is not None)
    if made is not None:
        refuse_changed(made, counted.plan, "LatentDirichletAllocation.plan(X)")
    streamed = counted.by_nodes or counted.plan.physical.tile is not None or feed.corpus is None
    source = feed.source if streamed or feed.corpus is None else InMemory(feed.corpus.data)
    return lay_out_lda(counted, source, crew, watch=watch, earlier=start, scratch=folder)
