"""Validation of estimator arguments before any work: parameters, runtime, seed, data.

`stretto.checks`, re-exported here, checks parameters. scikit-learn's rules check data. Before that, this module checks
what those rules do not cover: masked values, and the structure of sparse matrices, which compiled code relies on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from stretto.checks import Checks, choice, flags, level, number, of, shown, wrong
from stretto.data.convert.sparse_structure import is_sparse, verified
from stretto.errors import DataError
from stretto.runtime.chosen import BLOCKS, adaptive, chosen
from stretto.runtime.chosen import here as local
from stretto.runtime.cpus import is_auto
from stretto.runtime.runtimes import Runtime, Threads
from stretto.schedule.stages.width_by_work import width_by_work
from stretto.schedule.stages.width_search import WidthSearch

__all__ = [
    "Checks",
    "by_work",
    "choice",
    "flags",
    "here",
    "level",
    "number",
    "of",
    "place",
    "plain",
    "seed",
    "shown",
    "width_search",
    "wrong",
]


def place(runtime: Any, n_jobs: Any, *, owner: str = "estimator") -> Runtime:
    """The runtime of a fit: the one given, or n_jobs threads."""
    default = Threads(_jobs(n_jobs))
    found: Runtime = chosen(runtime, owner=owner, give=BLOCKS, default=default, work="estimators")
    return found


def here(runtime: Any, n_jobs: Any, owner: str = "estimator") -> Runtime:
    """The runtime for using a fitted model: on this machine, even if it was trained on a cluster."""
    return local(place(runtime, n_jobs, owner=owner), _jobs(n_jobs))


def width_search(runtime: Any) -> Callable[[int], WidthSearch] | None:
    """With `n_jobs="auto"`, the search for the number of threads, given the number of epochs; else None.

    It starts with all threads, as None does, and goes down, since epochs on one thread would cost most. One or two
    epochs are enough for a comparison, and the first epoch is not measured.
    """
    if not adaptive(runtime):
        return None
    widest = runtime.workers
    return lambda epochs: WidthSearch(widest, start=widest, iterations=2, total=max(0, epochs - 1))


def by_work(runtime: Any, values: int) -> tuple[Any, str]:
    """With `n_jobs="auto"`, threads by the number of values that a pass reads, and why; else the runtime, and ""."""
    if not adaptive(runtime):
        return runtime, ""
    width, reason = width_by_work(values, runtime.workers)
    return Threads(width), reason


def _jobs(n_jobs: Any) -> Any:
    """n_jobs itself; for None and "auto", the number from joblib's context.

    That is the number given to `joblib.parallel_config`, 1 inside a parallel task, and n_jobs itself without a
    context.
    """
    joblib = sys.modules.get("joblib")  # a program that has not imported it has no context
    if joblib is None or not (n_jobs is None or is_auto(n_jobs)):
        return n_jobs
    backend, jobs = joblib.parallel.get_active_backend()
    if jobs is not None:
        return jobs
    return 1 if getattr(backend, "nesting_level", 0) else n_jobs


def seed(random_state: Any, *, owner: str = "") -> int:
    """A seed below 2³¹ − 1 from what scikit-learn takes as random_state."""
    from .sklearn_base import check_random_state

    try:
        return int(check_random_state(random_state).randint(2**31 - 1))
    except Exception as error:  # from NumPy, or from the object given
        must = "None, a whole number from 0 to 4294967295, or a np.random.RandomState"
        raise wrong(owner, "random_state", must, random_state) from error


def plain(X: Any, *, owner: str = "", name: str = "X") -> Any:
    """X itself; a sparse matrix over the same arrays after its structure is verified; masked values raise an error.

    scikit-learn's validation checks the rest. owner: the estimator that messages name.
    """
    owner = owner or "input"
    if is_sparse(X):
        return verified(X, f"{owner}: {name}")
    if isinstance(X, np.ndarray) and X.dtype.kind in "mMV":
        raise DataError(f"{owner}: {name} holds {X.dtype}, which are no numbers; turn them into numbers first")
    _refuse_filled(X, owner, name)
    if isinstance(X, np.ma.MaskedArray):
        masked = int(np.count_nonzero(np.ma.getmaskarray(X)))
        if masked:
            raise DataError(
                f"{owner}: {name} has {masked:,} masked values, which mean nothing; drop those samples, or fill the "
                f"gaps with {name}.filled(…)"
            )
        return np.asarray(X)
    return X


def _refuse_filled(X: Any, owner: str, name: str) -> None:
    """Refuse sparse columns of pandas with a fill value other than 0; scikit-learn takes only those with 0."""
    try:
        fills = [kind.fill_value for kind in X.dtypes if hasattr(kind, "fill_value")]
    except (AttributeError, TypeError):  # not a pandas frame
        return
    for fill in fills:
        if not fill == 0:
            raise DataError(
                f"{owner}: {name} is a frame of sparse columns that leave out {fill!r} instead of 0; convert it with "
                f"{name}.sparse.to_dense()"
            )
