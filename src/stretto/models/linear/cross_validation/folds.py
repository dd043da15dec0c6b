"""Folds of cross-validation: their samples, the data of one of them, and errors on held-out samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from stretto.errors import DataError
from stretto.models import checks
from stretto.runtime.interrupts import heeding_ctrl_c
from stretto.runtime.runtimes import Serial, Threads
from stretto.solvers.linear.fit_saving import FitSaving

from ..base import FitSession
from ..input import LinearInput, shape_of
from ..path_points import LinearPath

if TYPE_CHECKING:
    from stretto.runtime.blocks.crew import Crew

Floats = NDArray[np.float64]
Folds = list[tuple[NDArray[np.int64], NDArray[np.int64]]]
Result = TypeVar("Result")

_COPIES = 1 << 30  # bytes that the data of folds on threads of their own may take
_ENTRY = 12  # bytes of an entry


def folds_of(owner: str, cv: Any, given: LinearInput, groups: Any, *, classes: bool = False) -> Folds:
    """Pairs of training and test samples; at least one pair, all indices integers below the number of samples.

    owner : the estimator, for messages
    classes : y holds classes, whose shares numbered folds keep
    """
    splits = hasattr(cv, "split") and hasattr(cv, "get_n_splits")
    if isinstance(cv, str | bytes | bool) or not (splits or isinstance(cv, Integral | Iterable | None)):
        must = "a number of folds (at least 2), a splitter of scikit-learn, or pairs of train and test indices"
        raise checks.wrong(owner, "cv", must, cv)
    from sklearn.model_selection import check_cv  # imports all of scikit-learn's metrics

    splitter = check_cv(cv, given.y if classes else None, classifier=classes)
    try:
        folds = [
            (np.asarray(train), np.asarray(test)) for train, test in splitter.split(shape_of(given.X), given.y, groups)
        ]
    except ValueError as error:
        if splits:
            raise
        raise DataError(
            f"{owner}: {len(given.y):,} samples cannot be cut into folds by cv={checks.shown(cv)} ({error}); "
            "give fewer folds, or more samples of each class"
        ) from error
    if not folds:
        raise DataError(f"{owner}: cv={checks.shown(cv)} gives no folds; give one pair of indices at least")
    for number, samples in enumerate(part for fold in folds for part in fold):
        inside = samples.ndim == 1 and len(samples) and samples.dtype.kind in "iu"
        if not inside or samples.min() < 0 or samples.max() >= len(given.y):
            part = "training" if number % 2 == 0 else "test"
            raise DataError(
                f"{owner}: the {part} samples of fold {number // 2 + 1} must be whole numbers from 0 to "
                f"{len(given.y) - 1}, at least one; got {checks.shown(samples)}"
            )
    return folds


def part_of(given: LinearInput, samples: NDArray[np.int64]) -> LinearInput:
    """Only these samples; one that is named twice has twice the weight."""
    rows, weight = weighed(given, samples)
    return LinearInput(given.X, given.y[rows], given.design.take(rows), weight)


def weighed(given: LinearInput, samples: NDArray[np.int64]) -> tuple[NDArray[np.int64], Floats]:
    """The samples in ascending order, unique, and their weights."""
    times = np.bincount(samples, minlength=len(given.y))
    rows = np.flatnonzero(times)
    weight = given.weight[rows] * times[rows]
    if not weight.sum() > 0:
        raise DataError("the samples of a fold all weigh 0; use fewer folds or shuffle them, or leave such samples out")
    return rows, weight


def squared_errors(path: LinearPath, given: LinearInput, samples: NDArray[np.int64]) -> Floats:
    """[k] weighted mean squared errors on some samples."""
    rows, weight = weighed(given, samples)
    used = np.unique(path.coefs.indices)  # few of many features are ever used
    predicted = given.design.pick(used).take(rows).matrix @ path.coefs[used].toarray() + path.intercepts
    away = (predicted - given.y[rows][:, None]) ** 2
    return np.asarray(np.average(away, axis=0, weights=weight))


def each_fold(sitting: FitSession, numbers: range, learn: Callable[[FitSession, int], Result]) -> Iterator[Result]:
    """learn(session, number) for every fold in order, several at a time on threads of this process.

    A fold on a thread of its own has a crew of one. Results are those of one fold after another, which is how folds run
    on a cluster, with data so large that copies of them would fill the memory, and where a callback, a record or a
    checkpoint follows every step.
    """
    copies = _COPIES // (_ENTRY * max(1, sitting.model.plan_.cost.entries))
    width = min(sitting.crew.workers, len(numbers), copies)
    watched = sitting.saved.watching or sitting.model.verbose > 0 or bool(getattr(sitting.model, "_skl_callbacks", ()))
    if width < 2 or watched or sitting.saved.ended is not None or not isinstance(sitting.runtime, Threads):
        for number in numbers:
            yield learn(sitting, number)
        return
    with ExitStack() as stack:
        crews = _Crews([stack.enter_context(Serial().crew()) for _ in numbers])
        pool = stack.enter_context(ThreadPoolExecutor(width))

        def alone(number: int) -> Result:
            return learn(replace(sitting, crew=crews.crews[number - numbers.start], saved=FitSaving()), number)

        with heeding_ctrl_c(crews) as ctrl_c:
            found = list(pool.map(alone, numbers))
            interrupted = ctrl_c.heard()
    if interrupted:
        raise KeyboardInterrupt
    yield from found


class _Crews:
    """The crews of folds that run at the same time; Ctrl-C stops all of them between two rounds."""

    def __init__(self, crews: list[Crew]) -> None:
        self.crews = crews

    def ask(self) -> None:
        """Request a stop as soon as it is safe."""
        for crew in self.crews:
            crew.ask()
