"""Growth of resident memory during fit on ten million ratings, the caller's input excluded.

Measured in a new process whose kernels have been loaded by a small fit first; the peak is the system's own high-water
mark.
"""

from __future__ import annotations

import subprocess
import sys

from . import report

SCRIPT = """
import resource, sys
import numpy as np
import stretto as st
from bench import sets
solver, rank = sys.argv[1], int(sys.argv[2])
small = st.generate_ratings(200_000, 3_000, 2_000, seed=0).data
st.MatrixFactorization(rank, solver=solver, max_iter=1, random_state=0).fit(small)
data = sets.generated()
def now():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
import gc, ctypes
gc.collect()
ctypes.CDLL("libc.so.6").malloc_trim(0)
open("/proc/self/clear_refs", "w").write("5")
before = now()
model = st.MatrixFactorization(rank, solver=solver, max_iter=2, random_state=0).fit(data)
peak = [int(l.split()[1]) * 1024 for l in open("/proc/self/status") if l.startswith("VmHWM")][0]
binary = len(data) * 12
factors = 4 * rank * sum(data.shape)
print(peak - before, binary, factors)
"""


def main() -> None:
    """Measure SGD at rank 64, and the other solvers for comparison."""
    rows = []
    for solver in ("sgd", "als", "ccd"):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, solver, "64"], capture_output=True, text=True, check=True
        ).stdout.split()
        grown, binary, factors = (int(word) / 2**20 for word in done)
        rows.append(
            [solver, f"{grown:.0f} MiB", f"{binary:.0f} + {factors:.0f} MiB", f"{grown / (binary + factors):.2f}", "2"]
        )
        print(rows[-1], flush=True)
    columns = ["solver", "growth", "binary ratings + factors", "ratio", "asked at most"]
    report.save("memory", "Memory", report.text(__doc__), report.table(columns, rows))
