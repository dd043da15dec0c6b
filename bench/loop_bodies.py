"""Random loop functions run by the reference interpreter, by one worker and by two and three threads: equal bits.

The functions of `tests/loop_author.py` have rows, small matrices, local arrays, own functions, inner loops, branches,
accumulators and buffers, over ranges, sparse, ragged and dense data; a number draws one of them. *Run* counts those of
which all four ways gave the same bits in every array, *refused* those that the compiler refused, *failed* the others,
whose source is printed. With several processors, code is compiled for each (`native` is this machine's own, `generic`
the first x86-64), and *other bits* counts functions whose results differ between them.

`--bodies n` and `--first number` choose the functions, `--jobs n` runs them in n processes, `--cpus native haswell
generic` names the processors. `--record FILE` keeps outcomes, and a later run continues with them; `--no-page` only
prints. The exit status is 1 if any function failed or has other bits.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from . import report

ROOT = Path(__file__).parents[1]
CHUNK = 50  # functions of a process, which keeps the code of all of them in memory
NATIVE = "native"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one function on one processor."""

    cpu: str
    number: int
    what: str  # "run", "refused" or what went wrong
    bits: str = ""  # hash of its results


def main(arguments: Sequence[str] = ()) -> None:
    """Run functions and write the page."""
    parser = argparse.ArgumentParser(prog="python -m bench loop_bodies", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--bodies", type=int, default=5000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="number of the first")
    parser.add_argument("--jobs", type=int, default=report.cores(), help="processes")
    parser.add_argument("--cpus", nargs="+", default=[NATIVE], help="processors to compile for, by LLVM's names")
    parser.add_argument("--record", type=Path, help="keep outcomes in this file, and continue with those it has")
    parser.add_argument("--no-page", action="store_true", help="only print")
    given = parser.parse_args(arguments)
    outcomes = run(range(given.first, given.first + given.bodies), given.cpus, given.jobs, given.record)
    wrong = [outcome for outcome in outcomes if outcome.what not in ("run", "refused")]
    for outcome in wrong:
        print(f"number {outcome.number} on {outcome.cpu}: {outcome.what}\n")
    body = counts(outcomes)
    if given.no_page:
        print(body)
    else:
        command = f"loop_bodies --bodies {given.bodies} --first {given.first} --cpus {' '.join(given.cpus)}"
        report.save("loop_bodies", "Random loop functions", report.text(__doc__), body, command=command)
    if wrong or other_bits(outcomes):
        sys.exit(1)


def run(numbers: Sequence[int], cpus: Sequence[str], jobs: int, record: Path | None = None) -> list[Outcome]:
    """Outcomes of functions on processors, from the record where it has them."""
    lines = record.read_text(encoding="utf-8").splitlines() if record is not None and record.exists() else []
    known = {(found.cpu, found.number): found for found in (Outcome(*json.loads(line)) for line in lines)}
    wanted = {(cpu, number) for cpu in cpus for number in numbers}
    missing = sorted((key for key in wanted if key not in known), key=lambda key: (cpus.index(key[0]), key[1]))
    with (
        tempfile.TemporaryDirectory() as cache,
        open(record or os.devnull, "a", encoding="utf-8") as file,
        ThreadPoolExecutor(jobs) as pool,
    ):
        futures = [pool.submit(_chunk, cpu, first, past, cache) for cpu, first, past in _chunks(missing)]
        for future in as_completed(futures):
            for found in future.result():
                known[found.cpu, found.number] = found
                file.write(json.dumps([found.cpu, found.number, found.what, found.bits]) + "\n")
            file.flush()
            print(f"{sum(key in known for key in wanted)} of {len(wanted)}", end="\r", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return [known[key] for key in sorted(wanted)]


def _chunks(missing: Sequence[tuple[str, int]]) -> Iterator[tuple[str, int, int]]:
    """Runs of neighbouring numbers on one processor: (cpu, first, past)."""
    at = 0
    while at < len(missing):
        cpu, first = missing[at]
        size = 1
        while size < CHUNK and missing[at + size : at + size + 1] == [(cpu, first + size)]:
            size += 1
        yield cpu, first, first + size
        at += size


def _chunk(cpu: str, first: int, past: int, cache: str) -> list[Outcome]:
    """Run functions in a process; one that ends the process has failed, and those after it run in another."""
    settings = {} if cpu == NATIVE else {"NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": ""}
    path = os.pathsep.join([str(ROOT), str(ROOT / "src"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    settings |= {"STRETTO_CACHE": cache, "STRETTO_COMPILE_NOTICE": "0", "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    found: list[Outcome] = []
    while first < past:
        command = [sys.executable, "-m", "bench.loop_bodies_one", str(first), str(past)]
        done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, check=False)
        found += [Outcome(cpu, *json.loads(line)) for line in done.stdout.splitlines() if line.endswith("]")]
        first = max((outcome.number + 1 for outcome in found), default=first)
        if first < past:
            found.append(Outcome(cpu, first, f"the process ended with {done.returncode}\n{done.stderr[-2000:]}"))
            first += 1
    return found


def other_bits(outcomes: Sequence[Outcome]) -> list[int]:
    """Numbers of functions whose results differ between processors."""
    bits: dict[int, set[str]] = {}
    for outcome in outcomes:
        if outcome.what == "run":
            bits.setdefault(outcome.number, set()).add(outcome.bits)
    return [number for number, different in bits.items() if len(different) > 1]


def counts(outcomes: Sequence[Outcome]) -> str:
    """The table."""
    rows: list[list[object]] = []
    for cpu in dict.fromkeys(outcome.cpu for outcome in outcomes):
        whats = Counter(outcome.what for outcome in outcomes if outcome.cpu == cpu)
        failed = whats.total() - whats["run"] - whats["refused"]
        rows.append([cpu, whats.total(), whats["run"], whats["refused"], failed])
    columns = ["processor", "functions", "run", "refused", "failed"]
    different = other_bits(outcomes)
    some = f": numbers {', '.join(map(str, different[:20]))}" if different else ""
    return f"{report.table(columns, rows)}\n\nother bits on another processor: {len(different)}{some}"
