"""A run that nobody listens to does not write its plan in words; one with a listener does."""

from __future__ import annotations

from typing import Any

import pytest
import scipy.sparse as sp

import stretto as st
from stretto.observe.events import Event, PlanMade
from stretto.plan.plan import Plan


def test_the_plan_is_explained_to_listeners_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Plan] = []
    explain = Plan.explain

    def noted(plan: Plan) -> str:
        asked.append(plan)
        return explain(plan)

    monkeypatch.setattr(Plan, "explain", noted)
    X: Any = sp.random(50, 40, density=0.3, format="csr", random_state=0)
    model = st.MatrixFactorization(4, max_iter=2, random_state=0)
    model.fit(X)
    assert not asked
    heard: list[Event] = []
    model.fit(X, session=st.Session(listeners=[heard.append]))
    texts = [event.text for event in heard if isinstance(event, PlanMade)]
    assert len(asked) == 1
    assert texts == [explain(model.plan_)]
