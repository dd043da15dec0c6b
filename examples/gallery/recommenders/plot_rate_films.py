"""
Recommend films: from ratings to a judged top 10
================================================

A model that predicts ratings, a model that ranks, and the list of the most popular films: which one gives users a
list of ten films that they like? Ratings are held out in three ways, every list is measured with a confidence
interval, and the winner recommends.
"""

# %%
# Ratings
# -------
# A table with a user, an item and a rating in each line. ``st.as_data`` keeps the ids, so that nothing has to be
# numbered.
import matplotlib.pyplot as plt
import numpy as np
from _ratings import films

import stretto as st

plt.style.use("stretto.figures")
ratings, genres, source = films()
data = st.as_data(ratings, map_ids=True)
print(source)
print(data.describe())

# %%
# Two models
# ----------
# ``stars`` predicts how many stars a user gives. ``likes`` takes a rating as a sign of interest, more stars as a
# stronger one, and counts every film without a rating as a weak sign of none.
stars = st.MatrixFactorization(32, random_state=0)
train, test = st.split(data, test=0.1, seed=0)
stars.fit(train)
guess = np.sqrt(np.mean((test.values - train.values.mean()) ** 2))
rmse = -stars.score(test)
print(f"error of the mean of all ratings {guess:.3f} stars, of the model {rmse:.3f}")

likes = st.MatrixFactorization(32, solver="als", implicit=True, random_state=0)

# %%
# Judge the lists
# ---------------
# A held-out film with four stars or more should be among the first ten. Three ways of holding out ask three
# questions: how well gaps are filled, whether one more liked film is found, and how good the lists of new users are.
# These ratings have no time stamps; where there are some, ``st.split.by_time`` asks what would have happened in
# production.
questions = {
    "random": "a tenth of all ratings",
    "leave_k_out": "one rating of each user",
    "cold_users": "a tenth of the users",
}
found = {
    split: st.evaluate(
        {"predicts stars": stars, "ranks likes": likes},
        data,
        split=split,
        metrics=["ndcg@10", "recall@10", "coverage@10"],
        threshold=4,
        popular=True,
    )
    for split in questions
}
print(found["random"])

# %%
# The model of stars has the best error and the worst lists: it promises five stars for films that hardly anybody has
# seen. The order of the models is the same for every split, but the numbers are not, so compare numbers of one split
# alone.
names = list(found["random"].users)
figure, axes = plt.subplots()
for k, name in enumerate(names):
    scores = [found[split].score("ndcg@10", name) for split in questions]
    at = np.arange(len(scores)) + 0.25 * (k - 1)
    spread = [[s.value - s.low for s in scores], [s.high - s.value for s in scores]]
    axes.bar(at, [s.value for s in scores], width=0.23, yerr=spread, capsize=3, label=name)
axes.set_xticks(range(len(questions)), questions.values())
axes.set_xlabel("what is held out")
axes.set_ylabel("NDCG@10 (higher is better)")
axes.set_title("How good are the first ten films? Means over users, with 95 % intervals")
figure.legend(loc="outside lower center", ncols=3)
axes.grid(visible=False, axis="x")
plt.show()

# %%
# Two models are measured on the same users, so the interval of their difference is narrow.
gain, low, high = found["random"].difference("ndcg@10", "ranks likes", "most popular")
print(
    f"NDCG@10 of the ranking model is {gain:.3f} higher than that of popularity, 95 % interval {low:.3f} to {high:.3f}"
)

# %%
# Recommend
# ---------
# The model is fitted to everything, and users are asked for by their id. What they have rated is left out.
best = found["random"].models["ranks likes"].fit(data)
user = int(ratings.user.iloc[0])
table = best.recommend([user], n=10, as_frame=True)
of_film = genres.set_index("item")
table["genres"] = [", ".join(of_film.columns[of_film.loc[item] == 1]) for item in table.item]
print(table.to_string(index=False))
