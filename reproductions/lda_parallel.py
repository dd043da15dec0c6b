"""Topic models on logical workers: serial, data-parallel, data-parallel with managed communication, rotation.

Log-likelihood per token by epoch and by bytes sent, K = 1000, α = β = 0.1, all from the same random topics. Nothing
here depends on the machine: workers are logical and bytes are counted. `STRETTO_PART=ap-managed python -m reproductions
lda_parallel` repeats one part and keeps the results of the others; `none` only writes tables and figures anew.
What is read from it is in docs/reproductions/lda.md.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from bench import lda_sets

import stretto as st
from stretto.runtime.blocks.crew import Crew

from . import report
from .lda_parallel_clocks import Early, data_parallel
from .lda_parallel_runs import Corpus, Curve, rotated, serial, serial_as_rotated, serial_by_documents, span
from .lda_parallel_tell import KEPT, PARTS, WIDE, Runs, claims
from .smpframe_runs import PLOTS

TOPICS = 1000
FEW_AND_MANY = (8, 64)
EXCHANGES = 7  # early ones of a clock
PAGE = PLOTS / "lda.md"
BEGIN, END = "<!-- measured: written by python -m reproductions lda_parallel -->", "<!-- end -->"


@dataclass(frozen=True)
class Scale:
    """What is run on a corpus. shares: early bytes of a clock, over those of the end of the first plain clock."""

    epochs: int
    workers: tuple[int, ...]
    clocks: tuple[int, ...]
    shares: tuple[float, ...]
    seeds: int
    variants: bool  # other serial orders, another rank, the progressive start


SCALES = {
    "ap": Scale(40, (2, 4, 8, 16, 32, 64), (1, 4), (0.25, 0.5, 1.0, 4.0), 3, variants=True),
    "imdb": Scale(12, (WIDE,), (1,), (1.0,), 1, variants=False),
}


def part_rotation(corpus: Corpus, scale: Scale, crew: Crew) -> Iterator[Curve]:
    """Serial runs and rotation."""
    for seed in range(scale.seeds):
        own = replace(corpus, seed=seed)
        for curve in (serial(own, scale.epochs, crew), rotated(own, WIDE, scale.epochs, crew)):
            yield replace(curve, name=curve.name + (f", seed {seed}" if seed else ""))
    for workers in sorted({*scale.workers, *((24,) if scale.variants else ())} - {WIDE}):
        yield rotated(corpus, workers, scale.epochs, crew)
    if scale.variants:
        yield rotated(corpus, WIDE, scale.epochs, crew, empty=True)
        yield serial_by_documents(corpus, scale.epochs, crew)
        yield serial_as_rotated(corpus, WIDE, scale.epochs, crew)


def part_clocks(corpus: Corpus, scale: Scale, crew: Crew) -> Iterator[Curve]:
    """Data-parallel, with one clock an epoch and with several."""
    for clocks in scale.clocks:
        for workers in scale.workers:
            yield data_parallel(corpus, workers, scale.epochs, crew, clocks=clocks)


def part_managed(corpus: Corpus, scale: Scale, crew: Crew) -> Iterator[Curve]:
    """Data-parallel with early exchanges, a clock an epoch."""
    runs = [(WIDE, share, "relative") for share in scale.shares]
    if scale.variants:
        runs += [(workers, 1.0, "relative") for workers in FEW_AND_MANY]
        runs += [(WIDE, 1.0, "absolute")]
    for workers, share, rank in runs:
        first = data_parallel(corpus, workers, 1, crew).epochs[1]
        early = Early.share(share, first, workers, EXCHANGES, rank)
        name = f"managed, {share:.0%}" + (", absolute" if rank == "absolute" else "")
        yield data_parallel(corpus, workers, scale.epochs, crew, early=early, name=name)


MAKERS: dict[str, Callable[[Corpus, Scale, Crew], Iterator[Curve]]] = {
    "rotation": part_rotation,
    "clocks": part_clocks,
    "managed": part_managed,
}


def make(name: str, parts: Sequence[str]) -> None:
    """Make parts of a corpus and keep their curves."""
    KEPT.mkdir(parents=True, exist_ok=True)
    with st.Threads(1).open() as crew:
        corpus = Corpus.of(name, lda_sets.load(name), TOPICS, crew)
        for part in parts:
            curves = []
            for curve in MAKERS[part](corpus, SCALES[name], crew):
                print(f"{name} {curve.name}, {curve.workers} workers: {curve.end:.4f}", flush=True)
                curves.append(curve)
            kept: dict[str, Any] = {"curves": [asdict(curve) for curve in curves]}
            if part == "rotation":
                kept["span"] = {workers: span(corpus, workers, crew) for workers in (1, 8, 24)}
                kept["shape"] = [*corpus.data.shape, corpus.census.tokens]
            (KEPT / f"{name}-{part}.json").write_text(json.dumps(kept) + "\n", encoding="utf-8")


def main() -> None:
    """Make the parts that are asked for, and tables and figures of all that were made."""
    present = lda_sets.present()
    asked = [name for name in os.environ.get("STRETTO_PART", "").split(",") if name]
    there = [f"{name}-{part}" for name in SCALES for part in PARTS]
    for one in asked:
        if one not in (*there, "none"):
            raise SystemExit(f"STRETTO_PART: no part {one!r}; there are {', '.join(there)}, and none")
    for name in present:
        parts = [part for part in PARTS if not asked or f"{name}-{part}" in asked]
        if parts:
            began = time.perf_counter()
            make(name, parts)
            print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)
    every = [runs for runs in map(Runs.load, SCALES) if runs is not None]
    for runs in every:
        runs.draw()
    if not every:
        raise SystemExit("no corpus has all of its parts yet; run without STRETTO_PART")
    table = report.table(["figure", "the paper says", "we measured"], claims(every))
    body = "\n\n".join([table, *(f"## {lda_sets.TITLES[runs.name]}\n\n{runs.table()}" for runs in every)])
    report.save("lda_parallel", "Topic models on logical workers", report.text(__doc__), body, ("scipy", "matplotlib"))
    if PAGE.exists():
        page = PAGE.read_text(encoding="utf-8")
        before, after = page.split(BEGIN)[0], page.split(END, 1)[1]
        PAGE.write_text(f"{before}{BEGIN}\n\n{table}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
