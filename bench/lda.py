"""Topic models: seconds to the same log-likelihood per token, beside tomotopy; to the same perplexity, beside others.

Every program trains with alpha = 50 / K and beta = 0.01, priors fixed. The target is the best value any program ended
with, less a hundredth of it. Seconds are those of training alone: reading, laying out and scoring are left out, for
every program (what laying out takes here is in the table). scikit-learn's online learner and gensim assign no topics;
they are compared by the perplexity of the unseen half of held-out documents, theirs at the end of their time.

`BENCH_SETS`, `BENCH_TOPICS`, `BENCH_THREADS` choose, `BENCH_LIMIT` is what each run may take (240 s; on AP
`BENCH_LIMIT_AP`, 60 s). Runs go side by side where there are cores for it, each bound to two of its own.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np

from . import lda_peers, lda_sets, report
from .lda_peers import Point

BETA = 0.01
EVERY = {"ap": 5, "imdb": 10}  # passes between two looks; reading a peer's state takes seconds
PASSES = 5_000  # more than any time limit allows
AP_MOST = float(os.environ.get("BENCH_LIMIT_AP", "60"))
SHORT = 120.0  # the share of scikit-learn and gensim, which do not get there anyway


def limit() -> float:
    """Seconds of training each run may take."""
    return float(os.environ.get("BENCH_LIMIT", "240"))


def listed(name: str, default: str) -> list[int]:
    """Whole numbers from an environment variable."""
    return [int(part) for part in os.environ.get(name, default).split(",")]


# --- ours -----------------------------------------------------------------------------------------------------------


def start(
    counts: Any,
    topics: int,
    crew: Any,
    *,
    sampler: str = "sparse",
    steps: int = 2,
    seed: int = 1,
    alpha: float = 0.0,
    **choices: Any,
) -> Any:
    """A job over a corpus in memory, ready for its first pass. alpha: 50 / K unless given. choices: of the problem."""
    from stretto.data.records.data import Data
    from stretto.models.topics.job import build_lda
    from stretto.models.topics.problem import TopicProblem
    from stretto.plan.plan import Physical
    from stretto.runtime.blocks.source import InMemory

    entries = counts.tocoo()
    data = Data.from_arrays(entries.row, entries.col, entries.data.astype(np.float32), counts.shape)
    problem = TopicProblem(topics, (alpha or 50 / topics,) * topics, BETA, sampler, steps, **choices)
    physical = Physical("threads", crew.workers)
    return build_lda(problem, InMemory(data), crew, seed=seed, profile="exact", width=16, physical=physical)


def epochs(job: Any, crew: Any) -> Iterator[tuple[int, float]]:
    """(passes, seconds) after every pass, without end; seconds by `lda_peers.clock`."""
    seconds, epoch = 0.0, 0
    while True:
        began = lda_peers.clock()
        for step in job.steps(epoch):
            crew.run(step, "exact")
        seconds += lda_peers.clock() - began
        epoch += 1
        yield epoch, seconds


def likelihood(job: Any) -> float:
    """The joint log-likelihood per token."""
    documents, words = job.histograms(False)
    return float((documents.likelihood(job.priors.alpha[0]) + words.likelihood(job.priors.beta)) / job.items)


def warm(counts: Any, topics: int, crew: Any, **choices: Any) -> None:
    """Compile, on a few documents."""
    job = start(counts[:50], topics, crew, **choices)
    made = epochs(job, crew)
    next(made)
    next(made)
    likelihood(job)


def our_run(counts: Any, topics: int, threads: int, most: float, every: int) -> dict[str, Any]:
    """Points of joint log-likelihood, and the seconds of laying out."""
    import stretto as st

    with st.Threads(threads).open() as crew:
        warm(counts, topics, crew)
        began = time.perf_counter()
        job = start(counts, topics, crew)
        ready = time.perf_counter() - began
        points = []
        for passes, seconds in epochs(job, crew):
            if passes in lda_peers.FIRST or passes % every == 0 or seconds > most:
                points.append(Point(seconds, passes, likelihood(job)))
            if seconds > most:
                break
    return {"ready": ready, "points": [asdict(point) for point in points]}


def our_completion(train: Any, held: lda_sets.Held, topics: int, threads: int, most: float) -> dict[str, Any]:
    """Points of perplexity of completion."""
    import stretto as st
    from stretto.models.topics.infer import Inferrer

    points = []
    with st.Threads(threads).open() as crew:
        warm(train, topics, crew)
        Inferrer.of(start(train[:50], topics, crew).topics(), crew).shares(held.seen[:5], crew=crew)
        job = start(train, topics, crew)
        for passes, seconds in epochs(job, crew):
            topics_now = job.topics()
            inferrer = Inferrer.of(topics_now, crew)
            smooth = topics_now.counts().astype(np.float64) + BETA
            phi = smooth / smooth.sum(axis=1, keepdims=True)
            score = lda_sets.completion(phi, partial(inferrer.shares, crew=crew), held)
            points.append(Point(seconds, passes, score))
            if seconds > most:
                break
    return {"points": [asdict(point) for point in points]}


# --- one run in a process of its own --------------------------------------------------------------------------------


def one(order: dict[str, Any]) -> dict[str, Any]:
    """Make the run that is ordered."""
    counts, topics, threads = lda_sets.load(order["set"]), order["topics"], order["threads"]
    alpha, every = 50 / topics, EVERY[order["set"]]
    most = limit() if order["set"] == "imdb" else min(limit(), AP_MOST)
    if order["who"] == "stretto":
        return our_run(counts, topics, threads, most, every)
    if order["who"] == "tomotopy":
        points = lda_peers.tomotopy_run(
            counts, topics, PASSES, threads, 1, alpha=alpha, beta=BETA, every=every, limit=most
        )
        return {"points": [asdict(point) for point in points]}
    train, held = lda_sets.split(counts)
    if order["who"] == "stretto completion":
        return our_completion(train, held, topics, threads, min(most, SHORT / 4))
    run = {"scikit-learn": lda_peers.sklearn_run, "gensim": lda_peers.gensim_run}[order["who"]]
    part = 0.2 if order["set"] == "imdb" else 1.0  # of a pass
    short = min(most, SHORT)
    # gensim does best on AP with batches of this size (tried: 64 to 2000); scikit-learn with its default on both.
    batch = {"batch": 1024} if (order["who"], order["set"]) == ("gensim", "ap") else {}
    points = run(train, held, topics, 1_000.0, threads, 1, alpha=alpha, beta=BETA, every=part, limit=short, **batch)
    return {"points": [asdict(point) for point in points]}


def side_by_side(orders: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Make the runs, two cores for each, as many at a time as there are cores for."""
    allowed = sorted(os.sched_getaffinity(0))
    pairs: SimpleQueue[set[int]] = SimpleQueue()
    for first in range(0, max(1, len(allowed) - 1), 2):
        pairs.put(set(allowed[first : first + 2]))

    def made(order: dict[str, Any]) -> dict[str, Any]:
        mine = pairs.get()
        try:
            done = subprocess.run(
                [sys.executable, "-m", "bench.lda", json.dumps(order)],
                cwd=Path(__file__).parent.parent,
                preexec_fn=lambda: os.sched_setaffinity(0, mine),
                capture_output=True,
                text=True,
                check=False,
            )
        finally:
            pairs.put(mine)
        found = [line for line in done.stdout.splitlines() if line.startswith("{")]
        if not found:
            print(f"{order}: failed\n{done.stderr[-2000:]}", flush=True)
            return {**order, "points": []}
        print(f"{order}: done", flush=True)
        return {**order, **json.loads(found[-1])}

    with ThreadPoolExecutor(pairs.qsize()) as pool:
        return list(pool.map(made, orders))


# --- tables ---------------------------------------------------------------------------------------------------------


def reached(points: list[dict[str, float]], target: float, *, lower: bool = False) -> float | None:
    """Seconds of the first point as good as the target."""
    good = (p["seconds"] for p in points if (p["score"] <= target if lower else p["score"] >= target))
    return next(good, None)


def shown(seconds: float | None, points: list[dict[str, float]]) -> str:
    if seconds is not None:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"> {points[-1]['seconds']:.0f} s" if points else "–"


def there(ours: list[dict[str, float]], theirs: list[dict[str, float]]) -> str:
    """How much sooner we were at the value the peer ended with."""
    last = theirs[-1]
    seconds = reached(ours, last["score"])
    value = f"{last['score']:.3f}: {shown(seconds, ours)}, {last['seconds']:.0f} s"
    return value if seconds is None else f"{value} ({last['seconds'] / seconds:.0f}×)"


def training(results: list[dict[str, Any]], counts: dict[str, int]) -> str:
    """Seconds to the same likelihood."""
    rows = []
    for name in lda_sets.NAMES:
        for topics in sorted({r["topics"] for r in results}):
            mine = [r for r in results if (r["set"], r["topics"]) == (name, topics) and r["who"] in WHO and r["points"]]
            if not mine:
                continue
            best = max(max(p["score"] for p in r["points"]) for r in mine)
            target = best - 0.01 * abs(best)
            for threads in sorted({r["threads"] for r in mine}):
                both = {r["who"]: r for r in mine if r["threads"] == threads}
                cells: list[object] = [lda_sets.TITLES[name], topics, threads, f"{target:.3f}"]
                for who in WHO:
                    points = both[who]["points"] if who in both else []
                    last = points[-1] if points else None
                    speed = "–" if last is None else f"{counts[name] * last['passes'] / last['seconds'] / 1e6:.1f} M"
                    cells += [shown(reached(points, target), points), speed]
                ours, theirs = (both.get(who, {"points": []})["points"] for who in WHO)
                mine_seconds, peer_seconds = reached(ours, target), reached(theirs, target)
                if mine_seconds is None or not theirs:
                    ratio = "–"
                elif peer_seconds is None:
                    ratio = f"> {theirs[-1]['seconds'] / mine_seconds:.1f}×"
                else:
                    ratio = f"{peer_seconds / mine_seconds:.1f}×"
                ready = both.get("stretto", {}).get("ready", math.nan)
                # Where the peer did not get there in its time: how long its last value took here.
                end = "" if peer_seconds is not None or not theirs else there(ours, theirs)
                rows.append([*cells, ratio, end, f"{ready:.2f} s"])
    columns = ["corpus", "K", "threads", "target", "Stretto", "tokens/s", "tomotopy", "tokens/s", "faster"]
    columns += ["at tomotopy's last", "layout"]
    return report.table(columns, rows)


def progress(results: list[dict[str, Any]]) -> str:
    """Log-likelihood after so many passes."""
    passes = (1, 2, 5, 10, 20, 50, 100, 200)
    rows = []
    for r in results:
        if r["who"] in WHO and r["points"]:
            at = {int(p["passes"]): p["score"] for p in r["points"]}
            cells = [f"{at[n]:.3f}" if n in at else "" for n in passes]
            last = r["points"][-1]
            final = f"{last['score']:.3f} ({int(last['passes'])})"
            rows.append([lda_sets.TITLES[r["set"]], r["topics"], r["threads"], r["who"], *cells, final])
    return report.table(["corpus", "K", "threads", "program", *map(str, passes), "last (passes)"], rows)


def others(results: list[dict[str, Any]]) -> str:
    """Seconds to the perplexity at which scikit-learn and gensim ended."""
    rows = []
    ours = {(r["set"], r["topics"], r["threads"]): r["points"] for r in results if r["who"] == "stretto completion"}
    for r in results:
        if r["who"] not in ("scikit-learn", "gensim") or not r["points"]:
            continue
        best = min(r["points"], key=lambda p: p["score"])
        mine = ours.get((r["set"], r["topics"], r["threads"]), [])
        seconds = reached(mine, best["score"], lower=True)
        ratio = "–" if seconds is None else f"{best['seconds'] / seconds:.0f}×"
        end = f"{mine[-1]['score']:.0f}" if mine else "–"
        rows.append(
            [lda_sets.TITLES[r["set"]], r["topics"], r["threads"], r["who"], f"{best['score']:.0f}",
             f"{best['seconds']:.0f} s", shown(seconds, mine), ratio, end]
        )  # fmt: skip
    columns = [
        "corpus",
        "K",
        "threads",
        "program",
        "its best perplexity",
        "after",
        "Stretto there",
        "faster",
        "ours at the end",
    ]
    return report.table(columns, rows)


WHO = ("stretto", "tomotopy")


def main() -> None:
    """Make every run that can be made here and write the tables."""
    names = lda_sets.present()
    threads, topics = listed("BENCH_THREADS", "1,2"), listed("BENCH_TOPICS", "100,1000")
    counts = {name: int(lda_sets.load(name).sum()) for name in names}
    orders = [
        {"set": name, "topics": k, "threads": n, "who": who}
        for k in sorted(topics, reverse=True)
        for name in reversed(names)
        for n in threads
        for who in WHO
    ]
    if "BENCH_WHO" not in os.environ:
        orders += [
            {"set": name, "topics": 100, "threads": max(threads), "who": who}
            for name in names
            for who in ("stretto completion", "scikit-learn", "gensim")
        ]
    results = side_by_side(orders)
    body = "\n\n".join(
        [
            "## Seconds to the same log-likelihood per token", training(results, counts),
            "## Log-likelihood per token after so many passes", progress(results),
            "## Seconds to the same perplexity of completion", others(results),
        ]
    )  # fmt: skip
    packages = ("tomotopy", "scikit-learn", "gensim")
    report.save("lda", "Topic models beside other libraries", report.text(__doc__), body, packages)


if __name__ == "__main__":
    print(json.dumps(one(json.loads(sys.argv[1]))), flush=True)
