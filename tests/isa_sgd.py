"""Prints a hash of whole runs of every solver; run it under several processor settings and compare.

NUMBA_CPU_NAME=haswell NUMBA_CPU_FEATURES= python tests/isa_sgd.py
"""

from __future__ import annotations

import sys

from jobs import outcome, some_ratings
from stretto.runtime.runtimes import Threads
from stretto.solvers.factorization.problem import FactorizationProblem

RUNS = {
    "sgd": FactorizationProblem(20),
    "adagrad": FactorizationProblem(20, optimizer="adagrad"),
    "adarevision": FactorizationProblem(20, optimizer="adarevision"),
    "logistic": FactorizationProblem(20, loss="logistic"),
    "als": FactorizationProblem(20, solver="als"),
    "ccd": FactorizationProblem(20, solver="ccd"),
}


def hashes(names: list[str]) -> str:
    """A line for each run: its name, its fingerprint and the hash of what it learned."""
    data = some_ratings(4000, 120, 90)
    return "\n".join(f"{name} {' '.join(outcome(Threads(2), RUNS[name], data, epochs=3))}" for name in names)


if __name__ == "__main__":
    print(hashes(sys.argv[1:] or list(RUNS)))
