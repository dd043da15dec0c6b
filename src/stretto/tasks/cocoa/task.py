"""`st.cocoa`: a task that learns a linear model with one exchange of a vector in each round.

task = st.cocoa(X, y, alpha=0.1, parts=8)
st.run(task, runtime=st.Threads(2))
task.coef, task.objective, task.gap
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.checks import choice, flags, number, shown, whole
from stretto.consistency.rules import BSP, Rule
from stretto.errors import PlanError
from stretto.solvers.linear.cocoa import SUMS, CocoaProblem, lay_out, overlap
from stretto.state.make import state, zeros
from stretto.state.state import State
from stretto.tasks.arguments import whole as for_all
from stretto.tasks.front import below, loop, unit
from stretto.tasks.tree import RepeatedTask

from .units import GAP, OBJECTIVE, SIGMA, WIDTH, CocoaSettings, gap, rows_for, solve

LOSSES = ("squared", "logistic", "hinge")


@dataclass(frozen=True, eq=False, repr=False)
class CocoaTask(RepeatedTask):
    """Rounds of CoCoA until the duality gap is small enough. Made by `st.cocoa`; `st.run` runs it.

    Running it again continues from where it is.

    Attributes
    ----------
    body : Task
        The unit of a round.
    times : int
        The most rounds, divided by those between two evaluations of the gap.
    until : Criterion
        The gap is below `tol`.
    adaptive : bool
        False: `sync=` is given.
    shape : tuple of int
        Number of variables, and length of the shared vector.
    by_columns : bool
        Whether columns are cut into parts, or samples.
    heuristic : bool
        Whether convergence is not proven: σ′ is below γ times the overlap of the parts, or reads may be stale. Then the
        gap is watched, and σ′ grows where the gap does.
    classes : array or None
        The labels that count as −1 and +1.
    """

    shape: tuple[int, int] = (0, 0)
    by_columns: bool = True
    heuristic: bool = False
    classes: NDArray[Any] | None = None
    _states: tuple[State, ...] = ()  # the shared vector, the variables, the proof, the guard

    @property
    def shared(self) -> NDArray[np.float64]:
        """The shared vector: Xw [n] if columns are cut into parts, w [p] if samples are."""
        return np.array(self._states[0].array.ravel()[: self.shape[1]])

    @property
    def variables(self) -> NDArray[np.float64]:
        """What parts own: the coefficients [p], or the dual variables of the samples [n] (times y for classes)."""
        parts, m = next(self.units()).parts, self.shape[0]
        padded = self._states[1].array.reshape(parts, -1)
        cuts = [part * m // parts for part in range(parts + 1)]
        return np.concatenate([row[: last - first] for row, (first, last) in zip(padded, pairwise(cuts), strict=True)])

    @property
    def coef(self) -> NDArray[np.float64]:
        """[p] the coefficients."""
        return self.variables if self.by_columns else self.shared

    @property
    def objective(self) -> float:
        """The objective at the last evaluation; NaN before the first."""
        return self._proof(OBJECTIVE)

    @property
    def gap(self) -> float:
        """The duality gap there: no coefficients have an objective that is smaller by more than this."""
        return self._proof(GAP)

    @property
    def sigma(self) -> float:
        """σ′ at present."""
        return float(self._states[3].array[SIGMA])

    def _proof(self, slot: int) -> float:
        proof = self._states[2].array
        return float(proof[slot]) if proof.any() else math.nan

    def __repr__(self) -> str:
        return f"<CoCoA, {'columns' if self.by_columns else 'samples'} in {next(self.units()).parts} parts>"


def cocoa(
    X: Any,
    y: Any,
    *,
    loss: str = "squared",
    alpha: float | None = None,
    C: float | None = None,
    l1_ratio: float | None = None,
    parts: int = 16,
    gamma: float = 1.0,
    sigma: float | str | None = None,
    local_passes: int = 1,
    tol: float = 1e-4,
    max_rounds: int = 1000,
    gap_every: int = 1,
    shuffle: bool = True,
    sync: Rule | None = None,
    workers: int | str | None = None,
) -> CocoaTask:
    """A linear model by CoCoA, CoCoA+ or ProxCoCoA+: a task in which parts exchange one vector in each round.

    Every part improves its own variables by coordinate descent, as if its change counted σ′ times, and γ times the
    changes of all parts are added. γ = 1 with σ′ = γ·parts is CoCoA+ ("adding"), γ = 1/parts with σ′ = 1 is CoCoA
    ("averaging"). With an L1 penalty the columns of X are cut into parts (ProxCoCoA+), else the samples, in the dual.

    The objectives are those of `st.ElasticNet`, `st.LogisticRegression` and `st.LinearSVC(loss="hinge")` without an
    intercept: centre the data, or add a column of ones.

    Parameters
    ----------
    X : array or sparse matrix [samples, features]
        The data.
    y : array [samples]
        Numbers, or two classes.
    loss : {"squared", "logistic", "hinge"}, default "squared"
        Of a sample. "hinge" has an L2 penalty only.
    alpha : float or None, default None
        Of loss="squared": ‖y − Xw‖²/2n + alpha·(l1_ratio·‖w‖₁ + ½(1 − l1_ratio)‖w‖²); None is 1.0.
    C : float or None, default None
        Of the others: C·Σ loss + l1_ratio·‖w‖₁ + ½(1 − l1_ratio)‖w‖²; None is 1.0.
    l1_ratio : float or None, default None
        Share of the penalty that is ‖w‖₁. None: 1.0 (the Lasso) for loss="squared", 0.0 for the others.
    parts : int, default 16
        Parts K that variables are cut into. Results depend on it.
    gamma : float, default 1.0
        Weight γ of the changes of each part, from 1/parts to 1.
    sigma : float, "data" or None, default None
        σ′. None: γ·parts, which is always safe. "data": γ times the most parts that meet at one position of the shared
        vector, which is safe too, and smaller for sparse data. A number below that is heuristic: the gap is watched.
    local_passes : int, default 1
        Passes over its variables that a part makes in a round.
    tol : float, default 1e-4
        Stop when the duality gap is below tol times the objective.
    max_rounds : int, default 1000
        Stop after this many rounds in any case.
    gap_every : int, default 1
        Rounds between two evaluations of the gap.
    shuffle : bool, default True
        Visit the variables in random order, another one in each pass.
    sync : BSP, SSP, ASP or None, default None
        How fresh a read of the shared vector must be, within the rounds between two evaluations; None for
        `st.tables.BSP()`, which has the same bits at any width. The others are heuristic.
    workers : int, "auto" or None, default None
        Workers that run the parts; None for all.

    Returns
    -------
    CocoaTask

    Examples
    --------
    >>> import numpy as np, stretto as st
    >>> draw = np.random.default_rng(0)
    >>> X = draw.standard_normal((200, 50))
    >>> task = st.cocoa(X, X[:, 0] - 2 * X[:, 1], alpha=0.1, parts=4)
    >>> result = st.run(task, runtime=st.Serial())
    >>> np.flatnonzero(task.coef).tolist(), bool(task.gap < 1e-4 * task.objective)
    ([0, 1], True)
    """
    problem = _problem(X, loss, alpha, C, l1_ratio)
    flags(owner="cocoa", shuffle=shuffle)
    given = lay_out(problem, X, y)
    m, length = given.matrix.shape
    parts = _parts(problem, parts, m)
    number("gamma", gamma, least=1 / parts, most=1.0, owner="cocoa", why=f"from 1/parts = {1 / parts:g} to 1")
    most = overlap(given.matrix, parts)
    used = _sigma(sigma, gamma, parts, most)
    rule = BSP() if sync is None else sync
    heuristic = used < gamma * most * (1 - 1e-12) or not isinstance(rule, BSP)
    settings = CocoaSettings(
        problem,
        float(gamma),
        gamma * parts if heuristic else used,
        whole("local_passes", local_passes, 1, "cocoa"),
        bool(shuffle),
        rows_for(-(-m // parts)),
        heuristic,
    )
    # With columns every part needs all labels: a row for each part, which nodes get once and keep.
    labels = np.broadcast_to(given.y, (parts, len(given.y))) if problem.by_columns else given.y
    how = for_all(settings)
    shared, variables = zeros((rows_for(length), WIDTH), "f8"), zeros((parts * settings.rows, WIDTH), "f8")
    sums = zeros((parts, SUMS), "f8")
    proof, guard = zeros(2, "f8"), state([used, 0.0])
    every = whole("gap_every", gap_every, 1, "cocoa")
    ranges = {"variables": "range"}
    round_ = unit(
        solve, given.matrix, labels, given.norm, shared, variables, guard, how, parts=parts, iterations=every,
        workers=workers, sync=rule, partition=ranges,
    )  # fmt: skip
    evaluation = unit(
        gap, given.matrix, labels, shared, variables, sums, proof, guard, how, parts=parts, iterations=2,
        workers=workers, partition=ranges,
    )  # fmt: skip
    number("tol", tol, least=0.0, owner="cocoa")
    turns = -(-whole("max_rounds", max_rounds, 1, "cocoa") // every)
    made = loop(round_, times=turns, until=below(evaluation, tol))
    return CocoaTask(
        made.body,
        made.times,
        made.until,
        shape=(m, length),
        by_columns=problem.by_columns,
        heuristic=heuristic,
        classes=given.classes,
        _states=(shared, variables, proof, guard),
    )


def _problem(X: Any, loss: str, alpha: Any, C: Any, l1_ratio: Any) -> CocoaProblem:
    choice("loss", loss, LOSSES, owner="cocoa")
    squared = loss == "squared"
    name, strength, other = ("alpha", alpha, C) if squared else ("C", C, alpha)
    if other is not None:
        unused = "C" if squared else "alpha"
        raise PlanError(f"cocoa: {unused}={shown(other)} is not used with loss={loss!r}; give {name}=")
    strength = 1.0 if strength is None else strength
    number(name, strength, above=0, owner="cocoa")
    share = (1.0 if squared else 0.0) if l1_ratio is None else l1_ratio
    number("l1_ratio", share, least=0.0, most=1.0, owner="cocoa")
    if loss == "hinge" and share:
        raise PlanError(
            f"cocoa: l1_ratio={share:g} with loss='hinge', which is not smooth; take l1_ratio=0, or loss='logistic'"
        )
    shape = getattr(X, "shape", None) or np.shape(X)
    scale = float(strength) if squared else 1.0
    weight = 1.0 / max(1, shape[0]) if squared else float(strength)
    return CocoaProblem(loss, weight, scale * float(share), scale * (1.0 - float(share)))


def _parts(problem: CocoaProblem, parts: Any, m: int) -> int:
    found = whole("parts", parts, 1, "cocoa")
    if found > m:
        what = "features" if problem.by_columns else "samples"
        raise PlanError(f"cocoa: parts={found}, and X has {m} {what}; give at most as many parts")
    return found


def _sigma(sigma: Any, gamma: float, parts: int, most: int) -> float:
    if sigma is None:
        return gamma * parts
    if isinstance(sigma, str):
        choice("sigma", sigma, ("data",), owner="cocoa")
        return gamma * most
    number("sigma", sigma, least=gamma, owner="cocoa", why="below gamma the changes of one part alone are too large")
    return float(sigma)
