"""`model.plan(X)`: what `fit` then does, known from counts alone, and run as it is."""

# mypy: allow-untyped-defs
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import stretto as st
from plan_cases import ESTIMATORS, data, digest, documents, learned, ratings
from ring_fleet import InProcess
from stretto.errors import NotARuntime, NotEnoughMemory, PlanError
from stretto.plan.plan import Plan

MF, LDA = st.MatrixFactorization, st.LatentDirichletAllocation
SMALL: dict[str, Any] = {"max_iter": 2, "random_state": 1, "width": 4, "n_jobs": 2}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("files")
    made, X = ratings(), documents().tocoo()
    lines = [f"u{r},i{c},{v:g}" for r, c, v in zip(made.rows, made.cols, made.values, strict=True)]
    (folder / "ratings.csv").write_text("user,item,rating\n" + "\n".join(lines) + "\n")
    words = [f"{d + 1} {w + 1} {n}" for d, w, n in zip(X.row, X.col, X.data, strict=True)]
    (folder / "docword.txt").write_text("\n".join([*map(str, (*X.shape, X.nnz)), *words]) + "\n")
    return {"mf": folder / "ratings.csv", "lda": folder / "docword.txt"}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_plan_is_the_one_that_fit_runs(name: str) -> None:
    X, model = data(name), ESTIMATORS[name](runtime=st.Threads(2))
    plan = model.plan(X)
    assert not any(attribute.endswith("_") for attribute in vars(model)), "planning leaves no trace"
    fitted = ESTIMATORS[name](runtime=st.Threads(2)).fit(X)
    assert plan.fingerprint == fitted.fingerprint_
    assert plan.explain() == fitted.plan_.explain()
    assert plan.cost == fitted.plan_.cost
    assert plan.draw() == fitted.plan_.draw()
    ran = plan.run(runtime=st.Serial())
    assert ran is model
    assert ran.fingerprint_ == plan.fingerprint
    assert ran.plan_.physical.runtime == "serial"
    assert digest(learned(ran)) == digest(learned(fitted))


PARAMETERS: dict[str, Callable[[], Any]] = {
    "mf, learning rate": lambda: MF(4, learning_rate=0.1, schedule="constant", **SMALL),
    "mf, early stopping": lambda: MF(4, early_stopping=True, **SMALL),
    "mf, init scale": lambda: MF(4, solver="als", init_scale=0.5, inner=3, **SMALL),
    "mf, fast": lambda: MF(4, profile="fast", loss="absolute", **SMALL),
    "mf, memory": lambda: MF(4, memory="200kB", **SMALL),
    "mf, much memory": lambda: MF(4, memory="200MB", **SMALL),
    "mf, ccd in a budget": lambda: MF(4, solver="ccd", memory="200MB", **SMALL),
    "mf, duplicates": lambda: MF(4, duplicates="last", **SMALL),
    "lda, early stopping": lambda: LDA(4, early_stopping=True, **SMALL),
    "lda, priors": lambda: LDA(4, doc_topic_prior=[0.1, 0.2, 0.3, 0.4], average_every=1, burn_in=1, **SMALL),
    "lda, memory": lambda: LDA(4, memory="1MB", **SMALL),
    "lda, much memory": lambda: LDA(4, memory="200MB", **SMALL),
    "lda, auto": lambda: LDA(4, sampler="auto", first_topics="random", profile="fast", **SMALL),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_change_plan_and_fit_alike(name: str) -> None:
    X = data(name)
    plan, model = PARAMETERS[name]().plan(X), PARAMETERS[name]().fit(X)
    assert plan.fingerprint == model.fingerprint_
    assert plan.physical == model.plan_.physical
    assert plan.cost == model.plan_.cost


@pytest.mark.parametrize("kind", ["mf", "lda"])
@pytest.mark.parametrize("validation", [None, 0.2, "data"])
def test_validation(kind: str, validation: Any) -> None:
    X = data(kind)
    if validation == "data":
        validation = X
    make = (lambda: MF(3, **SMALL)) if kind == "mf" else (lambda: LDA(3, **SMALL))
    assert make().plan(X, validation=validation).fingerprint == make().fit(X, validation=validation).fingerprint_


@pytest.mark.parametrize("kind", ["mf", "lda"])
@pytest.mark.parametrize("memory", [None, "2MB"])
def test_files_in_memory_and_streamed(
    kind: str, memory: str | None, files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    make = (lambda: MF(3, memory=memory, **SMALL)) if kind == "mf" else (lambda: LDA(3, memory=memory, **SMALL))
    plan = make().plan(files[kind])
    assert not list(tmp_path.iterdir()), "nothing is written"
    model = make().fit(files[kind])
    assert plan.fingerprint == model.fingerprint_
    assert (plan.physical.tile is None) == (memory is None)
    assert plan.explain() == model.plan_.explain()


def test_a_share_of_a_file_is_held_out(files: dict[str, Path]) -> None:
    make: Callable[[], Any] = lambda: MF(3, memory="1MB", **SMALL)  # noqa: E731
    assert make().plan(files["mf"], validation=0.1).fingerprint == make().fit(files["mf"], validation=0.1).fingerprint_
    assert make().plan(files["mf"], validation=0.1).fingerprint != make().plan(files["mf"]).fingerprint


def test_words_of_a_streamed_file(files: dict[str, Path]) -> None:
    names = [f"w{k}" for k in range(199)]
    make: Callable[[], Any] = lambda: LDA(3, memory="2MB", **SMALL)  # noqa: E731
    plan, model = make().plan(files["lda"], vocabulary=names), make().fit(files["lda"], vocabulary=names)
    assert plan.fingerprint == model.fingerprint_


def test_a_cluster_is_not_started_to_plan_for_it(files: dict[str, Path]) -> None:
    there = st.Cluster("processes", nodes=2, threads=3)
    plan = MF(3, runtime=there, **SMALL).plan(ratings())
    assert (plan.physical.runtime, plan.physical.workers) == ("cluster", 6)
    assert plan.fingerprint == MF(3, **SMALL).plan(ratings()).fingerprint
    assert MF(3, runtime=there, memory="1MB", **SMALL).plan(files["mf"]).physical.tile is None, "nodes hold their part"


def test_nodes_run_it() -> None:
    X = ratings()
    here, there = MF(3, **SMALL).fit(X), MF(3, **SMALL).plan(X).run(runtime=InProcess(2))
    assert digest(learned(here)) == digest(learned(there))


def test_pairs_and_ratings() -> None:
    pairs, y = np.array([[0, 1], [1, 2], [2, 0], [3, 3], [0, 2], [2, 2]]), np.arange(6.0)
    assert MF(2, **SMALL).plan(pairs, y).fingerprint == MF(2, **SMALL).fit(pairs, y).fingerprint_


def test_a_random_seed_is_that_of_the_plan() -> None:
    X = ratings()
    plan = MF(3, max_iter=1).plan(X)
    assert plan.run().fingerprint_ == plan.fingerprint


def test_a_warm_start_is_part_of_the_plan() -> None:
    X = ratings()
    model = MF(3, warm_start=True, **SMALL)
    first = model.fit(X).fingerprint_
    plan = model.plan(X)
    assert plan.fingerprint != first
    assert plan.run().fingerprint_ == plan.fingerprint
    with pytest.raises(PlanError, match=r"cannot run: the data or the parameters have changed .*start was"):
        plan.run()


def test_a_plan_of_other_data_by_now_is_refused() -> None:
    X = csr_array(np.random.default_rng(0).integers(1, 6, (40, 30)) * (np.random.default_rng(1).random((40, 30)) < 0.4))
    for model in (MF(3, **SMALL), LDA(3, **SMALL)):
        plan = model.plan(X)
        before = X.data[0]
        X.data[0] += 1
        with pytest.raises(PlanError, match=rf"plan {plan.fingerprint} cannot run: .*data digest was .* and is "):
            plan.run()
        X.data[0] = before
        assert plan.run().fingerprint_ == plan.fingerprint


def test_a_plan_of_other_parameters_by_now_is_refused() -> None:
    model = MF(3, **SMALL)
    plan = model.plan(ratings())
    model.set_params(n_components=4)
    with pytest.raises(PlanError, match="rank was 3 and is 4"):
        plan.run()


def test_a_plan_that_has_run_does_not_run_again() -> None:
    model = MF(2, **SMALL).fit(ratings())
    with pytest.raises(PlanError, match=r"run\(\) needs a plan that was made from data and has not run"):
        model.plan_.run()


def test_where_a_plan_runs_is_checked() -> None:
    with pytest.raises(NotARuntime, match=r"write st.Threads\(\)"):
        MF(2, **SMALL).plan(ratings()).run(runtime="threads")


@pytest.fixture
def nothing_is_laid_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a plan is made before anything is allocated")

    for where in (
        *("solvers.factorization.sgd.lay_out", "solvers.factorization.sgd.lay_out_on_disk"),
        "solvers.factorization.als.compress_source",  # of ccd, too
        *(f"solvers.factorization.{solver}.new_factors" for solver in ("sgd", "als", "ccd")),
        *("models.topics.job.lay_out_tokens", "models.topics.job.lay_out_tokens_on_disk"),
        *("models.topics.job.new_counts", "models.topics.fit.lay_out_in_memory", "models.topics.fit.lay_out_lda"),
        "models.factorization.build.lay_out_factors",
    ):
        monkeypatch.setattr(f"stretto.{where}", refuse)


@pytest.mark.usefixtures("nothing_is_laid_out")
@pytest.mark.parametrize("name", [*ESTIMATORS, *PARAMETERS])
def test_a_plan_is_made_before_anything_is_laid_out(name: str) -> None:
    model = PARAMETERS[name]() if name in PARAMETERS else ESTIMATORS[name]()
    plan = model.plan(data(name))
    with pytest.raises(AssertionError, match="before anything is allocated"):
        plan.run()


@pytest.mark.usefixtures("nothing_is_laid_out")
@pytest.mark.parametrize("model", [MF(500, solver="als", memory="1MB"), LDA(500, memory="100kB")], ids=["mf", "lda"])
def test_what_does_not_fit_is_refused(model: Any) -> None:
    for refused in (model.plan, model.fit):
        with pytest.raises(NotEnoughMemory):
            refused(data("lda" if isinstance(model, LDA) else "mf"))


def test_a_session_records_the_run_of_a_plan(tmp_path: Path) -> None:
    plan = MF(2, **SMALL).plan(ratings())
    plan.run(session=st.Session(record=tmp_path / "run"))
    assert plan.fingerprint in (tmp_path / "run" / "run.json").read_text()


def test_how_a_plan_prints() -> None:
    plan: Plan = MF(3, **SMALL).plan(ratings())
    assert repr(plan) == (
        f"<plan {plan.fingerprint}: mf/sgd/2 on 300 × 200, 12,000 entries, identical, threads, 2 workers>"
    )
    assert str(plan) == plan.explain()
    html = plan._repr_html_()
    assert html.startswith('<div class="stretto-plan">')
    assert "<th" in html
    assert "</svg>" in html
    assert html.rstrip().endswith("</div>")
    assert "<script" not in html
    assert "http://www.w3.org/2000/svg" in html
    assert html.count("<tr>") == len([line for line in plan.explain().splitlines() if line[:14].strip()])
