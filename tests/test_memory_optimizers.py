"""Optimizers as they are: a large parameter is updated in chunks, with the same bits."""

from __future__ import annotations

import copy
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'stretto[memory]'")

import torch
import torch.nn.functional as F
from torch import nn

from stretto.memory import Step, train_step
from stretto.memory.capture.lifted import OptimizerUpdate
from stretto.memory.front_end import common_step
from stretto.memory.run import optimizers
from stretto.memory.run.devices import PlainDevice
from stretto.memory.run.optimizers import PartialUpdates, update_chunk_bytes

WAYS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"momentum": 0.9, "weight_decay": 0.1}),
    ("SGD", {}),
    ("Adam", {"amsgrad": True}),
    ("AdamW", {"foreach": True}),
    ("NAdam", {}),
    ("RAdam", {}),
    ("Adamax", {}),
    ("Adagrad", {"initial_accumulator_value": 0.3}),
    ("Adadelta", {}),
    ("RMSprop", {"centered": True, "momentum": 0.5}),
]


@pytest.mark.parametrize(("name", "options"), WAYS, ids=str)
@pytest.mark.parametrize("shape", [(100, 7), (3, 2, 41)])
def test_pieces_give_the_bits_of_the_whole(name: str, options: dict[str, Any], shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    plain = nn.Parameter(torch.randn(shape))
    cut = nn.Parameter(plain.detach().clone())
    both = [getattr(torch.optim, name)([p, nn.Parameter(torch.ones(2))], lr=0.1, **options) for p in (plain, cut)]
    assert update_chunk_bytes(both[1], 1 << 40) > 0
    turns = PartialUpdates(both[1], [cut])
    for _ in range(4):
        plain.grad = torch.randn(shape[::-1]).permute(*reversed(range(len(shape))))  # laid out otherwise
        cut.grad = plain.grad.clone()
        both[0].step()
        turns.run(chunk_bytes=5 * 7 * 4)
        assert torch.equal(plain, cut)
    states = [one.state[p] for one, p in zip(both, (plain, cut), strict=True)]
    assert states[0].keys() == states[1].keys()
    for key, x in states[0].items():
        assert torch.equal(torch.as_tensor(x), torch.as_tensor(states[1][key])), key
    assert all(p is cut or p.shape == (2,) for p in both[1].state)


def test_an_optimizer_that_looks_at_all_of_a_parameter_gets_all_of_it() -> None:
    class Normed(torch.optim.SGD):
        """As those do that scale an update by a norm."""

    assert update_chunk_bytes(Normed([nn.Parameter(torch.ones(2))], lr=0.1), 1 << 40) == 0


def test_a_step_updates_large_parameters_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizers, "_LEAST", 1 << 10)
    torch.manual_seed(0)
    models = [nn.Sequential(nn.Embedding(1000, 16), nn.Flatten(), nn.Linear(64, 4))]
    models.append(copy.deepcopy(models[0]))
    batch = torch.randint(0, 1000, (8, 4)), torch.randn(8, 4)
    makes = [torch.optim.Adam(model.parameters(), 0.1) for model in models]
    plain = common_step(models[0], F.mse_loss, makes[0])
    planned = train_step(
        models[1], F.mse_loss, makes[1], batch, budget="288KiB", device=PlainDevice(late=0.5, poison=True)
    )
    assert isinstance(planned, Step)
    pieces = [run.chunk_bytes for run in planned._captured.lifted.runs if isinstance(run, OptimizerUpdate)]
    assert max(pieces) == (288 << 10) // 128
    room = max(node.workspace for node in planned.planned.program.graph.nodes if node.phase == "update")
    assert room < 1000 * 16 * 4
    for _ in range(3):
        assert torch.equal(planned(batch), plain(batch).detach())
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(one, other)
