"""What a step may not do while it is written down: whatever would happen once and silently never again.

A trace sees operations on tensors. The Python around them runs once: a scheduler that advances, a module that keeps a
tensor for the next step, gradients that wait for a later call. Such steps are refused, and run as they are.
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

from .python_state import ABSENT, Change

_SEEDS = [
    (room, name)
    for room in (torch, torch.random, torch.cuda, torch.cuda.random)
    for name in ("manual_seed", "manual_seed_all", "seed", "set_rng_state")
    if hasattr(room, name)
]


class CannotCapture(PlanError):
    """A step that is not one fixed list of operations."""


def check_hooks(parameters: Sequence[nn.Parameter], optimizers: Sequence[torch.optim.Optimizer]) -> None:
    """Refuse hooks that would not run, or not as often."""
    for p in parameters:
        if p._backward_hooks or getattr(p, "_post_accumulate_grad_hooks", None):
            raise CannotCapture(f"a parameter of shape {tuple(p.shape)} has hooks, which would not run")
    if any(one._optimizer_step_pre_hooks or one._optimizer_step_post_hooks for one in optimizers):
        raise CannotCapture("an optimizer has hooks for its steps, which would run for every few parameters")


def check_apart(parameters: Sequence[nn.Parameter]) -> None:
    """Refuse parameters that share memory and are not the same one: they would come apart."""
    real = [p for p in parameters if p.device.type != "meta" and p.numel() and not isinstance(p, FakeTensor)]
    spans = sorted((p.data_ptr(), p.data_ptr() + _extent(p)) for p in real)
    if any(begin < end for (_, end), (begin, _) in itertools.pairwise(spans)):
        raise CannotCapture("two parameters share memory and are not one; let the modules have the same parameter")


def _extent(p: torch.Tensor) -> int:
    return int((1 + sum((n - 1) * k for n, k in zip(p.shape, p.stride(), strict=True))) * p.element_size())


def check_constants(module: torch.fx.GraphModule, watched: Sequence[torch.Tensor], leaked: Sequence[Change]) -> None:
    """Refuse a trace in which a parameter or a buffer is a constant: the step had it from before. Likewise a tensor
    that the step keeps for the next one.

    leaked : changes of Python state after which a tensor of the trace is in it
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
        if grows or not tensors or any(x.data_ptr() in places for x in tensors):  # otherwise it is new in every step
            raise CannotCapture(
                f"{one.label} keeps a tensor from one step for the next, where the trace would always have the first; "
                "pass it in and out of the step, or make it a buffer that is changed in place; if it is a cache, run "
                "the model once before"
            )


def check_draws(module: torch.fx.GraphModule, device: torch.device) -> None:
    """Refuse random numbers that are not drawn on the device: a recording would have the first for ever."""
    for node in module.graph.nodes:
        val = node.meta.get("val")
        drawn = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        if drawn and isinstance(val, torch.Tensor) and val.device.type != device.type:
            raise CannotCapture(
                f"{node.target} draws random numbers on {val.device} within the step, of which a recording has the "
                "first for ever; draw them where the model is (device=), or pass them in with the batch"
            )


def taken_before(p: torch.Tensor) -> str:
    """The message for a parameter that the step does not take from the modules."""
    return (
        f"the step uses a parameter of shape {tuple(p.shape)} that was taken before it began; take parameters within "
        "the step, from model.parameters() or optimizer.param_groups"
    )


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Within, what a trace would miss raises `CannotCapture` before it does any harm. Checkpoints compute directly: the
    planner decides what is recomputed, and a trace would draw other random numbers the second time."""

    def directly(function: Any, _: bool, *args: Any) -> Any:
        return function(*args)

    def nothing(*_: Any, **__: Any) -> Iterator[None]:
        yield

    with contextlib.ExitStack() as stack:
        for kind in _kinds(LRScheduler):
            if "step" in kind.__dict__:
                _put(stack, kind, "step", _said("a scheduler advances in the step; call it after the step"))
        for room, name in _SEEDS:
            _put(stack, room, name, _said("the step sets the state of random numbers, which a trace does not see"))
        _put(stack, torch, "save", _said("the step writes a file; save after the step"))
        unnamed = register_optimizer_step_pre_hook(_said("an optimizer steps that was not named in optimizers="))
        stack.callback(unnamed.remove)
        checkpoint = torch.utils.checkpoint
        _put(stack, checkpoint, "CheckpointFunction", types.SimpleNamespace(apply=directly))
        _put(stack, checkpoint, "_checkpoint_without_reentrant_generator", nothing)
        stack.enter_context(_only_torch_draws())
        yield


def _put(stack: contextlib.ExitStack, room: Any, name: str, instead: Any) -> None:
    """Something else under a name of a module or a class itself, until the stack is left."""
    stack.callback(setattr, room, name, room.__dict__[name])
    setattr(room, name, instead)


def _said(why: str) -> Any:
    def refused(*_: Any, **__: Any) -> NoReturn:
        raise CannotCapture(why)

    return refused


def _kinds(kind: Any) -> Iterator[Any]:
    yield kind
    for one in kind.__subclasses__():
        yield from _kinds(one)


@contextlib.contextmanager
def _only_torch_draws() -> Iterator[None]:
    """Random numbers of Python or NumPy would be the same ones in all steps. Those that were drawn are given back."""
    before = _drawn()
    try:
        yield
        if str(_drawn()) != str(before):
            raise CannotCapture(
                "the step draws random numbers of Python or NumPy, of which a trace has the first for ever; draw them "
                "with torch, or pass them in with the batch as tensors"
            )
    finally:
        random.setstate(before[0])
        getattr(np.random, "set_state")(before[1])  # noqa: B009


def _drawn() -> tuple[Any, Any]:
    """The state of both, of NumPy's as numbers that can be compared."""
    kind, numbers, *rest = getattr(np.random, "get_state")()  # noqa: B009
    return random.getstate(), (kind, tuple(numbers.tolist()), *rest)


class Gradients(TorchFunctionMode):
    """Watches who looks at gradients. cleared: numbers of parameters whose gradient was set to None."""

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
            raise CannotCapture("the step gives a parameter new data; change it in place, with copy_() under no_grad()")
        return func(*args, **(kwargs or {}))

    def check(self, live: Sequence[torch.Tensor], trained: set[int]) -> None:
        """At the end of a step: gradients that are left would be there in the next one."""
        for number in trained - self.cleared:
            if live[number].grad is not None:
                raise CannotCapture(
                    f"the gradient of a parameter of shape {tuple(live[number].shape)} is left for the next step, "
                    "which a trace does not see; call optimizer.zero_grad() and optimizer.step() within the step"
                )
