"""Factorization machines: log loss and RMSE on held-out samples beside linear models and other machines.

A fifth of the samples is held out; of large sets 100,000 samples are used. Stretto has its defaults in all rows; they
were chosen on the sets marked *chosen on* (there with all samples), and only judged on the others. Fields of
field-aware machines are the variables that were encoded, with 8 components. Peers: scikit-learn's logistic regression
and ridge regression, without and with products of all pairs of columns, C of 0.1 and 1 and alpha of 1 and 10, the
better on a tenth of the training part; libFM by SGD, 20 epochs, 8 factors, a penalty of 0.01, the better of learning
rates 0.01 and 0.03 on that tenth; libFFM with its defaults, 8 factors, stopped by that tenth; and myFM, Bayesian
machines by Gibbs sampling, whose predictions are means over samples, with 8 factors and 50 samples. myFM's classes are
by a probit. Seconds are of the last fit, which for the programs libFM and libFFM includes reading text. The page has
those peers that were found: $LIBFM and $LIBFFM name the programs. xLearn and fastFM could not be installed.
"""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

import stretto as st

from . import report, sets, sparse_sets

Floats = NDArray[np.float64]
# Wall time, or with BENCH_CLOCK=cpu the processor time of all threads, which other work hardly changes.
SHARED = os.environ.get("BENCH_CLOCK") == "cpu"
_NOTE = (
    "**The machine was shared while this was measured** (`BENCH_CLOCK=cpu`): seconds are those of the processor, of "
    "all threads together.\n\n"
)
_PAIRS = 2_000_000  # columns of pairs, at most
_MOST = 100_000  # samples of a set, at most


@dataclass(frozen=True)
class MachineSet:
    """X and y of training and test, the field of each column, and whether defaults were chosen on it."""

    name: str
    X: Any
    y: Floats
    test: tuple[Any, Floats]
    fields: NDArray[np.int64] | None
    logistic: bool
    chosen: bool = False

    @property
    def tenth(self) -> NDArray[np.bool_]:
        """The samples of the training part on which peers are tuned."""
        return np.random.default_rng(9).random(len(self.y)) < 0.1

    def loss(self, predicted: Floats) -> float:
        """Log loss of probabilities, or RMSE."""
        return measured(self.test[1], predicted, self.logistic)


def measured(y: Floats, predicted: Floats, logistic: bool) -> float:
    """Log loss of probabilities, or RMSE."""
    if not logistic:
        return float(np.sqrt(np.mean((predicted - y) ** 2)))
    p = np.clip(predicted, 1e-12, 1 - 1e-12)
    return float(-np.mean(y * np.log(p) + (1 - y) * np.log1p(-p)))


def one_hot(*columns: Any) -> tuple[Any, NDArray[np.int64]]:
    """A CSR matrix of ones for columns of whole numbers, and the field of each column."""
    sizes = [int(np.max(one)) + 1 for one in columns]
    first = np.concatenate([[0], np.cumsum(sizes)])
    indices = np.stack([np.asarray(one) + at for one, at in zip(columns, first, strict=False)], axis=1)
    n, k = indices.shape
    indptr = np.arange(0, n * k + 1, k, dtype=np.int32)
    return sp.csr_array((np.ones(n * k), indices.ravel().astype(np.int32), indptr), shape=(n, first[-1])), np.repeat(
        range(k), sizes
    )


def divided(
    name: str, X: Any, y: Any, fields: Any, logistic: bool, chosen: bool = False, most: int | None = _MOST
) -> MachineSet:
    """A fifth of the samples is for testing. most: samples that are used."""
    order = np.random.default_rng(1).permutation(len(y))[:most]
    last = len(order) * 4 // 5
    train, test = order[:last], order[last:]
    y = np.asarray(y, np.float64)
    return MachineSet(name, X[train], y[train], (X[test], y[test]), fields, logistic, chosen)


def generated(seed: int, n: int = 100_000) -> tuple[Any, Floats, Any]:
    """Classes of a machine with 5 factors over four variables of skewed categories."""
    rng = np.random.default_rng(seed)
    picked = [np.minimum((rng.pareto(1.0, n) * s / 15).astype(int), s - 1) for s in (3000, 800, 100, 30)]
    X, fields = one_hot(*picked)
    V, w = 0.6 * rng.normal(size=(X.shape[1], 5)), 0.4 * rng.normal(size=X.shape[1])
    z = X @ w + 0.5 * (((X @ V) ** 2).sum(1) - (X @ (V**2)).sum(1))
    return X, (rng.random(n) < 1 / (1 + np.exp(-z))).astype(np.float64), fields


def machine_sets() -> Iterator[MachineSet]:
    """The real sets where they are present, and a generated one."""
    folder = sets.real_data()
    if folder is not None:
        with np.load(folder / "flights-3m" / "flights-3m.npz") as z:
            hour, day = z["minute"] // 60 % 24, z["minute"] // 1440 % 7
            columns = hour, day, z["origin"], z["destination"], np.minimum(z["distance"] // 250, 11)
            late = z["delay"] > 15
        X, fields = one_hot(*(one.astype(np.int64) for one in columns))
        yield divided("flights, late by 15 minutes", X, late, fields, True)
        X, y = sparse_sets.load_classes("w8a")
        yield divided("w8a", sp.csr_array(X), y > 0, None, True)
        data = st.read(folder / "epinions" / "ratings.tsv.xz", duplicates="last")
        X, fields = one_hot(data.rows, data.cols)
        yield divided("Epinions, ratings", X, data.values, fields, False)
        yield divided("Epinions, 4 and 5 stars", X, data.values >= 4, fields, True)
        data = st.read(folder / "movielens-1m" / "ratings.tsv.xz", duplicates="last")
        genres = np.loadtxt(folder / "movielens-1m" / "item_genres.tsv.xz", skiprows=1)
        assert data.col_ids is not None
        known = {int(row[0]): row[1:] for row in genres}
        flags = sp.csr_array(np.stack([known[int(one)] for one in data.col_ids.ids]))
        X, fields = one_hot(data.rows, data.cols)
        X, fields = sp.csr_array(sp.hstack([X, flags[data.cols]])), np.append(fields, np.full(flags.shape[1], 2))
        yield divided("MovieLens-1M with genres, ratings", X, data.values, fields, False, True)
        yield divided("MovieLens-1M with genres, 4 and 5 stars", X, data.values >= 4, fields, True, True)
        X, y = sparse_sets.load_classes("a9a")
        yield divided("a9a", sp.csr_array(X), y > 0, None, True, True)
    X, y, fields = generated(11)
    yield divided("generated, 4 variables", X, y, fields, True)


# --- what is compared -------------------------------------------------------------------------------------------------


def clock() -> float:
    """Seconds, of the processor with BENCH_CLOCK=cpu: also of programs that were started."""
    if not SHARED:
        return time.perf_counter()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + used.ru_utime + used.ru_stime


def timed(fit: Callable[[], Any]) -> tuple[Any, float]:
    """What a function returns, and its seconds."""
    began = clock()
    found = fit()
    return found, clock() - began


def ours(one: MachineSet, **given: Any) -> tuple[float, float]:
    """Our loss and seconds."""
    model = st.FactorizationMachine(loss="logistic" if one.logistic else "squared", random_state=0, **given)
    few = np.linspace(0, len(one.y) - 1, 2000).astype(np.int64)
    model.fit(one.X[few], one.y[few])  # compiled before
    _, seconds = timed(lambda: model.fit(one.X, one.y))
    X = one.test[0]
    return one.loss(model.predict_proba(X)[:, 1] if one.logistic else model.predict(X)), seconds


def tuned(one: MachineSet, X: Any, test: Any) -> tuple[float, float]:
    """A linear model of scikit-learn with its best penalty."""
    from sklearn.linear_model import LogisticRegression, Ridge

    def fit(strength: float, rows: Any) -> Any:
        model = LogisticRegression(C=strength, max_iter=100) if one.logistic else Ridge(strength)
        return model.fit(X[rows], one.y[rows])

    def predicted(model: Any, A: Any) -> Floats:
        return np.asarray(model.predict_proba(A)[:, 1] if one.logistic else model.predict(A))

    held, strengths = one.tenth, (0.1, 1.0) if one.logistic else (1.0, 10.0)
    losses = [measured(one.y[held], predicted(fit(s, ~held), X[held]), one.logistic) for s in strengths]
    best = strengths[int(np.argmin(losses))]
    model, seconds = timed(lambda: fit(best, np.ones(len(one.y), bool)))
    return one.loss(predicted(model, test)), seconds


def linear(one: MachineSet) -> tuple[float, float]:
    """scikit-learn's linear model."""
    return tuned(one, one.X, one.test[0])


def pairs(one: MachineSet) -> tuple[float, float] | None:
    """scikit-learn's linear model of columns and their products."""
    from sklearn.preprocessing import PolynomialFeatures

    if not one.logistic or np.diff(one.X.indptr).max() > 200 or one.X.shape[1] > 5000:
        return None
    made = PolynomialFeatures(2, interaction_only=True, include_bias=False)
    X = made.fit_transform(one.X).tocsc()
    used = np.flatnonzero(np.diff(X.indptr) > 0)
    if len(used) > _PAIRS:
        return None
    return tuned(one, X[:, used].tocsr(), made.transform(one.test[0]).tocsc()[:, used].tocsr())


def libfm(one: MachineSet) -> tuple[float, float] | None:
    """libFM by SGD."""
    from sklearn.datasets import dump_svmlight_file

    program = os.environ.get("LIBFM")
    if program is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        held = one.tenth
        files = {"part": (one.X[~held], one.y[~held]), "held": (one.X[held], one.y[held]), "all": (one.X, one.y)}
        for name, (X, y) in {**files, "test": one.test}.items():
            dump_svmlight_file(X, y, f"{folder}/{name}")

        def fit(train: str, test: str, rate: float) -> Floats:
            task = ["-task", "c" if one.logistic else "r", "-train", train, "-test", test, "-out", "out", "-iter", "20"]
            how = ["-method", "sgd", "-learn_rate", str(rate), "-regular", "0,0,0.01", "-dim", "1,1,8"]
            subprocess.run([program, *task, *how, "-init_stdev", "0.1"], cwd=folder, capture_output=True, check=True)
            return np.loadtxt(f"{folder}/out")

        losses = {rate: measured(one.y[held], fit("part", "held", rate), one.logistic) for rate in (0.01, 0.03)}
        best = min(losses, key=lambda rate: losses[rate] if np.isfinite(losses[rate]) else np.inf)
        found, seconds = timed(lambda: fit("all", "test", best))
        return one.loss(found), seconds


def libffm(one: MachineSet) -> tuple[float, float] | None:
    """libFFM, stopped by a tenth of the training part."""
    program = os.environ.get("LIBFFM")
    if program is None or one.fields is None or not one.logistic:
        return None
    fields = one.fields.tolist()
    with tempfile.TemporaryDirectory() as folder:
        held = one.tenth
        files = {"part": (one.X[~held], one.y[~held]), "held": (one.X[held], one.y[held]), "test": one.test}
        for name, (X, y) in files.items():
            names, ends = [f" {fields[j]}:{j}:1" for j in X.indices.tolist()], X.indptr.tolist()
            rows = (f"{int(t)}{''.join(names[a:b])}\n" for t, a, b in zip(y, ends[:-1], ends[1:], strict=True))
            Path(folder, name).write_text("".join(rows))

        def run(which: str, *arguments: str) -> None:
            subprocess.run([f"{program}-{which}", *arguments], cwd=folder, capture_output=True, check=True)

        options = ["-k", "8", "-t", "30", "--auto-stop", "-p", "held", "part", "model"]
        _, seconds = timed(lambda: run("train", *options))
        run("predict", "test", "model", "out")
        return one.loss(np.loadtxt(f"{folder}/out")), seconds


def myfm(one: MachineSet) -> tuple[float, float] | None:
    """myFM's Gibbs sampling."""
    try:
        from myfm import MyFMClassifier, MyFMRegressor
    except ImportError:
        return None
    model = (MyFMClassifier if one.logistic else MyFMRegressor)(rank=8, random_seed=0)
    X, y = sp.csr_matrix(one.X), one.y.astype(np.int64) if one.logistic else one.y
    _, seconds = timed(lambda: model.fit(X, y, n_iter=50, n_kept_samples=40))
    test = sp.csr_matrix(one.test[0])
    return one.loss(np.asarray(model.predict_proba(test) if one.logistic else model.predict(test))), seconds


def aware(one: MachineSet) -> tuple[float, float] | None:
    """Our field-aware machine."""
    return None if one.fields is None else ours(one, n_components=8, field_aware=True, fields=one.fields)


COMPARED: dict[str, Callable[[MachineSet], tuple[float, float] | None]] = {
    "Stretto": ours,
    "Stretto, field-aware": aware,
    "linear": linear,
    "linear, pairs": pairs,
    "libFM, SGD": libfm,
    "libFFM": libffm,
    "myFM, Gibbs": myfm,
}


def scaling() -> str:
    """Seconds of a fit by the number of non-zeros, at a fixed number of features."""
    rows, base = [], 0.0
    for times in (1, 2, 4, 8):
        rng = np.random.default_rng(0)
        X, _ = one_hot(*(rng.integers(0, 2000, 25_000 * times) for _ in range(10)))
        y = rng.random(X.shape[0]) < 0.3
        model = st.FactorizationMachine(l2_factors=0.008, batch_size=512, random_state=0, n_jobs=1)
        model.fit(X[:5000], y[:5000])  # compiled before
        _, seconds = timed(partial(model.fit, X, y))
        base = base or seconds
        each = seconds / X.nnz / model.n_iter_ * 1e9
        rows.append([f"{X.nnz:,}", f"{times} ×", f"{seconds:.2f}", f"{seconds / base:.2f} ×", f"{each:.1f}"])
    columns = ["non-zeros", "", "seconds", "", "nanoseconds for a non-zero and epoch"]
    about = "One penalty, 10 epochs, 20,000 features, batches of 512, one thread; the layout is part of it."
    return f"## Linear in non-zeros\n\n{about}\n\n{report.table(columns, rows)}"


def main() -> None:
    """Measure every set with every machine, then the time by non-zeros."""
    warnings.simplefilter("ignore")  # linear models that stop at max_iter
    rows = []
    for one in machine_sets():
        row: list[object] = [one.name, "log loss" if one.logistic else "RMSE", "chosen on" if one.chosen else "judged"]
        for fit in COMPARED.values():
            found = fit(one)
            row.append("" if found is None else f"{found[0]:.4f} ({found[1]:.1f} s)")
        rows.append(row)
        print(" | ".join(map(str, row)), flush=True)
    about = (_NOTE if SHARED else "") + report.text(__doc__)
    body = f"{report.table(['set', 'measure', '', *COMPARED], rows)}\n\n{scaling()}"
    packages = ("scikit-learn", "scipy", "myfm")
    report.save(
        "factorization_machines",
        "Factorization machines beside linear models and other machines",
        about,
        body,
        packages,
    )


if __name__ == "__main__":
    main()
