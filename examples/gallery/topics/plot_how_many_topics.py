"""
How many topics?
================

There is no true number of topics, but there are numbers that predict badly, repeat themselves or change with the
seed. A sweep trains every number of topics with several seeds and measures all three; a tree then shows how a fine
model becomes a coarse one.
"""

# %%
# Train them all
# --------------
# All models learn from the same documents and are measured on the same held-out ones.
import matplotlib.pyplot as plt
from _documents import articles
from scipy.cluster.hierarchy import dendrogram

import stretto as st

plt.style.use("stretto.figures")
counts, words, source = articles()
print(source)
base = st.LatentDirichletAllocation(max_iter=40, doc_topic_prior=0.1)
sweep = st.sweep_topics(counts, [5, 10, 20, 40, 80], model=base, random_states=3, vocabulary=words)
print(sweep)

# %%
# Three measures
# --------------
# Perplexity is how many words the model wavers between at each place of an unseen text. Coherence says whether the
# first words of a topic occur in the same documents, and stability whether another seed finds the same topics.
rows = sweep.table
numbers = [row.n_components for row in rows]
coherent = sweep.best("coherence")
figure, panels = plt.subplots(1, 3, figsize=(10, 3.6))
for axes, name, better in zip(panels, ("perplexity", "coherence", "stability"), ("lower", "higher", "higher")):
    dots = {"marker": "o", "linestyle": "", "color": "C5", "alpha": 0.5, "label": "one seed"}
    for seed in sweep.random_states:
        runs = [run for run in sweep.runs if run.seed == seed]
        axes.plot([run.n_components for run in runs], [getattr(run, name) for run in runs], **dots)
        dots["label"] = None
    axes.plot(numbers, [getattr(row, name) for row in rows], marker="o", label="mean of the seeds")
    axes.axvline(coherent, color="C1", linestyle=":", label="most coherent")
    axes.set_xscale("log")
    axes.set_xticks(numbers, [str(n) for n in numbers])
    axes.minorticks_off()
    axes.set_xlabel("topics")
    axes.set_ylabel(name)
    axes.set_title(f"{name}: {better} is better")
figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
plt.show()

# %%
# Perplexity keeps falling where topics are already too many to read. Coherence and stability fall instead: a good
# choice is where the first has become flat and the others have not fallen yet.
few = sweep.best("perplexity", within=0.05)
print(f"fewest topics within 5 % of the lowest perplexity: {few}; most coherent: {coherent}")

# %%
# From fine to coarse
# -------------------
# A fine model can be read at several levels. Each step of the tree merges the two topics that lose least by it, and
# ``merge_topics`` makes a model of any level, without training.
fine = sweep.model(20)
tree = fine.hierarchy()
figure, axes = plt.subplots(figsize=(8, 5.6))
with plt.rc_context({"lines.linewidth": 1.4}):
    dendrogram(
        tree.linkage, labels=tree.names, orientation="left", color_threshold=0, above_threshold_color="C0", ax=axes
    )
axes.set_xlabel("what the merges lose so far, nats per token")
axes.set_title("Which topics are nearly the same? Twenty topics, merged step by step")
axes.tick_params(axis="y", labelsize=8)
axes.grid(visible=False, axis="y")
plt.show()

# %%
coarse = fine.merge_topics(6)
for topic, name in enumerate(coarse.topic_names(n=5)):
    parts = [fine.topic_names()[k] for k in range(20) if tree.labels(6)[k] == topic]
    print(f"{name}: {len(parts)} of the twenty topics")
