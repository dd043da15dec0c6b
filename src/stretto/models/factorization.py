"""`MatrixFactorization`: the estimator.

    model = st.MatrixFactorization(rank=32, random_state=0).fit(X)      # X: users × items, sparse
    model.predict([[0, 10], [3, 7]])
    ids, scores = model.recommend([0, 1, 2], n=10)

Same seed, same bits, whatever `n_jobs` is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from stretto.data.data import Data
from stretto.data.ids import IdMap
from stretto.errors import DataError, PlanError
from stretto.kernels.compile import PROFILES
from stretto.plan.cost import parse_bytes
from stretto.plan.plan import Physical, Plan
from stretto.runtime.job import Report
from stretto.runtime.runtimes import Crew, Runtime, Serial, Threads
from stretto.runtime.session import Session, scratch_folder
from stretto.runtime.source import InMemory, Source
from stretto.runtime.train import Patience, Trainer

from . import mf_serve, mf_store
from .mf_base import Problem
from .mf_build import FactorJob, build, going_on, put_factors, refuse_cluster, refuse_duplicates
from .mf_feed import Feed, feed_from
from .mf_input import as_matrix, as_pairs, known_indices
from .mf_measure import named
from .mf_stream import StreamedSgdJob

Array = NDArray[Any]


class MatrixFactorization(CallbackSupportMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Factorise a sparse matrix of ratings: r ≈ mean + b_i + c_j + w_i·h_j.

    Parameters
    ----------
    rank : numbers kept for each row and column.
    solver : "sgd" (stochastic gradient descent), "als" (alternating least squares) or "ccd" (coordinate descent).
    loss : "squared", "absolute" or "logistic" (ratings > 0 are positive); als and ccd solve "squared".
    reg : penalty on factors and biases, counted once for each rating, in the units of the ratings.
    epochs : passes over the ratings.
    learning_rate, schedule : the step of sgd for ratings of spread 1 (None: 0.04, adagrad 0.1, adarevision 0.08), and
        whether it falls "linear"ly to zero over the epochs or is "constant" (None: constant for adarevision only).
    optimizer : "sgd"; "adagrad" (a step for each row, by the size of its gradients so far); or "adarevision" (a step
        for each element and bias; its serial limit, as here no gradient is ever late: AdaGrad by element. The steps
        shrink by themselves and bear learning rates from 0.05 to 0.4. With delays: `st.adarevision` on tables).
    biases : learn the mean and one bias for each row and column.
    implicit, alpha : als on implicit feedback; each entry is evidence with confidence 1 + alpha·value.
    linear_solver, inner : "cholesky" or "cg" for als; inner is the number of cg steps, or of ccd's inner sweeps.
    init_scale : the first factors have standard deviation init_scale / √rank (None: 0.05 for sgd, 1 for the others).
    early_stopping, validation_fraction, n_iter_no_change, tol : hold out a part (or give fit a validation set) and
        stop when its error has not fallen by tol for n_iter_no_change epochs.
    warm_start : fit goes on from the factors of the last fit (and its squared gradients, as partial_fit does).
    duplicates : what to do with a pair rated twice: "error", "first", "last", "mean", "sum" or "keep".
    width : how many workers the plan is cut for; it changes the answer, n_jobs does not.
    profile : "exact" (same bits on every x86-64 processor) or "fast".
    random_state : seed of the plan and the first factors.
    n_jobs : threads; None uses every core this process may use. Never changes the answer.
    runtime : `st.Serial()`, `st.Threads(n)` or `st.Cluster(nodes=n)` (sgd only); overrides n_jobs.
    memory : budget such as "2GiB"; what does not fit is cut into blocks on disk and streamed (sgd only). On a cluster
        the nodes read their ratings from the file, and the driver none. Never changes the answer.
    verbose : 0 quiet, 1 a progress bar, 2 the plan too.

    Attributes
    ----------
    row_factors_, col_factors_ : [m, rank], [n, rank] float32.      row_bias_, col_bias_ : [m], [n].      mean_ : float.
    n_iter_ : epochs done.      history_ : one dict for each epoch.      plan_ : the plan.      fingerprint_ : its hash.
    row_ids_, col_ids_ : id maps when the data came with ids of their own.
    squares_ : sums of squared gradients, for ratings of spread 1: {"zw": [m, rank], "zh": [n, rank], "zb": [m],
        "zc": [n]} of adarevision, {"gw": [m], "gh": [n]} of adagrad, {} of the others.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, stretto as st
    >>> X = sp.random(50, 40, density=0.3, format="csr", random_state=0)
    >>> model = st.MatrixFactorization(rank=4, epochs=5, random_state=0).fit(X)
    >>> model.predict([[0, 1], [2, 3]]).shape
    (2,)
    """

    row_factors_: NDArray[np.float32]
    col_factors_: NDArray[np.float32]
    row_bias_: NDArray[np.float32]
    col_bias_: NDArray[np.float32]
    mean_: float
    n_iter_: int
    n_features_in_: int
    history_: list[dict[str, float]]
    plan_: Plan
    fingerprint_: str
    row_ids_: IdMap | None
    col_ids_: IdMap | None
    squares_: dict[str, NDArray[np.float32]]
    _seen: mf_serve.Seen | None
    _trained_on: Source

    def __init__(
        self,
        rank: int = 32,
        *,
        solver: str = "sgd",
        loss: str = "squared",
        reg: float = 0.05,
        epochs: int = 20,
        learning_rate: float | None = None,
        schedule: str | None = None,
        optimizer: str = "sgd",
        biases: bool = True,
        implicit: bool = False,
        alpha: float = 40.0,
        linear_solver: str = "cholesky",
        inner: int = 3,
        init_scale: float | None = None,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 3,
        tol: float = 1e-4,
        warm_start: bool = False,
        duplicates: str = "error",
        width: int = 16,
        profile: str = "exact",
        random_state: Any = None,
        n_jobs: int | None = None,
        runtime: Runtime | None = None,
        memory: int | str | None = None,
        verbose: int = 0,
    ) -> None:
        self.rank = rank
        self.solver = solver
        self.loss = loss
        self.reg = reg
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.optimizer = optimizer
        self.biases = biases
        self.implicit = implicit
        self.alpha = alpha
        self.linear_solver = linear_solver
        self.inner = inner
        self.init_scale = init_scale
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.warm_start = warm_start
        self.duplicates = duplicates
        self.width = width
        self.profile = profile
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.runtime = runtime
        self.memory = memory
        self.verbose = verbose

    # --- learning ---------------------------------------------------------------------------------------------------

    @with_callbacks  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any = None, *, validation: Any = None, session: Session | None = None) -> Self:
        """Learn from X: a sparse matrix, (n, 3) triples, three arrays, a DataFrame, `stretto.Data` or a path. y is
        ignored.

        validation: data to measure on after each epoch, or the share of X to hold out for it (with early_stopping
        validation_fraction unless given). session: where to record the run, when to save checkpoints, whether to go on
        from one.
        """
        if validation is None and self.early_stopping:
            validation = float(self.validation_fraction)
        self._problem()  # wrong parameters are refused before anything is read
        seed = self._seed()
        scratch = scratch_folder(session) if self.memory is not None else None
        feed = feed_from(
            X,
            validation=validation,
            duplicates=self._policy(),
            seed=seed,
            memory=self._budget(),
            scratch=None if scratch is None else Path(scratch.name),
            nodes=not isinstance(self._runtime(), Serial | Threads),
        )
        go_on = self.warm_start and self._is_fitted()
        self._learn(feed, self.epochs, go_on, session or Session(verbose=self.verbose), seed, scratch)
        return self

    @with_callbacks  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """One epoch over X, going on from what was learned; X may have more rows and columns than earlier data."""
        data = as_matrix(X, duplicates=self._policy())
        if data.row_ids is not None or data.col_ids is not None:
            raise DataError(
                "partial_fit needs indices, not ids; encode ids once for all data, for example with IdMap.of"
            )
        if self._is_fitted():
            known = len(self.row_factors_), len(self.col_factors_)
            data = replace(data, shape=(max(known[0], data.shape[0]), max(known[1], data.shape[1])))
        feed = Feed(InMemory(data), data, None, data.shape, None, None)
        self._learn(feed, 1, self._is_fitted(), Session(verbose=self.verbose), self._seed(), None)
        return self

    def _policy(self) -> str:
        # Laying out the blocks finds repeated pairs for nothing; looking for them beforehand would cost a sort.
        return "keep" if self.duplicates == "error" else self.duplicates

    def _budget(self) -> int | None:
        return None if self.memory is None else parse_bytes(self.memory)

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _problem(self) -> Problem:
        names = [field.name for field in fields(Problem) if hasattr(self, field.name)]
        problem = Problem(**{name: getattr(self, name) for name in names}).checked()
        if self.profile not in PROFILES:
            raise PlanError(f"profile must be one of {', '.join(map(repr, PROFILES))}; got {self.profile!r}")
        # Every pair counts in implicit feedback, seen or not: there is no bias to learn.
        return replace(problem, biases=False) if problem.implicit else problem

    def _runtime(self) -> Runtime:
        return self.runtime if self.runtime is not None else Threads(self.n_jobs)

    def _here(self) -> Runtime:
        """Where a fitted model is used: on this machine, wherever it was learned."""
        runtime = self._runtime()
        return runtime if isinstance(runtime, Serial | Threads) else Threads(self.n_jobs)

    def _learn(self, feed: Feed, epochs: int, go_on: bool, session: Session, seed: int, scratch: Any) -> None:
        problem, runtime = self._problem(), self._runtime()
        physical = Physical(type(runtime).__name__.lower(), runtime.workers, self._budget())
        refuse_cluster(problem, physical)
        done = self.n_iter_ if go_on else 0
        if go_on:
            problem = going_on(problem, self, done)
        root = self._init_callback_context(max_subtasks=None)
        root.call_on_fit_task_begin(estimator=self, X=feed.data, y=None)
        with runtime.open() as crew, session.listen() as tell:
            job = build(
                problem,
                feed,
                crew,
                seed=seed,
                profile=self.profile,
                width=self.width,
                physical=physical,
                scratch=None if scratch is None else Path(scratch.name),
                once=self.duplicates == "error",
            )
            if self.duplicates == "error":
                refuse_duplicates(job, feed)
            if go_on:
                put_factors(job, self)
            trainer = Trainer(
                job,
                crew,
                tell=tell,
                saving=session.saving,
                patience=self._patience(feed.test),
                stop_after=self._stop_after(root, job, feed, crew),
            )
            settings: dict[str, Any] = {
                "estimator": type(self).__name__,
                "parameters": mf_store.plain(self.get_params(deep=False)),
            }
            settings |= {"seed": seed, "data": repr(feed), "workers": physical.workers}
            try:
                outcome = session.drive(trainer, epochs, settings)
                self._keep(job, feed, scratch)
            finally:
                if isinstance(job, StreamedSgdJob):
                    job.close()
        self.n_iter_ = done + outcome.epochs
        self.history_ = (self.history_ if go_on else []) + [
            {"objective": r.objective} | r.metrics for r in outcome.reports
        ]
        root.call_on_fit_task_end(estimator=self, X=feed.data, y=None)
        if outcome.status == "stopped":
            # What was learned is kept, and the caller hears of the interruption as from any Python code.
            raise KeyboardInterrupt

    def _patience(self, test: Data | None) -> Patience | None:
        if not self.early_stopping:
            return None
        metric = None if test is None or self.implicit else next(iter(named("test", 0.0, self.loss)))
        return Patience(self.n_iter_no_change, self.tol, metric)

    def _stop_after(self, root: Any, job: FactorJob, feed: Feed, crew: Crew) -> Callable[[int, Report], bool] | None:
        """Who may end the run after an epoch; None where there are no callbacks: then nobody waits for an answer."""
        if not getattr(self, "_skl_callbacks", ()):
            return None
        return lambda epoch, report: self._callbacks_stop(root, job, feed, crew, epoch, report)

    def _callbacks_stop(self, root: Any, job: FactorJob, feed: Feed, crew: Crew, epoch: int, report: Report) -> bool:
        """Tell scikit-learn's callbacks of an epoch; whether one of them asks to stop."""

        def fitted() -> dict[str, Any]:
            crew.gather()
            return self._fitted(job, feed)

        task = root.subcontext(task_name=f"epoch {epoch}")
        task.call_on_fit_task_begin(estimator=self, X=feed.data, y=None)
        stop = task.call_on_fit_task_end(
            estimator=self,
            X=feed.data,
            y=None,
            metadata={"epoch": epoch, "objective": report.objective, **report.metrics},
            reconstruction_attributes=fitted,
        )
        return bool(stop)

    def _fitted(self, job: FactorJob, feed: Feed, scratch: Path | None = None) -> dict[str, Any]:
        """What `fit` learns, in the user's numbering and the ratings' units."""
        found: dict[str, Any] = mf_serve.in_units(job.factors, scratch)
        found |= {"mean_": job.factors.mean, "plan_": job.plan, "fingerprint_": job.plan.fingerprint}
        return found | {"n_features_in_": feed.shape[1], "row_ids_": feed.row_ids, "col_ids_": feed.col_ids}

    def _keep(self, job: FactorJob, feed: Feed, scratch: Any) -> None:
        on_disk = job.plan.physical.tile is not None
        for name, value in self._fitted(job, feed, Path(scratch.name) if on_disk else None).items():
            setattr(self, name, value)
        # Factors that stay on disk do so as long as the estimator lives.
        self._scratch = scratch if on_disk else None
        self._seen = None
        self._trained_on = feed.source

    # --- using it ---------------------------------------------------------------------------------------------------

    @property
    def components_(self) -> Array:
        """[rank, n] the column factors, as transformers name them."""
        check_is_fitted(self)
        return np.asarray(self.col_factors_.T)

    def predict(self, X: Any) -> NDArray[np.float32]:
        """Ratings of n pairs, given as (n, 2) rows and columns (ids when the data had ids); unknown ones get the mean
        and known bias.

        With the logistic loss the number is the log odds.
        """
        check_is_fitted(self)
        rows, cols = as_pairs(X, self.row_ids_, self.col_ids_)
        with self._here().open() as crew:
            return mf_serve.predict(mf_serve.served(self), rows, cols, crew)

    def transform(self, X: Any) -> NDArray[np.float32]:
        """[m, rank] factors of rows that were not in the training data, from their ratings alone.

        X: a matrix with the columns of `fit`. The factors are the least-squares solution against the learned columns.
        """
        check_is_fitted(self)
        data = self._in_numbering(X)
        if data.shape[1] != self.n_features_in_:
            expected = f"{type(self).__name__} is expecting {self.n_features_in_} features as input"
            raise DataError(f"X has {data.shape[1]} features, but {expected}")
        with self._here().open() as crew:
            return mf_serve.fold_in(mf_serve.served(self), data, self._problem(), crew)

    def recommend(
        self, users: Any, n: int = 10, *, filter_seen: bool = True, items: Any = None
    ) -> tuple[Array, NDArray[np.float32]]:
        """The n best columns for each of `users`: (ids [len(users), n], scores); missing places are −1 (or "") with
        score −inf.

        filter_seen leaves out what the row rated in training; items restricts the choice to these columns.
        """
        check_is_fitted(self)
        rows = known_indices(users, self.row_ids_, len(self.row_factors_), "row")
        allowed = None
        if items is not None:
            allowed = np.zeros(len(self.col_factors_), bool)
            allowed[known_indices(items, self.col_ids_, len(self.col_factors_), "column")] = True
        model = mf_serve.served(self)
        base = model.b + np.float32(model.mean)
        with self._here().open() as crew:
            search = mf_serve.Search.over(model.H, model.c, crew)
            seen = self.seen() if filter_seen else None
            found, scores = search.best(model.W, rows, n, crew, base=base, seen=seen, allowed=allowed)
        return mf_serve.names(found, self.col_ids_), scores

    def similar_items(self, items: Any, n: int = 10) -> tuple[Array, NDArray[np.float32]]:
        """The n columns whose factors point most nearly the same way (cosine), without the column itself."""
        check_is_fitted(self)
        cols = known_indices(items, self.col_ids_, len(self.col_factors_), "column")
        with self._here().open() as crew:
            found, scores = mf_serve.similar(self.col_factors_, cols, n, crew)
        return mf_serve.names(found, self.col_ids_), scores

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the error on X (RMSE, mean absolute error or log loss): higher is better, as scikit-learn expects."""
        check_is_fitted(self)
        data = self._in_numbering(X)
        with self._here().open() as crew:
            return -mf_serve.error(mf_serve.served(self), data, self.loss, crew)

    def seen(self) -> mf_serve.Seen:
        """What each row rated in training, as compressed rows."""
        if self._seen is None:
            scratch = None if self._scratch is None else Path(self._scratch.name)
            self._seen = mf_serve.Seen.of(self._trained_on, scratch)
        return self._seen

    def _in_numbering(self, X: Any) -> Data:
        """Data in the numbering of the training data."""
        return as_matrix(X, duplicates="keep", ids=(self.row_ids_, self.col_ids_))

    # --- keeping it -------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the fitted model to one file (safetensors, no pickle)."""
        check_is_fitted(self)
        mf_store.save(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """A model written by `save`."""
        return cast("Self", mf_store.load(cls, path))

    def _is_fitted(self) -> bool:
        return hasattr(self, "row_factors_")

    __sklearn_is_fitted__ = _is_fitted

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        tags.target_tags.required = False
        return tags
