"""Refuse side effects that a traced step would have once and never again.

A trace records operations on tensors. The Python around them runs once: a scheduler that advances, a module that keeps
a tensor for the next step, gradients that a later call uses. Such steps are refused, and run without a plan.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import types
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import numpy as np
import torch
import torch.utils.checkpoint
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from stretto.errors import PlanError

from .python_state import ABSENT, StateChange

_SEEDS = [
    (module, name)
    for module in (torch, torch.random, torch.cuda, torch.cuda.random)
    for name in ("manual_seed", "manual_seed_all", "seed", "set_rng_state")
    if hasattr(module, name)
]


class CannotCapture(PlanError):
    """The step is not one fixed list of operations."""


def check_hooks(parameters: Sequence[nn.Parameter], optimizers: Sequence[torch.optim.Optimizer]) -> None:
    """Refuse hooks that a planned step would not run, or not as often."""
    for p in parameters:
        if p._backward_hooks or getattr(p, "_post_accumulate_grad_hooks", None):
            raise CannotCapture(
                f"a parameter of shape {tuple(p.shape)} has hooks, which a planned step does not run; remove them"
            )
    if any(one._optimizer_step_pre_hooks or one._optimizer_step_post_hooks for one in optimizers):
        raise CannotCapture(
            "an optimizer has hooks for its steps, which would run several times in a planned step; remove them"
        )


def check_apart(parameters: Sequence[nn.Parameter]) -> None:
    """Refuse different parameters that share memory: a plan would give them separate memory."""
    real = [p for p in parameters if p.device.type != "meta" and p.numel() and not isinstance(p, FakeTensor)]
    spans = sorted((p.data_ptr(), p.data_ptr() + _extent(p)) for p in real)
    if any(begin < end for (_, end), (begin, _) in itertools.pairwise(spans)):
        raise CannotCapture(
            "two different parameters share memory, which is not supported; give the modules one parameter object"
        )


def _extent(p: torch.Tensor) -> int:
    return int((1 + sum((n - 1) * k for n, k in zip(p.shape, p.stride(), strict=True))) * p.element_size())


def check_constants(
    module: torch.fx.GraphModule, watched: Sequence[torch.Tensor], leaked: Sequence[StateChange]
) -> None:
    """Refuse a trace in which a parameter or a buffer is a constant, or which keeps a tensor for the next step.

    Parameters
    ----------
    module : torch.fx.GraphModule
        The trace.
    watched : sequence of torch.Tensor
        Parameters and buffers.
    leaked : sequence of StateChange
        Changes after which Python state holds a tensor of the trace.
    """
    constants = [getattr(module, node.target, None) for node in module.graph.nodes if node.op == "get_attr"]
    real = [x for x in constants if isinstance(x, torch.Tensor) and not isinstance(x, FakeTensor)]
    places = {x.data_ptr(): x for x in real}
    for p in watched:
        if p.data_ptr() and p.data_ptr() in places:
            raise CannotCapture(taken_before(p))
    for one in leaked:
        before = [] if one.before is ABSENT else pytree.tree_leaves(one.before)
        tensors = [x for x in before if isinstance(x, torch.Tensor)]
        grows = isinstance(one.after, (list, dict, set, deque))
        if grows or not tensors or any(x.data_ptr() in places for x in tensors):  # otherwise every step replaces it
            raise CannotCapture(
                f"{one.label} keeps a tensor from one step for the next, but a planned step would always use the first "
                "one; pass it in and out of the step, or make it a buffer that is changed in place; if it is a cache, "
                "run the model once before"
            )


def check_draws(module: torch.fx.GraphModule, device: torch.device) -> None:
    """Refuse random numbers that are not drawn on the device: a recording would repeat the first ones."""
    for node in module.graph.nodes:
        val = node.meta.get("val")
        drawn = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        if drawn and isinstance(val, torch.Tensor) and val.device.type != device.type:
            raise CannotCapture(
                f"{node.target} draws random numbers on {val.device} within the step, which a recording would repeat "
                "in every step; draw them on the device of the model (device=), or pass them in with the batch"
            )


def taken_before(p: torch.Tensor) -> str:
    """The error message for a parameter that the step does not take from the modules."""
    return (
        f"the step uses a parameter of shape {tuple(p.shape)} that was taken before the step began; take parameters "
        "within the step, from model.parameters() or optimizer.param_groups"
    )


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Within, side effects that a trace would miss raise `CannotCapture` before they happen.

    Activation checkpoints compute directly: the planner decides what is recomputed, and a trace would draw other random
    numbers the second time.
    """

    def directly(function: Any, _: bool, *args: Any) -> Any:
        return function(*args)

    def nothing(*_: Any, **__: Any) -> Iterator[None]:
        yield

    with contextlib.ExitStack() as stack:
        for kind in _with_subclasses(LRScheduler):
            if "step" in kind.__dict__:
                _patch(stack, kind, "step", _refuse("a scheduler advances in the step; call it after the step"))
        for module, name in _SEEDS:
            why = "the step sets the state of random numbers, which a planned step does not repeat; set it before"
            _patch(stack, module, name, _refuse(why))
        _patch(stack, torch, "save", _refuse("the step writes a file; save after the step"))
        why = "the step calls step() of an optimizer that is not in optimizers=; add it there"
        unnamed = register_optimizer_step_pre_hook(_refuse(why))
        stack.callback(unnamed.remove)
        checkpoint = torch.utils.checkpoint
        _patch(stack, checkpoint, "CheckpointFunction", types.SimpleNamespace(apply=directly))
        _patch(stack, checkpoint, "_checkpoint_without_reentrant_generator", nothing)
        stack.enter_context(_only_torch_draws())
        yield


def _patch(stack: contextlib.ExitStack, owner: Any, name: str, instead: Any) -> None:
    """Replace an attribute of a module or a class until the stack is closed."""
    stack.callback(setattr, owner, name, owner.__dict__[name])
    setattr(owner, name, instead)


def _refuse(why: str) -> Any:
    """A function that raises `CannotCapture`, with any arguments."""

    def refused(*_: Any, **__: Any) -> NoReturn:
        raise CannotCapture(why)

    return refused


def _with_subclasses(kind: Any) -> Iterator[Any]:
    yield kind
    for one in kind.__subclasses__():
        yield from _with_subclasses(one)


@contextlib.contextmanager
def _only_torch_draws() -> Iterator[None]:
    """Refuse random numbers of Python or NumPy, which would be the same in all steps. Restores the state of both."""
    before = _random_states()
    try:
        yield
        if str(_random_states()) != str(before):
            raise CannotCapture(
                "the step draws random numbers of Python or NumPy, but a planned step would always use the first ones; "
                "draw them with torch, or pass them in with the batch as tensors"
            )
    finally:
        random.setstate(before[0])
        getattr(np.random, "set_state")(before[1])  # noqa: B009


def _random_states() -> tuple[Any, Any]:
    """The random state of Python and of NumPy, in a form that can be compared."""
    kind, numbers, *rest = getattr(np.random, "get_state")()  # noqa: B009
    return random.getstate(), (kind, tuple(numbers.tolist()), *rest)


class GradientAccess(TorchFunctionMode):
    """Checks how a step reads, sets and clears gradients.

    Attributes
    ----------
    cleared : set of int
        Numbers of parameters whose gradient was set to None.
    """

    def __init__(self, originals: Sequence[nn.Parameter], live: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self._originals = {id(p) for p in originals}
        self._live = {id(p): n for n, p in enumerate(live)}
        self._read, self._set = torch.Tensor.grad.__get__, torch.Tensor.grad.__set__
        self._give = torch.Tensor.data.__set__
        self.cleared: set[int] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (self._read, self._set):
            if id(args[0]) in self._originals:
                raise CannotCapture(taken_before(args[0]))
            if func == self._set and args[1] is None and (number := self._live.get(id(args[0]))) is not None:
                self.cleared.add(number)
        elif func == self._give and id(args[0]) in self._live:
            raise CannotCapture(
                "the step assigns to the data of a parameter; change it in place, with copy_() under no_grad()"
            )
        return func(*args, **(kwargs or {}))

    def check(self, live: Sequence[torch.Tensor], trained: set[int]) -> None:
        """Refuse gradients that are left at the end of a step: the next step would add to them."""
        for number in trained - self.cleared:
            if live[number].grad is not None:
                raise CannotCapture(
                    f"the step leaves the gradient of a parameter of shape {tuple(live[number].shape)} for the next "
                    "step, which a trace does not see; call optimizer.zero_grad() and optimizer.step() within the step"
                )
