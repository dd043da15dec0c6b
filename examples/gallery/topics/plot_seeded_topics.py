"""
Topics that you ask for: seed words
===================================

An editor wants to find the messages about space, medicine, cars and guns, and has no labels: only a few words that
come to mind for each. With these as seeds the topics come out under these names, find messages without any of the
words, and leave the rest of the topics free for everything else.
"""

# %%
# Four words for each topic
# -------------------------
# The newsgroup of a message is kept for the judge; the model does not see it.
import matplotlib.pyplot as plt
import numpy as np
from _documents import THEMES, messages

import stretto as st

plt.style.use("stretto.figures")
found = messages(*THEMES)
counts, words, source = found.counts, found.words, found.source
print(source)
seeds = {
    "space": ["nasa", "orbit", "shuttle", "moon"],
    "medicine": ["doctor", "patients", "disease", "treatment"],
    "cars": ["car", "engine", "dealer", "brakes"],
    "guns": ["gun", "firearms", "handgun", "rifle"],
}
group_of = {"space": "sci.space", "medicine": "sci.med", "cars": "rec.autos", "guns": "talk.politics.guns"}

# %%
# With and without seeds
# ----------------------
settings = {"n_components": 10, "doc_topic_prior": 0.1, "random_state": 0}
free = st.LatentDirichletAllocation(**settings).fit(counts, vocabulary=words)
seeded = st.LatentDirichletAllocation(**settings, seeds=seeds, seed_weight=0.05).fit(counts, vocabulary=words)
for topic, name in enumerate(seeded.topic_names()):
    note = "  (seeded)" if topic < len(seeds) else ""
    print(f"{name:30} {', '.join(seeded.top_words(n=8)[topic])}{note}")

# %%
# The names are those of the seeds, and the words go far beyond them. Without seeds the topics are there as well, but
# under numbers that another seed of the draws would change, and one subject may have two of them.
shares = seeded.transform(counts)
has_seed = {
    name: np.asarray(counts[:, [words.index(w) for w in own if w in words]].sum(axis=1)).ravel()
    for name, own in seeds.items()
}


def precision(score, wanted, n=200):
    """The share of messages of the wanted newsgroup among the n with the highest score."""
    return float(np.mean(found.group[np.argsort(-score, kind="stable")[:n]] == wanted))


n = min(200, counts.shape[0] // 12)
by_topic = {name: precision(shares[:, k], group_of[name], n) for k, name in enumerate(seeds)}
by_words = {name: precision(has_seed[name], group_of[name], n) for name in seeds}
hidden = {}
for k, name in enumerate(seeds):
    without = has_seed[name] == 0
    possible = int(np.sum(without & (found.group == group_of[name])))
    hidden[name] = precision(np.where(without, shares[:, k], -1), group_of[name], min(n, possible))
chance = 1 / len(THEMES)
print("messages of the newsgroup among the first", n)
print("  by the seeded topic          ", {name: round(v, 2) for name, v in by_topic.items()})
print("  by counting the seed words   ", {name: round(v, 2) for name, v in by_words.items()})
print("  by topic, without seed words ", {name: round(v, 2) for name, v in hidden.items()})

# %%
figure, axes = plt.subplots()
rows = {"seeded topic": by_topic, "count of seed words": by_words, "seeded topic, messages without seed words": hidden}
for k, (label, values) in enumerate(rows.items()):
    axes.bar(np.arange(4) + 0.26 * (k - 1), list(values.values()), width=0.24, label=label)
axes.axhline(chance, color="#1d2329", linestyle=":", linewidth=1.5, label="by chance")
axes.set_xticks(range(4), seeds)
axes.set_xlabel("subject")
axes.set_ylabel(f"right among the first {n} messages")
axes.set_title("Are the messages with most of a topic from its newsgroup?")
axes.grid(visible=False, axis="x")
figure.legend(loc="outside lower center", ncols=4)
plt.show()

# %%
# The topic finds nearly all it should without a single one of the words. Of *guns* it finds fewer, since many
# messages of that newsgroup without such words are about the siege of Waco, which has become a topic of its own.
#
# New messages
# ------------
# The names stay with the model, in tables, plots and on the page of topics.
names = seeded.topic_names()
for text in ("the moon and the orbit of a satellite", "my engine makes a noise and the dealer wants money"):
    share = seeded.transform(st.read_text([text], vocabulary=words))[0]
    print(f"{text!r}: {names[share.argmax()]} ({share.max():.0%})")
