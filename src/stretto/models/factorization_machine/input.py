"""Input of `FactorizationMachine`: targets, held-out samples, fields, and what the samples show of the columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.design.design import LARGEST
from stretto.errors import DataError, PlanError
from stretto.models import checks
from stretto.models.linear.classifier import class_indices
from stretto.models.linear.input import LinearInput, matrix_of, taken
from stretto.models.sklearn_base import clone
from stretto.solvers.softmax.rows import DesignRows

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MOST_FIELDS = 1 << 10
_FEW = 1e-150  # a spread of a column or of the target below which it counts as 0


@dataclass(frozen=True, eq=False)
class MachineInput:
    """Validated input of a fit, with numbers as the solver takes them."""

    given: LinearInput
    y: Floats  # [n] 0 or 1 for the logistic loss, else standardised
    target: Floats  # [2] what a score of 0 means, and the unit of scores
    classes: NDArray[Any] | None  # [2], of the logistic loss

    @property
    def rows(self) -> DesignRows:
        """X as CSR."""
        found = DesignRows.of(matrix_of(self.given), checked=True)
        return found if found.sparse else found.by_entries()


def machine_input(
    model: Any, given: LinearInput, classes: NDArray[Any] | None = None, target: Floats | None = None
) -> MachineInput:
    """The input of a fit. classes, target: those of an earlier fit, which this one continues."""
    owner = type(model).__name__
    if model.loss == "squared":
        target = _standard(given, bool(model.fit_intercept)) if target is None else target
        return MachineInput(given, (np.asarray(given.y, np.float64) - target[0]) / target[1], target, None)
    no_unit, y = np.array([0.0, 1.0]), np.asarray(given.y)
    if classes is None:
        classes, which = _two(y, owner)
        return MachineInput(given, which.astype(np.float64), no_unit, classes)
    known = np.isin(y, classes)
    if not known.all():
        raise DataError(
            f"{owner}: y holds {y[np.argmin(known)].tolist()!r}, and the classes are {classes.tolist()}; name both "
            "classes in the first call of partial_fit, or fit anew"
        )
    return MachineInput(given, (y == classes[1]).astype(np.float64), no_unit, classes)


def _two(y: NDArray[Any], owner: str) -> tuple[NDArray[Any], Ints]:
    classes, which = class_indices(y)
    if len(classes) < 2:
        raise DataError(
            f"{owner} needs samples of 2 classes; the data contain one class: {classes.tolist()[0]!r}; for numbers, "
            "take loss='squared'"
        )
    if len(classes) > 2:
        raise DataError(
            f"{owner}: Only binary classification is supported. The type of the target is multiclass, with "
            f"{len(classes)} classes; use sklearn.multiclass.OneVsRestClassifier, or loss='squared' for numbers"
        )
    return classes, which


def _standard(given: LinearInput, centred: bool) -> Floats:
    """Mean and standard deviation of the target under the weights; 0 and the root mean square if not centred."""
    y, weight = np.asarray(given.y, np.float64), given.weight / given.weight.sum()
    mean = float(np.sum(weight * y)) if centred else 0.0
    spread = float(np.sqrt(np.sum(weight * (y - mean) ** 2)))
    return np.array([mean, spread if spread > _FEW and np.isfinite(spread) else 1.0])


def held_out(model: Any, validation: Any, classes: NDArray[Any] | None, target: Floats) -> MachineInput | None:
    """The samples of `validation=`: (X, y) or (X, y, sample_weight), or None."""
    if validation is None:
        return None
    if not isinstance(validation, tuple) or len(validation) not in (2, 3):
        raise checks.of(model).wrong("validation", "None, a pair (X, y) or (X, y, sample_weight)", validation)
    X, y, weight = validation if len(validation) == 3 else (*validation, None)
    given = taken(clone(model), X, y, weight, numeric=model.loss == "squared")
    if given.shape[1] != model.n_features_in_:
        raise DataError(
            f"{type(model).__name__}: X of validation has {given.shape[1]} features, and X has {model.n_features_in_}; "
            "give both the same columns"
        )
    return machine_input(model, given, classes, target)


def fields_of(model: Any, p: int) -> tuple[NDArray[np.int32], int]:
    """(field of each feature [p], number of fields): zeros and 1 unless field_aware."""
    if not model.field_aware:
        return np.zeros(p, np.int32), 1
    given, check = model.fields, checks.of(model)
    must = f"an array of the field of each of the {p} features, whole numbers from 0 to {_MOST_FIELDS - 1}"
    try:
        found = np.asarray(given)
    except (TypeError, ValueError) as error:
        raise check.wrong("fields", must, given) from error
    if found.shape != (p,) or found.dtype.kind not in "iu" or found.min() < 0 or found.max() >= _MOST_FIELDS:
        raise check.wrong("fields", must, given)
    if found.max() == 0:
        raise PlanError(
            f"{type(model).__name__}: field_aware=True, and fields puts all features into field 0; number the fields "
            "from 0, or leave field_aware=False"
        )
    return found.astype(np.int32), int(found.max()) + 1


@dataclass(frozen=True, eq=False)
class ColumnFacts:
    """What the samples seen so far show of each column."""

    scale: Floats  # [p] root mean square of the values that are not zero; 0: none was seen
    counts: Floats  # [p] samples with a value

    @staticmethod
    def of(rows: DesignRows, before: ColumnFacts | None = None) -> ColumnFacts:
        """From CSR rows. before: of earlier samples; the scale of a column stays once it is known."""
        _, indices, values = rows.parts
        p = rows.shape[1]
        counts = np.bincount(indices, minlength=p).astype(np.float64)
        largest = float(np.abs(values).max(initial=0.0))
        if largest == 1.0 and float(np.abs(values).min(initial=1.0)) == 1.0:
            scale = (counts > 0).astype(np.float64)
        else:
            unit = largest or 1.0
            squares = np.bincount(indices, (values / unit).astype(np.float64) ** 2, minlength=p)
            scale = unit * np.sqrt(squares / np.maximum(counts, 1.0))
            scale[scale <= 1.0 / LARGEST] = 0.0
        if before is None:
            return ColumnFacts(scale, counts)
        return ColumnFacts(np.where(before.scale > 0.0, before.scale, scale), before.counts + counts)

    @property
    def factor(self) -> Floats:
        """[p] what multiplies the values of a column; 0 for columns without values."""
        return np.divide(1.0, self.scale, out=np.zeros_like(self.scale), where=self.scale > 0.0)


def reweighted(data: MachineInput, order: Ints) -> tuple[Floats, Floats]:
    """Target and weight of the samples `order`; the weights have mean 1."""
    weight = np.asarray(data.given.weight, np.float64)[order]
    return data.y[order], weight * (len(weight) / weight.sum())


def weighing(data: MachineInput) -> Ints:
    """The samples with a weight above 0."""
    return np.flatnonzero(data.given.weight > 0.0).astype(np.int64)
