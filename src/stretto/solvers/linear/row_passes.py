"""Passes over the rows of a `RowProblem`: margins, gradient, loss and dual objective.

A pass is divided into parts of the rows, never by the number of workers, and the parts are added in their order.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from stretto.kernels.linear import sample_losses
from stretto.kernels.samples import variance_reduced as kernels
from stretto.runtime.blocks.crew import Crew

from .row_problem import RowProblem

Floats = NDArray[np.float64]


def margins(problem: RowProblem, crew: Crew, w: Floats) -> Floats:
    """[n] x·w + bias·w[p]."""
    z = np.empty(problem.rows.shape[0])
    bounds, p = problem.bounds, problem.rows.shape[1]
    problem.run(
        crew, "margins", kernels.margins_worker, len(bounds) - 1, bounds, *problem.arrays, p, problem.bias, w, z
    )
    return z


def gradient(problem: RowProblem, crew: Crew, pull: Floats) -> Floats:
    """[p + 1] Σ pull_i (x_i, bias), by parts of the rows that are added in their order."""
    bounds, p = problem.gradient_bounds, problem.rows.shape[1]
    G = np.empty((len(bounds) - 1, p + 1))
    problem.run(crew, "gradient", kernels.gradient_worker, len(G), bounds, *problem.arrays, p, problem.bias, pull, G)
    total: Floats = G[0]
    for part in G[1:]:
        total += part
    return total


def loss_at(problem: RowProblem, signs: Floats, z: Floats) -> tuple[float, float, Floats]:
    """(change of a free intercept that makes it optimal, Σ weight·loss, −weight·∂loss [n]) at margins z [n].

    The loss has a gradient: logistic, or the squared hinge.
    """
    if problem.loss == "squared_hinge":
        slack = np.maximum(0.0, 1.0 - signs * z)
        return 0.0, float(np.sum(problem.weight * slack * slack)), 2.0 * signs * problem.weight * slack
    v, d, cost = np.empty_like(z), np.empty_like(z), np.empty_like(z)
    if problem.free:
        settle = sample_losses.settle_logistic[problem.profile]
        found = settle(signs, z, problem.weight, 0.0, v, d, cost, False, 0.0)
        return float(found[0]), float(found[1]), v
    value, _, _ = sample_losses.look_logistic[problem.profile](signs, z, problem.weight, 0.0, v, d)
    return 0.0, float(value), v


def dual_value(problem: RowProblem, signs: Floats, slope: Floats, slopes: Floats) -> float:
    """The dual objective of θ = −weight·∂loss, and of a shorter θ if there is an L1 penalty; the larger one.

    slope [p + 1]: the gradient of the loss; slopes [n]: ∂loss of each sample.
    """
    v, theta = -slope, -problem.weight * slopes
    found = -math.inf
    if problem.l2 > 0.0:
        excess = np.maximum(np.abs(v) - problem.l1, 0.0)
        excess[-1] = 0.0 if problem.free else abs(v[-1])
        found = _conjugate(problem, signs, theta, 1.0) - 0.5 * float(excess @ excess) / problem.l2
    if problem.l1 > 0.0 and problem.free:
        most = float(np.abs(v[:-1]).max(initial=0.0))
        shorter = min(1.0, problem.l1 / most) if most > 0.0 else 1.0
        found = max(found, _conjugate(problem, signs, theta, shorter))
    return found


def _conjugate(problem: RowProblem, signs: Floats, theta: Floats, scale: float) -> float:
    """The loss's part of the dual objective at scale·theta."""
    if problem.loss == "logistic":
        cost = np.empty_like(theta)
        return float(sample_losses.dual_logistic[problem.profile](signs, problem.weight, theta, scale, cost))
    a = scale * np.abs(theta)
    square = np.divide(a * a, 4.0 * problem.weight, out=np.zeros_like(a), where=problem.weight > 0.0)
    return float(np.sum(a - square))
