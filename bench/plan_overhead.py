"""Seconds of an epoch on threads: one source tree beside another, in alternation.

Each tree is measured by a process of its own that stays alive (`bench/plan_overhead_one.py`, with PYTHONPATH set to the
tree's src). Only one of them works at a time: in every round each runs the same fit once, in another order each round.
A second process of the old tree shows the noise: its ratio would be 1.00 on a quiet machine. The first epoch of a fit
does not count; a round's number is the median of its other epochs. Ratios are medians over the rounds of (new / old in
the same round), with the quartiles in brackets.

*Whole epoch*: from one epoch's end to the next, everything included. *Pass*: the compiled pass alone. Data are
generated. No network is needed, and no package beyond those that `stretto` itself imports.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import report

ONE = Path(__file__).with_name("plan_overhead_one.py")
CASES = {
    "mf-sgd": "MatrixFactorization, SGD, rank 32",
    "mf-adagrad": "MatrixFactorization, AdaGrad, rank 32",
    "mf-als": "MatrixFactorization, ALS, rank 16",
    "lda-sparse": "LatentDirichletAllocation, sparse sampler, 50 topics",
    "loop-mf": "loop: matrix factorisation, rank 32",
    "loop-lda": "loop: LDA, 20 topics",
}
SIZES = {"small": "100,000 ratings or 50,000 tokens", "large": "2 million ratings or 1 million tokens"}
EPOCHS = {"small": 40, "large": 6}
OLD, NEW, AGAIN = "old", "new", "old again"


class Tree:
    """A process that measures one source tree."""

    def __init__(self, name: str, folder: Path, python: str) -> None:
        source = folder / "src"
        if not (source / "stretto" / "__init__.py").exists():
            raise SystemExit(f"plan_overhead: {folder} has no src/stretto; give the folder of a checkout")
        self.name, self.source = name, source.resolve()
        env = {**os.environ, "PYTHONPATH": str(self.source)}
        self._process = subprocess.Popen(
            [python, str(ONE)], env=env, cwd="/", text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        """Have it run a case."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"plan_overhead: the process of {self.source} ended during {request}; see above")
        answer: dict[str, Any] = json.loads(line)
        if not Path(answer["tree"]).is_relative_to(self.source):
            raise SystemExit(f"plan_overhead: wanted stretto of {self.source}, got {answer['tree']}")
        return answer

    def close(self) -> None:
        """End the process."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@dataclass(frozen=True)
class Ratio:
    """Of two series, round by round: the median and the quartiles."""

    middle: float
    low: float
    high: float

    @classmethod
    def of(cls, mine: Sequence[float], theirs: Sequence[float]) -> Ratio:
        """mine / theirs, of rounds that belong together."""
        each = [a / b for a, b in zip(mine, theirs, strict=True)]
        if len(each) < 2:
            return cls(each[0], each[0], each[0])
        low, middle, high = statistics.quantiles(each, n=4, method="inclusive")
        return cls(middle, low, high)

    def __str__(self) -> str:
        return f"{self.middle:.2f} ({self.low:.2f}–{self.high:.2f})"


def turns(names: Sequence[str], rounds: int) -> Iterator[list[str]]:
    """In which order trees work, round by round: each begins equally often, and follows each of the others."""
    for k in range(rounds):
        at = k // 2 % len(names)
        order = [*names[at:], *names[:at]]
        yield order if k % 2 == 0 else order[::-1]


def compare(trees: dict[str, Tree], rounds: int, **request: Any) -> tuple[dict[str, Any], bool]:
    """{tree: {"epochs": seconds by round, "passes": likewise}}, and whether all learned the same bits."""
    found: dict[str, Any] = {name: {"epochs": [], "passes": []} for name in trees}
    for tree in trees.values():
        tree.ask(**{**request, "epochs": 1})  # compiles, and generates the data
    bits = set()
    for order in turns(list(trees), rounds):
        for name in order:
            answer = trees[name].ask(**request)
            bits.add(answer["bits"])
            for what in ("epochs", "passes"):
                found[name][what].append(statistics.median(answer[what]))
    return found, len(bits) == 1


def row_of(found: dict[str, Any], same: bool) -> list[object]:
    """The numbers of a row: milliseconds of both trees, ratios, noise, bits."""
    old, new, again = (found[name] for name in (OLD, NEW, AGAIN))
    times = [f"{1e3 * statistics.median(each['epochs']):.2f}" for each in (old, new)]
    ratios = [Ratio.of(new[what], old[what]) for what in ("epochs", "passes")]
    return [*times, *ratios, Ratio.of(again["epochs"], old["epochs"]), "yes" if same else "no"]


def commit(folder: Path) -> str:
    """What a folder says it is: its commit if git knows, with "changed" where files differ; else its name."""
    with contextlib.suppress(OSError):
        said = subprocess.run(
            ["git", "-C", str(folder), "describe", "--always", "--dirty=, changed"],
            check=False,
            capture_output=True,
            text=True,
        )
        if said.returncode == 0:
            return f"{said.stdout.strip()} ({folder.name})"
    return folder.name


def options(argv: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench plan_overhead", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--against", type=Path, required=True, help="folder of the old checkout")
    parser.add_argument("--tree", type=Path, default=Path(__file__).parents[1], help="folder of the new one: this")
    parser.add_argument("--threads", help="thread counts, such as 1,4,16; default: 1 and all cores")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of each case")
    parser.add_argument("--cases", default=",".join(CASES), help=f"which of {', '.join(CASES)}")
    parser.add_argument("--sizes", default="small,large", help="which of small, large")
    parser.add_argument("--python", default=sys.executable, help="the interpreter for both trees")
    parser.add_argument("--name", default="plan_overhead", help="name of the results file")
    chosen = parser.parse_args(argv)
    counts = chosen.threads or ",".join(str(n) for n in sorted({1, report.cores()}))
    chosen.threads = [int(word) for word in counts.split(",")]
    chosen.cases, chosen.sizes = chosen.cases.split(","), chosen.sizes.split(",")
    for given, known in ((chosen.cases, CASES), (chosen.sizes, SIZES)):
        unknown = sorted(set(given) - set(known))
        if unknown:
            parser.error(f"{', '.join(unknown)} is not known; there are {', '.join(known)}")
    if chosen.rounds < 1:
        parser.error("--rounds is at least 1")
    return chosen


def _without_paths(argv: Sequence[str]) -> list[str]:
    """The options with OLD and NEW in place of folders, which are those of one machine."""
    names = {"--against": "OLD", "--tree": "NEW"}
    return [names.get(before, given) for before, given in zip(["", *argv], argv, strict=False)]


def main(argv: Sequence[str] = ()) -> None:
    """A row for each case, size and number of threads."""
    chosen = options(argv)
    trees: dict[str, Tree] = {}
    rows: list[list[object]] = []
    try:
        for name, folder in ((OLD, chosen.against), (NEW, chosen.tree), (AGAIN, chosen.against)):
            trees[name] = Tree(name, folder, chosen.python)
        for case in chosen.cases:
            for size in chosen.sizes:
                for threads in chosen.threads:
                    found = compare(trees, chosen.rounds, case=case, size=size, threads=threads, epochs=EPOCHS[size])
                    rows.append([CASES[case], size, threads, *row_of(*found)])
                    print(*rows[-1], sep=" | ", flush=True)
    finally:
        for tree in trees.values():
            tree.close()
    columns = ["case", "size", "threads", "old: ms an epoch", "new: ms an epoch", "new / old, whole epoch",
               "new / old, pass", "noise: old again / old", "same bits"]  # fmt: skip
    sizes = "; ".join(f"{size}: {SIZES[size]}" for size in chosen.sizes)
    about = (
        f"{report.text(__doc__)}\n\nOld tree: {commit(chosen.against)}. New tree: {commit(chosen.tree)}. "
        f"{chosen.rounds} rounds; load of the machine at the end: {os.getloadavg()[0]:.1f}. Sizes: {sizes}."
    )
    report.save(
        chosen.name, "An epoch on threads, old and new source tree", about, report.table(columns, rows),
        ["scipy", "msgspec"], command=f"plan_overhead {' '.join(_without_paths(argv))}",
    )  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])
