"""WarpLDA, a Metropolis-Hastings sampler in C++, as a peer of topic models: a program of its own, named by $WARPLDA.

    WARPLDA=/folder/of/programs      # with `warplda` and `format`, built from its sources
    points(train, 100, 1, (50, 100), alpha=0.1, beta=0.01)
    # [(0.9, 50, counts [K, V]), (1.8, 100, counts)]

The program shows its seconds for each pass, which are added up; reading the corpus is not in them. It keeps no state
between two calls, so each number of passes is a run from the start.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .lda_sets import Floats

SECONDS = re.compile(r"^Iteration \d+, ([\d.]+) s", re.MULTILINE)


def folder() -> Path | None:
    """The folder of its programs, if there is one."""
    named = os.environ.get("WARPLDA", "")
    return Path(named) if named else None


def write_corpus(counts: Any, file: Path) -> None:
    """One document a line: two ids, then a word for each token."""
    with file.open("w", encoding="utf-8") as out:
        for d in range(counts.shape[0]):
            some = slice(counts.indptr[d], counts.indptr[d + 1])
            words = np.repeat(counts.indices[some], counts.data[some])
            out.write(f"{d} {d} " + " ".join(map(str, words)) + "\n")


def read_counts(model: str, words: Sequence[int], topics: int, columns: int) -> Floats:
    """Counts [K, V] of a model file. words: the column of each of its lines."""
    counts = np.zeros((topics, columns))
    for word, line in zip(words, model.splitlines()[1:], strict=True):
        for item in line.split("\t")[1].split():
            topic, _, count = item.partition(":")
            counts[int(topic), word] = int(count)
    return counts


def points(
    train: Any, topics: int, threads: int, passes: Sequence[int], *, alpha: float, beta: float
) -> Iterator[tuple[float, int, Floats]]:
    """(seconds, passes, counts [K, V]) for each number of passes."""
    programs = folder()
    assert programs is not None
    with tempfile.TemporaryDirectory() as made:
        prefix = Path(made) / "train"
        write_corpus(train, Path(made) / "corpus.txt")
        _call(programs / "format", 1, "-input", str(Path(made) / "corpus.txt"), "-prefix", str(prefix))
        vocabulary = prefix.with_suffix(".vocab").read_text(encoding="utf-8").split()
        for count in passes:
            options = ["--prefix", str(prefix), "--k", str(topics), "--niter", str(count), "--nowriteinfo", "--nodumpz"]
            priors = ["--alpha", str(alpha * topics), "--beta", str(beta)]  # its alpha is the sum over topics
            shown = _call(programs / "warplda", threads, *options, *priors)
            seconds = sum(map(float, SECONDS.findall(shown)))
            model = prefix.with_suffix(".model").read_text(encoding="utf-8")
            yield seconds, count, read_counts(model, list(map(int, vocabulary)), topics, train.shape[1])


def _call(program: Path, threads: int, *arguments: str) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=True, env=environment).stdout
