"""A whole training step as one list of operations: forward, backward and updates, without in-place operations.

The step function runs once on fake tensors (shapes without memory), with the modules' parameters replaced by ones that
are watched. `optimizer.step()` is not looked into: one `stretto::update` for each parameter stands for it, so that any
optimizer that treats parameters one by one works, with its own settings of the moment.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functionalize
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.utils import stateless
from torch.utils import _pytree as pytree

from stretto.errors import PlanError

from . import ctc, recurrent
from .guard import CannotCapture, Gradients, check_apart, check_constants, check_draws, check_hooks, guarded
from .inplace import without_changes
from .optimizers import check_separate
from .refusals import reason
from .writing import written

_LIBRARY = torch.library.Library("stretto", "FRAGMENT")
_LIBRARY.define("update(Tensor param, Tensor grad, int call, int place) -> Tensor")


@torch.library.register_fake("stretto::update", lib=_LIBRARY)
def _updated(param: Any, grad: Any, call: int, place: int) -> Any:
    return torch.empty_like(param)


@dataclass(frozen=True, eq=False)
class Watched:
    """What a step may change, each once however often it is tied: parameters and buffers with their names.

    places: by parameter, (module number, name) for all of its names."""

    modules: tuple[nn.Module, ...]
    parameters: tuple[nn.Parameter, ...]
    parameter_names: tuple[tuple[tuple[int, str], ...], ...]
    buffers: tuple[torch.Tensor, ...]
    buffer_names: tuple[tuple[tuple[int, str], ...], ...]

    @classmethod
    def of(cls, modules: Sequence[nn.Module]) -> Watched:
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
        """Refuse a step after which modules have other buffers than these."""
        found = [dict(module.named_buffers(remove_duplicate=False)) for module in self.modules]
        for buffer, names in zip(buffers, self.buffer_names, strict=True):
            for m, name in names:
                if found[m].get(name) is not buffer:
                    raise CannotCapture(f"buffer {name} is assigned anew in the step; change it in place, with copy_()")

    @contextlib.contextmanager
    def replaced(self, parameters: Sequence[Any], buffers: Sequence[Any]) -> Iterator[None]:
        """The modules hold these instead, for a while."""
        by_module: list[dict[str, Any]] = [{} for _ in self.modules]
        for tensors, names in ((parameters, self.parameter_names), (buffers, self.buffer_names)):
            for tensor, all_names in zip(tensors, names, strict=True):
                for m, name in all_names:
                    by_module[m][name] = tensor
        with contextlib.ExitStack() as stack:
            for module, replacing in zip(self.modules, by_module, strict=True):
                stack.enter_context(stateless._reparametrize_module(module, replacing))
            yield


@dataclass(frozen=True, eq=False)
class Traced:
    """The operations (an FX graph: parameters, buffers and batch in, results out), and what the updates stand for.

    updates: by call of an optimizer's step, (optimizer number, numbers of its parameters)."""

    module: torch.fx.GraphModule
    watched: Watched
    updates: tuple[tuple[int, tuple[int, ...]], ...]
    batch_leaves: int
    result_spec: Any
    results: int


def trace(
    step: Callable[[Any], Any],
    modules: Sequence[nn.Module],
    optimizers: Sequence[torch.optim.Optimizer],
    batch: Any,
    device: torch.device,
) -> Traced:
    """Run `step(batch)` once without memory and write down what it does on `device`."""
    watched = Watched.of(modules)
    numbers = {id(p): n for n, p in enumerate(watched.parameters)}
    _check_owned(optimizers, numbers)
    check_hooks(watched.parameters, optimizers)
    check_apart(watched.parameters)
    for optimizer in optimizers:
        check_separate(optimizer)
    leaves, spec = pytree.tree_flatten(batch)
    _check_seen(leaves)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if any(tensor.requires_grad for tensor in tensors):
        raise CannotCapture("a tensor of the batch wants a gradient; detach() it, or make it a parameter of a module")
    updates: list[tuple[int, tuple[int, ...]]] = []
    result_spec: list[Any] = []

    def whole(*args: Any) -> list[Any]:
        updates.clear()
        result_spec.clear()
        some, more = len(watched.parameters), len(watched.parameters) + len(watched.buffers)
        parameters, buffers, given = args[:some], args[some:more], args[more:]
        live = [t.detach().requires_grad_(p.requires_grad) for t, p in zip(parameters, watched.parameters, strict=True)]
        left = iter(given)
        again = pytree.tree_unflatten([next(left) if isinstance(x, torch.Tensor) else x for x in leaves], spec)
        gradients = Gradients(watched.parameters, live)
        with watched.replaced(live, buffers), _optimizers_watched(optimizers, numbers, live, updates, gradients):
            with gradients:
                result = step(again)
            watched.check_buffers(buffers)
        gradients.check(
            live, {numbers[id(p)] for one in optimizers for group in one.param_groups for p in group["params"]}
        )
        flat, one_spec = pytree.tree_flatten(result)
        result_spec.append(one_spec)
        return [x.detach() if isinstance(x, torch.Tensor) else x for x in flat]

    mode = FakeTensorMode(allow_non_fake_inputs=True)

    def fake(tensor: torch.Tensor) -> Any:
        with mode:
            return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)

    args = [fake(p) for p in watched.parameters] + [fake(b) for b in watched.buffers]
    args += [fake(torch.empty_like(t, device="meta")) for t in tensors]  # without gaps or overlaps, as they are placed
    try:
        with mode, _no_stack_traces(), _quickly():
            with guarded(step, watched.modules) as kept, recurrent.traceable(watched.modules, device):
                first = _written(whole, args, mode)
            check_constants(first, [*watched.parameters, *watched.buffers], kept)
            check_draws(first, device)
            module = without_changes(first, mode) or make_fx(functionalize(first))(*args)
    except CannotCapture:
        raise
    except Exception as error:
        raise CannotCapture(reason(error)) from error
    module.graph.eliminate_dead_code()
    return Traced(module, watched, tuple(updates), len(tensors), result_spec[0], len(_outputs(module)))


def _written(function: Callable[..., list[Any]], args: list[Any], mode: FakeTensorMode) -> torch.fx.GraphModule:
    """What is not understood is tried torch's way, and it is torch that then says what is wrong with it."""
    instead = _plainly()
    try:
        return written(function, args, instead, mode)
    except CannotCapture:
        raise
    except Exception:
        return make_fx(function, decomposition_table=instead)(*args)


def _outputs(module: torch.fx.GraphModule) -> list[Any]:
    (output,) = (node for node in module.graph.nodes if node.op == "output")
    return list(pytree.tree_leaves(output.args[0]))


def _check_owned(optimizers: Sequence[torch.optim.Optimizer], numbers: dict[int, int]) -> None:
    owners: dict[int, int] = {}
    for k, optimizer in enumerate(optimizers):
        for group in optimizer.param_groups:
            for p in group["params"]:
                if owners.setdefault(id(p), k) != k:
                    raise CannotCapture(f"a parameter of shape {tuple(p.shape)} belongs to two optimizers")
                if id(p) not in numbers:
                    raise PlanError(
                        f"optimizer {k} has a parameter of shape {tuple(p.shape)} that belongs to none of the modules; "
                        "name every module that is trained"
                    )


def _check_seen(leaves: Sequence[Any]) -> None:
    """A tensor in a container that is not looked into would be taken for a constant."""
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            continue
        inside = leaf if isinstance(leaf, Mapping) else getattr(leaf, "__dict__", {})
        slots = [getattr(leaf, name, None) for name in getattr(type(leaf), "__slots__", ())]
        found = pytree.tree_leaves([list(inside.values()), slots])
        if hasattr(leaf, "__array__") or any(isinstance(x, torch.Tensor) for x in found):
            raise PlanError(
                f"the batch has a {type(leaf).__name__} whose numbers are not seen; give batches of tensors in dicts, "
                "lists and tuples, such as dict(batch) or torch.as_tensor(array), here and at every step"
            )


@contextlib.contextmanager
def _optimizers_watched(
    optimizers: Sequence[torch.optim.Optimizer],
    numbers: dict[int, int],
    live: Sequence[Any],
    updates: list[tuple[int, tuple[int, ...]]],
    gradients: Gradients,
) -> Iterator[None]:
    """`step` and `zero_grad` of the optimizers act on the parameters that are watched, which are in their groups."""

    def watch(number: int, optimizer: torch.optim.Optimizer) -> None:
        mine = [numbers[id(p)] for group in optimizer.param_groups for p in group["params"]]

        def step(closure: Any = None) -> None:
            if closure is not None:
                raise CannotCapture(
                    "an optimizer is given a closure (as LBFGS and SAM are); write its forward and backward passes "
                    "into the step function, and call optimizer.step() without one"
                )
            have = [n for n in mine if live[n].grad is not None]
            call = len(updates)
            updates.append((number, tuple(have)))
            with torch.no_grad():
                for place, n in enumerate(have):
                    live[n].copy_(torch.ops.stretto.update(live[n], live[n].grad, call, place))

        def zero_grad(set_to_none: bool = True) -> None:
            gradients.cleared.update(mine)
            for n in mine:
                if live[n].grad is not None:
                    live[n].grad = None if set_to_none else torch.zeros_like(live[n])

        optimizer.step, optimizer.zero_grad = step, zero_grad

    # A scheduler puts a `step` of its own on the optimizer: what was there comes back.
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


@contextlib.contextmanager
def _no_stack_traces() -> Iterator[None]:
    """Writing down where every operation comes from would take half of the time."""
    from torch.fx import traceback

    before = getattr(traceback, "should_preserve_node_meta", False)
    traceback.should_preserve_node_meta = False
    try:
        yield
    finally:
        traceback.should_preserve_node_meta = before


@contextlib.contextmanager
def _quickly() -> Iterator[None]:
    """No Python is written for lists that are never run, and nobody looks for garbage among millions of live objects:
    a quarter of the time for a network of hundreds of layers."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        with _use_lazy_graph_module(True):
            yield
    finally:
        if collecting:
            gc.enable()


def _plainly() -> dict[Any, Callable[..., Any]]:
    """Operations on lists of tensors, tensor by tensor: a list would have to be on the device as a whole. And a batch
    norm that says which running statistics it changes."""
    aten = torch.ops.aten

    def batch_norm(x: Any, w: Any, b: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float) -> Any:
        if mean is None or var is None:
            return aten._native_batch_norm_legit.no_stats(x, w, b, training, momentum, eps)
        return aten._native_batch_norm_legit.default(x, w, b, mean, var, training, momentum, eps)

    def cudnn_batch_norm(
        x: Any, w: Any, b: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
    ) -> Any:
        return (*batch_norm(x, w, b, mean, var, training, momentum, eps), x.new_empty(0, dtype=torch.uint8))

    def cudnn_batch_norm_backward(
        x: Any, grad: Any, w: Any, mean: Any, var: Any, save_mean: Any, save_var: Any, eps: float, reserve: Any
    ) -> Any:
        wanted = [True, True, True]
        return aten.native_batch_norm_backward(grad, x, w, mean, var, save_mean, save_var, True, eps, wanted)

    def norm(tensors: Any, ord: Any = 2, dtype: Any = None) -> Any:
        return [torch.linalg.vector_norm(t, ord, dtype=dtype) for t in tensors]

    def times(tensors: Any, other: Any) -> Any:
        return [t * other for t in tensors]

    def times_(tensors: Any, other: Any) -> Any:
        for t in tensors:
            t.mul_(other)

    return {
        aten.native_batch_norm.default: batch_norm,
        aten.cudnn_batch_norm.default: cudnn_batch_norm,
        aten.cudnn_batch_norm_backward.default: cudnn_batch_norm_backward,
        aten._foreach_norm.Scalar: norm,
        aten._foreach_mul.Tensor: times,
        aten._foreach_mul.Scalar: times,
        aten._foreach_mul_.Tensor: times_,
        aten._foreach_mul_.Scalar: times_,
        aten._conj.default: aten._conj_physical.default,  # what is stored is what is meant
        aten._neg_view.default: aten.neg.default,
        **recurrent.instead(),
        **ctc.instead(),
    }
