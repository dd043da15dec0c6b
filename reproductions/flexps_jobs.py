"""The jobs of the FlexPS figures: generated data sets, the simulated cluster, and the functions of the units.

The cluster is that of the paper: 20 nodes with 12 workers each, links of 1 Gbit, 100 µs apart, here simulated with real
arithmetic and virtual time. A non-zero takes 1 µs to compute. Data are generated; the two sets are to each other as kdd
(many short samples, a large model) and webspam (fewer long ones, a smaller model) are, some thousand times smaller.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

import stretto as st

NODES, THREADS, PARTS = 20, 12, 96
PER_NONZERO = 1e-5  # seconds
RATE = 2.0


@dataclass(frozen=True)
class SparseSet:
    """A sparse classification problem."""

    name: str
    samples: int
    features: int
    nonzeros: int  # of a sample
    skew: int = 2  # the frequency of features, by rank: the higher, the fewer are frequent
    shuffled: bool = True  # whether the numbers of features say nothing about how frequent they are

    @cached_property
    def arrays(self) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        """Columns and values [samples, nonzeros] and labels [samples], ±1 by a sparse model with noise."""
        draw = np.random.default_rng(8)
        columns = (self.features * draw.random((self.samples, self.nonzeros)) ** self.skew).astype(np.int64)
        if self.shuffled:
            columns = draw.permutation(self.features)[columns]
        values = draw.standard_normal((self.samples, self.nonzeros)) / np.sqrt(self.nonzeros)
        true = np.where(draw.random(self.features) < 0.1, 10 * draw.standard_normal(self.features), 0.0)
        noise = 0.5 * draw.standard_normal(self.samples)
        return columns, values, np.where((values * true[columns]).sum(1) + noise > 0, 1.0, -1.0)

    def state(self) -> Any:
        """A model of zeros."""
        return st.zeros(self.features, "f8")


KDD = SparseSet("kdd-like", 96_000, 163_840, 10)
WEBSPAM = SparseSet("webspam-like", 19_200, 40_960, 100)
SETS = (KDD, WEBSPAM)


def cluster(**options: Any) -> st.Simulated:
    """The simulated cluster."""
    chosen = {"nodes": NODES, "threads": THREADS, "link": "1Gbit", "latency": "100us", "seconds_per_item": PER_NONZERO}
    return st.Simulated(**{**chosen, **options})


def _slope(margin: Any) -> Any:
    """Derivative of the logistic loss."""
    return -1.0 / (1.0 + np.exp(np.clip(margin, -50.0, 50.0)))


def _drawn(worker: Any, columns: Any, values: Any, y: Any, batch: int) -> tuple[Any, Any, Any, Any]:
    """A part's share of a batch: the keys that it touches, places of its non-zeros among them, values, labels."""
    rows = worker.random().integers(len(y), size=max(1, batch // worker.parts))
    keys, at = np.unique(columns[rows], return_inverse=True)
    return keys, at.reshape(len(rows), -1), values[rows], y[rows]


def sgd(worker: Any, columns: Any, values: Any, y: Any, w: Any, batch: int) -> None:
    """One step with a batch, of which each part has its share; only the features in it are read and changed."""
    keys, at, x, labels = _drawn(worker, columns, values, y, batch)
    here = w.read(keys)
    worker.work(x.size)
    change = labels * _slope(labels * (x * here[at]).sum(1))
    step = np.bincount(at.ravel(), (x * change[:, None]).ravel(), minlength=len(keys))
    w.add(keys, -RATE / (len(labels) * worker.parts) * step)


def full(worker: Any, columns: Any, values: Any, y: Any, w: Any, start: Any, mean: Any, total: int) -> None:
    """The full gradient, and where it was taken."""
    keys, at = np.unique(columns, return_inverse=True)
    at = at.reshape(columns.shape)
    here = w.read(keys)
    worker.work(values.size)
    change = y * _slope(y * (values * here[at]).sum(1)) / total
    mean.add(keys, np.bincount(at.ravel(), (values * change[:, None]).ravel(), minlength=len(keys)))
    first, end = (np.arange(2) + worker.part) * w.rows // worker.parts  # each part copies a share of the model
    mine = np.arange(first, end)
    start.add(mine, w.read(mine) - start.read(mine))


def svrg(worker: Any, columns: Any, values: Any, y: Any, w: Any, start: Any, mean: Any, scale: Any, batch: int) -> None:
    """One variance-reduced step over the features of a batch. The mean gradient of a feature is scaled by how rare the
    feature is, so that no step has to touch all features and the expected step is the same.
    """
    keys, at, x, labels = _drawn(worker, columns, values, y, batch)
    now, then, slope = w.read(keys), start.read(keys), mean.read(keys)
    worker.work(2 * x.size)
    change = _slope(labels * (x * now[at]).sum(1)) - _slope(labels * (x * then[at]).sum(1))
    each = x * (labels * change)[:, None] + (slope * scale[keys])[at]
    step = np.bincount(at.ravel(), each.ravel(), minlength=len(keys))
    w.add(keys, -RATE / (len(labels) * worker.parts) * step)


def scales(data: SparseSet) -> NDArray[np.float64]:
    """[features] samples over occurrences of each feature."""
    return data.samples / np.maximum(1, np.bincount(data.arrays[0].ravel(), minlength=data.features))


def loss(data: SparseSet, w: Any) -> float:
    """The mean logistic loss."""
    columns, values, y = data.arrays
    return float(np.logaddexp(0.0, -y * (values * w[columns]).sum(1)).mean())


def sgd_unit(data: SparseSet, w: Any, batch: int, iterations: int, **options: Any) -> Any:
    """A unit of SGD."""
    options.setdefault("parts", PARTS)
    return st.unit(sgd, *data.arrays, w, batch, iterations=iterations, batch=batch, **options)


def run_sgd(data: SparseSet, batch: int, iterations: int, **options: Any) -> Any:
    """The result of SGD in one stage."""
    return st.run(sgd_unit(data, data.state(), batch, iterations, **options), runtime=cluster())
