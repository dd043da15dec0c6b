"""Hostile arrays and parameters, made from a seed: odd layouts of good data, damaged matrices, wrong values and types.

A `Made` is an argument and what may come of it: "same" (the result must be that of the plain matrix, bit for bit),
"close" (the same up to rounding), "refuse" (an error is the only right answer), or "any" (an error, or finite numbers).
"""

from __future__ import annotations

import datetime
import decimal
import fractions
import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Array = NDArray[Any]
Draw = random.Random


@dataclass(frozen=True)
class Made:
    """A hostile argument. plain: what a "same" or "close" one has to be equal to."""

    value: Any
    expect: str = "any"
    plain: Any = None


# --- odd layouts of good data ---------------------------------------------------------------------------------------


def _strided(A: Array) -> Array:
    wide = np.full((2 * A.shape[0], 3 * A.shape[1]), np.nan)
    wide[::2, ::3] = A
    return wide[::2, ::3]


def _backwards(A: Array) -> Array:
    return np.ascontiguousarray(A[::-1, ::-1])[::-1, ::-1]


def _frozen(A: Array) -> Array:
    made = A.copy()
    made.flags.writeable = False
    return made


def _mapped(A: Array) -> Array:
    file = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the array)
    made = np.memmap(file, A.dtype, "w+", shape=A.shape)
    made[:] = A
    return made


def _misaligned(A: Array) -> Array:
    raw = np.zeros(A.nbytes + 1, np.uint8)
    made = raw[1:].view(A.dtype).reshape(A.shape)
    made[:] = A
    return made


class Derived(np.ndarray):
    """A subclass of arrays, as libraries of units have."""


class Arrayed:
    """Something that is no array and becomes one."""

    def __init__(self, A: Array) -> None:
        self.A = A

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        return np.array(self.A, dtype=dtype)


def _pandas(A: Array) -> Any:
    import pandas as pd

    return pd.DataFrame(A, columns=[f"column {k}" for k in range(A.shape[1])])


def _polars(A: Array) -> Any:
    import polars as pl

    return pl.DataFrame({f"column {k}": A[:, k] for k in range(A.shape[1])})


def _arrow(A: Array) -> Any:
    import pyarrow as pa

    return pa.table({f"column {k}": A[:, k] for k in range(A.shape[1])})


DENSE: dict[str, Callable[[Array], Any]] = {
    "C": lambda A: A.copy(),
    "Fortran": np.asfortranarray,
    "strided": _strided,
    "backwards": _backwards,
    "transposed": lambda A: np.ascontiguousarray(A.T).T,
    "read-only": _frozen,
    "read-only Fortran": lambda A: _frozen(np.asfortranarray(A).T).T,
    "mapped": _mapped,
    "misaligned": _misaligned,
    "big-endian": lambda A: A.astype(">f8"),
    "longdouble": lambda A: A.astype(np.longdouble),
    "float16": lambda A: A.astype(np.float16),
    "objects": lambda A: A.astype(object),
    "lists": lambda A: A.tolist(),
    "tuples": lambda A: [tuple(row) for row in A.tolist()],
    "rows": list,
    "subclass": lambda A: A.view(Derived),
    "array-like": Arrayed,
    "unmasked": lambda A: np.ma.masked_array(A.copy()),
    "unmasked, in full": lambda A: np.ma.masked_array(A.copy(), np.zeros(A.shape, bool)),
}
SINGLE: dict[str, Callable[[Array], Any]] = {  # computed with in 32 bits, where a model does that
    "float32": lambda A: A.astype(np.float32),
    "float32 Fortran": lambda A: np.asfortranarray(A.astype(np.float32)),
    "float32 read-only": lambda A: _frozen(A.astype(np.float32)),
    "big-endian float32": lambda A: A.astype(">f4"),
}
FRAMES: dict[str, Callable[[Array], Any]] = {"pandas": _pandas}  # a column for each feature
WHOLE: dict[str, Callable[[Array], Any]] = {  # where all values are small whole numbers
    "int8": lambda A: A.astype(np.int8),
    "uint8": lambda A: A.astype(np.uint8),
    "int16": lambda A: A.astype(np.int16),
    "int64": lambda A: A.astype(np.int64),
    "uint64": lambda A: A.astype(np.uint64),
    "big-endian int32": lambda A: A.astype(">i4"),
    "int lists": lambda A: A.astype(np.int64).tolist(),
}


# --- odd forms of good sparse matrices ------------------------------------------------------------------------------


def set_arrays(X: Any, **arrays: Any) -> Any:
    """X with these arrays instead of its own, nothing checked."""
    if X.format == "coo" and ("row" in arrays or "col" in arrays):
        X.coords = (arrays.pop("row", X.coords[0]), arrays.pop("col", X.coords[1]))
    for name, array in arrays.items():
        setattr(X, name, array)
    return X


def _index_names(X: Any) -> tuple[str, ...]:
    return ("row", "col") if X.format == "coo" else ("indptr", "indices")


def _indices(X: Any, change: Callable[[Array], Any]) -> Any:
    return set_arrays(X, **{name: change(getattr(X, name)) for name in _index_names(X)})


def _shuffled(X: Any) -> Any:
    """The entries of each row or column in falling order, and X says that they are sorted."""
    if X.format == "coo":
        order = np.random.default_rng(0).permutation(X.nnz)
        return set_arrays(X, row=X.row[order], col=X.col[order], data=X.data[order])
    order = np.concatenate([np.arange(b - 1, a - 1, -1) for a, b in zip(X.indptr, X.indptr[1:], strict=False)])
    return set_arrays(X, indices=X.indices[order], data=X.data[order])


def _doubled(X: Any) -> Any:
    """Every entry twice, each half as large."""
    if X.format == "coo":
        return type(X)((np.tile(X.data / 2, 2), (np.tile(X.row, 2), np.tile(X.col, 2))), shape=X.shape)
    again = np.repeat(np.arange(X.nnz), 2)
    return type(X)((X.data[again] / 2, X.indices[again], 2 * X.indptr), shape=X.shape)


def _lying(X: Any) -> Any:
    X.has_canonical_format = True
    made = _shuffled(X)
    made.has_canonical_format = True
    return made


def _strided_flat(array: Array) -> Array:
    wide = np.zeros(2 * len(array), array.dtype)
    wide[::2] = array
    return wide[::2]


SPARSE: dict[str, Callable[[Any], Any]] = {
    "canonical": lambda X: X,
    "matrix": lambda X: getattr(sp, f"{X.format}_matrix")(X),
    "int64 indices": lambda X: _indices(X, lambda array: array.astype(np.int64)),
    "uint32 indices": lambda X: _indices(X, lambda array: array.astype(np.uint32)),
    "int16 indices": lambda X: _indices(X, lambda array: array.astype(np.int16)),
    "big-endian indices": lambda X: _indices(X, lambda array: array.astype(">i4")),
    "strided indices": lambda X: _indices(X, _strided_flat),
    "read-only": lambda X: set_arrays(_indices(X, _frozen), data=_frozen(X.data)),
    "read-only int64": lambda X: set_arrays(
        _indices(X, lambda array: _frozen(array.astype(np.int64))), data=_frozen(X.data)
    ),
    "strided data": lambda X: set_arrays(X, data=_strided_flat(X.data)),
    "big-endian data": lambda X: set_arrays(X, data=X.data.astype(">f8")),
    "longdouble data": lambda X: set_arrays(X, data=X.data.astype(np.longdouble)),
    "float16 data": lambda X: set_arrays(X, data=X.data.astype(np.float16)),
    "unsorted": _shuffled,
    "unsorted, says sorted": _lying,
    "doubled": _doubled,
    "doubled, unsorted": lambda X: _shuffled(_doubled(X)),
    "mixed index types": lambda X: set_arrays(X, **{_index_names(X)[0]: getattr(X, _index_names(X)[0]).astype("i8")}),
}
SPARSE_WHOLE: dict[str, Callable[[Any], Any]] = {
    "int8 data": lambda X: set_arrays(X, data=X.data.astype(np.int8)),
    "uint16 data": lambda X: set_arrays(X, data=X.data.astype(np.uint16)),
}
FORMS = ("csr", "csc", "coo")
OTHER_FORMS = ("bsr", "dia", "lil", "dok")


def sparse_of(A: Array, form: str) -> Any:
    made = sp.csr_array(A).asformat(form)
    if form in FORMS:  # int32 whatever the version of SciPy
        made = _indices(made, lambda array: array.astype(np.int32))
    return made


# --- damaged sparse matrices ----------------------------------------------------------------------------------------


def _put(X: Any, name: str, at: int, value: int) -> Any:
    array = getattr(X, name).copy()
    array[at] = value
    return set_arrays(X, **{name: array})


FAR = (-1, -(2**31), 2**31 - 1, 10**6, 2**40, -(2**62))


def damaged(A: Array, form: str, draw: Draw) -> Any:
    """A sparse matrix that compiled code must not trust."""
    X = sparse_of(A, form)
    if draw.random() < 0.5:
        X = _indices(X, lambda array: array.astype(np.int64))
    wide = getattr(X, _index_names(X)[0]).dtype.itemsize > 4
    far = draw.choice([value for value in FAR if wide or -(2**31) <= value < 2**31])
    entry = draw.randrange(X.nnz)
    if form == "coo":
        name = draw.choice(["row", "col"])
        size = X.shape[name == "col"]
        ways: list[Callable[[], Any]] = [
            lambda: _put(X, name, entry, far),
            lambda: _put(X, name, entry, size),
            lambda: set_arrays(X, data=X.data[:-1]),
            lambda: set_arrays(X, **{name: getattr(X, name)[:-2]}),
            lambda: set_arrays(X, **{name: getattr(X, name).astype(np.float64)}),
        ]
    else:
        row, size = draw.randrange(1, len(X.indptr) - 1), X.shape[form == "csr"]
        ways = [
            lambda: _put(X, "indices", entry, far),
            lambda: _put(X, "indices", entry, size),
            lambda: _put(X, "indptr", row, far if abs(far) > 1 else 10**6),
            lambda: _put(X, "indptr", 0, draw.choice([-1, 1, 5])),
            lambda: _put(X, "indptr", len(X.indptr) - 1, draw.choice([X.nnz + 1, 10**7, -3, 0, X.nnz - 1])),
            lambda: set_arrays(X, indptr=X.indptr[:-1]),
            lambda: set_arrays(X, indptr=np.append(X.indptr, X.indptr[-1])),
            lambda: set_arrays(X, indptr=X.indptr[:0]),
            lambda: set_arrays(X, indptr=X.indptr[::-1]),
            lambda: set_arrays(X, indices=X.indices[:-1]),
            lambda: set_arrays(X, indices=X.indices[:0]),
            lambda: set_arrays(X, data=X.data[:-2]),
            lambda: set_arrays(X, data=X.data[:0]),
            lambda: set_arrays(X, indices=X.indices.astype(np.float32)),
            lambda: set_arrays(X, indptr=X.indptr.astype(np.float64)),
            lambda: set_arrays(X, indices=X.indices.reshape(1, -1)),
            lambda: set_arrays(X, data=X.data.reshape(-1, 1)),
        ]
    return draw.choice(ways)()


# --- wrong values, types and shapes ---------------------------------------------------------------------------------

EXTREME = (
    *(np.nan, np.inf, -np.inf, 1e100, 1e150, -1e150, 1e200, 1e300, -1e300, 1.7e308, 1e-100, 1e-150, 1e-200, 1e-310),
    *(5e-324, 2.0**24, 2.0**31, 2.0**53, 2.0**62, 2.0**63, 1e15, -1.0, -1e-3, 0.5, 1e39, -1e39, 3.4e38, 1e19),
    *(1e70, -1e70, 1e-70, 1e-40),
)


def extreme(A: Array, draw: Draw) -> Array:
    """Some or all values are extreme."""
    made = A.copy()
    way = draw.randrange(5)
    value = draw.choice(EXTREME)
    if way == 0:
        made[draw.randrange(A.shape[0]), draw.randrange(A.shape[1])] = value
    elif way == 1:
        made[:, draw.randrange(A.shape[1])] = value
    elif way == 2:
        with np.errstate(all="ignore"):
            made *= value
    elif way == 3:
        made[draw.randrange(A.shape[0])] = value
    else:
        for _ in range(6):
            made[draw.randrange(A.shape[0]), draw.randrange(A.shape[1])] = draw.choice(EXTREME)
    return made


class Strange:
    """Nothing that an estimator knows."""

    def __repr__(self) -> str:
        return "Strange()"


class Shy:
    """Its own representation fails."""

    def __repr__(self) -> str:
        raise RuntimeError("no representation")


WRONG: dict[str, Callable[[Array], Any]] = {
    "None": lambda A: None,
    "text": lambda A: "no such file",
    "bytes": lambda A: b"x",
    "number": lambda A: 3.0,
    "0-d": lambda A: np.array(3.0),
    "1-d": lambda A: A[0],
    "3-d": lambda A: A[None],
    "no rows": lambda A: A[:0],
    "no columns": lambda A: A[:, :0],
    "nothing": lambda A: A[:0, :0],
    "empty list": lambda A: [],
    "list of empty lists": lambda A: [[], []],
    "one row": lambda A: A[:1],
    "one column": lambda A: A[:, :1],
    "two columns": lambda A: A[:, :2],
    "one number": lambda A: A[:1, :1],
    "zeros": np.zeros_like,
    "constants": lambda A: np.full_like(A, 3.0),
    "more columns": lambda A: np.hstack([A, A]),
    "more rows": lambda A: np.vstack([A, A]),
    "ragged": lambda A: [[1.0, 2.0], [3.0]],
    "complex": lambda A: A.astype(complex),
    "texts": lambda A: A.astype(str),
    "byte strings": lambda A: A.astype("S5"),
    "mixed objects": lambda A: np.array([["a", 1.0], [None, 2.0]] * 3, dtype=object),
    "nones": lambda A: np.full(A.shape, None, dtype=object),
    "dates": lambda A: A.astype(np.int64).astype("datetime64[s]"),
    "durations": lambda A: A.astype(np.int64).astype("timedelta64[s]"),
    "structured": lambda A: np.zeros(5, [("a", "f8"), ("b", "i4")]),
    "void": lambda A: np.zeros((3, 3), "V8"),
    "booleans": lambda A: A.mean() < A,
    "masked": lambda A: np.ma.masked_array(A, A.max() == A),
    "all masked": lambda A: np.ma.masked_array(A, np.ones(A.shape, bool)),
    "np.matrix": np.asmatrix,
    "mapping": lambda A: {"a": [1, 2]},
    "set": lambda A: {1, 2},
    "generator": lambda A: (row for row in A),
    "object": lambda A: Strange(),
    "type": lambda A: np.ndarray,
    "pairs": lambda A: (A, A),
    "decimals": np.vectorize(decimal.Decimal, otypes=[object]),
    "huge integers": lambda A: np.full(A.shape, 10**30, dtype=object),
    "sparse 1-d": lambda A: sp.coo_array(A[0]),
    "sparse, complex": lambda A: sp.csr_array(A.astype(complex)),
    "sparse, booleans": lambda A: sp.csr_array(A.mean() < A),
    "sparse, empty": lambda A: sp.csr_array(A.shape),
    "sparse, no rows": lambda A: sp.csr_array((0, A.shape[1])),
    "sparse, no columns": lambda A: sp.csr_array((A.shape[0], 0)),
    "sparse, masked": lambda A: set_arrays(
        sp.csr_array(A), data=np.ma.masked_array(sp.csr_array(A).data, np.arange(sp.csr_array(A).nnz) % 2 == 0)
    ),
    "sparse, texts": lambda A: set_arrays(sp.csr_array(A), data=sp.csr_array(A).data.astype(str)),
    "sparse, objects": lambda A: set_arrays(sp.csr_array(A), data=np.full(sp.csr_array(A).nnz, None, object)),
    "sparse, class": lambda A: sp.csr_array,
    "broadcast": lambda A: np.broadcast_to(A[:1], A.shape),
    "polars": _polars,
    "arrow": _arrow,
    "pandas, texts": lambda A: _pandas(A).astype(str),
    "pandas, gaps": lambda A: _pandas(A).where(_pandas(A) > 0, None),
    "pandas, nullable": lambda A: _pandas(np.rint(A)).astype("Int64").where(_pandas(A) > 0),
    "pandas, sparse": lambda A: _pandas(A).astype("Sparse[float64]"),
}

VALUES: dict[str, Any] = {
    "None": None,
    "text": "x",
    "empty text": "",
    "auto": "auto",
    "number in text": "1",
    "bytes": b"x",
    "minus one": -1,
    "zero": 0,
    "one": 1,
    "1.5": 1.5,
    "0.0": 0.0,
    "-0.5": -0.5,
    "nan": np.nan,
    "inf": np.inf,
    "-inf": -np.inf,
    "1e308": 1e308,
    "1e-308": 1e-308,
    "5e-324": 5e-324,
    "2**31": 2**31,
    "2**63": 2**63,
    "-2**63": -(2**63),
    "10**400": 10**400,
    "True": True,
    "False": False,
    "np.True": np.True_,
    "np.int8": np.int8(3),
    "np.uint64": np.uint64(2**63 + 5),
    "np.float32": np.float32(0.5),
    "np.float16": np.float16(0.5),
    "longdouble": np.longdouble("1e4000"),
    "Fraction": fractions.Fraction(1, 3),
    "Decimal": decimal.Decimal("0.5"),
    "complex": 1j,
    "list": [1, 2],
    "empty list": [],
    "tuple": (1,),
    "set": {1},
    "mapping": {"a": 1},
    "array": np.array([1.0, 2.0]),
    "0-d array": np.array(2),
    "empty array": np.empty(0),
    "strange": Strange(),
    "shy": Shy(),
    "class": int,
    "function": len,
    "date": datetime.date(2024, 1, 1),
    "NaT": np.datetime64("NaT", "s"),
    "range": range(3),
    "ellipsis": ...,
    "long text": "x" * 10_000,
}
