"""Topic coherence, NPMI, UMass and C_v, from the documents or windows in which the words of a topic occur together.

Only the presence of a word in a document counts, not its frequency or distance to other words. With D documents,
D(i) of them with word i and D(i, j) with both, the measures are

    npmi     log(p(i, j) / p(i) p(j)) / −log p(i, j)        p(i) = D(i)/D, p(i, j) = (D(i, j) + eps)/D; −1 … 1
    umass    log((D(i, j) + eps) / D(i))                    i is listed before j: the more probable word
    c_v      cos(u(i), Σ_j u(j))                            u(i) = (npmi(i, 1), …, npmi(i, n)), npmi(i, i) included

A topic's coherence is the mean over its pairs, for C_v over its words. (Bouma 2009 and Lau et al. 2014; Mimno et al.
2011; Röder et al. 2015.) With D = 4, D(i) = 2, D(j) = 2 and D(i, j) = 1, one co-occurrence is expected by chance: NPMI
is 0, and UMass, with eps = 1, is log(2/2) = 0.

Pairs that never occur together have an NPMI of −1, pairs that are in every document one of 1: the limits of the
formula. A pair without a value is left out of the mean: for NPMI if either word never occurs, for UMass if the first
word does not. C_v leaves out words that never occur. A topic without pairs is NaN.

Where the order of the words is known, windows can take the place of documents (`WordSequences`): all runs of `size`
consecutive words of a document, and the whole document if it has no more. C_v is defined with windows of 110 words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.errors import DataError
from stretto.kernels.topics import cooccurrence
from stretto.models import checks
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.step import make_step, parts
from stretto.schedule.orders.rotation import independent

Ints = NDArray[np.int64]

MEASURES = {"npmi": cooccurrence.NPMI, "umass": cooccurrence.UMASS, "c_v": cooccurrence.C_V}
WINDOW = 110  # words of a window of C_v
_EPS = {"npmi": 0.0, "umass": 1.0}
_EPS_SHARE = 1e-12  # of C_v, as a share of the documents
_BITS = 8 << 20  # bytes of bit sets at a time: small enough for the cache
_CHUNKS = 8  # chunks at least, for any number of words, so that threads can share the work
_COUNTS = 64 << 20  # bytes of pair counts at a time
_PARTS = 64  # visits that the topics are divided into


@dataclass(frozen=True, eq=False)
class WordSequences:
    """Documents whose words are in their order, and windows that slide over them."""

    ptr: Ints  # [documents + 1] first word of each document
    codes: NDArray[np.int32]  # [words] their columns; −1: not in the vocabulary
    vocabulary: int
    size: int  # words of a window

    def offsets(self) -> Ints:
        """[documents + 1] the first window of each document; every document has at least one."""
        windows = np.maximum(np.diff(self.ptr) - self.size, 0) + 1
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(windows)])


def coherence(
    words: Any, X: Any, *, measure: str = "npmi", eps: float | None = None, crew: Crew
) -> NDArray[np.float64]:
    """[K] the coherence of each topic, higher is better.

    words : [K, n] columns of X with each topic's words, most probable first, unique; −1 if a topic has fewer than n
    X : [documents, vocabulary] sparse counts (CSR; other formats are converted); stored zeros do not count as
        occurrences, and a word that is stored twice occurs once; or `WordSequences`, whose windows are counted
    eps : added to the number of documents with both words; None is 0 for NPMI, 1 for UMass, and 1e-12 of the documents
        for C_v

    Needs 4 n² bytes for each topic and 512 for each distinct word.

        >>> import scipy.sparse
        >>> from stretto.runtime.runtimes import Serial
        >>> X = scipy.sparse.csr_array([[1, 2, 0], [3, 1, 0], [0, 0, 1], [0, 0, 2]])
        >>> with Serial().open() as crew:
        ...     coherence([[0, 1], [0, 2]], X, crew=crew)
        array([ 1., -1.])
    """
    checks.choice("measure", measure, MEASURES)
    if eps is not None and measure == "umass":
        checks.number("eps", eps, above=0, why="UMass takes the logarithm of a count that may be 0")
    elif eps is not None:
        checks.number("eps", eps, least=0)
    source = _Windows(X) if isinstance(X, WordSequences) else _Documents(_sparse(X))
    if eps is None:
        eps = _EPS_SHARE * source.count if measure == "c_v" else _EPS[measure]
    asked = _words(words, source.vocabulary)
    scores = np.empty(len(asked))
    at_once = max(1, _COUNTS // (4 * asked.shape[1] ** 2))
    for k in range(0, len(asked), at_once):
        _score(asked[k : k + at_once], source, MEASURES[measure], float(eps), crew, scores[k : k + at_once])
    return scores


class _Documents:
    """Marks the documents that each word is in."""

    def __init__(self, X: Any) -> None:
        self.X, self.present = X, _present(X)
        self.count, self.vocabulary = X.shape
        self.indptr = X.indptr.astype(np.int64, copy=False)

    def mark(self, first: int, edges: Ints, row: NDArray[np.int32], bits: Ints, crew: Crew) -> None:
        step = make_step(
            "mark", cooccurrence.mark_worker, independent(len(edges) - 1), np.diff(self.indptr[edges]),
            first, self.indptr, self.X.indices, self.present, row, bits,
        )  # fmt: skip
        crew.run(step, "exact", again=first > 0)
        if outside := step.total():
            raise DataError(
                f"X: {outside:.0f} entries are in no column of its {self.vocabulary}; its indices are damaged: "
                "build it anew"
            )


class _Windows:
    """Marks the windows that each word is in."""

    def __init__(self, X: WordSequences) -> None:
        self.X, self.offsets = X, X.offsets()
        self.count, self.vocabulary = int(self.offsets[-1]), X.vocabulary

    def mark(self, first: int, edges: Ints, row: NDArray[np.int32], bits: Ints, crew: Crew) -> None:
        X = self.X
        step = make_step(
            "mark windows", cooccurrence.mark_windows_worker, independent(len(edges) - 1), np.diff(edges),
            first, self.offsets, X.ptr, X.codes, X.size, row, bits,
        )  # fmt: skip
        crew.run(step, "exact", again=first > 0)


def _score(
    words: Ints, source: _Documents | _Windows, measure: int, eps: float, crew: Crew, scores: NDArray[np.float64]
) -> None:
    """Write the coherence of a few topics into `scores`."""
    documents = source.count
    used = np.unique(words[words >= 0])
    none = len(used)
    row = np.full(source.vocabulary, none, np.int32)
    row[used] = np.arange(none, dtype=np.int32)
    rows = np.full(words.shape, none, np.int32)
    rows[words >= 0] = row[words[words >= 0]]
    chunks = max(_CHUNKS, _BITS // (8 * cooccurrence.LINE * (none + 1)))
    chunks = max(1, min(chunks, -(-documents // cooccurrence.DOCUMENTS)))
    bits = np.empty((chunks, none + 1, cooccurrence.LINE), np.int64)
    counts = np.zeros((*words.shape, words.shape[1]), np.int32)
    topics = parts(len(words), _PARTS, 1)
    visits = independent(len(topics) - 1), np.diff(topics)
    for first in range(0, documents, chunks * cooccurrence.DOCUMENTS):
        edges = np.minimum(first + cooccurrence.DOCUMENTS * np.arange(chunks + 1), documents)
        source.mark(first, edges, row, bits, crew)
        count = make_step("count", cooccurrence.count_worker, *visits, topics, bits, rows, counts)
        crew.run(count, "exact", again=first > 0)
    if measure == cooccurrence.C_V:
        step = make_step(
            "score", cooccurrence.context_worker, *visits, topics, counts, rows, none, float(documents), eps, scores
        )
    else:
        step = make_step(
            "score", cooccurrence.score_worker, *visits,
            topics, counts, rows, none, float(documents), measure, eps, scores,
        )  # fmt: skip
    crew.run(step, "exact")


def _sparse(X: Any) -> Any:
    """X in CSR form; no copy if it is CSR already."""
    if not hasattr(X, "tocsr"):
        kind = type(X).__name__
        raise DataError(f"X is a {kind}, coherence needs a sparse matrix; pass scipy.sparse.csr_array(X)")
    X = X.tocsr()
    if X.ndim != 2:
        raise DataError(f"X has {X.ndim} axis, coherence needs two: documents × vocabulary")
    return X


def _words(words: Any, vocabulary: int) -> Ints:
    """Validate the words; return them as int64 [K, n]."""
    try:
        given = np.asarray(words)
    except ValueError:
        raise DataError("words has topics of different lengths; fill the shorter ones up with -1") from None
    if given.ndim != 2 or given.dtype.kind not in "iu":
        raise DataError(
            f"words is {given.dtype} {list(given.shape)}, coherence needs whole numbers [topics, words]: columns of X"
        )
    if given.shape[1] < 2:
        raise DataError(f"words has {given.shape[1]} for each topic, and coherence compares pairs; give at least 2")
    found = given.astype(np.int64, copy=False)
    wrong = (found < -1) | (found >= vocabulary)
    if wrong.any():
        k, i = np.argwhere(wrong)[0]
        raise DataError(
            f"word {i} of topic {k} is {given[k, i]}, and X has columns 0 to {vocabulary - 1}; "
            "take words and X from the same vocabulary"
        )
    inorder = np.sort(found, axis=1)
    twice = (inorder[:, 1:] == inorder[:, :-1]) & (inorder[:, 1:] >= 0)
    if twice.any():
        k, i = np.argwhere(twice)[0]
        raise DataError(f"topic {k} has word {inorder[k, i]} twice; give each of its words once")
    return found


def _present(X: Any) -> NDArray[np.bool_]:
    """[entries] which entries are occurrences; length 0 if all are."""
    values = X.data[: int(X.indptr[-1])]
    if not len(values) or values.min() > 0:
        return np.empty(0, np.bool_)
    if not values.min() >= 0:  # or NaN
        at = int(np.argmax(~(values >= 0)))
        document = int(np.searchsorted(X.indptr, at, side="right")) - 1
        raise DataError(f"X[{document}, {X.indices[at]}] is {values[at]}; counts of words are 0 or more")
    found: NDArray[np.bool_] = values != 0
    return found
