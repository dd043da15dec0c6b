"""The topic browser: the topics of a model as one HTML file.

    view = TopicView(
        title="Letters",
        words=[["price", "market"], ["game", "team"]],
        weights=np.array([[0.04, 0.03], [0.06, 0.02]], np.float32),
        tokens=np.array([5200, 4100]),
        similar=np.array([[1], [0]], np.int32),
        similarity=np.array([[0.2], [0.2]], np.float32),
        documents=[["letter 12"], ["letter 3"]],
        shares=np.array([[0.9], [0.8]], np.float32),
        facts={"documents": "100", "tokens": "9,300"},
        history=[(1, -9.1), (2, -8.4)],
        coherence=None,
    )
    write_topics("topics.html", view)

A view is plain words and arrays, filled in from a model by the caller; this module does not depend on models. The file
is complete: it needs no network, server, fonts or pictures, can be mailed, and opens from a folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.errors import DataError


@dataclass(frozen=True, slots=True, eq=False)
class TopicView:
    """Everything the page shows, of K topics, numbered from 0 in the order given.

    Fields whose shapes do not match raise a `DataError` that names the field.
    """

    title: str
    words: list[list[str]]  # [K][≤ n] the words of each topic, best first
    weights: NDArray[np.float32]  # [K, n] their p(word | topic)
    tokens: NDArray[np.int64]  # [K] number of tokens of each topic
    similar: NDArray[np.int32]  # [K, m] other topics, most similar first; m may be 0
    similarity: NDArray[np.float32]  # [K, m] their similarity, in 0..1
    documents: list[list[str]]  # [K][≤ d] names of the documents with most of a topic; d may be 0
    shares: NDArray[np.float32]  # [K, d] shares of the topic in them
    facts: dict[str, str]  # name and value, shown at the top in this order
    history: list[tuple[int, float]]  # (epoch, log-likelihood per token), drawn as a curve; only finite points
    coherence: NDArray[np.float32] | None = None  # [K] NPMI of each topic; NaN: not defined; None: not measured
    names: list[str] | None = None  # [K] a name for each topic; None: they are numbered
    relevant: list[list[tuple[str, float, float]]] | None = None  # [K][≤ r] (word, p(word | topic), p(word)), r ≥ n
    places: NDArray[np.float64] | None = None  # [K, 2] points whose distances are those of the topics; None: no map

    def __post_init__(self) -> None:
        topics = len(self.words)
        if topics == 0:
            raise DataError("TopicView: words is empty; give the words of at least one topic")
        _fits("weights", self.weights, topics, 2, "[topics, words]")
        _fits("tokens", self.tokens, topics, 1, "[topics]")
        _fits("similar", self.similar, topics, 2, "[topics, similar topics]")
        _fits("similarity", self.similarity, topics, 2, "[topics, similar topics]")
        _fits("shares", self.shares, topics, 2, "[topics, documents]")
        if self.coherence is not None:
            _fits("coherence", self.coherence, topics, 1, "[topics]", finite=False)
        if self.places is not None:
            _fits("places", self.places, topics, 2, "[topics, 2]")
        if self.relevant is not None and len(self.relevant) != topics:
            raise DataError(f"TopicView: relevant has {len(self.relevant)} lists; give one for each of {topics} topics")
        if self.names is not None and len(self.names) != topics:
            raise DataError(f"TopicView: names has {len(self.names)} entries; give one for each of the {topics} topics")
        if self.similar.shape != self.similarity.shape:
            shapes = f"{list(self.similar.shape)} and {list(self.similarity.shape)}"
            raise DataError(f"TopicView: similar and similarity have the shapes {shapes}; give a number for each topic")
        _counted("words", self.words, "weights", self.weights)
        _counted("documents", self.documents, "shares", self.shares)
        others = np.asarray(self.similar)
        wrong = (others < 0) | (others >= topics) | (others == np.arange(topics)[:, None])
        if wrong.any():
            topic = int(np.nonzero(wrong.any(axis=1))[0][0])
            raise DataError(
                f"TopicView: similar[{topic}] is {others[topic].tolist()}; name other topics, by numbers from 0 to "
                f"{topics - 1} and never the topic itself"
            )


def _fits(name: str, array: NDArray[Any], topics: int, axes: int, shape: str, finite: bool = True) -> None:
    """Raise unless an array has the right number of axes, a row for each topic, and finite numbers."""
    if np.ndim(array) != axes or np.shape(array)[0] != topics:
        raise DataError(
            f"TopicView: {name} has shape {list(np.shape(array))}; give {shape}, {topics} topics as in words"
        )
    if finite and not np.isfinite(array).all():
        raise DataError(f"TopicView: {name} holds NaN or infinity; give finite numbers")


def _counted(name: str, lists: Sequence[Sequence[str]], beside: str, numbers: NDArray[Any]) -> None:
    """Raise unless there is a list for each topic, none longer than its row of numbers."""
    if len(lists) != numbers.shape[0]:
        raise DataError(f"TopicView: {name} has {len(lists)} lists; give one for each of the {numbers.shape[0]} topics")
    for topic, names in enumerate(lists):
        if len(names) > numbers.shape[1]:
            raise DataError(
                f"TopicView: {name}[{topic}] has {len(names)} entries and {beside}[{topic}] has {numbers.shape[1]}; "
                f"give {beside} as many columns as the longest list"
            )
