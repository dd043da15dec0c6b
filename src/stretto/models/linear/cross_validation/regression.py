"""`CrossValidatedRegression`: what `LassoCV` and `ElasticNetCV` have in common: folds, paths, and the last fit.

Folds run on threads of their own, or one after another with all threads inside each (`folds.each_fold`); the choice
does not depend on the number of threads. One solver is kept for all paths of a fold.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from stretto.data.records.digest import digest_of
from stretto.models import checks
from stretto.models.options import refuse_unused
from stretto.models.sklearn_base import clone, with_callbacks
from stretto.plan.job import JobPlan
from stretto.runtime.session import Session
from stretto.solvers.linear.regression import PenaltySolver

from ..base import FitSession, say
from ..explain import until
from ..input import read, squared_gap, taken
from ..lasso import LeastSquares
from ..path_points import alphas_for, check_grid, follow
from ..plan import PlanText
from .folds import Folds, each_fold, folds_of, part_of, squared_errors

Floats = NDArray[np.float64]


class CrossValidatedRegression(LeastSquares):
    """Least squares whose penalty has the least squared error on held-out data; subclasses name their parameters."""

    alpha_: float
    alphas_: Floats
    mse_path_: Floats

    # Parameters that subclasses' constructors store.
    eps: float
    n_alphas: int
    alphas: Any
    cv: Any

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check = checks.of(self)
        check_grid(check, self.n_alphas, self.eps)
        self._shares()
        if self.alphas is not None:
            counted = isinstance(self.alphas, Integral)
            unused = {"n_alphas": "alphas says how many penalties there are"}
            unused |= {} if counted else {"eps": "alphas says which penalties there are"}
            refuse_unused(self, unused, chosen=f"alphas={checks.shown(self.alphas)}")

    @with_callbacks  # type: ignore[untyped-decorator]
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        session: Session | None = None,
    ) -> Self:
        """Choose the penalty by cross-validation, then fit all data with it.

        A callback that asks to stop after a fold leaves the choice to the folds made so far.

        Parameters
        ----------
        X : array or sparse matrix [n, p], DataFrame or paths
            Samples × features, or svmlight files.
        y : array [n] or None, default None
            Targets; None with files.
        sample_weight : array [n] or None, default None
            Weights of the samples, used in fitting and in the errors on held-out data.
        groups : array [n] or None, default None
            Groups, for splitters that ask for them.
        session : Session or None, default None
            Where to record the run, when to save checkpoints, and whether to resume from one.
        """
        return self._fit(X, y, sample_weight, groups, session=session)

    def plan(self, X: Any, y: Any = None, sample_weight: Any = None, *, groups: Any = None) -> JobPlan:
        """The plan that `fit` with these arguments runs, made without converting X. Nothing is learned.

        Parameters
        ----------
        X : array or sparse matrix [n, p], DataFrame or paths
            Samples × features, as for `fit`.
        y : array [n] or None, default None
            Targets.
        sample_weight : array [n] or None, default None
            Weights of the samples.
        groups : array [n] or None, default None
            Groups, for splitters that ask for them.

        Returns
        -------
        JobPlan
            With `explain()`, `cost` and `fingerprint`; `run(runtime=…, session=…)` fits this estimator by it.
        """
        self._check_parameters()
        given = taken(clone(self), X, y, sample_weight, numeric=True)
        folds = folds_of(type(self).__name__, self.cv, given, groups)
        made = self._planned(given, self._words(folds), None)
        return replace(made, runner=partial(self._run_plan, made, X, y, sample_weight, folds))

    @with_callbacks  # type: ignore[untyped-decorator]
    def _run_plan(
        self,
        made: JobPlan,
        X: Any,
        y: Any,
        sample_weight: Any,
        folds: Folds,
        runtime: Any = None,
        session: Session | None = None,
    ) -> Self:
        """Fit by an existing plan, with its folds; PlanError if the plan of this fit would now differ."""
        return self._fit(X, y, sample_weight, None, folds, made, runtime, session)

    def _words(self, folds: Folds) -> PlanText:
        until_ = until("squared", self.fit_intercept, self.tol, self.max_iter)
        indices = [samples for fold in folds for samples in fold]
        return PlanText(
            type(self).__name__,
            f"(1/2n) Σ (y − z)² + {self._penalty_words()} for a path of α in {len(folds)} folds, then for the best α",
            f"for each α {until_}",
            more={"folds": len(folds), "digest of the folds": digest_of(*indices)},
        )

    def _penalty_words(self) -> str:
        shares = self._shares()
        if shares == [1.0]:
            return "α ‖w‖₁"
        shown = f"{shares[0]:.4g}" if len(shares) == 1 else "r"
        several = "" if len(shares) == 1 else f", for {len(shares)} values of r,"
        return f"α {shown} ‖w‖₁ + ½ α (1 − {shown}) ‖w‖²{several}"

    def _shares(self) -> list[float]:
        """The values of l1_ratio that are tried."""
        return [1.0]

    def _chosen(self, share: float) -> None:
        """Store the best l1_ratio."""

    def _fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        groups: Any,
        folds: Folds | None = None,
        made: JobPlan | None = None,
        runtime: Any = None,
        session: Session | None = None,
    ) -> Self:
        self._check_parameters()
        where = self._runtime(runtime)
        given = read(self, X, y, sample_weight, numeric=True)
        samples, shares = given.shape[0], self._shares()
        folds = folds_of(type(self).__name__, self.cv, given, groups) if folds is None else folds
        plan = self._planned(given, self._words(folds), None, made, where)
        with self._sitting(given, plan, where, session) as sitting:
            problem = self._problem(sitting.lay_out())
            works = sitting.solver(problem)
            grids = [self._grid(works, samples, share) for share in shares]
            size = len(shares), len(grids[0])
            found = sitting.saved.take("folds")
            errors: list[Floats] = [] if found is None else list(np.array(found["errors"]).reshape(-1, *size))
            with sitting.saved.level("folds", lambda: {"errors": np.reshape(errors, (-1, *size))}):
                self._hold_out(sitting, folds, shares, grids, errors)
                share = self._keep_choice(shares, grids, np.stack(errors, axis=2))
                sitting.stopped = False
                strength = self.alpha_ * samples
                fit = sitting.solve(
                    problem,
                    strength * share,
                    strength * (1.0 - share),
                    gap=squared_gap(works, self.tol),
                    units=samples,
                    works=works,
                    label="all data, ",
                    attributes=lambda coef, intercept: {"coef_": coef, "intercept_": intercept},
                )
            self._keep(fit, samples)
        return self

    def _grid(self, works: PenaltySolver, samples: int, share: float) -> Floats:
        """[k] the penalties tried with this l1_ratio."""
        check = checks.of(self)
        return alphas_for(works, samples, self.alphas, self.n_alphas, eps=self.eps, l1_ratio=share, check=check)

    def _keep_choice(self, shares: list[float], grids: list[Floats], errors: Floats) -> float:
        """Store what was tried and the best of it; return the best l1_ratio. errors: [ratios, k, folds]"""
        # Of equal errors the first one wins, as in scikit-learn: the strongest penalty of the first l1_ratio.
        best, k = np.unravel_index(np.argmin(errors.mean(axis=2)), errors.shape[:2])
        own_grids = self.alphas is None or isinstance(self.alphas, Integral)
        self.alphas_ = np.stack(grids) if own_grids and len(shares) > 1 else grids[0]
        self.mse_path_ = errors if len(shares) > 1 else errors[0]
        self.alpha_ = float(grids[best][k])
        self._chosen(shares[best])
        return shares[best]

    def _hold_out(
        self, sitting: FitSession, folds: Folds, shares: list[float], grids: list[Floats], errors: list[Floats]
    ) -> None:
        """Add the errors [ratios, k] on held-out samples to `errors`, for each fold that it does not contain."""
        sitting.saved.goal = len(folds) * sum(map(len, grids)) + self.max_iter

        def learn(sitting: FitSession, number: int) -> Floats:
            return self._fold(sitting, shares, grids, *folds[number])

        for number, found in enumerate(each_fold(sitting, range(len(errors), len(folds)), learn), len(errors) + 1):
            errors.append(found)
            least = float(found.min())
            if self.verbose > 0:
                best, k = np.unravel_index(np.argmin(found), found.shape)
                share = f" and l1_ratio {shares[best]:.4g}" if len(shares) > 1 else ""
                say(f"fold {number}/{len(folds)}  least error {least:.5g} at alpha {grids[best][k]:.4g}{share}")
            if sitting.told(f"fold {number}", {"fold": number, "error": least}):
                break

    def _fold(
        self,
        sitting: FitSession,
        shares: list[float],
        grids: list[Floats],
        train: NDArray[np.int64],
        test: NDArray[np.int64],
    ) -> Floats:
        """[ratios, k] weighted mean squared errors on the samples `test` of the paths learned from `train`."""
        part = part_of(sitting.given, train)
        problem = self._problem(part)
        works = sitting.solver(problem)
        gap = squared_gap(works, self.tol)
        found = sitting.saved.take("ratios")
        errors: list[Floats] = [] if found is None else list(np.array(found["errors"]))
        with sitting.saved.level("ratios", lambda: {"errors": np.reshape(errors, (-1, len(grids[0])))}):
            for share, grid in list(zip(shares, grids, strict=True))[len(errors) :]:
                path = follow(
                    works,
                    part.design.shape,
                    grid,
                    l1_ratio=share,
                    gap=gap,
                    max_rounds=self.max_iter,
                    verbose=self.verbose > 1,
                    saved=sitting.saved,
                )
                errors.append(squared_errors(path, sitting.given, test))
        return np.stack(errors)
