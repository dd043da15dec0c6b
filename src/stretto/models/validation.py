"""`validated`: scikit-learn's `validate_data`, with errors that say what is wrong where, and what to do.

Nothing is looked for until scikit-learn has refused the data. What it says stays part of the message where others,
such as its own checks of estimators, rely on it.
"""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

from stretto.data.convert.frames import as_frame
from stretto.data.convert.sparse_structure import is_sparse
from stretto.errors import DataError

from .sklearn_base import validate_data

_SEARCHED = 100_000  # elements of X that are searched for text


def validated(estimator: Any, X: Any, y: Any = None, **rules: Any) -> Any:
    """What `validate_data` returns; a DataError instead of its errors, where more can be said than it does.

    y : targets; left out by predict, which has `reset=False` among its rules
    """
    given = {"X": X} if rules.get("reset") is False else {"X": X, "y": y}
    try:
        return validate_data(estimator, **given, **rules)
    except (TypeError, ValueError) as error:
        found = None
        with contextlib.suppress(Exception):  # whatever X is, an explanation that fails leaves the error as it was
            found = _why(X, y, str(error), several=bool(rules.get("multi_output")))
        if found is None:
            raise
        raise DataError(f"{type(estimator).__name__}: {found}") from error


def _why(X: Any, y: Any, told: str, *, several: bool) -> str | None:
    """What is wrong with the data, in words; None where scikit-learn's own message is as good."""
    return _why_shape(X, y) or _why_values(X) or _why_target(X, y, told, several=several)


def _why_shape(X: Any, y: Any) -> str | None:
    if isinstance(X, list | tuple) and X and all(isinstance(row, list | tuple | np.ndarray) for row in X):
        lengths = [len(row) for row in X]
        odd = next((k for k, length in enumerate(lengths) if length != lengths[0]), None)
        if odd is not None:
            return (
                f"the rows of X have different lengths: row 0 has {lengths[0]} values and row {odd} has "
                f"{lengths[odd]}; give every sample all of its features"
            )
    shape = _shape(X)
    if len(shape) != 1:
        return None
    if len(_shape(y)) == 2:
        return (
            f"X has shape {shape} and y has shape {_shape(y)}: they look swapped; write fit(X, y). Reshape "
            "your data if they are not: X is [samples, features]"
        )
    return (
        f"X has shape {shape}, not [samples, features]. Reshape your data: X.reshape(-1, 1) is one feature, "
        "X.reshape(1, -1) is one sample"
    )


def _shape(X: Any) -> tuple[int, ...]:
    """The shape of X, or of a list of numbers; empty where it has none."""
    shape = np.shape(X) if _is_flat(X) else getattr(X, "shape", ())
    return tuple(shape) if isinstance(shape, tuple) else ()


def _is_flat(X: Any) -> bool:
    return isinstance(X, list | tuple) and all(isinstance(one, int | float | np.number) for one in X)


def _why_values(X: Any) -> str | None:
    """The column or element of X that is no number."""
    if getattr(getattr(X, "dtype", None), "kind", "") == "c":
        return f"Complex data not supported: X holds {X.dtype}; take X.real, or np.abs(X)"
    if is_sparse(X):
        return None
    frame = as_frame(X, "X")
    if frame is not None:
        return _why_column(frame)
    array = np.asarray(X) if isinstance(X, np.ndarray) or _is_flat_rows(X) else None
    if array is None or array.ndim != 2 or array.dtype.kind not in "OUS":
        return None
    for at, value in enumerate(array.ravel()[:_SEARCHED]):
        if isinstance(value, str | bytes) and not _is_number(value):
            row, column = divmod(at, array.shape[1])
            return f"X holds text: {_text(value)!r} at row {row}, column {column}; {_ENCODE}"
    return f"X holds numbers as text ({array.dtype}); convert it: X.astype(float)" if array.dtype.kind in "US" else None


_ENCODE = (
    "give numbers: one feature for each category (sklearn.preprocessing.OneHotEncoder, pandas.get_dummies), or leave "
    "the column out"
)


def _why_column(frame: Any) -> str | None:
    import narwhals.stable.v2 as nw

    for at, name in enumerate(frame.names):
        series = frame.column(at)
        if series.dtype.is_numeric() or isinstance(series.dtype, nw.Boolean):
            continue
        if isinstance(series.dtype, nw.Datetime | nw.Date | nw.Duration | nw.Time):
            return (
                f"column {str(name)!r} of X holds {series.dtype}; give numbers, such as days since a date, or leave it "
                "out"
            )
        text = next((one for one in series.to_list()[:_SEARCHED] if isinstance(one, str) and not _is_number(one)), None)
        if text is not None:
            return f"column {str(name)!r} of X holds text, such as {text!r}; {_ENCODE}"
    return None


def _why_target(X: Any, y: Any, told: str, *, several: bool) -> str | None:
    shapes = [_shape(one) for one in (X, y)]
    if "inconsistent numbers of samples" in told and all(shapes):
        samples, targets = shapes[0][0], shapes[1][0]
        return f"X has {samples:,} samples and y has {targets:,}; give one target for each sample"
    if len(shapes[1]) == 2 and shapes[1][1] > 1 and not several:
        return (
            f"y should be a 1d array, and has shape {shapes[1]}; fit one model for each column, or for numbers "
            "take st.MultiTaskLasso, which learns all columns together"
        )
    kind = getattr(getattr(y, "dtype", None), "kind", "")
    if kind == "f" and len(shapes[1]) == 1:
        bad = np.flatnonzero(~np.isfinite(np.asarray(y)))
        if len(bad):
            return f"{told.splitlines()[0]} The first is at sample {bad[0]}; leave such samples out, or fill the gaps"
    return None


def _is_flat_rows(X: Any) -> bool:
    return isinstance(X, list | tuple) and all(isinstance(row, list | tuple) for row in X)


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _is_number(value: str | bytes) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True
