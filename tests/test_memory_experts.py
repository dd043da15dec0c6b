"""Layers of experts: what they compute, what they drop, their gradients, and steps under a budget."""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'stretto[memory]'")

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import stretto as st
from stretto.errors import PlanError
from stretto.memory import Experts, PaddedExperts
from stretto.memory.planner.planner import Infeasible
from stretto.memory.run.devices import PlainDevice

DROPPING: dict[str, Any] = {
    "padded": PaddedExperts,
    "one group": Experts,
    "two groups": functools.partial(Experts, groups=2),
}


def layer_of(kind: Any, *sizes: int, seed: int = 0, dtype: torch.dtype = torch.float32, **options: Any) -> Any:
    torch.manual_seed(seed)
    return kind(*sizes, **options).to(dtype)


def send_all_to(layer: Any, expert: int) -> None:
    """Let tokens with positive numbers prefer one expert."""
    with torch.no_grad():
        layer.gate.weight.fill_(-1.0)[expert] = 1.0


def token_by_token(layer: Any, x: torch.Tensor) -> tuple[torch.Tensor, int]:
    """The same with a loop over tokens; how many of their experts had no capacity left."""
    taken, dropped, output = [0] * layer.experts, 0, []
    pairs = len(x) * layer.top_k
    capacity = pairs if layer.factor is None else max(1, int(layer.factor * pairs / layer.experts))
    for token in x:
        scores = layer.gate.weight @ token
        best = scores.topk(layer.top_k)
        share = best.values.softmax(0) if layer.top_k > 1 else scores.softmax(0)[best.indices]
        one = torch.zeros_like(token)
        for weight, e in zip(share, best.indices.tolist(), strict=True):
            up, down = layer.expert(e)
            if taken[e] == capacity:
                dropped += 1
                continue
            taken[e] += 1
            one = one + weight * (torch.relu(token @ up) @ down)
        output.append(one)
    return torch.stack(output), dropped


def expert_by_expert(layer: Any, x: torch.Tensor) -> torch.Tensor:
    """The same with a loop over experts, each selecting its tokens: no token dropped."""
    weight, chosen = layer.choose(x)
    output = torch.zeros_like(x)
    for e in range(layer.experts):
        token, j = torch.nonzero(chosen == e, as_tuple=True)
        up, down = layer.expert(e)
        made = torch.relu(x[token] @ up) @ down
        output = output.index_add(0, token, made * weight[token, j, None])
    return output


# -- what they compute -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", DROPPING)
@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0, 8.0])
def test_same_as_token_by_token_with_a_capacity_factor(kind: str, factor: float) -> None:
    layer = layer_of(DROPPING[kind], 6, 10, 4, factor=factor, dtype=torch.float64)
    x = torch.randn(3, 11, 6, dtype=torch.float64)
    expected, dropped = token_by_token(layer, x.view(-1, 6))
    assert torch.allclose(layer(x), expected.view_as(x), rtol=1e-12, atol=1e-12)
    assert int(layer.dropped(x)) == dropped
    assert (dropped > 0) == (factor <= 1.0)


@pytest.mark.parametrize("top_k", [1, 2, 3])
@pytest.mark.parametrize("factor", [None, 0.4, 1.2])
@pytest.mark.parametrize("groups", [1, 2, 5])
def test_same_as_token_by_token(top_k: int, factor: float | None, groups: int) -> None:
    layer = layer_of(Experts, 6, 10, 5, top_k=top_k, factor=factor, groups=groups, dtype=torch.float64)
    x = torch.randn(23, 6, dtype=torch.float64)
    expected, dropped = token_by_token(layer, x)
    assert torch.allclose(layer(x), expected, rtol=1e-12, atol=1e-12)
    assert int(layer.dropped(x)) == dropped
    assert dropped or factor != 0.4
    assert not dropped or factor is not None


@pytest.mark.parametrize("top_k", [1, 2])
@pytest.mark.parametrize("groups", [1, 3])
def test_gradients_are_those_of_a_loop_over_experts(top_k: int, groups: int) -> None:
    layer = layer_of(Experts, 6, 10, 7, top_k=top_k, groups=groups, dtype=torch.float64)
    x = torch.randn(40, 6, dtype=torch.float64, requires_grad=True)
    wanted = [x, *layer.parameters()]
    slope = torch.randn(40, 6, dtype=torch.float64)
    ours = torch.autograd.grad(layer(x), wanted, slope)
    theirs = torch.autograd.grad(expert_by_expert(layer, x), wanted, slope)
    for a, b in zip(ours, theirs, strict=True):
        assert a.any()
        assert torch.allclose(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", DROPPING)
@pytest.mark.parametrize("factor", [0.6, 2.0])
def test_gradients_with_a_capacity_factor(kind: str, factor: float) -> None:
    check_gradients(layer_of(DROPPING[kind], 2, 3, 2, factor=factor, seed=3, dtype=torch.float64))


@pytest.mark.parametrize("top_k", [1, 2])
@pytest.mark.parametrize("groups", [1, 3])
def test_gradients(top_k: int, groups: int) -> None:
    check_gradients(layer_of(Experts, 2, 3, 3, top_k=top_k, groups=groups, seed=3, dtype=torch.float64))


def check_gradients(layer: nn.Module) -> None:
    names = [name for name, _ in layer.named_parameters()]
    x = torch.randn(5, 2, dtype=torch.float64, requires_grad=True)

    def output(x: torch.Tensor, *parameters: torch.Tensor) -> Any:
        return torch.func.functional_call(layer, dict(zip(names, parameters, strict=True)), (x,))

    assert torch.autograd.gradcheck(output, (x, *(p.detach().requires_grad_() for p in layer.parameters())))


def test_padded_and_grouped_experts_are_the_same() -> None:
    padded, grouped = layer_of(PaddedExperts, 8, 16, 5), layer_of(Experts, 8, 16, 5, factor=2.0, groups=2)
    with torch.no_grad():
        grouped.gate.weight.copy_(padded.gate.weight)
        for e in range(5):
            for ours, theirs in zip(grouped.expert(e), padded.expert(e), strict=True):
                ours.copy_(theirs)
    x = torch.randn(40, 8)
    assert torch.allclose(padded(x), grouped(x), atol=1e-6)
    padded(x).square().sum().backward()
    grouped(x).square().sum().backward()
    assert torch.allclose(padded.up.grad, torch.cat([p.grad for p in grouped.up]), atol=1e-4)
    assert torch.allclose(padded.gate.weight.grad, grouped.gate.weight.grad, atol=1e-4)


def test_frozen_experts_have_no_gradient() -> None:
    layer = layer_of(Experts, 4, 6, 3, groups=3)
    layer.up.requires_grad_(False)
    layer.down[1].requires_grad_(False)
    x = torch.randn(9, 4, requires_grad=True)
    layer(x).square().sum().backward()
    assert [p.grad is None for p in layer.up] == [True] * 3
    assert [p.grad is None for p in layer.down] == [False, True, False]
    assert x.grad is not None


# -- dropped tokens ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", DROPPING)
def test_tokens_beyond_the_capacity_are_dropped_the_last_ones_first(kind: str) -> None:
    layer = layer_of(DROPPING[kind], 4, 8, 2, factor=1.0)
    send_all_to(layer, 0)
    x = torch.rand(6, 4, requires_grad=True)
    output = layer(x)
    assert layer.capacity(6) == 3
    assert int(layer.dropped(x)) == 3
    assert (output[:3] != 0).any(1).all()
    assert not output[3:].any()
    output.sum().backward()
    assert x.grad is not None
    assert x.grad[:3].any(1).all()
    assert not x.grad[3:].any()


@pytest.mark.parametrize("expert", [0, 2, 3])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_no_token_is_dropped_if_all_prefer_one_expert(expert: int, groups: int) -> None:
    layer = layer_of(Experts, 4, 8, 4, groups=groups, dtype=torch.float64)
    send_all_to(layer, expert)
    x = torch.rand(50, 4, dtype=torch.float64, requires_grad=True)
    output = layer(x)
    assert int(layer.dropped(x)) == 0
    assert output.any(1).all()
    up, down = layer.expert(expert)
    share = layer.gate(x).softmax(-1)[:, expert, None]
    assert torch.allclose(output, share * (torch.relu(x @ up) @ down), rtol=1e-12)
    output.sum().backward()
    grads = torch.cat([p.grad for p in layer.up])
    assert [bool(one.any()) for one in grads] == [e == expert for e in range(4)]


def test_a_token_with_infinite_output_of_another_expert_does_no_harm() -> None:
    """The first expert, which the large token does not use, would compute infinity for it."""
    for kind in DROPPING.values():
        layer = layer_of(kind, 2, 2, 2, factor=2.0)
        with torch.no_grad():
            layer.gate.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
            for one in layer.parameters():
                if one is not layer.gate.weight:
                    one.fill_(1.0)
            layer.expert(0)[0].fill_(3e38)
        layer(torch.tensor([[1e-3, 0.0], [0.0, 100.0]])).sum().backward()
        assert all(bool(p.grad.isfinite().all()) for p in layer.parameters() if p.grad is not None)


def test_a_dropped_token_does_not_see_the_infinite_output_of_a_kept_one() -> None:
    layer = layer_of(Experts, 2, 2, 1, factor=0.5)
    with torch.no_grad():
        for one in layer.expert(0):
            one.fill_(1.0)
    output = layer(torch.tensor([[3e38, 3e38], [1.0, 1.0]]))
    assert output[0].isinf().all()
    assert not output[1].any()


# -- other ways to run them --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", DROPPING)
def test_mixed_precision(kind: str) -> None:
    """Tokens in bfloat16 (after a dense layer) and in float32 (after a norm), and a layer that is bfloat16 itself."""
    layer = layer_of(DROPPING[kind], 8, 16, 4, factor=2.0)
    x = torch.randn(20, 8)
    expected = layer(x)
    for tokens in (x, x.bfloat16()):
        with torch.autocast("cpu", torch.bfloat16):
            output = layer(tokens)
        close = (output.float() - expected).abs().amax(1) < 0.05 * expected.abs().max()
        assert close.sum() >= 18  # a router in fewer bits may choose another expert
        output.float().sum().backward()
    whole = layer.to(torch.bfloat16)
    assert whole(x.bfloat16()).dtype == torch.bfloat16


def test_checkpoints_and_no_tokens_at_all() -> None:
    layer = layer_of(Experts, 4, 6, 3, top_k=2, groups=2, seed=2)
    x = torch.randn(7, 4, requires_grad=True)
    layer(x).square().sum().backward()
    plain, x.grad = x.grad, None
    checkpoint(layer, x, use_reentrant=False).square().sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, plain)
    assert layer(x[:0]).shape == (0, 4)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the compiler itself
def test_the_layer_compiles_as_one_graph() -> None:
    torch.manual_seed(0)
    layer, x = Experts(8, 16, 4, top_k=2, factor=0.8, groups=2), torch.randn(20, 8, requires_grad=True)
    wanted = [x, *layer.parameters()]
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    found = torch.autograd.grad(compiled(x).square().sum(), wanted)
    for a, b in zip(found, torch.autograd.grad(layer(x).square().sum(), wanted), strict=True):
        assert torch.allclose(a, b, atol=1e-5)


def test_groups_are_as_few_as_keep_parameters_small() -> None:
    with torch.device("meta"):
        assert [len(p) for p in Experts(1024, 4096, 16).up] == [16]
        assert [len(p) for p in Experts(1024, 4096, 40).up] == [13, 13, 14]
        assert len(Experts(8192, 32768, 4).up) == 4
        assert [len(p) for p in Experts(8, 8, 5, groups=2).down] == [2, 3]


def test_options_that_make_no_sense_are_refused() -> None:
    for kind in (PaddedExperts, Experts):
        for sizes, factor in (((0, 4, 2), 1.0), ((4, 4, 0), 1.0), ((4, 4, 2), 0.0), ((4, 4, 2), float("nan"))):
            with pytest.raises(PlanError, match=r"pass sizes of 1 or more and a finite factor above 0"):
                kind(*sizes, factor=factor)
    for wrong in (0, 3):
        with pytest.raises(PlanError, match=rf"top_k={wrong} of experts=2: a token can use 1 to 2 experts"):
            Experts(4, 4, 2, top_k=wrong)
        with pytest.raises(PlanError, match=rf"groups={wrong} of experts=2: pass a number from 1 to 2"):
            Experts(4, 4, 2, groups=wrong)


# -- steps under a budget ----------------------------------------------------------------------------------------------


def stepping(model: nn.Module, *, narrow: bool = False) -> tuple[Any, torch.optim.Optimizer]:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def train_step(both: Any) -> Any:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=narrow):
            loss = F.cross_entropy(model(both[0]), both[1])
        loss.backward()
        optimizer.step()
        return loss.detach()

    return train_step, optimizer


def same_bits(plain: nn.Module, batch: Any, *, narrow: bool = False, more: int = 20_000) -> Any:
    """Train a copy under a small budget, and the model without; what was planned."""
    mine = copy.deepcopy(plain)
    train_step, optimizer = stepping(mine, narrow=narrow)
    device = PlainDevice(late=0.7, seed=0, poison=True)
    with pytest.raises(Infeasible) as refused:
        st.memory.step(train_step, [mine], [optimizer], batch, budget=1000, device=device)
    budget = refused.value.smallest + more
    step = st.memory.step(train_step, [mine], [optimizer], batch, budget=budget, device=device)
    assert isinstance(step, st.memory.Step)
    assert step.planned.costs.bytes_out > 0
    assert step.report.peak <= budget
    ordinary, _ = stepping(plain, narrow=narrow)
    for _ in range(3):
        assert torch.equal(step(batch), ordinary(batch))
    step.close()
    for (name, a), b in zip(mine.state_dict().items(), plain.state_dict().values(), strict=True):
        assert torch.equal(a, b), name
    return step.planned


@pytest.mark.parametrize("kind", DROPPING)
@pytest.mark.parametrize("narrow", [False, True])
def test_steps_with_a_capacity_factor_give_the_same_bits(kind: str, narrow: bool) -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(32, 32), DROPPING[kind](32, 64, 3, factor=1.0), nn.Linear(32, 8))
    same_bits(model, (torch.randn(48, 32), torch.randint(0, 8, (48,))), narrow=narrow)


@pytest.mark.parametrize("top_k", [1, 2])
@pytest.mark.parametrize("groups", [1, 4])
def test_steps_give_the_same_bits(top_k: int, groups: int) -> None:
    torch.manual_seed(1)
    layer = Experts(32, 64, 4, top_k=top_k, groups=groups)
    model = nn.Sequential(nn.Linear(32, 32), layer, nn.Linear(32, 8))
    same_bits(model, (torch.randn(48, 32), torch.randint(0, 8, (48,))))


def test_a_step_planned_for_even_routing_gives_the_same_bits_when_all_tokens_prefer_one_expert() -> None:
    torch.manual_seed(1)
    layer = Experts(16, 32, 4, groups=2)
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), layer, nn.Linear(16, 8))
    send_all_to(layer, 2)
    same_bits(model, (torch.randn(48, 16), torch.randint(0, 8, (48,))), more=4000)


def test_chunks_of_a_batch_and_joined_chains() -> None:
    """A batch in chunks is the same up to rounding, whatever cannot be followed through the routing."""
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(8, 8), nn.GELU(), Experts(8, 16, 4, top_k=2), nn.Linear(8, 4))
    mine = copy.deepcopy(plain)
    batch = torch.randn(24, 8), torch.randint(0, 4, (24,))
    optimizer = torch.optim.SGD(mine.parameters(), lr=0.1)
    step = st.memory.train_step(mine, F.cross_entropy, optimizer, batch, budget="1GiB", chunks={"batch": 3})
    assert isinstance(step, st.memory.Step)
    loss = F.cross_entropy(plain(batch[0]), batch[1])
    assert torch.allclose(step(batch), loss, rtol=1e-5)


# -- memory ------------------------------------------------------------------------------------------------------------


def smallest(layer: nn.Module, tokens: int) -> int:
    """The smallest budget for a step of the layer and one more."""
    model = nn.Sequential(layer, nn.Linear(32, 8))
    optimizer = torch.optim.Adam(model.parameters())
    batch = torch.randn(tokens, 32), torch.randint(0, 8, (tokens,))
    with pytest.raises(Infeasible) as refused:
        st.memory.plan(model, F.cross_entropy, optimizer, batch, budget=1000)
    return refused.value.smallest


def test_groups_need_less_memory_than_padded_experts() -> None:
    assert smallest(Experts(32, 128, 8, groups=8), 64) < 0.5 * smallest(PaddedExperts(32, 128, 8), 64)


def kept_bytes(layer: nn.Module, tokens: int) -> int:
    """The peak of a step in which nothing moves, less the parameters."""
    model = nn.Sequential(nn.Linear(32, 32), layer)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.randn(tokens, 32), torch.randn(tokens, 32)
    report = st.memory.plan(model, F.mse_loss, optimizer, batch, budget="1GiB", policy="keep")
    return report.peak - sum(4 * int(p.numel()) for p in model.parameters())


def test_memory_is_in_proportion_to_tokens_and_not_to_experts() -> None:
    """Padded experts that drop no token in any case need experts times the rows."""
    few, many = (kept_bytes(Experts(32, 64, experts, groups=2), 4096) for experts in (4, 32))
    assert many < 1.25 * few  # the router's scores: one number more for every token and expert
    half = kept_bytes(Experts(32, 64, 32, groups=2), 2048)
    assert 1.8 < many / half < 2.2
    twice = kept_bytes(Experts(32, 64, 32, top_k=2, groups=2), 4096)
    assert many < twice < 2.2 * many
    assert kept_bytes(PaddedExperts(32, 64, 32, factor=32.0), 4096) > 10 * many
