"""The convergence of a run as an SVG picture, written directly: at the end of a short run a plotting library would take
longer than the run.

    path.write_bytes(convergence_svg(table.columns(), "a run"))

Objective and metrics against epochs (left) and seconds (right). Errors share a row and a scale; every other metric has
a row of its own. An objective that is minus a log-likelihood among the metrics is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stretto.figures import COLOURS, INK
from stretto.text import amount

from .plots import ORDER

Floats = NDArray[np.float64]
Box = tuple[float, float, float, float]  # left, right, top, bottom
_ERRORS = {"RMSE": "_rmse", "mean absolute error": "_mae", "log loss": "_logloss"}
_ALONG = (("epoch", "epochs"), ("seconds", "seconds in epochs"))
_WIDTH, _ROW, _TOP, _BOTTOM = 1000, 270, 44, 48
_LEFT, _RIGHT, _BETWEEN = 86, 16, 28
_POINTS = 1000  # of a curve
_LOGARITHMIC = 20.0  # an objective that falls by more has a logarithmic scale


def convergence_svg(table: Mapping[str, ArrayLike], title: str = "") -> bytes:
    """The picture.

    Parameters
    ----------
    table : mapping of arrays
        Columns of equal length: `epoch`, `seconds`, `objective` and any metrics, as from `EpochTable.columns()`.
    title : str
        Title of the picture.
    """
    columns = {name: np.asarray(values, dtype=np.float64) for name, values in table.items()}
    rows: dict[str, list[str]] = {} if "log_likelihood" in columns else {"objective": ["objective"]}
    for name in columns:
        if name not in ORDER and name != "objective":
            rows.setdefault(_kind(name), []).append(name)
    height = _TOP + _ROW * len(rows) + _BOTTOM
    wide = (_WIDTH - _LEFT - _RIGHT - _BETWEEN) / 2
    parts = [_text(_WIDTH / 2, 24, title, "middle", 16, INK)]
    for place, (kind, names) in enumerate(rows.items()):
        top = _TOP + _ROW * place
        for column, (along, label) in enumerate(_ALONG):
            left = _LEFT + column * (wide + _BETWEEN)
            box = (left, left + wide, top + 8, top + _ROW - 18)
            curves = [_finite(columns[along], columns[name]) for name in names]
            parts += _panel(box, curves, log=kind == "objective", labels=column == 0)
            if place == len(rows) - 1:
                parts.append(_text(left + wide / 2, height - 10, label, "middle"))
        middle = top + _ROW / 2
        parts.append(_text(18, middle, kind, "middle", turn=f' transform="rotate(-90 18 {middle:.0f})"'))
        if kind in _ERRORS or len(names) > 1:
            parts += _legend(names, top + 24)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif">'
    paper = f'<title>Convergence of {_safe(title or "a run")}</title><rect width="100%" height="100%" fill="#ffffff"/>'
    return "\n".join([head + paper, *parts, "</svg>\n"]).encode("utf-8", "replace")


def _kind(name: str) -> str:
    """The label of a row: errors by their kind, other metrics by their name."""
    plain = "NDCG@10" if name == "test_ndcg@10" else name.replace("_", " ")
    return next((kind for kind, ending in _ERRORS.items() if name.endswith(ending)), plain)


def _finite(along: Floats, values: Floats) -> tuple[Floats, Floats]:
    """The points with finite numbers, at most about `_POINTS`, with the last one."""
    good = np.flatnonzero(np.isfinite(values) & np.isfinite(along))
    kept = np.unique(np.append(good[:: max(1, len(good) // _POINTS)], good[-1:]))
    return along[kept], values[kept]


def _panel(box: Box, curves: Sequence[tuple[Floats, Floats]], *, log: bool, labels: bool) -> list[str]:
    """Axes and curves of one panel. labels: whether the vertical axis has numbers."""
    left, right, top, bottom = box
    parts = [f'<path d="M{left:.1f} {top:.1f}V{bottom:.1f}H{right:.1f}" fill="none" stroke="#9aa0a6"/>']
    xs, ys = (np.concatenate([curve[axis] for curve in curves]) for axis in (0, 1))
    if not len(xs):
        return [*parts, _text((left + right) / 2, (top + bottom) / 2, "no finite values", "middle")]
    log = bool(log and ys.min() > 0 and ys.max() > _LOGARITHMIC * ys.min())
    level: Callable[[Floats], Floats] = np.log10 if log else np.asarray
    x0, x1 = _range(xs)
    y0, y1 = _range(level(ys), 0.05)
    to_x, to_y = _scale(x0, x1, left, right), _scale(y0, y1, bottom, top)
    for tick in _decades(y0, y1) if log else _ticks(y0, y1, 5):
        y = float(to_y(math.log10(tick) if log else tick))
        parts.append(f'<path d="M{left:.1f} {y:.1f}H{right:.1f}" stroke="#e3e5e8"/>')
        if labels:
            parts.append(_text(left - 8, y + 4, _number(tick), "end"))
    parts += [_text(float(to_x(tick)), bottom + 17, _number(tick), "middle") for tick in _ticks(x0, x1, 6)]
    for place, (along, values) in enumerate(curves):
        colour = COLOURS[place % len(COLOURS)]
        points = list(zip(to_x(along).tolist(), to_y(level(values)).tolist(), strict=True))
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.8"/>')
        if len(points) <= 50:
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.4" fill="{colour}"/>' for x, y in points]
    return parts


def _legend(names: Sequence[str], top: float) -> list[str]:
    parts, right = [], _WIDTH - _RIGHT - 8
    for place, name in enumerate(names):
        y = top + 18 * place
        colour = COLOURS[place % len(COLOURS)]
        parts.append(f'<path d="M{right - 24:.1f} {y - 4:.1f}h24" stroke="{colour}" stroke-width="3"/>')
        parts.append(_text(right - 32, y, name.replace("_", " "), "end"))
    return parts


def _range(values: Floats, margin: float = 0.0) -> tuple[float, float]:
    """Lowest and highest value with a margin; never empty."""
    low, high = float(values.min()), float(values.max())
    if low == high:
        low, high = low - (abs(low) or 1.0) * 0.05, high + (abs(high) or 1.0) * 0.05
    return low - margin * (high - low), high + margin * (high - low)


def _scale(low: float, high: float, first: float, last: float) -> Callable[[Any], Any]:
    """Places in the picture of values in a range."""
    return lambda values: first + (values - low) / (high - low) * (last - first)


def _ticks(low: float, high: float, count: int) -> list[float]:
    """Round places in a range, about `count` of them.

    >>> _ticks(0.0, 10.0, 5)
    [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    """
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw)) if raw > 0 and math.isfinite(raw) else 0.0
    if not power:
        return []
    step = next(one * power for one in (1, 2, 5, 10) if one * power >= raw * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{place * step:.12g}") for place in range(first, last + 1)]


def _decades(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten between 10^low and 10^high; of many decades the powers alone."""
    ones = (1, 2, 5) if high - low < 4 else (1,)
    every = [one * 10.0**power for power in range(math.floor(low), math.ceil(high) + 1) for one in ones]
    return [tick for tick in every if low <= math.log10(tick) <= high]


def _number(value: float) -> str:
    return f"{'-' * (value < 0)}{amount(abs(value))}" if abs(value) >= 1e4 else f"{value:g}"


def _text(x: float, y: float, text: str, anchor: str, size: int = 12, colour: str = "#4a525a", turn: str = "") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}"'
    return f"<text {place}{turn}>{_safe(text)}</text>"


def _safe(text: str) -> str:
    """Text for XML, without characters that XML forbids."""
    return escape("".join(letter if letter >= " " else "�" for letter in text))
