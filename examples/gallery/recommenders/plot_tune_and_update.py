"""
Choose parameters, then keep the model fresh
============================================

Two jobs of every recommender in use. Scikit-learn's ``GridSearchCV`` chooses the number of factors and the penalty,
by error and by ranking at once. Then ratings go on arriving, and the model learns from each batch with
``partial_fit`` instead of starting again.
"""

# %%
# Search
# ------
# Samples are ratings: pairs of user and item, with the stars as ``y``. ``st.scorer`` makes a ranking metric out of
# held-out pairs.
import time

import matplotlib.pyplot as plt
import numpy as np
from _ratings import films
from sklearn.model_selection import GridSearchCV, KFold

import stretto as st

plt.style.use("stretto.figures")
ratings, _, source = films(users=500)
pairs, stars = ratings[["user", "item"]].to_numpy(), ratings.rating.to_numpy(float)
print(source)

search = GridSearchCV(
    st.MatrixFactorization(solver="als", max_iter=10, random_state=0),
    {"n_components": [2, 8, 32], "l2_regularization": [0.02, 0.1, 0.5]},
    scoring={"rmse": st.scorer("rmse"), "ndcg": st.scorer("ndcg@10", threshold=4)},
    refit="rmse",
    cv=KFold(3, shuffle=True, random_state=0),
)
search.fit(pairs, stars)
print(f"best by error: {search.best_params_}, {-search.best_score_:.3f} stars")

# %%
results = search.cv_results_
figure, panels = plt.subplots(1, 2, figsize=(9, 4))
for components in (2, 8, 32):
    mine = [k for k, p in enumerate(results["params"]) if p["n_components"] == components]
    penalty = [results["params"][k]["l2_regularization"] for k in mine]
    panels[0].plot(penalty, -results["mean_test_rmse"][mine], marker="o", label=f"{components} factors")
    panels[1].plot(penalty, results["mean_test_ndcg"][mine], marker="o")
for axes, name in zip(panels, ("error in stars (lower is better)", "NDCG@10 (higher is better)")):
    axes.set_xscale("log")
    axes.set_xticks([0.02, 0.1, 0.5], ["0.02", "0.1", "0.5"])
    axes.minorticks_off()
    axes.set_xlabel("penalty on factors")
    axes.set_ylabel(name)
    axes.set_title(name.split(" (")[0])
figure.suptitle("Held-out ratings of three folds, by penalty and number of factors")
figure.legend(loc="outside lower center", ncols=3)
plt.show()

# %%
# With a strong penalty the number of factors hardly matters. The best penalty for ranking need not be the best for
# the error: choose by what the model is for.
#
# Ratings over time
# -----------------
# These ratings have no time stamps, so they are drawn: users arrive one after the other, and each rates for a while.
# The first half trains the model, and then a batch arrives in each of eight periods. Every batch is predicted before
# anybody learns from it.
rng = np.random.default_rng(0)
arrival = dict(zip(ratings.user.unique(), rng.uniform(0, 0.8, ratings.user.nunique())))
when = ratings.user.map(arrival).to_numpy() + rng.uniform(0, 0.5, len(ratings))
order = np.argsort(when)
first, *batches = np.split(order, np.linspace(len(order) // 2, len(order), 9).astype(int)[:-1])


def fitted(rows):
    """A model of these ratings with the best parameters."""
    model = st.MatrixFactorization(solver="als", max_iter=10, random_state=0, **search.best_params_)
    return model.fit(pairs[rows], stars[rows])


stale, fresh, again = fitted(first), fitted(first), fitted(first)
errors, seconds = (
    {"never updated": [], "partial_fit": [], "fitted again": []},
    {"partial_fit": 0.0, "fitted again": 0.0},
)
seen = first
for batch in batches:
    for name, model in zip(errors, (stale, fresh, again)):
        errors[name].append(float(np.sqrt(np.mean((model.predict(pairs[batch]) - stars[batch]) ** 2))))
    seen = np.concatenate([seen, batch])
    began = time.perf_counter()
    fresh.partial_fit(pairs[batch], stars[batch])
    seconds["partial_fit"] += time.perf_counter() - began
    began = time.perf_counter()
    again = fitted(seen)
    seconds["fitted again"] += time.perf_counter() - began
for name, values in errors.items():
    took = f", {seconds[name]:.2f} s for eight updates" if name in seconds else ""
    print(f"{name}: mean error {np.mean(values):.3f} stars{took}")

# %%
figure, axes = plt.subplots()
for name, values in errors.items():
    axes.plot(range(1, len(values) + 1), values, marker="o", label=name)
axes.set_xlabel("batch of new ratings, in their order")
axes.set_ylabel("error before learning from the batch, stars")
axes.set_title("A model that is never updated does not know the new users")
figure.legend(loc="outside lower center", ncols=3)
plt.show()
