"""Run many hostile cases in child processes that are reused, and report what became of each.

A case calls one function with picklable arguments. The function lives in a module that a child process can import, and
its result must be picklable. A child that dies (a signal, an exit) or exceeds the limit costs that one case: it is
replaced, and the remaining cases go on.

    from hostile import Case, faults, run_cases

    def attempt(kind, seed):                   # in a module under tests/
        return st.Lasso().fit(*made(kind, seed)).coef_

    def test_hostile_arrays():
        cases = [Case(f"{kind}-{seed}", (kind, seed)) for kind in KINDS for seed in range(100)]
        verdicts = run_cases(attempt, cases, warm=load_kernels)
        assert not faults(verdicts, allowed=["sklearn.exceptions.NotFittedError"])

`run_cases` returns one `Verdict` a case, in the order of the cases:

| outcome    | meaning                                                    | fields that say more            |
|------------|------------------------------------------------------------|---------------------------------|
| "returned" | the function returned                                      | value, warnings                 |
| "raised"   | it raised an exception                                     | error, classes, message, trace  |
| "signal"   | the child died: a signal, or an exit that nobody asked for | message, trace (faulthandler's) |
| "hang"     | it exceeded the limit and was killed                       | message, trace                  |

`faults` turns verdicts into sentences, one for each case that is not acceptable: every signal and hang, and every
exception that is neither ours (`stretto.errors.StrettoError`) nor allowed by name. Whether a returned value is right is
for the test to judge (`verdict.value`).

The limit counts processor seconds of the child, so that a busy machine is no hang; three times the limit of wall-clock
time is one too. Imports and compilation belong into `warm`, which a child calls before its first case, outside the
limit. `memory` limits the address space of a child, so that an absurd allocation ends as a MemoryError there.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

OURS = "stretto.errors.StrettoError"
LIMIT = 10.0
_TRACE = 4000  # characters of a traceback that are kept
_STARTING = 300.0  # seconds for imports and `warm`, which may compile
_CLOSING = 30.0


@dataclass(frozen=True, slots=True)
class Case:
    """A name, unique among the cases, and the arguments of the call."""

    name: str
    args: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a case; see the table above."""

    case: Case
    outcome: str
    seconds: float
    value: Any = None
    error: str = ""  # qualified name of the exception's class
    classes: tuple[str, ...] = ()  # qualified names of that class and its bases
    message: str = ""
    trace: str = ""
    warnings: tuple[tuple[str, str], ...] = ()  # (qualified name of the category, message)

    def is_a(self, name: str) -> bool:
        """Whether the exception is of the class with this qualified name."""
        return name in self.classes


def faults(verdicts: Sequence[Verdict], *, allowed: Sequence[str] = ()) -> list[str]:
    """A sentence for each case that ended in a signal, a hang, or an exception that is neither ours nor allowed."""
    found = []
    for verdict in verdicts:
        if verdict.outcome == "returned":
            continue
        if verdict.outcome == "raised" and any(verdict.is_a(name) for name in (OURS, *allowed)):
            continue
        what = f"{verdict.error}: {verdict.message}" if verdict.outcome == "raised" else verdict.message
        found.append(f"{verdict.case.name}: {verdict.outcome}: {what}\n{verdict.trace}".rstrip())
    return found


def run_cases(
    function: Callable[..., Any],
    cases: Sequence[Case],
    *,
    warm: Callable[[], Any] | None = None,
    limit: float = LIMIT,
    workers: int = 2,
    memory: int | None = None,
) -> list[Verdict]:
    """Call `function(*case.args)` for every case; see the module's documentation.

    Parameters
    ----------
    function : callable
        A function of an importable module.
    cases : sequence of Case
        Shared out as children become free.
    warm : callable or None
        Called without arguments in every new child before its first case, outside the limit.
    limit : float
        Seconds a case may take.
    workers : int
        Child processes side by side.
    memory : int or None
        Bytes of address space a child may use on top of what it uses after `warm`; None for no limit.
    """
    if len({case.name for case in cases}) != len(cases):
        raise ValueError("the names of the cases must be unique")
    order = _Order(_reference(function), None if warm is None else _reference(warm), memory)
    verdicts: list[Verdict | None] = [None] * len(cases)
    waiting = list(range(len(cases)))[::-1]
    broken: list[BaseException] = []

    def work() -> None:
        child: _Child | None = None
        last = -1
        try:
            while waiting and not broken:
                try:
                    number = waiting.pop()
                except IndexError:  # another thread was quicker
                    break
                if child is None:
                    child = _Child(order)
                verdict, alive = child.run(cases[number], limit)
                verdicts[number], last = verdict, number
                if not alive:
                    child = None
            if child is not None:
                ended, child = child.close(), None
                # Memory that a case corrupted may be noticed only when the process ends.
                if ended and last >= 0 and (before := verdicts[last]) is not None:
                    verdicts[last] = Verdict(before.case, "signal", before.seconds, message=f"{ended}, at the end")
        except BaseException as error:
            broken.append(error)
        finally:
            if child is not None:
                child.kill()

    threads = [threading.Thread(target=work) for _ in range(max(1, min(workers, len(cases))))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if broken:
        raise broken[0]
    return [verdict for verdict in verdicts if verdict is not None]


def _reference(function: Callable[..., Any]) -> tuple[str, str]:
    module = sys.modules[function.__module__]
    spec = getattr(module, "__spec__", None)
    name = spec.name if spec is not None else function.__module__
    if "<" in function.__qualname__ or name == "__main__":
        raise ValueError(f"{function.__qualname__} cannot be imported by a child process; make it a module's function")
    return name, function.__qualname__


@dataclass(frozen=True, slots=True)
class _Order:
    """What a child receives first."""

    function: tuple[str, str]
    warm: tuple[str, str] | None
    memory: int | None


class _Child:
    """One child process: its pipes, and a file for what it writes to stderr."""

    def __init__(self, order: _Order) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the child)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
            env=environment,
        )  # fmt: skip
        self._send(order)
        try:
            answer = self._receive(_STARTING, by_processor=False)
        except _GoneError as gone:
            message = f"a child did not start: {gone}\n{self._said()}"
            self.kill()
            raise RuntimeError(message) from gone
        if answer is not None:
            self.kill()
            raise RuntimeError(f"a child did not start:\n{answer}")

    def run(self, case: Case, limit: float) -> tuple[Verdict, bool]:
        """The verdict, and whether the child can take another case."""
        began = time.monotonic()
        self._errors.seek(0)
        self._errors.truncate()
        try:
            self._send(case.args)
            fields = self._receive(limit, by_processor=True)
        except _GoneError as gone:
            verdict = Verdict(case, gone.outcome, time.monotonic() - began, message=str(gone), trace=self._said())
            self.kill()
            return verdict, False
        return Verdict(case, seconds=time.monotonic() - began, **fields), True

    def close(self) -> str:
        """End the child; how it died if it did not end well."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            code = self._process.wait(_CLOSING)
        except subprocess.TimeoutExpired:
            return f"the process did not end within {_CLOSING:g} s"
        finally:
            self.kill()
        return "" if code == 0 else _death(code)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):  # what was not sent yet
                    stream.close()

    def _said(self) -> str:
        """What the child wrote to stderr, faulthandler's stack included; the last of it."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")[-_TRACE:]

    def _send(self, value: Any) -> None:
        assert self._process.stdin is not None
        try:
            pickle.dump(value, self._process.stdin)
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise _GoneError("signal", _death(self._process.wait())) from error

    def _receive(self, limit: float, by_processor: bool) -> Any:
        stream = self._process.stdout
        assert stream is not None
        began, spent = time.monotonic(), self._processor_seconds()
        while not select.select([stream], [], [], 0.25)[0]:
            wall = time.monotonic() - began
            used = self._processor_seconds()
            if by_processor and used is not None and spent is not None:
                late = used - spent > limit or wall > 3 * limit
            else:
                late = wall > limit
            if late:
                self._process.send_signal(signal.SIGABRT)  # faulthandler writes the stack
                try:
                    self._process.wait(5)
                except subprocess.TimeoutExpired:
                    self._process.kill()
                raise _GoneError("hang", f"not done after {limit:g} s")
        try:
            return pickle.load(stream)
        except (EOFError, pickle.UnpicklingError) as error:
            raise _GoneError("signal", _death(self._process.wait())) from error

    def _processor_seconds(self) -> float | None:
        try:
            with open(f"/proc/{self._process.pid}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError, IndexError):  # no /proc here, or the child is gone
            return None


class _GoneError(Exception):
    def __init__(self, outcome: str, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome


def _death(code: int) -> str:
    if code >= 0:
        return f"the process exited with {code}"
    try:
        return f"the process died of {signal.Signals(-code).name}"
    except ValueError:
        return f"the process died of signal {-code}"


def _serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """The child's side: one answer for each request, until there are no more."""
    order: _Order = pickle.load(requests)
    try:
        function = _found(order.function)
        if order.warm is not None:
            _found(order.warm)()
        if order.memory is not None:
            _limit_memory(order.memory)
    except BaseException:
        _answer(answers, traceback.format_exc())
        return
    _answer(answers, None)
    while True:
        try:
            args = pickle.load(requests)
        except EOFError:
            return
        _answer(answers, _attempt(function, args))


def _found(reference: tuple[str, str]) -> Callable[..., Any]:
    found: Any = importlib.import_module(reference[0])
    for name in reference[1].split("."):
        found = getattr(found, name)
    return found  # type: ignore[no-any-return]


def _limit_memory(more: int) -> None:
    import resource

    with open("/proc/self/statm", "rb") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + more, resource.RLIM_INFINITY))


def _attempt(function: Callable[..., Any], args: tuple[Any, ...]) -> dict[str, Any]:
    seen: list[warnings.WarningMessage]
    fields: dict[str, Any]
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            value = function(*args)
            pickle.dumps(value)
            fields = {"outcome": "returned", "value": value}
        except BaseException as error:
            fields = {
                "outcome": "raised",
                "error": _qualified(type(error)),
                "classes": tuple(_qualified(kind) for kind in type(error).__mro__),
                "message": str(error)[:_TRACE],
                "trace": traceback.format_exc()[-_TRACE:],
            }
    fields["warnings"] = tuple((_qualified(one.category), str(one.message)) for one in seen)
    return fields


def _qualified(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _answer(answers: BinaryIO, value: Any) -> None:
    pickle.dump(value, answers)
    answers.flush()


def _main() -> None:
    import faulthandler
    import resource

    # What cases print must not get between the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.enable()
    _serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    sys.modules["hostile"] = sys.modules["__main__"]  # its classes are pickled under that name
    _main()
