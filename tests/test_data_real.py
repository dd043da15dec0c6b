"""Readers on real files: the counts their providers state come out again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from stretto.data import inspect, read
from stretto.errors import FormatError

Find = Callable[..., Path]


@pytest.mark.parametrize(
    ("parts", "format", "shape", "nnz"),
    [
        (("movielens-1m", "ratings.tsv.xz"), "triples", (6040, 3449), 999_714),
        (("ap", "ap.dat.xz"), "lda-c", (2246, 10_473), 302_031),
        (("a9a", "a9a.trn.libsvm.xz"), "svmlight", (32_561, 123), 451_592),
        (("ijcnn1", "ijcnn1.trn.libsvm.xz"), "svmlight", (49_990, 22), 649_870),
        (("20news", "20news.train.libsvm.xz"), "svmlight", (11_314, 46_889), 1_507_864),
    ],
)
def test_stated_counts(
    shared_data: Find, parts: tuple[str, str], format: str, shape: tuple[int, int], nnz: int
) -> None:
    path = shared_data(*parts)
    data = read(path, cache=False)
    assert (data.shape, len(data)) == (shape, nnz)
    assert inspect(path).format == format


def test_svmlight_agrees_with_scikit_learn(shared_data: Find) -> None:
    import lzma

    from sklearn.datasets import load_svmlight_file

    path = shared_data("ijcnn1", "ijcnn1.trn.libsvm.xz")
    with lzma.open(path) as stream:
        X, y = load_svmlight_file(stream, dtype=np.float64)
    data = read(path, cache=False)
    assert (abs(data.to_csr() - X.astype(np.float32)) > 0).nnz == 0
    assert data.labels is not None
    assert (data.labels == y).all()


def test_repeated_pairs_of_epinions(shared_data: Find) -> None:
    path = shared_data("epinions", "ratings.tsv.xz")
    with pytest.raises(FormatError, match=r"lines 67 and 68, with values 4 and 5 \(9826 repeated records in all\)"):
        read(path, cache=False)
    assert len(read(path, duplicates="last", cache=False)) == 922_267 - 9_826


@pytest.mark.slow
def test_large_bag_of_words(shared_data: Find) -> None:
    data = read(shared_data("imdb", "docword.imdb.txt.xz"), cache=False)
    assert (data.shape, len(data)) == ((100_000, 24_924), 8_116_381)
    assert data.values.sum(dtype=np.float64) == 9_658_504
