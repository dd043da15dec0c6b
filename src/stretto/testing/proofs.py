"""What a recording must show, proof by proof, over columns: each function looks at one promise and lists breaches.

Everything rests on the *witness*: a row that was read says how many adds of each worker it holds, so "did this read see
that add" is a comparison of numbers. A worker's adds to one row are numbered in the order they were made; a row with
witness n holds the first n. With the adds sorted by (row, worker, order), the first one missing and the last one shown
are looked up in one step for all reads at once.

The rules are written down here a second time on purpose: a checker that asked `rule.need` would believe its mistakes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.consistency.rules import ASP, BSP, SSP, Rule

from .columns import Adds, Columns, Ints, Reads
from .findings import SHOWN, Findings

NEVER = np.iinfo(np.int64).max
_AT_ONCE = 1 << 22  # elements of [reads, workers] looked at together


def floors(rule: Rule, clocks: Ints) -> Ints:
    """[n] what rows read at these clocks must be through."""
    match rule:
        case BSP():
            return clocks
        case SSP():
            return clocks - rule.s
        case ASP():
            return np.full_like(clocks, np.iinfo(np.int64).min)


def said(rule: Rule) -> str:
    """The rule as users write it."""
    return f"SSP({rule.s})" if isinstance(rule, SSP) else f"{type(rule).__name__}()"


# --- reads ----------------------------------------------------------------------------------------------------------


class History:
    """The adds to one table that one incarnation may see, sorted by (row, worker, order)."""

    def __init__(self, adds: Adds, alive: NDArray[np.bool_], workers: int) -> None:
        which = np.flatnonzero(alive)
        self.rows, row = np.unique(adds.key[which], return_inverse=True)
        self.workers = workers
        group = row.astype(np.int64) * workers + adds.worker[which]
        order = np.lexsort((adds.position[which], group))
        self.which = which[order]
        self.clock = np.append(adds.clock[self.which], NEVER)
        self.position = np.append(adds.position[self.which], NEVER)
        # One row more, without adds, for what was read and never added to.
        sizes = np.bincount(group, minlength=(len(self.rows) + 1) * workers)
        self.starts = np.concatenate([[0], np.cumsum(sizes)])

    def groups(self, keys: Ints) -> Ints:
        """[n, workers] where the adds to each row by each worker begin in `starts`."""
        at = np.searchsorted(self.rows, keys)
        known = self.rows[np.minimum(at, len(self.rows) - 1)] == keys if len(self.rows) else np.zeros(len(keys), bool)
        row = np.where(known, at, len(self.rows))
        return row[:, None] * self.workers + np.arange(self.workers)

    def counts(self, keys: Ints) -> Ints:
        """[n, workers] how many adds there are."""
        group = self.groups(keys)
        return self.starts[group + 1] - self.starts[group]


def prove_reads(columns: Columns, findings: Findings) -> None:
    """No read too old, none from the future, none doubled; own adds are seen; reads of a row never go back."""
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
            history = History(columns.adds[table], columns.alive(columns.adds[table], incarnation), columns.workers)
            sums = _prefix_sums(columns, table, history)
            step = max(1, _AT_ONCE // columns.workers)
            for first in range(0, len(mine), step):
                some = mine[first : first + step]
                _prove_some(columns, table, reads, some, history, findings)
                if sums is not None:
                    _prove_values(columns, table, reads, some, history, sums, findings)
            _prove_monotone(columns, table, reads, mine, findings)


def _prove_some(columns: Columns, table: int, reads: Reads, some: Ints, history: History, findings: Findings) -> None:
    """Reads of one table and incarnation against the adds."""
    rule, spec = columns.rule, columns.tables[table]
    group = history.groups(reads.key[some])
    start, stop = history.starts[group], history.starts[group + 1]
    seen = reads.seen[some].astype(np.int64)
    clock, position = reads.clock[some][:, None], reads.position[some][:, None]
    own = np.arange(columns.workers) == reads.worker[some][:, None]

    known = (seen >= 0) & (seen <= stop - start)
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

    tell("doubled", ~known, "shows {n} adds of worker {w} to it, which has made {have}: some were applied twice")
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


def _prove_monotone(columns: Columns, table: int, reads: Reads, mine: Ints, findings: Findings) -> None:
    """What a worker saw in a row it sees ever after."""
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


# --- values ---------------------------------------------------------------------------------------------------------


def _prefix_sums(columns: Columns, table: int, history: History) -> NDArray[Any] | None:
    """[adds + 1, cols] sums of deltas in the order of the history; None where sums would not be exact."""
    deltas = columns.whole_deltas(table)
    if deltas is None:
        return None
    total = np.zeros((len(history.which) + 1, deltas.shape[1]), deltas.dtype)
    np.cumsum(deltas[history.which], axis=0, out=total[1:])
    return total


def _expected(columns: Columns, table: int, keys: Ints, group: Ints, shown: Ints, sums: Any, starts: Ints) -> Any:
    """[n, cols] start values plus the first `shown` [n, workers] adds of each worker."""
    expect = columns.start_rows(table, keys).astype(sums.dtype)
    for w in range(columns.workers):
        begin = starts[group[:, w]]
        expect += sums[begin + shown[:, w]] - sums[begin]
    return expect


def _prove_values(
    columns: Columns, table: int, reads: Reads, some: Ints, history: History, sums: Any, findings: Findings
) -> None:
    """A row read holds its start and the very adds its witness names, in value too."""
    group = history.groups(reads.key[some])
    sizes = history.starts[group + 1] - history.starts[group]
    named = ((reads.seen[some] >= 0) & (reads.seen[some] <= sizes)).all(axis=1)  # otherwise no adds are named
    shown = np.clip(reads.seen[some], 0, sizes)
    expect = _expected(columns, table, reads.key[some], group, shown, sums, history.starts)
    wrong = np.flatnonzero((reads.values[some] != expect).any(axis=1) & named)
    for k in wrong[:SHOWN].tolist():
        at = some[k]
        what = f"is {reads.values[at].tolist()}; its adds sum to {expect[k].tolist()}"
        findings.add("value", f"{_read_words(columns, table, reads, at)} {what}", *_when(reads, at))
    findings.more("value", len(wrong) - SHOWN)
    findings.numbers["valued"] += len(some)


def prove_end(columns: Columns, findings: Findings) -> None:
    """At the end the shards hold every surviving add once: by count, and by value where sums are exact."""
    findings.numbers["adds"] = sum(adds.calls for adds in columns.adds)
    findings.numbers["surviving"] = findings.numbers["summed"] = 0
    for table, (keys, witness) in columns.recording.final.items():
        values, name = columns.recording.final_values[table], columns.tables[table].name
        adds = columns.adds[table]
        history = History(adds, columns.alive(adds, columns.incarnations - 1), columns.workers)
        findings.numbers["surviving"] += len(history.which)
        order = np.argsort(keys, kind="stable")
        keys, values, witness = keys[order], values[order], witness[order].astype(np.int64)
        for key in keys[1:][keys[1:] == keys[:-1]][:SHOWN].tolist():
            findings.add("doubled", f"at the end row {key} of table {name!r} lies in two shards")
        absent = np.setdiff1d(history.rows, keys)
        for key in absent[:SHOWN].tolist():
            findings.add("lost", f"at the end no shard holds row {key} of table {name!r}, which was added to")
        findings.more("lost", len(absent) - SHOWN)
        counts = history.counts(keys)
        for kind, bad in (("lost", witness < counts), ("doubled", witness > counts)):
            rows, workers = np.nonzero(bad)
            for r, w in list(zip(rows.tolist(), workers.tolist(), strict=True))[:SHOWN]:
                what = (
                    f"at the end row {keys[r]} of table {name!r} holds {witness[r, w]} adds of worker {w}, which made "
                    f"{counts[r, w]}" + (" that survived" if columns.incarnations > 1 else "")
                )
                findings.add(kind, what)
            findings.more(kind, len(rows) - SHOWN)
        sums = _prefix_sums(columns, table, history)
        if sums is not None:
            group = history.groups(keys)
            shown = history.starts[group + 1] - history.starts[group]
            expect = _expected(columns, table, keys, group, shown, sums, history.starts)
            wrong = np.flatnonzero((values != expect).any(axis=1))
            for r in wrong[:SHOWN].tolist():
                what = f"is {values[r].tolist()}; its adds sum to {expect[r].tolist()}"
                findings.add("value", f"at the end row {keys[r]} of table {name!r} {what}")
            findings.more("value", len(wrong) - SHOWN)
            findings.numbers["summed"] += len(keys)


def _when(reads: Reads, at: int) -> tuple[int, float]:
    return int(reads.position[at]), float(reads.now[at])


def _read_words(columns: Columns, table: int, reads: Reads, at: int) -> str:
    return (
        f"worker {reads.worker[at]} at clock {reads.clock[at]} ({reads.now[at]:.6g} s) read row {reads.key[at]} of "
        f"table {columns.tables[table].name!r}, which"
    )
