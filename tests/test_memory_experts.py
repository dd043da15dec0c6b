"""Layers of experts: what they compute, what they drop, their gradients, and steps under a budget."""

from __future__ import annotations

import copy
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'stretto[memory]'")

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import stretto as st
from stretto.errors import PlanError
from stretto.memory.devices import PlainDevice
from stretto.memory.planner import Infeasible

LAYERS = (st.memory.PaddedExperts, st.memory.Experts)


def layer_of(kind: Any, *sizes: int, factor: float = 2.0, seed: int = 0, dtype: torch.dtype = torch.float32) -> Any:
    torch.manual_seed(seed)
    return kind(*sizes, factor=factor).to(dtype)


def by_hand(layer: Any, x: torch.Tensor) -> tuple[torch.Tensor, int]:
    """One word after another; how many found no room."""
    taken, dropped, said = [0] * len(layer.up), 0, []
    for word in x:
        share = torch.softmax(layer.gate.weight @ word, 0)
        e = int(share.argmax())
        if taken[e] == max(1, int(layer.factor * len(x) / len(taken))):
            dropped += 1
            said.append(torch.zeros_like(word))
            continue
        taken[e] += 1
        said.append(share[e] * (torch.relu(word @ layer.up[e]) @ layer.down[e]))
    return torch.stack(said), dropped


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0, 8.0])
def test_words_one_by_one_say_the_same(kind: Any, factor: float) -> None:
    layer = layer_of(kind, 6, 10, 4, factor=factor, dtype=torch.float64)
    x = torch.randn(3, 11, 6, dtype=torch.float64)
    expected, dropped = by_hand(layer, x.view(-1, 6))
    assert torch.allclose(layer(x), expected.view_as(x), rtol=1e-12, atol=1e-12)
    assert int(layer.dropped(x)) == dropped
    assert (dropped > 0) == (factor <= 1.0)  # with room for all nothing is lost, with half the room something must be


@pytest.mark.parametrize("kind", LAYERS)
def test_words_beyond_the_room_are_dropped_the_last_ones_first(kind: Any) -> None:
    layer = layer_of(kind, 4, 8, 2, factor=1.0)
    with torch.no_grad():
        layer.gate.weight.copy_(torch.tensor([[1.0] * 4, [-1.0] * 4]))
    x = torch.rand(6, 4, requires_grad=True)  # all of them prefer the first expert, which has room for three
    said = layer(x)
    assert layer.room(6) == 3
    assert int(layer.dropped(x)) == 3
    assert (said[:3] != 0).any(1).all()
    assert not said[3:].any()
    said.sum().backward()
    assert x.grad is not None
    assert x.grad[:3].any(1).all()
    assert not x.grad[3:].any()  # and they teach nothing


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("factor", [0.6, 2.0])
def test_gradients(kind: Any, factor: float) -> None:
    layer = layer_of(kind, 2, 3, 2, factor=factor, seed=3, dtype=torch.float64)
    names = [name for name, _ in layer.named_parameters()]
    x = torch.randn(5, 2, dtype=torch.float64, requires_grad=True)

    def said(x: torch.Tensor, *parameters: torch.Tensor) -> Any:
        return torch.func.functional_call(layer, dict(zip(names, parameters, strict=True)), (x,))

    assert torch.autograd.gradcheck(said, (x, *(p.detach().requires_grad_() for p in layer.parameters())))


def test_both_layers_are_one() -> None:
    padded, sparse = layer_of(LAYERS[0], 8, 16, 5), layer_of(LAYERS[1], 8, 16, 5)
    with torch.no_grad():
        sparse.gate.weight.copy_(padded.gate.weight)
        for e in range(5):
            sparse.up[e].copy_(padded.up[e])
            sparse.down[e].copy_(padded.down[e])
    x = torch.randn(40, 8)
    assert torch.allclose(padded(x), sparse(x), atol=1e-6)
    padded(x).square().sum().backward()
    sparse(x).square().sum().backward()
    for e in range(5):
        assert torch.allclose(padded.up.grad[e], sparse.up[e].grad, atol=1e-4)
    assert torch.allclose(padded.gate.weight.grad, sparse.gate.weight.grad, atol=1e-4)


@pytest.mark.parametrize("kind", LAYERS)
def test_mixed_precision(kind: Any) -> None:
    """Words in bfloat16 (after a dense layer) and in float32 (after a norm), and a layer that is bfloat16 itself."""
    layer = layer_of(kind, 8, 16, 4)
    x = torch.randn(20, 8)
    expected = layer(x)
    for words in (x, x.bfloat16()):
        with torch.autocast("cpu", torch.bfloat16):
            said = layer(words)
        close = (said.float() - expected).abs().amax(1) < 0.05 * expected.abs().max()
        assert close.sum() >= 18  # a gate in fewer bits may send a word elsewhere
        said.float().sum().backward()
    whole = layer.to(torch.bfloat16)
    assert whole(x.bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_steps_under_a_budget_give_the_same_bits(kind: Any, dtype: str) -> None:
    torch.manual_seed(1)
    plain = nn.Sequential(nn.Linear(32, 32), kind(32, 64, 3, factor=1.0), nn.Linear(32, 8))
    mine = copy.deepcopy(plain)
    batch = torch.randn(48, 32), torch.randint(0, 8, (48,))

    def step_of(model: nn.Module) -> tuple[Any, torch.optim.Optimizer]:
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

        def train_step(both: Any) -> Any:
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
                loss = F.cross_entropy(model(both[0]), both[1])
            loss.backward()
            optimizer.step()
            return loss.detach()

        return train_step, optimizer

    train_step, optimizer = step_of(mine)
    device = PlainDevice(late=0.7, seed=0, poison=True)
    with pytest.raises(Infeasible) as refused:
        st.memory.step(train_step, [mine], [optimizer], batch, budget=1000, device=device)
    budget = refused.value.smallest + 20_000
    step = st.memory.step(train_step, [mine], [optimizer], batch, budget=budget, device=device)
    assert isinstance(step, st.memory.Step)
    assert step.planned.costs.bytes_out > 0
    assert step.report.peak <= budget
    ordinary, _ = step_of(plain)
    for _ in range(3):
        assert torch.equal(step(batch), ordinary(batch))
    step.close()
    for (name, a), b in zip(mine.state_dict().items(), plain.state_dict().values(), strict=True):
        assert torch.equal(a, b), name


def test_sparse_experts_need_less_memory_than_padded_ones() -> None:
    def smallest(kind: Any) -> int:
        torch.manual_seed(0)
        model = nn.Sequential(kind(32, 128, 8), nn.Linear(32, 8))
        optimizer = torch.optim.Adam(model.parameters())
        batch = torch.randn(64, 32), torch.randint(0, 8, (64,))
        with pytest.raises(Infeasible) as refused:
            st.memory.plan(model, F.cross_entropy, optimizer, batch, budget=1000)
        return refused.value.smallest

    assert smallest(st.memory.Experts) < 0.5 * smallest(st.memory.PaddedExperts)


@pytest.mark.parametrize("kind", LAYERS)
def test_sizes_that_make_no_sense_are_refused(kind: Any) -> None:
    for sizes, factor in (((0, 4, 2), 1.0), ((4, 4, 0), 1.0), ((4, 4, 2), 0.0), ((4, 4, 2), float("nan"))):
        with pytest.raises(PlanError, match=r"pass sizes of 1 or more and a finite factor above 0"):
            kind(*sizes, factor=factor)


@pytest.mark.parametrize("kind", LAYERS)
def test_a_word_that_is_too_much_for_others_does_no_harm(kind: Any) -> None:
    """The first expert, which nobody asks about it, would make infinity of the large word."""
    layer = kind(2, 2, 2, factor=2.0)
    with torch.no_grad():
        layer.gate.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        for one in layer.parameters():
            if one is not layer.gate.weight:
                one.fill_(1.0)
        layer.up[0].fill_(3e38)
    layer(torch.tensor([[1e-3, 0.0], [0.0, 100.0]])).sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in layer.parameters() if p.grad is not None)


def test_checkpoints_and_no_words_at_all() -> None:
    layer = layer_of(st.memory.Experts, 4, 6, 3, seed=2)
    x = torch.randn(7, 4, requires_grad=True)
    layer(x).square().sum().backward()
    plain, x.grad = x.grad, None
    checkpoint(layer, x, use_reentrant=False).square().sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, plain)
    assert layer(x[:0]).shape == (0, 4)
