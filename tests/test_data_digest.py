"""Digests of arrays: any changed number changes them, threads and memory layout of the chunks do not."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from stretto.data.records import digest
from stretto.data.records.digest import digest_of

LONG = digest._LONG // 8 + 5  # numbers for which the compiled hash is used, and a rest of its stripes


@pytest.mark.parametrize("n", [16, LONG])
def test_every_number_counts(n: int) -> None:
    x = np.arange(float(n))
    seen = {digest_of(x)}
    for at in (0, 1, 2, 3, n // 2, n - 6, n - 1):
        changed = x.copy()
        changed[at] = np.nextafter(changed[at], np.inf)
        seen.add(digest_of(changed))
    swapped = x.copy()
    swapped[[1, 5]] = swapped[[5, 1]]  # in one lane of the hash
    assert len(seen | {digest_of(swapped), digest_of(x[:-1]), digest_of(x.astype(np.float32))}) == 11


def test_threads_and_chunks_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest, "_CHUNK", 2 * digest._LONG)
    x = np.random.default_rng(0).normal(size=5 * LONG)
    fixed = x.copy()
    fixed.flags.writeable = False
    assert digest_of(x) == digest_of(x, threads=3) == digest_of(fixed)


def test_unaligned_arrays_have_the_digest_of_their_numbers() -> None:
    x = np.random.default_rng(0).normal(size=LONG)
    buffer = np.empty(x.nbytes + 1, np.uint8)
    shifted = buffer[1:].view(np.float64)
    shifted[...] = x
    assert digest_of(shifted) == digest_of(x)


def test_a_changed_index_of_a_sparse_matrix_counts() -> None:
    X = sp.random_array((300, 400), density=0.5, format="csr", rng=np.random.default_rng(0))
    assert X.data.nbytes > digest._LONG < X.indices.nbytes
    before = digest_of(X)
    X.indices[-1] -= 1
    assert digest_of(X) != before


@pytest.mark.parametrize("shape", [(40, 700), (3, LONG), (LONG, 3), (4, 5, 6), (0, 3)])
def test_memory_layout_does_not_count(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest, "_CHUNK", digest._LONG + 8)  # ends inside of rows
    x = np.random.default_rng(0).normal(size=shape)
    wide = np.repeat(np.repeat(x, 2, axis=0), 2, axis=1)
    same = (np.asfortranarray(x), wide[::2, ::2], x.astype(">f8"), x[::-1].copy()[::-1])
    assert {digest_of(one, threads=threads) for one in same for threads in (1, 3)} == {digest_of(x)}
    if x.size:
        assert digest_of(np.asfortranarray(x[::-1])) != digest_of(x) != digest_of(x.T)


def test_floats_are_hashed_as_solvers_read_them() -> None:
    x = np.random.default_rng(0).integers(0, 5, (50, 7))
    whole = digest_of(x.astype(np.float64))
    for kind in (np.int8, np.uint64, np.float16, np.longdouble, ">i4", ">f4"):  # the last is read as float64 too
        assert digest_of(x.astype(kind), floats=True) == whole != digest_of(x.astype(kind))
    assert digest_of(x.astype(np.float32), floats=True) == digest_of(x.astype(np.float32)) != whole
    X = sp.csr_array(x.astype(np.float64))
    wide = X.astype(np.int16)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.uint32)
    assert digest_of(wide, floats=True) == digest_of(X, floats=True) != digest_of(wide)
