"""The parameters `groups` and `weights` of `GroupLasso`: from a size, labels or lists of features to groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.design.design import LARGEST
from stretto.errors import DataError, PlanError
from stretto.models import checks
from stretto.solvers.linear.groups.problem import Groups

Ints = NDArray[np.int64]


def groups_of(groups: Any, weights: Any, features: int, *, owner: str) -> Groups:
    """The groups of a design with so many features.

    >>> groups_of([[2, 0], [1]], None, 3, owner="GroupLasso").column
    array([2, 0, 1])
    """
    if isinstance(groups, int | np.integer) and not isinstance(groups, bool):
        size = int(groups)
        if size < 1 or features % size:
            raise PlanError(
                f"{owner}: groups={size}: a size of groups is at least 1 and divides the {features:,} features; for "
                "groups of different sizes give a label for each feature"
            )
        column, bounds = np.arange(features), np.arange(0, features + 1, size)
    elif _is_lists(groups):
        column, bounds = _from_lists(groups, features, owner)
    else:
        column, bounds = _from_labels(groups, features, owner)
    return Groups(column, bounds, _factors(weights, len(bounds) - 1, owner))


def _is_lists(groups: Any) -> bool:
    """Whether these are lists of features."""
    plain = isinstance(groups, Sequence) and not isinstance(groups, str)
    return plain and any(isinstance(one, Sequence | np.ndarray) and not isinstance(one, str) for one in groups)


def _from_lists(groups: Any, features: int, owner: str) -> tuple[Ints, Ints]:
    rule = f"{owner}: groups: the lists must name every feature from 0 to {features - 1:,} once"
    parts = []
    for number, one in enumerate(groups):
        part = np.asarray(one)
        if part.ndim != 1 or not part.size or part.dtype.kind not in "iu":
            raise PlanError(f"{rule}; list {number} is {checks.shown(one)}")
        parts.append(part.astype(np.int64))
    column = np.concatenate(parts)
    if len(column) != features or not np.array_equal(np.sort(column), np.arange(features)):
        often = np.bincount(np.clip(column, 0, features), minlength=features + 1)
        wrong = np.flatnonzero((often != 1)[:features])
        at = f"feature {wrong[0]} is in {often[wrong[0]]} of them" if len(wrong) else "some are out of that range"
        raise PlanError(f"{rule}; {at}")
    return column, np.concatenate([np.zeros(1, np.int64), np.cumsum([len(part) for part in parts])])


def _from_labels(groups: Any, features: int, owner: str) -> tuple[Ints, Ints]:
    labels = np.asarray(groups)
    if labels.shape != (features,):
        raise PlanError(
            f"{owner}: groups={checks.shown(groups)} has shape {labels.shape}; give the number of neighbours in each "
            f"group, a list of lists of features, or one label for each of the {features:,} features"
        )
    try:
        _, which = np.unique(labels, return_inverse=True)
    except TypeError as error:
        raise PlanError(f"{owner}: groups: labels must be of one type, so that they can be sorted ({error})") from error
    column = np.argsort(which, kind="stable")
    return column, np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(which))])


def _factors(weights: Any, count: int, owner: str) -> NDArray[np.float64]:
    if weights is None:
        return np.ones(count)
    try:
        with np.errstate(over="ignore"):  # refused below
            factor = np.array(weights, np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{owner}: weights={checks.shown(weights)} are no numbers ({error})") from error
    if factor.shape != (count,):
        raise DataError(f"{owner}: weights has shape {factor.shape}; there are {count:,} groups")
    if not np.all((factor >= 1.0 / LARGEST) & (factor <= LARGEST)):
        raise DataError(f"{owner}: weights are more than 0 and at most {LARGEST:g}; a small one penalises hardly")
    return factor


def groups_values(groups: Any) -> Any:
    """`groups` in a form that a plan can hold: lists as one array, with −1 between them."""
    if not _is_lists(groups):
        return groups
    return np.concatenate([np.append(np.asarray(one, np.int64), -1) for one in groups])
