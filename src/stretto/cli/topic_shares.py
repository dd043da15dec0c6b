"""Write topic shares of many documents to a file, one batch of documents at a time, in bounded memory."""

from __future__ import annotations

import csv
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stretto.atomic import replacing
from stretto.errors import DataError

if TYPE_CHECKING:
    from stretto.models.topics.estimator import LatentDirichletAllocation
    from stretto.models.topics.input import Corpus

_BYTES = 64 << 20  # of shares at a time
Writer = Callable[["LatentDirichletAllocation", "Corpus", Path, float], float]


def writer(path: Path) -> Writer:
    """What writes shares to a file of this name, whole or not at all, and returns the seconds that inference took.

    .npz: `shares` [documents, topics] float32, and `documents` [documents] where they have names. .csv: a line for each
    document and topic whose share is `least` or more.
    """
    kinds = {".npz": _write_npz, ".csv": _write_csv}
    if path.suffix not in kinds:
        raise DataError(f"cannot write topic shares to {path}; use a name that ends in .npz or .csv")
    return lambda model, corpus, to, least: _whole(kinds[path.suffix], model, corpus, to, least)


class _Batches:
    """Shares, a batch of documents after the other, and the seconds it took to find them."""

    def __init__(self, model: LatentDirichletAllocation, corpus: Corpus) -> None:
        self.model, self.corpus, self.seconds = model, corpus, 0.0

    def __iter__(self) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """(first document, shares [some, topics])."""
        from scipy.sparse import csr_array

        data = self.corpus.data  # sorted by document
        indptr = np.searchsorted(data.rows, np.arange(self.corpus.n_documents + 1))
        X = csr_array((data.values, data.cols, indptr), shape=data.shape)
        step = max(1, _BYTES // (4 * self.model.topics_.n_topics))
        for first in range(0, self.corpus.n_documents, step):
            began = time.perf_counter()
            shares = self.model.transform(X[first : first + step])
            self.seconds += time.perf_counter() - began
            yield first, shares


def _whole(
    write: Callable[[_Batches, Path, float], None],
    model: LatentDirichletAllocation,
    corpus: Corpus,
    to: Path,
    least: float,
) -> float:
    to.parent.mkdir(parents=True, exist_ok=True)
    batches = _Batches(model, corpus)
    with replacing(to) as fresh:
        write(batches, fresh, least)
    return batches.seconds


def _write_npz(batches: _Batches, path: Path, least: float) -> None:
    """As `np.savez` would, but without all shares in memory at once."""
    corpus, topics = batches.corpus, batches.model.topics_.n_topics
    with zipfile.ZipFile(path, "w") as out:
        with out.open("shares.npy", "w", force_zip64=True) as file:
            header = {"descr": "<f4", "fortran_order": False, "shape": (corpus.n_documents, topics)}
            np.lib.format.write_array_header_2_0(file, header)
            for _, shares in batches:
                file.write(np.ascontiguousarray(shares, "<f4").tobytes())
        if corpus.documents is not None:
            with out.open("documents.npy", "w") as file:
                np.lib.format.write_array(file, np.array(corpus.documents, np.str_), allow_pickle=False)


def _write_csv(batches: _Batches, path: Path, least: float) -> None:
    names = batches.corpus.documents
    with open(path, "w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["document", "topic", "share"])
        for first, shares in batches:
            rows, topics = np.nonzero(shares >= least)
            found = zip(rows.tolist(), topics.tolist(), shares[rows, topics].tolist(), strict=True)
            for row, topic, share in found:
                document = first + row
                out.writerow((document if names is None else names[document], topic, f"{share:.6g}"))
