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

from stretto.memory.addresses.arena import ALIGNED
from stretto.memory.chunk.embedding_rows import row_gradient_chain
from stretto.memory.operations import recurrent
from stretto.memory.operations.real_results import is_seed, real_dtype, returned
from stretto.memory.planner.graph import Graph, Node, Storage

from .lifted import LiftedStep, OpCall, OptimizerUpdate, Ref, Value, refs
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


class _Lifter:
    """One call of `lift`: collects storages, values and nodes while it reads the traced operations in order."""

    def __init__(
        self,
        traced: TracedStep,
        states: Callable[[int, int], dict[str, int]],
        bucket: int,
        chunk_bytes: Sequence[int],
        batch_held: bool,
        stream_above: int,
        *,
        rounding: bool,
    ) -> None:
        self.traced, self.states_of, self.bucket = traced, states, bucket
        self.chunk_bytes, self.batch_held = chunk_bytes, batch_held
        self.stream_above, self.rounding = stream_above, rounding
        self.skipped: set[Any] = set()  # FX nodes of gradients that are computed in rows
        self.in_rows: dict[Any, Any] = {}  # by FX node of an update: the operation that computes its gradient
        self.gradients: dict[int, OpCall] = {}  # by value of a gradient: the call that computes it in rows
        self.streams: dict[int, tuple[tuple[str, int], ...]] = {}  # by parameter: the state that stays on the host
        self.storages: list[Storage] = []
        self.nbytes: list[int] = []
        self.values: list[Value] = []
        self.nodes: list[Node] = []
        self.runs: list[OpCall | OptimizerUpdate] = []
        self.value_of: dict[Any, Any] = {}  # by FX node: the number of its value, or a list of numbers
        self.known: dict[int, int] = {}  # storages by the identity of the fake one
        self.constants: dict[int, torch.Tensor] = {}
        self.states: dict[int, dict[str, int]] = {}
        self.pending: dict[int, list[tuple[int, int, int]]] = {}  # by call: (parameter, its value, its gradient)
        self.dtypes: dict[Any, Any] = {}  # by storage and dtype of the fake tensor: the real dtype, if it differs
        self.alive: list[Any] = []  # fake tensors, so that no identity is used twice
        self.given: list[int] = []  # values of parameters, buffers and batch
        self.forward = True
        self.borrowed = 0
        self.casts: dict[Any, int] = {}
        self.unless: dict[int, int] = {}  # by call: the value that decides whether its updates are skipped
        self.read: list[int] = []  # storages that Python reads; persistent storages change only after these reads
        self.version: dict[int, int] = {}  # by storage of a parameter: how often it was updated

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

    # -- values --------------------------------------------------------------------------------------------------------

    def _tensor_value(
        self, tensor: Any, kind: str, name: str, dtype: Any = None, *, movable: bool = True
    ) -> tuple[int, bool]:
        """The number of the value of a fake tensor, and whether its storage is new.

        Parameters
        ----------
        dtype : torch.dtype, optional
            The real dtype, if it differs from the fake tensor's.
        movable : bool
            False for a storage that stays where its operation puts it. It counts no bytes, and instructions about it
            have no effect.
        """
        if tensor.is_conj() or tensor.is_neg():
            raise CannotCapture(f"{name} is a conjugate or negative view of other memory; call .resolve_conj() there")
        key = tensor.untyped_storage()._cdata
        new = key not in self.known
        if new:
            size = tensor.untyped_storage().nbytes()
            if not isinstance(size, int):
                raise TypeError("sizes that depend on values")
            if dtype is not None:
                size = size // tensor.dtype.itemsize * dtype.itemsize
                self.dtypes[len(self.storages), tensor.dtype] = dtype
            self.known[key] = len(self.storages)
            self.alive.append(tensor)
            space = -(-size // ALIGNED) * ALIGNED
            if kind == "input" and self.batch_held:
                self.borrowed, space = self.borrowed + space, 0
            if kind == "outside":  # the user's own tensor: it stays where it is, so the planner counts no bytes for it
                kind, space = "buffer", 0
            if not movable:
                space = 0
            self.storages.append(Storage(space, kind, name))
            self.nbytes.append(size)
        value = Value(
            self.known[key],
            self.dtypes.get((self.known[key], tensor.dtype), tensor.dtype),
            tuple(tensor.shape),
            tuple(tensor.stride()),
            int(tensor.storage_offset()),
        )
        self.values.append(value)
        return len(self.values) - 1, new

    def _new(self, node: Any, kind: str, name: str) -> int:
        number, _ = self._tensor_value(node.meta["val"], kind, name)
        self.value_of[node] = number
        return number

    def _bind(self, node: Any, value: int) -> None:
        """Map a node to a known value. Views of the node's fake storage become views of the value's storage."""
        self.value_of[node] = value
        fake = node.meta["val"]
        self.known[fake.untyped_storage()._cdata] = self.values[value].storage
        self.alive.append(fake)

    def _constant(self, node: Any) -> None:
        tensor = getattr(self.traced.module, node.target)
        number, _ = self._tensor_value(node.meta.get("val", tensor), "constant", str(node.target))
        self.value_of[node] = number
        self.constants[self.values[number].storage] = tensor

    def _ref(self, x: Any) -> Any:
        if isinstance(x, torch.fx.Node):
            found = self.value_of[x]
            return [Ref(v) for v in found] if isinstance(found, list) else Ref(found)
        if isinstance(x, (list, tuple)):
            return type(x)(self._ref(y) for y in x) if not hasattr(x, "_fields") else type(x)(*map(self._ref, x))
        if isinstance(x, slice):
            return slice(self._ref(x.start), self._ref(x.stop), self._ref(x.step))
        if isinstance(x, dict):
            return {k: self._ref(y) for k, y in x.items()}
        return x

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

    def _write_to(self, into: int, source: int, name: str) -> None:
        """Add a node that copies a value into a persistent one."""
        self._flush()
        target, origin = self.values[into].storage, self.values[source].storage
        self.runs.append(OpCall(torch.ops.aten.copy_.default, (Ref(into), Ref(source)), {}, (), True))
        reads = tuple(dict.fromkeys((origin, *self.read)))
        self.nodes.append(Node(name, reads, (), (target,), recomputable=False, ordered=False, phase="end"))

    # -- updates -------------------------------------------------------------------------------------------------------

    def _update(self, node: Any) -> None:
        param, grad, *found, call, place = node.args
        if found:
            self.unless[call] = self.value_of[found[0]]
        number = self.traced.updates[call][1][place]
        value = self._write_back(number, self.value_of[param])
        if (maker := self.in_rows.get(node)) is not None:
            self.value_of[grad], _ = self._tensor_value(maker.meta["val"], "gradient", maker.name, movable=False)
            args = self._ref(tuple(maker.args))
            self.gradients[self.value_of[grad]] = OpCall(maker.target, args, {}, (), True)
        self.pending.setdefault(call, []).append((number, value, self.value_of[grad]))
        self._bind(node, value)
        storage = self.values[value].storage
        self.version[storage] = self.version.get(storage, 0) + 1

    def _write_back(self, number: int, value: int) -> int:
        """The value of a parameter that is about to be updated.

        The step may have changed the parameter in place since its last update, as SAM and `max_norm` do. The changed
        value is a new tensor of the trace, so a node writes it to the parameter first.
        """
        own = self.given[number]
        target = self.values[own].storage
        if self.values[value].storage == target:
            return value
        self._write_to(own, value, f"write {self.storages[target].name}")
        self.version[target] = self.version.get(target, 0) + 1
        return own

    def _is_copy_of_update(self, node: Any) -> bool:
        into, source = (self.value_of.get(x) for x in node.args[:2])
        if (
            isinstance(into, int)
            and isinstance(source, int)
            and (
                self.values[into].storage == self.values[source].storage
                and self.storages[self.values[into].storage].kind == "parameter"
            )
        ):
            self._bind(node, source)
            return True
        return False

    def _flush(self) -> None:
        """Add nodes for the collected updates: small parameters together, in the order of their gradients."""
        maker = {s: n for n, one in enumerate(self.nodes) for s in one.makes} if self.pending else {}
        for call, all_of in self.pending.items():
            optimizer = self.traced.updates[call][0]
            bucket: list[tuple[int, int, int]] = []
            size = 0
            for item in sorted(all_of, key=lambda one: maker.get(self.values[one[2]].storage, -1)):
                nbytes = self.nbytes[self.values[item[1]].storage]
                if bucket and size + nbytes > self.bucket:
                    self._add_update(optimizer, bucket, self.unless.get(call))
                    bucket, size = [], 0
                bucket.append(item)
                size += nbytes
            if bucket:
                self._add_update(optimizer, bucket, self.unless.get(call))
        self.pending.clear()

    def _is_streamed(self, optimizer: int, items: list[tuple[int, int, int]]) -> bool:
        """Whether the state of a parameter stays on the host, because its update would need too much memory."""
        value = self.values[items[0][1]]
        nbytes, rows = self.nbytes[value.storage], max(zip(value.stride, value.size, strict=True), default=(0, 1))[1]
        able = len(items) == 1 and bool(self.chunk_bytes) and 0 < self.chunk_bytes[optimizer] < nbytes
        able = able and nbytes <= rows * self.chunk_bytes[optimizer]  # a chunk holds at least one row
        return able and 0 < self.stream_above < nbytes and items[0][0] not in self.states

    def _add_update(self, optimizer: int, items: list[tuple[int, int, int]], unless: int | None) -> None:
        first = items[0][0]
        if self._is_streamed(optimizer, items):
            self.streams[first], self.states[first] = tuple(self.states_of(optimizer, first).items()), {}
        reads: list[int] = [*self.read] if unless is None else [*self.read, self.values[unless].storage]
        writes: list[int] = []
        for number, value, grad in items:
            if number not in self.states:
                self.states[number] = {}
                for name, nbytes in self.states_of(optimizer, number).items():
                    self.states[number][name] = len(self.storages)
                    self.storages.append(
                        Storage(-(-nbytes // ALIGNED) * ALIGNED, "state", f"{name} of parameter {number}")
                    )
                    self.nbytes.append(nbytes)
            changed = [self.values[value].storage, *self.states[number].values()]
            made = self.gradients.get(grad)
            if made is None:
                reads.append(self.values[grad].storage)
            else:
                reads += [self.values[ref.value].storage for ref in refs(made.args)]
            reads += changed
            writes += changed
        label = f"update of {len(items)} parameters" if len(items) > 1 else self.storages[writes[0]].name
        numbers = tuple(number for number, _, _ in items)
        chunk = self.chunk_bytes[optimizer] if self.chunk_bytes and len(items) == 1 else 0
        values = tuple((value, grad) for _, value, grad in items)
        streamed, in_rows = self.streams.get(first, ()), self.gradients.get(items[0][2])
        self.runs.append(
            OptimizerUpdate(optimizer, numbers, values, chunk, unless=unless, streamed=streamed, gradient=in_rows)
        )
        self.nodes.append(
            Node(
                f"update {label}",
                tuple(dict.fromkeys(reads)),
                (),
                tuple(dict.fromkeys(writes)),
                recomputable=False,
                ordered=False,
                phase="update",
            )
        )

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
