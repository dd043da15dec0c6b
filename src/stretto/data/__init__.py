"""Data sets: readers, writers, generators, `Data`, conversion, statistics and streaming.

Importing this imports NumPy and little else. Compiled parsers, scipy, fsspec and pyarrow are imported when a file needs
them.
"""

from __future__ import annotations

from stretto.data.convert.convert import as_data
from stretto.data.describe import Description
from stretto.data.generate.ratings import Generated, ratings
from stretto.data.parts import PartSource, open_parts
from stretto.data.reading.detect import detect
from stretto.data.reading.inspect import Info, inspect
from stretto.data.reading.read import read
from stretto.data.reading.scan import Scan, iter_triples, scan
from stretto.data.records.data import Data, held_out
from stretto.data.records.ids import IdMap
from stretto.data.write import write

# The functions come after the modules they are named for, so `stretto.data.write` is the function.

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
