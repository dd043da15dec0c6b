"""Epochs of factorization machines against a plain program with two loops over pairs, and the layout of batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

from stretto.runtime.runtimes import Serial, Threads
from stretto.solvers.factorization_machine.batches import Batches, SampleRows
from stretto.solvers.factorization_machine.machine import Epochs, HeldOut, Machine, StepSizes

N, P = 90, 12
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, P)) * (RNG.random((N, P)) < 0.5)
CSR = scipy.sparse.csr_array(X)
PARTS = (CSR.indptr, CSR.indices, CSR.data)
FACTOR = RNG.random(P) + 0.5
STEPS = StepSizes(rate=0.2, rate_bias=0.3, l2=0.01, l2_factors=0.02)


def laid(crew: Any, size: int = 16) -> tuple[Any, Any]:
    order = np.random.default_rng(1).permutation(N)
    return order, Batches.of(SampleRows.of(PARTS, order, FACTOR, crew, "exact"), size, P, crew, "exact")


def test_batches_hold_every_entry_twice() -> None:
    with Serial().open() as crew:
        order, batches = laid(crew)
    dense = (X * FACTOR)[order].astype(np.float32)
    assert batches.first_row.tolist() == [0, 16, 32, 48, 64, 80, 90]
    for b in range(len(batches)):
        low, high = batches.first_row[b], batches.first_row[b + 1]
        by_features = np.zeros((high - low, P), np.float32)
        listed = range(batches.first_feature[b], batches.first_feature[b + 1])
        for t in listed:
            own = slice(batches.entries[t], batches.entries[t + 1])
            assert np.all(np.diff(batches.entry_row[own]) > 0)
            by_features[batches.entry_row[own], batches.features[t]] = batches.entry_value[own]
        assert len({int(batches.features[t]) for t in listed}) == len(listed)
        np.testing.assert_array_equal(by_features, dense[low:high])
        starts = batches.rows.starts[low : high + 1]
        assert np.diff(starts).tolist() == (dense[low:high] != 0).sum(axis=1).tolist()


class Plain:
    """A machine with one array of factors for each field, whose scores and slopes are sums over pairs."""

    def __init__(self, machine: Machine) -> None:
        self.field, self.F, self.k = machine.field, machine.fields, machine.k
        lane = self.F * self.k
        self.V = machine.weights[:, :lane].astype(float).reshape(P, self.F, self.k)
        self.w, self.b = machine.weights[:, lane].astype(float), float(machine.bias[0])
        self.squares: list[Any] = [np.ones_like(self.V), np.ones_like(self.w), 1.0]

    def score(self, x: Any) -> float:
        z = self.b + float(self.w @ x)
        for i in range(P):
            for j in range(i):
                z += x[i] * x[j] * float(self.V[i, self.field[j]] @ self.V[j, self.field[i]])
        return z

    def step(self, rows: Any, y: Any, mass: Any, share: Any, loss: str) -> float:
        G, g, total, cost = np.zeros_like(self.V), np.zeros_like(self.w), 0.0, 0.0
        for x, t, m in zip(rows, y, mass, strict=True):
            z = self.score(x)
            slope = m * (z - t if loss == "squared" else 1 / (1 + np.exp(-z)) - t)
            cost += m * (0.5 * (z - t) ** 2 if loss == "squared" else np.logaddexp(0, z) - t * z)
            total += slope
            for i in np.flatnonzero(x):
                g[i] += slope * x[i] + m * share[i] * STEPS.l2 * self.w[i]
                G[i] += m * share[i] * STEPS.l2_factors * self.V[i]
                for j in range(P):
                    if j != i:
                        G[i, self.field[j]] += slope * x[i] * x[j] * self.V[j, self.field[i]]
        self.squares[0] += G**2
        self.squares[1] += g**2
        self.squares[2] += total**2
        self.V -= STEPS.rate * G / np.sqrt(self.squares[0])
        self.w -= STEPS.rate * g / np.sqrt(self.squares[1])
        self.b -= STEPS.rate_bias * total / np.sqrt(self.squares[2])
        return cost


@pytest.mark.parametrize(("fields", "k"), [(1, 4), (1, 15), (1, 20), (3, 2), (2, 17)])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_an_epoch_is_that_of_a_plain_program(fields: int, k: int, loss: str) -> None:
    field = (np.arange(P) % fields).astype(np.int32)
    machine = Machine.start(field, fields, k, spread=0.5, seed=3, profile="exact")
    machine.bias[0] = 0.3
    share = (1 + RNG.random(P)).astype(np.float32)
    with Serial().open() as crew:
        order, batches = laid(crew)
        rows, mass = (X * FACTOR)[order], 0.5 + RNG.random(N)
        y = RNG.normal(size=N) if loss == "squared" else RNG.integers(0, 2, N).astype(float)
        plain = Plain(machine)
        np.testing.assert_allclose(machine.scores(batches.rows, crew), [plain.score(x) for x in rows], rtol=1e-4)
        visited = np.array([2, 0, 5, 1])
        cost = Epochs(machine, batches, y, mass, share, loss, crew).run(visited, STEPS)
        expected = 0.0
        for b in visited:
            own = slice(batches.first_row[b], batches.first_row[b + 1])
            expected += plain.step(rows[own], y[own], mass[own], share, loss)
        scores = machine.scores(batches.rows, crew)
        held = HeldOut(batches.after(4), y[64:], mass[64:])
        losses = machine.losses(held, loss, crew)
    assert cost == pytest.approx(expected, rel=1e-4)
    lane = fields * k
    np.testing.assert_allclose(machine.weights[:, :lane].reshape(P, fields, k), plain.V, atol=2e-5)
    np.testing.assert_allclose(machine.weights[:, lane], plain.w, atol=2e-5)
    assert machine.bias[0] == pytest.approx(plain.b, abs=1e-5)
    assert not machine.weights[:, lane + 1 :].any()
    z = np.array([plain.score(x) for x in rows])
    np.testing.assert_allclose(scores, z, atol=1e-3)
    z = scores[64:]
    wanted = 0.5 * (z - y[64:]) ** 2 if loss == "squared" else np.logaddexp(0, z) - y[64:] * z
    np.testing.assert_allclose(losses, mass[64:] * wanted, rtol=1e-10, atol=1e-14)


def test_threads_that_share_batches_change_no_bit() -> None:
    n, p = 6000, 400
    A = scipy.sparse.random(n, p, density=0.05, format="csr", random_state=0)
    y, found = np.sin(np.arange(n)), []
    for runtime in (Serial(), Threads(2), Threads(4)):
        with runtime.open() as crew:
            rows = SampleRows.of((A.indptr, A.indices, A.data), np.arange(n), np.ones(p), crew, "exact")
            batches = Batches.of(rows, 1500, p, crew, "exact")
            field = (np.arange(p) % 2).astype(np.int32)
            machine = Machine.start(field, 2, 5, spread=0.1, seed=0, profile="exact")
            epochs = Epochs(machine, batches, y, np.ones(n), np.ones(p, np.float32), "squared", crew)
            assert epochs._work > 1 << 15  # threads do share them
            costs = [epochs.run(np.arange(len(batches)), STEPS) for _ in range(2)]
            found.append((costs, machine.weights.tobytes(), machine.squares.tobytes(), batches.entry_value.tobytes()))
    assert found[0] == found[1] == found[2]
