"""Samples per second against the entries of a column: Table 4. Synthetic sparse columns, prioritised rounds."""

from __future__ import annotations

import numpy as np
import scipy.sparse

import stretto as st
from stretto.programs.coordinates.arguments import LOSSES
from stretto.programs.coordinates.regression import SparseRegression
from stretto.programs.run import run

from . import report
from .smpframe_sets import Floats

ROWS, COLUMNS = 50_000, 1_000
ENTRIES = (1_000, 10_000, 20_000)
SECONDS = 3.0
WARM = 50  # rounds that do not count


def columns(entries: int) -> tuple[scipy.sparse.csc_matrix, Floats]:
    """COLUMNS columns with so many normal entries each, at random places."""
    rng = np.random.default_rng(entries)
    places = [np.sort(rng.permutation(ROWS)[:entries]).astype(np.int32) for _ in range(COLUMNS)]
    values = rng.standard_normal(entries * COLUMNS)
    indptr = np.arange(COLUMNS + 1) * entries
    X = scipy.sparse.csc_matrix((values, np.concatenate(places), indptr), shape=(ROWS, COLUMNS))
    return X, X @ rng.standard_normal(COLUMNS) + rng.standard_normal(ROWS)


def table4() -> tuple[str, str]:
    """Millions of samples (entries of the columns updated) a second."""
    rows: dict[tuple[str, int], list[str]] = {(loss, threads): [] for loss in LOSSES for threads in (1, 2)}
    rates: dict[tuple[str, int, int], float] = {}
    for entries in ENTRIES:
        X, y = columns(entries)
        for (loss, threads), cells in rows.items():
            target = y if loss == "squared" else np.where(y > 0, 1.0, -1.0)
            alpha = 1e-4 * float(np.abs(X.T @ target).max()) / ROWS  # small, so that all of them keep moving
            program = SparseRegression(X, target, alpha, loss=loss, schedule=st.schedule.prioritised(64))
            runtime = st.Threads(threads)
            run(program, rounds=WARM, every=WARM, runtime=runtime)
            result = run(program, seconds=SECONDS, every=1 << 30, runtime=runtime)
            last = result.history[-1]
            rate = rates[loss, threads, entries] = last.samples / last.seconds / 1e6
            share = result.schedule_seconds / result.busy_seconds
            each = result.updates / result.rounds
            cells.append(f"{rate:.0f} ({each:.0f} a round, {share:.0%} choosing)")
    found = []
    for loss in LOSSES:
        gains = [rates[loss, 2, entries] / rates[loss, 1, entries] for entries in ENTRIES]
        found.append(f"{loss}: 2 threads over 1 " + ", ".join(f"{gain:.2f}×" for gain in gains))
    names = [f"{entries // 1000}K entries a column" for entries in ENTRIES]
    body = report.table(["loss", "threads", *names], [[*key, *cells] for key, cells in rows.items()])
    about = "Millions of samples a second, jobs of a round, and the share of thread time spent in choosing rounds.\n\n"
    return "; ".join(found) + " at 1K, 10K, 20K", about + body
