"""Which topics of two models are the same: the pairing with the largest sum of similarities.

The similarity is the Hellinger affinity of two distributions over words (`summary`): 1 if they are equal, 0 if they
share no word. The pairing is optimal (linear assignment), so no topic is in two pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.errors import DataError
from stretto.models.topics.summary import affinities
from stretto.models.topics.topics import Topics
from stretto.runtime.blocks.crew import Crew

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TopicMatch:
    """Pairs of topics of two models.

    Attributes
    ----------
    topics : ndarray of int64 [topics]
        For each topic of the first model its topic in the other; -1 where the other has too few.
    similarity : ndarray of float64 [topics]
        Similarity of each pair, from 0 to 1; 0 where there is none.
    affinity : ndarray of float64 [topics, topics of the other]
        Similarity of every topic with every other one.
    """

    topics: NDArray[np.int64]
    similarity: Floats
    affinity: Floats

    @property
    def mean(self) -> float:
        """Mean similarity of the pairs."""
        return float(self.similarity[self.topics >= 0].mean())


def pair(affinity: Floats) -> TopicMatch:
    """The pairing of the rows and columns of similarities with the largest sum."""
    from scipy.optimize import linear_sum_assignment

    rows, cols = linear_sum_assignment(affinity, maximize=True)
    topics, similarity = np.full(len(affinity), -1, np.int64), np.zeros(len(affinity))
    topics[rows], similarity[rows] = cols, affinity[rows, cols]
    return TopicMatch(topics, similarity, affinity)


def between(models: Sequence[Topics], vocabularies: Sequence[list[str] | None], crew: Crew) -> list[list[Floats]]:
    """[i][j] similarities [K_i, K_j] of the topics of several models, i < j.

    Words are compared by name where all models have names, otherwise by number.
    """
    from scipy.sparse import vstack

    everything = affinities(vstack(_aligned(models, vocabularies)).tocsr(), crew)
    ends = np.cumsum([0, *(topics.n_topics for topics in models)])
    parts = [slice(low, high) for low, high in pairwise(ends.tolist())]
    return [[everything[one, other] for other in parts] for one in parts]


def _aligned(models: Sequence[Topics], vocabularies: Sequence[list[str] | None]) -> list[Any]:
    """The counts of the models [K, V], all with the same columns."""
    from scipy.sparse import csr_array

    found = [topics.by_topic() for topics in models]
    first = vocabularies[0]
    if any(names is None for names in vocabularies) or all(names == first for names in vocabularies):
        words = {one.shape[1] for one in found}
        if len(words) > 1:
            raise DataError(
                f"the models have {' and '.join(map(str, sorted(words)))} words and not both know the names of them; "
                "train both on the same vocabulary"
            )
        return found
    place: dict[str, int] = {}
    cols = [np.array([place.setdefault(w, len(place)) for w in names or ()], np.int32) for names in vocabularies]
    return [
        csr_array((one.data, to[one.indices], one.indptr), shape=(one.shape[0], len(place)))
        for one, to in zip(found, cols, strict=True)
    ]
