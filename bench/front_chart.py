"""The chart of the front page: times as fast as the best peer, by kind of work.

`python -m bench front_chart` draws docs/images/peers.png from the rows that the other benchmarks left: those of the
scoreboard at one thread, and the pages of factorisation, topics, recommendation and support vector machines. It
measures nothing. A problem that we did not solve in time counts as slower, and is left out of the range.
"""

from __future__ import annotations

import statistics
from pathlib import Path

from stretto.figures import COLOURS, INK, new_figure

from .scoreboard_pages import number, other_rows
from .scoreboard_store import stored

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "images" / "peers.png"
NAMES = {
    "lasso": "Lasso",
    "elastic": "elastic net",
    "lasso-path": "Lasso path, 100 penalties",
    "logistic-l1": "logistic regression, L1",
    "logistic-elastic": "logistic regression, elastic net",
    "logistic-l2": "logistic regression, L2",
    "softmax-l1": "several classes, L1",
    "softmax-l2": "several classes, L2",
}
PAGES = {  # kind of work on other pages: its name here, and the peers that count
    "LinearSVC": ("support vector machine", ("liblinear",)),
    "factorisation": ("matrix factorisation by SGD", ("LIBMF", "LIBMF built with AVX")),
    "implicit ALS": ("implicit ALS", ("implicit",)),
    "topics": ("topic model", ("tomotopy",)),
    "top 10": ("ten best items of every user", ("implicit",)),
}


def ratios() -> dict[str, list[float]]:
    """Ratios of every problem with one thread, by kind of work: the best peer's time over ours."""
    found: dict[str, list[float]] = {name: [] for name in NAMES.values()}
    for row in stored().values():
        if row.threads == 1 and row.work in NAMES and row.ratio is not None:
            found[NAMES[row.work]].append(row.ratio)
    best: dict[tuple[str, str], float] = {}
    for work, cell, peer, shown, *_ in other_rows():
        kind = next((kind for kind in PAGES if str(work).startswith(kind)), None)
        ratio = number(str(shown))
        if kind is None or ratio is None or peer not in PAGES[kind][1] or "threads 2" in str(cell):
            continue
        at = PAGES[kind][0], str(cell)
        best[at] = min(best.get(at, ratio), ratio)
    for (name, _), ratio in best.items():
        found.setdefault(name, []).append(ratio)
    return {name: values for name, values in found.items() if values}


def draw(found: dict[str, list[float]], path: Path) -> None:
    """Bars of medians with the range of all problems."""
    names = sorted(found, key=lambda name: statistics.median(found[name]))
    with new_figure(path, 9, 1.0 + 0.36 * len(names), palette=True) as figure:
        axes = figure.subplots()
        for place, name in enumerate(names):
            values = found[name]
            median, solved = statistics.median(values), [value for value in values if value > 0]
            axes.barh(place, median - 1.0, left=1.0, height=0.62, color=COLOURS[0] if median >= 1 else COLOURS[1])
            axes.plot([min(solved), max(solved)], [place, place], color=INK, linewidth=1)
            won = sum(value >= 1 for value in values)
            axes.text(
                max(*solved, 1.0) * 1.08, place, f"{median:.1f}×   {won} of {len(values)}", va="center", fontsize=9
            )
        axes.axvline(1.0, color=INK, linewidth=1, linestyle=":")
        axes.set_xscale("log")
        low, high = axes.get_xlim()
        axes.set_xlim(max(0.2, low), high * 1.9)
        ticks = [0.25, 0.5, 1, 2, 4, 8, 16, 32]
        axes.set_xticks(ticks, [f"{tick:g}×" for tick in ticks], minor=False)
        axes.minorticks_off()
        axes.set_yticks(range(len(names)), names)
        axes.set_title("Times as fast as the best other library, one thread", loc="left")
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("bar: median problem; line: worst to best; right: the median, and on how many not slower")
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(axis="y", length=0)


def main() -> None:
    """Draw the chart."""
    draw(ratios(), PICTURE)
    print(PICTURE)


if __name__ == "__main__":
    main()
