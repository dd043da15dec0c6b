"""The plot of `orion_distributed`: what ordering costs as links get slower, and seconds of an iteration by workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .report import RESULTS

FILE = RESULTS / "orion_distributed.png"
PAPER = {"SGD MF": 13.1 / 5.9, "SGD MF AdaRevision": 43.6 / 16.7, "LDA": 29.9 / 5.0}


def ordering(axes: Any, links: Mapping[str, Sequence[tuple[float, float, float, float]]]) -> None:
    """Ordered over unordered, against the time that blocks take on a link."""
    for name, all_of in links.items():
        each = [one for one in all_of if one[0] <= 1.0]  # beyond that links resend what is still on its way
        axes.plot([100 * one[0] for one in each], [one[1] / one[3] for one in each], "o-", label=f"simulated, {name}")
    for style, (name, ratio) in zip((":", "--", "-."), PAPER.items(), strict=True):
        axes.axhline(ratio, color="0.5", linestyle=style, linewidth=1.0, label=f"dissertation, {name}")
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_title("What keeping the order of a loop costs on 12 machines", fontsize=10)
    axes.set_xlabel("time of sending a node's blocks / of computing (%)")
    axes.set_ylabel("seconds ordered / unordered")


def scaling(axes: Any, scaled: Mapping[str, Sequence[tuple[int, float]]]) -> None:
    """Seconds of an iteration, against workers."""
    for name, each in scaled.items():
        workers = [one[0] for one in each]
        axes.plot(workers, [one[1] for one in each], "o-", label=f"{name}, simulated")
        axes.plot(workers, [each[0][1] / n for n in workers], color="0.7", linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_title("Seconds of an iteration, unordered (thin: linear)", fontsize=10)
    axes.set_xlabel("workers, up to 32 on each of up to 12 machines")
    axes.set_ylabel("virtual seconds")


def draw(
    links: Mapping[str, Sequence[tuple[float, float, float, float]]], scaled: Mapping[str, Sequence[tuple[int, float]]]
) -> None:
    """Both panels, legends below."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(10, 4.6), layout="constrained")
    FigureCanvasAgg(drawn)
    left, right = drawn.add_subplot(1, 2, 1), drawn.add_subplot(1, 2, 2)
    ordering(left, links)
    scaling(right, scaled)
    for axes in (left, right):
        axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.17), frameon=False, ncol=2)
    drawn.savefig(FILE, dpi=90)
