"""Compute recommendations for many users and write them to a file or the terminal."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stretto.atomic import replacing
from stretto.data.records.ids import IdMap
from stretto.errors import DataError

from .output import say, table

if TYPE_CHECKING:
    from stretto.models.factorization.estimator import MatrixFactorization

_BATCH = 8192  # users asked for at a time when all are written to a file


def load(run: Path) -> MatrixFactorization:
    """The factors of a run folder, or of a file."""
    from stretto.models.factorization.estimator import MatrixFactorization

    from .recipes.runs import model_file

    return MatrixFactorization.load(model_file(run))


def chosen(model: MatrixFactorization, users: list[str], some: int, everyone: bool) -> NDArray[np.int32]:
    """Row indices of the users asked for."""
    count = len(model.user_factors_)
    if everyone and (users or some):
        raise DataError("--all is every user; leave --user and --some out")
    if everyone:
        return np.arange(count, dtype=np.int32)
    spread = np.linspace(0, count, min(some, count), endpoint=False).astype(np.int32)
    if not users and not len(spread):
        raise DataError("say for whom: --user ID, --some 3, or --all --to best.csv; or ask for --similar-to ITEM")
    return np.concatenate([_indices(model.user_ids_, users, count, "user"), spread])


def _indices(ids: IdMap | None, names: list[str], count: int, what: str) -> NDArray[np.int32]:
    """Indices of names typed by a person; an error names the first that training did not see and shows some it saw."""
    known = [str(name) for name in _ids(ids, np.arange(min(3, count))).tolist()]
    found = np.empty(len(names), np.int32)
    for place, name in enumerate(names):
        # "007" is not user 7: one number has one name.
        known_as = ids if ids is not None else IdMap(np.arange(count))
        index = int(known_as.encode([name], unknown="mark")[0])
        if not 0 <= index < count:
            raise DataError(
                f"there is no {what} {name!r} in the training data; it has {count:,}, such as {', '.join(known)}"
            )
        found[place] = index
    return found


def _ids(ids: IdMap | None, rows: NDArray[Any]) -> NDArray[Any]:
    return rows if ids is None else ids.decode(rows)


def _print(title: str, items: list[Any], scores: list[float], head: str) -> None:
    rows = [
        (str(k + 1), str(item), f"{score:.3f}")
        for k, (item, score) in enumerate(zip(items, scores, strict=True))
        if np.isfinite(score)
    ]
    table(title, ("", "item", head), rows, numbers=("", head))


def print_best(model: MatrixFactorization, rows: NDArray[np.int32], n: int, *, filter_seen: bool) -> None:
    """A table for each user."""
    users = _ids(model.user_ids_, rows)
    items, scores = model.recommend(users, n, filter_seen=filter_seen)
    for user, best, score in zip(users.tolist(), items.tolist(), scores.tolist(), strict=True):
        _print(f"for user {user}", best, score, "score")


def print_similar(model: MatrixFactorization, names: list[str], n: int) -> None:
    cols = _indices(model.item_ids_, names, len(model.item_factors_), "item")
    items, scores = model.similar_items(_ids(model.item_ids_, cols), n)
    for name, best, score in zip(names, items.tolist(), scores.tolist(), strict=True):
        _print(f"like item {name}", best, score, "cosine")


def write(model: MatrixFactorization, rows: NDArray[np.int32], n: int, to: Path, *, filter_seen: bool) -> None:
    """Recommendations for many users in a file: .csv (user, place, item, score) or .npz (users, items, scores)."""
    if to.suffix not in {".csv", ".npz"}:
        raise DataError(f"cannot write recommendations to {to}; use a name that ends in .csv or .npz")
    to.parent.mkdir(parents=True, exist_ok=True)
    with replacing(to) as fresh:
        if to.suffix == ".csv":
            found = _write_csv(model, rows, n, fresh, filter_seen)
        else:
            users = _ids(model.user_ids_, rows)
            items, scores = model.recommend(users, n, filter_seen=filter_seen)
            np.savez(fresh, users=_storable(users), items=_storable(items), scores=scores)
            found = np.isfinite(scores).sum(axis=1)
    say(f"{to}: {_counted(found, n)}")


def _counted(found: NDArray[np.int64], n: int) -> str:
    """What was written, found [users] being how many items there were for each.

    >>> _counted(np.array([3, 3]), 3), _counted(np.array([3, 1, 0]), 3)
    ('3 items for each of 2 users', '4 items for 2 users; 1 of them have fewer than 3, and 1 users have none')
    """
    some, none = int(np.count_nonzero(found)), int(np.count_nonzero(found == 0))
    if len(found) and bool(np.all(found == n)):
        return f"{n} items for each of {len(found):,} users"
    fewer = int(np.count_nonzero((found > 0) & (found < n)))
    parts = [f"{fewer:,} of them have fewer than {n}"] if fewer else []
    parts += [f"{none:,} users have none"] if none else []
    return f"{int(found.sum()):,} items for {some:,} users; {', and '.join(parts)}"


def _write_csv(
    model: MatrixFactorization, rows: NDArray[np.int32], n: int, path: Path, filter_seen: bool
) -> NDArray[np.int64]:
    """Write the file; how many items each user got."""
    found = np.zeros(len(rows), np.int64)
    with open(path, "w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["user", "place", "item", "score"])
        for lo in range(0, len(rows), _BATCH):
            users = _ids(model.user_ids_, rows[lo : lo + _BATCH])
            items, scores = model.recommend(users, n, filter_seen=filter_seen)
            found[lo : lo + _BATCH] = np.isfinite(scores).sum(axis=1)
            for user, best, score in zip(users.tolist(), items.tolist(), scores.tolist(), strict=True):
                places = zip(best, score, strict=True)
                out.writerows((user, k, item, f"{s:.6g}") for k, (item, s) in enumerate(places, 1) if np.isfinite(s))
    return found


def _storable(ids: NDArray[Any]) -> NDArray[Any]:
    """Text as NumPy's fixed-width strings: variable-width ones would be pickled."""
    return np.array(ids.tolist(), dtype=np.str_) if ids.dtype.kind in "OT" else ids
