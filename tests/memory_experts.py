"""A training step of a transformer with experts as a graph, and where its nodes run: what Tables 6.10 and 6.14 vary."""

from __future__ import annotations

from memory_graphs import Builder
from stretto.memory.planner.graph import Graph

WIDTH, INNER, WORDS = 1024, 4096, 2048  # the dissertation's sizes; a batch of 8 sentence pairs
RATE, BAND = 45e12, 3.4e12


def moe(experts: float, groups: int, devices: int = 1, layers: int = 2, factor: float = 2.0) -> tuple[Graph, list[int]]:
    """The step in Adam and float32, and by node its device.

    groups: tensors that the experts of a layer are cut into. As many as devices: padded experts; five times as many:
    over-partitioned as VMesh does it; as many as experts: sparse. Only experts are split over the devices (in equal
    shares), the rest is on device 0.
    """
    build, on = Builder(), []
    full = 4 * WORDS * WIDTH
    share = factor * WORDS / groups  # words of a group
    into, mid = int(4 * share * WIDTH), int(4 * share * INNER)
    weight = int(4 * WIDTH * INNER * experts / groups)
    mm = 2 * share * WIDTH * INNER / RATE + 5e-6
    updates: list[tuple[int, int, int, int]] = []

    def run(
        d: int, name: str, reads: tuple[int, ...], makes: tuple[int, ...], seconds: float, phase: str = "forward"
    ) -> None:
        build.node(name, reads, makes, seconds, phase=phase)
        on.append(d)

    def parameter(nbytes: int, name: str) -> tuple[int, int]:
        return build.store(nbytes, "parameter", name), build.store(2 * nbytes, "state", name + ".adam")

    def new(nbytes: int, kind: str = "activation") -> int:
        return build.store(nbytes, kind)

    passing, dense = 3 * full / BAND, 8 * WORDS * WIDTH * WIDTH / RATE
    ids = build.store(WORDS * 8, "input", "ids")
    table, table_state = parameter(4 * 32768 * WIDTH, "table")
    x = new(full)
    run(0, "embed", (ids, table), (x,), passing)
    saved = []
    for layer in range(layers):
        w, w_state = parameter(16 * WIDTH * WIDTH, f"{layer}.attention")
        qkv, x1, gates = new(3 * full), new(full), new(int(8 * WORDS * groups))
        run(0, "attention", (x, w), (qkv, x1), dense)
        run(0, "gate", (x1,), (gates,), passing)
        kept, outs = [], []
        for g in range(groups):
            d = g * devices // groups
            up, down = parameter(weight, f"{layer}.up{g}"), parameter(weight, f"{layer}.down{g}")
            one, h, out = new(into), new(mid), new(into)
            run(0, "dispatch", (x1, gates), (one,), into / BAND + 5e-6)
            run(d, "up", (one, up[0]), (h,), mm)
            run(d, "down", (h, down[0]), (out,), mm)
            kept.append((d, up, down, one, h, out))
            outs.append(out)
        x2 = new(full)
        run(0, "combine", (x1, gates, *outs), (x2,), passing)
        saved.append((w, w_state, x, qkv, x1, gates, kept))
        x = x2
    loss, grad = build.store(4, "activation", "loss"), new(full, "gradient")
    run(0, "loss", (x, table), (loss,), 8 * dense)
    run(0, "dloss", (x, table, loss), (grad,), 8 * dense, "backward")
    for w, w_state, x0, qkv, x1, gates, kept in reversed(saved):
        back = []
        for d, up, down, one, h, out in kept:
            dout, dh, ddown, done, dup = (new(n, "gradient") for n in (into, mid, weight, into, weight))
            run(0, "dcombine", (grad, gates, out), (dout,), into / BAND + 5e-6, "backward")
            run(d, "ddown", (dout, h, down[0]), (dh, ddown), 2 * mm, "backward")
            run(d, "dup", (dh, one, up[0]), (done, dup), 2 * mm, "backward")
            updates += [(d, *down, ddown), (d, *up, dup)]
            back.append(done)
        dx1, dw, dx = new(full, "gradient"), new(16 * WIDTH * WIDTH, "gradient"), new(full, "gradient")
        run(0, "ddispatch", (grad, x1, gates, *back), (dx1,), passing, "backward")
        run(0, "dattention", (dx1, qkv, x0, w), (dx, dw), 2 * dense, "backward")
        updates.append((0, w, w_state, dw))
        grad = dx
    dtable = new(4 * 32768 * WIDTH, "gradient")
    run(0, "dembed", (grad, ids), (dtable,), passing, "backward")
    updates.append((0, table, table_state, dtable))
    for d, p, state, dp in updates:
        seconds = 7 * build.storages[p].nbytes / BAND
        build.node("adam", (p, dp, state), (), seconds, writes=(p, state), recomputable=False, phase="update")
        on.append(d)
    return build.graph((loss,)), on
