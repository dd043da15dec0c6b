"""The experiments of the dissertation's chapter 6, repeated: its policy and ours on five kinds of models.

table_6_4    what each means brings: partitions and swapping, parameters on the host; ours likewise
figure_6_6   the order of operations, under the dissertation's policy
figure_6_7   operations in a partition, under the dissertation's policy
table_6_6    items a second at the largest batch that eager has under a cap of 12 GiB, and at larger ones
table_6_9    sequences twice as long, in the memory that eager takes for the length
table_6_14   experts in one padded tensor, or multiplying their own tokens only

On a GPU every number is measured: median seconds of three steps after one, and the most bytes that the allocator gave
out; TF32 is off. Without one the same command gives what the planner says (a roofline of an H200, bytes as accounted),
and eager is the plan in which nothing moves.
"""

# STRETTO_CASES: which of them; STRETTO_MODELS: with which models. STRETTO_SECONDS: no new one begins after so many.
# STRETTO_FROM: take the numbers from these files instead (a later one replaces the experiments of an earlier one).
# STRETTO_TOY: tiny models. STRETTO_RECORD: plans are played as recordings.

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import report
from .memory_chapter_tell import publish

if TYPE_CHECKING:
    from bench.memory_runs import Row, Trial

NAME = "memory_chapter"
SHARE = 0.35  # of eager's peak: the budget of ours in table 6.4
ORDERS = ("depth_first", "deep_levels", "levels", "program")
SIZES = (5, 10, 20, 50, 100, 200)

Case = tuple[str, str, dict[str, Any]]  # model, dtype, options
FIVE: list[Case] = [
    ("resnet", "fp32", {"batch": 64}),
    ("gpt", "fp32", {"batch": 3}),
    ("moe", "fp32", {"experts": 12}),
    ("lstm", "fp32", {"length": 64, "batch": 1024}),
    ("wgan", "fp32", {"batch": 1024}),
]
CASES: dict[str, list[Case]] = {
    "table_6_4": FIVE,
    "figure_6_6": [FIVE[2], FIVE[1]],
    "figure_6_7": [FIVE[1], FIVE[3]],
    # batches from which on eager is tried, downwards: the first that fits is its largest
    "table_6_6": [
        ("resnet", "fp32", {"batch": (72, 64, 56, 48)}),
        ("moe", "fp32", {"experts": 8, "batch": (32, 24, 16)}),
    ],
    "table_6_9": [("lstm", "fp32", {"length": 50, "batch": 1024}), ("gpt", "bf16", {"length": 1024, "batch": 4})],
    "table_6_14": [("moe", "fp32", {"experts": 16})],
}
TINY: list[Case] = [
    ("resnet", "fp32", {"batch": 2, "side": 32, "third": 2, "others": (1, 1, 1)}),
    ("gpt", "fp32", {"batch": 2, "length": 32, "width": 64, "layers": 2, "words": 512}),
    ("moe", "fp32", {"batch": 2, "length": 16, "width": 64, "inner": 128, "layers": 2, "experts": 4, "words": 256}),
    ("lstm", "fp32", {"batch": 4, "length": 6, "width": 32}),
    ("wgan", "fp32", {"batch": 2, "side": 16, "width": 8}),
]
TOY: dict[str, list[Case]] = {
    "table_6_4": TINY,
    "figure_6_6": [TINY[2]],
    "figure_6_7": [TINY[1]],
    "table_6_6": [("resnet", "fp32", {**TINY[0][2], "batch": (4, 2)})],
    "table_6_9": [TINY[3]],
    "table_6_14": [TINY[2]],
}


def main() -> None:
    """Make the experiments that were asked for, and write the page, the numbers and the pictures."""
    folder = Path(os.environ.get("OUT", report.RESULTS))
    if files := os.environ.get("STRETTO_FROM", "").split():
        publish(joined(files), folder)
        return
    from bench.memory_runs import prepare, where

    prepare()
    cases = TOY if os.environ.get("STRETTO_TOY") else CASES
    wanted = os.environ.get("STRETTO_CASES", "").split() or list(cases)
    until = time.perf_counter() + float(os.environ.get("STRETTO_SECONDS", "inf"))
    rows: list[Row] = []
    for row in made(wanted, cases, until):
        rows.append({**row, "where": where()})
        print(_said(row), flush=True)
        (folder / f"{NAME}.json").write_text(json.dumps(rows, indent=1) + "\n")
    publish(rows, folder)


def joined(files: list[str]) -> list[Row]:
    """Rows of several runs; of an experiment with a model those of the last file that has it."""
    found: dict[Any, list[Row]] = {}
    for file in files:
        own: dict[Any, list[Row]] = {}
        for row in json.loads(Path(file).read_text()):
            own.setdefault((row["experiment"], row["model"]), []).append(row)
        found |= own
    names = list(CASES)
    return [row for key in sorted(found, key=lambda key: names.index(key[0])) for row in found[key]]


def made(wanted: list[str], cases: dict[str, list[Case]], until: float) -> Iterator[Row]:
    """Rows of experiments. Those that want the same model follow one another and share its trace."""
    from bench.memory_runs import CAP, cap, clean, failed, on_gpu

    models = os.environ.get("STRETTO_MODELS", "").split()
    jobs = [(name, case) for name in wanted for case in cases[name] if not models or case[0] in models]
    order = [json.dumps(case) for _, case in jobs]
    last = Last()
    for name, case in sorted(jobs, key=lambda job: order.index(json.dumps(job[1]))):
        if time.perf_counter() > until:
            print(f"no time left for {name} of {case[0]}", flush=True)
            continue
        began = time.perf_counter()
        capped = name in ("table_6_6", "table_6_14")
        if capped:
            last.close()
            cap(CAP)
        try:
            for row in EXPERIMENTS[name](case, last):
                yield {"experiment": name, **row}
        except Exception as error:  # the others may still be of use
            model, dtype, options = case
            row = {"experiment": name, "model": model, "dtype": dtype, "options": options, "items": 0}
            yield {**row, "method": "all", "how": "measured" if on_gpu() else "planned", "failed": failed(error)}
            last.close()
        finally:
            if capped:
                last.close()
                cap(None)
            clean()
        print(f"  {name} of {case[0]}: {time.perf_counter() - began:.0f} s", flush=True)


class Last:
    """The model that was tried last, with what eager did."""

    def __init__(self) -> None:
        self._case: Case | None = None
        self._trial: Trial | None = None
        self._eager: Row = {}

    def of(self, case: Case) -> tuple[Trial, Row]:
        """The trial of a model and its eager steps: the one at hand or a new one."""
        from bench.memory_runs import Trial

        if self._case != case or self._trial is None:
            self.close()
            self._trial, self._case = Trial(*case), case
            self._eager = self._trial.eager()
        return self._trial, self._eager

    def close(self) -> None:
        """Let go of it."""
        from bench.memory_runs import clean

        if self._trial is not None:
            self._trial.rest()
        self._trial = self._case = None
        clean()


def table_6_4(case: Case, last: Last) -> Iterator[Row]:
    """Means added one after another: the dissertation's, then ours with a budget of a share of eager's peak."""
    from stretto.memory.planner.planner import PlannerSettings

    trial, eager = last.of(case)
    yield {"method": "eager", **eager}
    partition = 5 if case[0] == "lstm" else 20
    yield {"method": "dissertation: + partition", **trial.dissertation(partition=partition, place=False)}
    yield {"method": "dissertation: + placement", **trial.dissertation(partition=partition)}
    budget = int(SHARE * eager["peak"])
    ways: list[tuple[str, dict[str, Any], str | None]] = [
        ("ours: swap", {"recompute": False, "place": False}, None),
        ("ours: + recompute", {"place": False}, None),
        ("ours: + placement", {}, None),
    ]
    if case[0] in ("gpt", "moe"):
        ways.append(("ours: + chunks", {}, "auto"))
    for method, options, chunks in ways:
        settings = PlannerSettings(budget, **options)
        least = trial.least(settings, chunks)
        if least > budget:
            settings = PlannerSettings(int(1.02 * least), **options)
        yield {"method": method, "budget": settings.budget, **trial.plan(settings, chunks)}


def figure_6_6(case: Case, last: Last) -> Iterator[Row]:
    """Orders."""
    trial, eager = last.of(case)
    yield {"method": "eager", **eager}
    for order in ORDERS:
        yield {"method": order, **trial.dissertation(order=order)}


def figure_6_7(case: Case, last: Last) -> Iterator[Row]:
    """Sizes of partitions."""
    trial, eager = last.of(case)
    yield {"method": "eager", **eager}
    for size in SIZES:
        yield {"method": str(size), **trial.dissertation(partition=size)}


def table_6_6(case: Case, last: Last) -> Iterator[Row]:
    """Eager at its largest batch under the cap; ours there and at four times as much."""
    name, dtype, options = case
    for batch in options["batch"]:
        row = eager_under_cap((name, dtype, {**options, "batch": batch}), last)
        yield {"method": f"eager, batch {batch}", **row}
        if "failed" not in row:
            break
    else:
        return
    for larger in (batch, 4 * batch):
        one = (name, dtype, {**options, "batch": larger})
        yield {"method": f"ours, batch {larger}", **under_cap(one, last)}


def table_6_9(case: Case, last: Last) -> Iterator[Row]:
    """Twice the length in the memory that eager takes for the length."""
    from stretto.memory.planner.planner import PlannerSettings

    name, dtype, options = case
    length = options["length"]
    eager = last.of(case)[1]  # and not the model: the longer one has the device to itself
    yield {"method": f"eager, length {length}", **eager}
    trial, longer = last.of((name, dtype, {**options, "length": 2 * length}))
    yield {"method": f"eager, length {2 * length}", **longer}
    budget = eager["peak"]
    yield {"method": f"ours, length {2 * length}", "budget": budget, **trial.plan(PlannerSettings(budget))}
    partition = 5 if name == "lstm" else 20
    yield {"method": f"dissertation, length {2 * length}", **trial.dissertation(partition=partition)}


def table_6_14(case: Case, last: Last) -> Iterator[Row]:
    """Both layers of experts: under the cap, and with a third of it. Padded ones drop tokens, the others none."""
    name, dtype, options = case
    from bench.memory_runs import CAP

    from stretto.memory.planner.planner import PlannerSettings

    for kind, more in (("padded", {"padded": True}), ("grouped", {"groups": min(4, options["experts"])})):
        one = (name, dtype, {**options, **more})
        yield {"method": f"eager, {kind}", **eager_under_cap(one, last)}
        yield {"method": f"ours, {kind}", **under_cap(one, last)}
        trial, _ = last.of(one)
        least = {"least": trial.least(PlannerSettings(CAP))}
        yield {"method": f"ours, {kind}, a third", **least, **trial.plan(PlannerSettings(CAP // 3))}


def eager_under_cap(case: Case, last: Last) -> Row:
    """Eager; where nothing is measured it fails if the plan in which nothing moves does not fit."""
    from bench.memory_runs import CAP, GIB, SPARE

    _, row = last.of(case)
    if row["how"] == "planned" and row["peak"] > CAP - SPARE:
        return {**row, "failed": f"out of memory: {row['peak'] / GIB:.1f} GiB"}
    return row


def under_cap(case: Case, last: Last) -> Row:
    """Ours with what the cap leaves."""
    from bench.memory_runs import CAP, SPARE

    from stretto.memory.planner.planner import PlannerSettings

    trial, _ = last.of(case)
    return {"budget": CAP - SPARE, **trial.plan(PlannerSettings(CAP - SPARE, host_budget=CAP * 4))}


def _said(row: Row) -> str:
    from bench.memory_runs import GIB

    head = f"{row['experiment']:10} {row['model']:7} {row['method']:28}"
    if "failed" in row:
        return f"{head} {row['failed']}"
    text = f"{head} {row['peak'] / GIB:6.2f} GiB {row['seconds'] * 1e3:8.1f} ms, {row['how']}"
    return text + (f", prepared in {row['prepared']:.1f} s" if "prepared" in row else "")


EXPERIMENTS: dict[str, Callable[[Case, Last], Iterator[Row]]] = {
    "table_6_4": table_6_4,
    "figure_6_6": figure_6_6,
    "figure_6_7": figure_6_7,
    "table_6_6": table_6_6,
    "table_6_9": table_6_9,
    "table_6_14": table_6_14,
}
