"""A fit of a `FactorizationMachine`: lay out the samples, choose the penalty, run the epochs, keep the result."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stretto.models.linear.base import FitSession, say
from stretto.solvers.factorization_machine.batches import Batches, SampleRows
from stretto.solvers.factorization_machine.machine import HeldOut, Machine, StepSizes
from stretto.solvers.factorization_machine.training import (
    LINEAR,
    Schedule,
    Training,
    TrainingSet,
    choose_penalty,
    train,
)
from stretto.text import duration

from .input import ColumnFacts, MachineInput, fields_of, reweighted, weighing

if TYPE_CHECKING:
    from stretto.runtime.blocks.crew import Crew

# The estimator, which imports this module: each function says what it reads of it.
MachineModel: TypeAlias = Any

Floats = NDArray[np.float64]

PENALTY = {"logistic": 0.008, "squared": 0.04}  # of factors, for samples of weight 1 and a target of spread 1
_SEEN = 50.0  # samples that every feature counts as having, over those it has, where penalties are concerned
_STEPS = 512  # batches of an epoch, about
_SMALLEST, _LARGEST = 8, 512  # samples of a batch
_ENOUGH = 1000  # samples from which on the penalty is chosen on a held-out part
_LONG = 4.0  # root mean square of the length of a sample from which on the first factors are smaller


@dataclass(frozen=True, eq=False)
class LaidOut:
    """Samples in batches, and what follows from them."""

    data: TrainingSet
    facts: ColumnFacts
    length: float  # root mean square of the length of a sample


def lay_out(model: MachineModel, found: MachineInput, seed: int, crew: Crew, before: ColumnFacts | None) -> LaidOut:
    """Cut the samples with a weight into batches, in an order that is drawn once."""
    rows, used = found.rows, weighing(found)
    order = np.random.default_rng(seed).permutation(used)
    facts = ColumnFacts.of(rows, before)
    samples = SampleRows.of(rows.parts, order, facts.factor, crew, model.profile)
    size = model.batch_size
    if size is None:
        size = min(max(len(order) // _STEPS, _SMALLEST), _LARGEST)
    batches = Batches.of(samples, int(size), rows.shape[1], crew, model.profile)
    y, mass = reweighted(found, order)
    share = (1.0 + _SEEN / np.maximum(facts.counts, 1.0)).astype(np.float32)
    square = float(np.einsum("i,i->", samples.values, samples.values, dtype=np.float64))
    data = TrainingSet(batches, y, mass, share, model.loss, crew)
    return LaidOut(data, facts, math.sqrt(square / max(1, len(order))) or 1.0)


def first_machine(model: MachineModel, laid: LaidOut, seed: int) -> Machine:
    """The machine that a fit starts from."""
    field, fields = fields_of(model, len(laid.facts.scale))
    spread = float(model.init_scale) * min(1.0, _LONG / laid.length)
    machine = Machine.start(field, fields, int(model.n_components), spread=spread, seed=seed, profile=model.profile)
    if model.loss == "logistic" and model.fit_intercept:
        share = float(laid.data.y @ laid.data.mass) / float(laid.data.mass.sum())
        share = min(max(share, 1e-6), 1.0 - 1e-6)
        # Rounded, since the last bits of a logarithm depend on the machine's library.
        machine.bias[0] = np.float32(math.log(share / (1.0 - share)))
    return machine


def step_sizes(model: MachineModel, length: float, l2: float, l2_factors: float) -> StepSizes:
    """Learning rates for samples of this length, and penalties."""
    rate = float(model.learning_rate)
    return StepSizes(rate / length, rate if model.fit_intercept else 0.0, l2, l2_factors)


def penalties(model: MachineModel, l2_factors: float) -> tuple[float, float]:
    """(penalty of coefficients, that of factors)."""
    return (LINEAR * l2_factors if model.l2 is None else float(model.l2)), l2_factors


def fit_machine(
    model: MachineModel, sitting: FitSession, found: MachineInput, validation: MachineInput | None, start: bool
) -> None:
    """Fit, and store the result in the model. start: continue from its parameters."""
    crew, saved = sitting.crew, sitting.saved
    before = model._facts() if start else None
    laid = lay_out(model, found, sitting.seed, crew, before)
    data = laid.data
    first = model._machine() if start else first_machine(model, laid, sitting.seed)
    learned, held = _held(model, laid, validation, crew)
    began = time.perf_counter()
    state = Training(first.copy())
    strongest = PENALTY[model.loss]
    found_state = saved.take("epochs")
    schedule = Schedule(
        int(model.max_iter), step_sizes(model, laid.length, *penalties(model, strongest)), tol=float(model.tol),
        patience=int(model.n_iter_no_change) if model.early_stopping else 0, seed=sitting.seed,
    )  # fmt: skip
    chosen = strongest if model.l2_factors is None else float(model.l2_factors)
    kept = saved.take("penalty")
    if kept is not None:
        chosen = float(kept["l2_factors"][0])
    elif model.l2_factors is None and held is not None:

        def tried(penalty: float, loss: float) -> bool:
            if model.verbose > 0:
                say(f"l2_factors {penalty:g}  validation {loss:.6g}  {duration(time.perf_counter() - began)}")
            return False

        l2 = None if model.l2 is None else float(model.l2)
        chosen = choose_penalty(data, first, schedule, strongest, l2, learned, held, tried)
    model.l2_, model.l2_factors_ = penalties(model, chosen)
    schedule = replace(schedule, steps=step_sizes(model, laid.length, model.l2_, model.l2_factors_))
    if found_state is not None:
        state.restore(found_state)
    stopping = bool(model.early_stopping)
    apart = validation is None and stopping  # the held-out part is then not learned from

    def look(epoch: int, seen: dict[str, float]) -> bool:
        if model.verbose > 0:
            numbers = "  ".join(f"{name} {value:.6g}" for name, value in seen.items())
            say(f"epoch {epoch}  {numbers}  {duration(time.perf_counter() - began)}")
        saved.round(seen["objective"], {name: value for name, value in seen.items() if name != "objective"})
        return sitting.told(f"epoch {epoch}", {"epoch": epoch, **seen}, lambda: _attributes(state.machine, laid, found))

    with saved.level("penalty", lambda: {"l2_factors": np.array([chosen])}):
        machine = train(
            data, state, schedule, learned=learned if apart else None, held=held if validation or apart else None,
            look=look, saved=saved,
        )  # fmt: skip
    for name, value in _attributes(machine, laid, found).items():
        setattr(model, name, value)
    model.history_, model.n_iter_ = state.history, max(1, state.done)


def _attributes(machine: Machine, laid: LaidOut, found: MachineInput) -> dict[str, Any]:
    """The attributes of a fitted model."""
    made = {
        "_weights": machine.weights,
        "_squares": machine.squares,
        "_bias": machine.bias,
        "_field": machine.field,
        "_form": np.array([machine.fields, machine.k]),
        "_target": found.target,
        "_counts": laid.facts.counts,
        "scale_": laid.facts.scale,
    }
    return made if found.classes is None else made | {"classes_": found.classes}


def _held(
    model: MachineModel, laid: LaidOut, validation: MachineInput | None, crew: Crew
) -> tuple[int, HeldOut | None]:
    """(batches to learn from while penalties are compared, samples that are held out, if there are any)."""
    data = laid.data
    if validation is not None:
        order = weighing(validation)
        rows = SampleRows.of(validation.rows.parts, order, laid.facts.factor, crew, model.profile)
        return len(data.batches), HeldOut(rows, *reweighted(validation, order))
    wanted = model.early_stopping or (model.l2_factors is None and len(data.y) >= _ENOUGH)
    if not wanted or len(data.batches) < 2:
        return len(data.batches), None
    return data.split(float(model.validation_fraction))


def continue_machine(model: MachineModel, sitting_crew: Crew, found: MachineInput, seed: int, known: bool) -> None:
    """One epoch over more samples, at a learning rate that does not fall. known: the model was fitted before."""
    laid = lay_out(model, found, seed, sitting_crew, model._facts() if known else None)
    machine = model._machine() if known else first_machine(model, laid, seed)
    l2_factors = PENALTY[model.loss] if model.l2_factors is None else float(model.l2_factors)
    model.l2_, model.l2_factors_ = penalties(model, l2_factors)
    schedule = Schedule(1, step_sizes(model, laid.length, model.l2_, model.l2_factors_), falling=False, seed=seed)
    state = Training(machine)
    train(laid.data, state, schedule)
    for name, value in _attributes(machine, laid, found).items():
        setattr(model, name, value)
    model.history_ = [*(model.history_ if known else []), *state.history]
    model.n_iter_ = model.n_iter_ + 1 if known else 1
