"""A wrong `runtime=` gives one clear error, whichever front end it was given to."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stretto as st
from stretto.errors import NotARuntime, PlanError
from stretto.runtime.chosen import here, name_of, one_memory, runtime_words

X = np.abs(np.random.default_rng(0).normal(size=(30, 6))).round()
Y = X[:, 0] + 1.0


def _loop(runtime: Any) -> None:
    def double(x):  # type: ignore[no-untyped-def]
        for i in range(len(x)):
            x[i] = 2 * x[i]

    st.parallel(runtime=runtime)(double)


def _program(runtime: Any) -> None:
    st.run(st.SparseRegression(X, Y, 0.1), rounds=1, runtime=runtime)


def _tables(runtime: Any) -> None:
    st.run(lambda w: w.tick(), tables={"x": st.tables.Table(rows=2)}, runtime=runtime)


FRONT_ENDS: dict[str, Callable[[Any], Any]] = {
    "MatrixFactorization": lambda runtime: st.MatrixFactorization(2, runtime=runtime).fit(X),
    "LatentDirichletAllocation": lambda runtime: st.LatentDirichletAllocation(2, runtime=runtime).fit(X),
    "Lasso": lambda runtime: st.Lasso(runtime=runtime).fit(X, Y),
    "ElasticNet": lambda runtime: st.ElasticNet(runtime=runtime).fit(X, Y),
    "GroupLasso": lambda runtime: st.GroupLasso(runtime=runtime).fit(X, Y),
    "HuberElasticNet": lambda runtime: st.HuberElasticNet(runtime=runtime).fit(X, Y),
    "ElasticNetCV": lambda runtime: st.ElasticNetCV(runtime=runtime).fit(X, Y),
    "LassoCV": lambda runtime: st.LassoCV(runtime=runtime).fit(X, Y),
    "LogisticRegression": lambda runtime: st.LogisticRegression(runtime=runtime, l1_ratio=1.0).fit(X, Y > 1),
    "loop": _loop,
    "program": _program,
    "tables": _tables,
}
WRONG: dict[str, tuple[Any, str]] = {
    "threads": ("threads", r"runtime='threads' is not a runtime; give st\.Threads\(n\).*; write st\.Threads\(\)$"),
    "cluster": ("cluster", r"runtime='cluster' is not a runtime; give st\.Threads\(n\).*; write st\.Cluster\(\)$"),
    "4": (4, r"runtime=4 is not a runtime; give st\.Threads\(n\).*; for 4 threads write st\.Threads\(4\)$"),
    "class": (st.Threads, r"runtime=<class .*> is not a runtime; give st\.Threads\(n\).*; make one: st\.Threads\(…\)$"),
    "object": (object(), r"runtime=<object object at .*> is not a runtime; give st\.Threads\(n\)"),
}


@pytest.mark.parametrize("front_end", FRONT_ENDS)
@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_not_a_runtime_is_refused_in_one_sentence(front_end: str, wrong: str) -> None:
    given, words = WRONG[wrong]
    with pytest.raises(PlanError, match=words) as caught:
        FRONT_ENDS[front_end](given)
    assert isinstance(caught.value, NotARuntime | TypeError)
    assert re.match(r"[\w.]+: runtime=", str(caught.value)), "the message says whose option it is"


def test_what_a_runtime_says_of_itself() -> None:
    assert [name_of(r) for r in (st.Serial(), st.Threads(2), st.Cluster(), st.Simulated())] == [
        "serial", "threads", "cluster", "simulated",
    ]  # fmt: skip
    assert [one_memory(r) for r in (st.Serial(), st.Threads(2), st.Cluster())] == [True, True, False]
    assert here(st.Serial()) == st.Serial()
    assert here(st.Cluster(), 3) == st.Threads(3)
    assert runtime_words(st.Serial()) == "serial"
    assert runtime_words(st.Cluster(nodes=2, threads=3)) == "cluster, 6 workers"
