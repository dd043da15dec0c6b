"""Inference with trained topics: topic shares of unseen documents, and their log-likelihoods.

    inferrer = Inferrer.of(topics, crew)                        # once
    theta = inferrer.shares(X, crew=crew)                       # [D, K] float32, rows sum to 1
    inferrer.log_likelihood(X, theta, crew=crew)                # [D] Σ_w c_w ln Σ_k θ_dk φ_kw
    inferrer.completion(observed, held, crew=crew)              # θ from half of each document, measured on the rest

The shares are the fixed point of expectation maximisation (`kernels.topics.infer`). The result does not depend on the
number of threads and uses no random numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.partition import straight
from stretto.errors import DataError
from stretto.kernels.numeric.lanes import aligned, padded
from stretto.kernels.topics import infer, infer_sparse
from stretto.models import checks
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.step import make_step, parts
from stretto.schedule.orders.rotation import independent

from .topics import Topics

Floats = NDArray[np.float32]

DENSE_TOPICS = 256  # up to this number whole rows of φ are faster than each document's best topics
_DENSE_BYTES = 1 << 30  # and φ is no larger than this
_PARTS, _LEAST = 256, 8192  # visits at most, entries of a visit at least


@dataclass(frozen=True, eq=False)
class Documents:
    """Word counts by document, as compressed rows."""

    indptr: NDArray[np.int64]  # [D + 1]
    words: NDArray[np.int32]  # [n] word indices
    counts: Floats  # [n]

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @property
    def most(self) -> int:
        """Largest number of distinct words in a document."""
        return int(np.diff(self.indptr).max(initial=0))

    def bounds(self) -> NDArray[np.int64]:
        """Bounds that divide the documents into visits of about equal work."""
        entries = np.diff(self.indptr) + 1  # an empty document takes time, too
        return straight(entries, max(1, min(_PARTS, len(self), int(entries.sum()) // _LEAST))).bounds


@dataclass(frozen=True, eq=False)
class Inferrer:
    """Trained topics in the form that kernels take. Make one with `of`."""

    alpha: Floats  # [K]
    n_words: int
    phi: Floats | None  # [V, K padded to whole lanes], with few topics
    trained: infer.TrainedTopics | None  # sparse rows of φ, with many

    @classmethod
    def of(cls, topics: Topics, crew: Crew) -> Inferrer:
        """Prepare the topics: 4·V·K bytes for up to 256 topics (1 GiB at most), 4 bytes for each entry otherwise."""
        _check(topics)
        V, K = topics.n_words, topics.n_topics
        alpha = topics.alpha.astype(np.float32)
        inverse = 1.0 / (topics.totals + V * topics.beta)
        count = topics.count.astype(np.float32)
        bounds = parts(V, 64, 1024)
        order, weight = independent(len(bounds) - 1), np.diff(bounds)
        counted = (bounds, topics.indptr, topics.topic, count, inverse)
        if K <= DENSE_TOPICS and 4 * V * padded(K) <= _DENSE_BYTES:
            phi = aligned((V, padded(K)))
            step = make_step("rows", infer.dense_rows_worker, order, weight, *counted, float(topics.beta), phi)
            crew.run(step, "exact")
            return cls(alpha, V, phi, None)
        value, reach = np.empty(len(count), np.float32), np.empty(V, np.float32)
        base = math.fsum(topics.alpha * topics.beta * inverse)
        step = make_step("rows", infer.sparse_rows_worker, order, weight, *counted, topics.alpha, base, value, reach)
        crew.run(step, "exact")
        floor = (topics.beta * inverse).astype(np.float32)
        return cls(alpha, V, None, infer.TrainedTopics(topics.indptr, topics.topic, value, reach, floor, alpha))

    @property
    def n_topics(self) -> int:
        return len(self.alpha)

    def shares(self, X: Any, *, passes: int = 30, tol: float = 1e-3, crew: Crew) -> Floats:
        """[D, K] θ of documents X [D, V], counts in CSR; each row sums to 1, that of an empty document is α / Σ α.

        passes : over the words of a document, at most
        tol : a document is done when at most this share of its tokens would change topic in another pass

        Needs 4·D·K bytes for the result and little else.
        """
        return self.measured_shares(X, passes=passes, tol=tol, crew=crew)[0]

    def measured_shares(self, X: Any, *, passes: int = 30, tol: float = 1e-3, crew: Crew) -> tuple[Floats, float]:
        """(θ, Σ tokens · passes made): `shares`, and the work done."""
        checks.number("passes", passes, least=1, whole=True)
        checks.number("tol", tol, least=0)
        docs = self.documents(X)
        theta = np.empty((len(docs), self.n_topics), np.float32)
        if not len(docs):
            return theta, 0.0
        bounds = docs.bounds()
        order, weight = independent(len(bounds) - 1), np.diff(docs.indptr[bounds])
        given = (bounds, docs.indptr, docs.words, docs.counts)
        how = (int(passes), np.float32(tol), theta)
        if self.phi is not None:
            wide = self.phi.shape[1]
            alpha = aligned((wide,))
            alpha[: self.n_topics] = self.alpha
            rooms = infer.room_for(crew.workers, docs.most, wide)
            step = make_step("infer", infer.dense_worker, order, weight, *given, self.phi, alpha, *how, rooms)
        else:
            room = infer_sparse.room_for(crew.workers, docs.most, self.n_topics)
            step = make_step("infer", infer_sparse.sparse_worker, order, weight, *given, self.trained, *how, room)
        crew.run(step, "exact")
        return theta, step.total()

    def log_likelihood(self, X: Any, theta: Any = None, *, crew: Crew) -> NDArray[np.float64]:
        """[D] Σ_w c_w ln Σ_k θ_dk φ_kw of documents X [D, V]; theta [D, K], None infers it from X itself."""
        docs = self.documents(X)
        theta = self.shares(X, crew=crew) if theta is None else np.ascontiguousarray(theta, np.float32)
        if theta.shape != (len(docs), self.n_topics):
            raise DataError(
                f"theta has shape {theta.shape}; {len(docs)} documents and {self.n_topics} topics need "
                f"{(len(docs), self.n_topics)}: pass what `shares` gave for the same documents"
            )
        value = np.zeros(len(docs))
        if not len(docs):
            return value
        bounds = docs.bounds()
        order, weight = independent(len(bounds) - 1), np.diff(docs.indptr[bounds])
        given = (bounds, docs.indptr, docs.words, docs.counts)
        args: tuple[Any, ...]
        if self.phi is not None:
            work = aligned((crew.workers, self.phi.shape[1]))
            worker, args = infer.dense_likelihood_worker, (self.phi, theta, value, work)
        else:
            worker, args = infer_sparse.sparse_likelihood_worker, (self.trained, theta, value)
        crew.run(make_step("likelihood", worker, order, weight, *given, *args), "exact")
        return value

    def completion(self, observed: Any, held: Any, *, crew: Crew) -> tuple[float, int]:
        """(log-likelihood, tokens) of `held` [D, V], with θ inferred from the other part of the documents, `observed`.

        The quotient, about −8 for English text, compares models on words that they have not seen.
        """
        if observed.shape != held.shape:
            raise DataError(
                f"observed is {observed.shape} and held {held.shape}: both hold the same documents, in the same order"
            )
        value = self.log_likelihood(held, self.shares(observed, crew=crew), crew=crew)
        return math.fsum(value), round(float(held.sum()))

    def documents(self, X: Any) -> Documents:
        """X in the form that kernels take; float32 counts and int32 indices are not copied."""
        if getattr(X, "format", None) != "csr":
            kind = type(X).__name__
            raise DataError(
                f"documents come as a CSR matrix of counts, not {kind}; convert with scipy.sparse.csr_array"
            )
        if X.shape[1] != self.n_words:
            raise DataError(
                f"the documents have {X.shape[1]} words and the topics {self.n_words}; "
                "number the words as in training (the same vocabulary, in the same order)"
            )
        counts, words = np.ascontiguousarray(X.data, np.float32), X.indices
        if len(counts) and not (counts.min() >= 0.0 and np.isfinite(counts.max())):
            raise DataError("a count of words is negative or not finite; check X.data.min() and X.data.max()")
        if len(words) and not (words.min() >= 0 and words.max() < self.n_words):
            raise DataError(
                f"a word's index is outside 0 … {self.n_words - 1}; X.check_format() says where X is broken"
            )
        return Documents(X.indptr.astype(np.int64), np.ascontiguousarray(words, np.int32), counts)


def _check(topics: Topics) -> None:
    if not topics.beta > 0.0 or not (topics.alpha > 0.0).all():
        raise DataError(
            f"inference needs priors above 0; beta is {topics.beta:g} and the least alpha {topics.alpha.min():g}"
        )
