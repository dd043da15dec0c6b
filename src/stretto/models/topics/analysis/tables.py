"""Rows of results as plain values and as CSV files."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stretto.atomic import replacing


def without_nan(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with None instead of NaN, which JSON does not have and CSV leaves empty."""
    return [{k: None if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()} for row in rows]


def write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write rows to a CSV file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as fresh, open(fresh, "w", newline="", encoding="utf-8") as file:
        out = csv.DictWriter(file, rows[0], lineterminator="\n")
        out.writeheader()
        out.writerows(without_nan(rows))
