"""The LDA part of `orders`: the sweep of examples/lda.py, in order or not, and with the word counts buffered too."""

from __future__ import annotations

import importlib.util
import math
import statistics
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import stretto as st

from . import report

TOPICS, ROUNDS, EPOCHS = 50, 5, 20


def example() -> ModuleType:
    """examples/lda.py."""
    path = Path(__file__).parents[1] / "examples" / "lda.py"
    spec = importlib.util.spec_from_file_location("examples.lda", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@st.parallel
def sweep_buffered(
    tokens: Any, topic: Any, docs: Any, words: Any, moved: Any, totals: Any, changes: Any, alpha: float, beta: float,
    epoch: int,
) -> None:  # fmt: skip
    topics, smooth = len(totals), beta * len(words)
    for (d, w), p in tokens:
        old = topic[p]
        docs[d, old] -= 1
        moved[w, old] -= 1
        changes[old] -= 1
        reach = np.empty(topics)
        mass = 0.0
        for k in range(topics):
            # Counts that lag may be short of what was taken away meanwhile.
            mass += (docs[d, k] + alpha) * (max(words[w, k], 0) + beta) / (max(totals[k], 0) + smooth)
            reach[k] = mass
        at, new = st.uniform(epoch, p) * mass, 0
        while reach[new] <= at:
            new += 1
        topic[p] = new
        docs[d, new] += 1
        moved[w, new] += 1
        changes[new] += 1


class Model:
    """Counts for a collection, with random topics to begin with."""

    def __init__(self, lda: ModuleType, counts: st.Data) -> None:
        self.lda = lda
        self.tokens = counts.expanded().numbered(values=False)
        self.topic, self.totals = st.zeros(len(self.tokens), "i4"), st.zeros(TOPICS, "i4")
        self.docs = st.zeros((counts.shape[0], TOPICS), "i4")
        self.words = st.zeros((counts.shape[1], TOPICS), "i4")
        lda.begin(self.tokens, self.topic, self.docs, self.words, st.buffer(self.totals), TOPICS, 0)

    def sweep(self, loop: Any, epoch: int) -> float:
        """One sweep; the seconds its passes took."""
        totals = self.totals
        if loop.__name__ == "sweep_buffered":
            moved = st.buffer(self.words)
            loop(self.tokens, self.topic, self.docs, self.words, moved, totals, st.buffer(totals), 0.1, 0.01, epoch)
        else:
            loop(self.tokens, self.topic, self.docs, self.words, totals, st.buffer(totals), 0.1, 0.01, epoch)
        return float(loop.seconds)

    def perplexity(self) -> float:
        total = st.accumulator(0.0)
        self.lda.likelihood(self.tokens, self.docs, self.words, self.totals, 0.1, 0.01, total)
        return math.exp(-total.get() / len(self.tokens))


def times(workers: int) -> list[list[object]]:
    """Seconds for a sweep in order and not, as rows of the table."""
    lda = example()
    counts = lda.generate(documents=2_000 if workers < 8 else 8_000, vocabulary=4_000, topics=TOPICS, length=150)
    rows: list[list[object]] = []
    for blocks in (workers, 2 * workers, 4 * workers):
        same: dict[str, Any] = {"runtime": st.Threads(workers), "blocks": (workers, blocks), "cut": ("d", "w")}
        loops = [
            lda.sweep.using(ordered=True, **same),
            lda.sweep.using(**same),
            lda.sweep.using(runtime=st.Threads(workers)),
        ]
        model = Model(lda, counts)
        seconds: list[list[float]] = [[], [], []]
        for t in range(ROUNDS + 1):
            for k, loop in enumerate(loops):
                seconds[k].append(model.sweep(loop, t))
        ordered, unordered, default = (statistics.median(found[1:]) for found in seconds)
        expected, ratio = (blocks + workers - 1) / blocks, ordered / unordered
        rows.append(["LDA", workers, blocks, f"{1e3 * ordered:.1f}", f"{1e3 * unordered:.1f}", f"{ratio:.3f}",
                     f"{expected:.3f}", f"{ratio / expected - 1:+.1%}", f"{1e3 * default:.1f}"])  # fmt: skip
        print(*rows[-1], flush=True)
    return rows


def learned() -> str:
    """Perplexity after so many sweeps, for each kind of loop."""
    lda = example()
    counts = lda.generate(documents=1_000, vocabulary=2_000, topics=TOPICS, length=100)
    shown = (1, 2, 5, 10, 20)
    rows = []
    for name, loop in (
        ("serial order", lda.sweep.using(ordered=True)),
        ("unordered", lda.sweep),
        ("words buffered", sweep_buffered),
    ):
        model, seen, seconds = Model(lda, counts), [], []
        for t in range(EPOCHS):
            seconds.append(model.sweep(loop, t))
            if t + 1 in shown:
                seen.append(f"{model.perplexity():.1f}")
        rows.append([name, *seen, f"{1e3 * statistics.median(seconds[1:]):.0f} ms"])
    return report.table(["LDA, perplexity after sweep", *map(str, shown), "sweep"], rows)
