"""Generate Python code from instructions: straight lines that call the operations and the device, without decisions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from stretto.memory.capture.lifted import OpCall, OptimizerUpdate, Ref, Value, refs
from stretto.memory.planner.instructions import (
    ALLOCATE,
    COPY_IN,
    EVICT,
    FREE,
    HOLD,
    IN,
    OUT,
    READY,
    RECOMPUTE,
    RELEASE,
    RUN,
    UNHOLD,
    WAIT_OUT,
    Instruction,
)

from .runner_state import RunnerState
from .updates import Updater
from .views import in_traced_layout, view

Part = Callable[[list[Any], list[Any]], None]  # the tensors of storages, and the views of them

_LINES = 400  # instructions per function


class StepWriter:
    """Generates the code. Everything known in advance (which views exist where) is decided here, not at run time."""

    def __init__(self, runner: RunnerState) -> None:
        self.runner, self.lifted = runner, runner.lifted
        self.pool: list[Any] = []  # objects that the code refers to: operations, views, updates
        self.have: dict[int, set[int]] = {}  # by storage: values that exist
        self.same: dict[Value, int] = {}
        self.number = [self.same.setdefault(value, k) for k, value in enumerate(self.lifted.values)]
        self.lines: list[str] = []

    def parts(self, instructions: Sequence[Instruction], *, last: bool = True) -> list[Part]:
        """Functions that run some instructions, the next of the program. last: the step ends with them."""
        parts: list[Part] = []
        for at in range(0, max(1, len(instructions)), _LINES):
            self.lines = []
            for place, (what, which) in enumerate(instructions[at : at + _LINES], at):
                self._one(what, which)
                if self.runner.watch is not None:
                    self.lines.append(f"W({place})")
            if last and at + _LINES >= len(instructions):
                self._let_go()
            body = "\n    ".join(self.lines or ["pass"])
            scope = {"K": self.pool, "view": view, "laid": in_traced_layout}
            scope |= {"R": self.runner, "D": self.runner.device, "W": self.runner.watch}
            code = "def part(a, v, K=K, view=view, laid=laid, R=R, D=D, W=W):\n    " + body
            exec(compile(code, f"<stretto step {at}>", "exec"), scope)
            parts.append(cast("Part", scope["part"]))
        return parts

    def _let_go(self) -> None:
        """Drop views of swapped storages at the end, so that their memory can be freed in the next step."""
        for s in self.runner.swapped:
            names = [f"v[{k}]" for k in sorted(self.have.pop(s, ()))]
            if names:
                self.lines.append(" = ".join([*names, "None"]))

    def _one(self, what: int, which: int) -> None:
        if what in (RUN, RECOMPUTE):
            run = self.runner.runs[which]
            if isinstance(run, OptimizerUpdate):
                self.lines.append(f"{self._name(Updater(self.runner, run))}()")
            else:
                self._call(run)
        elif what == HOLD:
            self.lines.append(f"R.hold({which})")
        elif what == UNHOLD:
            self.lines.append(f"R.unhold({which})")
        elif what == RELEASE:
            self.lines.append("R.release()")
        elif not self.lifted.graph.storages[which].nbytes:
            return  # the caller's batch, or empty: it stays where it is
        elif what == OUT:
            self.lines.append(f"R.copy_out({which})")
        elif what == EVICT:
            self.lines.append(f"D.wait_evict({which})")
            self._forget(which)
        elif what == FREE:
            self._forget(which)
        elif what == IN:
            self.lines.append(f"R.copy_in({which})")
        elif what == READY:
            self.lines.append(f"R.wait_in({which})")
        elif what == ALLOCATE:
            self.lines.append(f"R.allocate({which})")
        elif what == COPY_IN:
            self.lines.append(f"R.begin_copy_in({which})")
        elif what == WAIT_OUT:
            self.lines.append(f"D.wait_out({which})")

    def _forget(self, s: int) -> None:
        names = [f"v[{k}]" for k in sorted(self.have.pop(s, ()))]
        self.lines.append(" = ".join([*names, f"a[{s}]", "None"]))

    def _call(self, call: OpCall) -> None:
        storages = self.lifted.graph.storages
        for ref in refs((call.args, call.kwargs)):
            self._view(ref.value)
        args = [self._text(x) for x in call.args] + [f"{k}={self._text(x)}" for k, x in call.kwargs.items()]
        if self.runner.device.retries:
            text = f"D.call({', '.join([self._name(call.target), *args])})"
        else:
            text = f"{self._name(call.target)}({', '.join(args)})"
        if not call.makes:
            self.lines.append(text)
            return
        if call.single:
            self._keep(call.makes[0], text)
            return
        self.lines.append(f"r = {text}")
        for k, value in enumerate(call.makes):
            if value >= 0 and not storages[self.lifted.values[value].storage].persistent:
                self._keep(value, f"r[{k}]")
        self.lines.append("r = None")

    def _keep(self, value: int, text: str) -> None:
        """Store a result as the tensor of its storage unless there is one already."""
        s, number = self.lifted.values[value].storage, self.number[value]
        have = self.have.setdefault(s, set())
        if have:
            return
        one = self.lifted.values[value]
        if one.size:
            text = f"laid({text}, {self._name(one)})"
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
        if isinstance(x, (list, tuple)) and refs(x):
            inner = ", ".join(self._text(y) for y in x)
            return f"[{inner}]" if isinstance(x, list) else f"({inner},)"
        if x is None or isinstance(x, (bool, int)):
            return repr(x)
        return self._name(x)

    def _name(self, x: Any) -> str:
        self.pool.append(x)
        return f"K[{len(self.pool) - 1}]"
