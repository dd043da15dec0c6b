"""The analysis of loops beside the integer set library, on 20,000 random nests of depth 1 to 4 with affine subscripts.

Subscripts are indices plus constants, and forms such as 2 * i, n - 1 - i, i + j and i * m + j; some ranges count down,
have steps, or depend on outer indices; some statements are under a test. *Missed* counts nests of which a dependence is
in none of our vectors, two dependent iterations may run together or in the wrong order, or plain Python in the order of
the plan (for every tenth nest the reference interpreter too) gives other numbers; the command stops at the first.
*Parallel* are nests for which the scheduler of the library finds a parallel loop or a permutable band of two loops;
*found* are those of them that get a strategy other than `chain` or a refusal. *Others found* are nests that run in
parallel although that scheduler finds nothing. *Invented* are nests without a dependence for which we claim one.
`--nests n` and `--first seed` choose the nests; `--no-page` only prints; `--record FILE` keeps outcomes, and a later
run goes on with them.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from . import report
from .loops_isl import Outcome, examine


def main(arguments: Sequence[str] = ()) -> None:
    """Examine nests and write the page."""
    parser = argparse.ArgumentParser(prog="python -m bench loops_oracle", description=__doc__.split("\n")[0])
    parser.add_argument("--nests", type=int, default=20_000, help="how many")
    parser.add_argument("--first", type=int, default=1_000_000, help="seed of the first")
    parser.add_argument("--no-page", action="store_true", help="only print")
    parser.add_argument("--record", type=Path, help="keep outcomes in this file, and go on with those it has")
    given = parser.parse_args(arguments)
    outcomes = list(_outcomes(given.first, given.nests, given.record))
    body = "\n\n".join([_shares(outcomes), _strategies(outcomes)])
    if given.no_page:
        print(body)
        return
    about = report.text(__doc__)
    command = f"loops_oracle --nests {given.nests} --first {given.first}"
    report.save("loops_oracle", "Dependences of random loop nests", about, body, ("islpy",), command)


def _outcomes(first: int, nests: int, record: Path | None) -> Iterator[Outcome]:
    """The outcome of every nest, from the record where it has it."""
    lines = record.read_text().splitlines() if record is not None and record.exists() else []
    known = {seed: Outcome(**fields) for seed, fields in map(json.loads, lines)}
    with open(record or os.devnull, "a", encoding="utf-8") as file:
        for seed in range(first, first + nests):
            if seed not in known:
                known[seed] = examine(seed, interpreted=seed % 10 == 0)
                file.write(json.dumps([seed, asdict(known[seed])]) + "\n")
                file.flush()
            yield known[seed]


def shares(outcomes: Sequence[Outcome]) -> tuple[int, int]:
    """How many nests the library finds parallel, and how many of those we do."""
    parallel = [outcome for outcome in outcomes if outcome.parallel]
    return len(parallel), sum(outcome.found for outcome in parallel)


def _shares(outcomes: Sequence[Outcome]) -> str:
    groups = [(f"depth {depth}", [o for o in outcomes if o.depth == depth]) for depth in range(1, 5)]
    groups += [
        ("bounds that depend on outer indices", [o for o in outcomes if o.triangular]),
        ("all", list(outcomes)),
    ]
    rows = []
    for name, group in groups:
        parallel, found = shares(group)
        others = sum(o.found and not o.parallel for o in group)
        share = f"{found / parallel:.1%}" if parallel else ""
        free = [o for o in group if o.strategy != "refused"]
        rows.append([name, len(group), 0, parallel, found, share, others, sum(not o.exact for o in free)])
    columns = ["nests", "number", "missed", "parallel", "found", "share found", "others found", "invented"]
    return report.table(columns, rows)


def _strategies(outcomes: Sequence[Outcome]) -> str:
    counts = Counter((outcome.strategy, outcome.parallel) for outcome in outcomes)
    names = sorted({name for name, _ in counts}, key=lambda name: -counts[name, True])
    rows = [[name, counts[name, True], counts[name, False]] for name in names]
    return report.table(["strategy", "of nests that the library finds parallel", "of others"], rows)
