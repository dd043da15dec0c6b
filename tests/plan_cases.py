"""One small case for every kind of plan: estimators with their solvers, loops with their strategies.

Golden values, the matrix of runtimes and the suite of executors share them. An estimator's case is made by
`ESTIMATORS[name](**where)` and fitted on `data(name)`; a loop's is called once or twice on fresh arguments.
"""

# mypy: allow-untyped-defs
from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

import stretto as st
from stretto.data.generate.ratings import ratings as generate_ratings
from stretto.state.accumulator import Accumulator

MF = st.MatrixFactorization
LDA = st.LatentDirichletAllocation


def _mf(**given: Any) -> Callable[..., Any]:
    return lambda **where: MF(**({"n_components": 6, "max_iter": 3, "random_state": 5, "width": 4} | given | where))


def _lda(**parameters: Any) -> Callable[..., Any]:
    fixed = {"n_components": 8, "max_iter": 3, "random_state": 5, "width": 4, "evaluate_every": 0}
    return lambda **where: LDA(**(fixed | parameters | where))


ESTIMATORS: dict[str, Callable[..., Any]] = {
    "mf, sgd": _mf(),
    "mf, sgd, logistic": _mf(loss="logistic", biases=False, n_components=20),
    "mf, adagrad": _mf(optimizer="adagrad"),
    "mf, adarevision": _mf(optimizer="adarevision"),
    "mf, als": _mf(solver="als"),
    "mf, als, cg": _mf(solver="als", linear_solver="cg", biases=False),
    "mf, als, implicit": _mf(solver="als", implicit=True),
    "mf, ccd": _mf(solver="ccd"),
    "lda, sparse": _lda(),
    "lda, packed": _lda(n_components=600, max_iter=2),
    "lda, mh": _lda(sampler="mh", optimize_every=1, burn_in=0, warm_up=0),
}


def ratings(n: int = 12_000, rows: int = 300, cols: int = 200) -> Any:
    """Skewed ratings."""
    return generate_ratings(n, rows, cols, seed=0).data


def documents() -> Any:
    """Documents of uneven length, words by Zipf."""
    random = np.random.default_rng(0)
    long, often = random.pareto(1.5, 300) + 0.1, 1 / np.arange(1.0, 200)
    X = np.zeros((300, 199), np.int64)
    docs = random.choice(300, 40_000, p=long / long.sum())
    np.add.at(X, (docs, random.choice(199, 40_000, p=often / often.sum())), 1)
    return csr_array(X)


def data(name: str) -> Any:
    """What a case is fitted on."""
    return documents() if name.startswith("lda") else ratings()


def learned(model: Any) -> dict[str, NDArray[Any]]:
    """What a fitted model has learned."""
    if isinstance(model, MF):  # golden values were made with the names that these attributes had
        names = {f"{a}_{x}_": f"{b}_{x}_" for a, b in (("row", "user"), ("col", "item")) for x in ("factors", "bias")}
    else:
        names = {name: name for name in ("components_", "doc_topic_prior_")}
    return {key: np.asarray(getattr(model, name)) for key, name in names.items()}


# --- loops ----------------------------------------------------------------------------------------------------------


def scaled(A, s):
    for i in range(len(A)):
        A[i] = s * A[i] + 0.25


def sums(d, W, total):
    for (i, _), r in d:
        W[i] = W[i] * 0.9 + r
        total += r * W[i, 0]


def factors(d, W, H, lr, loss):
    for (i, j), r in d:
        e = r - W[i] @ H[j]
        loss += e * e
        W[i], H[j] = W[i] + lr * e * H[j], H[j] + lr * e * W[i]


def latest(d, W, H):
    for (i, j), r in d:
        W[i] = 0.5 * W[i] + r * H[j]
        H[j] = 0.5 * H[j] + W[i]


def five_points(A):
    n, m = A.shape
    for i in range(1, n - 1):
        for j in range(1, m - 1):
            A[i, j] = 0.25 * (A[i - 1, j] + A[i + 1, j] + A[i, j - 1] + A[i, j + 1])


def nine_points(A):
    n, m = A.shape
    for i in range(1, n - 1):
        for j in range(1, m - 1):
            cross = A[i - 1, j] + A[i + 1, j] + A[i, j - 1] + A[i, j + 1]
            A[i, j] = 0.125 * (cross + A[i - 1, j - 1] + A[i - 1, j + 1] + A[i + 1, j - 1] + A[i + 1, j + 1])


def logistic(samples, w, step, lr):
    for _, (y, features) in samples:
        s = 0.0
        for f, x in features:
            s += w[f] * x
        p = 1.0 / (1.0 + math.exp(-s))
        for f, x in features:
            step[f] -= lr * (p - y) * x


def edges(n, source, target, x):
    for e in range(n):
        a, b = source[e], target[e]
        x[a], x[b] = 0.75 * x[a] + 0.25 * x[b], 0.25 * x[a] + 0.75 * x[b]


def looked_up(d, W, where, table):
    for (i, _), r in d:
        W[i] = W[i] + r * table[where[i]]


def last_of_all(d, last):
    for (_, j), _ in d:
        last[0] = j


def shrink(n, x, y):
    for i in range(n):
        x[i] = 0.5 * x[i] + y[i]


def _rows(seed: int, *shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _samples() -> Any:
    random = np.random.default_rng(0)
    X = csr_array((random.random((400, 60)) < 0.08) * random.standard_normal((400, 60)).astype(np.float32))
    return st.samples(X, (np.arange(400) % 2).astype("f4"))


def _weights() -> dict[str, Any]:
    w = np.zeros(60, np.float32)
    return {"w": w, "step": st.buffer(w), "samples": _samples(), "lr": 0.1}


def _edges() -> dict[str, Any]:
    random = np.random.default_rng(1)
    source, target = random.integers(0, 200, 600), random.integers(0, 200, 600)
    target = np.where(target == source, (target + 1) % 200, target)
    return {"n": 600, "source": source, "target": target, "x": _rows(2, 200)}


# name: (function, options, arguments)
def tensor(d, A, B, C, lr):
    for (i, j, k), x in d:
        e = x - (A[i] * B[j]) @ C[k]
        A[i], B[j], C[k] = A[i] + lr * e * B[j] * C[k], B[j] + lr * e * A[i] * C[k], C[k] + lr * e * A[i] * B[j]


def shortest(D):
    for k in range(len(D)):
        for i in range(len(D)):
            for j in range(len(D)):
                D[i, j] = min(D[i, j], D[i, k] + D[k, j])


def _tensor() -> dict[str, Any]:
    draw = np.random.default_rng(4)
    shape = (40, 30, 20)
    indices = np.unique(np.column_stack([draw.integers(0, n, 2000) for n in shape]), axis=0)
    data = st.sparse(tuple(indices.T), draw.random(len(indices)), shape)
    return {"d": data, "A": _rows(0, 40, 3), "B": _rows(1, 30, 3), "C": _rows(2, 20, 3), "lr": 0.01}


LOOPS: dict[str, tuple[Callable[..., Any], dict[str, Any], Callable[[], dict[str, Any]]]] = {
    "independent": (scaled, {}, lambda: {"A": _rows(0, 500, 4), "s": 0.5}),
    "1d": (sums, {}, lambda: {"d": ratings(4000), "W": _rows(0, 300, 3), "total": st.accumulator(0.0)}),
    "2d unordered": (
        factors,
        {},
        lambda: {
            "d": ratings(4000), "W": _rows(0, 300, 5), "H": _rows(1, 200, 5), "lr": 0.01, "loss": st.accumulator(0.0),
        },
    ),
    "2d ordered": (
        latest,
        {"ordered": True},
        lambda: {"d": ratings(4000), "W": _rows(0, 300, 3), "H": _rows(1, 200, 3)},
    ),
    "stencil": (five_points, {"ordered": True}, lambda: {"A": _rows(0, 60, 50)}),
    "2d transformed": (nine_points, {}, lambda: {"A": _rows(0, 60, 50)}),
    "buffered": (logistic, {}, _weights),
    "inspected": (edges, {"inspect": True}, _edges),
    "looked up": (
        looked_up,
        {},
        lambda: {
            "d": ratings(4000), "W": _rows(0, 300, 3), "where": np.arange(300) * 7 % 50, "table": _rows(3, 50, 3),
        },
    ),
    "nd unordered": (tensor, {}, _tensor),
    "stepped": (shortest, {}, lambda: {"D": _rows(0, 40, 40)}),
    "chain": (last_of_all, {}, lambda: {"d": ratings(4000), "last": np.zeros(3, np.int64)}),
    "scheduled": (
        shrink,
        {"schedule": st.schedule.prioritised(width=8, conflicts=None), "watch": "x"},
        lambda: {"n": 300, "x": _rows(0, 300), "y": _rows(1, 300)},
    ),
}  # fmt: skip


def run_loop(name: str, runtime: Any, times: int = 2) -> dict[str, NDArray[Any]]:
    """What a loop leaves in its arguments."""
    function, options, make = LOOPS[name]
    arguments = make()
    loop = st.parallel(runtime=runtime, **options)(function)
    for _ in range(times):
        loop(**arguments)
    return arrays_of(arguments)


def arrays_of(arguments: dict[str, Any]) -> dict[str, NDArray[Any]]:
    """The arrays and accumulators among arguments."""
    found = {name: value for name, value in arguments.items() if isinstance(value, np.ndarray)}
    sums_ = {name: np.asarray(value.array) for name, value in arguments.items() if isinstance(value, Accumulator)}
    return found | sums_


def digest(arrays: dict[str, NDArray[Any]]) -> str:
    """A hash of names, types, shapes and bits."""
    found = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        found.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        found.update(array.tobytes())
    return found.hexdigest()[:16]
