"""Methods of `st.LatentDirichletAllocation` that show, name and merge topics, and compare models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from stretto.errors import DataError
from stretto.models import checks
from stretto.models.sklearn_base import check_is_fitted, clone
from stretto.models.topics.fitting import TopicFitting

from .names import WEIGHT, topic_names

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from stretto.models.topics.input import Corpus
    from stretto.runtime.runtimes import Runtime

    from .browser import TopicBrowser
    from .hierarchy import TopicHierarchy
    from .matching import TopicMatch
    from .over_time import TopicShares


class TopicExploration(TopicFitting):
    """Methods of a fitted topic model that show, name, merge and compare its topics."""

    if TYPE_CHECKING:  # of the estimator

        def transform(self, X: Any) -> NDArray[np.float32]: ...
        def _corpus(self, X: Any) -> Corpus: ...
        def _names(self, vocabulary: Any) -> list[str] | None: ...
        def _place(self) -> Runtime: ...

    def browse(
        self, X: Any = None, *, title: str = "Topics", words: int = 20, documents: int = 10, height: int = 760
    ) -> TopicBrowser:
        """The topic browser, which a notebook shows below the cell: a list, a map and the words of each topic.

        Parameters
        ----------
        X : sparse or dense matrix, DataFrame, Data, path or None, default None
            Documents to show with each topic, and to measure coherence in.
        title : str, default "Topics"
            Heading of the page.
        words : int, default 20
            Words of each topic.
        documents : int, default 10
            Documents of each topic.
        height : int, default 760
            Height in the notebook, in pixels.

        Returns
        -------
        TopicBrowser
            With `save(path)`, which writes the page to one file.
        """
        from stretto.models.topics.browse import browse

        from .browser import TopicBrowser

        check_is_fitted(self)
        for name, value in (("words", words), ("height", height)):
            checks.of(self).number(name, value, least=1, whole=True)
        checks.of(self).number("documents", documents, least=0, whole=True)
        corpus = None if X is None else self._corpus(X)
        view = browse(self, corpus, title=title, words=int(words), documents=int(documents))
        return TopicBrowser(view, int(height))

    def topic_names(self, n: int = 3, *, vocabulary: Any = None, weight: float = WEIGHT) -> list[str]:
        """A name for each topic: its n most relevant words, no word in two names.

        The relevance of word w for topic k is weight · ln p(w | k) + (1 - weight) · ln (p(w | k) / p(w)). A word can
        only name the topic that has most of its tokens. A topic without such a word is named by its number. Topics
        that were named by `seeds` keep their names.

        Parameters
        ----------
        n : int, default 3
            Words of a name.
        vocabulary : sequence of str or None, default None
            The words; None: those of the data, or their numbers.
        weight : float, default 0.6
            1 orders words by their probability in the topic alone, 0 by how much more likely the topic makes them.
        """
        check_is_fitted(self)
        checks.of(self).number("n", n, least=1, whole=True)
        checks.of(self).number("weight", weight, least=0, most=1)
        return topic_names(self.topics_, self._names(vocabulary), int(n), float(weight), given=self.seed_names_)

    def topic_shares(
        self, X: Any = None, *, by: Any, freq: str | None = None, shares: Any = None, confidence: float = 0.95
    ) -> TopicShares:
        """The mean share of each topic in the documents of each period or group, with confidence intervals.

        Parameters
        ----------
        X : sparse or dense matrix, DataFrame, Data, path or None, default None
            Documents, whose shares are inferred.
        by : sequence
            A date for each document (datetime64, datetime, or text such as 2024-03-31; missing ones are left out), or
            without freq a label.
        freq : {"day", "week", "month", "quarter", "year"} or None, default None
            Length of a period. None: the values of `by` are groups.
        shares : ndarray [documents, topics] or None, default None
            Shares that `transform` gave, instead of X.
        confidence : float, default 0.95
            Level of the intervals, mean ± z s / √documents.

        Returns
        -------
        TopicShares
            Shares, intervals and counts of documents, with `to_frame()` and `plot(path)`.
        """
        from .over_time import shares_by

        check_is_fitted(self)
        if (X is None) == (shares is None):
            raise DataError("give either the documents, X, or their shares, shares=model.transform(X)")
        theta = self.transform(X) if shares is None else np.asarray(shares)
        if theta.ndim != 2 or theta.shape[1] != self.topics_.n_topics:
            raise DataError(
                f"shares has shape {list(theta.shape)} and the model {self.topics_.n_topics} topics; give what "
                "transform returned"
            )
        return shares_by(theta, by, freq, self.topic_names(), confidence)

    def hierarchy(self) -> TopicHierarchy:
        """Which topics to merge first: each merge joins the two topics that lose least by it.

        A merge loses (n_a + n_b) · JS(a, b) nats of the log-likelihood of the tokens, given their topics: the
        Jensen-Shannon divergence of the two distributions over words, weighted by their tokens n.

        Returns
        -------
        TopicHierarchy
            The merges in SciPy's form, and `labels(n)`.
        """
        from .hierarchy import agglomerate

        check_is_fitted(self)
        with self._place().open() as crew:
            return agglomerate(self.topics_, self.topic_names(), crew)

    def merge_topics(self, n: int, *, labels: Any = None) -> Self:
        """A model with n topics, made by merging topics of this one; nothing is trained.

        Counts and priors of merged topics are added up.

        Parameters
        ----------
        n : int
            Number of topics.
        labels : sequence of int or None, default None
            For each topic the number, from 0 to n - 1, of the topic it becomes; None: by `hierarchy`.
        """
        from .hierarchy import merged

        check_is_fitted(self)
        K = self.topics_.n_topics
        checks.of(self).number("n", n, least=1, most=K, whole=True)
        given = self.hierarchy().labels(int(n)) if labels is None else np.asarray(labels)
        if given.shape != (K,) or given.dtype.kind not in "iu" or not np.array_equal(np.unique(given), np.arange(n)):
            raise DataError(f"labels must have one of the numbers 0 to {n - 1} for each of the {K} topics, each used")
        made: Self = clone(self).set_params(n_components=int(n), seeds=None, seed_weight=None)
        made.topics_ = merged(self.topics_, given)
        made.seed_names_ = self._merged_names(given)
        if np.ndim(made.doc_topic_prior):
            made.doc_topic_prior = made.topics_.alpha.copy()
        for name in ("n_iter_", "n_features_in_", "vocabulary_", "fingerprint_", "text_options_", "feature_names_in_"):
            if hasattr(self, name):
                setattr(made, name, getattr(self, name))
        made.history_ = []  # the log-likelihoods are those of the topics before merging
        return made

    def _merged_names(self, labels: Any) -> list[str | None] | None:
        """The names by seeds of merged topics, those of a topic's parts together."""
        if self.seed_names_ is None:
            return None
        parts: list[list[str]] = [[] for _ in range(int(labels.max()) + 1)]
        for label, name in zip(labels.tolist(), self.seed_names_, strict=True):
            parts[label] += [] if name is None else [name]
        return [", ".join(names) or None for names in parts]

    def match(self, other: Any) -> TopicMatch:
        """Which topics of another model are the same: the one-to-one pairing with the largest sum of similarities.

        Similarity is Σ_w √(p(w) q(w)) of two topics' distributions over words: 1 if they are equal, 0 if they share no
        word. Words are compared by name where both models have names.

        Parameters
        ----------
        other : LatentDirichletAllocation
            The other model.

        Returns
        -------
        TopicMatch
            Partners, their similarities, and those of all topics.
        """
        from .matching import between, pair

        check_is_fitted(self)
        if not isinstance(other, TopicExploration):
            raise DataError(f"other is a {type(other).__name__}; give a fitted LatentDirichletAllocation")
        check_is_fitted(other)
        names = [self.vocabulary_, other.vocabulary_]
        with self._place().open() as crew:
            return pair(between([self.topics_, other.topics_], names, crew)[0][1])
