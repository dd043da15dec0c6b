"""Check before every step that modules, optimizers and autocast are as planned.

The module also tracks which step owns which parameters.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.weak import WeakTensorKeyDictionary

from stretto.errors import RunError

_OWNERS: Any = WeakTensorKeyDictionary()  # by parameter: the step that was made with it last
_WHATS = (
    "a module changed between train() and eval()",
    "a parameter's requires_grad changed",
    "an optimizer got or lost parameters",
    "autocast was switched (use it within the step function)",
    "a module has other parameters, buffers or layers",
)


class StepInvariants:
    """The state of modules, optimizers and autocast that plans rely on.

    standing = Standing([model], [optimizer], "cuda")
    standing.check()     # raises if the step function would now do something else than the plans
    """

    def __init__(self, modules: Sequence[nn.Module], optimizers: Sequence[torch.optim.Optimizer], device: str) -> None:
        self._device, self._optimizers = device, list(optimizers)
        self._modules = [one for module in modules for one in module.modules()]
        self._parameters = _parameters(modules)
        self._then = self._now()

    def _now(self) -> tuple[Any, ...]:
        on = torch.is_autocast_enabled(self._device)
        return (
            [one.training for one in self._modules],
            [p.requires_grad for p in self._parameters],
            [len(group["params"]) for one in self._optimizers for group in one.param_groups],
            (on, torch.get_autocast_dtype(self._device) if on else None),
            [
                [id(x) for own in (one._parameters, one._buffers, one._modules) for x in own.values()]
                for one in self._modules
            ],
        )

    def check(self) -> None:
        """Raise RunError if something has changed."""
        for what, then, now in zip(_WHATS, self._then, self._now(), strict=True):
            if then != now:
                raise RunError(f"{what} since the step was planned; change it back, or make a new step")


def claim_parameters(modules: Sequence[nn.Module], step: Any) -> None:
    """Make a step the owner of parameters. They belong to the step that was made last; the earlier one is closed."""
    for p in _parameters(modules):
        before = _OWNERS.get(p)
        owner = before() if before is not None else None
        if owner is not None and owner is not step:
            owner.revoke()
        _OWNERS[p] = weakref.ref(step)


class StepHook:
    """A hook on a module or an optimizer that calls a method of a step while the step exists.

    In copies of the module, and in what is saved of it, the hook calls nothing.
    """

    def __init__(self, step: Any, method: str) -> None:
        self._step, self._method = None if step is None else weakref.ref(step), method

    def __call__(self, *_: Any) -> None:
        found = self._step() if self._step is not None else None
        if found is not None:
            getattr(found, self._method)()

    def __reduce__(self) -> tuple[Any, ...]:
        return StepHook, (None, self._method)


def _parameters(modules: Sequence[nn.Module]) -> list[nn.Parameter]:
    return [p for module in modules for p in module.parameters()]
