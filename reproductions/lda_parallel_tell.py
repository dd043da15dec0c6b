"""What the runs of `lda_parallel` say: a table for each corpus, figures, and the papers' claims beside them.

Runs are compared by the epochs they need to a target, the likelihood that serial has after half of its epochs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bench import lda_sets

from stretto.figures import FAINT

from . import report
from .lda_parallel_runs import Curve, Epoch
from .smpframe_runs import figure

WIDE = 32  # workers where only one number is shown
PARTS = ("rotation", "clocks", "managed")
KEPT = report.RESULTS / "lda_parallel"


@dataclass(frozen=True)
class Runs:
    """All curves of a corpus, by name and workers."""

    name: str
    curves: dict[tuple[str, int], Curve]
    spans: dict[int, int]
    shape: tuple[int, int, int]

    @classmethod
    def load(cls, name: str) -> Runs | None:
        """What was kept of a corpus; None if a part is missing."""
        files = [KEPT / f"{name}-{part}.json" for part in PARTS]
        if not all(file.exists() for file in files):
            return None
        kept = [json.loads(file.read_text(encoding="utf-8")) for file in files]
        curves = [
            Curve(one["name"], one["workers"], tuple(Epoch(**epoch) for epoch in one["epochs"]))
            for part in kept
            for one in part["curves"]
        ]
        spans = {int(workers): tokens for workers, tokens in kept[0]["span"].items()}
        return cls(name, {(one.name, one.workers): one for one in curves}, spans, tuple(kept[0]["shape"]))

    @property
    def serial(self) -> Curve:
        return self.curves["serial", 1]

    @property
    def half(self) -> int:
        return (len(self.serial.epochs) - 1) // 2

    @property
    def target(self) -> float:
        """What serial has after half the epochs."""
        return self.serial.epochs[self.half].likelihood

    @property
    def base(self) -> float:
        """Epochs that serial needs to the target, the mean over its seeds."""
        found = [curve.needed(self.target) for curve in self.of_seeds("serial")]
        return sum(found) / len(found)

    def of_seeds(self, name: str) -> list[Curve]:
        """The curves of a way that was run with several seeds."""
        return [curve for (own, _), curve in self.curves.items() if own == name or own.startswith(f"{name}, seed")]

    def times(self, curve: Curve) -> float:
        """Epochs to the target over those of serial."""
        return curve.needed(self.target) / self.base

    def as_serial(self, curve: Curve) -> str:
        """What a curve has come to, in epochs of serial."""
        return f"has after {len(curve.epochs) - 1} epochs what serial has after {said(self.serial.needed(curve.end))}"

    def family(self, name: str) -> dict[int, Curve]:
        """Curves of one name by workers."""
        return {workers: curve for (own, workers), curve in sorted(self.curves.items()) if own == name}

    def table(self) -> str:
        """Everything in numbers."""
        documents, words, tokens = self.shape
        last = len(self.serial.epochs) - 1
        marks = (1, last // 4, self.half, last)
        rows = []
        for curve in self.curves.values():
            needed = curve.needed(self.target)
            sent = curve.sent(needed) / 1e6
            rows.append([
                curve.name, curve.workers, *(f"{curve.epochs[at].likelihood:.3f}" for at in marks), said(needed),
                said(self.times(curve), 2), *(f"{curve.epochs[at].bytes / 1e6:.1f}" for at in (1, last)),
                said(sent, 0), f"{curve.epochs[last].entries:,}",
            ])  # fmt: skip
        head = [
            "way", "workers", *(f"after {at}" for at in marks), "epochs to target", "× serial", "MB, first epoch",
            "MB, last epoch", "MB to target", "entries of word rows at the end",
        ]  # fmt: skip
        about = (
            f"{lda_sets.TITLES[self.name]}: {documents:,} documents, {words:,} words, {tokens:,} tokens. "
            f"Log-likelihood per token; {self.serial.epochs[0].likelihood:.3f} with random topics. "
            f"Target: {self.target:.3f}, which serial has after {self.half} epochs with the first seed, and after "
            f"{self.base:.1f} on average over its seeds."
        )
        return f"{about}\n\n{report.table(head, rows)}"

    def draw(self) -> None:
        """Two pictures: by epoch and workers, by bytes."""
        four = ["serial", "data-parallel", "managed, 100%", "rotation", "rotation, progressive start"]
        styles = ["k:", "C3--", "C1-.", "C0-", "C2:"]
        keys = [(name, 1 if name == "serial" else WIDE) for name in four]
        styles = [style for key, style in zip(keys, styles, strict=True) if key in self.curves]
        heads = [self.curves[key] for key in keys if key in self.curves]

        def by_epoch(axes: Any) -> None:
            for curve, style in zip(heads, styles, strict=True):
                points = [(at, one.likelihood) for at, one in enumerate(curve.epochs) if not math.isnan(one.likelihood)]
                # Serial is drawn on top: rotation is often just below it.
                order = 3 if curve is self.serial else 2
                axes.plot(*zip(*points, strict=True), style, label=_in_words(curve.name), zorder=order)

        def by_bytes(axes: Any) -> None:
            for curve, style in zip(heads[1:], styles[1:], strict=True):
                sent = [curve.sent(at) / 1e6 for at in range(len(curve.epochs))]
                kept = [(x, one.likelihood) for x, one in zip(sent, curve.epochs, strict=True) if one.likelihood < 0]
                axes.plot(*zip(*kept, strict=True), style, label=_in_words(curve.name))

        def by_workers(axes: Any) -> None:
            for name, style in zip(["rotation", "data-parallel", "data-parallel, 4 clocks", "managed, 100%"],
                                   ["C0o-", "C3s--", "C4v--", "C1^-."], strict=True):  # fmt: skip
                found = self.family(name)
                if found:
                    axes.plot(
                        list(found), [self.times(curve) for curve in found.values()], style, label=_in_words(name)
                    )
            axes.axhline(1.0, color=FAINT, linewidth=1)
            axes.set_xscale("log", base=2)
            marks = sorted(set(self.family("rotation")) - {24})
            axes.set_xticks(marks, [str(mark) for mark in marks])
            axes.set_ylim(0.8, 1.9)

        def bytes_by_epoch(axes: Any) -> None:
            for curve, style in zip(heads[1:4], styles[1:4], strict=True):
                axes.plot(range(1, len(curve.epochs)), [one.bytes / 1e6 for one in curve.epochs[1:]], style,
                          label=_in_words(curve.name))  # fmt: skip
            axes.set_ylim(bottom=0)

        title, label = f"Topic model, {lda_sets.TITLES[self.name]}, {WIDE} workers", "log-likelihood per token"
        panels = [(title, "epoch", label, by_epoch)]
        if len(self.family("rotation")) > 1:
            about = f"Topic model, {lda_sets.TITLES[self.name]}: epochs to {self.target:.2f} per token"
            panels.append((about, "workers", "times as many epochs as serial", by_workers))
        figure(f"lda-{self.name}-epochs.png", panels)
        figure(
            f"lda-{self.name}-bytes.png",
            [
                (f"{title}: by bytes sent", "MB sent", label, by_bytes),
                (f"{title}: bytes of an epoch", "epoch", "MB sent in the epoch", bytes_by_epoch),
            ],
        )


def _in_words(name: str) -> str:
    return name.replace("managed, 100%", "data-parallel, managed, early bytes 100 %")


def said(value: float, digits: int = 1) -> str:
    """A number for a table."""
    return f"{value:,.{digits}f}" if math.isfinite(value) else "not reached"


def spread(runs: Runs, name: str) -> str:
    """Epochs over serial's, by workers, and by seed where there are several."""
    several = [said(runs.times(curve), 2) for curve in runs.of_seeds(name)[1:] if curve.workers == WIDE]
    seeds = f" (other seeds at {WIDE}: {', '.join(several)})" if len(several) > 1 else ""
    found = [f"{times(runs, curve)} at {workers}" for workers, curve in runs.family(name).items()]
    return ", ".join(found) + seeds


def times(runs: Runs, curve: Curve) -> str:
    """Epochs over serial's, or that there were not enough of them."""
    value = runs.times(curve)
    return f"{value:.2f}×" if math.isfinite(value) else f"not within {len(curve.epochs) - 1} epochs"


def claims(every: Sequence[Runs]) -> list[list[str]]:
    """What the papers say, and what was measured."""

    def each(tell: Callable[[Runs], str]) -> str:
        return "; ".join(f"{lda_sets.TITLES[runs.name]}: {tell(runs)}" for runs in every)

    def parallel_end(runs: Runs) -> str:
        return f"; at {WIDE} it {runs.as_serial(runs.curves['data-parallel', WIDE])}"

    def managed(runs: Runs) -> str:
        rotation = runs.curves["rotation", WIDE].sent(runs.half)
        found = []
        for (name, workers), curve in runs.curves.items():
            if name.startswith("managed") and workers == WIDE:
                _, share, *rank = name.split(", ")
                by = "".join(f" by {one} change" for one in rank)
                more = f"{curve.sent(runs.half) / rotation:.1f}× the bytes of rotation"
                found.append(f"{share} early{by}: {times(runs, curve)}, {more}")
        return ", ".join(found)

    def faster(runs: Runs) -> str:
        told = f"{runs.spans[8] / runs.spans[24]:.2f}× fewer tokens on the longest chain"
        both = runs.family("rotation")
        if 8 in both and 24 in both:
            told += ", epochs to the target " + " and ".join(said(both[n].needed(runs.target)) for n in (8, 24))
        return told

    def sparser(runs: Runs) -> str:
        curve = runs.curves["rotation", WIDE]
        first, last = curve.epochs[1], curve.epochs[-1]
        entries = [one.entries for one in (curve.epochs[0], curve.epochs[-1])]
        return (
            f"entries {entries[0]:,} → {entries[1]:,}, bytes of an epoch {first.bytes / 1e6:.1f} → "
            f"{last.bytes / 1e6:.1f} MB in {len(curve.epochs) - 1} epochs"
        )

    return [
        [
            "000, Figures 6a–c; 003, Figure 5.16b: rotation",
            "progress per token does not depend on the number of machines, and is that of serial execution",
            "epochs to the target over serial's: " + each(lambda runs: spread(runs, "rotation")),
        ],
        [
            "the same: data-parallel",
            "progress per token falls substantially from 25 to 100 machines (Yahoo!LDA); substantially slower than "
            "serial (Bösen, 384 workers)",
            each(lambda runs: spread(runs, "data-parallel") + parallel_end(runs)),
        ],
        [
            "003, Figures 3.4b, 5.17, 5.18: data-parallel, managed",
            "nearer to rotation with more bandwidth, ~40 % slower per epoch on NYTimes and similar on ClueWeb25M, with "
            "substantially more bytes than rotation",
            f"{WIDE} workers, early bytes as a share of those of a plain clock: " + each(managed),
        ],
        [
            "003, Figure 4.2: LightLDA",
            "24 machines reach in 60 hours what 8 reach in 180: near 3×",
            "rotation, a clock that only knows tokens, no network: " + each(faster),
        ],
        [
            "003, Figure 4.3: LightLDA",
            "communication is a large share of the first 10 iterations, and falls as the model gets sparse",
            f"rotation, {WIDE} workers: " + each(sparser),
        ],
        ["000, Table 3 and Figure 7", "tokens per second, time to converge on 25 to 100 machines", "not measured"],
    ]
