"""Random, prioritised, and prioritised with conflict checks: Figures 4, 10 and 11."""

from __future__ import annotations

import math
from collections.abc import Callable

import stretto as st
from stretto.schedule.spec import Schedule
from stretto.schedule.width import safe_width, spectral_radius

from . import report, smpframe_sets
from .smpframe_runs import Trace, distances, figure, said, trace
from .smpframe_sets import Task

WIDTHS = (32, 64, 128, 256)
SHARES = (0.01, 0.001)
DRAWN = (32, 256)
ABOVE = "share of the way left"
SCHEDULES: dict[str, Callable[[int], Schedule]] = {
    "random": st.schedule.random,
    "priority only": lambda width: st.schedule.prioritised(width, conflicts=None),
    "priority and checks": st.schedule.prioritised,
}
LINES = {"random": ":", "priority only": "--", "priority and checks": "-"}


def fig4() -> tuple[str, str]:
    """Random rounds of 8 to 1024."""
    rows: list[list[object]] = []
    panels, found = [], []
    widths = (8, *WIDTHS, 512, 1024)
    for task in smpframe_sets.lasso():
        radius = spectral_radius(task.X)
        safe = safe_width(radius, task.X.shape[1])
        traces = [trace(task, f"{width} together", st.schedule.random(width), share=0.001) for width in widths]
        drawn = [one for width, one in zip(widths, traces, strict=True) if width != 64]  # six: the table has all
        draw = distances(task, drawn, [f"C{k}-" for k in range(len(drawn))], by_time=False)
        panels.append((f"Lasso, {task.name}, safe width {safe}", "samples (sweeps)", ABOVE, draw))
        for share in SHARES:
            cells = [said(one.sweeps(task.target(share)), diverged=one.diverged) for one in traces]
            rows.append([task.name, *task.X.shape, f"{radius:.0f}", safe, f"{share:.1%}", *cells])
        lost = [width for width, one in zip(widths, traces, strict=True) if one.diverged]
        first, last = (traces[widths.index(width)].sweeps(task.target(SHARES[0])) for width in (WIDTHS[0], WIDTHS[-1]))
        fails = f"diverges from {min(lost)} on" if lost else f"no divergence up to {widths[-1]}"
        ratio = f", 256 need {last / first:.2f}× the samples of 32" if math.isfinite(last) else ""
        found.append(f"{task.name} (safe width {safe}): {fails}{ratio}")
    figure("smpframe-fig4.png", panels)
    columns = ["set", "n", "p", "ρ", "safe width", "way left", *(f"{width} together" for width in widths)]
    body = "Sweeps of samples until only so much of the way to the optimum is left.\n\n" + report.table(columns, rows)
    return "; ".join(found), body


def _compared(task: Task) -> dict[tuple[str, int], Trace]:
    """All schedules at all widths."""
    return {
        (name, width): trace(task, f"{name}, {width} at once", make(width), share=SHARES[-1])
        for width in WIDTHS
        for name, make in SCHEDULES.items()
    }


def _ratio(over: float, under: float) -> str:
    if math.isfinite(over) and math.isfinite(under):
        return f"{over / under:.1f}×"
    return "only the second" if math.isfinite(under) else "only the first" if math.isfinite(over) else "neither"


def _rows(task: Task, kind: str, traces: dict[tuple[str, int], Trace]) -> list[list[object]]:
    rows: list[list[object]] = []
    for width in WIDTHS:
        three = [traces[name, width] for name in SCHEDULES]
        checked = three[2]
        for share in SHARES:
            target = task.target(share)
            sweeps = [one.sweeps(target) for one in three]
            cells = [
                f"{said(one.sweeps(target), diverged=one.diverged)}" + (
                    f" ({one.seconds(target):.2f} s)" if one.reached(target) else ""
                ) for one in three
            ]  # fmt: skip
            ratios = [_ratio(sweeps[0], sweeps[2]), _ratio(three[0].seconds(target), checked.seconds(target))]
            rows.append(
                [kind, task.name, width, f"{checked.together:.0f}", f"{share:.1%}", *cells, *ratios,
                 _ratio(sweeps[1], sweeps[2])]
            )  # fmt: skip
    return rows


def _best(traces: dict[tuple[str, int], Trace], name: str, target: float, *, time: bool) -> float:
    """The least that a schedule needs at any width."""
    return min((one.seconds(target) if time else one.sweeps(target)) for (n, _), one in traces.items() if n == name)


def fig10() -> tuple[str, str]:
    """Three schedules at four widths, against samples (Figure 10) and against time (Figure 11)."""
    rows: list[list[object]] = []
    panels, found = [], []
    sets = [("Lasso", task) for task in smpframe_sets.lasso()]
    sets += [("logistic", task) for task in smpframe_sets.logistic()]
    for kind, task in sets:
        traces = _compared(task)
        rows += _rows(task, kind, traces)
        drawn = [one for (_, width), one in traces.items() if width in DRAWN]  # six: the table has all
        styles = [colour + LINES[name] for colour in ("C0", "C1") for name in SCHEDULES]
        for by_time in (False, True):
            label = "seconds" if by_time else "samples (sweeps)"
            draw = distances(task, drawn, styles, by_time=by_time)
            panels.append((f"{kind}, {task.name}".capitalize(), label, ABOVE, draw))
        # Both targets: a schedule that is quick at first and stalls must not look better than it is.
        for share in SHARES:
            target = task.target(share)
            samples, time = (
                _ratio(*(_best(traces, name, target, time=way) for name in ("random", "priority and checks")))
                for way in (False, True)
            )
            found.append(f"{kind}, {task.name}, to {share:.1%}: samples {samples}, time {time}")
        print(*found[-len(SHARES) :], sep="\n", flush=True)
    figure("smpframe-fig10.png", panels[0::2], columns=3)
    figure("smpframe-fig11.png", panels[1::2], columns=3)
    columns = [
        "loss", "set", "width", "jobs taken", "way left", *SCHEDULES, "samples: random / checked",
        "time: random / checked", "samples: priority / checked",
    ]  # fmt: skip
    body = "Sweeps of samples (and seconds at 2 threads) until so much of the way to the optimum is left.\n\n"
    return (
        "random over checked, each at its best width: " + "; ".join(found),
        body + report.table(columns, rows),
    )
