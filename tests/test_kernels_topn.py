"""The best n items against a full sort in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isa_script import problem, recommended
from kernelrun import WAYS, cut, run
from stretto.kernels.factorization import topn
from stretto.kernels.numeric import lanes
from stretto.runtime.runtimes import Serial, Threads
from stretto.solvers.factorization import factors
from stretto.solvers.factorization.rated_items import RatedItems

f4 = np.float32
NOTHING_SEEN = (np.zeros(1, np.int64), np.zeros(0, np.int32))


def twin(p: dict[str, Any], n: int, mask: Any, seen: bool) -> tuple[Any, Any]:
    """Ids and float64 scores, best first, ties to the lower index, −1 and −∞ where there are fewer than n."""
    X, Y = p["X"].astype(float), p["Y"].astype(float)
    table = X @ Y.T + Y[:, 0]
    if mask is not None:
        table[:, ~mask] = -np.inf
    if seen:
        table[p["dense"] != 0] = -np.inf
    ids = np.argsort(-table, axis=1, kind="stable")[:, :n]
    scores = np.take_along_axis(table, ids, axis=1)
    ids = np.where(np.isinf(scores), -1, ids)
    short = n - ids.shape[1]
    if short > 0:
        ids, scores = (
            np.pad(ids, ((0, 0), (0, short)), constant_values=-1),
            np.pad(scores, ((0, 0), (0, short)), constant_values=-np.inf),
        )
    return ids, scores + p["X"][:, :1]


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(2, 20),
    cols=st.integers(2, 200),
    rank=st.integers(1, 40),
    n=st.integers(1, 30),
    masked=st.booleans(),
    seen=st.booleans(),
    seed=st.integers(0, 99),
)
def test_the_best_n_match_a_full_sort(
    rows: int, cols: int, rank: int, n: int, masked: bool, seen: bool, seed: int
) -> None:
    p = problem(rows, cols, rank, seed)
    for name in ("X", "Y"):
        p[name][:] = np.round(p[name] * 4) / 4  # sums of such numbers are exact: ties are real ties, and float64 agrees
    mask = np.random.default_rng(seed).random(cols) < 0.5 if masked else None
    ids, scores = recommended(p, n, mask=mask, seen=seen)
    expected_ids, expected = twin(p, n, mask, seen)
    assert (ids == expected_ids).all()
    assert (scores == expected).all()


@pytest.mark.parametrize("n", [1, 10, 64, 300])
def test_scores_are_right_and_descend_and_bits_do_not_depend_on_the_way(n: int) -> None:
    p = problem(21, 250, 33)
    found = [recommended(p, n, way=way) for way in WAYS]
    ids, scores = found[0]
    assert len({a.tobytes() + b.tobytes() for a, b in found}) == 1
    expected = twin(p, n, None, True)[1]
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-4)
    assert (np.diff(scores[:, : (ids >= 0).sum(axis=1).min()], axis=1) <= 0).all()
    assert not (p["dense"][np.arange(21)[:, None], ids] != 0)[ids >= 0].any()


def setup(X: Any, Y: Any, n: int) -> tuple[Any, ...]:
    panels, bias = topn.panels_for(*Y.shape)
    run(topn.pack_worker, cut(len(bias), 1), Y, np.zeros(0, f4), panels, bias)
    return panels, bias, topn.allowed_words(len(Y)), np.empty((len(X), n), np.int32), np.empty((len(X), n), f4)


def test_all_seen_or_none_allowed_gives_nothing() -> None:
    p = problem(5, 70, 4)
    p["csr"] = (np.arange(6) * 70, np.tile(np.arange(70, dtype=np.int32), 5), None)
    for ids, scores in (recommended(p, 3), recommended(p, 3, seen=False, mask=np.zeros(70, bool))):
        assert (ids == -1).all()
        assert (scores == -np.inf).all()


def test_an_unknown_user_gets_the_items_with_the_highest_bias() -> None:
    p = problem(5, 70, 4)
    panels, bias, allowed, ids, scores = setup(p["X"], p["Y"], 2)
    bias.flat[:70] = np.arange(70)
    users = np.array([-1, 5, 0, -1, 99])
    run(
        topn.recommend_worker,
        cut(5, 2),
        users,
        p["X"],
        np.ones(5, f4),
        panels,
        bias,
        *topn.NO_BOUNDS,
        allowed,
        *p["csr"][:2],
        ids,
        scores,
    )
    for place in (0, 1, 3, 4):
        assert ids[place].tolist() == [69, 68]
        assert scores[place].tolist() == [69, 68]
    assert not np.isin(ids[2], p["csr"][1][: p["csr"][0][1]]).any()


def test_equal_scores_go_to_the_lower_index() -> None:
    X, Y = lanes.aligned((6, 16)), lanes.aligned((150, 16))
    panels, bias, allowed, ids, scores = setup(X, Y, 5)
    args = (np.arange(6), X, np.zeros(0, f4), panels, bias, *topn.NO_BOUNDS, allowed, *NOTHING_SEEN, ids, scores)
    run(topn.recommend_worker, cut(6, 2), *args)
    assert (ids == np.arange(5)).all()
    assert (scores == 0).all()


def test_cosine_neighbours() -> None:
    Y = problem(3, 90, 7)["Y"]
    Y[11] = 0
    unit = np.empty_like(Y)
    run(topn.normalise_worker, cut(90, 3), Y, unit)
    panels, bias, allowed, ids, scores = setup(unit, unit, 4)
    itself = (np.arange(91, dtype=np.int64), np.arange(90, dtype=np.int32))
    args = (np.arange(90), unit, np.zeros(0, f4), panels, bias, *topn.NO_BOUNDS, allowed, *itself, ids, scores)
    run(topn.recommend_worker, cut(90, 3), *args)
    plain = Y.astype(float)
    lengths = np.linalg.norm(plain, axis=1)
    cosine = np.divide(
        plain @ plain.T, np.outer(lengths, lengths), where=np.outer(lengths, lengths) > 0, out=np.zeros((90, 90))
    )
    np.fill_diagonal(cosine, -np.inf)
    np.testing.assert_allclose(scores, np.sort(cosine, axis=1)[:, ::-1][:, :4], atol=1e-5)


def searches(W: Any, H: Any, c: Any, n: int, monkeypatch: Any, **given: Any) -> tuple[Any, Any, Any]:
    """The best without bounds, with bounds, and with bounds on three threads."""
    rows = np.arange(len(W), dtype=np.int32)
    monkeypatch.setattr(factors, "_BOUNDED_ITEMS", 64)
    found = []
    for least, runtime in ((1 << 30, Serial()), (1, Serial()), (1, Threads(3))):
        monkeypatch.setattr(factors, "_BOUNDED_ROWS", least)
        with runtime.open() as crew:
            index = factors.TopNIndex.over(H, c, crew)
            assert (index.bounded(len(W), crew) is not None) == (least == 1)
            found.append(index.best(W, rows, n, crew, **given))
    return found[0], found[1], found[2]


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_bounds_change_no_bit(decay: float, ties: bool, biased: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that exclude much (decay) or little, equal scores, seen and forbidden items, rows without factors."""
    rng = np.random.default_rng(0)
    W, H = lanes.aligned((150, 32)), lanes.aligned((3000, 32))
    W[:] = rng.normal(size=W.shape) * np.exp(-decay * np.arange(32))
    H[:] = rng.normal(size=H.shape) * rng.gamma(2.0, size=(3000, 1))
    if ties:
        W[:], H[:] = np.round(2 * W) / 2, np.round(2 * H) / 2
        H[1500:] = H[:1500][rng.permutation(1500)]
    W[[3, 77]] = 0
    c = rng.normal(size=3000).astype(f4) if biased else np.zeros(0, f4)
    indptr = np.cumsum([0, *rng.integers(0, 40, 150)])
    best = np.argsort(-(W @ H.T), axis=1)[:, :60]
    seen = [np.sort(rng.choice(best[k], size, replace=False)) for k, size in enumerate(np.diff(indptr))]
    held = RatedItems(indptr, np.concatenate(seen).astype(np.int32))
    for n in (1, 10, 200):
        for allowed in (None, rng.random(3000) < 0.3):
            for blank in (False, True):
                plain, *others = searches(W, H, c, n, monkeypatch, seen=held, allowed=allowed, blank=blank)
                for ids, scores in others:
                    np.testing.assert_array_equal(ids, plain[0])
                    assert scores.tobytes() == plain[1].tobytes()
                assert ((plain[0][[3, 77]] == -1).all()) == blank


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_bounds_are_not_below_scores(scale: float) -> None:
    rng = np.random.default_rng(1)
    H = (scale * rng.normal(size=(500, 64)) * np.exp(-0.1 * np.arange(64))).astype(f4)
    heads, basis = topn.bounds_of(H, 16)
    W = rng.normal(size=(80, 64)).astype(f4)
    main = W @ basis.T
    rest = np.sqrt(np.maximum(0, (W**2).sum(axis=1) - (main**2).sum(axis=1)))
    bound = np.column_stack([main, rest]) @ heads.T
    scores = W.astype(float) @ H.T
    assert (bound - scores).min() > -1e-5 * scale
    assert (bound - scores).mean() < 0.7 * np.linalg.norm(W, axis=1).mean() * np.linalg.norm(H, axis=1).mean()


@pytest.mark.parametrize("value", [1e-30, 1e25])
def test_factors_whose_squares_leave_the_numbers_have_no_bounds(value: float) -> None:
    H = lanes.aligned((5000, 32))
    H[:] = value
    with Serial().open() as crew:
        assert factors.TopNIndex.over(H, np.zeros(0, f4), crew).bounded(10_000, crew) is None


def test_factors_that_are_not_finite_stop_the_pass() -> None:
    p = problem(5, 70, 4)
    panels, bias, allowed, ids, scores = setup(p["X"], p["Y"], 2)
    p["X"][3, 0] = np.nan
    args = (np.arange(5), p["X"], np.zeros(0, f4), panels, bias, *topn.NO_BOUNDS, allowed, *NOTHING_SEEN, ids, scores)
    run(topn.recommend_worker, cut(5, 2), *args, fails=True)
    p["Y"][3, 0] = np.inf
    run(topn.pack_worker, cut(2, 1), p["Y"], np.zeros(0, f4), panels, bias, fails=True)
