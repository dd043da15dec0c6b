"""Layers of experts: every word goes to the one small network that its gate prefers.

    layer = Experts(width=1024, inner=4096, experts=48)
    said = layer(x)                # x: (..., 1024), and so is what it says

An expert has *room* for `factor` times its fair share of the words of a call. Words beyond it are **dropped**: the
layer says zero for them (a residual connection around it carries them on) and they teach nothing. `layer.dropped(x)`
counts them. Among the words that prefer an expert the first ones stay.

Both layers compute the same and hold the same numbers, in other tensors:

PaddedExperts   one tensor for all experts; words are copied into one large tensor, the rest of which is zeros. Few and
                large operations; parameters, their gradients and the words of all experts are on the device at once.
Experts         parameters of their own for each expert; each gathers its words and scatters what it says. A step under
                a budget has them on the device one after another.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import nn

from stretto.errors import PlanError


class _Gated(nn.Module):
    """What both have: a gate, and the room of an expert."""

    def __init__(self, width: int, inner: int, experts: int, factor: float) -> None:
        super().__init__()
        if min(width, inner, experts) < 1 or not 0 < factor < float("inf"):
            raise PlanError(
                f"experts of width={width}, inner={inner}, experts={experts}, factor={factor}: "
                "pass sizes of 1 or more and a finite factor above 0"
            )
        self.gate, self.experts, self.factor = nn.Linear(width, experts, bias=False), experts, factor

    def room(self, words: int) -> int:
        """How many of so many words an expert takes."""
        return max(1, min(words, int(self.factor * words / self.experts)))

    def choose(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Of words (n, width): the weight of the chosen expert and its number, (n,) each."""
        weight, chosen = self.gate(x).softmax(-1).max(-1)
        return weight, chosen

    def dropped(self, x: torch.Tensor) -> torch.Tensor:
        """How many words of x are beyond the room of their expert: a tensor with one whole number."""
        with torch.no_grad():
            x = x.reshape(-1, x.shape[-1])
            _, chosen = self.choose(x)
            count = F.one_hot(chosen, self.experts).sum(0)
            return (count - self.room(len(x))).clamp(min=0).sum()


class PaddedExperts(_Gated):
    """Experts in one tensor: `up` (experts, width, inner) and `down` (experts, inner, width)."""

    dims: ClassVar = {"up": ("experts", "width", "inner"), "down": ("experts", "inner", "width")}  # see `named`

    def __init__(self, width: int, inner: int, experts: int, factor: float = 2.0) -> None:
        super().__init__(width, inner, experts, factor)
        self.up = nn.Parameter(torch.randn(experts, width, inner) * width**-0.5)
        self.down = nn.Parameter(torch.randn(experts, inner, width) * inner**-0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (..., width)."""
        shape, experts = x.shape, self.experts
        x = x.reshape(-1, shape[-1])
        room = self.room(len(x))
        weight, chosen = self.choose(x)
        hot = F.one_hot(chosen, experts)
        at = (hot.cumsum(0) * hot).sum(-1) - 1  # the how-manieth word of its expert a word is
        slot = torch.where(at < room, chosen * room + at, experts * room)
        into = x.new_zeros(experts * room + 1, shape[-1]).index_copy(0, slot, x)  # the last row: dropped words
        inner = F.relu(torch.bmm(into[:-1].view(experts, room, -1), self.up))
        said = torch.bmm(inner, self.down).reshape(experts * room, -1)
        said = torch.cat([said, said.new_zeros(1, said.shape[1])])
        return (said[slot] * weight[:, None]).view(shape)


class Experts(_Gated):
    """Experts one by one: `up[e]` (width, inner) and `down[e]` (inner, width)."""

    def __init__(self, width: int, inner: int, experts: int, factor: float = 2.0) -> None:
        super().__init__(width, inner, experts, factor)
        self.up = nn.ParameterList(torch.randn(width, inner) * width**-0.5 for _ in range(experts))
        self.down = nn.ParameterList(torch.randn(inner, width) * inner**-0.5 for _ in range(experts))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (..., width)."""
        shape = x.shape
        if not x.numel():
            return x
        x = x.reshape(-1, shape[-1])
        weight, chosen = self.choose(x)
        _, order = torch.sort(chosen, stable=True)  # words by expert
        count = F.one_hot(chosen, self.experts).sum(0)
        first = count.cumsum(0) - count
        places = torch.arange(self.room(len(x)), device=x.device)
        here = torch.empty_like(order).index_copy(0, order, torch.arange(len(x), device=x.device))
        at = here - first.index_select(0, chosen)  # the how-manieth word of its expert a word is
        kept = at < len(places)
        slot = chosen * len(places) + at.clamp(max=len(places) - 1)
        handles = _Collect.apply(x, slot, kept, self.experts, len(places))
        said, alls, mines = [], [], []
        for e in range(self.experts):
            # Sizes may not depend on values in a step that is planned: places that no word takes have words of other
            # experts, as zeros (what this one makes of them might be infinite); nobody looks at what is said of them.
            words, mine = order[(first[e] + places) % len(x)], places < count[e]
            inner = F.relu(_Take.apply(handles[e], x, words, mine) @ self.up[e])
            said.append(inner @ self.down[e])
            alls.append(words)
            mines.append(mine)
        found = _Put.apply(slot, *alls, *mines, *said)
        return (found * (weight * kept)[:, None]).view(shape)


# A word has one place, and a place one word: what taking and putting teach is taken and put as well. Torch would add up
# rows instead, into a tensor of all words for every expert, in no certain order.


class _Collect(torch.autograd.Function):
    """Handles, one for each expert and of the shape of its words, through which what is learned about the words of x
    comes back. They have no memory, so that words are taken when their expert's turn comes, not all at once."""

    @staticmethod
    def forward(x: torch.Tensor, slot: torch.Tensor, kept: torch.Tensor, experts: int, room: int) -> Any:
        return tuple(x.new_empty(()).expand(room, x.shape[1]) for _ in range(experts))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs[1:3])

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        slot, kept = ctx.saved_tensors
        return torch.cat(grads).index_select(0, slot) * kept[:, None], None, None, None, None


class _Take(torch.autograd.Function):
    """Rows of x, zero where they are not the expert's; what they learn goes to the handle."""

    @staticmethod
    def forward(handle: torch.Tensor, x: torch.Tensor, words: torch.Tensor, mine: torch.Tensor) -> torch.Tensor:
        return x.index_select(0, words).masked_fill(~mine[:, None], 0)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is needed."""

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return grad, None, None, None


class _Put(torch.autograd.Function):
    """By word: the row of its slot in what all experts said. rest: by expert, whose rows its places are; then, which of
    them it is asked about; then, what it said."""

    @staticmethod
    def forward(slot: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        return torch.cat(rest[2 * len(rest) // 3 :]).index_select(0, slot)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs[1 : 1 + 2 * (len(inputs) - 1) // 3])

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        saved = ctx.saved_tensors  # once: checkpoints give each of them only once
        experts = len(saved) // 2
        words, mine = saved[:experts], saved[experts:]
        rows = [grad.index_select(0, at) * asked[:, None] for at, asked in zip(words, mine, strict=True)]
        return None, *[None] * (2 * experts), *rows
