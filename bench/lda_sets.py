"""The corpora that topic models are measured on, as counts [documents, words], and the scores that they get.

Two scores, by the same code for every program: `joint`, the likelihood of a sampler's assignments, and `completion` for
programs that assign no topics: half the tokens of a held-out document tell its topics, the other half is foreseen.

    corpus = load("ap")                     # CSR, int32 [2246, 10473]
    train, held = split(corpus)             # held.seen and held.rest: counts of the same documents, half each
    completion(phi, infer, held)            # perplexity, by the program's own topics and inference
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import stretto as st

from . import sets

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]

NAMES = ("ap", "imdb")
TITLES = {"ap": "AP", "imdb": "IMDB"}
FILES = {"ap": "ap/ap.dat.xz", "imdb": "imdb/docword.imdb.txt.xz"}
SLICE = 20_000  # entries scored at a time
HELD_SHARE, HELD_MOST = 0.1, 2_000  # the slowest inference takes minutes for more


@dataclass(frozen=True, eq=False)
class Held:
    """Counts [documents, words] of held-out documents. seen: half of each one's tokens; rest: the others."""

    seen: Any
    rest: Any


def present() -> list[str]:
    """Those of the corpora that are available and, where $BENCH_SETS=NAME,… is given, that it names."""
    asked = [name for name in os.environ.get("BENCH_SETS", "").split(",") if name]
    unknown = sorted(set(asked) - set(NAMES))
    if unknown:
        raise SystemExit(f"BENCH_SETS: no corpus {', '.join(unknown)}; there are {', '.join(NAMES)}")
    folder = sets.real_data()
    here = [name for name in NAMES if folder is not None and (folder / FILES[name]).exists()]
    if len(here) < len(NAMES):
        missing = ", ".join(FILES[name] for name in NAMES if name not in here)
        print(f"not here: {missing}; set STRETTO_DATA to the folder of the real sets to include them")
    return [name for name in here if not asked or name in asked]


def load(name: str) -> Any:
    """Counts of a corpus, CSR with int32 values [documents, words] and ascending words; kept parsed for the next time.

    Raises FileNotFoundError where the corpus is absent.
    """
    import scipy.sparse

    file = Path(tempfile.gettempdir()) / "stretto-bench" / f"lda-{name}.npz"
    if not file.exists():
        folder = sets.real_data()
        if folder is None or not (folder / FILES[name]).exists():
            raise FileNotFoundError(f"{FILES[name]} was not found; set STRETTO_DATA to the folder of the real sets")
        read = st.read(folder / FILES[name])
        counts = scipy.sparse.csr_matrix((read.values.astype(np.int32), (read.rows, read.cols)), read.shape)
        file.parent.mkdir(exist_ok=True)
        # Under a name of its own first: another process may be looking.
        half = file.with_name(f"lda-{name}.{os.getpid()}.npz")
        scipy.sparse.save_npz(half, counts, compressed=False)
        half.replace(file)
    return scipy.sparse.load_npz(file)


def tokens(counts: Any) -> tuple[Ints, Ints]:
    """Document and word of each token, both [tokens], document by document: a count of 3 makes three tokens.

    Example: counts [[0, 2], [1, 0]] give documents [0, 0, 1] and words [1, 1, 0].
    """
    entries = np.repeat(np.arange(counts.shape[0], dtype=np.int32), np.diff(counts.indptr))
    return np.repeat(entries, counts.data), np.repeat(counts.indices.astype(np.int32), counts.data)


def texts(counts: Any) -> Iterator[list[str]]:
    """Each document as a list of its tokens' words, which are called by their numbers: tomotopy's form of a corpus."""
    names = np.array([str(word) for word in range(counts.shape[1])], dtype=object)
    for first, last in pairwise(counts.indptr):
        yield np.repeat(names[counts.indices[first:last]], counts.data[first:last]).tolist()


def pairs(counts: Any) -> list[list[tuple[int, int]]]:
    """(word, count) pairs for each document: gensim's form of a corpus."""
    words, values, bounds = counts.indices.tolist(), counts.data.tolist(), counts.indptr.tolist()
    return [list(zip(words[a:b], values[a:b], strict=True)) for a, b in pairwise(bounds)]


def split(counts: Any, *, share: float = HELD_SHARE, most: int = HELD_MOST, seed: int = 0) -> tuple[Any, Held]:
    """(counts to train on, held-out documents), the same for the same seed.

    `share` of the documents are held out, `most` at most, none with fewer than two tokens. Those to train on come in
    random order, as learners that go by batches need it.
    """
    import scipy.sparse

    rng = np.random.Generator(np.random.PCG64(seed))
    order = rng.permutation(counts.shape[0])
    long = np.asarray(counts.sum(axis=1)).ravel()[order] >= 2
    wanted = min(most, int(share * counts.shape[0]))
    out = long & (np.cumsum(long) <= wanted)
    held = counts[order[out]]
    docs, words = tokens(held)
    # A token's place among those of its document, in random order: the first half, the odd one included, is seen.
    shuffled = np.lexsort((rng.random(len(docs)), docs))
    docs, words = docs[shuffled], words[shuffled]
    lengths = np.bincount(docs, minlength=held.shape[0])
    place = np.arange(len(docs)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    seen = place < (lengths[docs] + 1) // 2

    def count(which: NDArray[np.bool_]) -> Any:
        ones = np.ones(int(which.sum()), np.int32)
        return scipy.sparse.csr_matrix((ones, (docs[which], words[which])), held.shape)

    return counts[order[~out]], Held(count(seen), count(~seen))


def table(rows: Ints, topic: Ints, n_rows: int, n_topics: int) -> Any:
    """Counts [n_rows, n_topics] of pairs, CSR."""
    import scipy.sparse

    return scipy.sparse.csr_matrix((np.ones(len(topic), np.int32), (rows, topic)), (n_rows, n_topics))


def joint(docs: Ints, words: Ints, topic: Ints, shape: tuple[int, int], alpha: Floats, beta: float) -> float:
    """The joint log-likelihood per token, natural log, of tokens (docs, words, topic: each [tokens]).

    shape: (documents, words). alpha [K].
    """
    from scipy.special import gammaln

    lengths, totals = np.bincount(docs, minlength=shape[0]), np.bincount(topic, minlength=len(alpha))
    mine, theirs = table(docs, topic, shape[0], len(alpha)), table(words, topic, shape[1], len(alpha))
    prior = alpha[mine.indices]
    of_docs = np.sum(gammaln(mine.data + prior) - gammaln(prior))
    of_docs += np.sum(gammaln(alpha.sum()) - gammaln(alpha.sum() + lengths))
    of_words = np.sum(gammaln(theirs.data + beta) - gammaln(beta))
    of_words += np.sum(gammaln(shape[1] * beta) - gammaln(shape[1] * beta + totals))
    return float(of_docs + of_words) / len(topic)


def completion(phi: Floats, infer: Callable[[Any], NDArray[Any]], held: Held) -> float:
    """Perplexity of the unseen halves of held-out documents.

    phi: words in topics [K, V], rows sum to 1. infer: the program's own way from counts [documents, V] to topics in
    documents [documents, K], rows sum to 1.
    """
    theta = infer(held.seen)
    rest = held.rest.tocoo()
    by_word = np.ascontiguousarray(phi.T)
    total = 0.0
    for first in range(0, rest.nnz, SLICE):
        part = slice(first, first + SLICE)
        chance = np.einsum("ik,ik->i", theta[rest.row[part]], by_word[rest.col[part]])
        total += float(rest.data[part] @ np.log(chance))
    return math.exp(-total / float(rest.data.sum()))
