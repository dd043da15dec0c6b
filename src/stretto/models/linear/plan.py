"""The plan of a linear model's fit: everything that can change a number, and its cost. No data are laid out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from stretto.checks import shown
from stretto.data.convert.sparse_structure import is_sparse
from stretto.data.design.design_files import DesignFiles
from stretto.data.records.digest import digest_of
from stretto.plan.cost import Cost
from stretto.plan.job import JobPlan
from stretto.plan.plan import Physical
from stretto.runtime.chosen import here, name_of
from stretto.solvers.linear.few_features.choice import suits_newton, suits_rows, suits_sparse_newton
from stretto.solvers.linear.moments.choice import suits_moments
from stretto.solvers.linear.regression import uniform
from stretto.text import show_bytes

if TYPE_CHECKING:
    from stretto.runtime.runtimes import Runtime

    from .input import LinearInput

WORKING_SETS = (
    "working sets: the features nearest to entering, solved by coordinate descent, then the duality gap over all; "
    "features proven zero are not read again"
)
MOMENTS = (
    "sufficient statistics: one pass over the data for means and inner products of all features, then coordinate "
    "descent and the duality gap from these alone"
)
NEWTON = (
    "Newton steps: a quadratic model of the loss for all features that may not be zero, minimised by coordinate "
    "descent and Cholesky factors, then the duality gap over all; one thread for the whole fit"
)
BY_ROWS = (
    "Newton steps: a quadratic model of the loss for all features, minimised by conjugate gradients over the rows, "
    "then the duality gap; one thread for the whole fit"
)
# Parameters that never change a result, or that the plan contains in another form.
_ELSEWHERE = {"n_jobs", "runtime", "verbose", "warm_start", "random_state", "profile", "cv", "schedule"}
_FLOAT, _INDEX = 8, 4


class PlannedModel(Protocol):
    """What a plan reads of a linear model."""

    schedule: Any
    profile: str
    fit_intercept: bool
    _squared: bool  # whether the loss is that of least squares

    @property
    def _smooth(self) -> bool: ...
    def _plan_parameters(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class PlanText:
    """Texts and values of a linear model for its plan."""

    program: str  # such as "lasso"
    formula: str  # the objective
    until: str  # when the fit ends
    solver: str = ""  # how it is solved; "" for that of the schedule
    score: str = ""  # what z is; "" for Xw and an intercept without penalty
    outputs: int = 1  # columns of coefficients
    more: dict[str, Any] = field(default_factory=dict)  # further values that can change a number


def plan_linear(
    model: PlannedModel,
    given: LinearInput,
    words: PlanText,
    *,
    seed: int,
    runtime: Runtime,
    start: tuple[Any, ...] | None,
) -> JobPlan:
    """The plan of a fit to these data. start: coefficients and intercepts to start from."""
    X, (samples, features) = given.X, given.shape
    parameters = {name: value for name, value in model._plan_parameters().items() if name not in _ELSEWHERE}
    schedule = "working sets" if model.schedule is None else repr(model.schedule)
    values = {name: _plain(value) for name, value in parameters.items()}
    values |= {"schedule": schedule, "seed": seed, "profile": model.profile, **words.more}
    content = X.digest if isinstance(X, DesignFiles) else X
    values["data digest"] = digest_of(content, given.y, *_weights(given), threads=here(runtime).workers, floats=True)
    if start is not None:
        values["start"] = digest_of(*start)
    sparse = is_sparse(X) or isinstance(X, DesignFiles)
    stored = int(X.nnz) if sparse else int(X.size)
    entry = stored * (_FLOAT + _INDEX) + _FLOAT * (features + 1) if sparse else stored * _FLOAT
    told = ", ".join(f"{name}={value}" for name, value in values.items() if name in parameters)
    intercept = words.score or ("z = Xw + b, b free" if model.fit_intercept else "z = Xw")
    positive = ", w ≥ 0" if getattr(model, "positive", False) else ""
    density = f", {stored:,} entries, {stored / max(1, samples * features):.2%} of the cells" if sparse else ""
    stores = "svmlight files" if isinstance(X, DesignFiles) else X.format.upper() if sparse else ""
    kind = f"sparse {X.dtype} ({stores})" if sparse else f"dense {X.dtype}"
    facts = [
        ("parameters", f"{told}, seed={seed}"),
        ("problem", f"minimise {words.formula}, {intercept}{positive}"),
        ("data", f"{samples:,} samples × {features:,} features, {kind}{density}, {show_bytes(_nbytes(X))}"),
        ("solver", words.solver or solver_words(model, samples, features, stored if sparse else None)),
        ("until", words.until),
    ]
    return JobPlan(
        words.program,
        f"{samples:,} × {features:,}, {stored:,} entries",
        values,
        Cost(
            stored,
            entry_bytes=entry,
            state_bytes=_FLOAT * words.outputs * (features + 2 * samples),
            moved_bytes=entry + 2 * _FLOAT * words.outputs * (features + samples),
            flops=4 * stored * words.outputs,
        ),
        profile=model.profile,
        facts=tuple(facts),
        physical=Physical(name_of(runtime), runtime.workers),
        undrawn="features are chosen round by round, so there is no block grid",
        each="sweep",
    )


def plan_path(
    program: str, given: LinearInput, parameters: dict[str, Any], profile: str, runtime: Runtime, *, hashed: bool
) -> JobPlan:
    """The plan of a path of penalties.

    program : the function that was called
    hashed : include a digest of the data, which takes a pass over them
    """
    X, (samples, features) = given.X, given.shape
    values = {name: _plain(value) for name, value in parameters.items()} | {"profile": profile}
    if hashed:
        content = X.digest if isinstance(X, DesignFiles) else X
        values["data digest"] = digest_of(
            content, given.y, *_weights(given), threads=here(runtime).workers, floats=True
        )
    sparse = is_sparse(X) or isinstance(X, DesignFiles)
    stored = int(X.nnz) if sparse else int(X.size)
    return JobPlan(
        program,
        f"{samples:,} × {features:,}, {stored:,} entries",
        values,
        Cost(stored, entry_bytes=0, state_bytes=_FLOAT * (features + 2 * samples), moved_bytes=0, flops=0),
        profile=profile,
        facts=(("solver", MOMENTS if suits_moments(samples, features, stored if sparse else None) else WORKING_SETS),),
        physical=Physical(name_of(runtime), runtime.workers),
    )


def _weights(given: LinearInput) -> list[Any]:
    """The weights of the samples, if there are any."""
    return [] if uniform(given.weight) else [given.weight]


def solver_words(model: PlannedModel, samples: int, features: int, entries: int | None) -> str:
    """How one problem of this shape is solved, as text. entries: of a sparse matrix; None for a dense one"""
    if model.schedule is None:
        if model._squared:
            return MOMENTS if suits_moments(samples, features, entries) else WORKING_SETS
        if entries is None:
            return NEWTON if suits_newton(samples, features) else WORKING_SETS
        if suits_sparse_newton(samples, features, entries, smooth=model._smooth):
            return NEWTON
        return BY_ROWS if suits_rows(samples, features, entries, smooth=model._smooth) else WORKING_SETS
    return str(model.schedule.explain())


def _nbytes(X: Any) -> int:
    names = ("data", "indices", "indptr", "row", "col") if is_sparse(X) else ()
    return sum(int(getattr(X, name).nbytes) for name in names if hasattr(X, name)) or int(getattr(X, "nbytes", 0))


def _plain(value: Any) -> Any:
    """A parameter in a form that can be printed, compared and saved as JSON."""
    if isinstance(value, np.ndarray | list | tuple):
        return f"{np.size(value)} values, {digest_of(np.asarray(value))[:8]}"
    if isinstance(value, np.generic):
        return value.item()
    return value if value is None or isinstance(value, bool | int | float | str) else shown(value)
