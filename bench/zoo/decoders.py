"""Language models of today's kind: RMS norm, rotary positions, gated feed-forward parts, grouped-query attention; also
with low-rank adapters on frozen weights, and an encoder-decoder with learned relative positions."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from ..memory_models import Job
from .parts import pick, placed, tokens, trained


class RMSNorm(nn.Module):
    """A vector over the root of its mean square, in float32, times a weight."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.float()
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6)
        return y.to(x.dtype) * self.weight


def turned(x: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Rotary positions: x is [batch, heads, length, width of a head]."""
    cos, sin = (each.to(x.dtype) for each in turn)
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Layer(nn.Module):
    """A decoder layer; `linear` makes its products."""

    def __init__(self, width: int, heads: int, groups: int, inner: int, linear: Any) -> None:
        super().__init__()
        self.heads, self.groups, head = heads, groups, width // heads
        self.n1, self.n2 = RMSNorm(width), RMSNorm(width)
        self.q, self.o = linear(width, width), linear(width, width)
        self.k, self.v = linear(width, groups * head), linear(width, groups * head)
        self.gate, self.up, self.down = linear(width, inner), linear(width, inner), linear(inner, width)

    def forward(self, x: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        y = self.n1(x)
        q, k, v = (
            part(y).unflatten(-1, (n, -1)).transpose(1, 2)
            for part, n in ((self.q, self.heads), (self.k, self.groups), (self.v, self.groups))
        )
        q, k = turned(q, turn), turned(k, turn)
        k, v = (each.repeat_interleave(self.heads // self.groups, 1) for each in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).flatten(2))
        y = self.n2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    """Token numbers in, logits out."""

    def __init__(
        self, vocabulary: int, length: int, width: int, layers: int, heads: int, groups: int, inner: int, linear: Any
    ) -> None:
        super().__init__()
        self.embedding, self.norm = nn.Embedding(vocabulary, width), RMSNorm(width)
        self.blocks = nn.ModuleList(Layer(width, heads, groups, inner, linear) for _ in range(layers))
        self.head = nn.Linear(width, vocabulary, bias=False)
        half = width // heads // 2
        angles = torch.arange(length)[:, None] * 10000.0 ** (-torch.arange(half) / half)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.embedding(x)
        for block in self.blocks:
            h = block(h, (self.cos, self.sin))
        return self.head(self.norm(h))


def dense(width: int, out: int) -> nn.Module:
    """A product without a bias."""
    return nn.Linear(width, out, bias=False)


def llama(device: str, dtype: str, size: str) -> Job:
    """A Llama-like model of 0.85 billion parameters: AdamW, clipping, warm-up."""
    shape, batch, length = pick(size, ((96, 64, 3, 4, 2, 128), 4, 32), ((32000, 1792, 22, 28, 7, 4736), 4, 2048))
    vocabulary, width, layers, heads, groups, inner = shape
    model = placed(Decoder(vocabulary, length, width, layers, heads, groups, inner, dense), device, dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, 10)
    both = tokens(device, vocabulary, batch, length), tokens(device, vocabulary, batch, length)
    return trained(model, optimizer, both, device, dtype, blocks=model.blocks, clip=1.0, schedule=schedule)


class LowRank(nn.Module):
    """A frozen product with a trained one of low rank beside it, which has dropout before it."""

    def __init__(self, width: int, out: int, rank: int = 16) -> None:
        super().__init__()
        self.frozen = nn.Linear(width, out, bias=False).to(torch.bfloat16).requires_grad_(False)
        self.a, self.b = nn.Parameter(torch.randn(rank, width) / math.sqrt(width)), nn.Parameter(torch.zeros(out, rank))
        self.drop = nn.Dropout(0.05)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.frozen(x) + 2.0 * F.linear(F.linear(self.drop(x), self.a), self.b)


def lora(device: str, dtype: str, size: str) -> Job:
    """Low-rank adapters in float32 on 1.6 billion frozen weights in bfloat16; AdamW has the adapters only."""
    shape, batch, length = pick(size, ((96, 64, 3, 4, 2, 128), 4, 32), ((32000, 2048, 32, 32, 8, 5632), 4, 1024))
    vocabulary, width, layers, heads, groups, inner = shape
    model = Decoder(vocabulary, length, width, layers, heads, groups, inner, LowRank)
    for part in (model.embedding, model.norm, model.head, *(norm for b in model.blocks for norm in (b.n1, b.n2))):
        part.to(torch.bfloat16).requires_grad_(False)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    both = tokens(device, vocabulary, batch, length), tokens(device, vocabulary, batch, length)
    return trained(model, optimizer, both, device, dtype, blocks=model.blocks)


class Relative(nn.Module):
    """Attention written out, with a bias for relative positions that all layers of a stack share."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm, self.drop = heads, RMSNorm(width), nn.Dropout(0.1)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x: torch.Tensor, bias: torch.Tensor | None, context: torch.Tensor | None = None) -> torch.Tensor:
        y = self.norm(x)
        other = y if context is None else context
        q, k, v = (
            part(z).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part, z in ((self.q, y), (self.k, other), (self.v, other))
        )
        score = q @ k.transpose(-1, -2)
        if bias is not None:
            score = score + bias
        share = self.drop(score.float().softmax(-1)).to(v.dtype)
        return x + self.drop(self.o((share @ v).transpose(1, 2).flatten(2)))


class Stack(nn.Module):
    """Layers of an encoder, or of a decoder that attends to the encoder's output."""

    def __init__(self, width: int, heads: int, layers: int, inner: int, *, decoder: bool) -> None:
        super().__init__()
        self.decoder, self.bias = decoder, nn.Embedding(64, heads)
        self.own = nn.ModuleList(Relative(width, heads) for _ in range(layers))
        self.cross = nn.ModuleList(Relative(width, heads) for _ in range(layers if decoder else 0))
        self.feed = nn.ModuleList(
            nn.Sequential(RMSNorm(width), dense(width, inner), nn.ReLU(), nn.Dropout(0.1), dense(inner, width))
            for _ in range(layers)
        )
        self.norm = RMSNorm(width)

    def forward(self, x: torch.Tensor, context: torch.Tensor | None = None) -> torch.Tensor:
        at = torch.arange(x.shape[1], device=x.device)
        apart = at[:, None] - at
        bias = self.bias(apart.clamp(-32, 31) + 32).permute(2, 0, 1)
        if self.decoder:
            bias = bias.masked_fill(apart < 0, -1e4)
        for k, (own, feed) in enumerate(zip(self.own, self.feed, strict=True)):
            x = own(x, bias)
            if context is not None:
                x = self.cross[k](x, None, context)
            x = x + feed(x)
        return self.norm(x)


class EncoderDecoder(nn.Module):
    """One embedding table for both stacks and for the logits."""

    def __init__(self, vocabulary: int, width: int, heads: int, layers: int, inner: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.encoder = Stack(width, heads, layers, inner, decoder=False)
        self.decoder = Stack(width, heads, layers, inner, decoder=True)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        h = self.decoder(self.embedding(target), self.encoder(self.embedding(source)))
        return self.head(h * h.shape[-1] ** -0.5)


def t5(device: str, dtype: str, size: str) -> Job:
    """A T5-like encoder-decoder (base size): tied weights, dropout, Adafactor."""
    shape, batch, source, target = pick(
        size, ((96, 64, 4, 2, 128), 4, 24, 12), ((32128, 768, 12, 12, 3072), 16, 512, 128)
    )
    model = placed(EncoderDecoder(*shape), device, dtype)
    optimizer = torch.optim.Adafactor(model.parameters(), lr=1e-3)
    three = tuple(tokens(device, shape[0], batch, n) for n in (source, target, target))
    blocks = [*model.encoder.own, *model.encoder.feed, *model.decoder.own, *model.decoder.cross, *model.decoder.feed]
    return trained(model, optimizer, three, device, dtype, blocks=blocks)


class Scan(nn.Module):
    """A selective state space: a decay for every position and channel, states carried from chunk to chunk."""

    def __init__(self, width: int, state: int, chunk: int) -> None:
        super().__init__()
        self.chunk, self.state = chunk, state
        self.norm, self.enter = RMSNorm(width), nn.Linear(width, 2 * width, bias=False)
        self.near = nn.Conv1d(width, width, 4, padding=3, groups=width)
        self.pace, self.both = nn.Linear(width, width), nn.Linear(width, 2 * state, bias=False)
        self.leave = nn.Linear(width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        u, gate = self.enter(self.norm(x)).chunk(2, -1)
        u = F.silu(self.near(u.transpose(1, 2))[..., : u.shape[1]].transpose(1, 2))
        pace = F.softplus(self.pace(u).float())  # [batch, length, width]
        read, write = self.both(u).float().chunk(2, -1)  # [batch, length, state]
        kept = torch.zeros(x.shape[0], u.shape[-1], self.state, device=x.device)
        out = []
        parts = (each.split(self.chunk, 1) for each in (pace, read, write, u.float()))
        for slow, r, w, v in zip(*parts, strict=True):
            decay = -slow.cumsum(1)  # its exponential: what is left of the state at the beginning of the chunk
            before = torch.einsum("bln,bdn,bld->bld", r, kept, decay.exp())
            score = torch.einsum("bln,bmn->blm", r, w).tril()
            mixed = torch.einsum("blm,bmd->bld", score, v * slow)
            out.append(before + mixed)
            last = (decay[:, -1:] - decay).exp() * slow * v
            kept = kept * decay[:, -1, :, None].exp() + torch.einsum("bld,bln->bdn", last, w)
        y = torch.cat(out, 1).to(x.dtype) * F.silu(gate)
        return x + self.leave(y)


def selective_scan(device: str, dtype: str, size: str) -> Job:
    """A Mamba-like language model: convolutions over a few positions and a scan in chunks; Adam, no weight decay."""
    vocabulary, width, layers, state, chunk, batch, length = pick(
        size, (96, 32, 2, 8, 8, 4, 32), (32000, 1024, 12, 16, 256, 8, 1024)
    )
    blocks = [Scan(width, state, chunk) for _ in range(layers)]
    model = nn.Sequential(nn.Embedding(vocabulary, width), *blocks, RMSNorm(width), dense(width, vocabulary))
    model = placed(model, device, dtype)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    both = tokens(device, vocabulary, batch, length), tokens(device, vocabulary, batch, length)
    return trained(model, optimizer, both, device, dtype, blocks=blocks)
