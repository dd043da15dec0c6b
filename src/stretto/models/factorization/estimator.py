"""`MatrixFactorization`: the estimator.

    model = st.MatrixFactorization(n_components=32, random_state=0).fit(X)      # X: users × items, sparse
    model.predict([[0, 10], [3, 7]])
    ids, scores = model.recommend([0, 1, 2], n=10)
    print(st.MatrixFactorization(n_components=32).plan(X))                      # what fit would do, before it does it

Same seed, same bits, whatever `n_jobs` is.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from stretto.checks import parse_bytes
from stretto.data.records.data import Data
from stretto.data.records.duplicates import POLICIES
from stretto.data.records.ids import IdMap
from stretto.deprecation import deprecated_attribute, deprecated_parameter
from stretto.errors import DataError
from stretto.kernels.core.profiles import PROFILES
from stretto.models import checks
from stretto.models.options import refuse_unused
from stretto.models.persistence import plain
from stretto.models.renamed import RenamedParameters
from stretto.models.sklearn_base import (
    BaseEstimator,
    CallbackSupportMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    check_is_fitted,
    with_callbacks,
)
from stretto.plan.grid_plan import Physical
from stretto.plan.plan import Plan
from stretto.plan.planned import refuse_changed
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.job import EpochReport
from stretto.runtime.blocks.source import EntrySource, InMemory
from stretto.runtime.blocks.train import JobTrainer, Patience
from stretto.runtime.chosen import name_of, one_memory
from stretto.runtime.runtimes import Runtime
from stretto.runtime.session import Session, scratch_folder
from stretto.solvers.factorization import factors as mf_serve
from stretto.solvers.factorization.counted_plan import CountedRatings
from stretto.solvers.factorization.held_out import named
from stretto.solvers.factorization.ndcg import METRIC
from stretto.solvers.factorization.problem import FactorizationProblem, Moments, parameter_of

from . import persistence, scoring
from .align import Aligned, entries_of, has_ids
from .arguments import as_pairs, known_indices
from .build import EarlierFit, FactorJob, count, going_on, lay_out_factors, put_factors, refuse_duplicates
from .continue_fit import RatingBatches, WithSgd, grown, moved, refuse_unlike
from .fold_in import FittedProblem, NewRows, labelled, new_rows
from .input import RatingsInput, feed_from, read_by_nodes
from .options import unused_options

Array = NDArray[Any]


class MatrixFactorization(
    RenamedParameters,
    CallbackSupportMixin,  # type: ignore[misc]
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Factorise a sparse matrix of ratings: r ≈ p = mean + b_i + c_j + w_i·h_j.

    Over the ratings (i, j), each counted once, the fit minimises

        Σ (r − p)² + λ·(‖w_i‖² + ‖h_j‖²) + μ·(b_i² + c_j²)

    where λ is `l2_regularization` and μ is `bias_l2_regularization`.

    Parameters
    ----------
    n_components : int, default 32
        Length of the factors w_i and h_j. More than the smaller side of the matrix cannot help, and is refused above
        1,024.
    solver : {"sgd", "als", "ccd"}, default "sgd"
        Stochastic gradient descent, alternating least squares, or coordinate descent (CCD++). An option that belongs to
        another solver is refused unless it has its default.
    loss : {"squared", "absolute", "logistic"}, default "squared"
        What takes the place of (r − p)²; for "logistic", ratings above 0 are positive and p is the log odds. als and
        ccd solve "squared".
    l2_regularization : float, default 0.05
        Penalty on factors, in the units of the ratings: ratings and penalty multiplied by c give the same model in
        other units (factors · √c, mean and biases · c). A very strong penalty leaves mean and biases alone.
    bias_l2_regularization : float, default 0.05
        Penalty on biases, without unit: b_i is 1 / (1 + bias_l2_regularization) of the mean of what the rest leaves
        over.
    max_iter : int, default 20
        Epochs: passes over the ratings.
    learning_rate : float or None, default None
        Step of sgd for ratings of spread 1; None: 0.04, adagrad 0.1, adarevision 0.08.
    schedule : {"linear", "constant"} or None, default None
        Whether the step falls linearly to zero over the epochs; None: constant for adarevision only.
    optimizer : {"sgd", "adagrad", "adarevision"}, default "sgd"
        For solver="sgd". "adagrad" has a step for each row, by the size of its gradients so far. "adarevision" has one
        for each element and bias, without delays (with delays: `st.tables.adarevision` on tables). Its steps shrink by
        themselves, and it converges with learning rates from 0.05 to 0.4.
    biases : bool, default True
        Learn the mean and one bias for each row and column.
    implicit : bool, default False
        The values are counts of actions, not ratings. Every pair counts, with preference 1 where the value is positive
        and 0 elsewhere, and `score` measures the ranking. For solver="als". There are no biases, and the penalty is
        multiplied by the confidence of each entry.
    alpha : float, default 1.0
        For implicit: a value has confidence 1 + alpha·value / mean |value|, a missing one 1. A negative value is a
        confident no, with preference 0. The unit of the counts does not matter.
    linear_solver : {"cholesky", "cg"}, default "cholesky"
        For solver="als".
    inner : int, default 3
        Steps of "cg", or inner sweeps of ccd.
    init_scale : float or None, default None
        The first factors have standard deviation init_scale / √n_components, for ratings of spread 1; None: 0.05 for
        sgd, 1 for the others.
    early_stopping : bool, default False
        Hold out a part (or give `fit` a validation set) and stop when its error no longer falls.
    validation_fraction : float, default 0.1
        Share held out for early stopping.
    n_iter_no_change : int, default 3
        Epochs without improvement after which early stopping ends the fit.
    tol : float, default 0.0001
        What counts as improvement.
    warm_start : bool, default False
        `fit` continues from the factors of the last fit (and its squared gradients). Ids or indices identify the rows.
    duplicates : {"error", "first", "last", "mean", "sum", "keep"}, default "error"
        What to do with a pair rated twice.
    width : int, default 16
        Logical workers of the plan; it changes the answer, n_jobs does not.
    profile : {"exact", "fast"}, default "exact"
        "exact": same bits on every x86-64 processor.
    random_state : int, RandomState or None, default None
        Seed of the plan and the first factors.
    n_jobs : int or None, default None
        Threads; None uses those of joblib's context (`joblib.parallel_config(n_jobs=…)`), or else every core that this
        process may use. Never changes the answer.
    runtime : st.Serial, st.Threads, st.Cluster, st.Simulated or None, default None
        Where to run; overrides n_jobs.
    memory : int, str or None, default None
        Budget such as "2GiB"; what does not fit is cut into blocks on disk and streamed; als and ccd keep the factors
        in memory. On a cluster it is the budget of each node; with sgd the nodes read their ratings from the files, and
        the driver none. Never changes the answer.
    verbose : int, default 0
        0 quiet, 1 a progress bar, 2 the plan too.

    Attributes
    ----------
    user_factors_ : ndarray of float32 [m, n_components]
        Factors of the rows.
    item_factors_ : ndarray of float32 [n, n_components]
        Factors of the columns.
    components_ : ndarray of float32 [n_components, n]
        The column factors, as transformers name them.
    user_bias_ : ndarray of float32 [m]
        Biases of the rows.
    item_bias_ : ndarray of float32 [n]
        Biases of the columns.
    mean_ : float
        Mean of the ratings; 0 without biases.
    scale_ : float
        Standard deviation of the ratings; their root mean square without biases.
    confidence_ : float
        What a value of 1 adds to the confidence of implicit feedback: alpha / mean |value|; 0 for ratings.
    n_ratings_ : int
        Ratings learned from, with those of earlier calls of `partial_fit`.
    n_features_in_ : int
        Number of columns seen by `fit`.
    n_iter_ : int
        Epochs done.
    n_features_in_ : int
        Columns of the matrix, n.
    history_ : list of dict
        Objective and errors after each epoch.
    plan_ : Plan
        The plan that was run.
    fingerprint_ : str
        Its hash.
    user_ids_ : IdMap or None
        Ids of the rows, where the data had them.
    item_ids_ : IdMap or None
        Ids of the columns, where the data had them.
    squares_ : dict of ndarray
        Sums of squared gradients, for ratings of spread 1: {"zw": [m, n_components], "zh": [n, n_components], "zb":
        [m], "zc": [n]} of adarevision, {"gw": [m], "gh": [n]} of adagrad, {} of the others.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, stretto as st
    >>> X = sp.random(50, 40, density=0.3, format="csr", random_state=0)
    >>> model = st.MatrixFactorization(4, max_iter=5, random_state=0).fit(X)
    >>> model.predict([[0, 1], [2, 3]]).shape
    (2,)
    """

    user_factors_: NDArray[np.float32]
    item_factors_: NDArray[np.float32]
    user_bias_: NDArray[np.float32]
    item_bias_: NDArray[np.float32]
    mean_: float
    scale_: float
    confidence_: float
    n_ratings_: int
    n_iter_: int
    n_features_in_: int
    history_: list[dict[str, float]]
    plan_: Plan
    fingerprint_: str
    user_ids_: IdMap | None
    item_ids_: IdMap | None
    squares_: dict[str, NDArray[np.float32]]
    _learned: FittedProblem
    _seen: mf_serve.RatedItems | None
    _trained_on: EntrySource | None

    # Former names, which still work and warn.
    row_factors_ = deprecated_attribute("user_factors_", removed_in="0.3")
    col_factors_ = deprecated_attribute("item_factors_", removed_in="0.3")
    row_bias_ = deprecated_attribute("user_bias_", removed_in="0.3")
    col_bias_ = deprecated_attribute("item_bias_", removed_in="0.3")
    row_ids_ = deprecated_attribute("user_ids_", removed_in="0.3")
    col_ids_ = deprecated_attribute("item_ids_", removed_in="0.3")
    rank = deprecated_attribute("n_components", removed_in="0.3")
    epochs = deprecated_attribute("max_iter", removed_in="0.3")
    reg = deprecated_attribute("l2_regularization", removed_in="0.3")
    bias_reg = deprecated_attribute("bias_l2_regularization", removed_in="0.3")

    @deprecated_parameter("rank", "n_components", removed_in="0.3")
    @deprecated_parameter("epochs", "max_iter", removed_in="0.3")
    @deprecated_parameter("reg", "l2_regularization", removed_in="0.3")
    @deprecated_parameter("bias_reg", "bias_l2_regularization", removed_in="0.3")
    def __init__(
        self,
        n_components: int = 32,
        *,
        solver: str = "sgd",
        loss: str = "squared",
        l2_regularization: float = 0.05,
        bias_l2_regularization: float = 0.05,
        max_iter: int = 20,
        learning_rate: float | None = None,
        schedule: str | None = None,
        optimizer: str = "sgd",
        biases: bool = True,
        implicit: bool = False,
        alpha: float = 1.0,
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
        self.n_components = n_components
        self.solver = solver
        self.loss = loss
        self.l2_regularization = l2_regularization
        self.bias_l2_regularization = bias_l2_regularization
        self.max_iter = max_iter
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
        """Learn from ratings.

        Parameters
        ----------
        X : sparse or dense matrix, three arrays, table, Data, path, or pairs with y
            The ratings. Of a sparse matrix every stored number is one, also a stored 0; of a dense one every number but
            0. Pairs are an array or table of two columns, user and item.
        y : array [n] or None, default None
            The ratings of pairs X. Ignored where X is a matrix, as by every transformer of scikit-learn.
        validation : ratings, float or None, default None
            What to measure on after each epoch, or the share of X to hold out for it; with early_stopping
            validation_fraction unless given. A matrix has the rows and columns of X.
        session : Session or None, default None
            Where to record the run, when to save checkpoints, whether to continue from one.
        """
        return self._fit(X, y, validation, session)

    def plan(self, X: Any, y: Any = None, *, validation: Any = None) -> Plan:
        """The plan that `fit` with these arguments runs, made by counting the ratings. Nothing is learned.

        Parameters
        ----------
        X : sparse or dense matrix, three arrays, table, Data, path, or pairs with y
            The ratings, as for `fit`.
        y : array [n] or None, default None
            The ratings of pairs X.
        validation : ratings, float or None, default None
            What to measure on after each epoch.

        Returns
        -------
        Plan
            With `explain()`, `draw()`, `cost` and `fingerprint`; `run(runtime=…, session=…)` fits this estimator by it.
            Pairs that are rated twice are found by `fit`, when it sorts the ratings into blocks.
        """
        problem, runtime, seed = self._problem(), self._runtime(), self._seed()
        with checks.here(runtime, self.n_jobs).open() as crew:
            feed = self._feed(X, y, validation, seed, runtime, None, crew, counting=True)
            problem, _ = self._start(problem, feed)
            made = self._counted(problem, feed, crew, runtime, seed, stream=self.memory is not None).plan
        return replace(made, runner=partial(self._run_plan, made, X, y, validation))

    @with_callbacks  # type: ignore[untyped-decorator]
    def _run_plan(
        self, made: Plan, X: Any, y: Any, validation: Any, runtime: Any = None, session: Session | None = None
    ) -> Self:
        """Fit by an existing plan; PlanError if the plan of this fit would now differ."""
        return self._fit(X, y, validation, session, made, runtime)

    def _fit(
        self,
        X: Any,
        y: Any,
        validation: Any,
        session: Session | None,
        made: Plan | None = None,
        runtime: Any = None,
    ) -> Self:
        problem = self._problem()  # raises an error for wrong parameters before anything is read
        where = self._runtime(runtime)
        seed = self._seed() if made is None else made.logical.seed
        scratch = scratch_folder(session) if self.memory is not None else None
        session = session or Session(verbose=self.verbose)
        with ExitStack() as stack:
            crew = None
            if self._is_read_by_nodes(X, y, where):
                crew = stack.enter_context(where.open())
            feed = self._feed(X, y, validation, seed, where, scratch, crew)
            problem, earlier = self._start(problem, feed)
            self._learn(problem, feed, self.max_iter, earlier, session, seed, scratch, made, where, crew)
        return self

    def _feed(
        self,
        X: Any,
        y: Any,
        validation: Any,
        seed: int,
        runtime: Runtime,
        scratch: Any,
        crew: Crew | None,
        *,
        counting: bool = False,
    ) -> RatingsInput:
        """The ratings of `fit`. crew: reads files in parts. counting: the ratings will only be counted."""
        if validation is None and self.early_stopping:
            validation = float(self.validation_fraction)
        return feed_from(
            X if y is None else entries_of(X, y, self._policy()),
            validation=validation,
            duplicates=self._policy(),
            seed=seed,
            memory=self._budget(),
            scratch=None if scratch is None else Path(scratch.name),
            nodes=crew if self._is_read_by_nodes(X, y, runtime) else None,
            counting=counting,
        )

    def _is_read_by_nodes(self, X: Any, y: Any, runtime: Runtime) -> bool:
        return y is None and not one_memory(runtime) and read_by_nodes(X, self._budget(), self._policy())

    def _start(
        self, problem: FactorizationProblem, feed: RatingsInput
    ) -> tuple[FactorizationProblem, EarlierFit | None]:
        """The problem of `fit`, and with warm_start the earlier fit that it starts from."""
        if not (self.warm_start and self._is_fitted()):
            return problem, None
        refuse_unlike(problem, self._learned.problem, "warm_start=True")
        earlier = self._earlier(feed)
        return going_on(problem, earlier, joined=False), earlier

    def _counted(
        self,
        problem: FactorizationProblem,
        feed: RatingsInput,
        crew: Crew,
        runtime: Runtime,
        seed: int,
        *,
        stream: bool,
    ) -> CountedRatings:
        physical = Physical(name_of(runtime), runtime.workers, self._budget())
        common: dict[str, Any] = {"seed": seed, "profile": self.profile, "width": int(self.width)}
        return count(problem, feed, crew, physical=physical, stream=stream, **common)

    @WithSgd
    @with_callbacks  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Make one epoch over further ratings, from what was learned before; for solver="sgd".

        The ratings may have rows and columns that the model does not know; ids identify those of a table, indices those
        of a matrix. Mean and spread are those of all ratings so far.

        Parameters
        ----------
        X : sparse or dense matrix, three arrays, table, Data, path, or pairs with y
            The ratings, as for `fit`.
        y : array [n] or None, default None
            The ratings of pairs X.
        """
        problem = self._problem()
        data = entries_of(X, y, self._policy(), named=self._is_fitted() and has_ids(self))
        if not self._is_fitted():
            feed = RatingsInput(InMemory(data), data, None, data.shape, data.row_ids, data.col_ids)
            self._learn(problem, feed, 1, None, Session(verbose=self.verbose), self._seed(), None)
            return self
        refuse_unlike(problem, self._learned.problem, "partial_fit")
        before = RatingBatches.of(self._trained_on, self._seen)
        data = grown(data, (self.user_ids_, self.item_ids_), (len(self.user_factors_), len(self.item_factors_)))
        feed = RatingsInput(InMemory(data), data, None, data.shape, data.row_ids, data.col_ids)
        earlier = self._earlier(feed)
        feed = replace(feed, every=before.joined(earlier.rows, earlier.cols, data))
        problem = going_on(problem, earlier, joined=True)
        self._learn(problem, feed, 1, earlier, Session(verbose=self.verbose), self._seed(), None)
        return self

    def _earlier(self, feed: RatingsInput) -> EarlierFit:
        """What was learned so far, with the indices of its rows and columns in the next ratings."""
        sizes = (len(self.user_factors_), feed.shape[0]), (len(self.item_factors_), feed.shape[1])
        return EarlierFit(
            self.user_factors_,
            self.item_factors_,
            self.user_bias_,
            self.item_bias_,
            self.squares_,
            Moments(self.n_ratings_, self.mean_, self.scale_),
            self.n_iter_,
            moved(self.user_ids_, feed.row_ids, sizes[0], "row"),
            moved(self.item_ids_, feed.col_ids, sizes[1], "column"),
        )

    def _policy(self) -> str:
        # Laying out the blocks finds repeated pairs at no cost; finding them earlier would need a sort.
        return "keep" if self.duplicates == "error" else self.duplicates

    def _budget(self) -> int | None:
        return None if self.memory is None else parse_bytes(self.memory)

    def _seed(self) -> int:
        return checks.seed(self.random_state, owner=type(self).__name__)

    def _problem(self) -> FactorizationProblem:
        """The problem that the parameters describe; PlanError for a wrong parameter, or one without effect."""
        given = self.get_params(deep=False)
        names = {field.name: parameter_of(field.name) for field in fields(FactorizationProblem)}
        problem = FactorizationProblem(**{name: given[own] for name, own in names.items() if own in given}).checked()
        check = checks.of(self)
        check.choice("profile", self.profile, PROFILES)
        check.choice("duplicates", self.duplicates, POLICIES)
        check.flags(early_stopping=self.early_stopping, warm_start=self.warm_start)
        check.number("width", self.width, least=1, whole=True)
        check.number("n_iter_no_change", self.n_iter_no_change, least=1, whole=True)
        check.number("tol", self.tol, least=0)
        check.number("validation_fraction", self.validation_fraction, above=0, below=1)
        check.level(self.verbose)
        self._budget()
        self._runtime()
        refuse_unused(self, unused_options(given), chosen=f"solver={self.solver!r}")
        # In implicit feedback every pair counts, seen or not: there is no bias to learn.
        return replace(problem, biases=False) if problem.implicit else problem

    def _runtime(self, other: Any = None) -> Runtime:
        """The runtime: `other` if given, else from the parameters."""
        given = self.runtime if other is None else other
        return checks.place(given, self.n_jobs, owner=type(self).__name__)

    def _here(self) -> Runtime:
        """The runtime for using a fitted model: this machine, even if it was trained on a cluster."""
        return checks.here(self.runtime, self.n_jobs, owner=type(self).__name__)

    def _learn(
        self,
        problem: FactorizationProblem,
        feed: RatingsInput,
        epochs: int,
        earlier: EarlierFit | None,
        session: Session,
        seed: int,
        scratch: Any,
        made: Plan | None = None,
        runtime: Runtime | None = None,
        opened: Crew | None = None,
    ) -> None:
        """Run a fit. opened: an open crew of the runtime, if there is one."""
        runtime = runtime or self._runtime()
        done = 0 if earlier is None else earlier.epochs
        root = self._init_callback_context(max_subtasks=None)
        root.call_on_fit_task_begin(estimator=self, X=feed.data, y=None)
        with runtime.open() if opened is None else nullcontext(opened) as crew, session.listen() as tell:
            counted = self._counted(problem, feed, crew, runtime, seed, stream=scratch is not None)
            if made is not None:
                refuse_changed(made, counted.plan, f"{type(self).__name__}.plan(X)")
            once, folder = self.duplicates == "error", None if scratch is None else Path(scratch.name)
            job = lay_out_factors(problem, counted, feed, crew, scratch=folder, once=once)
            if self.duplicates == "error":
                refuse_duplicates(job, feed)
            if earlier is not None:
                put_factors(job, earlier)
            trainer = JobTrainer(
                job,
                crew,
                tell=tell,
                saving=session.saving,
                patience=self._patience(feed.test),
                stop_after=self._stop_after(root, job, feed, crew),
            )
            settings: dict[str, Any] = {
                "estimator": type(self).__name__,
                "parameters": plain(self.get_params(deep=False)),
            }
            settings |= {"seed": seed, "data": repr(feed), "workers": runtime.workers}
            outcome = session.drive(trainer, epochs, settings)
            self._keep(job, feed, scratch)
        self.n_iter_ = done + outcome.epochs
        self.history_ = (self.history_ if earlier is not None else []) + [
            {"objective": r.objective} | r.metrics for r in outcome.reports
        ]
        root.call_on_fit_task_end(estimator=self, X=feed.data, y=None)
        if outcome.status == "stopped":
            # Keep what was learned; the caller gets the interruption as from any Python code.
            raise KeyboardInterrupt

    def _patience(self, test: Data | Aligned | None) -> Patience | None:
        if not self.early_stopping:
            return None
        metric = METRIC if self.implicit else next(iter(named("test", 0.0, self.loss)))
        watched = None if test is None else metric
        return Patience(self.n_iter_no_change, self.tol, watched, rises=self.implicit and test is not None)

    def _stop_after(
        self, root: Any, job: FactorJob, feed: RatingsInput, crew: Crew
    ) -> Callable[[int, EpochReport], bool] | None:
        """Callback that may end the run after an epoch; None without callbacks, so that no epoch waits for it."""
        if not getattr(self, "_skl_callbacks", ()):
            return None
        return lambda epoch, report: self._callbacks_stop(root, job, feed, crew, epoch, report)

    def _callbacks_stop(
        self, root: Any, job: FactorJob, feed: RatingsInput, crew: Crew, epoch: int, report: EpochReport
    ) -> bool:
        """Notify scikit-learn's callbacks of an epoch; return whether one of them requests a stop."""

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

    def _fitted(self, job: FactorJob, feed: RatingsInput, scratch: Path | None = None) -> dict[str, Any]:
        """Set the fitted attributes, in the user's numbering and the ratings' units."""
        factors = job.factors
        found: dict[str, Any] = mf_serve.in_units(factors, scratch)
        found |= {"mean_": factors.mean, "scale_": factors.scale, "confidence_": factors.confidence}
        found |= {"plan_": job.plan, "fingerprint_": job.plan.fingerprint, "n_ratings_": len(feed.trained_on)}
        found |= {"_learned": FittedProblem(job.problem, factors.mean, factors.scale, factors.confidence)}
        found |= {"_seen": None, "_trained_on": feed.trained_on, "_scratch": None}
        return found | {"n_features_in_": feed.shape[1], "user_ids_": feed.row_ids, "item_ids_": feed.col_ids}

    def _keep(self, job: FactorJob, feed: RatingsInput, scratch: Any) -> None:
        on_disk = job.plan.physical.tile is not None
        for name, value in self._fitted(job, feed, Path(scratch.name) if on_disk else None).items():
            setattr(self, name, value)
        # Factors on disk stay there while the estimator exists.
        self._scratch = scratch if on_disk else None

    # --- using it ---------------------------------------------------------------------------------------------------

    @property
    def components_(self) -> Array:
        """The column factors [n_components, n], as transformers name them."""
        check_is_fitted(self)
        return np.asarray(self.item_factors_.T)

    def predict(self, X: Any) -> NDArray[np.float32]:
        """Ratings of n pairs; with the logistic loss, log odds. Unknown rows and columns get the mean and known bias.

        Parameters
        ----------
        X : array [n, 2]
            Rows and columns; ids when the data had ids.
        """
        check_is_fitted(self)
        rows, cols = as_pairs(X, self.user_ids_, self.item_ids_)
        with self._here().open() as crew:
            return mf_serve.predict(mf_serve.served(self), rows, cols, crew)

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Factors of rows [m, n_components] from their ratings alone, whether they were in the training data or not.

        Row k is that of `fold_in(X).ids[k]`. `fold_in` has the rows' biases as well, and recommends to them.

        Parameters
        ----------
        X : sparse or dense matrix, three arrays, table, Data or path
            Ratings, as for `fit`; a matrix has the columns of `fit`.
        """
        new = self.fold_in(X)
        return cast("NDArray[np.float32]", labelled(self, new.factors, new.ids, X))

    @property
    def _n_features_out(self) -> int:
        return int(self.user_factors_.shape[1])

    def fold_in(self, X: Any, y: Any = None) -> NewRows:
        """Rows from their ratings alone, with the columns as they were learned: factors, biases, recommendations.

        Ratings of columns that the model does not know are left out with a warning.

            new = model.fold_in(ratings_of_new_users)
            items, scores = new.recommend(n=10)       # row k is for new.ids[k]

        Parameters
        ----------
        X : sparse or dense matrix, three arrays, table, Data, path, or pairs with y
            Ratings, as for `fit`; a matrix has the columns of `fit`.
        y : array [n] or None, default None
            The ratings of pairs X.

        Returns
        -------
        NewRows
        """
        check_is_fitted(self)
        return new_rows(self, X, y)

    def recommend(
        self, users: Any, n: int = 10, *, filter_seen: bool = True, items: Any = None
    ) -> tuple[Array, NDArray[np.float32]]:
        """The n best columns for each user: (ids [len(users), n], scores).

        If there are fewer than n columns, all are returned. Where a row has fewer than n left, the id is −1 (or "") and
        the score −inf. Without biases there is nothing to recommend to a row without ratings.

        Parameters
        ----------
        users : array
            Rows; ids when the data had ids.
        n : int, default 10
            Columns for each user.
        filter_seen : bool, default True
            Leave out what the row rated in training.
        items : array or None, default None
            Restrict the choice to these columns; None for all.
        """
        check_is_fitted(self)
        checks.of("recommend").number("n", n, least=1, whole=True)
        try:
            rows = known_indices(users, self.user_ids_, len(self.user_factors_), "row")
        except DataError as error:
            raise DataError(f"{error}; to rows that are new: model.fold_in(their ratings).recommend(n=10)") from None
        allowed = None
        if items is not None:
            allowed = np.zeros(len(self.item_factors_), bool)
            allowed[known_indices(items, self.item_ids_, len(self.item_factors_), "column")] = True
        model = mf_serve.served(self)
        base = model.b + np.float32(model.mean)
        with self._here().open() as crew:
            search = mf_serve.TopNIndex.over(model.H, model.c, crew)
            seen = self.seen() if filter_seen else None
            found, scores = search.best(model.W, rows, n, crew, base=base, seen=seen, allowed=allowed)
        if not self._learned.problem.biases:
            mf_serve.leave_blank((found, scores), model.W, rows)
        return mf_serve.names(found, self.item_ids_), scores

    def similar_items(self, items: Any, n: int = 10) -> tuple[Array, NDArray[np.float32]]:
        """The n columns with the most similar factors (cosine), without the column itself: (ids, similarities).

        Parameters
        ----------
        items : array
            Columns; ids when the data had ids.
        n : int, default 10
            Similar columns for each.
        """
        check_is_fitted(self)
        checks.of("similar_items").number("n", n, least=1, whole=True)
        cols = known_indices(items, self.item_ids_, len(self.item_factors_), "column")
        with self._here().open() as crew:
            found, scores = mf_serve.similar(self.item_factors_, cols, n, crew)
        return mf_serve.names(found, self.item_ids_), scores

    def score(self, X: Any, y: Any = None) -> float:
        """How well ratings are predicted, higher is better: minus the RMSE (mean absolute error, log loss), or NDCG@10.

        Users and items of pairs, tables and `Data` are identified by their names, and those that training never saw are
        predicted as `predict` does it. The rows of a matrix are those of training where its entries say so; otherwise
        they are new ones, as in scikit-learn's cross-validation: each is folded in from four fifths of its ratings and
        measured on the others. Where the entries do not decide it, it is refused.

        For implicit feedback NDCG@10 ranks, for each row, the items that it does not have in training, and asks which
        of the first ten are in X with a positive value.

        Parameters
        ----------
        X : sparse or dense matrix, three arrays, table, Data, path, or pairs with y
            Ratings, as for `fit`.
        y : array [n] or None, default None
            The ratings of pairs X.
        """
        check_is_fitted(self)
        return scoring.score(self, X, y)

    def seen(self) -> mf_serve.RatedItems:
        """What each row rated in training, as compressed rows."""
        if self._seen is None:
            assert self._trained_on is not None
            scratch = None if self._scratch is None else Path(self._scratch.name)
            self._seen = mf_serve.RatedItems.of(self._trained_on, scratch)
        return self._seen

    def _values(self) -> EntrySource | None:
        """The training ratings; None for a loaded model, which has only their pairs."""
        source = self._trained_on
        return None if isinstance(source, RatingBatches) and not source.whole else source

    # --- persistence --------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the fitted model to one file (safetensors, no pickle).

        Parameters
        ----------
        path : str or Path
            The file.
        """
        check_is_fitted(self)
        persistence.save(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model that `save` wrote.

        Parameters
        ----------
        path : str or Path
            The file.
        """
        return cast("Self", persistence.load(cls, path))

    def _is_fitted(self) -> bool:
        return hasattr(self, "user_factors_")

    __sklearn_is_fitted__ = _is_fitted

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        tags.target_tags.required = False
        return tags
