"""`DataPart`: one part of a data set; the process that receives it can count, number and read its records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stretto.data.parts.census import PartCensus, take_census
from stretto.data.parts.numbering import Numbering, numbered
from stretto.data.parts.part_range import RECORDS, Entries, PartRange
from stretto.data.parts.reading import as_written


@dataclass(frozen=True, slots=True)
class DataPart(PartRange):
    """Some records of a data set, which are read from where they are. The parameters are those of `PartRange`."""

    def triples(self, chunk: int = RECORDS) -> Iterator[Entries]:
        """Records in file order: row ids and column ids as written (int64, or text) and float32 values.

        Rows of svmlight and lda-c, which have no ids, count from 0 in each part; those of other files without ids from
        0 in each file.

        Parameters
        ----------
        chunk : int
            The most records at once.
        """
        return as_written(self, chunk)

    def census(self) -> PartCensus:
        """Read the part once and count: what `merge` needs to number rows and columns."""
        return take_census(self)

    def entries(self, numbering: Numbering, chunk: int = RECORDS) -> Iterator[Entries]:
        """Records in file order: rows and columns as indices inside `numbering.shape`, int32 (int64 where it is
        larger), and float32 values.

        Record k of the part is record `numbering.firsts[part.number] + k` of the data set.

        Parameters
        ----------
        numbering : Numbering
            What `merge` made of all parts' censuses.
        chunk : int
            The most records at once.

        Raises
        ------
        DataError
            Where the part holds other records than its census counted.
        """
        return numbered(self, numbering, chunk)
