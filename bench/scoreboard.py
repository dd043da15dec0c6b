"""Every estimator beside every peer on every set: time, quality and memory on one page.

The ratio is the best peer's time over ours; **bold with ▼** marks cells below 1, where we lose. Each program gets the
loosest of its tolerances (in brackets) whose objective is at most 1e-4 above the smallest one known, which is that of
our fit at a duality gap of 1e-9 or a peer's where that is smaller; one function computes the objective of all. Fits at
that tolerance are then timed in turn in one process: medians of three, or one fit above 2 s. Loading is excluded,
compiling too; our set-up is included. Lasso and elastic net get X by columns (CSC or Fortran order), our logistic
regression by rows (CSR or C order), peers the order they prefer. `quality` is our objective above the smallest one.
Memory is the growth of the process's peak during a fit in MiB, ours and then the fastest peer's; space that the
process had from before is not counted. λ is λ_max / 10 and / 100, for L2 that of the L1 problem with the same data.
Rows are kept in `scoreboard.json`: a run replaces the rows it measures and leaves the others, each with its date.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from threadpoolctl import threadpool_limits

from . import report, same_objective, scoreboard_linear, scoreboard_sets
from .same_objective import Finish, Race
from .scoreboard_fixed import fixed_costs

CLOSE, EXACT = 1e-4, 1e-9
DIVISORS = (10, 100)
OURS = scoreboard_linear.OURS
STORE = report.RESULTS / "scoreboard.json"
PACKAGES = ("scikit-learn", "skglm", "celer", "adelie")


@dataclass(frozen=True)
class Options:
    """What a run measures."""

    only: Sequence[str] = ()  # parts of "work / set"; none: everything
    threads: int = 1
    limit: float = 20.0  # seconds for each program's search of its tolerance

    def wants(self, *names: str) -> bool:
        """Whether a cell with these names was asked for."""
        label = " / ".join(names)
        return not self.only or any(part in label for part in self.only)


@dataclass(frozen=True)
class Row:
    """One cell of the board: a problem, the finish of every program, and memory."""

    work: str
    name: str  # of the set
    half: str
    penalty: str
    finishes: dict[str, Finish]
    least: float  # smallest objective known
    growth: dict[str, float] = field(default_factory=dict)  # MiB by program
    threads: int = 1
    date: str = ""

    @property
    def key(self) -> tuple[str, str, str, int]:
        """What a later row with the same key replaces."""
        return self.name, self.work, self.penalty, self.threads

    @property
    def best(self) -> str | None:
        """The fastest peer that reached the objective."""
        done = {title: one.seconds for title, one in self.finishes.items() if title != OURS and one.setting is not None}
        return min(done, key=lambda title: done[title]) if done else None

    @property
    def ratio(self) -> float | None:
        """The best peer's time over ours; None if no peer reached the objective, 0 if only peers did."""
        if self.best is None:
            return None
        if self.finishes[OURS].setting is None:
            return 0.0
        return self.finishes[self.best].seconds / self.finishes[OURS].seconds


@contextlib.contextmanager
def _peak(into: dict[str, float], title: str) -> Iterator[None]:
    """Store the growth of the peak of resident memory, where the system reports it."""
    status, clear = Path("/proc/self/status"), Path("/proc/self/clear_refs")

    def read(name: str) -> float:
        [line] = [line for line in status.read_text().splitlines() if line.startswith(name)]
        return int(line.split()[1]) / 1024

    try:
        clear.write_text("5")
        before = read("VmRSS")
    except OSError:
        yield
        return
    yield
    into[title] = max(0.0, read("VmHWM") - before)


def linear_rows(options: Options) -> Iterator[Row]:
    """Rows of the linear models, set by set."""
    compiled: set[tuple[str, bool]] = set()
    for name in scoreboard_sets.FAMILIES:
        for work, about in scoreboard_linear.WORKS.items():
            if name not in scoreboard_sets.present(about.use) or not options.wants(work, name):
                continue
            data = scoreboard_sets.load(name)
            for divisor in DIVISORS:
                problem = scoreboard_linear.LinearProblem(work, data, divisor)
                if (key := (work, problem.sparse)) not in compiled:
                    compiled.add(key)
                    for fit in scoreboard_linear.programs(scoreboard_linear.tiny(*key), options.threads).values():
                        fit(1e-3)
                yield _measured(problem, name, options)


def _measured(problem: scoreboard_linear.LinearProblem, name: str, options: Options) -> Row:
    programs = scoreboard_linear.programs(problem, options.threads)
    with threadpool_limits(options.threads):
        least = problem.objective(programs[OURS](EXACT))
    settings = dict.fromkeys(programs, scoreboard_linear.LOOSE_TO_TIGHT)
    finishes = Race(problem.objective, programs, settings, options.threads, options.limit).run(least, CLOSE)
    least = min(least, *(one.objective for one in finishes.values()))
    half = scoreboard_sets.half(name)
    penalty, today = f"λ_max / {problem.divisor}", datetime.date.today().isoformat()
    row = Row(problem.work, name, half, penalty, finishes, least, threads=options.threads, date=today)
    for title in filter(None, (OURS, row.best)):
        if finishes[title].setting is not None and finishes[title].seconds < same_objective.LONG:
            with threadpool_limits(options.threads), _peak(row.growth, title):
                programs[title](finishes[title].setting)
    return row


# A section yields rows one by one. Other estimators join here.
SECTIONS: dict[str, Callable[[Options], Iterator[Row]]] = {"linear models": linear_rows}


def _shown(finish: Finish) -> str:
    return f"{1e3 * finish.seconds:.3g} ({finish.setting:g})" if finish.setting is not None else "not reached"


def cells(row: Row) -> list[str]:
    """The row as the table shows it."""
    ratio, ours = row.ratio, row.finishes[OURS]
    shown = "no peer" if ratio is None else f"{ratio:.2f}" if ratio >= 1.0 else f"**▼ {ratio:.2f}**"
    others = ", ".join(f"{title} {_shown(one)}" for title, one in row.finishes.items() if title != OURS)
    quality = f"{max(0.0, ours.objective / row.least - 1):.0e}"
    memory = " / ".join(f"{row.growth[title]:.0f}" if title in row.growth else "—" for title in (OURS, row.best or ""))
    return [row.work, row.name, row.penalty, str(row.threads), shown, _shown(ours), others, quality, memory, row.date]


COLUMNS = [
    "work",
    "set",
    "penalty",
    "threads",
    "ratio",
    "ours, ms (tol)",
    "peers, ms (tol)",
    "quality",
    "memory",
    "date",
]


def summary(rows: Sequence[Row]) -> str:
    """How many cells each kind of problem wins in each half."""
    lines = []
    for work in dict.fromkeys(row.work for row in rows):
        for half in (scoreboard_sets.FIRST, scoreboard_sets.SECOND):
            ratios = sorted(
                row.ratio for row in rows if row.work == work and row.half == half and row.ratio is not None
            )
            if ratios:
                least = f"{ratios[0]:.2f}"
                won, twice = (sum(ratio >= bar for ratio in ratios) for bar in (1.0, 2.0))
                lines.append([work, half, len(ratios), won, twice, f"{ratios[len(ratios) // 2]:.2f}", least])
    return report.table(["work", "half", "cells", "ratio ≥ 1", "ratio ≥ 2", "median", "least"], lines)


def page(rows: Sequence[Row], fixed: str, absent: Sequence[str]) -> str:
    """The body of the page."""
    parts = [summary(rows)]
    if absent:
        parts.append(f"Peers that could not be imported: {', '.join(absent)}.")
    for half, about in (
        (scoreboard_sets.SECOND, "Sets that were not used to choose defaults"),
        (scoreboard_sets.FIRST, "Sets on which defaults were chosen"),
    ):
        parts.append(f"## {about}\n\n" + report.table(COLUMNS, [cells(row) for row in rows if row.half == half]))
    return "\n\n".join([*parts, fixed])


def stored(path: Path | None = None) -> dict[tuple[str, str, str, int], Row]:
    """The rows of earlier runs."""
    path = path or STORE
    if not path.exists():
        return {}
    rows = []
    for one in json.loads(path.read_text(encoding="utf-8")):
        finishes = {title: Finish(**finish) for title, finish in one.pop("finishes").items()}
        rows.append(Row(finishes=finishes, **one))
    return {row.key: row for row in rows}


def store(rows: dict[tuple[str, str, str, int], Row], path: Path | None = None) -> None:
    """Keep the rows for later runs."""
    lines = (json.dumps(asdict(rows[key]), ensure_ascii=False) for key in sorted(rows))
    (path or STORE).write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> None:
    """Measure what was asked for and write the page."""
    parser = argparse.ArgumentParser(prog="python -m bench scoreboard", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help='part of "work / set"; repeatable')
    parser.add_argument("--threads", type=int, default=1, help="threads of every program that can use them")
    parser.add_argument("--limit", type=float, default=20.0, metavar="SECONDS", help="for a program to reach the bar")
    asked = parser.parse_args(argv)
    options = Options(tuple(asked.only), asked.threads, asked.limit)
    warnings.simplefilter("ignore")
    rows = 0
    began = time.perf_counter()
    for section, make in SECTIONS.items():
        print(f"-- {section}", flush=True)
        for row in make(options):
            rows += 1
            store(stored() | {row.key: row})  # read again: another part may run at the same time
            print(f"{time.perf_counter() - began:6.0f} s  " + " | ".join(cells(row)), flush=True)
    if not rows:
        parser.error(f"--only {' '.join(options.only)}: no cell has this in its name; names are WORK / SET")
    command = " ".join(["scoreboard", *(f'--only "{part}"' for part in options.only)])
    command += f" --threads {options.threads} --limit {options.limit:g}"
    about = report.text(__doc__) + same_objective.CAUTION * same_objective.SHARED
    body = page([row for _, row in sorted(stored().items())], fixed_costs(), scoreboard_linear.missing())
    report.save("scoreboard", "Scoreboard", about, body, PACKAGES, command)
