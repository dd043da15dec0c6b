"""Trace a whole training step into one list of operations: forward, backward, updates.

The step function runs once on fake tensors (shapes without memory). Traced stand-ins replace the parameters of the
modules. The trace does not enter `optimizer.step()`: one `stretto::update` operation for each parameter represents it.
So any optimizer that treats parameters one by one works, with its current settings. The list has no in-place
operations.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functionalize
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from stretto.errors import PlanError
from stretto.memory.operations import loss_scaling, recurrent
from stretto.memory.operations.decompositions import decompositions
from stretto.memory.operations.inplace import without_inplace
from stretto.memory.run.optimizers import check_separate, keeps_numbers

from .python_state import PythonState, ReadNumbers, StateChange, show, without_memory
from .read_values import NumberConversion, ValueReads
from .refusals import reason
from .side_effects import (
    CannotCapture,
    GradientAccess,
    check_apart,
    check_constants,
    check_draws,
    check_hooks,
    guarded,
    taken_before,
)
from .source_lines import at, line_that_changes
from .trace_function import ExternalTensor, NeedsGradient, ReadOnlyMode, record_operations
from .traced_number import TracedNumber
from .traced_state import TracedState, check_owned, optimizers_watched


@dataclass(frozen=True, eq=False)
class TracedStep:
    """The operations of a step as an FX graph, and what its updates refer to."""

    module: torch.fx.GraphModule  # takes parameters, buffers and batch; returns the results
    watched: TracedState  # the parameters and buffers
    updates: tuple[tuple[int, tuple[int, ...]], ...]  # by call of an optimizer's step: (optimizer, its parameters)
    batch_leaves: int  # tensors in the batch
    result_spec: Any  # the nesting of the results (a pytree spec)
    results: int  # how many results
    numbers: ReadNumbers  # Python numbers that the step may have read
    operations: str  # a digest of the operations as they were traced
    reads: ValueReads = field(
        default_factory=ValueReads
    )  # values that the step reads into Python; they are the last results


def trace(
    step: Callable[[Any], Any],
    modules: Sequence[nn.Module],
    optimizers: Sequence[torch.optim.Optimizer],
    batch: Any,
    device: torch.device,
    reads: ValueReads | None = None,
) -> TracedStep:
    """Run `step(batch)` on tensors without memory and record its operations on `device`.

    No tensor of the user is written, and Python state that the step changes is restored. If that state differs after
    the step, the step runs a second time. A change that the second run does not repeat (a cache that is filled, an
    option that is set) has no effect on later steps and is kept. Any other change is refused.

    Parameters
    ----------
    step : callable
        The step function.
    modules, optimizers : sequence
        All modules and optimizers that the step uses.
    batch : object
        An example batch.
    device : torch.device
        The device whose operations are recorded.
    reads : ValueReads, optional
        Values that the step reads into Python, as far as they are known. Without it, a step that reads any is refused.

    Raises
    ------
    CannotCapture
        If the step is not one fixed list of operations.
    """
    watched = TracedState.of(modules)
    numbers = {id(p): n for n, p in enumerate(watched.parameters)}
    check_owned(optimizers, numbers)
    check_hooks(watched.parameters, optimizers)
    check_apart(watched.parameters)
    for optimizer in optimizers:
        check_separate(optimizer)
    leaves, _ = pytree.tree_flatten(batch)
    _check_seen(leaves)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if any(tensor.requires_grad for tensor in tensors):
        raise CannotCapture(
            "a tensor of the batch has requires_grad=True, which is not supported; detach() it, or make it a parameter "
            "of a module"
        )
    state = PythonState.of(step, modules, optimizers)
    attempt = _Attempt(step, watched, optimizers, numbers, batch, device, reads)
    accepted = False
    try:
        first, changes = _run(attempt, state)
        if changes:
            before_second = PythonState.of(step, modules, optimizers)
            second, more = _run(attempt, before_second)
            more += [one for one in changes if one.always]
            if more or _operations(first.module) != _operations(second.module):
                state.restore()
                repeated = {one.label for one in more}
                raise CannotCapture(_changed([c for c in changes if c.label in repeated] or changes, attempt, state))
        accepted = True
    finally:
        if not accepted:
            state.restore()
    return first.traced(tuple(tensors), PythonState.of(step, modules, optimizers).numbers(first.read))


def _run(attempt: _Attempt, state: PythonState) -> tuple[_AttemptTrace, list[StateChange]]:
    """Run one attempt and check it. Returns it with the changes of Python state.

    Fake tensors that leaked into Python state are removed from it, and are not among the changes.
    """
    ran = _run_with_guesses(attempt, state)
    changes = state.changes()
    for one in changes:
        if any(type(x) is TracedNumber for x in pytree.tree_leaves(one.after)):
            raise CannotCapture(
                f"{one.label} keeps a number of the batch, or a value that the step reads, for later; a planned step "
                "does not run its Python again: return the value, and keep it outside of the step"
            )
    state.restore(only=without_memory)
    check_constants(
        ran.module, [*attempt.watched.parameters, *attempt.watched.buffers], [one for one in changes if one.leaked]
    )
    check_draws(ran.module, attempt.device)
    return ran, [one for one in changes if not one.leaked]


def _run_with_guesses(attempt: _Attempt, state: PythonState) -> _AttemptTrace:
    """Run an attempt. If the step reads unknown values, try guesses for them until a branch can be traced."""
    refused: BaseException | None = None
    while True:
        try:
            return attempt()
        except NumberConversion as error:
            state.restore()
            assert attempt.reads is not None
            attempt.reads.rename(error)
        except (CannotCapture, SystemExit) as error:
            refused = refused or error
            if attempt.reads is None or not attempt.reads.other_guess():
                raise refused from refused.__cause__
            state.restore()


def _changed(changes: Sequence[StateChange], attempt: _Attempt, state: PythonState) -> str:
    """The error message for a step that changes Python state, with the line that does it. The state is as before."""
    first = changes[0]
    line = line_that_changes(attempt, lambda: any(one.label == first.label for one in state.changes()))
    values = [show(x) for x in (first.before, first.after)]
    differs = f" from {values[0]} to {values[1]}" if all(values) else ""
    return (
        f"{first.label} changes{differs} in every step{at(line)}; a planned step does not run its Python again: "
        "count and log outside of the step, and pass the values that it needs in with the batch, as tensors"
    )


def _operations(module: torch.fx.GraphModule) -> str:
    """A digest of a trace. Equal digests have the same operations on the same constants."""
    number: dict[Any, int] = {}
    found = hashlib.sha256()

    def text(x: Any) -> str:
        if isinstance(x, torch.fx.Node):
            return f"%{number[x]}"
        if isinstance(x, (list, tuple)):
            return f"({','.join(map(text, x))})"
        return repr(x)

    for n, node in enumerate(module.graph.nodes):
        number[node] = n
        what = str(id(getattr(module, node.target))) if node.op == "get_attr" else str(node.target)
        named = "".join(f"{key}={text(x)}" for key, x in node.kwargs.items())
        found.update(f"{node.op} {what} {text(node.args)} {named};".encode())
    return found.hexdigest()


@dataclass(frozen=True, eq=False)
class _AttemptTrace:
    """The result of one attempt."""

    module: torch.fx.GraphModule
    mode: FakeTensorMode
    args: list[Any]  # the fake tensors it received, with those of changed tensors of no module
    watched: TracedState
    updates: tuple[tuple[int, tuple[int, ...]], ...]
    result_spec: Any
    read: list[torch.Tensor]  # real tensors whose values it read
    reads: ValueReads

    def traced(self, batch: Sequence[torch.Tensor], numbers: ReadNumbers) -> TracedStep:
        """The trace without in-place operations."""
        try:
            with self.mode, _no_stack_traces(), _fast_tracing():
                module = without_inplace(self.module, self.mode) or make_fx(functionalize(self.module))(*self.args)
        except CannotCapture:
            raise
        except Exception as error:
            raise CannotCapture(reason(error)) from error
        module.graph.eliminate_dead_code()
        results = len(_outputs(module))
        operations = _operations(self.module)
        return TracedStep(
            module, self.watched, self.updates, len(batch), self.result_spec, results, numbers, operations, self.reads
        )


@dataclass(frozen=True, eq=False)
class _Attempt:
    """Runs a step on fake tensors and records its operations."""

    step: Callable[[Any], Any]
    watched: TracedState
    optimizers: Sequence[torch.optim.Optimizer]
    numbers: dict[int, int]  # by id of a parameter: its number
    batch: Any
    device: torch.device
    reads: ValueReads | None = None  # None: a step that reads values is refused

    def __call__(self) -> _AttemptTrace:
        watched, device = self.watched, self.device
        leaves, spec = pytree.tree_flatten(self.batch)
        updates: list[tuple[int, tuple[int, ...]]] = []
        result_spec: list[Any] = []

        def run_step(*args: Any) -> list[Any]:
            updates.clear()
            result_spec.clear()
            some, more = len(watched.parameters), len(watched.parameters) + len(watched.buffers)
            parameters, buffers, given = args[:some], args[some:more], iter(args[more:])
            live = [
                t.detach().requires_grad_(p.requires_grad) for t, p in zip(parameters, watched.parameters, strict=True)
            ]
            batch = pytree.tree_unflatten([next(given) if isinstance(x, torch.Tensor) else x for x in leaves], spec)
            gradients = GradientAccess(watched.parameters, live)
            stepping = optimizers_watched(self.optimizers, self.numbers, live, updates, gradients)
            reading = contextlib.nullcontext() if self.reads is None else self.reads.watched()
            with watched.replaced(live, buffers), stepping:
                with gradients, reading:
                    result = self.step(batch)
                watched.check_buffers(buffers)
            trained = {self.numbers[id(p)] for one in self.optimizers for g in one.param_groups for p in g["params"]}
            gradients.check(live, trained)
            flat, one_spec = pytree.tree_flatten(result)
            result_spec.append(one_spec)
            flat = flat if self.reads is None else self.reads.results(flat)
            return [x.detach() if isinstance(x, torch.Tensor) else x for x in flat]

        mode = FakeTensorMode(allow_non_fake_inputs=True)

        def fake(tensor: torch.Tensor) -> Any:
            with mode:
                return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)

        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        args = [fake(p) for p in watched.parameters] + [fake(b) for b in watched.buffers]
        args += [fake(torch.empty_like(t, device="meta")) for t in tensors]  # dense, as the executor places them
        read: list[torch.Tensor] = []
        try:
            with mode, _no_stack_traces(), _fast_tracing(), guarded(), self._traceable():
                module, outside = self._record(run_step, args, mode, read)
            changed = self._changed_outside(outside)
            self._check_counts([optimizer for optimizer, _ in updates])
        except CannotCapture:
            raise
        except NeedsGradient as error:
            if id(error.tensor) in self.numbers:
                raise CannotCapture(taken_before(error.tensor)) from None
            raise CannotCapture(
                f"a tensor of shape {tuple(error.tensor.shape)} that is not a parameter of the modules takes a "
                "gradient, or keeps one for the next step; make it a parameter, or detach() what is added to it"
            ) from None
        except Exception as error:
            raise CannotCapture(reason(error)) from error
        args, watched = _with_arguments(module, changed, args, watched)
        return _AttemptTrace(
            module, mode, args, watched, tuple(updates), result_spec[0], read, self.reads or ValueReads()
        )

    def _record(
        self, function: Callable[..., list[Any]], args: list[Any], mode: FakeTensorMode, read: list[torch.Tensor]
    ) -> tuple[torch.fx.GraphModule, list[ExternalTensor]]:
        """Trace the function with `trace_function`; what that does not support is left to torch's `make_fx`."""
        table = decompositions()
        state = PythonState.of(self.step, self.watched.modules, self.optimizers)
        try:
            return record_operations(function, args, table, mode)
        except (CannotCapture, NeedsGradient):
            raise
        except Exception:
            state.restore()

        def reading(*given: Any) -> list[Any]:
            with ReadOnlyMode(read):
                return function(*given)

        return make_fx(reading, decomposition_table=table)(*args), []

    @contextlib.contextmanager
    def _traceable(self) -> Iterator[None]:
        with recurrent.traceable(self.watched.modules, self.device), loss_scaling.traceable():
            yield

    def _check_counts(self, calls: Sequence[int]) -> None:
        """Refuse several calls of step() of an optimizer that counts its steps: parameters are updated separately."""
        for k, optimizer in enumerate(self.optimizers):
            if calls.count(k) > 1 and keeps_numbers(optimizer):
                raise CannotCapture(
                    f"{type(optimizer).__name__} counts its steps, and the step function calls its step() "
                    f"{calls.count(k)} times; call it once"
                )

    def _changed_outside(self, outside: Sequence[ExternalTensor]) -> list[ExternalTensor]:
        """Real tensors of no module that the step changes in place.

        Refuses those that are not on the device, are options of an optimizer, or share memory with other tensors.
        """
        settings = {id(x) for o in self.optimizers for g in o.param_groups for x in g.values() if torch.is_tensor(x)}
        changed = [one for one in outside if one.changed is not None]
        for one in changed:
            what = f"the step changes a tensor of shape {tuple(one.tensor.shape)} in place{at(one.changed or '')}"
            if one.tensor.device != self.device:
                raise CannotCapture(f"{what}; it is on {one.tensor.device}: create it on {self.device}")
            if id(one.tensor) in settings:
                raise CannotCapture(f"{what}; it is an option of an optimizer: set it between steps")
            nbytes = one.tensor.numel() * one.tensor.element_size()
            if one.tensor.untyped_storage().nbytes() != nbytes or one.tensor.storage_offset():
                raise CannotCapture(f"{what}; it is a view of other memory: change the whole tensor, or clone() it")
        return changed


def _with_arguments(
    module: torch.fx.GraphModule, changed: Sequence[ExternalTensor], args: list[Any], watched: TracedState
) -> tuple[list[Any], TracedState]:
    """Turn constants that the step changes into arguments, after the buffers."""
    place = len(watched.parameters) + len(watched.buffers)
    graph = module.graph
    nodes = list(graph.nodes)
    for one in changed:
        with graph.inserting_before(nodes[place]):
            argument = graph.placeholder(f"outside_{one.node.target.removeprefix('_tensor_constant')}")
        argument.meta = dict(one.node.meta)
        one.node.replace_all_uses_with(argument)
        graph.erase_node(one.node)
        delattr(module, one.node.target)
    args = [*args[:place], *(one.fake for one in changed), *args[place:]]
    return args, replace(watched, outside=tuple(one.tensor for one in changed))


def _outputs(module: torch.fx.GraphModule) -> list[Any]:
    (output,) = (node for node in module.graph.nodes if node.op == "output")
    return list(pytree.tree_leaves(output.args[0]))


def _check_seen(leaves: Sequence[Any]) -> None:
    """Refuse containers that a trace does not enter: tensors in them would become constants."""
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            continue
        inside = leaf if isinstance(leaf, Mapping) else getattr(leaf, "__dict__", {})
        slots = [getattr(leaf, name, None) for name in getattr(type(leaf), "__slots__", ())]
        found = pytree.tree_leaves([list(inside.values()), slots])
        if hasattr(leaf, "__array__") or any(isinstance(x, torch.Tensor) for x in found):
            raise PlanError(
                f"the batch has a {type(leaf).__name__}, whose contents cannot be traced; give batches of tensors in "
                "dicts, lists and tuples, such as dict(batch) or torch.as_tensor(array), at every step"
            )


@contextlib.contextmanager
def _no_stack_traces() -> Iterator[None]:
    """Record no stack trace for each operation, which would take half of the time."""
    from torch.fx import traceback

    before = getattr(traceback, "should_preserve_node_meta", False)
    traceback.should_preserve_node_meta = False
    try:
        yield
    finally:
        traceback.should_preserve_node_meta = before


@contextlib.contextmanager
def _fast_tracing() -> Iterator[None]:
    """Generate no Python code for graphs that are never called, and pause the garbage collector.

    Both would take a quarter of the time for a network of hundreds of layers.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        with _use_lazy_graph_module(True):
            yield
    finally:
        if collecting:
            gc.enable()
