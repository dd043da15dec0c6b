"""Linear models whose columns nodes hold: the bits of one machine, whatever happens to the nodes."""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as some
from sklearn.datasets import dump_svmlight_file

import stretto as st
from ring_fleet import InProcess, QueueHosts
from rounds_fleet import Stepped
from stretto.data.design.design import Design
from stretto.errors import DataError, PlanError
from stretto.runtime.cluster.hosts.hosts import Hosts
from stretto.runtime.cluster.parts.driver import RemoteValues
from stretto.runtime.simulated.faults import Crash, Pause
from stretto.solvers.linear.column_parts import pack, unpack
from stretto.solvers.linear.node_columns import NodeDesign, columns_of, cut_columns
from stretto.solvers.linear.regression import RegressionProblem
from stretto.solvers.linear.working_sets import WorkingSetSolver
from stretto.solvers.softmax import passes

Facts = list[np.ndarray]
STORAGES = ("dense float64", "dense float32", "sparse float64", "sparse float32")
NAMES = ("coef_", "intercept_", "dual_gap_", "objective_", "n_iter_")


def data(storage: str, n: int = 90, p: int = 140, seed: int = 0) -> tuple[Any, np.ndarray, np.ndarray]:
    """X in a storage, y, and weights of which some are zero."""
    rng = np.random.default_rng(seed)
    kind, dtype = storage.split()
    X = rng.normal(size=(n, p)) + 0.3
    X[:, 7] = 2.0  # a constant column
    if kind == "sparse":
        X[rng.random((n, p)) > 0.15] = 0.0
    y = X[:, :9] @ rng.normal(size=9) + 0.1 * rng.normal(size=n)
    X = X.astype(dtype)
    weight = np.where(rng.random(n) < 0.2, 0.0, rng.uniform(0.2, 2.0, n))
    return (sp.csr_array(X) if kind == "sparse" else X), y, weight


MODELS: dict[str, Callable[..., Any]] = {
    "lasso": lambda **more: st.Lasso(**{"alpha": 0.02, **more}),
    "lasso, no intercept, positive": lambda **more: st.Lasso(0.02, fit_intercept=False, positive=True, **more),
    "elastic net, standardised": lambda **more: st.ElasticNet(0.05, l1_ratio=0.6, standardize=True, **more),
    "ridge": lambda **more: st.ElasticNet(0.05, l1_ratio=0.0, **more),
    "working sets of 8": lambda **more: st.Lasso(0.01, schedule=st.schedule.working_sets(8), **more),
    "logistic": lambda **more: st.LogisticRegression(0.8, l1_ratio=1.0, **more),
    "logistic, l2, no intercept": lambda **more: st.LogisticRegression(0.1, l1_ratio=0.0, fit_intercept=False, **more),
}


def facts(model: Any) -> Facts:
    return [np.asarray(getattr(model, name)) for name in NAMES]


def same(found: Facts, other: Facts) -> bool:
    return all(np.array_equal(one, two) for one, two in zip(found, other, strict=True))


def fitted(name: str, storage: str, runtime: Any, *, weighted: bool = False, p: int = 140) -> Facts:
    X, y, weight = data(storage, p=p)
    y = y > np.median(y) if name.startswith("logistic") else y
    return facts(MODELS[name](runtime=runtime).fit(X, y, weight if weighted else None))


class Lent:
    """A runtime that lends one crew to every fit: starting processes takes long."""

    one_memory = False
    name = "lent"

    def __init__(self, crew: Any) -> None:
        self._crew, self.workers = crew, 3

    @contextlib.contextmanager
    def open(self) -> Iterator[Any]:
        yield self._crew

    crew = open


@pytest.fixture(scope="module")
def processes() -> Iterator[Lent]:
    with st.Cluster("processes", nodes=3).open() as crew:
        yield Lent(crew)


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("name", MODELS)
def test_the_bits_of_one_machine(name: str, storage: str, processes: Lent) -> None:
    weighted = storage.endswith("64")
    expected = fitted(name, storage, st.Serial(), weighted=weighted)
    assert np.count_nonzero(expected[0])
    places = [st.Threads(3), InProcess(1), InProcess(3, threads=2), st.Simulated(nodes=4, threads=2), processes]
    for where in places:
        assert same(fitted(name, storage, where, weighted=weighted), expected), where


@pytest.mark.parametrize("storage", ["dense float64", "sparse float32"])
def test_paths_and_cross_validation(storage: str, processes: Lent) -> None:
    X, y, weight = data(storage)
    rules: dict[str, Any] = {"n_alphas": 8, "eps": 1e-2}
    path = st.lasso_path(X, y, sample_weight=weight, fit_intercept=True, runtime=st.Serial(), **rules)
    chosen = st.LassoCV(cv=3, runtime=st.Serial(), **rules).fit(X, y, weight)
    places: list[Any] = [InProcess(3), st.Simulated(nodes=4, threads=2), processes]
    for where in places:
        found = st.lasso_path(X, y, sample_weight=weight, fit_intercept=True, runtime=where, **rules)
        for name in ("alphas", "coefs", "gaps", "intercepts", "rounds"):
            assert np.array_equal(getattr(found, name), getattr(path, name)), name
        model = st.LassoCV(cv=3, runtime=where, **rules).fit(X, y, weight)
        assert same(facts(model), facts(chosen))
        assert np.array_equal(model.mse_path_, chosen.mse_path_)


def test_several_classes_against_the_rest_and_a_warm_start() -> None:
    X, y, _ = data("sparse float64")
    which = np.digitize(y, np.quantile(y, [0.3, 0.6]))
    places: list[Any] = [InProcess(3), st.Simulated(nodes=4, threads=2)]
    for where in places:
        rest = [
            st.LogisticRegression(multi_class="ovr", runtime=r, l1_ratio=1.0).fit(X, which)
            for r in (st.Serial(), where)
        ]
        assert same(*map(facts, rest))
        warm = [st.Lasso(0.05, warm_start=True, runtime=r).fit(X, y) for r in (st.Serial(), where)]
        assert same(*(facts(model.set_params(alpha=0.01).fit(X, y)) for model in warm))


@pytest.mark.parametrize("storage", STORAGES)
def test_several_classes_jointly(storage: str, processes: Lent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "_NUMBERS", 1000)  # several visits of few rows
    X, y, weight = data(storage, p=40)
    which = np.digitize(y, np.quantile(y, [0.3, 0.6]))
    sparse = {"C": 0.5, "l1_ratio": 1.0}
    for rules in ({"l1_ratio": 0.0}, sparse, {"l1_ratio": 0.5, "fit_intercept": False, "standardize": True}):
        options: dict[str, Any] = {"random_state": 0, "tol": 1e-3, **rules}
        expected = facts(st.LogisticRegression(runtime=st.Serial(), **options).fit(X, which, weight))
        places: list[Any] = [InProcess(3), st.Simulated(nodes=4, threads=2), processes]
        for where in places[: 3 if rules == sparse else 1]:
            assert same(facts(st.LogisticRegression(runtime=where, **options).fit(X, which, weight)), expected), where


def test_joint_models_that_are_refused(tmp_path: Path) -> None:
    X, y, _ = data("dense float64")
    which = np.digitize(y, np.quantile(y, [0.3, 0.6]))
    model = st.LogisticRegression(solver="sgd", runtime=st.Cluster("processes"), l1_ratio=1.0)
    for call in (model.fit, model.plan):
        with pytest.raises(PlanError, match="mini-batches of solver='sgd' are drawn from all samples in one memory"):
            call(X, which)
    file = tmp_path / "classes.svm"
    file.write_text("1 1:2\n2 2:1\n3 1:1 2:3\n1 2:2\n")
    with pytest.raises(PlanError, match="a joint model of several classes takes X in memory"):
        st.LogisticRegression(runtime=st.Simulated(nodes=2), l1_ratio=1.0).fit(file)
    joint = st.LogisticRegression(l1_ratio=1.0).fit(file)
    X = sp.csr_array(np.array([[2, 0], [0, 1], [1, 3], [0, 2]], np.float32))
    assert same(facts(joint), facts(st.LogisticRegression(l1_ratio=1.0).fit(X, [1.0, 2.0, 3.0, 1.0])))


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three svmlight files."""
    where = tmp_path_factory.mktemp("svmlight")
    X, y, _ = data("sparse float32")
    for k in range(3):
        rows = slice(30 * k, 30 * (k + 1))
        dump_svmlight_file(X[rows], y[rows], str(where / f"part{k}.svm"), zero_based=False)
    return where


def test_files_that_nodes_read(folder: Path, processes: Lent) -> None:
    read = st.read(str(folder))
    assert read.labels is not None
    X = sp.coo_array((read.values, (read.rows, read.cols)), shape=read.shape)
    expected = facts(st.Lasso(0.02, runtime=st.Serial()).fit(X, read.labels))
    names = [folder / f"part{k}.svm" for k in range(3)]
    places: list[Any] = [None, InProcess(3), st.Simulated(nodes=4, threads=2), processes]
    for where in places:
        for path in (folder, str(folder / "*.svm"), names):
            model = st.Lasso(0.02, runtime=where)
            assert same(facts(model.fit(path)), expected), (where, path)
            assert model.n_features_in_ == X.shape[1]
    paths = [st.lasso_path(folder, n_alphas=4, runtime=where) for where in places[:2]]
    assert np.array_equal(paths[0].coefs, paths[1].coefs)
    models = [st.LassoCV(n_alphas=4, cv=3, runtime=where).fit(folder) for where in places[:2]]
    assert same(*map(facts, models))


def test_plans_of_files_and_of_clusters(folder: Path) -> None:
    plan = st.Lasso(0.02, runtime=st.Cluster("processes", nodes=3)).plan(folder)
    assert "runs on     cluster, 3 workers" in plan.explain()
    assert "sparse float32 (svmlight files)" in plan.explain()
    here = st.Lasso(0.02).plan(folder)
    assert here.fingerprint == plan.fingerprint
    assert same(facts(here.run(runtime=InProcess(2))), facts(here.run()))
    assert "runs on     cluster, 3 workers" in st.Lasso(0.02, runtime=st.Cluster("processes", nodes=3)).explain(folder)


def test_files_that_cannot_be_used(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="X names files, whose labels are y; leave y out"):
        st.Lasso().fit(folder, np.ones(3))
    (tmp_path / "ratings.csv").write_text("user,item,rating\n1,2,3\n2,2,4\n")
    with pytest.raises(DataError, match=r"Lasso: .*ratings.csv holds no labels; give svmlight files"):
        st.Lasso().fit(tmp_path / "ratings.csv")
    repeated = tmp_path / "repeated.svm"
    repeated.write_text("1 1:2 2:1\n-1 2:0.5 2:0.25 4:0\n3 1:1 2:3\n")
    found = st.Lasso(1e-3).fit(repeated)
    X = np.array([[2.0, 1.0, 0, 0], [0, 0.75, 0, 0], [1.0, 3.0, 0, 0]], np.float32)
    assert same(facts(found), facts(st.Lasso(1e-3).fit(sp.csr_array(X), [1.0, -1.0, 3.0])))
    assert same(facts(found), facts(MODELS["lasso"](alpha=1e-3, runtime=InProcess(2)).fit(repeated)))


def test_a_file_that_changes_is_named_with_the_node(tmp_path: Path) -> None:
    file = tmp_path / "changing.svm"
    file.write_text("1 1:2\n2 2:1\n")
    runtime: Any = InProcess(2)
    runtime.prepare = lambda hosts: file.write_text("1 1:2\n2 2:31\n")
    with pytest.raises(DataError, match=r"node 0 of the cluster, on host 0: .*changing.svm"):
        st.Lasso(runtime=runtime).fit(file)


# --- losses -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_hosts_are_lost(seed: int) -> None:
    draw, killed = random.Random(seed), []
    runtime = InProcess(3)

    def prepare(hosts: QueueHosts) -> None:
        at, count = {draw.randrange(4, 16) for _ in range(3)}, [0]
        hosts.replaces = seed % 2 == 0

        def before(what: str) -> None:
            count[0] += 1
            alive = [number for number, host in hosts.hosts.items() if not host.dead]
            if count[0] in at and len(alive) > 1:
                killed.append(what)
                hosts.kill(draw.choice(alive))

        hosts.before = before

    runtime.prepare = prepare
    name = list(MODELS)[seed % len(MODELS)]
    storage = STORAGES[seed % 4]
    # So many columns that rounds of working sets visit the nodes again and again.
    assert same(fitted(name, storage, runtime, p=300), fitted(name, storage, st.Serial(), p=300))
    assert killed


def test_a_process_is_killed_in_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, weight = data("sparse float64", p=300)  # so many columns that working sets visit the nodes again and again
    expected = facts(st.LassoCV(n_alphas=6, cv=3).fit(X, y, weight))
    call, calls = RemoteValues.map, [0]
    with cast(Any, st.Cluster("processes", nodes=2)).open() as crew:

        def killing(held: RemoteValues, *args: Any, **more: Any) -> Any:
            calls[0] += 1
            if calls[0] in (4, 17):
                os.kill(crew.hosts.addresses[calls[0] % 2].pid, signal.SIGKILL)
            return call(held, *args, **more)

        monkeypatch.setattr(RemoteValues, "map", killing)
        with pytest.warns(RuntimeWarning, match="was lost: process .* has ended"):
            found = facts(st.LassoCV(n_alphas=6, cv=3, runtime=cast(Any, Lent(crew))).fit(X, y, weight))
        assert len(crew.hosts.losses) == 2
    assert same(found, expected)


def faults(seed: int, nodes: int, seconds: float) -> list[Any]:
    """Crashes, pauses and lost connections within so many virtual seconds."""
    draw = random.Random(seed)
    found: list[Any] = [
        Crash(draw.randrange(nodes), draw.uniform(0.0, seconds), draw.uniform(1e-4, 3e-3))
        for _ in range(draw.randrange(1, 4))
    ]
    found += [Pause(draw.randrange(nodes), draw.uniform(0.0, seconds), draw.uniform(1e-4, 5e-3))]
    return found


@pytest.mark.parametrize("group", range(4))
def test_simulated_nodes_are_lost(group: int) -> None:
    """Fifty schedules of faults each."""
    storage, name = STORAGES[group], ("lasso", "logistic", "working sets of 8", "elastic net, standardised")[group]
    expected, nodes = fitted(name, storage, st.Serial(), p=30), 4
    healthy = st.Simulated(nodes=nodes, threads=2, detect="1ms", back_after="2ms")
    assert same(fitted(name, storage, healthy, p=30), expected)
    lost = 0
    for seed in range(50 * group, 50 * group + 50):
        runtime = st.Simulated(
            nodes=nodes, threads=2, detect="1ms", back_after="2ms", faults=faults(seed, nodes, healthy.report.seconds)
        )
        assert same(fitted(name, storage, runtime, p=30), expected), seed
        lost += len(runtime.report.losses)
    assert lost > 50


# --- what the driver holds, and what travels --------------------------------------------------------------------------


def test_the_driver_holds_the_columns_at_work_alone() -> None:
    X, y, _ = data("sparse float64", n=300, p=2000)
    for loss, strength in (("squared", 0.3), ("logistic", 0.4)):
        with InProcess(3).open() as crew:
            design = NodeDesign.sent(Design.of(X), crew.parts())
            target = y if loss == "squared" else np.where(y > np.median(y), 1.0, -1.0)
            works = WorkingSetSolver(RegressionProblem(design, target, np.ones(300), loss, True), crew)
            fit = works.fit(strength * works.largest_l1(), gap=1e-3)
        here = int(design._store.has.sum())
        assert 0 < np.count_nonzero(fit.coef) <= here < 300
        assert len(design.parts[1]) == design.entries[design._store.has].sum()


def test_products_with_a_vector_that_was_not_changed_are_not_asked_for_again() -> None:
    X, _, _ = data("dense float64")
    runtime = InProcess(2)
    with runtime.open() as crew:
        design = NodeDesign.sent(Design.of(X), crew.parts())
        columns, which, v = columns_of(design, crew, "exact"), np.arange(140), np.arange(90.0)
        product, asked = np.zeros(140), runtime.hosts[0].asked
        columns.price(which, v, product)
        before = len(asked)
        again = np.zeros(140)
        columns.price(which[::2], v.copy(), again)
        assert len(asked) == before
        assert np.array_equal(again[::2], product[::2])
        columns.price(which, -v, again)
        assert len(asked) > before
        assert np.array_equal(again, -product)


@given(some.sets(some.integers(0, 99)))
def test_chosen_columns_travel(which: set[int]) -> None:
    columns = np.array(sorted(which), np.int64)
    packed = pack(columns, 100)
    assert packed is None or packed.nbytes <= 13
    assert np.array_equal(unpack(packed, 100), columns)


@given(some.lists(some.integers(0, 1000), min_size=1, max_size=200))
def test_the_cut_follows_from_the_data(entries: list[int]) -> None:
    bounds = cut_columns(np.array(entries, np.int64))
    assert len(bounds) - 1 == min(64, len(entries))
    assert bounds[0] == 0
    assert bounds[-1] == len(entries)
    assert (np.diff(bounds) > 0).all()


# --- rounds of a schedule ---------------------------------------------------------------------------------------------

ROUNDS: dict[str, Any] = {
    "cyclic": st.schedule.cyclic(),
    "random": st.schedule.random(2),
    "prioritised": st.schedule.prioritised(8, schedulers=2),
    "auto": st.schedule.auto(8),
    "auto for nodes": st.schedule.auto(8, latency=1e-4),
}


def by_rounds(name: str, model: str, storage: str, runtime: Any, **more: Any) -> Facts:
    X, y, _ = data(storage, n=120, p=30)
    rules = {"schedule": ROUNDS[name], "max_iter": 300, "tol": 1e-6, "random_state": 3, "runtime": runtime, **more}
    if model == "logistic":
        return facts(st.LogisticRegression(0.5, l1_ratio=1.0, **rules).fit(X, y > np.median(y)))
    return facts(st.ElasticNet(0.05, l1_ratio=0.9, **rules).fit(X, y))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "name", [name if name == "cyclic" else pytest.param(name, marks=pytest.mark.slow) for name in ROUNDS]
)
def test_rounds_of_a_schedule_have_the_bits_of_threads(name: str) -> None:
    for model, storage in (("elastic net", "dense float64"), ("logistic", "sparse float64")):
        expected = by_rounds(name, model, storage, st.Threads(2), max_iter=60)
        assert np.count_nonzero(expected[0])
        places: list[Any] = [st.Serial(), st.Simulated(nodes=4), Stepped(3, 5, crash=2e-3)]
        for where in places:
            assert same(by_rounds(name, model, storage, where, max_iter=60), expected), (where, model)


def test_rounds_of_a_schedule_on_processes_that_are_started_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counts, enter, measure = {"starts": 0, "gaps": 0}, Hosts.__enter__, WorkingSetSolver.fit

    def starts(hosts: Hosts) -> Hosts:
        counts["starts"] += 1
        return enter(hosts)

    def gaps(*args: Any, **more: Any) -> Any:
        counts["gaps"] += 1
        return measure(*args, **more)

    monkeypatch.setattr(Hosts, "__enter__", starts)
    monkeypatch.setattr(WorkingSetSolver, "fit", gaps)
    expected = by_rounds("prioritised", "elastic net", "sparse float64", st.Serial(), tol=1e-9)
    assert counts["gaps"] > 1  # the gap was too large once, and the rounds went on
    found = by_rounds("prioritised", "elastic net", "sparse float64", st.Cluster("processes", nodes=2), tol=1e-9)
    assert same(found, expected)
    assert counts["starts"] == 1


def test_rounds_of_a_schedule_when_nodes_are_lost() -> None:
    healthy = st.Simulated(nodes=4, threads=2, detect="1ms", back_after="2ms")
    expected, lost = by_rounds("prioritised", "elastic net", "dense float64", healthy), 0
    for seed in range(20):
        runtime = replace(healthy, faults=faults(seed, 4, healthy.report.seconds))
        assert same(by_rounds("prioritised", "elastic net", "dense float64", runtime), expected), seed
        lost += len(runtime.report.losses)
    assert lost > 20


def test_rounds_of_a_schedule_are_resumed_on_another_runtime(tmp_path: Path) -> None:
    X, y, _ = data("dense float64", n=120, p=30)
    rules: dict[str, Any] = {"schedule": ROUNDS["prioritised"], "tol": 1e-9, "max_iter": 300}
    whole = st.Lasso(0.02, runtime=st.Serial(), **rules).fit(X, y)

    measure, count = WorkingSetSolver.fit, [0]

    def ends_the_second_time(*args: Any, **more: Any) -> Any:
        count[0] += 1
        if count[0] == 2:
            raise RuntimeError("killed by the test")
        return measure(*args, **more)

    session = st.Session(saving=st.Saving(tmp_path, every_epochs=1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WorkingSetSolver, "fit", ends_the_second_time)
        with pytest.raises(RuntimeError, match="killed by the test"):
            st.Lasso(0.02, runtime=st.Simulated(nodes=3), **rules).fit(X, y, session=session)
    runtime: Any = Stepped(2, 1)
    rest = st.Lasso(0.02, runtime=runtime, **rules)
    rest.fit(X, y, session=replace(session, resume=True))
    assert same(facts(rest), facts(whole))


@pytest.mark.slow
def test_rounds_of_a_schedule_from_files_and_by_a_plan(folder: Path) -> None:
    rules: dict[str, Any] = {"schedule": ROUNDS["cyclic"], "max_iter": 200}
    plan = st.Lasso(0.02, runtime=st.Simulated(nodes=3), **rules).plan(folder)
    assert "runs on     simulated, 48 workers" in plan.explain()
    here = st.Lasso(0.02, **rules).plan(folder)
    assert plan.fingerprint == here.fingerprint
    assert same(facts(plan.run()), facts(here.run()))
