"""Dropout whose result is recomputed from its mask: the bits of eager, and a result that may be dropped."""

from __future__ import annotations

import copy
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'stretto[memory]'")

import torch
from torch import nn

from stretto.memory import step
from stretto.memory.capture.trace_step import trace
from stretto.memory.operations import dropouts
from stretto.memory.operations.dropouts import cut_dropouts
from stretto.memory.planner.instructions import RECOMPUTE
from stretto.memory.planner.program import HostLink
from stretto.memory.run.devices import PlainDevice
from stretto.memory.run.planned_step import Step

pytestmark = pytest.mark.usefixtures("one_torch_thread")

SLOW_LINK = HostLink(out=1e8, into=1e8)  # recomputing is faster than copying


class Layers(nn.Module):
    """Linear layers with dropout between them."""

    def __init__(self, count: int = 6, width: int = 32) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.native_dropout(torch.tanh(layer(x)), 0.3, True)[0]  # what F.dropout is on a GPU
        return x


def job(model: nn.Module) -> tuple[Any, list[nn.Module], list[torch.optim.Optimizer], torch.Tensor]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def train(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    torch.manual_seed(1)
    return train, [model], [optimizer], torch.randn(2048, 32)


def test_a_dropout_is_drawing_and_multiplying() -> None:
    train, modules, optimizers, x = job(Layers())
    traced = trace(train, modules, optimizers, x, torch.device("cpu"))
    before = [str(node.target) for node in traced.module.graph.nodes]
    split, count = cut_dropouts(traced)
    after = [str(node.target) for node in split.module.graph.nodes]
    assert count == 6
    assert after.count("aten.mul.Tensor") == before.count("aten.mul.Tensor") + 12
    assert after.count("aten.native_dropout.default") == before.count("aten.native_dropout.default") == 6
    assert [str(node.target) for node in traced.module.graph.nodes] == before  # the trace itself is as it was


def test_other_bits_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    train, modules, optimizers, x = job(Layers())
    traced = trace(train, modules, optimizers, x, torch.device("cpu"))
    monkeypatch.setattr(dropouts, "_same_bits", lambda *_: False)
    assert cut_dropouts(traced) == (traced, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("chance", [0.05, 0.1, 0.3, 0.9])
def test_this_machine_has_the_same_bits_both_ways_and_no_number_is_drawn(dtype: torch.dtype, chance: float) -> None:
    torch.manual_seed(3)
    dropouts._same_bits(dtype, torch.device("cpu"), chance)
    drawn = torch.rand(4)
    torch.manual_seed(3)
    assert torch.equal(drawn, torch.rand(4))


def test_steps_with_masks_have_the_bits_of_eager() -> None:
    torch.manual_seed(0)
    model = Layers()
    plain = copy.deepcopy(model)
    train, modules, optimizers, x = job(model)
    eager = job(plain)[0]
    budget = 2_400_000  # eager takes about 4 MB
    made = step(
        train, modules, optimizers, x, budget=budget, device=PlainDevice(late=0.7, seed=0, poison=True), link=SLOW_LINK
    )
    assert isinstance(made, Step)
    assert any("dropouts are recomputed from their masks" in note for note in made.planned.notes)
    nodes = made.planned.program.graph.nodes
    again = [nodes[which].name for what, which in made.planned.program.instructions if what == RECOMPUTE]
    assert again
    assert not any("dropout" in name for name in again)
    for k in range(3):
        torch.manual_seed(10 + k)
        expected = eager(x)
        torch.manual_seed(10 + k)
        assert torch.equal(made(x), expected)
    made.settle()
    for one, other in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(one, other)
