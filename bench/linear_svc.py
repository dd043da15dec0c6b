"""Linear support vector machines beside scikit-learn's `LinearSVC`, which is liblinear's dual coordinate descent.

The objective is scikit-learn's, ½‖w‖² + ½b² + C Σ max(0, 1 − yz), or with squares. IMDB (7 stars and more), 20news (the
first ten classes against the others), a9a, w8a and ijcnn1 are sparse; `sparse n × p` are generated, with entries of
normal size, a tenth of the features in the true model and a tenth of the labels turned round. `20 classes` is 20news, a
problem for each class. CSR with float64 values for both; one thread, except where the row says so.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import stretto as st

from . import report, sets, sparse_sets
from .same_objective import Race, ratio, rules

Floats = NDArray[np.float64]

OURS, THEIRS = "Stretto", "scikit-learn"
CLOSE = 1e-3
LOSSES, CS = ("hinge", "squared_hinge"), (0.01, 1.0)
TOLS = {OURS: [10.0**-k for k in np.arange(1, 6.5, 0.5)], THEIRS: [10.0**-k for k in np.arange(0, 6.5, 0.5)]}
GENERATED = {
    "sparse 5,000 × 100,000, 0.1 %": (5_000, 100_000, 0.001),
    "sparse 20,000 × 2,000, 1 %": (20_000, 2_000, 0.01),
    "sparse 50,000 × 20,000, 0.1 %": (50_000, 20_000, 0.001),
}
REAL = ("imdb", "20news", "a9a", "w8a", "ijcnn1")


@dataclass(frozen=True)
class Case:
    """A problem: X [n, p] by rows, y [n], what scikit-learn calls C and loss, and the threads that may be used."""

    title: str
    X: Any
    y: Any
    C: float
    loss: str
    threads: int = 1

    def objective(self, model: Any) -> float:
        """Of all problems together."""
        total = 0.0
        classes = np.unique(self.y)
        for k, (coef, intercept) in enumerate(zip(model.coef_, model.intercept_, strict=True)):
            signs = np.where(self.y == (classes[1] if len(classes) == 2 else classes[k]), 1.0, -1.0)
            slack = np.maximum(0.0, 1.0 - signs * (self.X @ coef + intercept))
            data = float(slack.sum() if self.loss == "hinge" else slack @ slack)
            total += 0.5 * float(coef @ coef + intercept**2) + self.C * data
        return total

    def ours(self, tol: float) -> Any:
        """A fit of ours."""
        model = st.LinearSVC(self.C, loss=self.loss, tol=tol, max_iter=1_000_000, n_jobs=self.threads)
        return model.fit(self.X, self.y)

    def theirs(self, tol: float) -> Any:
        """A fit of scikit-learn's."""
        from sklearn.svm import LinearSVC

        model = LinearSVC(C=self.C, loss=self.loss, dual=True, tol=tol, max_iter=1_000_000, random_state=0)
        return model.fit(self.X, self.y)


def generated(n: int, p: int, density: float) -> tuple[Any, Floats]:
    """A sparse problem with a known model."""
    import scipy.sparse

    rng = np.random.default_rng(0)
    X = scipy.sparse.random(n, p, density=density, format="csr", random_state=0, data_rvs=rng.standard_normal)
    true = rng.standard_normal(p) * (rng.random(p) < 0.1)
    return X, np.where((X @ true > 0) ^ (rng.random(n) < 0.1), 1.0, -1.0)


def problems() -> Iterator[tuple[str, Any, Any, int]]:
    """Title, X, y and threads."""
    for title, size in GENERATED.items():
        X, y = generated(*size)
        yield title, X, y, 1
    if sets.real_data() is None:
        return
    for name in REAL:
        X, y = sparse_sets.load_classes(name)
        yield sparse_sets.title(name), X.tocsr(), y, 1
    X, y = sparse_sets.load("20news")
    for threads in (1, 2):
        yield "20news, 20 classes", X.tocsr(), y, threads


def main() -> None:
    """Measure every problem with both losses."""
    warnings.simplefilter("ignore")  # both are stopped short on purpose
    columns = ["set", "threads", "loss", "C", f"{OURS}, s (tol)", f"{THEIRS}, s (tol)", "ratio"]
    rows = []
    print(" | ".join(columns), flush=True)
    for title, X, y, threads in problems():
        for loss in LOSSES:
            for C in CS:
                case = Case(title, X, y, C, loss, threads)
                few = np.linspace(0, len(y) - 1, 200).astype(np.int64)
                Case(title, X[few], y[few], C, loss, threads).ours(0.1)
                least = case.objective(case.ours(0.1 * CLOSE))
                race = Race(case.objective, {OURS: case.ours, THEIRS: case.theirs}, TOLS, threads)
                found = race.run(least, CLOSE)
                rows.append([title, threads, loss, f"{C:g}", *(one.cell for one in found.values()), ratio(found, OURS)])
                print(" | ".join(map(str, rows[-1])), flush=True)
    about = f"{report.text(__doc__)}\n\n{rules(CLOSE)}\n\n`ratio` is Stretto's time over scikit-learn's."
    title = "Linear support vector machines beside scikit-learn (liblinear)"
    report.save("linear_svc", title, about, report.table(columns, rows), ("scikit-learn", "scipy"))


if __name__ == "__main__":
    main()
