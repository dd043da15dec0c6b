"""Lightning under a budget: what is logged, validated and saved is what plain training logs, validates and saves."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'stretto[memory]'")
pytest.importorskip("lightning", reason="needs lightning: pip install lightning")

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from memory_plans import Counted
from stretto.errors import PlanError
from stretto.memory import Step
from stretto.memory.integrations.lightning import BudgetStrategy
from stretto.memory.run.devices import PlainDevice

lightning: Any = importlib.import_module("lightning")
pytestmark = [
    pytest.mark.usefixtures("one_torch_thread"),
    pytest.mark.filterwarnings("ignore"),
]


class Module(lightning.LightningModule):  # type: ignore[misc]
    """Dense layers with batch norm; logs two numbers, one of them weighted with the number of the batch."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        hidden = nn.Linear(12, 24), nn.BatchNorm1d(24), nn.GELU(), nn.Linear(24, 24), nn.GELU()
        self.layers = nn.Sequential(*hidden, nn.Linear(24, 3))
        self.seen: list[Any] = []

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        said = self.layers(x)
        loss = F.cross_entropy(said, y)
        self.log("loss", loss, on_step=True, on_epoch=True)
        self.log_dict({"right": (said.argmax(1) == y).float().mean(), "scaled": loss * (batch_idx + 1)})
        return {"loss": loss, "said": said}

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("validation", F.cross_entropy(self.layers(batch[0]), batch[1]))

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.seen.append({k: v.item() for k, v in self.trainer.callback_metrics.items()})

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)]


def data(rows: int = 29) -> DataLoader[Any]:
    draw = torch.Generator().manual_seed(1)
    x, y = torch.randn(rows, 12, generator=draw), torch.randint(0, 3, (rows,), generator=draw)
    return DataLoader(TensorDataset(x, y), batch_size=8)


def trainer(folder: Path, strategy: Any, **options: Any) -> Any:
    return lightning.Trainer(
        strategy=strategy,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        **{"max_epochs": 2, "enable_checkpointing": False} | options,
    )


def budget() -> BudgetStrategy:
    device = PlainDevice(late=0.7, poison=True)
    strategy = BudgetStrategy("24KiB", "cpu")
    strategy._memory["device"] = device
    return strategy


def same(planned: Module, plain: Module) -> None:
    assert planned.seen == plain.seen
    assert {"loss_step", "right", "scaled", "validation"} <= set(plain.seen[-1])
    for (name, a), b in zip(planned.state_dict().items(), plain.state_dict().values(), strict=True):
        assert torch.equal(a, b), name


@pytest.mark.parametrize(
    "options", [{"gradient_clip_val": 0.1}, {"precision": "bf16-mixed"}, {"val_check_interval": 2}]
)
def test_the_same_numbers_as_plain_training(
    tmp_path: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Counted(monkeypatch)
    modules = Module(), Module()
    strategy = budget()
    trainer(tmp_path, strategy, **options).fit(modules[0], data(), data(10))
    trainer(tmp_path, "auto", **options).fit(modules[1], data(), data(10))
    same(*modules)
    assert made.plans == 2  # whole batches, and the last one of an epoch
    assert strategy.memory_step is None


def test_accumulated_batches(tmp_path: Path) -> None:
    modules = Module(), Module()
    trainer(tmp_path, budget(), accumulate_grad_batches=2).fit(modules[0], data(24), data(10))
    trainer(tmp_path, "auto", accumulate_grad_batches=2).fit(modules[1], data(24), data(10))
    for (name, a), b in zip(modules[0].state_dict().items(), modules[1].state_dict().values(), strict=True):
        assert torch.equal(a, b), name
    assert modules[0].seen[-1]["loss_epoch"] == pytest.approx(modules[1].seen[-1]["loss_epoch"])


@pytest.mark.slow
def test_saving_and_going_on(tmp_path: Path) -> None:
    whole, plain, first, second = Module(), Module(), Module(), Module()
    trainer(tmp_path, "auto").fit(plain, data(), data(10))
    trainer(tmp_path, budget()).fit(whole, data(), data(10))
    same(whole, plain)
    half = trainer(tmp_path, budget(), max_epochs=1)
    half.fit(first, data(), data(10))
    half.save_checkpoint(tmp_path / "half.ckpt")
    trainer(tmp_path, budget()).fit(second, data(), data(10), ckpt_path=tmp_path / "half.ckpt")
    for (name, a), b in zip(second.state_dict().items(), plain.state_dict().values(), strict=True):
        assert torch.equal(a, b), name


def test_the_plan_can_be_read_while_training(tmp_path: Path) -> None:
    seen: list[Any] = []
    strategy = budget()

    class Reads(lightning.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, *_: Any) -> None:
            seen.append(strategy.memory_step)

    trainer(tmp_path, strategy, max_steps=2, callbacks=[Reads()]).fit(Module(), data())
    assert isinstance(seen[0], Step), seen[0].why
    assert "budget 24.0 KiB" in seen[0].report.explain()


def test_hooks_that_would_never_be_called_are_refused(tmp_path: Path) -> None:
    class Clips(Module):
        def configure_gradient_clipping(self, *_: Any, **__: Any) -> None:
            pass

    with pytest.raises(PlanError, match="configure_gradient_clipping"):
        trainer(tmp_path, budget()).fit(Clips(), data())
