"""Job files of `stretto simulate`: a job on a simulated cluster.

    worker = "job.py:worker"          # a function of the script beside this file
    watch = "job.py:loss"             # the objective; target = 0.9 ends a run that has reached it
    target = 0.9
    sync = "ssp(2)"                   # bsp, ssp(s), asp
    [comm]
    policy = "managed"                # eager, lazy, managed; the rest as in st.tables.Managed
    budget = "100Mbit"
    [cluster]                         # as in st.Simulated
    nodes = 8
    threads = 4
    link = "1Gbit"
    faults = ["crash 2@1.5s+3s", "straggler 0=4"]     # node 2 crashes, node 0 is four times slower
    [tables.weights]                  # as in st.tables.Table
    rows = 10_000
    cols = 16
    apply = "adarevision(0.1)"
    start = "job.py:start"

`with_values(job, {"link": "100Mbit", "staleness": "4"})` is the job with other values, as a sweep uses it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from stretto.comm.policy import Eager, Lazy, Managed, Policy
from stretto.consistency.rules import ASP, BSP, SSP, Rule
from stretto.errors import DataError, PlanError
from stretto.runtime.simulated.faults import parse_fault
from stretto.runtime.simulated.spec import Simulated

from .table import Table

Find = Callable[[str], Any]
_PLAIN = ("worker", "watch", "target", "workers", "sync", "seed", "every", "every_seconds", "checkpoint_every")
_PARTS = ("comm", "cluster", "tables")
_POLICIES = {"eager": Eager, "lazy": Lazy, "managed": Managed}
_FUNCTIONS = ("add", "average", "adagrad", "adarevision", "proximal")


@dataclass(frozen=True, eq=False)
class JobFile:
    """The content of a job file; names in scripts are not resolved yet."""

    path: Path
    plain: Mapping[str, Any]
    comm: Mapping[str, Any]
    cluster: Mapping[str, Any]
    tables: Mapping[str, Mapping[str, Any]]

    @property
    def simulated(self) -> Simulated:
        """The cluster."""
        values = dict(self.cluster)
        given = values.get("faults", ())
        if isinstance(given, list | tuple):
            values["faults"] = [parse_fault(fault) if isinstance(fault, str) else fault for fault in given]
        made: Simulated = _made(Simulated, values, f"{self.path}: [cluster]")
        return made

    @property
    def target(self) -> float | None:
        """The objective that ends a run."""
        given = self.plain.get("target")
        if given is None:
            return None
        if isinstance(given, bool) or not isinstance(given, int | float):
            raise PlanError(f"{self.path}: target = {given!r}; give the objective that is good enough, a number")
        if "watch" not in self.plain:
            raise PlanError(f'{self.path}: target = {given!r} of what? Name the objective: watch = "job.py:loss"')
        return float(given)

    @property
    def rule(self) -> Rule:
        """How fresh reads must be."""
        return parse_rule(self.plain.get("sync", "bsp"), self.path)

    @property
    def policy(self) -> Policy:
        """What is sent when."""
        given = dict(self.comm)
        name = given.pop("policy", "managed" if "budget" in given else "eager")
        if name not in _POLICIES:
            raise PlanError(f"{self.path}: [comm] policy = {name!r}; choose {', '.join(_POLICIES)}")
        if isinstance(given.get("burst"), list):
            given["burst"] = tuple(given["burst"])
        made: Policy = _made(_POLICIES[name], given, f"{self.path}: [comm] policy = {name!r}")
        return made

    def arguments(self, find: Find) -> dict[str, Any]:
        """Arguments of `st.run`. find: from "job.py:name" to the object of that name in the script."""
        plain, cluster = self.plain, self.simulated
        if "worker" not in plain or not self.tables:
            missing = 'worker = "job.py:worker"' if "worker" not in plain else "a table: [tables.NAME]"
            raise DataError(f"{self.path}: the job has no {missing}")
        for name in ("worker", "watch"):
            if not isinstance(plain.get(name, ""), str):
                raise DataError(f'{self.path}: {name} = {plain[name]!r}; name a function: "job.py:{name}"')
        target = self.target
        found: dict[str, Any] = {
            "worker": find(plain["worker"]),
            "tables": {name: self._table(name, table, find) for name, table in self.tables.items()},
            "workers": plain.get("workers", cluster.nodes * cluster.threads),
            "sync": self.rule,
            "comm": self.policy,
            "runtime": cluster,
            "seed": plain.get("seed", 0),
            **{name: plain[name] for name in ("every", "every_seconds", "checkpoint_every") if name in plain},
        }
        if "watch" in plain:
            found["watch"] = find(plain["watch"])
            if target is not None:
                found["until"] = lambda look: look.objective <= target
        return found

    def _table(self, name: str, given: Mapping[str, Any], find: Find) -> Table:
        where = f"{self.path}: [tables.{name}]"
        if not isinstance(given, Mapping):
            raise DataError(f"{self.path}: [tables] {name} = {given!r}; write [tables.{name}] and its values below")
        values = dict(given)
        if "apply" in values:
            values["apply"] = parse_function(values["apply"], where, find)
        for key in ("start", "partition"):
            if isinstance(values.get(key), str) and ".py:" in values[key]:
                values[key] = find(values[key])
        made: Table = _made(Table, values, where)
        return made


def read_job(path: Path) -> JobFile:
    """The job of a file."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}; give a job file (see stretto simulate --help)") from error
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"{path}: not a TOML file: {error}") from error
    for name, value in given.items():
        if name in _PARTS:
            if not isinstance(value, dict):
                raise DataError(f"{path}: {name} is a part of its own: write [{name}] and its values below")
        elif name not in _PLAIN:
            raise DataError(f"{path}: unknown name {name!r}; a job has {', '.join(_PLAIN)} and the parts "
                            f"{', '.join(f'[{part}]' for part in _PARTS)}")  # fmt: skip
    plain = {name: given[name] for name in _PLAIN if name in given}
    return JobFile(path, plain, *(given.get(part, {}) for part in _PARTS))


def with_values(job: JobFile, values: Mapping[str, str]) -> JobFile:
    """The job with other values for some names: of the cluster, the policy, the job, or a table (a.rows).

    Names that occur twice are written in full: seed is the job's, cluster.seed the cluster's.
    """
    clusters, policies = ({f.name for f in fields(kind)} for kind in (Simulated, Managed))
    policies.add("policy")
    for name, text in values.items():
        value = _value(text)
        part, _, key = name.rpartition(".")
        if part in job.tables:
            job = replace(job, tables={**job.tables, part: {**job.tables[part], key: value}})
        elif name == "staleness":
            job = replace(job, plain={**job.plain, "sync": f"ssp({text})"})
        elif name in _PLAIN:
            job = replace(job, plain={**job.plain, name: value})
        elif part in ("", "cluster") and key in clusters:
            job = replace(job, cluster={**job.cluster, key: value})
        elif part in ("", "comm") and key in policies:
            job = replace(job, comm={**job.comm, key: value})
        else:
            every = sorted(clusters | policies | {"sync", "staleness", "workers", "target"})
            raise PlanError(f"{name} cannot be swept; names are {', '.join(every)}, and TABLE.NAME of a table")
    chosen = _POLICIES.get(values.get("policy", values.get("comm.policy", "")))
    if chosen is not None:  # policies are compared: options of the other policy are left out
        known = {"policy"} | {f.name for f in fields(chosen)}
        job = replace(
            job, comm={name: value for name, value in job.comm.items() if name in known or name not in policies}
        )
    return job


def with_faults(job: JobFile, faults: list[str], failures: str | None, every_seconds: str | None) -> JobFile:
    """The job with more faults (as `parse_fault` reads them), a mean time to failure, and evaluations by time."""
    plain, cluster = dict(job.plain), dict(job.cluster)
    if faults:
        given = cluster.get("faults", [])
        cluster["faults"] = [*(given if isinstance(given, list) else [given]), *faults]
    if failures is not None:
        cluster["failures"] = _value(failures)
    if every_seconds is not None:
        plain["every_seconds"] = _value(every_seconds)
    return replace(job, plain=plain, cluster=cluster)


def parse_rule(text: Any, where: object = "sync") -> Rule:
    """
    >>> parse_rule("ssp(2)"), parse_rule("BSP")
    (SSP(s=2, speculate=False), BSP())
    """
    found = re.fullmatch(r"\s*(bsp|asp|ssp)\s*(?:\(\s*(\d*)\s*\))?\s*", str(text).lower())
    if found is None or (found[2] and found[1] != "ssp"):
        raise PlanError(f"{where}: sync = {text!r}; write bsp, ssp(2) or asp")
    if found[1] == "ssp":
        return SSP(int(found[2] or 0))
    return BSP() if found[1] == "bsp" else ASP()


def parse_function(text: str, where: str, find: Find) -> Any:
    """A server function: "adarevision(0.1)", "add", or "job.py:name" of a script."""
    from stretto.store.shard import functions

    if not isinstance(text, str):
        raise PlanError(f'{where} apply = {text!r}; choose {", ".join(_FUNCTIONS)}, such as "adarevision(0.1)"')
    if ".py:" in text:
        return find(text)
    found = re.fullmatch(r"\s*(\w+)\s*(?:\(([^()]*)\))?\s*", text)
    if found is None or found[1] not in _FUNCTIONS:
        raise PlanError(f"{where} apply = {text!r}; choose {', '.join(_FUNCTIONS)}, or name one of yours: job.py:rule")
    function = getattr(functions, found[1])
    if found[2] is None:
        return function
    try:
        numbers = [float(part) for part in found[2].split(",") if part.strip()]
        return function(*numbers)
    except (ValueError, TypeError) as error:
        raise PlanError(f"{where} apply = {text!r}: {error}; give it numbers, as in adarevision(0.1)") from error


def _made(kind: Any, values: dict[str, Any], where: str) -> Any:
    known = [f.name for f in fields(kind) if f.init]
    unknown = [name for name in values if name not in known]
    if unknown:
        raise PlanError(f"{where} has no {unknown[0]!r}; it has {', '.join(known) or 'nothing to set'}")
    return kind(**values)


def _value(text: str) -> Any:
    """The value by TOML's rules (a number, true, [1, 2]), otherwise the text.

    >>> _value("1_000"), _value("true"), _value("[5, 10]"), _value("100Mbit")
    (1000, True, [5, 10], '100Mbit')
    """
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
