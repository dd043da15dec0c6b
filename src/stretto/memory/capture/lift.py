"""Lift traced operations to a graph of storages, with the call and the views of each node.

A *value* is one tensor of the trace: a view (dtype, size, stride, offset) of a storage. Operations that only make views
are not nodes: the executor makes their values from the storage. The final copies into parameters are not nodes either,
because an update changes its parameter in place.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from stretto.memory.chunk.embedding_rows import row_gradient_chain
from stretto.memory.operations import recurrent
from stretto.memory.operations.real_results import is_seed, real_dtype, returned
from stretto.memory.planner.graph import Graph, Node

from .lift_updates import UpdateLifter
from .lifted import LiftedStep, OpCall, OptimizerUpdate, Ref, refs
from .read_values import is_read
from .side_effects import CannotCapture
from .source_lines import at
from .trace_step import TracedStep

BUCKET = 128 << 20  # bytes of small parameters that one node updates together


def lift(
    traced: TracedStep,
    states: Callable[[int, int], dict[str, int]],
    bucket: int = BUCKET,
    *,
    chunk_bytes: Sequence[int] = (),
    batch_held: bool = False,
    stream_above: int = 0,
    rounding: bool = False,
) -> LiftedStep:
    """Lift a traced step to a graph of storages.

    Parameters
    ----------
    traced : TracedStep
        The step.
    states : callable
        states(optimizer, parameter) returns {name: bytes} of the state that the optimizer keeps for a parameter.
    bucket : int
        Bytes of small parameters that are updated together.
    chunk_bytes : sequence of int
        By optimizer: bytes of a parameter that are updated at a time; 0: the whole parameter.
    batch_held : bool
        Whether the caller holds the batch, so that its memory is never freed.
    stream_above : int
        Keep the optimizer state of parameters with more bytes than this on the host, if the optimizer can update them
        row by row. Their gradients are computed in rows where possible. 0: of no parameter.
    rounding : bool
        Compute gradients in rows even if the results are equal only up to rounding.
    """
    return _Lifter(traced, states, bucket, chunk_bytes, batch_held, stream_above, rounding=rounding).made()


class _Lifter(UpdateLifter):
    """One call of `lift`: collects storages, values and nodes while it reads the traced operations in order.

    The arguments are those of `UpdateLifter`; rounding as in `lift`.
    """

    def __init__(self, *args: Any, rounding: bool) -> None:
        super().__init__(*args)
        self.rounding = rounding
        self.skipped: set[Any] = set()  # FX nodes of gradients that are computed in rows
        self.forward = True
        self.casts: dict[Any, int] = {}

    def made(self) -> LiftedStep:
        graph = self.traced.module.graph
        watched = self.traced.watched
        counts = (len(watched.parameters), len(watched.buffers), len(watched.outside), self.traced.batch_leaves)
        names_of_kinds = ("parameter", "buffer", "outside", "input")
        kinds = [k for kind, n in zip(names_of_kinds, counts, strict=True) for k in [kind] * n]
        names = self._names()
        if self.stream_above:
            self._find_gradients_in_rows()
        given: list[int] = []
        for node in graph.nodes:
            if node.op == "placeholder":
                kind, name = kinds[len(given)], names[len(given)]
                self.given.append(self._new(node, kind, name))
                given.append(self.values[self.given[-1]].storage)
            elif node.op == "get_attr":
                self._constant(node)
            elif node.op == "call_function":
                self._operation(node)
        self._flush()
        ends = list(itertools.accumulate(counts))
        shown = self._shown()
        results = tuple(dict.fromkeys(self.values[x.value].storage for x in shown if isinstance(x, Ref)))
        made = Graph(tuple(self.storages), tuple(self.nodes), results)
        made.check()
        return LiftedStep(
            graph=made,
            runs=tuple(self._with_readers(results)),
            values=self.values,
            nbytes=self.nbytes,
            parameters=given[: counts[0]],
            buffers=given[ends[0] : ends[1]],
            outside=given[ends[1] : ends[2]],
            inputs=given[ends[2] :],
            states=self.states,
            shown=shown,
            constants=self.constants,
            other_bytes={"batch": self.borrowed} if self.borrowed else {},
        )

    def _with_readers(self, results: Sequence[int]) -> Iterator[OpCall | OptimizerUpdate]:
        """The calls and updates of all nodes. Each update gets `read`: whether other nodes read its gradients too."""
        readers = dict.fromkeys(results, 1)
        for node, run in zip(self.nodes, self.runs, strict=True):
            grads = [self.values[grad].storage for _, grad in run.values] if isinstance(run, OptimizerUpdate) else []
            for s in (*grads, *(s for s in node.reads if s not in grads)):
                readers[s] = readers.get(s, 0) + 1
        for run in self.runs:
            if isinstance(run, OptimizerUpdate):
                run = replace(run, read=tuple(readers[self.values[grad].storage] > 1 for _, grad in run.values))
            yield run

    def _names(self) -> list[str]:
        watched = self.traced.watched
        names = [all_names[0][1] for all_names in (*watched.parameter_names, *watched.buffer_names)]
        names += [f"tensor {k} outside the modules" for k in range(len(watched.outside))]
        return names + [f"batch[{k}]" for k in range(self.traced.batch_leaves)]

    # -- operations ----------------------------------------------------------------------------------------------------

    def _find_gradients_in_rows(self) -> None:
        for node in self.traced.module.graph.nodes:
            if node.target is not torch.ops.stretto.update.default:
                continue
            param, grad, call, _ = node.args
            value = param.meta["val"]
            chunk = self.chunk_bytes[self.traced.updates[call][0]] if self.chunk_bytes else 0
            large = 0 < max(chunk, self.stream_above) < value.numel() * value.element_size() and chunk > 0
            if large and value.dim() == 2 and value.is_contiguous():
                chain = row_gradient_chain(grad, rounding=self.rounding)
                self.skipped.update(chain)
                if chain:
                    self.in_rows[node] = chain[0]

    def _operation(self, node: Any) -> None:
        target = node.target
        if node in self.skipped:
            return
        if target is operator.getitem:
            found = self.value_of[node.args[0]]
            self.value_of[node] = found[node.args[1]]
            return
        if getattr(target, "namespace", "") == "profiler":
            return  # names for the profiler have no effect on the step
        aten = torch.ops.aten
        if target in (torch.ops.stretto.update.default, torch.ops.stretto.update_unless.default):
            self._update(node)
            return
        if target in (aten.copy.default, aten.copy_.default) and self._is_copy_of_update(node):
            return
        if target is aten.copy_.default:
            self._write(node)
            return
        if (same := self._cast_before(node)) is not None:
            self._bind(node, same)
            return
        results = node.meta.get("val")
        if results is None:  # a check, such as whether a matrix could be inverted
            self._run(node, (), (), single=True)
            return
        single = isinstance(results, torch.Tensor)
        flat = [results] if single else list(results)
        made: list[int] = []
        fresh: list[int] = []
        for k, tensor in enumerate(flat):
            if not isinstance(tensor, torch.Tensor) or not returned(node, k):
                made.append(-1)
                continue
            number, new = self._tensor_value(
                tensor, self._kind(node), f"{node.name}", real_dtype(node, k), movable=not is_seed(node, k)
            )
            made.append(number)
            if new:
                fresh.append(self.values[number].storage)
        self.value_of[node] = made[0] if single else made
        if not fresh and all(m >= 0 for m in made):
            return  # views only
        self._run(node, made, fresh, single=single)

    def _run(self, node: Any, made: Sequence[int], fresh: Sequence[int], *, single: bool) -> None:
        self._flush()  # updates come before the next operation
        args, kwargs = self._ref(tuple(node.args)), self._ref(dict(node.kwargs))
        reads = tuple(dict.fromkeys(self.values[r.value].storage for r in refs((args, kwargs))))
        self.runs.append(OpCall(node.target, args, kwargs, tuple(made), single))
        self.nodes.append(
            Node(
                node.name,
                reads,
                tuple(dict.fromkeys(fresh)),
                recomputable=bool(made) and not _random(node) and not recurrent.runs_once(node) and not is_read(node),
                ordered=_random(node) or is_read(node),
                phase="forward" if self._kind(node) == "activation" else "backward",
            )
        )
        if is_read(node):
            self._check_read(node)
            self.read += fresh

    def _check_read(self, node: Any) -> None:
        """Refuse a condition after a persistent change: a step that takes another branch starts again."""
        condition = self.traced.reads.decides(node.args[1])
        if condition is not None and any(one.writes for one in self.nodes):
            raise CannotCapture(
                f"the step decides by a value{at(condition.line)} that it reads after a parameter or a buffer has "
                "changed; read it before optimizer.step()"
            )

    def _cast_before(self, node: Any) -> int | None:
        """The value of an earlier equal cast of a parameter, if the parameter has not changed since.

        Mixed precision casts a weight at each of its uses.
        """
        if node.target is not torch.ops.aten._to_copy.default:
            return None
        value = self.values[self.value_of[node.args[0]]]
        if not self.storages[value.storage].persistent:
            return None
        key = (value, str(dict(node.kwargs)), self.version.get(value.storage, 0))
        if key in self.casts:
            return self.casts[key]
        self.casts[key] = len(self.values)  # the number that its value is about to get
        return None

    def _kind(self, node: Any) -> str:
        self.forward = self.forward and not begins_backward(node)
        return "activation" if node.meta.get("forward", self.forward) else "gradient"

    def _write(self, node: Any) -> None:
        """Copy a new value into a buffer at the end of the step."""
        into, source = (self.value_of[x] for x in node.args[:2])
        self._bind(node, into)
        target, origin = self.values[into].storage, self.values[source].storage
        if target == origin:
            return
        if not self.storages[target].persistent:
            raise CannotCapture(
                f"the step changes {self.storages[target].name} in place, but the batch belongs to the caller; "
                "clone() it within the step, and change the copy"
            )
        self._write_to(into, source, node.name)

    def _shown(self) -> list[Any]:
        (output,) = (node for node in self.traced.module.graph.nodes if node.op == "output")
        flat = torch.utils._pytree.tree_leaves(output.args[0], is_leaf=lambda x: isinstance(x, torch.fx.Node))
        return [self._ref(x) for x in flat]


def begins_backward(node: Any) -> bool:
    """Whether an operation certainly belongs to the backward pass, which begins with the gradient of the loss."""
    return "backward" in str(node.target) or node.target is torch.ops.aten.ones_like.default


def _random(node: Any) -> bool:
    """Whether an operation draws random numbers. Attention is tagged as if it did even without dropout."""
    if recurrent.draws(node):
        return True
    tags = getattr(node.target, "tags", ())
    if torch.Tag.nondeterministic_seeded not in tags:
        return False
    if "scaled_dot_product" in str(node.target):
        names = [a.name for a in node.target._schema.arguments]
        at = names.index("dropout_p") if "dropout_p" in names else -1
        dropout = node.kwargs.get("dropout_p", node.args[at] if 0 <= at < len(node.args) else 0.0)
        return bool(dropout)
    return True
