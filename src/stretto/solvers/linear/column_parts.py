"""Functions that nodes run on their columns of the design matrix: products, moments, and sending columns.

A part is a `Design` of neighbouring columns with all samples. `runtime.cluster.parts.driver` calls these functions with
the crew, the part's columns, the arguments for this part alone, and the arguments that all parts share. `pack` encodes
chosen columns for sending: None for all of a part, one bit per column if many are chosen, else their indices.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.design.design import Design, for_kernels
from stretto.data.design.design_files import DesignFiles
from stretto.runtime.blocks.crew import Crew

from .columns import ColumnPasses

Array = NDArray[Any]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_DENSER = 32  # a column index takes this many bits


def pack(which: Ints, size: int) -> Array | None:
    """Encode the chosen columns of a part for sending. which: ascending; size: columns of the part."""
    if len(which) == size:
        return None
    if len(which) * _DENSER < size:
        return which.astype(np.int32)
    mask = np.zeros(size, bool)
    mask[which] = True
    return np.packbits(mask)


def unpack(packed: Array | None, size: int) -> Ints:
    """Decode what `pack` encoded.

    >>> [unpack(pack(np.array(which), 100), 100).tolist() for which in ([2, 3], list(range(0, 100, 25)))]
    [[2, 3], [0, 25, 50, 75]]
    """
    if packed is None:
        return np.arange(size, dtype=np.int64)
    if packed.dtype == np.int32:
        return packed.astype(np.int64)
    return np.flatnonzero(np.unpackbits(packed, count=size)).astype(np.int64)


def receive(crew: Crew, own: Mapping[int, Design]) -> dict[int, Design]:
    """Convert the columns that the driver sent to the form that kernels take."""
    return {part: _usable(design) for part, design in own.items()}


def _usable(design: Design) -> Design:
    if design.dense is not None:
        return Design(design.shape, dense=for_kernels(design.dense))
    indptr, indices, values = design.csc
    return Design(design.shape, None, for_kernels(indptr), for_kernels(indices), for_kernels(values))


def read(crew: Crew, own: Mapping[int, tuple[int, int]], files: DesignFiles) -> dict[int, Design]:
    """Read columns first … last − 1 of each part from files on this node."""
    return dict(zip(own, files.columns(list(own.values())), strict=True))


def entries(crew: Crew, design: Design, own: None) -> Ints:
    """Number of stored entries of each column."""
    return design.entries


def survey(
    crew: Crew, design: Design, own: None, profile: str, weight: Floats, centred: bool, v: Floats | None, mass: float
) -> tuple[Floats, Floats, Floats]:
    """`ColumnPasses.survey`. v: None for the weights themselves."""
    weight = for_kernels(weight)
    return ColumnPasses(design, crew, profile).survey(weight, centred, weight if v is None else for_kernels(v), mass)


def price(crew: Crew, design: Design, own: Array | None, profile: str, v: Floats) -> Floats:
    """Products of the chosen columns with v."""
    which = unpack(own, design.shape[1])
    product = np.empty(design.shape[1])
    ColumnPasses(design, crew, profile).price(which, for_kernels(v), product)
    return product[which]


def fetch(crew: Crew, design: Design, own: Array | None) -> tuple[Array, ...]:
    """The chosen columns: rows of the transpose if dense; else row indices and values, column after column."""
    picked = design.pick(unpack(own, design.shape[1]))
    return picked.parts if not picked.sparse else picked.parts[1:]


def spread(crew: Crew, design: Design, own: None, weight: Floats) -> Floats:
    """`Design.spread`."""
    return design.spread(weight)


def take(crew: Crew, design: Design, own: None, rows: Array) -> Design:
    """Keep only the chosen samples. rows: one bit for each sample."""
    return design.take(np.flatnonzero(np.unpackbits(rows, count=design.shape[0])))
