"""`Buffer` (`st.buffer`): delayed writes to a state, so that conflicting iterations can run in parallel.

    Wb = st.buffer(W)                                  W[k] + d: seen by this visit at once, by others later
    Wb = st.buffer(W, apply=adagrad, with_=(G,))       w, g = adagrad(w, d, g) for each waiting element

    for i, (y, features) in samples:
        s = sum of W[f] * x                            reads go to the state itself, as it was
        for f, x in features:
            Wb[f] -= lr * slope(s, y) * x              writes go through the buffer

Pending writes to one element add up. A flush takes the elements with pending writes in ascending order and calls
`apply(value, delta, *helpers[, seen])` for each. It returns the new value, or with helpers a tuple of the new value and
theirs. `seen` is the value of the `snapshot` helper at the time when the inputs of the delta were read; with it, a step
can correct for updates of others since then (AdaRevision).

Without a plan every write is a flush of its own. A plan drives the buffer through `hold`, `tick`, `flush`, `take_log`,
`replay` and `release`: a visit flushes into the arrays it sees and leaves a log, and the logs of a wave are replayed
one visit after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import DTypeLike, NDArray

from stretto.cached import cached_property
from stretto.errors import DataError
from stretto.state.accumulator import check_kind
from stretto.state.state import SparseRows, State

Arrays: TypeAlias = State | NDArray[Any]
_MOST_SPARSE = 2**28  # bytes: as many as 32 visits copy into 8 GiB


@dataclass(frozen=True, slots=True, eq=False)
class FlushLog:
    """The writes that a visit flushed, in order."""

    element: NDArray[np.int64]  # [n] row-major index
    delta: NDArray[Any]  # [n] what was added
    seen: NDArray[Any] | None  # [n] value of the snapshot helper; None without one

    def __len__(self) -> int:
        return len(self.element)


class Buffer:
    """Writes to a state that wait, so that iterations which would conflict may run together.

    Parameters
    ----------
    target : State or ndarray
        The state.
    apply : callable or None, default None
        `f(value, delta, *helpers[, seen])` for each element; None adds.
    with_ : tuple of arrays, default ()
        Arrays of the state's shape that `apply` reads and may change.
    snapshot : array or None, default None
        The one of them whose value at the time of reading is the last argument of `apply`.
    every : int or None, default 1
        Iterations after which a visit flushes; None flushes when the visit ends.

    Attributes
    ----------
    target : ndarray
        The array of the state.
    helpers : tuple of ndarray
        The arrays of `with_`.
    apply : callable or None
        The function that changes an element.
    every : int or None
        Iterations between two flushes.
    snapshot : int or None
        Which helper is the snapshot.
    log : list of FlushLog
        What was flushed since the log was last taken.
    """

    def __init__(
        self,
        target: Arrays,
        apply: Callable[..., Any] | None = None,
        with_: tuple[Arrays, ...] = (),
        snapshot: Arrays | None = None,
        every: int | None = 1,
    ) -> None:
        self.target = _array(_small(target))
        self.helpers = tuple(_array(helper) for helper in with_)
        self.apply = apply
        self.every = every
        self.snapshot = _position(snapshot, with_)  # which helper it is, or None
        _check(self)
        self._touched: list[NDArray[np.int64]] = []
        self._held = False
        self._iterations = 0
        self.log: list[FlushLog] = []

    @cached_property
    def _waiting(self) -> NDArray[Any]:
        """[shape] the pending sum of each element. Allocated by the first write: compiled loops have their own."""
        return np.zeros(self.shape, dtype=self.dtype)

    @cached_property
    def _numbers(self) -> NDArray[np.int64]:
        """[shape] the row-major number of each element."""
        return np.arange(self.target.size).reshape(self.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the state."""
        return self.target.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the numbers."""
        return self.target.dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self.target.ndim

    def __len__(self) -> int:
        return len(self.target)

    def __repr__(self) -> str:
        how = "added" if self.apply is None else f"by {getattr(self.apply, '__name__', self.apply)}"
        return f"buffer({' x '.join(map(str, self.shape))}, {self.dtype}, {how})"

    def __getitem__(self, key: Any) -> BufferElement:
        """The pending sum of some elements; `+=` and `-=` add to it."""
        return BufferElement(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        if not (
            isinstance(value, BufferElement) and value.owner is self
        ):  # else the second half of `+=`, which is done
            raise DataError("a buffer takes `+=` and `-=` only; to set values, write to the state itself")

    def write(self, key: Any, delta: Any, sign: int = 1) -> None:
        """Add to elements, as `buffer[key] += delta` or `-=` does. Written elements wait, also if nothing was added.

        Parameters
        ----------
        key : index
            The elements.
        delta : array_like
            What is added.
        sign : int, default 1
            1 to add, -1 to subtract.
        """
        check_kind(delta, self.dtype, "a buffer")
        self._waiting[key] = self._waiting[key] + delta if sign > 0 else self._waiting[key] - delta
        self._touched.append(np.ravel(self._numbers[key]))
        if not self._held or self.apply is None:  # own additions are seen at once
            self.flush()

    # --- what a plan calls ------------------------------------------------------------------------------------------

    def hold(self) -> None:
        """Let writes wait until they are flushed, and log flushes, from now on."""
        self._held = True
        self._iterations = 0

    def tick(self) -> None:
        """End an iteration. Every `every` iterations there is a flush."""
        self._iterations += 1
        if self._iterations == self.every:
            self.flush()

    def flush(self) -> None:
        """Apply what waits to the arrays as they are now, in ascending order of elements, and log it.

        Counting iterations starts over. `seen` is the snapshot's value now: within a visit only a flush changes it, so
        now is as good as when the value was read.
        """
        self._iterations = 0
        if not self._touched:
            return
        element = np.unique(np.concatenate(self._touched))
        self._touched = []
        delta = self._waiting.reshape(-1)[element]
        self._waiting.reshape(-1)[element] = 0
        seen = None if self.snapshot is None else self.helpers[self.snapshot].flat[element]
        flushed = FlushLog(element, delta, seen)
        self.replay(flushed)
        if self._held:
            self.log.append(flushed)

    def take_log(self) -> FlushLog:
        """Everything flushed since the last time, as one log; plain additions as one total for each element."""
        logs, self.log = self.log, []
        element = _joined([log.element for log in logs], np.dtype(np.int64))
        delta = _joined([log.delta for log in logs], self.dtype)
        if self.apply is None:
            return self._totals(element, delta)
        seen = None
        if self.snapshot is not None:
            found = [log.seen for log in logs if log.seen is not None]
            seen = _joined(found, self.helpers[self.snapshot].dtype)
        return FlushLog(element, delta, seen)

    def replay(self, log: FlushLog) -> None:
        """Apply a log to the arrays as they are now, each record with what its visit had seen.

        Parameters
        ----------
        log : FlushLog
            What a visit flushed.
        """
        if self.apply is None:
            self.target.flat[log.element] = self.target.flat[log.element] + log.delta
            return
        for n, element in enumerate(log.element.tolist()):
            seen = () if log.seen is None else (log.seen[n],)
            self._apply_one(element, log.delta[n], seen)

    def release(self) -> None:
        """End the control of a plan: apply what still waits, and drop the log."""
        self.flush()
        self._held = False
        self.log = []

    # ----------------------------------------------------------------------------------------------------------------

    def _apply_one(self, element: int, delta: Any, seen: tuple[Any, ...]) -> None:
        assert self.apply is not None
        helpers = [helper.flat[element] for helper in self.helpers]
        result = self.apply(self.target.flat[element], delta, *helpers, *seen)
        new = result if isinstance(result, tuple) else (result,)
        if len(new) != 1 + len(helpers):
            name = getattr(self.apply, "__name__", repr(self.apply))
            raise DataError(
                f"buffer: {name} gave {len(new)} values; return the new value and those of the {len(helpers)} arrays "
                "of with_, as a tuple"
            )
        for array, value in zip((self.target, *self.helpers), new, strict=True):
            array.flat[element] = value

    def _totals(self, element: NDArray[np.int64], delta: NDArray[Any]) -> FlushLog:
        """One total for each element, added up in the order of the flushes and in the state's own type."""
        once, where = np.unique(element, return_inverse=True)
        total = np.zeros(len(once), dtype=self.dtype)
        np.add.at(total, where, delta)  # unbuffered, in order
        return FlushLog(once, total, None)


class BufferElement(NDArrayOperatorsMixin):
    """`buffer[k]`: a pending sum. `+=` and `-=` add to it; otherwise it reads as a number or an array."""

    __slots__ = ("key", "owner")

    def __init__(self, owner: Buffer, key: Any) -> None:
        self.owner, self.key = owner, key

    def __iadd__(self, delta: Any) -> BufferElement:
        self.owner.write(self.key, delta)
        return self

    def __isub__(self, delta: Any) -> BufferElement:
        self.owner.write(self.key, delta, -1)
        return self

    def __getitem__(self, key: Any) -> BufferElement:
        """buffer[i][k] is buffer[i, k]."""
        first = self.key if isinstance(self.key, tuple) else (self.key,)
        if not all(isinstance(part, int | np.integer) for part in first):
            raise DataError("write buffer[i, k], all subscripts at once")
        return BufferElement(self.owner, (*first, *(key if isinstance(key, tuple) else (key,))))

    def __setitem__(self, key: Any, value: Any) -> None:
        self.owner[key] = value

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.owner._waiting[self.key], dtype=dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        bare = (np.asarray(x)[()] if isinstance(x, BufferElement) else x for x in inputs)
        return getattr(ufunc, method)(*bare, **options)

    def __float__(self) -> float:
        return float(self.owner._waiting[self.key])

    def __repr__(self) -> str:
        return repr(self.owner._waiting[self.key])


def buffer(
    target: Arrays,
    apply: Callable[..., Any] | None = None,
    with_: tuple[Arrays, ...] = (),
    snapshot: Arrays | None = None,
    every: int | None = 1,
) -> Buffer:
    """A buffer in front of a state: writes wait, so that iterations which would conflict may run together.

    Parameters
    ----------
    target : State or ndarray
        The state.
    apply : callable or None, default None
        `f(value, delta, *helpers[, seen])` for each element, which returns the new value; with helpers, a tuple of the
        new value and theirs. None adds.
    with_ : tuple of arrays, default ()
        Arrays of the state's shape that `apply` reads and may change.
    snapshot : array or None, default None
        The one of them whose value at the time of reading is the last argument of `apply`.
    every : int or None, default 1
        Iterations after which a visit flushes; None flushes when the visit ends. Plain additions do not wait within the
        visit that makes them.

    Returns
    -------
    Buffer

    Examples
    --------
    >>> import numpy as np, stretto as st
    >>> W = np.zeros(3)
    >>> Wb = st.buffer(W, apply=lambda w, d: w + 2 * d)
    >>> Wb[1] += 1.5
    >>> W.tolist()
    [0.0, 3.0, 0.0]
    """
    return Buffer(target, apply, with_, snapshot, every)


def _array(given: Any) -> NDArray[Any]:
    if isinstance(given, State):
        return given.array
    if isinstance(given, np.ndarray):
        return given
    raise DataError(f"buffer: the target is a state or a NumPy array, got {type(given).__name__}")


def _small(target: Arrays) -> Arrays:
    """Refuse a state with sparse rows whose copies for the visits of a loop would take all memory."""
    if isinstance(target, SparseRows) and target.nbytes > _MOST_SPARSE:
        raise DataError(
            f"buffer: a loop copies the whole state behind a buffer for every visit, and of {target!r} also the rows "
            "that do not exist; write to the state without a buffer, or hash its rows to fewer"
        )
    return target


def _position(snapshot: Any, with_: tuple[Any, ...]) -> int | None:
    if snapshot is None:
        return None
    for k, helper in enumerate(with_):
        if helper is snapshot:
            return k
    raise DataError("buffer: the snapshot must be one of the arrays in with_; add it there")


def _check(made: Buffer) -> None:
    if made.dtype.kind not in "iuf":
        raise DataError(f"buffer: deltas are added up, which {made.dtype} cannot do; use a state of numbers")
    for k, helper in enumerate(made.helpers):
        if helper.shape != made.shape:
            raise DataError(f"buffer: with_[{k}] has shape {helper.shape}, the state has {made.shape}; make them equal")
    if made.helpers and made.apply is None:
        raise DataError("buffer: arrays in with_ are for `apply`; pass the function that uses them")
    if made.every is not None and made.every < 1:
        raise DataError(f"buffer: every={made.every}; flush after 1 iteration or more, or None for the end of a visit")


def _joined(parts: list[NDArray[Any]], dtype: np.dtype[Any]) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.empty(0, dtype=dtype)
