"""The plot of `orion_distributed`: what ordering costs as links get slower, and seconds of an iteration by workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stretto.figures import FAINT, legend_below, new_figure, plain_log_scale

from .report import RESULTS

FILE = RESULTS / "orion_distributed.png"
PAPER = {"SGD MF": 13.1 / 5.9, "SGD MF AdaRevision": 43.6 / 16.7, "LDA": 29.9 / 5.0}


def ordering(axes: Any, links: Mapping[str, Sequence[tuple[float, float, float, float]]]) -> None:
    """Ordered over unordered, against the time that blocks take on a link."""
    for name, all_of in links.items():
        each = [one for one in all_of if one[0] <= 1.0]  # beyond that links resend what is still on its way
        axes.plot([100 * one[0] for one in each], [one[1] / one[3] for one in each], "o-", label=f"simulated, {name}")
    for style, (name, ratio) in zip((":", "--", "-."), PAPER.items(), strict=True):
        axes.axhline(ratio, color=FAINT, linestyle=style, linewidth=1.4, label=f"dissertation, {name}")
    plain_log_scale(axes, "x", subs=(1.0,))
    axes.set_ylim(bottom=0)
    axes.set_title("What keeping the order of a loop costs on 12 machines")
    axes.set_xlabel("time of sending a node's blocks / of computing (%)")
    axes.set_ylabel("seconds ordered / unordered")


def scaling(axes: Any, scaled: Mapping[str, Sequence[tuple[int, float]]]) -> None:
    """Seconds of an iteration, against workers."""
    for name, each in scaled.items():
        workers = [one[0] for one in each]
        axes.plot(workers, [one[1] for one in each], "o-", label=name)
        axes.plot(workers, [each[0][1] / n for n in workers], color=FAINT, linewidth=1)
    axes.set_xscale("log", base=2)
    marks = (1, 4, 16, 64, 256)
    axes.set_xticks(marks, [str(mark) for mark in marks])
    plain_log_scale(axes, subs=(1.0, 3.0))
    axes.set_title("Unordered iterations, simulated (thin: linear)")
    axes.set_xlabel("workers, up to 32 on each of up to 12 machines")
    axes.set_ylabel("virtual seconds of an iteration")


def draw(
    links: Mapping[str, Sequence[tuple[float, float, float, float]]], scaled: Mapping[str, Sequence[tuple[int, float]]]
) -> None:
    """Both panels, legends below."""
    with new_figure(FILE, 10.5, 5.0, palette=True) as drawn:
        left, right = drawn.add_subplot(1, 2, 1), drawn.add_subplot(1, 2, 2)
        ordering(left, links)
        scaling(right, scaled)
        for axes in (left, right):
            legend_below(axes)
