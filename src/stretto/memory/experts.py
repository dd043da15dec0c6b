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

import torch
import torch.nn.functional as F
from torch import nn

from stretto.errors import PlanError


class _Gated(nn.Module):
    """What both have: a gate, and the room of an expert."""

    def __init__(self, width: int, inner: int, experts: int, factor: float) -> None:
        super().__init__()
        if min(width, inner, experts) < 1 or factor <= 0:
            raise PlanError(
                f"experts of width={width}, inner={inner}, experts={experts}, factor={factor}: "
                "pass sizes of 1 or more and a factor above 0"
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
        x = x.reshape(-1, shape[-1])
        weight, chosen = self.choose(x)
        _, order = torch.sort(chosen, stable=True)  # words by expert
        count = F.one_hot(chosen, self.experts).sum(0)
        first = count.cumsum(0) - count
        # Under autocast weights are float32 and words may be bfloat16: sums have the wider type, as a product has.
        said = torch.zeros_like(x, dtype=torch.promote_types(x.dtype, weight.dtype))
        places = torch.arange(self.room(len(x)), device=x.device)
        for e in range(self.experts):
            # Sizes may not depend on values in a step that is planned: places that no word takes have words of other
            # experts, at weight zero. No word is there twice: adding to one row many times is slow on a GPU.
            mine = places < count[e]
            words = order[(first[e] + places) % len(x)]
            inner = F.relu(x.index_select(0, words) @ self.up[e])
            out = (inner @ self.down[e]) * (weight.index_select(0, words) * mine)[:, None]
            said = said.index_add(0, words, out.to(said.dtype))
        return said.view(shape)
