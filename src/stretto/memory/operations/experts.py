"""Mixture-of-experts layers: a router sends every token to a few small networks.

    layer = Experts(width=1024, inner=4096, experts=48)
    y = layer(x)                   # x and y: (..., 1024)

Both layers compute the same and have the same parameters, in different tensors:

    Experts         Tokens are sorted by expert, and experts multiply row ranges (`grouped_matmul`): memory and time are
                    in proportion to the tokens, whatever their distribution over the experts. Groups of experts have
                    parameters of their own, which a step under a budget has on the device one after another.
    PaddedExperts   Every expert has a fixed number of rows in one large tensor, padded with zeros. All parameters,
                    their gradients and the rows of all experts are on the device at once. Kept for comparison.

With a *capacity factor* an expert takes at most `factor` times its fair share of the tokens. Tokens beyond it are
**dropped**: the layer's output is zero for them (a residual connection around it passes them on) and they have no
gradient. Among the tokens of an expert the first ones are kept. `layer.dropped(x)` counts the others.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from stretto.errors import PlanError

from .grouped_matmul import grouped_mm

_GROUP = 2**26  # numbers in a parameter of a group at most, unless groups= is given


class _Routed(nn.Module):
    """The router of a mixture-of-experts layer, with its capacity."""

    def __init__(self, width: int, inner: int, experts: int, top_k: int, factor: float | None) -> None:
        super().__init__()
        if min(width, inner, experts) < 1 or not (factor is None or 0 < factor < math.inf):
            raise PlanError(
                f"experts of width={width}, inner={inner}, experts={experts}, factor={factor}: "
                "pass sizes of 1 or more and a finite factor above 0"
            )
        if not 1 <= top_k <= experts:
            raise PlanError(
                f"top_k={top_k} of experts={experts}: a token can use 1 to {experts} experts; pass one of these"
            )
        self.gate = nn.Linear(width, experts, bias=False)
        self.experts, self.top_k, self.factor = experts, top_k, factor

    def capacity(self, pairs: int) -> int:
        """How many of these pairs of a token and an expert one expert takes.

        Parameters
        ----------
        pairs : int
            Pairs of a token and an expert.
        """
        if self.factor is None:
            return pairs
        return max(1, min(pairs, int(self.factor * pairs / self.experts)))

    def choose(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The weights of the chosen experts and their numbers, [n, top_k] each.

        With top_k=1 the weight is the expert's share of the softmax over all experts, so that the router has a
        gradient. Otherwise the weights are the softmax over the chosen experts.

        Parameters
        ----------
        x : Tensor [n, width]
            Tokens.
        """
        scores = self.gate(x)
        if self.top_k == 1:
            weight, chosen = scores.softmax(-1).max(-1, keepdim=True)
            return weight, chosen
        best, chosen = scores.topk(self.top_k)
        return best.softmax(-1), chosen

    def dropped(self, x: torch.Tensor) -> torch.Tensor:
        """Count the pairs of a token and its expert that exceed the capacity of the expert.

        Parameters
        ----------
        x : Tensor [..., width]
            Tokens.

        Returns
        -------
        Tensor
            One integer. With top_k=1 it is the number of dropped tokens.
        """
        with torch.no_grad():
            _, chosen = self.choose(x.reshape(-1, x.shape[-1]))
            count = F.one_hot(chosen.flatten(), self.experts).sum(0)
            return (count - self.capacity(chosen.numel())).clamp(min=0).sum()


class PaddedExperts(_Routed):
    """A mixture-of-experts layer with all experts in one tensor and a fixed capacity.

    It is kept for comparison with `Experts`. The parameters are `up` [experts, width, inner] and `down` [experts,
    inner, width].

    Parameters
    ----------
    width : int
        Size of a token.
    inner : int
        Size of an expert's hidden layer.
    experts : int
        Number of experts.
    factor : float, default 2.0
        Capacity factor: an expert takes this many times its fair share of the tokens; the rest is dropped.

    Attributes
    ----------
    dims : dict
        Names of the dimensions of the parameters.

    Examples
    --------
    >>> import torch
    >>> import stretto as st
    >>> layer = st.memory.PaddedExperts(width=8, inner=16, experts=4)
    >>> layer(torch.randn(10, 8)).shape
    torch.Size([10, 8])
    """

    # Names of dimensions, see `capture.named_dims`.
    dims: ClassVar = {"up": ("experts", "width", "inner"), "down": ("experts", "inner", "width")}

    def __init__(self, width: int, inner: int, experts: int, factor: float = 2.0) -> None:
        super().__init__(width, inner, experts, 1, factor)
        self.up = nn.Parameter(torch.randn(experts, width, inner) * width**-0.5)
        self.down = nn.Parameter(torch.randn(experts, inner, width) * inner**-0.5)

    def expert(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The matrices of one expert, views of the parameters: [width, inner] and [inner, width].

        Parameters
        ----------
        number : int
            The expert.
        """
        return self.up[number], self.down[number]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the experts to tokens.

        Parameters
        ----------
        x : Tensor [..., width]
            Tokens.
        """
        shape, experts = x.shape, self.experts
        x = x.reshape(-1, shape[-1])
        capacity = self.capacity(len(x))
        weight, chosen = (one.squeeze(1) for one in self.choose(x))
        hot = F.one_hot(chosen, experts)
        at = (hot.cumsum(0) * hot).sum(-1) - 1  # a token's place among those of its expert
        slot = torch.where(at < capacity, chosen * capacity + at, experts * capacity)
        into = x.new_zeros(experts * capacity + 1, shape[-1]).index_copy(0, slot, x)  # the last row: dropped tokens
        hidden = F.relu(torch.bmm(into[:-1].view(experts, capacity, -1), self.up))
        output = torch.bmm(hidden, self.down).reshape(experts * capacity, -1)
        output = torch.cat([output, output.new_zeros(1, output.shape[1])])
        return (output[slot] * weight[:, None]).view(shape)


class Experts(_Routed):
    """A mixture-of-experts layer in which every expert multiplies only its own tokens.

    Group g of k experts has the parameters `up[g]` [k, width, inner] and `down[g]` [k, inner, width].

    Parameters
    ----------
    width : int
        Size of a token.
    inner : int
        Size of an expert's hidden layer.
    experts : int
        Number of experts.
    top_k : int, default 1
        Experts that a token uses.
    factor : float or None, default None
        Capacity factor: an expert takes at most this many times its fair share of the tokens, and the rest is
        **dropped**. None: no token is dropped, even if all of them prefer one expert.
    groups : int or None, default None
        Groups that the parameters are split into. A step under a budget has the parameters of one group after another
        on the device and updates each as soon as its gradient is computed. Each further group copies the hidden layer
        of all tokens once more. None: as few as keep every parameter below 64 Mi numbers.

    Examples
    --------
    >>> import torch
    >>> import stretto as st
    >>> layer = st.memory.Experts(width=8, inner=16, experts=4, top_k=2)
    >>> layer(torch.randn(10, 8)).shape
    torch.Size([10, 8])
    >>> int(layer.dropped(torch.randn(10, 8)))
    0
    """

    def __init__(
        self,
        width: int,
        inner: int,
        experts: int,
        top_k: int = 1,
        factor: float | None = None,
        groups: int | None = None,
    ) -> None:
        super().__init__(width, inner, experts, top_k, factor)
        if groups is None:
            groups = min(experts, math.ceil(experts * width * inner / _GROUP))
        if not 1 <= groups <= experts:
            raise PlanError(f"groups={groups} of experts={experts}: pass a number from 1 to {experts}")
        sizes = [experts * (g + 1) // groups - experts * g // groups for g in range(groups)]
        self.up = nn.ParameterList(torch.randn(k, width, inner) * width**-0.5 for k in sizes)
        self.down = nn.ParameterList(torch.randn(k, inner, width) * inner**-0.5 for k in sizes)

    def expert(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The matrices of one expert, views of the parameters: [width, inner] and [inner, width].

        Parameters
        ----------
        number : int
            The expert.
        """
        for up, down in zip(self.up, self.down, strict=True):
            if number < len(up):
                return up[number], down[number]
            number -= len(up)
        raise IndexError(f"there is no expert of this number; the layer has experts 0 to {self.experts - 1}")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the experts to tokens.

        Parameters
        ----------
        x : Tensor [..., width]
            Tokens.
        """
        shape = x.shape
        if not x.numel():
            return x
        x = x.reshape(-1, shape[-1])
        weight, chosen = self.choose(x)
        route = self._route(chosen)
        up, down = list(self.up), list(self.down)
        if torch.is_autocast_enabled(x.device.type):
            dtype = torch.get_autocast_dtype(x.device.type)
            x, *both = (one.to(dtype) for one in (x, *up, *down))
            up, down = both[: len(up)], both[len(up) :]
        full = route.kept is None
        hidden = F.relu(grouped_mm(_Sort.apply(x, route), route.ends, up, full=full))
        output = _Unsort.apply(grouped_mm(hidden, route.ends, down, full=full), route)
        output = output.view(len(x), self.top_k, -1)
        if route.kept is not None:
            output = output.masked_fill(~route.kept[:, :, None], 0)
        output = output * weight.to(x.dtype)[:, :, None]
        return (output.squeeze(1) if self.top_k == 1 else output.sum(1)).view(shape)

    def _route(self, chosen: torch.Tensor) -> _Route:
        """Sort pairs by expert. Sizes depend only on the number of tokens, and the host reads no value."""
        pairs = torch.arange(chosen.numel(), device=chosen.device)
        expert, order = torch.sort(chosen.flatten(), stable=True)
        numbers = torch.arange(self.experts, device=chosen.device)
        ends = torch.searchsorted(expert, numbers, right=True, out_int32=True)
        place = torch.empty_like(order).index_copy(0, order, pairs)
        if self.factor is None:
            return _Route(order, place, ends, None)
        capacity = self.capacity(len(pairs))
        count = ends.diff(prepend=ends.new_zeros(1))
        fewer = count.clamp(max=capacity).cumsum(0, dtype=torch.int32)
        at = place - (ends - count).index_select(0, chosen.flatten())  # a pair's place among those of its expert
        kept = at < capacity
        begin = torch.cat([fewer.new_zeros(1), fewer[:-1]])
        rows = min(len(pairs), self.experts * capacity)
        place = torch.where(kept, begin.index_select(0, chosen.flatten()) + at, rows)  # dropped pairs: behind the last
        order = torch.zeros(rows + 1, dtype=order.dtype, device=order.device).index_copy(0, place, pairs)[:rows]
        return _Route(order, place.clamp(max=rows - 1), fewer, kept.view_as(chosen))


class _Route(NamedTuple):
    """Where pairs of a token and an expert go. Pair t * top_k + j is the j-th expert of token t."""

    order: torch.Tensor  # by row: its pair
    place: torch.Tensor  # by pair: its row; any row for dropped pairs
    ends: torch.Tensor  # by expert: the end of its rows, int32
    kept: torch.Tensor | None  # whether a pair is not dropped [tokens, top_k]; None: no pair is dropped


# A row has one pair, and a pair one row: so gradients are gathered too. Torch would add them to a tensor of zeros, in
# an undefined order on a GPU.


class _Sort(torch.autograd.Function):
    """Rows of tokens, sorted by expert."""

    @staticmethod
    def forward(x: torch.Tensor, route: _Route) -> torch.Tensor:
        top_k = len(route.place) // len(x)
        return x.index_select(0, route.order if top_k == 1 else route.order // top_k)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, route = inputs
        ctx.tokens, ctx.drops = len(x), route.kept is not None
        ctx.save_for_backward(route.place, *((route.kept,) if ctx.drops else ()))

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        place, *kept = ctx.saved_tensors
        pairs = grad.index_select(0, place).view(ctx.tokens, -1, grad.shape[1])
        if ctx.drops:
            pairs = pairs.masked_fill(~kept[0][:, :, None], 0)
        return pairs.squeeze(1) if pairs.shape[1] == 1 else pairs.sum(1), None


class _Unsort(torch.autograd.Function):
    """Rows in the order of the pairs."""

    @staticmethod
    def forward(rows: torch.Tensor, route: _Route) -> torch.Tensor:
        return rows.index_select(0, route.place)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[1].order)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        (order,) = ctx.saved_tensors
        return grad.index_select(0, order), None
