"""The charts of memory_frontier and memory_zoo.

`python -m bench memory_charts` draws both from the tables in bench/results. It measures nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stretto.figures import COLOURS, FAINT, MARKERS, new_figure, plain_log_scale, shared_legend

from .report import RESULTS
from .scoreboard_pages import number, tables

Points = list[tuple[float, float]]  # memory and time, as shares of eager's

# Panels of the frontier: the model and its dtype in the table, and in words. The table has more.
MODELS = {
    ("resnet", "bf16"): "Residual network, bfloat16",
    ("gpt", "bf16"): "GPT, bfloat16",
    ("experts", "fp32"): "Mixture of experts, float32",
    ("lstm", "fp32"): "LSTM cells, float32",
    ("wgan", "fp32"): "WGAN-GP, float32",
    ("gpt", "fp32"): "GPT, float32",
}
# Series of the frontier: the method in the table without its budget, and in words.
METHODS = {
    "ours": "Stretto, by budget",
    "ours compiled": "Stretto with compile=True, by budget",
    "compile": "torch.compile, by activation budget",
    "checkpoint": "PyTorch: checkpoint around every block",
    "save_on_cpu": "PyTorch: save_on_cpu",
    "dissertation": "swapping as in the dissertation",
}


def frontier(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw a panel for each model: time of a step against peak memory.

    Parameters
    ----------
    rows : sequence of mappings
        `model`, `dtype`, `method`, and where it ran `peak` and `seconds`, in any unit.
    path : Path
        The file to write.
    """
    eager = {(row["model"], row["dtype"]): row for row in rows if row["method"] == "eager" and "peak" in row}
    panels = {key: MODELS.get(key, " ".join(key)) for key in (*MODELS, *eager) if key in eager}
    panels = dict(list(panels.items())[: len(MODELS)])
    wide = min(3, max(1, len(panels)))
    tall = -(-len(panels) // wide) or 1
    title = "Time of a training step against its peak memory, on one GPU (grey lines: eager PyTorch)"
    with new_figure(path, 3.5 * wide, 3.0 * tall + 0.9, title, palette=True) as figure:
        every = figure.subplots(tall, wide, squeeze=False, sharex=True)
        for axes, (key, name) in zip(every.flat, panels.items(), strict=False):
            base = eager[key]
            axes.axvline(100, color=FAINT, linewidth=1.4)
            axes.axhline(1, color=FAINT, linewidth=1.4)
            for place, (method, label) in enumerate(METHODS.items()):
                points = sorted(
                    (100 * row["peak"] / base["peak"], row["seconds"] / base["seconds"])
                    for row in rows
                    if (row["model"], row["dtype"]) == key and "peak" in row and _kind(row["method"]) == method
                )
                line = "-" if method.startswith("ours") else ""
                if points:
                    axes.plot(*zip(*points, strict=True), MARKERS[place] + line, color=COLOURS[place], label=label)
            axes.set(title=name, xlim=(0, 112))
            plain_log_scale(axes, subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0))
            low, high = axes.get_ylim()
            axes.set_ylim(min(low, 0.7) / 1.05, max(high, 1.6))
        for axes in every[-1]:
            axes.set_xlabel("peak memory (% of eager's)")
        for axes in every[:, 0]:
            axes.set_ylabel("time (times eager's)")
        for axes in every.flat[len(panels) :]:
            axes.set_visible(False)
        shared_legend(figure)


def zoo(found: Mapping[str, Mapping[str, Points]], path: Path) -> None:
    """Draw a line for each model with a mark for each method: memory on the left, time on the right.

    Parameters
    ----------
    found : mapping
        By model and series: memory and time as shares of eager's.
    path : Path
        The file to write.
    """
    names = list(found)
    series = list(dict.fromkeys(one for points in found.values() for one in points))
    title = "Memory and time of a training step beside eager PyTorch, by model (grey lines: eager)"
    with new_figure(path, 9, 1.6 + 0.3 * len(names), title, palette=True) as figure:
        left, right = figure.subplots(1, 2, sharey=True)
        for which, axes in enumerate((left, right)):
            axes.axvline((100.0, 1.0)[which], color=FAINT, linewidth=1.4)
            for place, one in enumerate(series):
                marks = [
                    ((100 * point[0], point[1])[which], at)
                    for at, name in enumerate(names)
                    for point in found[name].get(one, [])
                ]
                axes.plot(*zip(*marks, strict=True), MARKERS[place], color=COLOURS[place], label=one, markersize=7)
        left.set_yticks(range(len(names)), [name.replace("_", " ") for name in names])
        left.set_ylim(len(names) - 0.4, -0.6)
        left.set(xlabel="reserved memory (% of eager's)", xlim=(0, 105))
        right.set_xlabel("time (times eager's)")
        plain_log_scale(right, "x", subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0))
        shared_legend(figure)


def _kind(method: str) -> str:
    """A method without its budget."""
    return method.split(",", maxsplit=1)[0].rstrip(" .0123456789")


def frontier_rows(page: str) -> list[dict[str, Any]]:
    """The rows of memory_frontier.md."""
    rows: list[dict[str, Any]] = []
    for row in tables(page):
        if "peak GiB" not in row:
            continue
        kept: dict[str, Any] = {name: row[name] for name in ("model", "dtype", "method")}
        if row["ms (× eager)"]:
            kept |= {"peak": number(row["peak GiB"]), "seconds": number(row["ms (× eager)"])}
        rows.append(kept)
    return rows


def zoo_points(page: str, series: Mapping[str, str]) -> dict[str, dict[str, Points]]:
    """The points of memory_zoo.md. series: methods by the beginning of their names, and in words."""
    found: dict[str, dict[str, Points]] = {}
    for part in page.split("\n## ")[1:]:
        rows = [row for row in tables(part) if row.get("reserved GiB") and row.get("ms (× eager)")]
        eager = next((row for row in rows if row["method"] == "eager"), None)
        points: dict[str, Points] = {}
        for row in rows if eager else ():
            label = next((series[name] for name in reversed([*series]) if row["method"].startswith(name)), None)
            if label is not None and eager is not None:
                shares = [
                    (number(row[column]) or 0.0) / (number(eager[column]) or 1.0)
                    for column in ("reserved GiB", "ms (× eager)")
                ]
                points.setdefault(label, []).append((shares[0], shares[1]))
        if points:
            found[part.split(" ", 1)[0]] = points
    return found


def main() -> None:
    """Draw both from their pages."""
    from .memory_zoo_page import SERIES

    frontier(frontier_rows((RESULTS / "memory_frontier.md").read_text("utf-8")), RESULTS / "memory_frontier.png")
    zoo(zoo_points((RESULTS / "memory_zoo.md").read_text("utf-8"), SERIES), RESULTS / "memory_zoo.png")


if __name__ == "__main__":
    main()
