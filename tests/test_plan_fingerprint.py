"""The fingerprint: it changes with everything that can change a number, and with nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from jobs import job_on, some_ratings
from stretto.data.records.data import Data
from stretto.errors import PlanError
from stretto.plan.arrays import Array
from stretto.plan.plan import Physical
from stretto.runtime.runtimes import Serial, Threads
from stretto.solvers.factorization.problem import FactorizationProblem

DATA = some_ratings(4000, 120, 90)
SGD, ALS = FactorizationProblem(4), FactorizationProblem(4, solver="als")
ADAGRAD, ADAREVISION = FactorizationProblem(4, optimizer="adagrad"), FactorizationProblem(4, optimizer="adarevision")
CCD = replace(ALS, solver="ccd")
CG, IMPLICIT = replace(ALS, linear_solver="cg"), replace(ALS, implicit=True, biases=False)


def fingerprint(problem: FactorizationProblem = SGD, data: Data = DATA, runtime: Any = None, **settings: Any) -> str:
    with job_on(runtime or Threads(1), problem, data, **settings) as (job, _):
        return job.plan.fingerprint


@pytest.mark.parametrize(
    ("problem", "changes"),
    [
        (SGD, {"rank": 5}),
        (SGD, {"loss": "absolute"}),
        (SGD, {"reg": 0.06}),
        (SGD, {"biases": False}),
        (SGD, {"learning_rate": 0.06}),
        (SGD, {"schedule": "constant"}),
        (SGD, {"epochs": 21}),
        (SGD, {"optimizer": "adagrad"}),
        (SGD, {"optimizer": "adarevision"}),
        (SGD, {"init_scale": 0.06}),
        (SGD, {"solver": "als"}),
        (ADAGRAD, {"learning_rate": 0.06}),
        (ADAGRAD, {"optimizer": "adarevision"}),
        (ADAREVISION, {"learning_rate": 0.06}),
        (ADAREVISION, {"schedule": "linear"}),
        (replace(ADAREVISION, schedule="linear"), {"epochs": 21}),
        (ALS, {"rank": 5}),
        (ALS, {"reg": 0.06}),
        (ALS, {"biases": False}),
        (ALS, {"linear_solver": "cg"}),
        (ALS, {"init_scale": 0.06}),
        (CG, {"inner": 4}),
        (IMPLICIT, {"alpha": 3.0}),
        (CCD, {"rank": 5}),
        (CCD, {"reg": 0.06}),
        (CCD, {"biases": False}),
        (CCD, {"inner": 4}),
        (CCD, {"init_scale": 0.06}),
        (CCD, {"solver": "als"}),
        (replace(ALS, biases=False), {"implicit": True}),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else f"{value.solver}/{value.optimizer}",
)
def test_every_parameter_counts(problem: FactorizationProblem, changes: dict[str, Any]) -> None:
    assert fingerprint(problem) != fingerprint(replace(problem, **changes))


@pytest.mark.parametrize("problem", [SGD, ALS], ids=["sgd", "als"])
def test_seed_width_profile_and_data_count(problem: FactorizationProblem) -> None:
    base = fingerprint(problem)
    assert fingerprint(problem, seed=8) != base
    assert fingerprint(problem, width=2) != base
    assert fingerprint(problem, profile="fast") != base
    values = DATA.values.copy()
    values[17] = np.nextafter(values[17], np.float32(9))
    assert fingerprint(problem, replace(DATA, values=values)) != base, "one bit of one rating"
    cols = DATA.cols.copy()
    cols[[3, 4]] = cols[[4, 3]]
    assert fingerprint(problem, replace(DATA, cols=cols)) != base, "two columns exchanged"
    assert fingerprint(problem, replace(DATA, shape=(DATA.shape[0] + 1, DATA.shape[1]))) != base, "an empty row more"
    assert fingerprint(problem, DATA.take(np.arange(len(DATA) - 1))) != base, "a rating less"


@pytest.mark.parametrize("problem", [SGD, ALS], ids=["sgd", "als"])
def test_where_it_runs_and_the_order_of_the_input_do_not_count(problem: FactorizationProblem) -> None:
    base = fingerprint(problem)
    for runtime in (Serial(), Threads(2), Threads(5)):
        assert fingerprint(problem, runtime=runtime) == base
    shuffled = DATA.take(np.random.default_rng(0).permutation(len(DATA)))
    assert fingerprint(problem, shuffled) == base


def test_the_physical_plan_is_apart() -> None:
    with job_on(Serial(), SGD, DATA) as (job, _):
        plan = job.plan
        for physical in (Physical("serial", 1), Physical("threads", 16), Physical("threads", 2, memory=2**20, tile=1)):
            assert replace(plan, physical=physical).fingerprint == plan.fingerprint
        assert len(plan.fingerprint) == 16
        assert int(plan.fingerprint, 16) >= 0


def test_epochs_count_only_where_the_steps_are_planned_for_them() -> None:
    assert fingerprint(SGD) == fingerprint(replace(SGD, schedule="adaptive")) != fingerprint(replace(SGD, epochs=21))
    assert fingerprint(ADAREVISION) == fingerprint(replace(ADAREVISION, epochs=21, schedule="constant"))


def test_numbers_of_other_types_are_the_same_numbers() -> None:
    same: Any = replace(SGD, rank=np.int64(4), reg=np.float64(0.25))  # type: ignore[arg-type]
    assert fingerprint(same) == fingerprint(replace(SGD, reg=0.25))


def test_an_unknown_placement_is_refused() -> None:
    with pytest.raises(
        PlanError, match="W: placement 'floating' is not one of owned, rotating, served, replicated, shared"
    ):
        Array("W", "cut", "floating")
