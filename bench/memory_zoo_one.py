"""One model of the zoo, in a process of its own: eager, ours under several budgets, peers. See memory_zoo."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from stretto.memory.planner.planner import Infeasible

from . import zoo
from .memory_models import Job
from .memory_turns import metered, turn
from .memory_zoo_observe import Row, clocks, collected_warnings, distance, line, plain_peak, predicted, said, to_host
from .memory_zoo_options import PEERS, Options

# After this many steps of training two runs in the same arithmetic differ by less than this share of the loss.
TOLERANCES = {"fp32": 1e-4, "bf16": 2e-2, "pure": 2e-2}


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
            row |= self._steps(method, change, known.get("budget"))
        except Infeasible as error:
            row |= {"failed": line(error), "smallest": error.smallest, "side": error.side}
            if error.side != "device":
                del row["smallest"]
        except Exception as error:
            row["failed"] = line(error)
        finally:
            self._cap(None)
            if "torch._dynamo" in sys.modules:  # seldom: importing it takes seconds
                sys.modules["torch._dynamo"].reset()
                torch._functorch.config.activation_memory_budget = 1.0
            self._clean()
        row["took"] = time.monotonic() - began
        return row

    def _cap(self, budget: int | None) -> None:
        """Let the allocator have as many bytes and no more; None: all of the device."""
        if self.options.gpu and self.options.cap:
            total = torch.cuda.get_device_properties(0).total_memory
            torch.cuda.set_per_process_memory_fraction(1.0 if budget is None else min(1.0, budget / total))

    def _steps(self, method: str, change: Callable[[Job], Any], budget: int | None) -> Row:
        self._clean()
        row: Row = {"before": torch.cuda.memory_reserved()} if self.options.gpu else {}
        job = zoo.make(self.name, self.options.device, self.options.size)
        if method.startswith("ours") and self.options.gpu:  # a user whose model does not fit makes it on the host
            to_host(job)
        self._clean()
        self._cap(budget)
        with collected_warnings() as warned:
            began, cpu = time.perf_counter(), time.process_time()
            with metered() if self.options.sharing else contextlib.nullcontext(), clocks(row):
                step = change(job)
            if step is None:
                return row | {"failed": "not for this model"}
            row |= {"prepared": time.perf_counter() - began, "prepared_cpu": time.process_time() - cpu}
            if self.options.gpu:
                row["planning_reserved"] = torch.cuda.max_memory_reserved()
            with contextlib.ExitStack() as alone:
                row |= self._timed(step, job, alone, at=int("compile" in method))
        self._cap(None)
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
