"""What the simulator is told of our own machinery: what a message, a byte and an item cost.

A job that does nothing but read and add n rows of 16 numbers each clock, under BSP, on four nodes, for two n. The CPU
time of a node's process (ZeroMQ's and Ray's threads, encryption and the kernel's part of sending are in it) less that
of its worker's thread is what messages cost; two equations give seconds for a message and for a byte, of either end.
What a clock of one row on two nodes takes beyond what the simulator makes of it with these costs is the latency of
waking threads, half of it on the way to the shard and half on the way back. What an item costs is the CPU time of a
worker's thread, reading and adding included. So a node's CPU time is split in two, and nothing is counted twice.

    costs = measure()                           # on plain processes; "auto": on the Ray cluster this runs in
    costs.message, costs.latency                # (seconds per message, seconds per byte), seconds
    item(JOBS["ratings"], {"passes": 12}, 4)    # CPU seconds of an item

    python -m bench.cluster_costs               # on a Ray cluster, prints them as JSON
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import stretto as st

ROWS, COLS = (64, 8192), 16
CLOCKS, FIRST, NODES = 220, 20, 4


@dataclass(frozen=True)
class Clock:
    """A clock on average: seconds, CPU seconds of a node without its worker, messages and bytes that a node sends."""

    seconds: float
    cpu: float
    messages: float
    bytes: float


@dataclass(frozen=True)
class Costs:
    """message: (seconds per message, seconds per byte) at either end; latency: seconds from node to node."""

    message: tuple[float, float]
    latency: float


def clocks(rows: int, nodes: int, address: str) -> Clock:
    """A worker on each of so many nodes reads and adds all rows each clock."""

    def work(w: Any) -> None:
        table, keys = w.table("x"), np.arange(rows)
        change = np.ones((rows, COLS), np.float32)
        seen = w.local.setdefault("seen", np.zeros((CLOCKS, 3)))
        for clock in w.clocks(CLOCKS):
            seen[clock] = time.monotonic(), time.process_time(), time.thread_time()
            table.read(keys)
            table.add(keys, change)
            w.work(1)

    found = st.run(
        work,
        tables={"x": st.Table(rows=rows, cols=COLS)},
        workers=nodes,
        sync=st.BSP(),
        runtime=st.Cluster(address, nodes=nodes, patience=10.0),
    )
    recording = found.recording
    reasons = {} if recording is None else recording.by_reason()
    # Acknowledgements that travel alone too: the simulator lets a node pay for them as for any other message.
    messages, nbytes = (sum(entry[at] for entry in reasons.values()) / CLOCKS / nodes for at in (0, 2))
    each = np.mean([np.diff(local["seen"][FIRST:], axis=0).mean(axis=0) for local in found.local], axis=0)
    return Clock(float(each[0]), float(each[1] - each[2]), messages, nbytes)


def measure(address: str = "processes") -> Costs:
    """Now; the machines should have nothing else to do."""
    left, right = [], []
    for rows in ROWS:
        found = clocks(rows, NODES, address)
        left.append([2 * found.messages, 2 * found.bytes])  # a node receives as many as it sends
        right.append(found.cpu)
    per_message, per_byte = np.linalg.solve(np.array(left), np.array(right))
    message = max(0.0, float(per_message)), max(0.0, float(per_byte))
    waits = clocks(1, 2, address).seconds
    return Costs(message, max(0.0, (waits - clocks_simulated(message)) / 2))


def clocks_simulated(message: tuple[float, float]) -> float:
    """Virtual seconds of a clock of one row without latency."""

    def work(w: Any) -> None:
        table = w.table("x")
        for _ in w.clocks(CLOCKS):
            table.read([0])
            table.add([0], np.ones((1, COLS), np.float32))
            w.work(1)

    runtime = st.Simulated(nodes=2, threads=1, link="100Gbit", latency=0.0, seconds_per_item=0.0, message_cost=message)
    found = st.run(work, tables={"x": st.Table(rows=1, cols=COLS)}, workers=2, sync=st.BSP(), runtime=runtime)
    return found.seconds / CLOCKS


def item(job: Callable[..., dict[str, Any]], options: dict[str, Any], nodes: int) -> float:
    """CPU seconds that a worker's thread spends on an item, on plain processes."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the processes that are started: as in the laboratory
    passes = options["passes"]
    told = job(where="cluster", address="processes", nodes=nodes, every=passes, **options)
    return float(told["spent"][1]) * len(told["ends"]) * nodes / float(told["items"])


def pace(ends: list[float], passes: int) -> float:
    """Seconds of a pass by the times at which clocks, or passes, ended; the first third is left out."""
    first = len(ends) // 3
    return (ends[-1] - ends[first]) / (len(ends) - 1 - first) * len(ends) / passes


if __name__ == "__main__":
    from bench.cluster_costs import measure as found  # by the module's own name, so that nodes find it

    costs = found("auto")
    print(json.dumps({"message": costs.message, "latency": costs.latency}))
