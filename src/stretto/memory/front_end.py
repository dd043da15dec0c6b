"""The functions of `st.memory`: `train_step`, `step` and `plan` for training within a budget of device memory.

    step = st.memory.train_step(model, loss_fn, optimizer, batch, budget="12GiB")
    for batch in batches:
        loss = step(batch)

`step` takes any step function (several modules and optimizers, gradient accumulation, clipping). `train_step` writes
the common one. `plan` only plans: it moves nothing and needs no GPU.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from stretto.checks import parse_bytes
from stretto.errors import PlanError

from .capture.read_values import ValueReads
from .capture.refusals import check_kinds, compiled
from .capture.side_effects import CannotCapture
from .chunk.chunks import Chunks, check_chunks, chunk_numbers
from .measure.costs import Rates, costed
from .multi_device.mesh import MultiDeviceReport, distribute
from .options import StepOptions, StepSource
from .planner.planner import PlannerSettings
from .planning import capture, planned
from .report.recorded import StepListener, check_session
from .report.report import Report
from .run.cuda_device import CudaDevice
from .run.devices import Device, PlainDevice
from .run.fallback import HookedStep
from .run.planned_step import Step

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
    session: Any = None,
    **settings: Any,
) -> Step | HookedStep:
    """Plan any step function for a memory budget; call the result as `loss = step(batch)`.

    Parameters
    ----------
    train_step : callable
        `train_step(batch)` does one whole step with the modules and optimizers given, `zero_grad`, `backward` and
        `step` included, and returns anything (a loss). It is traced once on tensors without memory; its Python does not
        run again.
    modules : sequence of Module
        All modules that the step uses.
    optimizers : sequence of Optimizer
        All optimizers that the step uses.
    batch : object
        A batch like those of the training: tensors and numbers in dicts, lists and tuples. Other shapes get plans of
        their own when they first occur.
    budget : int or str
        Bytes on the device for everything, such as "12GiB".
    host_budget : int, str or None, default None
        Bytes on the host for everything; None for no limit.
    policy : {"best", "dissertation", "keep"}, default "best"
        "best" searches for the fastest plan, "dissertation" makes partitions and swaps as TensorFlowMem did, "keep"
        moves nothing.
    device : Device, torch.device, str or None, default None
        Where to run; None for the current GPU, or ordinary memory without one.
    verify : bool, default False
        Run the plain step once before planning and compare the first step with it.
    chunks : int, dict, str or None, default None
        A number: compute a loss over many tokens in that many chunks. {"batch": 4}: all that has the batch dimension,
        likewise other named dimensions. "auto": what is too large for the budget. Equal up to rounding.
    record : bool, default True
        Record the third step on a GPU as CUDA graphs and replay it from then on. False: call every operation.
    compile : bool, default False
        Fuse small operations between large ones with Inductor before planning. Equal up to rounding.
    session : Session or None, default None
        Where to record plans and what steps really take, and whether to show the page; until `close()`.
    **settings
        Further settings: swap, recompute and place (bool), order, partition and distance.

    Returns
    -------
    Step or HookedStep
        The planned step; a `HookedStep`, with a warning, if the function cannot be traced.

    Raises
    ------
    PlanError
        If no plan fits the budget, or an argument is not valid.

    Examples
    --------
    >>> import torch, stretto as st
    >>> model = torch.nn.Linear(4, 2)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> def train_step(x):
    ...     optimizer.zero_grad()
    ...     loss = model(x).square().mean()
    ...     loss.backward()
    ...     optimizer.step()
    ...     return loss
    >>> step = st.memory.step(train_step, [model], [optimizer], torch.ones(8, 4), budget="1MiB", device="cpu")
    >>> loss = step(torch.ones(8, 4))
    >>> step.close()
    """
    check_session(session)
    place = _device(device)
    check_chunks(chunks)
    wanted = _settings(budget, host_budget, policy, settings)
    options = StepOptions(chunks=chunks, compile=compile, record=record, verify=verify)
    try:
        check_kinds(modules, optimizers)
        made = Step(StepSource(train_step, modules, optimizers, batch, place.torch), wanted, place, options)
        if session is not None:
            config = {"program": "memory", "budget": wanted.budget, "policy": policy, "device": str(place.torch)}
            made.report_to(StepListener(session, config))
    except CannotCapture as error:
        _LOG.warning("the step is not planned; it keeps activations on the host instead: %s", error)
        return HookedStep(train_step, str(error), wanted.budget, place, modules, optimizers)
    if not compile and (name := compiled(modules)):
        _LOG.warning(
            "%s was compiled with torch.compile, which a planned step does not use: its operations run as they are; "
            "give compile=True to have them compiled, with results equal up to rounding",
            name,
        )
    return made


def train_step(
    model: nn.Module,
    loss_fn: Callable[..., Any],
    optimizer: torch.optim.Optimizer,
    batch: Any,
    *,
    budget: int | str,
    **options: Any,
) -> Step | HookedStep:
    """Plan the common training step for a budget of device memory.

    The step computes `loss_fn(model(*inputs), target)` for a batch `(*inputs, target)`, its gradients, and the update
    by the optimizer. It returns the loss.

    Parameters
    ----------
    model : Module
        The model to train.
    loss_fn : callable
        `loss_fn(output, target)` returns a scalar tensor.
    optimizer : Optimizer
        The optimizer of the model's parameters.
    batch : tuple of tensors
        An example batch `(*inputs, target)`.
    budget : int or str
        Bytes on the device for everything, such as "12GiB".
    **options
        Options of `st.memory.step`.

    Returns
    -------
    Step or HookedStep
        The planned step: call it with a batch. A `HookedStep`, with a warning, if the model cannot be traced.

    Examples
    --------
    >>> import torch
    >>> import stretto as st
    >>> model = torch.nn.Linear(4, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> batch = torch.ones(8, 4), torch.zeros(8, 1)
    >>> loss_fn = torch.nn.functional.mse_loss
    >>> step = st.memory.train_step(model, loss_fn, optimizer, batch, budget="1MiB", device="cpu")
    >>> first, second = float(step(batch)), float(step(batch))
    >>> second < first
    True
    >>> step.close()
    """
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
    """Plan the step of `train_step` without running it: whether it fits, how long it takes, what is copied when.

    Only shapes are read: a model on the "meta" device is enough.

    Parameters
    ----------
    model : Module
        The model.
    loss_fn : callable
        loss_fn(output, target) -> loss.
    optimizer : Optimizer
        The optimizer of the model's parameters.
    batch : tuple
        A batch `(*inputs, target)`.
    budget : int or str
        Bytes on the device for everything, such as "12GiB".
    host_budget : int, str or None, default None
        Bytes on the host for everything; None for no limit.
    policy : {"best", "dissertation", "keep"}, default "best"
        "best" searches for the fastest plan, "keep" moves nothing.
    rates : Rates or None, default None
        Speeds that times are estimated from without a GPU; None for those of an H200.
    device : torch.device, str or None, default None
        Where it would run; None for the current GPU, or ordinary memory without one.
    chunks : int, dict, str or None, default None
        What is computed in chunks; see `st.memory.step`.
    **settings
        Further settings: swap, recompute and place (bool), order, partition and distance.

    Returns
    -------
    Report
        The plan, with `explain()` and `draw(path)`.

    Raises
    ------
    PlanError
        If no plan fits the budget, or the step cannot be traced.

    Examples
    --------
    >>> import torch
    >>> import stretto as st
    >>> model = torch.nn.Linear(64, 64)
    >>> optimizer = torch.optim.Adam(model.parameters())
    >>> batch = torch.ones(256, 64), torch.ones(256, 64)
    >>> loss_fn = torch.nn.functional.mse_loss
    >>> report = st.memory.plan(model, loss_fn, optimizer, batch, budget="1MiB", device="cpu")
    >>> report.peak <= 1 << 20
    True
    """
    place = _named(device if device is not None else "cuda" if torch.cuda.is_available() else "cpu")
    wanted = _settings(budget, host_budget, policy, settings)
    check_chunks(chunks)
    check_kinds([model], [optimizer])
    source = StepSource(common_step(model, loss_fn, optimizer), [model], [optimizer], batch, place)
    captured, _, made = planned(source, wanted, StepOptions(rates=rates, chunks=chunks), reads=ValueReads())
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
) -> MultiDeviceReport:
    """Estimate a step on several devices, each with the budget. Chunks and parameters are distributed over them.

    Times are estimated from `rates`. Experimental: the plan is not run on several GPUs yet.

    Parameters
    ----------
    model : Module
        The model.
    loss_fn : callable
        loss_fn(output, target) -> loss.
    optimizer : Optimizer
        The optimizer of the model's parameters.
    batch : tuple
        A batch `(*inputs, target)`.
    devices : int
        Number of devices.
    budget : int or str
        Bytes on each device for everything, such as "12GiB".
    host_budget : int, str or None, default None
        Bytes on the host of each device; None for no limit.
    policy : {"best", "dissertation", "keep"}, default "best"
        "best" searches for the fastest plan, "keep" moves nothing.
    rates : Rates or None, default None
        Speeds that times are estimated from; None for those of an H200.
    chunks : int, dict, str or None, default None
        What is computed in chunks; see `st.memory.step`. "auto" cuts losses alone here: name a dimension to distribute
        the rest.
    **settings
        Further settings: swap, recompute and place (bool), order, partition and distance.

    Returns
    -------
    MultiDeviceReport
        The plans of all devices, with `explain()`.

    Raises
    ------
    PlanError
        If a device has no plan under the budget, or an argument is not valid.

    Examples
    --------
    >>> import torch
    >>> import stretto as st
    >>> model = torch.nn.Linear(64, 64)
    >>> optimizer = torch.optim.Adam(model.parameters())
    >>> batch = torch.ones(256, 64), torch.ones(256, 64)
    >>> loss_fn = torch.nn.functional.mse_loss
    >>> several = st.memory.experimental_plan_several(
    ...     model, loss_fn, optimizer, batch, devices=2, budget="1MiB", chunks={"batch": 4}
    ... )
    >>> print(several.explain().splitlines()[0].split(",")[0])
    2 devices
    """
    if type(devices) is not int or devices < 1:
        raise PlanError(f"devices={devices!r} is not a number of devices; give an integer of at least 1")
    wanted, cpu = _settings(budget, host_budget, policy, settings), torch.device("cpu")
    check_chunks(chunks)
    source = StepSource(common_step(model, loss_fn, optimizer), [model], [optimizer], batch, cpu)
    captured = capture(source, wanted.budget, StepOptions(chunks=chunks))
    graph = costed(captured.lifted, cpu, rates)
    numbers = chunk_numbers(captured.traced.module)
    return distribute(graph, numbers, devices, wanted, borrowed=captured.lifted.borrowed, notes=captured.notes)


def common_step(
    model: nn.Module, loss_fn: Callable[..., Any], optimizer: torch.optim.Optimizer
) -> Callable[[Any], torch.Tensor]:
    """The training step of `train_step` as a function of a batch."""

    def train_step(batch: Any) -> torch.Tensor:
        *inputs, target = batch
        optimizer.zero_grad()
        loss: torch.Tensor = loss_fn(model(*inputs), target)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


def _settings(budget: int | str, host_budget: int | str | None, policy: str, rest: dict[str, Any]) -> PlannerSettings:
    try:
        host = None if host_budget is None else parse_bytes(host_budget)
        return PlannerSettings(parse_bytes(budget), host_budget=host, policy=policy, **rest)
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
    """The device with its index, as `tensor.device` has it."""
    named = torch.device(device)
    if named.type != "cuda":
        return named
    if not torch.cuda.is_available():
        raise PlanError(f"device={str(device)!r}: torch finds no GPU; leave device= out to plan without one")
    return named if named.index is not None else torch.device("cuda", torch.cuda.current_device())
