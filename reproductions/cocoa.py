"""CoCoA on 2 to 64 simulated nodes: rounds to a duality gap of 1e-4, adding against averaging, and bytes of a round."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import stretto as st

from . import report

PLOT = Path(__file__).resolve().parent.parent / "docs" / "reproductions" / "cocoa.png"
NODES = (2, 4, 8, 16, 32, 64)
TOLERANCE = 1e-4
MOST = 300  # rounds
SAMPLES, FEATURES, ENTRIES = 2_048, 512, 20
WAYS = {"adding": "adding, γ = 1, σ′ = K", "averaging": "averaging, γ = 1/K, σ′ = 1"}

HEAD = [
    *("problem", "nodes (= parts K)", "rounds, adding", "rounds, averaging", "averaging over adding"),
    *("vectors per node and round, adding", "averaging", "a round, adding, virtual ms"),
]
ABOUT = f"""Rounds to a duality gap of {TOLERANCE:g} of the objective, one pass over the data of a part in each round.
{SAMPLES:,} generated samples of norm 1 with {ENTRIES} non-zeros among {FEATURES:,} features, on st.Simulated with one
part on each node. Averaging is evaluated every K/4 rounds, adding after each. Bytes are those of the rounds, without
evaluations of the gap: all messages between nodes, divided by 8 bytes × the length of the shared vector × nodes."""
PACKAGES = ["numpy", "scipy", "numba"]


@dataclass(frozen=True)
class Problem:
    """A loss and a penalty. classes: whether the labels are the signs of the targets."""

    name: str
    options: dict[str, Any]
    classes: bool


@dataclass(frozen=True)
class Found:
    """One run. rounds: to the gap, or MOST; vectors: bytes that nodes sent in a round, in shared vectors per node."""

    rounds: int
    reached: bool
    vectors: float
    seconds: float  # virtual, of a round


def data(seed: int = 0) -> tuple[Any, Any]:
    """Sparse samples of norm 1 as the theory wants them; popular features are in many samples."""
    draw = np.random.default_rng(seed)
    columns = np.minimum((FEATURES * draw.random((SAMPLES, ENTRIES)) ** 2).astype(int), FEATURES - 1)
    bounds = np.arange(0, SAMPLES * ENTRIES + 1, ENTRIES)
    X = sp.csr_array((draw.standard_normal(SAMPLES * ENTRIES), columns.ravel(), bounds), shape=(SAMPLES, FEATURES))
    X.sum_duplicates()
    X = sp.csr_array(sp.diags_array(1 / np.sqrt(X.multiply(X).sum(1))) @ X)
    y = X @ (draw.standard_normal(FEATURES) * (draw.random(FEATURES) < 0.1))
    return X, y + 0.3 * y.std() * draw.standard_normal(SAMPLES)


def problems(X: Any, y: Any) -> list[Problem]:
    """Samples in parts: λn = 16 for the support vector machine and for ridge. Columns in parts: the
    elastic net, with 0.3 of the alpha above which the Lasso has no coefficients.
    """
    largest = float(np.abs(X.T @ y).max()) / SAMPLES
    return [
        Problem("support vector machine", {"loss": "hinge", "C": 1 / 16}, True),
        Problem("elastic net", {"alpha": 0.3 * largest, "l1_ratio": 0.5}, False),
        Problem("ridge", {"alpha": 16 / SAMPLES, "l1_ratio": 0.0}, False),
    ]


def run(problem: Problem, X: Any, y: Any, nodes: int, way: str, most: int = MOST) -> Found:
    """One part on each node. Averaging needs many rounds, so its gap is evaluated every K/4 rounds."""
    gamma = 1.0 if way == "adding" else 1 / nodes
    every = 1 if way == "adding" else max(1, nodes // 4)
    task = st.cocoa(
        X, y > 0 if problem.classes else y, **problem.options, parts=nodes, gamma=gamma, tol=TOLERANCE,
        max_rounds=most, gap_every=every,
    )  # fmt: skip
    cluster = st.Simulated(nodes=nodes, threads=1, seconds_per_item=1e-8)
    stages = st.run(task, runtime=cluster).stages
    rounds = [stage for stage in stages if stage.unit == "solve"]
    count = sum(stage.iterations for stage in rounds)
    vector = 8 * task.shape[1] * nodes
    return Found(
        count,
        task.gap < TOLERANCE * task.objective,
        sum(stage.sent + stage.moved for stage in rounds) / count / vector,
        sum(stage.seconds for stage in rounds) / count,
    )


def main() -> None:
    """Run all. The page and the plot are written after every row of a problem's table."""
    X, y = data()
    found: dict[tuple[str, str, int], Found] = {}
    rows = []
    for problem in problems(X, y):
        for nodes in NODES:
            one, other = (found.setdefault((problem.name, way, nodes), run(problem, X, y, nodes, way)) for way in WAYS)
            rows.append(
                [
                    problem.name, nodes, _rounds(one), _rounds(other), f"{other.rounds / one.rounds:.1f}",
                    f"{one.vectors:.2f}", f"{other.vectors:.2f}", f"{1e3 * one.seconds:.2f}",
                ]
            )  # fmt: skip
            print(*rows[-1], flush=True)
            _draw(found)
            report.save("cocoa", "CoCoA: adding against averaging", ABOUT, report.table(HEAD, rows), PACKAGES)


def _rounds(found: Found) -> str:
    return f"{found.rounds:,}" if found.reached else f"more than {found.rounds:,}"


def _draw(found: dict[tuple[str, str, int], Found]) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(name for name, _, _ in found))
    drawn = Figure(figsize=(4.2 * len(names), 3.8), layout="constrained")
    FigureCanvasAgg(drawn)
    for place, name in enumerate(names, 1):
        axes = drawn.add_subplot(1, len(names), place)
        for style, (way, words) in zip(("o-", "s--"), WAYS.items(), strict=True):
            done = [nodes for nodes in NODES if (name, way, nodes) in found]
            axes.plot(done, [found[name, way, nodes].rounds for nodes in done], style, label=words)
        axes.set(title=f"CoCoA, {name}", xlabel="nodes = parts K", ylabel=f"rounds to a relative gap of {TOLERANCE:g}")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.2), frameon=False)
    drawn.savefig(PLOT, dpi=90)
