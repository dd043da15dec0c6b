"""`IdMap`: what the outside world calls a row or column, and which index it has here.

Ids are kept sorted and unique, so the index of an id is its rank, whatever the order in which a file mentions them.

    >>> users = IdMap.of(["eve", "ada", "eve"])
    >>> users.encode(["ada", "eve"])
    array([0, 1], dtype=int32)
    >>> users.decode([1, 0]).tolist()
    ['eve', 'ada']

Integer ids are an int64 array. Text ids are a NumPy string array of variable width, so that one long name does not
widen all.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stretto.errors import DataError

TEXT = np.dtypes.StringDType()


class IdMap:
    """Sorted unique ids; index k stands for `ids[k]`."""

    __slots__ = ("_ids",)

    def __init__(self, ids: NDArray[Any]) -> None:
        """Take ids that are sorted and unique already; `IdMap.of` makes them so."""
        self._ids = ids.view()
        self._ids.flags.writeable = False

    @classmethod
    def of(cls, ids: ArrayLike) -> IdMap:
        """The map of every id that occurs in `ids`."""
        return cls(np.unique(_plain(ids)))

    @property
    def ids(self) -> NDArray[Any]:
        """The ids in index order: int64, or strings."""
        return self._ids

    @property
    def is_text(self) -> bool:
        return self._ids.dtype.kind == "T"

    @property
    def is_identity(self) -> bool:
        """Whether id and index are the same number throughout."""
        n = len(self._ids)
        return not self.is_text and (n == 0 or (int(self._ids[0]) == 0 and int(self._ids[-1]) == n - 1))

    def __len__(self) -> int:
        return len(self._ids)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IdMap):
            return NotImplemented
        return self.is_text == other.is_text and len(self) == len(other) and bool((self._ids == other._ids).all())

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(repr(x) for x in self._ids[:3].tolist()) + (", ..." if len(self) > 3 else "")
        return f"IdMap({len(self)} {'text' if self.is_text else 'integer'} ids: {shown})"

    def encode(self, ids: ArrayLike, unknown: Literal["error", "mark"] = "error") -> NDArray[np.int32]:
        """Indices of `ids`; an id that is not in the map raises, or becomes -1 with `unknown="mark"`."""
        asked = _plain(ids)
        if asked.dtype.kind != self._ids.dtype.kind:  # numbers asked of a text map, or the other way round
            asked = _as_kind(asked, self.is_text)
        found = np.searchsorted(self._ids, asked)
        inside = found < len(self._ids)
        known = inside.copy()
        known[inside] = self._ids[found[inside]] == asked[inside]
        if not known.all():
            if unknown == "error":
                at = int(np.argmin(known))
                raise DataError(
                    f"id {asked.tolist()[at]!r} (position {at}) is not among the {len(self)} known ids; "
                    "pass unknown='mark' to get -1 for such ids"
                )
            found[~known] = -1
        return found.astype(np.int32)

    def decode(self, indices: ArrayLike) -> NDArray[Any]:
        """The ids of `indices`, which must be in `0..len-1`."""
        at = np.asarray(indices)
        if at.size and (int(at.min()) < 0 or int(at.max()) >= len(self)):
            raise DataError(
                f"index {int(at.min()) if at.min() < 0 else int(at.max())} has no id; there are {len(self)}"
            )
        return np.asarray(self._ids[at])

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays that say everything: `ids` (int64), or `text` (UTF-8 bytes) and `offsets` (n + 1)."""
        if not self.is_text:
            return {"ids": np.asarray(self._ids)}
        parts = [s.encode() for s in self._ids.tolist()]
        offsets = np.zeros(len(parts) + 1, dtype=np.int64)
        np.cumsum([len(p) for p in parts], out=offsets[1:])
        return {"text": np.frombuffer(b"".join(parts), dtype=np.uint8), "offsets": offsets}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> IdMap:
        """The inverse of `to_arrays`; order and uniqueness are checked, since everything rests on them."""
        if "place" in arrays:  # renamed by a shuffle
            from stretto.data.shuffle import Relabelled

            place = arrays["place"]
            base = cls.from_arrays({name: array for name, array in arrays.items() if name != "place"})
            if not np.array_equal(np.sort(place), np.arange(len(base))):
                raise DataError("stored ids are damaged: their order is no permutation; write the file again")
            return Relabelled(base, place)
        if "ids" in arrays:
            ids = np.asarray(arrays["ids"], dtype=np.int64)
        else:
            text, offsets = bytes(np.asarray(arrays["text"], dtype=np.uint8)), arrays["offsets"].tolist()
            if not offsets or offsets[0] != 0 or offsets[-1] != len(text):
                raise DataError("stored ids are damaged: the offsets do not cover the text; write the file again")
            try:
                ids = text_array([text[a:b].decode() for a, b in pairwise(offsets)])
            except UnicodeDecodeError as error:
                raise DataError("stored ids are damaged: the text is not UTF-8; write the file again") from error
        if ids.ndim != 1 or not bool((ids[1:] > ids[:-1]).all()):
            raise DataError("stored ids are damaged: they must be sorted and unique; write the file again")
        return cls(ids)


def text_array(strings: list[str]) -> NDArray[Any]:
    """A NumPy string array of variable width."""
    return np.array(strings, dtype=TEXT) if strings else np.empty(0, dtype=TEXT)


def _plain(ids: ArrayLike) -> NDArray[Any]:
    array = np.atleast_1d(np.asarray(ids)).ravel()
    kind = array.dtype.kind
    if kind in "iub":
        if kind == "u" and array.size and int(array.max()) > 2**63 - 1:
            raise DataError(f"id {int(array.max())} does not fit 64 signed bits; pass such ids as text")
        return array.astype(np.int64, copy=False)
    if kind in "UT":
        return array.astype(TEXT, copy=False)
    if kind == "S":
        return text_array([b.decode() for b in array.tolist()])
    if kind == "O":
        items = array.tolist()
        if all(isinstance(x, str) for x in items):
            return text_array(items)
        if all(isinstance(x, (int, np.integer)) for x in items):
            return _plain(np.array([int(x) for x in items], dtype=np.int64))
        bad = next(
            x
            for x in items
            if not isinstance(x, (str, int, np.integer)) or isinstance(x, str) != isinstance(items[0], str)
        )
        raise DataError(f"ids must be all integers or all text; found {bad!r} ({type(bad).__name__})")
    if kind == "f":
        with np.errstate(invalid="ignore"):
            whole = array.astype(np.int64)
        if bool((whole == array).all()):
            return whole
    if array.size == 0:
        return np.empty(0, dtype=np.int64)
    raise DataError(f"ids must be integers or text, got {array.dtype}")


def _as_kind(asked: NDArray[Any], text: bool) -> NDArray[Any]:
    if text:
        return text_array([str(x) for x in asked.tolist()])
    try:
        return np.array([int(x) for x in asked.tolist()], dtype=np.int64)
    except ValueError as error:
        raise DataError("this map holds integer ids and was asked for text that is no integer") from error
