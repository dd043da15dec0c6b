"""Pictures of results: a path of the Lasso, a map of topics, films recommended to a user."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

import stretto as st
from stretto.figures import COLOURS, FAINT, INK, new_figure, plain_log_scale

ROOT = Path(__file__).resolve().parents[2]
GENRES = ("action", "adventure", "animation", "children", "comedy", "crime", "documentary", "drama", "fantasy",
          "film-noir", "horror", "musical", "mystery", "romance", "science fiction", "thriller", "war",
          "western")  # fmt: skip

FEATURES = {"s1": "total cholesterol", "s2": "LDL", "s3": "HDL", "s5": "log triglycerides", "bmi": "body mass index",
            "bp": "blood pressure"}  # fmt: skip


def data(*parts: str) -> Path | None:
    """A file of the real sets; None where it is absent."""
    path = Path(os.environ.get("STRETTO_DATA", ROOT.parent / "shared" / "data")).joinpath(*parts)
    return path if path.exists() else None


def lasso_path(path: Path) -> bool:
    """Coefficients of scikit-learn's diabetes data against the penalty, and the one that cross-validation takes."""
    from sklearn.datasets import load_diabetes

    found = load_diabetes()
    X = (found.data - found.data.mean(0)) / found.data.std(0)
    alphas, coefs, _ = st.lasso_path(X, found.target, eps=1e-3, n_alphas=100, fit_intercept=True)
    chosen = st.LassoCV(cv=5).fit(X, found.target).alpha_
    largest = np.argsort(-np.abs(coefs[:, -1]), kind="stable")[: len(COLOURS)]
    with new_figure(path, 8, 4.6, "Lasso path: features enter the model as the penalty falls", palette=True) as figure:
        axes = figure.subplots()
        for feature in set(range(len(coefs))) - set(largest.tolist()):
            axes.plot(alphas, coefs[feature], color=FAINT, linewidth=1)
        for colour, feature in zip(COLOURS, largest, strict=False):
            axes.plot(
                alphas,
                coefs[feature],
                color=colour,
                label=FEATURES.get(found.feature_names[feature], found.feature_names[feature]),
            )
        axes.axvline(chosen, color=INK, linewidth=1, linestyle="--")
        axes.annotate(f"α chosen by LassoCV: {chosen:.2g}", (chosen, 1), xycoords=("data", "axes fraction"),
                      xytext=(-5, -2), textcoords="offset points", ha="right", va="top", fontsize=9)  # fmt: skip
        plain_log_scale(axes, "x", subs=(1.0, 3.0))
        axes.invert_xaxis()
        axes.set(xlabel="penalty α (falling)", ylabel="coefficient of the standardised feature")
        figure.legend(loc="outside right upper", title="largest six; others grey", alignment="left")
    return True


def topic_map(path: Path) -> bool:
    """Topics of AP's articles: near topics use similar words, large ones have many tokens."""
    from stretto.models.topics.browse import browse

    file, vocabulary = data("ap", "ap.dat.xz"), data("ap", "vocab.txt")
    if file is None or vocabulary is None:
        return False
    model = st.LatentDirichletAllocation(20, max_iter=150, optimize_every=10, random_state=0).fit(file)
    view = browse(model)
    words = model.top_words(vocabulary.read_text(encoding="utf-8").split(), 3)
    points, tokens = view.places, view.tokens / view.tokens.sum()
    if points is None:
        return False
    with new_figure(path, 8, 6.4, "Twenty topics of 2,246 news articles", palette=True) as figure:
        axes = figure.subplots()
        axes.scatter(points[:, 0], points[:, 1], s=9000 * tokens, color=COLOURS[0], alpha=0.3, linewidth=0)
        for (x, y), (at, up), three in zip(_apart(points), points, words, strict=True):
            axes.plot([x, at], [y, up], color=FAINT, linewidth=0.8, zorder=0)
            axes.text(x, y, "\n".join(three), ha="center", va="center", fontsize=8, linespacing=0.95)
        axes.set(xlabel="near circles: topics with similar words; area: share of all tokens", xticks=[], yticks=[])
        axes.margins(0.09)
        axes.spines[["left", "bottom"]].set_visible(False)
        axes.grid(visible=False)
    return True


def _apart(points: np.ndarray, rounds: int = 300) -> np.ndarray:
    """Places of labels near these points that overlap little: labels that are too near push each other away."""
    size = np.array([0.12, 0.085]) * np.ptp(points, axis=0)  # of a label
    found = points.copy()
    for _ in range(rounds):
        gap = (found[:, None] - found[None]) / size
        near = np.abs(gap).max(axis=2) < 1
        np.fill_diagonal(near, False)
        push = np.where(near[..., None], np.sign(gap + 1e-9 * np.sign(np.arange(len(found))[:, None, None] - 1e-3)), 0)
        found += 0.02 * size * push.sum(axis=1) + 0.005 * (points - found)
    return found


def recommendations(path: Path) -> bool:
    """What a user rated high, and what is recommended: films by number and genre, since the set has no titles."""
    import pandas as pd

    ratings, flags = data("movielens-1m", "ratings.tsv.xz"), data("movielens-1m", "item_genres.tsv.xz")
    if ratings is None or flags is None:
        return False
    table, genres = pd.read_csv(ratings, sep="\t"), pd.read_csv(flags, sep="\t").set_index("item")
    user = 42
    own = table[table.user == user].sort_values("rating", ascending=False, kind="stable").head(8)
    model = st.MatrixFactorization(32, max_iter=30, random_state=0)
    model.fit(st.as_data(table[["user", "item", "rating"]], map_ids=True))
    best = model.recommend([user], n=8, as_frame=True)

    def names(items: object) -> list[str]:
        rows = genres.loc[list(items)].to_numpy() > 0  # type: ignore[call-overload]
        kinds = [", ".join(np.array(GENRES)[row][:3]) for row in rows]
        return [f"film {item}: {kind}" for item, kind in zip(items, kinds, strict=True)]  # type: ignore[call-overload]

    with new_figure(path, 9, 3.6, f"User {user} of MovieLens-1M", palette=True) as figure:
        panels = figure.subplots(1, 2, sharex=True)
        parts = (("rated highest", own.item, own.rating), ("recommended: predicted rating", best.item, best.score))
        for axes, colour, (title, items, values) in zip(panels, COLOURS, parts, strict=False):
            places = np.arange(len(values))
            axes.barh(places, values, color=colour, height=0.66)
            axes.set_yticks(places, names(items), fontsize=8)
            for place, value in zip(places, values, strict=True):
                axes.text(value - 0.08, place, f"{value:g}" if value == int(value) else f"{value:.2f}", color="white",
                          ha="right", va="center", fontsize=8)  # fmt: skip
            axes.set(title=title, ylim=(len(values) - 0.4, -0.6), xlabel="stars", xlim=(0, 5.3))
            axes.grid(visible=False, axis="y")
            axes.tick_params(axis="y", length=0)
    return True
