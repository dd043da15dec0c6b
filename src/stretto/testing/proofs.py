"""Checks of a recording, over columns: each function checks one guarantee and lists violations.

The checks use the *witness*: a row that was read carries the number of adds of each worker that it holds, so "did this
read see that add" is a comparison of numbers. A worker's adds to one row are numbered in their order; a row with
witness n holds the first n. With the adds sorted by (row, worker, order), the first missing one and the last one shown
are found in one step for all reads.

The rules are implemented here a second time on purpose: a checker that called `rule.need` would repeat its mistakes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from stretto.consistency.rules import ASP, BSP, SSP, Rule

from .columns import Ints, Reads, RecordingColumns
from .findings import SHOWN, Findings
from .history import AddHistory
from .sums import Sums

_AT_ONCE = 1 << 22  # elements of [reads, workers] checked at a time


def floors(rule: Rule, clocks: Ints) -> Ints:
    """[n] the clock that rows read at these clocks must be through."""
    match rule:
        case BSP():
            return clocks
        case SSP():
            return np.asarray(clocks - rule.s)
        case ASP():
            return np.full_like(clocks, np.iinfo(np.int64).min)


def said(rule: Rule) -> str:
    """The rule as users write it."""
    return f"SSP({rule.s})" if isinstance(rule, SSP) else f"{type(rule).__name__}()"


# --- reads ----------------------------------------------------------------------------------------------------------


def prove_reads(columns: RecordingColumns, findings: Findings) -> None:
    """Check reads: none too old, from the future or doubled; own adds are seen; reads of a row never go back."""
    numbers = findings.numbers
    numbers["reads"] = sum(reads.calls for reads in columns.reads)
    numbers["rows read"] = sum(len(reads.key) for reads in columns.reads)
    numbers["staleness"] = np.zeros(1, np.int64)
    numbers["valued"] = 0
    for table, reads in enumerate(columns.reads):
        for incarnation in range(columns.incarnations):
            mine = np.flatnonzero(reads.incarnation == incarnation)
            if not len(mine):
                continue
            history = AddHistory(columns.adds[table], columns.alive(columns.adds[table], incarnation), columns.workers)
            sums = Sums(columns, table, history) if columns.tables[table].own_writes else None
            step = max(1, _AT_ONCE // columns.workers)
            for first in range(0, len(mine), step):
                some = mine[first : first + step]
                _prove_some(columns, table, reads, some, history, findings)
                if sums is not None:
                    _prove_values(columns, table, reads, some, sums, findings)
            _prove_monotone(columns, table, reads, mine, findings)


def _prove_some(
    columns: RecordingColumns, table: int, reads: Reads, some: Ints, history: AddHistory, findings: Findings
) -> None:
    """Reads of one table and incarnation against the adds."""
    rule, spec = columns.rule, columns.tables[table]
    group = history.groups(reads.key[some])
    start, stop = history.starts[group], history.starts[group + 1]
    seen = reads.seen[some].astype(np.int64)
    clock, position = reads.clock[some][:, None], reads.position[some][:, None]
    own = np.arange(columns.workers) == reads.worker[some][:, None]

    # Of an attempt whose end was not recorded, only adds before its checkpoint are known: others may be shown too, but
    # neither by the worker that made them nor under BSP(), where a read shows nothing of its own clock or later.
    life = int(reads.incarnation[some[0]])
    unknown = np.zeros_like(own) if columns.whole[life] or isinstance(rule, BSP) else ~own & (seen > stop - start)
    known = (seen >= 0) & ((seen <= stop - start) | unknown)
    shown = np.clip(seen, 0, stop - start)
    # The add after the last one shown, and the last one shown; the NEVER at the end stands for "there is none".
    after = np.where(shown < stop - start, start + shown, len(history.clock) - 1)
    before = np.where(shown > 0, start + shown - 1, len(history.clock) - 1)
    missing, latest = history.clock[after], np.where(shown > 0, history.clock[before], -1)
    missed_at = history.position[after]
    made_at = np.where(shown > 0, history.position[before], -1)

    def tell(kind: str, bad: NDArray[np.bool_], words: str) -> None:
        if not bad.any():
            return
        rows, workers = np.nonzero(bad)
        for r, w in list(zip(rows.tolist(), workers.tolist(), strict=True))[:SHOWN]:
            at = some[r]
            what = words.format(
                w=w, n=int(seen[r, w]), have=int((stop - start)[r, w]), c=int(missing[r, w]), late=int(latest[r, w])
            )
            findings.add(kind, f"{_read_words(columns, table, reads, at)} {what}", *_when(reads, at))
        findings.more(kind, len(rows) - SHOWN)

    tell("lost", seen < 0, "lacks adds of worker {w} that were in the checkpoint the run began with")
    tell(
        "doubled", ~known & (seen >= 0), "shows {n} adds of worker {w} to it, which has made {have}: some applied twice"
    )
    if columns.whole[life]:  # otherwise the order of events on two nodes is unknown
        tell("future", known & (made_at > position), "shows {n} adds of worker {w}, more than had been made by then")
    need = floors(rule, reads.clock[some])[:, None]
    floor = missing < need
    if spec.own_writes:
        lost = own & (missed_at < position)
        tell("own", lost, "shows {n} of its own {have} adds: one made before this read is missing")
        floor &= ~lost
    tell(
        "too old", floor, "shows {n} adds of worker {w} and misses one of clock {c}, which " + f"{said(rule)} requires"
    )
    if isinstance(rule, BSP):
        early = known & (latest >= clock)
        if spec.own_writes:
            early &= ~own
        tell("too new", early, "shows an add of worker {w} of clock {late}; under BSP() only clocks before its own")

    behind = np.where(own, 0, np.where(missing < clock, clock - missing, 0)).max(axis=1, initial=0)
    so_far = findings.numbers["staleness"]
    counts = np.bincount(behind, minlength=len(so_far))
    counts[: len(so_far)] += so_far
    findings.numbers["staleness"] = counts


def _prove_monotone(columns: RecordingColumns, table: int, reads: Reads, mine: Ints, findings: Findings) -> None:
    """Check that later reads of a row by a worker hold at least the adds of earlier ones."""
    order = mine[np.lexsort((reads.position[mine], reads.key[mine], reads.worker[mine]))]
    same = (reads.key[order][1:] == reads.key[order][:-1]) & (reads.worker[order][1:] == reads.worker[order][:-1])
    back = (reads.seen[order][1:] < reads.seen[order][:-1]).any(axis=1) & same
    for k in np.flatnonzero(back)[:SHOWN].tolist():
        then, now = order[k], order[k + 1]
        w = int(np.flatnonzero(reads.seen[now] < reads.seen[then])[0])
        what = (
            f"{_read_words(columns, table, reads, now)} shows {reads.seen[now, w]} adds of worker {w}; it had shown "
            f"{reads.seen[then, w]} at clock {reads.clock[then]}"
        )
        findings.add("back", what, *_when(reads, now))
    findings.more("back", int(back.sum()) - SHOWN)


def _prove_values(
    columns: RecordingColumns, table: int, reads: Reads, some: Ints, sums: Sums, findings: Findings
) -> None:
    """Check values: a row read is its start plus exactly the adds that its witness counts."""
    seen = reads.seen[some].astype(np.int64)
    counts = sums.history.counts(reads.key[some])
    shown = np.clip(seen, 0, counts)
    wrong, expect = sums.wrong(reads.key[some], shown, reads.values[some])
    wrong = wrong[(shown == seen)[wrong].all(axis=1)]  # otherwise no adds are named
    for k in wrong[:SHOWN].tolist():
        at = some[k]
        what = f"is {reads.values[at].tolist()}; its adds sum to {expect[k].tolist()}"
        findings.add("value", f"{_read_words(columns, table, reads, at)} {what}", *_when(reads, at))
    findings.more("value", len(wrong) - SHOWN)
    findings.numbers["valued"] += len(some)


def prove_end(columns: RecordingColumns, findings: Findings) -> None:
    """At the end the shards hold every surviving add once: by count, and by value where changes add up.

    A run that was stopped before its workers had ended may lack adds of clocks that were not over.
    """
    findings.numbers["adds"] = sum(adds.calls for adds in columns.adds)
    findings.numbers["surviving"] = findings.numbers["summed"] = 0
    for table, (keys, counted) in columns.recording.final.items():
        values, name = columns.recording.final_values[table], columns.tables[table].name
        adds = columns.adds[table]
        history = AddHistory(adds, columns.alive(adds, columns.incarnations - 1), columns.workers)
        findings.numbers["surviving"] += len(history.which)
        order = np.argsort(keys, kind="stable")
        witness = columns.since_begin(table, keys, counted)[order].astype(np.int64)
        keys, values = keys[order], values[order]
        for key in keys[1:][keys[1:] == keys[:-1]][:SHOWN].tolist():
            findings.add("doubled", f"at the end row {key} of table {name!r} is stored in two shards")
        needed = _needed(history, columns.recording.closed)
        base = columns.recording.base.get(table)
        begun = [] if base is None else [base.keys]
        absent = np.setdiff1d(np.concatenate([history.rows[needed(history.rows).any(axis=1)], *begun]), keys)
        for key in absent[:SHOWN].tolist():
            findings.add("lost", f"at the end no shard holds row {key} of table {name!r}, which was added to")
        findings.more("lost", len(absent) - SHOWN)
        counts = history.counts(keys)
        for kind, bad in (("lost", witness < needed(keys)), ("doubled", witness > counts)):
            rows, workers = np.nonzero(bad)
            for r, w in list(zip(rows.tolist(), workers.tolist(), strict=True))[:SHOWN]:
                what = (
                    f"at the end row {keys[r]} of table {name!r} holds {witness[r, w]} adds of worker {w}, which made "
                    f"{counts[r, w]}" + (" that survived" if columns.incarnations > 1 else "")
                )
                findings.add(kind, what)
            findings.more(kind, len(rows) - SHOWN)
        if columns.tables[table].own_writes:
            shown = np.clip(witness, 0, counts)
            wrong, expect = Sums(columns, table, history).wrong(keys, shown, values, travelled=False)
            wrong = wrong[(shown == witness)[wrong].all(axis=1)]  # otherwise no adds are named
            for r in wrong[:SHOWN].tolist():
                what = f"is {values[r].tolist()}; its adds sum to {expect[r].tolist()}"
                findings.add("value", f"at the end row {keys[r]} of table {name!r} {what}")
            findings.more("value", len(wrong) - SHOWN)
            findings.numbers["summed"] += len(keys)


def _needed(history: AddHistory, closed: int | None) -> Callable[[Ints], Ints]:
    """How many adds of each worker rows must hold at the end: all of them, or all of clocks below `closed`."""
    if closed is None:
        return history.counts
    over = np.concatenate([[0], np.cumsum(history.clock[:-1] < closed)])

    def counts(keys: Ints) -> Ints:
        group = history.groups(keys)
        return np.asarray(over[history.starts[group + 1]] - over[history.starts[group]])

    return counts


def _when(reads: Reads, at: int) -> tuple[int, float]:
    return int(reads.position[at]), float(reads.now[at])


def _read_words(columns: RecordingColumns, table: int, reads: Reads, at: int) -> str:
    return (
        f"worker {reads.worker[at]} at clock {reads.clock[at]} ({reads.now[at]:.6g} s) read row {reads.key[at]} of "
        f"table {columns.tables[table].name!r}, which"
    )
