"""`python -m bench.peers_one ORDER`: one program on one problem; prints a line of JSON before and after each fit.

A fit past its time limit ends the process by the alarm signal, whose default action stops compiled code too.
"""

from __future__ import annotations

import importlib
import json
import signal
import statistics
import sys
import time
import warnings
from typing import Any

import numpy as np

from .peers import Fit, Floats, asked_gap
from .sparse_sets import Table

REPEATS, LONG = 3, 5.0
SMALL = 300  # rows and columns of the problem to warm up on
WARM_TOL, WARM_DIVISOR = 1e-3, 10


def small(X: Any, y: Floats) -> Table:
    """Some rows from all over the set, and the columns with the most in them, in the layout of the whole."""
    rows = np.unique(np.linspace(0, len(y) - 1, SMALL).astype(np.int64))
    filled = np.diff(X.indptr) if hasattr(X, "indptr") else np.count_nonzero(X[rows], axis=0)
    columns = np.sort(np.argsort(-filled, kind="stable")[:SMALL])
    part = X[:, columns][rows]
    return (part.tocsc() if hasattr(X, "indptr") else np.asfortranarray(part)), y[rows]


def timed(fit: Fit, tol: float, limit: float) -> tuple[float, Floats]:
    """(seconds, coefficients)."""
    signal.setitimer(signal.ITIMER_REAL, limit)
    began = time.perf_counter()
    coefs = fit(tol)
    seconds = time.perf_counter() - began
    signal.setitimer(signal.ITIMER_REAL, 0)
    return seconds, coefs


def main() -> None:
    """Do what the order says."""
    order = json.loads(sys.argv[1])
    warnings.simplefilter("ignore")  # peers warn when they stop short; the gap shows it
    part = importlib.import_module(f"bench.{order['module']}")
    prepare = part.PROGRAMS[order["program"]]
    X, y = part.load(order["set"])
    prepare(part.pose(*small(X, y), WARM_DIVISOR), order["threads"])(WARM_TOL)
    problem = part.pose(X, y, order["divisor"])
    fit = prepare(problem, order["threads"])
    for tol in order["tols"]:
        say = {"tol": tol}
        print(json.dumps(say), flush=True)
        seconds, coefs = timed(fit, tol, order["limit"])
        gap = problem.gap(coefs) / problem.scale
        print(json.dumps({**say, "gap": gap, "took": seconds}), flush=True)
        if gap <= asked_gap():
            times = [seconds]
            if seconds < LONG:
                times += [timed(fit, tol, order["limit"])[0] for _ in range(REPEATS - 1)]
            nonzeros = int(np.count_nonzero(coefs[:, -1]))
            print(json.dumps({**say, "seconds": statistics.median(times), "nonzeros": nonzeros}), flush=True)
            return


if __name__ == "__main__":
    main()
