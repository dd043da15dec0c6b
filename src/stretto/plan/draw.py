"""A picture of a plan: the block grid, each block coloured by the worker that visits it and labelled by when."""

from __future__ import annotations

import colorsys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from stretto.errors import PlanError
from stretto.schedule.bound import play

if TYPE_CHECKING:
    from .plan import Plan

_SIDE = 640
_LEFT, _TOP = 60, 70
_LABELLED = 16  # grids up to this many blocks a side have the step written into each block
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


def _boxes(plan: Plan, workers: int) -> list[Box]:
    """Every block with the worker that visits it in the list schedule."""
    order, rows, cols = plan.order, plan.logical.rows, plan.logical.cols
    last = max(1, int(order.row_turn.max(initial=0)))
    boxes = []
    for visit, worker, start, end in play(order, plan.weight, workers):
        r, c, step = int(order.row_block[visit]), int(order.col_block[visit]), int(order.row_turn[visit])
        title = (
            f"visit {visit}: rows {rows.bounds[r]}–{rows.bounds[r + 1]}, "
            f"columns {cols.bounds[c]}–{cols.bounds[c + 1]}, {end - start} entries, step {step}, worker {worker}"
        )
        boxes.append(Box(r, c, step, _colour(worker, workers, step / last), title))
    return boxes


def svg(plan: Plan, workers: int) -> str:
    """The picture as SVG text."""
    width, height = _SIDE + _LEFT + 20, _SIDE + _TOP + 20
    w, h = _SIDE / plan.order.cols, _SIDE / plan.order.rows
    heading = escape(f"plan {plan.fingerprint}: {plan.order.name}, {workers} workers")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="13">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{_LEFT}" y="24" font-size="16">{heading}</text>',
        f'<text x="{_LEFT}" y="46">{_LEGEND}; hover a block for details</text>',
        f'<text x="{_LEFT}" y="{_TOP - 6}">column blocks →</text>',
        f'<text transform="translate({_LEFT - 8},{_TOP + 90}) rotate(-90)">row blocks ←</text>',
    ]
    for box in _boxes(plan, workers):
        x, y = _LEFT + box.col * w, _TOP + box.row * h
        parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" fill="{box.colour}" '
            f'stroke="white" stroke-width="0.5"><title>{escape(box.title)}</title></rect>'
        )
        if plan.order.cols <= _LABELLED:
            at = f'x="{x + w / 2:.1f}" y="{y + h / 2 + 4:.1f}"'
            parts.append(f'<text {at} text-anchor="middle" fill="white">{box.step}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _png(plan: Plan, workers: int, path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    figure = Figure(figsize=(7, 7.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for box in _boxes(plan, workers):
        axes.add_patch(Rectangle((box.col, box.row), 1, 1, color=box.colour, lw=0))
    axes.set(xlim=(0, plan.order.cols), ylim=(plan.order.rows, 0), aspect="equal")
    axes.set(xlabel="column block", ylabel="row block")
    axes.set_title(f"plan {plan.fingerprint}: {plan.order.name}, {workers} workers\n{_LEGEND}")
    figure.savefig(path, dpi=120)


def draw(plan: Plan, path: str | None = None, workers: int | None = None) -> str:
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
