"""What comes in: readers and writers, generators, `Data`, and the ways to look at it and stream it.

Importing this costs NumPy and little else: compiled parsers, scipy, fsspec and pyarrow are imported when a file needs
them.
"""

from __future__ import annotations

from stretto.data.convert import as_data
from stretto.data.data import Data, held_out
from stretto.data.describe import Description
from stretto.data.detect import detect
from stretto.data.generate import Generated, ratings
from stretto.data.ids import IdMap
from stretto.data.info import Info, inspect
from stretto.data.parts import PartSource, open_parts
from stretto.data.read import read
from stretto.data.scan import Scan, iter_triples, scan
from stretto.data.write import write

# The functions come after the modules they are named for (`read`, `scan`, `write`), so `stretto.data.read` is the
# function.

__all__ = [
    "Data",
    "Description",
    "Generated",
    "IdMap",
    "Info",
    "PartSource",
    "Scan",
    "as_data",
    "detect",
    "held_out",
    "inspect",
    "iter_triples",
    "open_parts",
    "ratings",
    "read",
    "scan",
    "write",
]
