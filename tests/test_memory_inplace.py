"""In-place operations taken out of a trace: the same numbers as the operations as they were, and as torch's own way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'stretto[memory]'")

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from stretto.memory.operations.inplace import without_inplace

Tensors = list[torch.Tensor]


def views(x: torch.Tensor, y: torch.Tensor) -> Tensors:
    row, turned = x[1], x.t()
    z = x.add_(y)
    return [row * 2, turned + 1, z]


def parts(x: torch.Tensor, y: torch.Tensor) -> Tensors:
    made = x * 2
    flat = made.view(-1)
    made[:, 1:3].mul_(3)
    made[0] = y[1]
    made.diagonal().zero_()
    return [made, flat[:5].clone()]


def chains(x: torch.Tensor, y: torch.Tensor) -> Tensors:
    made = x + y
    before = made.sum()
    F.relu_(made)
    made.clamp_(max=0.5)
    top, low = made.split(2)
    made += 1
    top.sub_(y[:2])
    return [before, made, top + 0, low + 0]


def indexed(x: torch.Tensor, y: torch.Tensor) -> Tensors:
    made = torch.zeros_like(x)
    made.index_put_([torch.tensor([0, 2])], y[:2])
    made.masked_fill_(y > 0, 7.0)
    made.index_add_(0, torch.tensor([1, 1]), y[2:])
    x.copy_(made[:1])
    return [made]


def dropped(x: torch.Tensor, y: torch.Tensor) -> Tensors:
    noise = torch.empty_like(x).bernoulli_(0.5)
    noise.div_(0.5)
    return [x * noise]


def promoted(x: torch.Tensor, y: torch.Tensor) -> Tensors:
    half = x.half()
    half += y
    return [half]


def norm(x: torch.Tensor, y: torch.Tensor) -> Tensors:
    mean, var = x[0].clone(), torch.ones(4)
    first = torch.ops.aten._native_batch_norm_legit(x + y[0], None, None, mean, var, True, 0.1, 1e-5)[0]
    second = torch.ops.aten._native_batch_norm_legit(first, None, None, mean, var, True, 0.1, 1e-5)[0]
    return [first, second, mean, var]


def traced(function: Callable[..., Tensors], given: Tensors) -> tuple[Any, Any]:
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        fakes = [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype) for t in given]
        first = make_fx(function)(*fakes)
        return first, without_inplace(first, mode)


def inputs() -> Tensors:
    random = torch.Generator().manual_seed(3)
    return [torch.randn(4, 4, generator=random), torch.randn(4, 4, generator=random).t()]


@pytest.mark.parametrize("function", [views, parts, chains, indexed, dropped, norm])
def test_nothing_is_changed_in_place_and_the_numbers_are_the_same(function: Callable[..., Tensors]) -> None:
    _, rewritten = traced(function, inputs())
    assert rewritten is not None
    left = [n for n in rewritten.graph.nodes if n.op == "call_function" and _mutable(n.target)]
    assert all(n.target is torch.ops.aten.copy_.default and n.args[0].op == "placeholder" for n in left)
    mine, plain = inputs(), inputs()
    torch.manual_seed(0)
    got = rewritten(*mine)
    torch.manual_seed(0)
    wanted = function(*plain)
    for a, b in zip([*got, *mine], [*wanted, *plain], strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("function", [views, parts, chains, norm])
def test_shapes_told_beforehand_share_storages_as_the_tensors_will(function: Callable[..., Tensors]) -> None:
    _, rewritten = traced(function, inputs())
    assert rewritten is not None
    interpreter: Any = torch.fx.Interpreter(rewritten)
    plainly, seen, alive = interpreter.run_node, dict[int, int](), []

    def look(n: Any) -> Any:
        out, told = plainly(n), n.meta.get("val")
        if isinstance(out, torch.Tensor) and isinstance(told, torch.Tensor):
            assert (out.dtype, out.shape, out.stride()) == (told.dtype, told.shape, told.stride()), n
            assert out.storage_offset() == told.storage_offset(), n
            alive.append(out)
            real, fake = out.untyped_storage()._cdata, told.untyped_storage()._cdata
            assert seen.setdefault(fake, real) == real, n
        return out

    interpreter.run_node = look
    interpreter.run(*inputs())
    assert len(set(seen.values())) == len(seen)


def test_what_is_rare_is_left_to_torch_and_the_trace_stays_as_it_was() -> None:
    first, rewritten = traced(promoted, inputs())
    assert rewritten is None
    assert torch.equal(first(*inputs())[0], promoted(*inputs())[0])


def _mutable(target: Any) -> bool:
    return bool(getattr(getattr(target, "_schema", None), "is_mutable", False))
