"""Steps that read values into Python: a plan for each branch, with the bits of the plain step."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'stretto[memory]'")

import torch
import torch.nn.functional as F
from torch import nn

from stretto.memory import Step
from stretto.memory import step as planned_step
from stretto.memory.devices import PlainDevice

pytestmark = pytest.mark.usefixtures("one_torch_thread")
Loss = Callable[[nn.Module, Any], Any]


def item(model: nn.Module, batch: Any) -> Any:
    loss = F.mse_loss(model(batch[0]), batch[1])
    return loss.sqrt() if loss.item() > 2.0 else loss


def converted(model: nn.Module, batch: Any) -> Any:
    loss = F.mse_loss(model(batch[0]), batch[1])
    return loss.sqrt() if float(loss.detach()) > 2.0 else loss


def compared(model: nn.Module, batch: Any) -> Any:
    loss = F.mse_loss(model(batch[0]), batch[1])
    if loss > 2.0:
        return loss.sqrt()
    if loss < 0.9:
        return 2 * loss
    return loss


def whole(model: nn.Module, batch: Any) -> Any:
    loss = F.mse_loss(model(batch[0]), batch[1])
    return loss / 2 if int(10 * loss) >= 3 else loss


def raised(model: nn.Module, batch: Any) -> Any:
    if (batch[0] > 100).any():
        raise ValueError("too large")
    return F.mse_loss(model(batch[0]), batch[1])


def case(loss_of: Loss, *, skip: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.Tanh(), nn.Dropout(0.3), nn.Linear(64, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def step(batch: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        if skip and not torch.isfinite(loss):
            return loss.detach()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return model, optimizer, step


def batches() -> list[Any]:
    torch.manual_seed(1)
    sizes = [1.0, 1.0, 3.0, 0.1, 3.0, 1.0, 0.1]
    return [(torch.randn(32, 16), size * torch.randn(32, 4)) for size in sizes]


def trained(made: Any, run: Any, given: list[Any]) -> tuple[list[float], list[torch.Tensor]]:
    losses = []
    for k, batch in enumerate(given):
        torch.manual_seed(k)
        losses.append(float(run(batch)))
    return losses, [x.detach().clone() for x in made[0].state_dict().values()]


@pytest.mark.parametrize("loss_of", [item, converted, compared, whole, raised])
def test_each_branch_has_a_plan_and_the_bits_of_the_plain_step(loss_of: Loss) -> None:
    given = batches()
    plain = case(loss_of)
    losses, state = trained(plain, plain[2], given)
    ours = case(loss_of)
    device = PlainDevice(late=0.5, poison=True)
    run = planned_step(ours[2], [ours[0]], [ours[1]], given[0], budget=40_000, device=device)
    assert isinstance(run, Step)
    found, now = trained(ours, run, given)
    run.settle()
    assert found == losses
    assert all(torch.equal(a, b) for a, b in zip(now, state, strict=True))
    assert len(run.plans) == {"compared": 3, "raised": 1}.get(loss_of.__name__, 2)


@pytest.mark.parametrize("causal", [True, False])
def test_layers_that_look_at_their_mask_are_planned(causal: bool) -> None:
    """torch's transformer layers compare a mask with a causal one."""
    mask = torch.triu(torch.full((5, 5), -math.inf), 1 if causal else 2)
    batch = torch.randn(3, 5, 8), torch.randn(3, 7, 8)
    found = []
    for plan in (False, True):
        torch.manual_seed(0)
        model = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0, batch_first=True), 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(batch: Any, model: nn.Module = model, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = model(*batch, mask).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = planned_step(step, [model], [optimizer], batch, budget=1 << 20, device=PlainDevice()) if plan else step
        assert not plan or isinstance(run, Step)
        found.append([float(run(batch)) for _ in range(3)])
    assert found[0] == found[1]


def test_a_step_that_is_left_out_changes_nothing() -> None:
    given = batches()[:4]
    given[2] = (given[2][0], torch.full((32, 4), math.nan))
    plain = case(item, skip=True)
    losses, state = trained(plain, plain[2], given)
    ours = case(item, skip=True)
    run = planned_step(ours[2], [ours[0]], [ours[1]], given[0], budget=40_000, device=PlainDevice(poison=True))
    assert isinstance(run, Step)
    found, now = trained(ours, run, given)
    assert str(found) == str(losses)
    assert math.isnan(found[2])
    assert all(torch.equal(a, b) for a, b in zip(now, state, strict=True))


def test_a_value_may_be_returned() -> None:
    made = case(lambda model, batch: F.mse_loss(model(batch[0]), batch[1]))

    def step(batch: Any) -> Any:
        loss = made[2](batch)
        return {"loss": loss, "shown": 2 * loss.item()}

    batch = batches()[0]
    run = planned_step(step, [made[0]], [made[1]], batch, budget=60_000, device=PlainDevice())
    assert isinstance(run, Step)
    for _ in range(2):
        result = run(batch)
        assert type(result["shown"]) is float
        assert result["shown"] == 2 * result["loss"].item()
    assert len(run.plans) == 1


@pytest.mark.parametrize(
    ("loss_of", "why"),
    [
        (lambda model, batch: (x := model(batch[0]).square().mean()) * x.item(), "uses it"),
        (lambda model, batch: model(batch[0]).mean() * len(range(int(batch[1].abs().sum()))), "uses it"),
        (lambda model, batch: model(batch[0]).mean() + math.sqrt(batch[1].abs().sum()), "reads a value"),
    ],
)
def test_values_that_are_used_are_refused(loss_of: Loss, why: str, caplog: pytest.LogCaptureFixture) -> None:
    made = case(loss_of)
    run = planned_step(made[2], [made[0]], [made[1]], batches()[0], budget=1 << 20, device=PlainDevice())
    assert not isinstance(run, Step)
    assert why in caplog.text
    assert "test_memory_branches.py" in caplog.text


def test_values_are_read_before_updates(caplog: pytest.LogCaptureFixture) -> None:
    made = case(lambda model, batch: F.mse_loss(model(batch[0]), batch[1]))

    def step(batch: Any) -> Any:
        loss = made[2](batch)
        return loss * 2 if loss > 1.5 else loss

    run = planned_step(step, [made[0]], [made[1]], batches()[0], budget=1 << 20, device=PlainDevice())
    assert not isinstance(run, Step)
    assert "before optimizer.step()" in caplog.text


def test_names_of_the_users_module_are_put_back() -> None:
    made = case(converted)
    planned_step(made[2], [made[0]], [made[1]], batches()[0], budget=1 << 20, device=PlainDevice())
    assert "float" not in globals()
