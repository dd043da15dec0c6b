"""Predicted scaling of rotation to 256 nodes: matrix factorisation and LDA on `st.Simulated`, strong and weak.

The jobs, data and networks of `reproductions.cluster_scaling`, which runs them over tables: MovieLens-1M at rank 16, 2
µs a rating, links of 1 Gbit and 10 µs; AP with 100 topics on a network of the paper's proportions; two workers a node.
Here the factors of items (the counts of words) rotate, by the estimators `MatrixFactorization` (SGD; tables:
AdaRevision) and `LatentDirichletAllocation` (sparse sampler). Strong: the same data on more nodes. Weak: a node's share
stays what it is on 16 nodes. Kernels and values are real, time is virtual. Handling a message costs the simulator's
default (15 µs and 1 ns a byte for MF); "expensive messages": 190 µs and 4.4 ns, measured on real processes.

*Planner's grid*: blocks as the estimators choose them. A visit has 256 ratings or 4,096 tokens at least on average, so
these sets have 32 × 32 and 8 × 8 blocks, however many nodes there are. *Fine grid*: 2 blocks of columns for each worker
(on 256 nodes: 1), with that rule off. Only MF has a weak curve for the planner's grid,
and LDA on a fine grid ends at 64 nodes: simulating 256 takes too long.

An epoch of MF is from its end to the next one's, as the driver sees it. An epoch of LDA is the longest node's own time,
without its report to the driver: links there are 70 times slower than real ones, in proportion to the data, and reports
(numbers and times of visits, 50 bytes each) are not smaller. Five epochs are simulated for each point, and the second
and third counted. A point is kept in reproductions/results/rotation_scaling.json and not simulated again; delete the
file to measure anew.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
from bench import table_mf
from bench.rotation_jobs import Simulated
from bench.table_runs import Run

import stretto as st
from stretto.data import partition
from stretto.models.topics import problem
from stretto.observe.events import EpochDone
from stretto.runtime.session import Session
from stretto.solvers.factorization import sgd

from . import bosen_lda, cluster_scaling, report
from .cluster_scaling import DEAR, SIZES, WHOLE, alone

KEPT = report.RESULTS / "rotation_scaling.json"
THREADS, EPOCHS = 2, 5
WIDEST = 256  # so that there are no more than 512 × 512 visits
# name: (job, grid, cost of a message or None, kinds of scaling)
SERIES: dict[str, tuple[str, str, tuple[float, float] | None, tuple[str, ...]]] = {
    "MF by rotation, planner's grid": ("mf", "planned", None, ("strong", "weak")),
    "MF by rotation, fine grid": ("mf", "fine", None, ("strong", "weak")),
    "MF by rotation, fine grid, expensive messages": ("mf", "fine", DEAR, ("strong",)),
    "LDA by rotation, planner's grid": ("lda", "planned", None, ("strong",)),
    "LDA by rotation, fine grid": ("lda", "fine", None, ("strong", "weak")),
}
# Simulating these takes too long: the first had not ended after eight minutes of CPU time.
LEFT_OUT = {("LDA by rotation, fine grid", "strong", 256), ("LDA by rotation, fine grid", "weak", 256)}
TABLES = {"MF over tables": "mf", "MF over tables, expensive messages": "dear", "LDA over tables": "lda"}


@dataclass(frozen=True)
class Point:
    """What an epoch took and did.

    Attributes
    ----------
    seconds : float
        Virtual, of an epoch.
    blocks : int
        Of columns.
    sent : float
        Bytes of blocks that a node sent in an epoch.
    reported : float
        Bytes between the driver and all nodes in an epoch, most of them numbers and times of visits.
    spent : float
        CPU seconds that simulating it took.
    """

    seconds: float
    blocks: int
    sent: float
    reported: float
    spent: float


@contextlib.contextmanager
def grid(kind: str) -> Iterator[None]:
    """Let the estimators choose blocks as they do, or as many as the width says."""
    if kind == "planned":
        yield
        return
    fine = partial(partition.choose_blocks, fewest=1)
    with patch.object(sgd, "choose_blocks", fine), patch.object(problem, "FEWEST_TOKENS", 1):
        yield


def blocks_of(job: str, kind: str, shape: tuple[int, int], entries: int, width: int) -> int:
    """Blocks of columns that the estimators cut such a set into."""
    fewest = 1 if kind == "fine" else partition.FEWEST_PER_VISIT if job == "mf" else problem.FEWEST_TOKENS
    return partition.choose_blocks(entries, shape, width, fewest)


def cluster(job: str, nodes: int, cost: tuple[float, float] | None) -> Simulated:
    """The network of the job over tables."""
    if job == "lda":
        spec = bosen_lda.cluster().of(nodes, THREADS)
        return Simulated(**{field.name: getattr(spec, field.name) for field in fields(spec)})
    more: dict[str, Any] = {} if cost is None else {"message_cost": cost}
    return Simulated(
        nodes=nodes, threads=THREADS, link=table_mf.LINK, latency=table_mf.LATENCY,
        seconds_per_item=table_mf.SECONDS, **more,
    )  # fmt: skip


def simulate(job: str, kind: str, nodes: int, times: float, cost: tuple[float, float] | None) -> Point:
    """One point."""
    on = cluster(job, nodes, cost)
    ends: list[float] = []
    told: list[int] = []
    longest: list[float] = []

    def note(event: Any) -> None:
        if isinstance(event, EpochDone):
            ends.append(on.report.seconds)
            told.append(on.report.driver_bytes)
            longest.append(max(ran.seconds for ran in on.opened.ran.values()))

    began, session = time.process_time(), Session(listeners=[note])
    same: dict[str, Any] = {
        "max_iter": EPOCHS,
        "random_state": 0,
        "width": min(WIDEST, max(16, nodes * THREADS)),
        "runtime": on,
    }
    with grid(kind):
        if job == "mf":
            model: Any = st.MatrixFactorization(n_components=table_mf.RANK, biases=False, duplicates="last", **same)
            data: Any = cluster_scaling.ratings(times)
        else:
            model = st.LatentDirichletAllocation(
                bosen_lda.TOPICS, sampler="sparse", first_topics="random", evaluate_every=100, **same
            )
            data = cluster_scaling.documents(times)
        model.fit(data, session=session)
    some = on.report.passes[1:3]
    seconds = float(np.mean(longest[1:3]) if job == "lda" else np.diff(ends)[:2].mean())
    reported = float(np.diff(told)[:2].mean())
    sent = float(np.mean([one.moved for one in some])) / nodes
    blocks = blocks_of(job, kind, data.shape, len(data) if job == "mf" else int(data.sum()), same["width"])
    return Point(seconds, blocks, sent, reported, time.process_time() - began)


def kept() -> dict[str, Point]:
    """Points simulated before."""
    return {name: Point(**found) for name, found in json.loads(KEPT.read_text()).items()} if KEPT.exists() else {}


def points(asked: Sequence[str]) -> dict[tuple[str, str, int], Point]:
    """All points, simulated now where they are missing; asked: only those whose key contains one of these words."""
    known, found = kept(), {}
    for nodes in SIZES:
        for series, (job, kind, cost, scalings) in SERIES.items():
            for scaling in scalings:
                key = f"{series} | {scaling} | {nodes}"
                if (series, scaling, nodes) in LEFT_OUT:
                    continue
                if key not in known:
                    if asked and not any(word in key for word in asked):
                        continue
                    known[key] = simulate(job, kind, nodes, 1.0 if scaling == "strong" else nodes / WHOLE, cost)
                    KEPT.write_text(json.dumps({name: asdict(point) for name, point in known.items()}, indent=1))
                    print(key, known[key], flush=True)
                found[series, scaling, nodes] = known[key]
    return found


def tables() -> dict[tuple[str, str, int], float]:
    """Seconds of a pass over tables, as `cluster_scaling` kept them."""
    found = {}
    for series, job in TABLES.items():
        for scaling in ("strong", "weak"):
            for nodes in SIZES:
                run = Run.load(cluster_scaling.KEPT, f"{job}-{scaling}-{nodes}")
                if run is not None:
                    found[series, scaling, nodes] = cluster_scaling.pace(run)
    return found


def ideal(series: str, scaling: str, nodes: int) -> float:
    """Seconds that a node computes in an epoch if its share is an even one."""
    job = SERIES[series][0] if series in SERIES else TABLES[series]
    return alone(job) / (nodes if scaling == "strong" else WHOLE)


def rows_of(
    found: dict[tuple[str, str, int], Point], served: dict[tuple[str, str, int], float], scaling: str
) -> list[list[object]]:
    """A table's rows, rotation and tables under each other."""
    rows: list[list[object]] = []
    for series in (*SERIES, *TABLES):
        for nodes in SIZES:
            point = found.get((series, scaling, nodes))
            seconds = served.get((series, scaling, nodes)) if point is None else point.seconds
            if seconds is None:
                continue
            best = ideal(series, scaling, nodes)
            told = (
                ["–", "–", "–"]
                if point is None
                else [f"{point.blocks}", f"{point.sent / 1e6:.2f}", f"{point.reported / 1e6:.2f}"]
            )
            faster = [f"{best * nodes / seconds:.1f}"] if scaling == "strong" else []
            rows.append(
                [series, nodes, f"{1e3 * seconds:.1f}", f"{1e3 * best:.1f}", *faster, f"{best / seconds:.0%}", *told]
            )
    return rows


def main(asked: Sequence[str] = ()) -> None:
    """Simulate what is missing, then tables and a plot."""
    from .rotation_scaling_plot import draw

    found, served = points(asked), tables()
    head = ["series", "nodes", "ms an epoch", "ms of computing"]
    tail = ["of linear", "blocks of columns", "MB a node sends", "MB to and from the driver"]
    body = "\n\n".join([
        "Strong scaling:",
        report.table([*head, "times faster than one node computes", *tail], rows_of(found, served, "strong")),
        "Weak scaling:", report.table([*head, *tail], rows_of(found, served, "weak")),
    ])  # fmt: skip
    report.save("rotation_scaling", "Predicted scaling of rotation to 256 nodes", report.text(__doc__), body)
    draw({key: point.seconds for key, point in found.items()} | served)


if __name__ == "__main__":
    main(sys.argv[1:])
