"""The sets of the scoreboard: real ones where they are present, and nine generated families.

Every set has a target for regression, one of two classes, or several classes; some have more than one of these. Names
decide the half: defaults are chosen on the sets of the first half, and judged on those of the second.
"""

from __future__ import annotations

import lzma
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import sets, softmax, sparse_sets

Floats = NDArray[np.float64]
Kinds = frozenset[str]

FIRST, SECOND = "chosen on", "reported"


@dataclass(frozen=True, eq=False)
class LinearSet:
    """Features and targets of a set."""

    X: Any  # [n, p] float64, CSR or C order
    value: Floats | None = None  # [n] target of regressions
    sign: Floats | None = None  # [n] two classes, −1 and +1
    classes: NDArray[np.int64] | None = None  # [n] several classes, from 0


@dataclass(frozen=True)
class Family:
    """A named set, and what it can be used for before it is loaded."""

    load: Callable[[], LinearSet]
    uses: Kinds  # of "value", "sign", "classes"
    real: bool = False


def _targets(X: Any, score: Floats, rng: np.random.Generator, *, share: float = 0.5, classes: int = 0) -> LinearSet:
    """Targets from a linear score: with normal noise, as logistic classes, and as classes of equal size."""
    n, spread = len(score), float(np.std(score))
    score = (score - score.mean()) / spread
    value = score + 0.5 * rng.standard_normal(n)
    noisy = 3.0 * score + rng.logistic(size=n)
    sign = np.where(noisy > np.quantile(noisy, 1.0 - share), 1.0, -1.0)
    many = np.digitize(value, np.quantile(value, np.arange(1, classes) / classes)) if classes else None
    return LinearSet(X, value, sign, many)


def _text(n: int, p: int, words: int, seed: int) -> Callable[[], LinearSet]:
    """Documents of Zipf-distributed words, weighted by tf-idf, rows of length one."""

    def make() -> LinearSet:
        import scipy.sparse as sp

        rng = np.random.default_rng(seed)
        frequency = 1.0 / np.arange(1, p + 1) ** 1.05
        lengths = np.maximum(5, rng.poisson(words, n))
        drawn = rng.choice(p, int(lengths.sum()), p=frequency / frequency.sum())
        X = sp.csr_matrix((np.ones(len(drawn)), (np.repeat(np.arange(n), lengths), drawn)), (n, p))
        X.sum_duplicates()
        X.data = 1.0 + np.log(X.data)
        X = X @ sp.diags(np.log((1 + n) / (1 + np.bincount(X.indices, minlength=p))) + 1.0)
        X = sp.csr_matrix(sp.diags(1.0 / np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())) @ X)
        coef = np.zeros(p)
        coef[rng.choice(min(p, 3000), 200, replace=False)] = rng.standard_normal(200)
        return _targets(X, X @ coef, rng, classes=5)

    return make


def _genes(n: int, p: int) -> Callable[[], LinearSet]:
    """Many more columns than rows, correlated through twenty factors."""

    def make() -> LinearSet:
        rng = np.random.default_rng(5)
        X = rng.standard_normal((n, 20)) @ rng.standard_normal((20, p)) * 0.6 + rng.standard_normal((n, p))
        return _targets(X, X[:, :10].sum(axis=1), rng)

    return make


def _spectra() -> LinearSet:
    rng = np.random.default_rng(6)
    wave = np.linspace(0, 1, 10_000)
    X = np.cumsum(rng.standard_normal((100, 10_000)), axis=1) / 100 + rng.standard_normal((100, 1)) * np.sin(8 * wave)
    return _targets(X, X[:, 3000] - X[:, 7000], rng)


def _dense(n: int, p: int, *, share: float = 0.5, classes: int = 0, seed: int = 7) -> Callable[[], LinearSet]:
    def make() -> LinearSet:
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((n, p))
        coef = np.where(np.arange(p) < max(3, p // 4), rng.standard_normal(p), 0.0)
        return _targets(X, X @ coef, rng, share=share, classes=classes)

    return make


def _scaled() -> LinearSet:
    """Columns whose units differ by up to a million, with means away from zero."""
    rng = np.random.default_rng(8)
    X = rng.standard_normal((5_000, 60))
    score = X[:, :15] @ rng.standard_normal(15)
    return _targets((X + rng.standard_normal(60)) * 10.0 ** rng.uniform(-3, 3, 60), score, rng)


def _blocks() -> LinearSet:
    """Blocks of fifty columns with correlation 0.9."""
    X, y = sparse_sets.generated(2_000, 4_000)
    return _targets(np.ascontiguousarray(X), y, np.random.default_rng(9))


def _binary() -> LinearSet:
    """Sparse zeros and ones of skewed frequency, as coded categories are."""
    import scipy.sparse as sp

    rng = np.random.default_rng(10)
    X = sp.csr_matrix((rng.random((20_000, 200)) < 0.3 / np.arange(1, 201) ** 0.7).astype(np.float64))
    return _targets(X, X @ rng.standard_normal(200), rng, share=0.2, classes=4)


def _real(name: str) -> Callable[[], LinearSet]:
    def load() -> LinearSet:
        X, y = sparse_sets.load(name)
        X = X.tocsr() if hasattr(X, "tocsr") else np.ascontiguousarray(X)
        value = (y - y.mean()) / y.std()
        if name in ("mice",):
            return LinearSet(X, value, np.where(y > np.median(y), 1.0, -1.0))
        return LinearSet(X, value, np.where(sparse_sets.REAL[name].positive(y), 1.0, -1.0))

    return load


def _news() -> LinearSet:
    X, classes = softmax.load("20news")
    return LinearSet(X, classes=classes)


def _digits() -> LinearSet:
    X, classes = softmax.load("mnist")
    return LinearSet(np.ascontiguousarray(X[:5_000]), classes=classes[:5_000])


def _housing() -> LinearSet:
    folder = sets.real_data()
    assert folder is not None
    with lzma.open(folder / "cal-housing" / "cal_housing.data.xz", "rt") as file:
        table = np.loadtxt(file, delimiter=",")
    y = table[:, -1]
    sign = np.where(y > np.median(y), 1.0, -1.0)
    return LinearSet(np.ascontiguousarray(table[:, :-1]), (y - y.mean()) / y.std(), sign)


BOTH, ALL = frozenset({"value", "sign"}), frozenset({"value", "sign", "classes"})
SIGN, CLASSES = frozenset({"sign"}), frozenset({"classes"})

FAMILIES: dict[str, Family] = {
    "a9a": Family(_real("a9a"), SIGN, True),
    "badly scaled 5k × 60": Family(_scaled, BOTH),
    "binary sparse 20k × 200": Family(_binary, ALL),
    "blocks 2k × 4k": Family(_blocks, BOTH),
    "blog": Family(_real("blog"), BOTH, True),
    "dense 7k × 28": Family(_dense(7_000, 28, classes=4), ALL),
    "dense 245k × 3": Family(_dense(245_000, 3), BOTH),
    "genes 72 × 7k": Family(_genes(72, 7_000), BOTH),
    "genes 200 × 12k": Family(_genes(200, 12_000), BOTH),
    "gordon": Family(_real("gordon"), SIGN, True),
    "housing": Family(_housing, BOTH, True),
    "ijcnn1": Family(_real("ijcnn1"), SIGN, True),
    "imbalanced 30k × 40": Family(_dense(30_000, 40, share=0.02, seed=11), SIGN),
    "imdb": Family(_real("imdb"), BOTH, True),
    "mice": Family(_real("mice"), BOTH, True),
    "mnist 5k": Family(_digits, CLASSES, True),
    "news 20 classes": Family(_news, CLASSES, True),
    "news": Family(_real("20news"), BOTH, True),
    "spectra 100 × 10k": Family(_spectra, BOTH),
    "tall 100k × 20": Family(_dense(100_000, 20, seed=12), BOTH),
    "text 4k × 55k": Family(_text(4_000, 55_000, 150, 1), BOTH),
    "text 8k × 8k": Family(_text(8_000, 8_000, 80, 2), ALL),
    "w8a": Family(_real("w8a"), SIGN, True),
}


def half(name: str) -> str:
    """The half of a set: real and generated ones alternate in the order of their names."""
    alike = sorted(other for other, family in FAMILIES.items() if family.real == FAMILIES[name].real)
    return SECOND if alike.index(name) % 2 else FIRST


@cache
def _loaded(name: str) -> LinearSet:
    return FAMILIES[name].load()


def load(name: str) -> LinearSet:
    """A set; only the last one is kept."""
    if _loaded.cache_info().currsize > 1:
        _loaded.cache_clear()
    return _loaded(name)


def present(use: str) -> list[str]:
    """The names of the sets for a use, without real ones where these are missing."""
    found = sets.real_data() is not None
    return [name for name, family in FAMILIES.items() if use in family.uses and (found or not family.real)]
