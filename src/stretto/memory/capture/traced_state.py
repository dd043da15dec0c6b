"""Replace parameters, buffers and optimizers of a step by stand-ins while the step is traced."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.utils import stateless

from stretto.errors import PlanError
from stretto.memory.operations import loss_scaling

from .side_effects import CannotCapture, GradientAccess

_LIBRARY = torch.library.Library("stretto", "FRAGMENT")
_LIBRARY.define("update(Tensor param, Tensor grad, int call, int place) -> Tensor")


_LIBRARY.define("update_unless(Tensor param, Tensor grad, Tensor found, int call, int place) -> Tensor")


@torch.library.register_fake("stretto::update_unless", lib=_LIBRARY)
def _updated_unless(param: Any, grad: Any, found: Any, call: int, place: int) -> Any:
    return torch.empty_like(param)


@torch.library.register_fake("stretto::update", lib=_LIBRARY)
def _updated(param: Any, grad: Any, call: int, place: int) -> Any:
    return torch.empty_like(param)


@dataclass(frozen=True, eq=False)
class TracedState:
    """The parameters and buffers that a step may change. A tied parameter appears once, with all its names."""

    modules: tuple[nn.Module, ...]
    parameters: tuple[nn.Parameter, ...]
    parameter_names: tuple[tuple[tuple[int, str], ...], ...]  # by parameter: (module number, name) of all its names
    buffers: tuple[torch.Tensor, ...]
    buffer_names: tuple[tuple[tuple[int, str], ...], ...]  # by buffer: (module number, name) of all its names
    outside: tuple[torch.Tensor, ...] = ()  # tensors of no module that the step changes in place; they never move

    @classmethod
    def of(cls, modules: Sequence[nn.Module]) -> TracedState:
        kinds = []
        for get in ("named_parameters", "named_buffers"):
            found: dict[int, tuple[Any, list[tuple[int, str]]]] = {}
            for m, module in enumerate(modules):
                for name, tensor in getattr(module, get)(remove_duplicate=False):
                    found.setdefault(id(tensor), (tensor, []))[1].append((m, name))
            kinds.append(tuple(t for t, _ in found.values()))
            kinds.append(tuple(tuple(names) for _, names in found.values()))
        return cls(tuple(modules), *kinds)

    def check_buffers(self, buffers: Sequence[Any]) -> None:
        """Refuse a step after which the modules have other buffers than these."""
        found = [dict(module.named_buffers(remove_duplicate=False)) for module in self.modules]
        for buffer, names in zip(buffers, self.buffer_names, strict=True):
            for m, name in names:
                if found[m].get(name) is not buffer:
                    raise CannotCapture(f"the step assigns a new buffer {name}; change it in place, with copy_()")

    @contextlib.contextmanager
    def replaced(self, parameters: Sequence[Any], buffers: Sequence[Any]) -> Iterator[None]:
        """Within, the modules hold these parameters and buffers instead."""
        by_module: list[dict[str, Any]] = [{} for _ in self.modules]
        for tensors, names in ((parameters, self.parameter_names), (buffers, self.buffer_names)):
            for tensor, all_names in zip(tensors, names, strict=True):
                for m, name in all_names:
                    by_module[m][name] = tensor
        with contextlib.ExitStack() as stack:
            for module, replacing in zip(self.modules, by_module, strict=True):
                stack.enter_context(stateless._reparametrize_module(module, replacing))
            yield


def check_owned(optimizers: Sequence[torch.optim.Optimizer], numbers: dict[int, int]) -> None:
    """Refuse parameters that belong to two optimizers, or to none of the modules."""
    owners: dict[int, int] = {}
    for k, optimizer in enumerate(optimizers):
        for group in optimizer.param_groups:
            for p in group["params"]:
                if owners.setdefault(id(p), k) != k:
                    raise CannotCapture(
                        f"a parameter of shape {tuple(p.shape)} belongs to two optimizers, which is not supported; "
                        "give it to one of them"
                    )
                if id(p) not in numbers:
                    raise PlanError(
                        f"optimizer {k} has a parameter of shape {tuple(p.shape)} that belongs to none of the modules; "
                        "pass every module that is trained in modules="
                    )


@contextlib.contextmanager
def optimizers_watched(
    optimizers: Sequence[torch.optim.Optimizer],
    numbers: dict[int, int],
    live: Sequence[Any],
    updates: list[tuple[int, tuple[int, ...]]],
    gradients: GradientAccess,
) -> Iterator[None]:
    """Within, `step` and `zero_grad` of the optimizers act on traced stand-ins, which replace the parameters in their
    groups."""

    def watch(number: int, optimizer: torch.optim.Optimizer) -> None:
        mine = [numbers[id(p)] for group in optimizer.param_groups for p in group["params"]]

        def step(closure: Any = None) -> None:
            if closure is not None:
                raise CannotCapture(
                    "the step passes a closure to an optimizer (as for LBFGS and SAM), which is not supported; write "
                    "the forward and backward passes into the step function, and call optimizer.step() without it"
                )
            have = [n for n in mine if live[n].grad is not None]
            call = len(updates)
            updates.append((number, tuple(have)))
            found = loss_scaling.unless()
            with torch.no_grad():
                for place, n in enumerate(have):
                    if found is None:
                        new = torch.ops.stretto.update(live[n], live[n].grad, call, place)
                    else:
                        new = torch.ops.stretto.update_unless(live[n], live[n].grad, found, call, place)
                    live[n].copy_(new)

        def zero_grad(set_to_none: bool = True) -> None:
            gradients.cleared.update(mine)
            for n in mine:
                if live[n].grad is not None:
                    live[n].grad = None if set_to_none else torch.zeros_like(live[n])

        optimizer.step, optimizer.zero_grad = step, zero_grad

    # A scheduler may have replaced `step` of the optimizer: restore that one afterwards.
    before = [{k: o.__dict__[k] for k in ("step", "zero_grad") if k in o.__dict__} for o in optimizers]
    groups = [(group, group["params"]) for optimizer in optimizers for group in optimizer.param_groups]
    try:
        for number, optimizer in enumerate(optimizers):
            watch(number, optimizer)
        for group, parameters in groups:
            group["params"] = [live[numbers[id(p)]] for p in parameters]
        yield
    finally:
        for group, parameters in groups:
            group["params"] = parameters
        for optimizer, own in zip(optimizers, before, strict=True):
            del optimizer.step, optimizer.zero_grad
            optimizer.__dict__.update(own)
