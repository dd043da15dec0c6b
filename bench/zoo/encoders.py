"""Transformers as they were written for years: masks, dropout, tied weights, experts, PyTorch's own encoder, and a
model that its author compiled."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from ..memory_models import Job
from .parts import Block, classified, pick, placed, tokens, trained


def _lengths(device: str, batch: int, length: int) -> torch.Tensor:
    """Whether a position holds a token: sequences of several lengths, the first one of all."""
    lengths = length - torch.arange(batch, device=device) * (length // 2) // max(1, batch - 1)
    return torch.arange(length, device=device) < lengths[:, None]


class Bert(nn.Module):
    """Tokens, positions and segments; encoder blocks with dropout; a head for masked tokens."""

    def __init__(self, vocabulary: int, length: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.embedding, self.places = nn.Embedding(vocabulary, width, padding_idx=0), nn.Embedding(length, width)
        self.kinds, self.norm, self.drop = nn.Embedding(2, width), nn.LayerNorm(width), nn.Dropout(0.1)
        self.blocks = nn.ModuleList(Block(width, heads, dropout=0.1) for _ in range(layers))
        self.head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, vocabulary))

    def forward(self, x: torch.Tensor, kinds: torch.Tensor, held: torch.Tensor) -> torch.Tensor:
        h = self.embedding(x) + self.places(torch.arange(x.shape[1], device=x.device)) + self.kinds(kinds)
        h, mask = self.drop(self.norm(h)), held[:, None, None, :]
        for block in self.blocks:
            h = block(h, mask)
        return self.head(h)


def bert(device: str, dtype: str, size: str) -> Job:
    """BERT (base size) on masked tokens: dropout, a padding mask, targets that are ignored; AdamW and warm-up."""
    vocabulary, width, heads, layers, batch, length = pick(size, (96, 64, 4, 2, 4, 32), (30522, 768, 12, 12, 32, 256))
    model = placed(Bert(vocabulary, length, width, heads, layers), device, dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, 1.0, 20)
    held = _lengths(device, batch, length)
    x = tokens(device, vocabulary, batch, length) * held
    y = torch.where(held & (torch.rand(batch, length, device=device) < 0.15), x, -100)
    four = x, tokens(device, 2, batch, length), held, y
    return trained(model, optimizer, four, device, dtype, blocks=model.blocks, clip=1.0, schedule=schedule)


class GPT2(nn.Module):
    """Causal blocks with dropout; logits by the embedding table."""

    def __init__(self, vocabulary: int, length: int, width: int, heads: int, layers: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.embedding, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, dropout=dropout, causal=True) for _ in range(layers))
        self.norm, self.drop = nn.LayerNorm(width), nn.Dropout(dropout)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.embedding.weight
        nn.init.normal_(self.embedding.weight, std=0.02)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.drop(self.embedding(x) + self.places(torch.arange(x.shape[1], device=x.device)))
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))


def gpt2(device: str, dtype: str, size: str) -> Job:
    """GPT-2 (small): tied weights, dropout, clipping, a fused AdamW with two parameter groups."""
    vocabulary, width, heads, layers, batch, length = pick(size, (96, 64, 4, 2, 4, 32), (50257, 768, 12, 12, 8, 1024))
    model = placed(GPT2(vocabulary, length, width, heads, layers), device, dtype)
    groups: list[Any] = [
        {"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95), fused=True)
    both = tokens(device, vocabulary, batch, length), tokens(device, vocabulary, batch, length)
    return trained(model, optimizer, both, device, dtype, blocks=model.blocks, clip=1.0)


def compiled_gpt(device: str, dtype: str, size: str) -> Job:
    """A GPT whose author called `.compile()` on it before training: Inductor, on a tiny one no code generation."""
    vocabulary, width, heads, layers, batch, length = pick(size, (96, 64, 4, 2, 4, 32), (32000, 1024, 16, 8, 8, 1024))
    model = placed(GPT2(vocabulary, length, width, heads, layers, dropout=0.0), device, dtype)
    model.compile(backend=pick(size, "eager", "inductor"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    both = tokens(device, vocabulary, batch, length), tokens(device, vocabulary, batch, length)
    return trained(model, optimizer, both, device, dtype, blocks=model.blocks)


class Torch(nn.Module):
    """nn.TransformerEncoder with a padding mask."""

    def __init__(self, vocabulary: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 16)

    def forward(self, x: torch.Tensor, padded: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embedding(x), src_key_padding_mask=padded))


def torch_encoder(device: str, dtype: str, size: str) -> Job:
    """nn.TransformerEncoder in float32 with dropout and `src_key_padding_mask`, a class for every token."""
    vocabulary, width, heads, layers, batch, length = pick(size, (96, 64, 4, 2, 4, 32), (20000, 512, 8, 6, 64, 256))
    model = placed(Torch(vocabulary, width, heads, layers), device, dtype)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    padded = ~_lengths(device, batch, length)
    y = tokens(device, 16, batch, length).masked_fill(padded, -100)
    three = tokens(device, vocabulary, batch, length), padded, y
    return trained(model, optimizer, three, device, dtype, blocks=model.encoder.layers)


class Mixture(nn.Module):
    """Experts of limited capacity: the two best for each token, weighed by a gate; dispatch by products.

    `forward` returns the output and a loss that balances the experts."""

    def __init__(self, width: int, inner: int, experts: int, factor: float = 1.25) -> None:
        super().__init__()
        self.gate, self.factor = nn.Linear(width, experts, bias=False), factor
        self.up = nn.Parameter(torch.randn(experts, width, inner) / width**0.5)
        self.down = nn.Parameter(torch.randn(experts, inner, width) / inner**0.5)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = x.flatten(0, 1)
        count, experts = len(rows), self.up.shape[0]
        space = max(1, int(2 * self.factor * count / experts))
        shares = self.gate(rows).float().softmax(-1)
        best, which = shares.topk(2, -1)
        chosen = F.one_hot(which, experts)  # [tokens, 2, experts]
        before = chosen.transpose(0, 1).flatten(0, 1).cumsum(0).view(2, count, experts).transpose(0, 1) - chosen
        place = (before * chosen).sum(-1)  # of the token at its expert, the best ones first
        fits = (place < space)[..., None]
        at = F.one_hot(place.clamp(max=space - 1), space) * fits
        weight = torch.einsum("wk,wke,wks->wes", best, chosen.float(), at.float()).to(x.dtype)
        taken = torch.einsum("wes,wd->esd", (weight > 0).to(x.dtype), rows)
        made = torch.bmm(F.gelu(torch.bmm(taken, self.up)), self.down)
        y = torch.einsum("wes,esd->wd", weight, made).view_as(x)
        balance = experts * (shares.mean(0) * chosen[:, 0].float().mean(0)).sum()
        return y, balance


class Mixed(nn.Module):
    """A causal block whose feed-forward part is a mixture of experts."""

    def __init__(self, width: int, heads: int, experts: int) -> None:
        super().__init__()
        self.first, self.norm = Block(width, heads, causal=True, inner=width), nn.LayerNorm(width)
        self.mixture = Mixture(width, 2 * width, experts)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.first(x)
        y, balance = self.mixture(self.norm(x))
        return x + y, balance


def moe(device: str, dtype: str, size: str) -> Job:
    """A mixture of experts with a loss that balances them; AdamW."""
    vocabulary, width, heads, layers, experts, batch, length = pick(
        size, (96, 32, 2, 2, 4, 4, 16), (32000, 768, 12, 6, 16, 4, 1024)
    )

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.head = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary)
            self.blocks = nn.ModuleList(Mixed(width, heads, experts) for _ in range(layers))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            h, total = self.embedding(x), torch.zeros((), device=x.device)
            for block in self.blocks:
                h, balance = block(h)
                total = total + balance
            return self.head(h), total

    def loss(model: Any, both: Any) -> torch.Tensor:
        logits, balance = model(both[0])
        return classified(lambda _: logits, (both[0], both[1])) + 0.01 * balance

    model = placed(Model(), device, dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    both = tokens(device, vocabulary, batch, length), tokens(device, vocabulary, batch, length)
    return trained(model, optimizer, both, device, dtype, loss=loss, blocks=model.blocks)
