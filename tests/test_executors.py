"""One suite for all executors: whatever a plan is, they compute what the serial executor computes, bit for bit.

Plans, executors and the moments at which a run stops and goes on elsewhere are drawn by hypothesis.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from hypothesis.strategies import DataObject

from executor_kernel import CUTS
from executor_plans import TYPES, PlanCase, StepCase, plans
from executor_runs import EXECUTORS, SERIAL, Executor, Leg, expected, legs, run
from stretto import pages
from stretto.schedule.orders.rotation import independent, rotation

ANY = some.one_of(*EXECUTORS.values())


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes give back every page that they can do without, however small the arrays."""
    monkeypatch.setattr(pages, "LEAST", 1)


def check(case: PlanCase, before: list[Leg], last: Executor, ahead: bool) -> None:
    assert run(case, before, last, ahead=ahead) == expected(case)


@pytest.mark.parametrize("kind", EXECUTORS)
def test_the_serial_bits(kind: str) -> None:
    @given(plans(), EXECUTORS[kind], some.booleans())
    @settings(max_examples=40)
    def whole(case: PlanCase, executor: Executor, ahead: bool) -> None:
        check(case, [], executor, ahead)

    whole()


@pytest.mark.parametrize("kind", EXECUTORS)
def test_a_run_stops_and_goes_on(kind: str) -> None:
    @given(plans(goes_on=False), legs(EXECUTORS[kind], 1, 2), ANY, some.booleans())
    @settings(max_examples=30)
    def stopped(case: PlanCase, before: list[Leg], last: Executor, ahead: bool) -> None:
        check(case, before, last, ahead)

    stopped()


@pytest.mark.parametrize("kind", EXECUTORS)
def test_a_visit_that_fails_is_the_same_one(kind: str) -> None:
    """Which visits are made beside it is not fixed; what it reads, and so what it says of itself, is."""

    def failure(case: PlanCase, executor: Executor, visit: int) -> tuple[int | None, list[int]]:
        with executor.open(case, fails=visit) as (world, crew):
            done = crew.run(world.items()[0], "exact")
            assert done.finished is not None
            assert visit not in done.finished
            return done.failed, world.arrays["fault 0"].tolist()

    @given(plans(), EXECUTORS[kind], some.data())
    @settings(max_examples=15)
    def failing(case: PlanCase, executor: Executor, data: DataObject) -> None:
        visit = data.draw(some.integers(0, len(case.steps[0].order) - 1))
        found = failure(case, executor, visit)
        assert found == failure(case, SERIAL, visit)
        assert found[0] == visit

    failing()


@pytest.mark.slow
@pytest.mark.parametrize("kind", EXECUTORS)
def test_many_plans(kind: str) -> None:
    @given(plans(goes_on=False), legs(ANY, 0, 3), EXECUTORS[kind], some.booleans())
    @settings(max_examples=400)
    def many(case: PlanCase, before: list[Leg], last: Executor, ahead: bool) -> None:
        check(case, before, last, ahead)

    many()


def test_tiles_that_are_no_neighbours_fit_the_budget_too() -> None:
    """A run that goes on may have made the tile in between: the next one is then read ahead only if both fit."""
    order, none = independent(3), ([0] * 3, [0] * 3)
    ranges = dict.fromkeys(CUTS, none) | {"rows": ([0, 10, 11], [10, 11, 21])}
    shapes: dict[str, tuple[int, ...]] = {"rows 0": (21, 700), "cols 0": (0, 1), "wide 0": (1, 0), "shared 0": (1, 2)}
    shapes |= {f"{name} 0": (0,) for name in ("seen_rows", "seen_cols", "entries", "state")}
    step = StepCase(order, [1] * 3, ranges, "rows", plain=True, gathers=False, goes_on=False, spin=0)
    case = PlanCase(TYPES[0], (step,), shapes, {}, 1, 0)
    with Executor("disk", budget=12 / 21).open(case) as (world, crew):  # checks what was held
        assert crew.run(world.items()[0], "exact", np.array([1])).finished is None


# --- what does not hold yet -------------------------------------------------------------------------------------------


def parts_case() -> PlanCase:
    """Four visits that add to their part of an array per visit, which begins as 2."""
    order = rotation(2)
    two, four = ([0, 1], [1, 2]), ([0, 1, 2, 3], [1, 2, 3, 4])
    ranges = {"rows": two, "cols": two, "wide": two, "seen_rows": two, "seen_cols": two, "entries": four, "state": four}
    shapes = {"rows": (2, 1), "cols": (2, 1), "wide": (1, 2), "seen_rows": (2,), "seen_cols": (2,), "entries": (4,)}
    shapes |= {"state": (4,), "shared": (1, 2)}
    step = StepCase(order, [1] * 4, ranges, "rows", plain=False, gathers=False, goes_on=True, spin=0)
    return PlanCase(TYPES[0], (step,), {f"{name} 0": shape for name, shape in shapes.items()}, {}, 1, 0)


@pytest.mark.parametrize("kind", ["memory", "disk", "cluster", "simulated"])
def test_parts_of_visits_begin_as_they_were_after_a_stop(kind: str) -> None:
    first = Leg(SERIAL, until=0, share=0.5)
    check(parts_case(), [first], Executor(kind, nodes=2), ahead=False)


def test_a_crash_is_no_stop() -> None:
    """Nobody asked for an end, so there is none before all visits are made."""
    case = parts_case()
    step = replace(case.steps[0], weight=[0, 71, 0, 0], plain=True)
    with Executor("simulated", nodes=2, seed=2).open(replace(case, steps=(step,))) as (world, crew):
        done = crew.run(world.items()[0], "exact")
        assert crew.report.losses
        assert done.finished is None


def test_plans_differ_in_what_they_learn() -> None:
    """The suite would notice: one number of one array changes what every later visit returns."""
    case = parts_case()
    with SERIAL.open(case) as (world, crew):
        crew.run(world.items()[0], "exact")
        out = world.outs[0].copy()
    for name in ("rows 0", "cols 0", "wide 0", "seen_rows 0", "seen_cols 0", "entries 0", "state 0", "shared 0"):
        with SERIAL.open(case) as (world, crew):
            changed = world.arrays[name]
            changed.flat[0] = (changed.flat[0] + 1) % 251
            crew.run(world.items()[0], "exact")
            assert not np.array_equal(world.outs[0], out), name
