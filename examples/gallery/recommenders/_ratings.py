"""Ratings for the examples of this folder: public data sets, or generated ones of the same form without those."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

import stretto as st

HERE = Path(__file__).resolve()
GENRES = ["action", "adventure", "animation", "children", "comedy", "crime", "documentary", "drama", "fantasy"]
GENRES += ["film-noir", "horror", "musical", "mystery", "romance", "science fiction", "thriller", "war", "western"]


def file_of(*parts: str) -> Path | None:
    """A file of the data sets in $STRETTO_DATA, or in shared/data beside the checkout; None where it is absent."""
    given = os.environ.get("STRETTO_DATA")
    path = (Path(given) if given else HERE.parents[4] / "shared" / "data").joinpath(*parts)
    return path if path.exists() else None


class Films(NamedTuple):
    """Ratings of films by users."""

    ratings: pd.DataFrame  # user, item, rating
    genres: pd.DataFrame  # item, and one column of 0 and 1 for each genre
    source: str


class Trust(NamedTuple):
    """Who trusts whom."""

    edges: pd.DataFrame  # user, trusted
    source: str


def films(users: int | None = None) -> Films:
    """Ratings from 1 to 5 stars. users: take so many of the users, every k-th one."""
    ratings, genres = file_of("movielens-1m", "ratings.tsv.xz"), file_of("movielens-1m", "item_genres.tsv.xz")
    if ratings is None or genres is None:
        return _made_films(min(users or 600, 600))
    table = pd.read_csv(ratings, sep="\t")
    if users is not None:
        every = max(1, table.user.nunique() // users)
        table = table[table.user % every == 0].reset_index(drop=True)
    flags = pd.read_csv(genres, sep="\t")
    flags.columns = ["item", *GENRES]
    return Films(table, flags, f"MovieLens 1M, {len(table):,} ratings")


def trust(users: int | None = None) -> Trust:
    """Trust between the reviewers of a site. users: those who trust most others, and trust among them alone."""
    path = file_of("epinions", "trust.tsv.xz")
    if path is None:
        return _made_trust(min(users or 500, 500))
    edges = pd.read_csv(path, sep="\t")
    edges.columns = ["user", "trusted", *edges.columns[2:]]
    edges = edges[["user", "trusted"]].drop_duplicates()
    if users is not None:
        kept = edges.user.value_counts().index[:users]
        edges = edges[edges.user.isin(kept) & edges.trusted.isin(kept)].reset_index(drop=True)
    return Trust(edges, f"Epinions, {len(edges):,} pairs of reviewers")


def _made_films(users: int, items: int = 400) -> Films:
    """Users like genres, films have some of them and a quality; few films have most of the ratings."""
    rng = np.random.default_rng(0)
    flags = np.zeros((items, len(GENRES)))
    for film in range(items):
        flags[film, rng.choice(len(GENRES), rng.integers(1, 4), replace=False)] = 1
    taste, quality, mood = (
        rng.normal(0, 0.5, (users, len(GENRES))),
        rng.normal(0, 0.4, items),
        rng.normal(0, 0.3, users),
    )
    fit = taste @ flags.T
    liked = 3.5 + fit + quality + mood[:, None]
    chosen = 2.5 * fit + quality - 0.4 * np.log(1 + np.arange(items)) + rng.gumbel(size=(users, items))
    rows, cols = np.nonzero(np.argsort(np.argsort(-chosen, axis=1), axis=1) < rng.integers(20, 80, users)[:, None])
    stars = np.clip(np.rint(liked[rows, cols] + rng.normal(0, 0.6, len(rows))), 1, 5)
    ratings = pd.DataFrame({"user": rows + 1, "item": cols + 1, "rating": stars})
    genres = pd.DataFrame(flags.astype(int), columns=GENRES)
    genres.insert(0, "item", np.arange(1, items + 1))
    return Films(
        ratings, genres, f"generated films, {len(ratings):,} ratings (STRETTO_DATA names no folder with MovieLens)"
    )


def _made_trust(users: int, groups: int = 6) -> Trust:
    """Users trust others of their group, and everybody trusts a few well-known ones."""
    rng = np.random.default_rng(0)
    group, fame = rng.integers(groups, size=users), rng.exponential(size=users)
    pull = 3.0 * (group[:, None] == group) + 0.4 * fame + rng.gumbel(size=(users, users))
    np.fill_diagonal(pull, -np.inf)
    rows, cols = np.nonzero(np.argsort(np.argsort(-pull, axis=1), axis=1) < rng.integers(10, 40, users)[:, None])
    edges = pd.DataFrame({"user": rows + 1, "trusted": cols + 1})
    return Trust(edges, f"generated trust, {len(edges):,} pairs (STRETTO_DATA names no folder with Epinions)")


def as_ratings(table: pd.DataFrame) -> st.Data:
    """Users, items and ratings with their ids, as every function of stretto takes them."""
    return st.as_data(table[["user", "item", "rating"]], map_ids=True)
