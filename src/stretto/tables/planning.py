"""The plan of a run over tables: grade and reasons, tables, staleness, traffic."""

from __future__ import annotations

from typing import Any

from stretto.comm.policy import Policy
from stretto.consistency.rules import Rule
from stretto.plan.cost import Cost, show_bytes
from stretto.plan.job import JobPlan
from stretto.plan.plan import Physical
from stretto.runtime.chosen import name_of

from .job import TableIdentity, TableRunRequest
from .table import Table

_RECORDED = "record='full' keeps a recording that is replayed and checked; two runs may differ"


def plan_tables(asked: TableRunRequest, runtime: Any, identity: TableIdentity) -> JobPlan:
    """The plan of a run on a runtime. identity: everything that can change a result."""
    grade, why = grade_of(asked)
    tables = asked.tables.items()
    only = [("", "this holds while the worker function reads nothing but its worker, its tables and its own data")]
    facts = [
        *(only if grade == "identical" else []),
        ("fingerprint", "of the tables, workers, sync=, codec and seed; the worker function is not part of it"),
        ("workers", f"{asked.workers} logical, which are part of what is computed; seed={asked.seed}"),
        ("sync", f"{_called(asked.rule)}: {_fresh(asked.rule)}"),
        ("comm", f"{_called(asked.policy)}: {_sent(asked.policy)}"),
        *(("table", _table_line(name, table)) for name, table in tables),
    ]
    if asked.watch is not None:
        facts.append(("watch", f"the objective at the start, at the end and every {asked.every} clocks"))
    size = sum(_nbytes(table) for _, table in tables)
    return JobPlan(
        f"tables/{getattr(asked.worker, '__name__', type(asked.worker).__name__)}",
        f"{asked.workers} workers and {len(asked.tables)} table{'s' * (len(asked.tables) > 1)}",
        identity.settings,
        Cost(sum(table.rows or 0 for _, table in tables), 0, size, 0, 0),
        grade,
        why,
        facts=tuple(facts),
        physical=Physical(name_of(runtime), getattr(runtime, "workers", asked.workers)),
        undrawn="which worker touches which row is known only while it runs",
        counted="rows",
        known=identity.fingerprint[:16],  # checkpoints store all of it
    )


def grade_of(asked: TableRunRequest) -> tuple[str, str]:
    """(grade, why it has this grade)."""
    shared = [name for name, table in asked.tables.items() if table.placement == "shared"]
    if shared:
        names = ", ".join(map(repr, shared))
        return "statistical", (
            f"table {names} has placement='shared': workers write one array without waiting for each other (Hogwild!), "
            "so only the converged loss is promised"
        )
    if asked.rule.exact:
        return "identical", (
            "a read sees exactly the clocks before its own, and deltas are applied in worker order: same bits "
            "serially, on threads, simulated and on a cluster"
        )
    return "replayable", f"what a read sees beyond its floor depends on time: {_RECORDED}"


def _called(value: Any) -> str:
    return f"st.tables.{value!r}"


def _fresh(rule: Rule) -> str:
    if rule.exact:
        return "a read at clock t sees all updates of clocks before t, and its worker's own"
    bound = getattr(rule, "s", None)
    if bound is None:
        return "a read sees the values that the cache has, and its worker's own updates"
    ahead = "; may read past the bound where no missing update touches the keys" if rule.speculate else ""
    return f"a read at clock t sees all updates of clocks up to t − {bound + 1}, and its worker's own{ahead}"


def _sent(policy: Policy) -> str:
    short = "; values travel as 16-bit floats" if policy.codec else ""
    if policy.managed:
        return f"rows are sent between clocks too, within the budget, by rank{short}"
    when = "a worker waits for them" if policy.lazy else "a clock ends"
    return f"updates are sent when {when}{short}"


def _nbytes(table: Table) -> int:
    return (table.rows or 0) * table.width * table.kept.itemsize


def _table_line(name: str, table: Table) -> str:
    rows = "any keys" if table.rows is None else f"{table.rows:,}"
    size = f", {show_bytes(_nbytes(table))}" if table.rows is not None else ""
    unit = ", by element" if table.unit == "element" else ""
    shape = f"{name} [{rows} × {table.width:,}] {table.kept.name}"
    return f"{shape}: {table.placement}{unit}, updates by {table.apply!r}{size}"
