"""Every exception Stretto raises on purpose.

    StrettoError
    ├── DataError            what came in cannot be used (also a ValueError)
    │   └── FormatError      a file does not say what its format promises; carries file and line
    ├── PlanError            a plan cannot be made, or was refused before any work (also a ValueError)
    │   ├── NotEnoughMemory  the estimate exceeds the budget; carries need and budget in bytes
    │   ├── NotOffered       an estimator with these parameters has no such method (also an AttributeError)
    │   ├── NotARuntime      what was given as runtime= is not one, or cannot run this (also a TypeError)
    │   └── LoopError        a loop that cannot be compiled; carries file and line, shows the line
    ├── RunError             something failed while running
    │   └── Diverged         a visit produced NaN or infinity; what was learned before is kept
    └── CheckpointError      no usable checkpoint
        └── OtherPlan        there is one, and it belongs to another plan

There is one warning, `OrderWarning` (a UserWarning): a loop runs in an order that may not be the one that was meant.

A message says what is wrong, where, and what to do next.
"""

from __future__ import annotations


class StrettoError(Exception):
    """The root: catch this to catch everything raised on purpose."""


class DataError(StrettoError, ValueError):
    """The data cannot be used as given."""


class FormatError(DataError):
    """A file breaks its own format.

    >>> str(FormatError("ratings.dat", 12, "expected 3 fields, found 2", "drop the line or pass on_error='skip'"))
    "ratings.dat:12: expected 3 fields, found 2; drop the line or pass on_error='skip'"
    """

    def __init__(self, path: str, line: int | None, problem: str, remedy: str = "") -> None:
        self.path, self.line, self.problem, self.remedy = path, line, problem, remedy
        where = path if line is None else f"{path}:{line}"
        super().__init__(f"{where}: {problem}" + (f"; {remedy}" if remedy else ""))


class PlanError(StrettoError, ValueError):
    """No plan can be made from this, or the plan was refused."""


class NotEnoughMemory(PlanError):
    """The plan needs more memory than it may use."""

    def __init__(self, need: int, budget: int, remedy: str) -> None:
        self.need, self.budget = need, budget
        unit, name = (2**30, "GiB") if need >= 2**28 else (2**20, "MiB") if need >= 2**18 else (2**10, "KiB")
        super().__init__(f"the plan needs {need / unit:.2f} {name} and may use {budget / unit:.2f} {name}; {remedy}")


class NotOffered(PlanError, AttributeError):
    """A method that an estimator does not have with its present parameters; `hasattr` says so."""


class NotARuntime(PlanError, TypeError):
    """What was given as `runtime=` is not a runtime, or not one that can run this."""


class LoopError(PlanError):
    """A loop holds something that cannot be compiled. `shown` is the source line and a line of carets below it.

    >>> str(LoopError("/home/ada/epochs.py", 14, "a lambda cannot be compiled", "call a function made by numba.njit"))
    'epochs.py:14: a lambda cannot be compiled; call a function made by numba.njit'
    """

    def __init__(self, file: str, line: int | None, problem: str, remedy: str = "", shown: str = "") -> None:
        self.file, self.line, self.problem, self.remedy = file, line, problem, remedy
        # The folder is rarely news, and a long path would push the message out of sight.
        name = file.replace("\\", "/").rpartition("/")[2]
        where = name if line is None else f"{name}:{line}"
        message = f"{where}: {problem}" if where else problem
        super().__init__(message + (f"; {remedy}" if remedy else "") + (f"\n{shown}" if shown else ""))


class RunError(StrettoError, RuntimeError):
    """Something failed while a plan ran."""


class Diverged(RunError):
    """A visit produced NaN or infinity."""


class OrderWarning(UserWarning):
    """A loop over records overwrites elements, and visits the records in another order than they came in."""


class CheckpointError(StrettoError):
    """A checkpoint is missing, damaged, or cannot be used here."""


class OtherPlan(CheckpointError):
    """A checkpoint belongs to another plan. differences: the settings that differ, with both values, in words."""

    def __init__(self, message: str, differences: tuple[str, ...] = ()) -> None:
        self.differences = differences
        super().__init__(message)
