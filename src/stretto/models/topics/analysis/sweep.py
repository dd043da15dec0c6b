"""`st.sweep_topics`: train topic models with different numbers of topics and seeds, and compare them.

All models learn from the same documents and are measured on the same held-out ones: the tokens of each are dealt to two
halves, its topics are inferred from one and measured on the other (document completion). The stability of a number of
topics is how alike the topics of different seeds are: for each pair of seeds the optimal pairing of topics, its mean
Hellinger affinity Σ_w √(p_k(w) q_k(w)), and the mean over pairs of seeds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stretto.checks import whole
from stretto.data.documents.text_counts import TextCounts
from stretto.errors import DataError, PlanError
from stretto.models import checks
from stretto.models.sklearn_base import clone
from stretto.models.topics.coherence import MEASURES
from stretto.models.topics.input import as_corpus, split_documents, split_tokens
from stretto.observe.fit_progress import FitProgress

from .matching import between, pair
from .sweep_result import SweepRun, SweptTopic, TopicSweep

if TYPE_CHECKING:
    from stretto.models.topics.estimator import LatentDirichletAllocation

Models = dict[tuple[int, int], "LatentDirichletAllocation"]


def sweep_topics(
    X: Any,
    n_components: Sequence[int] = (10, 20, 50, 100),
    *,
    model: LatentDirichletAllocation | None = None,
    random_states: int | Sequence[int] = 3,
    test: float = 0.1,
    coherence: str = "npmi",
    words: int = 10,
    reference: Any = None,
    vocabulary: Any = None,
    seed: int = 0,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> TopicSweep:
    """Train a topic model for each number of topics and each seed, and compare them on the same held-out documents.

    Parameters
    ----------
    X : sparse or dense matrix, DataFrame, Data, TextCounts or path
        Counts, documents × words.
    n_components : sequence of int, default (10, 20, 50, 100)
        Numbers of topics.
    model : LatentDirichletAllocation or None, default None
        The estimator with all other parameters; it is cloned, never fitted itself. None: the defaults.
    random_states : int or sequence of int, default 3
        Seeds of the fits, or how many: 0, 1, 2, … With one seed there is no stability.
    test : float, default 0.1
        Share of the documents held out.
    coherence : {"npmi", "umass", "c_v"}, default "npmi"
        Measure of coherence; of counts, documents take the place of the windows of "c_v".
    words : int, default 10
        Words of a topic whose coherence is measured.
    reference : documents or None, default None
        Documents in which coherence is measured, in the same words as X; a list of texts if X is TextCounts. None:
        those learned from.
    vocabulary : sequence of str, path or None, default None
        The words, or a file with one word a line.
    seed : int, default 0
        Decides which documents and tokens are held out.
    n_jobs : int or None, default None
        Threads of each fit; None for those of `model`. Never changes a number.
    verbose : int, default 0
        1 shows which fit runs.

    Returns
    -------
    TopicSweep
        The table, every run, every topic, and the models.

    Examples
    --------
    >>> import numpy as np, stretto as st
    >>> X = np.random.default_rng(0).poisson(0.5, (40, 30))
    >>> model = st.LatentDirichletAllocation(max_iter=5)
    >>> sweep = st.sweep_topics(X, [2, 3], model=model, random_states=2)
    >>> [row.n_components for row in sweep.table]
    [2, 3]
    """
    made, numbers, draws = _template(model, n_jobs), _numbers(n_components), _random_states(random_states)
    checks.choice("coherence", coherence, MEASURES)
    checks.number("words", words, least=2, whole=True)
    checks.number("test", test, above=0, below=1)
    corpus = as_corpus(X, strict=made.strict, seed=int(seed), vocabulary=vocabulary)
    train, held = split_documents(corpus, float(test), int(seed))
    seen, rest = split_tokens(held, 0.5, int(seed))
    options = X.options.plain() if isinstance(X, TextCounts) else None
    beside = train.data if reference is None else reference
    runs: list[SweepRun] = []
    topics: list[SweptTopic] = []
    models: Models = {}
    with FitProgress(len(numbers) * len(draws), verbose=verbose) as progress:
        for K in numbers:
            scores: list[NDArray[np.float64]] = []
            for draw in draws:
                label = f"{K:,} topics, seed {draw}"
                progress.begin(label)
                began = time.perf_counter()
                fitted = clone(made).set_params(n_components=K, random_state=draw)
                fitted.fit(train.data, vocabulary=train.vocabulary)
                fitted.text_options_ = options
                seconds = time.perf_counter() - began
                likelihood = -math.log(fitted.perplexity(seen.data, rest.data))
                scores.append(fitted.coherence(beside, words, coherence))
                run = SweepRun(K, draw, math.exp(-likelihood), likelihood, _mean(scores[-1]), math.nan, seconds)
                runs.append(run)
                models[K, draw] = fitted
                progress.end(f"{label}: perplexity {run.perplexity:.1f}, coherence {run.coherence:.3f}")
            stable = _stability([models[K, draw] for draw in draws])
            for at, alike in enumerate(stable, len(runs) - len(draws)):
                runs[at] = replace(runs[at], stability=_mean(alike))
            topics += _topics(models[K, draws[0]], scores[0], stable[0])
    return TopicSweep(
        runs=tuple(runs), topics=tuple(topics), measure=coherence, held_documents=held.n_documents,
        held_tokens=rest.n_tokens, models=models,
    )  # fmt: skip


def _template(model: LatentDirichletAllocation | None, n_jobs: int | None) -> LatentDirichletAllocation:
    from stretto.models.topics.estimator import LatentDirichletAllocation

    made = LatentDirichletAllocation(evaluate_every=0) if model is None else clone(model)
    if np.ndim(made.doc_topic_prior):
        raise PlanError(
            "doc_topic_prior of model is an array, and a sweep has several numbers of topics; give one number, or None"
        )
    if made.memory is not None:
        raise PlanError("model has memory=, which streams a file that cannot hold documents out; leave memory out")
    return made if n_jobs is None else made.set_params(n_jobs=n_jobs)


def _numbers(given: Sequence[int]) -> list[int]:
    found = [whole("n_components", K, least=1, who="sweep_topics") for K in np.atleast_1d(np.asarray(given))]
    if not found or len(set(found)) < len(found):
        raise DataError(f"n_components is {list(found)}; give different numbers of topics, such as [10, 20, 50]")
    return sorted(found)


def _random_states(given: int | Sequence[int]) -> list[int]:
    if np.ndim(given) == 0:
        return list(range(whole("random_states", given, least=1, who="sweep_topics")))
    found = [whole("random_states", draw, least=0, who="sweep_topics") for draw in np.asarray(given)]
    if not found or len(set(found)) < len(found):
        raise DataError(f"random_states is {list(found)}; give different ones, such as [0, 1, 2]")
    return found


def _stability(models: list[LatentDirichletAllocation]) -> NDArray[np.float64]:
    """[seeds, topics] mean similarity of each topic with its partners of the other seeds; NaN with one seed."""
    found = np.full((len(models), models[0].topics_.n_topics), math.nan)
    if len(models) == 1:
        return found
    found[:] = 0.0
    with models[0]._place().open() as crew:
        alike = between([model.topics_ for model in models], [None] * len(models), crew)
    for i, j in combinations(range(len(models)), 2):
        match = pair(alike[i][j])
        found[i] += match.similarity
        found[j, match.topics] += match.similarity
    return found / (len(models) - 1)


def _topics(
    model: LatentDirichletAllocation, coherence: NDArray[np.float64], stability: NDArray[np.float64]
) -> list[SweptTopic]:
    names, tokens = model.topic_names(), model.topic_tokens_
    return [
        SweptTopic(len(names), k, name, round(float(tokens[k])), float(coherence[k]), float(stability[k]))
        for k, name in enumerate(names)
    ]


def _mean(values: NDArray[np.float64]) -> float:
    """The mean of the values that are defined."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else math.nan
