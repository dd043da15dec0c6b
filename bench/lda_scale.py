"""Topic models: tokens per second at 1, 2, 4, 8, 16 threads, and for 100 to 10,000 topics.

Threads: a generated corpus of 50 million tokens (`BENCH_TOKENS`), exact sampler; every count of threads ends with the
same topics for every token. Topics: IMDB if available, else generated; nanoseconds for a token on one thread in
the passes after the first two, for both samplers (mh with one pair of proposals). `BENCH_TABLES=threads` makes the
first table alone.
"""

from __future__ import annotations

import hashlib
import os
import statistics
from typing import Any

import numpy as np

import stretto as st

from . import lda, lda_sets, report

PASSES = 4


def generated(tokens: int, length: int = 100, words: int = 50_000) -> Any:
    """Counts [documents, words] of a generated corpus of about so many tokens."""
    import scipy.sparse

    from stretto.data.generate.corpus import generate_corpus

    shape = (tokens // length, words)
    parts = list(generate_corpus(shape[0], words, 200, length, seed=1))
    docs, ids, counts = (np.concatenate(part) for part in zip(*parts, strict=True))
    return scipy.sparse.csr_matrix((counts.astype(np.int32), (docs, ids)), shape)


def timed(counts: Any, topics: int, threads: int, **choices: Any) -> tuple[float, str, float]:
    """(seconds of a pass, hash of all topics, best possible efficiency of the order)."""
    with st.Threads(threads).open() as crew:
        lda.warm(counts, topics, crew, **choices)
        job = lda.start(counts, topics, crew, **choices)
        seconds, before = [], 0.0
        for passes, now in lda.epochs(job, crew):
            if passes > 2:
                seconds.append(now - before)
            before = now
            if passes == PASSES:
                break
        digest = hashlib.sha256(job.laid.tokens.topic.tobytes()).hexdigest()[:8]
        return statistics.median(seconds), digest, job.plan.bound(threads).efficiency


def by_threads(counts: Any) -> str:
    """One row for each number of threads and topics."""
    rows = []
    tokens = int(counts.sum())
    for topics in lda.listed("BENCH_TOPICS", "100,1000"):
        alone = 0.0
        for threads in (n for n in (1, 2, 4, 8, 16) if n <= report.cores()):
            seconds, digest, bound = timed(counts, topics, threads)
            alone = alone or seconds
            share = alone / seconds / threads
            rate = tokens / seconds / 1e6
            rows.append([topics, threads, f"{seconds:.2f} s", f"{rate:.1f} M", f"{share:.0%}", f"{bound:.0%}", digest])
            print(rows[-1], flush=True)
    return report.table(
        ["K", "threads", "pass", "tokens/s", "efficiency", "bound of the order", "hash of topics"], rows
    )


def by_topics(counts: Any) -> str:
    """One row for each number of topics."""
    rows: list[list[object]] = []
    first: dict[str, float] = {}
    tokens = int(counts.sum())
    for topics in (100, 300, 1_000, 3_000, 10_000):
        cells: list[object] = [topics]
        for sampler in ("sparse", "mh"):
            seconds, _, _ = timed(counts, topics, 1, sampler=sampler, steps=1)
            cost = seconds / tokens * 1e9
            first.setdefault(sampler, cost)
            cells += [f"{cost:.0f} ns", f"{cost / first[sampler]:.2f}"]
        rows.append(cells)
        print(rows[-1], flush=True)
    return report.table(["K", "sparse", "of K = 100", "mh", "of K = 100"], rows)


def main() -> None:
    """Both tables."""
    corpus = generated(int(os.environ.get("BENCH_TOKENS", "50_000_000")))
    about = f"Generated: {corpus.shape[0]:,} documents, {corpus.shape[1]:,} words, {int(corpus.sum()):,} tokens."
    body = "\n\n".join(["## Threads", about, by_threads(corpus)])
    if os.environ.get("BENCH_TABLES") != "threads":
        real = lda_sets.load("imdb") if "imdb" in lda_sets.present() else corpus
        body += "\n\n## Topics\n\n" + by_topics(real)
    report.save("lda_scale", "Topic models: threads and topics", report.text(__doc__), body)
