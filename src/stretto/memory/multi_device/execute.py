"""Run a planned step on several devices: each runs its own program, and values are sent between them.

    devices = [PlainDevice(), PlainDevice()]
    step = experimental_step_several(train_step, [model], [optimizer], batch, devices=devices, budget="12GiB")
    loss = step(batch)

The step is traced and cut as for one device. `mesh` chooses the device of every operation; `split` splits the graph and
plans each device. `local_step` turns every part into a `LiftedStep` with its own numbers, which an ordinary `Runner`
runs. A send leaves a copy of its bytes in the `Mailbox`; a receive waits for it.

Devices take turns in one process: a device runs until it has to wait for a value, and then another one continues. So
optimizers are never called by two devices at once. Operations that draw random numbers are called in the order of the
program across all devices. Results have the same bits as those of the same step, cut in the same way, on one device.

Only devices of the CPU are supported so far (`PlainDevice`): this tests that the plan computes the right results, not
how fast it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from stretto.errors import PlanError, RunError
from stretto.memory.capture.lifted import LiftedStep, Ref
from stretto.memory.capture.traced_state import TracedState
from stretto.memory.chunk.chunks import Chunks, check_chunks, chunk_numbers
from stretto.memory.measure.costs import Rates, costed
from stretto.memory.options import StepOptions, StepSource
from stretto.memory.planning import capture
from stretto.memory.run.devices import Device, PlainDevice
from stretto.memory.run.execute import Runner
from stretto.memory.run.invariants import StepInvariants, claim_parameters

from .local_step import LocalStep
from .mailbox import Mailbox
from .mesh import MultiDeviceReport, distribute
from .split import DevicePart


def experimental_step_several(
    train_step: Callable[[Any], Any],
    modules: Sequence[nn.Module],
    optimizers: Sequence[torch.optim.Optimizer],
    batch: Any,
    *,
    devices: int | Sequence[Device],
    budget: int | str,
    host_budget: int | str | None = None,
    policy: str = "best",
    rates: Rates | None = None,
    chunks: Chunks = None,
    **settings: Any,
) -> MultiDeviceStep:
    """Plan a step for several devices of the CPU, and run it on them. Experimental.

    Parameters
    ----------
    train_step : callable
        The step function of a batch, as for `st.memory.step`.
    modules : sequence of Module
        All modules that the step uses.
    optimizers : sequence of Optimizer
        All optimizers that the step uses.
    batch : object
        A batch like those of the training.
    devices : int or sequence of Device
        The devices, or how many.
    budget : int or str
        Bytes on each device for everything, such as "12GiB".
    host_budget : int, str or None, default None
        Bytes on the host of each device; None for no limit.
    policy : {"best", "dissertation", "keep"}, default "best"
        "best" searches for the fastest plan, "keep" moves nothing.
    rates : Rates or None, default None
        Speeds that times are estimated from; None for those of an H200.
    chunks : int, dict, str or None, default None
        What is computed in chunks, as for `st.memory.step`; the chunks of a dimension are distributed over the devices.
    **settings
        Further settings: swap, recompute and place (bool), order, partition and distance.

    Returns
    -------
    MultiDeviceStep
        The planned step: call it with a batch.

    Raises
    ------
    PlanError
        If a device has no plan under the budget, or is not one of the CPU.
    CannotCapture
        If the step cannot be traced.

    Examples
    --------
    >>> import torch
    >>> import stretto as st
    >>> model = torch.nn.Linear(4, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> def train_step(batch):
    ...     optimizer.zero_grad()
    ...     loss = model(batch).square().mean()
    ...     loss.backward()
    ...     optimizer.step()
    ...     return loss
    >>> step = st.memory.experimental_step_several(
    ...     train_step, [model], [optimizer], torch.ones(8, 4), devices=2, budget="1MiB", chunks={"batch": 2}
    ... )
    >>> step(torch.ones(8, 4)).shape
    torch.Size([])
    >>> step.close()
    """
    from stretto.memory.front_end import _settings

    if type(devices) is int and devices > 0:
        devices = [PlainDevice() for _ in range(devices)]
    if not isinstance(devices, Sequence) or not devices:
        raise PlanError(
            f"devices={devices!r} is not a number of devices; give an integer of at least 1, or a list of devices"
        )
    if any(one.torch.type != "cpu" for one in devices):
        raise PlanError(
            f"devices on {', '.join(sorted({one.torch.type for one in devices}))}: a step on several devices runs on "
            "the CPU only so far; give a number of devices, or use st.memory.step with one GPU"
        )
    check_chunks(chunks)
    wanted, cpu = _settings(budget, host_budget, policy, settings), torch.device("cpu")
    source = StepSource(train_step, modules, optimizers, batch, cpu)
    captured = capture(source, wanted.budget, StepOptions(chunks=chunks))
    if captured.traced.watched.outside:
        raise PlanError(
            "the step changes a tensor of no module in place, which several devices do not support; make it a buffer "
            "of a module"
        )
    traced, borrowed = captured.traced, captured.lifted.borrowed
    graph = costed(captured.lifted, cpu, rates)
    numbers = chunk_numbers(traced.module)
    plan = distribute(graph, numbers, len(devices), wanted, borrowed=borrowed, notes=captured.notes)
    return MultiDeviceStep(
        plan, captured.lifted, traced.watched, traced.result_spec, modules, optimizers, batch, list(devices)
    )


class MultiDeviceStep:
    """A planned step on several devices. Call it with a batch like the one it was planned for.

    Between steps parameters and optimizer state are at their planned places. Call `settle()` before reading them, and
    `close()` when the step is no longer needed.

    Attributes
    ----------
    plan : MultiDeviceReport
        The plan, with `explain()`.
    runners : list of Runner
        By device: runs its program.
    """

    def __init__(
        self,
        plan: MultiDeviceReport,
        lifted: LiftedStep,
        watched: TracedState,
        result_spec: Any,
        modules: Sequence[nn.Module],
        optimizers: Sequence[torch.optim.Optimizer],
        batch: Any,
        devices: Sequence[Device],
    ) -> None:
        self.plan, self._spec, self._lost = plan, result_spec, ""
        self._standing = StepInvariants(modules, optimizers, "cpu")
        self._shapes = _shapes(batch)
        self._mailbox = Mailbox()
        claim_parameters(modules, self)
        turns = {n: k for k, n in enumerate(n for n, node in enumerate(lifted.graph.nodes) if node.ordered)}
        self.runners: list[Runner] = []
        self._parts: list[LocalStep] = []
        owned: set[int] = set()  # storages of the whole step that an earlier device owns
        for part, planned, device in zip(plan.together.parts, plan.together.planned, devices, strict=True):
            local = LocalStep(lifted, part, watched, self._mailbox, turns, owned)
            known = {id(node): n for n, node in enumerate(part.graph.nodes)}
            order = [known[id(node)] for node in planned.program.graph.nodes]
            self._parts.append(local)
            self.runners.append(Runner(local.lifted, planned.program, order, local.watched, optimizers, device))
            owned.update(w for s, w in enumerate(part.storages) if part.graph.maker[s] < 0)
        self._results = [_find(x, plan.together.parts, lifted) for x in lifted.shown]

    def __call__(self, batch: Any) -> Any:
        """Train on one batch. Returns what the step function returns."""
        if self._lost:
            raise RunError(self._lost)
        self._standing.check()
        if _shapes(batch) != self._shapes:
            raise RunError("the batch has another shape than the step was planned for; make a new step for this shape")
        tensors = [x for x in pytree.tree_leaves(batch) if isinstance(x, torch.Tensor)]
        for local, runner in zip(self._parts, self.runners, strict=True):
            local.refresh(runner)
        self._mailbox.clear()
        found = self._mailbox.together(
            [
                functools.partial(runner, [tensors[k] for k in local.leaves])
                for local, runner in zip(self._parts, self.runners, strict=True)
            ]
        )
        left = [iter(one) for one in found]
        shown = [x if d < 0 else next(left[d]) for d, x in self._results]
        return pytree.tree_unflatten(shown, self._spec)

    def settle(self) -> None:
        """Wait until all copies are done. Parameters can be read afterwards."""
        for runner in self.runners:
            runner.settle()

    def revoke(self) -> None:
        """Free the memory of the step, because another step was made with its parameters."""
        self._stop("another step was made with these parameters, so this one cannot be called; make a new step")

    def close(self) -> None:
        """Free the memory of the step. Parameters and state keep their values."""
        if not self._lost:
            self._stop("the step was closed, so it cannot be called; make a new step")

    def _stop(self, why: str) -> None:
        for runner in self.runners:
            runner.detach()
        self.runners, self._parts, self._lost = [], [], why


def _find(x: Any, parts: Sequence[DevicePart], lifted: LiftedStep) -> tuple[int, Any]:
    """The device that has a result, with None; or -1 and the value that is returned instead of a tensor."""
    if not isinstance(x, Ref):
        return -1, x
    s = lifted.values[x.value].storage
    return next(d for d, part in enumerate(parts) if s in {part.storages[r] for r in part.graph.results}), None


def _shapes(batch: Any) -> Any:
    leaves, spec = pytree.tree_flatten(batch)
    return spec, [(tuple(x.shape), x.dtype) if isinstance(x, torch.Tensor) else x for x in leaves]
