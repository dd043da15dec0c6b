"""Workloads that the rules of the adaptive controller were chosen on, which are not those that it is judged on.

Every workload is drawn from its number: a problem (ill-conditioned least squares, logistic regression, matrix
factorization), a cluster of four nodes (stragglers, a scarce link, latency, none of them), numbers that may be tuned
and where they start. The nodes are a plain model of stale synchronous computation, much simpler and faster than
`st.Simulated`: a worker starts a clock when the changes of the others have arrived that the bound asks for, and links
send one message after another. Adaptive and all fixed settings of a grid run to the same loss. `--family poisson` runs
Poisson regression, of which no run was made while the controller was changed.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import math
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stretto.consistency.adaptive.controller import AdaptiveController
from stretto.consistency.adaptive.knobs import KnobLadder, Window, number_knob, staleness_knob

from . import report
from .adaptive_jobs import parallel

NODES, WORKLOADS, ITEM = 4, 4, 1e-4
RULES = {"BSP": 0.0, "SSP(1)": 1.0, "SSP(2)": 2.0, "SSP(4)": 4.0, "ASP": math.inf}
FAMILIES = ("squares", "logistic", "factors")
UNSEEN = "poisson"


@dataclass(frozen=True)
class Problem:
    """Data, first weights, the gradient of the mean loss of some rows, and the loss of rows."""

    X: np.ndarray
    y: np.ndarray
    start: np.ndarray
    gradient: Callable[[Any, Any, Any], Any]  # (X, y, w)
    loss: Callable[[Any, Any, Any], float]  # (X, y, w): sum over rows
    rate: float  # a step that converges


def squares(draw: Any) -> Problem:
    """Least squares with a condition number of 10 to 300."""
    features, n = int(draw.integers(10, 60)), 1200
    scales = np.geomspace(1.0, float(draw.uniform(10, 300)) ** -0.5, features)
    X = draw.standard_normal((n, features)) * scales
    y = X @ (draw.standard_normal(features) / scales) + draw.choice([0.0, 1.0, 3.0]) * draw.standard_normal(n)
    return Problem(X, y, np.zeros(features), _squares_gradient, _squares_loss, 0.6 / float((scales**2).sum()))


def _squares_gradient(X: Any, y: Any, w: Any) -> Any:
    return X.T @ (X @ w - y) / len(y)


def _squares_loss(X: Any, y: Any, w: Any) -> float:
    return float(((X @ w - y) ** 2).sum())


def logistic(draw: Any) -> Problem:
    """L2-regularised logistic regression."""
    features, n = int(draw.integers(20, 80)), 1200
    X = draw.standard_normal((n, features))
    true = 2 * draw.standard_normal(features) / math.sqrt(features)
    y = (draw.random(n) < 1 / (1 + np.exp(-X @ true))) * 2.0 - 1.0
    return Problem(X, y, np.zeros(features), _logistic_gradient, _logistic_loss, 4.0 / features)


def _logistic_gradient(X: Any, y: Any, w: Any) -> Any:
    return X.T @ (-y / (1 + np.exp(np.clip(y * (X @ w), -50, 50)))) / len(y) + 1e-3 * w


def _logistic_loss(X: Any, y: Any, w: Any) -> float:
    return float(np.logaddexp(0, -y * (X @ w)).sum() + len(y) * 5e-4 * (w @ w))


def factors(draw: Any) -> Problem:
    """Matrix factorization of rank 3: rows of X are (user, item), w holds both factors."""
    users, items, rank, n = 60, 50, 3, 2400
    truth = draw.standard_normal((users + items, rank))
    X = np.stack([draw.integers(users, size=n), users + draw.integers(items, size=n)], axis=1)
    y = (truth[X[:, 0]] * truth[X[:, 1]]).sum(1) + draw.choice([0.1, 0.5]) * draw.standard_normal(n)
    start = 0.5 * draw.standard_normal((users + items) * rank)
    return Problem(X, y, start, _factor_gradient, _factor_loss, 4.0)


def _factor_gradient(X: Any, y: Any, w: Any) -> Any:
    W, change = w.reshape(-1, 3), np.zeros((len(w) // 3, 3))
    off = (W[X[:, 0]] * W[X[:, 1]]).sum(1) - y
    np.add.at(change, X[:, 0], off[:, None] * W[X[:, 1]])
    np.add.at(change, X[:, 1], off[:, None] * W[X[:, 0]])
    return change.ravel() / len(y)


def _factor_loss(X: Any, y: Any, w: Any) -> float:
    W = w.reshape(-1, 3)
    return float((((W[X[:, 0]] * W[X[:, 1]]).sum(1) - y) ** 2).sum())


def poisson(draw: Any) -> Problem:
    """Poisson regression with a logarithmic link."""
    features, n = int(draw.integers(8, 40)), 1600
    X = draw.standard_normal((n, features))
    true = draw.standard_normal(features) / math.sqrt(features)
    y = draw.poisson(np.exp(np.clip(X @ true, -6, 4))).astype(float)
    return Problem(X, y, np.zeros(features), _poisson_gradient, _poisson_loss, 1.0 / features)


def _poisson_gradient(X: Any, y: Any, w: Any) -> Any:
    return X.T @ (np.exp(np.clip(X @ w, -30, 6)) - y) / len(y)


def _poisson_loss(X: Any, y: Any, w: Any) -> float:
    z = np.clip(X @ w, -30, 6)
    return float((np.exp(z) - y * z).sum() + 3 * len(y))


MAKERS = {"squares": squares, "logistic": logistic, "factors": factors, "poisson": poisson}


@dataclass(frozen=True)
class Workload:
    """One drawn workload. Seconds of a message: `latency` twice, and `sending` while the link is taken."""

    family: str
    number: int
    problem: Problem
    kind: str  # of cluster
    latency: float
    sending: float
    slow: float  # of one of the nodes, drawn anew every 4 ms
    clocks: int
    samples: int
    rates: tuple[float, ...]  # the first is the default
    local: tuple[int, ...]
    target: float
    turns: int = 300


def drawn(family: str, number: int) -> Workload:
    """The workload of a number."""
    draw = np.random.default_rng([sorted(MAKERS).index(family), number])
    problem = MAKERS[family](draw)
    kind = ("straggling", "scarce", "latency", "plain")[number % 4]
    latency = {"straggling": 2e-4, "scarce": 1e-3, "latency": draw.uniform(3e-4, 3e-3), "plain": 5e-5}[kind]
    sending = problem.start.nbytes * 8 / 1e6 / draw.uniform(1, 5) if kind == "scarce" else 0.0
    slow = draw.uniform(4, 12) if kind == "straggling" else 1.0
    rates: tuple[float, ...] = (problem.rate,)
    if number % 3 != 0:
        rates = tuple(problem.rate * 2.0**k for k in range(-2, 2))
        first = rates[int(draw.integers(len(rates)))]
        rates = (first, *(rate for rate in rates if rate != first))
    local = (1, 2, 4, 8) if kind == "scarce" else (1,)
    clocks, samples = int(draw.integers(4, 16)), int(draw.choice([5, 10, 20]))
    target = _target(problem, float(draw.choice([0.02, 0.005])), number)
    return Workload(
        family,
        number,
        problem,
        kind,
        float(latency),
        float(sending),
        float(slow),
        clocks,
        samples,
        rates,
        local,
        target,
    )


def _target(problem: Problem, share: float, seed: int) -> float:
    """The loss at which a share of the start's distance from the best is left."""
    w, n = problem.start.copy(), len(problem.y)
    first, rate = problem.loss(problem.X, problem.y, w) / n, problem.rate
    if problem.gradient is _squares_gradient:
        w = np.linalg.lstsq(problem.X, problem.y, rcond=None)[0]
    else:
        draw = np.random.default_rng(seed)
        for step in range(6000):
            rows = draw.integers(n, size=50)
            w -= rate / (1 + step / 600) * problem.gradient(problem.X[rows], problem.y[rows], w)
        share *= 2
    best = problem.loss(problem.X, problem.y, w) / n
    return best + share * (first - best)


class Nodes:
    """The nodes of a workload: they run turns with the settings that are given."""

    def __init__(self, work: Workload) -> None:
        self.work, self.now = work, 0.0
        self.w = work.problem.start.copy()
        self.draw = np.random.default_rng([7, work.number])
        rows = np.array_split(np.arange(len(work.problem.y)), NODES)
        self.parts = [(work.problem.X[some], work.problem.y[some]) for some in rows]

    def loss(self) -> float:
        """The mean loss."""
        problem = self.work.problem
        return problem.loss(problem.X, problem.y, self.w) / len(problem.y)

    def turn(self, staleness: float, rate: float, local: int) -> tuple[float, float]:
        """Run the clocks of a turn; returns its seconds, and the share of them in which nodes did not compute."""
        work, begin = self.work, self.now
        made = [0] * NODES
        free, link = [begin] * NODES, [begin] * NODES
        arrived: list[list[float]] = [[] for _ in range(NODES)]  # by node and clock: when its changes are everywhere
        coming: list[tuple[float, int, Any]] = []
        own = [np.zeros_like(self.w) for _ in range(NODES)]  # not everywhere yet
        while min(made) < work.clocks:
            start, node = min((self._start(node, made, free, arrived, staleness), node) for node in range(NODES))
            while coming and coming[0][0] <= start:
                _, source, change = heapq.heappop(coming)
                self.w += change
                own[source] -= change
            change = self._steps(node, self.w + own[node], rate, local)
            end = start + work.samples * local * ITEM * self._slowness(node, start)
            link[node] = max(end, link[node]) + work.sending
            free[node], made[node] = end, made[node] + 1
            arrived[node].append(link[node] + 2 * work.latency)
            own[node] += change
            heapq.heappush(coming, (arrived[node][-1] + 1e-12 * node, node, change))
        for _, _, change in coming:
            self.w += change
        self.now = max(times[-1] for times in arrived) + 2 * work.latency
        return self.now - begin, 1 - work.clocks * work.samples * local * ITEM / (self.now - begin)

    def _start(
        self, node: int, made: list[int], free: list[float], arrived: list[list[float]], staleness: float
    ) -> float:
        """When a node can start its next clock; infinity if that is not known yet, or it has made all."""
        if made[node] == self.work.clocks:
            return math.inf
        needed = made[node] - staleness  # clocks that all others must have made
        if needed <= 0:
            return free[node]
        if any(made[other] < needed for other in range(NODES)):
            return math.inf
        return max(free[node], *(arrived[other][int(needed) - 1] for other in range(NODES)))

    def _slowness(self, node: int, time: float) -> float:
        period = int(time / 0.004)
        return self.work.slow if (period * 2654435761 + self.work.number) % 2**32 * NODES >> 32 == node else 1.0

    def _steps(self, node: int, now: Any, rate: float, local: int) -> Any:
        X, y = self.parts[node]
        start = now.copy()
        for _ in range(local):
            rows = self.draw.integers(len(y), size=self.work.samples)
            now -= rate * self.work.problem.gradient(X[rows], y[rows], now)
        return (now - start) / NODES


def settings(work: Workload) -> list[tuple[str, float, int]]:
    """The grid of fixed settings."""
    return list(itertools.product(RULES, work.rates, work.local))


def fixed(family: str, number: int, rule: str, rate: float, local: int) -> float:
    """Seconds of a fixed setting; infinity if it does not reach the target."""
    work = drawn(family, number)
    nodes = Nodes(work)
    with np.errstate(all="ignore"):
        for _ in range(work.turns):
            nodes.turn(RULES[rule], rate, local)
            value = nodes.loss()
            if value < work.target:
                return nodes.now
            if not math.isfinite(value):
                break
    return math.inf


def key(family: str, number: int, rule: str, rate: float, local: int) -> str:
    """Names a run in the cache."""
    return f"{family} {number}: {rule}, step {rate:.3g}, {local} local"


def tuned(family: str, number: int, show: bool = False) -> tuple[float, int, int]:
    """Seconds, windows and moves of an adaptive run."""
    work = drawn(family, number)
    knobs: list[KnobLadder] = [staleness_knob(work.clocks)]
    if len(work.rates) > 1:
        knobs.append(number_knob("step", work.rates[0], sorted(work.rates)))
    if len(work.local) > 1:
        knobs.append(number_knob("local", 1.0, work.local))
    controller, nodes, before = AdaptiveController(knobs, bound=work.target), Nodes(work), None
    with np.errstate(all="ignore"):
        for _ in range(work.turns):
            now, kept = controller.settings, nodes.w.copy()
            seconds, waited = nodes.turn(now["staleness"], now.get("step", work.rates[0]), int(now.get("local", 1)))
            value = nodes.loss()
            if value < work.target:
                return nodes.now, controller.windows + 1, len(controller.moves)
            moves = controller.measured(Window(before, value, seconds, waited=waited))
            if show:
                print(controller.windows, f"{value:.5g} {seconds:.4f} {nodes.now:.4f}", now, *moves, sep="\n    ")
            if controller.undo and moves:
                nodes.w = kept
            else:
                before = value
    return math.inf, controller.windows, len(controller.moves)


def line_of(work: Workload, cache: dict[str, float], mine: float, turns: int, moves: int) -> tuple[list[object], float]:
    """A line of the table, and adaptive over the best fixed setting."""
    known = {one: cache[key(work.family, work.number, *one)] for one in settings(work)}
    best = min(known, key=lambda one: known[one])
    default = known["BSP", work.rates[0], 1]
    over = mine / known[best] if math.isfinite(known[best]) else math.nan if math.isinf(mine) else 0.0
    words = f"{best[0]}, step {best[1]:.3g}, {best[2]} local"
    line: list[object] = [
        work.family, work.number, work.kind, _shown(default), f"{_shown(known[best])} ({words})", _shown(mine),
        f"{over - 1:+.0%}" if math.isfinite(over) else "both never", turns, moves,
    ]  # fmt: skip
    return line, over


def _shown(value: float) -> str:
    return f"{value:.3g} s" if math.isfinite(value) else "never"


def main(arguments: list[str] | None = None) -> None:
    """Measure and save."""
    parser = argparse.ArgumentParser(prog="python -m bench adaptive_choice")
    parser.add_argument("--family", choices=(*FAMILIES, UNSEEN), default=None)
    parser.add_argument("--workloads", type=int, default=WORKLOADS, help="of each family")
    parser.add_argument("--cache", type=Path, default=None, help="file with seconds of fixed settings")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    parser.add_argument("--fixed", action="store_true", help="fill the cache only")
    given = parser.parse_args([] if arguments is None else arguments)
    cache = json.loads(given.cache.read_text()) if given.cache is not None and given.cache.exists() else {}
    families = FAMILIES if given.family is None else (given.family,)
    works = [drawn(family, number) for family in families for number in range(given.workloads)]
    grid = [(work.family, work.number, *one) for work in works for one in settings(work)]
    missing = [one for one in grid if key(*one) not in cache]
    cache |= {key(*one): found for one, found in zip(missing, parallel(fixed, missing, given.jobs), strict=True)}
    if given.cache is not None:
        given.cache.write_text(json.dumps(cache))
    if given.fixed:
        return
    lines, overs = [], []
    found = parallel(tuned, [(work.family, work.number) for work in works], given.jobs)
    for work, one in zip(works, found, strict=True):
        line, over = line_of(work, cache, *one)
        print(*line, flush=True)
        lines.append(line)
        overs.append(over)
    usable = [over for over in overs if math.isfinite(over) or math.isinf(over)]
    middle = statistics.median(usable)
    words = f"Median of adaptive over the best fixed setting: {middle - 1:+.0%}; "
    words += f"{sum(over <= 1.1 for over in usable)} of {len(usable)} within 10 %."
    print(words)
    columns = ["family", "number", "cluster", "default", "best fixed", "adaptive", "over best", "windows", "moves"]
    name = "adaptive_choice" if given.family is None else f"adaptive_{given.family}"
    command = "adaptive_choice" if given.family is None else f"adaptive_choice --family {given.family}"
    title = "Workloads that the adaptive controller was chosen on" if given.family != UNSEEN else "Adaptive, unseen"
    report.save(name, title, report.text(__doc__), words + "\n\n" + report.table(columns, lines), command=command)


if __name__ == "__main__":
    main(sys.argv[1:])
