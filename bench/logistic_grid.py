"""L1 logistic regression over a grid of C beside liblinear: objective reached and seconds, one thread.

Σ C·log(1 + exp(−y·Xβ)) + ‖β‖₁ without intercept. Ours runs to a duality gap of 1e-4 of the objective. liblinear has no
certificate: its tolerance is lowered tenfold until its objective is within 1e-4 of the best that either found, up to a
minute; its seconds are those of the last fit alone, and a share above 1e-4 says that it did not get there.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np

import stretto as st

from . import report, sparse_sets
from .peers import Floats

GRID = tuple(10.0**power for power in range(-3, 5))
TOLERANCES = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)
CLOSE = 1e-4
LIMIT = 60.0


def objective(X: Any, y: Floats, C: float, coef: Floats) -> float:
    """What both minimise."""
    return float(C * np.logaddexp(0.0, -y * (X @ coef)).sum() + np.abs(coef).sum())


def ours(X: Any, y: Floats, C: float) -> tuple[float, float]:
    """Seconds and objective."""
    began = time.perf_counter()
    model = st.LogisticRegression(C, fit_intercept=False, n_jobs=1, l1_ratio=1.0).fit(X, y)
    return time.perf_counter() - began, objective(X, y, C, model.coef_[0])


def liblinear(X: Any, y: Floats, C: float, best: float) -> tuple[float, float]:
    """Seconds and objective of the loosest tolerance that comes close to `best`, or of the last one tried."""
    from sklearn.linear_model import LogisticRegression

    taken = value = np.inf
    for tol in TOLERANCES:
        model = LogisticRegression(
            C=C, l1_ratio=1.0, solver="liblinear", fit_intercept=False, tol=tol, max_iter=1_000, random_state=0
        )
        began = time.perf_counter()
        model.fit(X, y)
        taken, value = time.perf_counter() - began, objective(X, y, C, model.coef_[0])
        if value <= best * (1 + CLOSE) or taken > LIMIT:
            break
    return taken, value


def main() -> None:
    """Measure every set at every C."""
    rows = []
    for name in sparse_sets.chosen(sparse_sets.CLASSES):
        X, y = sparse_sets.load_classes(name)
        by_rows = X.tocsr() if hasattr(X, "tocsr") else X
        ours(X, y, 1.0)  # compiles
        for C in GRID:
            seconds, value = ours(X, y, C)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                theirs, reached = liblinear(by_rows, y, C, value)
            best = min(value, reached)
            shares = [f"{found / best - 1:.0e}" for found in (value, reached)]
            rows.append(
                [
                    sparse_sets.title(name),
                    f"{C:g}",
                    f"{best:.6g}",
                    shares[0],
                    f"{seconds:.2f}",
                    shares[1],
                    f"{theirs:.2f}",
                ]
            )
    columns = ["set", "C", "best objective", "Stretto above it", "seconds", "liblinear above it", "seconds"]
    title = "L1 logistic regression over a grid of C beside liblinear"
    report.save("logistic_grid", title, report.text(__doc__), report.table(columns, rows), ("scikit-learn",))
