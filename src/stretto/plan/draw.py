"""draw() of a plan, as SVG or PNG: the block grid, each block coloured by its worker and labelled with its step."""

from __future__ import annotations

import colorsys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

import numpy as np

from stretto.errors import PlanError
from stretto.figures import new_figure
from stretto.schedule.orders.bound import play, play_waves
from stretto.text import counted

if TYPE_CHECKING:
    from stretto.data.partition import BlockPartition
    from stretto.schedule.orders.order import Ints

    from .grid_plan import GridPlan

_SIDE = 640
_LEFT, _TOP = 60, 70
_LABELLED = 16  # grids up to this many blocks a side have the step written into each block
_TEXT = 12  # height of a line of text
_LEGEND = "colour: worker; dark to light: first to last step"


@dataclass(frozen=True)
class Box:
    """One block of the picture."""

    row: int
    col: int
    step: int
    colour: str
    title: str


def _colour(worker: int, workers: int, late: float) -> str:
    """Hue by worker, lightness by step: early visits are dark, late ones light."""
    r, g, b = colorsys.hls_to_rgb(worker / max(1, workers), 0.35 + 0.45 * late, 0.6)
    return f"#{int(255 * r):02x}{int(255 * g):02x}{int(255 * b):02x}"


def _grid(plan: GridPlan) -> tuple[int, int, Ints, Ints]:
    """(rows, columns) of the picture, and the row and column of each visit. Blocks along one axis are drawn as bars."""
    order = plan.order
    rows, cols = plan.logical.rows.blocks, plan.logical.cols.blocks
    visits = np.arange(len(order), dtype=np.int64)
    if (rows, cols) == (order.rows, order.cols):
        return rows, cols, order.row_block, order.col_block
    if rows * cols == len(order):  # cut along both axes, and ordered by waves alone
        return rows, cols, *np.divmod(visits, cols)
    return len(order), 1, visits, np.zeros_like(visits)


def _steps(plan: GridPlan, workers: int) -> list[int]:
    """The earliest step of each visit: the length of the chain of visits that it waits for."""
    order = plan.order
    rows, cols, step, first = [0] * order.rows, [0] * order.cols, [0] * len(order), 0
    for wave in plan.waves or (np.arange(len(order)),):
        last = first
        for v in wave.tolist():
            r, c = int(order.row_block[v]), int(order.col_block[v])
            step[v] = max(first, rows[r], cols[c])
            rows[r] = cols[c] = step[v] + 1
            last = max(last, step[v] + 1)
        first = last
    if any(step):
        return step
    done = [0] * workers  # no visit waits: count the earlier visits of each worker
    for visit, worker, *_ in play(order, plan.weight, workers):
        step[visit], done[worker] = done[worker], done[worker] + 1
    return step


def _boxes(plan: GridPlan, workers: int) -> list[Box]:
    """Every block with the worker that visits it in the list schedule."""
    _, _, row, col = _grid(plan)
    step = _steps(plan, workers)
    last = max(1, max(step, default=0))
    boxes = []
    for visit, worker, start, end in play_waves(plan.order, plan.weight, workers, plan.waves):
        r, c, when = int(row[visit]), int(col[visit]), step[visit]
        title = f"visit {visit}: {_place(plan, r, c)}{end - start} {_counted(plan)}, step {when}, worker {worker}"
        boxes.append(Box(r, c, when, _colour(worker, workers, when / last), title))
    return boxes


def _place(plan: GridPlan, row: int, col: int) -> str:
    """The range of each axis that a block covers, in words."""
    parts = [(name, cut, block) for name, cut, block in zip(plan.axes, _cuts(plan), (row, col), strict=True) if name]
    ranges = [f"{_plural(name)} {cut.bounds[block]}–{cut.bounds[block + 1]}, " for name, cut, block in parts]
    return "".join(ranges)


def _plural(axis: str) -> str:
    return f"{axis}s" if axis in ("row", "column") else axis


def _counted(plan: GridPlan) -> str:
    return "entries" if plan.axes == ("row", "column") else "iterations"


def _cuts(plan: GridPlan) -> tuple[BlockPartition, BlockPartition]:
    return plan.logical.rows, plan.logical.cols


def _labels(plan: GridPlan) -> tuple[str, str]:
    """What the two axes of the picture are."""
    form = "{} blocks" if plan.axes == ("row", "column") else "blocks of {}"
    rows, cols = (form.format(name) if name else "" for name in plan.axes)
    return rows, cols


def svg(plan: GridPlan, workers: int) -> str:
    """The picture as SVG text."""
    width, height = _SIDE + _LEFT + 20, _SIDE + _TOP + 20
    rows, cols, *_ = _grid(plan)
    down, across = _labels(plan)
    w, h = _SIDE / cols, _SIDE / rows
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="13">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{_LEFT}" y="24" font-size="16">{escape(_heading(plan, workers))}</text>',
        f'<text x="{_LEFT}" y="46">{_LEGEND}; hover a block for details</text>',
        f'<text transform="translate({_LEFT - 8},{_TOP + 90}) rotate(-90)">{escape(down)} ←</text>',
    ]
    if across:
        parts.append(f'<text x="{_LEFT}" y="{_TOP - 6}">{escape(across)} →</text>')
    for box in _boxes(plan, workers):
        x, y = _LEFT + box.col * w, _TOP + box.row * h
        parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" fill="{box.colour}" '
            f'stroke="white" stroke-width="0.5"><title>{escape(box.title)}</title></rect>'
        )
        if cols <= _LABELLED and h >= _TEXT:
            at = f'x="{x + w / 2:.1f}" y="{y + h / 2 + 4:.1f}"'
            parts.append(f'<text {at} text-anchor="middle" fill="white">{box.step}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _heading(plan: GridPlan, workers: int) -> str:
    program = "" if plan.axes == ("row", "column") else f"{plan.logical.program.removeprefix('loop/')}, "
    waves = f" in {len(plan.waves)} waves" if len(plan.waves) > 1 else ""
    return f"plan {plan.fingerprint}: {program}{plan.order.name}{waves}, {counted(workers, 'worker')}"


def _png(plan: GridPlan, workers: int, path: Path) -> None:
    from matplotlib.patches import Rectangle
    from matplotlib.ticker import MaxNLocator

    with new_figure(path, 7, 7.4) as figure:
        axes = figure.add_subplot()
        rows, cols, *_ = _grid(plan)
        down, across = _labels(plan)
        for box in _boxes(plan, workers):
            axes.add_patch(Rectangle((box.col, box.row), 1, 1, facecolor=box.colour, edgecolor="white", lw=0.5))
            if max(rows, cols) <= _LABELLED or (cols == 1 and rows <= 4 * _LABELLED):
                axes.text(box.col + 0.5, box.row + 0.5, str(box.step), color="white", ha="center", va="center")
        axes.grid(visible=False)
        axes.set(xlim=(0, cols), ylim=(rows, 0), aspect=cols / rows)
        axes.set(xlabel=across, ylabel=down)
        if cols == 1:
            axes.set_xticks([])
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_title(f"{_heading(plan, workers)}\n{_LEGEND}")


def draw(plan: GridPlan, path: str | None = None, workers: int | None = None) -> str:
    """SVG text of the grid; also written to `path` when given, as its suffix says (.svg or .png)."""
    count = workers or plan.physical.workers
    text = svg(plan, count)
    if path is not None:
        target = Path(path)
        if target.suffix == ".svg":
            target.write_text(text, encoding="utf-8")
        elif target.suffix == ".png":
            _png(plan, count, target)
        else:
            raise PlanError(f"cannot draw a plan as {target.suffix or 'a file without suffix'}; use .svg or .png")
    return text
