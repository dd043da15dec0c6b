"""Chains of small operations as one: the step with its chains joined does what it did, and less is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'stretto[memory]'")

import torch
import torch.nn.functional as F
from bench.memory_models import MODELS, Job
from torch import nn

from stretto.memory import Step, step, train_step
from stretto.memory.capture.lifted import OpCall
from stretto.memory.operations import fuse
from stretto.memory.operations.fuse import ALL, BACKWARD, NONE, Chain, fused
from stretto.memory.options import StepOptions, StepSource
from stretto.memory.planner.planner import Infeasible, PlannerSettings
from stretto.memory.planning import CapturedStep, capture, planned
from stretto.memory.run.devices import PlainDevice
from test_memory_steps import SMALL


def made(kind: str, dtype: str) -> Job:
    name, options = SMALL[kind]
    torch.manual_seed(3)
    return MODELS[name]("cpu", dtype, **options)


def captured(job: Job, *, join: bool) -> CapturedStep:
    return capture(
        StepSource(job.step, job.modules, job.optimizers, job.batch, torch.device("cpu")),
        1 << 40,
        StepOptions(compile=join),
    )


def chains(found: CapturedStep) -> list[Chain]:
    return [run.target for run in found.lifted.runs if isinstance(run, OpCall) and isinstance(run.target, Chain)]


@pytest.fixture
def _as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chains run operation by operation: what is tested is how they are cut out."""

    def plain(module: Callable[..., Any], _: Any) -> Callable[..., Any]:
        return module

    monkeypatch.setattr(fuse, "_compiled", plain)
    monkeypatch.setattr(fuse, "_made", {})


@pytest.mark.slow
@pytest.mark.usefixtures("_as_they_are")
@pytest.mark.parametrize(
    ("kind", "dtype", "share"),
    [
        pytest.param("gpt", "bf16", 0.7, marks=pytest.mark.slow),
        ("lstm", "fp32", 0.7),
        ("wgan", "fp32", 1.0),
        pytest.param("resnet", "bf16", 0.7, marks=pytest.mark.slow),
    ],
)
def test_a_step_with_chains_has_the_bits_of_one_without(kind: str, dtype: str, share: float) -> None:
    plain = made(kind, dtype)
    expected = [plain.step(plain.batch).detach() for _ in range(3)]
    job = made(kind, dtype)
    kept = step(job.step, job.modules, job.optimizers, job.batch, budget="1GiB", device=PlainDevice(), compile=True)
    assert isinstance(kept, Step)
    planned = step(
        job.step,
        job.modules,
        job.optimizers,
        job.batch,
        budget=int(share * kept.report.peak),
        device=PlainDevice(late=0.5, poison=True),
        compile=True,
    )
    assert isinstance(planned, Step)
    assert chains(planned._captured)
    for loss in expected:
        assert torch.equal(planned(job.batch), loss)
    for one, other in zip(plain.modules, job.modules, strict=True):
        for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True):
            assert torch.equal(a, b)


def test_what_a_chain_passes_on_inside_is_not_stored() -> None:
    job = made("gpt", "bf16")
    before, after = (captured(job, join=join) for join in (False, True))
    sizes = [sum(s.nbytes for s in one.lifted.graph.storages if not s.persistent) for one in (before, after)]
    assert sizes[1] < 0.9 * sizes[0]
    assert len(after.lifted.graph.nodes) < len(before.lifted.graph.nodes)
    assert "the compiler fuses" in after.notes[-1]


def test_equal_chains_are_one() -> None:
    found = chains(captured(made("gpt", "bf16"), join=True))
    assert len({chain.key for chain in found}) < len(found) / 1.5
    assert len({str(chain) for chain in found}) == len({chain.key for chain in found})


def test_what_is_put_together_and_laid_out_anew_is_one() -> None:
    """The gradients of queries, keys and values become one tensor, in the order of the layer's outputs."""
    names = [
        [node.target._overloadpacket.__name__ for node in chain.module.graph.nodes if node.op == "call_function"]
        for chain in chains(captured(made("gpt", "bf16"), join=True))
        if any("stack" in str(node.target) for node in chain.module.graph.nodes)
    ]
    assert names == [["stack", "permute", "clone"]] * 2


def test_casts_of_parameters_and_random_numbers_stay_apart() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU(), nn.Dropout(0.5), nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def train(batch: Any) -> torch.Tensor:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(batch).float().square().mean()
        loss.backward()
        optimizer.step()
        return loss

    found = capture(
        StepSource(train, [model], [optimizer], torch.ones(4, 8), torch.device("cpu")),
        1 << 40,
        StepOptions(compile=True),
    )
    inside = {str(node.target) for chain in chains(found) for node in chain.module.graph.nodes}
    outside = [str(run.target) for run in found.lifted.runs if isinstance(run, OpCall)]
    assert "aten.native_layer_norm.default" in inside
    assert not any("dropout" in name or "bernoulli" in name for name in inside if "backward" not in name)
    assert sum("_to_copy" in name for name in outside) >= 2  # the weights


@pytest.mark.slow
def test_the_compiler_makes_one_of_a_chain() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4))
    batch = torch.randn(8, 16), torch.randn(8, 4)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    planned = train_step(model, F.mse_loss, optimizer, batch, budget="1GiB", compile=True)
    assert isinstance(planned, Step)
    losses = [float(planned(batch)) for _ in range(3)]
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(before[name])
    for loss in losses:
        expected = F.mse_loss(model(batch[0]), batch[1])
        optimizer.zero_grad()
        expected.backward()
        optimizer.step()
        assert loss == pytest.approx(float(expected.detach()), rel=1e-5)


@pytest.mark.usefixtures("_as_they_are")
def test_under_a_tight_budget_chains_are_joined_only_where_that_is_faster() -> None:
    """Whatever was joined, no plan is slower than the one without the compiler, and where there is a plan without it
    there is one with it."""
    job = made("gpt", "bf16")
    parts = job.step, job.modules, job.optimizers, job.batch, torch.device("cpu")
    peak = planned(StepSource(*parts), PlannerSettings(1 << 40, policy="keep"))[2].costs.peak
    found = []
    for join in (False, True):
        try:
            found.append(
                planned(StepSource(*parts), PlannerSettings(int(0.3 * peak)), StepOptions(compile=join))[
                    2
                ].costs.seconds
            )
        except Infeasible:
            found.append(float("inf"))
    assert found[1] <= found[0]


def test_chains_of_gradients_alone_can_be_joined() -> None:
    job = made("gpt", "bf16")
    traced = captured(job, join=False).traced
    for which, kinds in ((ALL, {"fused", "fused_backward"}), (BACKWARD, {"fused_backward"}), (NONE, set())):
        nodes = fused(traced, which)[0].module.graph.nodes
        assert {node.target.__name__ for node in nodes if isinstance(node.target, Chain)} == kinds
