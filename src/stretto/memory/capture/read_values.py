"""Values that a step reads into Python: `if loss > 2.0`, `if not torch.isfinite(norm)`, `return loss.item()`.

While a step is traced, no value is known. A value that the step reads is a `TracedNumber`, which records its uses. A
guess, or the values of an earlier step, decides which branch the trace takes. The plan is for steps that take the same
branches: in every step a `stretto::read` operation reads the value and checks the conditions on it. If a step takes
another branch, it starts again with the plan for that branch. Nothing persistent changes before the last value is read.

    reads = Reads()
    traced = trace(step, …, reads=reads)      # reads.conditions are known now
    with reads.checked():
        run()                                 # raises `OtherBranch` where a condition does not hold
"""

from __future__ import annotations

import contextlib
import dis
import operator
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from .batch_numbers import Condition
from .side_effects import CannotCapture
from .source_lines import at, is_users, users_line
from .traced_number import Evaluate, TracedNumber

_LIBRARY = torch.library.Library("stretto", "FRAGMENT")
_LIBRARY.define("read(Tensor x, int number) -> Tensor")
_COMPARING: list[ReadChecker] = []
_READERS = {
    torch.Tensor.item: None,
    torch.Tensor.__bool__: None,
    torch.Tensor.__float__: float,
    torch.Tensor.__int__: int,
}
_MANY = 64  # values that a step may read
_OTHERS: dict[type, list[Any]] = {float: [1e30, 0.0, -1e30], int: [1 << 40, 0, -(1 << 40)]}  # guesses after the first


class OtherBranch(Exception):
    """The step takes another branch than its plan. values: all values that it has read so far."""

    def __init__(self, values: list[Any]) -> None:
        super().__init__("the step takes another branch than its plan")
        self.values = values


class NumberConversion(BaseException):
    """The user's module calls float() or int() on a tensor, which must return a plain number.

    Tracing starts again with that name replaced in the module. Not an `Exception`, which the step might catch.
    """

    def __init__(self, names: dict[str, Any], kind: Any) -> None:
        super().__init__(kind.__name__)
        self.names, self.kind = names, kind


class ReadChecker:
    """The values that one step has read, checked against the conditions of its plan."""

    def __init__(self, reads: ValueReads) -> None:
        self.values: list[Any] = []
        self._ending: dict[int, list[Condition]] = {}
        for one in reads.conditions:
            self._ending.setdefault(max(one.entries), []).append(one)

    def read(self, number: int, tensor: torch.Tensor) -> None:
        self.values.append(tensor.item())  # waits for the device
        if not all(one.holds(self.values) for one in self._ending.get(number, ())):
            raise OtherBranch(self.values)


def _read(x: torch.Tensor, number: int) -> torch.Tensor:
    if _COMPARING:
        _COMPARING[-1].read(number, x)
    return x.clone()


_LIBRARY.impl("read", _read, "CompositeExplicitAutograd")


@torch.library.register_fake("stretto::read", lib=_LIBRARY)
def _fake_read(x: Any, number: int) -> Any:
    return torch.empty_like(x)


def is_read(node: Any) -> bool:
    """Whether an operation of a trace reads a value."""
    return node.target is torch.ops.stretto.read.default


class ValueReads:
    """The values that a step reads into Python, in order.

    Attributes
    ----------
    known : list
        Values for the first reads while the step is traced; later ones are guessed.
    values : list
        All values, as the trace had them.
    conditions : list of Condition
        The conditions under which the step takes the branches of the trace.
    """

    # Slots instead of a __dict__: `python_state` searches dictionaries for tensors that a step keeps.
    __slots__ = (
        "_given",
        "_lines",
        "_names",
        "_results",
        "_tensors",
        "_tried",
        "conditions",
        "known",
        "log",
        "tracing",
        "values",
    )

    def __init__(self, known: Sequence[Any] = ()) -> None:
        self.known = list(known)
        self.tracing = False  # so arithmetic with a tensor uses the value itself, which is refused
        self._names: list[tuple[dict[str, Any], Any]] = []
        self._given, self._tried = len(self.known), dict[int, int]()  # by value: how many guesses were tried
        self._begin()

    def _begin(self) -> None:
        self.values: list[Any] = []
        self.conditions: list[Condition] = []
        self._tensors: list[Any] = []
        self._results: dict[int, Evaluate] = {}  # by position among the results
        self._lines: dict[str, Any] = {}  # by line of the user's code: the value that was last read there
        self.log: list[str] = []  # arithmetic and comparisons with other numbers, which may change between steps

    def __len__(self) -> int:
        return len(self.values)

    # -- while a step is traced ----------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Within, reads of the step that is traced are recorded."""
        self._begin()
        before = [(names, kind.__name__, names.get(kind.__name__)) for names, kind in self._names]
        for names, kind in self._names:
            names[kind.__name__] = _KINDS[kind]
        try:
            with _ReadMode(self):
                yield
        finally:
            for names, name, old in reversed(before):
                if old is None:
                    del names[name]
                else:
                    names[name] = old

    def rename(self, error: NumberConversion) -> None:
        """Replace float() or int() in a user's module by a version that returns a `TracedNumber`."""
        self._names.append((error.names, error.kind))

    def other_guess(self) -> bool:
        """Change the last guess that has an alternative; False if there is none.

        A guess may lead to a branch that raises an error, or that does what a trace must not.
        """
        for k in range(len(self.values) - 1, -1, -1):
            guesses = [not self.values[k]] if isinstance(self.values[k], bool) else _OTHERS[type(self.values[k])]
            tried = self._tried.get(k, 0)
            if k >= self._given and tried < len(guesses):
                self._tried = {**{n: t for n, t in self._tried.items() if n < k}, k: tried + 1}
                self.known = [*self.values[:k], guesses[tried]]
                return True
        return False

    def results(self, flat: list[Any]) -> list[Any]:
        """The results of a step without `TracedNumber`s, followed by the tensors that were read."""
        self._results = {k: x.evaluate for k, x in enumerate(flat) if type(x) is TracedNumber and x.numbers is self}
        return [None if k in self._results else x for k, x in enumerate(flat)] + self._tensors

    def read(self, x: Any, reader: Any) -> Any:
        kind = _READERS[reader]
        if kind is not None:
            raise NumberConversion(_names_of_user(kind), kind)
        k = len(self.values)
        if k >= _MANY:
            raise CannotCapture(
                f"the step reads more than {_MANY} values of tensors into Python{at(users_line())}; keep them tensors"
            )
        with torch.no_grad():
            self._tensors.append(torch.ops.stretto.read(x.detach(), k))
        line = users_line()
        guess = _guess(x)
        if type(self._lines.get(line)) is type(guess):  # in a loop, or for another batch
            guess = self._lines[line]
        self.values.append(self.known[k] if k < len(self.known) else guess)
        self._lines[line] = self.values[k]
        evaluate: Evaluate = operator.itemgetter(k)
        if isinstance(self.values[k], bool):
            self.compared(evaluate, self.values[k], (k,))
            return self.values[k]
        number = TracedNumber(self, evaluate, self.values[k], (k,))
        return bool(number) if reader is torch.Tensor.__bool__ else number

    # -- reports of numbers, see `batch_numbers.BatchNumbers`
    # ---------------------------------------------------------------

    def compared(self, evaluate: Evaluate, outcome: Any, entries: tuple[int, ...]) -> None:
        self.conditions.append(Condition(evaluate, outcome, entries, exact=False, line=users_line()))

    def used(self, _: TracedNumber) -> NoReturn:
        raise CannotCapture(
            f"the step reads a value of a tensor into Python and uses it{at(users_line())}; keep it a tensor "
            "(conditions such as `if loss > 2.0` are planned, and so are values that are only returned)"
        )

    # -- steps ---------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def checked(self) -> Iterator[ReadChecker]:
        """Within, a planned step runs and its conditions are checked."""
        seen = ReadChecker(self)
        _COMPARING.append(seen)
        try:
            yield seen
        finally:
            _COMPARING.pop()

    def decides(self, number: int) -> Condition | None:
        """The first condition on a value; None if no branch depends on it."""
        return next((one for one in self.conditions if number in one.entries), None)

    def agree(self, values: Sequence[Any]) -> bool:
        """Whether a step that has read these values may take this branch."""
        return all(one.holds(values) for one in self.conditions if max(one.entries) < len(values))

    def shown(self, results: list[Any]) -> list[Any]:
        """The results of a step, with the numbers among them."""
        count = len(results) - len(self.values)
        if self._results:
            values = [tensor.item() for tensor in results[count:]]
            for place, evaluate in self._results.items():
                results[place] = evaluate(values)
        return results[:count]


class _ReadMode(TorchFunctionMode):
    """Intercepts reads of values of fake tensors."""

    def __init__(self, reads: ValueReads) -> None:
        super().__init__()
        self._reads = reads

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _READERS and isinstance(args[0], FakeTensor) and args[0].numel() == 1 and not args[0].is_complex():
            return self._reads.read(args[0], func)
        return func(*args, **(kwargs or {}))


class _TracedNumberType(type):
    """Replaces float or int in a user's module while its step is traced: returns a `TracedNumber`."""

    kind: Any

    def __call__(cls, *args: Any) -> Any:
        x = args[0] if len(args) == 1 else None
        if isinstance(x, FakeTensor):
            x = x.item()
            if type(x) is not TracedNumber:
                return cls.kind(x)
        if type(x) is TracedNumber:
            return x if isinstance(x.value, cls.kind) else x.converted(cls.kind)
        return cls.kind(*args)

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, cls.kind)

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, cls.kind)

    def __eq__(cls, other: Any) -> bool:
        return other is cls or other is cls.kind

    def __hash__(cls) -> int:
        return hash(cls.kind)


_KINDS = {kind: _TracedNumberType(kind.__name__, (), {"kind": kind}) for kind in (float, int)}


def _names_of_user(kind: Any) -> dict[str, Any]:
    """The globals of the user's function that called float() or int()."""
    frame = sys._getframe(1)
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back  # type: ignore[assignment]
    names = {} if frame is None else frame.f_globals
    if kind.__name__ in names or frame is None or not _only_called(kind.__name__, frame, names):
        raise CannotCapture(
            f"the step reads a value of a tensor into Python{at(users_line())}; keep it a tensor (conditions such as "
            "`if loss > 2.0` are planned)"
        )
    return names


def _only_called(name: str, frame: Any, names: dict[str, Any]) -> bool:
    """Whether the running functions of a module use a built-in name only to call it.

    Other uses, such as `type(x) is float`, would fail while the name is replaced.
    """
    codes, called = [], name in frame.f_code.co_names
    while frame is not None:
        codes += [frame.f_code] if frame.f_globals is names else []
        frame = frame.f_back
    for code in codes:
        for step in dis.get_instructions(code):
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME") and step.argval == name and "NULL" not in step.argrepr:
                return False
    return called


def _guess(x: Any) -> Any:
    """A likely value for a tensor: finite, not NaN."""
    if not x.dtype.is_floating_point and x.dtype != torch.bool:
        return 1
    if x.dtype != torch.bool:
        return 1.0
    nodes = [getattr(x, "_stretto_made_by", (None, None))[1]]
    for node in nodes:
        if node is None or len(nodes) > 8:
            break
        name = str(node.target)
        if "isnan" in name or "isinf" in name or (".ne." in f".{name}" and len(set(node.args)) == 1):
            return False
        nodes += [one for one in pytree.tree_leaves(node.args) if isinstance(one, torch.fx.Node)]
    return True
