"""Figure 8: topic models. Figure 9: matrix factorisation by alternating least squares.

Petuum is not available here. It is stood in for by the same job in ways that the paper names as Petuum's. Topic models:
every row is requested by a message of its own; and workers do not share a cache. Matrix factorisation: factors are
placed by hash.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from bench import lda_sets, sets, table_lda

import stretto as st

from . import flexps_plot as plot
from . import report
from .flexps_jobs import THREADS, cluster

DOCUMENTS, TOPICS, BATCHES, PASSES = 150, 50, 4, 6
LDA_NODES, LDA_THREADS = 4, 2
PER_TOKEN = 5e-6  # seconds

RANK, EPOCHS, ALS_NODES, REG = 32, 6, 8, 0.05
PER_PRODUCT = 1e-9  # seconds for one of the rank² products of a rating
PAD = 2048  # rows in a multiple of this many: a node has whole chunks, of 256 rows


class OneByOne:
    """A table of which every row is requested by a message of its own; all requests are sent before the first wait."""

    def __init__(self, table: Any) -> None:
        self._table, self.add = table, table.add

    def read(self, keys: Any) -> Any:
        """The rows [n, cols]."""
        pending = [self._table.read_async(np.array([key])) for key in np.asarray(keys)]
        return np.concatenate([one.get() for one in pending])


class _RowWorker:
    """A worker whose tables are read row by row."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker

    def __getattr__(self, name: str) -> Any:
        return getattr(self._worker, name)

    def table(self, name: str) -> Any:
        """The table, read row by row."""
        return OneByOne(self._worker.table(name))


def _topics(name: str, comm: Any, rows_together: bool, shared_cache: bool) -> list[tuple[float, float]]:
    """(seconds, log-likelihood of a token) after each pass."""
    workers = LDA_NODES * LDA_THREADS
    corpus = table_lda.Corpus(lda_sets.load("ap")[:DOCUMENTS], TOPICS, workers, BATCHES)
    way = table_lda.Way(name, 1, st.tables.SSP(1), comm)
    ends = table_lda.Passes(corpus, 1)
    work = table_lda.worker_of(corpus, way, PASSES, ends)
    options: dict[str, Any] = {"nodes": LDA_NODES, "threads": LDA_THREADS}
    if not shared_cache:  # each worker is a process with a cache of its own, and has its share of the link
        options = {"nodes": workers, "threads": 1, "link": f"{1000 / LDA_THREADS:g}Mbit"}
    result = st.run(
        work if rows_together else lambda w: work(_RowWorker(w)),
        tables=table_lda.tables_of(corpus),
        workers=workers,
        sync=way.sync,
        comm=comm,
        runtime=cluster(seconds_per_item=PER_TOKEN, **options),
        watch=ends.watch,
        every=1,
    )
    return [(look.seconds, look.objective) for look in result.history]


def fig8() -> tuple[str, str]:
    """Log-likelihood against time, staleness 1."""
    if "ap" not in lda_sets.present():
        raise SystemExit("Figure 8 needs the corpus ap: set STRETTO_DATA to the folder of the real sets")
    ways = {
        "rows together, pushed, shared cache": (st.tables.Eager(), True, True),
        "rows together, pulled, shared cache": (st.tables.Lazy(), True, True),
        "a request for each row, shared cache": (st.tables.Lazy(), False, True),
        "a request for each row, a cache for each worker": (st.tables.Lazy(), False, False),
    }
    curves = {}
    for name, way in ways.items():
        curves[name] = _topics(name, *way)
        print(name, curves[name][-1], flush=True)
    target = min(max(value for _, value in curve) for curve in curves.values())
    took = {name: next(at for at, value in curve if value >= target) for name, curve in curves.items()}
    ours = min(list(took.values())[:2])
    rows = [
        [
            name,
            f"{curve[-1][0] / PASSES * 1e3:.0f}",
            f"{curve[-1][1]:.3f}",
            f"{took[name]:.3f}",
            f"{took[name] / ours:.1f}×",
        ]
        for name, curve in curves.items()
    ]
    title = f"Topic model, AP ({DOCUMENTS} documents), staleness 1"
    plot.draw("fig8", [plot.Panel(title, "virtual seconds", "log-likelihood of a token", curves)])
    worst = max(took.values()) / ours
    by_row = took["a request for each row, shared cache"] / ours
    found = (
        f"to {target:.2f} a token: with a request for each row {by_row:.1f} times the time, and with a cache for each "
        f"worker as well {worst:.1f} times; Petuum itself was not run"
    )
    columns = ["way", "a pass, ms", "log-likelihood at the end", f"seconds to {target:.2f}", "ratio"]
    verdict = (
        "agrees with a stand-in" if worst >= 2 else "direction only, with a stand-in" if worst > 1.1 else "differs"
    )
    return f"{verdict}: {found}", report.table(columns, rows)


def _padded(count: int) -> int:
    return -(-count // PAD) * PAD


def _own(worker: Any, rows: int) -> Any:
    """The rows of a part: those of its share of the data."""
    return np.arange(worker.part * rows // worker.parts, (worker.part + 1) * rows // worker.parts)


def half_step(worker: Any, ratings: Any, mine: Any, others: Any) -> None:
    """Solve for the factors of a part's rows, the others fixed. ratings: those of the part, sparse [rows, others]."""
    keys, at = np.unique(ratings.indices, return_inverse=True)
    rows = _own(worker, mine.rows)
    fixed = others.read(keys) if len(keys) else np.zeros((0, RANK))
    before = mine.read(rows)
    after = before.copy()
    worker.work(ratings.nnz * RANK**2)
    for row in np.flatnonzero(np.diff(ratings.indptr)):
        own = slice(ratings.indptr[row], ratings.indptr[row + 1])
        A = fixed[at[own]]
        count = own.stop - own.start
        after[row] = np.linalg.solve(A.T @ A + REG * count * np.eye(RANK), A.T @ ratings.data[own])
    mine.add(rows, after - before)


def squares(worker: Any, ratings: Any, users: Any, items: Any) -> float:
    """The sum of squared errors of a part."""
    U, V = users.read(_own(worker, users.rows)), items.read()
    row = np.repeat(np.arange(ratings.shape[0]), np.diff(ratings.indptr))
    return float(((ratings.data - np.einsum("ij,ij->i", U[row], V[ratings.indices])) ** 2).sum())


def _hashed(rows: Any, nodes: int) -> Any:
    """A node for each chunk, by hash."""
    return ((rows // 256 + 1) * 2654435761 % 2**32 >> 16) % nodes


def _factors(partition: Any) -> list[tuple[float, float]]:
    """(seconds, RMSE) after each epoch."""
    import scipy.sparse

    folder = sets.real_data()
    assert folder is not None
    data = st.read(folder / "movielens-1m" / "ratings.tsv.xz", duplicates="last")
    draw = np.random.default_rng(3)
    shape = _padded(data.shape[0]), _padded(data.shape[1])
    # Users and items in a random order, so that all parts have about as many ratings.
    place = [draw.permutation(count)[:real] for count, real in zip(shape, data.shape, strict=True)]
    matrix = (data.values - data.values.mean(), (place[0][data.rows], place[1][data.cols]))
    by_user = scipy.sparse.csr_array(matrix, shape=shape)
    by_item = scipy.sparse.csr_array(by_user.T)
    users, items = (st.state(0.1 * draw.standard_normal((count, RANK))) for count in shape)
    parts = ALS_NODES * THREADS
    options: dict[str, Any] = {"parts": parts, "partition": {"mine": partition, "others": partition}}
    solve_users = st.unit(half_step, by_user, users, items, name="users", **options)
    solve_items = st.unit(half_step, by_item, items, users, name="items", **options)
    error = st.unit(squares, by_user, users, items, parts=parts, partition={"users": partition, "items": partition})
    turn = st.seq(solve_users, solve_items, error)
    result = st.run(st.loop(turn, times=EPOCHS), runtime=cluster(nodes=ALS_NODES, seconds_per_item=PER_PRODUCT))
    seconds, curve = 0.0, []
    for stage in result.stages:
        if stage.unit == "squares":
            curve.append((seconds, float(np.sqrt((stage.value or 0.0) / len(data.values)))))
        else:
            seconds += stage.seconds + stage.transition
    return curve


def fig9() -> tuple[str, str]:
    """Training error against time."""
    if sets.real_data() is None:
        raise SystemExit("Figure 9 needs MovieLens-1M: set STRETTO_DATA to the folder of the real sets")
    ways: dict[str, Any] = {"factors with their ratings (range partition)": "range", "factors by hash": _hashed}
    curves = {}
    for name, way in ways.items():
        curves[name] = _factors(way)
        print(name, curves[name][-1], flush=True)
    ends = [curve[-1] for curve in curves.values()]
    rows = [
        [name, f"{1e3 * end / EPOCHS:.1f}", f"{error:.4f}", f"{end / ends[0][0]:.2f}×"]
        for name, (end, error) in zip(curves, ends, strict=True)
    ]
    plot.draw("fig9", [plot.Panel("ALS, MovieLens-1M, rank 32", "virtual seconds", "training RMSE", curves)])
    hashed = ends[1][0] / ends[0][0]
    found = f"the same errors, with factors by hash in {hashed:.2f} times the time; Petuum itself was not run"
    verdict = "direction agrees, with a stand-in" if hashed > 1.05 else "differs"
    return f"{verdict}: {found}", report.table(["way", "an epoch, ms", "RMSE at the end", "time"], rows)
