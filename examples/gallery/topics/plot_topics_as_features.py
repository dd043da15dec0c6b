"""
Topics as features for a classifier
===================================

Labels are expensive and text is not. Topics are learned from all documents without labels; a classifier then needs
only a few labels, because a document is described by some dozens of shares and not by thousands of words.
"""

# %%
# Few labels, many documents
# --------------------------
import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp
from _documents import THEMES, messages
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import normalize

import stretto as st

plt.style.use("stretto.figures")
found = messages(*THEMES)
counts, words, labels, source = found.counts, found.words, found.group, found.source
print(source)
rows = np.arange(counts.shape[0])
pool, held = train_test_split(rows, test_size=0.3, random_state=0, stratify=labels)

# %%
# Features
# --------
# The topics come from the documents of the pool, whose labels are not used. Of words and of topics the square root is
# taken, and each document has length 1: so neither long messages nor frequent words decide everything.
topics = st.LatentDirichletAllocation(30, doc_topic_prior=0.1, random_state=0).fit(counts[pool])
shares = topics.transform(counts)
features = {
    "words": normalize(counts.sqrt()),
    "topics": sp.csr_matrix(np.sqrt(shares)),
}
features["words and topics"] = sp.hstack(list(features.values())).tocsr()
print({name: f"{X.shape[1]:,} features" for name, X in features.items()})

# %%
# Learn from more and more labels
# -------------------------------
# Each number of labels is drawn four times, as which few documents are labelled matters.
sizes = [n for n in (12, 30, 60, 120, 300, 600) if n <= len(pool)]
accuracy = {name: np.zeros((len(sizes), 4)) for name in features}
for draw in range(4):
    for k, size in enumerate(sizes):
        chosen, _ = train_test_split(pool, train_size=size, random_state=draw, stratify=labels[pool])
        for name, X in features.items():
            model = st.LogisticRegression(C=10.0, max_iter=300).fit(X[chosen], labels[chosen])
            accuracy[name][k, draw] = model.score(X[held], labels[held])
for name, values in accuracy.items():
    print(f"{name:17}", "  ".join(f"{size}: {value:.2f}" for size, value in zip(sizes, values.mean(axis=1))))

# %%
# The fewer labels there are, the more the topics help; with many the words catch up, and both together are at least
# as good.
figure, axes = plt.subplots()
for name, values in accuracy.items():
    mean, spread = values.mean(axis=1), values.std(axis=1)
    axes.errorbar(sizes, mean, yerr=spread, marker="o", capsize=3, label=name)
axes.axhline(1 / len(THEMES), color="C5", linestyle=":", label="by chance")
axes.set_xscale("log")
axes.set_xticks(sizes, [str(n) for n in sizes])
axes.minorticks_off()
axes.set_xlabel("labelled messages, of six newsgroups")
axes.set_ylabel("accuracy on held-out messages")
axes.set_title("Which newsgroup is it from? Mean and standard deviation of four draws")
figure.legend(loc="outside lower center", ncols=4)
plt.show()
