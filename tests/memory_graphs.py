"""Graphs for the tests of the memory planner: random ones, chains, and training steps of a GPT and of a CNN."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from stretto.memory.planner.graph import Graph, Node, Storage


class Builder:
    """Storages and nodes, one after the other."""

    def __init__(self) -> None:
        self.storages: list[Storage] = []
        self.nodes: list[Node] = []

    def store(self, nbytes: int, kind: str = "activation", name: str = "") -> int:
        self.storages.append(Storage(int(nbytes), kind, name or f"{kind}{len(self.storages)}"))
        return len(self.storages) - 1

    def node(
        self,
        name: str,
        reads: tuple[int, ...],
        makes: tuple[int, ...] = (),
        seconds: float = 1e-3,
        *,
        writes: tuple[int, ...] = (),
        workspace: int = 0,
        recomputable: bool = True,
        ordered: bool = False,
        phase: str = "forward",
    ) -> None:
        self.nodes.append(Node(name, reads, makes, writes, seconds, workspace, recomputable, ordered, phase))

    def graph(self, results: tuple[int, ...] = ()) -> Graph:
        made = Graph(tuple(self.storages), tuple(self.nodes), results)
        made.check()
        return made


def random_graph(seed: int, count: int, *, plain: bool = False) -> Graph:
    """Nodes that read what was made before; persistent storages, writes, several outputs, nodes that run once only."""
    rng = np.random.default_rng(seed)
    build = Builder()
    persistent = [build.store(int(rng.integers(0, 60)), str(rng.choice(["parameter", "state", "constant"])))]
    persistent += [build.store(int(rng.integers(1, 60)), "parameter") for _ in range(int(rng.integers(0, 4)))]
    there = [build.store(int(rng.integers(1, 40)), "input") for _ in range(int(rng.integers(1, 3)))]
    for n in range(count):
        some = [int(s) for s in rng.choice(there, min(len(there), int(rng.integers(1, 4))), replace=False)]
        if rng.random() < 0.3:
            some.append(int(rng.choice(persistent)))
        writes = (int(rng.choice(persistent)),) if rng.random() < 0.15 and not plain else ()
        makes = [build.store(int(rng.integers(0, 50))) for _ in range(int(rng.choice([0, 1, 1, 1, 2, 3])))]
        build.node(
            f"n{n}",
            tuple(some),
            tuple(makes),
            float(rng.integers(1, 50)) * 1e-4,
            writes=writes,
            workspace=int(rng.choice([0, 0, 0, 20])),
            recomputable=plain or bool(rng.random() < 0.8),
            ordered=bool(rng.random() < 0.1),
            phase="update" if writes else "forward",
        )
        there += makes
    made = [s for s in there if build.storages[s].kind == "activation"]
    results = tuple(int(s) for s in rng.choice(made, min(len(made), 2), replace=False)) if made else ()
    return build.graph(results)


random_graphs = st.builds(random_graph, st.integers(0, 10**6), st.integers(1, 25))


def chain(length: int, nbytes: int = 100, seconds: float = 1e-3) -> Graph:
    """x0 → x1 → … → xn and back: the gradient of xi wants xi."""
    build = Builder()
    xs = [build.store(nbytes, "input")]
    for n in range(length):
        xs.append(build.store(nbytes))
        build.node(f"f{n}", (xs[-2],), (xs[-1],), seconds)
    grad = xs[-1]
    for n in range(length - 1, -1, -1):
        new = build.store(nbytes, "gradient")
        build.node(f"b{n}", (grad, xs[n]), (new,), seconds, phase="backward")
        grad = new
    return build.graph((grad,))


def gpt(layers: int, width: int = 1024, tokens: int = 16384, vocab: int = 50257, *, item: int = 2) -> Graph:
    """A training step of a GPT in AdamW: sizes in bytes, seconds of an H200 (590 TFLOP/s, 3.4 TB/s)."""
    build = Builder()
    rate, band = 590e12, 3.4e12
    full = tokens * width * item

    def seconds(flops: float, moved: float) -> float:
        return max(flops / rate, moved / band) + 2e-6

    weights: list[tuple[int, int, int]] = []  # parameter, gradient-to-be (its bytes), state

    def weight(nbytes: int, name: str) -> int:
        p = build.store(nbytes * 4 // item, "parameter", name)
        weights.append((p, nbytes, build.store(2 * nbytes * 4 // item, "state", name + ".adam")))
        return p

    def update(p: int, grad: int) -> None:
        state = next(st for q, _, st in weights if q == p)
        n = build.storages[p].nbytes
        build.node(
            f"adam {build.storages[p].name}",
            (p, grad, state),
            (),
            seconds(0, 7 * n),
            writes=(p, state),
            recomputable=False,
            phase="update",
        )

    ids = build.store(tokens * 8, "input", "ids")
    target = build.store(tokens * 8, "input", "target")
    table = weight(vocab * width * item, "wte")
    x = build.store(full)
    build.node("embed", (ids, table), (x,), seconds(0, 2 * full))

    def cast(p: int) -> int:
        made = build.store(build.storages[p].nbytes * item // 4)
        build.node("cast", (p,), (made,), seconds(0, 1.5 * build.storages[p].nbytes))
        return made

    saved = []
    for layer in range(layers):
        names = [
            weight(k * width * width * item, f"h{layer}.{name}")
            for k, name in ((3, "qkv"), (1, "proj"), (4, "fc1"), (4, "fc2"))
        ]
        mm = [cast(p) for p in names]

        def norm(source: int) -> tuple[int, int]:
            made, stats = build.store(full), build.store(tokens * 8)
            build.node("norm", (source,), (made, stats), seconds(0, 2 * full))
            return made, stats

        def times(source: int, w: int, inner: int, outer: int) -> int:
            made = build.store(tokens * outer * item)
            build.node(
                "mm", (source, w), (made,), seconds(2.0 * tokens * inner * outer, tokens * (inner + outer) * item)
            )
            return made

        n1, s1 = norm(x)
        qkv = times(n1, mm[0], width, 3 * width)
        attn, lse = build.store(full), build.store(tokens * 64)
        build.node("attention", (qkv,), (attn, lse), seconds(4.0 * tokens * 1024 * width / 2 * 1.6, 4 * full))
        proj = times(attn, mm[1], width, width)
        x1 = build.store(full)
        build.node("add", (x, proj), (x1,), seconds(0, 3 * full))
        n2, s2 = norm(x1)
        f1 = times(n2, mm[2], width, 4 * width)
        act = build.store(4 * full)
        build.node("gelu", (f1,), (act,), seconds(0, 8 * full))
        f2 = times(act, mm[3], 4 * width, width)
        x2 = build.store(full)
        build.node("add", (x1, f2), (x2,), seconds(0, 3 * full))
        saved.append((names, mm, x, n1, s1, qkv, attn, lse, x1, n2, s2, f1, act))
        x = x2
    head = cast(table)
    logits = build.store(tokens * vocab * item)
    build.node("head", (x, head), (logits,), seconds(2.0 * tokens * width * vocab, tokens * vocab * item))
    loss, lse = build.store(4, "result", "loss"), build.store(tokens * 4)
    build.node("loss", (logits, target), (loss, lse), seconds(0, tokens * vocab * item))
    dlogits = build.store(tokens * vocab * item, "gradient")
    build.node("dloss", (logits, lse, target), (dlogits,), seconds(0, 2 * tokens * vocab * item), phase="backward")

    def back_times(grad: int, source: int, w: int, inner: int, outer: int, p: int | None) -> tuple[int, int]:
        flops = 2.0 * tokens * inner * outer
        made = build.store(tokens * inner * item, "gradient")
        build.node("dmm", (grad, w), (made,), seconds(flops, tokens * (inner + outer) * item), phase="backward")
        dw = build.store(inner * outer * item, "gradient")
        build.node("dw", (grad, source), (dw,), seconds(flops, tokens * (inner + outer) * item), phase="backward")
        return made, dw

    def merge(one: int, two: int, moved: float, *more: int) -> int:
        made = build.store(full, "gradient")
        build.node("dadd", (one, two, *more), (made,), seconds(0, moved), phase="backward")
        return made

    pending: list[tuple[int, int]] = []
    grad, dw = back_times(dlogits, x, head, width, vocab, table)
    dhead = dw
    for names, mm, x0, n1, s1, qkv, attn, lse, x1, n2, s2, f1, act in reversed(saved):
        dact, dw = back_times(grad, act, mm[3], 4 * width, width, None)
        pending.append((names[3], dw))
        df1 = build.store(4 * full, "gradient")
        build.node("dgelu", (dact, f1), (df1,), seconds(0, 12 * full), phase="backward")
        dn2, dw = back_times(df1, n2, mm[2], width, 4 * width, None)
        pending.append((names[2], dw))
        grad = merge(grad, dn2, 5 * full, x1, s2)
        dattn, dw = back_times(grad, attn, mm[1], width, width, None)
        pending.append((names[1], dw))
        dqkv = build.store(3 * full, "gradient")
        build.node(
            "dattention",
            (dattn, qkv, attn, lse),
            (dqkv,),
            seconds(10.0 * tokens * 1024 * width / 2 * 1.6, 8 * full),
            phase="backward",
        )
        dn1, dw = back_times(dqkv, n1, mm[0], width, 3 * width, None)
        pending.append((names[0], dw))
        grad = merge(grad, dn1, 5 * full, x0, s1)
    dtable = build.store(vocab * width * item, "gradient")
    build.node("dembed", (grad, ids, dhead), (dtable,), seconds(0, 4 * vocab * width * item), phase="backward")
    pending.append((table, dtable))
    for p, dw in pending:
        update(p, dw)
    return build.graph((loss,))


def cnn(blocks: int, nbytes: int = 200 << 20, weight: int = 4 << 20, *, conv: float = 1.2e-3) -> Graph:
    """A training step of a residual CNN with batch norm and momentum: conv, norm, relu twice in a block and an add.

    nbytes: of one activation. conv: seconds of a convolution forward; the others move bytes at 3.4 TB/s.
    """
    build = Builder()
    moved = nbytes / 3.4e12
    x = build.store(nbytes, "input", "images")
    saved: list[tuple[int, int, int, int, int, int, int]] = []
    updates: list[tuple[int, int, int]] = []
    for block in range(blocks):
        first, inner = x, x
        for half in range(2):
            w = build.store(weight, "parameter", f"b{block}.{half}")
            momentum = build.store(weight, "state", f"b{block}.{half}.momentum")
            running = build.store(4096, "buffer", f"b{block}.{half}.mean")
            c, b, stats, r = (build.store(size) for size in (nbytes, nbytes, 8192, nbytes))
            build.node("conv", (inner, w), (c,), conv, workspace=nbytes // 4)
            build.node("norm", (c,), (b, stats), 2 * moved, writes=(running,))
            if half:
                total = build.store(nbytes)
                build.node("add", (b, first), (total,), 3 * moved)
                b = total
            build.node("relu", (b,), (r,), 2 * moved)
            saved.append((inner, w, momentum, c, stats, r, first if half else -1))
            inner = r
        x = inner
    loss = build.store(4, "result", "loss")
    build.node("loss", (x,), (loss,), moved)
    grad = build.store(nbytes, "gradient")
    build.node("dloss", (x, loss), (grad,), moved, phase="backward")
    shortcut = -1
    for inner, w, momentum, c, stats, r, joined in reversed(saved):
        if shortcut >= 0 and joined >= 0:
            summed = build.store(nbytes, "gradient")
            build.node("dadd", (grad, shortcut), (summed,), 3 * moved, phase="backward")
            grad = summed
        before = build.store(nbytes, "gradient")
        build.node("drelu", (grad, r), (before,), 3 * moved, phase="backward")
        if joined >= 0:
            shortcut = before
        normed = build.store(nbytes, "gradient")
        build.node("dnorm", (before, c, stats), (normed,), 4 * moved, phase="backward")
        dw = build.store(weight, "gradient")
        build.node("dw", (normed, inner), (dw,), conv, workspace=nbytes // 4, phase="backward")
        grad = build.store(nbytes, "gradient")
        build.node("dconv", (normed, w), (grad,), conv, workspace=nbytes // 4, phase="backward")
        updates.append((w, momentum, dw))
    for w, momentum, dw in updates:
        build.node("sgd", (w, momentum, dw), (), 5e-6, writes=(w, momentum), recomputable=False, phase="update")
    return build.graph((loss,))
