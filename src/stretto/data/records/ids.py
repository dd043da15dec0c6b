"""`IdMap`: maps the user's ids of rows or columns to indices and back.

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

import re
from bisect import bisect_left
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stretto.errors import DataError

TEXT = np.dtypes.StringDType()
INT64_MAX = 2**63 - 1

# An integer as Python writes it: one number has one text, so that "007" and "7" stay two names.
_WRITTEN = re.compile(r"0|-?[1-9][0-9]{0,18}")


class IdMap:
    """A map between ids and indices: index k stands for `ids[k]`.

    Parameters
    ----------
    ids : ndarray
        Ids, sorted and unique: int64 or strings. `IdMap.of` takes them in any order.

    Examples
    --------
    >>> import stretto as st
    >>> names = st.IdMap.of(["berta", "ada", "berta"])
    >>> names.encode(["berta"]).tolist(), names.decode([0]).tolist()
    ([1], ['ada'])
    """

    __slots__ = ("_ids",)

    def __init__(self, ids: NDArray[Any]) -> None:
        """Take ids that are sorted and unique already; `IdMap.of` makes them so."""
        self._ids = ids.view()
        self._ids.flags.writeable = False

    @classmethod
    def of(cls, ids: ArrayLike) -> IdMap:
        """The map of every id that occurs.

        Parameters
        ----------
        ids : array_like
            Ids in any order, also repeated.
        """
        return cls(np.unique(plain_ids(ids)))

    @property
    def ids(self) -> NDArray[Any]:
        """The ids in index order: int64, or strings."""
        return self._ids

    @property
    def is_text(self) -> bool:
        """Whether the ids are strings."""
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
        """Indices of ids.

        A map of integers also takes them as text, as Python writes them: "7" is 7, and "007" is unknown.

        Parameters
        ----------
        ids : array_like
            The ids.
        unknown : {"error", "mark"}, default "error"
            Raise an error for an id that is not in the map, or return -1 for it.
        """
        if unknown not in ("error", "mark"):
            raise DataError(f'unknown={unknown!r}; there are "error" and "mark"')
        given = plain_ids(ids)
        asked, known = given, np.ones(len(given), dtype=np.bool_)
        if asked.dtype.kind != self._ids.dtype.kind:  # numbers asked of a text map, or the other way round
            asked, known = _as_kind(asked, self.is_text)
        found = _ranks_of_text(self._ids, asked) if self.is_text else np.searchsorted(self._ids, asked)
        known &= found < len(self._ids)
        known[known] = self._ids[found[known]] == asked[known]
        if not known.all():
            if unknown == "error":
                at = int(np.argmin(known))
                raise DataError(
                    f"id {given.tolist()[at]!r} (position {at}) is not among the {len(self)} known ids; "
                    'encode(ids, unknown="mark") gives -1 for such ids'
                )
            found[~known] = -1
        return found.astype(np.int32)

    def decode(self, indices: ArrayLike) -> NDArray[Any]:
        """Ids of indices.

        Parameters
        ----------
        indices : array_like of int
            The indices, from 0 to the length of the map - 1.
        """
        at = np.asarray(indices)
        if at.size and (int(at.min()) < 0 or int(at.max()) >= len(self)):
            raise DataError(
                f"index {int(at.min()) if at.min() < 0 else int(at.max())} has no id; there are {len(self)}"
            )
        return np.asarray(self._ids[at])

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The map as plain arrays: `ids` (int64), or `text` (UTF-8 bytes) and `offsets` [n + 1]."""
        if not self.is_text:
            return {"ids": np.asarray(self._ids)}
        parts = [s.encode() for s in self._ids.tolist()]
        offsets = np.zeros(len(parts) + 1, dtype=np.int64)
        np.cumsum([len(p) for p in parts], out=offsets[1:])
        return {"text": np.frombuffer(b"".join(parts), dtype=np.uint8), "offsets": offsets}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> IdMap:
        """The inverse of `to_arrays`. Order and uniqueness are checked.

        Parameters
        ----------
        arrays : dict of ndarray
            What `to_arrays` returned.
        """
        if "place" in arrays:  # renamed by a shuffle
            place = arrays["place"]
            base = cls.from_arrays({name: array for name, array in arrays.items() if name != "place"})
            if not np.array_equal(np.sort(place), np.arange(len(base))):
                raise DataError("stored ids are damaged: their order is no permutation; write the file again")
            return Relabelled(base, place)
        if "ids" in arrays:
            ids = arrays["ids"]
            if ids.dtype.kind not in "iu":
                raise DataError(f"stored ids are damaged: they are {ids.dtype}; write the file again")
            ids = np.asarray(ids, dtype=np.int64)
        elif {"text", "offsets"} <= arrays.keys() and arrays["text"].dtype == np.uint8:
            text, offsets = arrays["text"].tobytes(), np.asarray(arrays["offsets"]).ravel().tolist()
            rising = all(isinstance(b, int) and a <= b for a, b in pairwise(offsets))
            if not offsets or offsets[0] != 0 or offsets[-1] != len(text) or not rising:
                raise DataError("stored ids are damaged: the offsets do not cover the text; write the file again")
            try:
                ids = text_array([text[a:b].decode() for a, b in pairwise(offsets)])
            except UnicodeDecodeError as error:
                raise DataError("stored ids are damaged: the text is not UTF-8; write the file again") from error
        else:
            raise DataError("stored ids are damaged: a part of them is missing; write the file again")
        if ids.ndim != 1 or not bool((ids[1:] > ids[:-1]).all()):
            raise DataError("stored ids are damaged: they must be sorted and unique; write the file again")
        return cls(ids)


class Relabelled(IdMap):
    """An id map whose indices were renamed: index place[k] stands for the k-th id in sorted order."""

    __slots__ = ("_base", "_place")

    def __init__(self, base: IdMap, place: NDArray[Any]) -> None:
        if len(place) != len(base):
            raise DataError(f"{len(base)} ids cannot be renamed by a permutation of {len(place)}")
        ids = np.empty_like(base.ids)
        ids[place] = base.ids
        super().__init__(ids)
        self._base, self._place = base, place

    @property
    def is_identity(self) -> bool:
        return self._base.is_identity and bool((self._place == np.arange(len(self))).all())

    def encode(self, ids: ArrayLike, unknown: Literal["error", "mark"] = "error") -> NDArray[np.int32]:
        found = self._base.encode(ids, unknown)
        known = found >= 0
        found[known] = self._place[found[known]]
        return found

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        return {**self._base.to_arrays(), "place": self._place}

    def moved(self, place: NDArray[Any]) -> Relabelled:
        return Relabelled(self._base, place[self._place])


def text_array(strings: list[str]) -> NDArray[Any]:
    """A NumPy string array of variable width."""
    return np.array(strings, dtype=TEXT) if strings else np.empty(0, dtype=TEXT)


def whole_numbers(array: NDArray[Any]) -> NDArray[np.int64] | None:
    """The integers that an array of floats stands for; None where one is fractional, missing, infinite or so large that
    neighbouring integers share a float, which makes ids run together.

    >>> whole_numbers(np.array([1.0, 2.0])), whole_numbers(np.array([2.0**24], np.float32))
    (array([1, 2]), None)
    """
    exact = 2.0 ** (np.finfo(array.dtype).nmant + 1)
    if not bool((np.abs(array) < exact).all()) or not bool((array == np.floor(array)).all()):  # NaN fails the first
        return None
    return array.astype(np.int64)


def plain_ids(ids: ArrayLike) -> NDArray[Any]:
    """Ids as a flat array of int64 or of text; what is neither is refused."""
    try:
        array = np.atleast_1d(np.asarray(ids)).ravel()
    except (TypeError, ValueError) as error:
        raise DataError(f"ids must be a flat sequence of integers or text ({error})") from error
    kind = array.dtype.kind
    if array.size == 0:
        return array.astype(TEXT) if kind in "UT" else np.empty(0, dtype=np.int64)
    if kind in "iu":
        if kind == "u" and int(array.max()) > INT64_MAX:
            raise DataError(f"id {int(array.max())} does not fit 64 signed bits; give such ids as text")
        return array.astype(np.int64, copy=False)
    if kind in "UT":
        return array.astype(TEXT, copy=False)
    if kind == "S":
        try:
            return text_array([b.decode() for b in array.tolist()])
        except UnicodeDecodeError as error:
            raise DataError(f"an id is not UTF-8 text ({error}); decode the ids first") from error
    if kind == "O":
        return _from_objects(array.tolist())
    if kind == "f" and (whole := whole_numbers(array)) is not None:
        return whole
    why = "fractional, missing or very large numbers" if kind == "f" else "what is neither"
    raise DataError(f"ids must be integers or text, got {why} ({array.dtype}); give them as integers or as text")


def _from_objects(items: list[Any]) -> NDArray[Any]:
    if all(isinstance(x, str) for x in items):
        try:
            return text_array(items)
        except ValueError as error:  # half a surrogate pair
            raise DataError(f"an id is not valid text ({error}); repair it first") from error
    if all(isinstance(x, (int, np.integer)) and not isinstance(x, bool) for x in items):
        large = next((x for x in items if not -INT64_MAX <= int(x) <= INT64_MAX), None)
        if large is not None:
            raise DataError(f"id {large} does not fit 64 signed bits; give such ids as text")
        return np.array([int(x) for x in items], dtype=np.int64)
    if all(isinstance(x, (float, np.floating)) for x in items):
        whole = whole_numbers(np.array(items, dtype=np.float64))
        if whole is not None:
            return whole
    text = isinstance(items[0], str)
    bad = next(x for x in items if isinstance(x, bool) or not isinstance(x, str if text else (int, np.integer)))
    raise DataError(
        f"ids must be all integers or all text; found {bad!r} ({type(bad).__name__}): convert the column, such as "
        "frame[name].astype(str)"
    )


def _ranks_of_text(ids: NDArray[Any], asked: NDArray[Any]) -> NDArray[np.int64]:
    """Where each text is among sorted ones, any place for one that is not.

    NumPy's searchsorted (2.4.6, numpy#31533) reads texts of 16 bytes or more of one array from the memory of the other.
    """
    names = asked.tolist()
    if 16 * len(names) < len(ids):
        return np.array([bisect_left(ids, name) for name in names], dtype=np.int64)
    place = {name: k for k, name in enumerate(ids.tolist())}
    return np.fromiter((place.get(name, len(ids)) for name in names), np.int64, len(names))


def _as_kind(asked: NDArray[Any], text: bool) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The ids as the other kind, and which of them there can be in a map of that kind."""
    if text:
        return text_array([str(x) for x in asked.tolist()]), np.ones(len(asked), dtype=np.bool_)
    numbers = np.zeros(len(asked), dtype=np.int64)
    known = np.zeros(len(asked), dtype=np.bool_)
    for k, name in enumerate(asked.tolist()):
        if _WRITTEN.fullmatch(name) and -INT64_MAX <= int(name) <= INT64_MAX:
            numbers[k], known[k] = int(name), True
    return numbers, known
