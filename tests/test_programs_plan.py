"""`program.plan()`: what decides bits is in the fingerprint, what does not is not, and `run()` runs that very plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stretto as st
from programs_cut import Cut, Own, Remembering
from programs_made import bits
from stretto.errors import PlanError
from stretto.programs.identity import digest
from stretto.programs.program import Program


def changed(**attributes: Any) -> Program:
    program = Cut()
    for name, value in attributes.items():
        setattr(program, name, value)
    return program


def test_the_fingerprint_has_everything_that_decides_bits() -> None:
    X, y = Cut().data
    programs = [
        Cut(),
        Cut(4),
        Cut(seed=1),
        Own(),
        Remembering(),
        changed(schedule=st.schedule.random(width=2)),
        changed(merge=lambda a, b: a),
        changed(merge=lambda a, b: b),
        changed(data=(X, y + 1.0)),
        changed(params={"beta": np.ones(24), "steps": np.zeros((), np.int64)}),
        changed(rate=0.5),
        changed(update=_adding(1.0)),
        changed(update=_adding(2.0)),
    ]
    plans = [program.plan(rounds=3) for program in programs]
    plans += [Cut().plan(pipeline=2), Cut().plan(seed=2)]
    assert len({plan.fingerprint for plan in plans}) == len(plans)
    same = [Cut().plan(), Cut().plan(rounds=9), Cut().plan(runtime=st.Cluster(nodes=4)), changed(objective=None).plan()]
    assert {plan.fingerprint for plan in same} == {plans[0].fingerprint}


def _adding(step: float) -> Any:
    return lambda job, part, params: params["beta"][job] + step


def test_functions_count_by_what_they_do() -> None:
    def one(x: Any) -> Any:
        return [y + 1 for y in x]

    def other(x: Any) -> Any:
        return [y + 2 for y in x]

    assert digest(one) != digest(other), "also by functions inside them"
    assert digest(one) == digest(one)
    assert digest({"a": [1, (2.5, "x")]}) != digest({"a": [1, (2.5, "y")]})


def test_a_plan_runs_once_and_anywhere() -> None:
    program = Cut()
    plan = program.plan(rounds=12, pipeline=2, seed=5)
    result = plan.run(runtime=st.Simulated(nodes=3))
    assert bits(result) == bits(st.run(Cut(), rounds=12, pipeline=2, seed=5, runtime=st.Serial()))
    with pytest.raises(PlanError, match=r"have changed since it was made \(params digest was"):
        plan.run()


def test_the_plan_in_words_and_as_a_picture(tmp_path: Path) -> None:
    plan = Remembering().plan(pipeline=3, rounds=4, runtime=st.Cluster("processes", nodes=2))
    text = plan.explain()
    assert text.startswith(f"plan {plan.fingerprint}: Remembering on 25 parameters, data in 5 parts")
    for words in (
        "a job on each of 5 parts of the data, on the node that holds the part",
        "results of a job are added up in part order",
        "made by local(part) and kept where the part is held",
        "hold their parts and get what changed",
        "cluster, 2 workers",
    ):
        assert words in " ".join(text.split())
    assert plan.cost.memory == 3 * 25 * 8 + 50 * 25 * 8
    picture = plan.draw(str(tmp_path / "rounds.svg"))
    assert (tmp_path / "rounds.svg").read_text() == picture
    assert "3 in flight" in picture
    assert picture.count("aggregate") == 6
    assert "<svg" in plan._repr_html_()
    with pytest.raises(PlanError, match=r"cannot draw this plan as \.png; use \.svg"):
        plan.draw("rounds.png")
