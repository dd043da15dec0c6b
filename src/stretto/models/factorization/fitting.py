"""Fitting of `MatrixFactorization`: from ratings to a plan, a run and the fitted attributes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from stretto.data.records.data import Data
from stretto.errors import PlanError
from stretto.models import checks
from stretto.models.persistence import plain
from stretto.models.sklearn_base import takes_sample_weight, with_callbacks
from stretto.plan.plan import Physical, Plan, PlanSettings
from stretto.plan.planned import refuse_changed
from stretto.runtime.blocks.source import InMemory
from stretto.runtime.chosen import name_of, one_memory
from stretto.runtime.runtimes import Runtime
from stretto.runtime.session import Session, scratch_folder
from stretto.solvers.factorization.problem import FactorizationProblem, Moments
from stretto.solvers.factorization.rated_items import RatedItems

from .align import Aligned, entries_of, has_ids
from .continue_fit import RatingBatches, grown, moved, refuse_unlike
from .fitted_problem import FittedProblem
from .parameters import FactorizationParameters

if TYPE_CHECKING:
    from stretto.runtime.blocks.crew import Crew
    from stretto.runtime.blocks.job import EpochReport
    from stretto.runtime.blocks.train import Patience
    from stretto.solvers.factorization.counted_plan import CountedRatings

    from .build import EarlierFit, FactorJob
    from .input import RatingsInput
    from .side.joined import SideFeatures


class FactorizationFitting(FactorizationParameters):
    """`fit`, `plan` and `partial_fit`."""

    @takes_sample_weight
    @with_callbacks  # type: ignore[untyped-decorator]
    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        validation: Any = None,
        session: Session | None = None,
        user_features: Any = None,
        item_features: Any = None,
        weights: Any = None,
    ) -> Self:
        """Learn from ratings, and from features of users and items.

        With features, the factors and the bias of a row are a linear map of its features plus an own part, and the
        penalties count the own part alone. A row or column that has features and no ratings is part of the model.

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
        user_features : data frame, (ids, matrix), path, sparse or dense matrix, or None, default None
            Features of the rows. A data frame or a CSV file has a column of ids; its numbers are features, and its text
            has one feature for each value, or for each of several between "|". A matrix without ids has the rows of
            the ratings in their order, which is that of sorted ids.
        item_features : data frame, (ids, matrix), path, sparse or dense matrix, or None, default None
            Features of the columns.
        weights : array [n], sparse matrix or None, default None
            How much the squared error of each rating counts, with solver="als"; of implicit feedback, what each value
            is multiplied with. One number from 0 on for each rating, in the order of the ratings, or a matrix like X.
            A rating of weight 2 counts as two, one of weight 0 is left out. `sample_weight` is the same argument.
            Held-out ratings count alike.
        """
        return self._fit(X, y, validation, session, (user_features, item_features), weights)

    @takes_sample_weight
    def plan(
        self,
        X: Any,
        y: Any = None,
        *,
        validation: Any = None,
        user_features: Any = None,
        item_features: Any = None,
        weights: Any = None,
    ) -> Plan:
        """The plan that `fit` with these arguments runs, made by counting the ratings. Nothing is learned.

        Parameters
        ----------
        X : sparse or dense matrix, three arrays, table, Data, path, or pairs with y
            The ratings, as for `fit`.
        y : array [n] or None, default None
            The ratings of pairs X.
        validation : ratings, float or None, default None
            What to measure on after each epoch.
        user_features : data frame, (ids, matrix), path, sparse or dense matrix, or None, default None
            Features of the rows, as for `fit`.
        item_features : data frame, (ids, matrix), path, sparse or dense matrix, or None, default None
            Features of the columns, as for `fit`.
        weights : array [n], sparse matrix or None, default None
            Weights of the ratings, as for `fit`.

        Returns
        -------
        Plan
            With `explain()`, `draw()`, `cost` and `fingerprint`; `run(runtime=…, session=…)` fits this estimator by it.
            Pairs that are rated twice are found by `fit`, when it sorts the ratings into blocks.
        """
        problem, runtime, seed = self._problem(), self._runtime(), self._seed()
        features = (user_features, item_features)
        with checks.here(runtime, self.n_jobs).open() as crew:
            feed = self._feed(X, y, validation, seed, runtime, None, crew, features, weights, counting=True)
            problem, _ = self._start(problem, feed)
            made = self._counted(problem, feed, crew, runtime, seed, stream=self.memory is not None).plan
        return replace(made, runner=partial(self._run_plan, made, X, y, validation, features, weights))

    @with_callbacks  # type: ignore[untyped-decorator]
    def _run_plan(
        self,
        made: Plan,
        X: Any,
        y: Any,
        validation: Any,
        features: tuple[Any, Any],
        weights: Any,
        runtime: Any = None,
        session: Session | None = None,
    ) -> Self:
        """Fit by an existing plan; PlanError if the plan of this fit would now differ."""
        return self._fit(X, y, validation, session, features, weights, made, runtime)

    def _fit(
        self,
        X: Any,
        y: Any,
        validation: Any,
        session: Session | None,
        features: tuple[Any, Any] = (None, None),
        weights: Any = None,
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
            feed = self._feed(X, y, validation, seed, where, scratch, crew, features, weights)
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
        features: tuple[Any, Any],
        weights: Any,
        *,
        counting: bool = False,
    ) -> RatingsInput:
        """The ratings of `fit`. crew: reads files in parts. counting: the ratings will only be counted."""
        from .input import feed_from, is_path
        from .weights import weighted

        if validation is None and self.early_stopping:
            validation = float(self.validation_fraction)
        if weights is not None:
            if any(one is not None for one in features):
                raise PlanError("fit: weights and features of users or items do not go together; leave one of them out")
            own = weighted(X, y, weights, self._problem(), self.duplicates, self.memory)
            return feed_from(
                own.data,
                validation=validation,
                duplicates=self._policy(),
                seed=seed,
                memory=None,
                scratch=None,
                weights=own,
            )
        side: SideFeatures | None = None
        if any(one is not None for one in features):
            from stretto.data.reading.read import read_for_fit

            from .side.joined import join, refuse_features

            warm = self.warm_start and self._is_fitted()
            refuse_features(self._problem(), memory=self.memory, one_memory=one_memory(runtime), warm_start=warm)
            X = read_for_fit(X, self._policy()) if is_path(X) else X
            (X, side), y = join(X, y, features, self._policy()), None
        feed = feed_from(
            X if y is None else entries_of(X, y, self._policy()),
            validation=validation,
            duplicates=self._policy(),
            seed=seed,
            memory=self._budget(),
            scratch=None if scratch is None else Path(scratch.name),
            nodes=crew if self._is_read_by_nodes(X, y, runtime) else None,
            counting=counting,
        )
        return feed if side is None else replace(feed, features=side)

    def _is_read_by_nodes(self, X: Any, y: Any, runtime: Runtime) -> bool:
        from .input import read_by_nodes

        return y is None and not one_memory(runtime) and read_by_nodes(X, self._budget(), self._policy())

    def _start(
        self, problem: FactorizationProblem, feed: RatingsInput
    ) -> tuple[FactorizationProblem, EarlierFit | None]:
        """The problem of `fit`, and with warm_start the earlier fit that it starts from."""
        from .build import going_on

        if feed.weights is not None:
            problem = replace(problem, weights=feed.weights.digest())
        if not (self.warm_start and self._is_fitted()):
            return problem if feed.features is None else replace(problem, features=feed.features.digest()), None
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
        from .build import count

        physical = Physical(name_of(runtime), runtime.workers, self._budget())
        settings = PlanSettings(seed, self.profile, int(self.width), physical)
        return count(problem, feed, crew, settings, stream=stream)

    @with_callbacks  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Learn from further ratings without a complete fit, from what was learned before.

        The ratings may have rows and columns that the model does not know; ids identify those of a table, indices those
        of a matrix. The bits are the same for any number of workers.

        sgd makes one epoch over the further ratings alone; mean and spread become those of all ratings so far. als and
        ccd solve again, exactly and from all ratings of theirs, for the new rows, then for the columns of the further
        ratings, then for their rows; other rows and columns, mean and spread stay. A rating of a known pair replaces
        the earlier one, unless `duplicates` says something else: "sum" adds counts up. For that they need the earlier
        ratings, which a model from a file has only if it was saved with `ratings=True`. Their first call is `fit`.

        Parameters
        ----------
        X : sparse or dense matrix, three arrays, table, Data, path, or pairs with y
            The ratings, as for `fit`.
        y : array [n] or None, default None
            The ratings of pairs X.
        """
        from .build import going_on
        from .input import RatingsInput

        problem = self._problem()
        data = entries_of(X, y, self._policy(), named=self._is_fitted() and has_ids(self))
        if not self._is_fitted() and problem.solver != "sgd":
            return self._fit(X, y, None, None)
        if not self._is_fitted():
            feed = RatingsInput(InMemory(data), data, None, data.shape, data.row_ids, data.col_ids)
            self._learn(problem, feed, 1, None, Session(verbose=self.verbose), self._seed(), None)
            return self
        refuse_unlike(problem, self._learned.problem, "partial_fit")
        if self._learned.problem.features:
            raise PlanError("partial_fit does not go on from a fit with side features; call fit on all ratings")
        if self._learned.problem.weights:
            raise PlanError("partial_fit does not go on from a fit with weights; call fit on all ratings")
        before = RatingBatches.of(self._trained_on, self._seen)
        data = grown(data, (self.user_ids_, self.item_ids_), (len(self.user_factors_), len(self.item_factors_)))
        feed = RatingsInput(InMemory(data), data, None, data.shape, data.row_ids, data.col_ids)
        earlier = self._earlier(feed)
        if problem.solver != "sgd":
            self._update(earlier, before, data)
            return self
        feed = replace(feed, every=before.joined(earlier.rows, earlier.cols, data))
        problem = going_on(problem, earlier, joined=True)
        self._learn(problem, feed, 1, earlier, Session(verbose=self.verbose), self._seed(), None)
        return self

    def _update(self, earlier: EarlierFit, before: RatingBatches, data: Data) -> None:
        """Solve for the users and items of further ratings."""
        from .row_updates import updated

        with self._here().open() as crew:
            found = updated(earlier, before, data, self._learned, self.duplicates, crew)
        self.user_factors_, self.item_factors_ = found.W, found.H
        self.user_bias_, self.item_bias_ = found.b, found.c
        self.user_ids_, self.item_ids_, self.n_features_in_ = data.row_ids, data.col_ids, data.shape[1]
        self.n_ratings_, self._trained_on, self._seen = len(found.ratings), found.ratings, None

    def _earlier(self, feed: RatingsInput) -> EarlierFit:
        """What was learned so far, with the indices of its rows and columns in the next ratings."""
        from .build import EarlierFit

        sizes = (len(self.user_factors_), feed.shape[0]), (len(self.item_factors_), feed.shape[1])
        return EarlierFit(
            self.user_factors_,
            self.item_factors_,
            self.user_bias_,
            self.item_bias_,
            self.squares_,
            Moments(self.n_ratings_, self.mean_, self.scale_),
            self._learned.problem.noise,
            self.n_iter_,
            moved(self.user_ids_, feed.row_ids, sizes[0], "row"),
            moved(self.item_ids_, feed.col_ids, sizes[1], "column"),
        )

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
        from stretto.runtime.blocks.train import JobTrainer

        from .build import lay_out_factors, put_factors, refuse_duplicates

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
            self._watch(job, feed, folder)
            trainer = JobTrainer(
                job,
                crew,
                tell=tell,
                saving=session.saving,
                patience=self._patience(feed.test),
                stop_after=self._stop_after(root, job, feed, crew),
                widths=checks.width_search(runtime),
            )
            settings: dict[str, Any] = {
                "estimator": type(self).__name__,
                "parameters": plain(self.get_params(deep=False)),
            }
            settings |= {"seed": seed, "data": repr(feed), "workers": runtime.workers}
            outcome = session.drive(trainer, epochs, settings)
            self._keep(job, feed, scratch, crew)
        self.n_iter_ = done + outcome.epochs
        self.history_ = (self.history_ if earlier is not None else []) + [
            {"objective": r.objective} | r.metrics for r in outcome.reports
        ]
        root.call_on_fit_task_end(estimator=self, X=feed.data, y=None)
        if outcome.status == "stopped":
            # Keep what was learned; the caller gets the interruption as from any Python code.
            raise KeyboardInterrupt

    def _watch(self, job: FactorJob, feed: RatingsInput, scratch: Path | None) -> None:
        """Measure the metric that `early_stopping` names, besides what the job measures."""
        if not isinstance(self.early_stopping, str) or feed.test is None:
            return
        from stretto.solvers.factorization.watched import WatchedRanking, metric_of

        seen, cuts = RatedItems.of(feed.trained_on, scratch), (job.plan.logical.rows, job.plan.logical.cols)
        biased = job.problem.biases
        job.held = WatchedRanking.of(job.held, metric_of(self.early_stopping), feed.test, seen, cuts, biased=biased)

    def _patience(self, test: Data | Aligned | None) -> Patience | None:
        if not self.early_stopping:
            return None
        from stretto.runtime.blocks.train import Patience
        from stretto.solvers.factorization.held_out import named
        from stretto.solvers.factorization.ndcg import METRIC
        from stretto.solvers.factorization.watched import key_of, metric_of

        implicit = self._problem().implicit
        if isinstance(self.early_stopping, str) and test is not None:
            metric = key_of(metric_of(self.early_stopping))
            return Patience(self.n_iter_no_change, self.tol, metric, rises=True)
        metric = METRIC if implicit else next(iter(named("test", 0.0, self.loss)))
        watched = None if test is None else metric
        return Patience(self.n_iter_no_change, self.tol, watched, rises=implicit and test is not None)

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
            return self._fitted(job, feed, crew)

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

    def _fitted(self, job: FactorJob, feed: RatingsInput, crew: Crew, scratch: Path | None = None) -> dict[str, Any]:
        """Set the fitted attributes, in the user's numbering and the ratings' units."""
        from stretto.solvers.factorization.factors import in_units

        factors = job.factors
        found: dict[str, Any] = in_units(factors, scratch, crew)
        found |= {"mean_": factors.mean, "scale_": factors.scale, "confidence_": factors.confidence}
        found |= {"plan_": job.plan, "fingerprint_": job.plan.fingerprint, "n_ratings_": len(feed.trained_on)}
        found |= {"_learned": FittedProblem.of(job.problem, factors)}
        maps: tuple[Any, Any] = (None, None)
        if feed.features is not None:
            maps = feed.features.fitted(job.means, factors)
        found |= {"user_feature_map_": maps[0], "item_feature_map_": maps[1]}
        found |= {"_seen": None, "_trained_on": feed.trained_on, "_scratch": None}
        return found | {"n_features_in_": feed.shape[1], "user_ids_": feed.row_ids, "item_ids_": feed.col_ids}

    def _keep(self, job: FactorJob, feed: RatingsInput, scratch: Any, crew: Crew) -> None:
        on_disk = job.plan.physical.tile is not None
        for name, value in self._fitted(job, feed, crew, Path(scratch.name) if on_disk else None).items():
            setattr(self, name, value)
        # Factors on disk stay there while the estimator exists.
        self._scratch = scratch if on_disk else None
