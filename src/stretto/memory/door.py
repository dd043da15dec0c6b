"""Training what does not fit: a step function in, a step under a budget out.

    step = st.memory.fit(model, loss_fn, optimizer, batch, budget="12GiB")
    for batch in batches:
        loss = step(batch)

`step` takes any step function (several modules and optimizers, gradient accumulation, clipping); `fit` writes the
common one; `plan` only plans, without moving anything, on a machine with or without a GPU.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from stretto.errors import PlanError
from stretto.plan.cost import parse_bytes

from .chunks import Chunks, check_chunks
from .costs import Rates, costed
from .devices import CudaDevice, Device, PlainDevice
from .fallback import HookedStep
from .guard import CannotCapture
from .mesh import Devices, spread
from .planner import Settings
from .refusals import check_kinds, compiled
from .report import Report
from .stepping import Step, capture, planned

_LOG = logging.getLogger("stretto.memory")


def step(
    train_step: Callable[[Any], Any],
    modules: Sequence[nn.Module],
    optimizers: Sequence[torch.optim.Optimizer],
    batch: Any,
    *,
    budget: int | str,
    host_budget: int | str | None = None,
    policy: str = "best",
    device: Device | str | torch.device | None = None,
    verify: bool = False,
    chunks: Chunks = None,
    record: bool = True,
    compile: bool = False,
    **settings: Any,
) -> Step | HookedStep:
    """A step under a budget from any step function: `loss = step(batch)`.

    train_step(batch) does one whole step with the modules and optimizers named, `zero_grad`, `backward` and `step`
    included, and returns what it likes (a loss). It is run once without memory to see what it does; its Python is not
    run again. budget: bytes on the device for everything, "12GiB" or a number; host_budget likewise for the host.
    chunks: a loss over many words is made in so many pieces; {"batch": 4}: all that has a batch in it, likewise other
    dimensions with names; "auto": what is too large for the budget. Results are then equal up to rounding.
    record: a GPU plays what it recorded in the third step (CUDA graphs) instead of being called for every operation;
    False where something else must see the calls. compile: Inductor makes one kernel of the small operations between
    large ones, before anything is planned; results are then equal up to rounding.
    """
    place = _device(device)
    check_chunks(chunks)
    wanted = _settings(budget, host_budget, policy, settings)
    try:
        check_kinds(modules, optimizers)
        made = Step(
            train_step,
            modules,
            optimizers,
            batch,
            wanted,
            place,
            verify=verify,
            chunks=chunks,
            record=record,
            join=compile,
        )
    except CannotCapture as error:
        _LOG.warning("not planned, activations wait on the host instead: %s", error)
        return HookedStep(train_step, str(error), wanted.budget, place, modules, optimizers)
    if not compile and (name := compiled(modules)):
        _LOG.warning(
            "%s was compiled with torch.compile, which a planned step does not use: its operations run as they are; "
            "give compile=True to have them compiled, with results equal up to rounding",
            name,
        )
    return made


def fit(
    model: nn.Module,
    loss_fn: Callable[..., Any],
    optimizer: torch.optim.Optimizer,
    batch: Any,
    *,
    budget: int | str,
    **options: Any,
) -> Step | HookedStep:
    """The common step under a budget: `loss_fn(model(*inputs), target)` for batches `(*inputs, target)`."""
    return step(common_step(model, loss_fn, optimizer), [model], [optimizer], batch, budget=budget, **options)


def plan(
    model: nn.Module,
    loss_fn: Callable[..., Any],
    optimizer: torch.optim.Optimizer,
    batch: Any,
    *,
    budget: int | str,
    host_budget: int | str | None = None,
    policy: str = "best",
    rates: Rates | None = None,
    device: str | torch.device | None = None,
    chunks: Chunks = None,
    **settings: Any,
) -> Report:
    """What `fit` would do, without doing it: does it fit, how slow will it be, what moves when?

    Without a GPU the times are reckoned from `rates`. Tensors are only looked at: a model on the "meta" device will do.
    """
    place = _named(device if device is not None else "cuda" if torch.cuda.is_available() else "cpu")
    wanted = _settings(budget, host_budget, policy, settings)
    check_chunks(chunks)
    check_kinds([model], [optimizer])
    train_step = common_step(model, loss_fn, optimizer)
    captured, _, made = planned(train_step, [model], [optimizer], batch, place, wanted, rates=rates, chunks=chunks)
    return Report(made, captured.lifted)


def experimental_plan_several(
    model: nn.Module,
    loss_fn: Callable[..., Any],
    optimizer: torch.optim.Optimizer,
    batch: Any,
    *,
    devices: int,
    budget: int | str,
    host_budget: int | str | None = None,
    policy: str = "best",
    rates: Rates | None = None,
    chunks: Chunks = None,
    **settings: Any,
) -> Devices:
    """What a step would come to on several devices, each with the budget: pieces and parameters are spread over them,
    see `mesh`. Times are reckoned from `rates`. chunks="auto" cuts losses alone here: name a dimension to spread the
    rest. There is no step that runs on several yet."""
    if type(devices) is not int or devices < 1:
        raise PlanError(f"devices={devices!r} is not a number of devices; give one from 1 on")
    wanted, cpu = _settings(budget, host_budget, policy, settings), torch.device("cpu")
    check_chunks(chunks)
    captured = capture(common_step(model, loss_fn, optimizer), [model], [optimizer], batch, cpu, wanted.budget, chunks)
    nodes = captured.traced.module.graph.nodes
    pieces = {node.name: node.meta["piece"] for node in nodes if "piece" in node.meta}
    graph = costed(captured.lifted, cpu, rates)
    return spread(graph, pieces, devices, wanted, borrowed=captured.lifted.borrowed, notes=captured.notes)


def common_step(
    model: nn.Module, loss_fn: Callable[..., Any], optimizer: torch.optim.Optimizer
) -> Callable[[Any], torch.Tensor]:
    """The step that most people write."""

    def train_step(batch: Any) -> torch.Tensor:
        *inputs, target = batch
        optimizer.zero_grad()
        loss: torch.Tensor = loss_fn(model(*inputs), target)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


def _settings(budget: int | str, host_budget: int | str | None, policy: str, rest: dict[str, Any]) -> Settings:
    try:
        host = None if host_budget is None else parse_bytes(host_budget)
        return Settings(parse_bytes(budget), host_budget=host, policy=policy, **rest)
    except TypeError as error:
        raise PlanError(f"{error}; settings are swap=, recompute=, partition=, distance=, order=, place=") from None


def _device(device: Device | str | torch.device | None) -> Device:
    if device is None:
        return CudaDevice() if torch.cuda.is_available() else PlainDevice()
    if isinstance(device, (str, torch.device)):
        named = _named(device)
        return CudaDevice(named) if named.type == "cuda" else PlainDevice()
    return device


def _named(device: str | torch.device) -> torch.device:
    """A device with its number, as tensors that are there name it."""
    named = torch.device(device)
    if named.type != "cuda":
        return named
    if not torch.cuda.is_available():
        raise PlanError(
            f"device={str(device)!r}: there is no GPU that torch can use; leave device= out to plan without"
        )
    return named if named.index is not None else torch.device("cuda", torch.cuda.current_device())
