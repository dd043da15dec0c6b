"""
From text files to named topics and a search
============================================

A folder of text files, nobody knows what is in them. This example reads them, finds topics and names for them, shows
which newsgroup talks about what, answers a search by meaning, and writes the page that a colleague can open without
any program.
"""

# %%
# A folder of files
# -----------------
# One file is one document, in folders as deep as you like. Here the files are written from the counts of a set of
# messages, so their words have lost their order, which topics do not need.
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from _documents import THEMES, messages, write_texts

import stretto as st

plt.style.use("stretto.figures")
found = messages(*THEMES)
source = found.source
folder = Path(tempfile.mkdtemp())
write_texts(folder / "letters", found)
print(source)

# %%
# Count words
# -----------
# ``st.read_text`` takes a folder, a file with a document in each line, a column of a table or a list of strings. The
# options are those of scikit-learn's ``CountVectorizer``.
texts = st.read_text(folder / "letters", stop_words="english", min_df=5, max_df=0.3)
print(texts)

# %%
# Topics
# ------
# The counts bring their vocabulary and their options of text with them, so that nothing else has to be passed on.
model = st.LatentDirichletAllocation(10, doc_topic_prior=0.1, random_state=0).fit(texts)
shares = model.transform(texts)
for topic in np.argsort(-model.topic_tokens_):
    print(f"{model.topic_names()[topic]:40} {', '.join(model.top_words(n=8)[topic])}")

# %%
# Who talks about what?
# ---------------------
# The model has not seen the names of the newsgroups. Still, the largest topic of a message nearly tells where it is
# from.
groups = np.array([Path(name).parts[-2] for name in texts.documents])
names = sorted(set(groups))
table = np.array([shares[groups == name].mean(axis=0) for name in names])
order = np.argsort(table.argmax(axis=0), kind="stable")
figure, axes = plt.subplots(figsize=(9, 4.4))
image = axes.imshow(table[:, order], cmap="Blues", vmin=0, aspect="auto")
axes.set_xticks(range(len(order)), [model.topic_names()[k].replace(", ", "\n") for k in order], fontsize=8)
axes.set_yticks(range(len(names)), names)
axes.set_xlabel("topic, by its three most telling words")
axes.set_title("Mean share of each topic in the messages of each newsgroup")
axes.grid(visible=False)
figure.colorbar(image, label="share")
plt.show()

# %%
main = shares.argmax(axis=1)
told = np.array([names[table[:, topic].argmax()] for topic in main])
agreement = float((told == groups).mean())
print(f"the largest topic tells the newsgroup of {agreement:.0%} of the messages; a guess, {1 / len(names):.0%}")

# %%
# Search by meaning
# -----------------
# A question becomes shares of topics like any document, and the closest documents answer it, also those without a
# word of it. The distance is Hellinger's, as the page of topics has it.
question = "doctor treatment of a disease"
asked = model.transform([question])[0]
close = np.sqrt(shares) @ np.sqrt(asked)
answers = np.argsort(-close)[:20]
columns = [texts.vocabulary.index(word) for word in question.split() if word in texts.vocabulary]
without = [k for k in answers if not texts.counts[[k]][:, columns].nnz]
for k in answers[:5]:
    print(f"{close[k]:.2f}  {texts.documents[k]}")
precision = float(np.mean(groups[answers] == "sci.med"))
print(f"{precision:.0%} of the first 20 are from sci.med; {len(without)} of them have no word of the question")

# %%
# Keep it
# -------
# The model is one file and takes text as it is. The page has the topics, their words, documents and a map, and needs
# no server.
model.save(folder / "topics.safetensors")
again = st.LatentDirichletAllocation.load(folder / "topics.safetensors")
assert (again.transform([question])[0] == asked).all()
page = model.browse(texts, title="Messages of newsgroups").save(folder / "topics.html")
print(f"topics.html: {page.stat().st_size / 1e3:.0f} kB")
