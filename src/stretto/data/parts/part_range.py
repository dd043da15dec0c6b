"""`PartRange`: where the records of one part of a data set are, as a small value that can be pickled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.parts.files import FileState, refuse_change
from stretto.data.parts.layout import FileLayout
from stretto.data.reading.parsing import ReadOptions

RECORDS = 1 << 18  # of one chunk, unless the caller says otherwise

Entries = tuple[NDArray[Any], NDArray[Any], NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class PartRange:
    """Where some of the records are, and how they are read. Nothing of it grows with the data.

    Parameters
    ----------
    path : str
        The file.
    kind : {"bytes", "row groups", "whole"}
        What `begin` and `end` count. Bytes: the lines that begin in that range.
    begin, end : int
        The range.
    nbytes : int
        Bytes of the range.
    number, parts : int
        Which part of the plan, from 0, of how many.
    file : int
        Which file of the data set, from 0.
    share : tuple of two ints
        Which of the file's own parts, from 0, and how many it has.
    layout : FileLayout
        What the file is.
    state : FileState
        The file's state when the parts were planned.
    options : ReadOptions
        Options of the caller for reading the files.
    on_error : {"raise", "skip"}
        What becomes of a bad line.
    plan : str
        Fingerprint of the plan: parts of different plans do not go together.
    """

    path: str
    kind: str
    begin: int
    end: int
    nbytes: int
    number: int
    parts: int
    file: int
    share: tuple[int, int]
    layout: FileLayout
    state: FileState
    options: ReadOptions
    on_error: str
    plan: str

    def __str__(self) -> str:
        what = {"bytes": f"bytes {self.begin} to {self.end}", "row groups": f"row groups {self.begin} to {self.end}"}
        return f"part {self.number} of {self.parts} ({self.path}, {what.get(self.kind, 'the whole file')})"

    def check(self) -> None:
        """DataError where the file is not as it was when the parts were planned."""
        refuse_change(self.path, self.state)
