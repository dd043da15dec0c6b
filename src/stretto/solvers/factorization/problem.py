"""Matrix factorisation: the problem, standardisation of ratings, and initial factors, for all three solvers.

With p = mean + b_i + c_j + w_i·h_j, explicit ratings r_ij minimise

    Σ (r_ij − p_ij)² + reg·(‖w_i‖² + ‖h_j‖²) + bias_reg·(b_i² + c_j²)        over the ratings (i, j)

so a row's penalty is counted once for each of its ratings; default penalties of SGD also count once for each row and
column (`penalties`). Every solver works on z = (r − mean) / scale, where scale is the ratings' standard deviation: w
and h are then smaller by √scale, biases by scale, and the penalties are reg / scale and bias_reg. Hence reg is in the
units of the ratings and bias_reg has none: ratings and reg multiplied by c give w and h multiplied by √c, and mean and
biases by c.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stretto import checks
from stretto.data.partition import BlockPartition
from stretto.errors import DataError, PlanError
from stretto.kernels.factorization.loss_codes import CODES
from stretto.plan.arrays import StepSpec, by_rows, constant, number
from stretto.plan.kernel_reference import named_kernel
from stretto.runtime.files.mapped_arrays import Disk, full_array, new_array
from stretto.schedule.orders.rotation import independent
from stretto.state.rows import BlockedRows

if TYPE_CHECKING:
    from stretto.runtime.blocks.crew import Crew
    from stretto.runtime.blocks.survey import Survey

PAIRWISE = ("bpr", "warp")  # losses that only rank
_KINDS: dict[str, Callable[[Any], Any]] = {
    "int": int,
    "float": float,
    "bool": bool,
    "str": str,
    "float | None": lambda value: None if value is None else float(value),
    "int | None": lambda value: None if value is None else int(value),
    "str | None": str,
}
_CHOICES: dict[str, tuple[str | None, ...]] = {
    "solver": ("sgd", "als", "ccd"),
    "loss": (*CODES, *PAIRWISE),
    "optimizer": ("sgd", "adagrad", "adarevision"),
    "schedule": (None, "adaptive", "linear", "polynomial", "constant"),
    "linear_solver": ("cholesky", "cg"),
}
# The losses of implicit feedback by SGD: how many items each draws for a value by default, at most; and the learning
# rate and the penalty, for each step.
DRAWS = {"bpr": 2, "warp": 10, "logistic": 4}
RANKING_RATES = {"bpr": 0.1, "warp": 0.03, "logistic": 0.07}
RANKING_REGS = {"bpr": 0.01, "warp": 0.02, "logistic": 0.007}
MOST_DRAWS = 100
_FINEST = 1e-36  # smaller standard deviations, or their inverses, are not normal float32 numbers
# The default penalty of the factors of standardised ratings. One number in the units of the ratings would be too weak
# for ratings from −10 to 10, which then overfit, and too strong for ratings from 0 to 1.
STANDARD_REG, BIAS_REG = 0.05, 0.05
# Learning rates for ratings with standard deviation 1.
RATES = {"sgd": 0.04, "adagrad": 0.1, "adarevision": 0.08}
# Epochs from which on the steps of plain SGD fall faster than linearly, so that their sum stays the same.
LINEAR_EPOCHS = 20
# Schedule "adaptive": the learning rates of factors and of biases, the ratings after which the square of a row's step
# has halved, for ratings that are all noise, and those after which the step of its bias has halved.
# docs/decisions/2026-11-19-steps-of-biases.md has the choice.
ADAPTIVE_RATE, BIAS_RATE = 0.2, 0.12
ADAPTIVE_RATINGS, BIAS_RATINGS = 13.0, 30.0
# The noise, a share of the ratings' variance, until it is measured; and its range.
USUAL_NOISE, LEAST_NOISE, MOST_NOISE = 0.44, 0.03, 1.2
# How schedules fall over the epochs: (power at `LINEAR_EPOCHS` epochs plus one, least step times epochs).
_FALLS = {"linear": (0.0, 1.0), "polynomial": (2.0, 1.0), "adaptive": (3.5, 0.4)}
_BEGUN = 0.25  # of an epoch: the ratings of a row that count before its first step
_NUMBERS: dict[str, dict[str, Any]] = {
    "rank": {"least": 1, "whole": True},
    "epochs": {"least": 1, "whole": True},
    "inner": {"least": 1, "whole": True},
    "alpha": {"least": 0},
}
_NUMBERS_OR_NONE: dict[str, dict[str, Any]] = {
    "negatives": {"least": 1, "most": MOST_DRAWS, "whole": True},
    "reg": {"least": 0},
    "bias_reg": {"least": 0},
    "learning_rate": {"above": 0},
    "init_scale": {"least": 0},
}
# Ranges that float32 can compute with. A very large reg is meaningful, so it is clipped instead.
_BOUNDS: dict[str, dict[str, Any]] = {
    "bias_reg": {"most": 1e20},
    "alpha": {"most": 1e20},
    "learning_rate": {"least": 1e-20, "most": 1e20},
    "init_scale": {"most": 1e15},
}


# Estimator parameters of problem fields. The fields keep their names because fingerprints contain them.
_PARAMETERS = {
    "rank": "n_components",
    "epochs": "max_iter",
    "reg": "l2_regularization",
    "bias_reg": "bias_l2_regularization",
}


def parameter_of(field: str) -> str:
    """The parameter of the estimator that a field of `FactorizationProblem` comes from."""
    return _PARAMETERS.get(field, field)


@dataclass(frozen=True)
class Moments:
    """Count, mean and standard deviation of the ratings that a model has learned from."""

    entries: int  # number of ratings
    mean: float
    scale: float  # standard deviation

    def joined(self, other: Moments) -> Moments:
        """Moments of both sets of ratings together."""
        entries = self.entries + other.entries
        share = other.entries / entries
        mean = self.mean + share * (other.mean - self.mean)
        away = [(own.scale, own.mean - mean) for own in (self, other)]
        inner, outer = (scale * scale + apart * apart for scale, apart in away)
        scale = math.sqrt((1.0 - share) * inner + share * outer)
        return Moments(entries, float(np.float32(mean)), float(np.float32(scale)))


@dataclass(frozen=True)
class FactorizationProblem:
    """The choices that define a factorisation, for any solver. All are part of the plan's fingerprint."""

    rank: int  # number of latent factors
    solver: str = "sgd"  # "sgd", "als" or "ccd"
    loss: str = "squared"
    reg: float | None = None  # L2 penalty of the factors, in units of the ratings; None: STANDARD_REG · scale
    bias_reg: float | None = None  # L2 penalty of the biases; None: the solver's default
    biases: bool = True
    epochs: int = 20
    learning_rate: float | None = None  # None: the default of the optimizer
    schedule: str | None = None
    optimizer: str = "sgd"
    init_scale: float | None = None  # root mean square length of initial factors; None: the solver's default
    implicit: bool = False
    alpha: float = 1.0  # weight of implicit feedback
    negatives: int | None = None  # items drawn for a value by ranking losses; None: those of `DRAWS`
    inner: int = 3
    linear_solver: str = "cholesky"
    start: str = ""  # digest of the factors that a fit continues from
    epochs_before: int = 0  # epochs that those factors were trained for
    before: Moments | None = None  # of earlier ratings, with which those of this fit are combined
    features: str = ""  # digest of side features
    weights: str = ""  # digest of the weights of the ratings
    noise: float | None = None  # mean squared error of standardised ratings in an early epoch; scales penalties

    @property
    def unscaled(self) -> bool:
        """Whether the values are used as they are, not standardised."""
        return self.loss == "logistic" or self.implicit

    @property
    def ranking(self) -> bool:
        """Whether SGD learns to rank, with items drawn at random."""
        return self.implicit and self.solver == "sgd"

    @property
    def draws(self) -> int:
        """Items that a ranking loss draws for a value, at most."""
        return DRAWS[self.loss] if self.negatives is None else self.negatives

    @property
    def spread(self) -> float:
        """Standard deviation of the initial factors.

        Small for SGD, so that biases are learned first; of expected length one for the other solvers.
        """
        default = 1.0 if self.solver != "sgd" else 0.1 if self.fall == "adaptive" or self.ranking else 0.05
        return (self.init_scale if self.init_scale is not None else default) / math.sqrt(self.rank)

    @property
    def by_row(self) -> bool:
        """Whether default penalties also count once for each row and column: in a fit of all ratings by plain SGD.

        `partial_fit` sees some ratings of a row at a time and would count such a penalty again in every call.
        """
        plain = self.solver == self.optimizer == "sgd" and self.loss == "squared"
        return plain and not self.implicit and self.before is None

    @property
    def fall(self) -> str:
        """The learning rate schedule: as requested, else "constant" for AdaRevision, whose steps shrink.

        Else "adaptive" for plain SGD with the squared loss, unless a learning rate is given: that of a row with many
        ratings would be another one. Else "linear", and "polynomial" for many epochs of plain SGD: the sum of their
        steps is that of `LINEAR_EPOCHS`, so that more epochs end nearer to the optimum and do not overfit. With ever
        more epochs it is a decay by exp(−2 / LINEAR_EPOCHS) in each.
        """
        if self.schedule is not None:
            return self.schedule
        if self.by_row and self.learning_rate is None:
            return "adaptive"
        many = self.optimizer == "sgd" and self.epochs > LINEAR_EPOCHS
        return "constant" if self.optimizer == "adarevision" else "polynomial" if many else "linear"

    def step_at(self, epoch: int) -> float:
        """The learning rate of an epoch, for ratings with standard deviation 1."""
        fall = self.fall
        rate = (
            ADAPTIVE_RATE if fall == "adaptive" else RANKING_RATES[self.loss] if self.ranking else RATES[self.optimizer]
        )
        rate = self.learning_rate if self.learning_rate is not None else rate
        if fall == "constant":
            return rate
        left = max(1.0 - (self.epochs_before + epoch) / self.epochs, 0.0)
        more, least = _FALLS[fall]
        power = max(more * self.epochs / LINEAR_EPOCHS - 1.0, 1.0)
        # Twelve digits: the last bits of a power depend on the processor.
        share = left if power == 1.0 else float(f"{math.pow(left, power):.12g}")
        return float(rate * max(share, least / self.epochs))

    @property
    def known_noise(self) -> float:
        """The noise that scales default penalties and the decay of adaptive steps."""
        return USUAL_NOISE if self.noise is None else min(max(self.noise, LEAST_NOISE), MOST_NOISE)

    def decay_at(self, epoch: int) -> float:
        """How fast the step of a row shrinks with its ratings n: by 1 / √(1 + n·decay); 0 for equal steps.

        Steps average the noise of the ratings, so with little noise they stay large.
        """
        return self._epochs_seen(epoch) * self.known_noise / ADAPTIVE_RATINGS

    def bias_step_at(self, epoch: int) -> tuple[float, float]:
        """(step, decay) of biases: that of a row with n ratings moves by step / (1 + n·decay).

        A bias is a mean of residuals, so its step can fall as fast as that of a running mean.
        """
        share = BIAS_RATE / ADAPTIVE_RATE if self.fall == "adaptive" else 1.0
        return self.step_at(epoch) * share, self._epochs_seen(epoch) / BIAS_RATINGS

    def _epochs_seen(self, epoch: int) -> float:
        """Epochs whose ratings decide adaptive steps; 0 with other schedules."""
        return self.epochs_before + epoch + _BEGUN if self.fall == "adaptive" else 0.0

    def checked(self) -> FactorizationProblem:
        """The problem with values of built-in types; an error names a wrong parameter and its allowed values."""
        check = checks.of("MatrixFactorization")
        for name, allowed in _CHOICES.items():
            check.choice(name, getattr(self, name), allowed)
        check.flags(biases=self.biases, implicit=self.implicit)
        for name, bounds in _NUMBERS.items():
            check.number(parameter_of(name), getattr(self, name), **bounds)
        for name, bounds in _NUMBERS_OR_NONE.items():
            check.optional(parameter_of(name), getattr(self, name), **bounds)
        for name, bounds in _BOUNDS.items():
            check.optional(parameter_of(name), getattr(self, name), **bounds)
        if self.solver != "sgd" and self.loss != "squared":
            raise PlanError(f"solver={self.solver!r} solves loss='squared' alone, got {self.loss!r}; use solver='sgd'")
        if self.schedule == "adaptive" and self.optimizer != "sgd":
            raise PlanError(f"schedule='adaptive' is for optimizer='sgd'; steps of {self.optimizer!r} adapt already")
        implicit = bool(self.implicit) or self.loss in PAIRWISE
        if implicit and self.solver == "ccd":
            raise PlanError("implicit feedback needs solver='als' or a ranking loss of solver='sgd', got 'ccd'")
        if implicit and self.solver == "sgd":
            if self.loss not in DRAWS:
                raise PlanError(
                    f"implicit feedback needs solver='als', got 'sgd', which learns to rank with the losses "
                    f"{', '.join(map(repr, DRAWS))}; the loss is {self.loss!r}"
                )
            if self.optimizer != "sgd":
                raise PlanError(f"ranking losses have optimizer='sgd', got {self.optimizer!r}")
            if self.schedule == "adaptive":
                raise PlanError("schedule='adaptive' is for ratings; ranking losses have 'linear' and 'polynomial'")
        # Kernels and fingerprints take built-in Python types, no fractions or 16-bit numbers.
        kinds = {field.name: str(field.type) for field in fields(self)}
        plain = [name for name, kind in kinds.items() if kind in {"int", "float", "bool", "float | None", "int | None"}]
        known = {name: _KINDS[kinds[name]](getattr(self, name)) for name in plain}
        known["implicit"] = implicit
        if self.reg is None and (self.unscaled or implicit):
            known["reg"] = RANKING_REGS[self.loss] if implicit and self.solver == "sgd" else STANDARD_REG
        return replace(self, **known)

    def parameters(self, *names: str) -> tuple[tuple[str, Any], ...]:
        """Names and values for the plan, as built-in types: 1, 1.0 and np.float64(1) give the same fingerprint."""
        kinds = {field.name: str(field.type) for field in fields(self)}
        going_on = ("start", "epochs_before") if self.start else ()
        known: dict[str, Any] = {"schedule": self.fall, "bias_reg": None if self.by_row else BIAS_REG}
        if self.ranking:
            known |= {"negatives": self.draws, "bias_reg": self.reg}
        if self.bias_reg is not None:
            known["bias_reg"] = self.bias_reg
        # With equal penalties, keep the fingerprint of versions that had one penalty for both.
        own = ("bias_reg",) if self.biases and known["bias_reg"] != self.reg else ()
        asked = (*names, *own, *going_on)
        return tuple((name, _KINDS[kinds[name]](known.get(name, getattr(self, name)))) for name in asked)


def units(problem: FactorizationProblem, seen: Survey) -> tuple[float, float]:
    """(mean, scale) for standardising ratings. Without biases the mean is not subtracted: no term could restore it."""
    if problem.unscaled:
        return 0.0, 1.0
    mean, spread = (seen.mean, seen.std) if problem.biases else (0.0, math.hypot(seen.mean, seen.std))
    if problem.before is not None:
        found = problem.before.joined(Moments(seen.entries, mean, spread))
        mean, spread = found.mean, found.scale
    if 0 < spread < _FINEST:
        raise DataError(
            f"the ratings differ by no more than about {spread:.1g}, too little for 32-bit floats; multiply them by a "
            "constant first"
        )
    return mean, spread if spread > 0 else 1.0


@dataclass(frozen=True, eq=False)
class Factors:
    """Factors and biases, in the plan's order.

    Predictions are mean + scale·(W[i]·H[j] + b[i] + c[j]).
    """

    W: BlockedRows  # row factors
    H: BlockedRows  # column factors
    b: BlockedRows  # row biases
    c: BlockedRows  # column biases
    mean: float  # mean of the ratings
    scale: float  # standard deviation of the ratings
    squares: dict[str, BlockedRows] = field(default_factory=dict)  # sums of squared gradients, for some optimizers
    confidence: float = 0.0  # confidence of implicit feedback per unit of a value
    mean_weight: float = 1.0  # mean confidence of a value, by which ranking losses divide

    @property
    def biased(self) -> bool:
        return len(self.b.array) > 0

    def arrays(self) -> dict[str, NDArray[Any]]:
        found = {state.name: state.array for state in (self.W, self.H, self.b, self.c, *self.squares.values())}
        return {name: array for name, array in found.items() if len(array)}


def squares_of(problem: FactorizationProblem) -> dict[str, tuple[int, int]]:
    """The sums of squared gradients that an optimizer keeps: name → (0 for rows or 1 for columns, how many for each).

    AdaGrad keeps one number per row, AdaRevision one for each element of the factors and for each bias. All are 1 at
    the start.
    """
    if problem.solver != "sgd" or problem.optimizer == "sgd":
        return {}
    if problem.optimizer == "adagrad":
        return {"gw": (0, 1), "gh": (1, 1)}
    from stretto.kernels.numeric.lanes import padded

    wide, bias = padded(problem.rank), int(problem.biases)
    return {"zw": (0, wide), "zh": (1, wide), "zb": (0, bias), "zc": (1, bias)}


def new_squares(
    problem: FactorizationProblem, rows: BlockPartition, cols: BlockPartition, disk: Disk | None = None
) -> dict[str, BlockedRows]:
    """The sums of `squares_of`, with their initial values."""
    found = {}
    for name, (axis, wide) in squares_of(problem).items():
        cut = (rows, cols)[axis]
        shape = (len(cut), wide) if wide > 1 else (len(cut) * wide,)
        array = full_array(disk, name, shape, np.float32, 1.0)
        found[name] = BlockedRows(name, array, problem.rank if wide > 1 else 1, cut)
    return found


def new_factors(
    problem: FactorizationProblem,
    rows: BlockPartition,
    cols: BlockPartition,
    empty: tuple[NDArray[np.bool_], NDArray[np.bool_]],
    seed: int,
    crew: Crew,
    *,
    mean: float = 0.0,
    scale: float = 1.0,
    columns: int | None = None,
    disk: Disk | None = None,
) -> Factors:
    """Draw factors from the seed, each number keyed by its row and column only; biases are 0, squares 1.

    empty : rows and columns without a rating; their factors are zero, since no rating would change them
    columns : columns to allocate if more than the rank (zeros), for solvers that need them
    disk : where the factors are stored, if not in memory
    """
    from stretto.kernels.numeric.lanes import padded
    from stretto.kernels.numeric.random import fill_worker
    from stretto.runtime.blocks.step import make_step

    half = math.sqrt(3.0) * problem.spread  # uniform in ± half has this standard deviation
    states = []
    for axis, (name, cut) in enumerate((("W", rows), ("H", cols))):
        array = new_array(disk, name, (len(cut), padded(columns or problem.rank)), np.float32)
        standing = np.empty(len(cut), np.int64)
        standing[cut.place] = np.where(empty[axis], -1, np.arange(len(cut)))
        fill = make_step(
            "draw",
            fill_worker,
            independent(cut.blocks),
            cut.sizes,
            cut.bounds,
            standing,
            seed,
            axis,
            -half,
            half,
            problem.rank,
            array,
            spec=_drawn(name, cut) if disk is not None else None,
        )
        crew.run_here(fill, "exact")
        states.append(BlockedRows(name, array, problem.rank, cut))
    b = BlockedRows("b", new_array(disk, "b", (len(rows) if problem.biases else 0,), np.float32), 1, rows)
    c = BlockedRows("c", new_array(disk, "c", (len(cols) if problem.biases else 0,), np.float32), 1, cols)
    return Factors(states[0], states[1], b, c, mean, scale, new_squares(problem, rows, cols, disk))


def _drawn(name: str, cut: BlockPartition) -> StepSpec:
    """The step that draws the initial factors."""
    from stretto.kernels.numeric.random import fill_worker

    numbers = (number(what) for what in ("seed", "axis", "low", "high", "rank"))
    factors = by_rows(name, cut.bounds)
    return StepSpec("draw", named_kernel(fill_worker), (constant("bounds"), constant("standing"), *numbers, factors))
