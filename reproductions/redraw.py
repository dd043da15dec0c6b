"""Draws again the pictures of the reproductions whose numbers are stored in the tree; runs nothing.

    python -m reproductions redraw

Bösen's, of topic models and of scaling come from the JSON files beside the pages; others from the tables of the pages.
Left out, because their curves are not stored and they are drawn where they are measured: smpframe-fig4 to fig6, fig10
and fig11, alt-elastic-net, bosen-mf-mlr, flexps-fig8, fig9 and y.
"""

from __future__ import annotations

import math

from bench.scoreboard_pages import number, tables

from . import (
    bosen_lda,
    bosen_lda_tell,
    bosen_mf,
    cluster_scaling,
    cocoa,
    flexps_plot,
    flexps_stages,
    flexps_widths,
    memory_chapter_tell,
    orion_plot,
    replica_filters,
    report,
    rotation_scaling,
    rotation_scaling_plot,
    smpframe_pipeline,
)
from .lda_parallel_tell import Runs

Row = dict[str, str]


def rows_of(page: str, *columns: str) -> list[Row]:
    """The rows of the tables of a page in the results that have these columns."""
    text = (report.RESULTS / f"{page}.md").read_text(encoding="utf-8")
    return [row for row in tables(text) if set(columns) <= row.keys()]


def bosen() -> None:
    """Topic models and matrix factorisation by managed communication."""
    bosen_mf.pictures(bosen_mf.all_runs())
    runs, spans = bosen_lda.kept_runs()
    bosen_lda_tell.draw(bosen_lda_tell.beside_linear(runs), spans)


def topics() -> None:
    """Topic models by rotation, AP and IMDB."""
    for name in ("ap", "imdb"):
        runs = Runs.load(name)
        if runs is not None:
            runs.draw()


def scaling() -> None:
    """Predicted scaling, over tables and by rotation."""
    cluster_scaling.draw(cluster_scaling.all_runs(["none"]))
    found = {key: point.seconds for key, point in rotation_scaling.points(["none"]).items()}
    rotation_scaling_plot.draw(found | rotation_scaling.tables())


def flexps() -> None:
    """Figures 1 and 10."""
    series: dict[str, dict[str, dict[tuple[float, float], None]]] = {}
    for row in rows_of("flexps/fig1", "batch", "parts", "workers"):
        panel = series.setdefault(row["batch"], {})
        width = float(row["workers"])
        shown = {f"whole iteration, {row['parts']}": "an iteration, ms", "computing": "computing, ms"}
        for name, column in shown.items():
            panel.setdefault(name, {})[width, float(row[column])] = None
        waits = float(row["communication, ms"])
        if waits:
            panel.setdefault(f"communication, {row['parts']}", {})[width, waits] = None
    flexps_plot.draw("fig1", flexps_widths.panels(series))
    curves: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for row in rows_of("flexps/fig10", "data", "iterations"):
        for way, called in flexps_stages.WAYS.items():
            points = curves.setdefault(row["data"], {}).setdefault(called, [])
            points.append((float(row["iterations"]), float(row[f"{way}, ms"]) / 1e3))
    flexps_plot.draw("fig10", flexps_stages.panels(curves))


def pipeline() -> None:
    """Figure 12 of SMPFRAME."""
    curves: dict[str, tuple[list[float], list[float], list[float]]] = {}
    for row in rows_of("smpframe/fig12", "set", "depth"):
        lists = curves.setdefault(row["set"], ([], [], []))
        for values, column in zip(lists, ("M samples/s", "sweeps to 1%", "seconds to 1%"), strict=True):
            values.append(number(row[column]) or math.nan)
    smpframe_pipeline.draw(curves)


def rounds() -> None:
    """CoCoA."""
    found = {}
    for row in rows_of("cocoa", "data", "problem", "parts K"):
        for way, words in cocoa.WAYS.items():
            key = row["data"], row["problem"], way, int(row["parts K"])
            found[key] = (int(number(row[words]) or 0), not row[words].startswith(">"))
    cocoa.draw(found)


def filters() -> None:
    """Filters of replicated states."""
    points = {}
    for row in rows_of("replica_filters", "rows sent"):
        cells = [cell.rstrip(")").split(" (") for name, cell in row.items() if name != "rows sent"]
        points[row["rows sent"]] = [(float(nbytes), float(loss)) for loss, nbytes in cells]
    replica_filters.draw_filters(points)


def orion() -> None:
    """Ordered and unordered loops on 12 machines."""
    links: dict[str, list[tuple[float, float, float, float]]] = {}
    for row in rows_of("orion_distributed", "workers", "time on the link / of computing"):
        took = [float(row[name]) for name in ("ordered", "unordered, M = N", "unordered, M = 2N")]
        share = float(row["time on the link / of computing"].rstrip("%")) / 100
        links.setdefault(row["workers"], []).append((share, took[0], took[1], took[2]))
    scaled: dict[str, list[tuple[int, float]]] = {}
    for row in rows_of("orion_distributed", "application", "workers", "of linear"):
        scaled.setdefault(row["application"], []).append((int(row["workers"]), float(row["seconds"])))
    orion_plot.draw(links, scaled)


def memory() -> None:
    """The experiments of the dissertation's chapter on memory."""
    text = (report.RESULTS / "memory_chapter.md").read_text(encoding="utf-8")
    rows = []
    for name in ("table_6_4", "figure_6_6", "figure_6_7"):
        part = text.split(f"## {memory_chapter_tell.HEADS[name]}\n")[1].split("\n## ")[0]
        model = ""
        for row in tables(part):
            method = next((row[column] for column in ("method", "order", "operations") if column in row), None)
            if method is None or not row.get("ms (× eager)"):
                continue
            model = row["model"] or model
            rows.append({"experiment": name, "model": model.split()[0], "method": method,
                         "peak": number(row["peak GiB (× eager)"]),
                         "seconds": number(row["ms (× eager)"])})  # fmt: skip
    memory_chapter_tell.draw(rows, report.RESULTS / "memory_chapter.png")


def main() -> None:
    """Draw all of them."""
    for draw in (bosen, topics, scaling, flexps, pipeline, rounds, filters, orion, memory):
        draw()
        print(f"{draw.__name__}: {draw.__doc__}", flush=True)


if __name__ == "__main__":
    main()
