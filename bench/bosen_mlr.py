"""Multiclass logistic regression by managed communication: Figure 7b of Bösen, on a simulated cluster.

10,000 images of MNIST, 10 classes, plain SGD over one served table: a row for each pixel that is ever dark,
a column for each class (the paper's rows are classes; ten rows could not be ranked). 4 nodes × 2 workers, SSP(2), a
clock is a pass of 25 batches. Values, messages and bytes are real, time is virtual. Images are scaled to norm 1 on
average. Runs end at the target loss or after 40 passes. SN: the same eight workers on one node.
"""

from __future__ import annotations

import gzip
import time
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

import stretto as st

from . import report, sets
from .bosen_common import Run, said, times
from .smpframe_runs import figure

NODES, THREADS, WORKERS, BATCHES, CLASSES = 4, 2, 8, 25, 10
IMAGES, CLOCKS, TARGET = 10_000, 40, 0.45
STEPS = (1.0, 0.8, 0.65, 0.5)  # of BS
MANAGED = (2.0, 1.0, 0.5)
LINK, LATENCY, SECONDS = "1Gbit", "10us", 7e-6


@dataclass(frozen=True)
class Images:
    """x [n, features] float32, y [n] classes."""

    x: NDArray[np.float32]
    y: NDArray[np.int64]

    @classmethod
    def mnist(cls, count: int = IMAGES) -> Images | None:
        """The first images of MNIST, None where it is not present."""
        folder = sets.real_data()
        if folder is None or not (folder / "mnist").is_dir():
            return None
        files = {name.name: name for name in (folder / "mnist").iterdir()}
        pixels = next(path for name, path in files.items() if name.startswith("train-images"))
        labels = next(path for name, path in files.items() if name.startswith("train-labels"))
        raw = np.frombuffer(gzip.decompress(pixels.read_bytes()), np.uint8, offset=16).reshape(-1, 784)
        y = np.frombuffer(gzip.decompress(labels.read_bytes()), np.uint8, offset=8)
        return cls.scaled(raw[:count], y[:count])

    @classmethod
    def scaled(cls, raw: NDArray[Any], y: NDArray[Any]) -> Images:
        """Features that are ever set, of mean squared norm 1."""
        x = raw[:, raw.any(axis=0)].astype(np.float32)
        x /= np.sqrt((x * x).sum(axis=1).mean())
        return cls(x, y.astype(np.int64))

    def loss(self, W: NDArray[np.float32]) -> float:
        """The mean of −log of the probability of the right class."""
        logits = (self.x @ W).astype(np.float64)
        top = logits.max(axis=1)
        return float(
            (np.log(np.exp(logits - top[:, None]).sum(axis=1)) + top - logits[np.arange(len(self.y)), self.y]).mean()
        )

    def run(
        self, name: str, step: float, comm: Any, *, nodes: int = NODES, clocks: int = CLOCKS, target: float = TARGET
    ) -> Run:
        """One run; its objective is minus the training loss."""
        cuts = np.linspace(0, len(self.y), WORKERS + 1).astype(int)
        every = np.arange(self.x.shape[1])
        right = np.eye(CLASSES, dtype=np.float32)[self.y]

        def worker(w: Any) -> None:
            table = w.table("weights")
            mine = np.random.default_rng(w.number).permutation(np.arange(cuts[w.number], cuts[w.number + 1]))
            edges = np.linspace(0, len(mine), BATCHES + 1).astype(int)
            for _ in w.clocks(clocks):
                for a, b in pairwise(edges):
                    batch = mine[a:b]
                    x = self.x[batch]
                    table.add(every, -step * gradient(x, right[batch], table.read(every)))
                    w.work(len(batch))

        began = time.process_time()
        found = st.run(
            worker,
            tables={"weights": st.Table(rows=len(every), cols=CLASSES)},
            workers=WORKERS,
            sync=st.SSP(2),
            comm=comm,
            runtime=st.Simulated(nodes=nodes, threads=THREADS, link=LINK, latency=LATENCY, seconds_per_item=SECONDS),
            watch=lambda view: -self.loss(view["weights"]),
            until=lambda look: look.objective >= -target,
        )
        return Run.of(name, found, nodes, 1, time.process_time() - began)


def gradient(x: NDArray[np.float32], right: NDArray[np.float32], W: NDArray[np.float32]) -> NDArray[np.float32]:
    """Of the mean loss over a batch: x [n, features], right [n, classes] 0 or 1, W [features, classes]."""
    logits = x @ W
    logits -= logits.max(axis=1, keepdims=True)
    np.exp(logits, out=logits)
    logits /= logits.sum(axis=1, keepdims=True)
    logits -= right
    found: NDArray[np.float32] = x.T @ logits
    found /= len(x)
    return found


def main() -> None:
    """BS beside two budgets and two ranks."""
    images = Images.mnist()
    if images is None:
        print("MNIST is not here: set STRETTO_DATA to the folder of the real sets")
        return
    modes: list[tuple[str, Any, tuple[float, ...]]] = [("BS", st.Eager(), STEPS)]
    for budget, rank, letters in ((100, "relative", "RM"), (200, "relative", "RM"), (200, "random", "R")):
        modes.append((f"MC-{budget}-{letters}", st.Managed(f"{budget}Mbit", rank=rank, burst=(200, 200)), MANAGED))
    runs = [images.run("SN, step 1", 1.0, st.Eager(), nodes=1)]
    runs += [images.run(f"{name}, step {step:g}", step, comm) for name, comm, steps in modes for step in steps]
    base = min(runs[1 : 1 + len(STEPS)], key=lambda run: run.epochs_to(-TARGET))
    rows = [
        [
            run.name, said(run.epochs_to(-TARGET)), times(base.epochs_to(-TARGET), run.epochs_to(-TARGET)),
            said(1e3 * run.per_epoch), said(1e3 * run.seconds_to(-TARGET)),
            times(base.seconds_to(-TARGET), run.seconds_to(-TARGET)),
            f"{run.bytes_per_epoch / 1e3:.0f}", f"{-run.looks[-1].objective:.4f}",
            *(f"{share:.1%}" for share in run.lags(2)),
        ]
        for run in runs
    ]  # fmt: skip
    head = [
        "mode", "passes to target", "fewer than the best BS", "ms a pass", "ms to target", "faster", "kB a node, pass",
        "last loss", *(f"rows read {lag} behind" for lag in ("0", "1", "≥ 2")),
    ]  # fmt: skip
    body = f"Target: mean training loss {TARGET:g}. The best BS: {base.name}.\n\n{report.table(head, rows)}"
    report.save("bosen_mlr", "Bösen: multiclass logistic regression", report.text(__doc__), body, ["greenlet"])

    def draw(axes: Any, seconds: bool) -> None:
        for run in runs:
            x = [look.seconds if seconds else look.epoch for look in run.looks]
            axes.plot(x, [-look.objective for look in run.looks], label=run.name, linewidth=1.2)
        axes.axhline(TARGET, color="k", linewidth=0.6)
        axes.set_ylim(0.9 * TARGET, 4 * TARGET)

    title = "logistic regression, MNIST"
    figure(
        "bosen-mf-mlr.png",
        [
            (title, "pass", "training loss", lambda axes: draw(axes, False)),
            (title, "virtual seconds", "training loss", lambda axes: draw(axes, True)),
        ],
    )


if __name__ == "__main__":
    main()
