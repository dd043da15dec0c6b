"""The page and the picture of `memory_chapter`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from stretto.figures import FAINT, new_figure

from . import report

GIB = 2**30
Row = dict[str, Any]
NAMES = {"resnet": "ResNet", "gpt": "GPT", "moe": "experts", "lstm": "LSTM", "wgan": "WGAN-GP"}
UNITS = {"resnet": "images", "gpt": "tokens", "moe": "sentences", "lstm": "sequences", "wgan": "images"}
HEADS = {
    "table_6_4": "Table 6.4: what each means brings",
    "figure_6_6": "Figure 6.6: the order of operations",
    "figure_6_7": "Figure 6.7: operations in a partition",
    "table_6_6": "Table 6.6: items a second at the largest batch",
    "table_6_9": "Table 6.9: sequences twice as long",
    "table_6_14": "Table 6.14: padded experts, and grouped ones",
}
ABOUT = {
    "table_6_4": (
        "The dissertation's policy has no budget: at most two partitions at a time. Ours has 0.35 of eager's peak, or "
        "the least that the means at hand can do. WGAN-GP has 204 operations here and 20,427 in TensorFlow: a "
        "partition of 20 is a tenth of its step, so that little of it can leave."
    ),
    "figure_6_6": (
        "The dissertation's policy, 20 operations in a partition. `depth_first` is its choice; `levels` and "
        "`deep_levels` are the two others of its section 6.3.4; `program` is the order in which the step was written, "
        "updates early. The chapter: depth first is best in time and memory, by depth alone is worst."
    ),
    "figure_6_7": (
        "The dissertation's policy, depth first. The chapter: larger partitions take more memory and less time."
    ),
    "table_6_6": (
        "A cap of 12 GiB. The chapter, at the largest batches: ResNet-152 50 → 27 images/s with 3.3 times the batch, "
        "experts 4.6 → 5.2 sentence pairs/s with 10 times."
    ),
    "table_6_9": (
        "Ours has what eager takes for the length, and twice the length. The chapter: twice the length that TensorFlow "
        "holds, at 1.35 times the time for the length. Attention takes more than twice the time for twice the length, "
        "in eager too."
    ),
    "table_6_14": (
        "A cap of 12 GiB, then a budget of 4; the same parameters. The chapter: 3 times the throughput by gathering, "
        "with twice the experts. Padded experts have a capacity of twice their fair share of the tokens, compute all "
        "of it and drop what is beyond; grouped ones (in 4 groups) compute every token once and drop none."
    ),
}
CHAPTER = {  # peak and time of eager's: over all models, and without experts
    "eager": (1.0, 1.0, 1.0, 1.0),
    "dissertation: + partition": (0.44, 1.8, 0.40, 1.55),
    "dissertation: + placement": (0.35, 2.2, 0.36, 1.85),
}


def publish(rows: list[Row], folder: Path) -> None:
    """Write memory_chapter.md and memory_chapter.png."""
    from . import memory_chapter

    parts = [
        f"# memory_chapter\n\n{_about(memory_chapter.__doc__)}",
        "- command: `python -m reproductions memory_chapter`",
    ]
    for name, head in HEADS.items():
        mine = [row for row in rows if row["experiment"] == name]
        if mine:
            parts.append(f"## {head}\n\n{ABOUT[name]}\n\n{_state(mine)}\n\n{TABLES[name](mine)}")
    with contextlib.suppress(ImportError):
        if draw(rows, folder / "memory_chapter.png"):
            parts.append("![Tables and figures as bars](memory_chapter.png)")
    (folder / "memory_chapter.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _about(doc: str | None) -> str:
    head, names, rest = report.text(doc).split("\n\n")
    listed = "\n".join("- `{}`: {}".format(*line.split(maxsplit=1)) for line in names.splitlines())
    return f"{head}\n\n{listed}\n\n{rest}"


def _state(rows: list[Row]) -> str:
    """How these numbers came about."""
    lines = []
    for where in dict.fromkeys(row["where"] for row in rows):
        models = dict.fromkeys(row["model"] for row in rows if row["where"] == where)
        how = "measured" if any(row["how"] == "measured" for row in rows if row["where"] == where) else "planned"
        lines.append(f"- **{how}** ({', '.join(models)}): {where}")
    return "\n".join(lines)


def _grouped(rows: list[Row]) -> Iterator[tuple[Row, list[Row]]]:
    """By model: its eager row, and all of its rows."""
    for model in dict.fromkeys(row["model"] for row in rows):
        mine = [row for row in rows if row["model"] == model]
        yield next((row for row in mine if row["method"].startswith("eager") and "failed" not in row), {}), mine


def _model(row: Row) -> str:
    options = "".join(f", {name} {value}" for name, value in row["options"].items() if name not in ("padded", "groups"))
    return f"{row['model']} {row['dtype']}{options}"


def _of(row: Row, eager: Row, name: str, shown: str) -> str:
    return shown + (f" ({row[name] / eager[name]:.2f}×)" if eager and row is not eager else "")


def _guess(row: Row) -> str:
    if "predicted_peak" not in row or "failed" in row:
        return ""
    return f"{row['predicted_peak'] / row['peak'] - 1:+.1%} / {row['predicted_seconds'] / row['seconds'] - 1:+.0%}"


def compared(rows: list[Row], first: str = "method") -> str:
    """Peak and time of every method beside eager's."""
    lines = []
    for eager, mine in _grouped(rows):
        for k, row in enumerate(mine):
            name = _model(row) if k == 0 else ""
            if "failed" in row:
                lines.append((name, row["method"], row["failed"], "", "", ""))
                continue
            peak = _of(row, eager, "peak", f"{row['peak'] / GIB:.2f}")
            ms = _of(row, eager, "seconds", f"{row['seconds'] * 1e3:.1f}")
            lines.append((name, row["method"], peak, ms, f"{row.get('host', 0) / GIB:.1f}", _guess(row)))
    return report.table(("model", first, "peak GiB (× eager)", "ms (× eager)", "host GiB", "predicted − real"), lines)


def ablation(rows: list[Row]) -> str:
    """Every model, then means over models as the chapter has them."""
    lines = []
    for method, numbers in means(rows).items():
        theirs = CHAPTER.get(method)
        chapter = [_both(theirs[:2]), _both(theirs[2:])] if theirs else ["", ""]
        lines.append((method, _both(numbers[:2]), chapter[0], _both(numbers[2:]), chapter[1]))
    columns = ("method", "mean: peak / time", "the chapter", "without experts", "the chapter")
    return f"{report.table(columns, lines)}\n\n{compared(rows)}"


def _both(pair: tuple[float, ...]) -> str:
    return "{:.2f} / {:.2f}×".format(*pair)


def means(rows: list[Row]) -> dict[str, tuple[float, float, float, float]]:
    """By method: mean share of eager's peak and mean multiple of its time, over all models and without experts."""
    found: dict[str, list[tuple[str, float, float]]] = {}
    for eager, mine in _grouped(rows):
        if not eager:
            continue
        by_method = {row["method"]: row for row in mine if "failed" not in row}
        if "ours: + placement" in by_method:  # a loss that is small has nothing to cut
            by_method.setdefault("ours: + chunks", by_method["ours: + placement"])
        for method, row in by_method.items():
            ratios = row["peak"] / eager["peak"], row["seconds"] / eager["seconds"]
            found.setdefault(method, []).append((row["model"], *ratios))
    result = {}
    for method, entries in found.items():
        dense = [entry for entry in entries if entry[0] != "moe"] or entries
        result[method] = (_mean(entries, 1), _mean(entries, 2), _mean(dense, 1), _mean(dense, 2))
    return result


def _mean(entries: list[Any], k: int) -> float:
    return float(sum(entry[k] for entry in entries) / len(entries))


def speeds(rows: list[Row], beside: str = "eager") -> str:
    """Items a second. beside: the method that others are compared with, or its beginning."""
    lines = []
    for _, mine in _grouped(rows):
        base = next((row for row in mine if row["method"].startswith(beside) and "failed" not in row), None)
        for k, row in enumerate(mine):
            name = _model(row | {"options": _same(mine)}) if k == 0 else ""
            if "failed" in row:
                lines.append((name, row["method"], row["failed"], "", ""))
                continue
            rate = row["items"] / row["seconds"]
            times = f" ({rate / base['items'] * base['seconds']:.2f}×)" if base and row is not base else ""
            text = f"{rate:,.1f} {UNITS[row['model']]}/s{times}"
            peak = f"{row['peak'] / GIB:.2f}" + (f" (least {row['least'] / GIB:.2f})" if "least" in row else "")
            lines.append((name, row["method"], peak, text, _guess(row)))
    return report.table(("model", "method", "peak GiB", f"items/s (× {beside})", "predicted − real"), lines)


def lengths(rows: list[Row]) -> str:
    """Seconds by length, beside eager's for the length: twice the length may take twice the time."""
    lines = []
    for eager, mine in _grouped(rows):
        for k, row in enumerate(mine):
            name = _model(row | {"options": _same(mine)}) if k == 0 else ""
            if "failed" in row:
                lines.append((name, row["method"], row["failed"], "", ""))
                continue
            times = ""
            if eager and row is not eager:
                longer = row["options"]["length"] / eager["options"]["length"]
                times = f"{row['seconds'] / (longer * eager['seconds']):.2f}×"
            lines.append((name, row["method"], f"{row['peak'] / GIB:.2f}", f"{row['seconds']:.3f}", times))
    return report.table(("model", "method", "peak GiB", "s", "× eager, for the length"), lines)


def _same(rows: list[Row]) -> dict[str, Any]:
    """Options that all rows share."""
    return {k: v for k, v in rows[0]["options"].items() if all(row["options"].get(k) == v for row in rows)}


TABLES: dict[str, Callable[[list[Row]], str]] = {
    "table_6_4": ablation,
    "figure_6_6": lambda rows: compared(rows, "order"),
    "figure_6_7": lambda rows: compared(rows, "operations"),
    "table_6_6": speeds,
    "table_6_9": lengths,
    "table_6_14": lambda rows: speeds(rows, "ours, padded"),
}


def _in_words(method: str) -> str:
    return f"{method} operations" if method.isdigit() else method.replace("_", " ")


def draw(rows: list[Row], path: Path) -> bool:
    """A line of two panels (peak, time) for each experiment that is a figure; whether there is one."""
    drawn = [name for name in ("table_6_4", "figure_6_6", "figure_6_7") if any(r["experiment"] == name for r in rows)]
    if not drawn:
        return False
    with new_figure(path, 11, 3.4 * len(drawn), palette=True) as figure:
        axes = figure.subplots(len(drawn), 2, squeeze=False)
        for name, pair in zip(drawn, axes, strict=True):
            mine = [row for row in rows if row["experiment"] == name and "failed" not in row]
            methods = list(dict.fromkeys(row["method"] for row in mine if row["method"] != "eager"))
            groups = [(eager, of_model) for eager, of_model in _grouped(mine) if eager]
            for axis, what, label in zip(pair, ("peak", "seconds"), ("peak memory", "time"), strict=True):
                for k, method in enumerate(methods):
                    found = [(g, eager, row) for g, (eager, of_model) in enumerate(groups) for row in of_model]
                    found = [(g, eager, row) for g, eager, row in found if row["method"] == method]
                    heights = [row[what] / eager[what] for _, eager, row in found]
                    width = 0.8 / len(methods)
                    axis.bar([g + k * width for g, _, _ in found], heights, width, label=_in_words(method))
                axis.axhline(1.0, color=FAINT, linewidth=1)
                axis.set_xticks(
                    [g + 0.4 for g in range(len(groups))],
                    [NAMES.get(eager["model"], eager["model"]) for eager, _ in groups],
                )
                axis.set(ylabel=f"{label}, times eager's")
            pair[0].set_title(HEADS[name], loc="left")
            pair[1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return True
