"""What runs where: every estimator and every loop strategy on every runtime, in memory and from disk.

Each cell is run on a small case and compared, bit for bit, with the serial runtime in memory. The results go to
`bench/results/support.json` and the page to `docs/support.md`.

    python -m bench support                     all cells, real processes for the cluster (about five minutes)
    python -m bench support --quick             nodes of the cluster as threads of one process
    python -m bench support --only Latent       rows with this in their name alone; the others stay as they were
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from .support_cells import RUNTIMES, STORAGES, Result, Row, rows

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results" / "support.json"
PAGE = ROOT / "docs" / "support.md"

Cell = tuple[str, str, str]  # row, storage, runtime
Results = dict[Cell, Result]


def cells() -> list[Cell]:
    """All cells, row by row: those of a row share a process that knows what is expected."""
    return [
        (row.name, storage, runtime) for row in rows().values() for storage in storages(row) for runtime in RUNTIMES
    ]


def storages(row: Row) -> tuple[str, ...]:
    """How a case may be stored."""
    return STORAGES if row.streams else STORAGES[:1]


class Worker:
    """A process that runs cells, and is replaced when it does not answer."""

    def __init__(self, cluster: str) -> None:
        self._command = [sys.executable, "-m", "bench.support_cells", "--cluster", cluster]
        self._process: subprocess.Popen[str] | None = None

    def run(self, cell: Cell, timeout: float) -> Result:
        """The result of a cell, whatever becomes of the process."""
        if self._process is None:
            # A group of its own: the processes of a cluster that hangs end with it.
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
                start_new_session=True,
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(cell), file=process.stdin, flush=True)
        if not select.select([process.stdout], [], [], timeout)[0]:
            self.close()
            return Result("no answer", f"nothing after {timeout:g} s")
        line = process.stdout.readline()
        if not line:
            self.close()
            return Result("no answer", f"its process ended with {process.returncode}")
        return Result(**json.loads(line))

    def close(self) -> None:
        """End the process and those that it started."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()


def run_all(wanted: Sequence[Cell], cluster: str, timeout: float) -> Iterator[tuple[Cell, Result]]:
    """Results as they come."""
    worker = Worker(cluster)
    try:
        for cell in wanted:
            yield cell, worker.run(cell, timeout)
    finally:
        worker.close()


# --- the page -------------------------------------------------------------------------------------------------------

_HEAD = """# What runs where

Every estimator with each of its solvers and every strategy of a parallel loop, on every runtime.
`python -m bench support` runs each cell on a small case, compares what it learns with `st.Serial()` in memory, and
writes this page.

- ✓: the same bits as `st.Serial()` in memory.
- refused: a `PlanError` before anything runs; the cell has its first sentence, the error also says what to do instead.
- In bold: a defect.

The runtimes are `st.Serial()`, `st.Threads(2)`, `st.Simulated(nodes=3, threads=1)` and
`st.Cluster("processes", nodes=2)`. Storage:

- *memory*: all arrays are in memory.
- *disk*: the same data with a `memory=` budget so small that blocks are kept in files and brought in as they are needed
  ([larger than memory](how-to/larger-than-memory.md)). "✓ (in memory)": no files were needed; simulated nodes never use
  them.
- *file*: as *disk*, and the data is a text file that is read in chunks; compared with `st.Serial()` over the same file.

Linear models and loops have no `memory=` option. Jobs over [tables](how-to/tables.md) and
[programs](how-to/programs.md) are not in the tables.
"""


def shown(result: Result | None) -> str:
    """A cell as the page has it."""
    if result is None:
        return "not run"
    match result.state:
        case "equal":
            return "✓" if result.tiled else "✓ (in memory)"
        case "refused":
            return f"refused: {result.reason}"
        case "different":
            return "**different bits**"
        case _:
            return f"**{result.state}**: {result.reason}"


def page(results: Results) -> str:
    """The text of docs/support.md."""
    every = [shown(results.get(cell)) for cell in cells()]
    equal, refused = (sum(text.startswith(mark) for text in every) for mark in ("✓", "refused"))
    bad = len(every) - equal - refused
    estimators = [row for row in rows().values() if row.kind == "estimator"]
    loops = [row for row in rows().values() if row.kind == "loop"]
    lines = [
        _HEAD,
        f"Of {len(every)} cells {equal} give the same bits and {refused} are refused; {bad} are defects.",
        "\n## Estimators\n",
        f"| estimator | storage | {' | '.join(RUNTIMES)} |",
        "|---|---|" + "---|" * len(RUNTIMES),
        *(_line(results, row, storage) for row in estimators for storage in storages(row)),
        "\n## Loops\n",
        "By strategy, which `loop.plan(…).explain()` names: [how to write loops](how-to/loops.md). *looked up* reads",
        "an array at subscripts that another array holds; *scheduled* has `schedule=`.\n",
        f"| strategy | storage | {' | '.join(RUNTIMES)} |",
        "|---|---|" + "---|" * len(RUNTIMES),
        *(_line(results, row, "memory") for row in loops),
    ]
    return "\n".join(lines) + "\n"


def _line(results: Results, row: Row, storage: str) -> str:
    texts = [shown(results.get((row.name, storage, runtime))) for runtime in RUNTIMES]
    return f"| {row.name} | {storage} | {' | '.join(texts)} |"


def read_page(text: str) -> dict[Cell, str]:
    """The cells of a page."""
    found: dict[Cell, str] = {}
    for line in text.splitlines():
        parts = [part.strip() for part in line.strip("| ").split(" | ")]
        if line.startswith("| ") and parts[1] in STORAGES:
            found |= {(parts[0], parts[1], runtime): part for runtime, part in zip(RUNTIMES, parts[2:], strict=True)}
    return found


# --- the command ----------------------------------------------------------------------------------------------------


def load() -> Results:
    """Results of the last run."""
    if not RESULTS.exists():
        return {}
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    return {tuple(one["cell"]): Result(**one["result"]) for one in found}


def save(results: Results) -> None:
    """Keep results, of the cells that there are now, and write the page."""
    kept = [{"cell": cell, "result": asdict(results[cell])} for cell in cells() if cell in results]
    RESULTS.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(page(results), encoding="utf-8")


def main(arguments: Sequence[str] = ()) -> None:
    """Run cells and write the page."""
    parser = argparse.ArgumentParser(prog="python -m bench support", description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="nodes of the cluster are threads of one process")
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="rows whose name has this in it")
    parser.add_argument("--timeout", type=float, default=180.0, metavar="SECONDS", help="for one cell (default: 180)")
    chosen = parser.parse_args(arguments)
    wanted = [one for one in cells() if not chosen.only or any(text.lower() in one[0].lower() for text in chosen.only)]
    results = load()
    for cell, result in run_all(wanted, "in-process" if chosen.quick else "processes", chosen.timeout):
        print(f"{cell[0]:45} {cell[1]:8} {cell[2]:10} {shown(result)}", flush=True)
        results[cell] = result
        save(results)  # after each: what was run is kept when the rest is interrupted
    print(f"{PAGE.relative_to(ROOT)}: {len(wanted)} of {len(cells())} cells run anew")
