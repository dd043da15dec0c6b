"""`stretto dashboard RUN` and `stretto report RUN`: the page of runs, live or as a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from stretto.cli.json_output import answer, close
from stretto.cli.output import say
from stretto.errors import DataError, RunError

DASHBOARD_EXAMPLES = (
    "Examples:\n\nstretto dashboard runs/first\n\nstretto dashboard runs/first runs/second --open\n\n"
    "stretto dashboard runs          (all runs in a folder, six at most)"
)
REPORT_EXAMPLES = (
    "Examples:\n\nstretto report runs/first -o report.html\n\n"
    "stretto report runs/first runs/second -o both.html --png both.png"
)

Runs = Annotated[list[Path], typer.Argument(help="Folders of runs, or a folder with several.", metavar="RUN…")]


def dashboard(
    runs: Runs,
    port: Annotated[
        int, typer.Option("--port", help="Port on this machine.", min=0, max=65535, show_default="any")
    ] = 0,
    browser: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    targets: Annotated[
        Path | None,
        typer.Option(
            "--targets", help="Write a file with which Prometheus finds /metrics of the page.", metavar="FILE"
        ),
    ] = None,
) -> None:
    """Show runs on a live page: convergence, workers, schedule, speed, events, settings, and what stands out.

    The page follows the run records, so it works for runs of this and of other terminals, for finished ones too. Only
    this machine can see it, and only with the whole link. Ctrl-C ends the page and no run.
    """
    from stretto.observe.page.names import chosen, names_of
    from stretto.observe.page.process import serve
    from stretto.observe.page.server import PageServer

    folders = chosen(runs)
    with PageServer(folders, port=port) as server:
        answer(url=server.url, runs=names_of(folders))
        close("dashboard")  # now, and not at the end: it serves until Ctrl-C
        if targets is not None:
            _write_targets(targets, server.port, server.token)
        say(f"{server.url}   (Ctrl-C ends the page, not the runs)")
        if browser:
            import webbrowser

            webbrowser.open(server.url)
        serve(server)


def _write_targets(path: Path, port: int, token: str) -> None:
    """A file for Prometheus' file_sd_configs. It holds the token, so it is for its owner alone."""
    found = [{"targets": [f"127.0.0.1:{port}"], "labels": {"__param_token": token, "job": "stretto"}}]
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    fresh.touch(mode=0o600, exist_ok=False)
    fresh.write_text(json.dumps(found) + "\n", encoding="utf-8")
    fresh.replace(path)


def report(
    runs: Runs,
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file.")] = Path("report.html"),
    png: Annotated[Path | None, typer.Option("--png", help="Draw the convergence into this file, too.")] = None,
) -> None:
    """Write the page of runs as one HTML file, which needs nothing else: to keep, or to send to a colleague."""
    from stretto.observe.page.front import report as write
    from stretto.observe.page.front import states
    from stretto.observe.page.names import chosen

    if output.suffix.lower() not in {".html", ".htm"}:
        raise DataError(f"--output {output}: a report is HTML; use a name that ends in .html")
    if png is not None and png.suffix.lower() not in {".png", ".svg", ".pdf"}:
        raise DataError(f"--png {png}: use a name that ends in .png, .svg or .pdf")
    folders = chosen(runs)
    write(folders, output)
    found = states(folders)
    if png is not None:
        _draw(found, png)
    answer(file=str(output), png=None if png is None else str(png), runs=[str(state["name"]) for state in found])
    also = f" and {png}" if png is not None else ""
    say(f"{output}{also}: {', '.join(str(state['name']) for state in found)}")


def _draw(states: list[dict[str, object]], png: Path) -> None:
    """The convergence of the runs as a picture."""
    from stretto.observe import plots

    tables: dict[str, Any] = {str(state["name"]): state["series"] for state in states}
    try:
        png.parent.mkdir(parents=True, exist_ok=True)
        plots.comparison(tables, png)
    except OSError as error:
        raise RunError(f"--png {png}: cannot be written ({error.strerror or error}); name another file") from error
