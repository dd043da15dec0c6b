"""Compile time of every example: analysis, planning and lowering in a new process, with a warm kernel cache.

For each `@st.parallel` loop the first call is timed in a process that runs the example as it stands, on its own
generated data, after NumPy, Numba and Stretto were imported and Numba had compiled something; the compiled passes are
taken away. What is left is reading the source, analysing, cutting and laying out the data, writing the source and
loading the machine code. `cold` is the same with an empty cache, which compiles. Lines are those a user writes: without
blank lines, comments and docstrings.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from . import report

ROOT = Path(__file__).parents[1]
REPEATS = 5


def names() -> list[str]:
    """Every example there is."""
    return sorted(path.stem for path in (ROOT / "examples").glob("*.py"))


def run(name: str, cache: str) -> dict[str, float]:
    """Seconds of the first call beyond the second, for each loop of an example."""
    env = {**os.environ, "STRETTO_CACHE": cache, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    done = subprocess.run(
        [sys.executable, "-m", "bench.compile_one", name], capture_output=True, text=True, check=True, env=env, cwd=ROOT
    )
    return {line.split()[0]: float(line.split()[1]) for line in done.stdout.splitlines()}


def main() -> None:
    """Measure every example."""
    sys.path.insert(0, str(ROOT / "tests"))
    from examples_run import lines_written

    rows = []
    with tempfile.TemporaryDirectory() as cache:
        for name in names():
            cold = run(name, cache)
            warm = [run(name, cache) for _ in range(REPEATS)]
            for loop, seconds in cold.items():
                again = statistics.median(found[loop] for found in warm)
                rows.append([name, loop, lines_written(name), f"{again:.3f} s", f"{seconds:.1f} s"])
                print(*rows[-1], flush=True)
    columns = ["example", "loop", "lines of the example", "warm", "cold"]
    report.save("compile", "Compile time and length of the examples", report.text(__doc__), report.table(columns, rows))
