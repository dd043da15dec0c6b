"""Topic models beside tomotopy: seconds to the same held-out perplexity, by one judge for both.

The judge takes the counts of words in topics that a program has after some passes, and nothing else of it: the topics
are (n_wk + beta) / (n_k + V beta). A held-out document's shares of topics are found from half of its tokens by 50
iterations of EM, and the perplexity is that of its other half. Priors are tomotopy's defaults (alpha = 0.1,
beta = 0.01), fixed, for both. The target is the best perplexity that either program reached, plus one per cent. Seconds
are those of training passes alone: laying out is in a column of its own, the peer's is not timed.

"averaged" is a fit with `average_every=5, burn_in=n // 2` and n passes: the topics are the mean of the states after
every fifth pass of its second half. Its seconds include reading those states. Such a fit is measured for each n in the
list of stops, from one run. tomotopy has no option of this kind; both columns stand beside its last state.

Corpora: AP, the first 10,000 documents of IMDB, and a generated corpus with 50 planted topics (Zipf's law, 10,000
documents of 80 tokens). `BENCH_TOPICS`, `BENCH_THREADS`, `BENCH_PASSES` choose. Programs run one after the other.
"""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

import stretto as st

from . import lda, lda_peers, lda_sets, report
from .lda_peers import Point
from .lda_sets import Floats, Held

ALPHA, BETA = 0.1, 0.01
HELD = 400  # documents; the judge takes longer than training for more
ITERATIONS = 50
AVERAGE_EVERY = 5
STOPS = (1, 2, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 120, 140, 160, 180, 200, 250, 300)
TITLES = {"ap": "AP", "imdb": "IMDB, 10,000 documents", "planted": "generated, 50 planted topics"}


def folded(phi: Floats, counts: Any) -> Floats:
    """Shares of topics [documents, K] that are likely for documents: the maximum a posteriori, by EM."""
    K = len(phi)
    theta = np.full((counts.shape[0], K), 1 / K)
    by_word = np.ascontiguousarray(phi.T)
    for d in range(counts.shape[0]):
        some = slice(counts.indptr[d], counts.indptr[d + 1])
        words, number = by_word[counts.indices[some]], counts.data[some]
        mine = theta[d]
        for _ in range(ITERATIONS):
            mine = mine * ((number / (words @ mine)) @ words) + ALPHA
            mine /= mine.sum()
        theta[d] = mine
    return theta


def judged(counts: Floats, held: Held) -> float:
    """Perplexity of topics with these counts [K, V]."""
    smooth = counts + BETA
    phi = smooth / smooth.sum(axis=1, keepdims=True)
    return lda_sets.completion(phi, lambda seen: folded(phi, seen), held)


def load(name: str) -> Any:
    """Counts of a corpus."""
    if name == "planted":
        from scipy.sparse import csr_matrix

        from stretto.data.generate.corpus import corpus

        made = corpus(10_000, 8_000, 50, 80, seed=7).data
        return csr_matrix((made.values.astype(np.int32), (made.rows, made.cols)), made.shape)
    counts = lda_sets.load(name)
    return counts[:10_000] if name == "imdb" else counts


def ours(train: Any, held: Held, topics: int, threads: int, passes: int) -> tuple[float, list[Point], list[Point]]:
    """(seconds of laying out, points of the last state, points of averaged states)."""
    points: list[Point] = []
    averaged: list[Point] = []
    states: dict[int, Floats] = {}
    took: dict[int, float] = {}
    with st.Threads(threads).open() as crew:
        lda.warm(train, topics, crew, alpha=ALPHA)
        began = time.perf_counter()
        job = lda.start(train, topics, crew, alpha=ALPHA)
        ready = time.perf_counter() - began
        for done, seconds in lda.epochs(job, crew):
            if done in STOPS or done % AVERAGE_EVERY == 0:
                began = time.perf_counter()
                states[done] = job.topics().counts().astype(np.float64)
                took[done] = time.perf_counter() - began
            if done in STOPS:
                points.append(Point(seconds, done, judged(states[done], held)))
                # As `average_every` counts: from the pass after `burn_in` on.
                used = [n for n in states if n > done // 2 and (n - done // 2) % AVERAGE_EVERY == 0]
                if used:
                    mean = np.mean([states[n] for n in used], axis=0)
                    averaged.append(Point(seconds + sum(took[n] for n in used), done, judged(mean, held)))
            if done >= passes:
                return ready, points, averaged
    raise AssertionError("the passes have no end")


def theirs(train: Any, held: Held, topics: int, threads: int, passes: int) -> list[Point]:
    """Points of tomotopy."""
    order = {"topics": topics, "alpha": ALPHA, "beta": BETA, "seed": 1, "threads": threads}
    model, more = lda_peers._tomotopy_model(order, train)
    points, seconds, done = [], 0.0, 0
    for stop in sorted({stop for stop in STOPS if stop < passes} | {passes}):
        seconds, done = seconds + more(stop - done), stop
        _, words, topic = lda_peers._assigned(model)
        counts = lda_sets.table(words, topic, train.shape[1], topics).toarray().T.astype(np.float64)
        points.append(Point(seconds, done, judged(counts, held)))
    return points


def first_at(points: list[Point], target: float) -> Point | None:
    """The first point with the target's perplexity or a lower one."""
    return next((point for point in points if point.score <= target), None)


def shown(point: Point | None, points: list[Point]) -> str:
    """Seconds and passes to a target."""
    if point is None:
        return f"> {points[-1].seconds:.2f} s ({points[-1].passes:.0f})"
    return f"{point.seconds:.2f} s ({point.passes:.0f})"


def row(name: str, topics: int, threads: int, passes: int) -> list[object]:
    """One row of the table: both programs on one corpus."""
    train, held = lda_sets.split(load(name), most=HELD)
    ready, mine, mean = ours(train, held, topics, threads, passes)
    peer = theirs(train, held, topics, threads, passes)
    best = [min(point.score for point in points) for points in (mine, mean, peer)]
    # The best of the last states: an average is better than any, and the peer cannot make one.
    target = 1.01 * min(best[0], best[2])
    at = [first_at(points, target) for points in (mine, mean, peer)]
    rate = [int(train.sum()) * points[-1].passes / points[-1].seconds / 1e6 for points in (mine, peer)]
    cells = [f"{target:.0f}", *(shown(point, points) for point, points in zip(at, (mine, mean, peer), strict=True))]
    cells += [faster(at[0], at[2], peer), faster(at[1], at[2], peer), *(f"{score:.0f}" for score in best)]
    found = [TITLES[name], topics, threads, *cells, f"{rate[0]:.1f} M", f"{rate[1]:.1f} M", f"{ready:.2f} s"]
    print(found, flush=True)
    return found


def faster(ours: Point | None, theirs: Point | None, peer: list[Point]) -> str:
    """How many times sooner we had the target."""
    if ours is None:
        return "–"
    ratio = f"{(theirs or peer[-1]).seconds / ours.seconds:.1f}×"
    return ratio if theirs is not None else f"> {ratio}"


def main() -> None:
    """One row for each corpus, number of topics and number of threads."""
    passes = int(os.environ.get("BENCH_PASSES", "200"))
    names = [name for name in TITLES if name == "planted" or name in lda_sets.present()]
    rows = [
        row(name, topics, threads, passes)
        for name in names
        for topics in lda.listed("BENCH_TOPICS", "100")
        for threads in lda.listed("BENCH_THREADS", "1,2")
    ]
    columns = ["corpus", "K", "threads", "target", "Stretto (passes)", "averaged (passes)", "tomotopy (passes)"]
    columns += ["faster", "averaged: faster", "best", "best averaged", "tomotopy's best"]
    columns += ["tokens/s", "tomotopy's tokens/s", "layout"]
    body = report.table(columns, rows)
    report.save("lda_perplexity", "Topic models: time to a perplexity", report.text(__doc__), body, ("tomotopy",))
