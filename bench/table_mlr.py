"""Multiclass logistic regression over one served table, on a simulated cluster: runs for `reproductions.bosen_mlr`."""

from __future__ import annotations

import gzip
import time
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

import stretto as st

from . import sets
from .table_runs import Run

NODES, THREADS, WORKERS, BATCHES, CLASSES = 4, 2, 8, 25, 10
IMAGES, CLOCKS, TARGET = 10_000, 40, 0.45
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
            tables={"weights": st.tables.Table(rows=len(every), cols=CLASSES)},
            workers=WORKERS,
            sync=st.tables.SSP(2),
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
