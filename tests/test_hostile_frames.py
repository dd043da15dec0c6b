"""Hostile frames through `as_data`: what comes back is what a plain loop over the columns finds, or an error."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from datetime import datetime
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from hostile import Case, faults, run_cases
from stretto.data import Data
from stretto.data.convert.convert import as_data
from stretto.errors import DataError

USERS, ITEMS, RATINGS = ("userId", "User-ID", "customer_id"), ("movieId", "ASIN", "item"), ("rating", "Score", "count")
OTHERS = ("timestamp", "note", "x1", "", "rater", "7")
FRAMES: dict[str, Callable[[dict[str, list[Any]]], Any]] = {
    "pandas": lambda columns: pd.DataFrame({name: pd.Series(values) for name, values in columns.items()}),
    "objects": lambda columns: pd.DataFrame({n: pd.Series(values, dtype=object) for n, values in columns.items()}),
    "polars": pl.DataFrame,
    "arrow": pa.table,
}
IDS: dict[str, Callable[[random.Random], Any]] = {
    "small": lambda draw: draw.randrange(9),
    "large": lambda draw: 10**7 + draw.randrange(10**9),
    "signed": lambda draw: draw.randrange(-(2**62), 2**62),
    "text": lambda draw: draw.choice(["ann", "007", "7", " ann", "ü", "a,b", ""]),
    "floats": lambda draw: float(draw.randrange(9)),
    "fractions": lambda draw: draw.randrange(9) + 0.5,
    "huge floats": lambda draw: 2.0**60 + draw.randrange(9),
    "gaps": lambda draw: draw.choice([1, 2, None]),
    "text gaps": lambda draw: draw.choice(["a", None]),
    "mixed": lambda draw: draw.choice([1, "a"]),
    "booleans": lambda draw: bool(draw.randrange(2)),
    "dates": lambda draw: datetime(2024, 1, 1 + draw.randrange(9)),
    "lists": lambda draw: [draw.randrange(9)],
}
VALUES: dict[str, Callable[[random.Random], Any]] = {
    "stars": lambda draw: draw.randrange(1, 6),
    "halves": lambda draw: draw.randrange(1, 11) / 2,
    "liked": lambda draw: bool(draw.randrange(2)),
    "not numbers": lambda draw: draw.choice([1.0, math.nan, math.inf]),
    "beyond": lambda draw: draw.choice([1.0, 1e39]),
    "gaps": lambda draw: draw.choice([1.0, None]),
    "text": lambda draw: draw.choice(["5", "4"]),
    "dates": lambda draw: datetime(2024, 1, 1),
}


def plain_ids(values: list[Any]) -> list[Any] | None:
    """Ids as they would be kept; None where they cannot be."""
    if all(isinstance(x, str) for x in values):
        return values
    if all(isinstance(x, int) and not isinstance(x, bool) for x in values):
        return values
    if all(isinstance(x, float) and x == int(x) and abs(x) < 2**53 for x in values):
        return [int(x) for x in values]
    return None


def plain_values(values: list[Any]) -> list[float] | None:
    """Values as they would be kept; None where they cannot be."""
    if not all(isinstance(x, (int, float)) for x in values):
        return None
    with np.errstate(over="ignore"):
        singles = [float(np.float32(x)) for x in values]
    return singles if all(map(math.isfinite, singles)) else None


# What may become of a frame; "cannot be made": its library has no way to hold such columns.
RIGHT = ("taken", "refused", "cannot be made")


def attempt(library: str, seed: int) -> str:
    """What became of a frame: one of `RIGHT`, or what is wrong with how it is taken."""
    draw = random.Random(f"{library}/{seed}")
    n = draw.choice([0, 1, 2, 7, 20])
    kinds = {role: draw.choice(list(IDS)[:3] if draw.randrange(3) else list(IDS)) for role in ("user", "item")}
    valued = draw.choice(list(VALUES)[:2] if draw.randrange(3) else list(VALUES))
    columns: list[tuple[str, str, list[Any]]] = [
        ("user", draw.choice(USERS), [IDS[kinds["user"]](draw) for _ in range(n)]),
        ("item", draw.choice(ITEMS), [IDS[kinds["item"]](draw) for _ in range(n)]),
        ("rating", draw.choice(RATINGS), [VALUES[valued](draw) for _ in range(n)]),
    ]
    for _ in range(draw.choice([0, 0, 1, 1, 2])):  # a role lost or doubled, or another column
        way = draw.randrange(4)
        if way == 0:
            columns.pop(draw.randrange(len(columns)))
        elif way == 1:
            names, role = draw.choice([(USERS, "user"), (ITEMS, "item"), (RATINGS, "rating")])
            columns.append((role, draw.choice(names), [draw.randrange(5) for _ in range(n)]))
        else:
            columns.append(("other", draw.choice(OTHERS), [draw.randrange(10**9) for _ in range(n)]))
        if not columns:
            break
    draw.shuffle(columns)
    unique = {name: (role, values) for role, name, values in columns}  # a second one of a name replaces the first
    try:
        frame = FRAMES[library]({name: values for name, (_, values) in unique.items()})
    except Exception:
        return "cannot be made"
    roles = {role: [v for r, v in unique.values() if r == role] for role in ("user", "item", "rating")}
    expected = None
    if all(len(found) == 1 for found in roles.values()):
        rows, cols, values = plain_ids(roles["user"][0]), plain_ids(roles["item"][0]), plain_values(roles["rating"][0])
        if rows is not None and cols is not None and values is not None:
            expected = list(zip(rows, cols, values, strict=True))
    try:
        data = as_data(frame, duplicates="keep")
    except DataError as error:
        return "refused" if expected is None else f"refused: {error}"
    if expected is None:
        return f"taken as {outside(data)[:5]}"
    return "taken" if outside(data) == expected else f"{outside(data)[:5]} for {expected[:5]}"


def outside(data: Data) -> list[tuple[Any, Any, float]]:
    assert data.row_ids is not None
    assert data.col_ids is not None
    rows, cols = data.row_ids.decode(data.rows), data.col_ids.decode(data.cols)
    return list(zip(rows.tolist(), cols.tolist(), data.values.tolist(), strict=True))


def warm() -> None:
    for library in FRAMES:
        attempt(library, 0)


def run(seeds: range) -> None:
    cases = [Case(f"{library}/{seed}", (library, seed)) for library in FRAMES for seed in seeds]
    verdicts = run_cases(attempt, cases, warm=warm, memory=2 << 30)
    wrong = faults(verdicts) + [
        f"{v.case.name}: {v.value}" for v in verdicts if v.outcome == "returned" and v.value not in RIGHT
    ]
    assert not wrong, f"{len(wrong)} of {len(cases)} frames:\n" + "\n".join(wrong[:20])
    for outcome in ("taken", "refused"):
        share = sum(verdict.value == outcome for verdict in verdicts) / len(verdicts)
        assert share > 0.2, f"{outcome}: {share:.0%} of the frames, too few to show anything"


def test_some_hostile_frames() -> None:
    run(range(100))


@pytest.mark.slow
def test_every_hostile_frame() -> None:
    run(range(100, 1100))
