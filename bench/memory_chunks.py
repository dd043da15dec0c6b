"""Operations in chunks: what it takes to train models in which single operations are too large, on a GPU.

For each model: eager; the smallest budget for which there is a plan of whole operations; then steps with half and a
quarter of that budget, which need chunks (`chunks="auto"`); and the batch in four parts with nothing else moved
(`chunks={"batch": 4}`; of padded experts the experts). Losses of the third step are beside eager's. Without a GPU the
last of these is estimated, beside the plan in which nothing moves and nothing is cut.
"""

# STRETTO_CASES: which models. STRETTO_TOY: tiny ones, in ordinary memory, where only the seconds are measured.

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import report

if TYPE_CHECKING:
    import torch

    from .memory_models import Job

NAME = "memory_chunks"
SHARES = (0.5, 0.25)
COLUMNS = (
    "model",
    "how",
    "budget GiB",
    "peak GiB",
    "ms",
    "of eager's",
    "predicted GiB",
    "predicted ms",
    "loss",
    "note",
)
GIB = 2**30


def main() -> None:
    """Measure, and write the page and the numbers."""
    from .memory_runs import on_gpu, prepare, where

    toy = bool(os.environ.get("STRETTO_TOY"))
    prepare()
    folder = Path(os.environ.get("OUT", report.RESULTS))
    wanted = os.environ.get("STRETTO_CASES", "").split() or list(CASES)
    rows: list[dict[str, Any]] = []
    for name in wanted:
        for row in one_case(name, "cuda" if on_gpu() else "cpu", toy) if toy or on_gpu() else estimated(name):
            rows.append(row)
            print({k: v for k, v in row.items() if v != ""}, flush=True)
            (folder / f"{NAME}.json").write_text(json.dumps(rows, indent=1))
    lines = [tuple(row.get(column, "") for column in COLUMNS) for row in rows]
    page = f"# {NAME}\n\n{report.text(__doc__)}\n\n- machine: {where()}\n- command: `python -m bench {NAME}`\n\n"
    (folder / f"{NAME}.md").write_text(page + report.table(COLUMNS, lines) + "\n")


def estimated(name: str) -> list[dict[str, Any]]:
    """Nothing moves, as a whole and in chunks, for an H200 by roofline; the model has no memory."""
    import torch
    from torch.utils import _pytree as pytree

    from stretto.memory.measure.costs import costed
    from stretto.memory.options import StepOptions, StepSource
    from stretto.memory.planner.planner import PlannerSettings, make
    from stretto.memory.planning import capture

    made, dimension = CASES[name]
    cpu, rows = torch.device("cpu"), []
    for chunks in (None, {dimension: 4}):
        with torch.device("meta"):
            job = made("meta", False)
        batch = pytree.tree_map(lambda t: torch.empty_strided(t.shape, t.stride(), dtype=t.dtype), job.batch)
        captured = capture(
            StepSource(job.step, job.modules, job.optimizers, batch, cpu), 1 << 50, StepOptions(chunks=chunks)
        )
        costs = make(costed(captured.lifted, cpu), PlannerSettings(1 << 50, policy="keep")).costs
        how = "nothing moves, estimated" if chunks is None else f'chunks={{"{dimension}": 4}}, nothing moves, estimated'
        peak = round((costs.peak + captured.lifted.borrowed) / GIB, 3)
        rows.append({"model": name, "how": how, "predicted GiB": peak, "predicted ms": round(1e3 * costs.seconds, 1)})
    return rows


def one_case(name: str, device: str, toy: bool) -> list[dict[str, Any]]:
    """All ways of one model."""
    from stretto.memory.planner.planner import Infeasible

    make, dimension = CASES[name]
    rows = [tried(name, "eager", make, device, toy)]
    eager = rows[0].get("ms")
    floor = 0
    try:
        tried(name, "", make, device, toy, budget=1 << 20 if not toy else 1)
    except Infeasible as error:
        floor = error.smallest
    rows.append({"model": name, "how": "smallest of whole operations, planned", "budget GiB": round(floor / GIB, 3)})
    ways: list[tuple[str, dict[str, Any]]] = [
        (f'chunks="auto", {share:.0%} of that', {"budget": int(share * floor), "chunks": "auto"}) for share in SHARES
    ]
    rest = {"budget": 1 << 50, "policy": "keep", "chunks": {dimension: 4}}
    for how, options in [*ways, (f'chunks={{"{dimension}": 4}}, nothing moves', rest)]:
        try:
            row = tried(name, how, make, device, toy, **options)
        except Infeasible as error:
            row = {"model": name, "how": how, "note": str(error)}
        if eager and "ms" in row:
            row["of eager's"] = f"{row['ms'] / eager:.2f}×"
        rows.append(row)
    return rows


def tried(name: str, how: str, make: Any, device: str, toy: bool, **options: Any) -> dict[str, Any]:
    """Some steps, eager without options."""
    import torch

    from stretto.memory import Step, step

    from .memory_runs import clean, timed

    torch.manual_seed(0)
    job: Job = make(device, toy)
    began = time.perf_counter()
    row: dict[str, Any] = {"model": name, "how": how}
    function: Callable[[Any], torch.Tensor] = job.step
    if options:
        made = step(job.step, job.modules, job.optimizers, job.batch, device=device, record=False, **options)
        assert isinstance(made, Step)
        if options["budget"] < 1 << 50:
            row["budget GiB"] = round(options["budget"] / GIB, 3)
        row["predicted GiB"] = round(made.report.peak / GIB, 3)
        row["predicted ms"] = round(1e3 * made.planned.costs.seconds, 1)
        counts = [n for note in made.planned.notes for n in re.findall(r"cut into (\d+) chunks", note)]
        more = [n for note in made.planned.notes for n in re.findall(r"\d+ more groups", note)]
        row["note"] = f"chunks: {', '.join(counts + more)}; ready after {time.perf_counter() - began:.0f} s"
        function = made
    clean()
    losses = [float(function(job.batch).detach()) for _ in range(3)]
    found = timed(lambda: function(job.batch))
    row |= {"ms": round(1e3 * found["seconds"], 1), "loss": round(losses[-1], 5)}
    if "peak" in found:
        row["peak GiB"] = round(found["peak"] / GIB, 3)
    return row


def _attention(device: str, toy: bool) -> Job:
    """Four layers of attention that is written out: (texts, heads, places, places) as a whole, several times over."""
    import torch
    from torch import nn

    from .memory_models import Block, Transformer, feed_forward, supervised

    class Written(Block):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            b, t, d = x.shape
            q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
            later = torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1)
            seen = (q @ k.transpose(-1, -2) * (d // self.heads) ** -0.5).masked_fill(later, float("-inf")).softmax(-1)
            x = x + self.out((seen @ v).transpose(1, 2).reshape(b, t, d))
            return x + self.feed(self.n2(x))

    texts, places, width, words = (4, 64, 128, 64) if toy else (8, 2048, 1024, 8192)
    blocks: list[nn.Module] = [Written(width, width // 64, feed_forward(width)) for _ in range(1 if toy else 4)]
    model = Transformer(words, width, places, blocks).to(device)
    x, y = (torch.randint(0, words, (texts, places), device=device) for _ in range(2))
    return supervised(model, torch.optim.AdamW(model.parameters(), lr=1e-4), (x, y), device, "fp32", blocks)


def _images(device: str, toy: bool) -> Job:
    """Convolutions with group norms, on large images."""
    import torch
    from torch import nn

    from .memory_models import supervised

    def block(a: int, b: int) -> list[nn.Module]:
        return [nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(8, b), nn.ReLU()]

    wide, batch, side = (8, 8, 16) if toy else (64, 64, 256)
    layers = [*block(3, wide), *block(wide, wide), nn.MaxPool2d(4), *block(wide, 2 * wide), nn.AdaptiveAvgPool2d(1)]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(2 * wide, 10)).to(device)
    batch_ = torch.randn(batch, 3, side, side, device=device), torch.randint(0, 10, (batch,), device=device)
    return supervised(model, torch.optim.SGD(model.parameters(), lr=0.01), batch_, device, "fp32", [])


def _wide(device: str, toy: bool) -> Job:
    """A transformer's feed-forward parts, much wider inside."""
    import torch
    from torch import nn

    from .memory_models import supervised

    rows, width, inner = (64, 16, 256) if toy else (16384, 1024, 32768)
    parts = [nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width)) for _ in range(2)]
    model = nn.Sequential(*parts, nn.Linear(width, 16)).to(device)
    batch = torch.randn(rows, width, device=device), torch.randint(0, 16, (rows,), device=device)
    return supervised(model, torch.optim.SGD(model.parameters(), lr=0.01), batch, device, "fp32", list(parts))


def _gpt(device: str, toy: bool) -> Job:
    from .memory_models import gpt

    options: dict[str, Any] = {"batch": 4, "length": 16, "width": 64, "layers": 1, "words": 64} if toy else {}
    return gpt(device, "fp32" if toy else "bf16", **options)


def _experts(device: str, toy: bool) -> Job:
    from .memory_models import moe

    small: dict[str, Any] = {"length": 16, "width": 64, "inner": 64, "layers": 1, "experts": 4, "words": 64}
    return moe(device, padded=True, **(small if toy else {"experts": 16, "batch": 32, "length": 512}))


CASES: dict[str, tuple[Callable[[str, bool], Job], str]] = {
    "attention": (_attention, "batch"),
    "images": (_images, "batch"),
    "wide": (_wide, "batch"),
    "gpt": (_gpt, "batch"),
    "experts": (_experts, "experts"),
}
