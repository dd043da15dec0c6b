"""Serving a factor model: what loading it costs in a new process, and the first and later calls.

Seconds of the processor, the median of new processes, beyond those of importing NumPy. The model has the size of
MovieLens 1M (6,040 users, 3,706 items, text ids) and 64 components. Kernels are compiled and kept on disk before. A
process waits for its files and the disk as well; the second column is the time that passed.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from . import report

REPEATS = 7
MODEL = """
import sys
import numpy as np
import stretto as st
made = st.generate_ratings(200_000, 6040, 3706, seed=0).data
ratings = np.char.add("user ", made.rows.astype(str)), np.char.add("film ", made.cols.astype(str)), made.values
st.MatrixFactorization(64, max_iter=2, random_state=0).fit(ratings).save(sys.argv[1])
"""
SCRIPT = """
import sys, time, numpy
def now():
    return time.process_time(), time.perf_counter()
path, at = sys.argv[1], [now()]
import stretto as st
{}
for _ in range(3):
    model.recommend([{}], 10)
    at.append(now())
print(*(b[k] - a[k] for k in (0, 1) for a, b in zip(at, at[1:])))
"""
LIGHT = "model = st.Recommender.load(path)\nat.append(now())"
WHOLE = "st.MatrixFactorization\nat.append(now())\nmodel = st.MatrixFactorization.load(path)\nat.append(now())"
STEPS = {
    "`st.Recommender`": (
        LIGHT,
        ["import Stretto and load", "first `recommend`", "second", "third"],
        [0.05, None, None, None],
    ),
    "`st.MatrixFactorization`": (
        WHOLE,
        ["import Stretto and scikit-learn", "load", "first `recommend`", "second", "third"],
        [None, 0.05, None, None, None],
    ),
}


def measured(script: str, path: Path, user: str) -> list[tuple[float, float]]:
    """The median (processor, clock) seconds of each step of a script."""
    env = {**os.environ, "STRETTO_COMPILE_NOTICE": "0"}
    runs = []
    for _ in range(REPEATS + 1):
        command = [sys.executable, "-c", SCRIPT.format(script, repr(user)), str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
        runs.append([float(word) for word in done.stdout.split()])
    medians = [statistics.median(column) for column in zip(*runs[1:], strict=True)]
    half = len(medians) // 2
    return list(zip(medians[:half], medians[half:], strict=True))


def main() -> None:
    """Measure both ways to load."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        subprocess.run([sys.executable, "-c", MODEL, str(path)], check=True)
        for name, (script, steps, limits) in STEPS.items():
            for step, (busy, passed), limit in zip(steps, measured(script, path, "user 7"), limits, strict=True):
                asked = "" if limit is None else f"{1000 * limit:.0f} ms"
                rows.append([name, step, f"{1000 * busy:.1f} ms", f"{1000 * passed:.1f} ms", asked])
                print(*rows[-1], flush=True)
    body = report.table(["", "step", "processor", "clock", "asked at most"], rows)
    report.save("serving", "Serving a factor model", report.text(__doc__), body)
