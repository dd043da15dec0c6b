"""`st.sweep_topics` and `stretto sweep`: the numbers are those of the single fits, at any number of threads."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stretto as st
from clirun import private_cache, stretto
from stretto.data.generate.corpus import corpus, write_corpus
from stretto.errors import DataError, PlanError
from stretto.models.topics.analysis.sweep_result import SweepRun, TopicSweep
from stretto.models.topics.input import as_corpus, split_documents, split_tokens

X = corpus(240, 120, 5, 50, beta=0.1, seed=4).data
MODEL = st.LatentDirichletAllocation(max_iter=12, evaluate_every=0)
WORDS = [f"w{w}" for w in range(120)]


def swept(**given: Any) -> TopicSweep:
    return st.sweep_topics(X, [6, 3], **{"model": MODEL, "random_states": 2, "vocabulary": WORDS, **given})


@pytest.fixture(scope="module")
def sweep() -> TopicSweep:
    return swept()


def test_a_run_is_the_fit_with_its_seed(sweep: TopicSweep) -> None:
    train, held = split_documents(as_corpus(X, seed=0), 0.1, 0)
    seen, rest = split_tokens(held, 0.5, 0)
    assert [(run.n_components, run.seed) for run in sweep.runs] == [(3, 0), (3, 1), (6, 0), (6, 1)]
    assert (sweep.held_documents, sweep.held_tokens) == (held.n_documents, rest.n_tokens)
    for run in sweep.runs:
        model = st.LatentDirichletAllocation(
            run.n_components, max_iter=12, evaluate_every=0, random_state=run.seed, n_jobs=1
        ).fit(train.data)
        assert np.array_equal(model.components_, sweep.model(run.n_components, run.seed).components_)
        assert run.perplexity == pytest.approx(model.perplexity(seen.data, rest.data), rel=1e-12)
        assert run.coherence == pytest.approx(model.coherence(train.data).mean(), rel=1e-12)
    models = [sweep.model(6, seed) for seed in (0, 1)]
    match = models[0].match(models[1])
    assert sweep.runs[2].stability == pytest.approx(match.mean, rel=1e-12)
    assert sweep.table[1].stability == pytest.approx(match.mean, rel=1e-12)


def test_threads_change_no_number(sweep: TopicSweep) -> None:
    for threads in (1, 4):
        again = swept(n_jobs=threads)
        for one, other in zip(sweep.runs, again.runs, strict=True):
            assert vars(one) | {"seconds": 0} == vars(other) | {"seconds": 0}
        assert again.topics == sweep.topics


def test_stability_is_the_mean_over_pairs_of_seeds() -> None:
    found = st.sweep_topics(X, [4], model=MODEL, random_states=[5, 7, 9])
    pairs = {(a, b): found.model(4, a).match(found.model(4, b)) for a, b in combinations((5, 7, 9), 2)}
    assert found.table[0].stability == pytest.approx(np.mean([match.mean for match in pairs.values()]))
    assert [run.seed for run in found.runs] == [5, 7, 9]
    assert found.runs[1].stability == pytest.approx((pairs[5, 7].mean + pairs[7, 9].mean) / 2)
    first = (pairs[5, 7].similarity + pairs[5, 9].similarity) / 2
    np.testing.assert_allclose([topic.stability for topic in found.topics], first)
    one = st.sweep_topics(X, [4], model=MODEL, random_states=[5])
    assert math.isnan(one.table[0].stability)
    assert math.isnan(one.table[0].perplexity_sd)
    assert one.runs[0].perplexity == found.runs[0].perplexity


def made(values: list[tuple[int, float, float]]) -> TopicSweep:
    runs = tuple(SweepRun(K, 0, perplexity, -math.log(perplexity), c, math.nan, 0.1) for K, perplexity, c in values)
    return TopicSweep(runs, (), "npmi", 10, 100, {})


def test_the_best_number_of_topics() -> None:
    found = made([(10, 900.0, 0.1), (20, 805.0, 0.3), (50, 800.0, 0.2), (100, 820.0, math.nan)])
    assert found.best() == 50
    assert found.best(within=0.01) == 20
    assert found.best("coherence") == 20
    assert found.best("coherence", within=0.9) == 10
    with pytest.raises(DataError, match="no stability"):
        found.best("stability")
    with pytest.raises(PlanError, match="by must be"):
        found.best("beauty")
    with pytest.raises(DataError, match="no model of 50 topics"):
        found.model()
    assert "800.0 *" in str(found)
    assert "<td>800.0 *</td>" in found._repr_html_()


def test_results_are_written_and_drawn(sweep: TopicSweep, tmp_path: Path) -> None:
    for name in ("s.csv", "s.json"):
        sweep.write(tmp_path / "new" / name)
    sweep.plot(tmp_path / "s.png")
    assert (tmp_path / "s.png").stat().st_size > 10_000
    with open(tmp_path / "new" / "s.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["perplexity"]) for row in rows] == [row.perplexity for row in sweep.table]
    whole = json.loads((tmp_path / "new" / "s.json").read_text())
    assert len(whole["runs"]) == 4
    assert len(whole["topics"]) == 9
    assert whole["topics"][0]["name"] == sweep.model(3).topic_names()[0]
    assert sweep.to_frame()["n_components"].tolist() == [3, 6]
    with pytest.raises(DataError, match=r"\.csv or \.json"):
        sweep.write(tmp_path / "s.xls")


def test_other_documents_and_measures_of_coherence(sweep: TopicSweep) -> None:
    found = swept(reference=X, coherence="umass", words=5, verbose=1)
    assert found.runs[0].coherence == pytest.approx(sweep.model(3, 0).coherence(X, 5, "umass").mean())
    assert "UMass" in found.note()


def test_coherence_in_windows_of_texts() -> None:
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(["sun", "moon", "cat", "dog", "tea", "cup"], 130)) for _ in range(20)]
    model = st.LatentDirichletAllocation(max_iter=3)
    found = st.sweep_topics(
        st.read_text(texts), [2], model=model, random_states=1, coherence="c_v", words=3, reference=texts
    )
    assert found.runs[0].coherence == pytest.approx(found.model(2).coherence(texts, 3, "c_v", window=110).mean())
    assert "C_v" in found.note()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"n_components": []}, "different numbers of topics"),
        ({"n_components": [5, 5]}, "different numbers of topics"),
        ({"n_components": [0]}, "n_components"),
        ({"random_states": 0}, "random_states"),
        ({"random_states": [1, 1]}, "different ones"),
        ({"test": 1.0}, "test must be"),
        ({"coherence": "c_p"}, "coherence must be"),
        ({"model": st.LatentDirichletAllocation(memory="1GiB")}, "leave memory out"),
        ({"model": st.LatentDirichletAllocation(2, doc_topic_prior=[1, 2])}, "is an array"),
    ],
)
def test_wrong_sweeps_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises((DataError, PlanError), match=message):
        st.sweep_topics(X, **{"model": MODEL, **given})


# --- the command line ------------------------------------------------------------


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with private_cache(tmp_path_factory.mktemp("cache")):
        yield


@pytest.fixture(scope="module")
def docword(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "docword.toy.txt"
    write_corpus(path, 200, 100, 4, 40, seed=1)
    (path.parent / "vocab.toy.txt").write_text("\n".join(f"word{w}" for w in range(100)) + "\n")
    return path


@pytest.fixture(scope="module")
def run(docword: Path) -> Path:
    out = docword.parent / "run"
    stretto("train", "lda", docword, "--topics", "7", "--epochs", "5", "--out", out, "--quiet")
    return out


def test_a_sweep_prints_its_table_and_leaves_files(docword: Path, tmp_path: Path) -> None:
    options = ["--topics", "2,4", "--repeats", "2", "--epochs", "6", "--words", "5"]
    done = stretto("sweep", docword, *options, "--workers", "1", "--out", tmp_path / "s")
    assert "200 documents × 100 words" in done.out
    assert "4/4  4 topics, seed 1: perplexity " in done.err
    assert "mean ± standard deviation of 2 seeds" in done.out
    assert {path.name for path in (tmp_path / "s").iterdir()} == {"sweep.csv", "sweep.json", "sweep.png"}
    whole = json.loads((tmp_path / "s" / "sweep.json").read_text())
    assert [row["n_components"] for row in whole["table"]] == [2, 4]
    assert whole["topics"][0]["name"].startswith("word")
    assert f"--topics {min(whole['table'], key=lambda row: row['perplexity'])['n_components']}" in done.out
    model = st.LatentDirichletAllocation(max_iter=6, evaluate_every=0)
    same = st.sweep_topics(docword, [2, 4], model=model, random_states=2, words=5)
    assert [row["perplexity"] for row in whole["runs"]] == [row.perplexity for row in same.runs]
    assert stretto("sweep", docword, *options, "--workers", "3", "--out", tmp_path / "t", "-q").out == ""
    other = json.loads((tmp_path / "t" / "sweep.json").read_text())
    assert other["topics"] == whole["topics"]


def test_shares_by_date_are_printed_written_and_drawn(run: Path, tmp_path: Path) -> None:
    months = [f"2024-{1 + d // 50:02}-15" for d in range(200)]
    (tmp_path / "dates.csv").write_text("date\n" + "\n".join(months) + "\n")
    done = stretto(
        "topics", run, "--by", tmp_path / "dates.csv", "--to", tmp_path / "s.csv", "--plot", tmp_path / "s.png"
    )
    assert "2024-04" in done.out
    assert (tmp_path / "s.png").stat().st_size > 5000
    with open(tmp_path / "s.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    model = st.LatentDirichletAllocation.load(run / "model.safetensors")
    theta = model.transform(json.loads((run / "run.json").read_text())["config"]["recipe"]["file"])
    shares = np.array([float(row["share"]) for row in rows]).reshape(4, 7)
    np.testing.assert_allclose(shares, theta.reshape(4, 50, 7).mean(axis=1), rtol=1e-5)
    # The same documents by number in any order, two without a label; groups instead of periods.
    lines = [f"{d},{'even' if d % 2 == 0 else 'odd'}" for d in reversed(range(2, 200))]
    (tmp_path / "labels.csv").write_text("document,kind\n" + "\n".join(lines) + "\n")
    done = stretto("topics", run, "--by", tmp_path / "labels.csv", "--freq", "none", "--topic", "3")
    assert f"{theta[2::2, 3].mean():.1%}" in done.out
    assert f"{theta[3::2, 3].mean():.1%}" in done.out


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["sweep", "DOCS", "--topics", "2,x"], "such as 10,20,50"),
        (["sweep", "DOCS", "--topics", "2,2"], "different numbers of topics"),
        (["sweep", "DOCS", "--alpha", "-1"], "--alpha must be"),
        (["sweep", "gone.txt"], "gone.txt"),
        (["sweep", "DOCS", "--out", "HELD"], "holds a sweep already"),
        (["topics", "RUN", "--plot", "x.png"], "belong to --by"),
        (["topics", "RUN", "--by", "gone.csv"], "no such file"),
        (["topics", "RUN", "--by", "SHORT"], "1 lines below its head for 200 documents"),
        (["topics", "RUN", "--by", "SHORT", "--column", "day"], "no column 'day'"),
        (["topics", "RUN", "--by", "SHORT", "--to", "x.xls"], ".csv"),
        (["topics", "RUN", "--by", "WIDE"], "choose one with --column"),
        (["topics", "RUN", "--by", "SHORT", "--html", "t.html"], "leave one of them out"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_errors_are_one_message(
    args: list[str], told: str, docword: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "held").mkdir()
    (tmp_path / "held" / "sweep.csv").touch()
    (tmp_path / "short.csv").write_text("date\n2024-01-01\n")
    (tmp_path / "wide.csv").write_text("a,b\n1,2\n")
    names = {"DOCS": str(docword), "RUN": str(run), "HELD": "held", "SHORT": "short.csv", "WIDE": "wide.csv"}
    done = stretto(*[names.get(arg, arg) for arg in args], code=2)
    assert told in done.err
    assert "Traceback" not in done.err
