"""`LatentDirichletAllocation`: topics of documents, by Gibbs sampling on a rotating schedule.

    model = st.LatentDirichletAllocation(100, random_state=0).fit(X)     # X: documents × words, sparse counts
    model.top_words(vocabulary, 10)
    shares = model.transform(X_new)

Same seed, same bits, whatever `n_jobs` is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self, cast
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from stretto.data.documents.read_text import is_texts, words_in_order
from stretto.deprecation import deprecated_attribute, deprecated_parameter
from stretto.errors import DataError
from stretto.models import checks
from stretto.models.sklearn_base import check_is_fitted
from stretto.runtime.runtimes import Runtime

from . import persistence
from .analysis.exploring import TopicExploration
from .coherence import WINDOW, WordSequences
from .coherence import coherence as topic_coherence
from .infer import Inferrer
from .input import Corpus, as_corpus, names_its_words, split_tokens
from .summary import similar_topics, top_words
from .topics import Topics

# Inference state of topics, kept while their model exists.
_prepared: WeakKeyDictionary[Topics, Inferrer] = WeakKeyDictionary()


class LatentDirichletAllocation(TopicExploration):
    """Latent Dirichlet allocation: learn the topics of a collection of documents.

    Parameters
    ----------
    n_components : int, default 10
        Number of topics.
    sampler : {"auto", "sparse", "mh"}, default "auto"
        "sparse" draws every topic from its exact conditional distribution; "mh" takes Metropolis-Hastings steps from
        alias tables, whose cost does not grow with the topics of a document; "auto" chooses.
    doc_topic_prior : float, array or None, default None
        Prior of a topic in a document: a number for all, or one for each. None: 5 / n_components.
    topic_word_prior : float or None, default None
        Prior of a word in a topic. None: 0.01.
    seeds : dict or None, default None
        Seed words of topics: name or number of a topic → list of words, or word → prior tokens. The prior of a word in
        its topic is then larger by the prior tokens. Topics with a name take the numbers that are free, from 0 on.
    seed_weight : float or None, default None
        Prior tokens of each seed word, as a share of the mean tokens of a topic; at least 1, and at most as many as the
        word has in the documents. None: 0.01.
    max_iter : int, default 100
        Epochs: passes over the tokens.
    first_topics : {"progressive", "random"}, default "progressive"
        "progressive" draws the first topics from what has been counted so far, "random" draws them evenly.
    warm_up : int or None, default None
        First epochs, in which the prior of words in topics is larger than topic_word_prior: 0.07, or 0.07 √mean where
        the mean count of a word in a topic is less than 1, and √(200 / n) times that where documents have n > 200
        tokens on average. Tokens then change topics more easily, and fewer epochs reach a given perplexity. 0 for plain
        Gibbs sampling from the start. None: as burn_in.
    optimize_every : int, default 0
        Learn the priors as well, at this interval of epochs after burn_in (each topic its own, one for all words); 0
        keeps them fixed.
    burn_in : int or None, default None
        Epochs before priors are learned, states are averaged and early stopping begins to count. Where priors are
        learned or average_every is given, the warm-up takes burn_in epochs at most. None: three quarters of max_iter;
        with optimize_every or early_stopping 30 if that is fewer, and states are averaged from three quarters on.
    average_every : int or None, default None
        After burn_in, average the word counts at this interval of epochs: the topics are the mean of these states and
        predict unseen words better than the last one. 0 keeps the last state alone. None: every max_iter / 32 epochs,
        but 0 with early_stopping, in partial_fit, and where the sums (8 bytes × topics × words) would take more than
        128 MiB and more than 8 bytes for each token.
    mh_steps : int, default 2
        Pairs of proposals for each token (sampler "mh").
    evaluate_every : int, default 5
        Compute the log-likelihood at this interval of epochs, the first and the last included; 0 never.
    early_stopping : bool, default False
        Hold out documents (or give `fit` a validation set) and stop when the perplexity of half their tokens, given the
        other half, no longer falls.
    validation_fraction : float, default 0.05
        Share of documents held out for early stopping.
    n_iter_no_change : int, default 10
        Epochs without improvement, after burn_in, that end the fit.
    tol : float, default 0.001
        Share by which the perplexity must fall to count as improvement.
    strict : bool, default False
        Refuse counts that are not integers; otherwise they are rounded by a draw, with a warning.
    width : int, default 16
        Logical workers of the plan; it changes the answer, n_jobs does not.
    profile : {"exact", "fast"}, default "exact"
        "exact" gives the same bits on every x86-64 processor.
    random_state : int, RandomState or None, default None
        Seed of the plan and of every draw.
    n_jobs : int, "auto" or None, default None
        Threads; None uses those of joblib's context (`joblib.parallel_config(n_jobs=…)`), or else every core that this
        process may use. "auto" finds the number while it fits: it measures epochs on
        every core, then on half of them, and so on while that is not slower. Never changes the answer.
    runtime : runtime or None, default None
        `st.Serial()`, `st.Threads(n)`, `st.Cluster(…)` or `st.Simulated(…)`; overrides n_jobs. Never changes the
        answer.
    memory : int, str or None, default None
        Budget such as "2GiB"; what does not fit is cut into blocks on disk and streamed. On a cluster it is the budget
        of each node, and nodes read their documents from the file. Never changes the answer.
    verbose : int, default 0
        0 quiet, 1 a progress bar, 2 the plan as well.

    Attributes
    ----------
    components_ : ndarray of float32 [topics, words]
        How often each word has each topic (the mean of the averaged states), with the prior added; rows are
        proportional to the topics' distributions over words.
    doc_topic_prior_ : ndarray of float64 [topics]
        Prior of each topic in a document, as learned.
    topic_word_prior_ : float
        Prior of a word in a topic, as learned.
    topic_tokens_ : ndarray of float64 [topics]
        Tokens of each topic.
    topics_ : object
        Counts and priors of the model, from which the attributes above are computed.
    n_iter_ : int
        Epochs done.
    history_ : list of dict
        Log-likelihood and perplexity after each epoch.
    n_features_in_ : int
        Number of words seen by `fit`.
    vocabulary_ : list of str or None
        The words, where the data had names.
    text_options_ : dict or None
        How the documents were cut into words, where they came from `st.read_text`.
    seed_names_ : list of str or None
        The name of each topic by `seeds`, None for one without; None without seeds.
    plan_ : Plan
        The plan that was run (not in models that were loaded).
    fingerprint_ : str
        Its hash.

    Examples
    --------
    >>> import numpy as np, stretto as st
    >>> X = np.array([[3, 2, 0, 0], [2, 4, 0, 0], [0, 0, 3, 2], [0, 0, 2, 5]])
    >>> model = st.LatentDirichletAllocation(2, max_iter=20, random_state=0).fit(X)
    >>> model.transform(X).shape
    (4, 2)
    """

    # Former name, which still works and warns.
    epochs = deprecated_attribute("max_iter", removed_in="0.3")

    @deprecated_parameter("epochs", "max_iter", removed_in="0.3")
    def __init__(
        self,
        n_components: int = 10,
        *,
        sampler: str = "auto",
        doc_topic_prior: Any = None,
        topic_word_prior: float | None = None,
        seeds: Any = None,
        seed_weight: float | None = None,
        max_iter: int = 100,
        first_topics: str = "progressive",
        warm_up: int | None = None,
        optimize_every: int = 0,
        burn_in: int | None = None,
        average_every: int | None = None,
        mh_steps: int = 2,
        evaluate_every: int = 5,
        early_stopping: bool = False,
        validation_fraction: float = 0.05,
        n_iter_no_change: int = 10,
        tol: float = 1e-3,
        strict: bool = False,
        width: int = 16,
        profile: str = "exact",
        random_state: Any = None,
        n_jobs: int | Literal["auto"] | None = None,
        runtime: Runtime | None = None,
        memory: int | str | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.sampler = sampler
        self.doc_topic_prior = doc_topic_prior
        self.topic_word_prior = topic_word_prior
        self.seeds = seeds
        self.seed_weight = seed_weight
        self.max_iter = max_iter
        self.first_topics = first_topics
        self.warm_up = warm_up
        self.optimize_every = optimize_every
        self.burn_in = burn_in
        self.average_every = average_every
        self.mh_steps = mh_steps
        self.evaluate_every = evaluate_every
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.strict = strict
        self.width = width
        self.profile = profile
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.runtime = runtime
        self.memory = memory
        self.verbose = verbose

    @property
    def components_(self) -> NDArray[np.float32]:
        """How often each word has each topic [topics, words], with the prior added."""
        check_is_fitted(self)
        return cast("NDArray[np.float32]", self.topics_.counts() + np.float32(self.topics_.beta))

    @property
    def topic_tokens_(self) -> NDArray[np.float64]:
        """Tokens of each topic [topics]."""
        check_is_fitted(self)
        return self.topics_.tokens

    @property
    def doc_topic_prior_(self) -> NDArray[np.float64]:
        """Prior of each topic in a document [topics], as learned."""
        check_is_fitted(self)
        return self.topics_.alpha.copy()

    @property
    def topic_word_prior_(self) -> float:
        """Prior of a word in a topic, as learned."""
        check_is_fitted(self)
        return self.topics_.beta

    @property
    def _n_features_out(self) -> int:
        return self.topics_.n_topics

    def transform(self, X: Any) -> NDArray[np.float32]:
        """The share of each topic in each document [documents, topics]; rows add up to 1.

        Parameters
        ----------
        X : sparse or dense matrix, DataFrame, Data, TextCounts, path, or list of str
            Counts, documents × words; texts themselves if the model was trained on text.
        """
        corpus = self._corpus(X)
        with self._place().open() as crew:
            return self._prepared(crew).shares(_csr(corpus), crew=crew)

    def perplexity(self, X: Any, held: Any = None) -> float:
        """exp of minus the mean log-likelihood of a token the model has not seen; lower is better.

        Parameters
        ----------
        X : sparse or dense matrix, DataFrame, Data or path
            Tokens from which a document's shares are inferred.
        held : sparse or dense matrix, DataFrame, Data, path or None, default None
            Other tokens of the same documents, to measure on. None: the tokens of X are split into two halves.
        """
        return float(np.exp(-self._completion(X, held)))

    def score(self, X: Any, y: Any = None) -> float:
        """The mean log-likelihood of a token of X, given the other half of its document; higher is better.

        Parameters
        ----------
        X : sparse or dense matrix, DataFrame, Data or path
            Counts, documents × words.
        y : object, default None
            Ignored.
        """
        return self._completion(X, None)

    def _completion(self, X: Any, held: Any) -> float:
        corpus = self._corpus(X)
        seen, rest = split_tokens(corpus, 0.5, 0) if held is None else (corpus, self._corpus(held))
        if seen.n_documents != rest.n_documents:
            raise DataError(
                f"X has {seen.n_documents} documents and held {rest.n_documents}; give tokens of the same documents"
            )
        with self._place().open() as crew:
            likelihood, tokens = self._prepared(crew).completion(_csr(seen), _csr(rest), crew=crew)
        if not tokens:
            raise DataError("there are no tokens to measure on; give documents of at least two tokens")
        return likelihood / tokens

    def top_words(self, vocabulary: Any = None, n: int = 10) -> list[list[str]]:
        """The n most frequent words of each topic, best first.

        Parameters
        ----------
        vocabulary : sequence of str or None, default None
            The words; None: those of the data, or their numbers.
        n : int, default 10
            Words of a topic.
        """
        check_is_fitted(self)
        checks.of(self).number("n", n, least=1, whole=True)
        names = self._names(vocabulary)
        found, share = top_words(self.topics_.by_topic(), n)
        pairs = (zip(*row, strict=True) for row in zip(found.tolist(), share.tolist(), strict=True))
        # A topic may have fewer words.
        return [[names[w] if names is not None else str(w) for w, part in row if part > 0] for row in pairs]

    def coherence(
        self, X: Any, n: int = 10, measure: str = "npmi", *, window: int | None = None
    ) -> NDArray[np.float64]:
        """How well the n first words of each topic go together in documents [topics].

        Parameters
        ----------
        X : sparse or dense matrix, DataFrame, Data, TextCounts, path, or list of str
            The documents; texts if the model was fitted to text.
        n : int, default 10
            Words of a topic.
        measure : {"npmi", "umass", "c_v"}, default "npmi"
            The measure; "npmi" is between -1 and 1.
        window : int or None, default None
            Words of the windows that take the place of documents, for texts. None: 110 for "c_v" of texts, and whole
            documents otherwise, since counts have no order of words.
        """
        check_is_fitted(self)
        found, share = top_words(self.topics_.by_topic(), n)
        found = np.where(share > 0, found, -1)  # a topic may have fewer words
        documents = self._windows(X, WINDOW if window is None and measure == "c_v" else window, asked=window)
        with self._place().open() as crew:
            return topic_coherence(found, documents, measure=measure, crew=crew)

    def _windows(self, X: Any, size: int | None, *, asked: int | None) -> Any:
        """Windows of texts, or else the counts of documents."""
        checks.of(self).optional("window", asked, least=2, whole=True)
        texts = is_texts(X) and getattr(self, "text_options_", None) is not None
        if asked is not None and not texts:
            raise DataError(
                "window= needs the order of words: give a list of texts to a model that was fitted to st.read_text(…), "
                "or leave window out to count whole documents"
            )
        if size is None or not texts:
            return _csr(self._corpus(X))
        tokens = words_in_order(X, self)
        return WordSequences(tokens.ptr, tokens.codes, self.n_features_in_, size)

    def similar_topics(self, n: int = 5) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The n topics most similar to each: (numbers [topics, n], similarities in 0..1).

        Parameters
        ----------
        n : int, default 5
            Similar topics for each.
        """
        check_is_fitted(self)
        with self._place().open() as crew:
            return similar_topics(self.topics_.by_topic(), n, crew)

    def _names(self, vocabulary: Any) -> list[str] | None:
        given = self.vocabulary_ if vocabulary is None else vocabulary
        if given is None:
            return None
        names = [str(word) for word in given]
        if len(names) != self.n_features_in_:
            raise DataError(f"the vocabulary has {len(names)} words, the model was trained on {self.n_features_in_}")
        return names

    def _corpus(self, X: Any) -> Corpus:
        check_is_fitted(self)
        X = self._counted(X)
        named = self.vocabulary_ if names_its_words(X) else None
        return as_corpus(
            X, strict=self.strict, seed=0, vocabulary=named, estimator=self, reset=False, keyed_by="content"
        )

    def _place(self) -> Runtime:
        return checks.here(self.runtime, self.n_jobs)

    def _prepared(self, crew: Any) -> Inferrer:
        if self.topics_ not in _prepared:
            _prepared[self.topics_] = Inferrer.of(self.topics_, crew)
        return _prepared[self.topics_]

    def save(self, path: str | Path) -> None:
        """Write the fitted model to one file (safetensors, no pickle).

        Parameters
        ----------
        path : str or Path
            The file.
        """
        check_is_fitted(self)
        persistence.save(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model that `save` wrote.

        Parameters
        ----------
        path : str or Path
            The file.
        """
        return cast("Self", persistence.load(cls, path))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        tags.target_tags.required = False
        return tags


def _csr(corpus: Corpus) -> Any:
    from scipy.sparse import csr_array

    data = corpus.data
    return csr_array((data.values, (data.rows, data.cols)), shape=data.shape)
