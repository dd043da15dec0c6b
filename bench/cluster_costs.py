"""Costs of our own machinery, for the simulator: what a message, a byte and an item cost on the laboratory.

Everything is CPU time of a node's process (ZeroMQ's threads, encryption and the kernel's part of sending are in it),
measured where it will be spent: on machines with a quota, all four busy. Two kinds of runs are compared. In one every
machine works alone on a cluster of one node, so that nothing travels; that gives what an item costs, with reading,
adding and applying, and which share of a processor a busy process really gets. In the other four nodes do the same
together, n rows a clock under BSP. What they need more is what travelling costs; two n give seconds for a message and
for a byte, at either end. Rows are of 16 numbers; and of 100 counts of which 4 change, as in topic models, where a byte
costs more because zeros are left out on the way. Each clock a worker goes through SWEPT bytes of memory as real ones
do, so that the processor's caches are not warmer here than there.

What a clock of one row on two nodes takes beyond what the simulator makes of it with these costs is the latency of
waking threads, half of it on the way to the shard and half on the way back.

    python -m bench.cluster_costs KIND ROWS NODES ADDRESS     # one run, as JSON
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import stretto as st

if TYPE_CHECKING:
    from lab import Lab

COLS = {"dense": 16, "sparse": 100}
CHANGED = 4  # columns of a sparse row
RUNS = (("dense", 64), ("dense", 8192), ("sparse", 4096))
CLOCKS, FIRST, NODES = 100, 20, 4
SWEPT = 8 << 20


@dataclass(frozen=True)
class Clock:
    """A clock on average: seconds, CPU seconds of a node's process, messages and bytes that a node sends."""

    seconds: float
    cpu: float
    messages: float
    bytes: float


@dataclass(frozen=True)
class Costs:
    """message: {kind of rows: (seconds per message, seconds per byte) at either end}; latency: seconds from node to
    node; share: of a processor, that a busy process gets. alone, together: the clocks behind them, by (kind, rows)."""

    message: dict[str, tuple[float, float]]
    latency: float
    share: float
    alone: dict[tuple[str, int], Clock]
    together: dict[tuple[str, int], Clock]


def clocks(kind: str, rows: int, nodes: int, address: str) -> Clock:
    """A worker on each node reads and adds all rows each clock."""
    cols, dtype = COLS[kind], "f4" if kind == "dense" else "i4"

    def work(w: Any) -> None:
        table, keys = w.table("x"), np.arange(rows)
        change = np.ones((rows, cols), dtype)
        if kind == "sparse":
            change[:] = np.random.default_rng(w.number).random(change.shape) < CHANGED / cols
        memory = np.zeros(SWEPT // 8)
        seen = w.local.setdefault("seen", np.zeros((CLOCKS, 2)))
        for clock in w.clocks(CLOCKS):
            seen[clock] = time.monotonic(), time.process_time()
            table.read(keys)
            memory += 1.0
            table.add(keys, change)
            w.work(1)

    found = st.run(
        work,
        tables={"x": st.tables.Table(rows=rows, cols=cols, dtype=dtype)},
        workers=nodes,
        sync=st.tables.BSP(),
        runtime=st.Cluster(address, nodes=nodes, patience=10.0),
    )
    recording = found.recording
    reasons = {} if recording is None else recording.by_reason()
    # Acknowledgements that travel alone too: the simulator lets a node pay for them as for any other message.
    messages, nbytes = (sum(entry[at] for entry in reasons.values()) / CLOCKS / nodes for at in (0, 2))
    each = np.mean([np.diff(local["seen"][FIRST:], axis=0).mean(axis=0) for local in found.local], axis=0)
    return Clock(float(each[0]), float(each[1]), messages, nbytes)


def line_of(text: str, what: str) -> Any:
    """The last line of JSON that a run printed."""
    lines = [line for line in text.splitlines() if line.startswith(("{", "["))]
    if not lines:
        raise SystemExit(f"{what} failed:\n{text[-3000:]}")
    return json.loads(lines[-1])


def on_each(lab: Lab, argv: list[str], timeout: float = 200.0) -> list[Any]:
    """Run a program on every machine that has a quota, at the same time; what each printed. "HERE" in an argument
    becomes the machine's place among them."""
    env = {"STRETTO_DATA": os.environ.get("STRETTO_DATA", ""), "RAY_ADDRESS": ""}
    started = []
    for place, machine in enumerate(lab.workers):
        mine = [sys.executable, *(word.replace("HERE", str(place)) for word in argv)]
        started.append(lab.start(mine, machine.number, env, "alone.log"))
    deadline = time.monotonic() + timeout
    for process, _ in started:
        process.wait(max(1.0, deadline - time.monotonic()))
    return [line_of(log.read_text(), " ".join(argv)) for _, log in started]


def measure(lab: Lab) -> Costs:
    """On the laboratory; its machines should have nothing else to do."""
    alone, together = {}, {}
    for kind, rows in RUNS:
        each = on_each(lab, ["-m", "bench.cluster_costs", kind, str(rows), "1", "processes"])
        alone[kind, rows] = Clock(*np.mean(each, axis=0).tolist())
        together[kind, rows] = _together(lab, kind, rows, NODES)
    few, many, sparse = RUNS
    left = [[2 * together[run].messages, 2 * together[run].bytes] for run in (few, many)]  # as many come in as go out
    more = {run: together[run].cpu - alone[run].cpu for run in RUNS}
    per_message, per_byte = np.linalg.solve(np.array(left), np.array([more[few], more[many]])).tolist()
    rest = more[sparse] - 2 * per_message * together[sparse].messages
    message = {
        "dense": (max(0.0, per_message), max(0.0, per_byte)),
        "sparse": (max(0.0, per_message), max(0.0, rest / (2 * together[sparse].bytes))),
    }
    share = alone[many].cpu / alone[many].seconds
    waits = _together(lab, "dense", 1, 2).seconds - simulated(message["dense"], alone[few].cpu)
    return Costs(message, max(0.0, waits / 2), share, alone, together)


def _together(lab: Lab, kind: str, rows: int, nodes: int) -> Clock:
    argv = [sys.executable, "-m", "bench.cluster_costs", kind, str(rows), str(nodes), "auto"]
    done = lab.run(argv, timeout=200)
    return Clock(*line_of(done.stdout, " ".join(argv)))


def simulated(message: tuple[float, float], item: float) -> float:
    """Virtual seconds of a clock of one row on two nodes without latency."""

    def work(w: Any) -> None:
        table = w.table("x")
        for _ in w.clocks(CLOCKS):
            table.read([0])
            table.add([0], np.ones((1, COLS["dense"]), np.float32))
            w.work(1)

    runtime = st.Simulated(nodes=2, threads=1, link="1Gbit", latency=0.0, seconds_per_item=item, message_cost=message)
    found = st.run(
        work,
        tables={"x": st.tables.Table(rows=1, cols=COLS["dense"])},
        workers=2,
        sync=st.tables.BSP(),
        runtime=runtime,
    )
    return found.seconds / CLOCKS


def pace(ends: list[float], passes: int) -> float:
    """Seconds of a pass by the times at which clocks, or passes, ended; the first third is left out."""
    first = len(ends) // 3
    return (ends[-1] - ends[first]) / (len(ends) - 1 - first) * len(ends) / passes


if __name__ == "__main__":
    from bench.cluster_costs import clocks as run_clocks  # by the module's own name, so that nodes find it

    one = run_clocks(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    print(json.dumps([one.seconds, one.cpu, one.messages, one.bytes]))
