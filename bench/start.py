"""Getting started: what importing costs, and the first fit of each estimator in a process of its own.

Seconds of the processor, the median of new processes (from source, one process). A fit's seconds begin when all the
modules that it will need are imported. Three states of a machine:

- from source: nothing was ever compiled there;
- from the wheel: nothing was ever compiled there, and the wheel's compiled kernels are found. It is the newest wheel in
  `dist`, unpacked; `make wheel` builds it;
- again: a process that finds what an earlier one has compiled.

A fit is of some thousand numbers, so nearly all of it is compiling or loading.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from . import report

REPEATS = 3
ROOT = Path(__file__).parent.parent
IMPORT = "import time, numpy\nt = time.process_time()\nimport stretto\n{}\nprint(time.process_time() - t)"
IMPORTS = {
    "`import stretto`": "",
    "`stretto.Lasso`": "stretto.Lasso",
    "`stretto.LogisticRegression`": "stretto.LogisticRegression",
    "`stretto.MatrixFactorization`": "stretto.MatrixFactorization",
    "`stretto.LatentDirichletAllocation`": "stretto.LatentDirichletAllocation",
    "`stretto.parallel`": "stretto.parallel",
}
DATA = """
import warnings
import numpy as np, scipy.sparse as sp
import stretto as st
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
X = rng.normal(size=(200, 50)) * (rng.random((200, 50)) < 0.4)
y = X[:, 0] - 2 * X[:, 1] + rng.normal(size=200)
classes = np.digitize(y, [-1.0, 1.0])
S = sp.csr_array(X)
counts = sp.csr_array(rng.poisson(0.3, (200, 100)))
ratings = st.generate_ratings(5_000, 300, 200, seed=0).data
"""
FITS = {
    "MatrixFactorization": "st.MatrixFactorization(8, max_iter=3, random_state=0).fit(ratings)",
    "MatrixFactorization, ALS": "st.MatrixFactorization(8, max_iter=3, solver='als', random_state=0).fit(ratings)",
    "MatrixFactorization, CCD++": "st.MatrixFactorization(8, max_iter=3, solver='ccd', random_state=0).fit(ratings)",
    "MatrixFactorization, implicit": "st.MatrixFactorization(8, max_iter=3, solver='als', implicit=True, "
    "random_state=0).fit(ratings)",
    "LatentDirichletAllocation": "st.LatentDirichletAllocation(8, max_iter=5, random_state=0).fit(counts)",
    "Lasso, dense": "st.Lasso(0.01).fit(X, y)",
    "Lasso, sparse": "st.Lasso(0.01).fit(S, y)",
    "ElasticNet": "st.ElasticNet(0.01).fit(X, y)",
    "LassoCV": "st.LassoCV(cv=3).fit(X, y)",
    "LogisticRegression, two classes, dense": "st.LogisticRegression(l1_ratio=1.0).fit(X, y > 0)",
    "LogisticRegression, two classes, sparse": "st.LogisticRegression(l1_ratio=1.0).fit(S, y > 0)",
    "LogisticRegression, three classes, dense": "st.LogisticRegression(l1_ratio=1.0).fit(X, classes)",
    "LogisticRegression, three classes, sparse": "st.LogisticRegression(l1_ratio=1.0).fit(S, classes)",
    "README's loop": "loop()",
}
LOOP = """
@st.parallel
def epoch(ratings, W, H, lr, lam, loss):
    for (i, j), r in ratings:
        e = r - W[i] @ H[j]
        loss += e * e
        W[i], H[j] = W[i] + lr * (e * H[j] - lam * W[i]), H[j] + lr * (e * W[i] - lam * H[j])

def loop():
    W, H = st.random((ratings.shape[0], 16), scale=0.1), st.random((ratings.shape[1], 16), scale=0.1)
    epoch(ratings, W, H, 0.01, 0.05, st.accumulator(0.0))
"""
# The first process says which modules a fit imports; the others import them first.
SCRIPT = """
import importlib, sys, time
from pathlib import Path
before = Path({modules!r})
if before.exists():
    for name in before.read_text().split():
        try:
            importlib.import_module(name)
        except ImportError:
            pass
{data}
began = time.process_time()
{fit}
taken = time.process_time() - began
before.write_text("\\n".join(name for name in sys.modules if "stretto_loop" not in name and name != "__main__"))
print(taken)
"""


def run(script: str, cache: str, source: Path | None = None) -> float:
    """The number a script prints last, in a process of its own. source: where `stretto` is, if elsewhere."""
    env = {**os.environ, "STRETTO_CACHE": cache, "STRETTO_COMPILE_NOTICE": "0"}
    if source is not None:
        env["PYTHONPATH"] = str(source)
    with tempfile.TemporaryDirectory() as folder:  # a loop's source has to be in a file
        path = Path(folder) / "script.py"
        path.write_text(script, encoding="utf-8")
        done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=True, env=env)
    return float(done.stdout.split()[-1])


def first(fit: str, modules: Path, caches: list[str], source: Path | None = None) -> float:
    """The median seconds of a fit, a process for each cache."""
    script = SCRIPT.format(modules=str(modules), data=DATA + LOOP, fit=fit)
    return statistics.median(run(script, cache, source) for cache in caches)


def shipped(folder: Path) -> Path | None:
    """The newest wheel, unpacked; None without one."""
    wheels = sorted((ROOT / "dist").glob("*.whl"), key=lambda path: path.stat().st_mtime)
    if not wheels:
        return None
    with zipfile.ZipFile(wheels[-1]) as wheel:
        wheel.extractall(folder)
    return folder


def main() -> None:
    """Measure imports, then fits."""
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        imports = []
        for name, code in IMPORTS.items():
            taken = [run(IMPORT.format(code), str(root / "imports")) for _ in range(2 * REPEATS + 1)]
            imports.append([name, f"{statistics.median(taken):.2f} s", "1.0 s"])
        wheel = shipped(root / "wheel")
        fits = []
        for at, (name, fit) in enumerate(FITS.items()):
            modules = root / f"modules-{at}"
            warm = str(root / f"warm-{at}")
            first(fit, modules, [warm])
            again = first(fit, modules, [warm] * REPEATS)
            cold = first(fit, modules, [str(root / f"cold-{at}")])
            of_wheel = (
                first(fit, modules, [str(root / f"none-{at}-{k}") for k in range(REPEATS)], wheel) if wheel else None
            )
            told = "no wheel in dist" if of_wheel is None else f"{of_wheel:.2f} s"
            fits.append([name, told, f"{cold:.1f} s", f"{again:.2f} s"])
            print(*fits[-1], flush=True)
    fits.append(["asked at most", "2 s, a loop 3 s", "6 s, a loop 3 s", ""])
    body = report.table(["imported, beyond NumPy", "measured", "asked at most"], imports)
    body += "\n\n" + report.table(["first fit in a process", "from the wheel", "from source", "again"], fits)
    report.save("start", "Getting started", report.text(__doc__), body)
