"""Linear models of the scoreboard: kinds of problems, and one objective for all programs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .scoreboard_sets import LinearSet

Floats = NDArray[np.float64]
Solution = tuple[Floats, Floats]  # coefficients [k, p], intercepts [k]


@dataclass(frozen=True)
class Work:
    """A kind of problem. use: the target it takes. l1: share of the L1 penalty, as scikit-learn's `l1_ratio`."""

    title: str
    use: str
    l1: float


WORKS = {
    "lasso": Work("Lasso", "value", 1.0),
    "lasso-path": Work("lasso_path, 100 penalties", "value", 1.0),
    "elastic": Work("ElasticNet, l1_ratio 0.5", "value", 0.5),
    "logistic-l1": Work("LogisticRegression L1", "sign", 1.0),
    "logistic-elastic": Work("LogisticRegression elastic, l1_ratio 0.5", "sign", 0.5),
    "logistic-l2": Work("LogisticRegression L2", "sign", 0.0),
    "softmax-l1": Work("LogisticRegression L1, several classes", "classes", 1.0),
    "softmax-l2": Work("LogisticRegression L2, several classes", "classes", 0.0),
}


@dataclass(frozen=True, eq=False)
class LinearProblem:
    """Σ loss + λ (l1 ‖β‖₁ + ½ (1 − l1) ‖β‖²), intercepts free. divisor: λ = λ_max / divisor."""

    work: str
    data: LinearSet
    divisor: int

    @property
    def l1(self) -> float:
        """Share of the L1 penalty."""
        return WORKS[self.work].l1

    @cached_property
    def y(self) -> Any:
        """[n] the target of this kind of problem."""
        return getattr(self.data, WORKS[self.work].use)

    @cached_property
    def weight(self) -> float:
        """λ. Where there is no L1 penalty, λ_max is that of the L1 problem."""
        X, y = self.data.X, self.y
        if self.y.dtype.kind == "f":
            # The logistic loss at the best constant has the gradient (y − mean) / 2.
            away = (y - y.mean()) * (1.0 if WORKS[self.work].use == "value" else 0.5)
        else:
            away = np.eye(int(y.max()) + 1)[y]
            away -= away.mean(axis=0)
        return float(np.abs(X.T @ away).max()) / (self.l1 or 1.0) / self.divisor

    @cached_property
    def columns(self) -> Any:
        """X by columns: CSC or Fortran order."""
        return self.data.X.tocsc() if self.sparse else np.asfortranarray(self.data.X)

    @property
    def sparse(self) -> bool:
        """Whether X is sparse."""
        return hasattr(self.data.X, "tocsc")

    def objective(self, found: Solution) -> float:
        """The objective at a solution."""
        coef, intercept = np.atleast_2d(found[0]), np.ravel(found[1])
        z = np.asarray(self.data.X @ coef.T) + intercept
        if WORKS[self.work].use == "value":
            loss = 0.5 * float(np.sum((self.y - z[:, 0]) ** 2))
        elif WORKS[self.work].use == "sign":
            loss = float(np.logaddexp(0.0, -self.y * z[:, 0]).sum())
        else:
            peak = z.max(axis=1)
            own = z[np.arange(len(z)), self.y]
            loss = float((np.log(np.exp(z - peak[:, None]).sum(axis=1)) + peak - own).sum())
        size = self.l1 * float(np.abs(coef).sum()) + 0.5 * (1.0 - self.l1) * float((coef * coef).sum())
        return loss + self.weight * size


def tiny(work: str, sparse: bool) -> LinearProblem:
    """A problem of the same kind on which every program compiles what it needs."""
    import scipy.sparse

    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 20))
    score = X[:, 0] + 0.5 * rng.standard_normal(60)
    classes = np.digitize(score, [-0.5, 0.5])
    data = LinearSet(scipy.sparse.csr_matrix(X) if sparse else X, score, np.where(score > 0, 1.0, -1.0), classes)
    return LinearProblem(work, data, 10)
