"""Topic models beside Spark MLlib on AP: 50 topics, seconds to the same perplexity of held-out words.

One judge for all: half the tokens of each held-out document give its topics by expectation maximisation with the
program's topics fixed (`fold_in` of `reproductions/spark_objectives.py`, α = 0.1), the other half is predicted. MLlib
has online variational Bayes ("online"), and "em", which estimates a mode and whose priors are larger by 1.
Both run with α = 0.1, β = 0.01, and with their defaults: α = β = 1/K; α = 50/K, β = 0.1 after subtracting 1. Stretto
has the same priors in every comparison. Iterations of "online" are batches of a twentieth of the documents. A program
of MLlib is compared at the best perplexity that it reached, with the fewest epochs of Stretto that are as good.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from bench import lda_sets

import stretto as st

from . import report
from .spark_objectives import Floats, fold_in
from .spark_session import (
    CAUTION,
    START,
    THREADS,
    Session,
    alone,
    from_start,
    in_turn,
    open_session,
    require,
    scratch,
    session_usage,
    timed,
    times,
    usage,
)

TOPICS, ALPHA, BETA = 50, 0.1, 0.01
LIMIT = 30.0  # seconds after which no larger number of iterations is tried
EPOCHS = (2, 5, 10, 20, 40, 100, 200, 400)
SPARK: dict[str, dict[str, Any]] = {
    "online, same priors": {
        "optimizer": "online", "docConcentration": [ALPHA], "topicConcentration": BETA,
        "optimizeDocConcentration": False,
    },
    "online, its defaults": {"optimizer": "online"},
    "em, same priors": {"optimizer": "em", "docConcentration": [1 + ALPHA], "topicConcentration": 1 + BETA},
    "em, its defaults": {"optimizer": "em"},
}  # fmt: skip
# α and β of Stretto in each comparison.
PRIORS = {
    "online, same priors": (ALPHA, BETA),
    "online, its defaults": (1 / TOPICS, 1 / TOPICS),
    "em, same priors": (ALPHA, BETA),
    "em, its defaults": (50 / TOPICS, 0.1),
}
ITERATIONS = {"online": (20, 100), "em": (10, 30)}


def corpus_file(counts: Any) -> Path:
    """The documents to learn from as libsvm, which both programs read."""
    from sklearn.datasets import dump_svmlight_file

    path = scratch() / "ap.libsvm"
    dump_svmlight_file(counts, np.zeros(counts.shape[0]), str(path), zero_based=False)
    return path


def frame(session: Session, path: Path, words: int) -> Any:
    """The documents in Spark's cache."""
    read = session.spark.read.format("libsvm").option("numFeatures", str(words)).load(str(path))
    data = read.repartition(THREADS).cache()
    data.count()
    return data


def spark_fit(data: Any, name: str, iterations: int) -> Any:
    """MLlib's model."""
    from pyspark.ml.clustering import LDA

    return LDA(k=TOPICS, maxIter=iterations, seed=0, **SPARK[name]).fit(data)


def spark_topics(model: Any, name: str) -> Floats:
    """Words in topics [K, V], rows sum to 1. A mode is the counts plus β − 1."""
    counts = model.topicsMatrix().toArray().T
    if name.startswith("em"):
        counts = counts + (SPARK[name].get("topicConcentration", 1.1) - 1)
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


def stretto_fit(counts: Any, epochs: int, name: str) -> st.LatentDirichletAllocation:
    """Our model with the priors of a program of MLlib."""
    alpha, beta = PRIORS[name]
    how: dict[str, Any] = {"doc_topic_prior": alpha, "topic_word_prior": beta, "evaluate_every": 0, "random_state": 0}
    model = st.LatentDirichletAllocation(TOPICS, max_iter=epochs, n_jobs=THREADS, **how)
    model.fit(counts)
    return model


def our_topics(model: st.LatentDirichletAllocation) -> Floats:
    """Words in topics [K, V], rows sum to 1."""
    counts = np.asarray(model.components_, np.float64)
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


def judge(phi: Floats, held: lda_sets.Held) -> float:
    """Perplexity of the unseen halves."""
    return lda_sets.completion(phi, lambda seen: fold_in(phi, seen, ALPHA), held)


def compare(session: Session) -> tuple[list[list[object]], list[list[object]], list[list[object]]]:
    """Seconds to MLlib's best perplexity, runs from the start of a process, and perplexity by epochs."""
    train, held = lda_sets.split(lda_sets.load("ap"))
    path = corpus_file(train)
    np.save(scratch() / "ap.npy", train.shape)
    data = frame(session, path, train.shape[1])
    series: list[list[object]] = []
    scores: dict[tuple[float, float], dict[int, float]] = {}
    rows, best = [], (np.inf, "", 0, 0)
    for name, priors in PRIORS.items():
        spark_fit(data, name, 2)
        stretto_fit(train[:50], 2, name)
        if priors not in scores:
            scores[priors] = {epochs: judge(our_topics(stretto_fit(train, epochs, name)), held) for epochs in EPOCHS}
            title = f"Stretto, α = {priors[0]:g}, β = {priors[1]:g}"
            series.append([title, *(f"{epochs}: {score:.0f}" for epochs, score in scores[priors].items())])
        ours = scores[priors]
        found: dict[int, float] = {}
        for iterations in ITERATIONS[SPARK[name]["optimizer"]]:
            one = timed(partial(spark_fit, data, name, iterations), session)
            found[iterations] = judge(spark_topics(one.value, name), held)
            if one.seconds > LIMIT:
                break
        series.append([f"MLlib {name}", *(f"{iterations}: {score:.0f}" for iterations, score in found.items())])
        print(series[-1], flush=True)
        needed = min(found, key=lambda iterations: found[iterations])
        epochs = next((epochs for epochs in EPOCHS if ours[epochs] <= found[needed]), None)
        best = min(best, (found[needed], name, needed, epochs or EPOCHS[-1]))
        programs: dict[str, Callable[[], Any]] = {"MLlib": partial(spark_fit, data, name, needed)}
        if epochs is not None:
            programs["Stretto"] = partial(stretto_fit, train, epochs, name)
        took = in_turn(programs, session)
        theirs, cells = took["MLlib"], ["not reached", "", "", "", ""]
        if epochs is not None:
            mine = took["Stretto"]
            ratios = [times(mine.seconds, theirs.seconds), times(mine.processor, theirs.processor)]
            cells = [f"{epochs}", f"{mine.seconds:.3f}", f"{mine.processor:.3f}", *ratios]
        spent = [f"{theirs.seconds:.1f}", f"{theirs.processor:.1f}"]
        rows.append([f"MLlib {name}", f"{found[needed]:.0f}", needed, *spent, *cells])
        print(rows[-1], flush=True)
    data.unpersist()
    mine_alone = alone("reproductions.spark_lda", "stretto", str(best[3]), best[1])
    java = alone("reproductions.spark_lda", "spark", str(best[2]), best[1])
    whole: list[list[object]] = [[f"{best[0]:.0f}, {best[1]}", *from_start(mine_alone, java)]]
    return rows, whole, series


def one_fit(who: str, setting: str, name: str) -> dict[str, float]:
    """Read the file and fit, in this process."""
    path, words = scratch() / "ap.libsvm", int(np.load(scratch() / "ap.npy")[1])
    if who == "stretto":
        from sklearn.datasets import load_svmlight_file

        began = time.perf_counter()
        counts, _ = load_svmlight_file(str(path), n_features=words, zero_based=False, dtype=np.float32)
        read = time.perf_counter() - began
        stretto_fit(counts, int(setting), name)
        return {"read": read, "fit": time.perf_counter() - began - read, **usage()}
    with open_session() as session:
        began = time.perf_counter()
        data = frame(session, path, words)
        read = time.perf_counter() - began
        spark_fit(data, name, int(setting))
        fit = time.perf_counter() - began - read
        return {"read": read, "fit": fit, **session_usage(session)}


def main() -> None:
    """Measure and write the page."""
    require()
    if "ap" not in lda_sets.present():
        raise SystemExit("AP was not found; set STRETTO_DATA to the folder of the real sets")
    with open_session() as session:
        rows, whole, series = compare(session)
    columns = ["program", "its best perplexity", "iterations", "seconds", "processor s", "Stretto's epochs"]
    columns += ["Stretto, s", "processor s", "faster", "by processor s"]
    longest = max(map(len, series))
    body = "\n\n".join(
        [
            "## Seconds to the perplexity that MLlib reached, start-up excluded", report.table(columns, rows),
            "## From the start of a process", report.table(["perplexity, MLlib's program", *START], whole),
            "## Perplexity after iterations or epochs", "Each cell is a fit: iterations, and the perplexity.",
            report.table(
                ["program", *[""] * (longest - 1)], [row + [""] * (longest - len(row)) for row in series]
            ),
        ]
    )  # fmt: skip
    about = f"{report.text(__doc__)}\n\n{CAUTION}"
    report.save("spark_lda", "Topic models beside Spark MLlib", about, body, ("pyspark",))


if __name__ == "__main__":
    print(json.dumps(one_fit(*sys.argv[1:])), flush=True)
