"""Matrix factorisation by managed communication: Figures 3, 4a, 6a and 7a of Bösen, on a simulated cluster.

MovieLens-1M, rank 16, both factors in served tables; 8 nodes × 2 workers, a clock is a pass. Values, messages and bytes
are real, time is virtual. Runs end at the target loss. Each run is kept in reproductions/results/bosen_mf and reused
while the folder exists; delete it to measure anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bench.table_mf import NODES, Kept, Mode, Ratings
from bench.table_runs import said, times

from stretto.figures import INK

from . import report
from .bosen_words import in_words
from .smpframe_runs import figure

KEPT = report.RESULTS / "bosen_mf"
TARGET = 6e5
RATE, RATES = 0.2, (0.08, 0.2, 0.4)  # 0.2 is the best of these for BS
STEP, DECAY = 0.007, 0.98  # of the runs that add: the best for BS
SHRINK = (0.98, 0.9)


def decaying(name: str, step: float, decay: float, clocks: int = 40) -> Mode:
    """A run that adds steps."""
    return Mode(f"{name}-{step:g}-{decay:g}", server="add", rate=step, decay=decay, clocks=clocks)


SN = [Mode(f"SN-{rate:g}", rate=rate) for rate in RATES]
SN_DECAY = [decaying("SN-add", step, decay) for decay in SHRINK for step in (0.01, 0.02, 0.04, 0.08)]
MAIN = [
    Mode("BS"),
    Mode("MC-200-R", budget="200Mbit"),
    Mode("MC-800-R", budget="800Mbit"),
    Mode("MC-200-RM", budget="200Mbit", rank="relative"),
    Mode("MC-800-RM", budget="800Mbit", rank="relative"),
    Mode("MC-200-E", budget="200Mbit", rank="effective"),
    Mode("Lazy", lazy=True),
]
SEEDS = [
    replace(mode, name=f"{mode.name}, seed {seed}", seed=seed)
    for seed in (1,)
    for mode in MAIN
    if mode.name in ("BS", "MC-200-R", "MC-200-RM", "MC-200-E")
]
ADD = [
    Mode("add-BS", server="add", rate=STEP, decay=DECAY),
    Mode("add-MC-200-R", server="add", rate=STEP, decay=DECAY, budget="200Mbit"),
    Mode("add-MC-200-RM", server="add", rate=STEP, decay=DECAY, budget="200Mbit", rank="relative"),
]
SWEEP = [Mode(f"BS-{rate:g}", rate=rate) for rate in RATES if rate != RATE]
SWEEP_DECAY = [
    decaying("BS-add", step, decay)
    for decay in SHRINK
    for step in (0.0025, 0.0035, 0.005, 0.007, 0.01, 0.02)
    if (step, decay) != (STEP, DECAY)
]


class Runs:
    """Runs by name, made when they are asked for and not yet kept."""

    def __init__(self) -> None:
        self._ratings: dict[int, Ratings] = {}

    def of(self, mode: Mode) -> Kept:
        """The run of a mode."""
        found = Kept.load(KEPT, mode.name)
        if found is None:
            if mode.seed not in self._ratings:
                self._ratings[mode.seed] = Ratings.movielens(mode.seed)
            ratings = self._ratings[mode.seed]
            make = ratings.single if mode.name.startswith("SN") else ratings.run
            found = make(mode, TARGET)
            found.save(KEPT)
            print(f"{mode.name}: {passes(found)} passes, {found.spent:.0f} s of computing", flush=True)
        assert isinstance(found, Kept)
        return found


def passes(run: Kept) -> str:
    """Passes to the target."""
    to = run.epochs_to(-TARGET)
    last = run.looks[-1]
    if math.isfinite(to):
        return f"{to:.1f}"
    return "diverges" if not math.isfinite(last.objective) else f"not in {last.epoch:.0f} ({-last.objective:.3g})"


def comparison(runs: Sequence[Kept], base: Kept) -> str:
    """Passes, time and bytes to the target."""
    rows = []
    for run in runs:
        rows.append([
            run.name, passes(run), times(base.epochs_to(-TARGET), run.epochs_to(-TARGET)),
            said(1e3 * run.steady), f"{run.steady / base.steady - 1:+.0%}",
            said(run.seconds_to(-TARGET), 2), times(base.seconds_to(-TARGET), run.seconds_to(-TARGET)),
            f"{run.bytes_per_epoch / 1e6:.2f}", f"{run.bytes_per_epoch * 8 / 1e6 / run.per_epoch:.0f}",
            said(run.bytes_to(-TARGET) / 1e6, 0),
            *([f"{share:.1%}" for share in run.lags(3)] if run.stale else ["–"] * 4),
        ])  # fmt: skip
    head = [
        "mode", "passes to target", "fewer than BS", "ms a pass", "over BS", "seconds to target", "faster than BS",
        "MB a node and pass", "Mbit/s a node", "MB to target",
        *(f"rows read {lag} behind" for lag in ("0", "1", "2", "≥ 3")),
    ]  # fmt: skip
    return report.table(head, rows)


def traffic(runs: Sequence[Kept]) -> str:
    """MB by reason, and how even the links are."""
    names = sorted({name for run in runs for name in run.reasons})
    rows = []
    for run in runs:
        found = [run.reasons.get(name, (0, 0, 0)) for name in names]
        rows.append([
            run.name, *(f"{n / 1e6:.1f} ({m:,})" if m else "–" for m, _, n in found),
            f"{run.links[0] / 1e6:.2f} to {run.links[1] / 1e6:.2f}",
        ])  # fmt: skip
    return report.table(["mode", *names, "MB of a link"], rows)


def steps_table(runs: Sequence[Kept], modes: Sequence[Mode]) -> str:
    """Passes to the target by step size."""
    rows = [
        [mode.server, run.nodes, f"{mode.rate:g}", f"{mode.decay:g}", passes(run), f"{-run.looks[-1].objective:.4g}"]
        for run, mode in zip(runs, modes, strict=True)
    ]
    return report.table(["server function", "nodes", "first step", "decay", "passes to target", "last loss"], rows)


def draw(
    file: str,
    groups: Sequence[tuple[str, Sequence[Kept]]],
    *,
    by_time: bool = False,
    name: Callable[[Kept], str] = lambda run: in_words(run.name),
) -> None:
    """Loss by pass, and by virtual time."""

    def panel(runs: Sequence[Kept], seconds: bool) -> Any:
        def inside(axes: Any) -> None:
            for run in runs:
                kept = [look for look in run.looks if math.isfinite(look.objective) and look.objective > -1.5e6]
                x = [look.seconds if seconds else look.epoch for look in kept]
                axes.plot(x, [-look.objective for look in kept], label=name(run))
            axes.axhline(TARGET, color=INK, linewidth=0.8)
            axes.annotate("target", (1, TARGET), xycoords=("axes fraction", "data"), xytext=(-2, -3),
                          textcoords="offset points", ha="right", va="top", fontsize=9)  # fmt: skip

        return inside

    panels = [
        (title, "passes over the data", "training loss (squared errors)", panel(runs, False)) for title, runs in groups
    ]
    if by_time:
        panels += [
            (title, "virtual seconds", "training loss (squared errors)", panel(runs, True))
            for title, runs in groups[:1]
        ]
    figure(f"bosen-mf-{file}.png", panels, columns=2)


def all_runs() -> dict[str, Kept]:
    """Every run, kept or made now."""
    runs = Runs()
    return {mode.name: runs.of(mode) for mode in (*SN, *SN_DECAY, *MAIN, *SEEDS, *ADD, *SWEEP, *SWEEP_DECAY)}


def pictures(made: Mapping[str, Kept]) -> None:
    """Draw the three pictures from the runs that are kept."""

    def of(modes: Sequence[Mode]) -> list[Kept]:
        return [made[mode.name] for mode in modes]

    # Lazy takes four times as long, and the stronger decay leads nowhere: both would hide the rest. MC-800-R is in the
    # table.
    drawn = [mode for mode in MAIN if mode.name not in ("Lazy", "MC-800-R")]
    draw("managed", [("Matrix factorisation, AdaRevision", [*of(drawn), made[f"SN-{RATE:g}"]])], by_time=True)
    draw("add", [("Matrix factorisation, steps added", of(ADD))], by_time=True)
    gentle = [[mode for mode in modes if mode.decay != SHRINK[1]] for modes in (SN_DECAY, SWEEP_DECAY)]
    rates = {mode.name: mode.rate for mode in (*SN, *SN_DECAY, *MAIN, *ADD, *SWEEP, *SWEEP_DECAY)}
    each: list[tuple[str, list[Mode]]] = [
        ("One node, AdaRevision", SN),
        ("One node, steps added", gentle[0]),
        ("Eight nodes, AdaRevision", [MAIN[0], *SWEEP]),
        ("Eight nodes, steps added", [ADD[0], *gentle[1]]),
    ]
    draw("steps", [(title, of(sorted(modes, key=lambda mode: mode.rate))) for title, modes in each],
         name=lambda run: f"first step {rates[run.name]:g}")  # fmt: skip


def main() -> None:
    """Make what is missing, then tables and plots."""
    made = all_runs()

    def of(modes: Sequence[Mode]) -> list[Kept]:
        return [made[mode.name] for mode in modes]

    single = made[f"SN-{RATE:g}"]
    linear = single.scaled("LS", NODES)
    assert isinstance(linear, Kept)
    sweeps = [*SN, *SN_DECAY, MAIN[0], *SWEEP, ADD[0], *SWEEP_DECAY]
    parts = [
        f"Target: training loss {TARGET:.3g} (sum of squared errors; {-single.looks[0].objective:.3g} at the start).",
        f"AdaRevision, first step {RATE:g}:",
        comparison([*of(MAIN), single, linear], made["BS"]),
        "The same with other seeds:",
        report.table(["mode", "passes to target"], [[run.name, passes(run)] for run in of(SEEDS)]),
        f"Adding, first step {STEP:g}, times {DECAY:g} with each pass:",
        comparison(of(ADD), made["add-BS"]),
        "MB by side and reason, and in brackets messages; all nodes, until the target:",
        traffic([*of(MAIN), *of(ADD)]),
        "Step sizes; a step that is added is multiplied by `decay` after each pass:",
        steps_table(of(sweeps), sweeps),
    ]
    report.save("bosen_mf", "Bösen: matrix factorisation", report.text(__doc__), "\n\n".join(parts), ["greenlet"])
    pictures(made)


if __name__ == "__main__":
    main()
