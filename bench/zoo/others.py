"""Tables of features, graphs, points in space, a step that branches on a value, a step of several parts."""

from __future__ import annotations

import itertools
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from ..memory_models import Job, cast
from .parts import classified, normal, pick, placed, tokens, trained


def layers(*widths: int, last: bool = False) -> nn.Sequential:
    """Products with ReLU behind each; last: also behind the last one."""
    found: list[nn.Module] = []
    for a, b in itertools.pairwise(widths):
        found += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*(found if last else found[:-1]))


class DLRM(nn.Module):
    """Embedding tables for categories, a network for numbers, products of all pairs, a network on top."""

    def __init__(self, rows: list[int], width: int, numbers: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(n, width, mode="sum") for n in rows)
        self.bottom = layers(numbers, 8 * width, 4 * width, width, last=True)
        count = len(rows) + 1
        self.top = layers(width + count * (count - 1) // 2, 16 * width, 8 * width, 1)
        pairs = torch.tril_indices(count, count, -1)
        self.register_buffer("pairs", pairs[0] * count + pairs[1])

    def forward(self, numbers: torch.Tensor, categories: list[torch.Tensor]) -> torch.Tensor:
        x = self.bottom(numbers)
        found = torch.stack([x, *(table(which) for table, which in zip(self.tables, categories, strict=True))], 1)
        pairs = torch.bmm(found, found.transpose(1, 2)).flatten(1)[:, self.pairs]
        return self.top(torch.cat([x, pairs], 1))[:, 0]


def dlrm(device: str, dtype: str, size: str) -> Job:
    """A recommendation model: one table has half of all parameters; Adagrad."""
    rows, width, batch = pick(
        size,
        ([2000, 1000, 300, 50, 50], 8, 256),
        ([4_000_000, *3 * [1_000_000], *6 * [200_000], *16 * [10_000]], 64, 32768),
    )
    model = placed(DLRM(rows, width, 13), device, dtype)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)

    def loss(model: Any, three: Any) -> torch.Tensor:
        numbers, categories, clicked = three
        return F.binary_cross_entropy_with_logits(model(numbers, categories), clicked)

    categories = [tokens(device, n, batch, 3) for n in rows]
    clicked = tokens(device, 2, batch).float()
    return trained(model, optimizer, (normal(device, dtype, batch, 13), categories, clicked), device, dtype, loss=loss)


class Message(nn.Module):
    """Messages along edges, added up where they arrive; then nodes change, with layer norm and dropout."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.edge, self.node, self.norm = (
            layers(2 * width, width, width),
            layers(2 * width, width, width),
            nn.LayerNorm(width),
        )
        self.drop = nn.Dropout(0.1)

    def forward(self, h: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        sent = self.edge(torch.cat([h[source], h[target]], -1))
        came = torch.zeros_like(h).index_add(0, target, sent)
        return h + self.drop(self.node(torch.cat([self.norm(h), came], -1)))


class Graphs(nn.Module):
    """Rounds of messages over one graph, a class for every node."""

    def __init__(self, features: int, width: int, rounds: int, classes: int) -> None:
        super().__init__()
        self.enter, self.head = nn.Linear(features, width), nn.Linear(width, classes)
        self.rounds = nn.ModuleList(Message(width) for _ in range(rounds))

    def forward(self, x: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        h = self.enter(x)
        for message in self.rounds:
            h = message(h, source, target)
        return self.head(h)


def graph_network(device: str, dtype: str, size: str) -> Job:
    """Message passing in float32; Adam. Sums over edges are added in any order on a GPU."""
    nodes, edges, features, width, rounds = pick(size, (64, 400, 16, 16, 3), (40_000, 400_000, 128, 192, 6))
    model = placed(Graphs(features, width, rounds, 40), device, dtype)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    ends = tokens(device, nodes, edges), tokens(device, nodes, edges)
    batch = normal(device, dtype, nodes, features), *ends, tokens(device, 40, nodes)
    return trained(model, optimizer, batch, device, dtype, blocks=model.rounds)


class Edges(nn.Module):
    """Features of a point and of its nearest neighbours in feature space; the largest over the neighbours."""

    def __init__(self, width: int, out: int, near: int) -> None:
        super().__init__()
        self.near, self.both = near, nn.Conv2d(2 * width, out, 1, bias=False)
        self.norm = nn.BatchNorm2d(out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():  # [batch, width, points]: which points are near is not learnt
            square = x.square().sum(1)
            apart = square[:, :, None] + square[:, None] - 2 * x.transpose(1, 2) @ x
            which = apart.topk(self.near, -1, largest=False).indices
        b, d, n = x.shape
        found = x.gather(2, which.view(b, 1, -1).expand(-1, d, -1)).view(b, d, n, self.near)
        own = x[..., None].expand_as(found)
        return F.leaky_relu(self.norm(self.both(torch.cat([own, found - own], 1))), 0.2).amax(-1)


class Points(nn.Module):
    """Four times the nearest neighbours, then the largest over all points."""

    def __init__(self, widths: tuple[int, ...], near: int, classes: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Edges(a, b, near) for a, b in zip((3, *widths), widths, strict=False))
        self.all = nn.Conv1d(sum(widths), 4 * widths[-1], 1)
        self.head = nn.Sequential(layers(4 * widths[-1], 128, last=True), nn.Dropout(0.5), nn.Linear(128, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = []
        for block in self.blocks:
            x = block(x)
            found.append(x)
        return self.head(F.relu(self.all(torch.cat(found, 1))).amax(-1))


def point_cloud(device: str, dtype: str, size: str) -> Job:
    """Points in space by their nearest neighbours (DGCNN-like); SGD with cosine restarts."""
    widths, near, batch, points = pick(size, ((8, 16), 4, 4, 32), ((64, 64, 128, 256), 20, 32, 1024))
    model = placed(Points(widths, near, 40), device, dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 5)
    both = normal(device, dtype, batch, 3, points), tokens(device, 40, batch)
    return trained(model, optimizer, both, device, dtype, blocks=model.blocks, schedule=schedule)


class Wide(nn.Module):
    """A residual block of a network over rows of numbers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.a, self.b = nn.BatchNorm1d(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.b(self.drop(F.relu(self.a(self.norm(x)))))


def branching(device: str, dtype: str, size: str) -> Job:
    """A network over rows of numbers whose step reads the loss and takes a smaller one where it is large."""
    features, width, depth, batch = pick(size, (16, 32, 3, 64), (256, 512, 8, 32768))
    blocks = [Wide(width) for _ in range(depth)]
    model = placed(nn.Sequential(nn.Linear(features, width), *blocks, nn.Linear(width, 10)), device, dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def loss(model: Any, both: Any) -> torch.Tensor:
        value = classified(model, both)
        return value.sqrt() if float(value.detach()) > 2.0 else value

    both = normal(device, dtype, batch, features), tokens(device, 10, batch)
    return trained(model, optimizer, both, device, dtype, loss=loss, blocks=blocks)


class Averages(nn.Module):
    """A moving average of every parameter, as buffers."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        for number, p in enumerate(model.parameters()):
            self.register_buffer(f"of_{number}", p.detach().clone())


def accumulated_ema(device: str, dtype: str, size: str) -> Job:
    """VGG-like with dropout: four parts of a batch, clipping, one update, a moving average of the parameters."""
    side, widths, hidden, batch = pick(size, (16, (8, 16), 64, 16), (128, (64, 128, 256, 512), 2048, 512))
    found: list[nn.Module] = []
    for a, b in zip((3, *widths), widths, strict=False):
        found += [nn.Conv2d(a, b, 3, padding=1), nn.ReLU(inplace=True)]
        found += [nn.Conv2d(b, b, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
    last = widths[-1] * (side >> len(widths)) ** 2
    found += [nn.Flatten(), nn.Linear(last, hidden), nn.ReLU(), nn.Dropout(0.5), nn.Linear(hidden, 100)]
    model = placed(nn.Sequential(*found), device, dtype)
    averages = Averages(model)
    optimizer = torch.optim.RAdam(model.parameters(), lr=1e-4)

    def step(both: Any) -> torch.Tensor:
        optimizer.zero_grad()
        total = torch.zeros((), device=both[0].device)
        for x, y in zip(both[0].chunk(4), both[1].chunk(4), strict=True):
            with cast(device, dtype):
                value = classified(model, (x, y)) / 4
            value.backward()
            total = total + value.detach()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        with torch.no_grad():
            for mean, p in zip(averages.buffers(), model.parameters(), strict=True):
                mean.lerp_(p, 0.01)
        return total

    both = normal(device, dtype, batch, 3, side, side), tokens(device, 100, batch)
    return Job(step, [model, averages], [optimizer], both, [one for one in found if isinstance(one, nn.Conv2d)])
