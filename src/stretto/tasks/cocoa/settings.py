"""What the units of `st.cocoa` need besides data and states."""

from __future__ import annotations

from dataclasses import dataclass

from stretto.solvers.linear.cocoa import CocoaProblem


@dataclass(frozen=True)
class CocoaSettings:
    """The problem, and how it is solved."""

    problem: CocoaProblem
    gamma: float  # weight of the changes of a part
    sigma: float  # σ′ as it was given; not used where it is measured
    safe: float  # the σ′ that is proven to converge under BSP
    passes: int  # of coordinate descent, in a round
    shuffle: bool  # visit the variables of a part in random order
    every: int  # rounds between two evaluations of the gap
    guarded: bool  # heuristic settings: the state `guard` says how large σ′ is at least
    measured: bool  # σ′ follows the overlap of the changes of the last round
    tol: float  # gap that is small enough, as a share of the objective
