"""From a unit to the stage that runs it: a job over tables, and the states that it uses in place."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.errors import PlanError, RunError
from stretto.runtime.stages.block_readers import BlockError
from stretto.runtime.stages.data_store import StageBlocks, block_reader, held
from stretto.runtime.stages.sent_functions import SentFunction
from stretto.runtime.stages.stage_runs import StageRun, StageState
from stretto.runtime.tables.job import TableOutcome
from stretto.state.make import zeros
from stretto.state.state import ReplicatedState
from stretto.tables.job import TableIdentity, TableRunRequest
from stretto.tables.options import CheckpointOptions, EvaluationOptions
from stretto.tables.replica import ReplicaHandle
from stretto.tables.shares import share_of
from stretto.tables.table import Table
from stretto.tables.worker import Worker

from .arguments import Argument
from .exchanges import Exchanges
from .reads import UnitReads
from .tree import Unit
from .unit_worker import StageProgress, UnitWorker

UNUSED = -1  # number of the state of a stage without any
VALUE = "value of the unit"  # in a worker's local values: what the function returned
_LOCKING = {"locked": "chunks", "hogwild": "none", "sequential": "none", None: "chunks"}


@dataclass(frozen=True, eq=False)
class FirstValues:
    """The values that a state starts from. fill: the number, where all of them are the same."""

    array: NDArray[Any]
    fill: float | None

    @classmethod
    def of(cls, array: NDArray[Any]) -> FirstValues:
        """A copy of the values that a state has now."""
        one = array.flat[0] if array.size else 0.0
        return cls(array.copy(), float(one) if (array == one).all() and not np.signbit(one) else None)


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
    starts: Mapping[int, FirstValues]  # of states that start anew, by number of the argument
    seed: int
    record: str | None = None  # "full": what the replay checker needs
    memory: int | None = None  # bytes of a state that a node keeps in memory
    direct: bool = True  # states go from node to node directly
    reads: UnitReads = field(default_factory=UnitReads)  # what is read in blocks
    last: bool = True  # the unit ends with this stage: replicas send everything


class StageWork:
    """The worker function of a stage: calls the function of the unit once for every iteration.

    A function that yields hands control to its exchanges: they send and receive replicated states, and end the clock.
    """

    def __init__(self, unit: Unit, given: StageInput) -> None:
        self.function, self.first, self.iterations = unit.function, given.first, given.iterations
        self.owner, self.local = given.owner, given.local
        # States are tables by name; everything else is needed as it is.
        self.arguments = tuple(
            Argument("state", name, argument.name) if argument.kind == "state" else argument
            for argument, name in zip(unit.arguments, table_names(unit), strict=True)
        )
        self.numbers, self.unit = given.numbers, unit.name
        self.last, self.seed = given.last, given.seed
        self.rules = {
            name: dict(unit.rules).get(argument.name, argument.value.replication)
            for argument, name in zip(unit.arguments, table_names(unit), strict=True)
            if isinstance(argument.value, ReplicatedState)
        }
        self._sent: SentFunction | None = None

    def __call__(self, w: Worker) -> None:
        for _ in self.steps(w):
            pass

    def steps(self, w: Worker) -> Iterator[None]:
        """One iteration in each step."""
        if self.local and w.clock == 0 and not w.local:
            w.local.update(deepcopy(self.local[w.number]))
        arguments = [
            self._argument(w, argument, number) for argument, number in zip(self.arguments, self.numbers, strict=True)
        ]
        progress = StageProgress()
        worker = UnitWorker(w, self.first, progress)
        changing = [
            (at, block_reader(self.owner, number, w.workers))
            for at, (argument, number) in enumerate(zip(self.arguments, self.numbers, strict=True))
            if argument.kind == "block"
        ]
        copies = [argument for argument in arguments if isinstance(argument, ReplicaHandle)]
        exchanged = Exchanges(w, copies)
        for made in range(w.clock, self.iterations):
            progress.made = made
            for at, reader in changing:
                arguments[at] = reader.take(w.number, worker.iteration % reader.reads.counts[w.number])
            exchanged.receive()
            value = self.function(worker, *arguments)
            if isinstance(value, Generator):
                value = yield from exchanged.follow(value)
            w.local[VALUE] = _checked(self.unit, value)
            final = made + 1 == self.iterations
            exchanged.send(everything=final and self.last)
            if not final:  # the last clock ends with the worker: one exchange of nodes fewer
                w.tick()
                yield
        exchanged.keep()

    def __getstate__(self) -> dict[str, Any]:
        """Without the data, which nodes get by themselves (`StageData`, `StageBlocks`).

        The function is pickled once for all nodes.
        """
        if self._sent is None:
            self._sent = SentFunction(self.function)
        alone = ("data", "block", "blocks")
        arguments = tuple(Argument(a.kind, None, a.name) if a.kind in alone else a for a in self.arguments)
        return {**self.__dict__, "arguments": arguments, "function": self._sent, "_sent": None}

    def _argument(self, w: Worker, argument: Argument, number: int) -> Any:
        kind, value = argument.kind, argument.value
        if kind == "state":
            rules = self.rules.get(value)
            return (
                w.table(value)
                if rules is None
                else ReplicaHandle(w.table(value), rules, w.number, w.workers, w.local, self.seed)
            )
        if kind == "blocks":
            return block_reader(self.owner, number, w.workers).all_of(w.number)
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


def stage_run(unit: Unit, given: StageInput, runtime: Any) -> StageRun:
    """The stage of a unit: its job, and the states that it uses in place."""
    tables = {}
    states = []
    for number, (argument, name) in enumerate(zip(unit.arguments, table_names(unit), strict=True)):
        if argument.kind == "state":
            array = argument.value.array
            tables[name] = Table(
                rows=len(array),
                cols=array.size // max(1, len(array)),
                dtype=array.dtype.str[1:],
                placement="shared" if unit.mode is not None else "served",
            )
            first = given.starts.get(number)
            states.append(
                StageState(
                    given.numbers[number],
                    argument.value,
                    None if first is None else first.array,
                    None if first is None else first.fill,
                    dict(unit.partition).get(argument.name, getattr(argument.value, "partition", None)),
                )
            )
    if not tables:  # a job needs a table: one that stays unused
        tables["nothing"] = Table(rows=1, cols=1)
        states.append(StageState(UNUSED, zeros(1, "f4")))
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
    return StageRun(
        replace(job, locking=_LOCKING[unit.mode], blame=_StageBlame(unit.name), data=StageData(unit, given)),
        tuple(states),
        given.owner,
        unit.preparation,
        given.iterations,
        given.memory,
        given.direct,
        StageBlocks(given.owner, given.reads.reads, given.first) if given.reads.reads else None,
        given.reads.near,
    )


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
        if isinstance(error, BlockError):
            raise RunError(f"unit {self.unit}: {error}") from error
        if isinstance(error, RunError | PlanError):
            raise error
        raise RunError(
            f"unit {self.unit} failed in part {part}, iteration {clock}: {type(error).__name__}: {error}"
        ) from error
