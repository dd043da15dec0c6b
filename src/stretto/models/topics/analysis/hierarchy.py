"""A hierarchy of topics: the two topics whose merging loses least become one, again and again.

Merging topics a and b adds up their counts of words. The log-likelihood of the tokens, given their topics, then falls
by (n_a + n_b) · JS(a, b) nats, with

    JS(a, b) = n_a/n · KL(p_a ‖ m) + n_b/n · KL(p_b ‖ m),    m = n_a/n · p_a + n_b/n · p_b,    n = n_a + n_b

the Jensen–Shannon divergence of their distributions over words, weighted by their tokens. This is also what the mutual
information of topics and words loses, times the number of tokens (agglomerative information bottleneck, Slonim and
Tishby 1999). Distances to a merged topic are computed anew, from its own counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.kernels.topics.merging import merge_loss_worker
from stretto.models import checks
from stretto.models.topics.topics import Topics
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.step import make_step, parts
from stretto.schedule.orders.rotation import independent

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TopicHierarchy:
    """Which topics merge, in which order, and what each merge loses.

    Attributes
    ----------
    linkage : ndarray of float64 [topics - 1, 4]
        The merges in SciPy's form: two clusters, the loss of all merges so far in nats per token, and how many topics
        the new cluster has. Cluster i < topics is a topic, topics + t the result of merge t.
    losses : ndarray of float64 [topics - 1]
        What each merge loses, in nats per token.
    names : list of str
        Names of the topics.
    """

    linkage: Floats
    losses: Floats
    names: list[str]

    def labels(self, n: int) -> NDArray[np.int64]:
        """The number, 0 … n - 1, of the merged topic that each topic belongs to [topics].

        Merged topics are numbered in the order of their first topics.

        Parameters
        ----------
        n : int
            Topics after merging, from 1 to the number of topics.
        """
        K = len(self.names)
        checks.number("n", n, least=1, most=K, whole=True)
        cluster = np.arange(K)
        for t in range(K - n):
            first, second = self.linkage[t, :2].astype(np.int64)
            cluster[(cluster == first) | (cluster == second)] = K + t
        _, at, label = np.unique(cluster, return_index=True, return_inverse=True)
        rank = np.empty(len(at), np.int64)
        rank[np.argsort(at)] = np.arange(len(at))
        return rank[label]


def agglomerate(topics: Topics, names: list[str], crew: Crew) -> TopicHierarchy:
    """The hierarchy of all topics; needs 8 bytes for each topic and word."""
    counts = topics.by_topic().toarray().astype(np.float64)
    totals, K = counts.sum(axis=1), len(counts)
    tokens = max(float(totals.sum()), 1.0)
    live, loss = np.ones(K, np.bool_), np.full((K, K), np.inf)
    bounds = parts(K, 64, 1)
    order, weight = independent(len(bounds) - 1), np.diff(bounds)

    def measure(row: int, again: bool) -> Floats:
        found = np.empty(K)
        step = make_step(
            "merge loss", merge_loss_worker, order, weight, bounds, counts, totals, live, row, found
        )  # fmt: skip
        crew.run(step, "exact", again=again)
        return found

    for row in range(K):
        loss[row] = measure(row, row > 0)
    cluster, size = np.arange(K), np.ones(K, np.int64)
    linkage, losses = np.empty((max(0, K - 1), 4)), np.empty(max(0, K - 1))
    for t in range(K - 1):
        a, b = sorted(divmod(int(np.argmin(loss)), K))  # the first of several: the lowest numbers
        losses[t] = loss[a, b] / tokens
        size[a] += size[b]
        linkage[t] = *sorted((cluster[a], cluster[b])), losses[: t + 1].sum(), size[a]
        cluster[a], live[b] = K + t, False
        counts[a] += counts[b]
        totals[a] += totals[b]
        loss[b, :] = loss[:, b] = np.inf
        loss[a, :] = loss[:, a] = measure(a, True)
    return TopicHierarchy(linkage, losses, names)


def merged(topics: Topics, labels: NDArray[Any]) -> Topics:
    """Topics of the same tokens, with topic k renamed labels[k]: counts, totals and priors of topics are added up."""
    from scipy.sparse import csr_array

    K, n = topics.n_topics, int(labels.max()) + 1
    by_word = csr_array((topics.count, topics.topic, topics.indptr), shape=(topics.n_words, K))
    which = csr_array((np.ones(K, topics.count.dtype), labels, np.arange(K + 1)), shape=(K, n))
    found = (by_word @ which).tocsr()
    found.sort_indices()
    return Topics(
        indptr=found.indptr.astype(np.int64),
        topic=found.indices.astype(np.int32),
        count=found.data,
        totals=np.bincount(labels, topics.totals, n).astype(np.float64),
        alpha=np.bincount(labels, topics.alpha, n).astype(np.float64),
        beta=topics.beta,
        given=None if topics.given is None else np.bincount(labels, topics.given, n).astype(np.float64),
    )
