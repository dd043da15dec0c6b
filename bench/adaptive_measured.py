"""Adaptive settings beside a grid of fixed ones in wall-clock time: on two threads, and on namespace hosts.

The workloads are those of `bench.adaptive` with real computation: a clock multiplies small matrices besides its step of
SGD for least squares.

- **A straggling node**: in every three clocks another part, drawn from the seed, computes seven times as much.
- **A scarce link** (hosts only, a command of its own, more than seven minutes for a seed when it was tried; threads
  share memory, and no link is between them): 2,000 numbers go over 20 Mbit/s between hosts. Adaptive chooses the
  staleness, and the local steps of a clock.
- **Fast, then flat**: noisy labels, and four steps to choose from, of which the default is the largest.

Seconds are those of stages and of what lies between them, copies of states before trials included; not what comes
before the first stage, when nodes get their data. Namespace hosts are on the cores of this computer, so a node that
waits leaves its core to others: waiting costs less than on computers of their own. Other programs lengthen all times;
the load before each part is stated. Fixed settings and adaptive take turns, seed by seed, so that load that comes and
goes meets all of them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import stretto as st

from . import report
from .adaptive import RULES

SEEDS, HOSTS, LINK = 5, 3, "20Mbit"
Execute = Callable[[Any, int], Any]
SIDE = 128  # of the matrices that a clock multiplies


@dataclass(frozen=True)
class Measured:
    """One comparison."""

    name: str
    features: int
    noise: float
    rates: tuple[float, ...]  # of several the first is the default
    local: tuple[int, ...]
    clocks: int
    busy: int  # products of matrices in a clock
    slow: int  # times as many where a part straggles
    target: float  # loss above that of the best weights
    turns: int
    rules: tuple[str, ...]
    link: str = "1Gbit"  # between hosts
    rows: int = 1600


STRAGGLING = Measured(
    "a straggling node", 20, 0.0, (0.006,), (1,), 12, 2, 7, 0.05, 80, ("BSP", "SSP(2)", "SSP(8)", "ASP")
)
SCARCE = Measured(
    "a scarce link", 2000, 0.0, (2e-4,), (1, 4, 8), 4, 0, 1, 150.0, 30, ("BSP", "ASP"), LINK, 240
)  # fmt: skip
FLAT = Measured("fast, then flat", 20, 1.0, (0.1, 0.05, 0.025, 0.0125), (1,), 6, 6, 1, 0.02, 100, ("BSP", "ASP"))
THREADS, ON_HOSTS = (STRAGGLING, FLAT), (STRAGGLING, SCARCE, FLAT)


def step(worker: Any, X: Any, y: Any, w: Any, rate: float, local: int, busy: int, slow: int, seed: int) -> None:
    """A clock: local steps, then their sum, of which each part counts for its share; and products of matrices."""
    start = w.read().ravel()
    now, draw = start.copy(), worker.random()
    for _ in range(local):
        rows = draw.integers(len(y), size=5)
        A = X[rows]
        now -= rate * (A.T @ (A @ now - y[rows])) / 5
    late = (worker.iteration // 3 * 2654435761 + seed * 97) % 2**32 * worker.parts >> 32 == worker.part
    product = np.full((SIDE, SIDE), 1e-3)
    for _ in range(busy * (slow if late else 1)):
        product = product @ product
    w.add(np.arange(w.rows), ((now - start) / worker.parts).reshape(w.rows, -1))


def loss(worker: Any, X: Any, y: Any, w: Any, rows: int) -> float:
    """Mean squared error."""
    return float(((X @ w.read().ravel() - y) ** 2).sum() / rows)


@cache
def data(work: Measured, seed: int) -> tuple[np.ndarray, np.ndarray, float]:
    """X, y, and the loss of the best weights."""
    draw = np.random.default_rng(seed)
    X = draw.standard_normal((work.rows, work.features))
    y = X @ draw.standard_normal(work.features) + work.noise * draw.standard_normal(work.rows)
    best = np.linalg.lstsq(X, y, rcond=None)[0]
    return X, y, float(((X @ best - y) ** 2).mean())


def seconds(work: Measured, result: Any) -> float:
    """Seconds to the target, without what came before the first two stages: nodes get their data there."""
    arrived = len(result.history("loss")) < work.turns
    return spent(result) if arrived else math.inf


def spent(result: Any) -> float:
    """Seconds of a run from its first stage on."""
    return float(result.seconds - sum(stage.transition for stage in result.stages[:2]))


def run(work: Measured, execute: Execute, parts: int, sync: Any, rate: Any, local: Any, seed: int) -> Any:
    """One run to the target. execute: runs a task with a seed."""
    X, y, best = data(work, seed)
    w = st.zeros((work.features // 10, 10), "f8")
    body = st.unit(step, X, y, w, rate, local, work.busy, work.slow, seed, parts=parts, iterations=work.clocks)
    until = st.below(st.unit(loss, X, y, w, work.rows, parts=parts), best + work.target)
    return execute(st.loop(body, until=until, times=work.turns, sync=sync), seed)


def adaptive(work: Measured, execute: Execute, parts: int, seed: int) -> Any:
    """A run whose settings are chosen while it runs."""
    rate: Any = work.rates[0] if len(work.rates) == 1 else st.knob(work.rates[0], sorted(work.rates), name="step")
    local: Any = work.local[0]
    if len(work.local) > 1:
        local = st.knob(local, list(work.local), name="local steps", whole=True)
    return run(work, execute, parts, "adaptive", rate, local, seed)


def measured(work: Measured, execute: Execute, parts: int, seeds: int) -> dict[str, Any]:
    """Seconds of all settings, by seed; adaptive under its own name."""
    grid = list(itertools.product(work.rules, work.rates, work.local))
    found: dict[str, list[float]] = {}
    took: list[float] = []  # by the default, arrived or not
    run(work, execute, parts, None, work.rates[0], work.local[0], 0)  # compiles, and starts nodes
    load, turns, moves = os.getloadavg()[0], [], []
    for seed in range(seeds):
        for rule, rate, local in grid:
            result = run(work, execute, parts, RULES[rule], rate, local, seed)
            name = f"{rule}, step {rate:g}, {local} local steps"
            found.setdefault(name, []).append(seconds(work, result))
            if (rule, rate, local) == grid[0]:
                took.append(spent(result))
        result = adaptive(work, execute, parts, seed)
        found.setdefault("adaptive", []).append(seconds(work, result))
        turns.append(len(result.history("loss")))
        moves.append(len(result.moves))
        print(work.name, seed, {name: round(times[-1], 3) for name, times in found.items()}, flush=True)
    return {"name": work.name, "seconds": found, "took": took, "load": load, "turns": turns, "moves": moves}


def line_of(where: str, found: dict[str, Any]) -> list[object]:
    """A line of the table."""
    medians = {name: statistics.median(times) for name, times in found["seconds"].items()}
    mine = medians.pop("adaptive")
    default = medians[next(iter(medians))]
    best = min(medians, key=lambda one: medians[one])
    gain = default / mine if math.isfinite(default) else statistics.median(found["took"]) / mine
    return [
        where,
        found["name"],
        _shown(default),
        f"{_shown(medians[best])} ({best})",
        _shown(mine),
        f"{mine / medians[best] - 1:+.0%}",
        f"{gain:.1f}×" if math.isfinite(default) else f"more than {gain:.1f}×",
        f"{statistics.median(found['turns']):.0f}",
        f"{statistics.median(found['moves']):.0f}",
        f"{found['load']:.1f}",
    ]


def _shown(value: float) -> str:
    return f"{value:.3g} s" if math.isfinite(value) else "never"


def on_hosts(names: str, seeds: int) -> None:
    """Measure on the driver's machine; every workload ends with a line of JSON."""
    session = st.Session()  # keeps the hosts from run to run
    runtime = st.Cluster(nodes=HOSTS, patience=30.0, start_within=300.0)

    def execute(task: Any, seed: int) -> Any:
        return session.submit(task, runtime=runtime, seed=seed).result()

    for work in ON_HOSTS:
        if work.name in names.split("|"):
            print("@" + json.dumps(measured(work, execute, HOSTS, seeds)), flush=True)
    session.close()


def hosts(chosen: Sequence[Measured], seeds: int, timeout: float) -> list[dict[str, Any]]:
    """Measure on namespace hosts, one laboratory for each link."""
    from .laboratory import laboratory

    found = []
    for link in dict.fromkeys(work.link for work in chosen):
        names = "|".join(work.name for work in chosen if work.link == link)
        with laboratory(HOSTS, link=link) as lab:
            code = f"from bench.adaptive_measured import on_hosts; on_hosts({names!r}, {seeds})"
            try:
                done = lab.run([sys.executable, "-c", code], env={"OPENBLAS_NUM_THREADS": "1"}, timeout=timeout)
                output = done.stdout
            except subprocess.TimeoutExpired as late:  # workloads that have ended count
                output = late.output.decode() if isinstance(late.output, bytes) else str(late.output)
        print(output[-5000:], flush=True)
        found += [json.loads(line[1:]) for line in output.splitlines() if line.startswith("@")]
    return found


def main(arguments: list[str] | None = None) -> None:
    """Measure and save."""
    parser = argparse.ArgumentParser(prog="python -m bench adaptive_measured")
    parser.add_argument("where", choices=("threads", "hosts", "link"), help="link: the scarce link, on hosts")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="runs of each setting")
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds for the hosts of a link")
    given = parser.parse_args([] if arguments is None else arguments)
    if given.where == "threads":

        def execute(task: Any, seed: int) -> Any:
            return st.run(task, runtime=st.Threads(2), seed=seed)

        found = [measured(work, execute, 2, given.seeds) for work in THREADS]
    else:
        chosen = [work for work in ON_HOSTS if (work.link == LINK) == (given.where == "link")]
        found = hosts(chosen, given.seeds, given.timeout)
    where = "2 threads" if given.where == "threads" else f"{HOSTS} namespace hosts"
    columns = ["where", "workload", "default", "best fixed", "adaptive", "adaptive over best fixed",
               "default over adaptive", "turns", "moves", "load"]  # fmt: skip
    body = report.table(columns, [line_of(where, one) for one in found]) + "\n\nAll settings, medians:\n\n"
    rows = [
        [one["name"], name, _shown(statistics.median(times)), ", ".join(map(_shown, times))]
        for one in found
        for name, times in one["seconds"].items()
    ]
    body += report.table(["workload", "setting", "median", "seeds"], rows)
    name = f"adaptive_{given.where}" if given.where != "link" else "adaptive_hosts_link"
    command = f"adaptive_measured {given.where}" + (f" --seeds {given.seeds}" if given.seeds != SEEDS else "")
    about = f"{report.text(__doc__)}\n\nSeeds: {given.seeds}."
    report.save(name, f"Adaptive settings on {where}", about, body, command=command)


if __name__ == "__main__":
    main(sys.argv[1:])
