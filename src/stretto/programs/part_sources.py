"""Sources of data parts: files or functions from which each node reads its parts, so that the driver needs no data.

    parts=[Path("/data/part-0.npy"), Path("/data/part-1.npy")]          # a file for each part
    parts=[partial(make, seed=k) for k in range(16)]                    # or a function without arguments

A node reads its parts when it starts; so does a node that replaces a lost one. A file must have the size and the first
and last bytes that it had when the run began. Its path and times may differ, so nodes may have their own copies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from stretto.data.parts.files import FileState, refuse_change, state_of
from stretto.errors import DataError, RunError


@runtime_checkable
class ProgramPartSource(Protocol):
    """How a part is read."""

    def read_part(self) -> Any:
        """The part."""
        ...


@dataclass(frozen=True)
class ProgramFilePart:
    """A part that is a file."""

    path: str  # on the node that reads it
    state: FileState | None  # its size, start and end when the run began; None if the driver cannot read the file

    @classmethod
    def of(cls, path: Path) -> ProgramFilePart:
        """A part from a file in its current state."""
        try:
            return cls(str(path), state_of(str(path), copies=True))
        except DataError:
            return cls(str(path), None)  # nodes may have it

    def read_part(self) -> Any:
        if self.state is not None:
            refuse_change(self.path, self.state)
        end = self.path.lower()
        if end.endswith(".npy"):
            return np.load(self.path, allow_pickle=False)
        if end.endswith(".npz"):
            with np.load(self.path, allow_pickle=False) as found:
                if not {"format", "shape", "data"} <= set(found.files):
                    return {name: found[name] for name in found.files}
            import scipy.sparse

            return scipy.sparse.load_npz(self.path)
        from stretto.data import read

        return read(self.path)


@dataclass(frozen=True)
class CalledPart:
    """A part that a function without arguments returns."""

    function: Callable[[], Any]

    def read_part(self) -> Any:
        return self.function()


def source_of(part: Any) -> Any:
    """The source of a part, or the part itself if it is data."""
    if isinstance(part, Path):
        return ProgramFilePart.of(part)
    return CalledPart(part) if callable(part) else part


def sources(parts: Any) -> int:
    """Number of parts that are sources."""
    return sum(isinstance(part, ProgramPartSource) for part in parts) if isinstance(parts, list | tuple) else 0


def read_parts(program: str, parts: Mapping[int, Any], count: int, packed: Callable[[Any], Any]) -> dict[int, Any]:
    """Read the parts that are sources; return all parts by number.

    Parameters
    ----------
    program : str
        Name of the program, for messages.
    parts : mapping of int to any
        Parts or sources, by number.
    count : int
        Number of all parts.
    packed : function(part) -> part
        Makes the arrays of a part contiguous, as if the driver had sent them.
    """
    found = {}
    for number, part in parts.items():
        if isinstance(part, ProgramPartSource):
            try:
                part = packed(part.read_part())
            except Exception as error:
                raise RunError(
                    f"{program}: part {number + 1} of {count} could not be read: {type(error).__name__}: {error}; "
                    "every node that may hold it must be able to read it"
                ) from error
        found[number] = part
    return found


def read_all(program: str, parts: Sequence[Any], packed: Callable[[Any], Any]) -> list[Any]:
    """All parts, read in this process."""
    return list(read_parts(program, dict(enumerate(parts)), len(parts), packed).values())
