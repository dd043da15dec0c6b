"""Cells of the matrix of what runs where: one case, kept in memory or on disk, on one runtime, compared with Serial.

`python -m bench.support_cells` answers questions for `bench.support`, which starts it as a process of its own, so that
a case that hangs or crashes can be ended: a line of JSON in, a line of JSON out. The cases are those of
`tests/plan_cases.py`, which golden values share.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array

import stretto as st
from stretto.errors import PlanError
from stretto.runtime.cluster.blocks.driver_step import CrewPlan

TESTS = Path(__file__).parents[1] / "tests"
# In memory; given in memory and kept in files, tile by tile; read from a text file within a budget.
STORAGES = ("memory", "disk", "file")
RUNTIMES = ("serial", "threads", "simulated", "cluster")
# Budgets in bytes, by how a case's name begins. With them tiles of a few blocks fit, on one machine as on two nodes, of
# which each keeps half of the data; `Result.tiled` says whether files were needed.
_BUDGETS = {"mf, als": 120_000, "mf, ccd": 120_000, "mf": 40_000, "lda, packed": 1_300_000, "lda": 1_000_000}
_LONGEST = 160  # characters of a reason

Learned = dict[str, NDArray[Any]]


def _from_tests(name: str) -> Any:
    """A module of the tests, which are no package."""
    if str(TESTS) not in sys.path:
        sys.path.append(str(TESTS))
    return importlib.import_module(name)


@dataclass(frozen=True)
class Row:
    """A case.

    name : in tables
    kind : "estimator" or "loop"
    streams : whether it takes a memory budget
    run : function(runtime, storage, budget) -> what was learned, and whether arrays were in files; budget: whether
        there is one
    """

    name: str
    kind: str
    streams: bool
    run: Callable[[Any, str, bool], tuple[Learned, bool]]


@dataclass(frozen=True)
class Result:
    """Of one cell.

    state : "equal", "different", "refused", "failed" or "no answer"
    reason : of those that are not equal
    tiled : whether arrays were in files, where there was a budget
    """

    state: str
    reason: str = ""
    tiled: bool = True


@lru_cache(maxsize=1)
def documents() -> Any:
    """A corpus of enough tokens for a grid of 8 × 8 blocks, of which a small budget holds a few."""
    random, docs, words, tokens = np.random.default_rng(0), 3000, 2000, 400_000
    long, often = random.pareto(1.5, docs) + 0.1, 1 / np.arange(1.0, words + 1)
    which = random.choice(docs, tokens, p=long / long.sum()), random.choice(words, tokens, p=often / often.sum())
    return coo_array((np.ones(tokens, np.int64), which), shape=(docs, words)).tocsr()


@lru_cache(maxsize=1)
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="stretto-support-")


@lru_cache(maxsize=2)
def _file(short: str) -> Path:
    """The data of a case as a text file."""
    path = Path(_folder().name) / {"mf": "ratings.dat", "lda": "docword.txt"}[short]
    if short == "mf":
        st.write(_from_tests("plan_cases").ratings(), path)
        return path
    X = documents().tocoo()
    triples = np.stack([X.coords[0] + 1, X.coords[1] + 1, X.data], axis=1)
    head = f"{X.shape[0]}\n{X.shape[1]}\n{X.nnz}"
    np.savetxt(path, triples[np.lexsort(triples.T[1::-1])], "%d", header=head, comments="")
    return path


@contextlib.contextmanager
def _noting_files() -> Iterator[list[int]]:
    """Steps for which some node of a cluster has its arrays in files: every node decides by the size of its part."""
    found: list[int] = []
    loads = CrewPlan.loads

    def noted(plan: CrewPlan, nodes: int) -> Any:
        made = loads(plan, nodes)
        found.extend(plan.number for one in made.values() if one.memory is not None)
        return made

    with mock.patch.object(CrewPlan, "loads", noted):
        yield found


def _estimator(case: str) -> Row:
    cases = _from_tests("plan_cases")
    short, _, rest = case.partition(", ")
    name = {"mf": "MatrixFactorization", "lda": "LatentDirichletAllocation"}[short]

    def run(runtime: Any, storage: str, budget: bool) -> tuple[Learned, bool]:
        memory = {"memory": next(n for start, n in _BUDGETS.items() if case.startswith(start))} if budget else {}
        if storage == "file":
            X: Any = _file(short)
        else:
            X = documents() if short == "lda" else cases.data(case)
        with _noting_files() as on_nodes:
            model = cases.ESTIMATORS[case](runtime=runtime, **memory).fit(X)
        if isinstance(runtime, st.Serial | st.Threads):
            return cases.learned(model), model.plan_.physical.tile is not None
        # Simulated nodes keep everything in the memory of their one process.
        return cases.learned(model), bool(on_nodes) and not isinstance(runtime, st.Simulated)

    return Row(f"{name}, {rest}", "estimator", True, run)


def _linear(name: str, make: Callable[..., Any], classes: int, target: Callable[[Any], Any] | None = None) -> Row:
    """classes: of the target, 0 for numbers. target: function from these numbers to the target"""

    def run(runtime: Any, storage: str, budget: bool) -> tuple[Learned, bool]:
        random = np.random.default_rng(0)
        X = random.standard_normal((150, 30))
        score = X[:, :3] @ [1.0, -2.0, 0.5] + 0.1 * random.standard_normal(150)
        y = score if not classes else np.digitize(score, np.quantile(score, np.arange(1, classes) / classes))
        model = make(runtime=runtime).fit(X, y if target is None else target(y))
        return {name: np.asarray(getattr(model, name)) for name in ("coef_", "intercept_")}, False

    return Row(name, "estimator", False, run)


def _logistic(**given: Any) -> Callable[..., Any]:
    return lambda **where: st.LogisticRegression(random_state=0, **given, **where)


def _loop(case: str) -> Row:
    cases = _from_tests("plan_cases")
    return Row(case, "loop", False, lambda runtime, storage, budget: (cases.run_loop(case, runtime), False))


@lru_cache(maxsize=1)
def rows() -> dict[str, Row]:
    """Every case by its name."""
    cases = _from_tests("plan_cases")
    found = [_estimator(case) for case in cases.ESTIMATORS]
    found += [
        _linear("Lasso", lambda **where: st.Lasso(alpha=0.05, **where), 0),
        _linear("ElasticNet", lambda **where: st.ElasticNet(alpha=0.05, **where), 0),
        _linear("LassoCV", lambda **where: st.LassoCV(n_alphas=10, cv=3, **where), 0),
        _linear("ElasticNetCV", lambda **where: st.ElasticNetCV(n_alphas=10, cv=3, l1_ratio=[0.5, 0.9], **where), 0),
        _linear("GroupLasso", lambda **where: st.GroupLasso(alpha=0.05, groups=3, **where), 0),
        _linear("MultiTaskLasso", lambda **where: st.MultiTaskLasso(alpha=0.05, **where), 0, lambda y: np.c_[y, -y]),
        _linear(
            "MultiTaskElasticNet",
            lambda **where: st.MultiTaskElasticNet(alpha=0.05, l1_ratio=0.5, **where),
            0,
            lambda y: np.c_[y, -y],
        ),
        _linear(
            "PoissonRegressor",
            lambda **where: st.PoissonRegressor(alpha=0.05, l1_ratio=0.5, **where),
            0,
            lambda y: np.round(np.abs(y)),
        ),
        _linear("HuberElasticNet", lambda **where: st.HuberElasticNet(alpha=0.05, epsilon=0.5, **where), 0),
        _linear("LogisticRegression, two classes", _logistic(l1_ratio=1.0), 2),
        _linear("LogisticRegression, multinomial", _logistic(l1_ratio=0.0), 3),
        _linear(
            "LogisticRegression, multinomial, sgd",
            _logistic(l1_ratio=0.0, solver="sgd", max_iter=3),
            3,
        ),
        _linear("LogisticRegression, one against the rest", _logistic(multi_class="ovr", l1_ratio=1.0), 3),
        _linear("LogisticRegression, two classes, svrg", _logistic(solver="svrg"), 2),
        _linear(
            "LogisticRegressionCV",
            lambda **where: st.LogisticRegressionCV(Cs=4, cv=3, l1_ratios=[1.0], **where),
            2,
        ),
        _linear("FactorizationMachine, logistic", lambda **where: st.FactorizationMachine(random_state=0, **where), 2),
        _linear(
            "FactorizationMachine, squared, field-aware",
            lambda **where: st.FactorizationMachine(
                4, loss="squared", field_aware=True, fields=np.arange(30) % 3, random_state=0, **where
            ),
            0,
        ),
        _linear("LinearSVC", lambda **where: st.LinearSVC(random_state=0, **where), 3),
    ]
    found += [_loop(case) for case in cases.LOOPS]
    return {row.name: row for row in found}


def runtime_of(name: str, cluster: str) -> Any:
    """The runtime of a column. cluster: "processes", or "in-process" for nodes that are threads of this process."""
    if name == "cluster" and cluster == "in-process":
        return _from_tests("ring_fleet").InProcess(2)
    made: dict[str, Callable[[], Any]] = {
        "serial": st.Serial,
        "threads": lambda: st.Threads(2),
        "simulated": lambda: st.Simulated(nodes=3, threads=1),
        "cluster": lambda: st.Cluster("processes", nodes=2),
    }
    return made[name]()


@lru_cache(maxsize=4)
def expected(row: str, storage: str) -> str:
    """What Serial learns without a budget."""
    return str(_from_tests("plan_cases").digest(rows()[row].run(st.Serial(), storage, False)[0]))


def cell(row: str, storage: str, runtime: str, cluster: str = "processes") -> Result:
    """Run a case and compare it."""
    reference = expected(row, "file" if storage == "file" else "memory")
    where, budget = runtime_of(runtime, cluster), storage != "memory"
    try:
        learned, tiled = rows()[row].run(where, storage, budget)
    except Exception as error:
        kind = type(where).__name__  # with all its settings, perhaps cut short, it would fill the cell
        text = re.sub(rf"{kind}\(.*?(?:\)|…)(?=: )", f"{kind}(…)", str(error))
        if isinstance(error, PlanError):
            return Result("refused", first_sentence(text))
        return Result("failed", first_sentence(f"{type(error).__name__}: {text}"))
    same = _from_tests("plan_cases").digest(learned) == reference
    return Result("equal" if same else "different", tiled=tiled or not budget)


def first_sentence(text: str) -> str:
    """Of an error: what is wrong, without the remedy and without the place in the tests.

    >>> first_sentence("scaled, line 84: the strategy 'chain' needs shared memory; run it with runtime=st.Threads()")
    "the strategy 'chain' needs shared memory"
    """
    text = " ".join(re.sub(r"^\w+, line \d+: ", "", text).split()).replace("|", "/")
    ends = [match.start() for match in re.finditer(r"[.;](?= |$)", text)]
    # What is in brackets belongs to the sentence around them.
    found = next((text[:end] for end in ends if text[:end].count("(") <= text[:end].count(")")), text)
    return found if len(found) <= _LONGEST else found[: _LONGEST - 1] + "…"


def main() -> None:
    """Answer one question a line until there are no more."""
    parser = argparse.ArgumentParser(prog="python -m bench.support_cells", description=__doc__.split("\n")[0])
    parser.add_argument("--cluster", choices=("processes", "in-process"), default="processes")
    cluster = parser.parse_args().cluster
    # What cases and their processes print is no answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")  # that three epochs are few
    for line in sys.stdin:
        row, storage, runtime = json.loads(line)
        print(json.dumps(asdict(cell(row, storage, runtime, cluster))), file=answers, flush=True)


if __name__ == "__main__":
    main()
