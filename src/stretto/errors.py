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
    """Base of every error that Stretto raises on purpose.

    Examples
    --------
    >>> import stretto as st
    >>> from stretto.errors import StrettoError
    >>> try:
    ...     st.SSP(-1)
    ... except StrettoError as error:
    ...     print(type(error).__name__)
    PlanError
    """


class DataError(StrettoError, ValueError):
    """The data cannot be used as given. Also a `ValueError`.

    Examples
    --------
    >>> import stretto as st
    >>> from stretto.errors import DataError
    >>> try:
    ...     st.dense(3.0)
    ... except DataError as error:
    ...     print(error)
    dense needs an array of one dimension or more; a single number is no data
    """


class FormatError(DataError):
    """A file breaks the rules of its format.

    Parameters
    ----------
    path : str
        The file.
    line : int or None
        The line, from 1; None where the format has no lines.
    problem : str
        What is wrong.
    remedy : str, default ""
        What to do.

    Attributes
    ----------
    path : str
        The file.
    line : int or None
        The line, from 1.
    problem : str
        What is wrong.
    remedy : str
        What to do.

    Examples
    --------
    >>> from stretto.errors import FormatError
    >>> str(FormatError("ratings.dat", 12, "expected 3 fields, found 2", "drop the line or pass on_error='skip'"))
    "ratings.dat:12: expected 3 fields, found 2; drop the line or pass on_error='skip'"
    """

    def __init__(self, path: str, line: int | None, problem: str, remedy: str = "") -> None:
        self.path, self.line, self.problem, self.remedy = path, line, problem, remedy
        where = path if line is None else f"{path}:{line}"
        super().__init__(f"{where}: {problem}" + (f"; {remedy}" if remedy else ""))


class PlanError(StrettoError, ValueError):
    """No plan can be made from these settings, or the plan was refused before any work. Also a `ValueError`.

    Examples
    --------
    >>> import stretto as st
    >>> from stretto.errors import PlanError
    >>> try:
    ...     st.tables.Eager(codec="f3")
    ... except PlanError as error:
    ...     print(error)
    Eager(codec='f3'): choose None or 'f2'
    """


class NotEnoughMemory(PlanError):
    """The plan needs more memory than its budget.

    Parameters
    ----------
    need : int
        Bytes that the plan needs.
    budget : int
        Bytes that it may use.
    remedy : str
        What to do.

    Attributes
    ----------
    need : int
        Bytes that the plan needs.
    budget : int
        Bytes that it may use.

    Examples
    --------
    >>> from stretto.errors import NotEnoughMemory
    >>> str(NotEnoughMemory(3 * 2**30, 2**30, "raise memory="))
    'the plan needs 3.00 GiB and may use 1.00 GiB; raise memory='
    """

    def __init__(self, need: int, budget: int, remedy: str) -> None:
        self.need, self.budget = need, budget
        unit, name = (2**30, "GiB") if need >= 2**28 else (2**20, "MiB") if need >= 2**18 else (2**10, "KiB")
        super().__init__(f"the plan needs {need / unit:.2f} {name} and may use {budget / unit:.2f} {name}; {remedy}")


class NotOffered(PlanError, AttributeError):
    """The estimator does not have this method with its present parameters. Also an `AttributeError`.

    Examples
    --------
    >>> import stretto as st
    >>> hasattr(st.FactorizationMachine(loss="squared"), "predict_proba")
    False
    """


class NotARuntime(PlanError, TypeError):
    """What was given as `runtime=` is not a runtime, or not one that can run this. Also a `TypeError`.

    Examples
    --------
    >>> import numpy as np, stretto as st
    >>> from stretto.errors import NotARuntime
    >>> try:
    ...     st.Lasso(runtime="threads").fit(np.eye(3), np.ones(3))
    ... except NotARuntime as error:
    ...     print(type(error).__name__)
    NotARuntime
    """


class LoopError(PlanError):
    """A loop holds something that cannot be compiled.

    Parameters
    ----------
    file : str
        The source file.
    line : int or None
        The line, from 1.
    problem : str
        What is wrong.
    remedy : str, default ""
        What to do.
    shown : str, default ""
        The source line, and a line of carets below it.

    Attributes
    ----------
    file : str
        The source file.
    line : int or None
        The line, from 1.
    problem : str
        What is wrong.
    remedy : str
        What to do.

    Examples
    --------
    >>> from stretto.errors import LoopError
    >>> str(LoopError("/home/ada/epochs.py", 14, "a lambda cannot be compiled", "call a function made by numba.njit"))
    'epochs.py:14: a lambda cannot be compiled; call a function made by numba.njit'
    """

    def __init__(self, file: str, line: int | None, problem: str, remedy: str = "", shown: str = "") -> None:
        self.file, self.line, self.problem, self.remedy = file, line, problem, remedy
        # The name without its folder: a long path would hide the message.
        name = file.replace("\\", "/").rpartition("/")[2]
        where = name if line is None else f"{name}:{line}"
        message = f"{where}: {problem}" if where else problem
        super().__init__(message + (f"; {remedy}" if remedy else "") + (f"\n{shown}" if shown else ""))


class RunError(StrettoError, RuntimeError):
    """A run failed. Also a `RuntimeError`.

    Examples
    --------
    >>> import stretto as st
    >>> from stretto.errors import RunError
    >>> def worker(w):
    ...     raise ValueError("no such file")
    >>> try:
    ...     st.run(worker, tables={"x": st.tables.Table(rows=2, cols=1)}, runtime=st.Serial())
    ... except RunError as error:
    ...     print(type(error).__name__)
    RunError
    """


class Diverged(RunError):
    """A visit produced NaN or infinity. The values from before that visit are kept.

    Examples
    --------
    >>> from stretto.errors import Diverged, RunError
    >>> issubclass(Diverged, RunError)
    True
    """


class OrderWarning(UserWarning):
    """A loop over records overwrites elements and visits the records in another order than the data have.

    Examples
    --------
    >>> import warnings
    >>> from stretto.errors import OrderWarning
    >>> warnings.filterwarnings("ignore", category=OrderWarning)  # where any order will do
    """


class SerialWarning(UserWarning):
    """A loop under `st.parallel` runs on one worker, because no strategy runs it in parallel with the same result.

    The message shows the accesses that clash and the ways out. `serial=True` silences it, `serial=False` refuses the
    loop.

    Examples
    --------
    >>> import warnings
    >>> from stretto.errors import SerialWarning
    >>> warnings.filterwarnings("ignore", category=SerialWarning)  # where a loop is known to be serial
    """


class CheckpointError(StrettoError):
    """A checkpoint is missing, damaged, or cannot be used here.

    Examples
    --------
    >>> import stretto as st
    >>> from stretto.errors import CheckpointError
    >>> try:
    ...     st.State.load("no-such-file.safetensors")
    ... except CheckpointError as error:
    ...     print(type(error).__name__)
    CheckpointError
    """


class OtherPlan(CheckpointError):
    """A checkpoint belongs to another plan.

    Parameters
    ----------
    message : str
        What is wrong and what to do.
    differences : tuple of str, default ()
        The settings that differ, each with both values, in words.

    Attributes
    ----------
    differences : tuple of str
        The settings that differ, each with both values, in words.

    Examples
    --------
    >>> from stretto.errors import OtherPlan
    >>> OtherPlan("the checkpoint has another plan", ("rank: 8 and 16",)).differences
    ('rank: 8 and 16',)
    """

    def __init__(self, message: str, differences: tuple[str, ...] = ()) -> None:
        self.differences = differences
        super().__init__(message)
