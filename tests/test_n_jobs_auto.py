"""`n_jobs="auto"`: the same bits as any number of threads, every choice recorded, refused nowhere it is documented."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import stretto as st
from stretto.errors import PlanError
from stretto.models import checks
from stretto.observe.events import EpochDone, PassDone, WidthChosen
from stretto.observe.log import lines
from stretto.runtime.blocks.epoch_widths import EpochWidths
from stretto.runtime.blocks.train import JobTrainer
from stretto.runtime.chosen import adaptive
from stretto.schedule.stages.width_by_work import width_by_work
from stretto.schedule.stages.width_search import SubStage, WidthDecision


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stretto.runtime.cpus.available_cpus", lambda: 4)


def ratings() -> scipy.sparse.csr_array:
    X = scipy.sparse.random_array((150, 90), density=0.2, rng=np.random.default_rng(0), format="csr")
    X.data = np.round(1.0 + 4.0 * X.data)
    return X


def words() -> scipy.sparse.csr_array:
    X = scipy.sparse.random_array((60, 40), density=0.3, rng=np.random.default_rng(1), format="csr")
    X.data = np.ceil(4.0 * X.data)
    return X


def regression(classes: int = 0) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    draw = np.random.default_rng(2)
    X = draw.normal(size=(120, 30))
    z = X[:, :4] @ np.array([2.0, -1.0, 1.0, 0.5]) + 0.1 * draw.normal(size=120)
    return X, z if not classes else np.digitize(z, np.quantile(z, np.arange(1, classes) / classes))


def factors(solver: str) -> Callable[[Any, Any], list[Any]]:
    def fit(n_jobs: Any, session: Any) -> list[Any]:
        model = st.MatrixFactorization(5, solver=solver, max_iter=14, random_state=0, n_jobs=n_jobs)
        model.fit(ratings(), session=session)
        return [model.user_factors_, model.item_factors_, model.predict(np.array([[0, 1], [2, 3]])), model.fingerprint_]

    return fit


def topics(n_jobs: Any, session: Any) -> list[Any]:
    model = st.LatentDirichletAllocation(4, max_iter=14, random_state=0, n_jobs=n_jobs)
    model.fit(words(), session=session)
    return [model.components_, model.transform(words()), model.fingerprint_]


def linear(model: Any, classes: int = 0) -> Callable[[Any, Any], list[Any]]:
    def fit(n_jobs: Any, session: Any) -> list[Any]:
        X, y = regression(classes)
        made = model.set_params(n_jobs=n_jobs).fit(X, y, session=session)
        return [made.coef_, made.intercept_, made.predict(X), made.fingerprint_]

    return fit


def path(n_jobs: Any, session: Any) -> list[Any]:
    found = st.lasso_path(*regression(), n_alphas=10, n_jobs=n_jobs, session=session)
    return [found.alphas, found.coefs]


BY_EPOCHS = {
    "sgd": factors("sgd"),
    "als": factors("als"),
    "ccd": factors("ccd"),
    "topics": topics,
    "softmax sgd": linear(st.LogisticRegression(solver="sgd", max_iter=14, tol=1e-9, random_state=0), classes=3),
}
BY_WORK = {
    "lasso": linear(st.Lasso(0.05)),
    "elastic net": linear(st.ElasticNet(0.05)),
    "scheduled": linear(st.Lasso(0.05, schedule=st.schedule.prioritised(), random_state=0)),
    "cross-validated": linear(st.LassoCV(n_alphas=5, cv=3)),
    "ratios": linear(st.ElasticNetCV(l1_ratio=[0.5, 0.9], n_alphas=5, cv=3)),
    "logistic": linear(st.LogisticRegression(), classes=2),
    "softmax": linear(st.LogisticRegression(), classes=3),
    "path": path,
}


@pytest.mark.filterwarnings("ignore:LogisticRegression stopped after")
@pytest.mark.parametrize("name", [*BY_EPOCHS, *BY_WORK])
def test_the_bits_are_those_of_any_number_of_threads(name: str) -> None:
    fit = (BY_EPOCHS | BY_WORK)[name]
    events: list[Any] = []
    auto = fit("auto", st.Session(listeners=[events.append]))
    one = fit(1, None)
    for ours, theirs in zip(auto, one, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    chosen = [event for event in events if isinstance(event, WidthChosen)]
    assert chosen[-1].settled
    assert all(1 <= event.width <= 4 and event.reason for event in chosen)
    if name in BY_EPOCHS:
        assert chosen[0].reason == "the search starts at 4 of 4"
        assert chosen[1].reason == "2 is the next narrower"
        assert chosen[1].epoch == 3, "one epoch warms up, one is measured"
    else:
        assert [event.width for event in chosen] == [1]
        assert "too few for several threads" in chosen[0].reason


def test_choices_are_in_the_run_record(tmp_path: Path) -> None:
    factors("sgd")("auto", st.Session(record=tmp_path / "run"))
    chosen = [line for line in lines(tmp_path / "run") if line["event"] == "WidthChosen"]
    assert chosen[0]["width"] == 4
    assert chosen[-1]["settled"]
    assert "the rest runs at" in chosen[-1]["reason"]


def test_few_epochs_run_on_all_threads() -> None:
    events: list[Any] = []
    model = st.MatrixFactorization(5, max_iter=4, random_state=0, n_jobs="auto")
    model.fit(ratings(), session=st.Session(listeners=[events.append]))
    (chosen,) = [event for event in events if isinstance(event, WidthChosen)]
    assert chosen.width == 4
    assert "too few for a search" in chosen.reason


class _EachInTurn:
    """A rule that changes the width in every epoch, and keeps what it is given."""

    def __init__(self, widths: list[int]) -> None:
        self._widths = widths
        self.seen: list[tuple[int, int]] = []
        self.decisions: list[WidthDecision] = []

    def next(self) -> SubStage:
        width = self._widths[len(self.decisions) % len(self._widths)]
        self.decisions.append(WidthDecision(width, "in turn"))
        return SubStage(width, 1)

    def measured(self, width: int, seconds: Any) -> None:
        self.seen.append((width, len(seconds)))


def test_a_run_changes_its_width_between_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the log of visits: no thread beyond the width makes one, and the bits stay the same."""
    rule = _EachInTurn([3, 1, 4, 2])
    monkeypatch.setattr(checks, "width_search", lambda runtime: lambda epochs: rule)
    events: list[Any] = []
    crews: list[Any] = []
    run = JobTrainer.run

    def noting(self: JobTrainer, epochs: int) -> Any:
        crews.append(self.crew)
        return run(self, epochs)

    monkeypatch.setattr(JobTrainer, "run", noting)
    found = factors("sgd")("auto", st.Session(listeners=[events.append]))
    monkeypatch.undo()
    for ours, theirs in zip(found, factors("sgd")(2, None), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    passes = [event for event in events if isinstance(event, PassDone)]
    assert len(passes) == 14
    for event, width in zip(passes, [3, 1, 4, 2] * 4, strict=False):
        assert event.visits is not None
        assert event.visits[:, 1].max() < width
    assert rule.seen == [(width, 1) for width in ([3, 1, 4, 2] * 4)[1:14]], "all epochs but the first"
    assert crews[0].width == crews[0].workers == 4, "afterwards all threads may be used again"


def test_an_interrupted_run_resumes_to_the_same_bits(tmp_path: Path) -> None:
    saving = st.Saving(tmp_path, every_epochs=1)

    def fail(event: Any) -> None:
        if isinstance(event, EpochDone) and event.epoch == 6:
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        factors("sgd")("auto", st.Session(saving=saving, listeners=[fail]))
    events: list[Any] = []
    found = factors("sgd")("auto", st.Session(saving=saving, resume=True, listeners=[events.append]))
    np.testing.assert_array_equal(found[0], factors("sgd")(3, None)[0])
    assert next(event for event in events if isinstance(event, WidthChosen)).epoch == 6


def test_the_first_epoch_is_not_measured() -> None:
    rule = _EachInTurn([2])
    with st.Threads("auto").open() as crew:
        widths = EpochWidths(rule, crew, lambda event: None)
        for epoch in range(3):
            widths.begin(epoch)
            assert crew.width == 2
            widths.end(0.5)
        widths.close()
        assert crew.width == 4
    assert rule.seen == [(2, 1), (2, 1)]


@pytest.mark.parametrize("drift", [1.0, 0.9, 0.7])
@pytest.mark.parametrize(
    ("seconds", "threads", "most"),
    [
        (lambda k: 1 / k, {16}, 1.1),
        (lambda k: 0.1 + 0.9 / k, {16}, 1.1),
        (lambda k: 0.5 * (8 / k + k / 8), {4, 6, 8}, 1.15),
        (lambda k: k**0.5, {1}, 4.0),  # all cores take four times as long as one
    ],
)
def test_what_a_search_over_epochs_costs(
    seconds: Callable[[int], float], threads: set[int], most: float, drift: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty epochs on 16 cores, relative to the best fixed number. Where epochs get faster by themselves, that looks
    like noise: the search may end early, but not at a number that is slower than all cores.
    """
    monkeypatch.setattr("stretto.runtime.cpus.available_cpus", lambda: 16)
    made = checks.width_search(st.Threads("auto"))
    assert made is not None
    rule, draw = made(20), np.random.default_rng(0)
    spent = least = 0.0
    for epoch in range(20):
        width = rule.next().width
        trend = (0.4 + 0.6 * drift**epoch) * draw.normal(1.0, 0.02)
        spent, least = spent + trend * seconds(width), least + trend * min(map(seconds, range(1, 17)))
        if epoch:
            rule.measured(width, [trend * seconds(width)])
    assert rule.best in threads or (drift < 0.9 and seconds(rule.best) < seconds(16))
    assert spent <= most * least


def test_threads_by_work() -> None:
    assert width_by_work(10, 8)[0] == 1
    assert width_by_work(3 << 16, 8) == (3, "a pass reads 196,608 values, 65,536 or more for each thread")
    assert width_by_work(1 << 30, 8) == (8, "a pass reads 1,073,741,824 values, enough for all 8 threads")
    assert width_by_work(1 << 30, 1)[0] == 1
    assert checks.by_work(st.Threads("auto"), 2 << 16)[0] == st.Threads(2)
    assert checks.by_work(st.Threads(3), 2 << 16) == (st.Threads(3), "")


def test_what_auto_means_elsewhere() -> None:
    assert st.Threads("auto").workers == 4
    assert adaptive(st.Threads("auto"))
    assert not adaptive(st.Threads(4))
    assert not adaptive(st.Serial())
    assert checks.place(None, "auto") == st.Threads("auto")
    assert checks.place(st.Threads(2), "auto") == st.Threads(2), "a runtime overrides n_jobs"
    with pytest.raises(
        PlanError, match="n_jobs must be a whole number; got 'many'; None takes every core, 'auto' finds"
    ):
        st.Lasso(n_jobs="many").fit(*regression())  # type: ignore[arg-type]


def test_joblib_limits_auto_as_it_limits_none() -> None:
    import joblib

    with joblib.parallel_config(n_jobs=2):
        assert checks.place(None, "auto") == st.Threads(2)


def test_auto_is_saved_and_loaded(tmp_path: Path) -> None:
    model = st.MatrixFactorization(5, max_iter=3, random_state=0, n_jobs="auto").fit(ratings())
    model.save(tmp_path / "model.safetensors")
    again = st.MatrixFactorization.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.user_factors_, model.user_factors_)
