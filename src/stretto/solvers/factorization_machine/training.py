"""A fit: epochs with a falling learning rate, a held-out part that ends them early, and the choice of the penalty.

The penalty of the factors decides how well a machine predicts, and no single value suits all data: identifiers that
occur in few samples need a strong one, a few numeric features a weak one. `choose_penalty` therefore compares some on
samples that are held out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.errors import Diverged
from stretto.runtime.blocks.crew import Crew
from stretto.solvers.linear.fit_saving import FitSaving

from .batches import Batches
from .machine import Epochs, HeldOut, Machine, StepSizes

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Look = Callable[[int, dict[str, float]], bool]

LADDER = (1.0, 0.25, 0.0625, 0.015625)  # multiples of the strongest penalty of factors that is tried
LINEAR = 0.1  # penalty of a coefficient over that of factors
_SURE = 1.0  # standard errors by which a weaker penalty must be better


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """The samples of a fit, laid out."""

    batches: Batches
    y: Floats  # [n] in the order of the batches; 0 or 1 for the logistic loss
    mass: Floats  # [n]
    share: Singles  # [p] multiplies the penalties of each feature
    loss: str
    crew: Crew

    def split(self, fraction: float) -> tuple[int, HeldOut]:
        """(number of batches to learn from, the samples of the others): about this fraction of all samples."""
        count = len(self.batches)
        learned = min(max(1, round(count * (1.0 - fraction))), count - 1)
        first = int(self.batches.first_row[learned])
        return learned, HeldOut(self.batches.after(learned), self.y[first:], self.mass[first:])


@dataclass(frozen=True)
class Schedule:
    """How long a fit runs."""

    epochs: int
    steps: StepSizes  # of the first epoch; the learning rates fall linearly, to 0 after the last
    falling: bool = True
    patience: int = 0  # epochs without improvement on the held-out part that end the fit; 0: none does
    tol: float = 1e-4  # relative improvement that counts
    seed: int = 0

    def at(self, epoch: int) -> StepSizes:
        """The steps of an epoch, from 0."""
        left = 1.0 - epoch / self.epochs if self.falling else 1.0
        return replace(self.steps, rate=left * self.steps.rate, rate_bias=left * self.steps.rate_bias)

    def order(self, epoch: int, batches: int) -> NDArray[np.int64]:
        """The batches in the order of this epoch."""
        return np.random.default_rng([self.seed, epoch]).permutation(batches).astype(np.int64)


@dataclass(eq=False)
class Training:
    """State of a fit between two epochs."""

    machine: Machine
    best: Machine | None = None  # the parameters with the smallest loss on the held-out part, with patience
    done: int = 0
    since: int = 0  # epochs since the last improvement
    least: float = math.inf
    history: list[dict[str, float]] = field(default_factory=list)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The state for a checkpoint."""
        found = dict(self.machine.arrays())
        if self.best is not None:
            found |= {f"best {name}": array for name, array in self.best.arrays().items()}
        found["numbers"] = np.array([self.done, self.since, self.least])
        kept = [[one["objective"], one.get("validation", math.nan)] for one in self.history]
        return found | {"history": np.array(kept).reshape(-1, 2)}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `arrays` returned."""
        self.machine.restore(arrays)
        if "best weights" in arrays:
            self.best = self.machine.copy()
            self.best.restore({name: arrays[f"best {name}"] for name in self.machine.arrays()})
        done, since, self.least = arrays["numbers"].tolist()
        self.done, self.since = int(done), int(since)
        for objective, validation in arrays["history"].tolist():
            more = {} if math.isnan(validation) else {"validation": validation}
            self.history.append({"objective": objective, **more})


def train(
    data: TrainingSet,
    state: Training,
    schedule: Schedule,
    *,
    learned: int | None = None,
    held: HeldOut | None = None,
    look: Look | None = None,
    saved: FitSaving | None = None,
) -> Machine:
    """Run epochs until they are done, or the held-out part shows no improvement; return the machine.

    learned : batches to learn from; None: all
    look : called after every epoch with its number and its entry of the history; True stops the fit
    """
    saved, count = saved or FitSaving(), len(data.batches) if learned is None else learned
    epochs = Epochs(state.machine, data.batches, data.y, data.mass, data.share, data.loss, data.crew)
    last = len(data.y) if learned is None else int(data.batches.first_row[learned])
    total = float(data.mass[:last].sum())
    with saved.level("epochs", state.arrays):
        while state.done < schedule.epochs and not data.crew.asked:
            if schedule.patience and state.since >= schedule.patience:
                break
            cost = epochs.run(schedule.order(state.done, count), schedule.at(state.done)) / total
            state.done += 1
            seen = {"objective": cost}
            if held is not None:
                seen["validation"] = held_loss(state.machine, held, data)
            if not all(map(math.isfinite, seen.values())):
                raise Diverged(
                    f"the loss is not finite in epoch {state.done}; take a smaller learning_rate than "
                    f"{schedule.steps.rate:.3g} allows, or look for huge values in X"
                )
            state.history.append(seen)
            if schedule.patience and held is not None:
                _compare(state, seen["validation"], schedule.tol)
            if look is not None and look(state.done, seen):
                break
            if saved.ended is not None and state.done < schedule.epochs:
                saved.ended()
    return state.machine if state.best is None else state.best


def held_loss(machine: Machine, held: HeldOut, data: TrainingSet) -> float:
    """Mean loss of the samples that are held out."""
    return math.fsum(machine.losses(held, data.loss, data.crew)) / float(held.mass.sum())


def _compare(state: Training, loss: float, tol: float) -> None:
    """Keep the parameters if the loss is the smallest so far."""
    state.since = 0 if loss < state.least * (1.0 - tol) else state.since + 1
    if loss < state.least:
        state.least = loss
        if state.best is None:
            state.best = state.machine.copy()
        else:
            state.best.restore(state.machine.arrays())


def choose_penalty(
    data: TrainingSet,
    start: Machine,
    schedule: Schedule,
    strongest: float,
    l2: float | None,
    learned: int,
    held: HeldOut,
    look: Callable[[float, float], bool] | None = None,
) -> float:
    """The penalty of factors whose machine predicts the held-out part best.

    The penalties are tried from the strongest down. The first that is not better than the one before it, by more than
    the standard error of the difference, ends the search.

    strongest : the first penalty
    l2 : penalty of coefficients; None: LINEAR times that of factors
    look : called after every trial with its penalty and loss; True ends the search
    """
    chosen, before = strongest, None
    for multiple in LADDER:
        penalty = multiple * strongest
        steps = replace(schedule.steps, l2=LINEAR * penalty if l2 is None else l2, l2_factors=penalty)
        trial = replace(schedule, steps=steps, patience=0)
        machine = train(data, Training(start.copy()), trial, learned=learned)
        losses = machine.losses(held, data.loss, data.crew)
        if before is not None and not _better(before - losses):
            break
        chosen, before = penalty, losses
        if look is not None and look(penalty, math.fsum(losses) / float(held.mass.sum())):
            break
        if data.crew.asked:
            break
    return chosen


def _better(gain: Floats) -> bool:
    """Whether the mean of the gains [n] is above 0 by more than its standard error."""
    n = len(gain)
    mean = math.fsum(gain) / n
    square = math.fsum((gain - mean) ** 2)
    return mean > 0.0 and mean * mean * n * max(1, n - 1) > _SURE * _SURE * square
