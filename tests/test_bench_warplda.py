"""WarpLDA as a peer: the corpus it reads, the model it writes, and the seconds it shows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from bench import lda_warplda

PROGRAM = """#!/bin/sh
echo "Iteration 0, 0.250000 s, 1.00 Mtokens/s, log_likelihood (per token) -9"
echo "Iteration 1, 0.500000 s, 1.00 Mtokens/s, log_likelihood (per token) -9"
while [ "$1" != --prefix ]; do shift; done
printf '3 2 0.1 0.01\\n1\\t0:4 \\n2\\t1:2 0:1 \\n0\\t\\n' > "$2.model"
"""
FORMAT = """#!/bin/sh
while [ "$1" != -prefix ]; do shift; done
printf '2\\n0\\n1\\n' > "$2.vocab"
"""


def test_a_line_of_the_corpus_has_two_ids_and_a_word_for_each_token(tmp_path: Path) -> None:
    lda_warplda.write_corpus(sp.csr_matrix(np.array([[2, 0, 1], [0, 3, 0]])), tmp_path / "corpus.txt")
    assert (tmp_path / "corpus.txt").read_text() == "0 0 0 0 2\n1 1 1 1 1\n"


def test_counts_are_of_the_columns_that_the_vocabulary_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("warplda", PROGRAM), ("format", FORMAT)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("WARPLDA", str(tmp_path))
    train = sp.csr_matrix(np.array([[1, 0, 4], [2, 0, 0]]))
    [(seconds, passes, counts)] = lda_warplda.points(train, 2, 1, (2,), alpha=0.1, beta=0.01)
    assert (seconds, passes) == (0.75, 2)
    assert counts.tolist() == [[1, 0, 4], [2, 0, 0]]
