"""Trying many plans on one model: the trace and the costs are made once and shared by all of them.

trial = Trial("resnet", "fp32", {"batch": 64})
eager = trial.eager()
row = trial.plan(Settings(eager["peak"] // 3))
row["peak"], row["seconds"], row["how"]    # measured on a GPU; without one as planned, from a roofline

Without a GPU the model has no memory (the "meta" device) and eager stands for the plan in which nothing moves.
STRETTO_PLACE=cpu makes real steps in ordinary memory, of which only the seconds are measured: to try a script.
"""

from __future__ import annotations

import gc
import os
import re
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from stretto.memory.measure.costs import costed
from stretto.memory.options import StepOptions, StepSource
from stretto.memory.planner.fixed_partitions import choose, load_steps
from stretto.memory.planner.graph import Graph
from stretto.memory.planner.idle_intervals import find_idle_intervals
from stretto.memory.planner.lower import lower
from stretto.memory.planner.order import ORDERS
from stretto.memory.planner.planner import Infeasible, PlannedProgram, PlannerSettings, make, smallest_budget
from stretto.memory.planner.program import account
from stretto.memory.planner.timeline import build_timeline
from stretto.memory.planning import CapturedStep, capture, remaining_budget
from stretto.memory.run.cuda_device import CudaDevice
from stretto.memory.run.devices import Device, PlainDevice
from stretto.memory.run.execute import Runner
from stretto.memory.run.graph_segments import cut

from .memory_models import MODELS, Job
from .memory_turns import metered, turn

GIB = 2**30
CAP = 12 * GIB
SPARE = 512 << 20  # of the cap: workspaces of libraries, and what the allocator cannot use
FREE = 1 << 50  # a budget that binds nothing
WARM, STEPS = 1, 3
RECORD = bool(os.environ.get("STRETTO_RECORD"))  # plans are played as recordings, which their third step makes
ITEMS = {"resnet": "images", "gpt": "tokens", "moe": "sentences", "lstm": "sequences", "wgan": "images"}

Row = dict[str, Any]


def place() -> str:
    """Where models are: "cuda", "meta" (they are only planned), or "cpu" if asked for."""
    return "cuda" if bool(torch.cuda.is_available()) else os.environ.get("STRETTO_PLACE", "meta")


def on_gpu() -> bool:
    """Whether bytes are measured."""
    return place() == "cuda"


def where() -> str:
    """What the numbers were made on."""
    if on_gpu():
        return f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {time.strftime('%Y-%m-%d')}"
    if place() == "cpu":
        return "ordinary memory, to try the script"
    return f"no GPU: planned for an H200 by roofline, torch {torch.__version__}, {time.strftime('%Y-%m-%d')}"


def prepare() -> None:
    """Settings for the whole run; before anything is on a GPU."""
    os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False


def cap(nbytes: int | None) -> None:
    """The allocator may take so many bytes and no more; None: all there is."""
    if on_gpu():
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(1.0 if nbytes is None else min(1.0, nbytes / total))


def clean() -> None:
    """Give back what nobody holds."""
    gc.collect()
    if on_gpu():
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def made(name: str, dtype: str, options: dict[str, Any]) -> Job:
    """A job that can run; without a GPU one that is only planned."""
    torch.manual_seed(0)
    return unseen(name, dtype, options) if place() == "meta" else MODELS[name](place(), dtype, **options)


def unseen(name: str, dtype: str, options: dict[str, Any]) -> Job:
    """A job that is only planned: it has no memory, and that of its batch is untouched."""
    with torch.device("meta"):
        job = MODELS[name]("meta", dtype, **options)
    batch = pytree.tree_map(lambda t: torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="cpu"), job.batch)
    return Job(job.step, job.modules, job.optimizers, batch, job.blocks)


def items(name: str, batch: Any) -> int:
    """What a step trains on: images, sequences, sentences; of GPT the tokens."""
    first = pytree.tree_leaves(batch)[0]
    if name == "gpt":
        return int(first.numel())
    return int(first.shape[1] if name == "lstm" else first.shape[0])


def failed(error: BaseException) -> str:
    """An error as one line of a table."""
    if isinstance(error, torch.cuda.OutOfMemoryError):
        tried = re.search(r"Tried to allocate [\d.]+ \w+", str(error))
        return f"out of memory: {tried[0].lower()}" if tried else "out of memory"
    return f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"


def timed(step: Callable[[], Any], warm: int = WARM, steps: int = STEPS) -> Row:
    """Real steps: median seconds and on a GPU the most bytes in use, after warming up."""
    with turn():
        return _timed(step, warm, steps)


def _timed(step: Callable[[], Any], warm: int, steps: int) -> Row:
    for _ in range(warm):
        step()
    wait()
    if on_gpu():
        torch.cuda.reset_peak_memory_stats()
    seconds = []
    for _ in range(steps):
        began = time.perf_counter()
        step()
        wait()
        seconds.append(time.perf_counter() - began)
    row = {"how": "measured", "seconds": statistics.median(seconds)}
    return row | ({"peak": torch.cuda.max_memory_allocated()} if on_gpu() else {})


def wait() -> None:
    """Until the GPU is done."""
    if on_gpu():
        torch.cuda.synchronize()


class Reusing(CudaDevice):
    """A GPU whose host memory is pinned once, which takes seconds, and used by one plan after another."""

    slab: torch.Tensor | None = None

    def allocate_host(self, nbytes: int) -> torch.Tensor:
        if Reusing.slab is None or len(Reusing.slab) < nbytes:
            Reusing.slab = None
            Reusing.slab = super().allocate_host(nbytes)
            super().pin(Reusing.slab)
        return Reusing.slab[:nbytes]

    def pin(self, room: torch.Tensor) -> None:
        """It is pinned already, all of it."""


class Trial:
    """One model. `eager()` comes first, then any number of plans."""

    def __init__(self, name: str, dtype: str, options: dict[str, Any]) -> None:
        self.name, self.dtype, self.options = name, dtype, options
        self.job = made(name, dtype, options)
        self.items = items(name, self.job.batch)
        self.device = torch.device("cuda", 0) if on_gpu() else torch.device("cpu")
        self._known: dict[Any, tuple[CapturedStep, Graph]] = {}
        self._runner: Runner | None = None
        self._moved = False  # by a plan: persistent tensors may be on the host
        self.about = 1 << 40  # bytes that plans will be made for: small parameters are updated together up to a share

    def eager(self) -> Row:
        """The step as it is. Plans after it are expected to have about a third of its peak."""
        row: Row = {}
        if not on_gpu():
            _, graph = self.captured()
            costs = make(graph, PlannerSettings(FREE, policy="keep")).costs
            row = {"how": "planned", "seconds": costs.seconds, "peak": costs.peak + self.captured()[0].lifted.borrowed}
            self._known.clear()
        if place() != "meta":
            try:
                row |= timed(lambda: self.job.step(self.job.batch))
            except torch.cuda.OutOfMemoryError as error:
                row = {"how": "measured", "failed": failed(error)}
            if "failed" in row:  # an optimizer may have made half of its state
                self._anew()
            for optimizer in self.job.optimizers:
                optimizer.zero_grad()
            clean()
        self.about = row.get("peak", CAP) // 3
        return self._whole(row)

    def captured(self, chunks: int | str | None = None) -> tuple[CapturedStep, Graph]:
        """The trace and its graph with costs, made once."""
        if chunks not in self._known:
            job = self.job
            found = capture(
                StepSource(job.step, job.modules, job.optimizers, job.batch, self.device),
                self.about,
                StepOptions(chunks=chunks),
            )
            with metered():
                self._known[chunks] = found, costed(found.lifted, self.device)
        return self._known[chunks]

    def least(self, settings: PlannerSettings, chunks: int | str | None = None) -> int:
        """The smallest budget that these settings can have."""
        captured, graph = self.captured(chunks)
        return smallest_budget(graph, settings) + captured.lifted.borrowed

    def plan(self, settings: PlannerSettings, chunks: int | str | None = None) -> Row:
        """Plan, and on a GPU some steps with it."""
        began = time.perf_counter()
        captured, graph = self.captured(chunks)
        try:
            found = make(graph, remaining_budget(settings, captured.lifted))
        except Infeasible as error:
            said = error.with_other_memory(captured.lifted.other_bytes, settings.budget)
            return self._whole({"how": "planned", "failed": failed(said)})
        return self._taken(captured, graph, found, began)

    def dissertation(self, **options: Any) -> Row:
        """Chapter 6 as it is: at most two partitions at a time, which is the smallest budget its plan can have."""
        began = time.perf_counter()
        captured, graph = self.captured()
        settings = PlannerSettings(FREE, policy="dissertation", **options)
        if options.get("order") == "program":  # the policy has no such order: its parts, one after another
            intervals = find_idle_intervals(graph.reordered(ORDERS["program"](graph)), place=settings.place)
            steps = build_timeline(intervals, choose(intervals, settings.partition, settings.distance))
            budget = _roomy(max(steps.start, *steps.required))
            program = lower(intervals.graph, steps, budget, settings.link, first=load_steps(steps, settings.partition))
            found = PlannedProgram(program.program, account(program.program, settings.link), settings)
        else:
            budget = _roomy(smallest_budget(graph, settings))
            found = make(graph, PlannerSettings(budget, policy="dissertation", **options))
        return self._taken(captured, graph, found, began)

    def _taken(self, captured: CapturedStep, graph: Graph, found: PlannedProgram, began: float) -> Row:
        costs = found.costs
        row: Row = {
            "how": "planned",
            "peak": costs.peak + captured.lifted.borrowed,
            "seconds": costs.seconds,
            "waited": costs.waited,
            "repeated": costs.repeated,
            "host": costs.host,
            "nodes": len(graph.nodes),
            "notes": [*found.notes, *captured.notes],
            "prepared": time.perf_counter() - began,
        }
        if place() != "meta":
            row |= {"predicted_peak": row["peak"], "predicted_seconds": row["seconds"]}
            try:
                row |= self._run(captured, graph, found)
            except (RuntimeError, MemoryError) as error:
                for name in ("peak", "seconds"):
                    del row[name]
                row["failed"] = failed(error)
            if "failed" in row:  # what was under way is lost
                self._anew()
        return self._whole(row)

    def _run(self, captured: CapturedStep, graph: Graph, found: PlannedProgram) -> Row:
        self.rest()
        device: Device = PlainDevice()
        if on_gpu():
            device = Reusing(self.device) if self._brought_back() else CudaDevice(self.device)
        clean()
        numbers = {id(node): n for n, node in enumerate(graph.nodes)}
        order = [numbers[id(node)] for node in found.program.graph.nodes]
        job = self.job
        apart = {n for n, node in enumerate(found.program.graph.nodes) if node.phase == "update"}
        play: dict[str, Any] = {"record": cut(found.program, apart, found.settings.link)[0]} if RECORD else {}
        runner = Runner(captured.lifted, found.program, order, captured.traced.watched, job.optimizers, device, **play)
        self._runner, self._moved = runner, True
        tensors = pytree.tree_leaves(job.batch)
        try:
            return timed(lambda: runner(tensors), 2 if RECORD else WARM)  # it is recording that takes most memory
        finally:
            self.rest()

    def _brought_back(self) -> bool:
        """Bring persistent tensors back to the device, out of host memory that the next plan will use; false if they
        do not fit."""
        if not self._moved:
            return True
        try:
            with torch.no_grad():
                for module in self.job.modules:
                    for tensor in (*module.parameters(), *module.buffers()):
                        tensor.data = tensor.data.to(self.device)
                for optimizer in self.job.optimizers:
                    for state in optimizer.state.values():
                        for name, kept in state.items():
                            if isinstance(kept, torch.Tensor) and kept.dim():
                                state[name] = kept.to(self.device)
        except torch.cuda.OutOfMemoryError:
            return False
        wait()
        return True

    def _anew(self) -> None:
        self._known.clear()
        self._runner, self._moved = None, False
        del self.job
        clean()
        self.job = made(self.name, self.dtype, self.options)

    def rest(self) -> None:
        """Wait for what is under way and let go of the last plan; parameters stay where they are."""
        if self._runner is not None:
            self._runner.settle()
            self._runner = None

    def _whole(self, row: Row) -> Row:
        return {"model": self.name, "dtype": self.dtype, "options": self.options, "items": self.items} | row


def _roomy(least: int) -> int:
    return int(1.05 * least) + (64 << 20)
