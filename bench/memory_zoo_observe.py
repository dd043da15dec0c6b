"""What is read off a step and its job while memory_zoo measures: clocks, warnings, predictions, distances, a line."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import torch

from stretto.memory import planning
from stretto.memory.capture.side_effects import CannotCapture
from stretto.memory.measure.costs import costed
from stretto.memory.options import StepSource
from stretto.memory.planner.planner import PlannerSettings
from stretto.memory.report.report import Report

from .memory_models import Job

UNBOUNDED = 1 << 50  # a budget that binds nothing

Row = dict[str, Any]


def to_host(job: Job) -> None:
    """Move parameters, buffers and what optimizers made beforehand (Adagrad does) to the host."""
    for module in job.modules:
        module.to("cpu")
    for optimizer in job.optimizers:
        for state in optimizer.state.values():
            state |= {name: kept.cpu() for name, kept in state.items() if isinstance(kept, torch.Tensor)}


def plain_peak(job: Job) -> int:
    """Bytes of the plan in which nothing moves, on a CPU."""
    wanted = PlannerSettings(UNBOUNDED, policy="keep")
    try:
        captured, _, made = planning.planned(
            StepSource(job.step, job.modules, job.optimizers, job.batch, torch.device("cpu")), wanted
        )
    except CannotCapture:  # then it is not planned under any budget
        return UNBOUNDED
    return Report(made, captured.lifted).peak


def distance(a: torch.Tensor, b: torch.Tensor, device: str) -> float:
    """Norm of the difference over the norm of b; 0 only if both are equal, infinite where one has NaN alone."""
    a, b = a.to(device), b.to(device)
    if torch.equal(a, b):
        return 0.0
    a, b = a.double(), b.double()
    far = float((a - b).norm() / b.norm().clamp(min=1e-12))
    return far if math.isfinite(far) else math.inf


@contextlib.contextmanager
def clocks(row: Row) -> Iterator[None]:
    """Within, seconds of planning, and of measuring operations as part of it, are added to a row. What else preparing
    takes is mostly pinning memory on the host."""

    def clocked(name: str, function: Any) -> Any:
        def run(*args: Any, **options: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*args, **options)
            finally:
                row[name] = row.get(name, 0.0) + time.perf_counter() - began

        return run

    with (
        mock.patch.object(planning, "planned", clocked("planning", planning.planned)),
        mock.patch.object(planning, "costed", clocked("measuring", costed)),
    ):
        yield


@contextlib.contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """What `stretto.memory` warns of meanwhile."""
    found: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: found.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("stretto.memory")
    log.addHandler(handler)
    try:
        yield found
    finally:
        log.removeHandler(handler)


def predicted(step: Any, warned: Sequence[str]) -> Row:
    """What a planned step reports of itself; of one that runs as it is, why."""
    if getattr(step, "why", None) is not None:
        return {"fallback": str(step.why)}
    if getattr(step, "report", None) is None:
        return {}
    costs = step.planned.costs
    plays = any("CUDA graphs are replayed" in note for note in step.planned.notes)
    return {
        "predicted_seconds": step.report.seconds,
        "predicted_peak": step.report.peak,
        "waited": costs.waited,
        "recomputed": costs.repeated,
        "host": costs.host,
        "nodes": len(step.planned.program.graph.nodes),
        "notes": list(step.planned.notes),
        "warned": list(warned),
        "recorded": plays and not any("not recorded" in text or "dropped" in text for text in warned),
    }


def line(error: BaseException) -> str:
    said = str(error).strip().splitlines()
    return f"{type(error).__name__}: {said[0][:300] if said else ''}"


def said(row: Row) -> str:
    """A row for those who wait."""
    head = (
        f"{row['model']:20} {row['method']:14} {row['share']:5.0%}"
        if "share" in row
        else (f"{row['model']:20} {row['method']:20}")
    )
    if "failed" in row:
        return f"{head} {row['failed']}"
    text = f"{head} {row['seconds'] * 1e3:8.1f} ms"
    if "reserved" in row:
        text += f", reserved {row['reserved'] / 2**30:6.2f} GiB"
    if "budget" in row and "reserved" in row:
        text += f" ({row['reserved'] / row['budget']:.2f} of the budget)"
    if "planning" in row:
        text += f", planned in {row['planning']:.1f} s, prepared in {row['prepared']:.1f} s"
    if "bits" in row:
        text += ", same bits" if row["bits"] else f", loss differs by {row['loss_difference']:.1e}"
    return text + (f"; fallback: {row['fallback']}" if "fallback" in row else "")
