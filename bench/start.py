"""Import time, and the first fit in a new process with a warm kernel cache: seconds beyond importing what it needs.

Each number is the median over new processes. The fit is of 100,000 generated ratings, rank 32, 10 epochs.
"""

from __future__ import annotations

import statistics
import subprocess
import sys

from . import report

REPEATS = 7
IMPORT = """
import time, numpy
t = time.perf_counter()
import stretto
print(time.perf_counter() - t)
"""
FIT = """
import time
import numpy, scipy.sparse, sklearn.base, sklearn.callback, sklearn.utils.validation, numba, numba.extending
from numba.core import types, cgutils
import stretto as st
data = st.generate_ratings(100_000, 2_000, 1_000, seed=0).data
t = time.perf_counter()
st.MatrixFactorization(32, epochs=10, random_state=0).fit(data)
first = time.perf_counter() - t
t = time.perf_counter()
st.MatrixFactorization(32, epochs=10, random_state=0).fit(data)
print(first, time.perf_counter() - t)
"""


def run(script: str) -> list[float]:
    """The numbers a script prints, in a process of its own."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


def main() -> None:
    """Measure both."""
    run(FIT)  # fills the kernel cache
    imports = statistics.median(run(IMPORT)[0] for _ in range(REPEATS))
    fits = [run(FIT) for _ in range(REPEATS)]
    rows = [
        ["`import stretto` beyond NumPy", f"{imports:.3f} s", "0.3 s"],
        ["first fit, new process, warm kernel cache", f"{statistics.median(f[0] for f in fits):.2f} s", "1.0 s"],
        ["second fit in that process", f"{statistics.median(f[1] for f in fits):.3f} s", "—"],
    ]
    report.save(
        "start",
        "Getting started",
        report.text(__doc__),
        report.table(["what", "measured", "asked at most"], rows),
    )
