"""The shipped programs, part two: topic model, boosted trees, Gauss-Seidel, word vectors. Each is the same interpreted,
compiled on any number of workers and as plain Python; and each learns.
"""

from __future__ import annotations

import math
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import stretto as st
from examples_run import lines_written, load, prepares_once, strategies, three_ways
from stretto.errors import RunError

lda, gbt, gauss_seidel, skipgram = (load(name) for name in ("lda", "gbt", "gauss_seidel", "skipgram"))


def copied(*arrays: Any) -> tuple[Any, ...]:
    return tuple(st.state(np.asarray(array)) for array in arrays)


# --- latent Dirichlet allocation ------------------------------------------------------------------------------------

TOPICS = 4
tokens = lda.generate(documents=30, vocabulary=40, topics=TOPICS, length=25).expanded().numbered(values=False)


def blank() -> tuple[Any, ...]:
    """topic, docs, words, totals, all zero."""
    shapes = len(tokens), (tokens.shape[0], TOPICS), (tokens.shape[1], TOPICS), TOPICS
    return tuple(st.zeros(shape, "i4") for shape in shapes)


@pytest.fixture(scope="module")
def begun() -> tuple[Any, ...]:
    topic, docs, words, totals = blank()
    lda.begin(tokens, topic, docs, words, st.buffer(totals), TOPICS, 3)
    return topic, docs, words, totals


def test_lda_begins() -> None:
    def make() -> tuple[Any, ...]:
        *rest, totals = blank()
        return tokens, *rest, st.buffer(totals), TOPICS, 3

    plan = three_ways(lda.begin.using(blocks=(4, 4), width=2), make)
    assert strategies(plan) == ["2d unordered"]


@pytest.mark.parametrize("options", [{}, {"blocks": (4, 4), "width": 4}, {"blocks": (8, 8), "width": 3}])
def test_lda_sweeps(begun: tuple[Any, ...], options: dict[str, Any]) -> None:
    """Integers are compared exactly: plain Python draws the very same topics."""

    def make() -> tuple[Any, ...]:
        topic, docs, words, totals = copied(*begun)
        return tokens, topic, docs, words, totals, st.buffer(totals), 0.1, 0.01, 7

    plan = three_ways(lda.sweep.using(**options), make)
    visits, width = plan.parts[0].prepared.visits, options.get("width", 16)
    assert strategies(plan) == ["2d unordered"]
    assert len(visits.waves) >= math.ceil(len(visits) / width)
    assert max(map(len, visits.waves)) <= width


def test_lda_counts_stay_true(begun: tuple[Any, ...]) -> None:
    topic, docs, words, totals = copied(*begun)
    loop = lda.sweep.using(runtime=st.Threads(2), blocks=(8, 8))
    for t in range(5):
        loop(tokens, topic, docs, words, totals, st.buffer(totals), 0.1, 0.01, t)
    wanted_docs, wanted_words = np.zeros_like(np.asarray(docs)), np.zeros_like(np.asarray(words))
    for (d, w), p in tokens:
        wanted_docs[d, topic[p]] += 1
        wanted_words[w, topic[p]] += 1
    np.testing.assert_array_equal(docs, wanted_docs)
    np.testing.assert_array_equal(words, wanted_words)
    np.testing.assert_array_equal(totals, np.bincount(np.asarray(topic), minlength=TOPICS))


def test_lda_likelihood(begun: tuple[Any, ...]) -> None:
    _, docs, words, totals = begun
    plan = three_ways(lda.likelihood, lambda: (tokens, docs, words, totals, 0.1, 0.01, st.accumulator(0.0)), rtol=1e-12)
    assert strategies(plan) == ["independent"]


def test_lda_learns(capsys: pytest.CaptureFixture[str]) -> None:
    lda.train(lda.generate(documents=100, vocabulary=200, topics=5, length=60), topics=5, sweeps=40)
    perplexity = [float(line.split()[-1]) for line in capsys.readouterr().out.splitlines()]
    assert len(perplexity) == 4
    assert perplexity[-1] < perplexity[0] < 200  # 200 words that are all alike would have a perplexity of 200
    assert perplexity[-1] < 75


def test_lda_in_few_lines() -> None:
    assert lines_written("lda") <= 60


def test_lda_prepares_once(begun: tuple[Any, ...]) -> None:
    def make() -> tuple[Any, ...]:
        topic, docs, words, totals = copied(*begun)
        return tokens, topic, docs, words, totals, st.buffer(totals), 0.1, 0.01, 7

    prepares_once(lda.sweep, make)


# --- gradient boosted trees -----------------------------------------------------------------------------------------


def test_gbt_histograms() -> None:
    draw = np.random.default_rng(0)
    bins, node = draw.integers(gbt.BINS, size=(5, 300)).astype("u1"), draw.integers(4, size=300)
    gradient, hessian = draw.normal(size=300), draw.random(300)

    def make() -> tuple[Any, ...]:
        return bins, node, gradient, hessian, st.zeros((5, 4, gbt.BINS), "f8"), st.zeros((5, 4, gbt.BINS), "f8")

    plan = three_ways(gbt.histograms.using(blocks=5), make, rtol=0, atol=0)
    assert strategies(plan) == ["1d"]
    assert len(plan.parts[0].prepared.visits) == 5


def test_gbt_cuts() -> None:
    draw = np.random.default_rng(1)
    G, H = draw.normal(size=(4, 3, 20)), draw.random((4, 3, 20)) + 0.1

    def make() -> tuple[Any, ...]:
        return G, H, 1.0, st.zeros((4, 3), "f8"), st.zeros((4, 3), "i4")

    plan = three_ways(gbt.cuts.using(blocks=4), make, rtol=1e-12)
    assert strategies(plan) == ["independent"]


def test_gbt_refuses_a_node_that_is_not_there() -> None:
    bins = np.zeros((2, 3), "u1")
    tables = st.zeros((2, 1, gbt.BINS), "f8"), st.zeros((2, 1, gbt.BINS), "f8")
    with pytest.raises(RunError, match="subscript 5 of G is outside its axis 1, which has 1 elements"):
        gbt.histograms(bins, np.array([0, 5, 0]), np.ones(3), np.ones(3), *tables)


def test_gbt_is_as_good_as_scikit_learn() -> None:
    from sklearn.ensemble import HistGradientBoostingRegressor

    X, y = gbt.generate(1500)
    train, test = slice(None, 1000), slice(1000, None)
    ours = gbt.Boosted(trees=30, depth=3).fit(X[train], y[train])
    theirs = HistGradientBoostingRegressor(
        max_iter=30, max_depth=3, max_leaf_nodes=None, learning_rate=0.1, l2_regularization=1.0, max_bins=gbt.BINS,
        min_samples_leaf=1, early_stopping=False,
    ).fit(X[train], y[train])  # fmt: skip
    error, other = (float(np.mean((model.predict(X[test]) - y[test]) ** 2)) for model in (ours, theirs))
    assert error < 0.25 * np.var(y[test])
    assert error == pytest.approx(other, rel=0.05)


def test_gbt_tells_two_classes_apart() -> None:
    X, y = gbt.generate(1500)
    high = (y > np.median(y)).astype(float)
    model = gbt.Boosted(trees=30, depth=3, loss="logistic").fit(X[:1000], high[:1000])
    assert np.mean((model.predict(X[1000:]) > 0) == high[1000:]) > 0.8


def test_gbt_is_the_same_on_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = gbt.generate(600)
    found = []
    for runtime in (st.Serial(), st.Threads(2)):
        for name in ("histograms", "cuts"):
            monkeypatch.setattr(gbt, name, getattr(gbt, name).using(runtime=runtime, blocks=10))
        found.append(gbt.Boosted(trees=5, depth=3).fit(X, y).predict(X))
    assert found[0].tobytes() == found[1].tobytes()


# --- Gauss-Seidel ---------------------------------------------------------------------------------------------------

STENCILS = {"sweep5": "2d ordered", "sweep9": "2d transformed"}


def rough(n: int, m: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    draw = np.random.default_rng(n)
    return draw.normal(size=(n, m)), draw.normal(size=(n, m))


@pytest.mark.parametrize("name", STENCILS)
@pytest.mark.parametrize(
    ("shape", "options"), [((17, 23), {}), ((17, 23), {"blocks": (4, 3)}), ((30, 5), {"blocks": 6})]
)
def test_gauss_seidel(name: str, shape: tuple[int, int], options: dict[str, Any]) -> None:
    u, f = rough(*shape)
    plan = three_ways(
        getattr(gauss_seidel, name).using(**options), lambda: (*copied(u, f), 0.1, 1.3, st.accumulator(0.0)), rtol=1e-12
    )
    assert strategies(plan) == [STENCILS[name]]


@pytest.mark.parametrize("name", STENCILS)
def test_gauss_seidel_keeps_the_order_of_the_loop(name: str) -> None:
    """To the last bit what NumPy numbers give, row after row; whatever the plan makes of the grid."""
    u, f = rough(60, 70)
    ours = st.state(u)
    getattr(gauss_seidel, name).using(blocks=(8, 8), runtime=st.Threads(3))(ours, f, 0.1, 1.3, st.accumulator(0.0))
    h, omega = 0.1, 1.3
    for i in range(1, 59):
        for j in range(1, 69):
            near = u[i + 1, j] + u[i, j + 1] + u[i - 1, j] + u[i, j - 1]
            mean = (h * h * f[i, j] + u[i + 1, j] + u[i, j + 1] + u[i - 1, j] + u[i, j - 1]) / 4
            if name == "sweep9":
                load = 8 * f[i, j] + f[i + 1, j] + f[i, j + 1] + f[i - 1, j] + f[i, j - 1]
                far = u[i + 1, j + 1] + u[i + 1, j - 1] + u[i - 1, j + 1] + u[i - 1, j - 1]
                mean = (h * h * load / 2 + far + 4 * near) / 20
            u[i, j] += omega * (mean - u[i, j])
    assert np.asarray(ours).tobytes() == u.tobytes()


def residual(u: NDArray[np.float64], f: NDArray[np.float64], h: float) -> float:
    inner = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]
    return float(np.abs(inner / h**2 + f[1:-1, 1:-1]).max())


@pytest.mark.parametrize(("omega", "factor"), [(1.0, 0.9), (1.8, 0.5)])
def test_gauss_seidel_converges(omega: float, factor: float) -> None:
    """Every ten sweeps leave a part of what was wrong, a smaller one with over-relaxation."""
    u, f, h, _ = gauss_seidel.problem(33)
    left = []
    for _ in range(8):
        for _ in range(10):
            gauss_seidel.sweep5(u, f, h, omega, st.accumulator(0.0))
        left.append(residual(np.asarray(u), np.asarray(f), h))
    assert all(after < factor * before for before, after in pairwise(left)), left


@pytest.mark.parametrize(("name", "order"), [("sweep5", 2), ("sweep9", 4)])
def test_gauss_seidel_is_as_accurate_as_its_stencil(name: str, order: int) -> None:
    """Half the width of a cell, a quarter of the error with 5 points, a sixteenth with 9."""
    errors = []
    for n in (17, 33):
        u = gauss_seidel.solve(getattr(gauss_seidel, name), n, sweeps=200, every=1000)
        errors.append(np.abs(np.asarray(u) - gauss_seidel.problem(n)[3]).max())
    assert errors[0] / errors[1] == pytest.approx(2**order, rel=0.1)


# --- skip-gram ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small() -> tuple[Any, ...]:
    pairs, names = skipgram.pairs_of(skipgram.generate(sentences=12, groups=2, size=8, length=10), least=1)
    return pairs.numbered(values=False), names


@pytest.mark.parametrize("options", [{"blocks": 20, "width": 4}, {"blocks": 3, "width": 16}])
def test_skipgram(small: tuple[Any, ...], options: dict[str, Any]) -> None:
    pairs, names = small

    def make() -> tuple[Any, ...]:
        words, contexts = (st.random((len(names), 8), 0.3, seed) for seed in (0, 1))
        buffers = st.buffer(words), st.buffer(contexts)
        return pairs, np.arange(len(names)), words, contexts, *buffers, 2, 0.05, 3, st.accumulator(0.0)

    plan = three_ways(skipgram.epoch.using(**options), make, rtol=1e-3, atol=1e-5)
    assert strategies(plan) == ["buffered"]
    assert len(plan.parts[0].prepared.visits.waves) == math.ceil(options["blocks"] / options["width"])


def test_skipgram_prepares_once(small: tuple[Any, ...]) -> None:
    pairs, names = small

    def make() -> tuple[Any, ...]:
        words, contexts = (st.random((len(names), 8), 0.3, seed) for seed in (0, 1))
        buffers = st.buffer(words), st.buffer(contexts)
        return pairs, np.arange(len(names)), words, contexts, *buffers, 2, 0.05, 3, st.accumulator(0.0)

    prepares_once(skipgram.epoch, make)


def test_skipgram_learns(capsys: pytest.CaptureFixture[str]) -> None:
    pairs, names = skipgram.pairs_of(skipgram.generate(sentences=400, groups=4, size=12))
    vectors = skipgram.train(pairs, width=16)
    loss = [float(line.split()[-1]) for line in capsys.readouterr().out.splitlines()]
    assert loss == sorted(loss, reverse=True)
    assert loss[-1] < 0.8 * loss[0] < 6 * math.log(2)  # what coins would give for a neighbour and five others
    for word in range(12):
        assert all(names[other][0] == names[word][0] for other in skipgram.closest(vectors, word))


@pytest.mark.parametrize("module", [lda, gbt, gauss_seidel, skipgram], ids=lambda module: module.__name__)
def test_examples_say_how_to_run_them(module: ModuleType) -> None:
    name = module.__name__.rpartition(".")[2]
    assert f"python examples/{name}.py  " in str(module.__doc__)
