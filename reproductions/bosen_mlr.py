"""Multiclass logistic regression by managed communication: Figure 7b of Bösen, on a simulated cluster.

10,000 images of MNIST, 10 classes, plain SGD over one served table: a row for each pixel that is ever dark,
a column for each class (the paper's rows are classes; ten rows could not be ranked). 4 nodes × 2 workers, SSP(2), a
clock is a pass of 25 batches. Values, messages and bytes are real, time is virtual. Images are scaled to norm 1 on
average. Runs end at the target loss or after 40 passes. SN: the same eight workers on one node.
"""

from __future__ import annotations

from typing import Any

from bench.table_mlr import TARGET, Images
from bench.table_runs import said, times

import stretto as st
from stretto.figures import INK

from . import report
from .bosen_words import in_words
from .smpframe_runs import figure

STEPS = (1.0, 0.8, 0.65, 0.5)  # of BS
MANAGED = (2.0, 1.0, 0.5)


def main() -> None:
    """BS beside two budgets and two ranks."""
    images = Images.mnist()
    if images is None:
        print("MNIST was not found: set STRETTO_DATA to the folder of the real sets")
        return
    modes: list[tuple[str, Any, tuple[float, ...]]] = [("BS", st.tables.Eager(), STEPS)]
    for budget, rank, letters in ((100, "relative", "RM"), (200, "relative", "RM"), (200, "random", "R")):
        modes.append(
            (f"MC-{budget}-{letters}", st.tables.Managed(f"{budget}Mbit", rank=rank, burst=(200, 200)), MANAGED)
        )
    runs = [images.run("SN, step 1", 1.0, st.tables.Eager(), nodes=1)]
    runs += [images.run(f"{name}, step {step:g}", step, comm) for name, comm, steps in modes for step in steps]
    base = min(runs[1 : 1 + len(STEPS)], key=lambda run: run.epochs_to(-TARGET))
    rows = [
        [
            run.name, said(run.epochs_to(-TARGET)), times(base.epochs_to(-TARGET), run.epochs_to(-TARGET)),
            said(1e3 * run.per_epoch), said(1e3 * run.seconds_to(-TARGET)),
            times(base.seconds_to(-TARGET), run.seconds_to(-TARGET)),
            f"{run.bytes_per_epoch / 1e3:.0f}", f"{-run.looks[-1].objective:.4f}",
            *(f"{share:.1%}" for share in run.lags(2)),
        ]
        for run in runs
    ]  # fmt: skip
    head = [
        "mode", "passes to target", "fewer than the best BS", "ms a pass", "ms to target", "faster", "kB a node, pass",
        "last loss", *(f"rows read {lag} behind" for lag in ("0", "1", "≥ 2")),
    ]  # fmt: skip
    body = f"Target: mean training loss {TARGET:g}. The best BS: {base.name}.\n\n{report.table(head, rows)}"
    report.save("bosen_mlr", "Bösen: multiclass logistic regression", report.text(__doc__), body, ["greenlet"])

    by_way: dict[str, list[Any]] = {}
    for run in runs:
        by_way.setdefault(run.name.partition(",")[0], []).append(run)
    drawn = [min(way, key=lambda run: run.epochs_to(-TARGET)) for way in by_way.values()]  # the best step of each

    def draw(axes: Any, seconds: bool) -> None:
        for run in drawn:
            short, _, step = run.name.partition(", step ")
            name = "one node" if short == "SN" else in_words(short)
            x = [look.seconds if seconds else look.epoch for look in run.looks]
            axes.plot(x, [-look.objective for look in run.looks], label=f"{name}, step {step}")
        axes.axhline(TARGET, color=INK, linewidth=0.8)
        axes.set_ylim(0.9 * TARGET, 4 * TARGET)

    title = "Logistic regression, MNIST, 4 nodes"
    figure(
        "bosen-mf-mlr.png",
        [
            (title, "passes over the data", "mean training loss", lambda axes: draw(axes, False)),
            (title, "virtual seconds", "mean training loss", lambda axes: draw(axes, True)),
        ],
    )


if __name__ == "__main__":
    main()
