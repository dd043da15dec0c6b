"""What docs/cluster.md and docs/faults.md claim: "what runs where" is tried row by row, and the numbers are the code's.
Topic models on nodes are in `test_cluster_lda`, tables in `test_cluster_driver`."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stretto as st
from jobs import some_ratings
from ring_fleet import InProcess
from stretto.errors import PlanError
from stretto.runtime.cluster.hosts import failure_detector, hosts
from stretto.runtime.tables.stalls import AFTER

DOCS = Path(__file__).parents[1] / "docs"
CLUSTER, FAULTS = ((DOCS / name).read_text(encoding="utf-8") for name in ("cluster.md", "faults.md"))
RATINGS = some_ratings(2000, 90, 70)
X, Y = np.random.default_rng(0).standard_normal((40, 8)), np.random.default_rng(1).standard_normal(40)
CLASSES = np.digitize(Y, [-0.5, 0.5])
NODES = st.Cluster("processes", nodes=2)  # refused before a process is started


# --- what runs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adarevision"])
@pytest.mark.parametrize("schedule", ["constant", "linear"])
def test_factorisation_by_sgd(optimizer: str, schedule: str) -> None:
    def factors(runtime: Any) -> bytes:
        model = st.MatrixFactorization(
            n_components=3, max_iter=3, random_state=0, optimizer=optimizer, schedule=schedule, runtime=runtime
        )
        return bytes(model.fit(RATINGS).user_factors_.tobytes())

    assert factors(InProcess(2)) == factors(st.Serial())


LINEAR: dict[str, Callable[[Any], Any]] = {
    "`Lasso`": lambda where: st.Lasso(0.1, runtime=where).fit(X, Y).coef_,
    "`ElasticNet`": lambda where: st.ElasticNet(0.1, runtime=where).fit(X, Y).coef_,
    "`LassoCV`": lambda where: st.LassoCV(n_alphas=3, runtime=where).fit(X, Y).coef_,
    "`lasso_path`": lambda where: st.lasso_path(X, Y, n_alphas=3, runtime=where).coefs,
    "`LogisticRegression`": lambda where: st.LogisticRegression(runtime=where, l1_ratio=1.0).fit(X, Y > 0).coef_,
    "several classes jointly": lambda where: st.LogisticRegression(runtime=where, l1_ratio=1.0).fit(X, CLASSES).coef_,
}


@pytest.mark.parametrize("name", LINEAR)
def test_linear_models(name: str) -> None:
    assert name in CLUSTER
    assert np.array_equal(LINEAR[name](InProcess(2)), LINEAR[name](st.Serial()))


def independent(x: Any, y: Any) -> None:
    for i in range(60):
        x[i] = x[i] * 0.5 + y[i]


def one_index(x: Any, y: Any) -> None:
    for i in range(60):
        for j in range(4):
            x[i] = x[i] * 0.5 + y[j]


def two_indices(x: Any, y: Any) -> None:
    for i in range(60):
        for j in range(40):
            x[i] += 0.001 * y[j]
            y[j] += 0.001 * x[i]


@pytest.mark.parametrize(
    ("body", "ordered", "strategy"),
    [
        (independent, False, "independent"),
        (one_index, False, "1d"),
        (two_indices, False, "2d unordered"),
        (two_indices, True, "2d ordered"),
    ],
)
def test_loops(body: Any, ordered: bool, strategy: str) -> None:
    def run(runtime: Any) -> tuple[str, bytes]:
        x, y = np.linspace(1, 2, 60), np.linspace(-1, 1, 60)
        loop = st.parallel(runtime=runtime, ordered=ordered)(body)
        loop(x, y)
        return loop.plan(x, y).explain(), x.tobytes() + y.tobytes()

    explained, mine = run(InProcess(2))
    assert strategy in explained
    assert f"`{strategy}`" in CLUSTER
    assert mine == run(st.Serial())[1]


def buffered(x: Any, y: Any) -> None:
    for i in range(60):
        y[i % 7] += x[i]


def skewed(x: Any, y: Any) -> None:
    for i in range(1, 30):
        for j in range(1, 29):
            x[i, j] = x[i - 1, j + 1] + x[i, j - 1]


def paths(x: Any, y: Any) -> None:
    for k in range(12):
        for i in range(12):
            for j in range(12):
                x[i, j] = min(x[i, j], x[i, k] + x[k, j])


def by_subscript(x: Any, y: Any) -> None:
    for i in range(60):
        x[y[i]] += 1.0


def overwriting(x: Any, y: Any) -> None:
    for i in range(60):
        x[0] = y[i]


def neighbours(x: Any, y: Any) -> None:
    for i in range(1, 29):
        for j in range(1, 29):
            x[i, j] = (x[i - 1, j] + x[i, j - 1] + y[i]) / 3


RANDOM = np.random.default_rng(3).permutation(4000)[:60]
SERVED: dict[str, tuple[Any, Callable[[], tuple[Any, Any]], dict[str, Any]]] = {
    "buffers": (buffered, lambda: (np.ones(60), st.buffer(np.zeros(60))), {}),
    "`schedule=`": (independent, lambda: (np.ones(60), np.ones(60)), {"schedule": st.schedule.cyclic(4)}),
    "`2d transformed`": (skewed, lambda: (np.ones((30, 30)), np.ones(60)), {}),
    "`stepped`": (paths, lambda: (np.random.default_rng(1).random((12, 12)), np.ones(60)), {"blocks": 3}),
    "`inspected`": (by_subscript, lambda: (np.ones(4000), RANDOM), {"inspect": True}),
    "`chain`": (overwriting, lambda: (np.ones(60), np.ones(60)), {}),
    "neighbouring indices": (neighbours, lambda: (np.ones((30, 30)), np.ones(30)), {}),
}


@pytest.mark.parametrize("name", SERVED)
def test_loops_whose_arrays_are_served(name: str) -> None:
    body, make, options = SERVED[name]
    assert name in CLUSTER.partition("Refused with a")[0]

    def run(runtime: Any) -> bytes:
        x, y = make()
        st.parallel(runtime=runtime, **options)(body)(x, y)
        return bytes(x.tobytes() + (y.target if hasattr(y, "target") else y).tobytes())

    assert run(InProcess(2)) == run(st.Serial())


# --- what is refused --------------------------------------------------------------------------------------------------


# By what the page calls them: those in code as it spells them.
REFUSED: dict[str, Callable[[], Any]] = {
    '`LogisticRegression(solver="sgd")`': lambda: st.LogisticRegression(solver="sgd", runtime=NODES, l1_ratio=1.0).fit(
        X, CLASSES
    ),
    '`placement="shared"`': lambda: st.run(
        lambda w: None, tables={"x": st.tables.Table(rows=2, placement="shared")}, runtime=NODES
    ),
}
_PARAGRAPH = re.search(r"^Refused with a `PlanError`(.*?)\n\n", CLUSTER, re.DOTALL | re.MULTILINE)
assert _PARAGRAPH is not None
ON_THE_PAGE = _PARAGRAPH[1]


def test_everything_that_the_page_calls_refused_is_tried() -> None:
    assert set(re.findall("`[^`]+`", ON_THE_PAGE)) == set(REFUSED)


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    assert name in ON_THE_PAGE
    with pytest.raises(PlanError, match="Threads"):
        REFUSED[name]()


# --- numbers ----------------------------------------------------------------------------------------------------------


def test_the_numbers_of_both_pages_are_those_of_the_code() -> None:
    assert failure_detector.STARTS == 6
    assert "six in a row without progress, or three for lack of memory" in CLUSTER
    assert "six losses in a row without progress" in FAULTS
    assert "six times in a row before it began" in FAULTS
    assert hosts._STARVED == 3
    assert "the third time the run ends" in FAULTS
    assert (failure_detector.BUSY, failure_detector.VISITS, failure_detector.FIRST) == (6, 20, 120)
    assert "6 times `patience` and 20 times the longest visit so far (120 times `patience`" in FAULTS
    assert AFTER == 60
    assert "after a minute" in FAULTS
    spec = st.Cluster()
    for name, value in (("patience", "5s"), ("start_within", "60s"), ("replace_within", "30s")):
        assert f'`{name}="{value}"`' in CLUSTER
        assert getattr(spec, name) == float(value.removesuffix("s"))
    assert f"`restarts={spec.restarts}`" in CLUSTER
    assert f"`nodes={spec.nodes}`, `threads={spec.threads}`" in CLUSTER


def test_the_tests_that_faults_names_exist() -> None:
    named = set(re.findall(r"`(test_\w+\.py)`", FAULTS))
    tests = Path(__file__).parent
    missing = {name for name in named if not (tests / name).exists() and not (tests / "cluster" / name).exists()}
    assert named
    assert not missing
