"""Prioritised rounds: what moves goes first, what disturbs each other stays apart, nobody starves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from stretto import schedule
from stretto.errors import Diverged, PlanError
from stretto.kernels.core.compile import kernel
from stretto.kernels.numeric.sumtree import add_up, draw, put_leaf
from stretto.kernels.rounds import priority
from stretto.kernels.rounds.chooser_state import MOVING, SORT
from stretto.schedule.columns import columns_of
from stretto.schedule.prioritised import Prioritised, prioritised
from stretto.schedule.spec import Chooser, Ints

Array = NDArray[Any]


def correlated(rows: int, size: int, seed: int = 0) -> Array:
    """Columns in groups of five that are close to each other."""
    random = np.random.default_rng(seed)
    common = random.standard_normal((rows, -(-size // 5)))
    return np.repeat(common, 5, axis=1)[:, :size] + random.standard_normal((rows, size))


def sparse(rows: int, size: int, density: float, seed: int = 0) -> Any:
    return scipy.sparse.random(rows, size, density, format="csc", random_state=np.random.default_rng(seed))


def play(chooser: Chooser, rounds: int, seed: int = 0, quiet: float = 0.5) -> list[Ints]:
    """Choose rounds and make up changes, a share of them 0."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(rounds):
        jobs = chooser.choose()
        chooser.learn(jobs, random.standard_normal(len(jobs)) * (random.random(len(jobs)) > quiet))
        found.append(jobs)
    return found


def same(left: list[Ints], right: list[Ints]) -> bool:
    return [jobs.tolist() for jobs in left] == [jobs.tolist() for jobs in right]


def cosines(X: Any, *, centred: bool) -> Array:
    dense = np.asarray(X.toarray() if hasattr(X, "toarray") else X, float)
    if centred:
        dense = dense - dense.mean(axis=0)
    norm = np.linalg.norm(dense, axis=0)
    scaled = np.divide(dense, norm, out=np.zeros_like(dense), where=norm > 1e-9)
    found: Array = np.abs(scaled.T @ scaled)
    return found


@pytest.mark.parametrize("centred", [False, True], ids=["cosine", "centred"])
@pytest.mark.parametrize("kind", ["dense", "sparse", "f4"])
@pytest.mark.parametrize("queues", [1, 3])
def test_rounds_are_independent_sets(kind: str, centred: bool, queues: int) -> None:
    X = correlated(80, 60) + 0.2 if kind != "sparse" else sparse(80, 60, 0.2)
    columns = columns_of(X.astype(np.float32) if kind == "f4" else X, centred=centred)
    spec = prioritised(12, threshold=0.25, schedulers=queues)
    exact = cosines(X, centred=centred)
    sizes = []
    for jobs in play(spec.start(60, 0, columns), 60):
        close = exact[np.ix_(jobs, jobs)] - np.eye(len(jobs))
        assert close.max(initial=0.0) < 0.25 + 1e-6
        sizes.append(len(jobs))
    assert np.mean(sizes) > 4


def test_an_independent_set_leaves_out_nobody_who_fits() -> None:
    """Everyone who is left out of a round that is not full is too close to a job that comes before it."""
    X = sparse(60, 40, 0.15, seed=2)
    exact = cosines(X, centred=False)
    chooser = prioritised(40, candidates=40, threshold=0.3).start(40, 0, X)
    jobs = chooser.choose()
    assert 0 < len(jobs) < 40
    for other in set(range(40)) - set(jobs.tolist()):
        assert exact[other, jobs].max() >= 0.3 - 1e-6


@pytest.mark.parametrize("shape", ["sampled dense", "long and short", "short"])
def test_sampled_correlations_are_near_the_exact_ones(shape: str) -> None:
    random = np.random.default_rng(0)
    X: Any = correlated(4000, 40)
    if shape != "sampled dense":
        kept = random.random((4000, 40)) < (np.linspace(0.01, 0.9, 40) if shape == "long and short" else 0.05)
        X = scipy.sparse.csc_array(np.where(kept, X, 0.0))
    exact = cosines(X, centred=True)
    columns = columns_of(X, centred=True)
    pairs = np.triu(np.ones((40, 40), bool), 1)
    rounds = play(prioritised(30, threshold=0.2).start(40, 0, columns), 60)
    found = [exact[np.ix_(jobs, jobs)][np.triu_indices(len(jobs), 1)] for jobs in rounds]
    # Beyond the threshold by more than three standard errors of the sample: hardly any pair.
    assert np.mean(np.concatenate(found) > 0.2 + 3 / np.sqrt(256)) < 0.01
    assert (exact[pairs] > 0.2 + 3 / np.sqrt(256)).any() or shape == "short"


@given(
    size=st.integers(1, 60),
    width=st.integers(1, 20),
    floor=st.floats(0.05, 0.9),
    queues=st.integers(1, 4),
    late=st.integers(1, 4),
    quiet=st.sampled_from([0.0, 0.5, 1.0]),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=60)
def test_nobody_starves(size: int, width: int, floor: float, queues: int, late: int, quiet: float, seed: int) -> None:
    """In any `bound` rounds in a row every job has its turn, whatever moves and however late it is learned."""
    spec = prioritised(width, floor=floor, schedulers=min(queues, size), threshold=0.2)
    chooser = spec.start(size, seed, correlated(30, size, seed % 1000))
    bound = spec.bound(size, late)
    random = np.random.default_rng(seed)
    last = np.zeros(size, int)
    under_way: list[Ints] = []
    for number in range(1, 2 * bound + 1):
        jobs = chooser.choose()
        assert len(set(jobs.tolist())) == len(jobs) >= 1
        if len(under_way) * width < size // 4:
            assert not set(jobs.tolist()) & set(np.concatenate([[-1], *under_way]).tolist())
        last[jobs] = number
        assert number - last.min() <= bound
        under_way.append(jobs)
        if len(under_way) == late:
            done = under_way.pop(0)
            chooser.learn(done, random.standard_normal(len(done)) * (random.random(len(done)) >= quiet))


def test_the_first_sweep_reaches_everyone_before_anyone_comes_again() -> None:
    chooser = prioritised(16, conflicts=None).start(160, 0)
    found = np.concatenate(play(chooser, 10, quiet=1.0))
    assert sorted(found.tolist()) == list(range(160))


def test_what_moves_comes_back_and_what_stands_still_waits() -> None:
    chooser = prioritised(4, conflicts=None, floor=0.1).start(100, 0)
    visits = np.zeros(100, int)
    for _ in range(400):
        jobs = chooser.choose()
        visits[jobs] += 1
        chooser.learn(jobs, np.where(jobs < 10, 1.0, 0.0))
    assert visits[:10].mean() > 10 * visits[10:].mean()


def test_the_most_urgent_come_first() -> None:
    chooser = prioritised(6, conflicts=None, floor=0.01).start(6, 0)
    jobs = chooser.choose()
    chooser.learn(jobs, jobs.astype(float))
    assert chooser.choose().tolist() == [5, 4, 3, 2, 1]  # nothing is known of job 0 but that it did not move


@pytest.mark.parametrize("size", [3, 20], ids=["by steps", "from the tree"])
def test_draws_are_in_proportion_to_priority(size: int) -> None:
    """One candidate of all, whose weights are 1, 4, 9, …"""
    counts, spec = np.zeros(size), prioritised(1, candidates=1, conflicts=None, floor=0.01)
    for seed in range(1500):
        chooser = spec.start(size, seed)
        for _ in range(size):
            jobs = chooser.choose()
            chooser.learn(jobs, jobs.astype(np.float64) + 1.0)
        counts[chooser.choose()] += 1
    weights = np.arange(1.0, size + 1) ** 2
    np.testing.assert_allclose(counts / 1500, weights / weights.sum(), atol=0.04)


@given(weights=st.lists(st.floats(0.01, 1e6), min_size=9, max_size=64), seed=st.integers(0, 1000))
def test_candidates_are_as_many_as_asked_for_and_the_heaviest_are_among_them(weights: list[float], seed: int) -> None:
    chooser = prioritised(8, candidates=8, conflicts=None, floor=0.01).start(len(weights), seed)
    for _ in range(-(-len(weights) // 8)):
        jobs = chooser.choose()
        chooser.learn(jobs, np.sqrt(np.array(weights))[jobs])
    jobs = chooser.choose()
    assert len(jobs) == 8
    assert (np.diff(np.array(weights)[jobs]) <= 0).all()
    # Steps are an eighth of the weight at first: what weighs more is taken for sure.
    assert set(np.flatnonzero(np.array(weights) > 1.0001 * sum(weights) / 8)) <= set(jobs.tolist())


def test_jobs_that_move_keep_away_from_those_under_way() -> None:
    X = correlated(80, 60)
    exact = cosines(X, centred=False)
    chooser = prioritised(8, threshold=0.25, floor=0.05).start(60, 0, X)
    play(chooser, 12, quiet=0.0)  # from now on everyone moves
    under_way: list[Ints] = []
    moving = 0
    for _ in range(80):
        jobs = chooser.choose()
        if chooser.choice.place[0, SORT] == MOVING:  # and no round of the walk
            others = np.concatenate([*under_way, jobs])
            assert (exact[np.ix_(jobs, others)] >= 0.25 + 1e-6).sum() == len(jobs)
            moving += 1
        under_way.append(jobs)
        if len(under_way) == 3:
            done = under_way.pop(0)
            chooser.learn(done, np.ones(len(done)))
    assert moving > 20


@pytest.mark.parametrize("queues", [1, 3])
def test_same_seed_same_rounds_and_restored_it_goes_on_alike(queues: int) -> None:
    X = correlated(50, 70)
    spec = prioritised(8, schedulers=queues, threshold=0.3)
    one = spec.start(70, 5, X)
    first = play(one, 40)
    saved = one.arrays()
    assert same(first, play(spec.start(70, 5, X), 40))
    assert not same(first, play(spec.start(70, 6, X), 40))
    other = spec.start(70, 5, X)
    other.restore(saved)
    assert same(play(one, 60, seed=1), play(other, 60, seed=1))


def test_what_is_remembered_of_pairs_changes_no_answer() -> None:
    X = correlated(50, 70)
    found = [play(prioritised(8, threshold=0.3, cache=cache).start(70, 5, X), 80) for cache in (1, 64, 1 << 12)]
    assert same(found[0], found[1])
    assert same(found[0], found[2])


def test_functions_of_the_users_give_the_rounds_of_those_compiled_in() -> None:
    X = correlated(50, 70)
    compiled = prioritised(8, threshold=0.3)

    def by(change: Array) -> Array:
        return change**2

    def conflicts(candidates: Ints, data: Array) -> Array:
        return schedule.correlation(candidates, data)

    own = prioritised(8, threshold=0.3, by=by, conflicts=conflicts)
    assert same(play(compiled.start(70, 5, X), 80), play(own.start(70, 5, X), 80))
    assert repr(own) != repr(compiled)
    assert repr(own) != repr(prioritised(8, threshold=0.3, by=np.abs, conflicts=conflicts))


def test_columns_without_variation_disturb_nobody() -> None:
    X = np.zeros((20, 10))
    X[:, 5:] = 3.0
    columns = columns_of(scipy.sparse.csc_array(X), centred=True)
    assert len(prioritised(10).start(10, 0, columns).choose()) == 10
    assert len(prioritised(10).start(5, 0, columns_of(X[:, :5])).choose()) == 5


@kernel
def put_and_draw(tree: Any, weights: Any, shares: Any, out: Any) -> None:
    """Put the weights into the leaves of a tree, then draw a leaf for each share."""
    for k in range(weights.shape[0]):
        put_leaf(tree, 0, 1, k, weights[k])
    for k in range(shares.shape[0]):
        out[k] = draw(tree, 0, 1, shares[k])


@given(
    weights=st.lists(st.floats(0.0, 100.0), min_size=1, max_size=40).filter(any),
    shares=st.lists(st.floats(0.0, 1.0, exclude_max=True), min_size=1, max_size=20),
)
def test_a_sum_tree_draws_as_a_search_does(weights: list[float], shares: list[float]) -> None:
    cap = 64
    tree, out = np.zeros((1, 2 * cap)), np.empty(len(shares), np.int64)
    put_and_draw(tree, np.array(weights), np.array(shares), out)
    again = np.zeros_like(tree)
    again[0, cap:] = tree[0, cap:]
    add_up(again)
    np.testing.assert_array_equal(tree, again)
    ends = np.cumsum(weights)
    for share, leaf in zip(shares, out.tolist(), strict=True):
        at = share * ends[-1]
        assert weights[leaf] > 0
        assert ends[leaf] - weights[leaf] - 1e-9 * ends[-1] <= at <= ends[leaf] + 1e-9 * ends[-1]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"candidates": 4}, "at least as many candidates"),
        ({"floor": 0.0}, "share of the rounds"),
        ({"threshold": 0.0}, "above 0"),
        ({"schedulers": 0}, "at least one scheduler"),
        ({"sample": 0}, "at least one row"),
        ({"cache": 0}, "at least one pair"),
        ({"candidates": 16.5}, "candidates must be a whole number; got 16.5"),
        ({"schedulers": "2"}, "schedulers must be a whole number; got '2'"),
        ({"threshold": "low"}, "threshold must be a number; got 'low'"),
        ({"by": "delta"}, r"by must be a function by\(change\); got 'delta'"),
        ({"conflicts": 0.1}, r"conflicts must be a function conflicts\(candidates, data\); got 0.1"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(PlanError, match=says):
        prioritised(8, **settings)


def test_data_and_answers_that_do_not_fit_are_refused() -> None:
    X = correlated(20, 10)
    with pytest.raises(PlanError, match="need the data"):
        Prioritised().start(10, 0)
    with pytest.raises(PlanError, match="9 jobs and 10 columns"):
        prioritised(4).start(9, 0, X)
    with pytest.raises(PlanError, match="11 schedulers"):
        prioritised(4, schedulers=11).start(10, 0, X)
    with pytest.raises(PlanError, match="one column of numbers"):
        prioritised(4).start(10, 0, "columns")
    with pytest.raises(PlanError, match="at least one parameter"):
        prioritised(4, conflicts=None).start(0, 0)
    chooser = prioritised(4, conflicts=lambda candidates, data: np.zeros(3)).start(10, 0)
    with pytest.raises(PlanError, match=r"must return an array of shape .* got \(3,\)"):
        chooser.choose()
    chooser = prioritised(4).start(10, 0, X)
    jobs = chooser.choose()
    with pytest.raises(Diverged, match=f"job {jobs[1]}"):
        chooser.learn(jobs, np.array([0.0, np.nan, *[0.0] * (len(jobs) - 2)]))
    own = prioritised(4, conflicts=None, by=lambda change: change).start(10, 0)
    with pytest.raises(PlanError, match="0 or more"):
        own.learn(own.choose(), np.full(4, -1.0))


def test_a_draw_ends_where_weights_span_many_decades() -> None:
    """What is left of the total is rounding alone here, and the number of leaves taken for sure went up and down."""
    weights = 10.0 ** -np.random.default_rng(762).uniform(0, 34, 60)
    tree = np.zeros((1, 128))
    tree[0, 64 : 64 + 60] = weights
    leaves, urgency = np.zeros((1, 64), np.int64), np.zeros((1, 64))
    count = priority._sample.py_func(tree, 0, 60, 40, 0.5, leaves, urgency)
    taken = leaves[0, :count]
    assert 0 < count <= 40
    assert len(set(taken.tolist())) == count
    assert set(np.argsort(weights)[-5:].tolist()) <= set(taken.tolist())
