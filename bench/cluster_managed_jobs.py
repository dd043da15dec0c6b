"""The jobs of `bench.cluster_managed`: they leave behind what an objective is computed from, to be computed later.

    python -m bench.cluster_managed_jobs ratings '{"folder": "/tmp/…", "looks": "/tmp/…", "budget": "40Mbit"}'

`prepare_*` deals data out to workers and writes each one's part into a folder, which all machines of the laboratory
see: a worker reads its own and nothing of it travels. Topics are written there as well, and tables as the driver gets
them; `objective_*` goes through those files afterwards. In a first clock workers read every row and load every kernel,
and learn nothing. Prints one line of JSON: took, ends [s, when the last worker ended each clock, the first one
included], cpu [s a pass: of a process, of its worker], reasons {reason: [messages, rows, bytes]}.
"""

from __future__ import annotations

import json
import pickle
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import stretto as st
from stretto.keyed import uniform

from . import lda_sets
from .cluster_jobs import runtime
from .table_lda import BETA, Corpus, sample
from .table_mf import Ratings, changes

BATCHES = 16
# Rows sent at a time over all destinations: messages of some 50 KB. Shorter ones take more of half a processor than the
# cable is worth, longer ones are a larger part of what may be sent in a second.
BURSTS = {"ratings": (1200, 1200), "corpus": (800, 800)}


def folder_of(name: str) -> Path:
    """A folder for what a job reads, made once."""
    return Path(tempfile.gettempdir()) / "stretto-bench" / name


def policy(job: str, budget: str | None, rank: str) -> Any:
    """Nothing but ends of clocks, or managed within a budget."""
    return st.tables.Eager() if budget is None else st.tables.Managed(budget, rank=rank, burst=BURSTS[job])


def write(path: Path, value: Any) -> None:
    """Whole or not at all."""
    half = path.with_suffix(".half")
    half.write_bytes(pickle.dumps(value, protocol=5))
    half.replace(path)


def read(path: Path) -> Any:
    """What `write` wrote; it is our own file."""
    return pickle.loads(path.read_bytes())


@dataclass(frozen=True)
class Sizes:
    """ratings and items of the generated ratings, the rank; words (the most frequent) and documents of IMDB; topics."""

    ratings: int = 16_000_000
    users: int = 40_000
    items: int = 1_500
    rank: int = 32
    words: int = 4_000
    documents: int = 100_000
    topics: int = 100


def prepare_ratings(sizes: Sizes, workers: int, seed: int = 0) -> Path:
    """The folder with every worker's ratings and what the tables begin with."""
    folder = folder_of(f"managed-mf-{sizes.ratings}-{sizes.users}-{sizes.items}-{sizes.rank}-{workers}-{seed}")
    if not (folder / "job").exists():
        folder.mkdir(parents=True, exist_ok=True)
        data = st.generate_ratings(sizes.ratings, sizes.users, sizes.items, rank=12, noise=0.5, seed=1).data
        job = Ratings(data, nodes=workers, threads=1, rank=sizes.rank, batches=BATCHES, seed=seed)
        home = np.zeros(job.users, np.int64)  # a user's row is at home with the worker that has most of its ratings
        for worker, parts in enumerate(job.parts):
            write(folder / f"part-{worker}", parts)
            for rows, *_ in parts:
                home[rows] = worker
        write(folder / "all", job.all)
        write(folder / "job", (job.W, job.H, home))
    return folder


def objective_ratings(folder: Path, looks: Path, clocks: int) -> list[float]:
    """Minus the sum of squared errors after each clock."""
    from .table_mf import squares

    every = read(folder / "all")
    found = []
    for clock in range(clocks + 1):
        W, H = read(folder / "job")[:2] if clock == 0 else read(looks / f"tables-{clock + 1}")
        found.append(-float(squares(*every, W, H)))
    return found


def ratings(
    folder: str,
    looks: str,
    where: str = "cluster",
    nodes: int = 4,
    workers: int = 4,
    server: str = "adarevision",
    rate: float = 0.2,
    decay: float = 1.0,
    budget: str | None = None,
    rank: str = "random",
    passes: int = 20,
    bound: int = 2,
    **more: Any,
) -> dict[str, Any]:
    """Matrix factorisation, both factors served, data-parallel, bounded staleness."""
    begun = time.monotonic()
    W0, H0, home = read(Path(folder) / "job")
    apply = st.tables.add if server == "add" else st.tables.adarevision(rate)

    def work(w: Any) -> None:
        here = read(Path(folder) / f"part-{w.number}")
        W, H = w.table("users"), w.table("items")
        ended = w.local.setdefault("ended", np.zeros((passes + 1, 3)))
        for clock in w.clocks(passes + 1):
            for rows, cols, users, items, values in here:
                u, v = W.read(rows), H.read(cols)
                if clock == 0:  # rows are fetched and kernels loaded; nothing is learned
                    users, items, values = users[:0], items[:0], values[:0]
                new, other = changes(server, users, items, values, u, v, rate * decay ** (clock - 1))
                w.work(len(values))
                W.add(rows, new)
                H.add(cols, other)
            ended[clock] = stamp(begun)

    def look(view: Any) -> float:
        write(Path(looks) / f"tables-{view.clock}", (view["users"].copy(), view["items"].copy()))
        return 0.0

    result = st.run(
        work,
        tables={
            "users": st.tables.Table(
                rows=len(W0),
                cols=W0.shape[1],
                start=W0,
                apply=apply,
                partition=lambda rows, shards: home[rows] * shards // workers,
            ),
            "items": st.tables.Table(rows=len(H0), cols=H0.shape[1], start=H0, apply=apply),
        },
        workers=workers,
        sync=st.tables.SSP(bound),
        comm=policy("ratings", budget, rank),
        runtime=runtime(where, nodes, more),
        watch=look,
    )
    return told(result)


def prepare_corpus(sizes: Sizes, workers: int, seed: int = 0) -> Path:
    """The folder with every worker's documents; IMDB's most frequent words in its first documents."""
    folder = folder_of(f"managed-lda-{sizes.words}-{sizes.documents}-{sizes.topics}-{workers}-{seed}")
    if not (folder / "job").exists():
        folder.mkdir(parents=True, exist_ok=True)
        counts = lda_sets.load("imdb")
        counts = counts[np.random.default_rng(0).permutation(counts.shape[0])[: sizes.documents]]
        often = np.argsort(-np.asarray(counts.sum(axis=0)).ravel(), kind="stable")[: sizes.words]
        docs = Corpus(counts[:, np.sort(often)].tocsr(), sizes.topics, workers, BATCHES, seed=seed)
        for worker, share in enumerate(docs.shares):
            write(folder / f"part-{worker}", share)
        write(folder / "corpus", docs)
        write(folder / "job", docs.start)
    return folder


def objective_corpus(folder: Path, looks: Path, clocks: int) -> list[float]:
    """The joint log-likelihood a token after each clock, of the topics that workers had when theirs ended."""
    docs = read(folder / "corpus")
    found = [docs.likelihood([share.topic for share in docs.shares])]
    for clock in range(1, clocks + 1):
        found.append(docs.likelihood([np.load(looks / f"{clock}-{n}.npy") for n in range(docs.workers)]))
    return found


def corpus(
    folder: str,
    looks: str,
    where: str = "cluster",
    nodes: int = 4,
    workers: int = 4,
    budget: str | None = None,
    rank: str = "random",
    passes: int = 20,
    bound: int = 2,
    seed: int = 0,
    **more: Any,
) -> dict[str, Any]:
    """Data-parallel LDA."""
    begun = time.monotonic()
    start = read(Path(folder) / "job")
    words, topics = start.shape
    spread = words * BETA

    def work(w: Any) -> None:
        share = read(Path(folder) / f"part-{w.number}")
        topic, counts = share.topic.copy(), share.counts(topics)
        rows_of, totals = w.table("words"), w.table("totals")
        ended = w.local.setdefault("ended", np.zeros((passes + 1, 3)))
        for done in w.clocks(passes + 1):
            for at, batch in enumerate(share.batches):
                rows, total = rows_of.read(batch.keys), totals.read([0])
                row_was, total_was = rows.copy(), total.copy()
                some, of = topic[batch.tokens], counts[batch.docs]
                draw = int(uniform(0, seed, w.number, done, at) * 2.0**63)
                # In the first clock rows are fetched and kernels loaded, and nothing is sampled.
                sample(batch.ptr if done else batch.ptr[:1], batch.word, some, of, rows, total[0], spread, draw)
                topic[batch.tokens], counts[batch.docs] = some, of
                w.work(len(batch.tokens))
                rows_of.add(batch.keys, rows - row_was)
                totals.add([0], total - total_was)
            ended[done] = stamp(begun)
            np.save(Path(looks) / f"{done}-{w.number}.npy", topic.astype(np.int16))

    result = st.run(
        work,
        tables={
            "words": st.tables.Table(rows=words, cols=topics, dtype="i4", start=start),
            "totals": st.tables.Table(rows=1, cols=topics, dtype="i4", start=start.sum(axis=0, dtype=np.int32)[None]),
        },
        workers=workers,
        sync=st.tables.SSP(bound),
        comm=policy("corpus", budget, rank),
        runtime=runtime(where, nodes, more),
    )
    return told(result)


def stamp(begun: float) -> tuple[float, float, float]:
    """Seconds since the job began (the machines share one clock), CPU of the process, of the thread."""
    return time.monotonic() - begun, time.process_time(), time.thread_time()


def told(result: Any) -> dict[str, Any]:
    """As plain values. cpu: seconds a pass of a machine's process, and of its worker's thread."""
    recording = result.recording
    stamps = np.array([local["ended"] for local in result.local])
    return {
        "took": result.seconds,
        "ends": stamps[:, :, 0].max(axis=0).tolist(),
        "cpu": np.diff(stamps[:, 1:, 1:], axis=1).mean(axis=(0, 1)).tolist(),
        "reasons": {} if recording is None else {why: list(three) for why, three in recording.by_reason().items()},
        "waits": {} if recording is None else {why: float(each.mean()) for why, each in recording.waits.items()},
        "looks": [[look.clock, look.seconds] for look in result.history],
    }


JOBS: dict[str, Callable[..., dict[str, Any]]] = {"ratings": ratings, "corpus": corpus}


def main() -> None:
    """The job given. By the module's own name: nodes find its functions there, and not in their `__main__`."""
    from bench.cluster_managed_jobs import JOBS as jobs

    print(json.dumps(jobs[sys.argv[1]](**json.loads(sys.argv[2]))))


if __name__ == "__main__":
    main()
