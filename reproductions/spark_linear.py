"""Linear models in MLlib and in Stretto: the problems, the files that both read, and fits of both.

`python -m reproductions.spark_linear WHO PROBLEM SETTING [SOLVER]` makes one fit in a process of its own, from reading
the file on, and prints what it took. `spark_compare` compares.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from bench import sparse_sets

from . import spark_objectives
from .spark_objectives import Floats, Penalty
from .spark_session import THREADS, Session, open_session, scratch, session_usage, usage

DIVISOR = 100  # of the smallest penalty that leaves no coefficient
GENERATED = {"n": 4_000, "p": 5_000}  # more features than the 4,096 up to which MLlib solves normal equations

Fitted = tuple[Floats, float]


@dataclass(frozen=True)
class Problem:
    """Features [n, p], target [n] (for classes −1 or +1), and the penalty in the units of the mean loss."""

    key: str  # "net/blog", as the command line names it
    title: str
    X: Any
    y: Floats
    penalty: Penalty

    @property
    def classes(self) -> bool:
        """Logistic regression rather than least squares."""
        return self.key.startswith("logistic")

    def objective(self, found: Fitted) -> float:
        """The value that is compared."""
        judge = spark_objectives.logistic if self.classes else spark_objectives.squared
        return judge(self.X, self.y, *found, self.penalty)

    @property
    def solvers(self) -> tuple[str, ...]:
        """Those of MLlib: normal equations up to 4,096 features, for least squares."""
        return ("l-bfgs",) if self.classes or self.X.shape[1] > 4096 else ("l-bfgs", "normal")


def pose(key: str) -> Problem:
    """The problem of a name: "net/SET" or "logistic/SET"."""
    family, name = key.split("/")
    if family == "logistic":
        X, y = sparse_sets.load_classes(name)
        return Problem(
            key, sparse_sets.title(name), X, y, Penalty(spark_objectives.strongest_logistic(X, y) / DIVISOR, 0)
        )
    X, y = sparse_sets.generated(**GENERATED) if name == "generated" else sparse_sets.load(name)
    alpha = 2 * spark_objectives.strongest(X, y) / DIVISOR
    return Problem(key, sparse_sets.title(name), X, y, spark_objectives.stretto_penalty(alpha, 0.5))


# --- the file that both read ----------------------------------------------------------------------------------------


def shared_file(problem: Problem) -> Path:
    """libsvm for sparse features, Parquet with a list column for dense ones; written once."""
    dense = isinstance(problem.X, np.ndarray)
    called = scratch() / problem.key.replace("/", "-")
    path = called.with_suffix(".parquet" if dense else ".libsvm")
    penalty = [problem.penalty.l1, problem.penalty.l2]
    np.savez(called.with_suffix(".npz"), features=problem.X.shape[1], penalty=penalty, y=problem.y)
    if path.exists():
        return path
    if dense:
        import pyarrow as pa
        import pyarrow.parquet as pq

        n, p = problem.X.shape
        flat = pa.array(np.ascontiguousarray(problem.X).ravel())
        lists = pa.ListArray.from_arrays(pa.array(np.arange(0, n * p + 1, p, dtype=np.int32)), flat)
        rows = max(1, n // (4 * THREADS))
        pq.write_table(pa.table({"label": problem.y, "values": lists}), path, row_group_size=rows)
    else:
        from sklearn.datasets import dump_svmlight_file

        label = (problem.y > 0).astype(float) if problem.classes else problem.y
        dump_svmlight_file(problem.X.tocsr(), label, str(path), zero_based=False)
    return path


def read_file(path: Path, features: int, classes: bool) -> tuple[Any, Floats]:
    """Features and target as Stretto takes them."""
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        table = pq.read_table(path)
        y = table["label"].to_numpy()
        return table["values"].combine_chunks().values.to_numpy().reshape(len(y), -1), y
    from sklearn.datasets import load_svmlight_file

    X, y = load_svmlight_file(str(path), n_features=features, zero_based=False)
    return X, (2 * y - 1 if classes else y)


def frame(session: Session, path: Path, features: int) -> Any:
    """The same as a data frame of Spark in its cache."""
    if path.suffix == ".parquet":
        from pyspark.ml.functions import array_to_vector

        read = session.spark.read.parquet(str(path))
        made = read.select("label", array_to_vector("values").alias("features"))
    else:
        made = session.spark.read.format("libsvm").option("numFeatures", str(features)).load(str(path))
    made = made.repartition(THREADS).cache()
    made.count()
    return made


# --- fits -----------------------------------------------------------------------------------------------------------


def spark_fit(problem: Problem, data: Any, solver: str, iterations: int) -> tuple[Fitted, list[float]]:
    """MLlib's coefficients after at most so many iterations, and its objective after each, in the units of the data."""
    how: dict[str, Any] = {"maxIter": iterations, "tol": 1e-12, "standardization": False, "fitIntercept": True}
    if problem.classes:
        from pyspark.ml.classification import LogisticRegression

        model = LogisticRegression(regParam=problem.penalty.l1, elasticNetParam=1.0, family="binomial", **how).fit(data)
        unit = 1.0
    else:
        from pyspark.ml.regression import LinearRegression

        spread = spark_objectives.spread_of(problem.y, solver)
        reg, elastic = spark_objectives.spark_penalty(problem.penalty, spread)
        model = LinearRegression(regParam=reg, elasticNetParam=elastic, solver=solver, **how).fit(data)
        unit = spread**2
    history = [unit * value for value in model.summary.objectiveHistory]
    return (model.coefficients.toArray(), float(model.intercept)), history


def stretto_fit(penalty: Penalty, X: Any, y: Floats, classes: bool, tol: float) -> Fitted:
    """Stretto's coefficients at a tolerance."""
    import stretto as st

    how: dict[str, Any] = {"tol": tol, "max_iter": 1_000, "n_jobs": THREADS}
    if classes:
        sorter = st.LogisticRegression(C=1 / (len(y) * penalty.l1), l1_ratio=1.0, **how).fit(X, y)
        return sorter.coef_[0], float(sorter.intercept_[0])
    alpha = penalty.l1 + penalty.l2
    net = st.ElasticNet(alpha, l1_ratio=penalty.l1 / alpha, **how).fit(X, y)
    return net.coef_, float(net.intercept_)


# --- one fit in a process of its own ----------------------------------------------------------------------------------


def one_fit(who: str, key: str, setting: str, *solver: str) -> dict[str, float]:
    """Read the file and fit, in this process."""
    path, features, penalty, y = asked_of(key)
    classes = key.startswith("logistic")
    if who == "stretto":
        began = time.perf_counter()
        X, target = read_file(path, features, classes)
        read = time.perf_counter() - began
        stretto_fit(penalty, X, target, classes, float(setting))
        return {"read": read, "fit": time.perf_counter() - began - read, **usage()}
    with open_session() as session:
        began = time.perf_counter()
        data = frame(session, path, features)
        read = time.perf_counter() - began
        spark_fit(Problem(key, key, np.empty((0, features)), y, penalty), data, solver[0], int(setting))
        fit = time.perf_counter() - began - read
        return {"read": read, "fit": fit, **session_usage(session)}


def asked_of(key: str) -> tuple[Path, int, Penalty, Floats]:
    """File, features, penalty and target of a problem that `shared_file` wrote, without loading it."""
    called = scratch() / key.replace("/", "-")
    [path] = [called.with_suffix(end) for end in (".parquet", ".libsvm") if called.with_suffix(end).exists()]
    with np.load(called.with_suffix(".npz")) as kept:
        return path, int(kept["features"]), Penalty(*map(float, kept["penalty"])), kept["y"]


if __name__ == "__main__":
    print(json.dumps(one_fit(*sys.argv[1:])), flush=True)
