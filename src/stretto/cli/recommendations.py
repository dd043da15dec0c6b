"""Compute recommendations for many users and write them to a file or the terminal."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stretto.atomic import replacing
from stretto.data.records.ids import IdMap
from stretto.errors import DataError

from .json_output import answer
from .output import say, table

if TYPE_CHECKING:
    from stretto.models.factorization.estimator import MatrixFactorization
    from stretto.models.factorization.serving.recommender import Recommender

_BATCH = 8192  # users asked for at a time when all are written to a file
_WHY = 20  # items that --why prints, at most: those that add most and those that add least


def load(run: Path) -> MatrixFactorization:
    """The factors of a run folder, or of a file."""
    from stretto.models.factorization.estimator import MatrixFactorization

    from .recipes.runs import model_file

    return MatrixFactorization.load(model_file(run))


def served(run: Path, workers: int | None) -> Recommender:
    """The same, for recommendations alone, which loads faster."""
    from stretto.models.factorization.serving.recommender import Recommender

    from .recipes.runs import model_file

    return Recommender.load(model_file(run), n_jobs=workers)


def filters(
    model: Recommender, only: list[str] | None, exclude: list[str] | None, *, filter_seen: bool
) -> dict[str, Any]:
    """Arguments of `recommend` that say which items there may be."""
    found: dict[str, Any] = {"filter_seen": filter_seen}
    for name, items in (("items", only), ("exclude", exclude)):
        if items:
            cols = _indices(model.item_ids_, items, len(model.item_factors_), "item")
            found[name] = _ids(model.item_ids_, cols)
    return found


def chosen(model: Recommender, users: list[str], some: int, everyone: bool) -> NDArray[np.int32]:
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


def _print(title: str, items: list[Any], scores: list[float], head: str, what: str = "item") -> None:
    rows = [
        (str(k + 1), str(item), f"{score:.3f}")
        for k, (item, score) in enumerate(zip(items, scores, strict=True))
        if np.isfinite(score)
    ]
    table(title, ("", what, head), rows, numbers=("", head))


def _answer(kind: str, names: list[Any], found: NDArray[Any], scores: NDArray[Any]) -> None:
    """The facts for --json. found, scores [names, n]; a score that is not finite: there is none."""
    lists = [
        [{"id": one, "score": score} for one, score in zip(*pair, strict=True) if np.isfinite(score)]
        for pair in zip(found.tolist(), scores.tolist(), strict=True)
    ]
    results = [{"for": name, "found": rows} for name, rows in zip(names, lists, strict=True)]
    answer(kind=kind, results=results, users=len(names), items=sum(map(len, lists)))


def print_best(model: Recommender, rows: NDArray[np.int32], n: int, filters: dict[str, Any]) -> None:
    """A table for each user."""
    users = _ids(model.user_ids_, rows)
    items, scores = model.recommend(users, n, **filters)
    _answer("recommendations", users.tolist(), items, scores)
    for user, best, score in zip(users.tolist(), items.tolist(), scores.tolist(), strict=True):
        _print(f"for user {user}", best, score, "score")


def print_similar(model: Recommender, names: list[str], n: int, *, users: bool) -> None:
    """A table for each item, or for each user."""
    what = "user" if users else "item"
    ids, count = (model.user_ids_, len(model.user_factors_)) if users else (model.item_ids_, len(model.item_factors_))
    at = _ids(ids, _indices(ids, names, count, what))
    found, scores = (model.similar_users if users else model.similar_items)(at, n)
    _answer(f"similar {what}s", at.tolist(), found, scores)
    for name, best, score in zip(names, found.tolist(), scores.tolist(), strict=True):
        _print(f"like {what} {name}", best, score, "cosine", what)


def print_why(model: Recommender, run: Path, users: list[str], item: str) -> None:
    """What each of a user's ratings adds to the score of an item."""
    if len(users) != 1:
        raise DataError(f"--why explains the score of one user, and there are {len(users)}; give one: --user ID")
    rows = _indices(model.user_ids_, users, len(model.user_factors_), "user")
    cols = _indices(model.item_ids_, [item], len(model.item_factors_), "item")
    user, wanted = _ids(model.user_ids_, rows).tolist()[0], _ids(model.item_ids_, cols).tolist()[0]
    ratings = None if model.has_ratings else _rated(model, run, int(rows[0]))
    found = model.explain_recommendation(user, wanted, ratings=ratings)
    answer(
        kind="why",
        users=1,
        items=1,
        why={
            "user": user,
            "item": wanted,
            "score": float(found.score),
            "mean": float(found.mean),
            "item_bias": float(found.item_bias),
            "rest": float(found.rest),
            "contributions": [
                {"item": item, "rated": rated, "adds": adds}
                for item, rated, adds in zip(
                    found.items.tolist(), found.values.tolist(), found.contributions.tolist(), strict=True
                )
            ],
        },
    )
    lines = [("mean of all ratings", "", found.mean), (f"bias of item {wanted}", "", found.item_bias)]
    past = list(zip(found.items.tolist(), found.values.tolist(), found.contributions.tolist(), strict=True))
    shown = past if len(past) <= _WHY else past[: _WHY // 2] + past[-_WHY // 2 :]
    lines += [(f"item {name}", f"{value:g}", part) for name, value, part in shown]
    if len(shown) < len(past):
        between = sum(part for _, _, part in past[_WHY // 2 : -_WHY // 2])
        lines.insert(2 + _WHY // 2, (f"{len(past) - len(shown)} items between", "", between))
    lines.append(("what no rating explains", "", found.rest))
    heads = ("because of", "rated", "adds")
    title = f"item {wanted} for user {user}: {found.score:.3f}"
    table(title, heads, [(name, value, f"{part:+.3f}") for name, value, part in lines], numbers=heads[1:])


def _rated(model: Recommender, run: Path, row: int) -> dict[Any, float]:
    """The ratings of a user in the file of the run, as far as the model was trained on them."""
    from .recipes.ratings import ratings_of

    if not run.is_dir():
        raise DataError(f"--why needs the ratings of the user, and {run} has none; name the folder of the run instead")
    _, data = ratings_of(run)
    ids = _ids(model.user_ids_, np.array([row]))
    own = int(ids[0]) if data.row_ids is None else int(data.row_ids.encode(ids, unknown="mark")[0])
    mine = np.flatnonzero(data.rows == own)
    items = _ids(data.col_ids, data.cols[mine])
    seen = model.seen()
    trained = _ids(model.item_ids_, seen.indices[seen.indptr[row] : seen.indptr[row + 1]]).tolist()
    values = dict(zip(items.tolist(), data.values[mine].tolist(), strict=True))
    return {item: values[item] for item in trained if item in values}


def write(model: Recommender, rows: NDArray[np.int32], n: int, to: Path, filters: dict[str, Any]) -> None:
    """Recommendations for many users in a file, by its ending.

    .csv has user, place, item, score; .parquet user, item, rank, score; .jsonl user, items, scores, a line for each
    user; .npz the arrays users, items, scores.
    """
    if to.suffix not in {".csv", ".parquet", ".jsonl", ".npz"}:
        raise DataError(f"cannot write recommendations to {to}; use a name that ends in .csv, .parquet, .jsonl or .npz")
    to.parent.mkdir(parents=True, exist_ok=True)
    with replacing(to) as fresh:
        if to.suffix in {".csv", ".jsonl"}:
            found = _write_lines(model, rows, n, fresh, to.suffix, filters)
        else:
            users = _ids(model.user_ids_, rows)
            items, scores = model.recommend(users, n, **filters)
            _write_arrays(fresh, to.suffix, users, items, scores)
            found = np.isfinite(scores).sum(axis=1)
    answer(kind="file", file=str(to), users=int(np.count_nonzero(found)), items=int(found.sum()))
    say(f"{to}: {_counted(found, n)}")


def _write_arrays(path: Path, suffix: str, users: NDArray[Any], items: NDArray[Any], scores: NDArray[Any]) -> None:
    if suffix == ".npz":
        with open(path, "wb") as file:
            np.savez(file, users=_storable(users), items=_storable(items), scores=scores)
        return
    from pyarrow import parquet

    from stretto.models.factorization.serving.frames import list_frame

    parquet.write_table(list_frame("arrow", ("user", "item"), users, items, scores), path)


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


def _write_lines(
    model: Recommender, rows: NDArray[np.int32], n: int, path: Path, suffix: str, filters: dict[str, Any]
) -> NDArray[np.int64]:
    """Write the file, some users at a time; how many items each user got."""
    found = np.zeros(len(rows), np.int64)
    with open(path, "w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        if suffix == ".csv":
            out.writerow(["user", "place", "item", "score"])
        for lo in range(0, len(rows), _BATCH):
            users = _ids(model.user_ids_, rows[lo : lo + _BATCH])
            items, scores = model.recommend(users, n, **filters)
            there = np.isfinite(scores).sum(axis=1)
            found[lo : lo + _BATCH] = there
            lists = zip(users.tolist(), items.tolist(), scores.tolist(), there.tolist(), strict=True)
            for user, best, score, count in lists:  # places without an item are the last
                if suffix == ".csv":
                    places = zip(best[:count], score[:count], strict=True)
                    out.writerows((user, k, item, f"{s:.6g}") for k, (item, s) in enumerate(places, 1))
                else:
                    line = {"user": user, "items": best[:count], "scores": score[:count]}
                    file.write(json.dumps(line, ensure_ascii=False) + "\n")
    return found


def _storable(ids: NDArray[Any]) -> NDArray[Any]:
    """Text as NumPy's fixed-width strings: variable-width ones would be pickled."""
    return np.array(ids.tolist(), dtype=np.str_) if ids.dtype.kind in "OT" else ids
