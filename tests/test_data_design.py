"""The design matrix: every form in, two forms out, nothing copied without need, nothing unsound let through."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as some
from sklearn.preprocessing import StandardScaler

from stretto.data.design.design import Design
from stretto.errors import DataError

RNG = np.random.default_rng(0)
A = np.where(RNG.random((30, 12)) < 0.3, RNG.normal(size=(30, 12)), 0.0)


def wide(matrix: Any) -> Any:
    """The same matrix with 64-bit indices."""
    matrix.indptr, matrix.indices = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64)
    return matrix


def unsorted() -> sp.csc_array:
    matrix = sp.csc_array(A)
    for j in range(A.shape[1]):
        part = slice(matrix.indptr[j], matrix.indptr[j + 1])
        matrix.indices[part] = matrix.indices[part][::-1].copy()
        matrix.data[part] = matrix.data[part][::-1].copy()
    matrix.has_sorted_indices = False
    return matrix


def repeated() -> sp.csc_array:
    """Every entry in two halves."""
    matrix = sp.csc_array(A)
    return sp.csc_array(
        (np.repeat(matrix.data / 2, 2), np.repeat(matrix.indices, 2), matrix.indptr * 2), shape=matrix.shape
    )


def with_zeros() -> sp.csc_array:
    matrix = sp.csc_array(A + 7.0 * (A == 0))
    matrix.data[matrix.data == 7.0] = 0.0
    return matrix


SPARSE: dict[str, Callable[[], Any]] = {
    "csc": lambda: sp.csc_array(A),
    "csc-matrix": lambda: sp.csc_matrix(A),
    "csr": lambda: sp.csr_array(A),
    "coo": lambda: sp.coo_array(A),
    "coo-matrix": lambda: sp.coo_matrix(A),
    "lil": lambda: sp.lil_array(A),
    "dok": lambda: sp.dok_array(A),
    "bsr": lambda: sp.bsr_array(A),
    "csc-int64": lambda: wide(sp.csc_array(A)),
    "csr-int64": lambda: wide(sp.csr_array(A)),
    "unsorted": unsorted,
    "repeated": repeated,
    "repeated-csr": lambda: repeated().T.tocsc().T,
    "zeros": with_zeros,
    "zeros-csr": lambda: with_zeros().tocsr(),
}


@pytest.mark.parametrize("form", SPARSE)
def test_every_sparse_form_becomes_the_same_columns(form: str) -> None:
    X = SPARSE[form]()
    before = X.copy()
    design = Design.of(X)
    expected = sp.csc_array(A)
    assert design.sparse
    assert design.dense is None
    indptr, indices, values = design.csc
    np.testing.assert_array_equal(indptr, expected.indptr)
    np.testing.assert_array_equal(indices, expected.indices)
    np.testing.assert_allclose(values, expected.data, rtol=1e-15)
    assert [part.dtype.name for part in design.csc] == ["int64", "int32", "float64"]
    assert design.shape == A.shape
    assert design.nnz == np.count_nonzero(A)
    np.testing.assert_array_equal(design.matrix.toarray(), A)
    assert abs(X - before).sum() == 0
    assert X.nnz == before.nnz, "the caller's matrix is left as it was"


DENSE: dict[str, Any] = {
    "fortran": np.asfortranarray(A),
    "c": np.ascontiguousarray(A),
    "strided": np.repeat(np.asfortranarray(A), 2, axis=0)[::2],
    "float32": A.astype(np.float32),
    "ints": np.round(A * 10).astype(np.int64),
    "bools": A > 0,
    "objects": A.astype(object),
    "list": A.tolist(),
}


@pytest.mark.parametrize("form", DENSE)
def test_every_dense_form_becomes_fortran(form: str) -> None:
    X = DENSE[form]
    design = Design.of(X)
    assert design.dense is not None
    assert design.dense.flags.f_contiguous
    assert design.dtype == (np.float32 if form == "float32" else np.float64)
    np.testing.assert_array_equal(design.dense, np.asarray(X).astype(design.dtype))
    assert (design.sparse, design.nnz) == (False, A.size)
    with pytest.raises(DataError, match="dense"):
        _ = design.csc


def test_what_is_right_already_is_shared() -> None:
    dense, sparse = np.asfortranarray(A), sp.csc_array(A)
    sparse32 = sparse.astype(np.float32)
    assert Design.of(dense).dense is dense
    assert np.shares_memory(Design.of(sparse).csc[2], sparse.data)
    assert np.shares_memory(Design.of(sparse).csc[1], sparse.indices)
    assert np.shares_memory(Design.of(sparse32).csc[2], sparse32.data)
    assert np.shares_memory(Design.of(sparse).matrix.data, sparse.data)
    assert Design.of(dense).note == Design.of(sparse).note == Design.of(sparse32).note == ""
    design = Design.of(sparse)
    assert Design.of(design) is design


@pytest.mark.parametrize(
    ("X", "note"),
    [
        (sp.csr_array(A), "CSR turned into CSC once"),
        (sp.coo_array(A), "COO turned into CSC once"),
        (A, "copied into Fortran order once"),
        (A.astype(np.int32), "int32 values turned into float64, in Fortran order"),
        (np.asfortranarray(A.astype(np.float16)), "float16 values turned into float64"),
        (repeated(), "row numbers sorted, repeated entries added"),
        (with_zeros(), "explicit zeros dropped"),
        (wide(sp.csc_array(A)), "int64 row numbers turned into int32"),
        (sp.csr_array(A > 0), "CSR turned into CSC once, bool values turned into float64"),
    ],
    ids=lambda value: None if isinstance(value, str) else "",
)
def test_conversions_are_said(X: Any, note: str) -> None:
    assert Design.of(X).note == note


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("make", [np.array, np.asfortranarray, sp.csc_array, sp.csr_array], ids=lambda f: f.__name__)
def test_nan_and_infinity_are_refused_with_their_place(make: Any, bad: float) -> None:
    X = A.copy()
    X[17, 5] = bad
    with pytest.raises(DataError, match=r"NaN or inf: -?(nan|inf) at row 17, column 5;"):
        Design.of(make(X))
    X[20, 6] = bad
    with pytest.raises(DataError, match=r"row 17, column 5 \(2 such values\)"):
        Design.of(make(X))


def test_numbers_are_let_in_as_long_as_their_products_are_numbers() -> None:
    large = np.full((4, 3), 1e75)
    np.testing.assert_array_equal(Design.of(large).dense, large)
    large[2, 1] = -1.1e75
    for form in (large, sp.csc_array(large), sp.csr_array(large)):
        with pytest.raises(DataError, match=r"X holds -1.1e\+75 at row 2, column 1: products of such numbers overflow"):
            Design.of(form)
    single = np.full((4, 3), 3e38, np.float32)
    np.testing.assert_array_equal(Design.of(single).dense, single)


def test_arrays_of_any_kind_are_one_type_for_kernels_and_share_memory() -> None:
    frozen = np.asfortranarray(A)
    frozen.flags.writeable = False
    made = Design.of(frozen).dense
    assert made is not None
    assert made.flags.writeable
    assert np.shares_memory(made, frozen)
    np.testing.assert_array_equal(made, frozen)
    raw = np.zeros(A.nbytes + 1, np.uint8)
    odd = raw[1:].view(np.float64).reshape(A.shape, order="F")
    odd[:] = A
    aligned = Design.of(odd).dense
    assert aligned is not None
    assert aligned.flags.aligned
    np.testing.assert_array_equal(aligned, A)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.ones(5), r"two dimensions.*shape \(5,\).*Reshape your data"),
        (np.ones((2, 2, 2)), "two dimensions"),
        (np.ones((3, 2), complex), "Complex data not supported"),
        (np.array([["a", "b"]]), "a design holds numbers; got <U1"),
        (np.array([["a", 1]], dtype=object), "a design holds numbers: could not convert string to float"),
    ],
    ids=["1d", "3d", "complex", "strings", "objects"],
)
def test_what_is_no_matrix_of_numbers_is_refused(X: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Design.of(X)


def test_damaged_columns_are_refused() -> None:
    """SciPy lets them through, and compiled code would read beyond its arrays."""
    far = sp.csc_array(A)
    far.indices[3] = 30
    with pytest.raises(DataError, match=r"entry 3, in column 0, has row 30, outside of 0 to 29; build the matrix anew"):
        Design.of(far)
    torn = sp.csc_array(A)
    torn.indptr[4] = 10**6
    with pytest.raises(DataError, match=r"indptr falls from 1000000 to \d+ at column 4"):
        Design.of(torn)


@given(rows=some.sets(some.integers(0, 29), min_size=1), sparse=some.booleans())
def test_taking_samples(rows: set[int], sparse: bool) -> None:
    wanted = np.array(sorted(rows))
    part = Design.of(sp.csc_array(A) if sparse else A).take(wanted)
    matrix = part.matrix.toarray() if sparse else part.matrix
    np.testing.assert_array_equal(matrix, A[wanted])
    assert part.shape == (len(wanted), 12)
    if part.dense is not None:
        assert part.dense.flags.f_contiguous
    else:
        assert part.csc[1].dtype == np.int32
        assert part.matrix.has_canonical_format


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_spread_is_the_standard_deviation(sparse: bool, dtype: Any) -> None:
    X = np.array(A, dtype)
    X[:, 3], X[:, 4], X[:, 5] = 0.0, 2.5, 1e6 + 0.1 * np.arange(30)
    weight = np.random.default_rng(1).uniform(0.0, 2.0, 30)
    found = Design.of(sp.csr_array(X) if sparse else X).spread(weight)
    mean = np.average(X.astype(np.float64), axis=0, weights=weight)
    expected = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weight))
    expected[[3, 4]] = 1.0  # constant columns are left alone
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    equal = Design.of(X).spread(np.ones(30))
    np.testing.assert_allclose(equal, StandardScaler().fit(X.astype(np.float64)).scale_, rtol=1e-6)
