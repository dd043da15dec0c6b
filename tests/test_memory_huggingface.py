"""Unmodified models of Hugging Face's transformers, with random weights: planned steps give the bits of plain ones."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'stretto[memory]'")
pytest.importorskip("transformers", reason="needs transformers: pip install transformers")

import torch

from stretto.errors import PlanError
from stretto.memory import Step, step
from stretto.memory.run.devices import PlainDevice

transformers: Any = importlib.import_module("transformers")  # its own types are not what its constructors take
WORDS, LENGTH = 96, 16
pytestmark = pytest.mark.usefixtures("one_torch_thread")


def llama(how: str) -> Any:
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=WORDS,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=LENGTH,
            attn_implementation=how,
        )
    )


def gpt2(how: str) -> Any:
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=WORDS, n_embd=32, n_layer=2, n_head=4, n_positions=LENGTH, attn_implementation=how
        )
    )


def bert(how: str) -> Any:
    return transformers.BertForMaskedLM(
        transformers.BertConfig(
            vocab_size=WORDS,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=LENGTH,
            attn_implementation=how,
        )
    )


MODELS: dict[str, Callable[[str], Any]] = {"llama": llama, "gpt2": gpt2, "bert": bert}


def batch_of(masked: bool) -> dict[str, torch.Tensor]:
    words = torch.randint(0, WORDS, (4, LENGTH), generator=torch.Generator().manual_seed(1))
    batch = {"input_ids": words, "labels": words.clone()}
    if masked:
        mask = torch.ones_like(words)
        mask[1, LENGTH // 2 :] = 0
        batch["attention_mask"] = mask
        batch["labels"][mask == 0] = -100
    return batch


def step_of(model: Any, optimizer: torch.optim.Optimizer) -> Callable[[Any], Any]:
    def train_step(batch: Any) -> Any:
        optimizer.zero_grad()
        said = model(**batch)
        said.loss.backward()
        optimizer.step()
        return said.loss

    return train_step


@pytest.mark.parametrize(("how", "masked"), [("sdpa", True), ("eager", False)])
@pytest.mark.parametrize("kind", MODELS)
def test_planned_steps_of_unmodified_models(kind: str, how: str, masked: bool) -> None:
    torch.manual_seed(0)
    model = MODELS[kind](how).train()
    other = copy.deepcopy(model)
    optimizer, plain = (torch.optim.AdamW(m.parameters(), lr=1e-3) for m in (model, other))
    batch = batch_of(masked)
    device = PlainDevice(late=0.7, poison=True)
    planned = step(step_of(model, optimizer), [model], [optimizer], batch, budget="300KiB", device=device)
    assert isinstance(planned, Step), planned.why
    assert planned.planned.costs.bytes_out or planned.planned.costs.repeated
    plain_step = step_of(other, plain)
    for k in range(2):
        torch.manual_seed(k)
        mine = planned(batch)
        torch.manual_seed(k)
        assert torch.equal(mine, plain_step(batch).detach())
    for (name, a), b in zip(model.state_dict().items(), other.state_dict().values(), strict=True):
        assert torch.equal(a, b), name


def test_what_the_model_returns_comes_back_as_it_is() -> None:
    torch.manual_seed(0)
    model = llama("sdpa").train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train_step(batch: Any) -> Any:
        optimizer.zero_grad()
        said = model(**batch, use_cache=False)
        said.loss.backward()
        optimizer.step()
        return said

    batch = batch_of(masked=False)
    planned = step(train_step, [model], [optimizer], batch, budget="1GiB", device=PlainDevice())
    assert isinstance(planned, Step), planned.why
    said = planned(batch)
    assert type(said).__name__ == "CausalLMOutputWithPast"
    assert said.logits.shape == (4, LENGTH, WORDS)


def test_batches_that_are_not_looked_into_are_refused() -> None:
    model = llama("sdpa")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = transformers.BatchEncoding(batch_of(masked=False))
    with pytest.raises(PlanError, match=r"dict\(batch\)"):
        step(step_of(model, optimizer), [model], [optimizer], batch, budget="1GiB", device=PlainDevice())
