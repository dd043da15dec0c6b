"""Whether tensors are where a plan of `st.memory` says: every address of three steps, compared on a GPU.

    python -m bench memory_addresses --models vit_l,lora --shares 0.35,0.15

A line for each model and budget: how many allocations of more than a megabyte were compared, how many were elsewhere,
and reserved bytes as a share of the budget. Operations are called one by one: within a recording no address can be
read.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any
from unittest import mock

from stretto.memory.addresses.arena import Arena
from stretto.memory.addresses.lifetimes import find_lifetimes
from stretto.memory.planner.instructions import ALLOCATE, HOLD, RELEASE, UNHOLD, DeviceProgram

STEPS = 3


def parser() -> argparse.ArgumentParser:
    """The options of this measurement."""
    about = (__doc__ or "").splitlines()[0]
    found = argparse.ArgumentParser(prog="python -m bench memory_addresses", description=about)
    found.add_argument("--models", default="seen", help="names, separated by commas; all, seen or unseen")
    found.add_argument("--shares", default="0.35", help="budgets as shares of eager's reserved bytes")
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare, model by model."""
    wanted = parser().parse_args([] if arguments is None else arguments)
    import torch

    if not torch.cuda.is_available():
        print("memory_addresses: no CUDA device here; nothing compared")
        return
    from .memory_graphs import plain_step
    from .memory_zoo_options import names_of, shares_of
    from .zoo import ZOO

    groups = {"seen": True, "unseen": False}
    given = wanted.models
    if given in groups:
        given = ",".join(name for name, entry in ZOO.items() if entry.seen is groups[given])
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    for name in names_of(given, list(ZOO), "--models"):
        reserved = int(plain_step(name, "cuda", "full")["reserved"])
        for share in shares_of(wanted.shares):
            compare(name, share, int(share * reserved))


def expected(program: DeviceProgram) -> dict[int, dict[int, int]]:
    """By instruction, {storage: address in the arena}, as the model of the allocator has them.

    Raises
    ------
    Full
        Where the arena of the program is too small for it.
    """
    lifetimes, arena = find_lifetimes(program), Arena(program.arena or 0)
    at: dict[int, int] = {}
    held: list[int] = []
    found: dict[int, dict[int, int]] = {}
    for what, which in program.opening:
        if what == HOLD:
            held.append(arena.allocate(which))
        elif what == ALLOCATE:
            k = next(k for k in lifetimes.first if lifetimes.storage[k] == which)
            at[k] = arena.allocate(lifetimes.nbytes[k])
    for address in held:
        arena.free(address)
    held = []
    for place, (what, which) in enumerate(program.instructions):
        for k in lifetimes.freed.get(place, ()):
            arena.free(at.pop(k))
        if what == HOLD:
            held.append(arena.allocate(which))
        elif what == UNHOLD:
            arena.free(held[which])
            held[which] = -1
        elif what == RELEASE:
            for address in held:
                if address >= 0:
                    arena.free(address)
            held = []
        for event in lifetimes.requests.get(place, ()):
            if event < 0:
                arena.free(at.pop(~event))
                continue
            at[event] = arena.allocate(lifetimes.nbytes[event])
            if lifetimes.storage[event] >= 0:
                found.setdefault(place, {})[lifetimes.storage[event]] = at[event]
    return found


class Compared:
    """Compares a runner's tensors after every instruction."""

    def __init__(self) -> None:
        self.runner: Any = None
        self.seen = self.elsewhere = self.begins = 0
        self._expected: dict[int, dict[int, int]] | None = None

    def taken(self, runner: Any) -> None:
        """A new runner: its program is another one."""
        self.runner, self._expected = runner, None

    def __call__(self, place: int) -> None:
        if self._expected is None:
            self._expected = expected(self.runner.program)
        for s, address in self._expected.get(place, {}).items():
            tensor = self.runner.a[s]
            if tensor is not None:
                self.seen += 1
                self.elsewhere += tensor.untyped_storage().data_ptr() - self.begins != address


def compare(name: str, share: float, budget: int) -> None:
    """One model at one budget."""
    import torch

    from stretto.memory import step as planned_step
    from stretto.memory.run.cuda_device import CudaDevice
    from stretto.memory.run.execute import Runner

    from . import zoo
    from .memory_zoo_observe import to_host

    watch, made, block = Compared(), Runner.__init__, CudaDevice._touch_block

    def watched(self: Any, *args: Any, **options: Any) -> None:
        watch.taken(self)
        made(self, *args, **(options | {"watch": watch}))

    def first(self: Any, nbytes: int) -> None:
        block(self, nbytes)
        if torch.cuda.current_stream() == self._computing:
            watch.begins = self.allocate(nbytes).data_ptr()  # the block that was just freed, as a whole

    job = zoo.make(name, "cuda", "full")
    to_host(job)
    torch.cuda.empty_cache()
    with mock.patch.object(Runner, "__init__", watched), mock.patch.object(CudaDevice, "_touch_block", first):
        options = {"budget": budget, "record": False, "chunks": "auto", "device": "cuda"}
        run = planned_step(job.step, job.modules, job.optimizers, job.batch, **options)  # type: ignore[arg-type]
        most = 0
        for _ in range(STEPS):
            torch.cuda.reset_peak_memory_stats()
            run(job.batch)
            most = max(most, torch.cuda.max_memory_reserved())
    held = f"{most / budget:.3f} of the budget reserved"
    print(f"{name:20} {share:5.0%} {watch.seen} addresses compared, {watch.elsewhere} elsewhere, {held}", flush=True)
