"""`NodeFiles`: files stored on the disks of the nodes, each node with its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.parts.hosts import PartExecutor
from stretto.data.parts.layout import united
from stretto.data.parts.source import PartSource, open_parts
from stretto.errors import DataError, PlanError


@dataclass(frozen=True)
class NodeFiles:
    """Files that every node of a cluster has on its own disk. The driver does not need them.

    All files form one data set: those of node 0 come first. A node that is lost must come back on the same machine.

    Parameters
    ----------
    path : str
        A file, a folder or a glob, found on each node. "{node}" stands for the number of the node.

    Examples
    --------
    A corpus of which every machine has a part, streamed from its disk:

    >>> import stretto as st
    >>> files = st.NodeFiles("/data/corpus/*.txt")
    >>> lda = st.LatentDirichletAllocation(100, memory="1GiB", runtime=st.Cluster(nodes=4))
    >>> lda.fit(files)  # doctest: +SKIP
    """

    path: str

    def __post_init__(self) -> None:
        if not isinstance(self.path, str) or not self.path:
            raise DataError(f"NodeFiles({self.path!r}): give a path, a folder or a glob as text")

    def __str__(self) -> str:
        return f"{self.path} on every node"

    def unread(self) -> PlanError:
        """The error for runtimes that cannot read them."""
        return PlanError(
            f"{self}: the nodes of a cluster read such files within a budget; fit with runtime=st.Cluster(…) and "
            "memory=…, or give the paths themselves"
        )

    def find(self, crew: PartExecutor) -> tuple[PartSource, NDArray[np.int64]]:
        """The files of all nodes, and the node of each file.

        Parameters
        ----------
        crew : PartExecutor
            The nodes.
        """
        nodes = crew.apart
        if not nodes:
            raise self.unread()
        opened: Sequence[PartSource] = crew.apply(_open, [(self.path, node) for node in range(nodes)])
        files = united([file for one in opened for file in one.files], opened[0].options)
        node = np.repeat(np.arange(nodes), [len(one.files) for one in opened])
        return PartSource(files, opened[0].options, opened[0].on_error), node.astype(np.int64)


def _open(asked: tuple[str, int], crew: Any) -> PartSource:
    path, node = asked
    try:
        return open_parts(path.replace("{node}", str(node)))
    except DataError as error:
        raise DataError(f"node {node}: {error}") from error
