"""Trained topics as plain arrays: what training hands to inference, evaluation and files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Topics:
    """How often each word was given each topic, and the priors: φ_kw = (n_wk + β) / (n_k + Vβ).

    indptr [V + 1] int64, topic [nnz] int32 (ascending inside a word), count [nnz] int32 (float32 when averaged over
    several samples): word by word. totals [K] float64: n_k. alpha [K] float64, beta: the priors.
    """

    indptr: NDArray[np.int64]
    topic: NDArray[np.int32]
    count: NDArray[Any]
    totals: NDArray[np.float64]
    alpha: NDArray[np.float64]
    beta: float

    @property
    def n_words(self) -> int:
        return len(self.indptr) - 1

    @property
    def n_topics(self) -> int:
        return len(self.totals)

    def counts(self) -> NDArray[np.float32]:
        """[K, V] n_wk as a dense array: `components_` without the prior."""
        dense = np.zeros((self.n_topics, self.n_words), np.float32)
        words = np.repeat(np.arange(self.n_words), np.diff(self.indptr))
        dense[self.topic, words] = self.count
        return dense

    def by_topic(self) -> Any:
        """[K, V] n_wk as a CSR matrix."""
        from scipy.sparse import csr_array

        return csr_array((self.count, self.topic, self.indptr), shape=(self.n_words, self.n_topics)).T.tocsr()
