"""Documents for the examples of this folder: public data sets, or generated ones of the same form without those."""

from __future__ import annotations

import lzma
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

import stretto as st

HERE = Path(__file__).resolve()
QUOTING = {"article", "writes", "edu", "com", "just", "don", "does", "like", "know", "think", "people", "say", "said"}
THEMES = {
    "sci.space": "space nasa orbit launch moon shuttle satellite mission lunar rocket earth solar spacecraft cost",
    "rec.sport.hockey": "game team hockey season players league play goal nhl playoff coach leafs wings score",
    "talk.politics.guns": "gun weapons firearms handgun rifle crime law police criminals self defense permit rights",
    "sci.med": "patients doctor disease medical treatment health pain drug symptoms food diet study cancer infection",
    "rec.autos": "car engine cars dealer miles oil brakes drive tires price ford clutch speed automatic",
    "soc.religion.christian": "god church jesus faith bible christ sin prayer scripture heaven belief spirit soul",
}
SIEGE = "fbi waco koresh fire compound children batf davidians gas agents tanks siege ranch burned"
COMMON = "time good way make use want year day thing point question work need right problem really"


class Messages(NamedTuple):
    """Counts of words in messages of newsgroups."""

    counts: Any  # [documents, words] sparse
    words: list[str]
    group: np.ndarray  # the newsgroup of each message
    number: np.ndarray  # its number there, which grows with time
    source: str


class Documents(NamedTuple):
    """Counts of words in documents."""

    counts: Any
    words: list[str]
    source: str


def folder_of(name: str) -> Path | None:
    """A data set in $STRETTO_DATA, or in shared/data beside the checkout; None where it is absent."""
    given = os.environ.get("STRETTO_DATA")
    path = (Path(given) if given else HERE.parents[4] / "shared" / "data") / name
    return path if path.is_dir() else None


def messages(*groups: str) -> Messages:
    """Messages of these newsgroups, without stop words and rare words."""
    folder = folder_of("20news")
    if folder is None:
        return _made_messages(groups)
    parts, names = [], []
    words = _lines(folder / "20news.vocab.xz")
    for part in ("train", "test"):
        found = st.read(folder / f"20news.{part}.libsvm.xz").to_csr()
        parts.append(sp.csr_matrix((found.data, found.indices, found.indptr), shape=(found.shape[0], len(words))))
        names += _lines(folder / f"20news.{part}.ids.xz")
    group = np.array([name.partition("/")[0] for name in names])
    number = np.array([int(name.partition("/")[2]) for name in names])
    chosen = np.isin(group, groups)
    counts, kept = _without_stop_words(sp.vstack(parts).tocsr()[chosen], words, least=10)
    source = f"20 newsgroups, {counts.shape[0]:,} messages of {len(groups)} of them"
    return Messages(counts, kept, group[chosen], number[chosen], source)


def write_texts(folder: Path, found: Messages, each: int = 250) -> None:
    """Write messages as text files, folder/group/number.txt; words are in alphabetical order, as counts have none."""
    for group in np.unique(found.group):
        (folder / group).mkdir(parents=True)
        for row in np.flatnonzero(found.group == group)[:each]:
            own = found.counts[[row]]
            text = " ".join(" ".join([found.words[j]] * int(n)) for j, n in zip(own.indices, own.data))
            (folder / group / f"{found.number[row]}.txt").write_text(text + "\n", encoding="utf-8")


def articles() -> Documents:
    """Articles of a news agency, without stop words and rare words."""
    folder = folder_of("ap")
    if folder is None:
        made = _made_messages(tuple(THEMES))
        source = f"generated articles, {made.counts.shape[0]:,} (STRETTO_DATA names no folder with ap)"
        return Documents(made.counts, made.words, source)
    counts, words = _without_stop_words(st.read(folder / "ap.dat.xz").to_csr(), _lines(folder / "vocab.txt"), least=5)
    return Documents(counts, words, f"Associated Press, {counts.shape[0]:,} articles")


def _lines(path: Path) -> list[str]:
    opened = lzma.open if path.suffix == ".xz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        return file.read().split()


def _without_stop_words(counts: Any, words: list[str], least: int) -> tuple[Any, list[str]]:
    """Keep words of three letters or more that at least so many documents have, and at most three in ten."""
    documents = np.bincount(counts.indices, minlength=counts.shape[1])
    stops = ENGLISH_STOP_WORDS | QUOTING
    readable = np.array([word.isalpha() and len(word) > 2 and word not in stops for word in words])
    kept = np.flatnonzero(readable & (documents >= least) & (documents <= 0.3 * counts.shape[0]))
    return counts[:, kept].tocsr(), [words[k] for k in kept]


def _made_messages(groups: tuple[str, ...], each: int = 150) -> Messages:
    """Messages with the words of their group, of another one and common ones; later ones of politics are on a siege."""
    rng = np.random.default_rng(0)
    texts, group, number = [], [], []
    for name in groups:
        for k in range(each):
            other = THEMES[groups[rng.integers(len(groups))]]
            main = SIEGE if name == "talk.politics.guns" and k > 0.3 * each and rng.random() < 0.7 else THEMES[name]
            parts = rng.multinomial(rng.integers(12, 30), [0.5, 0.1, 0.4])
            texts.append([w for theme, n in zip((main, other, COMMON), parts) for w in _drawn(theme, n, rng)])
            group.append(name)
            number.append(1000 + k)
    counts, words = _counted(texts)
    source = f"generated messages, {len(texts):,} (STRETTO_DATA names no folder with 20news)"
    return Messages(counts, words, np.array(group), np.array(number), source)


def _drawn(theme: str, count: int, rng: np.random.Generator) -> list[str]:
    """Words of a theme, the first ones more often."""
    words = theme.split()
    chances = 1 / (2 + np.arange(len(words)))
    return rng.choice(words, count, p=chances / chances.sum()).tolist()


def _counted(texts: list[list[str]]) -> tuple[Any, list[str]]:
    counts = st.read_text([" ".join(words) for words in texts])
    return counts.counts, counts.vocabulary
