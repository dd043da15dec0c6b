"""One model of the zoo, in a process of its own: eager, ours under several budgets, peers. See memory_zoo."""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from stretto.memory import stepping
from stretto.memory.costs import costed
from stretto.memory.guard import CannotCapture
from stretto.memory.planner import Infeasible, Settings
from stretto.memory.report import Report

from . import zoo
from .memory_models import Job
from .memory_peers import checkpointed, compiled, fully_sharded, saved_on_cpu
from .memory_turns import metered, turn

UNBOUNDED = 1 << 50  # a budget that binds nothing
# After so many steps of training two runs in the same arithmetic differ by less than this share of the loss.
TOLERANCES = {"fp32": 1e-4, "bf16": 2e-2, "pure": 2e-2}
PEERS: dict[str, Callable[[Job], Any]] = {
    "compile": compiled(1.0),
    **{f"compile-{share}": compiled(share) for share in (0.5, 0.3, 0.1)},
    "checkpoint": checkpointed,
    "save_on_cpu": saved_on_cpu,
    "fsdp2": fully_sharded,
}

Row = dict[str, Any]


@dataclass(frozen=True)
class Options:
    """What is measured of a model, and how.

    Attributes
    ----------
    device, size : str
        "cuda" or "cpu"; "full" or "tiny".
    shares : tuple of float
        Budgets of ours, as shares of the bytes that eager reserves (on a CPU: of the plan in which nothing moves).
    peers : tuple of str
        Keys of `PEERS`.
    warm, timed : int
        Steps before timing, of which the third one is recorded on a GPU, and steps that are timed.
    compiles : bool
        Also ours with ``compile=True``.
    chunks : str, optional
        "auto" or None, handed to `stretto.memory.step`.
    seconds : float
        Time for the whole model. What does not begin in it is left out, and says so.
    sharing : bool
        Other models are measured on the device at the same time: measurements take turns.
    """

    device: str = "cuda"
    size: str = "full"
    shares: tuple[float, ...] = (1.0, 0.5, 0.35, 0.15)
    peers: tuple[str, ...] = ()
    warm: int = 3
    timed: int = 5
    compiles: bool = False
    chunks: str | None = "auto"
    seconds: float = math.inf
    sharing: bool = False

    @property
    def gpu(self) -> bool:
        """Whether bytes are measured."""
        return self.device == "cuda"


class OneModel:
    """All measurements of one model; each gives a row, which `write` receives at once."""

    def __init__(self, name: str, options: Options, write: Callable[[Row], None]) -> None:
        self.name, self.options, self._write = name, options, write
        self.entry = zoo.ZOO[name]
        self._until = time.monotonic() + options.seconds
        self._eager: Row = {}
        self._losses: list[float] = []
        self._state: list[torch.Tensor] = []

    def run(self) -> None:
        """Eager twice, then everything else that was asked for."""
        self.eager()
        if "reserved" not in self._eager:
            return
        for joined in (False, True) if self.options.compiles else (False,):
            refused: Row = {}
            for share in sorted(self.options.shares, reverse=True):
                if refused and refused["smallest"] > share * self._eager["reserved"]:
                    self._write(refused | {"share": share, "budget": int(share * self._eager["reserved"])})
                    continue
                row = self.ours(share, joined=joined)
                if "smallest" in row:  # so are smaller budgets; the smallest that is offered must work
                    refused = row
                    self.ours(row["smallest"] / self._eager["reserved"], joined=joined, budget=row["smallest"])
        for peer in self.options.peers:
            self.measured(peer, PEERS[peer])

    # -- methods ---------------------------------------------------------------------------------------------------

    def eager(self) -> None:
        """The step as it is, and once more: how far two runs of eager are apart is what ours may be apart from it."""
        self._eager = self._measured("eager", lambda job: job.step, {})
        if "failed" not in self._eager and not self.options.gpu:
            job = zoo.make(self.name, self.options.device, self.options.size)
            self._eager["reserved"] = self._eager["allocated"] = plain_peak(job)
        if "failed" not in self._eager:
            again = self._measured("eager again", lambda job: job.step, {})
            self._eager |= {f"own_{key}": again.get(key) for key in ("bits", "loss_difference", "state_difference")}
        self._write(self._eager)

    def ours(self, share: float, *, joined: bool, budget: int | None = None) -> Row:
        """A planned step under a share of eager's reserved bytes; joined: with ``compile=True``."""
        from stretto.memory import step

        budget = budget or int(share * self._eager["reserved"])

        def change(job: Job) -> Any:
            return step(
                job.step,
                job.modules,
                job.optimizers,
                job.batch,
                budget=budget,
                chunks=self.options.chunks,
                compile=joined,
                device=self.options.device,
            )

        name = "ours, compiled" if joined else "ours"
        return self.measured(name, change, {"share": share, "budget": budget})

    # -- measuring -------------------------------------------------------------------------------------------------

    def measured(self, method: str, change: Callable[[Job], Any], known: Row | None = None) -> Row:
        """One method on a fresh job; its row is written."""
        row = self._measured(method, change, known or {})
        self._write(row)
        return row

    def _measured(self, method: str, change: Callable[[Job], Any], known: Row) -> Row:
        row: Row = {"model": self.name, "dtype": self.entry.dtype, "seen": self.entry.seen, "method": method}
        row |= known
        if time.monotonic() > self._until:
            row["failed"] = f"left out: the {self.options.seconds:.0f} seconds of this model were over"
            return row
        began = time.monotonic()
        try:
            row |= self._steps(method, change)
        except Infeasible as error:
            row |= {"failed": _line(error), "smallest": error.smallest, "side": error.side}
            if error.side != "device":
                del row["smallest"]
        except Exception as error:
            row["failed"] = _line(error)
        finally:
            if "torch._dynamo" in sys.modules:  # seldom: importing it takes seconds
                sys.modules["torch._dynamo"].reset()
                torch._functorch.config.activation_memory_budget = 1.0
            self._clean()
        row["took"] = time.monotonic() - began
        return row

    def _steps(self, method: str, change: Callable[[Job], Any]) -> Row:
        self._clean()
        row: Row = {"before": torch.cuda.memory_reserved()} if self.options.gpu else {}
        job = zoo.make(self.name, self.options.device, self.options.size)
        if method.startswith("ours") and self.options.gpu:  # a user whose model does not fit makes it on the host
            _to_host(job)
        self._clean()
        with _warnings() as warned:
            began, cpu = time.perf_counter(), time.process_time()
            with metered() if self.options.sharing else contextlib.nullcontext(), _clocks(row):
                step = change(job)
            if step is None:
                return row | {"failed": "not for this model"}
            row |= {"prepared": time.perf_counter() - began, "prepared_cpu": time.process_time() - cpu}
            if self.options.gpu:
                row["planning_reserved"] = torch.cuda.max_memory_reserved()
            with contextlib.ExitStack() as alone:
                row |= self._timed(step, job, alone, at=int("compile" in method))
        row |= predicted(step, warned)
        if hasattr(step, "settle"):  # parameters can be read then, wherever they are
            step.settle()
        return row | self._compared(method, row["losses"], job)

    def _timed(self, step: Any, job: Job, alone: contextlib.ExitStack, at: int) -> Row:
        """Steps; nobody else runs from step number `at` on: a first one that compiles takes many seconds."""
        losses, seconds, reserved, allocated = [], [], 0, 0
        for number in range(self.options.warm + self.options.timed):
            if self.options.sharing and number == at:
                alone.enter_context(turn())
            torch.manual_seed(number)
            began = time.perf_counter()
            loss = step(job.batch)
            if self.options.gpu:
                torch.cuda.synchronize()
                # After every step: a planned one resets these statistics for itself when it begins.
                reserved = max(reserved, torch.cuda.max_memory_reserved())
                allocated = max(allocated, torch.cuda.max_memory_allocated())
            seconds.append(time.perf_counter() - began)
            losses.append(float(loss.detach()))
            job.after()
        timed = seconds[self.options.warm :]
        row: Row = {"seconds": statistics.median(timed), "slowest": max(timed), "first": seconds[0], "losses": losses}
        if self.options.gpu:
            row |= {"reserved": reserved, "allocated": allocated}
        return row

    def _compared(self, method: str, losses: list[float], job: Job) -> Row:
        """How far losses, parameters and buffers are from eager's."""
        found = [t.detach() for module in job.modules for t in (*module.parameters(), *module.buffers())]
        state = [t.full_tensor() if hasattr(t, "full_tensor") else t for t in found]  # FSDP2 has shards
        if method == "eager":
            self._losses, self._state = losses, [t.to("cpu", copy=True) for t in state]
            return {}
        pairs = zip(losses, self._losses, strict=True)
        loss = max((abs(a - b) / max(abs(b), 1e-12) if a != b else 0.0) for a, b in pairs)
        far = [distance(a, b, self.options.device) for a, b in zip(state, self._state, strict=True)]
        row = {"loss_difference": loss, "state_difference": max(far), "bits": loss == 0.0 and max(far) == 0.0}
        own = self._eager.get("own_loss_difference") or 0.0
        return row | {"agrees": loss <= max(3 * own, TOLERANCES[self.entry.dtype])}

    def _clean(self) -> None:
        """Give back all that nothing holds, and count from here."""
        gc.collect()
        if self.options.gpu:
            torch.cuda.synchronize()
            if clear := getattr(torch._C, "_cuda_clearCublasWorkspaces", None):  # one for every stream it ever saw
                clear()
            torch.cuda.empty_cache()
            if empty := getattr(torch._C, "_host_emptyCache", None):  # what save_on_cpu pinned
                empty()
            torch.cuda.reset_peak_memory_stats()


def _to_host(job: Job) -> None:
    """Move parameters, buffers and what optimizers made beforehand (Adagrad does) to the host."""
    for module in job.modules:
        module.to("cpu")
    for optimizer in job.optimizers:
        for state in optimizer.state.values():
            state |= {name: kept.cpu() for name, kept in state.items() if isinstance(kept, torch.Tensor)}


def plain_peak(job: Job) -> int:
    """Bytes of the plan in which nothing moves, on a CPU."""
    wanted = Settings(UNBOUNDED, policy="keep")
    try:
        captured, _, made = stepping.planned(
            job.step, job.modules, job.optimizers, job.batch, torch.device("cpu"), wanted
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
def _clocks(row: Row) -> Iterator[None]:
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
        mock.patch.object(stepping, "planned", clocked("planning", stepping.planned)),
        mock.patch.object(stepping, "costed", clocked("measuring", costed)),
    ):
        yield


@contextlib.contextmanager
def _warnings() -> Iterator[list[str]]:
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
    plays = any("recording is" in note for note in step.planned.notes)
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


def _line(error: BaseException) -> str:
    said = str(error).strip().splitlines()
    return f"{type(error).__name__}: {said[0][:300] if said else ''}"


def machine() -> str:
    """What the numbers are of."""
    where = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    return f"{where}, torch {torch.__version__}, {os.environ.get('PYTORCH_CUDA_ALLOC_CONF', 'default allocator')}"


def measure(names: Iterable[str], options: Options, out: Path) -> None:
    """Measure models one after another; every row is appended to a file of JSON lines as soon as it is known."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False

    def write(row: Row) -> None:
        text = json.dumps(row | {"machine": machine(), "size": options.size, "date": time.strftime("%Y-%m-%d")})
        with open(out, "a", encoding="utf-8") as file:
            file.write(text + "\n")
        print(said(row), flush=True)

    for name in names:
        OneModel(name, options, write).run()


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


def shares_of(text: str) -> tuple[float, ...]:
    """Shares from a comma-separated list, which may be empty."""
    found = tuple(float(each) for each in text.split(",") if each.strip())
    if any(not 0 < share <= 100 for share in found):
        raise ValueError(f"--shares {text}: a share is a number above 0")
    return found


def names_of(text: str, known: Sequence[str], option: str) -> tuple[str, ...]:
    """Names from a comma-separated list; "all" and "none" are understood."""
    if text in ("all", "none", ""):
        return tuple(known) if text == "all" else ()
    found = tuple(each.strip() for each in text.split(","))
    if wrong := [each for each in found if each not in known]:
        raise ValueError(f"{option}: {wrong[0]!r} is not known; give some of {', '.join(known)}")
    return found
