"""Matrix factorisation beside Spark on MovieLens-1M: ALS of MLlib, and SGD in PySpark with joins and with broadcasts.

ALS of MLlib multiplies its penalty by the number of ratings of a row or column, so that without biases its objective is
that of `st.MatrixFactorization(biases=False)`: Σ (r − w_i·h_j)² + λ(‖w_i‖² + ‖h_j‖²) over the ratings, λ = 0.05. One
NumPy function computes test errors and objectives of both. The target is 0.1 % above the best test RMSE that MLlib
reaches in 5, 10 or 20 iterations; each program gets the smallest number of iterations or epochs that reaches it.

SGD in PySpark is the stratified one of `reproductions/spark_sgd.py`, on 50,000 of the ratings: an epoch with updates
in plain Python, as such scripts are written, and with compiled ones, which leave Spark's own cost.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from bench import sets

import stretto as st

from . import report, spark_sgd, spark_sgd_broadcast, spark_sgd_joins
from .spark_objectives import factor_objective, rmse
from .spark_session import (
    CAUTION,
    START,
    THREADS,
    Session,
    alone,
    from_start,
    in_turn,
    open_session,
    require,
    scratch,
    session_usage,
    times,
    usage,
)

RANKS, REG, CLOSE = (10, 32), 0.05, 1e-3
ITERATIONS = (5, 10, 20)
EPOCHS = (2, 4, 6, 10, 20, 40)
OURS: dict[str, dict[str, Any]] = {
    "als": {"solver": "als", "biases": False},
    "sgd": {"solver": "sgd", "biases": False},
    "sgd with biases": {"solver": "sgd"},
}
SUBSET, SGD_EPOCHS = 50_000, 3


def rating_file(train: st.Data) -> Path:
    """The ratings to learn from as Parquet, which both programs read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = scratch() / "movielens.parquet"
    columns = {"user": train.rows.astype(np.int32), "item": train.cols.astype(np.int32)}
    pq.write_table(pa.table({**columns, "rating": train.values.astype(np.float32)}), path)
    return path


def frame(session: Session, path: Path) -> Any:
    """The ratings in Spark's cache."""
    data = session.spark.read.parquet(str(path)).repartition(THREADS).cache()
    data.count()
    return data


def spark_fit(data: Any, rank: int, iterations: int) -> Any:
    """MLlib's model, with as many blocks as threads."""
    from pyspark.ml.recommendation import ALS

    how: dict[str, Any] = {"userCol": "user", "itemCol": "item", "ratingCol": "rating", "implicitPrefs": False}
    als = ALS(rank=rank, maxIter=iterations, regParam=REG, seed=0, numUserBlocks=THREADS, numItemBlocks=THREADS, **how)
    model = als.fit(data)
    model.userFactors.count()  # the factors of the last half-iteration are computed on demand
    return model


def factors_of(model: Any, shape: tuple[int, int], rank: int) -> tuple[Any, Any]:
    """W [m, K] and H [n, K]; zeros for rows and columns without ratings."""
    made = []
    for table, size in ((model.userFactors, shape[0]), (model.itemFactors, shape[1])):
        factors = np.zeros((size, rank), np.float32)
        for row in table.collect():
            factors[row["id"]] = row["features"]
        made.append(factors)
    return made[0], made[1]


def stretto_fit(ratings: Any, rank: int, kind: str, epochs: int) -> st.MatrixFactorization:
    """Our model."""
    model = st.MatrixFactorization(rank, l2_regularization=REG, max_iter=epochs, n_jobs=THREADS, random_state=0)
    model.set_params(**OURS[kind]).fit(ratings)
    return model


def our_error(model: st.MatrixFactorization, test: st.Data) -> float:
    """Test RMSE."""
    predicted = model.predict(np.column_stack([test.rows, test.cols])).astype(np.float64)
    return float(np.sqrt(np.mean((predicted - test.values) ** 2)))


def als_rows(session: Session, one: sets.RatingSet) -> tuple[list[list[object]], list[list[object]]]:
    """Seconds to the same test RMSE, and from the start of a process."""
    path, rows, whole = rating_file(one.train), [], []
    data, ratings, test = frame(session, path), one.train.to_csr(), one.test
    spark_fit(data, 2, 2)
    for kind in OURS:
        stretto_fit(ratings, 2, kind, 2)
    for rank in RANKS:
        errors, least = {}, 0.0
        for iterations in ITERATIONS:
            W, H = factors_of(spark_fit(data, rank, iterations), one.train.shape, rank)
            errors[iterations] = rmse(test.rows, test.cols, test.values, W, H)
            least = factor_objective(one.train.rows, one.train.cols, one.train.values, W, H, REG)
        target = min(errors.values()) * (1 + CLOSE)
        needed = next(iterations for iterations in ITERATIONS if errors[iterations] <= target)
        print(f"rank {rank}: MLlib {errors}, objective {least:.6g}", flush=True)
        programs: dict[str, Callable[[], Any]] = {"MLlib": partial(spark_fit, data, rank, needed)}
        chosen: dict[str, tuple[int, float, float]] = {}
        for kind in OURS:
            for epochs in EPOCHS:
                model = stretto_fit(ratings, rank, kind, epochs)
                error = our_error(model, test)
                if error <= target:
                    break
            value = np.nan
            if kind == "als":
                full = stretto_fit(ratings, rank, kind, ITERATIONS[-1])
                found = full.user_factors_, full.item_factors_
                value = factor_objective(one.train.rows, one.train.cols, one.train.values, *found, REG)
            chosen[kind] = epochs, error, value
            if error <= target:
                programs[kind] = partial(stretto_fit, ratings, rank, kind, epochs)
        took = in_turn(programs, session)
        theirs = took["MLlib"]
        rows.append(
            [rank, f"MLlib ALS, {needed}", f"{errors[needed]:.4f}", f"{least:.5g}", f"{theirs.seconds:.2f}",
             f"{theirs.processor:.2f}", "", ""]
        )  # fmt: skip
        for kind, (epochs, error, value) in chosen.items():
            shown = "" if np.isnan(value) else f"{value:.5g}"
            if kind not in took:
                cells = [f"> {epochs} epochs", "", "", ""]
            else:
                ratios = times(took[kind].seconds, theirs.seconds), times(took[kind].processor, theirs.processor)
                cells = [f"{took[kind].seconds:.3f}", f"{took[kind].processor:.3f}", *ratios]
            rows.append([rank, f"Stretto {kind}, {epochs}", f"{error:.4f}", shown, *cells])
            print(rows[-1], flush=True)
        mine = alone("reproductions.spark_mf", "stretto", str(rank), str(chosen["als"][0]))
        java = alone("reproductions.spark_mf", "spark", str(rank), str(needed))
        whole.append([rank, *from_start(mine, java)])
    data.unpersist()
    return rows, whole


def sgd_rows(session: Session, train: st.Data) -> list[list[object]]:
    """Seconds of an epoch of SGD in PySpark and of ours, on a subset."""
    which = np.random.default_rng(0).permutation(len(train))[:SUBSET]
    rows, cols, values = train.rows[which], train.cols[which], train.values[which]
    made = spark_sgd.blocks(rows, cols, values, train.shape, THREADS)
    ratings = st.Data.from_arrays(rows, cols, values, train.shape).to_csr()
    ours: list[float] = []
    used: list[float] = []
    table: list[tuple[str, float, float, float]] = []
    for way, kind in (("joins", "python"), ("broadcast", "python"), ("joins", "numba"), ("broadcast", "numba")):
        start = {"joins": spark_sgd_joins.train, "broadcast": spark_sgd_broadcast.train}[way]
        how = spark_sgd.Settings(kind=kind, mean=float(values.mean()), reg=REG)
        theirs, spent, error = [], [], np.inf
        following = start(session.spark.sparkContext, made, train.shape, how)
        for _ in range(SGD_EPOCHS):
            before, began = session.processor(), time.perf_counter()
            W, H = next(following)
            theirs.append(time.perf_counter() - began)
            spent.append(session.processor() - before)
            error = rmse(rows, cols, values, W, H)
            before, began = time.process_time(), time.perf_counter()
            stretto_fit(ratings, how.rank, "sgd", 20)
            ours.append((time.perf_counter() - began) / 20)
            used.append((time.process_time() - before) / 20)
        # The first epoch starts the Python workers and compiles.
        table.append((f"PySpark, {way}, {kind}", statistics.median(theirs[1:]), statistics.median(spent[1:]), error))
        print(table[-1], flush=True)
    mine, processor = statistics.median(ours), statistics.median(used)
    shown: list[list[object]] = [["Stretto sgd", f"{mine:.4f}", f"{processor:.4f}", "", "", ""]]
    for name, seconds, processor_there, error in table:
        ratios = times(mine, seconds), times(processor, processor_there)
        shown.append([name, f"{seconds:.2f}", f"{processor_there:.2f}", f"{error:.4f}", *ratios])
    return shown


def one_fit(who: str, rank: str, setting: str) -> dict[str, float]:
    """Read the file and fit, in this process."""
    path = scratch() / "movielens.parquet"
    if who == "stretto":
        import pyarrow.parquet as pq

        began = time.perf_counter()
        table = pq.read_table(path)
        user, item, rating = (table[name].to_numpy() for name in ("user", "item", "rating"))
        read = time.perf_counter() - began
        stretto_fit(
            st.Data.from_arrays(user, item, rating, (user.max() + 1, item.max() + 1)), int(rank), "als", int(setting)
        )
        return {"read": read, "fit": time.perf_counter() - began - read, **usage()}
    with open_session() as session:
        began = time.perf_counter()
        data = frame(session, path)
        read = time.perf_counter() - began
        spark_fit(data, int(rank), int(setting))
        fit = time.perf_counter() - began - read
        return {"read": read, "fit": fit, **session_usage(session)}


def main() -> None:
    """Measure and write the page."""
    require()
    one = next(islice(sets.rating_sets(big=False), 1), None)
    if one is None:
        raise SystemExit("MovieLens-1M was not found; set STRETTO_DATA to the folder of the real sets")
    with open_session() as session:
        rows, whole = als_rows(session, one)
        sgd = sgd_rows(session, one.train)
    columns = ["rank", "program, iterations", "test RMSE", "objective after 20", "seconds", "processor s", "faster"]
    epoch = [
        "program",
        "seconds of an epoch",
        "processor s",
        f"training RMSE after {SGD_EPOCHS}",
        "longer than Stretto",
    ]
    body = "\n\n".join(
        [
            "## Seconds to the same test RMSE, start-up excluded",
            report.table([*columns, "by processor s"], rows),
            "## From the start of a process", report.table(["rank", *START], whole),
            f"## SGD in PySpark: an epoch over {SUBSET:,} ratings, rank 10",
            "Ours is a twentieth of a fit of 20 epochs, laying out included.",
            report.table([*epoch, "by processor s"], sgd),
        ]
    )  # fmt: skip
    about = f"{report.text(__doc__)}\n\n{CAUTION}"
    report.save("spark_mf", "Matrix factorisation beside Spark", about, body, ("pyspark",))


if __name__ == "__main__":
    print(json.dumps(one_fit(*sys.argv[1:])), flush=True)
