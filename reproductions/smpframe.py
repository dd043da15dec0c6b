"""Scheduled model parallelism (Kim et al., SMPFRAME, CMU-PDL-15-103) on logical workers of one machine.

`STRETTO_FIGURE=fig10 python -m reproductions smpframe` repeats one figure and keeps the results of the others.
Samples are entries of the columns updated, and do not depend on the machine; seconds do. What is read from it is in
docs/reproductions/smpframe.md.
"""

from __future__ import annotations

import importlib
import os
import time

from . import report
from .smpframe_runs import PLOTS

# figure: module, its title, what the paper says
FIGURES = {
    "fig4": ("regression", "Figure 4: random rounds", "256 concurrent updates make worse progress per sample than 32"),
    "fig5": ("convergence", "Figure 5: uneven convergence", "over 85 % of parameters converge within 5 iterations"),
    "fig6": (
        "factorise",
        "Figures 6d, 6f: rotation and BSP",
        "BSP with the serial step size fails from 32 machines on; rotation does not",
    ),
    "fig8": ("barriers", "Figures 8, 9: barriers, heaviest first", "1.3× each"),
    "fig10": (
        "regression",
        "Figures 10, 11: three schedules",
        "10× fewer samples and 5× less time than random; checks double the progress of priority alone",
    ),
    "table4": (
        "throughput",
        "Table 4: throughput by entries of a column",
        "8 machines over 4: 1.30× at 1K entries, 1.44× at 10K, 1.70× at 20K (Lasso)",
    ),
    "fig12": (
        "pipeline",
        "Figure 12: pipeline depth",
        "depth 3: throughput 2.5×, time to target halved; samples to target grow with depth",
    ),
}
KEPT = report.RESULTS / "smpframe"
PAGE = PLOTS / "smpframe.md"
BEGIN, END = "<!-- measured: written by python -m reproductions smpframe -->", "<!-- end -->"


def command(name: str) -> str:
    """What makes one figure."""
    return f"STRETTO_FIGURE={name} python -m reproductions smpframe"


def main() -> None:
    """Make the figures that are asked for, and the table of all that were made."""
    asked = os.environ.get("STRETTO_FIGURE", "").split(",")
    names = [name for name in asked if name] or list(FIGURES)
    for name in names:
        if name not in FIGURES:
            raise SystemExit(f"STRETTO_FIGURE: no figure {name!r}; there are {', '.join(FIGURES)}")
        module, title, _ = FIGURES[name]
        print(f"-- {title}", flush=True)
        began = time.perf_counter()
        measured, body = getattr(importlib.import_module(f"reproductions.smpframe_{module}"), name)()
        KEPT.mkdir(parents=True, exist_ok=True)
        (KEPT / f"{name}.md").write_text(f"{measured}\n\n{body}\n", encoding="utf-8")
        print(f"{measured}\n\n{body}\n\n{time.perf_counter() - began:.0f} s", flush=True)
    _together()


def _together() -> None:
    """The table of all figures that were made, in reproductions/results and in the page."""
    rows, sections = [], []
    for name, (_, title, paper) in FIGURES.items():
        file = KEPT / f"{name}.md"
        if file.exists():
            measured, body = file.read_text(encoding="utf-8").split("\n\n", 1)
            rows.append([title, paper, measured, f"`{command(name)}`"])
            sections.append(f"## {title}\n\n{body.rstrip()}")
    table = report.table(["figure", "the paper says", "we measured", "command"], rows)
    body = "\n\n".join([table, *sections])
    report.save("smpframe", "SMPFRAME, reproduced", report.text(__doc__), body, ("scipy", "matplotlib"))
    if PAGE.exists():
        page = PAGE.read_text(encoding="utf-8")
        before, after = page.split(BEGIN)[0], page.split(END, 1)[1]
        PAGE.write_text(f"{before}{BEGIN}\n\n{table}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
