"""Files that no process holds: what the driver and the nodes have in memory, and streamed topic models on four hosts.

*Ratings* (`python -m bench cluster_files`): 50 million generated ratings in a CSV file, factorised on four processes of
this computer with a memory budget for each. The driver's peak of resident memory is compared with that of an
interpreter which has imported the same modules and compiled the same kernels on a small file; a node's share is the
ratings of its rows, and its peak of resident memory is that of its process.

*Documents* (`python -m bench cluster_files --documents`): a generated corpus of 200 million tokens on four namespace
hosts at 1 Gbit, 256 MB a node, or a fraction of both (`--scale 5`), in arrays mapped from files of each node; topics
are compared bit for bit with those of a run in memory on threads. Stall is the share of a node's time in which its
workers waited for blocks of words, as nodes count it; hosts have 0.4 processors each, so that waiting for a processor
is in it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import report

NODES = 4
RATINGS = (50_000_000, 150_000, 20_000)
MEMORY, RANK, EPOCHS = "256MB", 32, 2
DOCUMENTS, WORDS, LENGTH, TOPICS = 1_000_000, 50_000, 200.0, 100
HOST_CPUS, LINK = 0.4, "1Gbit"


def peak(pid: int | str = "self") -> int:
    """Bytes of resident memory that a process had at most."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    return 0


def children(pid: int) -> list[int]:
    """Processes that a process has started, and those that they have."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *children(int(child))]
    return found


class Peaks:
    """Samples the memory of the processes that this one starts: peaks[pid], bytes."""

    def __init__(self) -> None:
        self.peaks: dict[int, int] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        while not self._end.wait(0.2):
            try:
                for pid in children(os.getpid()):
                    self.peaks[pid] = max(self.peaks.get(pid, 0), peak(pid))
            except (OSError, ProcessLookupError):
                continue

    def __enter__(self) -> Peaks:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()


def write_ratings(path: Path, ratings: int, rows: int, cols: int, seed: int = 0) -> None:
    """A CSV file of ratings, items by a power law; written in chunks."""
    random = np.random.default_rng(seed)
    with open(path, "w") as file:
        file.write("user,item,rating\n")
        for first in range(0, ratings, 1_000_000):
            n = min(1_000_000, ratings - first)
            users = random.integers(0, rows, n)
            items = (cols * random.random(n) ** 2).astype(np.int64)
            stars = random.integers(1, 6, n)
            np.savetxt(file, np.column_stack([users, items, stars]), fmt="%d", delimiter=",")


def digest(*arrays: Any) -> str:
    """Of bits."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:16]


# -- one run, in a process of its own ----------------------------------------------------------------------------------


def fit_ratings(path: str, small: str) -> dict[str, Any]:
    """Fit on nodes; bytes of the driver and of the nodes."""
    import stretto as st
    from stretto.schedule.orders.route import owners

    common: dict[str, Any] = {"n_components": RANK, "random_state": 0, "duplicates": "keep", "memory": MEMORY}
    runtime = st.Cluster("processes", nodes=NODES, patience=60.0, start_within=300.0)
    st.MatrixFactorization(max_iter=1, runtime=runtime, **common).fit(small)
    before = peak()
    with Peaks() as looked:
        began = time.perf_counter()
        model = st.MatrixFactorization(max_iter=EPOCHS, runtime=runtime, **common).fit(path)
        took = time.perf_counter() - began
    plan = model.plan_
    owner = owners(plan.order, plan.weight, NODES)
    share = np.bincount(owner[plan.order.row_block], weights=plan.weight, minlength=NODES) / plan.weight.sum()
    factors = model.user_factors_.nbytes + model.item_factors_.nbytes
    return {
        "before": before,
        "after": peak(),
        "factors": factors,
        "nodes": sorted(looked.peaks.values())[-NODES:],
        "share": share.tolist(),
        "took": took,
        "bits": digest(model.user_factors_, model.item_factors_),
        "ratings": int(plan.weight.sum()),
    }


def fit_documents(path: str, where: str, memory: str) -> dict[str, Any]:
    """Topics of a corpus, on hosts or on threads; seconds, waiting and bits."""
    import stretto as st

    from .cluster_stall import Cluster, Watch

    runtime: Any = st.Threads(2)
    if where == "hosts":
        runtime = Cluster(nodes=NODES, patience=60.0, start_within=300.0)
    watch = Watch(runtime) if where == "hosts" else None
    listeners = [] if watch is None else [watch.note]
    model = st.LatentDirichletAllocation(
        TOPICS, max_iter=EPOCHS + 1, random_state=0, evaluate_every=0, runtime=runtime,
        memory=memory if where == "hosts" else None,
    )  # fmt: skip
    began = time.perf_counter()
    model.fit(path, session=st.Session(listeners=listeners))
    found: dict[str, Any] = {
        "bits": digest(model.components_),
        "fingerprint": model.fingerprint_,
        "took": time.perf_counter() - began,
        "driver": peak(),
    }
    return found if watch is None else found | {"epochs": watch.epochs}


# -- both --------------------------------------------------------------------------------------------------------------


def alone(*args: str, timeout: float = 1800.0) -> dict[str, Any]:
    """A run in a process of its own."""
    command = [sys.executable, "-m", "bench.cluster_files", *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise SystemExit(f"{args}: it failed:\n{done.stdout[-2000:]}{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def ratings(folder: Path) -> str:
    """The rows of the page about ratings."""
    large, small = folder / "ratings.csv", folder / "small.csv"
    if not large.exists():
        write_ratings(large, *RATINGS)
    write_ratings(small, 200_000, 2000, 1000)
    told = alone("ratings", str(large), str(small))
    more = (told["after"] - told["before"]) / 1e6
    share = [1 + (part * NODES - 1) for part in told["share"]]
    rows = [
        ["ratings", f"{told['ratings']:,} in {large.stat().st_size / 1e6:,.0f} MB of text"],
        [
            "driver: peak beyond the interpreter",
            f"{more:.0f} MB, of which {told['factors'] / 1e6:.0f} MB are the factors",
        ],
        ["driver: peak in all", f"{told['after'] / 1e6:.0f} MB"],
        ["nodes: ratings, as a multiple of an equal share", ", ".join(f"{one:.3f}" for one in share)],
        ["nodes: peak of resident memory", ", ".join(f"{one / 1e6:.0f}" for one in told["nodes"]) + " MB"],
        [f"seconds, {EPOCHS} epochs, set-up included", f"{told['took']:.0f}"],
    ]
    return report.table(["50 million ratings, 4 processes", "measured"], rows)


def documents(folder: Path, scale: int) -> str:
    """The rows of the page about documents; scale: by what the corpus and the budget are divided."""
    from stretto.data.generate.corpus import write_corpus

    from .laboratory import laboratory

    path, memory = folder / f"docword.{scale}.txt", f"{256 / scale:g}MB"
    if not path.exists():
        write_corpus(path, DOCUMENTS // scale, WORDS, TOPICS, LENGTH, seed=1)
    with laboratory(NODES, link=LINK) as lab:
        lab.cpus = HOST_CPUS
        lab.share()
        command = [sys.executable, "-m", "bench.cluster_files", "documents", str(path), "hosts", memory]
        done = lab.run(command, timeout=2400)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        if not lines:
            raise SystemExit(f"it failed:\n{done.stdout[-3000:]}")
        told = json.loads(lines[-1])
    here = alone("documents", str(path), "threads", memory, timeout=2400)
    nodes = np.array([epoch["nodes"] for epoch in told["epochs"][1:]])  # [epochs, nodes, (seconds, waited, bytes)]
    stall = np.median(nodes[:, :, 1] / nodes[:, :, 0], axis=0)
    rows = [
        ["same bits as in memory on 2 threads", "yes" if told["bits"] == here["bits"] else "NO"],
        ["same fingerprint", "yes" if told["fingerprint"] == here["fingerprint"] else "NO"],
        ["waiting for blocks, share of a node's time", ", ".join(f"{one:.1%}" for one in stall)],
        ["seconds an epoch", f"{np.median(nodes[:, :, 0].max(axis=1)):.1f}"],
        ["bytes of words that a node sends in an epoch", f"{np.median(nodes[:, :, 2]) / 1e6:.1f} MB"],
        ["driver: peak of resident memory", f"{told['driver'] / 1e6:.0f} MB"],
        ["seconds, set-up included: hosts, threads in memory", f"{told['took']:.0f}, {here['took']:.0f}"],
    ]
    what = f"{DOCUMENTS // scale:,} documents of {LENGTH:g} tokens, {NODES} hosts, {memory} a node, {LINK}"
    return report.table([what, "measured"], rows)


def main(argv: Sequence[str] = ()) -> None:
    """One page for each."""
    parser = argparse.ArgumentParser(prog="python -m bench cluster_files", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--documents", action="store_true", help="the topic model on namespace hosts")
    parser.add_argument("--scale", type=int, default=1, help="divide the corpus and the budget by this")
    parser.add_argument("--folder", type=Path, help="where files are kept; a temporary folder unless given")
    asked = parser.parse_args(list(argv))
    with tempfile.TemporaryDirectory() as scratch:
        folder = asked.folder or Path(scratch)
        name = "cluster_documents" if asked.documents else "cluster_files"
        body = documents(folder, asked.scale) if asked.documents else ratings(folder)
        title = "Streamed topics on four hosts" if asked.documents else "Ratings that the driver does not hold"
        command = f"cluster_files --documents --scale {asked.scale}" if asked.documents else "cluster_files"
        report.save(name, title, report.text(__doc__), body, ["pyzmq"], command)


if __name__ == "__main__":
    kind, *rest = sys.argv[1:]
    print(json.dumps((fit_ratings if kind == "ratings" else fit_documents)(*rest)))
