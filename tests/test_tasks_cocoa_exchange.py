"""What a round of CoCoA exchanges, σ′ measured in every round, and how heuristic runs are guarded."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import stretto as st
from stretto.errors import DataError, PlanError, RunError
from stretto.solvers.linear.cocoa import CocoaProblem, improve, lay_out
from stretto.solvers.linear.cocoa_gap import certificate, part_sums
from stretto.tasks.cocoa.measured import measured_sigma


def dense(samples: int, features: int, seed: int = 0, correlated: float = 0.0) -> tuple[Any, Any]:
    draw = np.random.default_rng(seed)
    X = draw.standard_normal((samples, features)) + correlated * draw.standard_normal((samples, 1))
    X /= np.linalg.norm(X, axis=1)[:, None]
    return X, X[:, :4].sum(1) + 0.1 * draw.standard_normal(samples)


@pytest.mark.parametrize(("kind", "K"), [("ridge", 2), ("ridge", 8), ("elastic net", 4), ("hinge", 16)])
def test_a_round_exchanges_one_vector(kind: str, K: int) -> None:
    """A node sends one vector and receives one. The vector is on one node, or cut over all: its own share is free."""
    X, y = dense(2048, 2048) if kind == "elastic net" else dense(8 * K, 4096)
    choices: dict[str, dict[str, Any]] = {
        "ridge": {"alpha": 1e-3, "l1_ratio": 0.0},
        "elastic net": {"alpha": 1e-6, "l1_ratio": 0.5},
        "hinge": {"loss": "hinge", "C": 1.0},
    }
    options = choices[kind]
    for sigma in (None, "measured"):
        task = st.cocoa(
            X, y > 0 if kind == "hinge" else y, **options, parts=K, sigma=sigma, max_rounds=3, tol=0.0, local_passes=1
        )
        result = st.run(task, runtime=st.Simulated(nodes=K, threads=1))
        rounds = [stage for stage in result.stages if stage.unit == "solve"]
        assert len(rounds) == 3
        vector = 8 * task.shape[1] * (K - 1)
        for stage in rounds[1:]:  # in the first round the vector is 0, and zeros take no bytes
            assert stage.moved == 0
            assert 2.0 * vector <= stage.sent <= 2.1 * vector
        evaluations = [stage for stage in result.stages if stage.unit == "gap"]
        assert {stage.sent + stage.moved for stage in evaluations} == {0}


def test_variables_stay_with_their_part_when_the_width_changes() -> None:
    """Stages on 4 nodes and on 2: rows move once, to where their parts run now, and nothing of them is served."""
    X, y = dense(64, 4096)
    tasks = [
        st.cocoa(X, y, alpha=1e-3, l1_ratio=0.0, parts=8, max_rounds=4, tol=0.0, workers=workers)
        for workers in (4, 2, None)
    ]
    for task in tasks:
        st.run(task, runtime=st.Simulated(nodes=4, threads=1))
    assert len({(task.shared.tobytes(), task.variables.tobytes()) for task in tasks}) == 1


def test_the_sigma_that_is_measured() -> None:
    """Two equal changes overlap fully; two at right angles not at all."""
    assert measured_sigma(np.array([2.0, 0.0, 0.0, 2.0]), np.array([2.0, 0.0]), 1.0, 1.0, 8.0) == pytest.approx(2.6)
    assert measured_sigma(np.array([2.0, 0.0, 0.0, 8.0]), np.array([1.0, 1.0]), 1.0, 1.0, 8.0) == 4.0  # falls slowly
    assert measured_sigma(np.array([2.0, 0.0, 0.0, 8.0]), np.array([1.0, 1.0]), 1.0, 6.0, 8.0) == 6.0
    assert measured_sigma(np.array([2.0, 0.0, 0.0, 8.0]), np.array([9.0, 9.0]), 1.0, 1.0, 8.0) == 8.0
    # A vector that does not move, but for rounding: σ′ stays.
    assert measured_sigma(np.array([1e-30, 0.0, 1.0, 3.0]), np.array([1.0, 1e-9]), 1.0, 1.0, 8.0) == 3.0


@pytest.mark.parametrize(
    "kind", ["ridge", "hinge", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("elastic net", "logistic"))]
)
def test_rounds_hardly_grow_with_the_parts_where_sigma_is_measured(kind: str) -> None:
    draw = np.random.default_rng(0)
    X = sp.random_array((1024, 256), density=0.05, rng=draw, format="csr")
    y = X @ draw.standard_normal(256) + 0.1 * draw.standard_normal(1024)
    choices: dict[str, dict[str, Any]] = {
        "ridge": {"alpha": 1e-2, "l1_ratio": 0.0},
        "elastic net": {"alpha": 3e-3, "l1_ratio": 0.5},
        "hinge": {"loss": "hinge", "C": 0.05},
        "logistic": {"loss": "logistic", "C": 0.2},
    }
    options = choices[kind]
    labels = y > 0 if "loss" in options else y
    found = {}
    for sigma, K in ((None, 32), ("measured", 4), ("measured", 32)):
        task = st.cocoa(X, labels, **options, parts=K, sigma=sigma, tol=1e-3, local_passes=2, max_rounds=400)
        result = st.run(task, runtime=st.Serial())
        assert task.gap < 1e-3 * task.objective
        found[sigma, K] = len(result.history("gap")) - 1
    assert found["measured", 32] <= 2 * found["measured", 4] + 2
    assert found["measured", 32] < 0.7 * found[None, 32]


def test_a_measured_sigma_has_the_same_bits_everywhere() -> None:
    X, y = dense(96, 40, correlated=0.3)
    found = set()
    for runtime in (st.Serial(), st.Threads(3), st.Simulated(nodes=3, threads=1)):
        task = st.cocoa(X, y, alpha=1e-3, parts=6, sigma="measured", max_rounds=12, tol=0.0)
        result = st.run(task, runtime=runtime)
        found.add((task.shared.tobytes(), task.variables.tobytes(), tuple(result.history("gap")), task.sigma))
    assert len(found) == 1


def test_a_measured_sigma_that_does_not_help_becomes_safe() -> None:
    """Equal columns in every part: the gap of a guard that reports growth makes σ′ larger, step by step."""
    column = np.random.default_rng(0).standard_normal((60, 1))
    X, y = np.repeat(column, 16, axis=1), column.ravel() * 3
    task = st.cocoa(X, y, alpha=0.01, parts=16, sigma="measured", tol=1e-6, max_rounds=2000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        st.run(task, runtime=st.Serial())
    assert task.gap < 1e-6 * task.objective


@pytest.mark.parametrize("filter", [st.top("absolute", 0.2), st.round_robin(0.3), st.random_share(0.5)])
def test_filtered_exchanges_lose_nothing(filter: Any) -> None:
    X, y = dense(120, 100)
    task = st.cocoa(X, y, alpha=1e-2, l1_ratio=0.0, parts=4, filter=filter, gap_every=4, tol=1e-5)
    assert task.heuristic
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # whether it falls back depends on the filter
        result = st.run(task, runtime=st.Threads(2))
    assert result.value < 1e-5
    assert task.drift < 1e-13
    exact = st.cocoa(X, y, alpha=1e-2, l1_ratio=0.0, parts=4, tol=1e-6)
    st.run(exact, runtime=st.Serial())
    assert task.objective == pytest.approx(exact.objective, rel=2e-5)


@pytest.mark.parametrize("how", [{"sync": st.tables.ASP()}, {"filter": st.top("absolute", 0.5)}])
def test_divergence_falls_back_to_safe_rounds(how: dict[str, Any]) -> None:
    """σ′ = 1 on correlated samples makes the gap grow; then every round is a BSP round with σ′ = parts."""
    X, y = dense(128, 60, correlated=3.0)
    task: Any = st.cocoa(
        X, y, alpha=0.1, l1_ratio=0.0, parts=8, sigma=1.0, gap_every=3, tol=0.02, local_passes=1, max_rounds=900, **how
    )
    assert task.heuristic
    assert not task.fell_back
    with pytest.warns(UserWarning, match=r"duality gap rose .* is now 8, with exchanges under BSP"):
        result = st.run(task, runtime=st.Simulated(nodes=4, threads=1))
    assert task.fell_back
    assert task.sigma == 8.0
    assert task.gap < 0.02 * task.objective
    assert task.drift < 1e-12
    after = [stage.iterations for stage in result.stages if stage.unit == "solve"]
    assert after[0] == 3
    assert after[-1] == 1


def test_values_that_overflow_are_an_error() -> None:
    X, y = dense(128, 60, correlated=3.0)
    task = st.cocoa(
        X, y, alpha=1e-6, l1_ratio=0.0, parts=8, sigma=1.0, gap_every=500, max_rounds=500, tol=1e-3, local_passes=1
    )
    with np.errstate(all="ignore"), pytest.raises(RunError, match=r"the objective is (inf|nan) .* have diverged"):
        st.run(task, runtime=st.Serial())


def test_a_shared_vector_that_was_changed_is_noticed() -> None:
    X, y = dense(64, 30)
    task = st.cocoa(X, y, alpha=1e-2, l1_ratio=0.0, parts=4)
    st.run(task, runtime=st.Serial())
    assert task.drift < 1e-15
    task._states[0].array[0, 3] += 1e-6
    with pytest.raises(RunError, match=r"shared vector differs from what the variables give by 1e-06"):
        st.run(task, runtime=st.Serial())
    loose = st.cocoa(X, y, alpha=1e-2, l1_ratio=0.0, parts=4, sigma=2.0, max_rounds=1, tol=0.0)
    loose._states[0].array[0, 3] += 1e-3
    with pytest.warns(UserWarning, match=r"shared vector differs .* not to be trusted"):
        st.run(loose, runtime=st.Serial())
    assert loose.drift > 1e-6


@pytest.mark.parametrize("l1_ratio", [0.0, 0.5])
def test_a_run_ends_with_the_variables_whose_gap_was_small_enough(l1_ratio: float) -> None:
    """The gap is that before the rounds: these are made, and taken back."""
    X, y = dense(64, 30)
    task = st.cocoa(X, y, alpha=1e-2, l1_ratio=l1_ratio, parts=4, tol=1e-2, gap_every=2, local_passes=1)
    shares = st.run(task, runtime=st.Serial()).history("gap")
    assert shares[-1] < 1e-2 <= shares[-2]
    assert task.gap / task.objective == pytest.approx(shares[-1], rel=1e-9)
    rounds = 2 * (len(shares) - 1)
    same = st.cocoa(X, y, alpha=1e-2, l1_ratio=l1_ratio, parts=4, tol=0.0, max_rounds=rounds, local_passes=1)
    st.run(same, runtime=st.Serial())
    assert np.abs(task.variables - same.variables).max() < 1e-15
    assert np.abs(task.shared - same.shared).max() < 1e-14
    start = st.cocoa(X, y, alpha=1e-2, l1_ratio=l1_ratio, parts=4, tol=2.0)  # all variables are 0 again
    st.run(start, runtime=st.Serial())
    assert not start.coef.any()
    assert start.drift < 1e-12


@pytest.mark.parametrize("loss", ["squared", "hinge", "logistic"])
def test_one_part_has_the_bits_of_the_serial_solver(loss: str) -> None:
    X, y = dense(80, 30)
    labels = y if loss == "squared" else y > 0
    options: dict[str, Any] = {"alpha": 0.01} if loss == "squared" else {"C": 0.3}
    task = st.cocoa(X, labels, loss=loss, **options, parts=1, shuffle=False, local_passes=2, max_rounds=5, tol=0.0)
    result = st.run(task, runtime=st.Serial())
    problem = CocoaProblem(loss, 1 / 80, 0.01, 0.0) if loss == "squared" else CocoaProblem(loss, 0.3, 0.0, 1.0)
    given = lay_out(problem, X, labels)
    m, length = given.matrix.shape
    a, v, shares = np.zeros(m), np.zeros(length), []
    for _ in range(5):
        sums = part_sums(problem, given.matrix, given.y, given.norm, a, v)
        objective, found = certificate(problem, sums[None])
        shares.append(found / objective)
        moved, change = improve(problem, given.matrix, given.y, given.norm, a, v, 1.0, np.tile(np.arange(m), 2))
        a, v = a + moved, v + change
    assert (task.variables.tobytes(), task.shared.tobytes()) == (a.tobytes(), v.tobytes())
    assert result.history("gap") == shares


def test_a_resumed_run_has_the_same_bits(tmp_path: Any) -> None:
    X, y = dense(96, 40)

    def made(rounds: int) -> Any:
        return st.cocoa(X, y, alpha=1e-3, parts=4, sigma="measured", max_rounds=rounds, tol=0.0)

    whole = made(8)
    st.run(whole, runtime=st.Serial())
    calls = []

    def stop(record: Any) -> None:
        calls.append(record)
        if len(calls) == 7:
            raise KeyboardInterrupt

    first, folder = made(8), str(tmp_path / "cocoa")
    with pytest.raises(KeyboardInterrupt):
        st.run(first, runtime=st.Serial(), checkpoint=folder, checkpoint_every=2, on_stage=stop)
    again = made(8)
    st.run(again, runtime=st.Threads(2), checkpoint=folder, resume=True)
    assert (again.variables.tobytes(), again.shared.tobytes()) == (whole.variables.tobytes(), whole.shared.tobytes())
    assert again.sigma == whole.sigma


def test_predictions_and_refusals() -> None:
    X, y = dense(64, 30)
    task = st.cocoa(X, np.where(y > 0, "yes", "no"), loss="squared_hinge", C=10.0, tol=1e-2)
    assert task.parts == 16
    st.run(task, runtime=st.Serial())
    found = task.predict(sp.csr_array(X))
    assert set(found.tolist()) == {"no", "yes"}
    assert ((found == "yes") == (y > 0)).mean() > 0.9
    with pytest.raises(DataError, match=r"X has shape \(64, 29\); give \[samples, 30\]"):
        task.predict(X[:, 1:])
    with pytest.raises(DataError, match=r"y has shape \(64, 1\), a column; give y\.ravel\(\)"):
        st.cocoa(X, y[:, None])
    with pytest.raises(DataError, match=r"needs two classes, and y has 1"):
        st.cocoa(X, np.ones(64), loss="hinge")
    with pytest.raises(DataError, match=r"(?i)nan"):
        st.cocoa(np.where(X > 0.3, np.nan, X), y)
    with pytest.raises(PlanError, match=r"sigma='measured' needs whole rounds"):
        st.cocoa(X, y, sigma="measured", sync=st.tables.ASP())
    with pytest.raises(PlanError, match=r"local_passes='many'"):
        st.cocoa(X, y, local_passes="many")
    assert st.cocoa(X[:3], y[:3], l1_ratio=0.0).parts == 3
