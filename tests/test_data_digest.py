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
