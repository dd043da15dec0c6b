"""Steps that read values into Python: a plan for each branch, with the bits of the plain step."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'stretto[memory]'")

import torch
import torch.nn.functional as F
from torch import nn

from stretto.memory import Step
from stretto.memory import step as planned_step
from stretto.memory.run.devices import PlainDevice

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


@pytest.mark.parametrize("budget", [34_000, 37_000, 40_000])
def test_a_step_that_begins_again_has_all_that_was_on_its_way(budget: int) -> None:
    found = []
    for plan in (False, True):
        model, optimizer, _ = case(item)

        def step(batch: Any, model: Any = model, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = F.mse_loss(model(batch[0]), batch[1])
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            if norm > 0.8 and loss.item() < 3:
                return loss.detach()
            optimizer.step()
            return loss.detach()

        device = PlainDevice(late=1.0, poison=True)
        run = planned_step(step, [model], [optimizer], batches()[0], budget=budget, device=device) if plan else step
        assert not plan or isinstance(run, Step)
        found.append(trained((model,), run, batches()))
    assert found[0][0] == found[1][0]
    assert all(torch.equal(a, b) for a, b in zip(found[0][1], found[1][1], strict=True))


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


def test_a_value_and_a_number_of_the_batch_are_told_apart() -> None:
    made = case(lambda model, batch: F.mse_loss(model(batch[0]), batch[1]) * batch[2])

    def step(batch: Any) -> Any:
        loss = made[2](batch)
        return loss, loss.item(), batch[2] * 2

    run = planned_step(step, [made[0]], [made[1]], (*batches()[0], 0.5), budget=1 << 20, device=PlainDevice())
    assert isinstance(run, Step)
    loss, value, twice = run((*batches()[0], 0.25))
    assert (value, twice) == (loss.item(), 0.5)


class Compares(nn.Module):
    """A threshold and a factor that may change between steps."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.threshold, self.factor = nn.Linear(16, 4), 30.0, 1.0
        self.last: Any = None

    def forward(self, x: Any) -> Any:
        return self.layer(x)


@pytest.mark.parametrize("changed", ["threshold", "factor"])
def test_numbers_that_values_are_compared_with_may_change(changed: str) -> None:
    found = []
    x, y = batches()[0]
    for plan in (False, True):
        torch.manual_seed(0)
        model = Compares()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

        def step(batch: Any, model: Any = model, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = F.mse_loss(model(batch[0]), batch[1])
            if loss.item() > model.threshold:
                loss = loss * model.factor
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = planned_step(step, [model], [optimizer], (x, y), budget=1 << 20, device=PlainDevice()) if plan else step
        losses = []
        for k, size in enumerate((1.0, 8.0, 1.0, 1.0, 8.0)):
            if k == 3:
                setattr(model, changed, 3.0)
            losses.append(run((x, size * y)).item())
        found.append(losses)
    assert found[0] == found[1]


def test_values_that_are_kept_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    model = Compares()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(batch: Any) -> Any:
        optimizer.zero_grad()
        loss = F.mse_loss(model(batch[0]), batch[1])
        model.last = loss.item()
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = planned_step(step, [model], [optimizer], batches()[0], budget=1 << 20, device=PlainDevice())
    assert not isinstance(run, Step)
    assert "keeps" in caplog.text
    assert model.last is None


def test_a_branch_that_raises_raises_what_the_step_does() -> None:
    def loss_of(model: nn.Module, batch: Any) -> Any:
        loss = F.mse_loss(model(batch[0]), batch[1])
        if loss.item() > 50.0:
            raise ValueError("diverged")
        return loss

    made = case(loss_of)
    run = planned_step(made[2], [made[0]], [made[1]], batches()[0], budget=1 << 20, device=PlainDevice())
    assert isinstance(run, Step)
    run(batches()[0])
    with pytest.raises(ValueError, match="diverged"):
        run((batches()[0][0], 100 * batches()[0][1]))
    assert math.isfinite(run(batches()[1]).item())


def test_guesses_do_not_exit_or_write_files(tmp_path: Path) -> None:
    kept = tmp_path / "best.pt"
    kept.write_text("precious")

    def exits(model: nn.Module, batch: Any) -> Any:
        loss = F.mse_loss(model(batch[0]), batch[1])
        if loss > 1e4:
            raise SystemExit("diverged")
        return loss

    def saves(model: nn.Module, batch: Any) -> Any:
        loss = F.mse_loss(model(batch[0]), batch[1])
        if loss.item() < 1.5:
            torch.save(model.state_dict(), kept)
        return loss

    for loss_of in (exits, saves):
        made = case(loss_of)
        run = planned_step(made[2], [made[0]], [made[1]], batches()[0], budget=1 << 20, device=PlainDevice())
        assert isinstance(run, Step)
    assert kept.read_text() == "precious"


def test_many_conditions_in_a_loop_are_guessed_together() -> None:
    def loss_of(model: nn.Module, batch: Any) -> Any:
        rows = F.mse_loss(model(batch[0]), batch[1], reduction="none").mean(1)
        total = rows.sum()
        for row in rows[:20]:
            if row > 50.0:
                total = total + row
        return total

    plain, ours = case(loss_of), case(loss_of)
    run = planned_step(ours[2], [ours[0]], [ours[1]], batches()[0], budget=1 << 20, device=PlainDevice())
    assert isinstance(run, Step)
    assert trained(ours, run, batches()[:2])[0] == trained(plain, plain[2], batches()[:2])[0]
    assert len(run.plans) <= 3


def test_a_name_that_is_not_only_called_is_not_replaced(caplog: pytest.LogCaptureFixture) -> None:
    def loss_of(model: nn.Module, batch: Any) -> Any:
        loss, factor = F.mse_loss(model(batch[0]), batch[1]), 0.5
        if float(loss.detach()) > 100.0:
            return loss
        return loss * factor if type(factor) is float else loss

    made = case(loss_of)
    run = planned_step(made[2], [made[0]], [made[1]], batches()[0], budget=1 << 20, device=PlainDevice())
    assert not isinstance(run, Step)
    assert "reads a value" in caplog.text


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
    assert "loss > 1.5" in caplog.text  # the line that decides


def test_names_of_the_users_module_are_put_back() -> None:
    made = case(converted)
    run = planned_step(made[2], [made[0]], [made[1]], batches()[0], budget=1 << 20, device=PlainDevice())
    assert isinstance(run, Step)
    assert "float" not in globals()
