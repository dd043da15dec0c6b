"""The largest models that train on one GPU: depth and parameters under a cap of 12 GiB, parameters on the whole card.

A card of 12 GiB is emulated by a cap on what the allocator may take (reserved memory, not only what is in use). The
depth of a residual network is 3 times its blocks plus 2; the batch has 16 images of 224 × 224. Optimizers keep float32
state. Some steps are made with each model and the loss is reported. Needs a CUDA device, and host memory for the rest;
without one (or with STRETTO_DRY=1) the cases are only planned, with an H200's rates, and nothing is measured.

    STRETTO_CASES="gpt-20B moe-10B" python -m bench memory_sizes
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import report
from .memory_turns import metered, turn

GIB = 2**30
CAP = 12 * GIB
CARD = int(139.8 * GIB)  # what is planned for when there is none
SPARE = 512 << 20  # of the cap: what the allocator cannot use
STEPS = 3


@dataclass(frozen=True)
class Case:
    """make(dry): the job; dry: parameters without memory. cap: bytes, None for the whole card. host: bytes there."""

    make: Callable[[bool], Any]
    cap: int | None
    host: str
    chunks: int | None = None

    def budget(self, card: int) -> int:
        """What a plan may use of a card."""
        return (self.cap or int(0.97 * card)) - SPARE


def main() -> None:
    """Try the sizes that were asked for, and write the table."""
    os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    import torch

    wanted = os.environ.get("STRETTO_CASES", "").split() or list(CASES)
    if os.environ.get("STRETTO_DRY") or not torch.cuda.is_available():
        for name in wanted:
            print(planned_only(name), flush=True)
        print("memory_sizes: planned only, nothing measured")
        return
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    folder = Path(os.environ.get("OUT", report.RESULTS))
    rows = []
    for name in wanted:
        rows.append(tried(name))
        print(rows[-1], flush=True)
        (folder / "memory_sizes.json").write_text(json.dumps(rows, indent=1))
    columns = ("what", "size", "budget GiB", "s a step", "peak GiB", "reserved GiB", "host GiB", "predicted s", "note")
    lines = [tuple(row.get(column, "") for column in columns) for row in rows]
    about = f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {time.strftime('%Y-%m-%d')}"
    text = f"# memory_sizes\n\n{report.text(__doc__)}\n\n{about}\n\n{report.table(columns, lines)}\n"
    (folder / "memory_sizes.md").write_text(text)


def _resnet(layers: int, batch: int = 16, side: int = 224) -> Callable[[bool], Any]:
    def make(dry: bool) -> Any:
        import torch

        from .memory_models import resnet

        device = "meta" if dry else "cuda"
        with torch.device(device):  # initial values are made there too, which is quick
            return resnet(device, batch=batch, third=(layers - 2) // 3 - 14, side=side)

    return make


def _moe(experts: int, layers: int = 12, inner: int = 8192) -> Callable[[bool], Any]:
    def make(dry: bool) -> Any:
        from .memory_models import moe

        device, place = ("cpu", "meta") if dry else ("cuda", "cuda")
        groups = -(-experts // 4)
        job = moe(device, batch=8, length=256, inner=inner, layers=layers, experts=experts, groups=groups, place=place)
        for module in job.modules if not dry else ():  # made on the device, which is quick, and kept on the host
            for p in module.parameters():
                p.data = p.data.cpu()
        return job

    return make


def _gpt(width: int, layers: int, batch: int) -> Callable[[bool], Any]:
    def make(dry: bool) -> Any:
        from .memory_models import gpt

        device, place = ("cpu", "meta") if dry else ("cuda", "cuda")
        return gpt(device, "bf16", batch=batch, length=1024, width=width, layers=layers, place=place)

    return make


CASES: dict[str, Case] = {
    "resnet-1916": Case(_resnet(1916), CAP, "100GiB"),
    "resnet-5000": Case(_resnet(5000), CAP, "100GiB"),
    "moe-5B": Case(_moe(25), CAP, "100GiB"),
    "moe-8B": Case(_moe(40), CAP, "105GiB"),
    "moe-10B": Case(_moe(50), CAP, "105GiB"),
    "gpt-10B": Case(_gpt(5120, 32, 8), None, "100GiB"),
    "gpt-20B": Case(_gpt(6144, 44, 4), None, "105GiB"),
    "gpt-21B": Case(_gpt(6144, 45, 1), None, "105GiB", chunks=4),
}


def planned_only(name: str) -> dict[str, Any]:
    """What a plan for a case says, and how long it took to make: no device, no memory for parameters."""
    import torch

    from stretto.checks import parse_bytes
    from stretto.memory.options import StepOptions, StepSource
    from stretto.memory.planner.planner import PlannerSettings
    from stretto.memory.planning import planned

    case, row = CASES[name], {"what": name}
    began = time.perf_counter()
    job = case.make(True)
    settings = PlannerSettings(case.budget(CARD), host_budget=parse_bytes(case.host))
    try:
        captured, graph, made = planned(
            StepSource(job.step, job.modules, job.optimizers, job.batch, torch.device("cpu")),
            settings,
            StepOptions(chunks=case.chunks),
        )
    except Exception as error:
        return row | {"note": f"{type(error).__name__}: {error}", "seconds in all": _since(began)}
    parameters = sum(p.numel() for module in job.modules for p in module.parameters())
    return row | {
        "size": f"{parameters / 1e9:.2f} B parameters",
        "budget GiB": round(settings.budget / GIB, 2),
        "predicted peak GiB": round((made.costs.peak + captured.lifted.borrowed) / GIB, 2),
        "host GiB": round(made.costs.host / GIB, 1),
        "predicted s": round(made.costs.seconds, 3),
        "of that computing s": round(sum(node.seconds for node in graph.nodes), 3),
        "note": f"{len(graph.nodes):,} operations; {'; '.join(made.notes)}",
        "seconds in all": _since(began),
    }


def _since(began: float) -> float:
    return round(time.perf_counter() - began, 1)


def tried(name: str) -> dict[str, Any]:
    """Some steps with one model."""
    import torch

    from stretto.memory import step

    case = CASES[name]
    total = torch.cuda.get_device_properties(0).total_memory
    row: dict[str, Any] = {"what": name}
    job: Any = None
    planned: Any = None
    began = time.perf_counter()
    try:
        torch.manual_seed(0)
        job = case.make(False)
        parameters = sum(p.numel() for module in job.modules for p in module.parameters())
        row["size"] = f"{parameters / 1e9:.2f} B parameters"
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(min(1.0, (case.cap or total) / total))
        budget = case.budget(total)
        row["budget GiB"] = round(budget / GIB, 2)
        made = time.perf_counter()
        # Not recorded: a recording has its own memory, and steps of this size wait for the device anyway.
        how: dict[str, Any] = {"host_budget": case.host, "chunks": case.chunks, "record": False}
        with metered():
            planned = step(job.step, job.modules, job.optimizers, job.batch, budget=budget, **how)
        row["planned in s"] = _since(made)
        print(f"{name}: made in {made - began:.0f} s, planned in {row['planned in s']} s\n{planned.report}", flush=True)
        seconds, losses = [], []
        for k in range(STEPS):
            with turn() if k == STEPS - 1 else contextlib.nullcontext():  # the time of the last one is reported
                at = time.perf_counter()
                losses.append(float(planned(job.batch)))
                torch.cuda.synchronize()
                seconds.append(time.perf_counter() - at)
            print(f"  loss {losses[-1]:.4f}, {seconds[-1]:.2f} s", flush=True)
        row |= {
            "s a step": round(seconds[-1], 3),
            "peak GiB": round(torch.cuda.max_memory_allocated() / GIB, 2),
            "reserved GiB": round(torch.cuda.max_memory_reserved() / GIB, 2),
            "host GiB": round(planned.planned.costs.host / GIB, 1),
            "predicted s": round(planned.report.seconds, 3),
            "predicted peak GiB": round(planned.report.peak / GIB, 2),
            "note": f"{len(planned.planned.program.graph.nodes):,} operations, losses {[round(x, 3) for x in losses]}",
        }
    except Exception as error:
        row["note"] = f"{type(error).__name__}: {str(error).splitlines()[0][:300] if str(error) else ''}"
    finally:
        row["seconds in all"] = _since(began)
        del job, planned
        gc.collect()
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    return row
