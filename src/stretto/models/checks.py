"""What estimators are given, checked before any work: parameters, where to run, seeds, data.

Parameters are checked by `stretto.checks`, whose functions are at hand here. Data are checked by scikit-learn's rules,
after what those rules pass over: the structure of sparse matrices, which compiled code trusts, and masked values.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from stretto.checks import Checks, choice, flags, level, number, of, shown, wrong
from stretto.data.convert.sparse_structure import is_sparse, verified
from stretto.errors import DataError
from stretto.runtime.chosen import BLOCKS, chosen
from stretto.runtime.chosen import here as local
from stretto.runtime.runtimes import Runtime, Threads

__all__ = [
    "Checks",
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
    "wrong",
]


def place(runtime: Any, n_jobs: Any, *, owner: str = "estimator") -> Runtime:
    """Where to run: the runtime given, or n_jobs threads."""
    default = Threads(_jobs(n_jobs))
    found: Runtime = chosen(runtime, owner=owner, give=BLOCKS, default=default, work="estimators")
    return found


def here(runtime: Any, n_jobs: Any, owner: str = "estimator") -> Runtime:
    """Where a fitted model is used: on this machine, wherever it was learned."""
    return local(place(runtime, n_jobs, owner=owner), _jobs(n_jobs))


def _jobs(n_jobs: Any) -> Any:
    """n_jobs itself, or for None what joblib's context says: as many as `joblib.parallel_config` gives, one inside a
    task that runs beside others, and None (every core) where there is no context.
    """
    joblib = sys.modules.get("joblib")  # a program that has not imported it has no context
    if n_jobs is not None or joblib is None:
        return n_jobs
    backend, jobs = joblib.parallel.get_active_backend()
    if jobs is not None:
        return jobs
    return 1 if getattr(backend, "nesting_level", 0) else None


def seed(random_state: Any, *, owner: str = "") -> int:
    """A seed below 2³¹ − 1 from what scikit-learn takes as random_state."""
    from .sklearn_base import check_random_state

    try:
        return int(check_random_state(random_state).randint(2**31 - 1))
    except Exception as error:  # of NumPy, or of what was given
        must = "None, a whole number from 0 to 4294967295, or a np.random.RandomState"
        raise wrong(owner, "random_state", must, random_state) from error


def plain(X: Any, *, owner: str = "", name: str = "X") -> Any:
    """X itself, or for a sparse matrix one over the same arrays whose structure is verified; masked values are refused.

    Whatever else X must be is for scikit-learn's validation. owner: whose message it is.
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
    """Sparse columns of pandas leave out what is equal to a fill value; scikit-learn takes those that leave out 0."""
    try:
        fills = [kind.fill_value for kind in X.dtypes if hasattr(kind, "fill_value")]
    except (AttributeError, TypeError):  # no frame of pandas
        return
    for fill in fills:
        if not fill == 0:
            raise DataError(
                f"{owner}: {name} is a frame of sparse columns that leave out {fill!r} instead of 0; convert it with "
                f"{name}.sparse.to_dense()"
            )
