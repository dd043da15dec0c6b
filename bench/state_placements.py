"""What `st.propose` proposes for the states of six small tasks, beside every placement that runs.

Each task has one state that its parts change, of 131,072 float64 (16 chunks of 64 KiB), 8 parts and 10 iterations, on 4
simulated nodes with 2 cores (1 Gbit, 100 µs). Computing takes no virtual time, so that what is compared is the network
alone. *Served*: even shares of all nodes, the default. *Partitioned*: a range of rows for each node. *Replicated*: a
copy for each part, exchanged after every iteration, `merge=st.add()`. *Predicted* is the time of the proposed placement
by the proposal, *over the best* how much longer the proposed one takes than the best that was measured. Virtual seconds
do not depend on the machine or its load.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import stretto as st

from . import report

ROWS, PARTS, ITERATIONS = 16 * 8192, 8, 10
NODES = st.Simulated(nodes=4, threads=2)
PLACEMENTS = ("served", "partitioned", "replicated")
LIMIT = 0.10


def own_rows(worker: Any, rows: Any, w: Any) -> None:
    """Every part reads and changes its own rows, as with factors of users."""
    w.add(rows, 0.5 * w.read(rows) + 1.0)


def all_rows(worker: Any, rows: Any, w: Any) -> None:
    """Every part reads and changes all rows, as with a dense gradient."""
    w.add(np.arange(ROWS), 0.01 * w.read())


def some_rows(worker: Any, rows: Any, w: Any) -> None:
    """Every part reads and changes 1,000 rows at random, as with sparse features."""
    mine = np.unique(worker.random().integers(ROWS, size=1000))
    w.add(mine, 0.5 * w.read(mine) + 1.0)


def neighbour_rows(worker: Any, rows: Any, w: Any) -> None:
    """Every part changes its own rows and reads the edges of its neighbours, as in a stencil."""
    edges = np.concatenate([rows[:1000] - 1000, rows[-1000:] + 1000]) % ROWS
    w.add(rows, 0.1 * w.read(rows) + 0.001 * w.read(edges).mean())


def hot_rows(worker: Any, rows: Any, w: Any) -> None:
    """Every part changes its own rows and 1,000 that all parts share."""
    w.add(rows, 0.5 * w.read(rows))
    w.add(np.arange(1000), 0.1 * w.read(np.arange(1000)))


def sums(worker: Any, rows: Any, w: Any) -> None:
    """Every part reads all rows and changes ten."""
    w.add(np.arange(10), np.full(10, 1e-6 * w.read().mean()))


TASKS: dict[str, Callable[..., None]] = {
    "own rows": own_rows,
    "all rows": all_rows,
    "random rows": some_rows,
    "own rows and edges of neighbours": neighbour_rows,
    "own rows and shared ones": hot_rows,
    "reads all, changes ten": sums,
}


def task_of(function: Any, replicate: bool = False) -> tuple[Any, Any]:
    """A task and its state."""
    w = st.state(np.ones(ROWS), replicate=True) if replicate else st.state(np.ones(ROWS))
    return st.unit(function, np.arange(ROWS), w, parts=PARTS, iterations=ITERATIONS), w


def measured(function: Any, placement: str) -> tuple[float, Any]:
    """Virtual seconds of a task under a placement, and its result."""
    task, w = task_of(function, placement == "replicated")
    if placement == "partitioned":
        task = st.unit(function, np.arange(ROWS), w, parts=PARTS, iterations=ITERATIONS, partition={"w": "range"})
    return st.run(task, runtime=NODES).seconds, w.array.copy()


def main() -> None:
    """Measure and save."""
    rows, missed = [], []
    for name, function in TASKS.items():
        (proposal,) = st.propose(task_of(function)[0], NODES)
        found = {placement: measured(function, placement) for placement in PLACEMENTS}
        if (found["served"][1] != found["partitioned"][1]).any():
            raise SystemExit(f"{name}: served and partitioned differ")
        chosen, best = found[proposal.placement][0], min(seconds for seconds, _ in found.values())
        share = chosen / best - 1
        missed += [name] if share > LIMIT else []
        predicted = proposal.seconds[proposal.placement]
        rows.append(
            [
                name,
                *(f"{1e3 * found[placement][0]:.2f}" for placement in PLACEMENTS),
                proposal.placement,
                f"{1e3 * predicted:.2f}",
                f"{share:+.0%}",
            ]
        )
    columns = ["task", *(f"{one}, ms" for one in PLACEMENTS), "proposed", "predicted, ms", "over the best"]
    over = f"More than 10 % over the best: {', '.join(missed)}." if missed else "All are within 10 % of the best."
    body = f"{report.table(columns, rows)}\n\n{over}"
    report.save("state_placements", "Proposed placements of states", report.text(__doc__), body)


if __name__ == "__main__":
    main()
