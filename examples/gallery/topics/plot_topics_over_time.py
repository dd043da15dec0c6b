"""
What a newsgroup talked about, over time
========================================

Documents have an order in time, and topics come and go. The topics are learned from all messages together; their
shares in each period, with confidence intervals, show when a subject appeared and whether that is more than chance.
"""

# %%
# Messages in their order
# -----------------------
# The messages of one newsgroup in the spring of 1993. They have no dates here, but the server numbered them as they
# arrived, so ten periods are ten equal parts of these numbers. With dates, ``by=dates, freq="week"`` makes the
# periods.
import matplotlib.pyplot as plt
import numpy as np
from _documents import messages

import stretto as st

plt.style.use("stretto.figures")
counts, words, _, number, source = messages("talk.politics.guns")
print(source)
period = 1 + 10 * np.argsort(np.argsort(number)) // len(number)

# %%
# Topics, then their shares
# -------------------------
model = st.LatentDirichletAllocation(8, doc_topic_prior=0.1, random_state=0).fit(counts, vocabulary=words)
found = model.topic_shares(counts, by=period)
names = model.topic_names()
print("messages in each period:", found.documents.tolist())

# %%
# Which subjects changed?
# -----------------------
# A change from the first two periods to the last five is compared with its standard error.
early, late = found.shares[:2].mean(axis=0), found.shares[5:].mean(axis=0)
error = (found.high - found.low) / (2 * 1.96)
noise = np.sqrt((error[:2] ** 2).mean(axis=0) / 2 + (error[5:] ** 2).mean(axis=0) / 5)
change = (late - early) / noise
for topic in np.argsort(-change):
    print(f"{names[topic]:35} {early[topic]:.2f} -> {late[topic]:.2f}   {change[topic]:+5.1f} standard errors")

# %%
shown = [*np.argsort(-change)[:2], *np.argsort(change)[:2]]
figure, axes = plt.subplots()
for k, topic in enumerate(shown):
    axes.plot(found.periods, found.shares[:, topic], marker="o", label=names[topic])
    axes.fill_between(found.periods, found.low[:, topic], found.high[:, topic], color=f"C{k}", alpha=0.15)
axes.set_xticks(found.periods)
axes.set_xlabel("period: a tenth of the messages, in the order of arrival")
axes.set_ylabel("mean share of the topic")
axes.set_title("Subjects of talk.politics.guns: two that rose and two that fell, with 95 % intervals")
figure.legend(loc="outside lower center", ncols=4)
plt.show()

# %%
# The news behind it
# ------------------
# On 19 April 1993 the siege of a sect's compound at Waco, Texas, ended in a fire, and the topic that rose most has
# its words. Not every topic is a subject: words such as *ufl* or *stratus* are from addresses, and such a topic
# follows the messages of one writer.
rising = int(np.argmax(change))
print(", ".join(model.top_words(n=15)[rising]))
table = found.to_frame()
print(table[table.topic == rising][["period", "share", "low", "high", "documents"]].round(3).to_string(index=False))
