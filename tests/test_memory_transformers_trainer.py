"""The Trainer of transformers under a budget: losses, norms, evaluations and checkpoints of the plain Trainer."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'stretto[memory]'")
pytest.importorskip("transformers", reason="needs transformers: pip install transformers")
pytest.importorskip("accelerate", reason="needs accelerate: pip install accelerate")

import torch

from memory_plans import Counted
from stretto.errors import PlanError
from stretto.memory import Step
from stretto.memory.integrations.transformers import Trainer
from stretto.memory.run.devices import PlainDevice

transformers: Any = importlib.import_module("transformers")
WORDS, LENGTH, ROWS = 64, 12, 22
pytestmark = [
    pytest.mark.usefixtures("one_torch_thread"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]


def model() -> Any:
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=WORDS,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=LENGTH,
            attention_dropout=0.1,
            use_cache=False,
        )
    )


def data(rows: int = ROWS) -> list[dict[str, torch.Tensor]]:
    draw = torch.Generator().manual_seed(1)
    words = [torch.randint(0, WORDS, (LENGTH,), generator=draw) for _ in range(rows)]
    return [{"input_ids": one, "labels": one.where(one > 5, -100)} for one in words]


def arguments(folder: Path, **options: Any) -> Any:
    given: dict[str, Any] = {
        "output_dir": str(folder),
        "use_cpu": True,
        "per_device_train_batch_size": 4,
        "per_device_eval_batch_size": 3,
        "num_train_epochs": 2,
        "learning_rate": 0.01,
        "lr_scheduler_type": "cosine",
        "warmup_steps": 2,
        "logging_steps": 1,
        "report_to": [],
        "save_strategy": "no",
        "disable_tqdm": True,
        "seed": 3,
    }
    return transformers.TrainingArguments(**given | options)


def late() -> PlainDevice:
    return PlainDevice(late=0.7, poison=True)


def trainers(tmp_path: Path, budget: str = "80KiB", **options: Any) -> tuple[Any, Any]:
    plain = transformers.Trainer(
        model(), arguments(tmp_path / "plain", **options), train_dataset=data(), eval_dataset=data(7)
    )
    planned = Trainer(
        model(),
        arguments(tmp_path / "planned", **options),
        train_dataset=data(),
        eval_dataset=data(7),
        budget=budget,
        memory_options={"device": late()},
    )
    return plain, planned


def trained(*some: Any, **options: Any) -> None:
    for one in some:
        torch.manual_seed(5)
        one.train(**options)


def history(trainer: Any) -> list[dict[str, Any]]:
    timed = ("runtime", "second", "flos")
    return [{k: v for k, v in one.items() if not any(x in k for x in timed)} for one in trainer.state.log_history]


def same(plain: Any, planned: Any) -> None:
    assert history(planned) == history(plain)
    assert any("loss" in one for one in history(planned))
    for (name, a), b in zip(planned.model.state_dict().items(), plain.model.state_dict().values(), strict=True):
        assert torch.equal(a, b), name


@pytest.mark.parametrize(
    "options",
    [
        {"gradient_accumulation_steps": 2, "max_grad_norm": 0.5, "eval_strategy": "steps", "eval_steps": 2},
        pytest.param({"max_grad_norm": 0.0, "optim": "sgd", "lr_scheduler_type": "linear"}, marks=pytest.mark.slow),
        pytest.param(
            {"bf16": True, "label_smoothing_factor": 0.1, "gradient_checkpointing": True}, marks=pytest.mark.slow
        ),
    ],
)
def test_the_same_log_and_parameters_as_the_plain_trainer(
    tmp_path: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Counted(monkeypatch)
    plain, planned = trainers(tmp_path, **options)
    trained(plain, planned)
    same(plain, planned)
    assert made.plans == 2  # whole batches, and the last one of an epoch
    assert planned.memory_step is None


@pytest.mark.slow
def test_saving_and_going_on(tmp_path: Path) -> None:
    options = {"save_strategy": "steps", "save_steps": 4, "eval_strategy": "steps", "eval_steps": 4}
    plain, planned = trainers(tmp_path, "200KiB", **options)
    trained(plain, planned)
    same(plain, planned)
    whole = {name: one.clone() for name, one in planned.model.state_dict().items()}
    for kind in ("planned", "plain"):  # their checkpoints are the same
        resumed = trainers(tmp_path, "200KiB", **options)
        trained(*resumed, resume_from_checkpoint=str(tmp_path / kind / "checkpoint-8"))
        same(*resumed)
        for name, tensor in resumed[1].model.state_dict().items():
            assert torch.equal(tensor, whole[name]), name


@pytest.mark.slow
def test_the_best_model_is_loaded_at_the_end_and_evaluated_afterwards(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "save_strategy": "steps",
        "save_steps": 3,
        "eval_strategy": "steps",
        "eval_steps": 3,
        "load_best_model_at_end": True,
        "learning_rate": 0.5,
    }
    plain, planned = trainers(tmp_path, **options)
    trained(plain, planned)
    same(plain, planned)
    assert planned.evaluate()["eval_loss"] == plain.evaluate()["eval_loss"]


def test_the_plan_can_be_read_while_training(tmp_path: Path) -> None:
    seen: list[Any] = []

    class Reads(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            seen.append(planned.memory_step)

    _, planned = trainers(tmp_path, max_steps=2)
    planned.add_callback(Reads())
    planned.train()
    assert isinstance(seen[0], Step), seen[0].why
    assert "budget 80.0 KiB" in seen[0].report.explain()


def test_what_is_not_supported_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="bf16=True"):
        Trainer(model(), arguments(tmp_path, fp16=True), train_dataset=data(), budget="1MiB")
