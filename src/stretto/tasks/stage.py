"""From a unit to the stage that runs it: a job over tables, and the states that it uses in place."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from inspect import isgeneratorfunction
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
from stretto.state.partitioned import DeclaredData
from stretto.state.partitions import PartRows, Ranges
from stretto.state.state import ReplicatedState
from stretto.state.transactions import TransactionState
from stretto.tables.job import TableIdentity, TableRunRequest
from stretto.tables.options import CheckpointOptions, EvaluationOptions
from stretto.tables.replica import ReplicaHandle
from stretto.tables.shares import share_of
from stretto.tables.table import Table
from stretto.tables.worker import Worker

from .arguments import Argument
from .exchanges import Exchanges
from .partitions.declared import PartAccess, part_rows
from .reads import UnitReads
from .transactions.calls import TransactionCalls
from .transactions.cycle import TransactionCycle
from .transactions.handle import TransactionHandle
from .transactions.mailbox import Mailbox, MailState
from .tree import Unit
from .unit_worker import StageProgress, UnitWorker

UNUSED = -1  # number of the state of a stage without any
NEVER = 2**40  # clocks between two checkpoints inside a stage
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
        one = array.flat[0] if array.size else array.dtype.type(0)
        same = bool((array == one).all()) and not np.signbit(one)
        # A large integer, such as the bits of a float, is not a float.
        plain = same and (array.dtype.kind == "f" or int(float(one)) == int(one))
        return cls(array.copy(), float(one) if plain else None)


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
        self.access = PartAccess(unit.arguments, unit.parts)
        self.last, self.seed = given.last, given.seed
        self.rules = {
            name: dict(unit.rules).get(argument.name, argument.value.replication)
            for argument, name in zip(unit.arguments, table_names(unit), strict=True)
            if isinstance(argument.value, ReplicatedState)
        }
        self.transactions = {
            at: (argument.value.dtype, rows, argument.value.transactions)
            for at, argument in enumerate(unit.arguments)
            if isinstance(argument.value, TransactionState) and (rows := part_rows(argument, unit.parts)) is not None
        }
        self.mail = [isinstance(argument.value, MailState) for argument in unit.arguments]
        self._sent: SentFunction | None = None

    def __call__(self, w: Worker) -> None:
        for _ in self.steps(w):
            pass

    def steps(self, w: Worker) -> Iterator[None]:
        """One iteration in each step."""
        if self.local and w.clock == 0 and not w.local:
            w.local.update(deepcopy(self.local[w.number]))
        arguments = [
            self._argument(w, at, argument, number)
            for at, (argument, number) in enumerate(zip(self.arguments, self.numbers, strict=True))
        ]
        progress = StageProgress()
        worker = UnitWorker(w, self.first, progress)
        changing = [
            (at, block_reader(self.owner, number, w.workers))
            for at, (argument, number) in enumerate(zip(self.arguments, self.numbers, strict=True))
            if argument.kind == "block"
        ]
        copies = [argument for argument in arguments if isinstance(argument, ReplicaHandle)]
        cycle = self._cycle(w, arguments)
        exchanged = Exchanges(w, copies, cycle)
        if cycle is not None:
            arguments.pop()  # the mailbox, which is no argument of the function
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
                yield from exchanged.turn()
        if cycle is not None:
            yield from cycle.finish(self.last)
        exchanged.keep()

    def _cycle(self, w: Worker, arguments: list[Any]) -> TransactionCycle | None:
        """The transactions of a part; None: its states have none."""
        states = [argument.calls for argument in arguments if isinstance(argument, TransactionHandle)]
        return TransactionCycle(w, states, Mailbox(w, arguments[-1])) if states else None

    def __getstate__(self) -> dict[str, Any]:
        """Without the data, which nodes get by themselves (`StageData`, `StageBlocks`).

        The function is pickled once for all nodes.
        """
        if self._sent is None:
            self._sent = SentFunction(self.function)
        alone = ("data", "block", "blocks")
        arguments = tuple(replace(a, value=None) if a.kind in alone else a for a in self.arguments)
        return {**self.__dict__, "arguments": arguments, "function": self._sent, "_sent": None}

    def _argument(self, w: Worker, at: int, argument: Argument, number: int) -> Any:
        kind, value = argument.kind, argument.value
        if kind == "state":
            if self.mail[at]:
                return w.table(value)
            if at in self.transactions:
                dtype, rows, known = self.transactions[at]
                calls = TransactionCalls(w.table(value), dtype, rows, w.number, known)
                return TransactionHandle(argument.name, calls)
            rules = self.rules.get(value)
            return (
                self.access.state(at, w.table(value), w.number)
                if rules is None
                else ReplicaHandle(w.table(value), rules, w.number, w.workers, w.local, self.seed, w.seconds)
            )
        if kind == "blocks":
            if argument.declared is not None:
                return self.access.data(at, argument, w, self.owner, number, None)
            return block_reader(self.owner, number, w.workers).all_of(w.number)
        if kind not in ("data", "source"):
            return value

        def make() -> Any:
            return value.read(w.number, w.workers) if kind == "source" else _share(value, w.number, w.workers)

        found = held(self.owner, (number, w.number, w.workers), make)
        return found if argument.declared is None else self.access.data(at, argument, w, self.owner, number, found)


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
    if isinstance(value, DeclaredData):
        return value.cut(part, parts)
    share = share_of(value, part, parts)
    return share.take(0, len(share))


def _holders(unit: Unit, argument: Argument) -> Any:
    """Which node holds which rows of a state: as the rows of parts, or by a function of the user."""
    given = dict(unit.partition).get(argument.name)
    if given == "parts":
        return PartRows(Ranges("rows").bounds(len(argument.value.stored.array), unit.parts))
    if given is not None:
        return given
    rows = part_rows(argument, unit.parts)
    return getattr(argument.value, "partition", None) if rows is None else rows


def table_names(unit: Unit) -> list[str]:
    """A name for each argument, different ones even where parameters are named alike."""
    return [f"{argument.name}#{number}" for number, argument in enumerate(unit.arguments)]


def stage_run(unit: Unit, given: StageInput, runtime: Any) -> StageRun:
    """The stage of a unit: its job, and the states that it uses in place."""
    tables = {}
    states = []
    for number, (argument, name) in enumerate(zip(unit.arguments, table_names(unit), strict=True)):
        if argument.kind == "state":
            stored = argument.value.stored
            array = stored.array
            tables[name] = Table(
                rows=len(array),
                cols=array.size // max(1, len(array)),
                dtype=array.dtype.str[1:],
                placement="shared" if unit.mode is not None else "served",
            )
            first = given.starts.get(number)
            if isinstance(argument.value, MailState):  # every stage starts with an empty mailbox
                first = FirstValues(np.zeros_like(array), 0.0)
            states.append(
                StageState(
                    given.numbers[number],
                    stored,
                    None if first is None else first.array,
                    None if first is None else first.fill,
                    _holders(unit, argument),
                    argument.value.replication.exchange if isinstance(argument.value, ReplicatedState) else "shards",
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
    if not _resumable(unit):
        job = replace(job, every_clocks=NEVER)
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


def _resumable(unit: Unit) -> bool:
    """Whether a part can go on in the middle of a stage: it has made one iteration for each clock, and keeps nothing
    but its local values. What copies hold back and where a function has yielded is neither.
    """
    replicated = any(isinstance(argument.value, ReplicatedState) for argument in unit.arguments)
    return not replicated and not isgeneratorfunction(unit.function)


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
