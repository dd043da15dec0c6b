"""Runs of a benchmark in several processes. Virtual seconds do not depend on how many run at the same time."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

Found = TypeVar("Found")


def parallel(function: Callable[..., Found], calls: Sequence[Iterable[Any]], jobs: int) -> list[Found]:
    """The results of function(*call) for each call, in order; each process computes on one core."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # read by processes that start from here
    if jobs < 2 or len(calls) < 2:
        return [function(*call) for call in calls]
    with multiprocessing.get_context("spawn").Pool(min(jobs, len(calls))) as pool:
        return pool.starmap(function, calls, chunksize=1)
