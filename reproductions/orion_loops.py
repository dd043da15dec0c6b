"""Orion's three loops for `reproductions.orion_distributed`, and a simulated cluster with the proportions of its own.

A job here is far smaller than the paper's, so time and network are scaled and not copied: an item takes so long that
a pass over all of them takes the paper's unordered time on 384 workers, and a link carries in a second the same share
of the array that travels as 40 Gbit/s carries of the paper's. Handling a byte is scaled likewise; a message and
latency are not, for a pass has the same number of blocks.

LDA reads the totals of the topics as they were when the iteration began; the driver adds them up anew after each. Orion
updates them through buffers, which our loops have on threads only: on nodes they refuse.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from bench.orders import factorise, ratings
from bench.rotation_jobs import Simulated

import stretto as st
from stretto.runtime.simulated.settings import MESSAGE_COST

MACHINES, CORES = 12, 32  # workers of a machine: hyper-threads
LINK = 40e9 / 8  # bytes per second
LATENCY = 50e-6
RANK, TOPICS = 16, 32
PER_ROW = 300  # ratings of a user, tokens of a document


@st.parallel
def adarevision(ratings: Any, W: Any, H: Any, ZW: Any, ZH: Any, lr: float, lam: float, loss: Any) -> None:
    for (i, j), r in ratings:
        e = r - W[i] @ H[j]
        loss += e * e
        gw, gh = lam * W[i] - e * H[j], lam * H[j] - e * W[i]
        ZW[i] += gw * gw
        ZH[j] += gh * gh
        W[i] -= lr * gw / np.sqrt(ZW[i])
        H[j] -= lr * gh / np.sqrt(ZH[j])


@st.parallel
def sweep(
    tokens: Any, topic: Any, first: Any, docs: Any, words: Any, totals: Any, alpha: float, beta: float, epoch: int
) -> None:
    topics, smooth = len(totals), beta * len(words)
    for (d, w), p in tokens:
        old = topic[d, p - first[d]]
        docs[d, old] -= 1
        words[w, old] -= 1
        reach = np.empty(topics)
        mass = 0.0
        for k in range(topics):
            mass += (docs[d, k] + alpha) * (words[w, k] + beta) / (totals[k] + smooth)
            reach[k] = mass
        at, new = st.uniform(epoch, p) * mass, 0
        while reach[new] <= at:
            new += 1
        topic[d, p - first[d]] = new
        docs[d, new] += 1
        words[w, new] += 1


@dataclass(frozen=True)
class App:
    """An application of the paper.

    Attributes
    ----------
    title : str
    ordered, unordered : float
        Seconds of an iteration on 12 machines, as the paper's Table 5.3 gives them.
    paper_bytes : float
        Of the array that travels, in the paper, at 4 bytes a number.
    bytes : int
        Of the one that travels here.
    make : callable
        make(measure=…, **options of the loop) gives (loop, call); call(epoch) makes an iteration and returns the mean
        squared error seen in it, or for LDA the perplexity after it (nan unless measure).
    items : int
        Of an iteration.
    """

    title: str
    ordered: float
    unordered: float
    paper_bytes: float
    bytes: int
    make: Callable[..., tuple[Any, Callable[[int], float]]]
    items: int


@cache
def movies(size: int) -> st.Data:
    """Ratings of as many users as items, all equally often, so that blocks are equal."""
    return ratings(PER_ROW * size, size, size)


@cache
def tokens(documents: int) -> Any:
    """A generated collection with as many words as documents, all equally often; one record a token, by document."""
    from stretto.data.generate.corpus import corpus

    return corpus(documents, documents, TOPICS, PER_ROW, zipf=0.0, seed=1).data.expanded()


@cache
def begun(documents: int) -> tuple[Any, tuple[Any, Any, Any]]:
    """The number of each document's first token; topics at random by document and place, and their counts."""
    words = tokens(documents)
    length = np.bincount(words.rows, minlength=words.shape[0])
    first = np.cumsum(length) - length
    drawn = np.random.default_rng(0).integers(0, TOPICS, len(words))
    topic = np.zeros((words.shape[0], int(length.max())), np.int32)
    topic[words.rows, np.arange(len(words)) - first[words.rows]] = drawn
    counts = [np.zeros((n, TOPICS), np.int32) for n in words.shape]
    for array, index in zip(counts, (words.rows, words.cols), strict=True):
        np.add.at(array, (index, drawn), 1)
    return first, (topic, counts[0], counts[1])


def perplexity(words: Any, by_doc: Any, by_word: Any, alpha: float = 0.1, beta: float = 0.01) -> float:
    """Of the collection itself, by counts of topics in documents and words."""
    theta = (by_doc + alpha) / (by_doc.sum(axis=1, keepdims=True) + alpha * TOPICS)
    phi = (by_word + beta) / (by_word.sum(axis=0) + beta * len(by_word))
    likely = np.einsum("nk,nk->n", theta[words.rows], phi[words.cols])
    return float(np.exp(-np.log(likely).mean()))


def app(name: str, size: int) -> App:
    """An application; size: users, items, documents, words."""
    if name == "lda":
        words = tokens(size)
        numbered, (first, started) = words.numbered(values=False), begun(size)

        def sample(measure: bool = False, **options: Any) -> tuple[Any, Callable[[int], float]]:
            topic, by_doc, by_word = (st.state(array) for array in started)
            loop = sweep.using(**{**options, "cut": ("d", "w")})

            def call(epoch: int) -> float:
                loop(numbered, topic, first, by_doc, by_word, by_word.array.sum(axis=0), 0.1, 0.01, epoch)
                return perplexity(words, by_doc.array, by_word.array) if measure else float("nan")

            return loop, call

        return App("LDA (NYTimes)", 29.9, 5.0, 102_660 * 1000 * 4.0, words.shape[1] * TOPICS * 4, sample, len(words))
    data = movies(size)
    many = name == "adarevision"

    def descend(measure: bool = False, **options: Any) -> tuple[Any, Callable[[int], float]]:
        W, H = (st.random((size, RANK), scale=0.1, seed=seed) for seed in (1, 2))
        more = (st.full(W.shape, 1.0), st.full(H.shape, 1.0)) if many else ()
        loop = (adarevision if many else factorise).using(**{**options, "cut": ("i", "j")})

        def call(epoch: int) -> float:
            loss = st.accumulator(0.0)
            loop(data, W, H, *more, 0.1 if many else 0.03, 0.02, loss)
            return float(loss) / len(data)

        return loop, call

    arrays, paper = (2, (43.6, 16.7)) if many else (1, (13.1, 5.9))
    title = "SGD MF AdaRevision (Netflix)" if many else "SGD MF (Netflix)"
    return App(title, *paper, arrays * 17_770 * 1000 * 4.0, arrays * size * RANK * 4, descend, len(data))


def cluster(
    job: App, machines: int, workers: int, *, slower: float = 1.0, processes: bool = False, cores: int = CORES
) -> Simulated:
    """Machines with the paper's proportions.

    slower : how many times less a link carries than in proportion.
    processes : every worker is a process of its own, as in Orion: blocks pass between workers of a machine too.
    cores : workers of each machine when a pass takes the paper's time on MACHINES of them.
    """
    scale = job.bytes / job.paper_bytes
    same: dict[str, Any] = {
        "latency": LATENCY,
        "seconds_per_item": job.unordered * MACHINES * cores / job.items,
        "message_cost": (MESSAGE_COST[0], MESSAGE_COST[1] / scale),
    }
    rate = LINK * scale / slower
    if not processes:
        return Simulated(nodes=machines, threads=workers, link=rate, **same)
    return Simulated(nodes=machines * workers, threads=1, link=rate, racks=machines, uplink=rate, **same)


def seconds(job: App, on: Simulated, *, ordered: bool, blocks: tuple[int, int]) -> float:
    """Virtual seconds of the second iteration, those of the node that took longest: from its first visit to its last.

    What nodes report to the driver after it is left out. Reports do not shrink with the data, and links do.
    """
    _, call = job.make(runtime=on, ordered=ordered, blocks=blocks)
    for epoch in range(2):
        call(epoch)
    return float(max(ran.seconds for ran in on.opened.ran.values()))
