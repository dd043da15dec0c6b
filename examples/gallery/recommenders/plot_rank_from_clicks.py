"""
Rank from clicks: BPR, WARP or implicit ALS?
============================================

Clicks, purchases and follows say what people did and not what they liked. Here the reviewers of a site chose whom to
trust, and four losses learn whom each might trust next. Training stops when NDCG@10 on held-out choices no longer
rises.
"""

# %%
# Pairs without ratings
# ---------------------
# Each line of the table is one choice. All have the value 1, and what is missing is not a *no*: nobody has read
# everybody.
import matplotlib.pyplot as plt
import numpy as np
from _ratings import trust

import stretto as st

plt.style.use("stretto.figures")
edges, source = trust(users=2000)
data = st.as_data(edges.assign(value=1.0), user="user", item="trusted", rating="value", map_ids=True)
print(source)
share = len(data) / np.prod(data.shape)
print(f"{data.shape[0]:,} users, {data.shape[1]:,} people to trust, {100 * share:.1f} % of the pairs")

# %%
# Three parts
# -----------
# The models learn from one part, stop by a second and are judged on a third.
rest, test = st.split.by_user(data, test=0.2, seed=0)
train, validation = st.split.by_user(rest, test=0.1, seed=1)

# %%
# Fit and stop
# ------------
# ``early_stopping="ndcg@10"`` ranks the held-out choices after every epoch. BPR and WARP compare each choice with
# people drawn at random; ALS counts every pair, at a low weight where nothing is known.
stopping = {"early_stopping": "ndcg@10", "n_iter_no_change": 6, "random_state": 0}
models = {
    "implicit ALS": st.MatrixFactorization(32, solver="als", implicit=True, max_iter=25, **stopping),
    "BPR": st.MatrixFactorization(32, loss="bpr", max_iter=60, **stopping),
    "WARP": st.MatrixFactorization(32, loss="warp", max_iter=60, **stopping),
    "logistic": st.MatrixFactorization(32, loss="logistic", implicit=True, max_iter=60, **stopping),
}
for name, model in models.items():
    model.fit(train, validation=validation)
    print(f"{name}: {model.n_iter_} epochs, NDCG@10 {model.history_[-1]['test_ndcg@10']:.3f} on the validation part")

# %%
figure, axes = plt.subplots()
for name, model in models.items():
    curve = [epoch["test_ndcg@10"] for epoch in model.history_]
    axes.plot(range(1, len(curve) + 1), curve, marker="o", label=name)
axes.set_xlabel("epochs")
axes.set_ylabel("NDCG@10 on the validation part")
axes.set_title("Whom will a reviewer trust? Four losses until they stop improving")
figure.legend(loc="outside lower center", ncols=4)
plt.show()

# %%
# Judge
# -----
# The last part has not been used for anything yet. Every model is compared with the list of the most trusted people.
found = st.evaluate(
    models, test, metrics=["ndcg@10", "recall@10", "mrr@10", "coverage@10", "popularity_bias@10"], popular=True
)
print(found.to_frame().pivot(index="metric", columns="model", values="value")[list(found.users)].round(3).to_string())

# %%
# NDCG says which list is right more often, and the popularity bias how many bits more popular its people are than
# those that users chose: 1 is twice as popular. A model can be right by showing everybody the famous few, and then
# covers little of the site.
figure, axes = plt.subplots()
for name in found.users:
    ndcg, bias = found.score("ndcg@10", name), found.score("popularity_bias@10", name)
    spread = [[ndcg.value - ndcg.low], [ndcg.high - ndcg.value]]
    axes.errorbar(bias.value, ndcg.value, yerr=spread, fmt="o", capsize=3, markersize=8, label=name)
axes.axvline(0, color="#1d2329", linewidth=1, linestyle=":")
axes.set_xlabel("popularity bias of the lists, bits (0: as popular as what users chose)")
axes.set_ylabel("NDCG@10 on the test part")
axes.set_title("Right, and not only famous: test users, with 95 % intervals")
figure.legend(loc="outside lower center", ncols=5)
plt.show()

# %%
# Whom to trust next
# ------------------
winner = max(models, key=lambda name: found.score("ndcg@10", name).value)
user = int(edges.user.iloc[0])
print(f"{winner}: user {user} might trust")
print(models[winner].recommend([user], n=5, as_frame=True).to_string(index=False))
