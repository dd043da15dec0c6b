"""Penalties of a factorisation, for standardised ratings: for each rating, and once for each row and column.

A penalty that counts for each rating shrinks the bias of a row by the same share whether it has two ratings or two
thousand. A penalty that counts once leaves n / (n + ridge) of it, for n ratings: rows with few ratings stay near the
mean of all, as a normal prior demands. The default of SGD has both kinds on factors and the second kind on biases. With
adaptive steps those on factors are proportional to the noise of the ratings, as the same prior demands: the mean
squared error of an early epoch measures it (`NoiseEstimate`). How the numbers were chosen is in
docs/decisions/2026-11-18-row-penalties.md, docs/decisions/2026-11-18-adaptive-steps.md and
docs/decisions/2026-11-19-steps-of-biases.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stretto.data.partition import BlockPartition
from stretto.runtime.blocks.survey import Survey

from .problem import BIAS_REG, STANDARD_REG, USUAL_NOISE, FactorizationProblem

Shares = tuple[NDArray[np.float32], NDArray[np.float32]]
NO_SHARES: Shares = (np.zeros(0, np.float32), np.zeros(0, np.float32))
# Defaults of SGD with the squared loss: of factors for each rating; of factors and of biases once for each row.
SGD_REG, SGD_RIDGE, SGD_BIAS_RIDGE = 0.04, 1.0, 3.0
# Those of factors with adaptive steps, times the noise.
REG_OF_NOISE, RIDGE_OF_NOISE = 0.055, 5.2
# The penalties of an epoch follow the training error of the epoch this many before it: a cluster starts an epoch while
# the one before is running. That of the last of `NOISE_EPOCHS` is kept: later ones measure how far the model overfits,
# and earlier ones contain structure that is not learned yet, so they can only lower the penalties.
NOISE_LAG, NOISE_EPOCHS = 2, 4
_STRONGEST = 1e20


def factor_reg(problem: FactorizationProblem, scale: float) -> float:
    """The penalty on factors of standardised ratings; clipped, so that a very strong penalty stays finite."""
    return STANDARD_REG if problem.reg is None else min(problem.reg / scale, _STRONGEST)


def bias_penalty(problem: FactorizationProblem) -> float:
    """The penalty on biases for each rating, of solvers that have no other one."""
    return BIAS_REG if problem.bias_reg is None else problem.bias_reg


@dataclass(frozen=True)
class Penalties:
    """Penalties of standardised ratings."""

    factors: float  # of factors, for each rating
    biases: float  # of biases, for each rating
    ridge: float = 0.0  # of factors, once for each row and column
    bias_ridge: float = 0.0  # of biases, once for each row and column

    @property
    def by_row(self) -> bool:
        """Whether some are counted once for each row and column."""
        return self.ridge > 0 or self.bias_ridge > 0


def penalties(problem: FactorizationProblem, scale: float) -> Penalties:
    """The penalties that a fit counts, and that folding in new rows repeats."""
    factors, biases = factor_reg(problem, scale), bias_penalty(problem)
    if not problem.by_row:
        return Penalties(factors, biases)
    ridge = bias_ridge = 0.0
    if problem.reg is None:
        factors, ridge = SGD_REG, SGD_RIDGE
    if problem.reg is None and problem.fall == "adaptive":
        factors, ridge = REG_OF_NOISE * problem.known_noise, RIDGE_OF_NOISE * problem.known_noise
    if problem.bias_reg is None:
        biases, bias_ridge = 0.0, SGD_BIAS_RIDGE if problem.biases else 0.0
    return Penalties(factors, biases, ridge, bias_ridge)


def follows_noise(problem: FactorizationProblem) -> bool:
    """Whether penalties of factors are proportional to the noise of the ratings: by default, with adaptive steps."""
    return problem.by_row and problem.reg is None and problem.fall == "adaptive"


class NoiseEstimate:
    """The mean squared error of standardised ratings in each of the first epochs.

    Attributes
    ----------
    errors : [NOISE_EPOCHS] array of float64
        The errors, 0 where none was measured; part of what a checkpoint holds.
    """

    def __init__(self) -> None:
        self.errors = np.zeros(NOISE_EPOCHS)

    def add(self, epoch: int, error: float) -> None:
        """Note the error of an epoch."""
        if epoch < NOISE_EPOCHS:
            self.errors[epoch] = error

    def at(self, epoch: int) -> float | None:
        """The noise by which an epoch is penalised; None if it comes before the first measurement."""
        last = NOISE_EPOCHS - 1
        found = float(self.errors[min(epoch - NOISE_LAG, last)]) if epoch >= NOISE_LAG else 0.0
        return (found if epoch - NOISE_LAG >= last else min(found, USUAL_NOISE)) or None

    def last(self) -> float | None:
        """The last measurement, for rows that are folded in."""
        found = self.errors[self.errors > 0]
        return float(found[-1]) if len(found) else None


def shares_of(problem: FactorizationProblem, seen: Survey, rows: BlockPartition, cols: BlockPartition) -> Shares:
    """[m], [n] one over the ratings of each row and column, in the plan's order; empty if no step uses them.

    It is the share of a rating in a penalty that counts once for each row and column, and decides adaptive steps.
    """
    if problem.optimizer != "sgd" or not (penalties(problem, 1.0).by_row or problem.fall == "adaptive"):
        return NO_SHARES
    found = []
    for counts, cut in ((seen.row_counts, rows), (seen.col_counts, cols)):
        share = np.empty(len(counts), np.float32)
        share[cut.place] = 1.0 / np.maximum(counts, 1)
        found.append(share)
    return found[0], found[1]
