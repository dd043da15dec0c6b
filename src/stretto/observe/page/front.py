"""`st.dashboard` and `st.report`: the page of runs, live or as a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from stretto.errors import PlanError, RunError
from stretto.observe.files import replace

from .document import report as document
from .names import chosen, names_of
from .process import Dashboard, start
from .tail import RecordTail

Folders = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def dashboard(runs: Folders, *, port: int = 0) -> Dashboard:
    """Show runs on a live page, served to this machine alone by a process of its own.

    The page follows the run records: convergence, what every worker does, the schedule, speed, events, settings, and
    what stands out in plain words. `st.Session(record=…, dashboard=True)` starts one with a run.

    Parameters
    ----------
    runs : path, or sequence of paths
        Run records, or a folder with several; six at most.
    port : int, default 0
        Port on 127.0.0.1; 0 for any that is free.

    Returns
    -------
    Dashboard
        With the link as `url`. `close()` ends the page; otherwise it ends after this process.

    Examples
    --------
    >>> import tempfile, scipy.sparse as sp, stretto as st
    >>> folder = tempfile.mkdtemp()
    >>> X = sp.random(50, 40, density=0.3, format="csr", random_state=0)
    >>> model = st.MatrixFactorization(4, max_iter=5, random_state=0)
    >>> model = model.fit(X, session=st.Session(record=folder))
    >>> with st.dashboard(folder) as page:
    ...     page.url.startswith("http://127.0.0.1:")
    True
    """
    from stretto import checks

    checks.number("port", port, least=0, most=65535, whole=True, owner="dashboard")
    return start(chosen(_paths("dashboard", runs)), port=int(port))


def report(runs: Folders, path: str | os.PathLike[str] = "report.html") -> Path:
    """Write the page of runs as one HTML file that needs nothing else.

    Parameters
    ----------
    runs : path, or sequence of paths
        Run records, or a folder with several; six at most.
    path : path, default "report.html"
        The file.

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> import tempfile, scipy.sparse as sp, stretto as st
    >>> folder = tempfile.mkdtemp()
    >>> X = sp.random(50, 40, density=0.3, format="csr", random_state=0)
    >>> model = st.MatrixFactorization(4, max_iter=5, random_state=0)
    >>> model = model.fit(X, session=st.Session(record=folder))
    >>> st.report(folder, f"{folder}/report.html").stat().st_size > 10_000
    True
    """
    folders = chosen(_paths("report", runs))
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        replace(target, document(states(folders)))
    except OSError as error:
        raise RunError(f"report: {target} cannot be written ({error.strerror or error}); name another file") from error
    return target


def states(folders: Sequence[Path]) -> list[dict[str, object]]:
    """The summaries of some records."""
    tails = [RecordTail(folder) for folder in folders]
    for tail in tails:
        tail.poll()
    return [tail.state(name) for tail, name in zip(tails, names_of(folders), strict=True)]


def _paths(owner: str, runs: Folders) -> list[Path]:
    given = [runs] if isinstance(runs, str | os.PathLike) else runs
    try:
        found = [Path(one) for one in given]
    except TypeError:
        raise PlanError(f"{owner}: runs are folders of run records; got {runs!r}") from None
    if not found:
        raise PlanError(f"{owner}: name at least one run record")
    return found
