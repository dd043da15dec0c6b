"""Matrix factorisation over two served tables on a simulated cluster: the runs behind `bench.bosen_mf`.

    ratings = Ratings.movielens()
    run = ratings.run(Mode("BS"), until=6.2e5)                       # AdaRevision, bounded staleness
    run = ratings.run(Mode("MC-200-R", budget="200Mbit"))

A worker holds the ratings of some users, in an order drawn once. One clock is one pass over them in batches; for each
it reads the rows of the batch's users and items, computes, and adds: gradients where the server takes the steps
(AdaRevision, whose caches are read only), steps of its own where the server only adds.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

import stretto as st
from stretto.consistency.rules import Rule

from . import sets
from .table_runs import Look, Run

RANK, NODES, THREADS, BATCHES = 16, 8, 2, 16
LAM, SCALE = 0.02, 0.3
LINK, LATENCY, SECONDS = "1Gbit", "10us", 2e-6


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def gradients(users: Any, items: Any, values: Any, W: Any, H: Any, lam: Any, dW: Any, dH: Any) -> None:
    """Σ gradients of ½(r − w·h)² + ½λ(w² + h²) over ratings at W [n, k], H [m, k], added to dW, dH."""
    lam = np.float32(lam)
    for n in range(len(users)):
        i, j = users[n], items[n]
        error = values[n]
        for k in range(W.shape[1]):
            error -= W[i, k] * H[j, k]
        for k in range(W.shape[1]):
            dW[i, k] += lam * W[i, k] - error * H[j, k]
            dH[j, k] += lam * H[j, k] - error * W[i, k]


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def steps(users: Any, items: Any, values: Any, W: Any, H: Any, lam: Any, rate: Any) -> None:
    """Plain SGD, one rating after another, W and H in place."""
    lam, rate = np.float32(lam), np.float32(rate)
    for n in range(len(users)):
        i, j = users[n], items[n]
        error = values[n]
        for k in range(W.shape[1]):
            error -= W[i, k] * H[j, k]
        for k in range(W.shape[1]):
            w, h = W[i, k], H[j, k]
            W[i, k] = w + rate * (error * h - lam * w)
            H[j, k] = h + rate * (error * w - lam * h)


def changes(
    server: str, users: Any, items: Any, values: Any, u: Any, v: Any, rate: float
) -> tuple[NDArray[Any], NDArray[Any]]:
    """What a worker adds to the rows u [n, k], v [m, k] that it read: steps of SGD (add), or gradients for a server
    that makes the steps."""
    if server == "add":
        new, other = u.copy(), v.copy()
        steps(users, items, values, new, other, LAM, rate)
        new -= u
        other -= v
    else:
        new, other = np.zeros_like(u), np.zeros_like(v)
        gradients(users, items, values, u, v, LAM, new, other)
    return new, other


@njit(cache=True)  # type: ignore[untyped-decorator]
def adaptive(users: Any, items: Any, values: Any, W: Any, H: Any, zW: Any, zH: Any, lam: Any, rate: Any) -> None:
    """AdaRevision without any delay, which is AdaGrad by element, one rating after another; zW, zH begin at 1."""
    lam, rate = np.float32(lam), np.float32(rate)
    for n in range(len(users)):
        i, j = users[n], items[n]
        error = values[n]
        for k in range(W.shape[1]):
            error -= W[i, k] * H[j, k]
        for k in range(W.shape[1]):
            w, h = W[i, k], H[j, k]
            gw, gh = lam * w - error * h, lam * h - error * w
            zW[i, k] += gw * gw
            zH[j, k] += gh * gh
            W[i, k] = w - rate / np.sqrt(zW[i, k]) * gw
            H[j, k] = h - rate / np.sqrt(zH[j, k]) * gh


@njit(cache=True)  # type: ignore[untyped-decorator]
def squares(users: Any, items: Any, values: Any, W: Any, H: Any) -> float:
    """Σ (r − w·h)²."""
    total = 0.0
    for n in range(len(users)):
        error = values[n]
        for k in range(W.shape[1]):
            error -= W[users[n], k] * H[items[n], k]
        total += float(error) ** 2
    return total


@dataclass(frozen=True)
class Mode:
    """One way to run, named as in the paper. rate: of AdaRevision, or the first step where server is "add", which
    shrinks by `decay` with each pass. budget None: nothing between clocks; lazy: nothing but what somebody asks for.
    """

    name: str
    server: str = "adarevision"
    rate: float = 0.2
    decay: float = 1.0
    budget: str | None = None
    rank: str = "random"
    bound: int = 2
    lazy: bool = False
    clocks: int = 60
    seed: int = 0  # of who gets which ratings in which order, and where the factors begin

    @property
    def comm(self) -> Any:
        """The policy of communication."""
        if self.budget is not None:
            # Counted over all destinations: some hundred rows in a message, as in the paper.
            return st.tables.Managed(self.budget, rank=self.rank, burst=(800, 800))
        return st.tables.Lazy() if self.lazy else st.tables.Eager()

    @property
    def sync(self) -> Rule:
        """The rule of consistency."""
        return st.tables.SSP(self.bound)


@dataclass(frozen=True)
class Kept(Run):
    """A run; its objective is minus the training loss. reasons are reported by side: "updates rank", "rows clock", …

    links : bytes from one node to another, the least and the most of all pairs.
    """

    links: tuple[int, int] = (0, 0)

    @property
    def steady(self) -> float:
        """Virtual seconds of a pass, the first left out: it fetches every row."""
        first, last = self.looks[1], self.looks[-1]
        return (last.seconds - first.seconds) / max(1.0, last.epoch - first.epoch)


Part = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]


class Ratings:
    """Ratings less their mean, dealt out to workers by user, each worker's in a random order and cut into batches."""

    def __init__(
        self,
        data: st.Data,
        nodes: int = NODES,
        threads: int = THREADS,
        rank: int = RANK,
        batches: int = BATCHES,
        seed: int = 0,
    ) -> None:
        self.nodes, self.threads, self.rank, self.count = nodes, threads, rank, len(data)
        draw = np.random.default_rng(seed)
        workers = nodes * threads
        # Users in a random order, cut where the ratings are even.
        place = draw.permutation(data.shape[0])[data.rows]
        order = np.lexsort((draw.random(len(data)), place))
        cuts = np.linspace(0, len(data), workers + 1).astype(int)
        self.users, self.items = data.shape
        values = (data.values - data.values.mean()).astype(np.float32)
        self.parts: list[list[Part]] = []
        mixed = []
        for a, b in pairwise(cuts):
            mine = draw.permutation(order[a:b])
            mixed.append(mine)
            edges = np.linspace(0, len(mine), batches + 1).astype(int)
            self.parts.append([_part(data, values, mine[c:d]) for c, d in pairwise(edges)])
        # What one machine would go through: everybody's ratings, in a random order.
        mine = draw.permutation(np.concatenate(mixed))
        self.all = (data.rows[mine].astype(np.int64), data.cols[mine].astype(np.int64), values[mine])
        self.W = draw.uniform(-SCALE, SCALE, (self.users, rank)).astype(np.float32)
        self.H = draw.uniform(-SCALE, SCALE, (self.items, rank)).astype(np.float32)

    @classmethod
    def movielens(cls, seed: int = 0) -> Ratings:
        """MovieLens-1M, or generated ratings of that size where it is not present."""
        folder = sets.real_data()
        if folder is None:
            print("MovieLens-1M was not found (set STRETTO_DATA): generated ratings instead")
            return cls(st.generate_ratings(1_000_000, 6_000, 3_500, rank=12, noise=0.5, seed=1).data, seed=seed)
        return cls(st.read(folder / "movielens-1m" / "ratings.tsv.xz", duplicates="last"), seed=seed)

    def loss(self, W: NDArray[np.float32], H: NDArray[np.float32]) -> float:
        """The training loss: the sum of squared errors."""
        return float(squares(*self.all, W, H))

    def single(self, mode: Mode, until: float = 0.0) -> Kept:
        """SN: one machine, every step seen at once by the next."""
        W, H = self.W.copy(), self.H.copy()
        zW, zH = np.ones_like(W), np.ones_like(H)
        each = self.count * SECONDS / self.threads
        began = time.process_time()
        looks = [Look(0, 0.0, 0, -self.loss(W, H))]
        for clock in range(mode.clocks):
            if mode.server == "add":
                steps(*self.all, W, H, LAM, mode.rate * mode.decay**clock)
            else:
                adaptive(*self.all, W, H, zW, zH, LAM, mode.rate)
            loss = self.loss(W, H)
            looks.append(Look(clock + 1, (clock + 1) * each, 0, -loss))
            if not np.isfinite(loss) or loss <= until:
                break
        return Kept(mode.name, 1, 1, 1, tuple(looks), {}, (), (), {}, time.process_time() - began)

    def worker(self, mode: Mode) -> Any:
        """The function of a worker."""

        def work(w: Any) -> None:
            W, H = w.table("users"), w.table("items")
            for clock in w.clocks(mode.clocks):
                for rows, cols, users, items, values in self.parts[w.number]:
                    u, v = W.read(rows), H.read(cols)
                    new, other = changes(mode.server, users, items, values, u, v, mode.rate * mode.decay**clock)
                    w.work(len(values))
                    W.add(rows, new)
                    H.add(cols, other)

        return work

    def run(self, mode: Mode, until: float = 0.0) -> Kept:
        """One run on the cluster; it ends at `until`, or when it diverges."""
        apply = st.tables.add if mode.server == "add" else st.tables.adarevision(mode.rate)
        began = time.process_time()
        found = st.run(
            self.worker(mode),
            tables={
                "users": st.tables.Table(rows=self.users, cols=self.rank, start=self.W, apply=apply),
                "items": st.tables.Table(rows=self.items, cols=self.rank, start=self.H, apply=apply),
            },
            workers=self.nodes * self.threads,
            sync=mode.sync,
            comm=mode.comm,
            runtime=st.Simulated(
                nodes=self.nodes, threads=self.threads, link=LINK, latency=LATENCY, seconds_per_item=SECONDS
            ),
            watch=lambda view: -self.loss(view["users"], view["items"]),
            until=lambda look: not np.isfinite(look.objective) or look.objective >= -until,
        )
        run = Kept.of(mode.name, found, self.nodes, 1, time.process_time() - began)
        pairs = [0] * self.nodes**2
        sides: dict[str, tuple[int, int, int]] = {}
        for entry in found.traffic:
            pairs[entry.source * self.nodes + entry.target] += entry.nbytes
            name = f"{entry.side} {entry.reason}".strip()
            m, r, n = sides.get(name, (0, 0, 0))
            sides[name] = m + entry.messages, r + entry.rows, n + entry.nbytes
        used = [count for count in pairs if count] or [0]
        assert isinstance(run, Kept)
        return replace(run, reasons=sides, links=(min(used), max(used)))


def _part(data: st.Data, values: NDArray[np.float32], mine: NDArray[np.int64]) -> Part:
    rows, users = np.unique(data.rows[mine].astype(np.int64), return_inverse=True)
    cols, items = np.unique(data.cols[mine].astype(np.int64), return_inverse=True)
    return rows, cols, users, items, values[mine]
