"""Predicted scaling to 256 nodes: matrix factorisation and data-parallel LDA on `st.Simulated`, strong and weak.

The jobs and networks of `reproductions.bosen_mf` (MovieLens-1M, rank 16, AdaRevision, links of 1 Gbit, 2 µs a rating)
and `reproductions.bosen_lda` (AP, 100 topics, a network of the paper's proportions), both under bounded staleness with
everything sent at the end of a clock (BS), a clock a pass, two workers a node. Values, messages and bytes are real,
time is virtual. Strong: the same data on more nodes. Weak: a node's share stays what it is on 16 nodes; more data are
copies of the set with users and items (documents, but not words) of their own, less is a part of its users (documents).
Handling a message costs the simulator's default (15 µs and 1 ns a byte); "dear": what was measured on the laboratory,
190 µs and 4.4 ns.

Other than there, a pass has 4 batches and not 16: the first pass fetches its rows batch by batch, and on 256 nodes
simulating that would take longer than all the rest. Four passes are simulated for each point; the time of a pass is the
mean of the last two. A run is kept in reproductions/results/scaling and reused while the folder exists; delete it to
measure anew.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from bench import sets, table_lda, table_mf
from bench.table_runs import Run

import stretto as st
from stretto.figures import COLOURS, FAINT

from . import bosen_lda, report
from .smpframe_runs import figure

KEPT = report.RESULTS / "scaling"
SIZES = (1, 4, 16, 64, 256)
WHOLE = 16  # nodes at which a weakly scaled set is the set itself
PASSES, SKIPPED, BATCHES = 4, 2, 4
# Dissertation, section 4.2.4, in words: 9× with the 16 cores of a machine, 80× with the 256 of 16, no more with others.
PAPER = {1: 1.0, 16: 80 / 9, 64: 80 / 9}
TITLES = {"mf": "MF", "dear": "MF, expensive messages", "lda": "LDA"}
DEAR = (190e-6, 4.4e-9)  # as bench.cluster_costs measured on the laboratory


def part(sizes: Any, share: float) -> Any:
    """[n] bool: some of n, drawn, that have this share of the sum of sizes [n]."""
    order = np.random.default_rng(0).permutation(len(sizes))
    some = np.zeros(len(sizes), bool)
    some[order[np.cumsum(sizes[order]) <= share * sizes.sum()]] = True
    return some


def ratings(times: float) -> st.Data:
    """MovieLens-1M, so many times; or generated ratings of that size where it is not present."""
    folder = sets.real_data()
    if folder is None:
        data = st.generate_ratings(1_000_000, 6_000, 3_500, rank=12, noise=0.5, seed=1).data
    else:
        data = st.read(folder / "movielens-1m" / "ratings.tsv.xz", duplicates="last")
    users, items = data.shape
    rows, cols, values = data.rows.astype(np.int64), data.cols.astype(np.int64), data.values
    if times < 1:
        some = part(np.bincount(rows, minlength=users), times)
        mine = some[rows]
        rows, cols, values = (np.cumsum(some) - 1)[rows[mine]], cols[mine], values[mine]
    else:
        copies = np.repeat(np.arange(int(times)), len(rows))
        rows = np.tile(rows, int(times)) + users * copies
        cols, values = np.tile(cols, int(times)) + items * copies, np.tile(values, int(times))
    return st.Data.from_arrays(rows, cols, values)


def documents(times: float) -> Any:
    """AP, so many times, as counts [documents, words]."""
    from scipy import sparse

    counts = bosen_lda.counts()
    if times < 1:
        return counts[np.flatnonzero(part(np.asarray(counts.sum(axis=1)).ravel(), times))]
    return sparse.vstack([counts] * int(times)).tocsr()


def factorise(name: str, nodes: int, times: float) -> Run:
    """A run of matrix factorisation."""
    job = table_mf.Ratings(ratings(times), nodes=nodes, batches=BATCHES)
    return job.run(table_mf.Mode(name, clocks=PASSES))


def dearly(name: str, nodes: int, times: float) -> Run:
    """Matrix factorisation with messages as dear as on real processes."""
    job = table_mf.Ratings(ratings(times), nodes=nodes, batches=BATCHES)
    mode = table_mf.Mode(name, clocks=PASSES)
    apply = st.tables.adarevision(mode.rate)
    began = time.process_time()
    found = st.run(
        job.worker(mode),
        tables={
            "users": st.tables.Table(rows=job.users, cols=job.rank, start=job.W, apply=apply),
            "items": st.tables.Table(rows=job.items, cols=job.rank, start=job.H, apply=apply),
        },
        workers=nodes * job.threads,
        sync=mode.sync,
        comm=mode.comm,
        runtime=st.Simulated(
            nodes=nodes,
            threads=job.threads,
            link=table_mf.LINK,
            latency=table_mf.LATENCY,
            seconds_per_item=table_mf.SECONDS,
            message_cost=DEAR,
        ),
        watch=lambda view: -job.loss(view["users"], view["items"]),
    )
    return Run.of(name, found, nodes, 1, time.process_time() - began)


def topics(name: str, nodes: int, times: float) -> Run:
    """A run of LDA."""
    threads = bosen_lda.THREADS
    corpus = table_lda.Corpus(documents(times), bosen_lda.TOPICS, nodes * threads, BATCHES)
    way = replace(bosen_lda.WAYS["BS"], name=name, record=None)
    return table_lda.run(corpus, way, PASSES, bosen_lda.cluster().of(nodes, threads))[0]


JOBS: dict[str, Callable[[str, int, float], Run]] = {"mf": factorise, "dear": dearly, "lda": topics}


@cache
def alone(job: str) -> float:
    """Seconds that a node computes for a pass over the set."""
    if job != "lda":
        return len(ratings(1)) * table_mf.SECONDS / table_mf.THREADS
    return bosen_lda.PASS_SECONDS * bosen_lda.NODES


def pace(run: Run) -> float:
    """Virtual seconds of a pass: caches begin empty, and workers may be two passes ahead."""
    first, last = run.looks[SKIPPED], run.looks[-1]
    return (last.seconds - first.seconds) / (last.epoch - first.epoch)


def sent(run: Run) -> float:
    """Bytes that a node sends in such a pass."""
    first, last = run.looks[SKIPPED], run.looks[-1]
    return (last.bytes - first.bytes) / (last.epoch - first.epoch) / run.nodes


def made(job: str, kind: str, nodes: int) -> Run:
    """A run, kept or made now."""
    name = f"{job}-{kind}-{nodes}"
    found = Run.load(KEPT, name)
    if found is None:
        found = JOBS[job](name, nodes, 1.0 if kind == "strong" else nodes / WHOLE)
        found = Run(**{part: getattr(found, part) for part in Run.__dataclass_fields__})
        found.save(KEPT)
        print(f"{name}: {pace(found):.4f} s a pass, {found.spent:.0f} s of computing", flush=True)
    return found


def rows_of(runs: dict[tuple[str, str, int], Run], kind: str) -> list[list[object]]:
    """A table's rows: for each job and size, what a pass takes and how far that is from computing alone."""
    rows: list[list[object]] = []
    for (job, which, nodes), run in runs.items():
        if which != kind:
            continue
        ideal = alone(job) / (nodes if kind == "strong" else WHOLE)
        rows.append([
            TITLES[job], nodes, f"{1e3 * pace(run):.1f}", f"{1e3 * ideal:.1f}",
            *([f"{alone(job) / pace(run):.1f}"] if kind == "strong" else []), f"{ideal / pace(run):.0%}",
            f"{sent(run) / 1e6:.2f}", f"{-run.looks[-1].objective:.4g}",
        ])  # fmt: skip
    return rows


def draw(runs: dict[tuple[str, str, int], Run]) -> None:
    """Speed-up, and what a pass takes as the data grow."""

    def points(job: str, kind: str) -> tuple[list[int], list[float]]:
        found = {nodes: pace(run) for (one, which, nodes), run in runs.items() if (one, which) == (job, kind)}
        return list(found), list(found.values())

    def strong(axes: Any) -> None:
        for job, title in TITLES.items():
            nodes, seconds = points(job, "strong")
            axes.plot(
                nodes,
                [alone(job) / each for each in seconds],
                "o-",
                color=COLOURS[list(JOBS).index(job)],
                label=f"{title}, predicted",
            )
        axes.plot(list(PAPER), list(PAPER.values()), "s:", color=COLOURS[3], label="MF by rotation, dissertation")
        axes.plot(SIZES, SIZES, color=FAINT, linewidth=1, label="linear")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.set_xticks(SIZES, [str(size) for size in SIZES])
        axes.set_yticks(SIZES, [f"{size}×" for size in SIZES])

    def weak(axes: Any) -> None:
        for job, title in TITLES.items():
            nodes, seconds = points(job, "weak")
            if not nodes:
                continue
            ideal = alone(job) / WHOLE
            axes.plot(
                nodes,
                [each / ideal for each in seconds],
                "o-",
                color=COLOURS[list(JOBS).index(job)],
                label=f"{title}, predicted",
            )
        axes.axhline(1.0, color=FAINT, linewidth=1)
        axes.set_xscale("log", base=2)
        axes.set_xticks(SIZES, [str(size) for size in SIZES])
        axes.set_ylim(bottom=0)

    figure(
        "scaling.png",
        [
            ("The same data on more machines", "machines", "times as fast as one machine", strong),
            ("Data that grow with the machines", "machines", "seconds of a pass / of computing alone", weak),
        ],
    )


def all_runs(asked: Sequence[str] = ()) -> dict[tuple[str, str, int], Run]:
    """Runs by job, kind and nodes, made where they are missing; `asked`: of those only these."""
    runs: dict[tuple[str, str, int], Run] = {}
    for nodes in SIZES:
        for job in JOBS:
            for kind in ("strong", "weak"):
                name = f"{job}-{kind}-{nodes}"
                if job == "dear" and kind == "weak":
                    continue
                if not asked or name in asked or (KEPT / f"{name}.json").exists():
                    runs[job, kind, nodes] = made(job, kind, nodes)
    return dict(sorted(runs.items(), key=lambda entry: (list(JOBS).index(entry[0][0]), entry[0][2])))


def main(asked: Sequence[str] = ()) -> None:
    """Make what is missing (`asked`: only these), then tables and a plot of all runs that are kept."""
    runs = all_runs(asked)
    head = ["job", "nodes", "ms a pass", "ms of computing"]
    tail = ["of linear", "MB a node and pass", "loss (MF), −log-likelihood a token (LDA) after 4 passes"]
    body = "\n\n".join([
        "Strong scaling:", report.table([*head, "times faster than one node computes", *tail], rows_of(runs, "strong")),
        "Weak scaling:", report.table([*head, *tail], rows_of(runs, "weak")),
    ])  # fmt: skip
    report.save("cluster_scaling", "Predicted scaling to 256 nodes", report.text(__doc__), body, ["greenlet"])
    draw(runs)


if __name__ == "__main__":
    main(sys.argv[1:])
