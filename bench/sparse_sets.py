"""The sets that sparse regression and classification are measured on: text, genetics, tables, and a generated one.

Real sets are read from the data folder where they are present, and kept parsed in the system's temporary folder. Sparse
ones come as CSC with 32-bit indices, dense ones in Fortran order: the layouts that every program here wants.
"""

from __future__ import annotations

import csv
import io
import lzma
import os
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import sets

Floats = NDArray[np.float64]
Table = tuple[Any, Floats]  # features [n, p], CSC or dense; target [n]

REGRESSION = ("imdb", "20news", "blog", "gordon", "mice", "generated")  # the one of 3.2 GB last
CLASSES = ("imdb", "20news", "a9a", "w8a", "ijcnn1", "gordon")


@dataclass(frozen=True)
class SparseSet:
    """title: its name in tables. read: features and target, from the data folder. positive: the class that is +1."""

    title: str
    read: Callable[[Path], Table]
    positive: Callable[[Floats], NDArray[np.bool_]] = lambda y: y > 0


def load(name: str) -> Table:
    """Features and target of a set."""
    if name == "generated":
        return generated()
    folder = sets.real_data()
    if folder is None:
        raise FileNotFoundError("the real sets were not found; set STRETTO_DATA to their folder")
    return _kept(name, lambda: REAL[name].read(folder))


def load_classes(name: str) -> Table:
    """Features and labels −1 or +1 of a set."""
    X, y = load(name)
    return X, np.where(REAL[name].positive(y), 1.0, -1.0)


def title(name: str) -> str:
    """The name of a set in tables."""
    return "generated" if name == "generated" else REAL[name].title


def chosen(names: tuple[str, ...]) -> list[str]:
    """Those of the sets that are present and, where $BENCH_SETS=NAME,… is given, that it names."""
    asked = [name for name in os.environ.get("BENCH_SETS", "").split(",") if name]
    unknown = sorted(set(asked) - set(names))
    if unknown:
        raise SystemExit(f"BENCH_SETS: no set {', '.join(unknown)}; there are {', '.join(names)}")
    present = [name for name in names if name == "generated" or sets.real_data() is not None]
    if len(present) < len(names):
        print("the real sets were not found; set STRETTO_DATA to their folder to include them")
    return [name for name in present if not asked or name in asked]


def generated(n: int = 2_000, p: int = 200_000, block: int = 50, rho: float = 0.9, true: int = 100) -> Table:
    """Normal features in blocks, correlated as neighbours on a genome are; `true` of them make the target, with noise.

    3.2 GB at its usual size and made in seconds, so that each process makes it anew instead of keeping it on a disk.
    """
    rng = np.random.Generator(np.random.SFC64(0))
    rows = np.empty((p, n))  # the transpose: a feature's values side by side
    for first in range(0, p, block):
        part = rows[first : first + block]
        rng.standard_normal(out=part)
        part *= np.sqrt(1 - rho)
        part += np.sqrt(rho) * rng.standard_normal(n)
    which = rng.choice(p, true, replace=False)
    signal = rng.standard_normal(true) @ rows[which]
    return rows.T, signal + 0.5 * signal.std() * rng.standard_normal(n)


# --- reading --------------------------------------------------------------------------------------------------------


def _libsvm(path: str, features: int, *, zero_based: bool = False, counts: bool = False) -> Callable[[Path], Table]:
    def read(folder: Path) -> Table:
        from sklearn.datasets import load_svmlight_file

        with lzma.open(folder / path) as file:
            X, y = load_svmlight_file(file, n_features=features, zero_based=zero_based)
        if counts:
            X.data = np.log1p(X.data)
        return X, y

    return read


def _blog(folder: Path) -> Table:
    import scipy.sparse

    with zipfile.ZipFile(folder / "blogfeedback" / "BlogFeedback.zip") as archive:
        [member] = [name for name in archive.namelist() if "train" in name]
        with archive.open(member) as file:
            table = np.loadtxt(file, delimiter=",")
    return scipy.sparse.csc_matrix(table[:, :-1]), table[:, -1]


def _mice(folder: Path) -> Table:
    with lzma.open(folder / "mice-gwas" / "genotypes.npy.xz") as packed:
        genotypes = np.load(io.BytesIO(packed.read())).astype(np.float64)
    with lzma.open(folder / "mice-gwas" / "phenotypes.csv.xz", "rt", encoding="utf-8") as file:
        found = [row["Obesity.BMI"] for row in csv.DictReader(file)]
    target = np.array([float(value) if value not in ("", "NA") else np.nan for value in found])
    known = np.isfinite(target)
    return genotypes[known], target[known]


def _gordon(folder: Path) -> Table:
    with lzma.open(folder / "microarray-gordon" / "gordon.csv.xz", "rt", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    labels = np.array([row[0] for row in rows])
    return np.array([row[1:] for row in rows], np.float64), np.where(labels == np.unique(labels)[0], 1.0, -1.0)


REAL = {
    "imdb": SparseSet("IMDB", _libsvm("imdb/labeledbow.train.libsvm.xz", 89_527, counts=True), lambda y: y >= 7),
    "20news": SparseSet("20news", _libsvm("20news/20news.train.libsvm.xz", 46_889, counts=True), lambda y: y <= 10),
    "blog": SparseSet("BlogFeedback", _blog),
    "gordon": SparseSet("Gordon", _gordon),
    "mice": SparseSet("mice GWAS", _mice),
    "a9a": SparseSet("a9a", _libsvm("a9a/a9a.trn.libsvm.xz", 123, zero_based=True)),
    "w8a": SparseSet("w8a", _libsvm("w8a/w8a.libsvm.xz", 300)),
    "ijcnn1": SparseSet("ijcnn1", _libsvm("ijcnn1/ijcnn1.trn.libsvm.xz", 22)),
}


def _kept(name: str, make: Callable[[], Table]) -> Table:
    """What make gives, from a file in the temporary folder when it was made before."""
    import scipy.sparse

    file = Path(tempfile.gettempdir()) / "stretto-bench" / f"{name}.npz"
    if not file.exists():
        X, y = make()
        if scipy.sparse.issparse(X):
            X = X.tocsc()
            X.sort_indices()
            arrays = {"data": X.data, "indices": X.indices.astype(np.int32), "indptr": X.indptr.astype(np.int32)}
        else:
            arrays = {"columns": X.T}  # a file keeps C order: features one after the other
        file.parent.mkdir(exist_ok=True)
        # Under a name of its own first: another process may be looking.
        half = file.with_name(f"{name}.{os.getpid()}.npz")
        np.savez(half, shape=X.shape, y=y, **arrays)
        half.replace(file)
    with np.load(file) as kept:
        if "columns" in kept:
            return np.ascontiguousarray(kept["columns"]).T, kept["y"]
        parts = kept["data"], kept["indices"], kept["indptr"]
        return scipy.sparse.csc_matrix(parts, shape=tuple(kept["shape"])), kept["y"]
