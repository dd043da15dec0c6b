"""Logistic regression for two classes: `solver="svrg"` beside scikit-learn's saga and lbfgs, to the same objective.

The objective is scikit-learn's with C = 1, Σ log(1 + exp(−yz)) + ½‖w‖² or + ‖w‖₁ (then without lbfgs), with a free
intercept.
IMDB (7 stars and more; logarithms of counts), 20news (the first ten classes against the others), a9a, w8a and ijcnn1
are sparse, CSR with float64 values. The setting in brackets is the number of epochs or iterations. `Stretto, auto` is
the default solver, whose setting is its tolerance. All on one thread.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import stretto as st

from . import report, sets, sparse_sets
from .same_objective import Race, rules

METHODS = ("svrg", "svrg++", "katyusha")
AUTO = "Stretto, auto"
PEERS = ("saga", "lbfgs")
NAMES = ("a9a", "w8a", "ijcnn1", "20news", "imdb")
CLOSE = 1e-3
PENALTIES = {"l2": 0.0, "l1": 1.0}
C = 1.0
COUNTS = tuple(sorted({round(1.5**k) for k in range(18)}))
TOLS = tuple(10.0**-k for k in np.arange(1, 5.5, 0.5))


@dataclass(frozen=True)
class Case:
    """A problem: X [n, p] by rows, y [n], what scikit-learn calls C, and the penalty."""

    X: Any
    y: Any
    C: float
    penalty: str

    def objective(self, model: Any) -> float:
        """C Σ loss + the penalty."""
        coef, ratio = np.asarray(model.coef_).ravel(), PENALTIES[self.penalty]
        z = np.asarray(self.X @ coef) + model.intercept_
        loss = float(np.logaddexp(0.0, -self.y * z).sum())
        return self.C * loss + ratio * float(np.abs(coef).sum()) + 0.5 * (1 - ratio) * float(coef @ coef)

    def ours(self, method: str) -> Callable[[Any], Any]:
        """A fit of ours with this number of epochs."""

        def fit(epochs: int) -> Any:
            model = st.LogisticRegression(
                self.C, l1_ratio=PENALTIES[self.penalty], solver="svrg", variance_reduction=method, tol=0,
                max_iter=epochs, n_jobs=1,
            )  # fmt: skip
            return model.fit(self.X, self.y)

        return fit

    def auto(self, tol: float) -> Any:
        """A fit of our default solver."""
        return st.LogisticRegression(self.C, l1_ratio=PENALTIES[self.penalty], tol=tol, n_jobs=1).fit(self.X, self.y)

    def theirs(self, solver: str) -> Callable[[Any], Any]:
        """A fit of scikit-learn's by so many iterations."""

        def fit(rounds: int) -> Any:
            from sklearn.linear_model import LogisticRegression

            ratio = PENALTIES[self.penalty]
            model = LogisticRegression(
                C=self.C, l1_ratio=ratio, solver=solver, tol=1e-12, max_iter=rounds, random_state=0
            )
            return model.fit(self.X, self.y)

        return fit


def main() -> None:
    """Measure every set under both penalties."""
    if sets.real_data() is None:
        print("the real sets are missing: set STRETTO_DATA to their folder")
        return
    warnings.simplefilter("ignore")  # all are stopped short on purpose
    columns = ["set", "penalty", *(f"{title}, s" for title in (*METHODS, AUTO, *PEERS)), "ratio"]
    print(" | ".join(columns), flush=True)
    rows = []
    for name in sparse_sets.chosen(NAMES):
        X, y = sparse_sets.load_classes(name)
        for penalty in PENALTIES:
            rows.append([sparse_sets.title(name), penalty, *measured(Case(X.tocsr(), y, C, penalty))])
            print(" | ".join(rows[-1]), flush=True)
    about = f"""{report.text(__doc__)}

{rules(CLOSE)}

`ratio` is the time of our fastest `variance_reduction` over that of scikit-learn's fastest solver."""
    title = "Logistic regression by variance reduction beside scikit-learn"
    body = report.table(columns, rows)
    if len(sparse_sets.chosen(NAMES)) < len(NAMES):
        print(f"\n{body}\n\nBENCH_SETS restricts this run: the table is not saved")
        return
    report.save("svrg", title, about, body, ("scikit-learn", "scipy"))


def measured(case: Case) -> list[str]:
    """The cells of a row, after the first two."""
    few = np.linspace(0, len(case.y) - 1, 300).astype(np.int64)
    small = Case(case.X[few], case.y[few], case.C, case.penalty)
    for method in METHODS:
        small.ours(method)(1)
    small.auto(0.1)
    peers = [solver for solver in PEERS if case.penalty == "l2" or solver != "lbfgs"]
    programs: dict[str, Callable[[Any], Any]] = {method: case.ours(method) for method in METHODS}
    programs |= {AUTO: case.auto} | {solver: case.theirs(solver) for solver in peers}
    settings = dict.fromkeys(programs, COUNTS) | {AUTO: TOLS}
    found = Race(case.objective, programs, settings).run(case.objective(case.auto(1e-6)), CLOSE)
    ours = [found[title].seconds for title in METHODS if found[title].setting is not None]
    others = [found[title].seconds for title in peers if found[title].setting is not None]
    ratio = f"{min(ours) / min(others):.2f}" if ours and others else "—"
    return [*(found[title].cell if title in found else "—" for title in (*METHODS, AUTO, *PEERS)), ratio]


if __name__ == "__main__":
    main()
