"""The largest models that train on one GPU: depth and parameters under a cap of 12 GiB, parameters on the whole card.

A card of 12 GiB is emulated by a cap on what the allocator may take (reserved memory, not only what is in use). The
depth of a residual network is 3 times its blocks plus 2; the batch has 16 images of 224 × 224. Optimizers keep float32
state. Some steps are made with each model and the loss is looked at. Needs a CUDA device, and host memory for the rest.
"""

from __future__ import annotations

import gc
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import report

GIB = 2**30
CAP = 12 * GIB
SPARE = 512 << 20  # of the cap: workspaces of libraries, and what the allocator cannot use
STEPS = 3


def main() -> None:
    """Try the sizes that were asked for, and write the table."""
    import torch

    if not torch.cuda.is_available():
        print("memory_sizes: no CUDA device here; nothing measured")
        return
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    folder = Path(os.environ.get("OUT", report.RESULTS))
    wanted = os.environ.get("STRETTO_CASES", "").split() or list(CASES)
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


def _resnet(layers: int) -> Callable[[], Any]:
    def make() -> Any:
        from .memory_models import resnet

        return resnet("cuda", batch=16, third=(layers - 2) // 3 - 14)

    return make


def _moe(experts: int) -> Callable[[], Any]:
    def make() -> Any:
        from .memory_models import moe

        job = moe("cuda", batch=8, length=256, inner=8192, layers=12, experts=experts, factor=2.0)
        for module in job.modules:  # made on the device, which is quick, and kept on the host
            for p in module.parameters():
                p.data = p.data.cpu()
        return job

    return make


def _gpt(width: int, layers: int) -> Callable[[], Any]:
    def make() -> Any:
        from .memory_models import gpt

        return gpt("cuda", "bf16", batch=8, length=1024, width=width, layers=layers)

    return make


# name: (how it is made, cap or None for the whole card, bytes on the host)
CASES: dict[str, tuple[Callable[[], Any], int | None, str]] = {
    "resnet-1916": (_resnet(1916), CAP, "100GiB"),
    "resnet-5000": (_resnet(5000), CAP, "100GiB"),
    "moe-5B": (_moe(25), CAP, "100GiB"),
    "moe-8B": (_moe(40), CAP, "105GiB"),
    "gpt-10B": (_gpt(5120, 32), None, "100GiB"),
    "gpt-20B": (_gpt(6144, 44), None, "105GiB"),
}


def tried(name: str) -> dict[str, Any]:
    """Some steps with one model."""
    import torch

    from stretto.memory import step

    make, cap, host = CASES[name]
    total = torch.cuda.get_device_properties(0).total_memory
    row: dict[str, Any] = {"what": name}
    job: Any = None
    planned: Any = None
    began = time.perf_counter()
    try:
        torch.manual_seed(0)
        job = make()
        parameters = sum(p.numel() for module in job.modules for p in module.parameters())
        row["size"] = f"{parameters / 1e9:.2f} B parameters"
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(min(1.0, (cap or total) / total))
        budget = (cap or int(0.97 * total)) - SPARE
        row["budget GiB"] = round(budget / GIB, 2)
        made = time.perf_counter()
        planned = step(job.step, job.modules, job.optimizers, job.batch, budget=budget, host_budget=host)
        row["planned in s"] = round(time.perf_counter() - made, 1)
        print(f"{name}: made in {made - began:.0f} s, planned in {row['planned in s']} s\n{planned.report}", flush=True)
        seconds, losses = [], []
        for _ in range(STEPS):
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
        row["seconds in all"] = round(time.perf_counter() - began, 1)
        del job, planned
        gc.collect()
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    return row
