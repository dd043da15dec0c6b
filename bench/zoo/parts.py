"""What several models of the zoo share: sizes, the usual training step, attention, feed-forward blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import nn

from ..memory_models import Job, cast

T = TypeVar("T")
SIZES = ("tiny", "full")
DTYPES = {"fp32": "float32", "bf16": "float32 with bfloat16 autocast", "pure": "bfloat16 throughout"}


@dataclass(frozen=True)
class Entry:
    """A model of the zoo.

    Attributes
    ----------
    make : callable
        ``make(device, dtype, size)`` returns a `Job`; size is "tiny" or "full".
    dtype : str
        A key of `DTYPES`.
    seen : bool
        Whether the model may be used for tuning the planner.
    rounding : str
        Why a planned step is equal to eager's only up to rounding, if it is; empty where bits must be equal on a CPU.
    gib : int
        About what eager takes of a GPU at full size.
    """

    make: Callable[[str, str, str], Job]
    dtype: str
    seen: bool = False
    rounding: str = ""
    gib: int = 10


def pick(size: str, tiny: T, full: T) -> T:
    """One of two sets of numbers by the name of the size."""
    if size not in SIZES:
        raise ValueError(f"size={size!r} is not known; give one of {', '.join(SIZES)}")
    return tiny if size == "tiny" else full


def classes(size: str) -> int:
    """How many classes images have: few at tiny size, where a large head would be most of the model."""
    return pick(size, 10, 1000)


def floating(dtype: str) -> torch.dtype:
    """The dtype of parameters and of floating-point inputs."""
    return torch.bfloat16 if dtype == "pure" else torch.float32


def placed(model: nn.Module, device: str, dtype: str) -> nn.Module:
    """The model on its device in its dtype."""
    return model.to(device=device, dtype=floating(dtype))


def normal(device: str, dtype: str, *shape: int) -> torch.Tensor:
    """A batch of random numbers."""
    return torch.randn(*shape, device=device, dtype=floating(dtype))


def tokens(device: str, most: int, *shape: int) -> torch.Tensor:
    """A batch of random token numbers or classes below `most`."""
    return torch.randint(0, most, shape, device=device)


def classified(model: nn.Module, batch: Any) -> torch.Tensor:
    """Cross entropy of ``model(*inputs)`` against the targets; batch is ``(*inputs, targets)``."""
    *inputs, targets = batch
    logits = model(*inputs)
    return F.cross_entropy(logits.flatten(0, -2).float(), targets.flatten())


def trained(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: Any,
    device: str,
    dtype: str,
    *,
    loss: Callable[[Any, Any], torch.Tensor] = classified,
    blocks: Sequence[nn.Module] = (),
    clip: float | None = None,
    schedule: torch.optim.lr_scheduler.LRScheduler | None = None,
) -> Job:
    """The usual training step.

    Parameters
    ----------
    loss : callable
        ``loss(model, batch)``, computed under the autocast that the dtype asks for.
    clip : float, optional
        Largest norm of all gradients together.
    schedule : LRScheduler, optional
        Advanced after every step, outside of it.
    """

    def step(batch: Any) -> torch.Tensor:
        optimizer.zero_grad()
        with cast(device, dtype):
            value = loss(model, batch)
        value.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        return value

    after = schedule.step if schedule is not None else lambda: None
    return Job(step, [model], [optimizer], batch, list(blocks), after)


class Attention(nn.Module):
    """Multi-head attention of x over `context` (x itself if none is given), with an additive or Boolean mask."""

    def __init__(self, width: int, heads: int, *, dropout: float = 0.0, causal: bool = False, bias: bool = True):
        super().__init__()
        self.heads, self.dropout, self.causal = heads, dropout, causal
        self.q, self.kv = nn.Linear(width, width, bias=bias), nn.Linear(width, 2 * width, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)

    def forward(
        self, x: torch.Tensor, context: torch.Tensor | None = None, mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        q = self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = self.kv(x if context is None else context).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        dropped = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropped, is_causal=self.causal)
        return self.out(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention and a feed-forward part, each behind a layer norm and with a residual connection."""

    def __init__(self, width: int, heads: int, *, dropout: float = 0.0, causal: bool = False, inner: int = 0):
        super().__init__()
        inner = inner or 4 * width
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout=dropout, causal=causal)
        self.feed = nn.Sequential(
            nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width), nn.Dropout(dropout)
        )  # a dropout of 0 adds no operation
        self.drop = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        x = x + self.drop(self.attention(self.n1(x), mask=mask))
        return x + self.feed(self.n2(x))
