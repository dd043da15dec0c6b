"""The largest batch under a cap of 12 GiB: eager, and planned steps with 11.5 GiB on the device and 48 on the host.

First the largest batches are predicted, which needs no GPU: the plan in which nothing moves stands for eager; ours is
the largest batch for which a plan was found. Then, on a GPU, eager's is looked for with real steps, and ours is made
true with real steps, with fewer items where the prediction was too bold. Batches are round numbers, by a thirty-second
at most below what was found. Of transformers the loss is computed in chunks; cells are unrolled over 64 places.
"""

# STRETTO_CASES: which models. STRETTO_BATCHES: a file of predictions, as this writes it; without it they are made
# first. STRETTO_TOY: tiny models and a tiny cap.

from __future__ import annotations

import inspect
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import report

if TYPE_CHECKING:
    from stretto.memory.planner.graph import Graph
    from stretto.memory.planning import CapturedStep

    from .memory_runs import Row

NAME = "memory_batches"
HOST = 48 << 30
TRIES = 4  # of a batch that was too large
PROBES = 8  # of eager
CHAPTER = {"resnet": "57 → 186", "gpt": "11,264 → 25,600 words", "moe": "4 → 40", "lstm": "", "wgan": "90 → 324"}

Case = tuple[str, str, dict[str, Any]]  # model, dtype, options; the batch is not among them
CASES: dict[str, Case] = {
    "resnet": ("resnet", "fp32", {}),
    "gpt": ("gpt", "bf16", {}),
    "moe": ("moe", "fp32", {"experts": 6}),
    "lstm": ("lstm", "fp32", {"length": 64}),
    "wgan": ("wgan", "fp32", {}),
}
TOY: dict[str, Case] = {
    "gpt": ("gpt", "fp32", {"length": 16, "width": 64, "layers": 1, "words": 64}),
    "wgan": ("wgan", "fp32", {"side": 16, "width": 4}),
}


def main() -> None:
    """Predict, make it true where there is a GPU, and write the page and the numbers."""
    from .memory_runs import CAP, SPARE, place, prepare, where

    prepare()
    folder = Path(os.environ.get("OUT", report.RESULTS))
    toy = bool(os.environ.get("STRETTO_TOY"))
    cases, most, spare = (TOY, 2 << 20, 0) if toy else (CASES, CAP, SPARE)
    given = os.environ.get("STRETTO_BATCHES")
    predicted = {row["model"]: row for row in json.loads(Path(given).read_text())} if given else {}
    rows: list[Row] = []
    for name in os.environ.get("STRETTO_CASES", "").split() or cases:
        began = time.perf_counter()
        row = predicted.get(name) or prediction(cases[name], most - spare)
        if place() != "meta":
            row = made_true(row, cases[name], most, most - spare)
        rows.append({**row, "where": where()})
        print(f"{_said(row)}; {time.perf_counter() - began:.0f} s", flush=True)
        (folder / f"{NAME}.json").write_text(json.dumps(rows, indent=1) + "\n")
    publish(rows, folder)


# -- predictions -------------------------------------------------------------------------------------------------------


def prediction(case: Case, budget: int) -> Row:
    """The largest batches that fit, from dry runs; with items a second as planned."""
    from stretto.memory.planner.planner import Infeasible, PlannerSettings, make, smallest_budget

    from .memory_runs import FREE

    def kept(batch: int) -> int:
        captured, graph = dry(case, batch, budget, None)
        return make(graph, PlannerSettings(FREE, policy="keep")).costs.peak + captured.lifted.borrowed

    def least(batch: int) -> int:
        captured, graph = dry(case, batch, budget, "auto")
        return smallest_budget(graph, PlannerSettings(budget)) + captured.lifted.borrowed

    eager = largest(kept, budget, 8)
    captured, graph = dry(case, eager, budget, None)
    costs = make(graph, PlannerSettings(FREE, policy="keep")).costs
    row: Row = {"model": case[0], "dtype": case[1], "options": case[2], "how": "planned"}
    row["eager"] = _side(case, eager, costs.peak + captured.lifted.borrowed, costs.seconds)
    print(f"{case[0]}: eager is predicted to hold {eager}", flush=True)
    most = largest(least, budget, 4 * eager)
    print(f"{case[0]}: the device could hold {most}; looking for a plan with {HOST >> 30} GiB on the host", flush=True)
    batch = most if fits(case, most, budget) else between(lambda b: fits(case, b, budget), eager, most)
    while batch > eager:
        captured, graph = dry(case, batch, budget, "auto")
        try:
            planned = make(graph, PlannerSettings(budget - captured.lifted.borrowed, host_budget=HOST))
        except Infeasible:
            batch = smaller(0.9 * batch)
            continue
        costs = planned.costs
        row["ours"] = _side(case, batch, costs.peak + captured.lifted.borrowed, costs.seconds)
        row["ours"] |= {"host": costs.host, "nodes": len(graph.nodes), "notes": [*planned.notes, *captured.notes]}
        return row
    return row | {"ours": {"failed": "no larger batch than eager's"}}


_LAST: dict[str, tuple[CapturedStep, Graph]] = {}  # the step that was captured last


def dry(case: Case, batch: int, budget: int, chunks: str | None) -> tuple[CapturedStep, Graph]:
    """A step written down and costed without a GPU."""
    import torch

    from stretto.memory.chunk.chunks import LOSSES
    from stretto.memory.measure.costs import costed
    from stretto.memory.options import StepOptions, StepSource
    from stretto.memory.planning import capture

    from .memory_runs import unseen

    key = repr((case, batch, budget, chunks))
    if key not in _LAST:
        _LAST.clear()
        name, dtype, options = case
        job, cpu = unseen(name, dtype, {**options, "batch": batch}), torch.device("cpu")
        tight = LOSSES if chunks is not None else 0
        captured = capture(
            StepSource(job.step, job.modules, job.optimizers, job.batch, cpu),
            budget,
            StepOptions(chunks=chunks),
            tight=tight,
        )
        _LAST[key] = captured, costed(captured.lifted, cpu)
    return _LAST[key]


def fits(case: Case, batch: int, budget: int) -> bool:
    """Whether any plan is found, with the host that there is."""
    from stretto.memory.planner.idle_intervals import find_idle_intervals
    from stretto.memory.planner.order import ORDERS
    from stretto.memory.planner.program import HostLink
    from stretto.memory.planner.search import search

    captured, graph = dry(case, batch, budget, "auto")
    intervals = find_idle_intervals(graph.reordered(ORDERS["program"](graph)))
    return search(intervals, budget - captured.lifted.borrowed, HostLink(), host=HOST, first_fit=True) is not None


def largest(need: Callable[[int], int], room: int, first: int) -> int:
    """The largest batch whose need is at most `room` bytes, by straight lines through the last two tries: needs grow
    so. It is one that was tried, a thirty-second below the largest at most, or 1."""
    tried: list[tuple[int, int]] = [(0, 0)]
    low, high, batch = 0, 1 << 40, max(1, first)
    for _ in range(10):
        tried.append((batch, need(batch)))
        if tried[-1][1] <= room:
            low = max(low, batch)
        else:
            high = min(high, batch)
        if high - low <= max(1, low // 32):
            break
        (b0, n0), (b1, n1) = tried[-2:]
        slope = (n1 - n0) / (b1 - b0)
        guess = smaller(b1 + (room - n1) / slope) if slope > 0 else 4 * b1
        batch = max(1, min(guess, smaller(high - max(1, high // 32)), 16 * max(1, low)))
        if batch <= low:
            break
    return max(1, low)


def between(good: Callable[[int], bool], low: int, high: int, tries: int = 5) -> int:
    """A large number between for which it is good, by halving ratios; low is taken to be."""
    for _ in range(tries):
        middle = smaller((low * high) ** 0.5)
        if middle <= low:
            break
        low, high = (middle, high) if good(middle) else (low, middle)
    return low


def smaller(batch: float) -> int:
    """A round number that is at most as large, and by a thirty-second at most smaller."""
    whole = max(1, int(batch))
    step = max(1, 1 << max(0, whole.bit_length() - 6))
    return whole // step * step


def _side(case: Case, batch: int, peak: int, seconds: float) -> Row:
    count = batch * (case[2].get("length", 1024) if case[0] == "gpt" else 1)
    return {"batch": batch, "peak": peak, "seconds": seconds, "items_a_second": count / seconds}


# -- real steps --------------------------------------------------------------------------------------------------------


def made_true(row: Row, case: Case, most: int, budget: int) -> Row:
    """Eager's largest batch by trying, ours by trying the predicted one."""
    from .memory_runs import cap, clean

    real = {"predicted": {side: row[side] for side in ("eager", "ours")}, "how": "measured"}
    cap(most)
    try:
        eager = eager_largest(case, row["eager"]["batch"])
        print(f"{case[0]}: eager {eager}", flush=True)
        ours = confirmed(case, row["ours"].get("batch", 2 * row["eager"]["batch"]), budget)
    finally:
        cap(None)
        clean()
    return row | real | {"eager": eager, "ours": ours}


def eager_largest(case: Case, guess: int) -> Row:
    """By doubling or halving, then between."""
    low, high, best = 0, 0, {"failed": "out of memory"}
    batch = smaller(guess)
    for _ in range(PROBES):
        found = eager_at(case, batch)
        if found is None:
            high = batch
        else:
            low, best = batch, found
        if high and high - low <= max(1, low // 16):
            break
        batch = smaller((low + high) / 2 if low and high else 1.25 * low + 1 if low else 0.7 * high)
    return best


def eager_at(case: Case, batch: int) -> Row | None:
    """Real steps, None if memory is too small for them."""
    import torch

    from .memory_runs import clean, place

    if place() == "cpu":  # nothing is out of memory there
        return _side(case, batch, 0, 1.0) if batch < 16 else None
    try:
        return _eager(case, batch)
    except torch.cuda.OutOfMemoryError:
        return None
    finally:
        clean()


def _eager(case: Case, batch: int) -> Row:
    from .memory_runs import made, timed

    name, dtype, options = case
    job = made(name, dtype, {**options, "batch": batch})
    found = timed(lambda: job.step(job.batch), 1, 2)
    return _side(case, batch, found["peak"], found["seconds"])


def confirmed(case: Case, batch: int, budget: int) -> Row:
    """Real planned steps; with fewer items if there is no plan or no memory for all."""
    from stretto.memory.planner.planner import Infeasible

    from .memory_runs import clean, failed

    row: Row = {}
    for _ in range(TRIES):
        try:
            return row | planned_at(case, batch, budget)
        except Infeasible as error:
            row.setdefault("too_bold", []).append([batch, failed(error)])
            share = budget / error.smallest if error.side == "device" else 0.85
            batch = smaller(min(0.95, 0.98 * share) * batch)
        except Exception as error:  # out of memory, or more of it taken than was planned
            row.setdefault("too_bold", []).append([batch, failed(error)])
            batch = smaller(0.85 * batch)
        finally:
            clean()
        print(f"{case[0]}: {row['too_bold'][-1]}; trying {batch}", flush=True)
    return row | {"failed": f"not {TRIES} batches below the predicted one"}


def planned_at(case: Case, batch: int, budget: int) -> Row:
    """Two real steps, of which the second is timed."""
    from stretto.memory import step
    from stretto.memory.run.planned_step import Step

    from .memory_runs import clean, made, timed
    from .memory_turns import metered

    name, dtype, options = case
    job = made(name, dtype, {**options, "batch": batch})
    clean()
    # Operations on so much take long: nothing is won by recording them, where steps can do that.
    calls: dict[str, Any] = {"record": False} if "record" in inspect.signature(step).parameters else {}
    how: dict[str, Any] = {"budget": budget, "host_budget": HOST, "chunks": "auto", **calls}
    with metered():
        planned = step(job.step, job.modules, job.optimizers, job.batch, **how)
    if not isinstance(planned, Step):
        raise RuntimeError(f"not planned: {planned.why}")
    print(f"{name}, batch {batch}:\n{planned.report}", flush=True)
    found = timed(lambda: planned(job.batch), 1, 1)
    costs = planned.planned.costs
    row = _side(case, batch, found.get("peak", planned.report.peak), found["seconds"])
    return row | {
        "host": costs.host,
        "predicted_peak": planned.report.peak,
        "predicted_seconds": planned.report.seconds,
        "nodes": len(planned.planned.program.graph.nodes),
        "notes": planned.planned.notes,
    }


# -- what is published -------------------------------------------------------------------------------------------------


def publish(rows: list[Row], folder: Path) -> None:
    """The table."""
    lines = []
    for row in rows:
        eager, ours = row["eager"], row["ours"]
        options = "".join(f", {name} {value}" for name, value in row["options"].items())
        times = f"{ours['batch'] / eager['batch']:.1f}×" if "batch" in ours and "batch" in eager else ""
        slower = ""
        if times:
            slower = f"{ours['items_a_second'] / eager['items_a_second']:.2f}×"
        lines.append(
            (
                f"{row['model']} {row['dtype']}{options}",
                row["how"],
                *_cells(eager),
                *_cells(ours),
                times,
                slower,
                CHAPTER[row["model"]],
            )
        )
    columns = (
        "model", "numbers", "eager: batch", "GiB", "items/s", "ours: batch", "GiB", "items/s", "batch", "speed",
        "the chapter: batch",
    )  # fmt: skip
    wheres = "\n".join(f"- machine: {where}" for where in dict.fromkeys(row["where"] for row in rows))
    text = f"# {NAME}\n\n{report.text(__doc__)}\n\n{wheres}\n- command: `python -m bench {NAME}`\n\n"
    (folder / f"{NAME}.md").write_text(f"{text}{report.table(columns, lines)}\n", encoding="utf-8")


def _cells(side: Row) -> tuple[str, str, str]:
    if "batch" not in side:
        return str(side.get("failed", "")), "", ""
    return f"{side['batch']:,}", f"{side['peak'] / 2**30:.2f}", f"{side['items_a_second']:,.0f}"


def _said(row: Row) -> str:
    eager, ours = ("{} ({} GiB, {} items/s)".format(*_cells(row[side])) for side in ("eager", "ours"))
    return f"{row['model']} {row['dtype']}, {row['how']}: eager {eager}, ours {ours}"
