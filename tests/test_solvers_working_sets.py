"""The working-set solver: certificates that hold, paths, bits on any runtime, and an end when asked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from linear_problems import Made, objective, problems
from stretto.errors import DataError, PlanError, RunError
from stretto.kernels.linear import descent
from stretto.kernels.numeric.extrapolation import MOST
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.team import TeamCall
from stretto.runtime.runtimes import Runtime, Serial, Threads
from stretto.schedule.working_sets import working_sets
from stretto.solvers.linear import working_sets as working_sets_module
from stretto.solvers.linear.newton import SetSolver
from stretto.solvers.linear.reduced import entering
from stretto.solvers.linear.regression import Fit
from stretto.solvers.linear.working_sets import WorkingSetSolver
from working_made import LOSSES, numbers, solving, target, weights, whole


def of(made: Made, loss: str) -> dict[str, Any]:
    """What `solving` takes for a made problem."""
    y = made.y if loss == "squared" else made.signs
    return {"X": made.X, "y": y, "weight": made.weight, "loss": loss, "storage": "sparse" if made.sparse else "dense"}


def rounding(works: WorkingSetSolver) -> float:
    """What an objective may be wrong by."""
    return 1e-12 * max(whole(works), 1e-300)


# --- certificates -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
@settings(max_examples=80)
@given(
    made=problems(),
    share=some.sampled_from([0.9, 0.5, 0.2, 0.05]),
    ridge=some.sampled_from([0.0, 0.0, 0.5]),
    intercept=some.booleans(),
    positive=some.booleans(),
)
def test_screening_lets_go_only_of_what_is_zero_at_the_optimum(
    made: Made, loss: str, share: float, ridge: float, intercept: bool, positive: bool
) -> None:
    given_ = of(made, loss)
    with solving(**given_, intercept=intercept, positive=positive, schedule=working_sets(2, screen=False)) as works:
        l1 = share * works.largest_l1()
        if l1 <= 1e-9 * whole(works):
            return
        l2, slack = ridge * l1, rounding(works)
        best = works.fit(l1, l2, gap=1e-13 * whole(works), max_rounds=300)
    # Small first sets: many rounds, so that columns are let go of at many points along the way.
    with solving(**given_, intercept=intercept, positive=positive, schedule=working_sets(2)) as works:
        kept = np.ones(made.X.shape[1], bool)
        screen = works._screen

        def watched(pool: Any, *args: Any) -> None:
            screen(pool, *args)
            kept[~pool & works.setting.usable] = False

        works._screen = watched  # type: ignore[method-assign, assignment]
        fit = works.fit(l1, l2, gap=1e-10 * whole(works), max_rounds=300)
        norm = works.setting.norm
    gone = ~kept
    assert not fit.coef[gone].any()
    assert float(np.max(np.abs(best.coef[gone]) * norm[gone], initial=0.0)) <= 1e-6 * float(np.abs(given_["y"]).max())
    assert fit.objective <= best.objective + fit.gap + slack


@pytest.mark.parametrize("loss", LOSSES)
def test_screening_lets_go_of_most(loss: str) -> None:
    """Safe and useful: what is left at the end is not much more than what is not zero."""
    X = numbers(80, 500)
    pools: list[int] = []

    def look(state: dict[str, Any]) -> bool:
        pools.append(state["pool"])
        return False

    with solving(X, target(X, loss), loss=loss) as works:
        fit = works.fit(0.3 * works.largest_l1(), gap=1e-10 * whole(works), look=look)
    assert pools == sorted(pools, reverse=True)
    assert np.count_nonzero(fit.coef) <= pools[-1] < 100


@settings(max_examples=60)
@given(
    made=problems(),
    loss=some.sampled_from(LOSSES),
    share=some.sampled_from([0.7, 0.2, 0.03]),
    ridge=some.sampled_from([0.0, 0.0, 0.5]),
    intercept=some.booleans(),
    positive=some.booleans(),
)
def test_the_gap_bounds_what_is_left_to_gain(
    made: Made, loss: str, share: float, ridge: float, intercept: bool, positive: bool
) -> None:
    with solving(**of(made, loss), intercept=intercept, positive=positive, schedule=working_sets(2)) as works:
        l1 = share * works.largest_l1()
        if l1 <= 1e-9 * whole(works):
            return
        l2, size, slack = ridge * l1, whole(works), rounding(works)
        best = works.fit(l1, l2, gap=1e-13 * size, max_rounds=300)
        seen: list[tuple[float, float]] = []

        def look(state: dict[str, Any]) -> bool:
            seen.append((state["objective"], state["gap"]))
            return False

        for gap in (0.1 * size, 1e-3 * size, 1e-6 * size):
            fit = works.fit(l1, l2, gap=gap, look=look, max_rounds=300)
            assert fit.converged == (fit.gap <= gap)
            assert fit.converged
            seen.append((fit.objective, fit.gap))
    for value, left in seen:
        assert -slack <= value - best.objective + best.gap
        assert value - best.objective <= left + slack


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("positive", [False, True], ids=["", "positive"])
@pytest.mark.parametrize("intercept", [False, True], ids=["", "intercept"])
def test_the_largest_penalty_that_does_anything(loss: str, positive: bool, intercept: bool) -> None:
    X, weight = numbers(60, 30), weights(60)
    y, scale = target(X, loss), np.random.default_rng(0).uniform(0.5, 2.0, 30)
    with solving(X, y, weight, loss=loss, positive=positive, intercept=intercept, scale=scale) as works:
        top = works.largest_l1()
        if loss == "squared":
            pull = X.T @ (weight * (y - (np.average(y, weights=weight) if intercept else 0.0)))
        else:
            share = weight[y > 0].sum() / weight.sum() if intercept else 0.5
            pull = X.T @ (weight * ((y > 0) - share))
        assert top == pytest.approx(float(((pull if positive else np.abs(pull)) / scale).max()), rel=1e-9)
        assert not works.fit(top * (1 + 1e-9), gap=1e-9 * top).coef.any()
        assert works.fit(top * 0.99, gap=1e-9 * top).coef.any()


def test_nothing_to_choose_from() -> None:
    """Columns without variation, and samples without weight: the answer is zero, and it is proven."""
    constant = np.column_stack([np.full(20, 3.0), np.zeros(20)])
    with solving(constant, numbers(20, 1)[:, 0]) as works:
        assert works.largest_l1() == 0.0
        fit = works.fit(0.5, gap=1e-9)
    assert fit.converged
    assert fit.coef.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("kind", ["ridge", "the same"])
def test_a_solution_may_hold_many_more_columns_than_there_are_samples(kind: str) -> None:
    """With l2, or where columns are the same, two columns for each sample are not enough."""
    X = numbers(20, 400)
    if kind == "the same":
        X = np.repeat(X[:, :20], 20, axis=1)
    with solving(X, target(X, "squared"), schedule=working_sets(5)) as works:
        l1 = 0.02 * works.largest_l1()
        fit = works.fit(l1, 20.0 * l1 if kind == "ridge" else 0.0, gap=1e-8 * whole(works), max_rounds=60)
    assert fit.converged
    assert np.count_nonzero(fit.coef) > (2 * 20 if kind == "ridge" else 0)


# --- starting somewhere -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("storage", ["dense", "sparse"])
@pytest.mark.parametrize("l2", [0.0, 2.0])
def test_a_path_ends_where_single_fits_end(loss: str, storage: str, l2: float) -> None:
    X = numbers(70, 150, 1.0 if storage == "dense" else 0.2)
    y, weight = target(X, loss), weights(70)
    with solving(X, y, weight, loss=loss, storage=storage) as works:
        gap, start, top = 1e-8 * whole(works), None, works.largest_l1()
        for share in (0.8, 0.4, 0.2, 0.1, 0.05, 0.3):  # and back up
            start = works.fit(share * top, l2, gap=gap, start=start)
            with solving(X, y, weight, loss=loss, storage=storage) as fresh:
                alone = fresh.fit(share * top, l2, gap=gap)
                copied = fresh.fit(share * top, l2, gap=gap, start=Fit(**{**vars(start)}))
            for fit in (start, alone, copied):
                assert fit.converged
                assert abs(fit.objective - alone.objective) <= 2 * gap
            assert copied.rounds == 1, "a start that is good enough is seen to be"
            np.testing.assert_array_equal(copied.coef, start.coef)


@pytest.mark.parametrize("loss", LOSSES)
def test_no_rounds_measure_the_start(loss: str) -> None:
    X = numbers(50, 20)
    y = target(X, loss)
    with solving(X, y, loss=loss) as works:
        l1 = 0.2 * works.largest_l1()
        zero = works.fit(l1, 1.0, gap=1e-9, max_rounds=0)
        assert (zero.rounds, zero.epochs) == (0, 0)
        assert not zero.coef.any()
        best = works.fit(l1, 1.0, gap=1e-10)
        rough = Fit(np.round(best.coef, 2), best.intercept, 0.0, 0.0, 0, 0, False)
        for start in (rough, best):
            found = works.fit(l1, 1.0, gap=1e-9, max_rounds=0, start=start)
            np.testing.assert_array_equal(found.coef, start.coef)
            assert found.objective == pytest.approx(
                objective(X, y, np.ones(50), found.coef, found.intercept, l1, 1.0, loss)
            )
            assert found.objective - best.objective <= found.gap + 1e-9
        assert found.converged


def test_a_start_keeps_what_it_was() -> None:
    """Fits are values: one that starts from another leaves it alone."""
    X = numbers(50, 40)
    with solving(X, target(X, "squared")) as works:
        top = works.largest_l1()
        first = works.fit(0.5 * top, gap=1e-6)
        before = first.coef.copy()
        works.fit(0.01 * top, gap=1e-6, start=first)
        works.fit(0.01 * top, gap=1e-6, start=first)
    np.testing.assert_array_equal(first.coef, before)


# --- runtimes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("storage", ["dense", "sparse"])
@pytest.mark.parametrize("swept", [False, True], ids=["table", "swept"])
def test_a_path_has_the_same_bits_on_every_runtime(
    loss: str, storage: str, swept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if swept:
        monkeypatch.setattr(SetSolver, "_tabled", lambda self, chosen: False)
    X = numbers(260, 700, 1.0 if storage == "dense" else 0.6)  # several visits to a pass
    y, weight = target(X, loss), weights(260)

    def path(runtime: Runtime) -> list[Fit]:
        with solving(X, y, weight, loss=loss, storage=storage, runtime=runtime) as works:
            fits: list[Fit] = []
            for share in (0.3, 0.1, 0.04):
                start = fits[-1] if fits else None
                fits.append(works.fit(share * works.largest_l1(), gap=1e-5 * whole(works), start=start))
            return fits

    first = path(Serial())
    assert np.count_nonzero(first[-1].coef) > 50
    for runtime in (Threads(1), Threads(2), Threads(3)):
        for fit, same in zip(path(runtime), first, strict=True):
            np.testing.assert_array_equal(fit.coef, same.coef)
            assert (fit.intercept, fit.gap, fit.objective, fit.rounds, fit.epochs) == (
                same.intercept, same.gap, same.objective, same.rounds, same.epochs,
            )  # fmt: skip


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("swept", [False, True], ids=["table", "swept"])
def test_a_fit_ends_when_it_is_asked_to(loss: str, swept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if swept:
        monkeypatch.setattr(SetSolver, "_tabled", lambda self, chosen: False)
    X = numbers(60, 300)
    with solving(X, target(X, loss), loss=loss, schedule=working_sets(5)) as works:
        l1, gap, rounds = 0.01 * works.largest_l1(), 1e-12 * whole(works), 0

        def look(state: dict[str, Any]) -> bool:
            nonlocal rounds
            rounds = state["round"]
            if rounds == 2:
                works.crew.ask()
            return False

        fit = works.fit(l1, gap=gap, look=look)
        assert (fit.rounds, rounds, fit.converged) == (2, 2, False)
        works.crew.asked = False
        best = works.fit(l1, gap=gap, start=fit)
        assert best.converged
        assert 0.0 <= fit.objective - best.objective <= fit.gap
        stopped = works.fit(l1, gap=gap, look=lambda state: state["round"] == 3)
        assert (stopped.rounds, stopped.converged) == (3, False)
        assert works.fit(l1, gap=gap, max_rounds=3).rounds == 3


def test_ctrl_c_in_compiled_code_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the workers run, the main thread waits; that is where Ctrl-C arrives."""
    X = numbers(1500, 400)  # large enough for passes that the workers make
    with solving(X, target(X, "squared"), runtime=Threads(2)) as works:
        l1 = 0.1 * works.largest_l1()
        wait, waits = TeamCall.wait, 0

        def pressed(call: TeamCall, *args: Any) -> bool:
            nonlocal waits
            waits += 1
            if waits == 1:
                raise KeyboardInterrupt
            return wait(call, *args)

        monkeypatch.setattr(TeamCall, "wait", pressed)
        with pytest.raises(KeyboardInterrupt):
            works.fit(l1, gap=1e-9)
        assert waits == 2, "it waited for the workers to end"
        monkeypatch.undo()
    with solving(X, target(X, "squared"), runtime=Threads(2)) as works:
        assert works.fit(l1, gap=1e-6).converged


def test_what_is_refused() -> None:
    X = numbers(10, 3)
    with (
        pytest.raises(PlanError, match="no loss 'hinge'; there are squared, logistic"),
        solving(X, X[:, 0], loss="hinge"),
    ):
        pass
    with pytest.raises(DataError, match="products of such numbers overflow; scale"), solving(X * 1e200, X[:, 0]):
        pass
    with (
        solving(X, X[:, 0] * 1e200) as works,
        np.errstate(all="ignore"),
        pytest.raises(RunError, match="not finite; standardize=True"),
    ):
        works.fit(1.0, gap=1.0)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_a_small_fit_starts_no_thread_and_has_the_bits_of_one_that_does(
    loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = numbers(80, 20)
    found = []
    for brief in (True, False):
        if not brief:
            monkeypatch.setattr(Crew, "run_pass", lambda crew, step, profile, work: crew.run(step, profile, again=True))
        with solving(X, target(X, loss), loss=loss, runtime=Threads(2)) as works:
            fit = works.fit(0.1 * works.largest_l1(), gap=1e-9 * whole(works))
            assert fit.converged
            assert (works.crew._threads is None) == brief
            found.append((fit.coef, fit.intercept))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]


# --- sets found by sweeps ---------------------------------------------------------------------------------------------


def blocks(n: int, p: int, width: int) -> Any:
    """[n, p] columns in blocks with correlation 0.9, of which every block has one that matters."""
    rng = np.random.default_rng(3)
    common = np.repeat(rng.normal(size=(n, p // width)), width, axis=1)
    return np.sqrt(0.9) * common + np.sqrt(0.1) * rng.normal(size=(n, p))


@pytest.mark.parametrize("storage", ["dense", "sparse"])
@pytest.mark.parametrize("positive", [False, True])
def test_correlated_columns_take_few_rounds(storage: str, positive: bool) -> None:
    X = blocks(200, 1200, 40)
    y = X[:, ::40].sum(axis=1)
    options: dict[str, Any] = {"storage": storage, "positive": positive}
    with solving(X, y, **options) as works, solving(X, y, schedule=working_sets(), **options) as by_distance:
        l1, gap = 0.03 * works.largest_l1(), 1e-6 * whole(works)
        found, other = works.fit(l1, gap=gap), by_distance.fit(l1, gap=gap)
    assert found.converged
    assert other.converged
    assert abs(found.objective - other.objective) <= gap
    # Over sparse columns rounds are solved less closely, because another pass over all columns costs little.
    assert found.rounds <= (5 if storage == "dense" else 6) < other.rounds


def test_the_furthest_columns_are_visited_if_all_have_too_many_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    urge, coef = np.array([5.0, 2.0, 0.5, 4.0, 3.0, 9.0]), np.array([0.0, 0.0, 1.0, 0.0, 0.0, 0.0])
    pool, entries = np.array([True] * 5 + [False]), np.full(6, 10)

    def visited(room: int) -> list[int]:
        monkeypatch.setattr(entering, "_ENTRIES", room)
        return list(entering.candidates(urge, pool, coef, 1.0, entries))

    assert visited(50) == [0, 1, 2, 3, 4], "all beyond their constraints, and the support"
    assert visited(35) == [0, 2, 3]
    assert visited(10) == [2]
    assert visited(9) == []


def test_fits_go_on_where_sweeps_have_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    X = numbers(60, 300)
    with solving(X, target(X, "squared")) as works:
        l1, gap = 0.05 * works.largest_l1(), 1e-8 * whole(works)
        best = works.fit(l1, gap=gap)
        monkeypatch.setattr(entering, "_ENTRIES", 60 * 10)
        found = works.fit(l1, gap=gap)
    assert found.converged
    assert abs(found.objective - best.objective) <= gap


def test_sweeps_that_make_nothing_better_leave_the_point_as_it_is() -> None:
    X = numbers(80, 300)
    with solving(X, target(X, "squared")) as works:
        l1 = 0.1 * works.largest_l1()
        best = works.fit(l1, gap=1e-13 * whole(works))
        point = works.setting.stand(best.coef, best.intercept)
        coef, z = point.coef.copy(), point.z.copy()
        which = np.arange(300)
        for _ in range(50):  # until sweeps reach the last bit
            if entering.enter(works.setting, point, which, l1, 0.0, 0.0, 100) is None:
                break
            coef, z = point.coef.copy(), point.z.copy()
        else:
            pytest.fail("sweeps always lowered the objective")
    assert np.array_equal(point.coef, coef)
    assert np.array_equal(point.z, z)


@pytest.mark.parametrize("positive", [False, True])
def test_extrapolation_takes_fewer_sweeps_to_the_same_point(positive: bool) -> None:
    rng = np.random.default_rng(3)
    common = rng.random((400, 1))
    X = np.where(rng.random((400, 60)) < 0.5, common + 0.3 * rng.random((400, 60)), 0.0)
    y = X[:, :30].sum(axis=1) + 0.1 * rng.standard_normal(400)
    swept, values = [], []
    for memory in (MOST + 2, 0):
        with solving(X, y, storage="sparse", positive=positive, intercept=True) as works:
            setting = works.setting
            point = setting.zero.copy()
            l1 = 0.001 * works.largest_l1()
            which = np.arange(60)
            u, b, said, on = point.at.v.copy(), np.zeros(60), np.zeros(descent.RESULTS), np.empty(60, np.int64)
            kept = np.empty((memory, 400)), np.empty((memory, 60)), np.empty((5, 5)), np.empty(5)
            descent.enter_sparse["exact"](
                which, *setting.columns.parts, b, np.full(60, l1), np.zeros(60), np.ones(60), setting.mean,
                setting.norm**2, u, np.empty(0), 400.0, np.zeros(1), 1e-4 * l1, 1e9, 1.0, 1e9, positive, on, said,
                *kept,
            )  # fmt: skip
            assert said[descent.SOLVED]
            assert not positive or (b >= 0.0).all()
            point.coef[:] = b
            setting.predict(point, 0.0)
            swept.append(said[descent.SWEPT])
            values.append(setting.objective(point, l1, 0.0))
    assert swept[0] < 0.7 * swept[1]
    assert values[0] == pytest.approx(values[1], rel=1e-6)


def test_known_products_take_the_place_of_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    X = numbers(400, 150, 0.3, seed=5)
    y = target(X, "squared")
    found = {}
    for share in (working_sets_module._KNOWN, 2.0):  # of a set that has to be known; 2: never
        monkeypatch.setattr(working_sets_module, "_KNOWN", share)
        monkeypatch.setattr(entering, "_PATIENCE", 1)
        monkeypatch.setattr(entering, "_MOST", 1)
        monkeypatch.setattr(entering, "_AS_PRODUCTS", 0.0)
        monkeypatch.setattr(entering, "_SWEEPS", 1)  # so that sweeps leave sets to products
        swept: list[int] = []
        real = entering.enter

        def enter(*args: Any, swept: list[int] = swept, real: Any = real, **options: Any) -> Any:
            swept.append(len(args[2]))
            return real(*args, **options)

        with monkeypatch.context() as patch, solving(X, y, storage="sparse") as works:
            patch.setattr(working_sets_module, "enter", enter)
            fit = works.fit(0.02 * works.largest_l1(), gap=1e-9 * whole(works))
        assert fit.converged
        found[share] = len(swept), fit.objective
    (few, objective), (many, other) = found.values()
    assert few < many
    assert objective == pytest.approx(other, rel=1e-8)
