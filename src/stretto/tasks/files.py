"""`st.files`: files that the parts of a unit read in blocks, each on a node that has them, while they train."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from stretto.checks import parse_bytes, shown, whole
from stretto.errors import PlanError
from stretto.runtime.stages.file_blocks import FileSpec, OpenFiles, open_shared

from .arguments import AHEAD, InBlocks


@dataclass(frozen=True, eq=False)
class FileBlocks(InBlocks):
    """Files in blocks. Made by `st.files`."""

    spec: FileSpec
    opened: OpenFiles | None  # None: the nodes open them when a task starts

    def words(self) -> str:
        """The files in words."""
        many = "blocks" if self.opened is None else f"{len(self.opened.blocks):,} blocks"
        return f"{many} of {self.spec.path}, one an iteration"


def files(
    path: Any,
    *,
    block_bytes: str | int = "16MiB",
    features: int | None = None,
    ahead: int = AHEAD,
    memory: str | int | None = None,
    where: Callable[[str], int | Iterable[int]] | None = None,
    format: str = "auto",
    zero_based: bool = False,
    on_error: str = "raise",
    **options: Any,
) -> FileBlocks:
    """Files that the parts of a unit read in blocks while they train.

    Every part owns some of the blocks: neighbours, of nearly equal bytes. Iteration k of a part gets its block k, then
    they begin again; `.all()` gives a unit all blocks of the part. A block of svmlight is (X, y): a sparse matrix
    [samples × features] of float32 and the labels. One of another format is (rows, columns, values), ids as written.

    Parameters
    ----------
    path : str, Path, list of them, or NodeFiles
        A file, a folder, a glob, URLs; or files that every node has on its own disk: their parts run there.
    block_bytes : str or int, default "16MiB"
        Bytes of a block in the file. Results depend on it.
    features : int or None, default None
        Columns of svmlight files, of all of them together.
    ahead : int, default 2
        Blocks of a part that are read before they are used, at most.
    memory : str, int or None, default None
        Bytes of blocks that a node keeps, such as "1GiB"; more are read again in the next pass. None keeps all.
    where : callable or None, default None
        function(path) -> numbers of the nodes that have this file on their disk. Parts own files of one node and run
        there if it is free; another can read them too. None: all nodes read all files alike.
    format : str, default "auto"
        As for `st.read`.
    zero_based : bool, default False
        Whether the indices of svmlight start at 0.
    on_error : {"raise", "skip"}, default "raise"
        As for `st.read`.
    **options
        `sep`, `columns`, `user`, `item`, `rating`, `ids`: as for `st.read`.

    Returns
    -------
    FileBlocks

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np, stretto as st
    >>> def add(worker, block, total):
    ...     X, y = block
    ...     total.add([0], [y.sum()])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "a.svm")
    ...     with open(path, "w") as file:
    ...         print("1 1:0.5 3:2\\n2 2:1\\n3 1:1\\n4 3:1", file=file)
    ...     blocks = st.files(path, block_bytes=12, features=3)
    ...     total = st.zeros(1, "f8")
    ...     result = st.run(st.unit(add, blocks, total, parts=1, iterations=3), runtime=st.Serial())
    >>> total.array.tolist()
    [10.0]
    """
    spec = FileSpec(
        path,
        max(1, parse_bytes(block_bytes)),
        None if features is None else whole("features", features, 1, "files"),
        bool(zero_based),
        {"format": format, "on_error": on_error, **options},
        where,
    )
    if where is not None and (spec.on_nodes or not callable(where)):
        raise PlanError(f"files: where={shown(where)}; give a function(path) -> nodes, and no NodeFiles")
    opened = None if spec.on_nodes else open_shared(spec)
    most = None if memory is None else parse_bytes(memory)
    return FileBlocks(whole("ahead", ahead, 1, "files"), most, spec, opened)
