"""Every estimator beside every peer on every set: time, quality and memory on one page.

The ratio is the best peer's time over ours; **bold with ▼** marks cells below 1, where we lose. Each program gets the
loosest of its tolerances (in brackets) whose objective is at most 1e-4 above the smallest one known, which is that of
our fit at a duality gap of 1e-7 or a peer's where that is smaller; one function computes the objective of all. Fits at
that tolerance are then timed in turn in one process: medians of three to fifteen, or one fit above 2 s. A peer's search
for its tolerance ends at the limit of the run, or after ten times our time, and 0.3 s at least; our own search has
twenty times the limit; where none has reached the objective by then, the ratio is a bound (>), or not known if peers
had less time than we took. With several threads a peer that took four times our time with one is left out, unless it
was the fastest. Loading is excluded, compiling too; our set-up is included. Lasso and elastic net get X by columns (CSC
or Fortran order), our logistic regression by rows (CSR or C order), peers the order they prefer. `quality` is our
objective above the smallest one. Memory is the growth of the process's peak during a fit in MiB, ours and then the
fastest peer's, at one thread. λ is λ_max / 10 and / 100, for L2 that of the L1 problem with the same data; a path has
100 penalties from λ_max to λ_max / 100, each of which must reach its objective. With `--jobs N`, N processes run at a
time, each on cores of its own.
Rows are kept in `scoreboard.json`: a run replaces the rows it measures and leaves the others, each with its date.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator, Sequence

from . import (
    report,
    same_objective,
    scoreboard_jobs,
    scoreboard_pages,
    scoreboard_programs,
    scoreboard_sets,
    scoreboard_summary,
)
from .same_objective import Finish
from .scoreboard_fixed import fixed_costs
from .scoreboard_rows import OURS, Options, Row, linear_rows, pairs, slow_peers
from .scoreboard_store import row_of, store, stored

PACKAGES = (
    "scikit-learn",
    "skglm",
    "celer",
    "adelie",
    "python-glmnet",
    "liblinear-multicore",
    "snapml",
    "scikit-learn-intelex",
)


def _shown(finish: Finish) -> str:
    shown = f"{1e3 * finish.seconds:.3g}"
    return f"{shown} ({finish.setting:g})" if finish.setting is not None else f"not reached in {shown}"


def cells(row: Row) -> list[str]:
    """The row as the table shows it."""
    ratio, ours = row.ratio, row.finishes[OURS]
    unknown = "no program" if ours.setting is None else "not known"
    shown = unknown if ratio is None else f"{ratio:.2f}" if ratio >= 1.0 else f"**▼ {ratio:.2f}**"
    shown = f"> {shown}" if row.bound and ratio is not None else shown
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


def page(rows: Sequence[Row], fixed: str, absent: Sequence[str]) -> str:
    """The body of the page."""
    parts = [scoreboard_summary.summary(rows)]
    if absent:
        parts.append(f"Peers that could not be imported: {', '.join(absent)}.")
    for half, about in (
        (scoreboard_sets.SECOND, "Sets that were not used to choose defaults"),
        (scoreboard_sets.FIRST, "Sets on which defaults were chosen"),
    ):
        parts.append(f"## {about}\n\n" + report.table(COLUMNS, [cells(row) for row in rows if row.half == half]))
    about = "Rows of other pages, each with its own command, machine and date; the ratio is the peer's time over ours."
    others = report.table(scoreboard_pages.COLUMNS, scoreboard_pages.other_rows())
    return "\n\n".join([*parts, fixed, "## Other estimators", about, others])


def _rows(options: Options, jobs: int) -> Iterator[Row]:
    """The rows asked for, in this process or in several at a time."""
    if jobs == 1:
        yield from linear_rows(options)
        return
    numbers = ["--threads", str(options.threads), "--limit", str(options.limit)]
    parts = [["--only", f"={work} / {name}", *numbers] for name, work in pairs(options)]
    yield from map(row_of, scoreboard_jobs.run(parts, jobs, options.threads))


def main(argv: Sequence[str] | None = None) -> None:
    """Measure what was asked for and write the page."""
    parser = argparse.ArgumentParser(prog="python -m bench scoreboard", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help='part of "work / set"; repeatable')
    parser.add_argument("--threads", type=int, default=1, help="threads of every program that can use them")
    parser.add_argument("--limit", type=float, default=20.0, metavar="SECONDS", help="for a program to reach the bar")
    parser.add_argument("--jobs", type=int, default=1, help="parts at a time, each on cores of its own")
    parser.add_argument("--page", action="store_true", help="write the pages of the kept rows alone")
    parser.add_argument("--gate", action="store_true", help="exit with 1 if kept rows are below what a release asks")
    asked = parser.parse_args(argv)
    if asked.gate:
        found = scoreboard_summary.failures(list(stored().values()))
        print("\n".join(found) or "every cell is fast enough")
        raise SystemExit(1 if found else 0)
    slow = slow_peers(stored().values()) if asked.threads > 1 else {}
    options = Options(tuple(asked.only), asked.threads, asked.limit, slow)
    if not pairs(options):
        parser.error(f"--only {' '.join(options.only)}: no cell has this in its name; names are WORK / SET")
    warnings.simplefilter("ignore")
    began = time.perf_counter()
    for row in () if asked.page else _rows(options, asked.jobs):
        store(stored() | {row.key: row})
        print(f"{time.perf_counter() - began:6.0f} s  " + " | ".join(cells(row)), flush=True)
    command = " ".join(["scoreboard", *(f'--only "{part}"' for part in options.only)])
    command += f" --threads {options.threads} --limit {options.limit:g} --jobs {asked.jobs}"
    about = report.text(__doc__) + same_objective.CAUTION * same_objective.SHARED
    rows = [row for _, row in sorted(stored().items())]
    scoreboard_summary.write_short(rows)
    body = page(rows, fixed_costs(), scoreboard_programs.missing())
    report.save("scoreboard", "Scoreboard", about, body, PACKAGES, command)
