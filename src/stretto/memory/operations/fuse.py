"""Fuse chains of small operations into one: norms, activations, additions and casts between two large operations.

Operations between matrix products and convolutions are limited by memory: each reads and writes everything. Inductor
compiles one kernel, or a few, for such a chain; values inside it are never stored. Chains are fused before planning, so
the planner treats them as operations with measured costs. Results are equal up to rounding: numbers of two bytes are
kept as four inside.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from stretto.memory.capture.trace_function import module_of
from stretto.memory.capture.trace_step import TracedStep

_NAMES = frozenset(
    {
        "native_layer_norm",
        "native_layer_norm_backward",
        "_native_batch_norm_legit",
        "native_batch_norm_backward",
        "_native_batch_norm_legit_functional",
        "_native_batch_norm_legit_no_training",
        "native_group_norm",
        "native_group_norm_backward",
        "sum",
        "mean",
        "amax",
        "amin",
        "var_mean",
        "threshold_backward",
        "gelu",
        "gelu_backward",
        "silu_backward",
        "tanh_backward",
        "sigmoid_backward",
        "leaky_relu_backward",
        "_softmax",
        "_softmax_backward_data",
        "_to_copy",
        "clone",
        "stack",
        "cat",
        "where",
        "full_like",
        "zeros_like",
        "ones_like",
        "native_dropout_backward",
    }
)
_VIEWS = frozenset(
    {
        "view",
        "_unsafe_view",
        "t",
        "transpose",
        "permute",
        "expand",
        "slice",
        "select",
        "squeeze",
        "unsqueeze",
        "alias",
        "detach",
        "reshape",
    }
)
ALL, BACKWARD, NONE = "all", "backward", "none"

_FEWEST = 2  # operations in a chain at least
_MOST = 60  # operations in a chain at most

_made: dict[str, Any] = {}  # by key: the compiled chain


class Chain:
    """A fused chain as one operation: takes tensors, returns a tuple. Compiled when it is first called or measured."""

    def __init__(self, module: fx.GraphModule, key: str, name: str) -> None:
        self.module, self.key, self.__name__ = module, key, name

    def __call__(self, *tensors: torch.Tensor) -> Any:
        made = _made.get(self.key)
        if made is None:
            made = _made[self.key] = _compiled(self.module, tensors)
        return made(*tensors)

    def __str__(self) -> str:
        import hashlib

        return f"{self.__name__}_{hashlib.sha256(self.key.encode()).hexdigest()[:16]}"

    __repr__ = __str__


def _compiled(module: fx.GraphModule, tensors: Sequence[torch.Tensor]) -> Callable[..., Any]:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # raised inside the compiler
        from torch._inductor.compile_fx import compile_fx

        made: Callable[..., Any] = compile_fx(module, list(tensors))
    return made


def fused(traced: TracedStep, which: str = ALL) -> tuple[TracedStep, list[str]]:
    """Fuse the chains of a step. Returns the step with notes for the report.

    Parameters
    ----------
    traced : TracedStep
        The step.
    which : str
        ALL chains, those that compute gradients (BACKWARD; recomputation mostly concerns the other ones), or NONE.
    """
    chains = [] if which == NONE else list(_chains(traced.module.graph))
    if which == BACKWARD:
        chains = [one for one in chains if _of_gradients(one)]
    if not chains:
        return traced, []
    graph = _FusedGraph(traced.module, chains).graph
    graph.eliminate_dead_code()
    graph.lint()
    count = sum(len(one) for one in chains)
    module = module_of(traced.module, graph)
    return replace(traced, module=module), [f"the compiler fuses {count} operations into {len(chains)}"]


# -- which operations --------------------------------------------------------------------------------------------------


def _name(node: fx.Node) -> str:
    packet = getattr(node.target, "_overloadpacket", None)
    return str(getattr(packet, "__name__", "")) if node.op == "call_function" else ""


def _of_gradients(members: Sequence[fx.Node]) -> bool:
    return any("backward" in str(node.target) for node in members)


def _is_view(node: fx.Node) -> bool:
    """Whether an operation computes nothing: a view, or one of several results."""
    return node.target is operator.getitem or _name(node) in _VIEWS


def _small(node: fx.Node) -> bool:
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return False
    if torch.Tag.nondeterministic_seeded in node.target.tags or node.target.is_view:
        return False
    schema = node.target._schema
    if schema.is_mutable or node.target.namespace not in ("aten", "prims"):
        return False
    if not all(isinstance(t, torch.Tensor) for t in _tensors(node)):
        return False
    if _of_given(node):
        return False
    if any(_device(source) != _device(node) for source in node.all_input_nodes):
        return False
    return torch.Tag.pointwise in node.target.tags or _name(node) in _NAMES


def _of_given(node: fx.Node) -> bool:
    """Whether an operation casts a parameter; one cast serves all its users."""
    source = node.args[0] if node.args else None
    return _name(node) == "_to_copy" and isinstance(source, fx.Node) and source.op == "placeholder"


def _tensors(node: fx.Node) -> list[Any]:
    value = node.meta.get("val")
    return list(value) if isinstance(value, (tuple, list)) else [value]


def _device(node: fx.Node) -> Any:
    return getattr(_tensors(node)[0], "device", None)


def _chains(graph: fx.Graph) -> Iterator[list[fx.Node]]:
    """Small operations in sequence with no large one between them, connected by their results."""
    run: list[fx.Node] = []
    for node in graph.nodes:
        if _small(node):
            run.append(node)
        elif not (node.op == "get_attr" or (node.op == "call_function" and (_is_view(node) or _of_given(node)))):
            yield from _connected(run)
            run = []
    yield from _connected(run)


@dataclass(eq=False)
class _Root:
    above: _Root | None = None

    def top(self) -> _Root:
        root = self
        while root.above is not None:
            root = root.above
        return root


def _connected(run: list[fx.Node]) -> Iterator[list[fx.Node]]:
    if len(run) < _FEWEST:
        return
    roots = {node: _Root() for node in run}
    for node in run:
        for source in node.all_input_nodes:
            base = _base(source)
            if base in roots and roots[base].top() is not roots[node].top():
                roots[base].top().above = roots[node].top()
    groups: dict[int, list[fx.Node]] = {}
    for node in run:
        groups.setdefault(id(roots[node].top()), []).append(node)
    for members in groups.values():
        for at in range(0, len(members), _MOST):
            part = members[at : at + _MOST]
            if len(part) >= _FEWEST:
                yield part


def _base(node: fx.Node) -> fx.Node:
    """The operation whose result a view, or one of several results, belongs to."""
    while _is_view(node) and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    return node


# -- joining -----------------------------------------------------------------------------------------------------------


class _FusedGraph:
    """Rewrites a graph with one operation for each chain. Views are written where they are used."""

    def __init__(self, module: fx.GraphModule, chains: Sequence[list[fx.Node]]) -> None:
        self.module, self.graph = module, fx.Graph()
        self.new: dict[Any, fx.Node] = {}  # by node of the old graph, or (node, number of its result): the new node
        inside = {node for members in chains for node in members}
        last = {members[-1]: members for members in chains}
        for node in module.graph.nodes:
            if node in last:
                self._join(last[node])
            elif node not in inside and not (node.op == "call_function" and _is_view(node)):
                self.new[node] = self.graph.node_copy(node, self._new_node)

    def _new_node(self, node: fx.Node) -> fx.Node:
        """The new node for a node that may be a view, or one of several results."""
        if node not in self.new:
            if node.target is operator.getitem and (made := self.new.get((node.args[0], node.args[1]))) is not None:
                self.new[node] = made
            else:
                self.new[node] = self.graph.node_copy(node, self._new_node)
        return self.new[node]

    def _join(self, members: list[fx.Node]) -> None:
        given, outputs, body = _body(self.module, members)
        kind = "fused_backward" if _of_gradients(members) else "fused"
        chain = Chain(body, _key(body, given), kind)
        one = self.graph.call_function(chain, tuple(self._new_node(node) for node in given))
        values = [node.meta["val"] if k is None else node.meta["val"][k] for node, k in outputs]
        one.meta["val"] = tuple(values)
        for at, ((node, k), value) in enumerate(zip(outputs, values, strict=True)):
            made = self.graph.call_function(operator.getitem, (one, at))
            made.meta["val"] = value
            self.new[node if k is None else (node, k)] = made


def _body(
    module: fx.GraphModule, members: list[fx.Node]
) -> tuple[list[fx.Node], list[tuple[fx.Node, int | None]], fx.GraphModule]:
    """The inputs of a chain, the results that leave it, and its operations as a module."""
    inside, inner = set(members), fx.Graph()
    given: list[fx.Node] = []
    known: dict[fx.Node, fx.Node] = {}

    def into(node: fx.Node) -> fx.Node:
        if node not in known:
            if _base(node) in inside:
                known[node] = inner.node_copy(node, into)
            else:
                known[node] = inner.placeholder(f"x{len(given)}")
                given.append(node)
        return known[node]

    # Placeholders come first in a graph, so visit all inputs once before the operations.
    for node in members:
        for source in node.all_input_nodes:
            if _base(source) not in inside:
                into(source)
    for node in members:
        known[node] = inner.node_copy(node, into)
    outputs: list[tuple[fx.Node, int | None]] = []
    for node in members:
        if isinstance(node.meta["val"], torch.Tensor):
            outputs += [(node, None)] if _leaves(node, inside) else []
        else:
            wanted = {user.args[1] for user in node.users if user.target is operator.getitem and _leaves(user, inside)}
            outputs += [(node, k) for k in sorted(wanted)]
    inner.output(
        tuple(known[n] if k is None else inner.call_function(operator.getitem, (known[n], k)) for n, k in outputs)
    )
    return given, outputs, fx.GraphModule(module, inner)


def _leaves(node: fx.Node, inside: set[fx.Node]) -> bool:
    """Whether an operation outside the chain uses a value, or a view of it."""
    for user in node.users:
        if user in inside:
            continue
        if not _is_view(user) or _leaves(user, inside):
            return True
    return False


def _key(body: fx.GraphModule, given: Sequence[fx.Node]) -> str:
    """A text that describes what a chain does: chains with equal keys are compiled once."""
    names = {node: f"n{k}" for k, node in enumerate(body.graph.nodes)}
    lines = [
        f"{node.target}{fx.map_arg(node.args, lambda n: names[n])}{dict(fx.map_arg(node.kwargs, lambda n: names[n]))}"
        for node in body.graph.nodes
        if node.op != "placeholder"
    ]
    kinds = [f"{t.dtype}{tuple(t.shape)}{tuple(t.stride())}{t.device}" for n in given for t in [n.meta["val"]]]
    return "\n".join([*kinds, *lines])
