"""Topic models: the exact sampler and Metropolis-Hastings steps, by corpus, number of topics and length of documents.

Nanoseconds of processor time for a token on one thread: the least of the passes after the first two. mh has one pair of
proposals. IMDB is its first 5,000 documents, as they are and with 50 or 500 neighbours joined into one document.
"topics of a document" is the mean number of different topics in a token's document after the exact sampler's passes,
which is what the exact sampler reads with more than 256 topics. "log-likelihood" is the joint one per token after 12
passes of each, "passes of mh" how many mh needs for what the exact sampler has after 12 (24 at most).
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import stretto as st

from . import lda, lda_perplexity, lda_sets, report

PASSES, MOST = 12, 24
CASES = (
    ("ap", 1, (100, 1000)),
    ("20news", 1, (100, 1000)),
    ("planted", 1, (100, 1000)),
    ("imdb", 1, (50, 100, 200, 500, 1000, 2000, 5000, 20_000)),
    ("imdb", 50, (1000, 5000, 20_000)),
    ("imdb", 500, (1000, 5000, 20_000)),
)


def joined(counts: Any, together: int) -> Any:
    """Counts of documents made of `together` neighbours each."""
    from scipy.sparse import csr_matrix

    number = counts.shape[0]
    whole = np.arange(number) // together
    shape = (int(whole[-1]) + 1, number)
    return (csr_matrix((np.ones(number, np.int32), (whole, np.arange(number))), shape) @ counts).tocsr()


def load(name: str, together: int) -> Any:
    """Counts of a corpus."""
    counts = lda_sets.load(name)[:5_000] if name == "imdb" else lda_perplexity.load(name)
    return joined(counts, together) if together > 1 else counts


def topics_of_document(job: Any) -> float:
    """The mean number of different topics in the document of a token."""
    if job.shape.plain:
        rows = job.counts.doc_rows.reshape(-1, job.shape.width)
        different = np.count_nonzero(rows[:, : job.shape.topics], axis=1)
    else:
        different = job.counts.doc_length
    return float(np.average(different, weights=job.doc_tokens))


def passes(counts: Any, topics: int, sampler: str, goal: float | None) -> tuple[float, float, int, float]:
    """(ns for a token, log-likelihood after PASSES, passes to the goal, topics of a document)."""
    with st.Threads(1).open() as crew:
        lda.warm(counts, topics, crew, sampler=sampler, steps=1)
        job = lda.start(counts, topics, crew, sampler=sampler, steps=1)
        seconds, before, score = [], time.process_time(), 0.0
        for done, _ in lda.epochs(job, crew):
            now = time.process_time()
            seconds.append(now - before)
            if done >= PASSES:
                last = lda.likelihood(job)
                score = last if done == PASSES else score
                if goal is None or last >= goal or done == MOST:
                    return min(seconds[2:]) / job.items * 1e9, score, done, topics_of_document(job)
            before = time.process_time()
    raise AssertionError("the passes have no end")


def main() -> None:
    """One row for each corpus, length of documents and number of topics."""
    rows = []
    here = lda_perplexity.present()
    for name, together, numbers in CASES:
        if name not in here:
            continue
        counts = load(name, together)
        for k in numbers:
            exact, reached, _, different = passes(counts, k, "sparse", None)
            mh, behind, needed, _ = passes(counts, k, "mh", reached)
            more = f"≥ {needed}" if needed == MOST else f"{needed}"
            title = {"imdb": "IMDB, 5,000 documents"}.get(name, lda_perplexity.TITLES[name])
            rows.append(
                [title if together == 1 else f"{title}, {together} joined", f"{counts.sum() / counts.shape[0]:,.0f}", k,
                 f"{different:.0f}", f"{exact:.0f} ns", f"{mh:.0f} ns", f"{exact / mh:.2f}", f"{reached:.3f}",
                 f"{behind:.3f}", more]
            )  # fmt: skip
            print(rows[-1], flush=True)
    columns = ["corpus", "tokens of a document", "K", "topics of a document", "exact", "mh", "exact / mh"]
    columns += ["log-likelihood: exact", "mh", "passes of mh"]
    report.save("lda_samplers", "Topic models: two samplers", report.text(__doc__), report.table(columns, rows))
