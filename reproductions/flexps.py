"""FlexPS (Huang et al., PVLDB 11(5), 2018): its figures and tables on a simulated cluster.

`STRETTO_FIGURE=fig5 python -m reproductions flexps` repeats one figure and keeps the results of the others. Times are
virtual seconds of st.Simulated: 20 nodes with 12 workers each, links of 1 Gbit, 100 µs apart. They do not depend on the
machine that simulates. What is read from it is in docs/reproductions/flexps.md.
"""

from __future__ import annotations

import importlib
import os
import time

from . import report
from .smpframe_runs import PLOTS

# figure: module, its title, what the paper says
FIGURES = {
    "fig1": (
        "widths",
        "Figure 1: time of an iteration against width",
        "computing falls with the width, communication rises; best at 15 workers for a batch of 100, at 45 for 10,000",
    ),
    "fig5": (
        "widths",
        "Figure 5 and Table 2: automatic width",
        "12 % (kdd) and 11 % (webspam) over the best width, over 45 % under a random one; worker time about the best's",
    ),
    "fig6": (
        "flexible",
        "Figure 6 and Table 3: SVRG",
        "44 % (kdd) and 41 % (webspam) less time than the best fixed width, over 4 times fewer worker-seconds",
    ),
    "fig7": (
        "flexible",
        "Figure 7 and Table 4: SGD with growing batches",
        "34 % (kdd) and 57 % (webspam) less time than the best fixed width, 2 to 10 times fewer worker-seconds",
    ),
    "fig8": ("models", "Figure 8: topic model", "the log-likelihood of Petuum in a third of the time"),
    "fig9": (
        "models",
        "Figure 9: matrix factorisation",
        "lower error at all times than Petuum, by its own partitioning",
    ),
    "fig10": (
        "stages",
        "Figure 10: local consistency and preparation",
        "faster than a served model, the more iterations the more; on demand is better for few iterations and a large "
        "model",
    ),
    "fig11": (
        "stages",
        "Figure 11: one stage against ten",
        "about the same time under BSP, SSP and ASP; 10 ms a transition at 100 workers, 20 ms at 200",
    ),
}
KEPT = report.RESULTS / "flexps"
PAGE = PLOTS / "flexps.md"
BEGIN, END = "<!-- measured: written by python -m reproductions flexps -->", "<!-- end -->"


def command(name: str) -> str:
    """What makes one figure."""
    return f"STRETTO_FIGURE={name} python -m reproductions flexps"


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
        measured, body = getattr(importlib.import_module(f"reproductions.flexps_{module}"), name)()
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
            verdict, found = measured.split(": ", 1)
            rows.append([title, paper, found, verdict, f"`{command(name)}`"])
            sections.append(f"## {title}\n\n{body.rstrip()}")
    table = report.table(["figure", "the paper", "ours", "verdict", "command"], rows)
    body = "\n\n".join([table, *sections])
    report.save("flexps", "FlexPS, reproduced", report.text(__doc__), body, ("scipy", "matplotlib"))
    if PAGE.exists():
        page = PAGE.read_text(encoding="utf-8")
        before, after = page.split(BEGIN)[0], page.split(END, 1)[1]
        PAGE.write_text(f"{before}{BEGIN}\n\n{table}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
