"""Encoding of values in messages: unchanged, or as 16-bit floats.

A message holds values as they arrive. "f2" means: rounded to a 16-bit float, stored in the dtype they are summed in,
and counted with two bytes each. The sender keeps the rounding residual: value − round_f2(value).

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
    """Values of any shape after a round trip through 16-bit floats, as a new array of the same dtype.

    Integers are returned unchanged. Values beyond ±65504 are clipped, so their rest is sent later. Infinity and NaN
    are kept.
    """
    if values.dtype.kind != "f" or values.dtype.itemsize == 2:
        return values
    flat = np.ascontiguousarray(values).reshape(-1)
    out = np.empty_like(flat)
    (halve4 if values.dtype.itemsize == 4 else halve8).exact(flat, out)
    return out.reshape(values.shape)
