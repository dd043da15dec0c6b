"""The parameters of a program: named arrays, a ring of versions for pipelined rounds, and read-only views.

With s rounds in flight, round t reads version t − s while earlier rounds are still being aggregated. A ring of s copies
is enough: when round t is aggregated, all its jobs are done and version t − s is unused. Its slot becomes version t, a
copy of version t − 1 with the round's results. With s = 1 there is one version and no copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.errors import DataError, PlanError
from stretto.state.state import State

Arrays = dict[str, NDArray[Any]]
WRITING = -1  # the version of a slot in the ring that is being written to


class Params(Mapping[str, NDArray[Any]]):
    """Named arrays, as `update` and `aggregate` receive them: read-only for `update`.

    Assigning to a name writes into the existing array, so that other references to the array stay valid.
    """

    __slots__ = ("_arrays", "_writable")

    def __init__(self, arrays: Arrays, *, writable: bool) -> None:
        self._writable = writable
        self._arrays = arrays if writable else {name: _frozen(array) for name, array in arrays.items()}

    def __getitem__(self, name: str) -> NDArray[Any]:
        try:
            return self._arrays[name]
        except KeyError:
            raise KeyError(f"params[{name!r}] does not exist; there are {', '.join(self._arrays)}") from None

    def __setitem__(self, name: str, value: Any) -> None:
        if not self._writable:
            raise TypeError(f"params[{name!r}] is read-only: return the result and let `aggregate` write it")
        array = self[name]
        if value is not array:  # `params[name] += x` has written it already
            array[...] = value

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}: {array.dtype}{list(array.shape)}" for name, array in self._arrays.items())
        return f"<params {inside}>"


class Versions:
    """The last `depth` versions of some arrays. Version 0 is `arrays`; `put_back` copies the newest version into it."""

    def __init__(self, arrays: Arrays, depth: int) -> None:
        self._own = arrays
        ring = [arrays, *({name: np.empty_like(array) for name, array in arrays.items()} for _ in range(depth - 1))]
        self._writable = [Params(one, writable=True) for one in ring]
        self._frozen = [Params(one, writable=False) for one in ring]
        self._stamp = [0, *[WRITING] * (depth - 1)]
        self.newest = 0

    def read(self, version: int) -> Params:
        """A version, read-only."""
        return self._frozen[version % len(self._frozen)]

    def stamp(self, version: int) -> int:
        """The version that is in the slot of this one; WRITING while the slot is being written."""
        return self._stamp[version % len(self._stamp)]

    def begin(self, version: int) -> Params:
        """Start the next version as a copy of the newest, and return it writable."""
        place, last = version % len(self._stamp), self.newest % len(self._stamp)
        if place != last:
            self._stamp[place] = WRITING
            for name, array in self._writable[place].items():
                np.copyto(array, self._writable[last][name])
        return self._writable[place]

    def end(self, version: int) -> None:
        """Mark a version as complete."""
        self._stamp[version % len(self._stamp)] = self.newest = version

    def restore(self, newest: int, versions: Mapping[int, Mapping[str, NDArray[Any]]]) -> None:
        """Continue from saved versions: the newest, and earlier ones that are still read."""
        for version, arrays in versions.items():
            place = version % len(self._stamp)
            for name, array in arrays.items():
                np.copyto(self._writable[place][name], array)
            self._stamp[place] = version
        self.newest = newest

    def put_back(self) -> None:
        """Copy the newest version into the arrays of the program."""
        if self.newest % len(self._stamp):
            for name, array in self.read(self.newest).items():
                np.copyto(self._own[name], array)

    def nan(self, version: int) -> str | None:
        """The name of an array that holds a NaN; None if none does."""
        return holds_nan(self._writable[version % len(self._stamp)])


def holds_nan(arrays: Mapping[str, NDArray[Any]]) -> str | None:
    """The name of the first array that holds a NaN; None if none does. The minimum of such an array is NaN."""
    for name, array in arrays.items():
        if array.dtype.kind in "fc" and array.size and np.isnan(array.min()):
            return name
    return None


def arrays_of(program: str, params: Any) -> Arrays:
    """The arrays of a program's `params`, validated."""
    if not isinstance(params, Mapping) or not params:
        raise PlanError(
            f"{program}: params is a dict of the arrays that are learned, such as {{'beta': np.zeros(100)}}; "
            f"got {type(params).__name__}"
        )
    arrays: Arrays = {}
    for name, value in params.items():
        array = value.array if isinstance(value, State) else value
        if not isinstance(array, np.ndarray) or array.dtype.hasobject:
            raise PlanError(
                f"{program}: params[{name!r}] is {_kind(value)}, not an array of numbers; what never changes belongs "
                "in data, a number that does in an array of one element"
            )
        if not array.flags.writeable:
            raise PlanError(f"{program}: params[{name!r}] is a read-only array; pass a copy of it")
        for other, held in arrays.items():
            if np.shares_memory(held, array):  # each would be copied from version to version by itself
                raise PlanError(
                    f"{program}: params[{other!r}] and params[{name!r}] share memory; pass one of them alone and take "
                    "the other from it in `update` and `aggregate`, or pass a copy"
                )
        arrays[str(name)] = array
    if name := holds_nan(arrays):
        raise DataError(f"{program}: params[{name!r}] holds NaN before the first round; give it numbers to start from")
    return arrays


def _kind(value: Any) -> str:
    return "an array of objects" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view
