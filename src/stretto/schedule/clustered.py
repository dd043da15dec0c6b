"""Clustered schedule (`st.schedule.clustered`): dependent parameters form one part, and a round takes one of each part.

The dependency graph has an edge between two parameters that interfere; its weight is the strength of the interference.
METIS cuts the graph into parts of about the same size with the smallest weight of edges between parts. This gives a
schedule that is fixed before the first round: parts run in parallel, and the parameters of a part are updated one after
the other, as in §2.2 of Kim et al. (SMPFRAME) and in Scherrer et al., Feature clustering for accelerating parallel
coordinate descent, NIPS 2012. The schedule ignores the dependencies between parts, whose weight is `cut`.

    parts  {0, 1, 2}  {3, 4}          rounds  [0 3] [1 4] [2 3] [0 4] …
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from stretto.cached import cached_property
from stretto.errors import PlanError

from .checks import whole
from .chooser import CompiledChooser, new_choice
from .columns import columns_of, correlation
from .spec import Ints, Schedule

_WHOLE = 1000  # METIS takes integer weights: that of the heaviest edge
_BLOCK = 256  # columns whose correlations with all others are computed at a time


@dataclass(frozen=True, eq=False, repr=False)
class Clustered(Schedule):
    """One job of each part in every round."""

    part: Ints  # [size] the part of each job
    parts: int  # number of parts
    cut: float  # weight of the edges between parts
    weight: float  # weight of all edges

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.part.tobytes()).hexdigest()[:12]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Clustered) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(self.digest)

    def start(self, size: int, seed: int, data: Any = None) -> CompiledChooser:
        from stretto.kernels.rounds.chooser_state import PARTS

        if size != len(self.part):
            raise PlanError(f"the graph has {len(self.part)} nodes and the program {size} parameters")
        order = np.argsort(self.part, kind="stable")
        bounds = np.concatenate([[0], np.cumsum(np.bincount(self.part, minlength=self.parts))])
        return CompiledChooser(new_choice(PARTS, size, seed, self.parts, order=order, bounds=bounds))

    def explain(self) -> str:
        share = self.cut / self.weight if self.weight else 0.0
        return f"clustered: one of each of {self.parts} parts; {share:.1%} of the dependency lies between parts"

    def __repr__(self) -> str:
        return f"Clustered(parts={self.parts}, size={len(self.part)}, digest={self.digest})"


def clustered(graph: Any, parts: int) -> Clustered:
    """Cut a dependency graph into parts with METIS; a round takes one job of each part.

    Parameters
    ----------
    graph : sparse matrix [size, size] or callable
        A symmetric matrix of weights above 0 (its diagonal does not count), such as `correlation_graph(X)`, or a
        function that returns one.
    parts : int
        Number of parts.

    Returns
    -------
    Schedule

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, stretto as st
    >>> graph = sp.csr_array(np.array([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]))
    >>> st.schedule.clustered(graph, parts=2).parts
    2
    """
    import scipy.sparse

    whole("parts", parts)
    try:
        import pymetis
    except ImportError as error:
        raise PlanError(
            "clustered schedules are cut by METIS; install it with: pip install 'stretto[graph]'"
        ) from error
    graph = graph() if callable(graph) else graph
    if not scipy.sparse.issparse(graph) or graph.shape[0] != graph.shape[1]:
        raise PlanError("clustered(graph, parts) takes a square SciPy sparse matrix: one row and column a parameter")
    if not 1 <= parts <= graph.shape[0]:
        raise PlanError(f"{graph.shape[0]} parameters can be cut into 1 to {graph.shape[0]} parts, got {parts}")
    edges = scipy.sparse.csr_array(graph, dtype=np.float64)
    edges.setdiag(0.0)
    edges.eliminate_zeros()
    edges.sort_indices()
    if len(edges.data) and (not np.isfinite(edges.data).all() or edges.data.min() < 0):
        raise PlanError("the weights of a dependency graph are finite and above 0; take their size, np.abs")
    if abs(edges - edges.T).max() > 1e-9 * max(1.0, edges.max()):
        raise PlanError("a dependency graph is symmetric; pass (graph + graph.T) / 2")
    rounded = np.maximum(1, np.round(edges.data * (_WHOLE / max(edges.data.max(initial=0.0), 1e-300)))).astype(np.int64)
    near = pymetis.CSRAdjacency(edges.indptr.tolist(), edges.indices.tolist())
    _, found = pymetis.part_graph(parts, near, eweights=rounded.tolist())
    part = np.asarray(found, np.int64)
    rows = np.repeat(np.arange(graph.shape[0]), np.diff(edges.indptr))
    between = part[rows] != part[edges.indices]
    return Clustered(part, parts, float(edges.data[between].sum()) / 2, float(edges.data.sum()) / 2)


def correlation_graph(X: Any, threshold: float = 0.1, *, centred: bool = False) -> Any:
    """The sparse matrix [p, p] of absolute correlations of X's columns that reach the threshold, without its diagonal.

    All pairs of columns are compared: for some thousands of columns, not for a million.

    Parameters
    ----------
    X : array or sparse matrix [n, p]
        Samples × features.
    threshold : float, default 0.1
        Smaller correlations are left out.
    centred : bool, default False
        Subtract the means of the columns first.

    Returns
    -------
    sparse matrix [p, p]

    Examples
    --------
    >>> import numpy as np, stretto as st
    >>> X = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> st.schedule.correlation_graph(X).toarray().round(3).tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    import scipy.sparse

    columns = columns_of(X, centred=centred)
    every = np.arange(columns.size)
    rows, cols, weights = [], [], []
    for first in range(0, columns.size, _BLOCK):
        for second in range(first, columns.size, _BLOCK):
            jobs = np.concatenate([every[first : first + _BLOCK], every[second : second + _BLOCK]])
            size = len(every[first : first + _BLOCK])
            found = np.abs(correlation(jobs, columns)[:size, size:])
            i, k = np.nonzero(found >= threshold)
            keep = first + i < second + k
            rows.append(first + i[keep])
            cols.append(second + k[keep])
            weights.append(found[i[keep], k[keep]])
    upper = scipy.sparse.coo_array(
        (np.concatenate(weights), (np.concatenate(rows), np.concatenate(cols))), shape=(columns.size, columns.size)
    )
    return (upper + upper.T).tocsr()
