"""Generate corpora from the LDA model in chunks: any number of tokens in bounded memory.

A Pólya urn draws each token's topic: with weight Σα it is a new draw by α, otherwise that of an earlier token of the
document. That is the model with θ integrated out, at one random number a token. A topic is made the same way: `TABLE`
draws from an urn with weight Vβ, whose new draws follow a Zipf law over the words (exponent `zipf`; 0 is the
model's symmetric β). The shares of the words in that table are the topic's true probabilities; with a longer table they
would be a draw from the Dirichlet distribution.

    >>> made = corpus(100, 50, 4, 20, seed=1)
    >>> made.data.shape, made.topics.shape
    ((100, 50), (4, 50))

Every number is keyed by seed, purpose, document and place in it, so the size of the chunks changes nothing.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stretto.atomic import replacing
from stretto.data.records.arrays import INT32_MAX, SLICE
from stretto.data.records.data import Data, splitmix64
from stretto.data.write import unwritable
from stretto.errors import DataError

Counts = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]

TABLE = 1 << 14  # draws that make a topic; fewer where the tables of all topics would exceed the limit below
ROOM = 1 << 26  # draws of all topics together: 256 MiB
_GOLDEN, _UNIFORM = np.uint64(0x9E3779B97F4A7C15), np.uint64(0x243F6A8885A308D3)  # as in stretto.keyed
_RANKS, _TOPICS, _LENGTHS, _DOCUMENTS, _WORDS = range(5)  # what a number is drawn for


def absorb(state: Any, key: ArrayLike) -> NDArray[np.uint64]:
    """The states after one more key, element by element: the chain of `stretto.keyed`, whose `uniform` is `unit` of
    `absorb(absorb(start(), a), b)`.
    """
    # splitmix64 adds the constant that is taken off here
    return splitmix64((state ^ (np.asarray(key).astype(np.uint64) + _GOLDEN)) - _GOLDEN)


def start(*keys: int) -> NDArray[np.uint64]:
    """[1] the state that has absorbed these keys."""
    state = np.array([_UNIFORM])
    for key in keys:
        state = absorb(state, np.uint64(key % 2**64))
    return state


def unit(state: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Numbers in [0, 1): the upper 53 bits."""
    return (state >> np.uint64(11)).astype(np.float64) * 2.0**-53


@dataclass(frozen=True, slots=True, eq=False)
class GeneratedCorpus:
    """A corpus and the topics it was drawn from."""

    data: Data
    topics: NDArray[np.float64]  # [K, V] the probability of each word in each topic


def corpus(documents: int, words: int, topics: int, length: float, **law: Any) -> GeneratedCorpus:
    """The whole corpus of `generate_corpus` in memory, with its topics."""
    parts = list(zip(*generate_corpus(documents, words, topics, length, **law), strict=True))
    rows, cols, counts = (np.concatenate(part) for part in parts)
    source = f"generated(documents={documents}, words={words}, topics={topics}, seed={law.get('seed', 0)})"
    data = Data.from_arrays(rows, cols, counts, (documents, words), source=source)
    said = {name: law[name] for name in ("beta", "zipf", "seed") if name in law}
    return GeneratedCorpus(data, topic_words(words, topics, **said))


def topic_words(
    words: int, topics: int, *, beta: float = 0.01, zipf: float = 1.0, seed: int = 0
) -> NDArray[np.float64]:
    """[K, V] the probability of each word in each topic of the corpora with these numbers."""
    table = _tables(words, topics, beta, zipf, seed)
    return np.stack([np.bincount(row, minlength=words) / len(row) for row in table])


def generate_corpus(
    documents: int,
    words: int,
    topics: int,
    length: float,
    *,
    alpha: float | ArrayLike = 0.1,
    beta: float = 0.01,
    zipf: float = 1.0,
    seed: int = 0,
    chunk: int = 1 << 17,
) -> Iterator[Counts]:
    """Chunks of (document, word, count), each int32 [n], sorted by document and word; a document is never cut.

    Parameters
    ----------
    documents, words, topics : int
        Size of the corpus.
    length : float
        Mean tokens of a document. They follow a gamma distribution of shape 2, with at least one token.
    alpha : float or array [K]
        Prior over topics in documents.
    beta, zipf : float
        Prior of the words in topics, as described above.
    seed : int
        Seed of everything that is drawn.
    chunk : int
        About how many tokens are drawn together.
    """
    _check(documents, words, topics, length, chunk)
    prior = np.asarray(alpha, np.float64)
    prior = np.full(topics, prior) if prior.ndim == 0 else prior
    if prior.shape != (topics,) or not (np.isfinite(prior).all() and (prior > 0).all()):
        raise DataError(f"alpha is one number above 0 or one for each of the {topics} topics; got {alpha!r}")
    table = _tables(words, topics, beta, zipf, seed)
    return _chunks(documents, words, length, np.cumsum(prior), table, seed, chunk)


def _check(documents: int, words: int, topics: int, length: float, chunk: int) -> None:
    if min(documents, words, topics, chunk) < 1 or not 1 <= length <= 1e7:
        raise DataError(
            "a corpus needs at least one document, word and topic, a chunk of 1 or more, and a length from 1 to 1e7; "
            f"got documents={documents}, words={words}, topics={topics}, length={length}, chunk={chunk}"
        )
    if max(documents, words) > INT32_MAX:
        raise DataError(f"documents and words are numbered with 31 bits, got {max(documents, words)}; make fewer")


def _chunks(
    documents: int,
    words: int,
    length: float,
    prior: NDArray[np.float64],
    table: NDArray[np.int32],
    seed: int,
    chunk: int,
) -> Iterator[Counts]:
    draws = table.shape[1]
    flat = table.ravel()
    step = max(1, int(chunk / length))
    for low in range(0, documents, step):
        keys = np.arange(low, min(low + step, documents), dtype=np.uint64)
        sizes = _lengths(keys, length, seed)
        document = np.repeat(np.arange(len(keys)), sizes)
        first = (np.cumsum(sizes) - sizes)[document]
        place = np.arange(len(document)) - first
        stream = place.astype(np.uint64) * _GOLDEN
        topic = _urns(absorb(start(seed, _DOCUMENTS), keys)[document] + stream, first, place, prior)
        state = splitmix64(absorb(start(seed, _WORDS), keys)[document] + stream)
        word = flat[topic * draws + (unit(state) * draws).astype(np.int64)]
        pairs = document * words + word
        pairs.sort()
        where = np.flatnonzero(np.diff(pairs, prepend=-1))
        found = pairs[where]
        rows = found // words
        count = np.diff(where, append=len(pairs)).astype(np.int32)
        yield (rows + low).astype(np.int32), (found - rows * words).astype(np.int32), count


def _lengths(keys: NDArray[np.uint64], length: float, seed: int) -> NDArray[np.int64]:
    state = absorb(start(seed, _LENGTHS), keys)
    both = (1.0 - unit(state)) * (1.0 - unit(splitmix64(state)))  # above 0
    return np.maximum(np.rint(np.log(both) * (-0.5 * length)), 1).astype(np.int64)


def _urns(
    state: NDArray[np.uint64], first: NDArray[np.int64], place: NDArray[np.int64], law: NDArray[np.float64]
) -> NDArray[np.int64]:
    """[n] the result of each draw from its urn. first, place [n]: start of the draw's urn, and its number in it.

    law : running sums of the weights of new draws. A draw that repeats an earlier one points at it. All pointers are
    followed at once by pointer jumping, which takes a few steps.
    """
    ball = unit(splitmix64(state)) * (place + law[-1])
    earlier = (ball - law[-1]).astype(np.int64) + first
    new = np.flatnonzero(ball < law[-1])
    earlier[new] = new
    shown: NDArray[np.int64] = np.empty(len(ball), np.int64)
    shown[new] = np.minimum(np.searchsorted(law, ball[new], side="right"), len(law) - 1)
    while True:
        further = earlier[earlier]
        if np.array_equal(further, earlier):
            return np.asarray(shown[earlier])
        earlier = further


def _tables(words: int, topics: int, beta: float, zipf: float, seed: int) -> NDArray[np.int32]:
    """[K, T] words: each row's shares are a topic."""
    if not (0 < beta < np.inf and 0 <= zipf < np.inf):
        raise DataError(f"beta must be above 0 and zipf 0 or more, got beta={beta}, zipf={zipf}")
    draws = TABLE
    while draws > 1024 and draws * topics > ROOM:
        draws //= 2
    rank = np.argsort(absorb(start(seed, _RANKS), np.arange(words)), kind="stable")  # frequent words have any index
    share = np.arange(1, words + 1, dtype=np.float64) ** -zipf
    law = np.cumsum(share)
    law *= words * beta / law[-1]
    table = np.empty((topics, draws), np.int32)
    step = max(1, SLICE // draws)
    for low in range(0, topics, step):
        some = np.arange(low, min(low + step, topics))
        place = np.tile(np.arange(draws), len(some))
        first = np.repeat(np.arange(len(some)) * draws, draws)
        keys = np.repeat(absorb(start(seed, _TOPICS), some), draws)
        drawn = _urns(keys + place.astype(np.uint64) * _GOLDEN, first, place, law)
        table[some] = rank[drawn].reshape(len(some), draws)
    return table


def write_corpus(
    path: str | os.PathLike[str],
    documents: int,
    words: int,
    topics: int,
    length: float,
    *,
    progress: Callable[[int, int], None] | None = None,
    **law: Any,
) -> tuple[int, int]:
    """Write a corpus in UCI's docword format, packed when the name ends in .gz; (entries, tokens) written.

    The file is written atomically, and the same arguments give the same bytes.

    law : alpha, beta, zipf, seed and chunk, as for `generate_corpus`.
    progress : called with (documents written, documents) after every chunk.
    """
    chunks = generate_corpus(documents, words, topics, length, **law)
    path = os.fspath(path)
    packed = path.lower().endswith(".gz")
    try:
        with replacing(os.path.abspath(path)) as fresh, fresh.open("wb") as out:
            # The number of entries is known at the end: the header has a fixed size that fits any number.
            out.write(_header(documents, words, 0, packed))
            if packed:
                with gzip.GzipFile("", "wb", 3, out, mtime=0) as body:
                    entries, tokens = _write_body(body, chunks, documents, words, progress)  # type: ignore[arg-type]
            else:
                entries, tokens = _write_body(out, chunks, documents, words, progress)
            out.seek(0)
            out.write(_header(documents, words, entries, packed))
    except OSError as error:
        raise unwritable(path, error) from error
    return entries, tokens


def _header(documents: int, words: int, entries: int, packed: bool) -> bytes:
    text = f"{documents}\n{words}\n{entries:<19d}\n".encode()
    return gzip.compress(text, 0, mtime=0) if packed else text  # level 0 stores: as long whatever the digits


def _write_body(
    out: BinaryIO, chunks: Iterator[Counts], documents: int, words: int, progress: Callable[[int, int], None] | None
) -> tuple[int, int]:
    """Lines by table look-up: three fixed-width fields a line, their padding deleted afterwards."""
    column = _texts(np.arange(1, words + 1), " ", " ")
    entries = tokens = 0
    for document, word, count in chunks:
        low, high = int(document[0]), int(document[-1])
        fields = (
            _texts(np.arange(low + 1, high + 2), "", "")[document - low],
            column[word],
            _texts(np.arange(int(count.max()) + 1), "", "\n")[count],
        )
        lines = np.empty(len(word), [(name, field.dtype) for name, field in zip("dwc", fields, strict=True)])
        for name, field in zip("dwc", fields, strict=True):
            lines[name] = field
        out.write(lines.tobytes().translate(None, b"\0"))
        entries += len(word)
        tokens += int(count.sum())
        if progress is not None:
            progress(high + 1, documents)
    return entries, tokens


def _texts(numbers: NDArray[np.int64], before: str, after: str) -> NDArray[np.bytes_]:
    """The numbers as bytes of one width, padded with zero bytes."""
    return np.array([f"{before}{number}{after}" for number in numbers.tolist()], np.bytes_)
