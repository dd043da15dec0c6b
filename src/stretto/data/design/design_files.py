"""Design matrices in svmlight files, `label index:value …`, from which any columns can be read.

    files = DesignFiles.of("data/*.svm")        # reads the files once: shape, labels, entries of every column
    [design] = files.columns([(0, 1000)])       # reads them again, and keeps these columns

It can be pickled, so that nodes read the same files; a file that has changed since is refused. Values are float32.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.parts.file_set import FileSet, walk
from stretto.data.parts.hosts import LocalPartExecutor
from stretto.data.records.digest import digest_of
from stretto.errors import DataError

from .design import Design, index_type

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def names_files(X: Any) -> bool:
    """Whether X is a path, a glob, a URL, or a list of them."""
    several = isinstance(X, list | tuple) and bool(X) and all(isinstance(one, str | os.PathLike) for one in X)
    return several or isinstance(X, str | os.PathLike)


@dataclass(frozen=True, eq=False)
class DesignFiles:
    """Files with labels."""

    found: FileSet

    dtype = np.dtype(np.float32)

    @staticmethod
    def of(path: Any, owner: str) -> DesignFiles:
        """Count the entries of files. owner: named in the error if they have no labels."""
        found = walk(path, LocalPartExecutor())
        if not isinstance(found, FileSet) or found.numbering.labels is None:
            raise DataError(
                f"{owner}: {path} holds no labels; give svmlight files (`label index:value …`), or X and y in memory"
            )
        return DesignFiles(found)

    @property
    def shape(self) -> tuple[int, int]:
        return self.found.shape

    @property
    def nnz(self) -> int:
        """Entries in the files, those that are zero included."""
        return self.found.nnz

    @property
    def nbytes(self) -> int:
        """Of the files."""
        return sum(part.nbytes for part in self.found.parts)

    @property
    def labels(self) -> Floats:
        """[n] of the samples."""
        labels = self.found.numbering.labels
        assert labels is not None
        return labels

    @property
    def entries(self) -> Ints:
        """[p] of the columns, in the files."""
        return self.found.numbering.col_counts

    @property
    def digest(self) -> str:
        """Hash of the content of the files."""
        return digest_of(np.array(self.found.numbering.digests, np.uint64), self.labels)

    def columns(self, ranges: list[tuple[int, int]]) -> list[Design]:
        """A design with all samples for each range of columns, first … last − 1, in one walk through the files."""
        from stretto.kernels.linear.entries import place

        entries, n = self.entries, self.shape[0]
        bounds = [np.concatenate([np.zeros(1, np.int64), np.cumsum(entries[lo:hi])]) for lo, hi in ranges]
        rows = [np.empty(ptr[-1], index_type(n)) for ptr in bounds]
        values = [np.empty(ptr[-1], self.dtype) for ptr in bounds]
        reached = [ptr[:-1].copy() for ptr in bounds]
        for i, j, x in self.found.chunks():
            for k, (first, _) in enumerate(ranges):
                place["exact"](i, j, x, first, reached[k], rows[k], values[k])
        designs = []
        for k, (first, last) in enumerate(ranges):
            as_read = Design((n, last - first), indptr=bounds[k], indices=rows[k], values=values[k])
            designs.append(Design.of(as_read.matrix))  # sums repeated entries and drops zeros
            rows[k], values[k] = np.empty(0), np.empty(0)  # what is converted is not kept twice
        return designs

    def design(self) -> Design:
        """The design with all columns."""
        return self.columns([(0, self.shape[1])])[0]
