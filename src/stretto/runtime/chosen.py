"""Check the `runtime=` argument of every front end, and query properties of a runtime.

    where = chosen(runtime, owner="Lasso", give=LOCAL, default=Threads(n_jobs))
    name_of(where), one_memory(where), here(where)

A runtime is any object with the interface: `workers`, `open()` and `crew()` to run plans, `serve(job)` to run jobs over
tables, `rounds(pipeline, work)` to run programs. No front end checks its class. Two attributes are optional:

name : str
    The name in plans and records; by default the class name in lower case.
one_memory : bool
    Whether all its workers share the memory of this process; by default False.
"""

from __future__ import annotations

from typing import Any

from stretto.checks import shown
from stretto.errors import NotARuntime, PlanError
from stretto.text import counted

from .cpus import is_auto
from .runtimes import Runtime, Serial, Threads

LOCAL = "st.Threads(n) or st.Serial()"
BLOCKS = "st.Threads(n), st.Serial(), st.Simulated(…) or st.Cluster(…)"
PROGRAMS = "st.Threads(n), st.Serial(), st.Simulated(…) or st.Cluster(…)"
TABLES = "st.Threads(n), st.Serial(), st.Simulated(…) or st.Cluster(…)"

_CLASSES = ("Serial", "Threads", "Simulated", "Cluster")


def chosen(
    runtime: Any, *, owner: str, give: str, default: Runtime | None = None, does: str = "open", work: str = "this"
) -> Any:
    """The given runtime, checked.

    Parameters
    ----------
    runtime : object
        What the user gave.
    owner : str
        The estimator or function with this option, for the message.
    give : str
        What to give instead, for the message.
    default : Runtime or None
        What None stands for; None: a runtime must be given.
    does : str
        The method that is needed: "open", "serve" or "rounds".
    work : str
        What would run on it, for the message.
    """
    if runtime is None and default is not None:
        runtime = default
    # Not a generator: Ctrl-C that arrives while a generator is closed is printed and dropped.
    opens, serves = callable(getattr(runtime, "open", None)), callable(getattr(runtime, "serve", None))
    if isinstance(runtime, type) or not (opens or serves or callable(getattr(runtime, does, None))):
        raise NotARuntime(f"{owner}: runtime={shown(runtime)} is not a runtime; give {give}{_instead(runtime)}")
    if not callable(getattr(runtime, does, None)) or not hasattr(runtime, "serve" if does == "serve" else "workers"):
        raise NotARuntime(f"{owner}: runtime={shown(runtime)} is not a runtime for {work}; give {give}")
    if does != "serve":
        _ = runtime.workers  # raises for an invalid number of threads
    return runtime


def _instead(given: Any) -> str:
    """A suggestion what the user may have meant."""
    if isinstance(given, type):
        return f"; make one: st.{given.__name__}(…)" if given.__name__ in _CLASSES else ""
    if isinstance(given, str):
        found = next((name for name in _CLASSES if name.lower() == given.lower().partition(":")[0]), None)
        return "" if found is None else f"; write st.{found}()"
    if isinstance(given, int) and not isinstance(given, bool) and given > 0:
        return f"; for {given} threads write st.Threads({given})"
    return ""


def name_of(runtime: Any) -> str:
    """The name of a runtime in plans and records.

    >>> name_of(Threads(2))
    'threads'
    """
    return str(getattr(runtime, "name", type(runtime).__name__.lower()))


def one_memory(runtime: Any) -> bool:
    """Whether all workers of a runtime share the memory of this process."""
    return bool(getattr(runtime, "one_memory", False))


def adaptive(runtime: Any) -> bool:
    """Whether the number of threads is to be found while running.

    >>> adaptive(Threads("auto")), adaptive(Threads(2))
    (True, False)
    """
    return isinstance(runtime, Threads) and is_auto(runtime.n)


def here(runtime: Any, n_jobs: int | None = None) -> Serial | Threads:
    """The runtime itself if it shares this process's memory, else n_jobs threads: for counting data and using
    models.
    """
    return runtime if one_memory(runtime) else Threads(n_jobs)


def refuse_elsewhere(runtime: Any, *, owner: str, why: str, give: str) -> None:
    """PlanError for a runtime whose workers do not share one memory."""
    if not one_memory(runtime):
        raise PlanError(f"{owner}: runtime={shown(runtime)}: {why}; {give}")


def runtime_words(runtime: Any) -> str:
    """A runtime for `explain`.

    >>> runtime_words(Threads(2)), runtime_words(Serial())
    ('threads, 2 workers', 'serial')
    """
    workers = runtime.workers
    return name_of(runtime) if runtime == Serial() else f"{name_of(runtime)}, {counted(workers, 'worker')}"
