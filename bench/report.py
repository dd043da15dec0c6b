"""Tables with what is needed to repeat them: machine, versions, date, command."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def cpu() -> str:
    """The processor's name, as the system reports it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown processor"
    found = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return found[0] if found else "unknown processor"


def versions(*names: str) -> str:
    """Versions of packages, those that are installed."""
    found = []
    for name in names:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)


# Taken when the benchmark starts: importing some peers changes it.
_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cores() -> int:
    """Cores this process could use when it started."""
    return _CORES


def text(doc: str | None) -> str:
    """A module's docstring as one paragraph after another."""
    return (doc or "").strip()


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return "\n".join([*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows)])


def save(
    name: str,
    title: str,
    about: str,
    body: str,
    packages: Sequence[str] = (),
    command: str | None = None,
    *,
    measured_by: str = "bench",
    results: Path | None = None,
) -> None:
    """Write and print NAME.md in the folder of results.

    command: what follows `python -m bench`, if not the name alone. measured_by: the package, if not this one. results:
    its folder, `bench/results` unless given.
    """
    results = results or RESULTS
    head = [
        f"# {title}",
        "",
        about,
        "",
        f"- machine: {cpu()}, {cores()} cores",
        f"- Python {platform.python_version()}, {versions('stretto', 'numpy', 'numba', *packages)}",
        f"- date: {datetime.date.today().isoformat()}",
        f"- command: `python -m {measured_by} {command or name}`",
        "",
    ]
    results.mkdir(exist_ok=True)
    text = "\n".join([*head, body, ""])
    (results / f"{name}.md").write_text(text, encoding="utf-8")
    print(text, flush=True)
