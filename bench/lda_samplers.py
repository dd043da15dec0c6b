"""Topic models: the exact sampler and Metropolis-Hastings steps, by the number of topics and the length of documents.

Nanoseconds of processor time for a token on one thread: the least of the passes after the first two. mh has one pair of
proposals. The corpus is the first 5,000 documents of IMDB, as they are and with 50 neighbours joined into one document.
"log-likelihood" is the joint one per token after 12 passes of each, "passes of mh" how many mh needs for what the exact
sampler has after 12 (48 at most).
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import stretto as st

from . import lda, lda_sets, report

PASSES, MOST = 12, 48
CASES = {1: (50, 100, 200, 500, 1000, 2000), 50: (1000, 2000, 5000)}


def joined(counts: Any, together: int) -> Any:
    """Counts of documents made of `together` neighbours each."""
    from scipy.sparse import csr_matrix

    number = counts.shape[0]
    whole = np.arange(number) // together
    shape = (int(whole[-1]) + 1, number)
    return (csr_matrix((np.ones(number, np.int32), (whole, np.arange(number))), shape) @ counts).tocsr()


def passes(counts: Any, topics: int, sampler: str, goal: float | None) -> tuple[float, float, int]:
    """(ns for a token, log-likelihood after PASSES, passes to the goal)."""
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
                    return min(seconds[2:]) / job.items * 1e9, score, done
            before = time.process_time()
    raise AssertionError("the passes have no end")


def main() -> None:
    """One row for each length of documents and number of topics."""
    rows = []
    whole = lda_sets.load("imdb")[:5_000]
    for together, topics in CASES.items():
        counts = joined(whole, together) if together > 1 else whole
        for k in topics:
            exact, reached, _ = passes(counts, k, "sparse", None)
            mh, behind, needed = passes(counts, k, "mh", reached)
            more = f"{needed}" if needed < MOST else f"≥ {needed}"
            rows.append(
                [f"{counts.sum() / counts.shape[0]:,.0f}", k, f"{exact:.0f} ns", f"{mh:.0f} ns", f"{exact / mh:.2f}",
                 f"{reached:.3f}", f"{behind:.3f}", more]
            )  # fmt: skip
            print(rows[-1], flush=True)
    columns = ["tokens of a document", "K", "exact", "mh", "exact / mh", "log-likelihood: exact", "mh", "passes of mh"]
    report.save("lda_samplers", "Topic models: two samplers", report.text(__doc__), report.table(columns, rows))
