"""Pages of results, as `bench.report` writes them, in the results folder of the reproductions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench import report
from bench.report import cores, cpu, table, text, versions

__all__ = ["RESULTS", "cores", "cpu", "save", "table", "text", "versions"]

RESULTS = Path(__file__).parent / "results"


def save(
    name: str, title: str, about: str, body: str, packages: Sequence[str] = (), command: str | None = None
) -> None:
    """Write and print reproductions/results/NAME.md. command: what follows the package, if not the name alone."""
    report.save(name, title, about, body, packages, command, measured_by="reproductions", results=RESULTS)
