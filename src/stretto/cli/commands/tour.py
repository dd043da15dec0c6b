"""`stretto tour`: six small programs that show what Stretto does, with what their results mean."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stretto.cli.json_output import answer, wanted
from stretto.cli.output import say
from stretto.errors import DataError

if TYPE_CHECKING:
    from stretto.cli.tour.stop import Shown, Stop

EXAMPLES = (
    "Examples:\n\nstretto tour\n\nstretto tour --only 3\n\nstretto tour --yes --browser\n\nstretto tour --only 5 --json"
)
_WIDE = 88


def tour(
    only: Annotated[
        list[int] | None, typer.Option("--only", help="Show this stop alone; may be repeated.", min=1, metavar="N")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not wait for Enter between stops.")] = False,
    browser: Annotated[
        bool, typer.Option("--browser", help="Write the page of the tour's runs to tour.html, and open it.")
    ] = False,
) -> None:
    """Five minutes with Stretto: six small programs, each run before your eyes, and what their results mean.

    A loop is explained and run in parallel, a rotation is drawn, a parameter server has too little bandwidth, a cluster
    has slow nodes, a node is killed, and a task changes its number of workers. All numbers are computed while you look;
    clusters are simulated, and the text says so. Nothing is left behind but tour.html, if you ask for it.
    """
    from stretto.cli.tour.stops import STOPS

    numbers = list(dict.fromkeys(only or range(1, len(STOPS) + 1)))
    if max(numbers) > len(STOPS):
        raise DataError(f"--only {max(numbers)}: the tour has {len(STOPS)} stops, numbered from 1")
    waits = not (yes or wanted()) and _at_a_terminal()
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="stretto-tour-") as place:
        records: list[Path] = []
        for position, number in enumerate(numbers):
            stop = STOPS[number - 1]
            say(f"\n{number} of {len(STOPS)}  {stop.title}\n{'─' * _WIDE}\n{stop.asks}\n")
            began = time.perf_counter()
            shown = stop.run(Path(place))
            seconds = time.perf_counter() - began
            _print(shown, seconds)
            found.append(_facts(number, stop, shown, seconds))
            records += [] if shown.record is None else [shown.record]
            if waits and position + 1 < len(numbers) and not _goes_on():
                break
        if browser:
            _open(records)
    answer(stops=found)
    if len(numbers) > 1:
        say("\nnext: stretto train mf --help, the examples in the repository, and docs/tour.md")


def _print(shown: Shown, seconds: float) -> None:
    import textwrap

    say(shown.picture)
    say("\n" + textwrap.fill(shown.says, _WIDE))
    say(f"({seconds:.1f} s)")


def _facts(number: int, stop: Stop, shown: Shown, seconds: float) -> dict[str, Any]:
    return {"number": number, "title": stop.title, "seconds": seconds, "facts": shown.facts, "says": shown.says}


def _at_a_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _goes_on() -> bool:
    """Whether the next stop is wanted."""
    typer.echo("\nEnter for the next stop, q to leave: ", nl=False, err=True)
    return sys.stdin.readline().strip().lower() not in {"q", "quit"}


def _open(records: list[Path]) -> None:
    """Write the page of the runs that the stops recorded, and open it."""
    from stretto.observe.page.front import report

    if not records:
        raise DataError("--browser: the stops that were shown leave no run record; 1, 2 and 5 do")
    import webbrowser

    page = Path("tour.html").resolve()
    report(records, page)
    say(f"\n{page}: {len(records)} runs of the tour; `stretto dashboard RUN` shows such a page while a run goes on")
    webbrowser.open(page.as_uri())
