"""From a unit to the job over tables that runs it, and from the job's outcome back to the states."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.errors import PlanError, RunError
from stretto.runtime.stages.data_store import held
from stretto.runtime.stages.sessions import StagePlace
from stretto.runtime.tables.job import TableJob, TableOutcome
from stretto.state.state import State
from stretto.tables.job import TableIdentity, TableRunRequest
from stretto.tables.options import CheckpointOptions, EvaluationOptions
from stretto.tables.shares import share_of
from stretto.tables.table import Table
from stretto.tables.worker import Worker

from .arguments import Argument
from .tree import Unit
from .unit_worker import UnitWorker

VALUE = "value of the unit"  # in a worker's local values: what the function returned
_LOCKING = {"locked": "chunks", "hogwild": "none", "sequential": "none", None: "adds"}


@dataclass(frozen=True, eq=False)
class StageInput:
    """What a stage needs besides its unit.

    owner: name under which the nodes hold its data. numbers: of each argument among those of the task. first:
    iterations that the unit has made before. iterations: to make now. local: what the parts kept, or () at first.
    """

    owner: str
    numbers: tuple[int, ...]
    first: int
    iterations: int
    local: tuple[dict[str, Any], ...]
    starts: Mapping[int, NDArray[Any]]  # first values of states that start anew, by number of the argument
    seed: int
    record: str | None = None  # "full": what the replay checker needs


class StageWork:
    """The worker function of a stage: calls the function of the unit once for every iteration."""

    def __init__(self, unit: Unit, given: StageInput) -> None:
        self.function, self.first, self.iterations = unit.function, given.first, given.iterations
        self.owner, self.local = given.owner, given.local
        # States are tables by name; everything else is needed as it is.
        self.arguments = tuple(
            Argument("state", name, argument.name) if argument.kind == "state" else argument
            for argument, name in zip(unit.arguments, table_names(unit), strict=True)
        )
        self.numbers, self.unit = given.numbers, unit.name

    def __call__(self, w: Worker) -> None:
        if self.local and w.clock == 0 and not w.local:
            w.local.update(deepcopy(self.local[w.number]))
        arguments = [
            self._argument(w, argument, number) for argument, number in zip(self.arguments, self.numbers, strict=True)
        ]
        worker = UnitWorker(w, self.first)
        for _ in w.clocks(self.iterations):
            w.local[VALUE] = _checked(self.unit, self.function(worker, *arguments))

    def __getstate__(self) -> dict[str, Any]:
        """Without the data, which nodes get by themselves (`StageData`)."""
        arguments = tuple(Argument(a.kind, None, a.name) if a.kind == "data" else a for a in self.arguments)
        return {**self.__dict__, "arguments": arguments}

    def _argument(self, w: Worker, argument: Argument, number: int) -> Any:
        kind, value = argument.kind, argument.value
        if kind == "state":
            return w.table(value)
        if kind not in ("data", "source"):
            return value

        def make() -> Any:
            return value.read(w.number, w.workers) if kind == "source" else _share(value, w.number, w.workers)

        return held(self.owner, (number, w.number, w.workers), make)


class StageData:
    """The data of a stage for nodes that do not share this process's memory."""

    def __init__(self, unit: Unit, given: StageInput) -> None:
        self.owner, self._parts = given.owner, unit.parts
        pairs = zip(given.numbers, unit.arguments, strict=True)
        self._values = {number: argument.value for number, argument in pairs if argument.kind == "data"}

    def keys(self, worker: int) -> list[tuple[int, ...]]:
        """The keys of a part: those that `StageWork` asks for."""
        return [(number, worker, self._parts) for number in self._values]

    def make(self, key: tuple[int, ...]) -> Any:
        """The rows of a part."""
        number, part, parts = key
        return _share(self._values[number], part, parts)


def _share(value: Any, part: int, parts: int) -> Any:
    if value is None:
        raise RunError(f"the data of part {part} have not reached this node; please report this")
    share = share_of(value, part, parts)
    return share.take(0, len(share))


def table_names(unit: Unit) -> list[str]:
    """A name for each argument, different ones even where parameters are named alike."""
    return [f"{argument.name}#{number}" for number, argument in enumerate(unit.arguments)]


def stage_job(unit: Unit, given: StageInput, place: StagePlace, runtime: Any, nodes: int) -> TableJob:
    """The job of a stage."""
    single = place.single if nodes > 1 else None
    tables = {}
    for number, (argument, name) in enumerate(zip(unit.arguments, table_names(unit), strict=True)):
        if argument.kind == "state":
            start = given.starts.get(number, argument.value.array)
            tables[name] = _table(start, shared=unit.mode is not None, single=single)
    if not tables:  # a job needs a table: one that stays unused
        tables["nothing"] = Table(rows=1, cols=1)
    asked = TableRunRequest.of(
        StageWork(unit, given),
        tables,
        workers=unit.parts,
        sync=unit.sync,
        comm=None,
        evaluations=EvaluationOptions(None, None, None, None),
        record=given.record,
        seed=given.seed,
        checkpoints=CheckpointOptions(None, None, False),
    )
    job = asked.job(runtime, TableIdentity("", {}), simulated=False)
    return replace(job, locking=_LOCKING[unit.mode], blame=_StageBlame(unit.name), data=StageData(unit, given))


def _table(array: NDArray[Any], *, shared: bool, single: int | None) -> Table:
    rows = array.reshape(len(array), -1)
    return Table(
        rows=len(array),
        cols=rows.shape[1],
        dtype=array.dtype.str[1:],
        start=rows,
        placement="shared" if shared else "served",
        shards=None if single is None else (single,),
    )


def take_states(unit: Unit, outcome: TableOutcome) -> None:
    """Write the final rows of a stage into the states."""
    states = [argument.value for argument in unit.arguments if argument.kind == "state"]
    for state, rest in zip(states, outcome.tables, strict=False):
        assert isinstance(state, State)
        flat = state.array.reshape(len(state.array), -1)
        flat[rest.keys] = rest.values


def value_of(unit: Unit, outcome: TableOutcome) -> Any:
    """The value of a unit: the sum over its parts in their order; None if its function returns nothing."""
    values = [local.pop(VALUE, None) for local in outcome.local]
    given = [value for value in values if value is not None]
    if not given:
        return None
    if len(given) != len(values):
        raise RunError(f"unit {unit.name}: some of its parts returned a value and others None; return one in each")
    if len(given) == 1:
        return given[0]
    total = np.asarray(given[0]) if not isinstance(given[0], int | float | np.generic) else given[0]
    for value in given[1:]:
        total = total + value
    return total


def _checked(unit: str, value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | np.generic | np.ndarray):
        return value
    raise RunError(f"unit {unit}: its function returned {type(value).__name__}; return a number, an array or nothing")


@dataclass(frozen=True)
class _StageBlame:
    """Raises an error of a unit's function as a RunError that names the unit, the part and the iteration."""

    unit: str

    def __call__(self, part: int, clock: int, error: Exception) -> Any:
        if isinstance(error, RunError | PlanError):
            raise error
        raise RunError(
            f"unit {self.unit} failed in part {part}, iteration {clock}: {type(error).__name__}: {error}"
        ) from error
