"""What the runs of `bosen_lda` say: tables for reproductions/results, figures for docs/reproductions.

Runs are compared by what they need to a target, the likelihood that a single node has after some passes.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from bench.table_runs import Run, said, times

from . import report
from .bosen_words import in_words
from .smpframe_runs import figure

STYLES = {
    "LS": "k:", "BS": "C3-", "BS-2": "C4:", "BS-4": "C4-.", "BS-8": "C4--", "MC-320-R": "C1:", "MC-320-RM": "C1-",
    "MC-640-R": "C0:", "MC-640-RM": "C0-", "Lazy": "C4--", "ASP-RR": "C5-", "rotation-16": "C2-",
}  # fmt: skip
LAGS = 3


def tell(
    kept: Mapping[str, Run], target: float, mark: int, link: float, spans: Mapping[str, float], about: str
) -> None:
    """Tables and figures. mark: passes that bytes are compared over; spans: seconds of a rotation's pass that are
    compute on its slowest chain, by the run's name.
    """
    bs = kept["BS"]
    runs = beside_linear(kept)
    parts = [
        f"Target: {target:.4f} per token, which a single node has after {mark} passes.",
        to_target(runs, bs, target, mark),
        f"The first {mark} passes.",
        first_passes(runs, bs, mark, link),
        "How old rows were when they were read: shares of the rows by clocks they lagged behind the reader.",
        staleness(runs),
    ]
    counted = {name: run for name, run in runs.items() if run.sends}
    if counted:
        parts += ["How often rows travelled, either way, over the whole run.", frequencies(counted)]
    if spans:
        parts += ["Rotation: where the seconds of a pass go.", breakdown(runs, spans, mark)]
    report.save("bosen_lda", "Bösen's topic models, simulated", about, "\n\n".join(parts), ["greenlet"])
    draw(runs, spans)


def beside_linear(kept: Mapping[str, Run]) -> dict[str, Run]:
    """The runs, and what one node would do if it were as fast as all."""
    linear = {"SN": kept["SN"], "LS": kept["SN"].scaled("LS", kept["BS"].nodes)}
    return linear | {name: run for name, run in kept.items() if name != "SN"}


def to_target(runs: Mapping[str, Run], bs: Run, target: float, mark: int) -> str:
    """What each run needs to the target. Warm: had the first pass been as quick as the others."""
    warm = {name: run.epochs_to(target) * run.pace(mark) for name, run in runs.items()}
    rows = [
        [
            name, run.nodes, said(run.epochs_to(target)), times(run.epochs_to(target), bs.epochs_to(target)),
            said(run.seconds_to(target)), times(bs.seconds_to(target), run.seconds_to(target)),
            said(warm[name]), times(warm["BS"], warm[name]), said(run.bytes_to(target) / 1e6, 0),
            f"{run.looks[-1].objective:.3f} at {run.looks[-1].epoch:g}",
        ]
        for name, run in runs.items()
    ]  # fmt: skip
    head = [
        "run", "nodes", "passes", "of BS's", "virtual s", "faster than BS", "warm s", "faster than BS",
        "MB, all nodes", "stopped",
    ]  # fmt: skip
    return report.table(head, rows)


def first_passes(runs: Mapping[str, Run], bs: Run, mark: int, link: float) -> str:
    """Seconds, bytes and bandwidth up to the mark."""
    rows = []
    base = bs.at(mark)
    for name, run in runs.items():
        look = run.at(mark)
        if name == "LS" or look.epoch < mark:
            continue
        per_node = look.bytes / run.nodes
        messages = sum(count for count, _, _ in run.reasons.values()) / run.looks[-1].epoch / run.nodes
        early = run.reasons.get("rank", (0, 0, 0))[2] / max(1, sum(sent for _, _, sent in run.reasons.values()))
        rows.append([
            name, f"{run.at(1).seconds:.2f}", f"{run.pace(mark):.3f}", times(run.pace(mark), bs.pace(mark), 3),
            f"{per_node / mark / 1e6:.2f}",
            times(look.bytes, base.bytes), f"{100 * per_node / look.seconds / link:.0f} %", f"{100 * early:.0f} %",
            f"{messages:.0f}", f"{look.objective:.3f}",
        ])  # fmt: skip
    head = [
        "run", "s, pass 1", "s, later passes", "of BS's", "MB per node and pass", "of BS's", "of the link",
        "sent early", "messages of a node and pass", "likelihood",
    ]  # fmt: skip
    return report.table(head, rows)


def staleness(runs: Mapping[str, Run]) -> str:
    """Lags in clocks, and on average in passes."""
    rows = [
        [name, run.clocks, *(f"{100 * share:.1f} %" for share in run.lags(LAGS)), f"{run.lag / run.clocks:.3f}"]
        for name, run in runs.items()
        if name not in ("SN", "LS") and not name.startswith("rotation")
    ]
    head = ["run", "clocks a pass", *(str(lag) for lag in range(LAGS)), f"{LAGS} or more", "mean, passes"]
    return report.table(head, rows)


def frequencies(runs: Mapping[str, Run]) -> str:
    """Quantiles of how often a row of the word table travelled in a pass."""
    rows = []
    for name, run in runs.items():
        each = np.array(run.sends) / run.looks[-1].epoch
        marks = np.quantile(each, (0.1, 0.5, 0.9, 0.99))
        top = run.shares(0.1)[0]
        rows.append([
            name, f"{each.mean():.1f}", *(f"{mark:.1f}" for mark in marks), f"{marks[2] / marks[1]:.1f}×",
            f"{100 * top:.0f} %",
        ])  # fmt: skip
    head = ["run", "mean", "10 %", "median", "90 %", "99 %", "90 % over median", "sends of the top tenth"]
    return report.table(head, rows)


def waiting(run: Run, span: float) -> list[float]:
    """Of each pass of a rotation, the share of seconds that is not compute."""
    return [1.0 - span / (after.seconds - before.seconds) for before, after in pairwise(run.looks)]


def breakdown(runs: Mapping[str, Run], spans: Mapping[str, float], mark: int) -> str:
    """Compute and the rest, for the first passes and later ones."""
    rows = []
    for name, span in spans.items():
        run = runs[name]
        rest = waiting(run, span)
        sent = [(after.bytes - before.bytes) / 1e6 for before, after in pairwise(run.looks)]
        rows.append([
            name, f"{span:.2f}", f"{run.at(mark).seconds / run.at(mark).epoch:.2f}",
            *(f"{100 * rest[min(at, len(rest)) - 1]:.0f} %" for at in (1, mark // 2, mark)),
            *(f"{sent[min(at, len(sent)) - 1]:.1f}" for at in (1, mark)),
        ])  # fmt: skip
    shares = [f"not compute, pass {at}" for at in (1, mark // 2, mark)]
    head = ["run", "compute s per pass", "s per pass", *shares, "MB, pass 1", f"MB, pass {mark}"]
    return report.table(head, rows)


def draw(runs: Mapping[str, Run], spans: Mapping[str, float]) -> None:
    """Three pictures."""
    counted = {name: run for name, run in runs.items() if run.sends}

    def lines(names: tuple[str, ...], by: str, scale: float = 1.0) -> Any:
        def on(axes: Any) -> None:
            for name in names:
                if name in runs:
                    kept = [look for look in runs[name].looks if look.epoch >= 1]
                    x = [getattr(look, by) * scale for look in kept]
                    axes.plot(x, [look.objective for look in kept], STYLES[name], label=in_words(name))
            axes.set_ylim(bottom=-12.5)

        return on

    managed = ("LS", "BS", "MC-320-RM", "MC-640-R", "MC-640-RM", "ASP-RR")  # the table has the others too
    tuned = ("BS", "BS-2", "BS-4", "BS-8", "MC-640-RM", "rotation-16")
    y = "log-likelihood per token"
    figure("bosen-lda-managed.png", [
        ("Topic model, 16 nodes: by passes", "passes over the data", y, lines(managed, "epoch")),
        ("Topic model, 16 nodes: by time", "virtual seconds", y, lines(managed, "seconds")),
    ])  # fmt: skip
    figure("bosen-lda-clocks.png", [
        ("Topic model, 16 nodes: by passes", "passes over the data", y, lines(tuned, "epoch")),
        ("Topic model, 16 nodes: by time", "virtual seconds", y, lines(tuned, "seconds")),
        ("Topic model, 16 nodes: by bytes", "MB sent by all nodes", y, lines(tuned, "bytes", 1e-6)),
    ])  # fmt: skip

    def sends(axes: Any) -> None:
        for name, run in counted.items():
            each = np.sort(np.array(run.sends) / run.looks[-1].epoch)
            axes.plot(each, np.linspace(0, 100, len(each)), STYLES[name], label=in_words(name))
        axes.set_xlim(left=0)

    def lags(axes: Any) -> None:
        names = [name for name in ("Lazy", "BS", "MC-320-R", "MC-640-RM", "ASP-RR") if name in runs]
        for at, name in enumerate(names):
            axes.bar(
                np.arange(LAGS + 1) + 0.16 * at,
                [100 * share for share in runs[name].lags(LAGS)],
                0.15,
                label=in_words(name),
            )
        axes.set_xticks(np.arange(LAGS + 1) + 0.3, [*map(str, range(LAGS)), f"{LAGS}+"])

    def rest(axes: Any) -> None:
        for name, style in zip(spans, ("C0o-", "C2s-", "C3^-"), strict=False):
            share = waiting(runs[name], spans[name])
            axes.plot(range(1, len(share) + 1), [100 * one for one in share], style, label=in_words(name))
        axes.set_ylim(bottom=0)

    panels = (
        [("How often a row is sent", "transfers of a row in a pass", "% of rows, cumulative", sends)] if counted else []
    )
    panels.append(("Age of the rows that are read", "clocks behind the reader", "% of rows read", lags))
    if spans:
        panels.append(("Rotation: time that is not computing", "pass", "% of a pass", rest))
    figure("bosen-lda-rows.png", panels)
