"""Tiny jobs run through public functions, so that they compile the kernels that users run.

Numba compiles a kernel for the types it is called with. What varies between users: blocks whose local indices take two
bytes or four, biases, the loss, how many topics there are, and the file format. Each task below meets some of these; a
task whose kernels are cached takes milliseconds.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class WarmupTask:
    """A job that compiles the kernels it needs.

    Attributes
    ----------
    name : str
        For the progress bar.
    family : str
        Tasks of one family share kernels: one process runs them.
    run : callable
        The task.
    """

    name: str
    family: str
    run: Callable[[], object]


# Plain counts for a few topics, packed rows for many, proposals; blocks of more documents than two bytes can number.
_TOPIC_MODELS: dict[str, dict[str, Any]] = {
    "few": {"n_components": 8},
    "many": {"n_components": 300},
    "proposals": {"n_components": 8, "sampler": "mh"},
    "few, large blocks": {"n_components": 8, "documents": 140_000, "width": 1},
    "many, large blocks": {"n_components": 300, "documents": 140_000, "width": 1},
}


def tasks(*, fast: bool = False) -> list[WarmupTask]:
    """Everything worth compiling ahead, the most wanted first in each family. fast: the profile `fast` too."""
    found = [
        *_factorizations(),
        *_regressions(),
        *_topic_models(),
        *_readers(),
        WarmupTask("helpers of loops", "loops", _loops),
        WarmupTask("plans of training steps", "memory", _plan),
    ]
    if fast:
        small = _ratings(300, 200)
        optimizers: list[dict[str, Any]] = [{}, {"optimizer": "adagrad"}, {"optimizer": "adarevision"}]
        for given in [*optimizers, {"solver": "als"}, {"solver": "ccd"}]:
            name = ", ".join(["fast", *map(str, given.values())])
            found.append(WarmupTask(name, "factorization", partial(_fit, small, profile="fast", **given)))
        for name, given in _TOPIC_MODELS.items():
            found.append(WarmupTask(f"fast, topics, {name}", "topics", partial(_topics, profile="fast", **given)))
    return found


def _factorizations() -> list[WarmupTask]:
    small, wide = _ratings(300, 200), _ratings(70_000, 66_000)
    made: dict[str, Callable[[], object]] = {
        "sgd": partial(_fit, small),
        "sgd, the default rank": partial(_fit, small, n_components=32),
        "sgd, rank 64": partial(_fit, small, n_components=64),
        "sgd, large blocks": partial(_fit, wide, width=1),
        "recommend and predict": partial(_serve, small),
        "adagrad": partial(_fit, small, optimizer="adagrad"),
        "adarevision": partial(_fit, small, optimizer="adarevision"),
        "als": partial(_fit, small, solver="als"),
        "als, conjugate gradients": partial(_fit, small, solver="als", linear_solver="cg"),
        "als, implicit": partial(_fit, small, solver="als", implicit=True),
        "ccd": partial(_fit, small, solver="ccd"),
        "ranking losses": partial(_rank, small),
        "side features": partial(_features, small),
    }
    return [WarmupTask(name, "factorization", run) for name, run in made.items()]


def _regressions() -> list[WarmupTask]:
    kinds = [("dense", "float64"), ("sparse", "float64"), ("dense", "float32"), ("sparse", "float32")]
    made = [
        WarmupTask(f"regression, {kind}, {dtype}", "regression", partial(_regress, kind, dtype))
        for kind, dtype in kinds
    ]
    for kind, dtype in kinds:
        made.append(WarmupTask(f"support vectors, {kind}, {dtype}", "support vectors", partial(_separate, kind, dtype)))
    for kind, dtype in kinds:
        made.append(WarmupTask(f"many classes, {kind}, {dtype}", "classes", partial(_classify, kind, dtype)))
    for kind, dtype in kinds:
        made.append(WarmupTask(f"groups and losses, {kind}, {dtype}", "groups", partial(_penalise, kind, dtype)))
    for kind, dtype in kinds:
        made.append(WarmupTask(f"CoCoA, {kind}, {dtype}", "cocoa", partial(_exchange, kind, dtype)))
    for dtype in ("float64", "float32"):
        made.append(WarmupTask(f"factorization machines, {dtype}", "machines", partial(_machines, dtype)))
    return [*made, WarmupTask("rounds of a schedule", "rounds", _rounds)]


def _topic_models() -> list[WarmupTask]:
    made = [WarmupTask(f"topics, {name}", "topics", partial(_topics, **given)) for name, given in _TOPIC_MODELS.items()]
    made.append(WarmupTask("topics, coherence of texts", "topics", _windows))
    return [*made, WarmupTask("topics, streamed", "topics", _stream_topics)]


def _readers() -> list[WarmupTask]:
    small = _ratings(300, 200)
    names = ("movielens", "triples", "svmlight", "mm")
    made = [WarmupTask(f"read {name}", "readers", partial(_read, small, name)) for name in names]
    made.append(WarmupTask("read text ids", "readers", partial(_read_text, "ada,tea,5\neve,tea,3\nada,rye,1\n")))
    return [*made, WarmupTask("sparse matrices", "readers", _sparse_matrices)]


def _ratings(rows: int, cols: int) -> Any:
    from stretto.data.generate.ratings import ratings

    return ratings(2_000, rows, cols, seed=0).data


def _fit(data: Any, **parameters: Any) -> Any:
    from stretto.models.factorization.estimator import MatrixFactorization

    train, test = data.split(0.1, seed=0)
    given = {"n_components": 16, "max_iter": 2, "random_state": 0} | parameters
    return MatrixFactorization(**given).fit(train, validation=None if given.get("implicit") else test)


def _rank(data: Any) -> None:
    """Ranking losses have one kernel, and one for each number of chunks of a row."""
    for rank in (16, 32, 64):
        model = _fit(data, loss="bpr", implicit=True, n_components=rank)
    model.recommend([0, 1], 5)
    model.fold_in(data.to_csr()[:5]).explain_recommendation(0, 1)


def _features(data: Any) -> None:
    """Features of users, from which a new one is folded in."""
    import numpy as np

    from stretto.models.factorization.estimator import MatrixFactorization

    about = np.arange(data.shape[0] * 2.0).reshape(-1, 2)
    model = MatrixFactorization(16, max_iter=2, random_state=0).fit(data, user_features=about)
    model.fold_in(user_features=about[:3])


def _regress(kind: str, dtype: str) -> None:
    """Lasso and logistic regression, small sets through the table and large ones over the data."""
    import numpy as np
    import scipy.sparse

    import stretto as st
    from stretto.models.linear.lasso import Lasso
    from stretto.models.linear.logistic import LogisticRegression

    X, y = _samples(60, 40, dtype)
    cases: list[tuple[Any, Any]] = [(X, y), (np.ascontiguousarray(X[:, :8]), y)]  # a few columns need no panels
    # More columns that matter than a table holds. Their entries are few: sweeps are over them.
    many = scipy.sparse.random(900, 1400, density=0.004, format="csc", random_state=0, dtype=dtype)
    cases.append((many.toarray()[:, :900], np.sin(np.arange(900.0))))
    if kind == "sparse":
        # A few entries among many columns, too: those are multiplied by rows instead of in panels.
        thin = scipy.sparse.random(200, 150, density=0.02, format="csc", random_state=0, dtype=dtype)
        cases = [(scipy.sparse.csc_array(X), y), (thin, np.arange(200.0)), (many, np.sin(np.arange(900.0)))]
    with _without_warnings():
        for matrix, target in cases:
            large = matrix.shape[1] > 500
            Lasso(1e-4 if large else 0.01, max_iter=6).fit(matrix, target)
            if not large:
                st.lasso_path(matrix, target, n_alphas=2)
                LogisticRegression(l1_ratio=1.0).fit(matrix, target > np.median(target))
                if kind == "sparse":
                    LogisticRegression(l1_ratio=1.0, schedule=st.schedule.working_sets()).fit(
                        matrix, target > np.median(target)
                    )
                    LogisticRegression(l1_ratio=0.5, warm_start=True).fit(matrix, target > 0).fit(matrix, target > 0)
            elif kind == "sparse":  # conjugate gradients, too
                LogisticRegression(100.0, max_iter=20, l1_ratio=1.0).fit(matrix, target > np.median(target))
                ridge = LogisticRegression(l1_ratio=0.0, warm_start=True)
                ridge.fit(matrix, target > 0).fit(matrix, target > 0)
            else:  # conjugate gradients without an L1 penalty
                LogisticRegression(max_iter=2, l1_ratio=0.0).fit(matrix, target > 0)
        if kind == "dense":
            LogisticRegression(l1_ratio=0.5, warm_start=True).fit(X, y > 0).fit(X, y > 0)
            # The logistic cases above are too small for working sets. Those with few samples or few columns differ.
            wide, tall = np.tile(X, (1, 4)), np.tile(X[:, :8], (2500, 1))
            wide += _samples(len(wide), wide.shape[1], dtype)[0]
            # A set of more columns and samples than one compiled call solves.
            for matrix in (wide, wide[:16], tall, np.tile(wide, (10, 1))):
                target = np.resize(y, len(matrix))
                # By default working sets take many more samples of few columns than a warmup should.
                for schedule in (None, st.schedule.working_sets()) if matrix is tall else (None,):
                    for ratio in (0.0, 1.0):
                        model = LogisticRegression(l1_ratio=ratio, schedule=schedule)
                        model.fit(matrix, target > np.median(target))


def _penalise(kind: str, dtype: str) -> None:
    """Groups of features, several targets, Poisson and Huber loss; working sets by products and over the data."""
    import numpy as np
    import scipy.sparse

    from stretto.models.linear.groups.group_lasso import GroupLasso
    from stretto.models.linear.groups.multi_task import MultiTaskElasticNet, MultiTaskLasso
    from stretto.models.linear.losses.huber import HuberElasticNet
    from stretto.models.linear.losses.poisson import PoissonRegressor

    def stored(matrix: Any) -> Any:
        return scipy.sparse.csc_array(matrix) if kind == "sparse" else matrix

    X, y = _samples(60, 40, dtype)
    wide, _ = _samples(60, 1000, dtype)  # too many columns for products
    counts = np.abs(np.round(y))
    with _without_warnings():
        GroupLasso(0.01, groups=4, l1_ratio=0.5).fit(stored(X), y)
        MultiTaskLasso(0.01).fit(stored(X), np.column_stack([y, -y]))
        MultiTaskElasticNet(1e-3, l1_ratio=0.0, max_iter=2).fit(stored(wide), np.column_stack([y, -y]))
        for matrix in (X, X[:, :8]):
            PoissonRegressor(0.01, l1_ratio=0.5).fit(stored(matrix), counts)
            HuberElasticNet(0.01).fit(stored(matrix), y)
        PoissonRegressor(0.01, max_iter=2).fit(stored(wide), counts)


def _classify(kind: str, dtype: str) -> None:
    """Softmax regression. Kernels differ by the number of fours that the classes fill."""
    import numpy as np
    import scipy.sparse

    from stretto.models.linear.logistic import LogisticRegression

    X, y = _samples(80, 30, dtype)
    which = np.argsort(np.argsort(y))
    matrix: Any = scipy.sparse.csr_array(X) if kind == "sparse" else X
    with _without_warnings():
        for classes in (3, 8, 10, 20) if dtype == "float64" else (3,):
            LogisticRegression(max_iter=30, l1_ratio=1.0).fit(matrix, which * classes // len(X))
            if kind == "sparse":  # conjugate gradients
                LogisticRegression(max_iter=3, l1_ratio=0.0).fit(matrix, which * classes // len(X))
        LogisticRegression(solver="sgd", max_iter=1, random_state=0, l1_ratio=1.0).fit(matrix, which % 3)


def _separate(kind: str, dtype: str) -> None:
    """Linear support vector machines, and stochastic steps with variance reduction."""
    import scipy.sparse

    from stretto.models.linear.logistic import LogisticRegression
    from stretto.models.linear.svc import LinearSVC

    X, y = _samples(60, 40, dtype)
    matrix: Any = scipy.sparse.csr_array(X) if kind == "sparse" else X
    with _without_warnings():
        LinearSVC(max_iter=5).fit(matrix, y > 0)
        LinearSVC(solver="sgd", max_iter=30).fit(matrix, y > 0)
        LogisticRegression(solver="svrg", max_iter=2).fit(matrix, y > 0)


def _machines(dtype: str) -> None:
    """Factorization machines with a part that is held out."""
    from stretto.models.factorization_machine.estimator import FactorizationMachine

    X, y = _samples(200, 30, dtype)
    FactorizationMachine(3, max_iter=2, early_stopping=True).fit(X, y > 0).predict(X)


def _exchange(kind: str, dtype: str) -> None:
    """CoCoA by columns, with both losses that have an L1 penalty, and by samples."""
    import scipy.sparse

    from stretto.runtime.runtimes import Serial
    from stretto.tasks.cocoa.task import cocoa
    from stretto.tasks.run import run

    X, y = _samples(20, 10, dtype)
    matrix: Any = scipy.sparse.csr_array(X) if kind == "sparse" else X
    for target, options in (
        (y, {"alpha": 0.1}),
        (y > 0, {"loss": "logistic", "l1_ratio": 0.5}),
        (y > 0, {"loss": "hinge"}),
    ):
        run(cocoa(matrix, target, parts=2, max_rounds=1, **options), runtime=Serial())


def _samples(n: int, p: int, dtype: str) -> Any:
    import numpy as np

    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p)) * (rng.random((n, p)) < 0.5)
    return X.astype(dtype), X[:, 0] - X[:, 1] + rng.normal(size=n)


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Suppress warnings of fits that are stopped early: their results are unused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _corpus() -> Any:
    from stretto.data.generate.corpus import corpus

    return corpus(200, 100, 4, 12, seed=0).data


def _topics(documents: int = 200, **parameters: Any) -> None:
    """A topic model from its first epoch to its browser: sampling, priors, inference, coherence, merging."""
    from dataclasses import replace

    from stretto.models.topics.browse import browse
    from stretto.models.topics.estimator import LatentDirichletAllocation
    from stretto.models.topics.input import as_corpus

    data = _corpus()
    given = {"max_iter": 3, "burn_in": 0, "optimize_every": 1, "average_every": 2, "random_state": 0} | parameters
    model = LatentDirichletAllocation(**given)
    if documents > data.shape[0]:  # the others are empty
        model.fit(replace(data, rows=data.rows * (documents // data.shape[0]), shape=(documents, data.shape[1])))
        return
    model.fit(data, validation=0.1)
    browse(model, as_corpus(data, seed=0))
    model.perplexity(data)
    model.merge_topics(1)


def _windows() -> None:
    """C_v coherence, whose windows slide over texts."""
    from stretto.data.documents.read_text import read_text
    from stretto.models.topics.estimator import LatentDirichletAllocation

    texts = ["one two three four", "two three", "one four five"] * 5
    LatentDirichletAllocation(2, max_iter=2, random_state=0).fit(read_text(texts)).coherence(texts, 3, "c_v")


def _stream_topics() -> None:
    from stretto.data.write import write
    from stretto.models.topics.estimator import LatentDirichletAllocation

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "corpus.mtx"
        write(_corpus(), path, "mm")
        LatentDirichletAllocation(8, max_iter=2, memory="64MB", random_state=0).fit(str(path))


def _rounds() -> None:
    import numpy as np

    from stretto.programs.coordinates.regression import SparseRegression
    from stretto.programs.run import run
    from stretto.runtime.simulated.spec import Simulated

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 60)), rng.normal(size=40)
    run(SparseRegression(X, y, alpha=0.1), rounds=20, every=20)
    for by in ("rows", "columns"):  # what nodes run
        run(SparseRegression(X, y, alpha=0.1, by=by), rounds=2, runtime=Simulated(nodes=1, threads=1))


def _serve(data: Any) -> None:
    from stretto.evaluation.evaluate import evaluate
    from stretto.evaluation.splits import split

    model = _fit(data)
    evaluate(model, split.leave_k_out(data)[1], metrics=("ndcg@10", "rmse"))
    model.recommend([0, 1], 3)
    model.recommend([0, 1], 3, filter_seen=False)
    model.similar_items([0], 3)
    model.explain_recommendation(0, 1)
    model.predict([[0, 1], [2, 3]])
    model.score(data)
    model.transform(data)


def _read(data: Any, format: str) -> None:
    from stretto.data.reading.read import read
    from stretto.data.write import write

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ratings"
        write(data, path, format)
        read(path, format, cache=False)


def _plan() -> None:
    """A training step in half of its memory; neither torch nor a GPU is needed."""
    from stretto.memory.addresses.lifetimes import find_lifetimes
    from stretto.memory.addresses.place_plan import make_placed
    from stretto.memory.addresses.placement import place
    from stretto.memory.planner.graph import Graph, Node, Storage
    from stretto.memory.planner.planner import PlannerSettings

    layers, size = 6, 8 << 20
    forward = tuple(Node("forward", (k - 1,) if k else (), (k,), seconds=1e-3) for k in range(layers))
    backward = tuple(
        Node("backward", (layers - 1 - k, *((layers + k - 1,) if k else ())), (layers + k,), seconds=1e-3)
        for k in range(layers)
    )
    storages = tuple(Storage(size, "activation") for _ in range(2 * layers))
    made = make_placed(Graph(storages, forward + backward, (2 * layers - 1,)), PlannerSettings(6 * size))
    place(find_lifetimes(made.program))


def _sparse_matrices() -> None:
    """Verified by row and by entry, with indices of either width; and the hash of long arrays."""
    import numpy as np
    import scipy.sparse

    from stretto.data.convert.sparse_structure import verified
    from stretto.data.records.digest import digest_of

    digest_of(np.zeros(1 << 14))
    for kind in (np.int32, np.int64):
        index = np.zeros(1, kind)
        for X in (scipy.sparse.csr_array((1, 1)), scipy.sparse.coo_array(np.ones((1, 1)))):
            if X.format == "csr":
                X.data, X.indices, X.indptr = np.ones(1), index, np.arange(2, dtype=kind)
            else:
                X.coords = (index, index)
            verified(X, "warm-up")


def _read_text(text: str) -> None:
    from stretto.data.reading.read import read

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ratings.csv"
        path.write_text(text, encoding="utf-8")
        read(path, cache=False)


def _loops() -> None:
    from .loops import run_loops

    run_loops()
