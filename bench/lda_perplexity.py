"""Topic models beside tomotopy: seconds to the same held-out perplexity, by one judge for both.

The judge takes the counts of words in topics that a program has after some passes, and nothing else of it: the topics
are (n_wk + beta) / (n_k + V beta). A held-out document's shares of topics are found from half of its tokens by 50
iterations of EM, and the perplexity is that of its other half. Priors are tomotopy's defaults (alpha = 0.1,
beta = 0.01), fixed, for both. The target is the best perplexity of tomotopy in its passes (200), plus one per cent.
Seconds are those of training passes alone: laying out is in a column of its own, the peer's is not timed.

The peer's run is first. Our fits have 20 to 150 passes and end when averaged and last states have both reached the
target; "best" is that of the fits made.

Stretto's options follow from the number of passes: three quarters of them are warm-up, states of the last quarter are
averaged. So each number of passes in the table is a fit of its own, from the first pass on; its seconds include adding
states up. "last state" is the same fit with `average_every=0`. tomotopy has no option of this kind and is judged by its
state after every tenth pass of one run. With two threads Stretto's counts are compared with those of one thread, bit
for bit, and not judged again.

WarpLDA takes part where $WARPLDA names the folder of its programs, with the same priors and its default, one step of
Metropolis-Hastings for each kind of proposal. It is judged after 100, 200, 400 and 800 passes, as far as it has not
reached the target and the next run is expected to take no more than a limit, 30 s of training (`BENCH_LIMIT`).

Corpora: AP, the first 10,000 documents of IMDB, the 20 newsgroups without words in more than a tenth or fewer than ten
of the documents, and three generated ones by Zipf's law: 10,000 documents of 80 tokens with 50 planted topics, 2,500 of
300 tokens with 150, and 1,000 of 700 tokens with 120. `BENCH_SETS`, `BENCH_TOPICS`, `BENCH_THREADS`, `BENCH_PASSES`
choose. Programs run one after the other. The larger prior of the warm-up was chosen on AP, on the second of the
generated corpora and on others that are not in the table.
`BENCH_CLOCK=cpu` gives seconds of the processor, of all threads together; WarpLDA, which reports its own, takes no
part then.
"""

from __future__ import annotations

import os
import time
from functools import cache
from typing import Any

import numpy as np

import stretto as st

from . import lda, lda_peers, lda_sets, lda_warplda, report, sets
from .lda_peers import Point
from .lda_sets import Floats, Held

ALPHA, BETA = 0.1, 0.01
HELD = 400  # documents; the judge takes longer than training for more
ITERATIONS = 50
FITS = (20, 30, 40, 50, 60, 70, 80, 100, 120, 150)  # passes of our fits
EVERY = 10  # passes between two states of tomotopy that are judged
WARPLDA_PASSES = (100, 200, 400, 800)  # each is a run of its own
TITLES = {
    "ap": "AP",
    "imdb": "IMDB, 10,000 documents",
    "20news": "20 newsgroups",
    "planted": "generated, 50 planted topics",
    "long": "generated, long documents",
    "longer": "generated, longer documents",
}
GENERATED = {
    "planted": ((10_000, 8_000, 50, 80), 7),
    "long": ((2_500, 20_000, 150, 300), 11),
    "longer": ((1_000, 12_000, 120, 700), 41),
}
NEWS = "20news/20news.train.libsvm.xz"


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
    from scipy.sparse import csr_matrix

    if name in GENERATED:
        from stretto.data.generate.corpus import corpus

        size, seed = GENERATED[name]
        made = corpus(*size, seed=seed).data
        return csr_matrix((made.values.astype(np.int32), (made.rows, made.cols)), made.shape)
    if name == "20news":
        folder = sets.real_data()
        assert folder is not None
        read = st.read(folder / NEWS)
        counts = csr_matrix((read.values.astype(np.int32), (read.rows, read.cols)), read.shape)
        within = np.bincount(counts.indices, minlength=counts.shape[1])
        counts = counts[:, (within >= 10) & (within <= counts.shape[0] // 10)]
        return counts[np.asarray(counts.sum(axis=1)).ravel() > 0]
    counts = lda_sets.load(name)
    return counts[:10_000] if name == "imdb" else counts


def present() -> list[str]:
    """The corpora that are available, or those of them that $BENCH_SETS names."""
    folder = sets.real_data()
    files = {**lda_sets.FILES, "20news": NEWS}
    here = [name for name in TITLES if name in GENERATED or (folder is not None and (folder / files[name]).exists())]
    asked = [name for name in os.environ.get("BENCH_SETS", "").split(",") if name]
    return [name for name in here if not asked or name in asked]


@cache
def judged_fit(name: str, topics: int, passes: int) -> dict[str, Any]:
    """Counts and perplexities of a fit, which do not depend on the number of threads: filled by the first of them."""
    return {}


def ours(
    name: str, train: Any, held: Held, topics: int, threads: int, target: float
) -> tuple[float, list[Point], list[Point]]:
    """(seconds of laying out, points of averaged states, points of last states), until both reach the target."""
    from stretto.models.topics.problem import schedule

    averaged, last, ready = [], [], 0.0
    with st.Threads(threads).open() as crew:
        lda.warm(train, topics, crew, alpha=ALPHA, average_every=1)
        for passes in FITS:
            options = schedule(passes, warm_up=None, burn_in=None, average_every=None, learning=False, stopping=False)
            began = time.perf_counter()
            job = lda.start(train, topics, crew, alpha=ALPHA, **options)
            ready, adding, seconds = time.perf_counter() - began, 0.0, 0.0
            for done, total in lda.epochs(job, crew):
                past = done - job.problem.averaging
                if past > 0 and past % job.problem.average_every == 0:
                    began = lda_peers.clock()
                    job.add_up()
                    adding += lda_peers.clock() - began
                if done == passes:
                    seconds = total
                    break
            mean = job.topics().counts().astype(np.float64)
            job.summed.states[:] = 0
            state = job.topics().counts().astype(np.float64)
            found = judged_fit(name, topics, passes)
            if found:
                assert np.array_equal(found["mean"], mean), "other counts with another number of threads"
            else:
                found |= {"mean": mean, "scores": (judged(mean, held), judged(state, held))}
            averaged.append(Point(seconds + adding, passes, found["scores"][0]))
            last.append(Point(seconds, passes, found["scores"][1]))
            if first_at(averaged, target) is not None and first_at(last, target) is not None:
                break
    return ready, averaged, last


def theirs(train: Any, held: Held, topics: int, threads: int, passes: int) -> list[Point]:
    """Points of tomotopy."""
    order = {"topics": topics, "alpha": ALPHA, "beta": BETA, "seed": 1, "threads": threads}
    model, more = lda_peers._tomotopy_model(order, train)
    points, seconds = [], 0.0
    for done in range(EVERY, passes + 1, EVERY):
        seconds += more(EVERY)
        if 2 * done < passes:  # far from its best
            continue
        _, words, topic = lda_peers._assigned(model)
        counts = lda_sets.table(words, topic, train.shape[1], topics).toarray().T.astype(np.float64)
        points.append(Point(seconds, done, judged(counts, held)))
    return points


def warplda(train: Any, held: Held, topics: int, threads: int, target: float) -> list[Point]:
    """Points of WarpLDA until the target or the limit, each of a run of its own; none where it is not installed."""
    if lda_warplda.folder() is None or lda_peers.SHARED:
        return []
    most = float(os.environ.get("BENCH_LIMIT", "30"))
    points: list[Point] = []
    made = lda_warplda.points(train, topics, threads, WARPLDA_PASSES, alpha=ALPHA, beta=BETA)
    for number, (seconds, passes, counts) in enumerate(made, 1):
        points.append(Point(seconds, passes, judged(counts, held)))
        if points[-1].score <= target or number == len(WARPLDA_PASSES):
            break
        if seconds * WARPLDA_PASSES[number] / passes > most:
            break
    return points


def first_at(points: list[Point], target: float) -> Point | None:
    """The first point with the target's perplexity or a lower one."""
    return next((point for point in points if point.score <= target), None)


def shown(point: Point | None, points: list[Point]) -> str:
    """Seconds and passes to a target."""
    if not points:
        return "not measured"
    if point is None:
        return f"> {points[-1].seconds:.2f} s ({points[-1].passes:.0f})"
    return f"{point.seconds:.2f} s ({point.passes:.0f})"


def row(name: str, topics: int, threads: int, passes: int) -> list[object]:
    """One row of the table: both programs on one corpus."""
    train, held = lda_sets.split(load(name), most=HELD)
    peer = theirs(train, held, topics, threads, passes)
    target = 1.01 * min(point.score for point in peer)
    ready, mean, last = ours(name, train, held, topics, threads, target)
    other = warplda(train, held, topics, threads, target)
    best = [min(point.score for point in points) for points in (mean, last, peer)]
    at = [first_at(points, target) for points in (mean, last, peer)]
    warp = first_at(other, target)
    rate = [int(train.sum()) * points[-1].passes / points[-1].seconds / 1e6 for points in (last, peer)]
    cells = [f"{target:.0f}", *(shown(point, points) for point, points in zip(at, (mean, last, peer), strict=True))]
    cells += [faster(at[0], at[2]), faster(at[1], at[2]), shown(warp, other), faster(at[0], warp)]
    cells += [f"{score:.0f}" for score in best]
    found = [TITLES[name], topics, threads, *cells, f"{rate[0]:.1f} M", f"{rate[1]:.1f} M", f"{ready:.2f} s"]
    print(found, flush=True)
    return found


def faster(ours: Point | None, theirs: Point | None) -> str:
    """How many times sooner we had the target."""
    return "–" if ours is None or theirs is None else f"{theirs.seconds / ours.seconds:.1f}×"


def main() -> None:
    """One row for each corpus, number of topics and number of threads."""
    passes = int(os.environ.get("BENCH_PASSES", "200"))
    rows = [
        row(name, topics, threads, passes)
        for name in present()
        for topics in lda.listed("BENCH_TOPICS", "100")
        for threads in lda.listed("BENCH_THREADS", "1,2")
    ]
    columns = ["corpus", "K", "threads", "target", "Stretto (passes)", "last state (passes)", "tomotopy (passes)"]
    columns += [
        "faster",
        "last state: faster",
        "WarpLDA (passes)",
        "faster than WarpLDA",
        "best",
        "best last state",
        "tomotopy's best",
    ]
    columns += ["tokens/s", "tomotopy's tokens/s", "layout"]
    body = report.table(columns, rows)
    report.save("lda_perplexity", "Topic models: time to a perplexity", report.text(__doc__), body, ("tomotopy",))
