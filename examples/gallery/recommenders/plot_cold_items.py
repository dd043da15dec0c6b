"""
New films that nobody has rated: features of items
==================================================

A film that came out today has no ratings, so plain factorisation knows nothing about it. With its genres as features,
the factors of a film are a map of its genres plus a part of its own, and a new film starts from its genres.
"""

# %%
# Films kept back
# ---------------
# All ratings of a fifth of the films are held out: for the models these films are new.
import matplotlib.pyplot as plt
import numpy as np
from _ratings import films

import stretto as st

plt.style.use("stretto.figures")
ratings, genres, source = films(users=3000)
data = st.as_data(ratings, map_ids=True)
train, test = st.split.cold_items(data, test=0.2, seed=0)
print(source)
old, new = np.unique(train.cols), np.unique(test.cols)
print(f"{len(old):,} films to learn from, {len(new):,} new ones with {len(test):,} ratings")
print(f"{len(genres):,} films with genres: {', '.join(genres.columns[1:6])}, …")

# %%
# With and without genres
# -----------------------
# The table of genres has the column of ids that the ratings have, and lists the new films too.
plain = st.MatrixFactorization(32, solver="als", random_state=0).fit(train)
informed = st.MatrixFactorization(32, solver="als", random_state=0).fit(train, item_features=genres)


def error(predicted):
    """The root mean square error of the held-out ratings."""
    return float(np.sqrt(np.mean((predicted - test.values) ** 2)))


pairs = np.stack([data.row_ids.ids[test.rows], data.col_ids.ids[test.cols]], axis=1)
errors = {
    "mean of all ratings": error(train.values.mean()),
    "plain factorisation": error(plain.predict(pairs)),
    "with genres": error(informed.predict(pairs)),
}
for name, value in errors.items():
    print(f"error for new films, {name}: {value:.3f} stars")

# %%
# The plain model still knows how generous a user is; the genres add what the user likes.
figure, axes = plt.subplots(figsize=(8, 2.6))
axes.scatter(list(errors.values()), list(errors), s=90, color=["C5", "C1", "C0"], zorder=3)
axes.margins(0.1, 0.3)
axes.invert_yaxis()
axes.set_xlabel("root mean square error in stars, of all ratings of new films (lower is better)")
axes.set_title("Ratings of films that training never saw")
plt.show()

# %%
# What a genre is worth
# ---------------------
# The map says what a genre adds to the rating of a film before anybody has rated it. Coefficients are for standard
# deviations of a feature; divided by them they are stars.
of_items = informed.item_feature_map_
worth = dict(zip(genres.columns[1:], of_items.coef[:, -1] / of_items.spread))
shown = sorted(worth, key=worth.get)
figure, axes = plt.subplots(figsize=(8, 4.8))
axes.barh(shown, [worth[name] for name in shown], color=["C1" if worth[name] < 0 else "C0" for name in shown])
axes.axvline(0, color="#1d2329", linewidth=1)
axes.set_xlabel("stars that the genre adds to the expected rating of a film")
axes.set_title("Which genres are rated higher?")
axes.grid(visible=False, axis="y")
plt.show()

# %%
# A list of premieres
# -------------------
# Only new films can be in these lists. The plain model gives all of them the same score; the other one finds what a
# user likes more often than chance.
new = data.col_ids.ids[new]
liked = test.take(test.values >= 4)
some = np.unique(liked.rows)[:1000]
taken = [set(data.col_ids.ids[liked.cols[liked.rows == row]].tolist()) for row in some]
rng = np.random.default_rng(0)
lists = {
    "drawn at random": [rng.permutation(new)[:10] for _ in some],
    "with genres": informed.recommend(data.row_ids.ids[some], n=10, items=new)[0],
}
hits = {name: float(st.metrics.precision(best, taken, k=10)) for name, best in lists.items()}
print("share of ten new films that the user rates four stars or more:", {name: round(hits[name], 3) for name in hits})

# %%
# One film more
# -------------
# ``add_items`` takes films that did not exist at the time of the fit. They are recommended like all others, and need
# no new fit.
premiere = genres.iloc[:2].assign(item=[900_001, 900_002])
premiere.iloc[:, 1:] = 0
premiere.loc[premiere.index[0], ["comedy", "romance"]] = 1
premiere.loc[premiere.index[1], ["horror"]] = 1
informed.add_items(premiere)
fans = {}
for film, name in ((900_001, "romantic comedy"), (900_002, "horror film")):
    guessed = informed.predict(np.stack([data.row_ids.ids, np.full(data.shape[0], film)], axis=1))
    fans[name] = int(data.row_ids.ids[np.argmax(guessed)])
    print(f"{name}: {guessed.mean():.2f} stars expected on average, {guessed.max():.2f} from user {fans[name]}")
