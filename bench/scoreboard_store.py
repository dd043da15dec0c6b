"""Rows of the scoreboard between runs: one JSON object a line."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from . import report
from .same_objective import Finish
from .scoreboard_rows import Row

STORE = report.RESULTS / "scoreboard.json"


def stored(path: Path | None = None) -> dict[tuple[str, str, str, int], Row]:
    """The rows of earlier runs."""
    path = path or STORE
    if not path.exists():
        return {}
    rows = map(row_of, json.loads(path.read_text(encoding="utf-8")))
    return {row.key: row for row in rows}


def row_of(kept: dict[str, Any]) -> Row:
    """A row from what JSON kept of it."""
    finishes = {title: Finish(**finish) for title, finish in kept["finishes"].items()}
    return Row(**{**kept, "finishes": finishes})


def store(rows: dict[tuple[str, str, str, int], Row], path: Path | None = None) -> None:
    """Keep the rows for later runs."""
    lines = (json.dumps(asdict(rows[key]), ensure_ascii=False) for key in sorted(rows))
    (path or STORE).write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
