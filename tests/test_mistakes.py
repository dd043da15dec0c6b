"""What new users get wrong: messages say what is wrong where, and what to do; docs/how-to/mistakes.md lists them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import scipy.sparse as sp

import stretto as st
from clirun import stretto

draw = np.random.default_rng(0)
X = draw.normal(size=(40, 5))
y = X[:, 0].copy()
NAN = np.where(np.arange(40) == 3, np.nan, y)
LASSO, LOGISTIC = st.Lasso(alpha=0.1), st.LogisticRegression()
FRAME = pandas.DataFrame({"a": X[:, 0], "city": ["Oslo", "Rome"] * 20})
DATES = pandas.DataFrame({"a": X[:, 0], "when": pandas.date_range("2024", periods=40)})
RATINGS = st.generate_ratings(1000, 60, 50, seed=1).data

MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "1-D X": (lambda: LASSO.fit(X[:, 0], y), "Lasso: X has shape (40,), not [samples, features]. Reshape your data: "),
    "X and y swapped": (lambda: LASSO.fit(y, X), "they look swapped; write fit(X, y)"),
    "text in an array": (
        lambda: LASSO.fit(np.array([["1", "b"]] * 40), y),
        "Lasso: X holds text: 'b' at row 0, column 1; give numbers: one feature for each category",
    ),
    "numbers as text": (
        lambda: LASSO.fit(X.astype(str), y),
        "X holds numbers as text (<U32); convert it: X.astype(float)",
    ),
    "a column of text": (
        lambda: LASSO.fit(FRAME, y),
        "Lasso: column 'city' of X holds text, such as 'Oslo'; give numbers: one feature for each category",
    ),
    "a column of dates": (lambda: LASSO.fit(DATES, y), "column 'when' of X holds Datetime"),
    "complex X": (lambda: LASSO.fit(X + 1j, y), "Complex data not supported: X holds complex128; take X.real"),
    "ragged lists": (
        lambda: LASSO.fit([[1, 2], [3]], [1, 2]),
        "the rows of X have different lengths: row 0 has 2 values and row 1 has 1",
    ),
    "too few targets": (lambda: LASSO.fit(X, y[:-1]), "X has 40 samples and y has 39; give one target for each"),
    "several targets": (lambda: LASSO.fit(X, X[:, :2]), "y should be a 1d array, and has shape (40, 2); fit one model"),
    "NaN among targets": (
        lambda: LASSO.fit(X, NAN),
        "Input y contains NaN. The first is at sample 3; leave such samples",
    ),
    "NaN in X": (lambda: LASSO.fit(np.where(X[1, 2] == X, np.nan, X), y), "nan at row 1, column 2"),
    "fractions for classes": (
        lambda: LOGISTIC.fit(X, y),
        f"Unknown label type: continuous. Classes are expected, and y holds {y[0]} at sample 0; to predict numbers "
        "take st.Lasso",
    ),
    "a negative alpha": (lambda: st.Lasso(-1.0).fit(X, y), "Lasso: alpha must be a number more than 0; got -1.0"),
    "alpha=0": (lambda: st.Lasso(0.0).fit(X, y), "without a penalty this is plain least squares"),
    "n_jobs=0": (lambda: st.Lasso(n_jobs=0).fit(X, y), "n_jobs=0, or st.Threads(0), has no meaning"),
    "an unknown loss": (
        lambda: st.MatrixFactorization(loss="hinge").fit(RATINGS),
        "must be one of 'squared', 'absolute'",
    ),
    "a negative index": (
        lambda: st.MatrixFactorization().fit(([-1], [0], [1.0])),
        "negative row index -1 at position 0",
    ),
    "a share as text": (
        lambda: st.MatrixFactorization(max_iter=1).fit(RATINGS, validation="0.1"),
        "cannot read ratings from the text '0.1'; a share is a number, such as 0.1",
    ),
    "a name of another spelling": (
        lambda: st.MatrixFactorisation,
        "module 'stretto' has no attribute 'MatrixFactorisation'; did you mean MatrixFactorization?",
    ),
    "another number of features": (
        lambda: LASSO.fit(X, y).predict(X[:, :3]),
        "X has 3 features, but Lasso is expecting 5",
    ),
    "one sample to predict": (lambda: LASSO.fit(X, y).predict(X[0]), "X.reshape(1, -1) is one sample"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_in_python(name: str) -> None:
    wrong, says = MISTAKES[name]
    with pytest.raises((ValueError, AttributeError)) as caught:
        wrong()
    assert says in str(caught.value)
    assert len(str(caught.value)) < 400


def test_what_is_no_mistake_still_works() -> None:
    for given in (X.astype(object), X.tolist(), sp.csr_array(X), sp.csr_array((10 * X).astype(np.int64))):
        assert st.Lasso(alpha=0.1).fit(given, y).coef_.shape == (5,)
    assert not hasattr(st, "nothing_like_it")
    with pytest.raises(AttributeError, match=r"has no attribute 'nothing_like_it'$"):
        _ = st.nothing_like_it


TYPED: list[tuple[list[str], str]] = [
    (["train", "mf", "r.dat", "--solver", "als", "--learning-rate", "0.1"], "belongs to --solver sgd; leave it out"),
    (
        ["resume", "r.dat"],
        "holds no run record (run.json is missing); name the folder of a run: what --out or record= named",
    ),
    (["train", "lasso", "r.dat"], "looks like ratings, with :: between fields; train on them with: stretto train mf"),
    (["train", "lasso", "s.csv", "--target", "y", "--alpha", "0"], "--alpha must be a number more than 0; got 0.0"),
    (["train", "mf", "r.dat", "--epoch", "3"], "--epochs"),
    (["trian", "mf", "r.dat"], "Did you mean 'train'?"),
]


@pytest.mark.parametrize(("typed", "says"), TYPED, ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_mistakes_on_the_command_line(
    typed: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    Path("r.dat").write_text("".join(f"{k % 7}::{k % 11}::{k % 5}::0\n" for k in range(77)))
    Path("s.csv").write_text("a,y\n" + "".join(f"{k % 7},{k % 5}\n" for k in range(77)))
    said = stretto(*typed, code=2).err
    assert says in " ".join(said.replace("│", " ").split())


def test_the_page_lists_these_mistakes() -> None:
    page = (Path(__file__).parents[1] / "docs" / "how-to" / "mistakes.md").read_text()
    rows = [line for line in page.splitlines() if re.match(r"\| \d+ \|", line)]
    assert [int(row.split("|")[1]) for row in rows] == list(range(1, len(rows) + 1))
    assert len(rows) >= 20
