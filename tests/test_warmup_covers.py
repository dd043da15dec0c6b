"""What warmup compiles, and a wheel ships, is what the first fits of ordinary users need: nothing is left to compile.

A form of a kernel is its function and the types it is called with. Everything runs in a process of its own, in which no
other test has loaded a form.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = """
import gc, warnings
import numpy as np, scipy.sparse as sp
import stretto as st
from stretto.kernels.build.linking import EntryPoint
from stretto.warmup.tasks import tasks

warnings.simplefilter("ignore")


def forms():
    return {(e.py_func.__module__, e.py_func.__qualname__, types)
            for e in gc.get_objects() if isinstance(e, EntryPoint) for types in e.overloads}


for task in tasks():
    task.run()
shipped = forms()
rng = np.random.default_rng(0)
X = rng.normal(size=(120, 30)) * (rng.random((120, 30)) < 0.5)
y = 2 * X[:, 0] - X[:, 1] + 0.3 * rng.normal(size=120)
classes = np.digitize(y, [-1.0, 0.5])
wide = sp.csr_array(X)
wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
fixed = X.copy()
fixed.flags.writeable = False
inputs = {
    "C": X, "F": np.asfortranarray(X), "float32": X.astype("f4"), "int": (10 * X).astype(int), "read-only": fixed,
    "csr": sp.csr_array(X), "csc": sp.csc_array(X), "coo": sp.coo_array(X), "int64": wide,
    "csr float32": sp.csr_array(X.astype("f4")),
}
large = sp.random(3000, 5000, density=0.002, format="csr", random_state=0)
target = large @ rng.normal(size=5000)
counts = sp.csr_array(rng.poisson(0.3, (100, 80)))
ratings = st.generate_ratings(5_000, 200, 100, seed=0).data
matrix = sp.csr_array((ratings.values.astype("f8"), (ratings.rows, ratings.cols)), shape=ratings.shape)
uses = {}


def exchange(A):
    for labels, options in ((y, {"alpha": 0.01}), (y, {"l1_ratio": 0.0}), (y > 0, {"loss": "logistic"})):
        st.run(st.cocoa(A, labels, max_rounds=2, **options), runtime=st.Serial())


for name, A in inputs.items():
    uses |= {
        f"Lasso, {name}": lambda A=A: st.Lasso(0.01).fit(A, y).predict(A),
        f"ElasticNet, {name}": lambda A=A: st.ElasticNet(0.01).fit(A, y).score(A, y),
        f"two classes, {name}": lambda A=A: st.LogisticRegression(l1_ratio=1.0).fit(A, y > 0).predict_proba(A),
        f"weights, {name}": lambda A=A: st.LogisticRegression(class_weight="balanced", l1_ratio=1.0).fit(
            A, y > 0, np.abs(y) + 1
        ),
        f"support vectors, {name}": lambda A=A: st.LinearSVC(loss="hinge").fit(A, classes).predict(A),
        f"factorization machine, {name}": lambda A=A: st.FactorizationMachine(early_stopping=True).fit(
            A, y > 0, np.abs(y) + 1
        ).predict_proba(A),
        f"svrg, {name}": lambda A=A: st.LogisticRegression(solver="svrg", l1_ratio=0.5).fit(A, y > 0).predict(A),
        f"CoCoA, {name}": lambda A=A: exchange(A),
        f"three classes, {name}": lambda A=A: st.LogisticRegression(l1_ratio=1.0).fit(A, classes).predict(A),
    }
    uses |= {
        f"groups, {name}": lambda A=A: st.GroupLasso(0.01, groups=3).fit(A, y).predict(A),
        f"several targets, {name}": lambda A=A: st.MultiTaskLasso(0.01).fit(A, np.c_[y, -y]).predict(A),
        f"counts, {name}": lambda A=A: st.PoissonRegressor(0.01, l1_ratio=1.0).fit(A, np.abs(np.round(y))).predict(A),
        f"counts, ridge, {name}": lambda A=A: st.PoissonRegressor(0.01).fit(A, np.abs(np.round(y))).predict(A),
        f"outliers, {name}": lambda A=A: st.HuberElasticNet(0.01).fit(A, y, np.abs(y)).predict(A),
    }
    if name in ("C", "csr", "float32"):
        uses[f"LassoCV, {name}"] = lambda A=A: st.LassoCV(cv=3).fit(A, y)
for name in ("C", "float32"):
    A = inputs[name]
    half = y[:14] > np.median(y[:14])
    uses[f"ridge, wide, {name}"] = lambda A=A[:14]: st.LogisticRegression(l1_ratio=0.0).fit(A, half)
    many = np.tile(A, (1, 20)) + rng.normal(size=(120, 600)).astype(A.dtype)
    tall = np.tile(many, (6, 1))
    uses[f"two classes, many features, {name}"] = lambda A=many: st.LogisticRegression(l1_ratio=1.0).fit(A, y > 0)
    long = np.tile(A, (500, 1))
    for ratio in (0.0, 1.0):
        uses[f"many samples, {ratio}, {name}"] = lambda A=long, ratio=ratio: st.LogisticRegression(l1_ratio=ratio).fit(
            A, np.tile(y, 500) > 0
        )
    again = st.LogisticRegression(l1_ratio=1.0, warm_start=True)
    uses[f"warm start, {name}"] = lambda A=A, again=again: again.fit(A, y > 0).fit(A, y > 0.5)
    uses[f"ridge, many features, {name}"] = lambda A=tall: st.LogisticRegression(l1_ratio=0.0).fit(A, np.tile(y, 6) > 0)
uses["Lasso, large"] = lambda: st.Lasso(0.001).fit(large, target)
uses["two classes, large"] = lambda: st.LogisticRegression(C=10.0, l1_ratio=1.0).fit(large, target > 0)
again = st.LogisticRegression(l1_ratio=0.0, warm_start=True)
uses["two classes, ridge, large"] = lambda: again.fit(large, target > 0).fit(large.astype("f4"), target > 0)
thirds = np.digitize(target, [-1, 1])
uses["sgd, three classes"] = lambda: st.LogisticRegression(solver="sgd", max_iter=2, l1_ratio=1.0).fit(large, thirds)
settings = [{}, {"solver": "als"}, {"solver": "ccd"}, {"solver": "als", "implicit": True}, {"biases": False},
            {"optimizer": "adagrad"}, {"early_stopping": True}, {"n_components": 32}]


def factorise(A, given):
    model = st.MatrixFactorization(**{"n_components": 8, "max_iter": 2, "random_state": 0} | given).fit(A)
    model.predict([[0, 1]]), model.recommend([0], 3), model.similar_items([0], 3), model.score(A), model.transform(A)
    model.similar_users([0], 3), model.explain_recommendation(0, 1)
    if given.get("solver"):
        model.set_params(duplicates="last").partial_fit(A)
    st.evaluate(model, None, split=st.split.by_user(A, test=0.5), metrics="recall@3")


for given in settings:
    for name, A in {"Data": ratings, "csr": matrix, "dense": matrix.toarray()}.items():
        uses[f"{given}, {name}"] = lambda A=A, given=given: factorise(A, given)
for linear in ("cholesky", "cg"):
    weighted = st.MatrixFactorization(8, solver="als", linear_solver=linear, max_iter=2, random_state=0)
    uses[f"weights of ratings, {linear}"] = lambda m=weighted: m.fit(ratings, weights=np.arange(1.0, len(ratings) + 1))


def find_topics(count):
    model = st.LatentDirichletAllocation(count, max_iter=2, random_state=0).fit(counts)
    model.transform(counts), model.browse(counts), model.match(model)
    if count < 200:
        model.merge_topics(1)


for count in (2, 20, 200, 1000):
    uses[f"{count} topics"] = lambda count=count: find_topics(count)
for name, use in uses.items():
    use()
    for module, kernel, types in sorted(forms() - shipped, key=str):
        print(name, module, kernel, types)
    shipped |= forms()
print("uses:", len(uses))
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_first_fits_find_everything_compiled() -> None:
    env = {**os.environ, "STRETTO_COMPILE_NOTICE": "0"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["uses: 189"]
