"""Fitting of `LatentDirichletAllocation`: from parameters and documents to a plan, a run and the fitted attributes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from numbers import Real
from typing import Any, Literal, Self

import numpy as np

from stretto.checks import parse_bytes
from stretto.data.documents.read_text import is_texts, read_text
from stretto.data.documents.text_counts import TextCounts
from stretto.kernels.core.profiles import PROFILES
from stretto.models import checks
from stretto.models.options import refuse_unused
from stretto.models.renamed import RenamedParameters
from stretto.models.sklearn_base import (
    BaseEstimator,
    CallbackSupportMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    clone,
    with_callbacks,
)
from stretto.plan.plan import Plan
from stretto.runtime.blocks.job import EpochReport
from stretto.runtime.runtimes import Runtime
from stretto.runtime.session import Session, scratch_folder

from . import persistence
from .fit import FitSettings, TopicFit, learn, place_for, plan_topics
from .input import Corpus, names_its_words
from .problem import FIRST_TOPICS, SAMPLERS, TopicProblem, schedule
from .seeding.seeds import SEED_WEIGHT, Seeds
from .topics import Topics

_BATCH_EPOCHS = 20
_PRIORS = 1e-30, 1e30  # normal float32 numbers, as are their inverses and sums


class TopicFitting(
    RenamedParameters,
    CallbackSupportMixin,  # type: ignore[misc]
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Parameters of `st.LatentDirichletAllocation`, which documents them, and fitting by them."""

    # The parameters, which the constructor of the estimator takes.
    n_components: int
    sampler: str
    doc_topic_prior: Any
    topic_word_prior: float | None
    seeds: Any
    seed_weight: float | None
    max_iter: int
    first_topics: str
    warm_up: int | None
    optimize_every: int
    burn_in: int | None
    average_every: int | None
    mh_steps: int
    evaluate_every: int
    early_stopping: bool
    validation_fraction: float
    n_iter_no_change: int
    tol: float
    strict: bool
    width: int
    profile: str
    random_state: Any
    n_jobs: int | Literal["auto"] | None
    runtime: Runtime | None
    memory: int | str | None
    verbose: int

    # What a fit leaves.
    topics_: Topics
    n_iter_: int
    n_features_in_: int
    history_: list[dict[str, float]]
    plan_: Plan
    fingerprint_: str
    vocabulary_: list[str] | None
    text_options_: dict[str, Any] | None
    seed_names_: list[str | None] | None

    def _check(self) -> None:
        """Raise an error for wrong parameters before anything is read."""
        check = checks.of(self)
        number = check.number
        number("n_components", self.n_components, least=1, most=1 << 20, whole=True)
        number("max_iter", self.max_iter, least=1, whole=True)
        number("width", self.width, least=1, whole=True)
        number("mh_steps", self.mh_steps, least=1, whole=True)
        number("n_iter_no_change", self.n_iter_no_change, least=1, whole=True)
        for name in ("optimize_every", "evaluate_every"):
            number(name, getattr(self, name), least=0, whole=True)
        for name in ("warm_up", "burn_in", "average_every"):
            check.optional(name, getattr(self, name), least=0, whole=True)
        number("tol", self.tol, least=0)
        number("validation_fraction", self.validation_fraction, above=0, below=1)
        check.optional("topic_word_prior", self.topic_word_prior, above=0)
        check.optional("topic_word_prior", self.topic_word_prior, least=_PRIORS[0], most=_PRIORS[1])
        check.choice("sampler", self.sampler, ("auto", *SAMPLERS))
        check.choice("first_topics", self.first_topics, FIRST_TOPICS)
        check.choice("profile", self.profile, PROFILES)
        check.flags(early_stopping=self.early_stopping, strict=self.strict)
        check.level(self.verbose)
        self._alpha()
        check.optional("seed_weight", self.seed_weight, above=0)
        self._seeds()
        place_for(self.runtime, self.n_jobs)
        self._refuse_unused()

    def _seeds(self) -> Seeds | None:
        """The seed words, checked."""
        return None if self.seeds is None else Seeds.of(self.seeds, int(self.n_components))

    def _refuse_unused(self) -> None:
        """PlanError for an option that this fit would ignore."""
        if self.seeds is None:
            refuse_unused(self, {"seed_weight": "it belongs to seeds="}, chosen="seeds=None")
        if self.sampler == "sparse":
            refuse_unused(self, {"mh_steps": "it belongs to sampler='mh'"}, chosen="sampler='sparse'")
        if not self.early_stopping:
            stopping = ("validation_fraction", "n_iter_no_change", "tol")
            unused = dict.fromkeys(stopping, "it belongs to early_stopping=True")
            refuse_unused(self, unused, chosen="early_stopping=False")
            if not self.optimize_every and self.average_every == 0:
                needs = "it belongs to optimize_every=, average_every= and early_stopping=True"
                refuse_unused(self, {"burn_in": needs}, chosen="optimize_every=0 and average_every=0")

    def _alpha(self) -> tuple[float, ...]:
        K, given = int(self.n_components), self.doc_topic_prior
        if given is None:
            return (5.0 / K,) * K
        if isinstance(given, Real):
            checks.of(self).number("doc_topic_prior", given, above=0)
            checks.of(self).number("doc_topic_prior", given, least=_PRIORS[0], most=_PRIORS[1])
            return (float(given),) * K
        try:
            alpha = np.asarray(given, np.float64)
        except (TypeError, ValueError, OverflowError):
            alpha = np.empty(0)
        least, most = _PRIORS
        if alpha.shape != (K,) or not np.all((alpha >= least) & (alpha <= most)):
            must = f"a number more than 0 (from {least:g} to {most:g}), or {K} of them, one for each topic"
            raise checks.of(self).wrong("doc_topic_prior", must, given)
        return tuple(alpha.tolist())

    def _seed(self) -> int:
        return checks.seed(self.random_state, owner=type(self).__name__)

    def _settings(
        self, seed: int, epochs: int, validation: Any, *, runtime: Any = None, batch: bool = False, warm: bool = True
    ) -> FitSettings:
        """The settings of a fit; of `batch`, a call of partial_fit, whose counts stay integers unless asked otherwise.

        warm : whether there is a warm-up
        """
        beta = 0.01 if self.topic_word_prior is None else float(self.topic_word_prior)
        alpha = self._alpha()
        problem = TopicProblem(
            topics=int(self.n_components),
            alpha=alpha,
            beta=beta,
            sampler=self.sampler,
            steps=int(self.mh_steps),
            optimise_every=int(self.optimize_every),
            first_topics=self.first_topics,
            **self._schedule(int(epochs), batch=batch, warm=warm),
        )
        return FitSettings(
            problem,
            seed=seed,
            epochs=int(epochs),
            profile=self.profile,
            width=int(self.width),
            runtime=place_for(self.runtime if runtime is None else runtime, self.n_jobs),
            memory=None if self.memory is None else parse_bytes(self.memory),
            strict=bool(self.strict),
            evaluate_every=int(self.evaluate_every),
            validation=validation,
            patience=(int(self.n_iter_no_change), float(self.tol)) if self.early_stopping else None,
            parameters=persistence.plain(self.get_params(deep=False)),
            seeds=self._seeds(),
            seed_weight=SEED_WEIGHT if self.seed_weight is None else float(self.seed_weight),
        )

    def _schedule(self, epochs: int, *, batch: bool = False, warm: bool = True) -> dict[str, Any]:
        """When a fit of n epochs warms up, learns priors and averages."""
        warm_up = self.warm_up
        if batch:  # learned topics need no warm-up
            warm_up = (None if warm_up is None else min(warm_up, epochs // 2)) if warm else 0
        return schedule(
            epochs,
            warm_up=None if warm_up is None else int(warm_up),
            burn_in=None if self.burn_in is None else int(self.burn_in),
            average_every=(0 if batch else None) if self.average_every is None else int(self.average_every),
            learning=bool(self.optimize_every),
            stopping=bool(self.early_stopping),
        )

    def _is_fitted(self) -> bool:
        return hasattr(self, "topics_")

    __sklearn_is_fitted__ = _is_fitted

    @with_callbacks  # type: ignore[untyped-decorator]
    def fit(
        self, X: Any, y: Any = None, *, validation: Any = None, vocabulary: Any = None, session: Session | None = None
    ) -> Self:
        """Learn from documents.

        Parameters
        ----------
        X : sparse or dense matrix, DataFrame, Data, TextCounts or path
            Counts, documents × words; `st.read_text` counts the words of text.
        y : object, default None
            Ignored.
        validation : documents, float or None, default None
            Documents to measure on after each epoch, or the share of X to hold out for it.
        vocabulary : sequence of str, path or None, default None
            The words, or a file with one word a line.
        session : Session or None, default None
            Where to record the run, when to save checkpoints, whether to continue from one.
        """
        return self._fit(X, validation, vocabulary, session)

    def plan(self, X: Any, y: Any = None, *, validation: Any = None, vocabulary: Any = None) -> Plan:
        """The plan that `fit` with these arguments runs, made by counting the tokens. Nothing is learned.

        Parameters
        ----------
        X : sparse or dense matrix, DataFrame, Data or path
            Counts, documents × words.
        y : object, default None
            Ignored.
        validation : documents, float or None, default None
            Documents to measure on after each epoch, or the share of X to hold out for it.
        vocabulary : sequence of str, path or None, default None
            The words, or a file with one word a line.

        Returns
        -------
        Plan
            With `explain()`, `draw()`, `cost` and `fingerprint`; `run(runtime=…, session=…)` fits this estimator by it.
        """
        self._check()
        settings = self._settings(self._seed(), self.max_iter, self._held(validation))
        made = plan_topics(clone(self), X, settings, vocabulary)
        return replace(made, runner=partial(self._run_plan, made, X, validation, vocabulary))

    @with_callbacks  # type: ignore[untyped-decorator]
    def _run_plan(
        self, made: Plan, X: Any, validation: Any, vocabulary: Any, runtime: Any = None, session: Session | None = None
    ) -> Self:
        """Fit by an existing plan; PlanError if the plan of this fit would now differ."""
        return self._fit(X, validation, vocabulary, session, made, runtime)

    def _fit(
        self,
        X: Any,
        validation: Any,
        vocabulary: Any,
        session: Session | None,
        made: Plan | None = None,
        runtime: Any = None,
    ) -> Self:
        self._check()
        self.text_options_ = X.options.plain() if isinstance(X, TextCounts) else None
        seed = self._seed() if made is None else made.logical.seed
        session = session or Session(verbose=self.verbose, unit="tokens")
        scratch = scratch_folder(session) if self.memory is not None else None
        settings = self._settings(seed, self.max_iter, self._held(validation), runtime=runtime)
        learned = learn(
            self, X, settings, session, vocabulary=vocabulary, scratch=scratch, stop=self._callbacks, made=made
        )
        self._keep(learned, [], 0)
        return self

    def _held(self, validation: Any) -> Any:
        """The held-out data: the documents given, else with early stopping a share of X."""
        return float(self.validation_fraction) if validation is None and self.early_stopping else validation

    @with_callbacks  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Learn from more documents: what was learned stays as counts, and the documents of X are added to it.

        There are twenty passes over their tokens (or `max_iter`, if that is fewer), and `burn_in` counts those passes.
        Priors that were learned are kept. The last state is kept; states are averaged only if `average_every` is given.
        Averaged counts of an earlier fit are rounded so that every word keeps its number of tokens.

        Parameters
        ----------
        X : sparse or dense matrix, DataFrame, Data or path
            Counts, documents × words.
        y : object, default None
            Ignored.
        """
        self._check()
        going_on = self._is_fitted()
        before, done = (self.history_, self.n_iter_) if going_on else ([], 0)
        epochs = min(self.max_iter, _BATCH_EPOCHS)
        seed = (self._seed() + done) % (2**31 - 1)  # other documents, other draws
        settings = self._settings(seed, epochs, None, batch=True, warm=not going_on)
        start = self.topics_ if going_on else None
        session = Session(verbose=self.verbose, unit="tokens")
        X = self._counted(X)
        named = self.vocabulary_ if going_on and names_its_words(X) else None
        if not going_on:
            self.text_options_ = X.options.plain() if isinstance(X, TextCounts) else None
        learned = learn(self, X, settings, session, vocabulary=named, start=start, stop=self._callbacks)
        self._keep(learned, before, done)
        return self

    def _counted(self, X: Any) -> Any:
        """Texts as counts of the model's words, where it was trained on text; everything else as it is."""
        if getattr(self, "text_options_", None) is None or self.vocabulary_ is None or not is_texts(X):
            return X
        texts = X.to_list() if hasattr(X, "to_list") else list(X)
        return read_text(texts, like=self)

    def _callbacks(self, root: Any, corpus: Corpus | None, epoch: int, report: EpochReport, topics: Any) -> bool:
        """Notify scikit-learn's callbacks of an epoch; return whether one of them requests a stop."""
        task = root.subcontext(task_name=f"epoch {epoch}")
        X = None if corpus is None else corpus.data
        task.call_on_fit_task_begin(estimator=self, X=X, y=None)
        stop = task.call_on_fit_task_end(
            estimator=self,
            X=X,
            y=None,
            metadata={"epoch": epoch, "objective": report.objective, **report.metrics},
            reconstruction_attributes=lambda: {"topics_": topics()},
        )
        return bool(stop)

    def _keep(self, learned: TopicFit, before: list[dict[str, float]], done: int) -> None:
        self.topics_ = learned.topics
        self.plan_, self.fingerprint_ = learned.plan, learned.plan.fingerprint
        self.n_features_in_ = learned.topics.n_words
        self.vocabulary_ = learned.vocabulary
        self.seed_names_ = None if (seeds := self._seeds()) is None else seeds.named(learned.topics.n_topics)
        self.n_iter_ = done + learned.epochs
        self.history_ = before + learned.history
        if learned.stopped:
            # Keep what was learned; the caller gets the interruption as from any Python code.
            raise KeyboardInterrupt
