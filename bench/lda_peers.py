"""Other programs for topic models: tomotopy, scikit-learn and gensim, each in a process of its own.

A run gives points: seconds of training so far, passes over the corpus so far, and how good the topics are. Only the
program's own training is timed; reading its state and scoring it are not. tomotopy, a sampler, gets the joint
log-likelihood per token of its assignments; the others, which assign none, the perplexity of document completion.

    tomotopy_run(corpus, 100, 50, 2, seed=1, alpha=0.5, beta=0.01, every=10)
    # [Point(seconds=0.05, passes=1.0, score=-12.5), …]

The priors are given per topic and per word, alpha = 50 / K being the usual one, and are not optimised by any program.
More than one thread of tomotopy means its scheme "partition", its default and the better of its two here; its random
start is not timed, and its words are those that occur: a corpus with words that never do is another model to it.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .lda_sets import Floats, Held, Ints, completion, joint, pairs, table, texts
from .peers import ALLOWED

FIRST = (1, 2, 5)  # passes after which a sampler is evaluated, besides every n-th
KEPT = 31  # states of gensim at a time, up to 100 MB each; odd, so that the last one stays when half are dropped
# Wall time, or with BENCH_CLOCK=cpu the processor time of all threads, which other work hardly changes.
SHARED = os.environ.get("BENCH_CLOCK") == "cpu"
clock = time.process_time if SHARED else time.perf_counter
GRACE = 10.0  # seconds a process may take to end once it has said everything


@dataclass(frozen=True)
class Point:
    """How far a run was. score: joint log-likelihood per token, or perplexity of document completion."""

    seconds: float
    passes: float
    score: float


def tomotopy_run(
    corpus: Any, topics: int, passes: int, threads: int, seed: int, *, alpha: float, beta: float, every: int,
    limit: float = math.inf,
) -> list[Point]:  # fmt: skip
    """Joint log-likelihood at the start, after 1, 2, 5 passes and every so many; the first past `limit` s is last."""
    order = {"topics": topics, "passes": passes, "threads": threads, "seed": seed, "every": every, "limit": limit}
    return _apart("tomotopy", corpus, None, {**order, "alpha": alpha, "beta": beta})


def tomotopy_inference(
    train: Any, held: Held, topics: int, passes: int, threads: int, seed: int, *, alpha: float, beta: float,
    iterations: tuple[int, ...] = (10, 20, 50, 100), together: bool = False,
) -> list[Point]:  # fmt: skip
    """Perplexity of completion after training, against seconds of inference alone; passes: its iterations.

    together: all documents as one more part of the corpus, which spares a copy of the model for each.
    """
    order = {"topics": topics, "passes": passes, "threads": threads, "seed": seed, "iterations": iterations}
    return _apart("tomotopy_inference", train, held, {**order, "alpha": alpha, "beta": beta, "together": together})


def sklearn_run(
    train: Any, held: Held, topics: int, passes: float, threads: int, seed: int, *, alpha: float, beta: float,
    every: float, limit: float = math.inf, batch: int = 128,
) -> list[Point]:  # fmt: skip
    """Perplexity of completion of scikit-learn's online learner, each `every` passes (a part of one, too)."""
    order = {"topics": topics, "passes": passes, "threads": threads, "seed": seed, "every": every, "limit": limit}
    return _apart("sklearn", train, held, {**order, "alpha": alpha, "beta": beta, "batch": batch})


def gensim_run(
    train: Any, held: Held, topics: int, passes: float, threads: int, seed: int, *, alpha: float, beta: float,
    every: float, limit: float = math.inf, batch: int = 2_000,
) -> list[Point]:  # fmt: skip
    """The same of gensim: LdaModel with one thread, else LdaMulticore with as many worker processes."""
    order = {"topics": topics, "passes": passes, "threads": threads, "seed": seed, "every": every, "limit": limit}
    return _apart("gensim", train, held, {**order, "alpha": alpha, "beta": beta, "batch": batch})


def _apart(program: str, train: Any, held: Held | None, options: dict[str, Any]) -> list[Point]:
    """Run one program in a process of its own and collect its points."""
    import scipy.sparse

    matrices = {"train": train} if held is None else {"train": train, "seen": held.seen, "rest": held.rest}
    points: list[Point] = []
    with tempfile.TemporaryDirectory() as folder, open(Path(folder) / "errors", "w+", encoding="utf-8") as errors:
        for name, matrix in matrices.items():
            scipy.sparse.save_npz(Path(folder) / f"{name}.npz", matrix, compressed=False)
        order = json.dumps({"program": program, "folder": folder, "matrices": list(matrices), **options})
        child = subprocess.Popen(
            [sys.executable, "-m", "bench.lda_peers", order],
            cwd=Path(__file__).parent.parent,
            # The programs make threads or processes themselves: what is below must not multiply them.
            env={**os.environ, **dict.fromkeys(ALLOWED, "1")},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
        ended = False
        try:
            assert child.stdout is not None
            for line in child.stdout:  # the peers may print too
                if line.startswith('{"seconds"'):
                    points.append(Point(**json.loads(line)))
                elif line.startswith('{"end"'):
                    ended = True
                    break
            with suppress(subprocess.TimeoutExpired):
                child.wait(GRACE)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)  # and with it the processes it may have left
            child.wait()
        if not ended:
            errors.seek(0)
            said = "\n  ".join(errors.read().splitlines()[-5:])
            raise RuntimeError(f"{program} {options}: ended by {child.returncode} at point {len(points)}\n  {said}")
    return points


def _tomotopy_model(order: dict[str, Any], counts: Any) -> tuple[Any, Callable[[int], float]]:
    """A model that holds the corpus, initialised, and a function that makes so many passes and gives the seconds."""
    import tomotopy

    model = tomotopy.LDAModel(
        k=order["topics"], alpha=order["alpha"], eta=order["beta"], seed=order["seed"], min_cf=0, min_df=0, rm_top=0
    )
    model.optim_interval = model.burn_in = 0  # priors stay as they are given, which is for one topic and one word
    for document in texts(counts):
        model.add_doc(document)
    scheme = tomotopy.ParallelScheme.PARTITION if order["threads"] > 1 else tomotopy.ParallelScheme.DEFAULT

    def train(passes: int) -> float:
        began = clock()
        model.train(passes, workers=order["threads"], parallel=scheme, show_progress=False)
        return clock() - began

    train(0)
    assert np.allclose(model.alpha, np.full(order["topics"], order["alpha"])), "another prior than was asked for"
    assert model.num_words == counts.sum(), "tokens were left out"
    return model, train


def _assigned(model: Any) -> tuple[Ints, Ints, Ints]:
    """Document, word (by its place in the corpus) and topic of each token that tomotopy holds."""
    known = np.array([int(name) for name in model.used_vocabs], np.int32)
    words = [np.asarray(doc.words) for doc in model.docs]
    topic = np.concatenate([np.asarray(doc.topics) for doc in model.docs]).astype(np.int32)
    docs = np.repeat(np.arange(len(words), dtype=np.int32), [len(one) for one in words])
    return docs, known[np.concatenate(words)], topic


def _tomotopy(order: dict[str, Any], train: Any) -> Iterator[Point]:
    model, more = _tomotopy_model(order, train)
    alpha = np.full(order["topics"], order["alpha"])
    stops = {stop for stop in FIRST if stop < order["every"]} | set(range(0, order["passes"] + 1, order["every"]))
    seconds, done = 0.0, 0
    for stop in sorted(stop for stop in stops | {order["passes"]} if stop <= order["passes"]):
        if stop > done:
            seconds, done = seconds + more(stop - done), stop
        yield Point(seconds, float(done), joint(*_assigned(model), train.shape, alpha, order["beta"]))
        if seconds > order["limit"]:
            return


def _tomotopy_inference(order: dict[str, Any], train: Any, seen: Any, rest: Any) -> Iterator[Point]:
    model, more = _tomotopy_model(order, train)
    more(order["passes"])
    _, words, topic = _assigned(model)
    smooth = table(words, topic, train.shape[1], order["topics"]).toarray().T + order["beta"]
    phi = smooth / smooth.sum(axis=1, keepdims=True)
    times: list[float] = []

    def infer(iterations: int, counts: Any) -> Floats:
        documents = [model.make_doc(text) for text in texts(counts)]
        began = time.perf_counter()
        theta, _ = model.infer(documents, iterations=iterations, workers=order["threads"], together=order["together"])
        times.append(time.perf_counter() - began)
        return np.array(theta, np.float64)

    for iterations in order["iterations"]:
        score = completion(phi, partial(infer, iterations), Held(seen, rest))
        yield Point(times[-1], float(iterations), score)


def _sklearn(order: dict[str, Any], train: Any, seen: Any, rest: Any) -> Iterator[Point]:
    from sklearn.base import clone
    from sklearn.decomposition import LatentDirichletAllocation

    model = LatentDirichletAllocation(
        order["topics"], doc_topic_prior=order["alpha"], topic_word_prior=order["beta"], learning_method="online",
        batch_size=order["batch"], total_samples=train.shape[0], n_jobs=order["threads"], random_state=order["seed"],
    )  # fmt: skip
    train, held = train.astype(np.float64), Held(seen.astype(np.float64), rest)
    clone(model).fit(train[: order["threads"]])  # starts its processes
    # Whole batches at a time; a call of partial_fit is what fit does in a pass.
    step = math.ceil(order["every"] * train.shape[0] / order["batch"]) * order["batch"]
    seconds, done, at = 0.0, 0, 0
    while done < order["passes"] * train.shape[0] and seconds <= order["limit"]:
        part = train[at : at + step]
        began = time.perf_counter()
        model.partial_fit(part)
        seconds += time.perf_counter() - began
        done, at = done + part.shape[0], (at + step if at + step < train.shape[0] else 0)
        phi = model.components_ / model.components_.sum(axis=1, keepdims=True)
        yield Point(seconds, done / train.shape[0], completion(phi, model.transform, held))


def _gensim(order: dict[str, Any], train: Any, seen: Any, rest: Any) -> Iterator[Point]:
    from gensim.models import LdaModel, LdaMulticore

    common = {"num_topics": order["topics"], "id2word": {word: str(word) for word in range(train.shape[1])},
              "alpha": np.full(order["topics"], order["alpha"]), "eta": order["beta"], "chunksize": order["batch"],
              "passes": math.ceil(order["passes"]), "eval_every": None, "random_state": order["seed"]}  # fmt: skip
    model = LdaModel(**common) if order["threads"] == 1 else LdaMulticore(workers=order["threads"], **common)
    kept = _snapshots(LdaModel, model, pairs(train), order)

    def infer(counts: Any) -> Floats:
        gamma, _ = model.inference(pairs(counts))
        theta: Floats = np.asarray(gamma / gamma.sum(axis=1, keepdims=True), np.float64)
        return theta

    for seconds, passes, statistics in kept:
        model.state.sstats = statistics
        model.sync_state()
        yield Point(seconds, passes, completion(np.asarray(model.get_topics(), np.float64), infer, Held(seen, rest)))


class _EnoughError(Exception):
    """Ends gensim's training from within."""


def _snapshots(kind: Any, model: Any, corpus: list[Any], order: dict[str, Any]) -> list[tuple[float, float, Any]]:
    """Train, and keep (seconds, passes, statistics) each `every` passes, more rarely when there get to be many.

    gensim's schedule needs the whole corpus in one call, so that the only place to look is the end of a batch. They are
    scored later: workers would go on meanwhile. The class is changed and not the model, as that travels to them.
    """
    kept: list[tuple[float, float, Any]] = []
    finish, done, looked, began, every = kind.do_mstep, 0, 0.0, 0.0, order["every"]

    def step(self: Any, rho: float, other: Any, extra_pass: bool = False) -> None:
        nonlocal done, looked, every
        done += other.numdocs
        finish(self, rho, other, extra_pass)
        now = time.perf_counter()
        seconds, passes = now - began - looked, done / len(corpus)
        late = seconds > order["limit"] or passes >= order["passes"]
        if late or passes >= (kept[-1][1] if kept else 0.0) + every:
            kept.append((seconds, passes, self.state.sstats.copy()))
            if len(kept) == KEPT:
                del kept[1::2]
                every *= 2
        if late:
            raise _EnoughError
        looked += time.perf_counter() - now

    kind.do_mstep = step
    began = time.perf_counter()
    with suppress(_EnoughError):
        model.update(corpus)
    kind.do_mstep = finish
    return kept


PROGRAMS: dict[str, Callable[..., Iterator[Point]]] = {
    "tomotopy": _tomotopy,
    "tomotopy_inference": _tomotopy_inference,
    "sklearn": _sklearn,
    "gensim": _gensim,
}


def main() -> None:
    """Do what the order says; a line of JSON for each point, and one at the end."""
    import scipy.sparse

    order = json.loads(sys.argv[1])
    matrices = {name: scipy.sparse.load_npz(Path(order["folder"]) / f"{name}.npz") for name in order["matrices"]}
    for point in PROGRAMS[order["program"]](order, **matrices):
        print(json.dumps({"seconds": point.seconds, "passes": point.passes, "score": point.score}), flush=True)
    print('{"end": true}', flush=True)
    if order["program"] == "gensim":
        os._exit(0)  # a pool whose training was ended early never returns; the caller ends its processes


if __name__ == "__main__":
    main()
