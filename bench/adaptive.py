"""Adaptive settings beside a grid of fixed ones, on four simulated nodes: virtual seconds to a target loss.

Every workload is SGD for least squares, a loop of stages of some clocks each, after which the loss is evaluated. The
*default* is what a loop does without sync= and with the first value of each knob. A fixed setting that does not reach
the target within the turns that the best one needs several times over counts as never. Of five seeds, which also draw
the stragglers, the medians are compared (`--seeds` takes fewer).

- **A straggling node**: in every 4 ms another quarter of the nodes computes ten times slower. Adaptive chooses the
  staleness.
- **A scarce link**: 1 Mbit/s. Adaptive chooses the staleness, and how many local steps a clock has before the nodes
  exchange their changes.
- **Fast, then flat**: noisy labels; a large step is fast and ends in a loss above the target, a small one takes long.
  Adaptive chooses the staleness and the step.

The lengths of the runs were chosen, with an earlier controller, so that the best fixed setting needs tens of turns. The
rules of the controller were changed on other workloads (`python -m bench adaptive_choice`); these three were run for
comparison while that was done. Virtual seconds do not depend on the computer or on its load, so `--jobs` and `--cache`
change no number.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache as cached
from pathlib import Path
from typing import Any

import numpy as np

import stretto as st

from . import report
from .adaptive_jobs import parallel

NODES, SEEDS = 4, 5
PICTURES = Path(__file__).parent.parent / "docs" / "images"
RULES = {"BSP": st.tables.BSP(), **{f"SSP({s})": st.tables.SSP(s) for s in (1, 2, 4, 8)}, "ASP": st.tables.ASP()}
FEW = ("BSP", "SSP(2)", "ASP")


@dataclass(frozen=True)
class Workload:
    """One comparison."""

    name: str
    features: int
    noise: float  # of labels
    samples: int  # of a local step
    rate: float | tuple[float, ...]  # of a step; several: a ladder, of which the first is the default
    local: tuple[int, ...]  # local steps of a clock; of several the first is the default
    clocks: int  # of a turn
    target: float  # loss above that of the true weights
    turns: int
    rules: tuple[str, ...]
    cluster: Callable[[int], Any]  # of a seed


@dataclass(frozen=True)
class Compared:
    """Lines of the tables for one workload; adaptive over the best fixed setting for each seed."""

    line: Sequence[object]
    grid: Sequence[Sequence[object]]
    each: Sequence[str]


def straggling(seed: int) -> Any:
    slow = {"share": 0.25, "slow": 10.0, "seconds": 0.004}
    return st.Simulated(nodes=NODES, threads=1, latency="200us", seconds_per_item=1e-4, stragglers=slow, seed=seed)


def scarce(seed: int) -> Any:
    return st.Simulated(nodes=NODES, threads=1, link="1Mbit", latency="1ms", seconds_per_item=1e-4, seed=seed)


def plain(seed: int) -> Any:
    return st.Simulated(nodes=NODES, threads=1, latency="500us", seconds_per_item=1e-4, seed=seed)


WORKLOADS = (
    Workload("a straggling node", 20, 0.0, 20, 0.008, (1,), 10, 0.01, 120, tuple(RULES), straggling),
    Workload("a scarce link", 200, 0.0, 20, 0.0015, (1, 2, 4, 8), 4, 0.05, 300, FEW, scarce),
    Workload("fast, then flat", 20, 1.0, 5, (0.1, 0.05, 0.025, 0.0125), (1,), 6, 0.01, 120, FEW, plain),
)


@cached
def data(features: int, noise: float, seed: int) -> tuple[np.ndarray, np.ndarray, float]:
    """X, y, and the loss of the best weights."""
    draw = np.random.default_rng(seed)
    X = draw.standard_normal((1600, features))
    y = X @ draw.standard_normal(features) + noise * draw.standard_normal(1600)
    best = np.linalg.lstsq(X, y, rcond=None)[0]
    return X, y, float(((X @ best - y) ** 2).mean())


def step(worker: Any, X: Any, y: Any, w: Any, rate: float, local: int, samples: int) -> None:
    """A clock: local steps, then their sum, of which each part counts for its share."""
    start = w.read()
    now, draw = start.copy(), worker.random()
    for _ in range(local):
        rows = draw.integers(len(y), size=samples)
        A = X[rows]
        now -= rate * (A.T @ (A @ now - y[rows])) / samples
    worker.work(samples * local)
    w.add(np.arange(len(start)), (now - start) / worker.parts)


def loss(worker: Any, X: Any, y: Any, w: Any) -> float:
    """Mean squared error."""
    return float(((X @ w.read() - y) ** 2).sum() / 1600)


def run(work: Workload, sync: Any, rate: Any, local: Any, seed: int) -> Any:
    """One run to the target."""
    X, y, best = data(work.features, work.noise, seed)
    w = st.zeros(work.features, "f8")
    body = st.unit(
        step, X, y, w, rate, local, work.samples,
        parts=NODES, iterations=work.clocks, placement=dict.fromkeys(range(NODES), 1),
    )  # fmt: skip
    until = st.below(st.unit(loss, X, y, w, parts=NODES, workers=1), best + work.target)
    return st.run(st.loop(body, until=until, times=work.turns, sync=sync), runtime=work.cluster(seed), seed=seed)


def seconds(work: Workload, result: Any) -> float:
    """Virtual seconds to the target; infinity if it was not reached."""
    return float(result.seconds) if len(result.history("loss")) < work.turns else math.inf


def adaptive(work: Workload, seed: int) -> Any:
    """A run whose settings are chosen while it runs."""
    rate: Any = work.rate if isinstance(work.rate, float) else st.knob(work.rate[0], sorted(work.rate), name="step")
    local: Any = work.local[0]
    if len(work.local) > 1:
        local = st.knob(local, list(work.local), name="local steps", whole=True)
    return run(work, "adaptive", rate, local, seed)


def pictures() -> None:
    """Draw the decisions of a run of each workload into the documentation."""
    for name, work in zip(("straggling", "scarce", "flat"), WORKLOADS, strict=True):
        title = f"{work.name[0].upper()}{work.name[1:]}: settings of an adaptive run"
        adaptive(work, 0).plot_settings(PICTURES / f"adaptive-{name}.png", "loss", title)


def grid_of(work: Workload) -> list[tuple[str, float, int]]:
    """All fixed settings."""
    rates = (work.rate,) if isinstance(work.rate, float) else work.rate
    return list(itertools.product(work.rules, rates, work.local))


def fixed(number: int, rule: str, rate: float, local: int, seed: int) -> tuple[float, float]:
    """Seconds of a fixed setting to the target, and all that it took."""
    work = WORKLOADS[number]
    result = run(work, RULES[rule], rate, local, seed)
    return seconds(work, result), float(result.seconds)


def tuned(number: int, seed: int) -> tuple[float, int, int]:
    """Seconds, windows and moves of an adaptive run."""
    work = WORKLOADS[number]
    result = adaptive(work, seed)
    return seconds(work, result), len(result.history("loss")), len(result.moves)


def key(number: int, rule: str, rate: float, local: int, seed: int) -> str:
    """Names a run in the cache."""
    return f"{WORKLOADS[number].name}: {rule}, step {rate:g}, {local} local, seed {seed}"


def compare(number: int, cache: dict[str, list[float]], runs: list[tuple[float, int, int]]) -> Compared:
    """The lines of a workload. cache: seconds of fixed settings. runs: of adaptive ones, by seed."""
    work, seeds = WORKLOADS[number], len(runs)
    grid = grid_of(work)
    of = {one: [cache[key(number, *one, seed)] for seed in range(seeds)] for one in grid}
    medians = {one: statistics.median(first for first, _ in found) for one, found in of.items()}
    mine = statistics.median(found for found, _, _ in runs)
    best = min(medians, key=lambda one: medians[one])
    default = medians[grid[0]]
    least = statistics.median(took for _, took in of[grid[0]])  # what the default took without arriving
    line = [
        work.name,
        _shown(default),
        f"{_shown(medians[best])} ({_setting(work, best)})",
        _shown(mine),
        f"{mine / medians[best] - 1:+.0%}",
        f"{default / mine:.1f}×" if math.isfinite(default) else f"more than {least / mine:.1f}×",
        f"{statistics.median(windows for _, windows, _ in runs):.0f}",
        f"{statistics.median(moves for _, _, moves in runs):.0f}",
    ]
    each = [f"{found / of[best][seed][0] - 1:+.0%}" for seed, (found, _, _) in enumerate(runs)]
    return Compared(line, [[work.name, _setting(work, one), _shown(medians[one])] for one in grid], each)


def _setting(work: Workload, setting: tuple[str, float, int]) -> str:
    rule, rate, local = setting
    step_size = "" if isinstance(work.rate, float) else f", step {rate:g}"
    return rule + step_size + (f", {local} local steps" if len(work.local) > 1 else "")


def _shown(value: float) -> str:
    return f"{value:.3g} s" if math.isfinite(value) else "never"


def main(arguments: list[str] | None = None) -> None:
    """Measure and save."""
    parser = argparse.ArgumentParser(prog="python -m bench adaptive")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="runs of each setting")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    parser.add_argument("--cache", type=Path, default=None, help="file with seconds of fixed settings")
    parser.add_argument("--fixed", action="store_true", help="fill the cache only")
    given = parser.parse_args([] if arguments is None else arguments)
    cache = json.loads(given.cache.read_text()) if given.cache is not None and given.cache.exists() else {}
    numbers, seeds = range(len(WORKLOADS)), range(given.seeds)
    calls = [(number, *one, seed) for number in numbers for one in grid_of(WORKLOADS[number]) for seed in seeds]
    missing = [call for call in calls if key(*call) not in cache]
    cache |= {key(*call): found for call, found in zip(missing, parallel(fixed, missing, given.jobs), strict=True)}
    if given.cache is not None:
        given.cache.write_text(json.dumps(cache))
    if given.fixed:
        return
    runs = parallel(tuned, [(number, seed) for number in numbers for seed in seeds], given.jobs)
    found = [compare(number, cache, runs[number * given.seeds : (number + 1) * given.seeds]) for number in numbers]
    for work, one in zip(WORKLOADS, found, strict=True):
        print(work.name, *one.line[1:], one.each, flush=True)
    lines, grid = [one.line for one in found], [line for one in found for line in one.grid]
    columns = ["workload", "default", "best fixed", "adaptive", "adaptive over best fixed", "default over adaptive",
               "windows", "moves"]  # fmt: skip
    body = report.table(columns, lines) + "\n\nAdaptive over the best fixed setting, seed by seed: "
    body += "; ".join(f"{work.name} {', '.join(one.each)}" for work, one in zip(WORKLOADS, found, strict=True))
    body += ".\n\nAll fixed settings:\n\n"
    body += report.table(["workload", "setting", "median"], grid)
    many = given.seeds
    command = "adaptive" if many == SEEDS else f"adaptive --seeds {many}"
    pictures()
    report.save("adaptive", "Adaptive settings", f"{report.text(__doc__)}\n\nSeeds: {many}.", body, command=command)


if __name__ == "__main__":
    main(sys.argv[1:])
