"""Side features: errors on users and items without ratings, and on warm ones, beside models without features.

MovieLens-1M: a tenth of the items are cold, with all their ratings held out, and a tenth of the other ratings are held
out too; the features are the genres of the items. Generated: nine tenths of what users like follow from 20 features;
a tenth of the users are cold, and the others have the number of ratings that the table says. Random features have the
same shape and mean nothing. All models have 32 factors (8 for the generated sets) and their default
settings; cmfrec is collective matrix factorisation with its defaults, 2 threads, and predicts cold items and users by
its own functions for them. Errors are RMSE. Recall@50 ranks the 345 cold items alone, for a thousand users: the share
of the items rated 4 or more that are among the first 50; chance is 0.145, which is what models without features have.
"""

from __future__ import annotations

import lzma
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

import stretto as st

from . import report, sets

THREADS, BEST = 2, 50
SHARED = os.environ.get("BENCH_CLOCK") == "cpu"
_CLOCK = time.process_time if SHARED else time.perf_counter
_NOTE = (
    "**The machine was shared while this was measured** (`BENCH_CLOCK=cpu`): seconds are those of the processor, of "
    "all threads together.\n\n"
)


@dataclass(frozen=True)
class ColdSet:
    """Ratings in three parts, and features of the side that has cold rows.

    Attributes
    ----------
    train, warm, cold : tuple of (users, items, ratings)
    option : "user_features" or "item_features"
    """

    name: str
    shape: tuple[int, int]
    rank: int
    train: Any
    warm: Any
    cold: Any
    option: str
    features: Any
    ranked: bool = False

    @property
    def X(self) -> Any:
        return sp.csr_matrix((self.train[2], self.train[:2]), shape=self.shape)

    def random(self) -> Any:
        """Features that mean nothing."""
        draw = np.random.default_rng(7).random(self.features.shape)
        return sp.csr_matrix((draw < self.features.mean()).astype(np.float64))


def movielens() -> ColdSet | None:
    """MovieLens-1M with a tenth of the items cold."""
    folder = sets.real_data()
    if folder is None:
        return None
    data = st.read(folder / "movielens-1m" / "ratings.tsv.xz")
    with lzma.open(folder / "movielens-1m" / "item_genres.tsv.xz", "rt") as file:
        about = np.loadtxt(file, skiprows=1)
    assert data.col_ids is not None
    F = sp.csr_matrix(about[np.searchsorted(about[:, 0], np.asarray(data.col_ids.ids)), 1:])
    train, cold = st.split.cold_items(data, test=0.1, seed=0)
    train, warm = st.split.random(train, test=0.1, seed=1)
    known, held, new = ((one.rows, one.cols, one.values) for one in (train, warm, cold))
    return ColdSet("MovieLens-1M, cold items", data.shape, 32, known, held, new, "item_features", F, ranked=True)


def planted(per: int, users: int = 10_000, items: int = 500, features: int = 20, seed: int = 0) -> ColdSet:
    """Tastes of rank 4, nine tenths of whose variance follow from features of the users; noise 0.5."""
    r = np.random.default_rng(seed)
    F = (r.random((users, features)) < 0.2).astype(np.float64)
    Z = (F - F.mean(axis=0)) / F.std(axis=0)
    W = np.sqrt(0.9 / features) * Z @ r.normal(size=(features, 4)) + np.sqrt(0.1) * r.normal(size=(users, 4))
    H = r.normal(size=(items, 4))
    rows = np.repeat(np.arange(users), per)
    cols = np.concatenate([r.choice(items, per, replace=False) for _ in range(users)])
    values = 3 + (W[rows] * H[cols]).sum(axis=1) / 2 + 0.3 * H[cols, 0] + 0.5 * r.normal(size=len(rows))
    cold, held = rows >= 0.9 * users, r.random(len(rows)) < 0.1
    known, warm, new = ((rows[m], cols[m], values[m]) for m in (~cold & ~held, ~cold & held, cold))
    name = f"generated, cold users, {per} ratings each"
    return ColdSet(name, (users, items), 8, known, warm, new, "user_features", sp.csr_matrix(F))


@dataclass(frozen=True)
class Predictor:
    """A fitted model: predictions of pairs that are warm and of pairs that are cold."""

    seconds: float
    warm: Callable[[Any, Any], Any]
    cold: Callable[[Any, Any], Any]


def ours(data: ColdSet, features: Any, **options: Any) -> Predictor:
    """Stretto, with features or None."""

    def fit(X: Any) -> Any:
        model = st.MatrixFactorization(data.rank, random_state=0, n_jobs=THREADS, **options)
        return model.fit(X, **{data.option: features})

    fit(data.X)  # compiles
    began = _CLOCK()
    model = fit(data.X)
    seconds = _CLOCK() - began
    guess = lambda users, items: model.predict(np.stack([users, items], axis=1))  # noqa: E731
    return Predictor(seconds, guess, guess)


def mean(data: ColdSet) -> Predictor:
    """Mean and biases alone."""
    users, items, values = data.train
    level = values.mean()
    b, c = np.zeros(data.shape[0]), np.zeros(data.shape[1])
    for _ in range(5):
        for own, at, other in ((c, items, b[users]), (b, users, c[items])):
            counts = np.bincount(at, minlength=len(own))
            own[:] = np.bincount(at, values - level - other, minlength=len(own)) / (counts + 3)
            other = own[at]
    guess = lambda users, items: level + b[users] + c[items]  # noqa: E731
    return Predictor(0.0, guess, guess)


def cmfrec(data: ColdSet, features: Any) -> Predictor:
    """Collective matrix factorisation of cmfrec."""
    import cmfrec as peer

    X = sp.coo_matrix((data.train[2], data.train[:2]), shape=data.shape)
    side = "U" if data.option == "user_features" else "I"
    dense = np.asarray(features.todense())
    model = peer.CMF(k=data.rank, verbose=False, nthreads=THREADS, random_state=0)
    began = _CLOCK()
    model.fit(X, **{side: dense})
    seconds = _CLOCK() - began

    def cold(users: Any, items: Any) -> Any:
        if side == "I":
            each = np.unique(items)
            about = {
                j: model.predict_new(np.unique(users), I=np.tile(dense[j], (len(np.unique(users)), 1))) for j in each
            }
            place = np.searchsorted(np.unique(users), users)
            return np.array([about[j][k] for j, k in zip(items, place, strict=True)])
        each, result = np.unique(users), np.empty(len(users))
        for u in each:
            mine = users == u
            result[mine] = model.predict_cold(items[mine], U=dense[u])
        return result

    return Predictor(seconds, model.predict, cold)


def rmse(guess: Any, part: Any) -> float:
    """Root mean squared error of a part."""
    return float(np.sqrt(np.mean((guess(part[0], part[1]) - part[2]) ** 2)))


def recall(guess: Any, data: ColdSet) -> float:
    """Mean share of the liked cold items that are among the first `BEST` cold ones."""
    users, items, values = data.cold
    each, liked = np.unique(items), values >= 4
    place, found = np.searchsorted(each, items), []
    some = np.unique(users[liked])[:: max(1, len(np.unique(users[liked])) // 1000)]
    for u in some:
        scores = guess(np.full(len(each), u), each)
        first = np.argsort(-scores, kind="stable")[:BEST]
        wanted = place[(users == u) & liked]
        found.append(np.isin(wanted, first).mean())
    return float(np.mean(found))


MODELS: dict[str, Callable[[ColdSet], Predictor]] = {
    "mean and biases": mean,
    "Stretto, sgd, no features": lambda data: ours(data, None),
    "Stretto, sgd, features": lambda data: ours(data, data.features),
    "Stretto, sgd, random features": lambda data: ours(data, data.random()),
    "Stretto, als, no features": lambda data: ours(data, None, solver="als"),
    "Stretto, als, features": lambda data: ours(data, data.features, solver="als"),
    "Stretto, als, random features": lambda data: ours(data, data.random(), solver="als"),
    "cmfrec, CMF, features": lambda data: cmfrec(data, data.features),
}


def main() -> None:
    """Measure every model on every set."""
    rows = []
    for data in (movielens(), planted(4), planted(10), planted(30)):
        if data is None:
            continue
        for name, fit in MODELS.items():
            try:
                found = fit(data)
            except ImportError as error:
                print(f"{name}: left out ({error})")
                continue
            # Without features all cold items have one prediction for a user, so their order is chance.
            listed = data.ranked and name.endswith(", features")
            quality = f"{recall(found.cold, data):.4f}" if listed else ""
            errors = [f"{rmse(guess, part):.4f}" for guess, part in ((found.warm, data.warm), (found.cold, data.cold))]
            rows.append([data.name, name, *errors, quality, f"{found.seconds:.2f}"])
            print(rows[-1], flush=True)
    columns = ["set", "model", "RMSE, warm", "RMSE, cold", f"Recall@{BEST}, cold", "seconds"]
    body = (_NOTE if SHARED else "") + report.table(columns, rows)
    report.save("side_features", "Features of users and items", report.text(__doc__), body, ("cmfrec",))


if __name__ == "__main__":
    main()
