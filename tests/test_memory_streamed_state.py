"""Optimizer state of a parameter that is large beside the budget: it stays on the host and is updated in rows."""

from __future__ import annotations

import copy
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'stretto[memory]'")

import torch
import torch.nn.functional as F
from torch import nn

from stretto.memory import Step
from stretto.memory import step as planned_step
from stretto.memory.planner.planner import Infeasible
from stretto.memory.run import optimizers
from stretto.memory.run.devices import PlainDevice

pytestmark = pytest.mark.usefixtures("one_torch_thread")
ROWS, WIDTH = 4000, 16
TABLE = ROWS * WIDTH * 4
OPTIMIZERS: dict[str, Any] = {
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),  # makes its state at once
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
}


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizers, "_LEAST", 4096)


class Words(nn.Module):
    """The sum of a few rows of a table, not as a bag."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(ROWS, WIDTH, padding_idx=3)

    def forward(self, x: Any) -> Any:
        return self.table(x).sum(1)


def made(name: str, table: nn.Module | None = None) -> tuple[Any, torch.optim.Optimizer, Any]:
    torch.manual_seed(0)
    table = table or nn.EmbeddingBag(ROWS, WIDTH, mode="sum")
    model = nn.Sequential(table, nn.Linear(WIDTH, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = OPTIMIZERS[name](model.parameters())

    def step(batch: Any) -> Any:
        optimizer.zero_grad()
        loss = F.mse_loss(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        return loss.detach()

    return model, optimizer, step


def batch_of(rows: int, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return torch.randint(0, ROWS, (rows, 3)), torch.randn(rows, 1)


def under(budget: float, given: Any, **options: Any) -> Step:
    device = PlainDevice(late=0.5, poison=True)
    run = planned_step(given[2], [given[0]], [given[1]], batch_of(64), budget=int(budget), device=device, **options)
    assert isinstance(run, Step)
    return run


def same(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_update_of_a_large_table_needs_no_memory_for_its_state(name: str) -> None:
    plain, ours = made(name), made(name)
    run = under(2.3 * TABLE, ours)  # the table and its gradient
    assert run.report.peak <= 2.3 * TABLE
    assert "stays on the host" in run.report.explain()
    for k in range(4):
        batch = batch_of(64 if k != 2 else 16, k)  # another shape has a plan of its own
        assert torch.equal(run(batch), plain[2](batch))
    run.settle()
    assert same(ours[0], plain[0])
    states = [optimizer.state_dict()["state"][0] for optimizer in (ours[1], plain[1])]
    assert all(torch.equal(torch.as_tensor(x), torch.as_tensor(states[1][key])) for key, x in states[0].items())
    with pytest.raises(Infeasible, match="smallest"):
        under(TABLE, made(name))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_gradients_of_tables_are_made_in_rows(name: str) -> None:
    torch.manual_seed(0)
    table = Words()
    plain, ours = made(name, copy.deepcopy(table)), made(name, table)
    run = under(1.3 * TABLE, ours)
    assert "computed and used in rows" in run.report.explain()
    for k in range(3):
        assert torch.equal(run(batch_of(64, k)), plain[2](batch_of(64, k)))
    run.settle()
    assert same(ours[0], plain[0])


def test_those_of_bags_are_equal_up_to_rounding_and_wait_to_be_asked() -> None:
    plain, ours = made("Adam"), made("Adam")
    with pytest.raises(Infeasible):
        under(1.3 * TABLE, made("Adam"))
    run = under(1.3 * TABLE, ours, chunks="auto")
    for k in range(3):
        assert torch.allclose(run(batch_of(64, k)), plain[2](batch_of(64, k)))


def test_a_gradient_that_is_read_is_made_as_a_whole() -> None:
    model, optimizer, _ = given = made("SGD", Words())

    def step(batch: Any) -> Any:
        optimizer.zero_grad()
        loss = F.mse_loss(model(batch[0]), batch[1])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        return loss.detach()

    with pytest.raises(Infeasible):
        under(1.3 * TABLE, (model, optimizer, step))
    assert under(2.4 * TABLE, (*given[:2], step))


def test_state_that_is_loaded_goes_to_the_host() -> None:
    plain, ours = made("Adam"), made("Adam")
    run = under(2.3 * TABLE, ours)
    for one in (run, plain[2]):
        for k in range(2):
            one(batch_of(64, k))
    saved = copy.deepcopy(plain[1].state_dict())
    for k in range(2, 4):
        run(batch_of(64, k))
    ours[1].load_state_dict(saved)
    ours[0].load_state_dict(plain[0].state_dict())
    for k in range(4, 6):
        assert torch.equal(run(batch_of(64, k)), plain[2](batch_of(64, k)))
    run.close()
    assert same(ours[0], plain[0])
    assert torch.equal(ours[1].state[ours[0][0].weight]["exp_avg"], plain[1].state[plain[0][0].weight]["exp_avg"])


def test_plans_share_the_places_on_the_host_and_the_host_budget_holds() -> None:
    ours = made("Adam")
    run = under(2.3 * TABLE, ours, host_budget=int(4.2 * TABLE))
    assert run.planned.costs.host >= 2 * TABLE
    for rows in (64, 8, 16, 24, 32):
        run(batch_of(rows))
    assert len(run.plans) == 5
    assert run._host.nbytes <= 4.2 * TABLE
    with pytest.raises(Infeasible, match="host_budget"):
        under(2.3 * TABLE, made("Adam"), host_budget=TABLE)


def test_few_long_rows_are_not_updated_from_the_host() -> None:
    torch.manual_seed(0)
    model = nn.Linear(30_000, 2, bias=False)
    optimizer = torch.optim.Adam(model.parameters())

    def step(batch: Any) -> Any:
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    budget = int(3.3 * model.weight.numel() * 4)  # a row of it would be as large as half of the parameter
    with pytest.raises(Infeasible):
        planned_step(step, [model], [optimizer], torch.ones(1, 30_000), budget=budget, device=PlainDevice())


def test_without_copies_nothing_stays_on_the_host() -> None:
    with pytest.raises(Infeasible):
        under(2.3 * TABLE, made("Adam"), place=False)


def test_state_that_is_made_in_rows_goes_to_its_place() -> None:
    p = nn.Parameter(torch.zeros(8, 4))
    p.grad = torch.ones_like(p)
    optimizer = torch.optim.AdamW([p])
    places = {name: torch.empty(8 * 4 * 4, dtype=torch.uint8) for name in ("exp_avg", "exp_avg_sq")}
    turns = optimizers.PartialUpdates(optimizer, [p])
    for _ in range(2):
        turns.run(chunk_bytes=32, places=places)
    state = optimizer.state[p]
    assert state["exp_avg"].data_ptr() == places["exp_avg"].data_ptr()
    assert int(state["step"]) == 2
    assert torch.allclose(state["exp_avg"], torch.full((8, 4), 0.19))
