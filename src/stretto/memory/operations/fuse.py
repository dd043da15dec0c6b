"""Chains of small operations as one: norms, activations, additions and casts between two large operations.

What lies between matrix products and convolutions is limited by memory: every operation reads and writes everything.
Inductor makes one kernel, or few, of such a chain; what was only passed on inside it is never stored. Chains are joined
before anything is planned, so that the planner sees them as operations, with their costs measured. Results are equal up
to rounding: numbers of two bytes are kept as four inside.
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
from stretto.memory.capture.trace_step import Traced

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

_FEWEST = 2  # operations in a chain
_MOST = 60

_made: dict[str, Any] = {}  # compiled chains by what they do


class Chain:
    """A chain as one operation: tensors in, a tuple out. Compiled when it is first called or measured."""

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
        warnings.simplefilter("ignore", DeprecationWarning)  # the compiler's own affair
        from torch._inductor.compile_fx import compile_fx

        made: Callable[..., Any] = compile_fx(module, list(tensors))
    return made


def fused(traced: Traced, which: str = ALL) -> tuple[Traced, list[str]]:
    """The step with its chains joined, and what to tell about it. which: ALL of them, those that compute gradients
    (BACKWARD: what is computed again in a step is mostly what gradients are computed from), or NONE."""
    chains = [] if which == NONE else list(_chains(traced.module.graph))
    if which == BACKWARD:
        chains = [one for one in chains if _of_gradients(one)]
    if not chains:
        return traced, []
    graph = _Joined(traced.module, chains).graph
    graph.eliminate_dead_code()
    graph.lint()
    count = sum(len(one) for one in chains)
    module = module_of(traced.module, graph)
    return replace(traced, module=module), [f"{count} operations were joined into {len(chains)} by the compiler"]


# -- which operations --------------------------------------------------------------------------------------------------


def _name(node: fx.Node) -> str:
    packet = getattr(node.target, "_overloadpacket", None)
    return str(getattr(packet, "__name__", "")) if node.op == "call_function" else ""


def _of_gradients(members: Sequence[fx.Node]) -> bool:
    return any("backward" in str(node.target) for node in members)


def _passes(node: fx.Node) -> bool:
    """Whether it makes nothing: a view, or one of several results."""
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
    """A cast of a parameter: made once for all who want it."""
    source = node.args[0] if node.args else None
    return _name(node) == "_to_copy" and isinstance(source, fx.Node) and source.op == "placeholder"


def _tensors(node: fx.Node) -> list[Any]:
    value = node.meta.get("val")
    return list(value) if isinstance(value, (tuple, list)) else [value]


def _device(node: fx.Node) -> Any:
    return getattr(_tensors(node)[0], "device", None)


def _chains(graph: fx.Graph) -> Iterator[list[fx.Node]]:
    """Small operations that follow one another with nothing large between them, where one uses another's result."""
    run: list[fx.Node] = []
    for node in graph.nodes:
        if _small(node):
            run.append(node)
        elif not (node.op == "get_attr" or (node.op == "call_function" and (_passes(node) or _of_given(node)))):
            yield from _connected(run)
            run = []
    yield from _connected(run)


@dataclass(eq=False)
class _Root:
    above: _Root | None = None

    def top(self) -> _Root:
        here = self
        while here.above is not None:
            here = here.above
        return here


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
    """What a view, or one of several results, is of."""
    while _passes(node) and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    return node


# -- joining -----------------------------------------------------------------------------------------------------------


class _Joined:
    """A graph written anew, with one operation in the place of each chain. Views are written where they are wanted."""

    def __init__(self, module: fx.GraphModule, chains: Sequence[list[fx.Node]]) -> None:
        self.module, self.graph = module, fx.Graph()
        self.new: dict[Any, fx.Node] = {}  # by node of the old graph, or (node, which of its results)
        inside = {node for members in chains for node in members}
        last = {members[-1]: members for members in chains}
        for node in module.graph.nodes:
            if node in last:
                self._join(last[node])
            elif node not in inside and not (node.op == "call_function" and _passes(node)):
                self.new[node] = self.graph.node_copy(node, self._seen)

    def _seen(self, node: fx.Node) -> fx.Node:
        """The new node for one that may be a view, or one of several results."""
        if node not in self.new:
            if node.target is operator.getitem and (made := self.new.get((node.args[0], node.args[1]))) is not None:
                self.new[node] = made
            else:
                self.new[node] = self.graph.node_copy(node, self._seen)
        return self.new[node]

    def _join(self, members: list[fx.Node]) -> None:
        given, shown, body = _body(self.module, members)
        kind = "fused_backward" if _of_gradients(members) else "fused"
        chain = Chain(body, _key(body, given), kind)
        one = self.graph.call_function(chain, tuple(self._seen(node) for node in given))
        values = [node.meta["val"] if k is None else node.meta["val"][k] for node, k in shown]
        one.meta["val"] = tuple(values)
        for at, ((node, k), value) in enumerate(zip(shown, values, strict=True)):
            made = self.graph.call_function(operator.getitem, (one, at))
            made.meta["val"] = value
            self.new[node if k is None else (node, k)] = made


def _body(
    module: fx.GraphModule, members: list[fx.Node]
) -> tuple[list[fx.Node], list[tuple[fx.Node, int | None]], fx.GraphModule]:
    """What a chain is given, which results of which members it shows, and its operations as a module."""
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

    # Places of what is given come first in a graph: look at everything once.
    for node in members:
        for source in node.all_input_nodes:
            if _base(source) not in inside:
                into(source)
    for node in members:
        known[node] = inner.node_copy(node, into)
    shown: list[tuple[fx.Node, int | None]] = []
    for node in members:
        if isinstance(node.meta["val"], torch.Tensor):
            shown += [(node, None)] if _wanted(node, inside) else []
        else:
            wanted = {user.args[1] for user in node.users if user.target is operator.getitem and _wanted(user, inside)}
            shown += [(node, k) for k in sorted(wanted)]
    inner.output(
        tuple(known[n] if k is None else inner.call_function(operator.getitem, (known[n], k)) for n, k in shown)
    )
    return given, shown, fx.GraphModule(module, inner)


def _wanted(node: fx.Node, inside: set[fx.Node]) -> bool:
    """Whether anything outside of the chain uses a value, or a view of it."""
    for user in node.users:
        if user in inside:
            continue
        if not _passes(user) or _wanted(user, inside):
            return True
    return False


def _key(body: fx.GraphModule, given: Sequence[fx.Node]) -> str:
    """What a chain does, in words: equal chains are compiled once."""
    names = {node: f"n{k}" for k, node in enumerate(body.graph.nodes)}
    lines = [
        f"{node.target}{fx.map_arg(node.args, lambda n: names[n])}{dict(fx.map_arg(node.kwargs, lambda n: names[n]))}"
        for node in body.graph.nodes
        if node.op != "placeholder"
    ]
    kinds = [f"{t.dtype}{tuple(t.shape)}{tuple(t.stride())}{t.device}" for n in given for t in [n.meta["val"]]]
    return "\n".join([*kinds, *lines])
