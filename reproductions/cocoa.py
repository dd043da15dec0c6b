"""CoCoA with 2 to 64 parts: rounds to a duality gap of 1e-4, adding against averaging; bytes of a round.

Rounds are counted on the serial runtime, which has the bits of simulated nodes (tests/test_tasks_cocoa.py); bytes on
simulated nodes. COCOA_SETS and COCOA_NODES choose some of the sets and numbers of parts, for a page of their own:

    COCOA_SETS=w8a COCOA_NODES=2,8 python -m reproductions cocoa
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from bench import sets, sparse_sets

import stretto as st
from stretto.figures import new_figure, plain_log_scale, shared_legend

from . import report

PLOT = Path(__file__).resolve().parent.parent / "docs" / "reproductions" / "cocoa.png"
SETS = ("generated", "20news", "w8a")
NODES = (2, 4, 8, 16, 32, 64)
TOLERANCE = 1e-4
MOST = 130  # rounds
PASSES = 5  # of a part in a round
SAMPLES, FEATURES, ENTRIES = 2_048, 512, 20  # of the generated set
LONG = 8_192  # length of the vector where bytes are measured
WAYS = {
    "measured": "adding, γ = 1, σ′ measured",
    "adding": "adding, γ = 1, σ′ = K",
    "averaging": "averaging, γ = 1/K, σ′ = 1",
}

ABOUT = f"""Rounds to a duality gap of {TOLERANCE:g} of the objective, with {PASSES} passes over the data of a part in
each round, at most {MOST}; "> {MOST}" has not arrived. K parts of the same data. Samples have norm 1 and are shuffled.
Generated: {SAMPLES:,} samples with {ENTRIES} non-zeros among {FEATURES:,} features. Support vector machine and ridge
(samples in parts): λ = 1e-3 (generated 1/128). Elastic net (columns in parts): 0.05 (generated 0.3) of the alpha above
which the Lasso has no coefficients, l1_ratio = 0.5. The serial runtime, whose bits are those of simulated nodes.

Bytes: ridge on {LONG:,} dense features, one part on each of K simulated nodes, rounds after the first. All messages of
a round between nodes, divided by 2·(K − 1) vectors of 8 bytes × {LONG:,}: every node but the one that holds the vector
sends one and receives one. Evaluations of the gap are in them; the driver gets 4 to 31 numbers of each part besides."""
TITLE = "CoCoA: adding against averaging"
PACKAGES = ["numpy", "scipy", "numba"]


@dataclass(frozen=True)
class CocoaProblemSet:
    """A loss and a penalty on a set. classes: whether the labels are the signs of the targets."""

    name: str
    options: dict[str, Any]
    classes: bool


def generated(seed: int = 0) -> tuple[Any, Any]:
    """Sparse samples; popular features are in many samples."""
    draw = np.random.default_rng(seed)
    columns = np.minimum((FEATURES * draw.random((SAMPLES, ENTRIES)) ** 2).astype(int), FEATURES - 1)
    bounds = np.arange(0, SAMPLES * ENTRIES + 1, ENTRIES)
    X = sp.csr_array((draw.standard_normal(SAMPLES * ENTRIES), columns.ravel(), bounds), shape=(SAMPLES, FEATURES))
    X.sum_duplicates()
    y = _scaled(X) @ (draw.standard_normal(FEATURES) * (draw.random(FEATURES) < 0.1))
    return _scaled(X), y + 0.3 * y.std() * draw.standard_normal(SAMPLES)


def data(name: str) -> tuple[Any, Any]:
    """Samples of norm 1, and numbers; their signs are the classes."""
    if name == "generated":
        return generated()
    X, y = sparse_sets.load_classes(name)
    order = np.random.default_rng(0).permutation(len(y))
    return _scaled(sp.csr_array(X)[order]), y[order]


def _scaled(X: Any) -> Any:
    norm = np.sqrt(X.multiply(X).sum(1))
    return sp.csr_array(sp.diags_array(1 / np.where(norm > 0, norm, 1.0)) @ X)


def problems(name: str, X: Any, y: Any) -> list[CocoaProblemSet]:
    """The three problems on a set."""
    n, made = X.shape[0], name == "generated"
    ridge, share = (1 / 128, 0.3) if made else (1e-3, 0.05)
    largest = float(np.abs(X.T @ (y - y.mean())).max()) / n
    return [
        CocoaProblemSet("support vector machine", {"loss": "hinge", "C": 1 / (ridge * n)}, True),
        CocoaProblemSet("ridge", {"alpha": ridge, "l1_ratio": 0.0}, False),
        CocoaProblemSet("elastic net", {"alpha": share * largest, "l1_ratio": 0.5}, False),
    ]


def rounds(problem: CocoaProblemSet, X: Any, y: Any, parts: int, way: str) -> tuple[int, bool]:
    """(rounds, whether the gap is reached). Averaging needs many: its gap is evaluated every K/4 rounds."""
    gamma, every = (1 / parts, max(1, parts // 4)) if way == "averaging" else (1.0, 1)
    task = st.cocoa(
        X, y > 0 if problem.classes else y - y.mean(), **problem.options, parts=parts, gamma=gamma, tol=TOLERANCE,
        sigma="measured" if way == "measured" else None, max_rounds=MOST, gap_every=every, local_passes=PASSES,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a measured σ′ that becomes σ′ = K says so; the rounds show it
        shares = st.run(task, runtime=st.Serial()).history("gap")
    arrived = [turn for turn, share in enumerate(shares) if share < TOLERANCE]
    return (every * arrived[0], True) if arrived else (MOST, False)


def vectors(parts: int) -> tuple[float, float]:
    """Bytes of a round over those of one vector up and one down for each node but one: σ′ = K, and measured."""
    draw = np.random.default_rng(0)
    X = draw.standard_normal((4 * parts, LONG))
    found = []
    for sigma in (None, "measured"):
        task = st.cocoa(
            X, draw.standard_normal(len(X)), alpha=0.1, l1_ratio=0.0, parts=parts, sigma=sigma, max_rounds=4, tol=0.0,
            local_passes=1,
        )  # fmt: skip
        stages = st.run(task, runtime=st.Simulated(nodes=parts, threads=1)).stages
        later = [stage for stage in stages if stage.turn > 0 and stage.unit in ("solve", "gap")]
        sent = sum(stage.sent + stage.moved for stage in later) / sum(stage.unit == "solve" for stage in later)
        found.append(sent / (2 * (parts - 1) * 8 * LONG))
    return found[0], found[1]


def main() -> None:
    """Run all. The page and the plot are written after every row."""
    nodes = [int(k) for k in os.environ.get("COCOA_NODES", "").split(",") if k] or list(NODES)
    bodies = [_bytes_table(nodes)]
    found: dict[tuple[str, str, str, int], tuple[int, bool]] = {}
    rows: list[list[Any]] = []
    for name, problem, X, y in _chosen():
        for parts in nodes:
            if parts > min(X.shape):
                continue
            for way in WAYS:
                found[name, problem.name, way, parts] = rounds(problem, X, y, parts, way)
            each = [found[name, problem.name, way, parts] for way in WAYS]
            rows.append([name, problem.name, parts, *(f"{many}" if done else f"> {many}" for many, done in each)])
            print(*rows[-1], flush=True)
            table = report.table(["data", "problem", "parts K", *WAYS.values()], rows)
            body = "\n\n".join([table, *bodies])
            if asked := os.environ.get("COCOA_SETS"):  # a page of its own
                command = f"cocoa, with COCOA_SETS={asked} COCOA_NODES={','.join(map(str, nodes))}"
                report.save(f"cocoa_{asked.replace(',', '_')}", TITLE, ABOUT, body, PACKAGES, command)
            else:
                draw(found)
                report.save("cocoa", TITLE, ABOUT, body, PACKAGES)


def _chosen() -> Iterator[tuple[str, CocoaProblemSet, Any, Any]]:
    asked = [name for name in os.environ.get("COCOA_SETS", "").split(",") if name] or SETS
    for name in asked:
        if name != "generated" and sets.real_data() is None:
            print("the real sets were not found; set STRETTO_DATA to their folder to include them")
            return
        X, y = data(name)
        for problem in problems(name, X, y):
            yield name, problem, X, y


def _bytes_table(nodes: list[int]) -> str:
    rows = [[parts, *(f"{share:.3f}" for share in vectors(parts))] for parts in nodes]
    return report.table(["nodes = parts K", "vectors each way, σ′ = K", "σ′ measured"], rows)


def draw(found: Mapping[tuple[str, str, str, int], tuple[int, bool]]) -> None:
    """Rounds against parts: a panel for each set and problem."""
    names = list(dict.fromkeys(name for name, _, _, _ in found))
    kinds = list(dict.fromkeys(kind for _, kind, _, _ in found))
    with new_figure(
        PLOT,
        4.0 * len(kinds),
        3.2 * len(names) + 0.4,
        "Rounds of CoCoA to a relative duality gap of 1e-4",
        palette=True,
    ) as drawn:
        panels = drawn.subplots(len(names), len(kinds), squeeze=False)
        for line, name in enumerate(names):
            for column, kind in enumerate(kinds):
                axes = panels[line, column]
                for style, (way, words) in zip(("^-", "o-", "s--"), WAYS.items(), strict=True):
                    done = [k for k in NODES if found.get((name, kind, way, k), (0, False))[1]]
                    axes.plot(done, [max(1, found[name, kind, way, k][0]) for k in done], style, label=words)
                axes.set(title=f"{kind}, {name}".capitalize(), xlabel="parts of the data", ylabel="rounds")
                axes.set(xlim=(NODES[0] / 1.2, NODES[-1] * 1.2), ylim=(1, MOST))
                axes.set_xscale("log", base=2)
                axes.set_xticks(NODES, [str(k) for k in NODES])
                plain_log_scale(axes)
        shared_legend(drawn)
