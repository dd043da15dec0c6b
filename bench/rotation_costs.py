"""What rotation costs a node of the laboratory: an item, a message, a byte, and the way of a block to the next node.

None of it is measured on the jobs that are predicted with it.

*An item*: every machine by itself runs the serial runtime on data of another seed, of the size of a node's share; all
machines at the same time. CPU time over items, and which share of a processor a busy process gets (CPU over wall time).
*A message and a byte*: two factorisations with few ratings and item factors of two sizes. CPU time of the nodes'
processes in an epoch, as the kernel counts it, is items (their cost grows with the rank) + a·messages + b·bytes; how
many messages and bytes a node handles in an epoch is what the simulator counts for the same job. What an epoch costs
besides is thus counted with the messages.
*Latency*: that with which the simulator takes as long for an epoch of the smaller one as was measured.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .cluster_costs import line_of, on_each
from .rotation_jobs import JOBS, pace

LIGHT = {"count": 300_000, "users": 8_000, "items": 4_000, "epochs": 50}  # just enough ratings for 32 × 32 blocks
RANKS, RANK = (32, 256), 128  # of the light jobs; of the job that an item's cost comes from
SKIPPED = 10  # epochs of a light job
LATENCIES = (0.0, 0.05)  # seconds between which it is looked for
EVERY = 0.05  # seconds between two readings of the kernel's counters


class Processes:
    """CPU seconds of the processes of each machine's nodes. seen[host]: [(when, seconds)]."""

    def __init__(self, lab: Any) -> None:
        self.seen: dict[int, list[tuple[float, float]]] = {}
        self._lab, self._end = lab, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        pids: dict[int, list[int]] = {}
        looked = -1e9
        while not self._end.wait(EVERY):
            if time.monotonic() - looked > 2.0:  # finding processes is slow
                pids = {machine.number: self._lab.actors(machine.number) for machine in self._lab.workers}
                looked = time.monotonic()
            for host, found in pids.items():
                self.seen.setdefault(host, []).append((time.monotonic(), sum(map(cpu_seconds, found))))

    def __enter__(self) -> Processes:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def between(self, first: float, last: float) -> float:
        """CPU seconds of a machine between two times, the mean of all."""
        return float(np.mean([np.diff(np.interp([first, last], *np.array(each).T))[0] for each in self.seen.values()]))


def cpu_seconds(pid: int) -> float:
    """Of all threads of a process."""
    total = 0
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                total += int((task / "schedstat").read_text().split()[0])
    return total * 1e-9


@dataclass(frozen=True)
class Alone:
    """Of a machine by itself: CPU seconds of an item, and the share of a processor that a busy process gets."""

    item: float
    share: float

    @classmethod
    def of(cls, told: list[dict[str, Any]]) -> Alone:
        """From what every machine printed: means of all machines, the first epochs left out."""
        spent = [np.diff(one["spent"])[2:] for one in told]
        walls = [np.diff(one["ends"])[2:] for one in told]
        items = [float(np.median(each)) / one["items"] for each, one in zip(spent, told, strict=True)]
        shares = [float(a.sum() / b.sum()) for a, b in zip(spent, walls, strict=True)]
        return cls(float(np.mean(items)), float(np.mean(shares)))


@dataclass(frozen=True)
class Wire:
    """CPU seconds of a message and of a byte at either end, and seconds from node to node beside."""

    message: float
    byte: float
    latency: float


def alone(lab: Any, job: str, options: dict[str, Any]) -> Alone:
    """Run a node's share of a job on every machine."""
    return Alone.of(on_each(lab, ["-m", "bench.rotation_jobs", job, json.dumps(options)], timeout=300))


def drive(lab: Any, job: str, timeout: float = 300.0, **options: Any) -> tuple[dict[str, Any], float]:
    """A job on the cluster; what it printed, and the CPU seconds of a node in an epoch."""
    with Processes(lab) as looks:
        argv = [sys.executable, "-m", "bench.rotation_jobs", job, json.dumps({"where": "cluster", **options})]
        told: dict[str, Any] = line_of(lab.run(argv, timeout=timeout).stdout, " ".join(argv))
    skipped = min(SKIPPED, len(told["ends"]) // 4)
    return told, looks.between(told["ends"][skipped], told["ends"][-1]) / (len(told["ends"]) - 1 - skipped)


def handled(job: str, nodes: int, **options: Any) -> tuple[float, float]:
    """Messages and bytes that a node handles in an epoch, sent or received, as the simulator counts them."""
    each = []
    for cost in ((1e-9, 0.0), (0.0, 1e-12)):
        told = JOBS[job](
            where="simulated", nodes=nodes, message_cost=cost, **{**options, "epochs": 6, "seconds_per_item": 1e-8}
        )
        spent = np.diff([one[0] for one in told["handled"]])
        each.append(float(np.median(spent)) / max(cost))
    return each[0], each[1]


def solve(cpu: tuple[float, float], counts: tuple[tuple[float, float], tuple[float, float]]) -> tuple[float, float]:
    """Seconds of a message and of a byte from CPU seconds of two jobs and [messages, bytes] of each; none below 0."""
    message, byte = np.linalg.solve(np.array(counts), np.array(cpu)).tolist()
    if byte < 0:
        return float(np.mean([seconds / count[0] for seconds, count in zip(cpu, counts, strict=True)])), 0.0
    if message < 0:
        return 0.0, float(np.mean([seconds / count[1] for seconds, count in zip(cpu, counts, strict=True)]))
    return message, byte


def latency_of(seconds: float, simulate: Any, steps: int = 10) -> float:
    """The latency with which simulate(latency) takes `seconds`, by bisection; 0 where it takes more anyway."""
    low, high = LATENCIES
    if simulate(low) >= seconds:
        return low
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (middle, high) if simulate(middle) < seconds else (low, middle)
    return (low + high) / 2


def wire(lab: Any, nodes: int, share: float, item: float, link: float) -> tuple[Wire, list[list[object]]]:
    """Run the light jobs; the costs, and a row of what was seen for each."""
    cpu, counts, paces, rows = [], [], [], []
    for rank in RANKS:
        told, spent = drive(lab, "mf", nodes=nodes, rank=rank, **LIGHT)
        cpu.append(max(0.0, spent - told["items"] / nodes * item * rank / RANK))
        counts.append(handled("mf", nodes, rank=rank, **LIGHT))
        paces.append(pace(told["ends"], SKIPPED))
        rows.append([rank, f"{1e3 * paces[-1]:.1f}", f"{1e3 * spent:.2f}", f"{counts[-1][0]:.0f}",
                     f"{counts[-1][1]:,.0f}"])  # fmt: skip
    message, byte = solve((cpu[0], cpu[1]), (counts[0], counts[1]))

    def simulate(latency: float) -> float:
        told = JOBS["mf"](
            where="simulated", nodes=nodes, rank=RANKS[0], link=link, latency=latency,
            seconds_per_item=item * RANKS[0] / RANK / share,
            message_cost=(message / share, byte / share), **{**LIGHT, "epochs": 8},
        )  # fmt: skip
        return pace(told["ends"])

    return Wire(message, byte, latency_of(paces[0], simulate)), rows
