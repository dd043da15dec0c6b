"""The adaptive controller against models of progress: noise, a moving optimum, alternation, divergence."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from stretto.consistency.adaptive.controller import AdaptiveController
from stretto.consistency.adaptive.knobs import KnobLadder, Window, number_knob, rule_of, staleness_knob
from stretto.consistency.adaptive.progress import ProgressScale, compare
from stretto.consistency.rules import ASP, BSP, SSP
from stretto.errors import PlanError

STEPS = (0.025, 0.05, 0.1, 0.2, 0.4)
LIMIT, START, WINDOWS = 10.0, 100.0, 120
Speed = Callable[[dict[str, float], int], float]


def knobs() -> list[KnobLadder]:
    return [staleness_knob(20), number_knob("step", 0.1, STEPS)]


def hill(values: dict[str, float], best_staleness: float = 4.0, best_step: float = 0.2) -> float:
    """Share of the distance that a second removes: one best setting of each knob."""
    rungs = knobs()[0].values
    apart = abs(rungs.index(values["staleness"]) - rungs.index(best_staleness))
    return 0.06 * math.exp(-0.25 * apart - 0.4 * abs(math.log2(values["step"] / best_step)))


def progress(speed: Speed, noise: float, seed: int, fixed: dict[str, float] | None = None) -> float:
    """The total progress of a run, in e-foldings of the distance to the limit."""
    draw, controller, objective = random.Random(seed), AdaptiveController(knobs()), START
    for number in range(WINDOWS):
        k = speed(controller.settings if fixed is None else fixed, number) * (1 + noise * draw.gauss(0, 1))
        after = LIMIT + (objective - LIMIT) * math.exp(-k)
        if fixed is None:
            controller.measured(Window(objective, after, 1.0))
        objective = after
    return math.log((START - LIMIT) / (objective - LIMIT))


def best_fixed(speed: Speed) -> float:
    grid = product(knobs()[0].values, STEPS)
    return max(progress(speed, 0.0, 0, {"staleness": s, "step": step}) for s, step in grid)


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.05])
def test_it_comes_within_a_tenth_of_the_best_fixed_setting(noise: float) -> None:
    best = best_fixed(lambda values, _: hill(values))
    assert best > 2 * progress(lambda values, _: hill(values), 0.0, 0, {"staleness": 0.0, "step": 0.1})
    for seed in range(5):
        assert progress(lambda values, _: hill(values), noise, seed) > 0.9 * best


def test_it_follows_an_optimum_that_moves() -> None:
    def moving(values: dict[str, float], window: int) -> float:
        return hill(values, 8.0, 0.4) if window < WINDOWS // 2 else hill(values, 1.0, 0.1)

    best = best_fixed(moving)
    for seed in range(5):
        assert progress(moving, 0.02, seed) > 1.1 * best  # no fixed setting suits both halves


def test_progress_that_alternates_is_damped() -> None:
    """The adversary makes every trial look good and every kept setting look bad."""
    controller, objective = AdaptiveController(knobs()), START
    trials = []
    for _ in range(400):
        trials.append(controller.trying)
        after = objective - (2e-3 if controller.trying else 1e-3)
        controller.measured(Window(objective, after, 1.0))
        objective = after
    assert sum(trials[:50]) > 10  # it was deceived
    assert sum(trials[200:]) <= 0.2 * 200


def test_a_setting_that_diverged_is_left_and_not_tried_again() -> None:
    controller, objective = AdaptiveController([number_knob("step", 0.1, STEPS)]), START
    tried, undone = 0, 0
    for _ in range(200):
        diverges = controller.settings["step"] >= 0.4
        tried += diverges
        after = math.nan if diverges else LIMIT + (objective - LIMIT) * math.exp(-0.2 * controller.settings["step"])
        controller.measured(Window(objective, after, 1.0))
        undone += controller.undo
        objective = objective if controller.undo else after
    assert tried == undone == 1
    assert controller.settings["step"] == 0.2
    assert any(move.kind == "back" and "to nan" in move.reason for move in controller.moves)


def test_a_run_that_diverges_from_the_start_goes_down() -> None:
    controller = AdaptiveController([number_knob("step", 0.4, STEPS)])
    seen = []
    for _ in range(8):
        seen.append(controller.settings["step"])
        controller.measured(Window(START, math.inf if seen[-1] > 0.1 else START - 1, 1.0))
    assert seen[:3] == [0.4, 0.2, 0.1]
    assert max(seen[3:]) <= 0.1
    assert controller.moves[0].kind == "lower"


def test_staleness_tightens_when_progress_slows() -> None:
    """Fresh and stale reads are equally fast near the end: the lower setting is taken."""
    controller, objective = AdaptiveController([staleness_knob(20)]), START

    def rate(staleness: float) -> float:
        return 0.02 * min(staleness, 16) + 0.1 if objective > 20 else 0.002

    reached = 0.0
    for _ in range(150):
        reached = max(reached, controller.settings["staleness"])
        after = objective * math.exp(-rate(controller.settings["staleness"]))
        controller.measured(Window(objective, after, 1.0))
        objective = after
    assert reached >= 8
    assert controller.settings["staleness"] < 8
    assert any("slowed" in move.reason for move in controller.moves)


def test_staleness_is_not_loosened_where_nobody_waits() -> None:
    controller = AdaptiveController([staleness_knob(20)])
    for number in range(30):
        controller.measured(Window(100 - number, 99 - number, 1.0, waited=0.01))
    assert controller.moves == []


def test_the_objective_may_be_negative_and_unknown_at_first() -> None:
    controller = AdaptiveController([staleness_knob(20)])
    controller.measured(Window(None, -50.0, 1.0))
    objective = -50.0
    for _ in range(40):
        fall = {0.0: 1.0, 1.0: 1.5, 2.0: 2.0}.get(controller.settings["staleness"], 1.2)
        controller.measured(Window(objective, objective - fall, 1.0))
        objective -= fall
    assert controller.settings["staleness"] == 2.0


def test_a_saved_controller_goes_on() -> None:
    def windows(controller: AdaptiveController, count: int) -> Iterator[dict[str, float]]:
        objective = START
        for _ in range(count):
            yield controller.settings
            controller.measured(Window(objective, objective * (1 - hill(controller.settings)), 1.0))
            objective *= 1 - hill(controller.settings)

    first = AdaptiveController(knobs())
    *_, last = windows(first, 40)
    second = AdaptiveController(knobs())
    second.restore(first.to_dict())
    assert second.settings == last
    assert second.windows == 40


def test_ladders() -> None:
    assert staleness_knob(2).values == (0.0, math.inf)
    assert staleness_knob(6).values == (0.0, 1.0, 2.0, 4.0, math.inf)
    assert number_knob("x", 3.0, (1.0, 13.0), low_high=True).values == (1.5, 3.0, 6.0, 12.0)
    assert [rule_of(value) for value in (0.0, 2.0, math.inf)] == [BSP(), SSP(2), ASP()]
    for wrong in ((0.1, (0.2, 0.4)), (0.3, (0.2, 0.4)), (0.1, (0.1,))):
        with pytest.raises(PlanError, match="knob x"):
            number_knob("x", *wrong)


def test_windows_are_compared_at_equal_distance_from_the_limit() -> None:
    """Under linear convergence a later window falls less per second, and is as good."""
    values = [LIMIT + 90 * 0.8**k for k in range(7)]
    windows = [Window(a, b, 1.0) for a, b in pairwise(values)]
    scale = ProgressScale([windows])
    assert scale.limit == pytest.approx(LIMIT, abs=2.0)
    found = compare(scale, windows[:2], windows[4:], gain=0.05, noise=0.03)
    assert found.ratio == pytest.approx(1.0, abs=0.1)


@settings(max_examples=25, deadline=None)
@given(
    some.lists(some.floats(-2.0, 3.0), min_size=30, max_size=150),
    some.lists(some.booleans(), min_size=150, max_size=150),
)
def test_invariants_for_any_objective(falls: list[float], diverging: list[bool]) -> None:
    """One knob at a time, a bounded share of trials, and no setting that diverged."""
    ladders = knobs()
    controller = AdaptiveController(ladders, share=0.15)
    objective, trials = START, 0
    forbidden: set[tuple[str, float]] = set()
    for number, fall in enumerate(falls):
        now = controller.settings
        trying = controller.trying
        trials += trying
        diverges = diverging[number] and trying
        moves = controller.measured(Window(objective, math.nan if diverges else objective - fall, 1.0))
        then = controller.settings
        backs = [move for move in moves if move.kind in ("back", "lower")]
        tries = [move for move in moves if move.kind == "try"]
        assert len(backs) <= 1
        assert len(tries) <= 1
        assert len({move.knob for move in (*backs, *tries)}) >= sum(now[name] != then[name] for name in now)
        if diverges:
            assert controller.undo
            forbidden.add((backs[0].knob, now[backs[0].knob]))
        if not controller.undo:
            objective -= fall
        assert not forbidden & set(then.items())
        assert trials <= 4 * len(ladders) + sum(len(one.values) for one in ladders) + 0.15 * (number + 1) + 1


# -- seconds and progress apart ----------------------------------------------------------------------------------------


def test_much_waiting_makes_the_first_step_long_and_seconds_alone_decide() -> None:
    """The first window has no progress yet; the second is three times as short."""
    controller = AdaptiveController([staleness_knob(20)])
    controller.measured(Window(None, 100.0, 3.0, waited=0.8))
    assert controller.settings["staleness"] == 16.0  # five of six rungs
    controller.measured(Window(100.0, 90.0, 1.0, waited=0.4))
    assert [move.kind for move in controller.moves][:2] == ["try", "keep"]
    assert "3.00 times the windows per second" in controller.moves[1].reason


def test_shorter_windows_that_make_no_progress_are_not_kept() -> None:
    controller = AdaptiveController([staleness_knob(20)])
    controller.measured(Window(None, 100.0, 3.0, waited=0.8))
    controller.measured(Window(100.0, 100.0, 1.0, waited=0.4))
    assert controller.moves[1].kind == "back"


def test_a_staleness_that_is_known_to_be_slow_is_not_tried_again() -> None:
    controller, objective = AdaptiveController([staleness_knob(20)]), START
    seen = []
    for _ in range(200):
        staleness = controller.settings["staleness"]
        seen.append(staleness)
        after = objective * 0.98
        controller.measured(Window(objective, after, 3.0 if staleness < 8 else 1.0, waited=0.7))
        objective = after
    assert sum(staleness < 8 for staleness in seen) <= 3
    assert seen[-1] >= 8


def noisy_descent(step: float | None, seed: int) -> int:
    """Windows to a target of a run with a step, None: tuned, that gets as near to the optimum as its step is small."""
    controller = AdaptiveController([number_knob("step", 0.4, STEPS)], bound=LIMIT + 1.0)
    draw, objective = random.Random(seed), START
    for window in range(1, 1000):
        now = controller.settings["step"] if step is None else step
        floor = LIMIT + 10 * now
        share = math.exp(-1.2 * now)
        after = floor + (objective - floor) * share + 0.4 * now * draw.gauss(0, 1)
        if after < LIMIT + 1.0:
            return window
        controller.measured(Window(objective, after, 1.0))
        objective = objective if controller.undo else after
    return 1000


def test_steps_that_shrink_on_plateaus_beat_every_fixed_one() -> None:
    fixed = min(sum(noisy_descent(step, seed) for seed in range(9)) for step in STEPS)
    assert sum(noisy_descent(None, seed) for seed in range(9)) < fixed


# -- objectives that say little ----------------------------------------------------------------------------------------


def test_an_objective_that_is_not_a_number_at_first_lowers_and_then_goes_on() -> None:
    controller = AdaptiveController([number_knob("step", 0.4, STEPS)])
    undone = []
    for window in (Window(None, math.nan, 1.0), Window(None, 100.0, 1.0)):
        controller.measured(window)
        undone.append(controller.undo)
    assert controller.settings["step"] == 0.2
    for k in range(20):
        controller.measured(Window(100.0 * 0.9**k, 100.0 * 0.9 ** (k + 1), 1.0))
        undone.append(controller.undo)
    assert undone == [True] + 21 * [False]
    assert controller.settings["step"] <= 0.2


def test_a_constant_objective_takes_few_trials() -> None:
    controller = AdaptiveController(knobs())
    for _ in range(200):
        controller.measured(Window(100.0, 100.0, 1.0))
    assert controller.trials <= 4 * 2 + 12 + 0.15 * 200
    assert controller.settings["step"] <= 0.1


def test_an_objective_that_only_rises_lowers_every_knob() -> None:
    controller, objective = AdaptiveController(knobs()), START
    for _ in range(60):
        after = objective + 1.0
        controller.measured(Window(objective, after, 1.0))
        objective = objective if controller.undo else after
    assert controller.settings == {"staleness": 0.0, "step": STEPS[0]}


@pytest.mark.parametrize("bound", [None, -400.0])
def test_a_maximised_objective_is_a_negative_one(bound: float | None) -> None:
    """A likelihood whose negative is the objective: faster steps are found all the same."""
    controller, objective = AdaptiveController([number_knob("step", 0.1, STEPS)], bound=bound), 0.0
    for _ in range(40):
        after = -300 + (objective + 300) * math.exp(-0.1 * controller.settings["step"])
        controller.measured(Window(objective, after, 1.0))
        objective = after
    assert controller.settings["step"] == 0.4


@pytest.mark.parametrize("windows", [1, 2, 3, 5, 10])
def test_a_short_run_loses_little(windows: int) -> None:
    """Where the first settings are the best ones, ten windows make at least 80 % of their progress."""

    def worse(values: dict[str, float]) -> float:
        return (
            0.06
            * math.exp(-0.25 * knobs()[0].values.index(values["staleness"]))
            * (1.0 if values["step"] == 0.1 else 0.7)
        )

    controller, objective = AdaptiveController(knobs()), START
    for _ in range(windows):
        after = LIMIT + (objective - LIMIT) * math.exp(-worse(controller.settings))
        controller.measured(Window(objective, after, 1.0))
        objective = after
    made = math.log((START - LIMIT) / (objective - LIMIT))
    assert made > 0.8 * 0.06 * windows
