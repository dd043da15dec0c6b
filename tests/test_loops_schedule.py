"""Loops with a schedule: the rounds a chooser chooses, made in their order with the answer of the undecorated body."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import stretto as st
from examples_run import load
from stretto.errors import Diverged, LoopError, PlanError, RunError
from stretto.loops.execute import rounds
from stretto.loops.loop_plan import LoopPlan
from stretto.loops.parallel import Loop
from stretto.schedule.spec import Chooser, Floats, Ints, Schedule
from stretto.schedule.turns import rotation
from stretto.testing.arithmetic import same_bits
from stretto.testing.loops import reference

RUNTIMES = (st.Serial(), st.Threads(1), st.Threads(2), st.Threads(3))
Make = Callable[[], Sequence[Any]]


class Turns(Chooser):
    """Widths 1, 2, … up to a limit and again, over the iterations in turn; it does not learn."""

    def __init__(self, size: int, width: int) -> None:
        self.size, self.width, self.at, self.round = size, width, 0, 0

    def choose(self) -> Ints:
        self.round += 1
        jobs = (self.at + np.arange(min(1 + self.round % self.width, self.size), dtype=np.int64)) % self.size
        self.at = int(jobs[-1]) + 1
        return jobs[::-1].copy()  # an order of its own, or nobody would notice that it is not kept

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"at": np.array([self.at, self.round])}

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        self.at, self.round = arrays["at"].tolist()


class Greedy(Turns):
    """Those that moved most, or have waited long."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__(size, width)
        self.urgency = np.full(size, np.inf)
        self.learned: list[Floats] = []

    def choose(self) -> Ints:
        return np.argsort(-self.urgency, kind="stable")[: self.width].astype(np.int64)

    def learn(self, jobs: Ints, change: Floats) -> None:
        self.learned.append(change)
        self.urgency *= 1.2
        self.urgency[jobs] = change + 1e-9


@dataclass(frozen=True)
class Simple(Schedule):
    """kind: turns, greedy, or one that is wrong; data: whether it wants columns."""

    kind: str = "turns"
    width: int = 8
    conflicts: bool = False

    def start(self, size: int, seed: int, data: Any = None) -> Chooser:
        if self.conflicts and data is None:
            raise PlanError("Simple needs data to find conflicts in")
        made = (Greedy if self.kind == "greedy" else Turns)(size, self.width)
        made.data = data  # type: ignore[attr-defined]
        return made


# --- bodies ---------------------------------------------------------------------------------------------------------


def sparse(columns, r, beta, norm, lam):  # type: ignore[no-untyped-def]
    for j, column in columns:
        s = 0.0
        for i, x in column:
            s += x * r[i]
        old = beta[j]
        z = s + norm[j] * old
        new = max(abs(z) - lam, 0.0) * (1.0 if z > 0.0 else -1.0) / norm[j]
        for i, x in column:
            r[i] -= x * (new - old)
        beta[j] = new


def delayed(columns, r, dr, beta, norm, lam):  # type: ignore[no-untyped-def]
    for j, column in columns:
        s = 0.0
        for i, x in column:
            s += x * r[i]
        old = beta[j]
        z = s + norm[j] * old
        new = max(abs(z) - lam, 0.0) * (1.0 if z > 0.0 else -1.0) / norm[j]
        for i, x in column:
            dr[i] -= x * (new - old)
        beta[j] = new


def dense(X, r, beta, norm, lam):  # type: ignore[no-untyped-def]
    for j in range(X.shape[0]):
        old = beta[j]
        z = X[j] @ r + norm[j] * old
        new = max(abs(z) - lam, 0.0) * (1.0 if z > 0.0 else -1.0) / norm[j]
        r[:] = r - (new - old) * X[j]
        beta[j] = new


def dense_delayed(X, r, dr, beta, norm, lam):  # type: ignore[no-untyped-def]
    for j in range(X.shape[0]):
        old = beta[j]
        z = X[j] @ r + norm[j] * old
        new = max(abs(z) - lam, 0.0) * (1.0 if z > 0.0 else -1.0) / norm[j]
        dr -= (new - old) * X[j]
        beta[j] = new


def weighted(weights, a, worst):  # type: ignore[no-untyped-def]
    for j, w in weights:
        worst += abs(w - a[j])
        a[j] = 0.5 * (a[j] + w)


def labelled(columns, r, beta):  # type: ignore[no-untyped-def]
    for j, (norm, column) in columns:
        s = 0.0
        for i, x in column:
            s += x * r[i]
        for i, x in column:
            r[i] -= x * s / norm
        beta[j] += s / norm


def halves(A, total):  # type: ignore[no-untyped-def]
    for j in range(2, A.shape[0] - 1, 3):
        total += A[j] @ A[j]
        A[j] = A[j] * 0.5


RANDOM = np.random.default_rng(5)
X = RANDOM.standard_normal((30, 50)) * (RANDOM.random((30, 50)) < 0.4)
X[0] = 1.0
Y = X[:, :4] @ np.array([3.0, -2.0, 1.0, 4.0]) + 0.1 * RANDOM.standard_normal(30)
NORM = (X * X).sum(axis=0)
COLUMNS, LABELLED, WEIGHTS = st.samples(X.T), st.samples(X.T, NORM), st.dense(NORM)
LAM = 1.5


def fresh() -> tuple[NDArray[Any], NDArray[Any]]:
    return Y.copy(), np.zeros(50)


def make_sparse() -> Sequence[Any]:
    r, beta = fresh()
    return COLUMNS, r, beta, NORM, LAM


def make_delayed() -> Sequence[Any]:
    r, beta = fresh()
    return COLUMNS, r, st.buffer(r), beta, NORM, LAM


def make_dense() -> Sequence[Any]:
    r, beta = fresh()
    return np.ascontiguousarray(X.T), r, beta, NORM, LAM


def make_dense_delayed() -> Sequence[Any]:
    r, beta = fresh()
    return np.ascontiguousarray(X.T), r, st.buffer(r), beta, NORM, LAM


def make_weighted() -> Sequence[Any]:
    return WEIGHTS, np.zeros(50), st.accumulator(0.0, op=max)


def make_labelled() -> Sequence[Any]:
    return LABELLED, *fresh()


def make_halves() -> Sequence[Any]:
    return np.arange(240.0).reshape(60, 4), st.accumulator(0.0)


def momentum(value, delta, speed):  # type: ignore[no-untyped-def]
    speed = 0.5 * speed + delta
    return value + speed, speed


def make_applied() -> Sequence[Any]:
    r, beta = fresh()
    return COLUMNS, r, st.buffer(r, apply=momentum, with_=(np.zeros(30),)), beta, NORM, 4.0


BODIES: dict[str, tuple[Any, Make, str]] = {
    "sparse": (sparse, make_sparse, "scheduled in turn"),
    "delayed": (delayed, make_delayed, "scheduled buffered"),
    "applied": (delayed, make_applied, "scheduled buffered"),
    "dense": (dense, make_dense, "scheduled in turn"),
    "dense-delayed": (dense_delayed, make_dense_delayed, "scheduled buffered"),
    "weighted": (weighted, make_weighted, "scheduled together"),
    "labelled": (labelled, make_labelled, "scheduled in turn"),
    "halves": (halves, make_halves, "scheduled together"),
}


def live(plan: LoopPlan) -> dict[str, NDArray[Any]]:
    return {**plan.held.arrays, **{name: acc.array for name, acc in plan.held.accumulators.items()}}


# --- the answer -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["turns", "greedy"])
@pytest.mark.parametrize("name", BODIES)
def test_a_call_gives_the_bits_of_its_rounds_made_one_after_another(
    name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reference interpreter makes the recorded rounds, iteration by iteration; any number of workers agrees."""
    monkeypatch.setattr(rounds, "_WORTH_WAKING", 0.0)  # short as they are, they are shared out
    monkeypatch.setattr(rounds, "_TRIED", 2)
    body, make, strategy = BODIES[name]
    before = None
    for runtime in RUNTIMES:
        loop = st.parallel(schedule=Simple(kind), runtime=runtime)(body)
        args = make()
        plan = loop.plan(*args)
        assert plan.parts[0].prepared.analysis.strategy.name == strategy
        loop(*args)
        expect = reference(loop.recorded(*make()))
        for key, found in live(plan).items():
            wanted = expect.arrays.get(key, expect.accumulators.get(key))
            assert wanted is not None
            assert same_bits(found, wanted), f"{key} on {runtime}"
        made = [jobs.tolist() for jobs in loop.rounds]
        assert before is None or made == before
        before = made


@pytest.mark.parametrize("name", ["sparse", "delayed"])
def test_the_undecorated_body_over_the_recorded_order_agrees(name: str) -> None:
    body, make, _ = BODIES[name]
    loop = st.parallel(schedule=Simple("greedy"))(body)
    args = make()
    loop(*args)
    again = make()
    plan = loop.recorded(*again)
    assert [j for j, _ in plan.order(COLUMNS)] == np.concatenate(loop.rounds).tolist()
    again = make()
    body(loop.recorded(*again).order(COLUMNS), *again[1:])
    for found, wanted in zip(args, again, strict=True):
        if isinstance(found, np.ndarray):
            np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)


def test_iterations_in_turn_keep_the_order_of_the_round() -> None:
    """What a later iteration of a round reads is what an earlier one wrote, in the order of the round."""

    @st.parallel(schedule=Simple(width=5))
    def note(clock, when):  # type: ignore[no-untyped-def]
        for j in range(when.shape[0]):
            clock[0] += 1
            when[j] = clock[0]

    when = np.zeros(20, np.int64)
    note(np.zeros(1, np.int64), when)
    last = {job: k for k, job in enumerate(np.concatenate(note.rounds).tolist(), 1)}
    assert when.tolist() == [last.get(j, 0) for j in range(20)]


def test_iterations_that_see_each_other_late_are_a_constant_of_the_plan() -> None:
    """With one visit a buffered round is a serial one, with a visit for each iteration nobody sees the others."""
    answers = {}
    for width in (1, 2, 8):
        args = make_delayed()
        st.parallel(schedule=Simple(width=8), width=width)(delayed)(*args)
        answers[width] = args[3]
    args = make_sparse()
    st.parallel(schedule=Simple(width=8))(sparse)(*args)
    np.testing.assert_allclose(answers[1], args[2], rtol=1e-9, atol=1e-12)
    assert not np.allclose(answers[1], answers[8])
    assert not np.allclose(answers[2], answers[8])


# --- rounds and calls -----------------------------------------------------------------------------------------------


def test_calls_make_as_many_iterations_as_the_loop_has() -> None:
    loop = st.parallel(schedule=Simple("greedy", width=7))(sparse)
    args, made = make_sparse(), 0
    for call in range(1, 9):
        loop(*args)
        made += sum(len(jobs) for jobs in loop.rounds)
        assert call * 50 <= made < call * 50 + 7


def test_the_schedule_goes_on_with_the_same_arrays_and_starts_anew_with_others() -> None:
    loop = st.parallel(schedule=Simple("greedy"))(sparse)
    args = make_sparse()
    loop(*args)
    first = [jobs.tolist() for jobs in loop.rounds]
    loop(*args[:3], NORM.copy(), 1.0)  # neither a number nor an array that is only read makes a difference
    assert loop.rounds[0].tolist() != first[0]
    assert sum(map(len, loop.rounds)) == 48  # the first call made six too many
    loop(*make_sparse())
    assert [jobs.tolist() for jobs in loop.rounds] == first
    loop.using()(*args)
    anew = loop.using()
    anew(*args)
    assert anew.rounds[0].tolist() == first[0]


def test_views_of_the_same_memory_are_the_same_arrays() -> None:
    loop = st.parallel(schedule=Simple("greedy"))(sparse)
    both = np.stack([Y, Y]), np.zeros((2, 50))
    loop(COLUMNS, both[0][0], both[1][0], NORM, LAM)
    first = loop.rounds[0].tolist()
    loop(COLUMNS, both[0][0], both[1][0], NORM, LAM)
    assert loop.rounds[0].tolist() != first
    loop(COLUMNS, both[0][1], both[1][1], NORM, LAM)
    assert loop.rounds[0].tolist() == first


def test_what_nobody_can_come_back_to_is_let_go() -> None:
    loop = st.parallel(schedule=Simple("greedy"))(dense)
    for _ in range(4):
        loop(*make_dense())  # the residual and the coefficients are gone after the call
    kept = next(iter(loop._kept.values())).prepared.progress
    assert len(kept) == 1
    living = [make_dense() for _ in range(12)]
    for args in living:
        loop(*args)
    assert len(kept) == 8


def test_a_loop_is_compiled_once_however_its_rounds_are() -> None:
    loop = st.parallel(schedule=Simple(width=9), runtime=st.Serial())(delayed)
    args = make_delayed()
    loop(*args)
    loop(*args)
    assert {len(jobs) for jobs in loop.rounds} == set(range(1, 10))
    kernel: Any = next(iter(loop._kept.values())).prepared.worker.exact
    assert len(kernel.signatures) == 1
    assert len(loop._kept) == 1


def test_a_schedule_with_nothing_left_to_do_ends_the_call() -> None:
    class Spent(Turns):
        def choose(self) -> Ints:
            return super().choose() if self.round < 3 else np.empty(0, np.int64)

    @dataclass(frozen=True)
    class Ends(Schedule):
        def start(self, size: int, seed: int, data: Any = None) -> Chooser:
            return Spent(size, 4)

    loop = st.parallel(schedule=Ends())(sparse)
    args = make_sparse()
    loop(*args)
    assert len(loop.rounds) == 3
    loop(*args)
    assert loop.rounds == []


def test_nothing_to_loop_over_makes_no_round() -> None:
    loop = st.parallel(schedule=st.schedule.cyclic())(halves)
    loop(np.zeros((2, 4)), st.accumulator(0.0))
    assert loop.rounds == []
    assert "there is nothing to choose from" in loop.explain(np.zeros((2, 4)))


# --- what the schedule receives --------------------------------------------------------------------------------------


def chooser_of(loop: Loop, args: Sequence[Any]) -> Any:
    plan = loop.plan(*args)
    return rounds.progress_of(plan.parts[0].prepared, plan.held).chooser


def test_a_schedule_learns_how_far_the_state_of_every_iteration_moved() -> None:
    loop = st.parallel(schedule=Simple("greedy"))(sparse)
    args = make_sparse()
    loop(*args)
    learned = chooser_of(loop, args).learned
    assert len(learned) == len(loop.rounds)
    visited, change = np.concatenate(loop.rounds), np.concatenate(learned)
    once = np.bincount(visited, minlength=50)[visited] == 1
    assert 40 < np.count_nonzero(once) < len(visited)
    assert np.count_nonzero(change[once]) > 4
    np.testing.assert_array_equal(change[once], np.abs(args[2][visited[once]]))  # beta began at 0


def test_rows_move_by_the_length_of_their_change() -> None:
    loop = st.parallel(schedule=Simple("greedy"))(halves)
    args = make_halves()
    before = args[0].copy()
    loop(*args)
    jobs, change = loop.rounds[0], chooser_of(loop, args).learned[0]
    np.testing.assert_allclose(change, np.linalg.norm(before[2 + 3 * jobs] / 2, axis=1))


def test_columns_are_what_the_iterations_read() -> None:
    ragged = chooser_of(st.parallel(schedule=Simple())(sparse), make_sparse()).data
    np.testing.assert_array_equal(ragged.toarray(), X)
    rows = chooser_of(st.parallel(schedule=Simple())(dense), make_dense()).data
    np.testing.assert_array_equal(rows, X)
    assert rows.flags.f_contiguous
    assert chooser_of(st.parallel(schedule=Simple())(halves), make_halves()).data is None


def test_other_columns_start_the_schedule_anew() -> None:
    loop = st.parallel(schedule=Simple("greedy"))(dense)
    args = make_dense()
    loop(*args)
    first = loop.rounds[0].tolist()
    loop(args[0].copy(), *args[1:])
    assert loop.rounds[0].tolist() == first


def test_explain_says_what_chooses_and_what_it_is_told() -> None:
    told = st.parallel(schedule=Simple("greedy", conflicts=True), seed=3)(sparse).explain(*make_sparse()[:-1])
    assert "scheduled in turn: the iterations of a round run one after the other" in told
    assert "Simple(kind='greedy', width=8, conflicts=True); seed 3" in told
    assert "rounds of up to 8 iterations until 50 are made" in told
    assert "from how far beta[j] moves" in told
    assert "conflicts   between the entries of columns" in told
    buffered = st.parallel(schedule=Simple())(delayed).explain(*make_delayed()[:-1])
    assert "none sees what others of its round write" in buffered
    assert "learns      nothing" in buffered
    assert "conflicts   between" not in buffered


def test_the_schedule_and_its_seed_are_part_of_the_fingerprint() -> None:
    args = make_sparse()
    loop = st.parallel(schedule=Simple())(sparse)
    prints = {
        other.plan(*args).fingerprint
        for other in (loop, loop.using(seed=1), loop.using(schedule=Simple("greedy")), loop.using(watch="beta"))
    }
    assert len(prints) == 4
    assert loop.using(runtime=st.Serial()).plan(*args).fingerprint == loop.plan(*args).fingerprint


# --- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"schedule": "prioritised"}, TypeError, "'prioritised' is not a schedule; give one of st.schedule"),
        ({"schedule": Simple(kind=[])}, TypeError, "cannot be hashed; make it a frozen dataclass"),  # type: ignore[arg-type]
        ({"schedule": rotation(4)}, PlanError, "its jobs wait for each other"),
        ({"schedule": Simple(), "ordered": True}, PlanError, "ordered= and schedule= contradict each other"),
        ({"schedule": Simple(), "cut": "j"}, PlanError, "cut= and schedule= contradict each other"),
        ({"watch": "beta"}, PlanError, "watch='beta' is for loops with a schedule"),
        ({"seed": 1}, PlanError, "seed=1 is for loops with a schedule"),
    ],
    ids=["name", "list", "rotation", "ordered", "cut", "watch", "seed"],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        st.parallel(**options)(sparse)


def test_the_watched_state_must_be_clear() -> None:
    def several(a, b):  # type: ignore[no-untyped-def]
        for j in range(a.shape[0]):
            a[j] += 1.0
            b[j] = a[j]

    def none(a, b):  # type: ignore[no-untyped-def]
        for j in range(a.shape[0]):
            a[0] += b[j]

    args = np.zeros(9), np.ones(9)
    greedy = st.parallel(schedule=Simple("greedy", width=3))
    with pytest.raises(LoopError, match=r"a and b are both written at \[j\]; say which with watch='a'"):
        greedy(several)(*args)
    with pytest.raises(LoopError, match=r"no array is written at \[j\] alone"):
        greedy(none)(*args)
    with pytest.raises(LoopError, match=r"watch='c': the loop does not write c\[j\].*; watch a or b"):
        st.parallel(schedule=Simple("greedy"), watch="c")(several)(*args)
    chosen = st.parallel(schedule=Simple("greedy"), watch="b")(several)
    chosen(*args)
    assert chooser_of(chosen, args).learned[0].tolist() == [0.0] * 8  # b was 1 already
    st.parallel(schedule=Simple(width=3))(none)(*args)  # it does not learn, so there is nothing to watch


def test_the_watched_state_must_have_a_row_for_each_iteration() -> None:
    r, beta = fresh()
    with pytest.raises(LoopError, match="j goes from 0 to 49, and beta, which the schedule learns from, has 40 rows"):
        st.parallel(schedule=Simple("greedy"))(sparse)(COLUMNS, r, beta[:40], NORM, LAM)


def test_loops_that_a_schedule_cannot_choose_from_are_refused() -> None:
    def two(a):  # type: ignore[no-untyped-def]
        for i in range(a.shape[0]):
            a[i] += 1.0
        for i in range(a.shape[0]):
            a[i] += 2.0

    def pairs(data, a):  # type: ignore[no-untyped-def]
        for (i, j), x in data:
            a[i] += x * j

    data = st.Data.from_arrays(np.array([0, 1]), np.array([1, 0]), np.ones(2, "f4"))
    with pytest.raises(LoopError, match="a schedule chooses the iterations of one loop, and two has 2"):
        st.parallel(schedule=Simple())(two)(np.zeros(4))
    with pytest.raises(LoopError, match=r"an iteration of this loop is one of \(i, j\)"):
        st.parallel(schedule=Simple())(pairs)(data, np.zeros(4))


def test_data_that_cannot_be_told_are_said_to_be_missing() -> None:
    with pytest.raises(LoopError, match=r"no matrix is read at \[j\] alone; pass conflicts=None"):
        st.parallel(schedule=Simple(conflicts=True))(halves)(*make_halves())
    st.parallel(schedule=Simple(conflicts=True))(sparse)(*make_sparse())


@pytest.mark.parametrize(
    ("jobs", "match"),
    [
        ([0, 0], "chose a round of 2 iterations, 1 of them different"),
        ([0, 50], "from 0 to 50; the loop has 50, numbered from 0"),
        ([-1], "from -1 to -1; the loop has 50"),
        ([0, 1, 2, 3, 4], "and at most 4 of them"),
    ],
    ids=["twice", "beyond", "below", "wide"],
)
def test_a_schedule_that_chooses_wrongly_is_found_out(jobs: list[int], match: str) -> None:
    class Wrong(Turns):
        def choose(self) -> Ints:
            return np.array(jobs, np.int64)

    @dataclass(frozen=True)
    class Bad(Schedule):
        width: int = 4

        def start(self, size: int, seed: int, data: Any = None) -> Chooser:
            return Wrong(size, 4)

    with pytest.raises(PlanError, match=match):
        st.parallel(schedule=Bad())(sparse)(*make_sparse())


def test_a_state_that_runs_off_stops_the_schedule() -> None:
    @st.parallel(schedule=Simple("greedy"))
    def grow(a):  # type: ignore[no-untyped-def]
        for j in range(a.shape[0]):
            a[j] = a[j] * 1e200

    strided = np.full((20, 2), 1e200)[:, 0]  # compiled code gets a copy, which comes back whatever happens
    with pytest.raises(Diverged, match=r"grow: a\[\d+\] became NaN or infinite"):
        grow(strided)
    assert np.count_nonzero(np.isinf(strided)) == 8


@st.parallel
def counting(x: Any) -> None:
    for i in range(10):
        x[i] += 1.0


def test_the_order_of_no_data_is_refused() -> None:
    with pytest.raises(
        PlanError, match="none of the loops of this plan runs over these data; its loops run over ranges; pass no data"
    ):
        counting.plan(np.zeros(10)).order(COLUMNS)


def test_what_has_not_run_has_no_order() -> None:
    loop = st.parallel(schedule=Simple())(sparse)
    args = make_sparse()
    with pytest.raises(PlanError, match=r"call it, and ask loop\.recorded"):
        list(loop.plan(*args).order(COLUMNS))
    with pytest.raises(PlanError, match=r"call it, and ask loop\.recorded"):
        loop.plan(*args).prefetch()
    with pytest.raises(PlanError, match="sparse has made no rounds"):
        loop.recorded(*args)


def test_a_subscript_out_of_range_is_named_and_the_schedule_starts_anew() -> None:
    @st.parallel(schedule=Simple("greedy", width=4))
    def reach(a, at):  # type: ignore[no-untyped-def]
        for j in range(a.shape[0]):
            a[j] = a[j] + at[int(a[j])]

    a, at = np.zeros(9), np.ones(2)
    reach(a, at)
    with pytest.raises(RunError, match="subscript 2 of at is outside its axis 0"):
        reach(a, at)
    a[:] = 0
    reach(a, at)
    assert reach.rounds[0].tolist() == [0, 1, 2, 3]


# --- ready schedules ------------------------------------------------------------------------------------------------


def test_the_lasso_takes_fewer_visits_by_priority_than_in_turn() -> None:
    """Both end at scikit-learn's optimum; most coefficients are zero, and the others disturb each other."""
    from sklearn.linear_model import Lasso

    example = load("lasso_loop")
    A, b = example.generate(150, 600, relevant=20)
    lam = float(np.abs(A.T @ b).max() / 50)
    best = Lasso(alpha=lam / len(b), fit_intercept=False, tol=1e-12, max_iter=100_000).fit(A, b).coef_
    visits = {}
    for schedule in (st.schedule.cyclic(width=32), example.PRIORITISED):
        beta, visits[type(schedule).__name__] = example.fit(
            A, b, lam, example.sweep.using(schedule=schedule), tolerance=1e-9, calls=2000
        )
        np.testing.assert_allclose(beta, best, atol=1e-3)
    assert visits["Prioritised"] < visits["Cyclic"] / 2


@pytest.mark.parametrize("conflicts", [None, st.schedule.correlation], ids=["free", "correlation"])
def test_every_iteration_has_its_turn_within_the_bound(conflicts: Any) -> None:
    schedule = st.schedule.prioritised(width=6, conflicts=conflicts)
    loop = st.parallel(schedule=schedule)(sparse)
    args = make_sparse()
    last, number = np.zeros(50, np.int64), 0
    for _ in range(30):
        loop(*args)
        for jobs in loop.rounds:
            number += 1
            last[jobs] = number
            assert (number - last).max() <= schedule.bound(50)


@pytest.mark.parametrize("name", ["sparse", "delayed", "dense-delayed"])
def test_ready_schedules_give_the_same_bits_at_any_number_of_workers(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "_WORTH_WAKING", 0.0)
    body, make, _ = BODIES[name]
    for schedule in (st.schedule.random(width=5), st.schedule.prioritised(width=6, threshold=0.3)):
        found = []
        for runtime in RUNTIMES:
            loop = st.parallel(schedule=schedule, runtime=runtime, seed=2)(body)
            args = make()
            for _ in range(3):
                loop(*args)
            found.append([part for part in args if isinstance(part, np.ndarray)])
        for other in found[1:]:
            assert all(same_bits(a, b) for a, b in zip(found[0], other, strict=True))


def test_conflicts_by_correlation_keep_what_is_alike_apart() -> None:
    """The schedule receives the rows of X, of which two and two are equal; only walks over all take them together."""
    twins = np.repeat(np.ascontiguousarray(X.T[:25]), 2, axis=0)
    together = {}
    for conflicts in (None, st.schedule.correlation):
        r, beta = fresh()
        args = twins, r, beta, (twins * twins).sum(axis=1), LAM
        loop = st.parallel(schedule=st.schedule.prioritised(width=8, conflicts=conflicts, floor=0.1))(dense)
        together[conflicts] = 0
        for _ in range(6):
            loop(*args)
            together[conflicts] += sum(len(jobs) - len(set((jobs // 2).tolist())) for jobs in loop.rounds)
    assert together[st.schedule.correlation] < together[None] / 2
    assert "conflicts   between the rows X[j]" in loop.explain(*args)


def test_a_loop_whose_columns_cannot_be_told_needs_conflicts_none() -> None:
    def shrink(a):  # type: ignore[no-untyped-def]
        for j in range(a.shape[0]):
            a[j] = 0.5 * a[j]

    with pytest.raises(LoopError, match=r"no matrix is read at \[j\] alone; pass conflicts=None"):
        st.parallel(schedule=st.schedule.prioritised())(shrink)(np.ones(9))
    st.parallel(schedule=st.schedule.prioritised(conflicts=None))(shrink)(np.ones(9))
