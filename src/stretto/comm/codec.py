"""How values travel: as they are, or as 16-bit floats.

A message holds values as they arrive, so "f2" here means: rounded as a 16-bit float would be, in the dtype they are
summed in, and counted with two bytes each. What rounding takes away is the sender's to keep: value − round_f2(value).

    >>> import numpy as np
    >>> sent = round_f2(np.array([0.1, 1e6, -3.0], dtype="f4"))
    >>> sent[1:].tolist(), bool(abs(sent[0] - 0.1) < 1e-4)
    ([65504.0, -3.0], True)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.kernels.numeric.halves import halve4, halve8


def travels_short(dtype: str, codec: str | None) -> bool:
    """Whether values of a table travel as 16-bit floats: f2 tables always do, whole numbers never.

    >>> travels_short("f4", "f2"), travels_short("f2", None), travels_short("i4", "f2"), travels_short("f8", None)
    (True, True, False, False)
    """
    return dtype == "f2" or (codec == "f2" and dtype[0] == "f")


def value_bytes(dtype: str, codec: str | None) -> int:
    """Bytes of one value in a message.

    >>> value_bytes("f8", "f2"), value_bytes("i4", "f2"), value_bytes("f4", None)
    (2, 4, 4)
    """
    return 2 if travels_short(dtype, codec) else np.dtype(dtype).itemsize


def round_f2(values: NDArray[Any]) -> NDArray[Any]:
    """Values of any shape after a 16-bit round trip, as a new array of the same dtype; whole numbers come back as they
    are. Beyond ±65504 that is what is sent, and the rest is left for later; infinity and NaN are passed on."""
    if values.dtype.kind != "f" or values.dtype.itemsize == 2:
        return values
    flat = np.ascontiguousarray(values).reshape(-1)
    out = np.empty_like(flat)
    (halve4 if values.dtype.itemsize == 4 else halve8).exact(flat, out)
    return out.reshape(values.shape)
