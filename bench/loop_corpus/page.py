"""`python -m bench loop_corpus`: measure every loop, check its bits and write bench/results/loop_corpus.md."""

from __future__ import annotations

import argparse
import statistics
import warnings
from collections.abc import Iterator
from multiprocessing import get_context

import numpy as np

import stretto as st
from bench import loop_corpus, report
from stretto.testing.arithmetic import same_bits
from stretto.testing.loops import reference

from .entry import CorpusLoop
from .measure import Measured, arrays_of, measure

COLUMNS = ["loop", "theme", "strategy", "equal bits", "ours, 1 thread", "ours, 2 threads", "strict Numba",
           "fastmath Numba", "plain Numba", "strict / ours", "plain / ours", "first call: ours, strict",
           "refused, or on one worker: followed by"]  # fmt: skip
GOAL = 0.9  # of the speed of strict Numba


def equal_bits(entry: CorpusLoop) -> bool:
    """Whether 1, 2 and 4 workers have the bits of the reference interpreter, on small data."""
    arguments = entry.arguments(entry.small)
    wanted = reference(entry.loop().plan(**arguments))
    for workers in (1, 2, 4):
        again = entry.arguments(entry.small)
        entry.loop().using(runtime=st.Threads(workers))(**again)
        for name, value in again.items():
            expect = wanted.accumulators.get(name, wanted.arrays.get(name))
            found = arrays_of(value)
            if expect is not None and len(found) == 1 and not same_bits(expect, np.asarray(found[0])):
                return False
    return True


def line(theme: str, entry: CorpusLoop, found: Measured) -> list[str]:
    """One line of the table."""
    ms, first = found.milliseconds, found.compiled

    def time(name: str) -> str:
        return f"{ms[name]:.1f}" if name in ms else ""

    def ratio(name: str) -> str:
        return f"{ms[name] / ms['ours']:.2f}" if name in ms and "ours" in ms else ""

    bits = ("yes" if equal_bits(entry) else "NO") if found.strategies else ""
    compiled = ", ".join(f"{first[name]:.1f}" for name in ("ours", "strict") if name in first)
    times = [time(name) for name in ("ours", "ours 2", "strict", "fast", "plain")]
    refused = f"{entry.instead or 'none'}: {found.message.rstrip(':')}" if found.message else ""
    strategies = " / ".join(found.strategies) + (", with a warning" if found.serial else "")
    return [entry.name, theme, strategies or "refused", bits, *times, ratio("strict"), ratio("plain"),
            compiled, refused.replace("|", "\\|")]  # fmt: skip


def summary(measured: dict[str, Measured]) -> Iterator[str]:
    """What the table says in a few lines."""
    written = {name: found for name, found in measured.items() if not loop_corpus.corpus()[name].follows}
    for lot, what in ((1, "first lot"), (2, "second lot")):
        mine = [found for name, found in written.items() if loop_corpus.corpus()[name].lot == lot]
        parallel = sum(bool(found.strategies) and not found.serial for found in mine)
        serial, refused = sum(found.serial for found in mine), sum(not found.strategies for found in mine)
        yield (
            f"- {what}, {len(mine)} loops as written: {parallel} in parallel, {serial} on one worker with a warning, "
            + (f"{refused} refused")
        )
    ratios = sorted(found.milliseconds["strict"] / found.milliseconds["ours"] for found in measured.values()
                    if "ours" in found.milliseconds and "strict" in found.milliseconds)  # fmt: skip
    fast = sum(ratio >= GOAL for ratio in ratios)
    spread = f"median {statistics.median(ratios):.2f}, least {ratios[0]:.3f}"
    yield f"- at least {GOAL} of strict Numba at one thread: {fast} of {len(ratios)}; {spread}"


def measured_line(name: str) -> tuple[str, Measured, list[str]]:
    """Measure one loop, in a process of a pool."""
    warnings.simplefilter("ignore")
    entry = loop_corpus.corpus()[name]
    theme = next(theme for theme, module in loop_corpus.THEMES.items() if entry in module.LOOPS)
    found = measure(entry)
    return name, found, line(theme, entry, found)


def main(arguments: list[str]) -> None:
    """Measure every loop and write the table."""
    parser = argparse.ArgumentParser(prog="python -m bench loop_corpus")
    parser.add_argument("--only", nargs="*", metavar="NAME", help="loops to print; nothing is written")
    parser.add_argument("--jobs", type=int, default=1, help="loops to measure at a time; each needs two idle cores")
    chosen = parser.parse_args(arguments)
    names = [name for name in loop_corpus.corpus() if chosen.only is None or name in chosen.only]
    rows, measured = [], {}
    with get_context("spawn").Pool(chosen.jobs) as pool:
        for name, found, row in pool.imap(measured_line, names):
            measured[name] = found
            rows.append(row)
            print(" | ".join(row), flush=True)
    if chosen.only is not None:
        return
    body = "\n".join(summary(measured)) + "\n\n" + report.table(COLUMNS, rows)
    command = "loop_corpus" + (f" --jobs {chosen.jobs}" if chosen.jobs > 1 else "")
    title = "Loops from textbooks beside Numba"
    report.save("loop_corpus", title, report.text(loop_corpus.__doc__), body, command=command)
