"""`st.cocoa`: a task that learns a linear model with one exchange of a vector in each round.

task = st.cocoa(X, y, alpha=0.1, parts=8)
st.run(task, runtime=st.Threads(2))
task.coef, task.objective, task.gap
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.checks import flags, number, whole
from stretto.consistency.replication import Filter
from stretto.consistency.rules import BSP, Rule
from stretto.errors import DataError, PlanError
from stretto.solvers.linear.cocoa import lay_out, overlap
from stretto.solvers.linear.cocoa_gap import slots_of
from stretto.state.make import state, zeros
from stretto.state.state import State
from stretto.tasks.arguments import whole as for_all
from stretto.tasks.front import below, branch, loop, unit
from stretto.tasks.tree import SequenceTask, Task

from .guard import DRIFT, FALLEN, GAP, GUARD, LEAST, OBJECTIVE, PROOF, fallen, gap, verify
from .measured import SIGMA, STEPS
from .options import parts_of, passes_of, problem_of, sigma_of
from .settings import CocoaSettings
from .units import collect, restore, rows_for, solve, width_for


@dataclass(frozen=True, eq=False, repr=False)
class CocoaTask(SequenceTask):
    """Rounds of CoCoA until the duality gap is small enough. Made by `st.cocoa`; `st.run` runs it.

    Running it again continues from where it is.

    Attributes
    ----------
    tasks : tuple of Task
        The rounds with the gap as criterion; back to the variables of that gap; the gap at the end.
    shape : tuple of int
        Number of variables, and length of the shared vector.
    parts : int
        Parts K.
    by_columns : bool
        Whether columns are cut into parts, or samples.
    settings : CocoaSettings
        Loss, penalties, γ, σ′ and passes.
    heuristic : bool
        Whether convergence is not proven: σ′ is measured, or below γ times the overlap of the parts, or the exchange is
        stale or filtered. Then the gap is watched, and where it grows proven values are used from there on.
    classes : array or None
        The labels that count as −1 and +1.
    """

    shape: tuple[int, int] = (0, 0)
    parts: int = 1
    by_columns: bool = True
    settings: CocoaSettings | None = None
    heuristic: bool = False
    classes: NDArray[Any] | None = None
    _states: tuple[State, ...] = ()  # the shared vector, the variables, the proof, the guard, the steps

    @property
    def shared(self) -> NDArray[np.float64]:
        """The shared vector: Xw [n] if columns are cut into parts, w [p] if samples are."""
        return np.array(self._states[0].array.ravel()[: self.shape[1]])

    @property
    def variables(self) -> NDArray[np.float64]:
        """What parts own: the coefficients [p], or the dual variables of the samples [n] (times y for classes)."""
        cuts = [part * self.shape[0] // self.parts for part in range(self.parts + 1)]
        padded = self._states[1].array
        return np.concatenate([row[: last - first] for row, (first, last) in zip(padded, pairwise(cuts), strict=True)])

    @property
    def coef(self) -> NDArray[np.float64]:
        """[p] the coefficients."""
        return self.variables if self.by_columns else self.shared

    @property
    def objective(self) -> float:
        """The objective at the last evaluation; NaN before the first. A run that ends ends with an evaluation."""
        return self._proof(OBJECTIVE)

    @property
    def gap(self) -> float:
        """The duality gap there: no coefficients have an objective that is smaller by more than this."""
        return self._proof(GAP)

    @property
    def drift(self) -> float:
        """How far the shared vector was from what the variables give, at the end, as a share of its scale."""
        return self._proof(DRIFT)

    @property
    def sigma(self) -> float:
        """σ′ at present."""
        assert self.settings is not None
        if self.settings.measured:
            return float(self._states[4].array[0, SIGMA])
        return max(self.settings.sigma, float(self._states[3].array[LEAST]))

    @property
    def fell_back(self) -> bool:
        """Whether a heuristic run has gone over to proven values, because the gap grew."""
        return bool(self._states[3].array[FALLEN])

    def predict(self, X: Any) -> NDArray[Any]:
        """Predicted numbers [samples], or labels.

        Parameters
        ----------
        X : array or sparse matrix [samples, features]
            The data.
        """
        shape = getattr(X, "shape", None) or np.shape(X)
        if len(shape) != 2 or shape[1] != len(self.coef):
            raise DataError(f"predict: X has shape {tuple(shape)}; give [samples, {len(self.coef)}], as it was trained")
        found = np.asarray((X if hasattr(X, "tocsr") else np.asarray(X)) @ self.coef)
        return found if self.classes is None else self.classes[(found > 0.0).astype(np.intp)]

    def _proof(self, slot: int) -> float:
        proof = self._states[2].array
        return float(proof[slot]) if proof.any() else math.nan

    def __repr__(self) -> str:
        return f"<CoCoA, {'columns' if self.by_columns else 'samples'} in {self.parts} parts>"


def cocoa(
    X: Any,
    y: Any,
    *,
    loss: str = "squared",
    alpha: float | None = None,
    C: float | None = None,
    l1_ratio: float | None = None,
    parts: int | None = None,
    gamma: float = 1.0,
    sigma: float | str | None = None,
    local_passes: int | str = "auto",
    tol: float = 1e-4,
    max_rounds: int = 1000,
    gap_every: int = 1,
    shuffle: bool = True,
    sync: Rule | None = None,
    filter: Filter | None = None,
    workers: int | str | None = None,
) -> CocoaTask:
    """A linear model by CoCoA, CoCoA+ or ProxCoCoA+: a task in which parts exchange one vector in each round.

    Every part improves its own variables by coordinate descent, as if its change counted σ′ times, and γ times the
    changes of all parts are added. γ = 1 with σ′ = γ·parts is CoCoA+ ("adding"), γ = 1/parts with σ′ = 1 is CoCoA
    ("averaging"). With an L1 penalty the columns of X are cut into parts (ProxCoCoA+), else the samples, in the dual.

    The objectives are those of `st.ElasticNet`, `st.LogisticRegression` and `st.LinearSVC` without an intercept: centre
    the data, or add a column of ones. Parts get neighbouring columns or samples: shuffle samples sorted by class.

    Parameters
    ----------
    X : array or sparse matrix [samples, features]
        The data.
    y : array [samples]
        Numbers, or two classes.
    loss : {"squared", "logistic", "hinge", "squared_hinge"}, default "squared"
        Of a sample. The last two have an L2 penalty only.
    alpha : float or None, default None
        Of loss="squared": ‖y − Xw‖²/2n + alpha·(l1_ratio·‖w‖₁ + ½(1 − l1_ratio)‖w‖²); None is 1.0.
    C : float or None, default None
        Of the others: C·Σ loss + l1_ratio·‖w‖₁ + ½(1 − l1_ratio)‖w‖²; None is 1.0.
    l1_ratio : float or None, default None
        Share of the penalty that is ‖w‖₁. None: 1.0 (the Lasso) for loss="squared", 0.0 for the others.
    parts : int or None, default None
        Parts K that variables are cut into. Results depend on it. None: 16, or one for each variable if they are fewer.
    gamma : float, default 1.0
        Weight γ of the changes of each part, from 1/parts to 1.
    sigma : float, "data", "measured" or None, default None
        σ′. None: γ·parts, which is always safe. "data": γ times the most parts that meet at one position of the shared
        vector, which is safe too, and smaller for sparse data. "measured": follows how much the changes of the parts
        overlap, round by round, from γ to the value of "data"; usually needs the fewest rounds. That, and a number
        below the value of "data", is heuristic: the gap is watched.
    local_passes : int or "auto", default "auto"
        Passes over its variables that a part makes in a round. "auto": as many as take about a millisecond, at most 10.
    tol : float, default 1e-4
        Stop when the duality gap is below tol times the objective.
    max_rounds : int, default 1000
        Stop after this many rounds in any case.
    gap_every : int, default 1
        Rounds between two evaluations of the gap. They cost a pass over the data and no vector: the gap is that before
        the rounds, so a run makes `gap_every` rounds more than it needs, and then goes back by them.
    shuffle : bool, default True
        Visit the variables in random order, another one in each pass.
    sync : BSP, SSP, ASP or None, default None
        How fresh a read of the shared vector must be, within the rounds between two evaluations; None for
        `st.tables.BSP()`, which has the same bits at any width. The others are heuristic.
    filter : Filter or None, default None
        Send a part of the shared vector only (`st.top`, `st.random_share`, `st.round_robin`), in rows of 8 numbers, and
        the rest before the next evaluation of the gap. Heuristic.
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
    problem = problem_of(X, loss, alpha, C, l1_ratio)
    flags(owner="cocoa", shuffle=shuffle)
    number("tol", tol, least=0.0, owner="cocoa")
    given = lay_out(problem, X, y)
    m, length = given.matrix.shape
    parts = parts_of(problem, parts, m)
    number("gamma", gamma, least=1 / parts, most=1.0, owner="cocoa", why=f"from 1/parts = {1 / parts:g} to 1")
    every = whole("gap_every", gap_every, 1, "cocoa")
    safe = gamma * overlap(given.matrix, parts)
    rule = BSP() if sync is None else sync
    loose = filter is not None or not isinstance(rule, BSP)
    measured = sigma == "measured"
    if measured and loose:
        raise PlanError("cocoa: sigma='measured' needs whole rounds; leave out sync= and filter=, or give a number")
    used = sigma_of(sigma, gamma, parts, safe)
    heuristic = loose or measured or used < safe * (1 - 1e-12)
    settings = CocoaSettings(
        problem, float(gamma), used, safe, passes_of(local_passes, given.matrix, parts), bool(shuffle), every,
        heuristic, measured, float(tol),
    )  # fmt: skip
    # With columns every part needs all labels: a row for each part, which nodes get once and keep.
    labels = np.broadcast_to(given.y, (parts, len(given.y))) if problem.by_columns else given.y
    width = width_for(filter is not None)
    rows = rows_for(length, width)
    shared = (
        zeros((rows, width), "f8") if filter is None else state(np.zeros((rows, width)), replicate=True, filter=filter)
    )
    variables, sums = zeros((parts, 2 * -(-m // parts)), "f8"), zeros((parts, slots_of(problem)), "f8")
    proof, guard, steps = zeros(PROOF, "f8"), zeros(GUARD, "f8"), zeros((1, STEPS), "f8")
    guard.array[LEAST], steps.array[0, SIGMA] = (gamma if measured else 0.0), safe
    data, how, stays = (given.matrix, labels, given.norm), for_all(settings), {"variables": "parts", "sums": "parts"}

    def rounds(rule: Rule, many: int) -> Task:
        return unit(
            solve, *data, shared, variables, sums, steps, guard, for_all(replace(settings, every=many)), width,
            parts=parts, iterations=many, workers=workers, sync=rule, partition=stays,
        )  # fmt: skip

    body = rounds(rule, every)
    if loose:  # where the gap has grown, every round exchanges everything
        body = branch(unit(fallen, guard, mode="sequential"), rounds(BSP(), 1), body)
    check = zeros((2 * rows, width), "f8")
    turns = -(-whole("max_rounds", max_rounds, 1, "cocoa") // every)
    evaluation = unit(gap, sums, proof, guard, how, mode="sequential")
    how_many: dict[str, Any] = {"parts": parts, "workers": workers}
    back = unit(
        restore, *data[:2], shared, variables, check, proof, how, width, iterations=2,
        partition={"variables": "parts"}, **how_many,
    )  # fmt: skip
    last = unit(collect, *data, shared, variables, sums, how, partition=stays, **how_many)
    end = unit(verify, sums, check, proof, guard, how, mode="sequential")
    return CocoaTask(
        (loop(body, times=turns, until=below(evaluation, tol)), back, last, end),
        shape=(m, length),
        parts=parts,
        by_columns=problem.by_columns,
        settings=settings,
        heuristic=heuristic,
        classes=given.classes,
        _states=(shared, variables, proof, guard, steps),
    )
