"""Golden texts of `explain()`, one for each kind of plan, in tests/golden/explain.

After a change that is meant, write them anew and read the difference: python tests/test_plan_golden.py
"""

# mypy: allow-untyped-defs, disable-error-code="attr-defined"
from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csc_array

import stretto as st
from plan_cases import documents, ratings

GOLDEN = Path(__file__).parent / "golden" / "explain"
WHERE: dict[str, Any] = {"runtime": st.Threads(2)}
SMALL: dict[str, Any] = {"max_iter": 3, "random_state": 5, "width": 4, **WHERE}


@st.parallel(runtime=st.Threads(2))
def epoch(entries, W, H, rate, loss):
    for (i, j), r in entries:
        e = r - W[i] @ H[j]
        loss += e * e
        W[i], H[j] = W[i] + rate * e * H[j], H[j] + rate * e * W[i]


def worker(w: Any) -> None:
    w.tick()


def _numbers() -> tuple[Any, Any]:
    X = np.random.default_rng(0).normal(size=(200, 30))
    return X, X[:, 4] - 2 * X[:, 7]


def _loop() -> Any:
    return epoch.plan(ratings(), np.zeros((300, 4), "f4"), np.zeros((200, 4), "f4"))


def _lasso() -> Any:
    X, y = _numbers()
    return st.Lasso(0.1, **WHERE).plan(csc_array(np.where(np.abs(X) > 1, X, 0.0)), y)


def _tables(**other: Any) -> Any:
    tables = {
        "weights": st.tables.Table(rows=10_000, cols=64, apply=st.tables.adagrad(0.1)),
        "counts": st.tables.Table(dtype="i8"),
    }
    given: dict[str, Any] = {"workers": 8, "tables": tables, "sync": st.tables.SSP(2), **WHERE}
    return st.tables.plan(worker, **given | other)


PLANS: dict[str, Callable[[], Any]] = {
    "mf-sgd": lambda: st.MatrixFactorization(6, **SMALL).plan(ratings()),
    "mf-sgd-streamed": lambda: st.MatrixFactorization(6, memory="100kB", **SMALL).plan(ratings()),
    "mf-als": lambda: st.MatrixFactorization(6, solver="als", implicit=True, **SMALL).plan(ratings()),
    "mf-ccd": lambda: st.MatrixFactorization(6, solver="ccd", **SMALL).plan(ratings()),
    "lda": lambda: st.LatentDirichletAllocation(8, **SMALL).plan(documents()),
    "lasso": _lasso,
    "logistic": lambda: st.LogisticRegression(0.5, l1_ratio=1.0, **WHERE).plan(_numbers()[0], _numbers()[1] > 0),
    "logistic-joint": lambda: st.LogisticRegression(l1_ratio=1.0, **WHERE).plan(
        _numbers()[0], np.digitize(_numbers()[1], [-1, 1])
    ),
    "loop": _loop,
    "tables-replayable": _tables,
    "tables-identical": lambda: _tables(sync=st.tables.BSP(), comm=st.tables.Managed("100Mbit", codec="f2")),
    "tables-statistical": lambda: _tables(tables={"x": st.tables.Table(rows=100, cols=8, placement="shared")}),
}


def text_of(name: str) -> str:
    """What a plan says. The lines of this file may move, and the fingerprint of a loop with them."""
    found = re.sub(r"line \d+", "line N", PLANS[name]().explain())
    return re.sub(r"\.py:\d+, plan [0-9a-f]{16}", ".py:N, plan FINGERPRINT", found) + "\n"


@pytest.mark.parametrize("name", PLANS)
def test_explain(name: str) -> None:
    path = GOLDEN / f"{name}.txt"
    assert path.exists(), "no golden file; see the top of this module"
    assert text_of(name) == path.read_text(encoding="utf-8")


if __name__ == "__main__":
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for each in PLANS:
        (GOLDEN / f"{each}.txt").write_text(text_of(each), encoding="utf-8")
        sys.stdout.write(f"{each}\n{text_of(each)}\n")
