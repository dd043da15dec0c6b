"""Alternating least squares against dense normal equations in NumPy, and the same bits however it is run."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isa_script import NO_BASE, NO_PRIOR, NONE, digest, gram_of, problem, results
from kernelrun import WAYS, cut, run
from stretto.kernels.factorization import als
from stretto.kernels.numeric import lanes

f4 = np.float32


def twin(
    p: dict[str, Any],
    implicit: bool,
    regs: Any,
    alpha: float,
    mean: float,
    offset: Any,
    prior: Any = None,
    given: Any = None,
) -> Any:
    """Exact rows in float64, by dense least squares."""
    dense, Y = p["dense"].astype(float), p["Y"].astype(float)
    width = Y.shape[1]
    X = np.zeros((len(dense), width))
    for i, row in enumerate(dense):
        mine = np.flatnonzero(row)
        if len(mine) == 0:
            continue
        v = np.ones(len(mine)) if given is None else given[i, mine]
        w = alpha * abs(row[mine]) if implicit else v
        t = np.where(row[mine] > 0, 1 + w, 0.0) if implicit else v * (row[mine] - mean - offset[mine])
        weight = (1 + w).sum() if implicit else v.sum()
        A = (Y[mine].T * w) @ Y[mine] + weight * np.diag(regs) + (Y.T @ Y if implicit else 0)
        X[i] = np.linalg.solve(A, Y[mine].T @ t + (0 if prior is None else weight * regs * prior[i]))
    return X


def solve(
    p: dict[str, Any],
    implicit: bool,
    reg: float,
    *,
    own: int = -1,
    own_reg: float = 0.0,
    steps: int = 0,
    offset: Any = None,
    way: str = "forwards",
    prior: Any = NO_PRIOR,
    given: Any = NONE,
) -> Any:
    """Rows by Cholesky (steps 0) or conjugate gradients."""
    width = p["Y"].shape[1]
    gram = gram_of(p["Y"], way=way) if implicit else np.zeros((0, width), f4)
    X, scratch = p["X"].copy(), als.scratch(3, width)
    common = (*p["csr"], given, X, p["Y"], gram, NONE if offset is None else offset, f4(0.5), f4(reg))
    common += (own, f4(own_reg), f4(2.0), prior)
    worker, more = (als.cg_worker, (steps, scratch)) if steps else (als.cholesky_worker, (*NO_BASE, scratch))
    out = run(worker, cut(len(X), 5), *common, *more, way=way)
    away = X.astype(float) - (prior if len(prior) else 0.0)
    penalty = weights(p["csr"], implicit, given)[:, None] * away**2 * ridges(width, reg, own, own_reg)
    np.testing.assert_allclose(out.sum(), penalty.sum(), rtol=1e-4, atol=1e-9)
    return X


def weights(csr: Any, implicit: bool, given: Any = NONE) -> Any:
    """What each row's penalty is multiplied with: its ratings, or their weights, or their confidence 1 + 2 |r|."""
    indptr, _, values = csr
    one = np.ones(len(values)) if not len(given) else given.astype(float)
    one = 1 + 2.0 * np.abs(values.astype(float)) if implicit else one
    return np.diff(np.concatenate([[0.0], np.cumsum(one)])[indptr])


def ridges(width: int, reg: float, own: int = -1, own_reg: float = 0.0) -> Any:
    """The penalty of each column for one rating."""
    found = np.full(width, reg)
    if own >= 0:
        found[own] = own_reg
    return found


@settings(max_examples=25, deadline=None)
@given(
    rows=st.integers(2, 20),
    cols=st.integers(2, 40),
    rank=st.integers(1, 70),
    implicit=st.booleans(),
    own=st.sampled_from([-1, 0]),
    own_reg=st.sampled_from([0.05, 2.0]),
    steps=st.sampled_from([0, 0, 200]),
    seed=st.integers(0, 99),
    expected_before=st.booleans(),
    weighted=st.booleans(),
)
def test_rows_solve_their_normal_equations(
    rows: int,
    cols: int,
    rank: int,
    implicit: bool,
    own: int,
    own_reg: float,
    steps: int,
    seed: int,
    expected_before: bool,
    weighted: bool,
) -> None:
    p = problem(rows, cols, rank, seed)
    of_pairs, given_weights = None, NONE
    if weighted and not implicit:
        of_pairs = np.random.default_rng(seed).uniform(0.2, 4, p["dense"].shape).astype(f4)
        given_weights = of_pairs[np.repeat(np.arange(rows), np.diff(p["csr"][0])), p["csr"][1]]
    offset = np.linspace(-1, 1, cols).astype(f4)
    regs = ridges(p["Y"].shape[1], 0.3, own, own_reg)
    prior = NO_PRIOR
    if expected_before:
        prior = np.zeros_like(p["X"])
        prior[:, :rank] = np.random.default_rng(seed).normal(size=(rows, rank))
    expected = twin(p, implicit, regs, 2.0, 0.5, offset, prior if expected_before else None, of_pairs)
    more: dict[str, Any] = {"offset": offset, "prior": prior, "given": given_weights}
    solved = solve(p, implicit, 0.3, own=own, own_reg=own_reg, steps=steps, **more)
    np.testing.assert_allclose(solved, expected, rtol=2e-3, atol=2e-3)
    assert not solved[np.diff(p["csr"][0]) == 0].any()
    assert not solved[:, rank:].any()


def test_a_few_steps_of_cg_come_near_and_more_come_nearer() -> None:
    p = problem(40, 60, 24)
    exact = solve(p, True, 0.1)
    errors = [float(np.abs(solve(p, True, 0.1, steps=steps) - exact).max()) for steps in (1, 3, 10, 40)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-4


def test_a_system_too_hard_for_float32_is_solved_in_float64() -> None:
    """Without regularisation and with fewer ratings than unknowns the system is singular: any finite solution fits
    exactly.
    """
    p = problem(12, 9, 16)
    solved = solve(p, False, 0.0)
    rated = p["dense"] != 0
    fitted = (solved.astype(float) @ p["Y"].T.astype(float))[rated]
    assert np.isfinite(solved).all()
    np.testing.assert_allclose(fitted, p["dense"][rated] - 0.5, atol=1e-3)


def test_a_constant_column_of_ones_gives_the_row_bias() -> None:
    """The documented way: width = padded(rank + 1), ones in Y[:, rank], the other side's biases as offset, a ridge of
    its own.
    """
    p = problem(30, 40, 5)
    p["Y"][:, 5] = 1
    offset = np.linspace(-1, 1, 40).astype(f4)
    expected = twin(p, False, ridges(16, 0.1, 5, 0.7), 2.0, 0.5, offset)
    solved = solve(p, False, 0.1, own=5, own_reg=0.7, offset=offset)
    np.testing.assert_allclose(solved[:, 5], expected[:, 5], rtol=1e-3, atol=1e-3)


def test_the_gramian_is_symmetric_and_right() -> None:
    Y = problem(3, 500, 37)["Y"]
    gram = gram_of(Y, blocks=7)
    np.testing.assert_allclose(gram, Y.T.astype(float) @ Y.astype(float), rtol=1e-4, atol=1e-3)
    assert (gram == gram.T).all()


def test_losses_match_numpy() -> None:
    p = problem(25, 45, 12)
    X, Y, dense = p["X"].astype(float), p["Y"].astype(float), p["dense"].astype(float)
    b, c = np.linspace(-1, 1, 25).astype(f4), np.linspace(0, 1, 45).astype(f4)
    rated = dense != 0
    bounds = cut(25, 4)
    squared = run(als.squared_worker, bounds, *p["csr"], NONE, p["X"], p["Y"], b, c, f4(0.5)).sum()
    guess = X @ Y.T + 0.5 + b[:, None] + c
    np.testing.assert_allclose(squared, ((dense - guess)[rated] ** 2).sum(), rtol=1e-5)
    scratch, gram = als.scratch(1, Y.shape[1]), gram_of(p["Y"])
    implicit = run(als.implicit_worker, bounds, *p["csr"], p["X"], p["Y"], gram, f4(2.0), scratch).sum()
    confidence = 1 + 2.0 * abs(dense)
    np.testing.assert_allclose(implicit, (confidence * ((dense > 0) - X @ Y.T) ** 2).sum(), rtol=1e-5)


@pytest.mark.parametrize("implicit", [False, True])
def test_alternation_never_raises_the_objective(implicit: bool) -> None:
    p = problem(30, 40, 8)
    flipped = {**p, "csr": p["csc"], "dense": p["dense"].T}
    objective = []
    for _ in range(5):
        p["X"] = solve(p, implicit, 0.1)
        flipped.update(X=p["Y"], Y=p["X"])
        p["Y"] = solve(flipped, implicit, 0.1)
        bounds = cut(30, 3)
        if implicit:
            more = (gram_of(p["Y"]), f4(2.0), als.scratch(1, 16))
            fit = run(als.implicit_worker, bounds, *p["csr"], p["X"], p["Y"], *more).sum()
        else:
            fit = run(als.squared_worker, bounds, *p["csr"], NONE, p["X"], p["Y"], NONE, NONE, f4(0.5)).sum()
        for side, compressed in ((p["X"], p["csr"]), (p["Y"], p["csc"])):
            fit += 0.1 * (weights(compressed, implicit)[:, None] * side.astype(float) ** 2).sum()
        objective.append(fit)
    assert all(after <= before * (1 + 1e-5) for before, after in itertools.pairwise(objective))


def test_factors_that_are_not_finite_stop_the_pass() -> None:
    p = problem(6, 6, 4)
    p["Y"][:] = np.nan
    nothing = np.zeros((0, 16), f4)
    more = (p["X"], p["Y"], nothing, NONE, f4(0), f4(0.1), -1, f4(0.1), f4(1), NO_PRIOR)
    run(als.cholesky_worker, cut(6, 2), *p["csr"], NONE, *more, *NO_BASE, als.scratch(1, 16), fails=True)
    run(als.cg_worker, cut(6, 2), *p["csr"], NONE, *more, 3, als.scratch(1, 16), fails=True)


def test_four_at_a_time_gives_the_bits_of_one_at_a_time() -> None:
    """A row's ratings are taken in fours; the remainder one by one. Splitting them differently must not show."""
    from stretto.kernels.core.compile import kernel

    @kernel
    def both(Y, A, B, singles, fours):  # type: ignore[no-untyped-def]
        for j in range(4):
            singles[j] = lanes.dot(Y, j, Y, 4)
            lanes.axpy(A, 0, singles[j], Y, j)
        fours[0], fours[1], fours[2], fours[3] = lanes.dot4(Y, 0, 1, 2, 3, Y, 4)
        lanes.axpy4(B, 0, fours[0], fours[1], fours[2], fours[3], Y, 0, 1, 2, 3)

    Y, A, B = problem(2, 6, 45)["Y"], lanes.aligned((1, 48)), lanes.aligned((1, 48))
    singles, fours = np.zeros(4, f4), np.ones(4, f4)
    both(Y, A, B, singles, fours)
    assert (singles == fours).all()
    assert (A == B).all()
    assert A.any()


def test_every_kernel_has_the_same_bits_in_every_order_and_with_threads() -> None:
    assert len({digest(results(way)) for way in WAYS}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("cpu", ["haswell", "generic"])
def test_every_kernel_has_the_same_bits_on_every_instruction_set(cpu: str, tmp_path: Path) -> None:
    """Compiles every kernel again for another processor."""
    script = Path(__file__).with_name("isa_script.py")
    settings = {"NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": "", "STRETTO_CACHE": str(tmp_path)}
    path = os.pathsep.join([str(Path(als.__file__).parents[3]), str(script.parent)])
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, **settings, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == digest(results())
