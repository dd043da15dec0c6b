"""Multiclass logistic regression over parameter tables: a row of weights for each feature, a column for each class.

python examples/tables_mlr.py                    generated texts
python examples/tables_mlr.py train.svm          a file of yours in svmlight's format, classes as labels

Every worker has some of the samples. It reads the rows of the features that occur in a batch, and of no others, takes
the gradient of the loss there (`softmax_gradient`), and adds it to the table, whose server function makes a step of it:
AdaGrad, or AdaRevision, which allows for what others did meanwhile. The last run is the same on a simulated cluster. On
one machine `st.LogisticRegression` is much quicker.
"""

import sys

import numpy as np
import scipy.sparse as sp

import stretto as st
from stretto.kernels.linear.softmax import softmax_gradient


def train(X, y, apply, workers=4, epochs=10, batch=50, lam=1e-4, seed=0, **where):
    classes, which = np.unique(y, return_inverse=True)
    samples, features = X.shape
    X = sp.csr_array(X, dtype="f4")
    clocks = -(-samples // (workers * batch))  # of an epoch: a batch of each worker's

    def worker(w):
        table = w.table("weights")
        for rows in w.batches(samples, batch, passes=epochs):
            part = X[rows]
            used, at = np.unique(part.indices, return_inverse=True)
            weights = table.read(np.append(used, features))  # the last row holds the intercepts
            near = part.indptr, at, part.data  # features numbered as in `weights`
            _, slope, bias = softmax_gradient(near, which[rows], weights[:-1], weights[-1])
            gradient = np.vstack([slope / len(rows) + lam * weights[:-1], bias[None] / len(rows)])
            table.add(np.append(used, features), gradient)
            w.tick()

    def loss(view):
        weights = view["weights"]
        return softmax_gradient(X, which, weights[:-1], weights[-1])[0] / samples

    tables = {"weights": st.tables.Table(rows=features + 1, cols=len(classes), apply=apply)}
    result = st.run(worker, workers=workers, tables=tables, watch=loss, every=clocks, seed=seed, **where)
    last = result.history[-1]
    print(
        f"{apply}, clock {last.clock}: loss {last.objective:.4f}, {last.seconds:.2f} s, {last.bytes / 1e6:.1f} MB sent"
    )
    return result


def generate(samples=4_000, words=1_000, classes=5, length=20, seed=0):
    """Texts: every class has words that it uses more often."""
    draw = np.random.default_rng(seed)
    y = draw.integers(0, classes, samples)
    liked = draw.integers(0, words, (classes, words // 20))
    own = liked[y[:, None], draw.integers(0, words // 20, (samples, length))]
    text = np.where(draw.random((samples, length)) < 0.3, own, draw.integers(0, words, (samples, length)))
    rows = np.repeat(np.arange(samples), length)
    X = sp.coo_array((np.ones(text.size), (rows, text.ravel())), shape=(samples, words)).tocsr()
    return X / np.sqrt(length), y


if __name__ == "__main__":
    if len(sys.argv) > 1:
        from sklearn.datasets import load_svmlight_file

        X, y = load_svmlight_file(sys.argv[1])
    else:
        X, y = generate()
    for apply in (st.tables.adagrad(0.5), st.tables.adarevision(0.5)):
        train(X, y, apply, sync=st.BSP())
        train(X, y, apply, sync=st.SSP(2))
    cluster = st.Simulated(nodes=4, threads=1, link="100Mbit", seconds_per_item=2e-6)
    train(X, y, st.tables.adarevision(0.5), sync=st.SSP(2), comm=st.tables.Managed("20Mbit"), runtime=cluster)
