"""Arguments of `st.run` for a worker function, checked, and the job that a runtime executes."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import numpy as np

from stretto.checks import whole
from stretto.comm.policy import Eager, Lazy, Managed, Policy
from stretto.consistency.rules import ASP, BSP, SSP, Rule
from stretto.errors import PlanError, RunError
from stretto.runtime.chosen import one_memory
from stretto.runtime.tables.job import ClockState, TableJob
from stretto.store.recording import LEVELS

from .options import CheckpointOptions, EvaluationOptions, check_function
from .table import Table
from .whole import TableArrays, View
from .worker import Worker


@dataclass(frozen=True, eq=False)
class TableRunRequest:
    """The checked arguments of `st.run` for a worker function."""

    worker: Callable[[Worker], Any]
    tables: dict[str, Table]
    workers: int
    rule: Rule
    policy: Policy
    evaluations: EvaluationOptions
    record: str | None
    seed: int
    checkpoints: CheckpointOptions

    @classmethod
    def of(
        cls,
        worker: Any,
        tables: Any,
        *,
        workers: Any,
        sync: Any,
        comm: Any,
        evaluations: EvaluationOptions,
        record: Any,
        seed: Any,
        checkpoints: CheckpointOptions,
    ) -> TableRunRequest:
        """Check the arguments of `st.run`; PlanError names the wrong one."""
        check_function("worker", worker, "worker(w)")
        for made, what in ((inspect.isgeneratorfunction, "generator"), (inspect.iscoroutinefunction, "coroutine")):
            if made(worker):
                out = "its yield" if what == "generator" else "the async"
                raise PlanError(
                    f"run: worker is a function that only makes a {what}, and nothing of it would run; take out "
                    f"{out}: a worker is called, and waits where it reads"
                )
        tables = _tables(tables)
        rule: Rule = _one_of("sync", sync, (BSP, SSP, ASP), "st.BSP(), st.SSP(s) or st.ASP()", BSP)
        policy: Policy = _one_of(
            "comm",
            comm,
            (Eager, Lazy, Managed),
            "st.tables.Eager(), st.tables.Managed(budget) or st.tables.Lazy()",
            Eager,
        )
        many, seed = whole("workers", workers, 1), whole("seed", seed, None)
        evaluations = evaluations.checked()
        if record not in LEVELS:
            raise PlanError(f"run: record={record!r}; choose None, 'rows' or 'full'")
        specs = tuple(table.spec(name) for name, table in tables.items())
        for spec in specs:
            spec.apply.check(spec.name, spec.dtype)
        return cls(worker, tables, many, rule, policy, evaluations, record, seed, checkpoints)

    @property
    def shared(self) -> frozenset[int]:
        """Tables that are one array of this process."""
        return frozenset(number for number, table in enumerate(self.tables.values()) if table.placement == "shared")

    def settings(self) -> dict[str, Any]:
        """The main arguments, for a run record."""
        return {"workers": self.workers, "sync": str(self.rule), "tables": ", ".join(self.tables), "seed": self.seed}

    def identity(self) -> TableIdentity:
        """Everything but the worker function that can change a result."""
        return TableIdentity.of(self.tables, self.workers, self.rule, self.policy, self.seed)

    def job(self, runtime: Any, identity: TableIdentity, *, simulated: bool) -> TableJob:
        """The job for a runtime; PlanError if the runtime cannot execute it."""
        # The functions below are pickled for nodes: local names keep everything else out of the pickle.
        worker, tables, many, seed, record = self.worker, self.tables, self.workers, self.seed, self.record
        evaluations = self.evaluations
        watch = evaluations.watch

        def look(moment: ClockState) -> float:
            assert watch is not None
            found = watch(
                View(
                    TableArrays(tables, job.whole, moment.values),
                    moment.clock,
                    moment.seconds,
                    moment.nbytes,
                    moment.local,
                )
            )
            try:
                return float(found)
            except (TypeError, ValueError):
                raise RunError(f"watch gave {found!r} at clock {moment.clock}; return a number") from None

        call = WorkerCall(worker, tables, many, seed, record == "full")
        job = TableJob(
            tables=tuple(table.spec(name) for name, table in tables.items()),
            workers=many,
            rule=self.rule,
            policy=self.policy,
            work=call,
            steps=call.steps if hasattr(worker, "steps") else None,
            blame=_blame,
            watch=None if watch is None else look,
            every=evaluations.every,
            seconds=evaluations.times(),
            until=evaluations.until,
            record=record,
            seed=seed,
            shared=self.shared,
            keeping=None if simulated else self.checkpoints.in_files(*identity),
            every_clocks=self.checkpoints.in_memory() if simulated else None,
        )
        _check_shared(job, runtime)
        return job


@dataclass(frozen=True, eq=False)
class WorkerCall:
    """Calls the user's function for one logical worker. A class, because it is sent to nodes: that is faster."""

    worker: Callable[[Worker], Any]
    tables: dict[str, Table]
    workers: int
    seed: int
    copies: bool  # a recording keeps arrays, and callers may reuse theirs

    def __call__(self, client: Any) -> None:
        self._worker(client).run(self.worker)

    def steps(self, client: Any) -> Iterator[None]:
        """Call the function one clock at a time; it must have `steps` for that."""
        function: Any = self.worker
        return self._worker(client).steps(function.steps)

    def _worker(self, client: Any) -> Worker:
        return Worker(client, self.workers, self.tables, self.seed, copies=self.copies)


def _blame(worker: int, clock: int, error: Exception) -> NoReturn:
    """Raise an exception of a user's function as a RunError that names the worker; Stretto's own errors as they are."""
    who = f"worker {worker}"
    if isinstance(error, RunError | PlanError | ValueError) and str(error).startswith(
        (f"{who}, ", f"{who}: ", "watch ")
    ):
        raise error
    if worker < 0:
        raise RunError(f"`watch` failed at clock {clock}: {type(error).__name__}: {error}") from error
    raise RunError(f"{who} failed at clock {clock}: {type(error).__name__}: {error}") from error


def _check_shared(job: TableJob, runtime: Any) -> None:
    if job.shared and not one_memory(runtime):
        name = job.tables[min(job.shared)].name
        raise PlanError(
            f"table {name!r}: placement='shared' is memory of one process, and {type(runtime).__name__} has several; "
            "take placement='served', or run on st.Threads(n)"
        )
    if job.shared and job.record == "full":
        raise PlanError("run: record='full' cannot follow what is written to shared tables; take placement='served'")


def _tables(tables: Any) -> dict[str, Table]:
    if not isinstance(tables, Mapping) or not tables:
        raise PlanError(f"run: tables={tables!r}; give a dict of st.tables.Table by name, at least one")
    for name, table in tables.items():
        if not isinstance(name, str) or not name or "/" in name:
            raise PlanError(f"run: tables={{{name!r}: …}}; a table's name is text without '/'")
        if not isinstance(table, Table):
            raise PlanError(
                f"run: tables={{{name!r}: {type(table).__name__}}}; give an st.tables.Table(rows=, cols=, …)"
            )
    return dict(tables)


def _one_of(name: str, value: Any, kinds: tuple[type, ...], words: str, default: type) -> Any:
    if value is None:
        return default()
    if not isinstance(value, kinds):
        made = f"; make one: st.tables.{value.__name__}(…)" if isinstance(value, type) and value in kinds else ""
        raise PlanError(f"run: {name}={value!r}; give {words}{made}")
    return value


class TableIdentity(NamedTuple):
    """Everything but the worker function that can change a result: as a hash, and by name."""

    fingerprint: str
    settings: dict[str, Any]

    @classmethod
    def of(cls, tables: Mapping[str, Table], workers: int, rule: Rule, policy: Policy, seed: int) -> TableIdentity:
        described, settings = {}, {"workers": workers, "sync": repr(rule), "codec": policy.codec, "seed": seed}
        settings["tables"] = ", ".join(tables)
        for name, table in tables.items():
            starts = [_digest(start) for start in (table.start, *table.states)]
            plain = (table.rows, table.width, table.dtype, table.unit, table.placement)
            described[name] = [*plain, dict(table.fields or {}), repr(table.apply), starts]
            values = dict(zip(("rows", "cols", "dtype", "unit", "placement"), plain, strict=True))
            values |= {"fields": repr(table.fields), "apply": repr(table.apply), "start": starts[0]}
            settings |= {f"{entry} of table {name!r}": value for entry, value in values.items()}
            settings[f"states of table {name!r}"] = ", ".join(starts[1:])
        text = json.dumps([described, workers, repr(rule), policy.codec, seed], sort_keys=True)
        return cls(hashlib.sha256(text.encode()).hexdigest(), settings)


def _digest(start: Any) -> str:
    if isinstance(start, np.ndarray):
        raw: Any = np.ascontiguousarray(start).reshape(-1).view(np.uint8)
        return hashlib.sha256(raw).hexdigest()
    return getattr(start, "__qualname__", type(start).__name__) if callable(start) else repr(start)
