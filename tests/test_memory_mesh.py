"""Dimensions in chunks: steps train as before, up to rounding, and what was too large no longer is."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'stretto[memory]'")

import torch
import torch.nn.functional as F
from bench.memory_models import gpt, lstm, wgan
from torch import nn
from torch.fx import Graph
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_arg

from memory_graphs import Builder
from stretto.errors import PlanError
from stretto.memory import Step, experimental_plan_several, plan, planning, step
from stretto.memory.chunk.chunks import ALL, cut
from stretto.memory.chunk.dim_layers import _ROWS_AT, _SEVERAL, ADDED, ALIKE, needs_several
from stretto.memory.chunk.dim_layers import LAYERS as ONE_RESULT
from stretto.memory.chunk.dim_rules import _RULES, SIZED, VIEWS, needs, sums
from stretto.memory.chunk.group_runs import assign_runs
from stretto.memory.chunk.groups import ChunkGroup
from stretto.memory.multi_device.mesh import device_of_nodes
from stretto.memory.multi_device.split import SendNode
from stretto.memory.operations.experts import Experts, PaddedExperts
from stretto.memory.options import StepOptions, StepSource
from stretto.memory.planner.planner import Infeasible, PlannerSettings, make, smallest_budget
from stretto.memory.planning import capture
from stretto.memory.run.devices import PlainDevice

CPU = torch.device("cpu")
aten = torch.ops.aten


class Job:
    """A step with what it needs."""

    def __init__(self, model: nn.Module, loss: Any, batch: Any, optimizer: Any = None) -> None:
        optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        self.modules, self.optimizers, self.batch = [model], [optimizer], batch

        def one(given: Any) -> torch.Tensor:
            optimizer.zero_grad()
            found = loss(model(given[0]), given[1])
            found.backward()
            optimizer.step()
            return found

        self.step = one


class Attention(nn.Module):
    """Written out, with a mask that all texts share."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.norm, self.taken, self.said = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        texts, places, width = x.shape
        parts = self.taken(self.norm(x)).split(width, -1)
        q, k, v = (part.view(texts, places, 4, -1).transpose(1, 2) for part in parts)
        later = torch.ones(places, places, dtype=torch.bool).triu(1)
        weights = (q @ k.transpose(-1, -2)).masked_fill(later, float("-inf")).softmax(-1)
        return self.said((weights @ v).transpose(1, 2).reshape(texts, places, width)) + x


class Wide(nn.Module):
    """Two feed-forward parts that are much wider inside."""

    def __init__(self, width: int = 16, inner: int = 512) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(width, inner), nn.Linear(inner, width)
        self.c, self.d = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.b(F.gelu(self.a(x)))
        return x + self.d(F.silu(self.c(x)))


class Dropping(Wide):
    """Between all layers, on a transpose too."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        said, _ = torch.native_dropout(F.gelu(self.a(x)), 0.3, True)
        said, _ = torch.native_dropout(self.b(said).transpose(1, 2), 0.2, True)
        return x + said.transpose(1, 2)


class Shifted(Wide):
    """As sequence-to-sequence models shift what they are to say."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        said = self.a(x)
        said[:, 3:5] *= 2
        shifted = said.new_zeros(said.shape)
        shifted[:, 1:] = said[:, :-1].clone()
        return self.b(shifted)


class Normed(nn.Module):
    """Something that can be cut along the batch, and then something that cannot."""

    def __init__(self) -> None:
        super().__init__()
        self.group, self.batch = nn.GroupNorm(2, 8), nn.BatchNorm2d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.batch(self.group(x))


def last_channels(job: Job) -> Job:
    for module in job.modules:
        module.to(memory_format=torch.channels_last)
    images, y = job.batch
    job.batch = images.to(memory_format=torch.channels_last), y
    return job


class Words(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.words, self.layer, self.last = nn.Embedding(32, 16), layer, nn.Linear(16, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.words(x)
        return self.last(x + self.layer(x)).transpose(1, 2)


def images(norm: nn.Module, width: int = 8) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1),
        norm,
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, width, 3, stride=2),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, 5),
    )


def pictures(norm: nn.Module, batch: int = 8, side: int = 16, width: int = 8) -> Job:
    given = torch.randn(batch, 3, side, side), torch.randint(0, 5, (batch,))
    return Job(images(norm, width), F.cross_entropy, given)


def rows(model: nn.Module, loss: Any = F.mse_loss, *size: int) -> Job:
    size = size or (8, 6, 16)
    return Job(model, loss, (torch.randn(size), torch.rand(size)))


def words(layer: nn.Module) -> Job:
    given = torch.randint(0, 32, (8, 6)), torch.randint(0, 32, (8, 6))
    return Job(Words(layer), F.cross_entropy, given)


def chances(said: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.binary_cross_entropy_with_logits(said, y) + 0.1 * F.huber_loss(said, y) + said.mean()


KINDS: dict[str, tuple[Callable[[], Any], str]] = {
    "attention": (lambda: rows(Attention()), "batch"),
    "group norm": (lambda: pictures(nn.GroupNorm(2, 8)), "batch"),
    "batch norm": (lambda: pictures(nn.BatchNorm2d(8)), "batch"),
    "dropout": (lambda: rows(nn.Sequential(Wide(16, 32), nn.Dropout(0.3), Wide(16, 32))), "batch"),
    "dropout as a GPU makes it": (lambda: rows(Dropping()), "batch"),
    "slices assigned and changed in place": (lambda: rows(Shifted()), "batch"),
    "channels last": (lambda: last_channels(pictures(Normed())), "batch"),
    "several losses": (lambda: rows(Wide(16, 32), chances), "batch"),
    "gpt": (lambda: gpt("cpu", batch=8, length=16, width=64, layers=2, words=96), "batch"),
    "cells": (lambda: lstm("cpu", batch=8, length=4, width=16), "batch"),
    "padded experts": (lambda: words(PaddedExperts(16, 32, 4)), "batch"),
    "padded experts, by expert": (lambda: words(PaddedExperts(16, 32, 4)), "experts"),
    "by what a module calls it": (lambda: rows(Called()), "inner"),
    "two optimizers, double backward": (lambda: wgan("cpu", batch=8, side=16, width=4), "batch"),
}


class Called(Wide):
    """With a name for what is inside the first part."""

    dims = {"a.weight": ("nothing",)}  # noqa: RUF012  only names of its own parameters count

    def __init__(self) -> None:
        super().__init__(16, 32)
        self.a.dims = {"weight": ("inner", "width"), "bias": ("inner",)}


def trained(job: Any, steps: int = 3, **options: Any) -> tuple[list[float], list[Any], Any]:
    """Losses, all numbers of the modules afterwards, and the step if it was planned."""
    made = None
    function = job.step
    if options:
        function = made = step(job.step, job.modules, job.optimizers, job.batch, **options)
        assert isinstance(made, Step)
    losses = []
    for k in range(steps):
        torch.manual_seed(k)
        losses.append(float(function(job.batch).detach()))
    if made is not None:
        made.close()
    return losses, [value for module in job.modules for value in module.state_dict().values()], made


@pytest.mark.parametrize("kind", KINDS)
def test_a_dimension_in_chunks_trains_like_the_whole(kind: str) -> None:
    job, name = KINDS[kind]
    torch.manual_seed(1)
    wanted, plain, _ = trained(job())
    torch.manual_seed(1)
    device = PlainDevice(late=0.5, poison=True)
    losses, found, made = trained(job(), budget="1GiB", chunks={name: 4}, device=device)
    assert f'"{name}"' in made.report.explain()
    assert "cut into 4 chunks" in made.report.explain()
    assert losses == pytest.approx(wanted, rel=1e-4)
    for a, b in zip(found, plain, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=2e-4)


def test_chunks_of_one_image_keep_channels_last() -> None:
    """Of one image nobody can say which way it lies; what is put together must lie as the whole did."""
    torch.manual_seed(1)
    wanted, plain, _ = trained(last_channels(pictures(Normed())))
    torch.manual_seed(1)
    losses, found, _ = trained(last_channels(pictures(Normed())), budget="1GiB", chunks={"batch": 8})
    assert losses == pytest.approx(wanted, rel=1e-4)
    for a, b in zip(found, plain, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=2e-4)


def test_an_empty_batch_is_not_cut() -> None:
    job = rows(Wide(16, 32), lambda said, y: (said - y).square().sum(), 0, 16)
    _, notes = cut(traced(job), {"batch": 4})
    assert "is not cut" in notes[0]


def test_two_dimensions_at_once_and_unequal_chunks() -> None:
    torch.manual_seed(1)
    wanted, plain, _ = trained(words(PaddedExperts(16, 32, 4)))
    torch.manual_seed(1)
    losses, found, made = trained(words(PaddedExperts(16, 32, 4)), budget="1GiB", chunks={"batch": 3, "experts": 3})
    assert made.report.explain().count("cut into 3 chunks") == 2
    assert losses == pytest.approx(wanted, rel=1e-4)
    for a, b in zip(found, plain, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=2e-4)


def floor(job: Any, chunks: Any = None) -> int:
    captured = capture(
        StepSource(job.step, job.modules, job.optimizers, job.batch, CPU), 1 << 30, StepOptions(chunks=chunks)
    )
    return smallest_budget(captured.lifted.graph, PlannerSettings(1 << 30))


@pytest.mark.parametrize(
    "make",
    [lambda: pictures(nn.GroupNorm(2, 8), 32, 32), lambda: rows(Attention(), F.mse_loss, 16, 64, 16)],
    ids=["images", "attention"],
)
def test_the_smallest_budget_falls_with_the_chunks_of_the_batch(make: Callable[[], Job]) -> None:
    whole = floor(make())
    for count in (2, 4, 8):
        assert floor(make(), {"batch": count}) < 1.35 * whole / count, f"{count} chunks of {whole} bytes"


def test_a_piece_is_done_before_the_next_begins() -> None:
    """Forward and backward of a part of the batch are next to each other, although a mean over all targets is taken."""
    peaks = []
    for chunks in (None, {"batch": 2}, {"batch": 8}):
        job = pictures(nn.GroupNorm(2, 8), 32, 32)
        graph = capture(
            StepSource(job.step, job.modules, job.optimizers, job.batch, CPU), 1 << 30, StepOptions(chunks=chunks)
        ).lifted.graph
        peaks.append(make(graph, PlannerSettings(1 << 30, policy="keep")).costs.peak)
    assert peaks[1] < 0.6 * peaks[0]
    assert peaks[2] < 0.25 * peaks[0]


def traced(job: Any) -> Any:
    return capture(StepSource(job.step, job.modules, job.optimizers, job.batch, CPU), 1 << 30).traced


def test_what_has_not_the_dimension_is_there_once() -> None:
    """The mask and its operations are not computed again for every chunk, nor are sums put together more than once."""
    whole = traced(rows(Attention()))
    chunked, _ = cut(whole, {"batch": 4})

    def count(one: Any, target: Any) -> int:
        return sum(node.target is target for node in one.module.graph.nodes)

    assert count(whole, aten.triu.default) == count(chunked, aten.triu.default) == 1
    assert count(chunked, torch.ops.stretto.update.default) == count(whole, torch.ops.stretto.update.default)
    assert count(chunked, aten._softmax.default) == 4 * count(whole, aten._softmax.default)
    assert count(chunked, aten.cat.default) == 4 * count(whole, aten.cat.default), "nothing else is joined"


@pytest.mark.parametrize("native", [False, True])
def test_random_numbers_for_all_rows_are_drawn_before_any_is_worked_on(native: bool) -> None:
    layers = (Wide(16, 32), nn.Dropout(0.3), Wide(16, 32), nn.Dropout(0.2), nn.Linear(16, 16))
    whole = traced(rows(Dropping() if native else nn.Sequential(*layers)))
    chunked, _ = cut(whole, {"batch": 4})
    nodes = list(chunked.module.graph.nodes)
    assert not [node for node in nodes if node.target is aten.cat.default], "nothing has to be there as a whole"
    draws = [k for k, node in enumerate(nodes) if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())]
    assert len(draws) == 2
    assert max(draws) < min(k for k, node in enumerate(nodes) if node.target is aten.addmm.default)


LARGE: dict[str, Callable[[], Job]] = {
    "wide": lambda: rows(Wide(), F.mse_loss, 64, 16, 16),
    "attention, texts and then heads": lambda: rows(Attention(), F.mse_loss, 4, 128, 16),
    "images": lambda: pictures(nn.GroupNorm(4, 32), 16, 32, 32),
}


@pytest.mark.parametrize("kind", LARGE)
def test_what_is_too_large_is_cut_when_there_is_no_plan_otherwise(kind: str) -> None:
    torch.manual_seed(2)
    job = LARGE[kind]()
    budget = int(0.3 * floor(job))
    wanted, plain, _ = trained(job)
    torch.manual_seed(2)
    job = LARGE[kind]()
    with pytest.raises(Infeasible) as refused:
        step(job.step, job.modules, job.optimizers, job.batch, budget=budget, device=PlainDevice())
    assert any("too large in chunks" in note for note in refused.value.__notes__)
    losses, found, made = trained(job, budget=budget, chunks="auto", device=PlainDevice(poison=True))
    assert "are cut into" in made.report.explain()
    assert made.report.peak <= budget
    assert losses == pytest.approx(wanted, rel=1e-4)
    for a, b in zip(found, plain, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=2e-4)


def test_what_is_not_worth_it_stays_whole_and_is_told() -> None:
    """A batch norm takes all images at once, before and after every convolution."""
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(512, 3))
    whole = traced(Job(model, F.mse_loss, (torch.randn(8, 3, 8, 8), torch.randn(8, 3))))
    same, notes = cut(whole, "auto", 1000, tight=ALL)
    assert any("not cut: the whole tensors before and after it need as much memory" in note for note in notes), notes
    convolutions = [sum(n.target is aten.convolution.default for n in one.module.graph.nodes) for one in (whole, same)]
    assert convolutions == [1, 1]


def test_names_that_nothing_has_are_refused_and_one_piece_is_none() -> None:
    model = Wide(16, 32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.randn(4, 16), torch.randn(4, 16)
    with pytest.raises(PlanError, match="no dimension has the name 'experts'; known names are batch"):
        plan(model, F.mse_loss, optimizer, batch, budget="1MiB", chunks={"experts": 2})
    for wrong in ({"batch": 0}, {"batch": "auto"}, {1: 2}):
        with pytest.raises(PlanError, match="not a number of chunks"):
            plan(model, F.mse_loss, optimizer, batch, budget="1MiB", chunks=wrong)  # type: ignore[arg-type]
    assert "cut" not in plan(model, F.mse_loss, optimizer, batch, budget="1MiB", chunks={"batch": 1}).explain()
    one = torch.randn(1, 16), torch.randn(1, 16)
    told = plan(model, F.mse_loss, optimizer, one, budget="1MiB", chunks={"batch": 4}).explain()
    assert '"batch" is not cut: it has only one row' in told


# -- what reviewers found ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_models_may_be_deeper_than_python_calls() -> None:
    layers = [layer for _ in range(200) for layer in (nn.Linear(4, 4), nn.ReLU())]
    _, notes = cut(
        traced(Job(nn.Sequential(*layers), F.mse_loss, (torch.randn(8, 4), torch.randn(8, 4)))), {"batch": 4}
    )
    assert "cut into 4 chunks" in notes[0]


class Half(nn.Module):
    """Means of numbers whose sum is beyond what float16 holds."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((4,), 100.0, dtype=torch.float16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.half() * self.scale


@pytest.mark.parametrize(
    "loss",
    [
        lambda said, y: said.mean(),
        lambda said, y: said.mean((0, 1)).float(),
        lambda said, y: F.mse_loss(said, y.half()).float(),
        lambda said, y: said.mean(0).float().square().sum() + F.cross_entropy(said.float(), (y.sum(1) * 3).long() % 4),
    ],
    ids=["mean", "mean of all dimensions", "squares", "beside a loss over words"],
)
def test_means_of_narrow_numbers_do_not_overflow(loss: Any) -> None:
    found = []
    for options in ({}, {"budget": "1GiB", "chunks": {"batch": 4}}, {"budget": "1GiB", "chunks": 4}):
        torch.manual_seed(3)
        model = Half()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        job = Job(model, loss, (1 + torch.rand(1024, 4), torch.rand(1024, 4)), optimizer)
        found.append(trained(job, 2, **options)[:2])
    for losses, numbers in found[1:]:
        assert losses == pytest.approx(found[0][0], rel=2e-3)
        torch.testing.assert_close(numbers[0], found[0][1][0], rtol=5e-3, atol=1e-3)
    assert all(torch.isfinite(numbers[0]).all() for _, numbers in found)


class Turned(nn.Module):
    """Seen as another number of rows on the way, which 15 rows cannot be cut along with."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        said = self.a(x)
        return self.b(said + said.reshape(8, 30).tanh().reshape(15, 16))


def test_one_view_in_other_rows_does_not_keep_all_else_whole() -> None:
    torch.manual_seed(1)
    wanted, plain, _ = trained(rows(Turned(), F.mse_loss, 15, 16))
    torch.manual_seed(1)
    losses, found, made = trained(rows(Turned(), F.mse_loss, 15, 16), budget="1GiB", chunks={"batch": 5})
    assert '"batch" of 15' in made.report.explain()
    assert "cut into 5 chunks" in made.report.explain()
    assert losses == pytest.approx(wanted, rel=1e-4)
    for a, b in zip(found, plain, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=2e-4)


def test_numbers_without_dimensions_and_strange_names_are_no_trouble() -> None:
    model = Wide(16, 32)
    model.dims = {"a": 2, 3: ("x",)}
    model.a.dims = {"weight": 2}
    job = rows(model, lambda said, y: F.mse_loss(said, y).mean(-1) + F.cross_entropy(said[0, 0], y[0, 0, 0].long()))
    _, notes = cut(traced(job), {"batch": 4})
    assert "cut into 4 chunks" in notes[0]
    with pytest.raises(PlanError, match="no dimension has the name 'bacth'"):
        cut(traced(job), {"bacth": 1})


def test_an_update_is_not_moved_before_those_that_read_what_it_changes() -> None:
    """A run that reads a parameter, its change, numbers drawn of that, and others, drawn later, that the run wants."""
    graph = Graph()
    x, p = graph.placeholder("x"), graph.placeholder("p")
    a = graph.call_function(aten.add.Tensor, (x, p))
    changed = graph.call_function(aten.copy_.default, (p, p))
    first = graph.call_function(aten.bernoulli.p, (changed, 0.5))
    second = graph.call_function(aten.bernoulli.p, (x, 0.5))
    b = graph.call_function(aten.mul.Tensor, (a, second))
    graph.output((b, first))
    group = assign_runs(graph, ChunkGroup(needs={a: {x: 0, p: None}, b: {a: 0, second: 0}}, dims={a: 0, b: 0}))
    assert group.runs == [[a], [b]]
    assert group.before == [[], []]


# -- several devices ---------------------------------------------------------------------------------------------------


def test_chunks_and_parameters_are_spread_over_devices() -> None:
    """Planned only: what a device holds falls with the number of devices, and what it lacks is sent to it."""
    model = images(nn.GroupNorm(2, 8))
    optimizer = torch.optim.Adam(model.parameters())
    batch = torch.randn(32, 3, 32, 32), torch.randint(0, 5, (32,))
    given: Any = (model, F.cross_entropy, optimizer, batch)
    alone = experimental_plan_several(*given, devices=1, budget="1GiB")
    four = experimental_plan_several(*given, devices=4, budget="1GiB", chunks={"batch": 8})
    assert alone.peak == plan(*given, budget="1GiB").peak
    assert four.peak < 0.3 * alone.peak
    told = four.explain()
    assert "4 devices, budget 1.0 GiB each" in told
    assert "device 3: " in told
    assert "cut into 8 chunks" in told
    sent = [sum(isinstance(node, SendNode) for node in part.graph.nodes) for part in four.together.parts]
    assert min(sent) > 0


def test_the_kth_of_a_list_lives_on_the_kth_device() -> None:
    model = Words(Experts(16, 32, 6, groups=6))
    job = Job(model, F.cross_entropy, (torch.randint(0, 32, (2, 3)), torch.randint(0, 32, (2, 3))))
    graph = capture(StepSource(job.step, job.modules, job.optimizers, job.batch, CPU), 1 << 14).lifted.graph
    on = device_of_nodes(graph, {}, 3)
    homes = {graph.storages[node.writes[0]].name: d for node, d in zip(graph.nodes, on, strict=True) if node.writes}
    listed = {name: d for name, d in homes.items() if ".up." in name or ".down." in name}
    assert len(listed) == 12
    assert all(d == int(name.rpartition(".")[2]) % 3 for name, d in listed.items())
    products = [(n, d) for n, d in zip(graph.nodes, on, strict=True) if "grouped_mm" in n.name]
    assert {d for _, d in products} == {0, 1, 2}


def test_a_piece_runs_on_the_device_that_has_its_share() -> None:
    chunked, _ = cut(traced(rows(Attention())), {"batch": 8})
    marks = {node.meta["chunk"] for node in chunked.module.graph.nodes if "chunk" in node.meta}
    assert marks == {(k, 8) for k in range(8)}
    build = Builder()
    x = build.store(64, "input")
    for k in range(8):
        build.node(f"part{k}", (x,), (build.store(64),))
    assert device_of_nodes(build.graph(), {f"part{k}": (k, 8) for k in range(8)}, 4) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_devices_that_make_no_sense_or_are_too_small() -> None:
    model = Wide(16, 32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    given: Any = (model, F.mse_loss, optimizer, (torch.randn(4, 16), torch.randn(4, 16)))
    for wrong in (0, -1, 1.5, True):
        with pytest.raises(PlanError, match="not a number of devices"):
            experimental_plan_several(*given, devices=wrong, budget="1MiB")  # type: ignore[arg-type]
    with pytest.raises(PlanError, match=r"device \d: no plan fits budget="):
        experimental_plan_several(*given, devices=2, budget=2000)


# -- steps that nobody wrote -------------------------------------------------------------------------------------------


class Made(nn.Module):
    """Layers by chance; some of them cannot be cut along the batch."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(seed)
        self.which = torch.randint(0, 12, (6,), generator=draw).tolist()
        self.linear = nn.ModuleList(nn.Linear(8, 8) for _ in self.which)
        self.norm = nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = x
        for which, linear in zip(self.which, self.linear, strict=True):
            before, x = x, WAYS[which](x, kept, linear, self.norm)
            kept = before
        return x


WAYS: list[Callable[[Any, Any, Any, Any], torch.Tensor]] = [
    lambda x, kept, linear, norm: F.gelu(linear(x)),
    lambda x, kept, linear, norm: norm(x) + kept,
    lambda x, kept, linear, norm: x - x.mean(0, keepdim=True),
    lambda x, kept, linear, norm: x.softmax(0) * x,
    lambda x, kept, linear, norm: torch.cat([x[..., 4:], x[..., :4]], -1),
    lambda x, kept, linear, norm: (x @ x.transpose(-1, -2)).softmax(-1) @ x,
    lambda x, kept, linear, norm: x.flip(0) * 0.5 + x,
    lambda x, kept, linear, norm: F.dropout(x, 0.2),
    lambda x, kept, linear, norm: x.sort(-1).values + x.amax(1, keepdim=True),
    lambda x, kept, linear, norm: x * x.square().mean(),
    lambda x, kept, linear, norm: linear(x.transpose(0, 1).reshape(-1, 8)).view(5, -1, 8).transpose(0, 1),
    lambda x, kept, linear, norm: torch.stack([x, x.tanh()], 1).select(1, 1) + x.unbind(1)[0].unsqueeze(1),
]


def whole(job: Job) -> tuple[list[float], list[Any]]:
    """What is to be found. Dropout on a transposed tensor draws another mask on a CPU than without a plan."""
    draws = 7 in job.modules[0].which
    losses, found, _ = trained(job, 2, **({"budget": "1GiB"} if draws else {}))
    return losses, found


@pytest.mark.parametrize("seed", range(16))
def test_steps_by_chance_train_like_whole_ones(seed: int) -> None:
    def make() -> Job:
        torch.manual_seed(seed)
        return rows(Made(seed), F.mse_loss, 6, 5, 8)

    wanted, plain = whole(make())
    for count in (3, 2):
        device = PlainDevice(late=0.5, poison=True)
        losses, found, made = trained(make(), 2, budget="1GiB", chunks={"batch": count}, device=device)
        assert f"cut into {count} chunks" in made.report.explain()
        assert losses == pytest.approx(wanted, rel=1e-4)
        for a, b in zip(found, plain, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=2e-4)


@pytest.mark.parametrize("seed", range(16))
def test_steps_by_chance_with_all_that_is_large_in_chunks(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the budget were so small that nearly everything is too large."""

    def make() -> Job:
        torch.manual_seed(seed)
        return rows(Made(seed), F.mse_loss, 6, 5, 8)

    wanted, plain = whole(make())
    monkeypatch.setattr(planning, "cut_operations", lambda traced, *_, **__: cut(traced, "auto", 2000, tight=ALL))
    losses, found, made = trained(make(), 2, budget="1GiB", device=PlainDevice(late=0.5, poison=True))
    assert "cut" in made.report.explain()
    assert losses == pytest.approx(wanted, rel=1e-4)
    for a, b in zip(found, plain, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=2e-4)


# -- the tables --------------------------------------------------------------------------------------------------------

G = torch.Generator().manual_seed(7)
X, Y, IMAGES = (torch.randn(size, generator=G) for size in ((4, 6, 8), (4, 6, 8), (4, 4, 6, 6)))
FILTERS, TEXTS = torch.randn(6, 4, 3, 3, generator=G), torch.randn(4, 2, 6, 8, generator=G)
INDEX = torch.randint(0, 4, (4, 6), generator=G)
TABLE = torch.randn(10, 8, generator=G)


def with_backward(function: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    def both(*tensors: torch.Tensor) -> Any:
        given = [x.detach().requires_grad_(x.is_floating_point()) for x in tensors]
        said = function(*given)
        wanted = [x for x in given if x.requires_grad]
        return said, torch.autograd.grad((said * said).sum(), wanted, allow_unused=True)

    return both


LAYERS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "layer norm": (with_backward(lambda x, w, b: F.layer_norm(x, (8,), w, b)), (X, TABLE[0], TABLE[1])),
    "layer norm over two": (with_backward(lambda x, w: F.layer_norm(x, (6, 8), w)), (X, Y[0])),
    "group norm": (with_backward(lambda x, w, b: F.group_norm(x, 2, w, b)), (IMAGES, TABLE[0, :4], TABLE[1, :4])),
    "convolution": (with_backward(lambda x, w: F.conv2d(x, w, padding=1)), (IMAGES, FILTERS)),
    "transposed convolution": (with_backward(F.conv_transpose2d), (IMAGES, FILTERS.transpose(0, 1))),
    "largest of places": (with_backward(lambda x: F.max_pool2d(x, 2)), (IMAGES,)),
    "mean of places": (with_backward(lambda x: F.avg_pool2d(x, 2)), (IMAGES,)),
    "few places": (with_backward(lambda x: F.adaptive_avg_pool2d(x, 2)), (IMAGES,)),
    "more places": (lambda x: F.interpolate(x, scale_factor=2), (IMAGES,)),
    "attention": (
        with_backward(F.scaled_dot_product_attention),
        (TEXTS, TEXTS + 1, TEXTS - 1),
    ),
    "attention with a mask": (
        with_backward(lambda q, k, m: F.scaled_dot_product_attention(q, k, k, attn_mask=m > 0)),
        (TEXTS, TEXTS + 1, torch.randn(4, 1, 6, 6, generator=G)),
    ),
    "words": (with_backward(lambda t, i: F.embedding(i, t)), (TABLE, INDEX)),
    "parts": (with_backward(lambda x: x.split(3, 1)[1] * x.unbind(1)[0].unsqueeze(1)), (X,)),
    "one of them": (with_backward(lambda x: x.select(1, 2) + x[:, :, 3].unsqueeze(1)[..., :1]), (X,)),
    "unequal parts": (with_backward(lambda x: x.split([2, 4], 1)[1] * 2), (X,)),
    "a product of texts": (with_backward(lambda x, w: x.transpose(0, 1) @ w.t()), (X, TABLE)),
    "sorted": (lambda x: x.sort(-1).values + x.sort(1).values, (X,)),
    "best": (lambda x: x.topk(2, -1).values + (x.max(1).values + x.min(1).values).unsqueeze(1)[..., :2], (X,)),
    "joined": (lambda x, y: torch.cat([x, y], 2), (X, Y)),
    "stacked": (lambda x, y: torch.stack([x, y], 1), (X, Y)),
    "padded": (lambda x: F.pad(x, (1, 1)), (X,)),
    "rows by number": (lambda x, i: x.index_select(1, i[0]), (X, INDEX)),
    "triangle": (lambda x: x.tril() + x.triu(1), (X,)),
    "one shape and another": (lambda x: x.view(4, 48).view(4, 6, 4, 2).view(24, 8) * 1.0, (X,)),
    "a part replaced": (lambda x, y: x.slice_scatter(y[..., :3], 2, 2, 5), (X, Y)),
    "squared differences": (with_backward(lambda x, y: F.mse_loss(x, y, reduction="sum")), (X, Y)),
    "absolute differences": (with_backward(lambda x, y: F.smooth_l1_loss(x, y, reduction="none")), (X, Y)),
    "chances": (
        with_backward(lambda x, y: F.binary_cross_entropy(x.sigmoid(), y, reduction="sum")),
        (X, (Y > 0).float()),
    ),
    "leaks": (
        with_backward(lambda x: F.leaky_relu(x) + F.elu(x) + F.hardswish(x) + F.softplus(x) + F.hardtanh(x)),
        (X,),
    ),
}
_NAMES = sorted(LAYERS)


@pytest.mark.parametrize("name", _NAMES)
def test_what_the_tables_say_of_a_layer_is_true(name: str) -> None:
    """Each operation on chunks of its inputs against chunks of its results, for every way that the tables know."""
    assert checked(name)


def test_all_of_the_tables_is_tried() -> None:
    """But what runs on GPUs only, and losses over words and cells, which other tests cover."""
    tried = {target for name in _NAMES for target in checked(name)}
    gpu = [one for one in _SEVERAL if any(x in str(one) for x in ("attention", "rms_norm")) and "cpu" not in str(one)]
    elsewhere = {aten.nll_loss_forward.default, aten.nll_loss2d_forward.default, aten.unsafe_split.Tensor, *gpu}
    elsewhere |= {aten.unsafe_split_with_sizes.default}
    assert {str(one) for one in {*ONE_RESULT, *_SEVERAL, *SIZED} - tried - elsewhere} == {"aten.reshape.default"}


def checked(name: str) -> set[Any]:
    """The operations of the tables that were tried for a layer."""
    function, tensors = LAYERS[name]
    module = make_fx(function, tracing_mode="fake")(*tensors)
    values: dict[Any, Any] = dict(zip([n for n in module.graph.nodes if n.op == "placeholder"], tensors, strict=True))
    tried = set()
    for node in module.graph.nodes:
        if node.op == "get_attr":
            values[node] = getattr(module, node.target)
        if node.op != "call_function":
            continue
        values[node] = whole = node.target(*map_arg(node.args, values.__getitem__), **map_arg(node.kwargs, values.get))
        if node.target is operator.getitem:
            continue
        for how, results in _ways(node, whole):
            if node.target in SIZED and whole.shape[results[0]] % 2:
                continue  # no two halves
            chunks = [_chunk(node, how, values, k, results[0]) for k in range(2)]
            if node.target in _RULES or node.target in ONE_RESULT or node.target in _SEVERAL or results == (ADDED,):
                tried.add(node.target)
            for which, dim in enumerate(results):
                one, parts = (whole, chunks) if torch.is_tensor(whole) else (whole[which], [p[which] for p in chunks])
                if dim == ALIKE or one is None:
                    continue
                joined = parts[0] + parts[1] if dim == ADDED else torch.cat(parts, dim)
                torch.testing.assert_close(
                    joined, one, rtol=1e-4, atol=1e-4, msg=lambda text, node=node: f"{node.name}: {text}"
                )
    return tried


def _ways(node: Any, whole: Any) -> list[tuple[Any, tuple[int, ...]]]:
    if torch.is_tensor(whole):
        ways = [(needs(node, d), (d,)) for d in range(whole.dim()) if whole.shape[d] > 1]
        return [(how, r) for how, r in ways if how is not None] + [(how, (ADDED,)) for how in sums(node)]
    return [found for d in range(whole[0].dim()) if (found := needs_several(node, d)) is not None]


def _chunk(node: Any, how: Any, values: Any, k: int, dim: int) -> Any:
    """The operation on one half, with the sizes of a half where they are among its arguments."""

    def part(x: Any) -> Any:
        return values[x] if how[x] is None else values[x].chunk(2, how[x])[k]

    args = map_arg(node.args, part)
    if node.target in SIZED:
        size = list(values[node].shape)
        size[dim] //= 2
        args = (args[0].contiguous() if node.target in VIEWS else args[0], size, *args[2:])
    at = _ROWS_AT.get(node.target)
    if at is not None:
        args = (*args[:at], args[0].shape[0], *args[at + 1 :])
    return node.target(*[list(a) if isinstance(a, list) else a for a in args], **map_arg(node.kwargs, part))
