"""The replay checker: proves from a recording that a run kept its rule, lost nothing and kept its budget.

    result = st.run(worker, workers=8, tables=…, sync=st.SSP(2), record="full")
    print(check_replay(result.recording))

    SSP(2) kept: 12,400 reads of 98,200 rows by 8 workers in 40 clocks; the oldest was 2 clocks behind, the bound is 2
    nothing lost or doubled: 12,400 adds, all in the final tables; values agree with their adds in 98,200 rows read
    in order: 3,120 messages on 12 links, each taken once
    budget kept in 8 buckets; the busiest used 97 % of its rate

What is proven, and from what:

- *No read too old.* A row that was read carries the number of adds of each worker it holds (its witness). At clock t,
  SSP(s) requires all adds of clocks ≤ t − s − 1, by all workers, also later ones of workers that were behind; BSP all
  of clocks < t and no others; ASP none. Own adds are seen at once where the table simply adds.
- *Nothing from the future, nothing twice.* No row shows more adds of a worker than it had made by then. A worker that
  has seen an add in a row sees it in all later reads of the row.
- *No update lost.* At the end the shards hold every add once; after restarts, those of the clocks that survived; in a
  run that was stopped, those of clocks that were over.
- *The right values.* Every row read and every row left at the end is the sum of its start and the very adds its witness
  names, within what rounding can do to that row (`sums`): nothing at all where its numbers are integers, or have few
  enough digits. Under SSP and ASP, the server functions that come with Stretto are run once more on the updates, bit
  for bit (`proofs_functions`), unless there was a restart.
- *In order.* Messages from one node to another arrived as 1, 2, 3 …, none left out, none twice, in each attempt.
- *Within the budget.* Over any window each side of a node, and each limited link, sent at most rate × window and one
  message. Frames sent again after a reset and bare acknowledgements are outside the budget.
- *Clocks.* Ticks are consecutive; a restart returns all workers to a clock that all had reached.

A run that is resumed from a checkpoint (`resume=True`) is checked from there, with the checkpoint's rows as its start.
When a process of a cluster is lost, its events are lost with it. Of the attempt that ended, the changes that survive in
the tables (those before the checkpoint) are checked; changes that were undone and messages are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from stretto.consistency.rules import ASP, SSP
from stretto.errors import PlanError, RunError
from stretto.store.recording import Recording
from stretto.text import plural

from .columns import RecordingColumns
from .findings import Findings, Violation
from .proofs import prove_end, prove_reads, said
from .proofs_functions import prove_functions
from .proofs_wire import prove_budget, prove_clocks, prove_order

_SHOWN = 10  # violations in the message of an error


class ReplayError(RunError):
    """A recording violates a guarantee; `report` has all findings."""

    def __init__(self, report: ReplayReport) -> None:
        self.report = report
        super().__init__(str(report))


@dataclass(frozen=True, eq=False)
class ReplayReport:
    """The result of a check; `print(report)` describes it in words."""

    violations: tuple[Violation, ...]  # some of each kind, in words
    broken: dict[str, int]  # {kind: count of violations}
    staleness: Any  # [k] rows read that missed nothing older than k clocks (k = 0: nothing of a closed clock)
    numbers: dict[str, Any]  # counts by name
    rule: str
    bound: int | None
    workers: int

    @property
    def ok(self) -> bool:
        """Whether every guarantee was kept."""
        return not self.broken

    @property
    def oldest(self) -> int:
        """How many clocks behind the oldest read was."""
        return int(np.flatnonzero(self.staleness).max(initial=0))

    def __str__(self) -> str:
        return "\n".join(self._kept() if self.ok else self._broken())

    def _broken(self) -> list[str]:
        total = sum(self.broken.values())
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.broken.items())
        lines = [f"{total} {plural('violation', total)} of what {self.rule} and the store promise ({kinds}):"]
        lines += [f"  {violation}" for violation in self.violations[:_SHOWN]]
        if total > _SHOWN:
            lines.append(f"  … and {total - min(_SHOWN, len(self.violations))} more")
        return lines

    def _kept(self) -> list[str]:
        n = self.numbers
        bound = f"the bound is {self.bound}" if self.bound is not None else "there is no bound"
        lines = [
            f"{self.rule} kept: {n['reads']:,} reads of {n['rows read']:,} rows by {self.workers} workers in "
            f"{n['clocks']:,} clocks; the oldest was {self.oldest} {plural('clock', self.oldest)} behind, {bound}"
        ]
        lost = f"nothing lost or doubled: {n['adds']:,} adds"
        if n["begin"]:
            lost += f" since clock {n['begin']:,}, where the run went on"
        if n["restarts"]:
            many = f"{n['restarts']} {plural('restart', n['restarts'])}"
            lost += f", {many}, every add of a clock that survived in the final tables"
        elif n["closed"] is not None:
            lost += f", those of clocks before {n['closed']:,}, where the run was stopped, in the final tables"
        else:
            lost += ", all in the final tables"
        if n["valued"] or n["summed"]:
            lost += f"; values agree with their adds in {n['valued']:,} rows read and {n['summed']:,} final rows"
        if n["worked out"]:
            lost += f"; {n['worked out']:,} rows of server functions recomputed"
        lines.append(lost)
        if n["deliveries"]:
            lines.append(f"in order: {n['deliveries']:,} messages on {n['links']:,} links, each taken once")
        if n.get("buckets"):
            lines.append(f"budget kept in {n['buckets']:,} buckets; the busiest used {n['used']:.0%} of its rate")
        return lines


def check_replay(recording: Recording, *, raises: bool = True) -> ReplayReport:
    """Check a run from its full recording (`st.run(…, record="full")`, then `result.recording`).

    Raises ReplayError when a promise was broken; with raises=False the report lists what was found instead.

        report = check_replay(result.recording)
        report.staleness            # rows read, by how many clocks they were behind
        print(report)               # what was proven
    """
    if not recording.full:
        raise PlanError("the recording has counts only; run with record='full' to have one that can be checked")
    columns = RecordingColumns.of(recording)
    findings = Findings()
    prove_clocks(columns, findings)
    prove_reads(columns, findings)
    prove_end(columns, findings)
    prove_functions(columns, findings)
    prove_order(columns, findings)
    prove_budget(columns, findings)
    findings.numbers["begin"], findings.numbers["closed"] = recording.begin, recording.closed
    rule = columns.rule
    report = ReplayReport(
        tuple(findings.violations),
        findings.broken,
        findings.numbers.pop("staleness"),
        findings.numbers,
        said(rule),
        rule.s if isinstance(rule, SSP) else None if isinstance(rule, ASP) else 0,
        columns.workers,
    )
    if raises and not report.ok:
        raise ReplayError(report)
    return report
