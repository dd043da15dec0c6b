"""Partitioned data sets: files are cut into parts, nodes read their own, the driver keeps counts only.

    from stretto.data.parts import merge, open_parts, shares

    source = open_parts("ratings/*.csv")              # a file, a folder, a glob, a list, URLs; reads the first bytes
    parts = source.parts(16)                          # byte ranges of text, row groups of Parquet, whole packed files
    numbering = merge([p.census() for p in parts])    # each census on the node that has the part, merge on the driver
    for rows, cols, values in parts[3].entries(numbering):   # on that node: indices, numbered as `scan` numbers them
        ...

1. `open_parts` detects the formats of the files; `parts(n)` cuts them. A `DataPart` is a small frozen value that can be
   pickled. It carries the file's state, and reading it raises an error if the file has changed.
2. `part.census()` reads the part once and counts: memory for its rows and columns, not for its records.
3. `merge` unites the censuses into a `Numbering`: shape, ids, counts, and the place of each part's records among all.
4. `part.entries(numbering)` reads the part again, as indices. A part with other records than its census is refused.

The records of the parts, one part after the other, are those of `scan(path).chunks()`, with the same indices.

Files of one data set: ids are united by name. Rows without ids (bag-of-words, svmlight, lda-c, MatrixMarket, `.npz`
without ids) are those of the first file, then those of the second, and so on; their columns are the same in all.
"""

from __future__ import annotations

from stretto.data.parts.census import AxisCensus, PartCensus
from stretto.data.parts.numbering import Numbering, merge
from stretto.data.parts.part import DataPart
from stretto.data.parts.placement import shares
from stretto.data.parts.source import PartSource, open_parts

__all__ = ["AxisCensus", "DataPart", "Numbering", "PartCensus", "PartSource", "merge", "open_parts", "shares"]
