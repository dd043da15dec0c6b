"""Losses in chunks: equal to the plain step up to rounding, smaller by the number of chunks, or left as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'stretto[memory]'")

import torch
import torch.nn.functional as F
from bench.memory_models import gpt
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_arg

from stretto.errors import PlanError
from stretto.memory import Step, plan, step, train_step
from stretto.memory.chunk.chunks import cut
from stretto.memory.chunk.dim_rules import SIZED, needs, sums
from stretto.memory.options import StepOptions, StepSource
from stretto.memory.planner.planner import Infeasible, PlannerSettings, smallest_budget
from stretto.memory.planning import capture
from stretto.memory.run.devices import PlainDevice

WORDS, WIDTH = 40, 12
CPU = torch.device("cpu")


def small(*, bias: bool = False, tied: bool = False) -> nn.Module:
    """Words in, words out."""
    words, last = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS, bias=bias)
    if tied:
        last.weight = words.weight
    return nn.Sequential(words, nn.Linear(WIDTH, WIDTH), nn.Tanh(), last)


Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
BY_WORD = torch.linspace(0.5, 2.0, WORDS)


def flat(said: torch.Tensor, y: torch.Tensor, **options: Any) -> torch.Tensor:
    return F.cross_entropy(said.reshape(-1, WORDS), y.reshape(-1), **options)


def masked(said: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    each = flat(said, y, reduction="none")
    mask = (y.reshape(-1) % 3 > 0).float()
    return (each * mask).sum() / mask.sum()


def next_word(said: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return flat(said[:, :-1].contiguous(), y[:, 1:].contiguous())


def capped(said: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return flat(5.0 * torch.tanh(said / 5.0), y)


def with_normaliser(said: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return flat(said, y) + 1e-2 * said.logsumexp(-1).square().mean()


LOSSES: dict[str, Loss] = {
    "mean": flat,
    "sum": lambda said, y: flat(said, y, reduction="sum"),
    "scaled": lambda said, y: flat(said, y) / 4,
    "some are not counted": lambda said, y: flat(said, torch.where(y % 3 == 0, -100, y)),
    "weights": lambda said, y: flat(said, y, weight=BY_WORD),
    "weights, some are not counted": lambda said, y: flat(said, y, weight=BY_WORD, ignore_index=3),
    "words in the middle": lambda said, y: F.cross_entropy(said.transpose(1, 2), y),
    "smoothed": lambda said, y: flat(said, y, label_smoothing=0.1),
    "masked": masked,
    "next word": next_word,
    "capped": capped,
    "with the normaliser": with_normaliser,
}


def trained(
    loss: Loss, chunks: int | str | None, steps: int = 3, dtype: Any = None, rows: int = 6, **how: Any
) -> tuple[list[float], nn.Module, Any]:
    """Losses of a few steps, the model after them, and the step; chunks=0: the plain step."""
    torch.manual_seed(3)
    model = small(**how)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    batch = torch.randint(0, WORDS, (rows, 5)), torch.randint(0, WORDS, (rows, 5))

    def plain(both: Any) -> torch.Tensor:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype is not None):
            found = loss(model(both[0]), both[1])
        found.backward()
        optimizer.step()
        return found

    if chunks == 0:
        return [float(plain(batch).detach()) for _ in range(steps)], model, None
    made = step(
        plain, [model], [optimizer], batch, budget="1GiB", chunks=chunks, device=PlainDevice(late=0.5, poison=True)
    )
    assert isinstance(made, Step)
    losses = [float(made(batch)) for _ in range(steps)]
    made.close()
    return losses, model, made


def close(one: nn.Module, two: nn.Module, **bounds: float) -> None:
    for (name, a), b in zip(one.state_dict().items(), two.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, msg=lambda text, name=name: f"{name}: {text}", **bounds)


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_in_chunks_trains_like_the_whole_one(name: str) -> None:
    how = {} if len(name) % 2 else {"bias": True, "tied": True}
    losses, model, made = trained(LOSSES[name], 3, **how)
    wanted, plain, _ = trained(LOSSES[name], 0, **how)
    assert any("is cut into 3 chunks" in note for note in made.planned.notes), made.planned.notes
    assert losses == pytest.approx(wanted, rel=1e-5)
    close(model, plain, rtol=1e-4, atol=2e-5)


def test_chunks_need_not_be_equally_large_nor_whole_texts() -> None:
    losses, model, made = trained(flat, 7, rows=1)
    wanted, plain, _ = trained(flat, 0, rows=1)
    assert "is cut into 5 chunks" in made.planned.notes[-1]
    assert losses == pytest.approx(wanted, rel=1e-5)
    close(model, plain, rtol=1e-4, atol=2e-5)
    assert "is cut into 4 chunks" in trained(flat, 4, rows=5)[2].planned.notes[-1]


def test_mixed_precision_adds_up_wide() -> None:
    losses, model, made = trained(flat, 5, dtype="bf16")
    wanted, plain, _ = trained(flat, 0, dtype="bf16")
    assert "is cut into 5 chunks" in made.planned.notes[-1]
    assert losses == pytest.approx(wanted, rel=1e-2)
    close(model, plain, rtol=0.05, atol=0.02)


def test_each_of_several_losses_is_cut() -> None:
    found = []
    for chunks in (None, 3):
        torch.manual_seed(5)
        model = small(tied=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        batch = torch.randint(0, WORDS, (6, 5)), torch.randint(0, WORDS, (6, 5))

        def accumulated(both: Any, model: nn.Module = model, optimizer: Any = optimizer) -> torch.Tensor:
            optimizer.zero_grad()
            total = torch.zeros(())
            for x, y in zip(both[0].chunk(2), both[1].chunk(2), strict=True):
                loss = flat(model(x), y) / 2
                loss.backward()
                total = total + loss.detach()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            return total

        made = step(accumulated, [model], [optimizer], batch, budget="1GiB", chunks=chunks)
        assert isinstance(made, Step)
        found.append(([float(made(batch)) for _ in range(3)], model, made))
    (wanted, plain, _), (losses, model, made) = found
    assert sum("is cut into 3 chunks" in note for note in made.planned.notes) == 2
    assert losses == pytest.approx(wanted, rel=1e-5)
    close(model, plain, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize(
    "loss",
    [
        lambda said, y: flat(said, y).square(),
        lambda said, y: flat(said.cumsum(0), y),
        lambda said, y: F.cross_entropy(said.reshape(-1, WORDS).t(), torch.cat([y, y]).reshape(-1)[:WORDS] % 30),
    ],
    ids=["gradient waits for the loss", "operation not known", "another way round"],
)
def test_what_cannot_be_followed_is_left_out(loss: Loss) -> None:
    losses, model, made = trained(loss, 3)
    wanted, plain, _ = trained(loss, 0)
    assert any("is cut into 3 chunks" in note for note in made.planned.notes), made.planned.notes
    assert losses == pytest.approx(wanted, rel=1e-5)
    close(model, plain, rtol=1e-4, atol=2e-5)


def returned(tell: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Any], chunks: int | None) -> list[Any]:
    """What two steps return. tell: of the logits, the loss and the targets, what to return and what to learn from."""
    torch.manual_seed(4)
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.randint(0, WORDS, (6, 5)), torch.randint(0, WORDS, (6, 5))

    def one(given: Any) -> Any:
        optimizer.zero_grad()
        said = model(given[0])
        found = tell(said, flat(said, given[1]), given[1])
        found[0].backward()
        optimizer.step()
        return found

    made = step(one, [model], [optimizer], batch, budget="1GiB", chunks=chunks)
    assert isinstance(made, Step)
    return [x for _ in range(2) for x in made(batch)]


def with_another(said: torch.Tensor, loss: torch.Tensor, y: torch.Tensor) -> Any:
    other = F.nll_loss(said.cumsum(-1).reshape(-1, WORDS), y.reshape(-1))  # has no log_softmax
    return loss + 0.01 * other, other.detach(), F.mse_loss(said, said.tanh()).detach()


@pytest.mark.parametrize("tell", [lambda said, loss, _: (loss, said), with_another], ids=["logits", "another loss"])
def test_what_a_step_returns_is_right_beside_a_loss_in_chunks(tell: Callable[..., Any]) -> None:
    """Logits are put together. A loss that is not cut is written as a sum all the same, and what is returned is a view
    of it."""
    for found, wanted in zip(returned(tell, 3), returned(tell, None), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


def test_a_piece_that_torch_refuses_leaves_the_step_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    from stretto.memory.chunk import unroll

    def refused(*_: Any) -> None:
        raise RuntimeError("view size is not compatible")

    monkeypatch.setattr(unroll.ChunkWriter, "_add", refused)  # halfway through the first chunk
    losses, _, made = trained(flat, 3)
    assert "cannot be: view size is not compatible" in made.planned.notes[-1]
    assert losses == trained(flat, 0)[0]


def floor(job: Any, chunks: int | None) -> int:
    captured = capture(
        StepSource(job.step, job.modules, job.optimizers, job.batch, CPU), 1 << 30, StepOptions(chunks=chunks)
    )
    return smallest_budget(captured.lifted.graph, PlannerSettings(1 << 30))


def test_the_smallest_budget_falls_with_the_number_of_chunks() -> None:
    job = gpt("cpu", batch=16, length=128, width=64, layers=1, words=8192)
    whole = floor(job, None)
    for count in (2, 4, 8):
        assert floor(job, count) < 1.35 * whole / count, f"{count} chunks of {whole} bytes"


@pytest.mark.slow
def test_cut_by_itself_only_where_the_budget_asks_for_it() -> None:
    job = gpt("cpu", batch=8, length=64, width=64, layers=1, words=4096)
    options: dict[str, Any] = {"device": PlainDevice(), "chunks": "auto"}
    large = step(job.step, job.modules, job.optimizers, job.batch, budget="1GiB", **options)
    assert isinstance(large, Step)
    assert not large.planned.notes or "cut" not in large.planned.notes[-1]
    large.close()
    smallest = floor(job, None)
    small = step(job.step, job.modules, job.optimizers, job.batch, budget=int(0.7 * smallest), **options)
    assert isinstance(small, Step)
    assert "is cut into" in small.report.explain()
    assert small.report.peak <= 0.7 * smallest
    with pytest.raises(Infeasible) as refused:
        step(job.step, job.modules, job.optimizers, job.batch, budget=int(0.7 * smallest), device=PlainDevice())
    assert any('chunks="auto"' in note for note in refused.value.__notes__)


@pytest.mark.slow
def test_a_small_loss_is_cut_when_there_is_no_plan_otherwise() -> None:
    job = gpt("cpu", batch=8, length=64, width=64, layers=3, words=256)
    options: dict[str, Any] = {"device": PlainDevice(), "policy": "keep", "chunks": "auto"}
    kept = step(job.step, job.modules, job.optimizers, job.batch, budget="1GiB", **options)
    assert isinstance(kept, Step)
    budget = int(0.95 * kept.report.peak)
    kept.close()
    made = step(job.step, job.modules, job.optimizers, job.batch, budget=budget, **options)
    assert isinstance(made, Step)
    assert "is cut into" in made.report.explain()
    assert made.report.peak <= budget
    made.close()
    with pytest.raises(Infeasible):
        step(job.step, job.modules, job.optimizers, job.batch, budget=budget // 4, **options)


def test_plans_and_fits_take_chunks_and_refuse_nonsense() -> None:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.randint(0, WORDS, (4, 5)), torch.randint(0, WORDS, (4, 5))
    assert "is cut into 4 chunks" in plan(model, flat, optimizer, batch, budget="1MiB", chunks=4).explain()
    made = train_step(model, flat, optimizer, batch, budget="1MiB", chunks=4)
    assert isinstance(made, Step)
    assert "is cut into 4 chunks" in made.report.explain()
    for wrong in (0, -1, "many", 1.5):
        with pytest.raises(PlanError, match="not a number of chunks"):
            plan(model, flat, optimizer, batch, budget="1MiB", chunks=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("how", [5, {"batch": 4}], ids=["loss", "batch"])
def test_two_hundred_steps_in_chunks_learn_like_whole_ones(how: Any) -> None:
    curves = []
    for chunks in (None, how):
        torch.manual_seed(0)
        job = gpt("cpu", batch=4, length=16, width=64, layers=1, words=96)
        generator = torch.Generator().manual_seed(1)
        made = step(job.step, job.modules, job.optimizers, job.batch, budget="1GiB", chunks=chunks)
        assert isinstance(made, Step)
        curve = []
        for _ in range(200):
            x = torch.randint(0, 96, (4, 16), generator=generator)
            curve.append(float(made((x, (3 * x + 1) % 96))))
        curves.append(torch.tensor(curve))
    whole, cut_up = curves
    assert whole[-20:].mean() < 0.9 * whole[:20].mean(), "nothing was learnt"
    torch.testing.assert_close(cut_up, whole, rtol=2e-3, atol=1e-3)


A, B, C = (torch.randn(size, generator=torch.Generator().manual_seed(7)) for size in ((6, 4), (4, 8), (6, 8)))
LONG = torch.tensor([1, 0, 3, 2, 1, 1])
TRACED: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "mm": (torch.mm, (A, B)),
    "mm of a transposed one": (lambda a, c: a.t().mm(c), (A, C)),
    "addmm": (torch.addmm, (C[0], A, B)),
    "addmm with rows": (torch.addmm, (C, A, B)),
    "bmm": (torch.bmm, (A[None].repeat(4, 1, 1), B[None].repeat(4, 1, 1))),
    "broadcast": (lambda a, b: a * b + 1, (C, C[:1])),
    "columns": (lambda a, b: a - b, (C, C[:, :1])),
    "log_softmax": (lambda a: torch.log_softmax(a, -1), (C,)),
    "log_softmax along the other": (lambda a: torch.log_softmax(a, 0), (C,)),
    "permute": (lambda a: a[None].permute(2, 0, 1) * 1.0, (C,)),
    "unsqueeze": (lambda a: a.unsqueeze(1) * 1.0, (C,)),
    "squeeze": (lambda a: a.unsqueeze(1).squeeze(1) * 1.0, (C,)),
    "expand": (lambda a: a[:, :1].expand(6, 4) * 1.0, (C,)),
    "part": (lambda a: a[:, 2:6] * 1.0, (C,)),
    "sum": (lambda a: a.sum(), (C,)),
    "sum of rows": (lambda a: a.sum(0), (C,)),
    "sum of columns": (lambda a: a.sum(1, keepdim=True), (C,)),
    "largest": (lambda a: a.amax(1), (C,)),
    "gather": (lambda a, i: a.gather(1, i[:, None]), (C, LONG)),
}


@pytest.mark.parametrize("name", TRACED)
def test_what_the_table_says_of_an_operation_is_true(name: str) -> None:
    """Each operation on chunks of its inputs against chunks of its result, for every way that the table knows."""
    function, tensors = TRACED[name]
    module = make_fx(function, tracing_mode="fake")(*tensors)
    values: dict[Any, Any] = dict(zip([n for n in module.graph.nodes if n.op == "placeholder"], tensors, strict=True))
    tried = 0
    for node in module.graph.nodes:
        if node.op != "call_function":
            continue
        values[node] = whole = node.target(*map_arg(node.args, values.__getitem__), **node.kwargs)
        ways = [(needs(node, d), d) for d in range(whole.dim())] + [(how, None) for how in sums(node)]
        for how, dim in ways:
            if how is None or node.target in SIZED or (dim is not None and whole.shape[dim] == 1):
                continue
            tried += 1
            parts = []
            for k in range(2):

                def part(x: Any, k: int = k, how: Any = how) -> Any:
                    return values[x] if how[x] is None else values[x].chunk(2, how[x])[k]

                parts.append(node.target(*map_arg(node.args, part), **node.kwargs))
            joined = parts[0] + parts[1] if dim is None else torch.cat(parts, dim)
            torch.testing.assert_close(joined, whole, msg=lambda text, node=node: f"{node.name}: {text}")
    assert tried or "along" in name


def test_nothing_is_copied_when_nothing_is_cut() -> None:
    job = gpt("cpu", batch=2, length=8, width=64, layers=1, words=96)
    traced = capture(StepSource(job.step, job.modules, job.optimizers, job.batch, CPU), 1 << 30).traced
    assert cut(traced, None)[0] is traced
    assert cut(traced, 1)[0] is traced
    assert cut(traced, "auto", 1 << 30)[0] is traced
    again, notes = cut(traced, 4)
    assert again is not traced
    assert len(notes) == 1
