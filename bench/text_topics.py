"""From a folder of text files to a page of topics: seconds in all and by phase, beside scikit-learn with two others.

The folder has 20,000 files. Each is a review of IMDB by its counts: its words in random order, with as many function
words of English between them, as the counts have none ($STRETTO_DATA names the folder of the set). Every program
removes scikit-learn's English stop words, words in fewer than five documents and words in more than half of them, and
trains 100 topics for 50 passes with the priors 0.05 and 0.01.

The first line is the one command, `stretto train lda FOLDER --topics 100 --epochs 50 …`, from the start of the process
to its end: model, topics.html, checkpoints and the record of the run included. The others are phases within one
process, without the start of Python and its imports. The peers, tomotopy and gensim, count words with scikit-learn's
`CountVectorizer`, which reads the files itself, and make no page. Passes are not of equal worth: other pages of results
compare the quality of topics.

"processor" is the time of all threads, in user and system mode, which other programs on the machine change less than
the wall time. `BENCH_DOCUMENTS`, `BENCH_TOPICS` and `BENCH_PASSES` choose other numbers.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from . import lda_sets, report, sets

DOCUMENTS = int(os.environ.get("BENCH_DOCUMENTS", "20000"))
TOPICS = int(os.environ.get("BENCH_TOPICS", "100"))
PASSES = int(os.environ.get("BENCH_PASSES", "50"))
ALPHA, BETA, MIN_DF, MAX_DF, THREADS = 0.05, 0.01, 5, 0.5, 2
FILLERS = np.array(["the", "of", "and", "a", "to", "in", "is", "was", "it", "for", "on", "with", "as", "be"], object)
PROGRAMS = ("stretto", "tomotopy", "gensim")


def write_folder(folder: Path, documents: int) -> int:
    """Write the first documents of IMDB as text files, in twenty folders; return how many bytes they are."""
    data = sets.real_data()
    if data is None:
        raise SystemExit("the real sets were not found; set STRETTO_DATA to their folder")
    import lzma

    with lzma.open(data / "imdb" / "vocab.imdb.txt.xz", "rt", encoding="utf-8") as file:
        words = np.array([line.strip() for line in file], dtype=object)
    counts = lda_sets.load("imdb")[:documents]
    rng = np.random.default_rng(0)
    size = 0
    for d in range(counts.shape[0]):
        some = slice(counts.indptr[d], counts.indptr[d + 1])
        own = np.repeat(words[counts.indices[some]], counts.data[some])
        text = np.concatenate([own, rng.choice(FILLERS, len(own))])
        rng.shuffle(text)
        into = folder / f"{d % 20:02}"
        into.mkdir(parents=True, exist_ok=True)
        size += (into / f"{d:06}.txt").write_bytes((" ".join(text.tolist()) + ".\n").encode())
    return size


@contextmanager
def phase(name: str, into: dict[str, tuple[float, float]]) -> Iterator[None]:
    """Keep the wall and processor seconds of a phase."""
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    into[name] = time.perf_counter() - wall, time.process_time() - cpu


def command(folder: Path, out: Path) -> tuple[float, float]:
    """(wall, processor) seconds of the one command."""
    asked = ["--topics", TOPICS, "--epochs", PASSES, "--alpha", ALPHA, "--beta", BETA, "--workers", THREADS]
    asked += ["--stop-words", "english", "--min-df", MIN_DF, "--max-df", MAX_DF, "--out", out, "--quiet"]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-m", "stretto.cli", "train", "lda", folder, *map(str, asked)], check=True)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def stretto_phases(folder: Path, out: Path, seconds: dict[str, tuple[float, float]]) -> str:
    import stretto as st
    from stretto.models.topics.browse import browse
    from stretto.models.topics.input import as_corpus
    from stretto.observe.topics_page import write_topics

    st.LatentDirichletAllocation(2, max_iter=1, n_jobs=1).fit(st.read_text(["one two", "two three"]))  # imports
    with phase("words", seconds):
        counts = st.read_text(folder, stop_words="english", min_df=MIN_DF, max_df=MAX_DF)
    model = st.LatentDirichletAllocation(
        TOPICS, max_iter=PASSES, doc_topic_prior=ALPHA, topic_word_prior=BETA, random_state=0, n_jobs=THREADS
    )
    with phase("training", seconds):
        model.fit(counts)
    with phase("page", seconds):
        write_topics(out / "topics.html", browse(model, as_corpus(counts, seed=0)))
    return f"{counts.shape[1]:,} words, {counts.n_tokens:,} tokens"


def counted(folder: Path, seconds: dict[str, tuple[float, float]]) -> tuple[Any, list[str]]:
    """The counts of scikit-learn, and its words."""
    from sklearn.feature_extraction.text import CountVectorizer

    files = sorted(str(path) for path in folder.rglob("*.txt"))
    vectorizer = CountVectorizer(input="filename", stop_words="english", min_df=MIN_DF, max_df=MAX_DF)
    with phase("words", seconds):
        counts = vectorizer.fit_transform(files)
    return counts, vectorizer.get_feature_names_out().tolist()


def tomotopy_phases(folder: Path, _: Path, seconds: dict[str, tuple[float, float]]) -> str:
    import tomotopy

    counts, words = counted(folder, seconds)
    names = np.array(words, dtype=object)
    with phase("training", seconds):
        model = tomotopy.LDAModel(k=TOPICS, alpha=ALPHA, eta=BETA, seed=0)
        for a, b in zip(counts.indptr[:-1], counts.indptr[1:], strict=True):
            model.add_doc(np.repeat(names[counts.indices[a:b]], counts.data[a:b]).tolist())
        model.optim_interval = 0
        model.train(PASSES, workers=THREADS)
    return f"{len(words):,} words, {int(counts.sum()):,} tokens"


def gensim_phases(folder: Path, _: Path, seconds: dict[str, tuple[float, float]]) -> str:
    from gensim.matutils import Sparse2Corpus
    from gensim.models import LdaMulticore

    counts, words = counted(folder, seconds)
    with phase("training", seconds):
        own = LdaMulticore(
            Sparse2Corpus(counts, documents_columns=False), TOPICS, dict(enumerate(words)), workers=THREADS - 1,
            passes=PASSES, alpha=[ALPHA] * TOPICS, eta=BETA, random_state=0, eval_every=None,
        )  # fmt: skip
    assert own.num_topics == TOPICS
    return f"{len(words):,} words, {int(counts.sum()):,} tokens"


def one(program: str, folder: Path, out: Path) -> None:
    """The phases of one program, as JSON; its processes too."""
    seconds: dict[str, tuple[float, float]] = {}
    run = {"stretto": stretto_phases, "tomotopy": tomotopy_phases, "gensim": gensim_phases}[program]
    found = run(folder, out, seconds)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    if "training" in seconds:  # gensim's workers are processes
        wall, cpu = seconds["training"]
        seconds["training"] = wall, cpu + children.ru_utime + children.ru_stime
    print(json.dumps({"seconds": seconds, "found": found}), flush=True)


def shown(pair: tuple[float, float] | None) -> str:
    return "–" if pair is None else f"{pair[0]:.1f} s ({pair[1]:.1f} s)"


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="text-topics-"))
    rows, notes = [], []
    try:
        size = write_folder(folder / "text", DOCUMENTS)
        notes.append(
            f"{DOCUMENTS:,} files, {size / 2**20:.0f} MiB; {TOPICS} topics, {PASSES} passes, {THREADS} threads."
        )
        rows.append(["`stretto train lda`, one command", *["–"] * 3, shown(command(folder / "text", folder / "run"))])
        for program in [p for p in PROGRAMS if p in os.environ.get("BENCH_PROGRAMS", ",".join(PROGRAMS)).split(",")]:
            order = [sys.executable, "-m", "bench.text_topics", program, str(folder / "text"), str(folder)]
            done = subprocess.run(order, capture_output=True, text=True, check=False)
            name = "Stretto" if program == "stretto" else f"CountVectorizer, {program}"
            if done.returncode:
                rows.append([name, "not measured", (done.stderr.strip().splitlines() or ["failed"])[-1][:80], "–", "–"])
                continue
            said = json.loads(done.stdout.splitlines()[-1])
            seconds = {key: tuple(value) for key, value in said["seconds"].items()}
            whole = tuple(sum(pair[k] for pair in seconds.values()) for k in (0, 1))
            rows.append([name, *(shown(seconds.get(key)) for key in ("words", "training", "page")), shown(whole)])
            notes.append(f"{name}: {said['found']}.")
    finally:
        shutil.rmtree(folder)
    columns = ("program", "reading and counting words", "training", "page", "in all: wall (processor)")
    body = "\n\n".join([report.table(columns, rows), "\n".join(notes)])
    about = report.text(__doc__)
    report.save("text_topics", "From text to topics", about, body, ("scikit-learn", "tomotopy", "gensim"))


if __name__ == "__main__":
    if len(sys.argv) == 4:
        one(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        main()
