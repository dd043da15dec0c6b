"""`TableResult` of a run over tables: final tables, history, recording."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.errors import PlanError
from stretto.plan.job import JobPlan
from stretto.runtime.tables.job import FinalRows, TableEvaluation, TableOutcome
from stretto.store.layout import Layout, Start
from stretto.text import html_table

from .table import Lookup, Table
from .whole import Elements, Entries, TableArrays

_NEWEST = 10  # evaluations that a notebook shows


@dataclass(frozen=True, eq=False, repr=False)
class TableResult:
    """The result of a run with tables.

    Attributes
    ----------
    tables : mapping
        By name: [rows, cols] (width 1: [rows]; with fields an object that has them; without rows= its entries).
    clocks : tuple of int
        Ticks of each worker.
    seconds : float
        Seconds of the run without evaluations; virtual seconds on `st.Simulated`.
    history : tuple of TableEvaluation
        The evaluations of `watch`.
    stopped : str
        Why it ended: "done", "until" or "interrupted".
    staleness : ndarray of int64 [workers, 32]
        How many rows were read that were 0, 1, … clocks behind the reader.
    traffic : sequence
        Bytes and messages by sender, receiver and purpose.
    local : tuple of dict
        What each worker kept in `w.local`.
    recording : object
        Everything that happened, with record="full".
    items : float
        Items computed by all workers, as `w.work` and `w.batches` counted them.
    plan : JobPlan
        The plan that was run, with its grade and fingerprint.
    objective : float
        The objective at the last evaluation.
    """

    tables: Mapping[str, Any]
    clocks: tuple[int, ...]
    seconds: float
    history: tuple[TableEvaluation, ...]
    stopped: str
    staleness: NDArray[np.int64]
    traffic: Sequence[Any]
    local: tuple[dict[str, Any], ...]
    recording: Any
    items: float
    _specs: Mapping[str, Table]
    _layout: Layout
    _rest: tuple[FinalRows, ...]
    plan: JobPlan | None = None

    @property
    def objective(self) -> float:
        """The objective at the last evaluation."""
        return self.history[-1].objective if self.history else float(np.nan)

    def entries(self, name: str) -> Entries | Elements:
        """The rows of a table that were touched; of sparse rows, the numbers.

        Parameters
        ----------
        name : str
            Name of the table.
        """
        whole = self.tables
        assert isinstance(whole, TableArrays)
        return whole.entries(name)

    def table(self, name: str) -> Table:
        """A table like the one of the run that begins where the run ended, with the state of its server function.

        Parameters
        ----------
        name : str
            Name of the table.
        """
        if name not in self._specs:
            raise PlanError(f"there is no table {name!r}; this run had {', '.join(map(repr, self._specs))}")
        number = list(self._specs).index(name)
        rest, table, spec = self._rest[number], self._specs[name], self._layout.tables[number]
        start, befores, apply = spec.start, spec.states or spec.apply.starts, spec.apply
        if apply.create is not None:  # it creates untouched rows, and must not create the others again
            made = _Made(self._layout, number)
            start, befores = made.values, tuple(map(made.state, range(apply.states)))
            apply = replace(apply, create=None)
        keys = rest.keys
        states = tuple(Lookup(keys, state, before) for state, before in zip(rest.states, befores, strict=True))
        return replace(table, start=Lookup(keys, rest.values, start), states=states, apply=apply)

    def __reduce__(self) -> tuple[Any, ...]:
        """Support pickle. Functions of the tables, such as start=lambda keys: …, are pickled by value."""
        return _unpickled, (_pickled({entry.name: getattr(self, entry.name) for entry in fields(self)}),)

    def _repr_html_(self) -> str:
        """The newest evaluations, for notebooks."""
        rows = [
            [f"{one.clock:,}", f"{one.seconds:.3g}", f"{one.bytes:,}", f"{one.objective:.6g}"]
            for one in self.history[-_NEWEST:]
        ]
        return html_table(("clock", "seconds", "bytes sent", "objective"), rows, repr(self))

    def __repr__(self) -> str:
        ticks = f"{min(self.clocks, default=0)} to {max(self.clocks, default=0)} ticks"
        end = f", objective {self.objective:.6g}" if self.history else ""
        return (
            f"Result({self.tables!r}, {len(self.clocks)} workers, {ticks}, {self.seconds:.3g} s, {self.stopped}{end})"
        )


def _pickled(content: Any) -> bytes:
    try:
        return pickle.dumps(content, protocol=5)
    except (pickle.PicklingError, AttributeError, TypeError):
        from numba import cloudpickle  # functions by value; the package itself comes with stretto[cluster] only

        found: bytes = cloudpickle.dumps(content, protocol=5)
        return found


def _unpickled(content: bytes) -> TableResult:
    return TableResult(**pickle.loads(content))


class _Made:
    """Untouched rows, as a server function's `create` makes them."""

    def __init__(self, layout: Layout, number: int) -> None:
        self._layout, self._number = layout, number

    def _begin(self, keys: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
        from stretto.store.shard.applying import Applier

        return Applier(self._layout, self._number).begin(self._layout, self._number, keys)

    def values(self, keys: NDArray[np.int64]) -> NDArray[Any]:
        return self._begin(keys)[0]

    def states(self, keys: NDArray[np.int64]) -> NDArray[Any]:
        return self._begin(keys)[1]

    def state(self, which: int) -> Start:
        return _MadeState(self, which)


@dataclass(frozen=True)
class _MadeState:
    """One state of untouched rows, as `create` makes them."""

    made: _Made
    which: int

    def __call__(self, keys: NDArray[np.int64]) -> NDArray[Any]:
        return self.made.states(keys)[:, self.which]


@dataclass(frozen=True)
class _Touched:
    """Keys and rows of each table that were touched."""

    rest: tuple[FinalRows, ...]

    def __call__(self, number: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
        return self.rest[number].keys, self.rest[number].values


def result_of(outcome: TableOutcome, tables: Mapping[str, Table], layout: Layout) -> TableResult:
    """The result of a run from what its runtime returned."""
    rest = outcome.tables
    stale = outcome.staleness
    return TableResult(
        tables=TableArrays(tables, layout, _Touched(rest)),
        clocks=outcome.clocks,
        seconds=outcome.seconds,
        history=tuple(outcome.history),
        stopped=outcome.stopped,
        staleness=np.zeros((len(outcome.clocks), 32), dtype=np.int64) if stale is None else stale,
        traffic=outcome.traffic,
        local=outcome.local,
        recording=outcome.recording,
        items=outcome.items,
        _specs=tables,
        _layout=layout,
        _rest=rest,
    )
