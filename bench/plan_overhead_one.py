"""The measuring process of `bench.plan_overhead`: epochs of one source tree, as requested line by line.

    PYTHONPATH=TREE/src python bench/plan_overhead_one.py

It is run by its path, so that nothing but `stretto` comes from the tree it measures, and it uses only what both trees
offer to users. It reads requests from its input, one JSON object a line ({"case", "size", "threads", "epochs"}), and
answers each with one: {"epochs": seconds of each epoch after the first, "passes": seconds of their compiled passes,
"bits": a hash of what was learned}. Data are generated.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
import os
import sys
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

import stretto as st
from stretto.observe.events import EpochDone
from stretto.runtime.session import Session

# ratings, users, items of the factorisations; documents, words, tokens of a document of the topic models
RATINGS = {"small": (100_000, 2_000, 1_000), "large": (2_000_000, 20_000, 5_000)}
DOCUMENTS = {"small": (500, 1_000, 100.0), "large": (10_000, 5_000, 100.0)}
RANK, ALS_RANK, TOPICS, LOOP_TOPICS = 32, 16, 50, 20


@cache
def ratings(size: str) -> st.Data:
    """Ratings with a power law of users and items."""
    count, users, items = RATINGS[size]
    return st.generate_ratings(count, users, items, rank=8, noise=0.5, seed=1).data


@cache
def counts(size: str) -> st.Data:
    """Words of documents."""
    try:
        from stretto.data.generate.corpus import corpus
    except ModuleNotFoundError:  # a tree from before the packages of today
        corpus = importlib.import_module("stretto.data.generate_corpus").corpus

    documents, words, length = DOCUMENTS[size]
    return corpus(documents, words, 20, length, seed=1).data


def digest(*arrays: Any) -> str:
    """A hash of arrays."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:12]


class Watch:
    """When epochs end, and the seconds that their passes took."""

    def __init__(self) -> None:
        self.ends: list[float] = []
        self.passes: list[float] = []

    def note(self, event: Any) -> None:
        """A listener."""
        if isinstance(event, EpochDone):
            self.ends.append(time.perf_counter())
            self.passes.append(event.seconds)

    def told(self, bits: str) -> dict[str, Any]:
        """The answer to a request."""
        return {"epochs": np.diff(self.ends).tolist(), "passes": self.passes[1:], "bits": bits}


def named(estimator: Any, **given: Any) -> dict[str, Any]:
    """Arguments by the names that they have in this tree, which may be older than these."""
    former = {"n_components": "rank", "max_iter": "epochs"}
    known = inspect.signature(estimator).parameters
    return {name if name in known else former[name]: value for name, value in given.items()}


def factorise(size: str, threads: int, epochs: int, **options: Any) -> dict[str, Any]:
    """Fit `MatrixFactorization`."""
    watch = Watch()
    model = st.MatrixFactorization(
        **named(st.MatrixFactorization, **{"n_components": RANK, "max_iter": epochs + 1} | options),
        random_state=0,
        duplicates="last",
        runtime=st.Threads(threads),
    )
    model.fit(ratings(size), session=Session(listeners=[watch.note]))
    return watch.told(digest(*(vars(model)[name] for name in vars(model) if name.endswith("_factors_"))))


def topics(size: str, threads: int, epochs: int) -> dict[str, Any]:
    """Fit `LatentDirichletAllocation` with the sparse sampler; no likelihood on the way."""
    watch = Watch()
    model = st.LatentDirichletAllocation(
        TOPICS, sampler="sparse", first_topics="random", evaluate_every=epochs + 1, random_state=0,
        runtime=st.Threads(threads), **named(st.LatentDirichletAllocation, max_iter=epochs + 1),
    )  # fmt: skip
    model.fit(counts(size), session=Session(listeners=[watch.note]))
    return watch.told(digest(model.components_))


@st.parallel
def descend(ratings: Any, W: Any, H: Any, lr: float, lam: float, loss: Any) -> None:
    for (i, j), r in ratings:
        e = r - W[i] @ H[j]
        loss += e * e
        W[i], H[j] = W[i] + lr * (e * H[j] - lam * W[i]), H[j] + lr * (e * W[i] - lam * H[j])


@st.parallel
def begin(tokens: Any, topic: Any, docs: Any, words: Any, changes: Any, topics: int) -> None:
    for (d, w), p in tokens:
        new = st.integers(topics, 0, p)
        topic[p] = new
        docs[d, new] += 1
        words[w, new] += 1
        changes[new] += 1


@st.parallel
def sweep(tokens: Any, topic: Any, docs: Any, words: Any, totals: Any, changes: Any, epoch: int) -> None:
    topics, smooth = len(totals), 0.01 * len(words)
    for (d, w), p in tokens:
        old = topic[p]
        docs[d, old] -= 1
        words[w, old] -= 1
        changes[old] -= 1
        reach = np.empty(topics)
        mass = 0.0
        for k in range(topics):
            mass += (docs[d, k] + 0.1) * (words[w, k] + 0.01) / (totals[k] + smooth)
            reach[k] = mass
        at, new = st.uniform(epoch, p) * mass, 0
        while reach[new] <= at:
            new += 1
        topic[p] = new
        docs[d, new] += 1
        words[w, new] += 1
        changes[new] += 1


def timed(loop: Any, call: Callable[[int], None], epochs: int) -> tuple[list[float], list[float]]:
    """Seconds of calls after the first, and of their compiled passes."""
    seconds, passes = [], []
    for epoch in range(epochs + 1):
        began = time.perf_counter()
        call(epoch)
        seconds.append(time.perf_counter() - began)
        passes.append(float(loop.seconds))
    return seconds[1:], passes[1:]


def loop_factorise(size: str, threads: int, epochs: int) -> dict[str, Any]:
    """Call the factorisation loop; an epoch is a call."""
    data = ratings(size)
    W, H = (st.random((n, RANK), scale=0.1, seed=k) for k, n in enumerate(data.shape))
    loop = descend.using(runtime=st.Threads(threads))
    seconds, passes = timed(loop, lambda _: loop(data, W, H, 0.01, 0.05, st.accumulator(0.0)), epochs)
    return {"epochs": seconds, "passes": passes, "bits": digest(W.array, H.array)}


@cache
def tokens(size: str) -> Any:
    """One record a token."""
    return counts(size).expanded().numbered(values=False)


def loop_topics(size: str, threads: int, epochs: int) -> dict[str, Any]:
    """Call the loop that samples topics; an epoch is a call."""
    words = tokens(size)
    topic, totals = st.zeros(len(words), "i4"), st.zeros(LOOP_TOPICS, "i4")
    by_doc, by_word = (st.zeros((n, LOOP_TOPICS), "i4") for n in words.shape)
    begin(words, topic, by_doc, by_word, st.buffer(totals), LOOP_TOPICS)
    loop = sweep.using(runtime=st.Threads(threads))
    seconds, passes = timed(loop, lambda t: loop(words, topic, by_doc, by_word, totals, st.buffer(totals), t), epochs)
    return {"epochs": seconds, "passes": passes, "bits": digest(topic.array, by_word.array)}


CASES: dict[str, Callable[[str, int, int], dict[str, Any]]] = {
    "mf-sgd": factorise,
    "mf-adagrad": lambda *asked: factorise(*asked, optimizer="adagrad"),
    "mf-als": lambda *asked: factorise(*asked, solver="als", n_components=ALS_RANK),
    "lda-sparse": topics,
    "loop-mf": loop_factorise,
    "loop-lda": loop_topics,
}


def main() -> None:
    """Answer requests until the input ends. Whatever else prints goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for line in sys.stdin:
        asked = json.loads(line)
        found = CASES[asked["case"]](asked["size"], asked["threads"], asked["epochs"])
        print(json.dumps({**found, "tree": st.__file__}), file=answers, flush=True)


if __name__ == "__main__":
    main()
