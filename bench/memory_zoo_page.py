"""The table and the picture of the zoo, from the JSON lines that memory_zoo writes."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import memory_charts, memory_zoo, report

GIB = 2**30
LIMIT = 10.0  # seconds that planning may take at 35 %
# Methods of one series in the picture, by the beginning of their names. At most six.
SERIES = {
    "ours": "Stretto, at its budgets",
    "ours, compiled": "Stretto with compile=True",
    "compile": "torch.compile, activation budgets 1 to 0.1",
    "checkpoint": "checkpoint per block",
    "save_on_cpu": "save_on_cpu(pin_memory=True)",
    "fsdp2": "FSDP2, CPUOffloadPolicy",
}
COLUMNS = (
    "method",
    "budget",
    "reserved GiB",
    "of budget",
    "allocated GiB",
    "ms (× eager)",
    "planned, s",
    "predicted ms (waiting, recomputing)",
    "recorded",
    "results against eager",
    "remarks",
)

Row = dict[str, Any]


def latest(rows: Sequence[Row]) -> list[Row]:
    """The last row of each model, method and share; in the order in which they came first."""
    found: dict[Any, Row] = {}
    for row in rows:
        found[row["model"], row["method"], row.get("share")] = row
    return list(found.values())


def publish(rows: Sequence[Row], folder: Path, note: str = "") -> None:
    """Write memory_zoo.md and, if matplotlib is installed, memory_zoo.png. note: what a reader must know."""
    rows = latest(rows)
    beside = {row["model"] for row in rows if row["method"] != "eager"}
    rows = [row for row in rows if row["model"] in beside]
    models = {row["model"]: row for row in rows if row["method"] == "eager" and "seconds" in row}
    parts = [_summary(rows, models), _overview(rows, models)]
    with contextlib.suppress(ImportError):
        memory_charts.zoo(points(rows, models), folder / "memory_zoo.png")
        parts.append("![Memory and time of a step beside eager, a line for each model](memory_zoo.png)")
    for name in dict.fromkeys(row["model"] for row in rows):
        of_model = [row for row in rows if row["model"] == name]
        seen = "seen while tuning" if of_model[0]["seen"] else "not seen while tuning"
        lines = [_cells(row, models.get(name)) for row in of_model]
        parts.append(f"## {name} ({of_model[0]['dtype']}, {seen})\n\n{report.table(COLUMNS, lines)}")
    about = sorted({f"- {row['machine']}, {row['date']}" for row in rows})
    told = [report.text(memory_zoo.__doc__), "\n".join(about), *([note] if note else [])]
    text = "\n\n".join(["# Thirty models under a budget", *told, *parts])
    (folder / "memory_zoo.md").write_text(text + "\n", encoding="utf-8")
    print(parts[0])


def _overview(rows: Sequence[Row], models: dict[str, Row]) -> str:
    """A line for each model and budget, beside checkpoints."""
    lines = []
    for row in rows:
        eager = models.get(row["model"])
        if row["method"] != "ours" or eager is None or "reserved" not in row:
            continue
        other = next((x for x in rows if x["model"] == row["model"] and x["method"] == "checkpoint"), {})
        times, beside = row["seconds"] / eager["seconds"], ""
        if "seconds" in other:
            beside = f"{other['seconds'] / eager['seconds']:.2f} at {other['reserved'] / eager['reserved']:.0%}"
        predicted = f"{row['predicted_seconds'] / eager['seconds']:.2f}" if "predicted_seconds" in row else ""
        name = row["model"] if row["seen"] else f"{row['model']} (unseen)"
        held = f"{row['reserved'] / row['budget']:.2f}"
        lines.append([name, f"{row['share']:.0%}", held, f"{times:.2f}", predicted, beside])
    last = "checkpoint per block: time, memory"
    return report.table(("model", "budget", "reserved, of the budget", "time, × eager", "predicted", last), lines)


def _summary(rows: Sequence[Row], models: dict[str, Row]) -> str:
    """By share: how many models were planned, kept the budget, gave eager's results; and their times."""
    lines = []
    ours = [row for row in rows if row["method"] == "ours"]
    for share in sorted({row["share"] for row in ours if _usual(row)}, reverse=True):
        at = [row for row in ours if row["share"] == share]
        ran = [row for row in at if "seconds" in row]
        plan = [row for row in ran if "fallback" not in row]
        times = sorted(row["seconds"] / models[row["model"]]["seconds"] for row in plan if row["model"] in models)
        slow = [row["model"] for row in plan if row.get("planning", 0.0) > LIMIT]
        over = [row["model"] for row in ran if row.get("reserved", 0) > row["budget"]]
        lines.append(
            [
                f"{share:.0%}",
                len(at),
                len(plan),
                len(ran) - len(plan),
                _named([row["model"] for row in at if "smallest" in row]),
                _named([row["model"] for row in at if "failed" in row and "smallest" not in row]),
                _named(over),
                sum(row["bits"] for row in ran),
                _named([row["model"] for row in ran if not row["agrees"]]),
                f"{times[len(times) // 2]:.2f}, {times[-1]:.2f}" if times else "",
                _named(slow),
            ]
        )
    columns = (
        "budget, of eager's reserved bytes",
        "models",
        "planned",
        "run as they are",
        "refused with a smallest budget",
        "failed",
        "reserved more than the budget",
        "same bits as eager",
        "results beyond tolerance",
        "time, × eager: median, largest",
        f"planned in more than {LIMIT:.0f} s",
    )
    return report.table(columns, lines)


def _named(names: Sequence[str]) -> str:
    return f"{len(names)}: {', '.join(names)}" if names else "0"


def _usual(row: Row) -> bool:
    """Whether a budget was asked for, not offered by a refusal."""
    percent = float(row["share"]) * 100
    return abs(percent - round(percent)) < 1e-6


def _cells(row: Row, eager: Row | None) -> list[str]:
    share = f"{row['share']:.1%} ({row['budget'] / GIB:.2f} GiB)" if "share" in row else ""
    if "failed" in row:
        smallest = f"; the smallest is {row['smallest'] / GIB:.2f} GiB" if "smallest" in row else ""
        return [row["method"], share, *[""] * 8, row["failed"].replace("|", "/")[:160] + smallest]
    reserved = row.get("reserved")
    over = reserved is not None and "budget" in row and reserved > row["budget"]
    remarks = [*row.get("notes", []), *row.get("warned", [])]
    if "fallback" in row:
        remarks.append(f"run as it is: {row['fallback']}")
    guess = ""
    if "predicted_seconds" in row:
        guess = f"{_ms(row['predicted_seconds'])} ({_ms(row['waited'])}, {_ms(row['recomputed'])})"
    return [
        row["method"],
        share,
        f"{reserved / GIB:.2f}" if reserved is not None else "",
        f"{'**' if over else ''}{reserved / row['budget']:.2f}{'**' if over else ''}" if reserved and share else "",
        f"{row['allocated'] / GIB:.2f}" if "allocated" in row else "",
        _ms(row["seconds"]) + (f" ({row['seconds'] / eager['seconds']:.2f}×)" if eager else ""),
        f"{row['planning']:.1f}" if "planning" in row else "",
        guess,
        ("yes" if row["recorded"] else "no") if "recorded" in row else "",
        _results(row),
        "; ".join(text.replace("|", "/")[:160] for text in remarks),
    ]


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f}"


def _results(row: Row) -> str:
    if row["method"] == "eager":
        if row.get("own_bits") is None:
            return ""
        if row["own_bits"]:
            return "the same bits twice"
        return f"twice: losses differ by {row['own_loss_difference']:.1e}, state by {row['own_state_difference']:.1e}"
    if row["bits"]:
        return "same bits"
    beyond = "" if row["agrees"] else ", **beyond tolerance**"
    return f"losses differ by {row['loss_difference']:.1e}, state by {row['state_difference']:.1e}{beyond}"


def series(row: Row) -> str | None:
    """The series of the picture that a row belongs to."""
    return next((name for name in reversed(SERIES) if row["method"].startswith(name)), None)


def points(rows: Sequence[Row], models: dict[str, Row]) -> dict[str, dict[str, memory_charts.Points]]:
    """By model and series: reserved memory and time, as shares of eager's."""
    found: dict[str, dict[str, memory_charts.Points]] = {}
    for row in rows:
        eager, kind = models.get(row["model"]), series(row)
        if eager is not None and kind is not None and "reserved" in row and "seconds" in row:
            shares = row["reserved"] / eager["reserved"], row["seconds"] / eager["seconds"]
            found.setdefault(row["model"], {}).setdefault(SERIES[kind], []).append(shares)
    return found
