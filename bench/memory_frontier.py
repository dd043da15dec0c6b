"""Time of a training step against peak memory on one GPU: planned steps beside what PyTorch offers.

Peers: eager; `save_on_cpu(pin_memory=True)`; checkpoints around every block; `torch.compile`, also with
`activation_memory_budget`; FSDP2 with `CPUOffloadPolicy` on one rank. Ours: budgets as shares of eager's peak (bits as
eager's graph has them, or `compile=True`), one of them also called instead of recorded ("called"), the dissertation's
policy, and the plan in which nothing moves. Peak is what the allocator gave out, of recorded steps while they were
recorded; median of seven steps after two, or of three where they take more than half a second; TF32 is off; percentages
are against eager of the same dtype; loss is the last step's. Needs a CUDA device.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from . import memory_charts, report
from .memory_peers import checkpointed, compiled, fully_sharded, saved_on_cpu
from .memory_turns import metered, turn

WARM, STEPS, FEW, LONG = 2, 7, 3, 0.5  # so few where one takes longer than this many seconds
SHARES = tuple(float(x) for x in os.environ.get("STRETTO_SHARES", "0.5 0.35 0.12").split())
# (what it is called, model, dtype, options)
CASES: list[tuple[str, str, str, dict[str, Any]]] = [
    ("resnet", "resnet", "fp32", {}),
    ("gpt", "gpt", "bf16", {}),
    ("experts", "moe", "fp32", {"experts": 16, "batch": 32, "length": 512}),
    ("lstm", "lstm", "fp32", {}),
    ("wgan", "wgan", "fp32", {"batch": 512}),
    ("resnet", "resnet", "bf16", {}),
    ("gpt", "gpt", "fp32", {}),
    ("lstm", "lstm", "bf16", {}),
    ("experts", "moe", "bf16", {"experts": 16, "batch": 32, "length": 512}),
    ("wgan", "wgan", "bf16", {"batch": 512}),
    ("few-words", "moe", "fp32", {"experts": 16, "groups": 4}),  # 2,048 words a step: the link is the limit
]
CALLED = 0.35  # the share that is tried without a recording too
COMPILED = ("resnet", "gpt", "moe", "wgan")  # unrolled cells take the compiler many minutes
BUDGETS = tuple(float(x) for x in os.environ.get("STRETTO_BUDGETS", "1.0 0.5 0.3 0.0").split())  # of torch.compile
GIB = 2**30
SPARE = 512 << 20  # workspaces, and what updates need beside a recording


def main() -> None:
    """Measure everything and write the table, the numbers and the picture."""
    import torch

    if not torch.cuda.is_available():
        print("memory_frontier: no CUDA device here; nothing measured")
        return
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    folder = Path(os.environ.get("OUT", report.RESULTS))
    wanted = os.environ.get("STRETTO_CASES", "").split()
    rows: list[dict[str, Any]] = []
    for case in CASES:
        if not wanted or f"{case[0]}-{case[2]}" in wanted:
            for row in one_case(*case):
                rows.append(row)
                (folder / "memory_frontier.json").write_text(json.dumps(rows, indent=1))
    publish(rows, folder)


def one_case(label: str, name: str, dtype: str, options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """All methods on one model."""
    case = (label, name, dtype, options)
    eager = measured(case, "eager", lambda job: job.step)
    yield eager
    peak = eager["peak"]
    methods: list[tuple[str, Callable[[Any], Any]]] = [
        ("ours, nothing moves", planned(10.0, peak, policy="keep")),
        *((f"ours {share}", planned(share, peak, chunks="auto")) for share in SHARES),
        ("called", planned(CALLED, peak, chunks="auto", record=False)),
        ("dissertation", as_the_dissertation(5 if name == "lstm" else 20)),
    ]
    if name in COMPILED and not os.environ.get("STRETTO_NO_COMPILER"):
        methods.append(("ours compiled, nothing moves", planned(10.0, peak, policy="keep", compile=True)))
        methods += [(f"ours compiled {x}", planned(x, peak, chunks="auto", compile=True)) for x in SHARES]
        methods += [(f"compile {budget}", compiled(budget)) for budget in BUDGETS]
    methods += [("checkpoint", checkpointed), ("save_on_cpu", saved_on_cpu)]
    if name == "gpt":
        methods.append(("fsdp2 offload", fully_sharded))
    wanted = os.environ.get("STRETTO_METHODS", "")
    for method, change in methods:
        if not wanted or re.fullmatch(wanted, method):
            yield measured(case, method, change, eager)


def measured(
    case: tuple[str, str, str, dict[str, Any]],
    method: str,
    change: Callable[[Any], Any],
    eager: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """One method on a fresh model: peak bytes, seconds, what was predicted."""
    import torch

    from .memory_models import MODELS

    label, name, dtype, options = case
    row: dict[str, Any] = {"model": label, "dtype": dtype, "method": method}
    step = job = None
    try:
        torch.manual_seed(0)
        torch._dynamo.reset()
        began = time.perf_counter()
        job = MODELS[name]("cuda", dtype, **options)
        early = "compile" in method  # its first step compiles, maybe for minutes: nobody has to wait for that
        with metered():
            step = change(job)
            if step is None:
                return row | {"failed": "not for this model"}
            if early:
                step(job.batch)
                torch.cuda.synchronize()
        row["prepared"] = time.perf_counter() - began
        with turn():
            row |= _timed(step, job.batch, WARM - early)
        if hasattr(step, "report"):
            costs = step.planned.costs
            row |= {
                "predicted_seconds": step.report.seconds,
                "predicted_peak": step.report.peak,
                "waited": costs.waited,
                "repeated": costs.repeated,
                "host": costs.host,
                "nodes": len(step.planned.program.graph.nodes),
            }
    except Exception as error:
        row["failed"] = f"{type(error).__name__}: {str(error).splitlines()[0][:160] if str(error) else ''}"
    finally:
        del step, job
        torch._functorch.config.activation_memory_budget = 1.0
        gc.collect()
        torch.cuda.empty_cache()
        if empty := getattr(torch._C, "_host_emptyCache", None):  # what save_on_cpu pinned
            empty()
        torch.cuda.reset_peak_memory_stats()
    print(_said(row, eager or row), flush=True)
    return row


def _timed(step: Callable[[Any], Any], batch: Any, warm: int) -> dict[str, Any]:
    import torch

    for _ in range(warm):
        began = time.perf_counter()
        step(batch)
        torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    count = STEPS if time.perf_counter() - began < LONG else FEW
    seconds = []
    for _ in range(count):
        began = time.perf_counter()
        loss = step(batch)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    return {
        "seconds": statistics.median(seconds),
        "peak": torch.cuda.max_memory_allocated(),
        "reserved": torch.cuda.max_memory_reserved(),
        "loss": float(loss.detach()),
        "machine": f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {time.strftime('%Y-%m-%d')}",
    }


def _said(row: dict[str, Any], eager: dict[str, Any]) -> str:
    head = f"{row['model']:7} {row['dtype']} {row['method']:20}"
    if "failed" in row:
        return f"{head} {row['failed']}"
    text = (
        f"{head} {row['peak'] / GIB:6.2f} GiB ({row['peak'] / eager['peak'] - 1:+.0%}) {row['seconds'] * 1e3:7.1f} ms "
        f"({row['seconds'] / eager['seconds']:.2f}x), reserved {row['reserved'] / GIB:.2f} GiB, loss {row['loss']:.4f}"
    )
    if "predicted_peak" in row:
        text += (
            f"  predicted {row['predicted_peak'] / GIB:.2f} GiB {row['predicted_seconds'] * 1e3:.1f} ms, waited "
            f"{row['waited'] * 1e3:.1f}, again {row['repeated'] * 1e3:.1f}, prepared in {row['prepared']:.0f} s"
        )
    return text


# -- methods -----------------------------------------------------------------------------------------------------------


def planned(share: float, peak: int, **options: Any) -> Callable[[Any], Any]:
    """Ours, with a budget of a share of eager's peak."""

    def change(job: Any) -> Any:
        from stretto.memory import step

        return step(job.step, job.modules, job.optimizers, job.batch, budget=int(share * peak), **options)

    return change


def as_the_dissertation(partition: int) -> Callable[[Any], Any]:
    """Chapter 6 as it is: at most two partitions at a time, which is the smallest budget its plan can have."""

    def change(job: Any) -> Any:
        import torch

        from stretto.memory import step
        from stretto.memory.measure.costs import costed
        from stretto.memory.options import StepSource
        from stretto.memory.planner.planner import PlannerSettings, smallest_budget
        from stretto.memory.planning import capture

        device = torch.device("cuda", torch.cuda.current_device())
        captured = capture(StepSource(job.step, job.modules, job.optimizers, job.batch, device), 1 << 40)
        settings = PlannerSettings(1 << 50, policy="dissertation", partition=partition)
        least = smallest_budget(costed(captured.lifted, device), settings) + captured.lifted.borrowed
        options: dict[str, Any] = {"policy": "dissertation", "partition": partition}
        return step(job.step, job.modules, job.optimizers, job.batch, budget=int(1.05 * least) + SPARE, **options)

    return change


# -- what is published -------------------------------------------------------------------------------------------------


def joined(files: list[str]) -> None:
    """One page and picture from several runs' numbers: `python -m bench.memory_frontier a.json b.json`."""
    publish([row for file in files for row in json.loads(Path(file).read_text())], report.RESULTS)


def publish(rows: list[dict[str, Any]], folder: Path) -> None:
    """The table and the picture."""
    eager = {(row["model"], row["dtype"]): row for row in rows if row["method"] == "eager" and "peak" in row}
    lines = []
    for row in rows:
        base = eager.get((row["model"], row["dtype"]))
        if base is None or "failed" in row:
            lines.append((row["model"], row["dtype"], row["method"], row.get("failed", ""), "", "", "", ""))
            continue
        guess = ""
        if "predicted_peak" in row:
            guess = (
                f"{row['predicted_peak'] / row['peak'] - 1:+.1%} / {row['predicted_seconds'] / row['seconds'] - 1:+.0%}"
            )
        lines.append(
            (
                row["model"],
                row["dtype"],
                row["method"],
                f"{row['peak'] / GIB:.2f}",
                f"{row['peak'] / base['peak'] - 1:+.0%}",
                f"{row['seconds'] * 1e3:.1f} ({row['seconds'] / base['seconds']:.2f}×)",
                guess,
                f"{row['loss']:.4f}",
            )
        )
    columns = (
        "model",
        "dtype",
        "method",
        "peak GiB",
        "memory",
        "ms (× eager)",
        "predicted − real: peak / time",
        "loss",
    )
    about = next((row["machine"] for row in rows if "machine" in row), "")
    text = f"# memory_frontier\n\n{report.text(__doc__)}\n\n{about}\n\n{report.table(columns, lines)}\n"
    (folder / "memory_frontier.md").write_text(text)
    with contextlib.suppress(ImportError):
        memory_charts.frontier(rows, folder / "memory_frontier.png")


if __name__ == "__main__":
    joined(sys.argv[1:]) if sys.argv[1:] else main()
