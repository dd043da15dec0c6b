"""`FittedProblem`: what a fitted model keeps of its fit, so that new rows can be solved for."""

from __future__ import annotations

from dataclasses import dataclass

from stretto.solvers.factorization.problem import FactorizationProblem, Factors


@dataclass(frozen=True)
class FittedProblem:
    """The problem of a fit, and the units it was solved in."""

    problem: FactorizationProblem
    mean: float  # mean of the ratings
    scale: float  # standard deviation of the ratings
    confidence: float  # confidence of implicit feedback per unit of a value
    mean_weight: float  # mean confidence of a value in training, by which ranking losses divide

    @classmethod
    def of(cls, problem: FactorizationProblem, factors: Factors) -> FittedProblem:
        """The problem of a fit with its result."""
        return cls(problem, factors.mean, factors.scale, factors.confidence, factors.mean_weight)
