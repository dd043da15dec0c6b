"""Running a program: instructions become straight lines of Python that call the operations and the device.

    runner = Runner(lifted, program, watched, optimizers, device)
    loss = runner(batch_tensors)

Parameters, buffers and what optimizers keep are moved to their homes when the runner is made: a parameter's `.data` is
then a view of host memory, or of the device's. Tensors of the step live in two lists: `a` has one tensor for every
storage that is on the device, `v` has the views of it that operations want.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .capture import Watched
from .devices import Device
from .hosting import places
from .lift import Call, Lifted, Ref, Update, Value
from .optimizers import Turns
from .program import AGAIN, FREE, GONE, IN, OUT, READY, RUN, Program

_LINES = 400  # instructions in a function


def view(anchor: torch.Tensor, value: Value) -> torch.Tensor:
    """A value from any tensor of its storage."""
    if anchor.dtype == value.dtype:
        return torch.as_strided(anchor, value.size, value.stride, value.offset)
    empty = torch.empty(0, dtype=value.dtype, device=anchor.device)
    return empty.set_(anchor.untyped_storage(), value.offset, value.size, value.stride)


def placed(place: torch.Tensor, value: Value) -> torch.Tensor:
    """A value whose storage is a piece of a larger one: `place`, its bytes. The value begins there."""
    return place.view(value.dtype).as_strided(value.size, value.stride)


def flat(anchor: torch.Tensor) -> torch.Tensor:
    """All bytes of a tensor's storage."""
    storage = anchor.untyped_storage()
    return torch.empty(0, dtype=torch.uint8, device=anchor.device).set_(storage, 0, (storage.nbytes(),), (1,))


class Runner:
    """Runs a program once per call. `lag`: bytes of all storages on the host."""

    def __init__(
        self,
        lifted: Lifted,
        program: Program,
        order: Sequence[int],
        watched: Watched,
        optimizers: Sequence[torch.optim.Optimizer],
        device: Device,
        watch: Callable[[int], None] | None = None,
    ) -> None:
        """order: by node of the program's graph, its number in `lifted`. watch: called after every instruction."""
        self.lifted, self.program, self.watched, self.device = lifted, program, watched, device
        self.optimizers, self.watch = list(optimizers), watch
        self._runs = [lifted.runs[n] for n in order]
        self.a: list[Any] = [None] * len(lifted.graph.storages)
        self.v: list[Any] = [None] * len(lifted.values)
        self._of: dict[int, list[int]] = {}  # by storage: its values
        for number, value in enumerate(lifted.values):
            self._of.setdefault(value.storage, []).append(number)
        offsets, size = places(program)
        self.host_bytes = size
        slab = device.host_room(size) if size else None
        self._there: dict[int, torch.Tensor] = {}
        for s, at in offsets.items():
            assert slab is not None
            self._there[s] = slab[at : at + lifted.nbytes[s]]
        self._states = {s: (number, name) for number, of in lifted.states.items() for name, s in of.items()}
        self._owner = {n: k for k, _, n in self._updated()}
        self._made: set[int] = set()  # states that their optimizer has made
        self._settle_down()
        lasting = {s for s, one in enumerate(lifted.graph.storages) if one.lasting}
        moved = {which for what, which in program.instructions if what in (GONE, FREE)}
        self._travels = sorted((lasting & moved) - program.on_host)  # at home on the device, and away for a while
        self._holders = self._find_holders()
        self._parts = _Writer(self).parts()

    def _updated(self) -> list[tuple[int, int, int]]:
        found = []
        for n, run in enumerate(self.lifted.runs):
            if isinstance(run, Update):
                found += [(run.optimizer, n, p) for p in run.parameters]
        return found

    # -- homes ---------------------------------------------------------------------------------------------------------

    def _settle_down(self) -> None:
        """Move what lasts to its home."""
        lifted = self.lifted
        with torch.no_grad():
            for tensors, storages in (
                (self.watched.parameters, lifted.parameters),
                (self.watched.buffers, lifted.buffers),
            ):
                for tensor, s in zip(tensors, storages, strict=True):
                    tensor.data = self._home(s, tensor.data)
            for s, tensor in lifted.constants.items():
                self._home(s, tensor)
            for s, (number, name) in self._states.items():
                p = self.watched.parameters[number]
                state = self.optimizers[self._owner[number]].state.get(p)
                if state and name in state:
                    state[name] = self._home(s, state[name])
                    self._made.add(s)

    def _home(self, s: int, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor's bytes, at home; the tensor there."""
        layout = Value(s, tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()), 0)
        if s in self.program.on_host:
            here = placed(self._there[s], layout)
            here.copy_(tensor)
            return here
        if tensor.device == self.device.torch and tensor.untyped_storage().nbytes() == self.lifted.nbytes[s]:
            self.a[s] = tensor
            return tensor
        here = view(self.device.room(self.lifted.nbytes[s]), layout)
        here.copy_(tensor)
        self.a[s] = here
        return here

    def _find_holders(self) -> dict[int, torch.Tensor]:
        """By storage: the parameter or buffer whose data it is."""
        lifted = self.lifted
        held = dict(zip(lifted.parameters, self.watched.parameters, strict=True))
        return held | dict(zip(lifted.buffers, self.watched.buffers, strict=True))

    def _show(self, s: int, *, away: bool) -> None:
        """Let a parameter, buffer or state be seen where it is: nobody else may hold on to its room on the device."""
        holder = self._holders.get(s)
        if holder is not None:
            tensor = holder.data
        elif s in self._states and s in self._made:
            number, name = self._states[s]
            state = self.optimizers[self._owner[number]].state[self.watched.parameters[number]]
            tensor = state[name]
        else:
            return
        layout = Value(s, tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()), 0)
        seen = placed(self._there[s], layout) if away else view(self.a[s], layout)
        if holder is not None:
            holder.data = seen
        else:
            state[name] = seen

    # -- a step --------------------------------------------------------------------------------------------------------

    def __call__(self, batch: Sequence[torch.Tensor]) -> list[Any]:
        """The results of one step on the tensors of a batch."""
        for s, tensor in zip(self.lifted.inputs, batch, strict=True):
            self.a[s] = tensor
        with torch.no_grad():
            for s in self._travels:
                self._show(s, away=True)
            for part in self._parts:
                part(self.a, self.v)
            for s in self._travels:
                self._show(s, away=False)
            shown = [self._shown(x) for x in self.lifted.shown]
        for s in (*self.lifted.inputs, *self.lifted.graph.results):
            if not self.lifted.graph.storages[s].lasting:
                self._drop(s)
        return shown

    def _shown(self, x: Any) -> Any:
        if not isinstance(x, Ref):
            return x
        value = self.lifted.values[x.value]
        tensor = view(self.a[value.storage], value)
        return tensor.clone() if self.lifted.graph.storages[value.storage].lasting else tensor

    def settle(self) -> None:
        """Wait until everything that lasts is at home."""
        self.device.settle()

    def _drop(self, s: int) -> None:
        self.a[s] = None
        for number in self._of.get(s, ()):
            self.v[number] = None

    # -- what the lines call -------------------------------------------------------------------------------------------

    def into(self, s: int) -> None:
        if s in self._states and s not in self._made:
            return  # its optimizer will make it
        room = self.device.room(self.lifted.nbytes[s])
        self.device.into(s, self._there[s], room)
        self.a[s] = room

    def ready(self, s: int) -> None:
        if self.a[s] is not None:
            self.device.ready(s)

    def out(self, s: int) -> None:
        self.device.out(s, flat(self.a[s]), self._there[s])

    def updater(self, update: Update) -> Callable[[], None]:
        """Runs an optimizer for some parameters that are on the device now."""
        optimizer = self.optimizers[update.optimizer]
        parameters = [self.watched.parameters[n] for n in update.parameters]
        turns = Turns(optimizer, parameters)
        a, values, states = self.a, self.lifted.values, self.lifted.states
        away = self.program.on_host | set(self._travels)

        def layout(p: torch.Tensor, s: int) -> Value:
            return Value(s, p.dtype, tuple(p.shape), tuple(p.stride()), 0)

        def run() -> None:
            homes = [p.data for p in parameters]
            for (value, grad), p, number in zip(update.values, parameters, update.parameters, strict=True):
                p.data = view(a[values[value].storage], values[value])
                p.grad = view(a[values[grad].storage], values[grad])
                state = optimizer.state[p]
                for name, s in states[number].items():
                    if s in self._made and s in away:
                        state[name] = view(a[s], layout(state[name], s))
            turns.run()
            for p, home, number in zip(parameters, homes, update.parameters, strict=True):
                p.grad = None
                p.data = home
                state = optimizer.state[p]
                for name, s in states[number].items():
                    self._made.add(s)
                    a[s] = state[name]
                    if s in away:
                        state[name] = placed(self._there[s], layout(state[name], s))

        return run


class _Writer:
    """Writes the lines. What is known beforehand (which views exist where) is decided here, not while running."""

    def __init__(self, runner: Runner) -> None:
        self.runner, self.lifted = runner, runner.lifted
        self.pool: list[Any] = []  # things that lines name: operations, views, updates
        self.have: dict[int, set[int]] = {}  # by storage: values that exist
        self.same: dict[Value, int] = {}
        self.number = [self.same.setdefault(value, k) for k, value in enumerate(self.lifted.values)]
        self.lines: list[str] = []

    def parts(self) -> list[Callable[..., None]]:
        parts = []
        instructions = self.runner.program.instructions
        for at in range(0, len(instructions), _LINES):
            self.lines = []
            for place, (what, which) in enumerate(instructions[at : at + _LINES], at):
                self._one(what, which)
                if self.runner.watch is not None:
                    self.lines.append(f"W({place})")
            if at + _LINES >= len(instructions):
                self._let_go()
            body = "\n    ".join(self.lines or ["pass"])
            scope = {"K": self.pool, "view": view, "R": self.runner, "D": self.runner.device, "W": self.runner.watch}
            code = "def part(a, v, K=K, view=view, R=R, D=D, W=W):\n    " + body
            exec(compile(code, f"<stretto step {at}>", "exec"), scope)
            parts.append(scope["part"])
        return parts  # type: ignore[return-value]

    def _let_go(self) -> None:
        """Views of what travels must not keep its room from being given back in the next step."""
        for s in self.runner._travels:
            names = [f"v[{k}]" for k in sorted(self.have.pop(s, ()))]
            if names:
                self.lines.append(" = ".join([*names, "None"]))

    def _one(self, what: int, which: int) -> None:
        if what in (RUN, AGAIN):
            run = self.runner._runs[which]
            if isinstance(run, Update):
                self.lines.append(f"{self._name(self.runner.updater(run))}()")
            else:
                self._call(run)
        elif not self.lifted.graph.storages[which].nbytes:
            return  # the caller's batch, or nothing at all: it stays where it is
        elif what == OUT:
            self.lines.append(f"R.out({which})")
        elif what == GONE:
            self.lines.append(f"D.gone({which})")
            self._forget(which)
        elif what == FREE:
            self._forget(which)
        elif what == IN:
            self.lines.append(f"R.into({which})")
        elif what == READY:
            self.lines.append(f"R.ready({which})")

    def _forget(self, s: int) -> None:
        names = [f"v[{k}]" for k in sorted(self.have.pop(s, ()))]
        self.lines.append(" = ".join([*names, f"a[{s}]", "None"]))

    def _call(self, call: Call) -> None:
        storages = self.lifted.graph.storages
        for ref in _refs((call.args, call.kwargs)):
            self._view(ref.value)
        args = [self._text(x) for x in call.args] + [f"{k}={self._text(x)}" for k, x in call.kwargs.items()]
        text = f"{self._name(call.target)}({', '.join(args)})"
        if not call.makes:
            self.lines.append(text)
            return
        if call.single:
            self._keep(call.makes[0], text)
            return
        self.lines.append(f"r = {text}")
        for k, value in enumerate(call.makes):
            if value >= 0 and not storages[self.lifted.values[value].storage].lasting:
                self._keep(value, f"r[{k}]")
        self.lines.append("r = None")

    def _keep(self, value: int, text: str) -> None:
        """A result: the tensor of its storage unless there is one already."""
        s, number = self.lifted.values[value].storage, self.number[value]
        have = self.have.setdefault(s, set())
        if have:
            return
        self.lines.append(f"v[{number}] = a[{s}] = {text}")
        have.add(number)

    def _view(self, value: int) -> None:
        number = self.number[value]
        one = self.lifted.values[number]
        have = self.have.setdefault(one.storage, set())
        if number not in have:
            self.lines.append(f"v[{number}] = view(a[{one.storage}], {self._name(one)})")
            have.add(number)

    def _text(self, x: Any) -> str:
        if isinstance(x, Ref):
            return f"v[{self.number[x.value]}]"
        if isinstance(x, (list, tuple)) and _refs(x):
            inner = ", ".join(self._text(y) for y in x)
            return f"[{inner}]" if isinstance(x, list) else f"({inner},)"
        if x is None or isinstance(x, (bool, int)):
            return repr(x)
        return self._name(x)

    def _name(self, x: Any) -> str:
        self.pool.append(x)
        return f"K[{len(self.pool) - 1}]"


def _refs(x: Any) -> list[Ref]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(x) if isinstance(leaf, Ref)]
