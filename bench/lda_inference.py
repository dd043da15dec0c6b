"""Topic shares of documents that were not trained on, beside tomotopy, and against the speed of training.

Trained on IMDB and AP without their held-out documents (K = 100 and 1000, 50 passes; alpha = 50 / K, beta = 0.01), each
program infers the shares of held-out documents from half of their tokens. Perplexity is that of the other half, by the
program's own topics. A pass is one round over the tokens of a document: of the fixed point here, of Gibbs sampling
there. The held-out documents are inferred again and again, so that the clock sees more than the start of threads.
tomotopy infers documents each with a copy of the model or, `together`, as one more part of the corpus: both are shown.
"""

from __future__ import annotations

import statistics
import time
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse

import stretto as st

from . import lda, lda_peers, lda_sets, report

TRAINED = 50
ITERATIONS = (10, 20, 50, 100)
OURS, THEIRS = 20_000, 2_000  # documents inferred at a time, at least


def repeated(held: lda_sets.Held, least: int = THEIRS) -> lda_sets.Held:
    """The held-out documents, again and again until there are at least so many."""
    times = max(1, -(-least // held.seen.shape[0]))
    return lda_sets.Held(*(scipy.sparse.vstack([part] * times).tocsr() for part in (held.seen, held.rest)))


def ours(train: Any, held: lda_sets.Held, topics: int, threads: int) -> tuple[list[list[Any]], float]:
    """Rows of (documents/s, token passes/s, perplexity) and the training speed."""
    from stretto.models.topics.infer import Inferrer

    with st.Threads(threads).open() as crew:
        lda.warm(train, topics, crew)
        job = lda.start(train, topics, crew)
        seconds = next(seconds for passes, seconds in lda.epochs(job, crew) if passes == TRAINED)
        speed = job.items * TRAINED / seconds
        topics_now = job.topics()
        inferrer = Inferrer.of(topics_now, crew)
        smooth = topics_now.counts().astype(np.float64) + lda.BETA
        phi = smooth / smooth.sum(axis=1, keepdims=True)
        many = repeated(held, OURS).seen
        rows: list[list[Any]] = []
        for limit in (5, 10, 20, 30):
            inferrer.shares(many[:10], passes=limit, crew=crew)
            taken = []
            for _ in range(3):
                began = time.perf_counter()
                inferrer.shares(many, passes=limit, tol=0.0, crew=crew)
                taken.append(time.perf_counter() - began)
            seconds = statistics.median(taken)
            shares = partial(inferrer.shares, passes=limit, tol=0.0, crew=crew)
            perplexity = lda_sets.completion(phi, shares, held)
            rate = float(many.sum()) * limit / seconds
            rows.append([limit, many.shape[0] / seconds, rate, rate / speed, perplexity])
        began = time.perf_counter()
        _, work = inferrer.measured_shares(many, crew=crew)
        seconds = time.perf_counter() - began
        perplexity = lda_sets.completion(phi, partial(inferrer.shares, crew=crew), held)
        rate = work / seconds
        rows.append(["as `transform` does", many.shape[0] / seconds, rate, rate / speed, perplexity])
        return rows, speed


def main() -> None:
    """One table for each corpus and number of topics."""
    parts = []
    for name in lda_sets.present():
        train, held = lda_sets.split(lda_sets.load(name))
        for topics in lda.listed("BENCH_TOPICS", "100,1000"):
            for threads in lda.listed("BENCH_THREADS", "1,2"):
                rows, speed = ours(train, held, topics, threads)
                shown = [
                    [
                        "Stretto", limit, f"{docs:,.0f}", f"{rate / 1e6:.0f} M", f"{ratio:.1f}",
                        f"{perplexity:.0f}",
                    ]
                    for limit, docs, rate, ratio, perplexity in rows
                ]  # fmt: skip
                many = repeated(held)
                for together in (True, False) if topics <= 100 else (True,):
                    points = lda_peers.tomotopy_inference(
                        train, many, topics, TRAINED, threads, 1, alpha=50 / topics, beta=lda.BETA,
                        iterations=ITERATIONS, together=together,
                    )  # fmt: skip
                    count, tokens = many.seen.shape[0], float(many.seen.sum())
                    for p in points:
                        rate = tokens * p.passes / p.seconds
                        who = "tomotopy, together" if together else "tomotopy"
                        row = [who, int(p.passes), f"{count / p.seconds:,.0f}", f"{rate / 1e6:.1f} M", ""]
                        shown.append([*row, f"{p.score:.0f}"])
                title = f"## {lda_sets.TITLES[name]}, K = {topics}, {threads} thread{'s' if threads > 1 else ''}"
                about = f"Training: {speed / 1e6:.1f} M tokens/s."
                columns = ["program", "passes", "documents/s", "token passes/s", "of training", "perplexity"]
                parts += [title, about, report.table(columns, shown)]
                print("\n\n".join(parts[-3:]), flush=True)
    title = "Topic shares of unseen documents"
    report.save("lda_inference", title, report.text(__doc__), "\n\n".join(parts), ("tomotopy",))
