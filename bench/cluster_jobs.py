"""Jobs over tables that are the same on a cluster, simulated and in one process: those that `bench.cluster_*` measure.

    python -m bench.cluster_jobs ratings '{"where": "cluster", "nodes": 4, "budget": "50Mbit"}'

prints one line of JSON: took, looks [(clock, seconds, bytes, objective)], items, reasons {reason: [messages, rows,
bytes]}, bits; where time is real also ends [seconds at which the last worker ended each clock, since the first one's]
and spent.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

import stretto as st
from stretto.keyed import uniform

from . import lda_sets, sets
from .table_lda import BETA, Corpus, sample, tables_of
from .table_mf import Ratings, changes, squares, steps
from .table_mlr import Images

BURST = (800, 800)


def runtime(where: str, nodes: int, more: dict[str, Any]) -> Any:
    """st.Cluster, st.Simulated, st.Threads or st.Serial."""
    if where == "cluster":
        return st.Cluster(nodes=nodes, patience=10.0, **more)
    if where == "simulated":
        return st.Simulated(nodes=nodes, **{"threads": 1, **more})
    return st.Serial() if where == "serial" else st.Threads(nodes)


def policy(budget: str | None, rank: str) -> Any:
    """Nothing but ends of clocks, or managed within a budget."""
    return st.tables.Eager() if budget is None else st.tables.Managed(budget, rank=rank, burst=BURST)


def told(result: Any) -> dict[str, Any]:
    """A result as plain values.

    The driver hears of a clock some time after it ended. Where workers wrote down when they ended theirs ("ended" in
    their own arrays; machines of the laboratory share one steady clock), an evaluation has the time of the last one.
    """
    found = hashlib.sha256()
    for name in sorted(result.tables):
        found.update(np.ascontiguousarray(result.tables[name]).tobytes())
    looks = [[look.clock, look.seconds, look.bytes, look.objective] for look in result.history]
    ended = [local["ended"] for local in result.local if "ended" in local]
    if ended:
        last = np.max(ended, axis=0)
        looks = [[c, float(last[c - 1] - last[0]) if c else 0.0, n, o] for c, _, n, o in looks]
    # CPU seconds of a clock, the first third left out: of a worker's process, and of its thread alone.
    kept = [local["spent"] for local in result.local if "spent" in local]
    spent = [np.diff(each[len(each) // 3 :], axis=0).mean(axis=0) for each in kept]
    recording = result.recording
    reasons = {} if recording is None else {why: list(three) for why, three in recording.by_reason().items()}
    waits = {} if recording is None else {why: float(each.mean()) for why, each in recording.waits.items()}
    return {
        "took": result.seconds,
        "looks": looks,
        "items": result.items,
        "reasons": reasons,
        "waits": waits,
        "ends": (np.max(ended, axis=0) - np.max(ended, axis=0)[0]).tolist() if ended else [],
        "spent": np.mean(spent, axis=0).tolist() if spent else [],
        "bits": found.hexdigest()[:16],
    }


@cache
def dealt(nodes: int, size: int) -> Ratings:
    """The ratings of all workers. Each machine reads them for itself: nothing of it travels when a job begins."""
    return Ratings(movielens(), nodes=nodes, threads=1, rank=size)


@cache
def documents(nodes: int, topics: int, batches: int) -> Corpus:
    """The documents of all workers, in the same way."""
    return Corpus(lda_sets.load("ap"), topics, nodes, batches)


def stamp(w: Any, where: str, clock: int, clocks: int) -> None:
    """Write down when a worker ended a clock and the CPU time of its process and its thread, where time is real."""
    if where == "cluster":
        w.local.setdefault("ended", np.zeros(clocks))[clock] = time.monotonic()
        w.local.setdefault("spent", np.zeros((clocks, 2)))[clock] = time.process_time(), time.thread_time()


def movielens() -> st.Data:
    """MovieLens-1M, or generated ratings of that size."""
    folder = sets.real_data()
    if folder is None:
        return st.generate_ratings(1_000_000, 6_000, 3_500, rank=12, noise=0.5, seed=1).data
    return st.read(folder / "movielens-1m" / "ratings.tsv.xz", duplicates="last")


def ratings(
    where: str = "cluster",
    nodes: int = 4,
    server: str = "adarevision",
    rate: float = 0.2,
    decay: float = 1.0,
    budget: str | None = None,
    rank: str = "random",
    passes: int = 20,
    until: float = 0.0,
    every: int = 1,
    size: int = 16,
    bound: int = 2,
    alone: int | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Matrix factorisation, both factors served, data-parallel, bounded staleness; the objective is minus the loss.

    alone: only the worker of this number, on a cluster of one node; `nodes` says how the data are dealt out.
    """
    job = dealt(nodes, size)
    apply = st.tables.add if server == "add" else st.tables.adarevision(rate)

    def work(w: Any) -> None:
        here = dealt(nodes, size).parts[w.number if alone is None else alone]
        W, H = w.table("users"), w.table("items")
        for clock in w.clocks(passes):
            for rows, cols, users, items, values in here:
                u, v = W.read(rows), H.read(cols)
                new, other = changes(server, users, items, values, u, v, rate * decay**clock)
                w.work(len(values))
                W.add(rows, new)
                H.add(cols, other)
            stamp(w, where, clock, passes)

    result = st.run(
        work,
        tables={
            "users": st.tables.Table(rows=job.users, cols=size, start=job.W, apply=apply),
            "items": st.tables.Table(rows=job.items, cols=size, start=job.H, apply=apply),
        },
        workers=nodes if alone is None else 1,
        sync=st.tables.SSP(bound),
        comm=policy(budget, rank),
        runtime=runtime(where, nodes if alone is None else 1, more),
        watch=lambda view: -job.loss(view["users"], view["items"]),
        every=every,
        until=lambda look: not np.isfinite(look.objective) or look.objective >= -until,
    )
    return told(result)


def corpus(
    where: str = "cluster",
    nodes: int = 4,
    topics: int = 100,
    batches: int = 16,
    budget: str | None = None,
    rank: str = "random",
    passes: int = 20,
    until: float = 0.0,
    every: int = 1,
    bound: int = 2,
    alone: int | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Data-parallel LDA; the objective is the joint log-likelihood per token. alone: as in `ratings`."""
    docs = documents(nodes, topics, batches)
    spread, seed = docs.words * BETA, docs.seed

    def work(w: Any) -> None:
        share = documents(nodes, topics, batches).shares[w.number if alone is None else alone]
        topic = w.local.setdefault("topic", share.topic.copy())
        counts = w.local.setdefault("counts", share.counts(topics))
        words, totals = w.table("words"), w.table("totals")
        for done in w.clocks(passes):
            for at, batch in enumerate(share.batches):
                rows, total = words.read(batch.keys), totals.read([0])
                row_was, total_was = rows.copy(), total.copy()
                some, of = topic[batch.tokens], counts[batch.docs]
                draw = int(uniform(0, seed, w.number, done, at) * 2.0**63)
                sample(batch.ptr, batch.word, some, of, rows, total[0], spread, draw)
                topic[batch.tokens], counts[batch.docs] = some, of
                w.work(len(batch.tokens))
                words.add(batch.keys, rows - row_was)
                totals.add([0], total - total_was)
            stamp(w, where, done, passes)

    result = st.run(
        work,
        tables=tables_of(docs),
        workers=nodes if alone is None else 1,
        sync=st.tables.SSP(bound),
        comm=policy(budget, rank),
        runtime=runtime(where, nodes if alone is None else 1, more),
        watch=None
        if alone is not None
        else lambda view: docs.likelihood(
            [local.get("topic", share.topic) for local, share in zip(view.local, docs.shares, strict=True)]
        ),
        every=every,
        until=(lambda look: look.objective >= until) if until else None,
    )
    return told(result)


def pictures(
    where: str = "cluster",
    nodes: int = 4,
    batches: int = 5,
    passes: int = 10,
    step: float = 0.5,
    every: int = 1,
    alone: int | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Multiclass logistic regression on MNIST by barriers: a clock is a batch. alone: as in `ratings`."""
    found = Images.mnist() or Images.scaled(
        np.random.default_rng(0).integers(0, 255, (10_000, 784)), np.arange(10_000) % 10
    )
    x, y = found.x, found.y
    classes = int(y.max()) + 1

    def work(w: Any) -> None:
        table, keys = w.table("weights"), np.arange(x.shape[1])
        mine = np.arange(w.number if alone is None else alone, len(y), nodes)
        cuts = np.linspace(0, len(mine), batches + 1).astype(int)
        for clock in w.clocks(batches * passes):
            at = clock % batches
            rows = mine[cuts[at] : cuts[at + 1]]
            part, target = x[rows], y[rows]
            scores = part @ table.read(keys)
            scores -= scores.max(axis=1, keepdims=True)
            np.exp(scores, out=scores)
            scores /= scores.sum(axis=1, keepdims=True)
            scores[np.arange(len(target)), target] -= 1.0
            table.add(keys, (-step * len(keys) ** 0.5 / (len(rows) * nodes)) * (part.T @ scores))
            w.work(len(rows))
            stamp(w, where, clock, batches * passes)

    result = st.run(
        work,
        tables={"weights": st.tables.Table(rows=x.shape[1], cols=classes)},
        workers=nodes if alone is None else 1,
        sync=st.tables.BSP(),
        runtime=runtime(where, nodes if alone is None else 1, more),
        watch=lambda view: -found.loss(view["weights"]),
        every=batches * every,
    )
    return told(result)


def strata(
    where: str = "cluster", nodes: int = 4, passes: int = 5, size: int = 32, whole: bool = False, **more: Any
) -> dict[str, Any]:
    """Stratified matrix factorisation: workers own users, item blocks are visited in turn, a clock for each.

    Items' rows are served, a block at home on one node; a worker asks for the block of its turn, or everybody has a
    copy of all and gets what others changed at the end of each clock (`whole`).
    """
    data = movielens()
    block_of = np.arange(data.shape[1]) * nodes // data.shape[1]
    draw = np.random.default_rng(0)
    values = (data.values - data.values.mean()).astype(np.float32)
    owner = np.argsort(np.argsort(draw.random(data.shape[0]))) * nodes // data.shape[0]
    parts = []
    for n in range(nodes):
        blocks = []
        for b in range(nodes):
            mine = np.flatnonzero((owner[data.rows] == n) & (block_of[data.cols] == b))
            first = int(np.flatnonzero(block_of == b)[0])
            blocks.append((data.rows[mine].astype(np.int64), data.cols[mine].astype(np.int64) - first, values[mine]))
        parts.append(blocks)
    keys = [np.flatnonzero(block_of == b) for b in range(nodes)]
    start = draw.uniform(-0.3, 0.3, (data.shape[1], size)).astype(np.float32)
    users = draw.uniform(-0.3, 0.3, (data.shape[0], size)).astype(np.float32)

    def work(w: Any) -> None:
        table = w.table("items")
        own = w.local.setdefault("users", users.copy())
        everything = np.arange(len(block_of))
        for clock in w.clocks(passes * nodes):
            at = (clock + w.number) % nodes
            rows = table.read(everything)[keys[at]] if whole else table.read(keys[at])
            new = rows.copy()
            steps(*parts[w.number][at], own, new, 0.02, 0.005)
            table.add(keys[at], new - rows)
            w.work(len(parts[w.number][at][2]))
            stamp(w, where, clock, passes * nodes)

    def loss(view: Any) -> float:
        held, found = view["items"], 0.0
        for n, local in enumerate(view.local):
            for b, (rows, cols, some) in enumerate(parts[n]):
                found += squares(rows, cols, some, local.get("users", users), np.ascontiguousarray(held[keys[b]]))
        return -found

    result = st.run(
        work,
        tables={
            "items": st.tables.Table(
                rows=len(block_of), cols=size, start=start, partition=lambda rows, shards: block_of[rows] % shards
            )
        },
        workers=nodes,
        sync=st.tables.BSP(),
        comm=st.tables.Eager() if whole else st.tables.Lazy(),
        runtime=runtime(where, nodes, more),
        watch=loss,
        every=passes * nodes,
    )
    said = told(result)
    return {**said, "pace": nodes * float(np.diff(said["ends"][nodes - 1 :]).mean()) if said["ends"] else 0.0}


def rotation(
    where: str = "cluster", nodes: int = 4, passes: int = 5, size: int = 32, width: int | None = None, **more: Any
) -> dict[str, Any]:
    """The same factorisation by rotation: the estimator, its column factor handed from node to node."""
    data = movielens()
    seconds: list[float] = []

    class Watch:
        def setup(self, estimator: Any, context: Any) -> None: ...
        def on_fit_task_begin(self, estimator: Any, context: Any) -> None: ...
        def on_fit_task_end(self, estimator: Any, context: Any, **_: Any) -> bool:
            seconds.append(time.monotonic())
            return False

        def teardown(self, estimator: Any, context: Any) -> None: ...

    model = st.MatrixFactorization(
        n_components=size, max_iter=passes, random_state=0, duplicates="last", biases=False, width=width or nodes,
        runtime=runtime(where, nodes, more),
    )  # fmt: skip
    model.set_callbacks(Watch()).fit(data)
    each = [b - a for a, b in pairwise(seconds[:passes])]
    found = hashlib.sha256(model.user_factors_.tobytes() + model.item_factors_.tobytes()).hexdigest()[:16]
    looks = [[k + 1, 0.0, 0, -float(epoch["objective"])] for k, epoch in enumerate(model.history_)]
    pace = sum(each) / max(1, len(each))
    return {"took": pace * passes, "pace": pace, "looks": looks, "items": len(data) * passes, "bits": found,
            "reasons": {}, "waits": {}}  # fmt: skip


JOBS: dict[str, Callable[..., dict[str, Any]]] = {
    "ratings": ratings,
    "corpus": corpus,
    "pictures": pictures,
    "strata": strata,
    "rotation": rotation,
}


def main() -> None:
    """The job given. By the module's own name: nodes find its functions there, and not in their `__main__`."""
    from bench.cluster_jobs import JOBS as jobs

    print(json.dumps(jobs[sys.argv[1]](**json.loads(sys.argv[2]))))


if __name__ == "__main__":
    main()
