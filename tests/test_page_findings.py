"""What stands out in a run: each rule speaks where it should, and is silent elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from stretto.observe.page.findings import busy, findings, waited_for


def made(**changes: Any) -> dict[str, Any]:
    """A run in which nothing stands out."""
    epochs = [1.0, 2.0, 3.0, 4.0, 5.0]
    series = {
        "epoch": epochs,
        "seconds": [1.0, 2.0, 3.0, 4.0, 5.0],
        "objective": [5.0, 4.0, 3.5, 3.4, 3.39],
        "test_rmse": [1.2, 1.1, 1.05, 1.04, 1.04],
    }
    state = {
        "status": "done", "message": "", "sessions": 1, "elapsed": 5.5, "saving": 0.1, "warnings": 0, "notes": [],
        "lanes": {"epoch": 5, "dropped": 0, "visits": [[w, 0, 0, 0, t * 10, 10] for w in (0, 1) for t in range(5)]},
    }  # fmt: skip
    return state | {"series": series | changes.pop("series", {})} | changes


def texts(state: dict[str, Any]) -> str:
    return " | ".join(one.text for one in findings(state))


def test_nothing_stands_out() -> None:
    assert findings(made()) == []


def test_whom_a_worker_waits_for() -> None:
    visits = [[0, 0, 0, 0, 0, 10], [1, 1, 1, 0, 0, 40], [2, 2, 2, 0, 0, 5]]  # worker, row block, column block, …
    visits += [[0, 1, 0, 0, 40, 10], [2, 2, 0, 0, 50, 1], [1, 5, 5, 0, 60, 40]]
    state = made(lanes={"epoch": 5, "dropped": 0, "visits": visits})
    assert waited_for(state, 0) == {1: 30 + 50}  # for its row block, then for its end
    assert waited_for(state, 2) == {0: 45, 1: 49}
    assert waited_for(state, 1) == {}
    assert "worker 2 the most with 94%, mostly for worker 1" in texts(state)


def test_workers_of_tables_that_wait() -> None:
    clocks = {"waits": [41.0, 3.0, 40.0], "seconds": 100.0, "bound": 2}
    assert "Worker 0 waited 41% of the time for slower ones; worker 1 is the slowest and waited 3%" in texts(
        made(clocks=clocks)
    )
    assert "All workers waited 30% of the time or more, worker 0 the most with 41%" in texts(
        made(clocks=clocks | {"waits": [41.0, 30.0]})
    )
    assert texts(made(clocks=clocks | {"waits": [10.0, 3.0]})) == ""
    assert texts(made(clocks=clocks | {"waits": []})) == ""


def test_a_step_that_takes_more_than_its_budget() -> None:
    memory = {"measured": 110, "budget": 100}
    assert "A step took 10.0% more memory than the budget" in texts(made(memory=memory))
    assert texts(made(memory=memory | {"measured": None})) == ""


WAITING = {"epoch": 5, "dropped": 0, "visits": [[0, 0, 0, 0, 0, 100], [1, 0, 1, 0, 0, 20]]}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"status": "failed", "message": "Diverged: NaN"}, "The run failed: Diverged: NaN."),
        ({"status": "interrupted"}, "its process died"),
        ({"status": "stopped"}, "stopped before its last epoch"),
        ({"status": "early"}, "by its stopping rule"),
        ({"series": {"objective": [5.0, 4.0, 3.0, 2.0, None]}}, "not a finite number"),
        ({"series": {"objective": [5.0, 4.0, 3.0, 3.1, 3.2]}}, "rose in the last two epochs"),
        ({"series": {"objective": [5.0, 4.0, 3.0, 2.5, 2.0]}}, "still fell by 20.0%"),
        ({"series": {"test_rmse": [1.2, 1.0, 1.1, 1.15, 1.2]}}, "test rmse was best at epoch 2 (1) and is 1.2 now"),
        ({"series": {"test_ndcg@10": [0.1, 0.3, 0.29, 0.28, 0.2]}}, "test ndcg@10 was best at epoch 2 (0.3)"),
        ({"lanes": WAITING}, "Workers waited 40% of epoch 5, worker 1 the most with 80%"),
        ({"lanes": WAITING}, "worker 0 had 67% more work"),
        ({"elapsed": 5.5, "saving": 2.0}, "Saving checkpoints took 36%"),
        ({"elapsed": 12.0}, "58% of the time was between epochs"),
        ({"series": {"seconds": [9.0, 10.0, 11.0, 12.0, 13.0]}, "elapsed": 13.5}, "The first epoch took 9.0 s"),
        ({"warnings": 3, "notes": [{"kind": "warning", "text": "slow disk"}]}, "Warning: slow disk | There are 2 more"),
    ],
)
def test_a_rule_speaks(changes: dict[str, Any], said: str) -> None:
    assert said in texts(made(**changes))


def test_rules_need_something_to_go_by() -> None:
    few: dict[str, list[float]] = {name: [] for name in ("epoch", "seconds", "objective", "test_rmse")}
    assert findings(made(series=few, lanes=None, elapsed=None, status="running")) == []
    higher = {"test_ndcg@10": [0.1, 0.2, 0.3, 0.4, 0.5]}
    assert findings(made(series=higher)) == []
    part = {"epoch": 5, "dropped": 9, "visits": WAITING["visits"]}
    assert findings(made(lanes=part)) == []  # shares of a part of an epoch would mislead


def test_a_worker_without_visits_counts() -> None:
    assert busy({"lanes": {"visits": [[2, 0, 0, 0, 0, 7]]}}) == {0: 0.0, 1: 0.0, 2: 7.0}
