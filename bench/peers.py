"""Programs side by side on the same problem to the same duality gap, each in a process of its own.

A measurement is a module of this folder with `load(name)`, `pose(X, y, divisor) -> Problem` and `PROGRAMS`: for each
program a function that takes a problem and a number of threads, lays the data out as the program wants them, and gives
the fit itself, `fit(tol) -> coefficients`. Only calls of `fit` are timed (`bench.peers_one` makes them).

Environment: BENCH_SETS=NAME,… and BENCH_DIVISORS=10,… restrict a run, whose table is then printed but not saved;
BENCH_LIMIT=SECONDS changes the time limit of one fit, BENCH_GAP=1e-6 the gap asked for; BENCH_FIRST=1e-5 begins the
search for the others' tolerances there, which saves time and may miss a looser one.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import report, sparse_sets

Floats = NDArray[np.float64]
Fit = Callable[[float], Floats]

OURS, BASE = "Stretto", "scikit-learn"
LOOSEST, TIGHTEST = 2, 12  # tolerances 1e-2 … 1e-12
THREADS = (1, 2)
ALLOWED = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")

RULES = """\
A fit counts when the duality gap, computed by one function for all from the coefficients that came back, is at most
{gap:g} times {scale}. Stretto is asked for just that gap, and for a tenth of it should it miss. The others stop by
criteria of their own: each gets the loosest tolerance of 1e-2, 1e-3, … 1e-12 that reaches the gap, and only the fit
with that tolerance is timed, which is generous to them, as a user would not know it. The tolerance is in brackets;
skglm's is in units of its criterion at zero, λ_max / n.

Each program runs in a process of its own, warmed up on a small problem of the same kind, so that compiling is apart,
and with its data in the layout it works on. Median of 3 fits where one takes less than 5 s, else one. A fit that does
not end within {limit:g} s is stopped. All may use as many threads as the row says. `ratio` is Stretto's time over that
of the fastest of the others, `×` how many times faster than scikit-learn Stretto is; for the others the faster of as
many threads and fewer counts."""


@dataclass(frozen=True)
class Problem:
    """X [n, p], y [n], the penalties λ [k] in units of the unscaled loss, and how good coefficients [p, k] are."""

    X: Any
    y: Floats
    lambdas: Floats
    largest: float  # the smallest λ at which every coefficient is zero
    scale: float  # what the gap is relative to
    gap: Callable[[Floats], float]  # the largest over the penalties


Programs = dict[str, Callable[[Problem, int], Fit]]


@dataclass(frozen=True)
class Outcome:
    """What became of a program: seconds of a fit, or None with the reason why there are none."""

    seconds: float | None
    tol: float
    nonzeros: int = 0
    reason: str = ""

    @property
    def cell(self) -> str:
        """As the table shows it."""
        return self.reason if self.seconds is None else f"{self.seconds:.3g} ({self.tol:.0e})".replace("e-0", "e-")


def asked_gap() -> float:
    """The gap asked for, relative to the problem's scale."""
    return float(os.environ.get("BENCH_GAP", "1e-6"))


def compare(
    module: str,
    heading: str,
    programs: Sequence[str],
    names: tuple[str, ...],
    divisors: Sequence[int],
    *,
    limit: float,
    scale: str,
    about: str,
    packages: Sequence[str],
) -> None:
    """Measure every set and divisor of λ_max, print each row as it comes, and save the table of all."""
    limit = float(os.environ.get("BENCH_LIMIT", limit))
    wanted = [int(value) for value in os.environ.get("BENCH_DIVISORS", "").split(",") if value]
    columns = ["set", "λ_max / λ", "threads", "non-zeros", *(f"{program}, s" for program in programs), "ratio", "×"]
    print(" | ".join(columns), flush=True)
    rows = []
    for name in sparse_sets.chosen(names):
        for divisor in wanted or divisors:
            found: dict[str, list[Outcome]] = {program: [] for program in programs}
            for threads in THREADS:
                for program, so_far in found.items():
                    # More threads change the time and hardly the tolerance: begin where the search ended.
                    first = so_far[-1].tol if so_far else _first(program)
                    so_far.append(run(module, name, divisor, program, threads, first, limit))
                now = [so_far[-1] for so_far in found.values()]
                nonzeros = next((f"{one.nonzeros:,}" for one in now if one.seconds is not None), "—")
                # The others with fewer threads count as well: a thread more can make a small fit slower.
                others = [one for program, so_far in found.items() if program != OURS for one in so_far]
                ratio = _against(found[OURS][-1], others, limit, speedup=False)
                speedup = _against(found[OURS][-1], found[BASE], limit, speedup=True)
                cells = [one.cell for one in now]
                rows.append([sparse_sets.title(name), divisor, threads, nonzeros, *cells, ratio, speedup])
                print(" | ".join(map(str, rows[-1])), flush=True)
    body = report.table(columns, rows)
    restricted = [key for key in ("BENCH_SETS", "BENCH_DIVISORS") if os.environ.get(key)]
    if restricted:
        print(f"\n{body}\n\n{' and '.join(restricted)} restrict this run: the table is not saved")
        return
    text = f"{about}\n\n{RULES.format(gap=asked_gap(), scale=scale, limit=limit)}"
    report.save(module, heading, text, body, packages)


def run(module: str, name: str, divisor: int, program: str, threads: int, first: float, limit: float) -> Outcome:
    """Measure one program in a process of its own. first: the loosest tolerance tried."""
    decades = [10.0**-k for k in range(LOOSEST, TIGHTEST + 1)]
    tols = [first, *(tol for tol in decades if tol < 0.99 * first)]
    order = {"module": module, "set": name, "divisor": divisor, "program": program, "threads": threads}
    child = subprocess.run(
        [sys.executable, "-m", "bench.peers_one", json.dumps({**order, "tols": tols, "limit": limit})],
        cwd=Path(__file__).parent.parent,
        env={**os.environ, **dict.fromkeys(ALLOWED, str(threads))},
        capture_output=True,
        text=True,
        check=False,
    )
    # The peers may print too; ours are the lines with a tolerance, and the last one says how far it came.
    lines: list[dict[str, Any]] = [json.loads(line) for line in child.stdout.splitlines() if line.startswith('{"tol"')]
    last = lines[-1] if lines else {}
    tol = last.get("tol", first)
    if child.returncode == -signal.SIGALRM:
        return Outcome(None, tol, reason=f"> {limit:g}")
    if child.returncode != 0:
        print(f"{order} failed:", *child.stderr.splitlines()[-3:], sep="\n  ", flush=True)
        return Outcome(None, first, reason="failed")
    if "seconds" not in last:
        return Outcome(None, tol, reason="not reached")
    return Outcome(last["seconds"], tol, last["nonzeros"])


def _first(program: str) -> float:
    return asked_gap() if program == OURS else float(os.environ.get("BENCH_FIRST", 10.0**-LOOSEST))


def _against(ours: Outcome, others: list[Outcome], limit: float, *, speedup: bool) -> str:
    """Our time over the fastest other's, or the inverse; a bound where they were stopped at the limit."""
    done = [one.seconds for one in others if one.seconds is not None]
    stopped = any(one.reason.startswith(">") for one in others)
    if ours.seconds is None or not (done or stopped):
        return "—"
    best = min(done) if done else limit
    value = best / ours.seconds if speedup else ours.seconds / best
    return f"{'' if done else '> ' if speedup else '< '}{value:.2g}"
