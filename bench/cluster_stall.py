"""Does rotation hide communication? Matrix factorisation on four machines of the laboratory, 1 Gbit, and its stall.

Generated ratings of 40,000 users at rank 128, with few items (4,000: a node sends 2 MB an epoch) or many (40,000: 20
MB). A machine has 0.4 processors, so that the four together leave some for Ray, the driver and us.

Waiting is what a node's worker counts: from when it finds no visit it could make until it finds one. Some of that time
it is runnable and has no processor, because its machine has used up its share or another process is on; that is the
laboratory's doing and not the network's. The kernel counts, for the worker's thread, seconds on a processor and seconds
runnable without one (/proc/PID/task/TID/schedstat). What is left of an epoch it slept, which it does nowhere but in
waiting and between two epochs. **Stall** is that sleep's share of an epoch and what follows it, until the next begins.
Medians over the epochs after the first, for each of the four machines.

Each job runs twice: as `fit` does by itself, where nodes begin the next epoch without asking, and with a callback that
looks after every epoch and might stop, so that all wait for all and for the driver.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

import stretto as st
from stretto.observe.events import EpochDone
from stretto.runtime.session import Session

from . import report

NODES, CPUS, LINK, RATE = 4, 0.4, "1Gbit", 125e6
SHAPES = {
    "5 million ratings, 4,000 items": (5_000_000, 4_000),
    "10 million ratings, 4,000 items": (10_000_000, 4_000),
    "5 million ratings, 40,000 items": (5_000_000, 40_000),
}
USERS, RANK, EPOCHS = 40_000, 128, 12
EVERY = 0.1  # seconds between two readings of the kernel's counters


# -- on the driver's machine -----------------------------------------------------------------------------------------


class Cluster(st.Cluster):
    """A cluster that lets one see its crew. Plans go by the name of the class."""

    @contextmanager
    def open(self) -> Iterator[Any]:
        """As any cluster's."""
        with super().open() as crew:
            object.__setattr__(self, "opened", crew)
            yield crew


class Watch:
    """After every epoch: the time, and what each node reported of it."""

    def __init__(self, runtime: Any) -> None:
        self.runtime = runtime
        self.epochs: list[dict[str, Any]] = []

    def note(self, event: Any) -> None:
        """A listener."""
        if isinstance(event, EpochDone):
            nodes = [self.runtime.opened.ran[node] for node in sorted(self.runtime.opened.ran)]
            told = [[one.seconds, one.waited, one.moved] for one in nodes]
            self.epochs.append({"ended": time.monotonic(), "nodes": told})


class Looker:
    """A callback that might stop, and does not."""

    def setup(self, estimator: Any, context: Any) -> None:
        """Nothing."""

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        """Nothing."""

    def on_fit_task_end(self, estimator: Any, context: Any, **_: Any) -> bool:
        """Go on."""
        return False

    def teardown(self, estimator: Any, context: Any) -> None:
        """Nothing."""


def job(ratings: int, items: int, looks: int) -> dict[str, Any]:
    """Run it; the epochs."""
    data = st.generate_ratings(ratings, USERS, items, rank=12, noise=0.5, seed=1).data
    runtime = Cluster(nodes=NODES, patience=20.0, start_within=120.0)
    watch = Watch(runtime)
    model = st.MatrixFactorization(
        n_components=RANK, max_iter=EPOCHS, random_state=0, duplicates="last", runtime=runtime
    )
    if looks:
        model.set_callbacks(Looker())
    model.fit(data, session=Session(listeners=[watch.note]))
    return {"epochs": watch.epochs, "objective": [float(epoch["objective"]) for epoch in model.history_]}


# -- outside ---------------------------------------------------------------------------------------------------------


class Threads:
    """Samples all threads of the actors of each machine.

    seen[host][(pid, tid)] : [(when, seconds on a processor, seconds runnable without one)].
    """

    def __init__(self, lab: Any, every: float) -> None:
        self.seen: dict[int, dict[tuple[int, int], list[tuple[float, float, float]]]] = {}
        self._lab, self._every, self._end = lab, every, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        pids: dict[int, list[int]] = {}
        looked = -1e9
        while not self._end.wait(self._every):
            if time.monotonic() - looked > 2.0:  # finding processes is slow
                pids = {machine.number: self._lab.actors(machine.number) for machine in self._lab.workers}
                looked = time.monotonic()
            for host, found in pids.items():
                for pid in found:
                    with suppress(OSError):
                        for task in Path(f"/proc/{pid}/task").iterdir():
                            self._one(host, pid, task)

    def _one(self, host: int, pid: int, task: Path) -> None:
        with suppress(OSError):
            ran, waited, _ = (task / "schedstat").read_text().split()
            times = self.seen.setdefault(host, {}).setdefault((pid, int(task.name)), [])
            times.append((time.monotonic(), int(ran) * 1e-9, int(waited) * 1e-9))

    def __enter__(self) -> Threads:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def worker(self, host: int, first: float, last: float) -> Any:
        """[looks, 3] of the thread that computed most between two times."""
        found = [np.array(times) for times in self.seen[host].values() if len(times) > 1]

        def computed(times: Any) -> float:
            between = np.interp([first, last], times[:, 0], times[:, 1])
            return float(between[1] - between[0])

        return max(found, key=computed)


def stalls(told: dict[str, Any], looks: Threads, hosts: list[int]) -> Any:
    """[hosts, epochs − 1, 2] shares of an epoch: runnable without a processor, and asleep."""
    ended = np.array([epoch["ended"] for epoch in told["epochs"]])
    found = np.zeros((len(hosts), len(ended) - 1, 2))
    for at, host in enumerate(hosts):
        times = looks.worker(host, ended[0], ended[-1])
        ran, runnable = (np.diff(np.interp(ended, times[:, 0], times[:, column])) for column in (1, 2))
        wall = np.diff(ended)
        found[at, :, 0], found[at, :, 1] = runnable / wall, np.maximum(0.0, 1 - (ran + runnable) / wall)
    return found


def main() -> None:
    """All shapes; a row for each machine."""
    from .laboratory import laboratory  # it puts tests/cluster on the path

    rows: list[list[object]] = []
    with laboratory(NODES, link=LINK) as lab:
        lab.cpus = CPUS
        lab.share()
        hosts = [machine.number for machine in lab.workers]
        for shape, sizes in SHAPES.items():
            objectives = []
            for looks in (0, 1):
                told, found = measure(lab, [*sizes, looks], hosts)
                objectives.append(told["objective"])
                rows.append([shape, "the driver looks" if looks else "as it is", *row(told, found)])
                print(*rows[-1], sep=" | ", flush=True)
            if objectives[0] != objectives[1]:
                raise SystemExit(f"{shape}: other numbers when the driver looks: {objectives}")
    head = ["job", "between epochs", "s an epoch", "s a node's blocks take on its cable", "waiting, as nodes count it",
            "not in an epoch", "runnable without a processor", "stall of each machine"]  # fmt: skip
    body = report.table(head, rows)
    report.save("cluster_stall", "Stall of a rotation", report.text(__doc__), body, ["ray", "pyzmq"])


def measure(lab: Any, sizes: list[int], hosts: list[int]) -> tuple[dict[str, Any], Any]:
    """A job: its report, and [hosts, 2] shares of an epoch."""
    with Threads(lab, EVERY) as looks:
        done = lab.run([sys.executable, "-m", "bench.cluster_stall", *map(str, sizes)], timeout=240)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise SystemExit(f"{sizes}: it failed:\n{done.stdout[-3000:]}")
    told = json.loads(lines[-1])
    return told, np.median(stalls(told, looks, hosts), axis=1)


def row(told: dict[str, Any], found: Any) -> list[str]:
    """The numbers of one job."""
    walls = np.diff([epoch["ended"] for epoch in told["epochs"]])
    nodes = np.array([epoch["nodes"] for epoch in told["epochs"][1:]])  # [epochs, nodes, 3]
    waited, between = nodes[:, :, 1] / walls[:, None], 1 - nodes[:, :, 0] / walls[:, None]
    return [
        f"{np.median(walls):.2f}",
        f"{np.median(nodes[:, :, 2]) / RATE:.3f}",
        f"{np.median(waited):.1%}",
        f"{np.median(between):.1%}",
        f"{np.median(found[:, 0]):.1%}",
        ", ".join(f"{100 * one:.1f}" for one in found[:, 1]) + " %",
    ]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(job(*map(int, sys.argv[1:]))))
    else:
        main()
