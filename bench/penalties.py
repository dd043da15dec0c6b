"""Penalties of groups, several targets, Poisson and Huber loss beside skglm, celer and scikit-learn, on one thread.

`groups`: least squares, features in groups of ten neighbours. `tasks`: several targets with features in common
(`MultiTaskLasso`). `poisson L1`, `poisson L2`: counts, α‖w‖₁ or ½α‖w‖². `huber`: Huber loss, α‖w‖₁; scikit-learn's
`HuberRegressor` minimises another objective. All with intercept. α is a tenth and a hundredth of the one at which all
coefficients are zero; for `poisson L2` it is 1 and 0.01. Sparse features are CSC, dense ones in Fortran order.

The generated sets have ten true groups of ten features; features of a block have correlation 0.3, and 0.95 in
`correlated`. IMDB: 5,000 reviews, log counts of words in at least 20 of them, targets from the stars. BlogFeedback:
20,000 posts, features divided by their largest value, comments in the next day. Mice: genotypes; body-mass index, blood
tests, number of the litter.
"""

from __future__ import annotations

import json
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import stretto as st

from . import penalties_sets, report
from .penalties_sets import SIZE, Penalised
from .same_objective import Race, ratio, rules

Floats = NDArray[np.float64]
Fit = Callable[[float], Any]

OURS = "Stretto"
CLOSE = 1e-4
LIMIT = float(os.environ.get("BENCH_LIMIT", "10"))
KINDS = ("groups", "tasks", "poisson L1", "poisson L2", "huber")
OTHERS = ("skglm", "celer", "scikit-learn")
TOLS = [10.0**-k for k in np.arange(1, 10.5, 0.5)]
PATIENT = 1_000_000


@dataclass(frozen=True)
class Case:
    """One kind of problem on one set."""

    kind: str
    data: Penalised
    alpha: float

    @property
    def y(self) -> Any:
        """The target."""
        data = self.data
        found = {"groups": data.plain, "tasks": data.tasks, "huber": data.outliers}
        return found.get(self.kind, data.counts)

    def objective(self, model: Any) -> float:
        """What all programs minimise."""
        X, y = self.data.X, self.y
        W, b = np.asarray(model[0]), np.asarray(model[1])
        z = X @ W.T + b
        if self.kind in ("groups", "tasks"):
            loss = 0.5 * float(((y - z) ** 2).sum()) / len(y)
            blocks = W.reshape(-1, SIZE) if self.kind == "groups" else W.T
            return loss + self.alpha * float(np.sqrt((blocks**2).sum(axis=1)).sum())
        if self.kind == "huber":
            r, eps = np.abs(y - z), self.data.epsilon
            loss = float(np.where(r <= eps, 0.5 * r * r, eps * r - 0.5 * eps * eps).mean())
        else:
            loss = float(np.mean(np.exp(z) - y * z + y * np.log(np.where(y > 0, y, 1.0)) - y))
        return loss + self.alpha * (0.5 * float(W @ W) if self.kind == "poisson L2" else float(np.abs(W).sum()))

    def programs(self) -> dict[str, Fit]:
        """Functions of a tolerance that fit and return coefficients and intercepts."""
        made = {OURS: ours(self)}
        for name, make in (("skglm", skglm), ("celer", celer), ("scikit-learn", sklearn)):
            if (fit := make(self)) is not None:
                made[name] = fit
        return made

    def small(self) -> Case:
        """A small problem of the same kind and storage, to compile with."""
        data = self.data
        few = np.argsort(-np.abs(np.asarray(data.plain if data.plain is not None else data.counts)))[:60]
        few = np.sort(few)
        cut = {
            name: None if (y := getattr(data, name)) is None else np.ascontiguousarray(y[few])
            for name in ("plain", "tasks", "counts", "outliers")
        }
        X = data.X[few] if hasattr(data.X, "tocsc") else np.asfortranarray(data.X[few])
        X = penalties_sets._int32(X[:, : 10 * SIZE]) if hasattr(X, "tocsc") else np.asfortranarray(X[:, : 10 * SIZE])
        return Case(self.kind, Penalised("", X, **cut, epsilon=data.epsilon), self.alpha)


def strongest(kind: str, data: Penalised) -> float:
    """The alpha from which on all coefficients are zero."""
    case = Case(kind, data, 1.0)
    X, y = data.X, case.y
    if kind == "huber":
        eps, b = data.epsilon, float(np.median(y))
        for _ in range(1000):
            b += float(np.clip(y - b, -eps, eps).mean())
        pull = np.clip(y - b, -eps, eps)
    else:
        pull = y - y.mean(axis=0)
    A = np.asarray(X.T @ pull) / len(y)
    if kind == "groups":
        return float(np.sqrt((A.reshape(-1, SIZE) ** 2).sum(axis=1)).max())
    return float(np.sqrt((A**2).sum(axis=1)).max() if kind == "tasks" else np.abs(A).max())


def ours(case: Case) -> Fit:
    """Stretto's estimators."""
    made: dict[str, Callable[[], Any]] = {
        "groups": lambda: st.GroupLasso(case.alpha, groups=SIZE),
        "tasks": lambda: st.MultiTaskLasso(case.alpha),
        "poisson L1": lambda: st.PoissonRegressor(case.alpha, l1_ratio=1.0),
        "poisson L2": lambda: st.PoissonRegressor(case.alpha),
        "huber": lambda: st.HuberElasticNet(case.alpha, l1_ratio=1.0, epsilon=case.data.epsilon),
    }
    model = made[case.kind]().set_params(n_jobs=1, max_iter=1000)
    return lambda tol: _learned(model.set_params(tol=tol), case)


def skglm(case: Case) -> Fit | None:
    """Estimators of skglm; for the losses its parts, as its documentation puts them together."""
    from skglm import GeneralizedLinearEstimator, GroupLasso, MultiTaskLasso
    from skglm.datafits import Huber, Poisson
    from skglm.penalties import L1, L2
    from skglm.solvers import LBFGS, AndersonCD, ProxNewton

    if case.kind == "groups":
        model = GroupLasso(SIZE, case.alpha, max_iter=PATIENT)
        return lambda tol: _learned(model.set_params(tol=tol), case)
    if case.kind == "tasks":
        several = MultiTaskLasso(case.alpha, max_iter=PATIENT)
        return lambda tol: _learned(several.set_params(tol=tol), case)

    def fit(tol: float) -> Any:
        if case.kind == "huber":
            parts = Huber(case.data.epsilon), L1(case.alpha), AndersonCD(max_iter=1000, tol=tol)
        elif case.kind == "poisson L1":
            parts = Poisson(), L1(case.alpha), ProxNewton(max_iter=1000, tol=tol)
        else:
            parts = Poisson(), L2(case.alpha), LBFGS(max_iter=PATIENT, tol=tol)
        return _learned(GeneralizedLinearEstimator(*parts), case)

    # Its L-BFGS learns no intercept.
    return None if case.kind == "poisson L2" else fit


def celer(case: Case) -> Fit | None:
    """`celer.GroupLasso`, and `celer.MultiTaskLasso` for dense features."""
    from celer import GroupLasso, MultiTaskLasso

    if case.kind == "groups":
        model = GroupLasso(SIZE, case.alpha, max_iter=PATIENT)
        return lambda tol: _learned(model.set_params(tol=tol), case)
    if case.kind == "tasks" and not hasattr(case.data.X, "tocsc"):
        several = MultiTaskLasso(case.alpha, max_iter=PATIENT)
        return lambda tol: _learned(several.set_params(tol=tol), case)
    return None


def sklearn(case: Case) -> Fit | None:
    """scikit-learn's `MultiTaskLasso` for dense features, and `PoissonRegressor` with L2."""
    from sklearn.linear_model import MultiTaskLasso, PoissonRegressor

    if case.kind == "tasks" and not hasattr(case.data.X, "tocsc"):
        several = MultiTaskLasso(case.alpha, max_iter=PATIENT)
        return lambda tol: _learned(several.set_params(tol=tol), case)
    if case.kind == "poisson L2":
        solver = "newton-cholesky" if case.data.X.shape[1] <= 1_000 else "lbfgs"
        counts = PoissonRegressor(alpha=case.alpha, solver=solver, max_iter=PATIENT)
        return lambda tol: _learned(counts.set_params(tol=tol), case)
    return None


def _learned(model: Any, case: Case) -> Any:
    found = model.fit(case.data.X, case.y)
    return np.array(found.coef_), np.array(found.intercept_)


def cases(data: Penalised) -> Iterator[tuple[Case, str]]:
    """The cases of a set, and alpha in words."""
    asked = [kind for kind in os.environ.get("BENCH_KINDS", "").split(",") if kind]
    for kind in asked or KINDS:
        if kind == "poisson L2":
            for alpha in (1.0, 0.01):
                yield Case(kind, data, alpha), f"{alpha:g}"
            continue
        top = strongest(kind, data)
        for divisor in (10, 100):
            yield Case(kind, data, top / divisor), f"max/{divisor}"


@dataclass(frozen=True)
class Row:
    """A row of the table. won: whether no other program is faster"""

    cells: list[str]
    won: bool


def measured(case: Case, alpha: str) -> Row | None:
    """Measure one case; None where no other program solves it."""
    programs = case.programs()
    usable = {}
    for title, fit in programs.items():
        try:
            case.small().programs()[title](1e-3)
            usable[title] = fit
        except Exception as error:  # a peer that refuses such data is a row without it
            print(f"{title} on {case.kind}, {case.data.title}: {str(error).splitlines()[0][:100]}", flush=True)
    if len(usable) == 1:
        return None
    least = case.objective(programs[OURS](1e-7))
    found = Race(case.objective, usable, dict.fromkeys(usable, TOLS), limit=LIMIT).run(least, CLOSE)
    cells = [found[one].cell.replace("> 60", f"> {LIMIT:g}") if one in found else "—" for one in (OURS, *OTHERS)]
    done = [one.seconds for title, one in found.items() if title != OURS and one.setting is not None]
    mine = found[OURS]
    won = mine.setting is not None and mine.seconds <= min(done, default=np.inf)
    return Row([case.kind, case.data.title, alpha, *cells, ratio(found, OURS)], won)


def _file(name: str) -> Path:
    """Where the rows of a set are kept, so that a run may be split: BENCH_SETS=dense,wide, then the others."""
    return Path(tempfile.gettempdir()) / "stretto-bench" / f"penalties-{name}.json"


def main() -> None:
    """Measure every kind on every set, and write the page once there are rows of all sets."""
    warnings.simplefilter("ignore")  # fits are stopped early on purpose
    columns = ["problem", "set", "α", *(f"{name}, s (tol)" for name in (OURS, *OTHERS)), "ratio"]
    print(" | ".join(columns), flush=True)
    for name, data in penalties_sets.chosen():
        rows = []
        for case, alpha in cases(data):
            if (row := measured(case, alpha)) is not None:
                rows.append([row.cells, row.won])
                print(" | ".join(row.cells), flush=True)
        if not os.environ.get("BENCH_KINDS"):
            _file(name).parent.mkdir(exist_ok=True)
            _file(name).write_text(json.dumps(rows))
    present = [name for name in penalties_sets.SETS if _file(name).exists()]
    if missing := [name for name in penalties_sets.SETS if name not in present]:
        print(f"the page is written when these are measured as well: {', '.join(missing)}")
        return
    found = {name: json.loads(_file(name).read_text()) for name in present}
    won = {chosen: [row[1] for name in present for row in found[name] if (name in penalties_sets.CHOSEN_ON) == chosen]
           for chosen in (True, False)}  # fmt: skip
    about = f"{report.text(__doc__)}\n\n{rules(CLOSE).replace('> 60', f'> {LIMIT:g}')}\n\n{_summary(won)}"
    title = "Groups, several targets, Poisson and Huber loss beside skglm, celer and scikit-learn"
    table = report.table(columns, [row[0] for name in present for row in found[name]])
    report.save("penalties", title, about, table, ("skglm", "celer", "scikit-learn"))


def _summary(won: dict[bool, list[bool]]) -> str:
    seen, held = won[True], won[False]
    return (
        f"`ratio` is Stretto's time over that of the fastest other program. It is at most 1 in {sum(seen)} of "
        f"{len(seen)} rows of the sets that defaults were chosen on ({', '.join(penalties_sets.CHOSEN_ON)}), and in "
        f"{sum(held)} of {len(held)} of the others. celer's `MultiTaskLasso` fails with this scikit-learn, and takes "
        "dense features only; so does scikit-learn's."
    )


if __name__ == "__main__":
    main()
