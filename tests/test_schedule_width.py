"""How many may go together when nobody looks which."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from stretto.schedule.width import safe_width, spectral_radius


@pytest.mark.parametrize("centred", [False, True], ids=["cosine", "centred"])
@pytest.mark.parametrize("kind", ["dense", "sparse", "f4"])
def test_the_spectral_radius_is_the_largest_eigenvalue(kind: str, centred: bool) -> None:
    random = np.random.default_rng(1)
    X = random.standard_normal((60, 30)) + random.standard_normal((60, 1))
    X[:, 4] = 0.0
    if kind == "sparse":
        X[np.abs(X) < 0.7] = 0.0
    given = {"dense": X, "sparse": scipy.sparse.csr_array(X), "f4": X.astype(np.float32)}[kind]
    about = X - X.mean(axis=0) if centred else X
    norm = np.linalg.norm(about, axis=0)
    scaled = about / np.where(norm > 0, norm, 1.0)
    exact = np.linalg.eigvalsh(scaled.T @ scaled)[-1]
    found = spectral_radius(given, centred=centred, tolerance=1e-8, iterations=2000)
    assert found == pytest.approx(exact, rel=1e-4)
    assert spectral_radius(given, centred=centred) <= exact * (1 + 1e-6)


def test_equal_columns_and_none() -> None:
    assert spectral_radius(np.ones((5, 7))) == pytest.approx(7.0)
    assert spectral_radius(np.eye(6)) == pytest.approx(1.0)
    assert spectral_radius(np.zeros((5, 3))) == 0.0


@given(rho=st.floats(1.0, 1e6, exclude_min=True), size=st.integers(1, 10**6))
def test_the_safe_width_is_the_largest_below_the_bound(rho: float, size: int) -> None:
    width = safe_width(rho, size)
    assert 1 <= width <= size
    assert width == 1 or width < 1 + size / (rho - 1)
    assert width == size or width + 1 >= 1 + size / (rho - 1)


def test_uncorrelated_columns_may_all_go_together() -> None:
    assert safe_width(1.0, 12) == safe_width(0.0, 12) == 12
    assert safe_width(12.0, 12) == 2
