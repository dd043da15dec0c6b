"""
Serve recommendations to users who came after training
=======================================================

A model is trained once and then asked all day, mostly for people whom it has never seen. This example loads it as a
server does, folds in new users from a few ratings, filters lists, says why a film is recommended, and writes plain
arrays for other programs.
"""

# %%
# Train and save
# --------------
# A tenth of the users is kept away from training. ``ratings=True`` keeps the values of the ratings in the file, for
# explanations of users of training.
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from _ratings import films

import stretto as st

plt.style.use("stretto.figures")
ratings, genres, source = films(users=3000)
train, test = st.split.cold_users(st.as_data(ratings, map_ids=True), test=0.1, seed=0)
print(source)

folder = Path(tempfile.mkdtemp())
model = st.MatrixFactorization(32, random_state=0).fit(train)
model.save(folder / "films.safetensors", ratings=True)

# %%
# In the server
# -------------
# ``st.Recommender`` has everything but ``fit``, and loads without a compiler and without scikit-learn.
server = st.Recommender.load(folder / "films.safetensors")
print(server)
known = ratings.item.value_counts().index
ada = {int(known[0]): 5.0, int(known[3]): 1.0, int(known[9]): 4.0}
print(server.recommend_new({"ada": ada}, n=5, as_frame=True).to_string(index=False))

# %%
# A shop has not everything in stock, and some films are not to be shown. ``items`` and ``exclude`` take lists for all
# users or a mapping for single ones.
westerns = genres.item[genres.western == 1].tolist()
held = [item for item in westerns if item in set(ratings.item)]
_, best, scores = server.recommend_new({"ada": ada}, n=3, items=held, exclude=held[:1])
print("westerns in stock:", best[0], scores[0].round(2))

# %%
# How many ratings does a new user need?
# --------------------------------------
# Every user who was kept back gives k ratings, and the model predicts all the others of theirs. Without any, all it
# knows is how films are rated on average.
people = pd.DataFrame(
    {"user": test.row_ids.ids[test.rows], "item": test.col_ids.ids[test.cols], "rating": test.values}
).sample(frac=1, random_state=0)
place = people.groupby("user").cumcount()
later = people[place >= 16]
print(f"{people.user.nunique()} new users with {len(people):,} ratings, errors over {len(later):,} of them")


def error(predicted):
    """The root mean square error of the later ratings of new users."""
    return float(np.sqrt(np.mean((predicted - later.rating.to_numpy()) ** 2)))


pairs = later[["user", "item"]].to_numpy()
errors = {0: error(model.predict(pairs))}
print(f"without ratings of theirs: error {errors[0]:.3f} stars")
for k in (1, 2, 4, 8, 16):
    errors[k] = error(model.fold_in(people[place < k]).predict(pairs))
    print(f"with {k} of each: error {errors[k]:.3f} stars")

# %%
figure, axes = plt.subplots()
axes.plot(list(errors), list(errors.values()), marker="o", label="folded in from k ratings")
axes.axhline(errors[0], color="C5", linestyle=":", label="no rating: the mean of each film")
axes.set_xscale("symlog", base=2, linthresh=1)
axes.set_xlim(-0.2, 18)
axes.set_xticks(list(errors), [str(k) for k in errors])
axes.set_xlabel("ratings that a new user has given so far")
axes.set_ylabel("error of the others, stars")
axes.set_title("How soon does the model know a new user?")
figure.legend(loc="outside lower center", ncols=2)
plt.show()

# %%
# Why this film?
# --------------
# The score of a folded-in user is a sum: the mean, what is known of the film, and a part for each rating that the
# user gave.
person = people[place < 8].user.value_counts().index[0]
given = people[(place < 8) & (people.user == person)]
new = model.fold_in(given)
film = new.recommend(n=1)[0][0, 0]
why = new.explain_recommendation(person, film)
print(why)
reasons = why.to_frame()
print(reasons.to_string(index=False))

# %%
parts = {f"film {film} itself": why.item_bias}
order = np.argsort(-np.abs(why.contributions))[:6]
parts |= {f"film {why.items[k]}: {why.values[k]:.0f} stars": why.contributions[k] for k in order}
figure, axes = plt.subplots()
axes.barh(list(parts), list(parts.values()), color=["C1" if part < 0 else "C0" for part in parts.values()])
axes.invert_yaxis()
axes.axvline(0, color="#1d2329", linewidth=1)
axes.set_xlabel(f"stars that it adds to the mean of all ratings, {why.mean:.2f}")
axes.set_title(f"Why film {film} is recommended: {why.score:.2f} stars predicted")
axes.grid(visible=False, axis="y")
plt.show()

# %%
# Plain arrays
# ------------
# Other programs need NumPy alone. Scores are the mean, the biases and an inner product.
server.export(folder / "films.npz")
arrays = np.load(folder / "films.npz")
row = 0
score = (
    arrays["mean"]
    + arrays["user_bias"][row]
    + arrays["item_bias"]
    + arrays["item_factors"] @ arrays["user_factors"][row]
)
user = arrays["user_ids"][row]
own = server.predict([[user, item] for item in arrays["item_ids"]])
print(f"{score.shape[0]:,} scores of user {user}, at most {np.abs(score - own).max():.1e} from those of the model")
