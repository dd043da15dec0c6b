"""The map of topics: classical scaling of the Hellinger distances between their distributions over words.

The squared distance of two topics is 1 − Σ_w √(p_k(w) p_l(w)). Classical scaling (Torgerson 1952) finds points in the
plane whose distances are as near to these as two dimensions allow: with B = −½ J D² J, J = I − 1/K, the points are the
two main eigenvectors of B, times the roots of their eigenvalues. Signs are fixed: of each axis, the coordinate of the
largest size is positive.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def classical_scaling(squared: Floats, axes: int = 2) -> Floats:
    """Points [n, axes] whose distances are near to the given ones; squared [n, n]: squared distances.

    >>> classical_scaling(np.array([[0.0, 4.0], [4.0, 0.0]]), 1).tolist()
    [[1.0], [-1.0]]
    """
    n = len(squared)
    centred = squared - squared.mean(axis=0) - squared.mean(axis=1)[:, None] + squared.mean()
    values, vectors = np.linalg.eigh(-0.25 * (centred + centred.T))
    points = np.zeros((n, axes))
    main = np.argsort(-values, kind="stable")[:axes]
    kept = main[values[main] > 1e-12 * max(float(values.max(initial=0.0)), 1e-300)]
    found = vectors[:, kept] * np.sqrt(values[kept])
    size = np.abs(found)
    # Coordinates of equal size up to rounding count as equal: the first of them decides.
    top = np.argmax(size >= size.max(axis=0, initial=0.0) * (1 - 1e-9), axis=0) if n else np.zeros(0, np.int64)
    found *= np.where(found[top, np.arange(len(kept))] < 0, -1.0, 1.0)
    points[:, : len(kept)] = found
    return points


def places(affinity: Floats) -> Floats:
    """Points [K, 2] of topics with these similarities [K, K]."""
    squared = np.maximum(0.0, 1.0 - affinity)
    np.fill_diagonal(squared, 0.0)
    return classical_scaling(squared)
