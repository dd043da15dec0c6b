"""Optimizers as they are: what they keep for a parameter, and running one of them for some parameters alone.

Nothing of an optimizer is rewritten. Its own `step` runs with a list of parameters that is cut down to the few whose
turn it is, so learning rates, schedules, weight decay and `state_dict` are its own affair.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch

from stretto.errors import PlanError

from .guard import CannotCapture


def kept_for(optimizer: torch.optim.Optimizer, parameter: torch.nn.Parameter) -> dict[str, int]:
    """{name: bytes} of the tensors as large as the parameter that the optimizer keeps for it.

    >>> p = torch.nn.Parameter(torch.zeros(3, 4))
    >>> kept_for(torch.optim.AdamW([p]), p)
    {'exp_avg': 48, 'exp_avg_sq': 48}
    """
    state = optimizer.state.get(parameter)
    if not state:
        state = _tried(optimizer, parameter)
        shape: Any = _small(parameter.shape)
    else:
        shape = tuple(parameter.shape)
    return {
        name: parameter.numel() * tensor.element_size()
        for name, tensor in state.items()
        if isinstance(tensor, torch.Tensor) and tuple(tensor.shape) == shape and tensor.dim() > 0
    }


def _small(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(min(n, 2) for n in shape)


def _tried(optimizer: torch.optim.Optimizer, parameter: torch.nn.Parameter) -> dict[str, Any]:
    """What the optimizer keeps for a tiny parameter of the same kind, after one step."""
    tiny = torch.nn.Parameter(torch.zeros(_small(parameter.shape), dtype=parameter.dtype))
    tiny.grad = torch.zeros_like(tiny)
    trial = _trial(optimizer, group_of(optimizer, parameter), [tiny])
    try:
        type(optimizer).step(trial)
    except Exception as error:
        raise PlanError(
            f"{type(optimizer).__name__} could not be tried on a parameter alone ({error}); only optimizers that treat "
            "parameters one by one can be planned"
        ) from error
    found: dict[str, Any] = trial.state[tiny]
    return found


def _trial(optimizer: torch.optim.Optimizer, group: dict[str, Any], parameters: list[Any]) -> Any:
    """The optimizer without state, with a group like this one that has these parameters."""
    options = {k: copy.copy(v) for k, v in group.items() if k != "params"}
    if options.get("fused"):
        options["fused"] = False  # not there for every device; keeps the same
    if options.get("capturable"):
        options["capturable"] = False
    trial = copy.copy(optimizer)
    trial.__dict__ = dict(optimizer.__dict__)
    trial.state = type(optimizer.state)(dict)
    trial.param_groups = [options | {"params": parameters}]
    return trial


def check_separate(optimizer: torch.optim.Optimizer) -> None:
    """Refuse an optimizer of somebody's own that looks at several parameters at once or counts in a group: it would be
    run for a few parameters at a time."""
    if type(optimizer).__module__.startswith("torch.optim"):
        return
    values, slopes = torch.linspace(-1, 1, 8).view(2, 4), torch.linspace(2, -1, 16).view(2, 2, 4)

    def after(*which: int) -> tuple[list[Any], list[Any]]:
        few = [torch.nn.Parameter(values[k].clone()) for k in which]
        trial = _trial(optimizer, optimizer.param_groups[0], few)
        for slope in slopes:
            for k, p in zip(which, few, strict=True):
                p.grad = slope[k].clone()
            type(optimizer).step(trial)
        options = [v for name, v in trial.param_groups[0].items() if name != "params"]
        return [p.detach() for p in few], options

    given = [v for name, v in optimizer.param_groups[0].items() if name != "params"]
    try:
        both, options = after(0, 1)
        alone = [after(0)[0][0], after(1)[0][0]]
        separate = all(map(torch.equal, both, alone)) and str(options) == str(given)
    except Exception:
        return  # it will be told why when it is tried for real
    if not separate:
        raise CannotCapture(
            f"{type(optimizer).__name__} looks at several parameters at once or counts its steps for all of them; only "
            "optimizers that treat parameters one by one can be planned"
        )


def group_of(optimizer: torch.optim.Optimizer, parameter: torch.nn.Parameter) -> dict[str, Any]:
    """The group of a parameter."""
    for group in optimizer.param_groups:
        if any(p is parameter for p in group["params"]):
            found: dict[str, Any] = group
            return found
    raise PlanError(f"the optimizer has no parameter of shape {tuple(parameter.shape)} any more")


# Every number of a parameter is updated by itself, so that a part of them can be.
_SEPARATE = ("SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adagrad", "Adadelta", "RMSprop")
_LEAST = 16 << 20


def at_a_time(optimizer: torch.optim.Optimizer, budget: int) -> int:
    """Bytes of a parameter that are updated at a time, so that passing results are small; 0 if it must be all of it.

    >>> at_a_time(torch.optim.SGD([torch.zeros(1)]), 1 << 32) >> 20
    64
    """
    known = any(type(optimizer) is getattr(torch.optim, name) for name in _SEPARATE)
    if not known or any(group.get("fused") for group in optimizer.param_groups):  # a fused one has no passing results
        return 0
    return max(_LEAST, budget // 64)


class Turns:
    """Runs an optimizer's own step for some of its parameters. Groups are looked at anew each time: rates change."""

    def __init__(self, optimizer: torch.optim.Optimizer, parameters: Sequence[torch.nn.Parameter]) -> None:
        self.optimizer, self.parameters = optimizer, list(parameters)
        self._chosen = {id(p) for p in parameters}
        self._found: dict[int, tuple[list[Any], int, list[Any]]] = {}  # by group: its list, how long it was, and mine

    def _mine(self, group: dict[str, Any]) -> list[Any]:
        """My parameters of a group. Looking for a few among thousands takes longer than their update."""
        whole = group["params"]
        known = self._found.get(id(group))
        if known is None or known[0] is not whole or known[1] != len(whole):
            known = self._found[id(group)] = whole, len(whole), [p for p in whole if id(p) in self._chosen]
        return list(known[2])

    def run(self, piece: int = 0) -> None:
        """One step of the parameters; they have their gradients. piece: bytes at a time, if there is but one."""
        p = self.parameters[0]
        count = -(-p.numel() * p.element_size() // piece) if piece and len(self.parameters) == 1 else 1
        if count > 1:
            self._run_in_pieces(p, count)
        else:
            groups = self.optimizer.param_groups
            self._step([(group, mine) for group in groups if (mine := self._mine(group))])

    def _run_in_pieces(self, p: torch.nn.Parameter, count: int) -> None:
        """Update some rows of a parameter after others, each time as a parameter of its own."""
        assert p.grad is not None
        optimizer, state, group = self.optimizer, self.optimizer.state[p], group_of(self.optimizer, p)
        large = {name: x for name, x in state.items() if _as_large(x, p)}
        small = {name: x for name, x in state.items() if name not in large}
        made = dict(large)  # and what a first step makes
        dim = max(range(p.dim()), key=lambda d: (p.stride(d) if p.shape[d] > 1 else 0, p.shape[d]))
        size = -(-p.shape[dim] // count)
        done: dict[str, Any] = {}
        for at in range(0, p.shape[dim], size):
            rows = (dim, at, min(size, p.shape[dim] - at))
            part = torch.nn.Parameter(p.data.narrow(*rows))
            part.grad = p.grad.narrow(*rows)
            given = {name: x.narrow(*rows) for name, x in large.items()}
            own = {name: x.clone() if isinstance(x, torch.Tensor) else x for name, x in small.items()}
            optimizer.state[part] = {**own, **given}
            try:
                self._step([(group, [part])])
            finally:
                done = optimizer.state.pop(part)
            for name, x in done.items():
                if _as_large(x, part) and x is not given.get(name):
                    if name not in made:
                        made[name] = torch.empty_like(p.data, dtype=x.dtype)
                    made[name].narrow(*rows).copy_(x)
        state.update({name: made.get(name, x) for name, x in done.items()})

    def _step(self, parts: list[tuple[dict[str, Any], list[Any]]]) -> None:
        """The optimizer's own step with groups that have these parameters only."""
        optimizer, groups = self.optimizer, self.optimizer.param_groups
        whole = [(group, group["params"]) for group, _ in parts]
        for group, mine in parts:
            group["params"] = mine
        try:
            optimizer.param_groups = [group for group, _ in parts]
            type(optimizer).step(optimizer)
        finally:
            optimizer.param_groups = groups
            for group, parameters in whole:
                group["params"] = parameters
        optimizer._opt_called = True  # what schedulers look for


def _as_large(x: Any, p: torch.Tensor) -> bool:
    return isinstance(x, torch.Tensor) and x.dim() > 0 and x.shape == p.shape
