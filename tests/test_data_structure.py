"""Sparse matrices are verified before compiled code trusts them: what is found, where, and that nothing is changed."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import hostile_arrays as make
from stretto.data.convert.sparse_structure import verified
from stretto.errors import DataError, PlanError
from stretto.models.linear.cross_validation.lasso_cv import LassoCV
from stretto.models.linear.lasso import Lasso
from stretto.models.linear.logistic import LogisticRegression
from stretto.runtime.blocks.team import Team

A = np.where(np.arange(24).reshape(6, 4) % 3, np.arange(24).reshape(6, 4), 0).astype(float)


def changed(form: str, name: str, at: int, value: int, width: Any = np.int32) -> Any:
    X = make.sparse_of(A, form)
    X = make.set_arrays(X, **{part: getattr(X, part).astype(width) for part in make._index_names(X)})
    return make._put(X, name, at, value)


@pytest.mark.parametrize("width", [np.int32, np.int64])
@pytest.mark.parametrize(
    ("form", "name", "at", "value", "says"),
    [
        ("csr", "indices", 5, 4, r"entry 5, in row 2, has column 4, outside of 0 to 3"),
        ("csr", "indices", 0, -1, r"entry 0, in row 0, has column -1"),
        ("csc", "indices", 15, 6, r"entry 15, in column 3, has row 6, outside of 0 to 5"),
        ("csr", "indptr", 0, 1, "indptr starts at 1 instead of 0"),
        ("csr", "indptr", 3, 1, "indptr falls from 5 to 1 at row 2"),
        ("csc", "indptr", 4, 99, "indptr ends at 99, and there are 16 entries"),
        ("csr", "indptr", 6, 15, r"indptr ends at 15, and there are 16 entries; X.prune\(\)"),
        ("coo", "row", 3, 6, "entry 3 has row 6, outside of 0 to 5"),
        ("coo", "col", 15, -2, "entry 15 has column -2, outside of 0 to 3"),
    ],
)
def test_what_is_damaged_and_where(form: str, name: str, at: int, value: int, says: str, width: Any) -> None:
    with pytest.raises(DataError, match=rf"X: this {form.upper()} matrix of shape \(6, 4\) is damaged: {says}"):
        verified(changed(form, name, at, value, width), "X")


def test_the_first_of_many_entries_is_found() -> None:
    X = sp.csr_array(np.ones((100, 100)))
    for at in (0, 4095, 4096, 4097, 9999):
        X.indices[at] = 100
        with pytest.raises(DataError, match=rf"entry {at}, in row {at // 100}, has column 100"):
            verified(X, "X")
        X.indices[at] = at % 100


def test_every_matrix_is_judged_as_a_plain_loop_does() -> None:
    """Bounds and indices at random, most of them wrong: taken where a loop over them finds nothing."""
    draw = random.Random(0)
    taken = 0
    for _ in range(2000):
        height, width, entries = draw.randrange(1, 5), draw.randrange(1, 4), draw.randrange(6)
        cuts = sorted(draw.randrange(entries + 1) for _ in range(height - 1))
        indptr = [0, *cuts, entries]
        indices = [draw.randrange(width) for _ in range(entries)]
        for _ in range(draw.choice([0, 0, 1, 2])):
            if draw.randrange(2) and indices:
                indices[draw.randrange(entries)] = draw.choice([-1, width, 2**30])
            else:
                indptr[draw.randrange(height + 1)] = draw.choice([-1, 1, entries + 1, 2**30])
        X = sp.csr_array((height, width))
        make.set_arrays(
            X, indptr=np.array(indptr, np.int32), indices=np.array(indices, np.int32), data=np.ones(entries)
        )
        rising = all(a <= b for a, b in pairwise(indptr))
        sound = indptr[0] == 0 and rising and indptr[-1] == entries and all(0 <= j < width for j in indices)
        if not sound:
            with pytest.raises(DataError, match="is damaged"):
                verified(X, "X")
            continue
        taken += 1
        rows = [indices[a:b] for a, b in pairwise(indptr)]
        canonical = all(a < b for row in rows for a, b in pairwise(row))
        assert verified(X, "X").has_canonical_format == canonical
    assert 500 < taken < 1500


def test_arrays_are_shared_and_the_matrix_stays_as_it_is() -> None:
    X = make._lying(make.sparse_of(A, "csr"))
    found = verified(X, "X")
    assert not found.has_canonical_format
    assert X.has_canonical_format  # wrong, and its owner's
    assert np.shares_memory(found.data, X.data)
    assert np.shares_memory(found.indices, X.indices)


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_sums_of_small_integers_do_not_wrap(form: str) -> None:
    X = sp.coo_array((np.full(8, 100, np.int8), (np.repeat(np.arange(4), 2), np.zeros(8, int))), shape=(4, 2))
    X = X if form == "coo" else getattr(sp, f"{form}_array")(X.astype(float))
    if form != "coo":
        X = type(X)((np.full(4, 100, np.int8), X.indices, X.indptr), shape=X.shape)
        X = type(X)((np.repeat(X.data, 2), np.repeat(X.indices, 2), 2 * X.indptr), shape=X.shape)
    y = np.arange(4.0)
    plain = Lasso(0.1, fit_intercept=False).fit(np.array([[200.0, 0.0]] * 4), y)
    np.testing.assert_allclose(Lasso(0.1, fit_intercept=False).fit(X, y).coef_, plain.coef_)


def test_scores_below_those_of_no_class_stay_inside_the_table_of_powers() -> None:
    """All scores of a sample far below zero: the unused lanes beside the classes are far above them."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 4)), np.arange(30) % 3
    model = LogisticRegression(warm_start=True, max_iter=3, tol=1.0, n_jobs=1, l1_ratio=1.0).fit(X, y)
    model.intercept_ = np.full(3, -1e12)
    assert np.isfinite(model.fit(X, y).coef_).all()


def test_a_system_without_threads_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    started: list[threading.Thread] = []

    def start(self: threading.Thread) -> None:
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(self)
        begin(self)

    begin = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(PlanError, match=r"no more than 2 of 5 threads \(can't start new thread\); use fewer: n_jobs="):
        Team(5)
    assert not any(thread.is_alive() for thread in started)


@pytest.mark.parametrize(
    ("n_jobs", "words"),
    [
        (10**6, r"n_jobs=1000000 threads on \d+ cores would only wait for each other"),
        (10**30, r"n_jobs must be a whole number; got 10{30}"),  # no machine has a number for it
    ],
)
def test_more_threads_than_cores_can_use_are_refused(n_jobs: int, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        Lasso(n_jobs=n_jobs).fit(A, np.arange(6.0))


@pytest.mark.parametrize(
    "cv", [[], [([0, 1], [2, 9])], [([0, 1], [-1])], [([0.5], [1])], [([], [1])], [([[0]], [1])]], ids=str
)
def test_folds_that_name_no_samples_are_refused(cv: Any) -> None:
    with pytest.raises(
        DataError, match=r"LassoCV: (cv=.* gives no folds|the (training|test) samples of fold 1 must be)"
    ):
        LassoCV(cv=cv).fit(A, np.arange(6.0))
