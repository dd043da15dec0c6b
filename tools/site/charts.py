"""Charts of the scoreboard and of the other comparisons with peers, drawn from bench/results.

One chart for each kind of work: a dot for each problem, the best peer's time over ours, sorted. A problem that we did
not solve in the time of the run is drawn at the left edge.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bench.front_chart import NAMES
from bench.scoreboard_pages import number, other_rows
from bench.scoreboard_store import stored

from stretto.figures import COLOURS, INK, new_figure

FASTER, SLOWER = COLOURS[:2]
Problem = tuple[str, float]


def charts() -> Iterator[tuple[str, str, str, list[Problem]]]:
    """For each chart its name, its title, the page of its table, and its problems with their ratios."""
    for work, title in NAMES.items():
        found = [
            (f"{row.name}, {row.penalty}", float(row.ratio))
            for row in stored().values()
            if row.threads == 1 and row.work == work and row.ratio is not None
        ]
        if found:
            yield work, f"{title[0].upper()}{title[1:]}", "scoreboard", found
    pages: dict[tuple[str, str], list[tuple[str, str, float]]] = {}
    for work, cell, peer, shown, page, *_ in other_rows():
        ratio = number(str(shown))
        if ratio is not None:
            name = str(page).partition("]")[0].removeprefix("[")
            pages.setdefault((str(work), name), []).append((str(cell), str(peer), ratio))
    for (work, page), rows in pages.items():
        peers = sorted({peer for _, peer, _ in rows})
        one = f", beside {peers[0]}" if len(peers) == 1 else ""
        problems = [(cell if one else f"{cell} ({peer})", ratio) for cell, peer, ratio in rows]
        name = "".join(letter if letter.isalnum() else "-" for letter in work.lower())
        yield f"{page}-{name}", f"{work[0].upper()}{work[1:]}{one}", page, problems


def draw(title: str, problems: list[Problem], path: Path) -> None:
    """A dot for each problem, sorted by ratio."""
    problems = sorted(problems, key=lambda problem: problem[1])
    least = min((ratio for _, ratio in problems if ratio > 0), default=1.0)
    edge = min(0.5, least / 1.3)
    with new_figure(path, 9, 1.0 + 0.21 * len(problems), palette=True) as figure:
        axes = figure.subplots()
        for place, (_, ratio) in enumerate(problems):
            at, colour = max(ratio, edge), FASTER if ratio >= 1 else SLOWER
            axes.plot([1.0, at], [place, place], color=colour, linewidth=1.2, alpha=0.55)
            axes.plot(at, place, marker="o" if ratio > 0 else "<", color=colour, markersize=4.5)
            axes.annotate(
                f"{ratio:.2f}×" if ratio > 0 else "not in time",
                (at, place), xytext=(6 if ratio >= 1 else -6, 0), textcoords="offset points",
                ha="left" if ratio >= 1 else "right", va="center", fontsize=7, color=INK,
            )  # fmt: skip
        axes.axvline(1.0, color=INK, linewidth=1, linestyle=":")
        axes.set_xscale("log")
        most = max(ratio for _, ratio in problems)
        axes.set_xlim(edge / 1.6, max(2.0, most) * 1.5)
        low, high = axes.get_xlim()
        ticks = [
            tick for tick in (0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024) if low <= tick <= high
        ]
        axes.set_xticks(ticks, [f"{tick:g}×" for tick in ticks])
        axes.minorticks_off()
        axes.set_yticks(range(len(problems)), [name for name, _ in problems], fontsize=8)
        axes.set_ylim(-0.8, len(problems) - 0.2)
        axes.set_xlabel("peer's time over ours; right of the dotted line Stretto is faster", fontsize=8)
        axes.set_title(title, fontsize=10, loc="left")
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(axis="y", length=0)


def page(folder: Path) -> str:
    """Draw every chart into `folder`/benchmarks/charts, and the page that shows them."""
    (folder / "benchmarks" / "charts").mkdir(parents=True, exist_ok=True)
    lines = ["# Charts", "", "Every problem that was measured beside peers: the peer's time over ours, so right of the "
             "dotted line Stretto is faster. Lost problems are shown as well. The tables have machine, date and "
             "command.", ""]  # fmt: skip
    for name, title, table, problems in charts():
        shown = f"{title}, one thread, the best of all peers" if table == "scoreboard" else title
        draw(shown, problems, folder / "benchmarks" / "charts" / f"{name}.png")
        won = sum(ratio >= 1 for _, ratio in problems)
        lines += [f"## {title}", "", f"Not slower on {won} of {len(problems)}: [the table](results/{table}.md).", ""]
        lines += [f"![{title}: a dot for each of {len(problems)} problems](charts/{name}.png)", ""]
    return "\n".join(lines)
