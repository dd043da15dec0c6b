"""`Topics`: trained topics as plain arrays, for inference, evaluation and files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Topics:
    """Topic counts of words, and the priors: φ_kw = (n_wk + β) / (n_k + Vβ)."""

    indptr: NDArray[np.int64]  # [V + 1] first entry of each word
    topic: NDArray[np.int32]  # [nnz] topics, ascending within a word
    count: NDArray[Any]  # [nnz] int32; float32 if averaged over several samples
    totals: NDArray[np.float64]  # [K] n_k
    alpha: NDArray[np.float64]  # [K] prior of each topic in a document
    beta: float  # prior of a word in a topic
    given: NDArray[np.float64] | None = None  # [K] tokens in n_k that are the prior of seed words, not of documents

    @property
    def n_words(self) -> int:
        return len(self.indptr) - 1

    @property
    def n_topics(self) -> int:
        return len(self.totals)

    @property
    def tokens(self) -> NDArray[np.float64]:
        """[K] tokens of documents: n_k without the prior of seed words."""
        return self.totals.copy() if self.given is None else np.maximum(self.totals - self.given, 0.0)

    def counts(self) -> NDArray[np.float32]:
        """[K, V] n_wk as a dense array: `components_` without the prior."""
        dense = np.zeros((self.n_topics, self.n_words), np.float32)
        words = np.repeat(np.arange(self.n_words), np.diff(self.indptr))
        dense[self.topic, words] = self.count
        return dense

    def whole(self) -> NDArray[np.int64]:
        """[nnz] n_wk as integers: averages are rounded so that every word keeps its number of tokens.

        Each is rounded down; the tokens that a word is then short of go to its largest fractions.
        """
        if self.count.dtype.kind != "f":
            return self.count.astype(np.int64)
        words = np.repeat(np.arange(self.n_words), np.diff(self.indptr))
        mean = self.count.astype(np.float64)
        down = np.floor(mean)
        short = np.rint(np.bincount(words, mean - down, self.n_words)).astype(np.int64)
        order = np.lexsort((self.topic, down - mean, words))  # in each word, the largest fraction first
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order)) - np.repeat(self.indptr[:-1], np.diff(self.indptr))
        return down.astype(np.int64) + (rank < short[words])

    def by_topic(self) -> Any:
        """[K, V] n_wk as a CSR matrix."""
        from scipy.sparse import csr_array

        return csr_array((self.count, self.topic, self.indptr), shape=(self.n_words, self.n_topics)).T.tocsr()
