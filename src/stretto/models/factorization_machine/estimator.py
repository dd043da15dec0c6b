"""`FactorizationMachine`: a linear model with a factor for each feature, whose products are the pairwise interactions.

    model = st.FactorizationMachine().fit(X, clicked)                    # X: one-hot encoded, sparse
    model.predict_proba(X)
    st.FactorizationMachine(loss="squared").fit(X, rating)               # numbers
    st.FactorizationMachine(field_aware=True, fields=fields).fit(X, y)   # a factor for each other field

Same seed, same bits, whatever `n_jobs` is.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from stretto.checks import shown
from stretto.errors import PlanError
from stretto.models import checks
from stretto.models.linear.input import LinearInput, features, taken
from stretto.models.options import refuse_unused
from stretto.models.sklearn_base import clone, with_callbacks
from stretto.plan.job import JobPlan
from stretto.runtime.chosen import refuse_elsewhere
from stretto.runtime.runtimes import Runtime
from stretto.runtime.session import Session

from .fitted import FittedMachine
from .input import MachineInput, fields_of, held_out, machine_input
from .plan import machine_plan, plan_words

Floats = NDArray[np.float64]
LOSSES = ("logistic", "squared")
_MOST_COMPONENTS = 1024


class FactorizationMachine(FittedMachine):
    """Factorization machine: z = b + w·x + Σ_{i<j} (v_i·v_j) x_i x_j, for two classes or for numbers.

    Every feature j has a coefficient w_j and a factor v_j of `n_components` numbers. So the model learns what pairs of
    features mean together, such as a user and an item, even of pairs that it never saw. With `field_aware` a feature
    has a factor for each field, and v_i·v_j is the product of the factor of i for the field of j with that of j for the
    field of i. Time and memory are in proportion to the non-zeros of X. The fit minimises

        Σ s·(loss(y, z) + ½ Σ_{j: x_j ≠ 0} (1 + 50 / n_j)·(l2·w_j² + l2_factors·‖v_j‖²))

    over the samples, by AdaGrad on mini-batches; n_j is the number of samples with feature j, and s are sample weights.
    Each column is divided by the root mean square of its values that are not zero, which for one-hot columns is 1. A
    target of numbers is standardised.

    Parameters
    ----------
    n_components : int, default 15
        Length of a factor. 15 numbers and the coefficient fill a cache line, so fewer take no less time.
    loss : {"logistic", "squared"}, default "logistic"
        log(1 + e^−yz) for two classes, or ½(y − z)² for numbers. It makes the estimator a classifier or a regressor.
    field_aware : bool, default False
        A factor for each field, which suits few fields of many values; time and memory are multiplied by the number of
        fields. 4 to 8 components are usually enough.
    fields : array of int [p] or None, default None
        The field of each feature, from 0; for field_aware=True. One-hot columns of one variable are one field.
    l2 : float or None, default None
        Penalty of the coefficients; None: a tenth of that of the factors.
    l2_factors : float or None, default None
        Penalty of the factors. None: the best of 0.008 and weaker ones (0.04 for "squared") on a held-out part, for
        1,000 samples or more; fewer, and `partial_fit`, take the first.
    learning_rate : float, default 0.3
        AdaGrad's step for samples of length 1; it falls linearly to 0 over the epochs.
    max_iter : int, default 10
        Epochs: passes over the samples.
    batch_size : int or None, default None
        Samples of a mini-batch; None: a 512th of the samples, from 8 to 512. It changes the answer, n_jobs does not.
    init_scale : float, default 0.1
        The first factors have standard deviation init_scale / √n_components, or less for samples with many features.
    fit_intercept : bool, default True
        Learn b.
    early_stopping : bool, default False
        Hold out a part (or give `fit` a validation set), stop when its loss no longer falls, and keep the parameters
        with the smallest one.
    validation_fraction : float, default 0.1
        Share that is held out, for early stopping and for the choice of the penalty.
    n_iter_no_change : int, default 3
        Epochs without improvement after which early stopping ends the fit.
    tol : float, default 0.0001
        Share of the loss that counts as improvement.
    warm_start : bool, default False
        `fit` continues from the parameters of the last fit, with its scales.
    n_jobs : int, "auto" or None, default None
        Threads; None uses those of joblib's context (`joblib.parallel_config(n_jobs=…)`), or else every core that this
        process may use. "auto" uses a thread for every 65,536 values of X. Never changes the answer.
    runtime : st.Serial, st.Threads or None, default None
        Where to run, on this machine; overrides n_jobs. Never changes the answer.
    profile : {"exact", "fast"}, default "exact"
        "exact" gives the same bits on every x86-64 processor.
    random_state : int, RandomState or None, default None
        Seed of the first factors and of the order of the samples; None is 0.
    verbose : int, default 0
        0 quiet, 1 a line for each epoch.

    Attributes
    ----------
    coef_ : ndarray of float64 [p]
        Coefficients, in the units of X and y.
    factors_ : ndarray of float64 [p, n_components] or [p, fields, n_components]
        Factors, in the units of X and y.
    intercept_ : float
        Intercept b.
    classes_ : ndarray [2]
        The classes; with loss="logistic".
    l2_ : float
        The penalty of the coefficients that was used.
    l2_factors_ : float
        The penalty of the factors that was used.
    scale_ : ndarray of float64 [p]
        Root mean square of the values of each column that are not zero; 0 for an empty column.
    history_ : list of dict
        The mean loss of each epoch ("objective"), and on held-out samples ("validation").
    n_iter_ : int
        Epochs done.
    n_features_in_ : int
        Number of features seen by `fit`.
    feature_names_in_ : ndarray of str [p]
        Names of the features, where X has names.
    plan_ : JobPlan
        The plan that was run.
    fingerprint_ : str
        Its hash.

    Examples
    --------
    >>> import numpy as np, stretto as st
    >>> from sklearn.preprocessing import OneHotEncoder
    >>> pairs = np.random.default_rng(0).integers(0, 10, (2000, 2))
    >>> X, y = OneHotEncoder().fit_transform(pairs), (pairs[:, 0] + pairs[:, 1]) % 2
    >>> model = st.FactorizationMachine(random_state=0, max_iter=20).fit(X, y)
    >>> model.score(X, y) > 0.95
    True
    >>> model.factors_.shape
    (20, 15)
    """

    def __init__(
        self,
        n_components: int = 15,
        *,
        loss: str = "logistic",
        field_aware: bool = False,
        fields: Any = None,
        l2: float | None = None,
        l2_factors: float | None = None,
        learning_rate: float = 0.3,
        max_iter: int = 10,
        batch_size: int | None = None,
        init_scale: float = 0.1,
        fit_intercept: bool = True,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 3,
        tol: float = 1e-4,
        warm_start: bool = False,
        n_jobs: int | Literal["auto"] | None = None,
        runtime: Runtime | None = None,
        profile: str = "exact",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.loss = loss
        self.field_aware = field_aware
        self.fields = fields
        self.l2 = l2
        self.l2_factors = l2_factors
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.init_scale = init_scale
        self.fit_intercept = fit_intercept
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.runtime = runtime
        self.profile = profile
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check = checks.of(self)
        check.choice("loss", self.loss, LOSSES)
        check.number("n_components", self.n_components, least=1, most=_MOST_COMPONENTS, whole=True)
        check.flags(field_aware=self.field_aware, early_stopping=self.early_stopping)
        check.optional("l2", self.l2, least=0, most=1e6)
        check.optional("l2_factors", self.l2_factors, least=0, most=1e6)
        check.number("learning_rate", self.learning_rate, above=0, most=1e6)
        check.number("learning_rate", self.learning_rate, least=1e-12)
        check.optional("batch_size", self.batch_size, least=1, most=1 << 20, whole=True)
        check.number("init_scale", self.init_scale, least=0, most=1e3)
        check.number("validation_fraction", self.validation_fraction, above=0, below=1)
        check.number("n_iter_no_change", self.n_iter_no_change, least=1, whole=True)
        if self.field_aware and self.fields is None:
            raise PlanError(
                f"{type(self).__name__}: field_aware=True needs fields=, an array of the field of each feature; the "
                "one-hot columns of one variable are one field"
            )
        if not self.field_aware and self.fields is not None:
            raise PlanError(
                f"{type(self).__name__}: fields={shown(self.fields)} has no effect with field_aware=False; set "
                "field_aware=True, or leave fields out"
            )
        if not self.early_stopping:
            unused = dict.fromkeys(("n_iter_no_change", "tol"), "it belongs to early_stopping=True")
            refuse_unused(self, unused, chosen="early_stopping=False")

    def _runtime(self, other: Any = None) -> Runtime:
        found = super()._runtime(other)
        refuse_elsewhere(
            found,
            owner=type(self).__name__,
            why="mini-batches change the parameters of all features in one memory",
            give="use st.Threads(n) or st.Serial()",
        )
        return found

    @with_callbacks  # type: ignore[untyped-decorator]
    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, validation: Any = None,
        session: Session | None = None,
    ) -> Self:  # fmt: skip
        """Learn from X and y, or from svmlight files.

        Parameters
        ----------
        X : array or sparse matrix [n, p], DataFrame or paths
            Samples × features, or svmlight files, as for `st.Lasso`.
        y : array [n] or None, default None
            Two classes, or numbers with loss="squared"; None with files.
        sample_weight : array [n] or None, default None
            Weights of the samples.
        validation : tuple or None, default None
            Samples (X, y) or (X, y, sample_weight) to measure the loss on after every epoch, in the place of a held-out
            part of X.
        session : Session or None, default None
            Where to record the run, when to save checkpoints, and whether to resume from one.
        """
        return self._fit(X, y, sample_weight, validation, session=session)

    def plan(self, X: Any, y: Any = None, sample_weight: Any = None, *, validation: Any = None) -> JobPlan:
        """The plan that `fit` with these arguments runs, made without converting X. Nothing is learned.

        Parameters
        ----------
        X : array or sparse matrix [n, p], DataFrame or paths
            Samples × features, as for `fit`.
        y : array [n] or None, default None
            Two classes, or numbers.
        sample_weight : array [n] or None, default None
            Weights of the samples.
        validation : tuple or None, default None
            As for `fit`.

        Returns
        -------
        JobPlan
            With `explain()`, `cost` and `fingerprint`; `run(runtime=…, session=…)` fits this estimator by it.
        """
        self._check_parameters()
        model = clone(self)  # planning must not change the estimator
        found, held, start = self._understood(model, X, y, sample_weight, validation)
        made = model._made(found.given, held, start, self._runtime())
        planned: JobPlan = replace(made, runner=partial(self._run_plan, made, X, y, sample_weight, validation))
        return planned

    @with_callbacks  # type: ignore[untyped-decorator]
    def _run_plan(
        self, made: JobPlan, X: Any, y: Any, sample_weight: Any, validation: Any, runtime: Any = None,
        session: Session | None = None,
    ) -> Self:  # fmt: skip
        """Fit by an existing plan; PlanError if the plan of this fit would now differ."""
        return self._fit(X, y, sample_weight, validation, made, runtime, session)

    def _made(
        self, given: LinearInput, held: MachineInput | None, start: tuple[Any, ...] | None, where: Runtime,
        made: JobPlan | None = None,
    ) -> JobPlan:  # fmt: skip
        """The plan of a fit."""
        _, fields = fields_of(self, given.shape[1])
        plan = self._planned(given, plan_words(self, fields, held), start, made, where)
        return machine_plan(self, plan, fields, given.shape)

    def _fit(
        self, X: Any, y: Any, sample_weight: Any, validation: Any, made: JobPlan | None = None, runtime: Any = None,
        session: Session | None = None,
    ) -> Self:  # fmt: skip
        from .fitting import fit_machine  # here, not above: it imports Numba

        self._check_parameters()
        where = self._runtime(runtime)
        found, held, start = self._understood(self, X, y, sample_weight, validation)
        plan = self._made(found.given, held, start, where, made)
        with self._sitting(found.given, plan, where, session) as sitting:
            fit_machine(self, sitting, found, held, start is not None)
        if self.loss != "logistic" and hasattr(self, "classes_"):
            del self.classes_
        return self

    def _understood(
        self, model: FactorizationMachine, X: Any, y: Any, sample_weight: Any, validation: Any
    ) -> tuple[MachineInput, MachineInput | None, tuple[Any, ...] | None]:
        """(samples, held-out samples, start) of a fit of `model`, which is this estimator or a clone."""
        given = self._taken(model, X, y, sample_weight)
        found = machine_input(model, given)
        start = self._start(given, found)
        if start is not None:
            found = machine_input(model, given, found.classes, self._target)
        return found, held_out(model, validation, found.classes, found.target), start

    @staticmethod
    def _taken(model: FactorizationMachine, X: Any, y: Any, sample_weight: Any) -> LinearInput:
        return taken(model, X, y, sample_weight, numeric=model.loss == "squared")

    def _start(self, given: LinearInput, found: MachineInput) -> tuple[Any, ...] | None:
        """The parameters that a warm start continues from."""
        if not self.warm_start or not hasattr(self, "_weights"):
            return None
        fields = fields_of(self, given.shape[1])[1]
        same = self._weights.shape[0] == given.shape[1] and self._shape == (fields, int(self.n_components))
        alike = (found.classes is None) != hasattr(self, "classes_")
        if alike and found.classes is not None:
            alike = np.array_equal(found.classes, self.classes_)
        return (self._weights, self._bias) if same and alike else None

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn from more samples: one epoch over them, at a learning rate that does not fall.

        Parameters
        ----------
        X : array or sparse matrix [n, p] or DataFrame
            Samples × features, always with the same columns.
        y : array [n]
            Their classes or numbers.
        classes : array [2] or None, default None
            Both classes; needed in the first call if y has only one of them. Not used with loss="squared".
        sample_weight : array [n] or None, default None
            Weights of the samples.
        """
        from .fitting import continue_machine  # here, not above: it imports Numba

        self._check_parameters()
        known = hasattr(self, "_weights")
        if known:
            given = self._taken(clone(self), features(self, X), y, sample_weight)
            expected = self.classes_ if self.loss == "logistic" else None
            found = machine_input(self, given, expected, self._target)
            if self._shape != (fields_of(self, given.shape[1])[1], int(self.n_components)):
                raise PlanError(
                    f"{type(self).__name__}.partial_fit: n_components or fields were changed since the first call; set "
                    "them back, or fit anew"
                )
        else:
            given = self._taken(self, X, y, sample_weight)
            found = machine_input(self, given, self._named(classes))
        seed = self._seed() + (self.n_iter_ if known else 0)
        with checks.here(self.runtime, self.n_jobs, type(self).__name__).open() as crew:
            continue_machine(self, crew, found, seed, known)
        return self

    def _named(self, classes: Any) -> NDArray[Any] | None:
        """The classes given to `partial_fit`, sorted."""
        if classes is None or self.loss == "squared":
            return None
        found = np.unique(np.asarray(classes))
        if len(found) != 2:
            raise checks.of(self).wrong("classes", "both classes, or None", classes)
        return found
