"""Orion on 12 machines: loops ordered and unordered, workers from 1 to 384, and beside programs written by hand.

The figures of chapter 5 of Wei's dissertation that need a cluster: Table 5.3 (ordered against unordered loops), Fig.
5.14 (seconds of an iteration by workers), Figs 5.16 and 5.19 (convergence by iteration, and beside hand-written
programs), Fig. 5.20 (beside mini-batches). Loops are plain Python functions under `@st.parallel`. Machines are
simulated (`st.Simulated`: real kernels and values, virtual time) with the paper's proportions
(`reproductions.orion_loops`): 12 machines, 40 Gbit/s between them. What runs on real processes or threads of this
computer is said to.

N workers have N blocks of rows, M blocks of columns are handed on. Ordered: M = N, a wavefront of M + N − 1 steps.
Unordered: M = N, or M = 2N as Orion has it, so that a worker has a block to go on with while another is on its way.
"""

from __future__ import annotations

import os
import statistics
from typing import Any

import numpy as np
from bench.orders import factorise_numbered

import stretto as st

from . import report
from .orion_loops import LINK, MACHINES, RANK, App, app, cluster, movies, seconds

FEW, MANY = 4, 32  # workers of a machine
SMALL, LARGE = 3_000, {"sgd": 30_000, "lda": 10_000}  # rows: 0.9 million items; 9 and 3 million
SHARES = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0)  # of the time of computing, that a node's blocks take on its link
SCALED = ((1, 1), (1, 2), (1, 4), (1, 8), (1, 16), (1, 32), (2, 32), (4, 32), (8, 32), (12, 32))  # machines, workers
LEAST = 32  # blocks of rows: visits of minutes would count as nodes that make no progress
ROUNDS = 5


def paper_share(job: App) -> float:
    """Seconds that the paper's array takes on a link, of the seconds of an iteration."""
    return job.paper_bytes / LINK / job.unordered


def ratio_row(job: App, workers: int, *, processes: bool) -> list[object]:
    """Ordered and unordered on 12 machines, beside the paper."""
    n = MACHINES * workers

    def took(ordered: bool, m: int) -> float:
        on = cluster(job, MACHINES, workers, processes=processes, cores=workers)
        return seconds(job, on, ordered=ordered, blocks=(n, m))

    ordered, plain, ahead = took(True, n), took(False, n), took(False, 2 * n)
    row = [job.title, f"{MACHINES} × {workers}", "processes" if processes else "threads of a node",
           f"{job.ordered:.1f}", f"{job.unordered:.1f}", f"{job.ordered / job.unordered:.1f}×",
           f"{ordered:.1f}", f"{plain:.1f}", f"{ahead:.1f}", f"{ordered / ahead:.2f}×"]  # fmt: skip
    print(*row, sep=" | ", flush=True)
    return list(row)


def by_link(job: App, workers: int) -> dict[str, list[tuple[float, float, float, float]]]:
    """{how workers are placed: [(share on the link, seconds ordered, unordered M = N, M = 2N)]} as links get slower."""
    found: dict[str, list[tuple[float, float, float, float]]] = {}
    n = MACHINES * workers
    for name, processes in (("workers share a node's memory", False), ("every worker is a process", True)):
        for share in SHARES:
            slower = max(1.0, share / paper_share(job))
            took = []
            for ordered, m in ((True, n), (False, n), (False, 2 * n)):
                on = cluster(job, MACHINES, workers, slower=slower, processes=processes, cores=workers)
                took.append(seconds(job, on, ordered=ordered, blocks=(n, m)))
            found.setdefault(name, []).append((slower * paper_share(job), took[0], took[1], took[2]))
            print(name, found[name][-1], flush=True)
    return found


def by_workers(job: App) -> list[tuple[int, float]]:
    """[(workers, seconds of an iteration)], unordered, M = 2N; few workers have more blocks than they need."""
    found = []
    for machines, workers in SCALED:
        n = machines * workers
        rows = max(n, LEAST)
        found.append((n, seconds(job, cluster(job, machines, workers), ordered=False, blocks=(rows, 2 * rows))))
        print(job.title, found[-1], flush=True)
    return found


def real(rows: int, nodes: int) -> list[object]:
    """SGD MF on processes of this computer: medians of the passes, in turns.

    Records are sorted and numbered, so that the unordered loop too goes through a block in the order of the indices: an
    ordered one must, and it makes an item slower.
    """
    data = movies(rows)
    in_order = data.take(np.lexsort((data.cols, data.rows))).numbered()
    W, H = (st.random((rows, RANK), scale=0.1, seed=seed) for seed in (1, 2))
    loops: dict[str, Any] = {}
    for name, ordered, m in (("ordered", True, nodes), ("plain", False, nodes), ("ahead", False, 2 * nodes)):
        on = st.Cluster("processes", nodes=nodes, patience=30.0)
        loops[name] = factorise_numbered.using(runtime=on, ordered=ordered, blocks=(nodes, m), cut=("i", "j"))
    took: dict[str, list[float]] = {name: [] for name in loops}
    for _ in range(ROUNDS + 1):
        for name, loop in loops.items():
            loop(in_order, W, H, 0.001, 0.02, st.accumulator(0.0))
            took[name].append(float(loop.seconds))
    middle = {name: statistics.median(each[1:]) for name, each in took.items()}
    best = (2 * nodes - 1) / nodes
    row = [nodes, *(f"{1e3 * each:.0f}" for each in middle.values()), f"{middle['ordered'] / middle['plain']:.2f}×",
           f"{middle['ordered'] / middle['ahead']:.2f}×", f"{best:.2f}×"]  # fmt: skip
    print(*row, sep=" | ", flush=True)
    return list(row)


def main() -> None:
    """All of them; a page and a plot."""
    from . import orion_peers
    from .orion_plot import draw

    large = {name: app(name, rows) for name, rows in LARGE.items()}
    scaled = {job.title: by_workers(job) for job in large.values()}
    small = {name: app(name, SMALL) for name in ("sgd", "adarevision", "lda")}
    ratios = [ratio_row(job, FEW, processes=processes) for job in small.values() for processes in (False, True)]
    ratios.append(ratio_row(large["sgd"], MANY, processes=False))
    links = by_link(small["sgd"], FEW)
    on_processes = [real(LARGE["sgd"] // 2, nodes) for nodes in (2, 4)]
    converged = orion_peers.converged()
    by_hand = orion_peers.by_hand()
    batches = orion_peers.batches()
    link_rows = [
        [name, f"{share:.1%}", *(f"{one:.1f}" for one in took), f"{took[0] / took[2]:.2f}×"]
        for name, each in links.items()
        for share, *took in each
    ]
    scaled_rows = [
        [title, n, f"{took:.1f}", f"{each[0][1] / took:.1f}×", f"{each[0][1] / took / n:.0%}"]
        for title, each in scaled.items()
        for n, took in each
    ]
    body = "\n\n".join([
        "## Ordered against unordered on 12 machines (Table 5.3)\n\nSeconds of an iteration; ours are virtual.",
        report.table(["application", "machines × workers", "workers are", "paper: ordered", "unordered", "ratio",
                      "here: ordered", "unordered, M = N", "unordered, M = 2N", "ratio"], ratios),
        "The same as links get slower (SGD MF, 12 × 4 workers), seconds of an iteration:",
        report.table(["workers", "time on the link / of computing", "ordered", "unordered, M = N",
                      "unordered, M = 2N", "ordered / unordered M = 2N"], link_rows),
        f"SGD MF on processes of this computer ({report.cores()} cores, no limit on the network, load "
        f"{os.getloadavg()[0]:.0f} from other programs), medians of {ROUNDS} passes, in milliseconds:",
        report.table(["processes", "ordered", "unordered, M = N", "unordered, M = 2N", "ratio, M = N", "ratio, M = 2N",
                      "expected: (M + N − 1) / M"], on_processes),
        "## Seconds of an iteration by workers (Fig. 5.14)\n\nUnordered, M = 2N, up to 32 workers a machine.",
        report.table(["application", "workers", "seconds", "times faster than one", "of linear"], scaled_rows),
        "## Convergence by iteration (Fig. 5.16)\n\nMean squared error seen in an iteration; values are real.",
        converged, "## Beside programs written by hand (Fig. 5.19)", by_hand, "## Beside mini-batches (Fig. 5.20)",
        batches,
    ])  # fmt: skip
    report.save("orion_distributed", "Orion on 12 machines", report.text(__doc__), body, ["torch"])
    draw(links, scaled)


if __name__ == "__main__":
    main()
