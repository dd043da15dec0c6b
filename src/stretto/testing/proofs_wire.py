"""Check clocks and messages of a recording: ticks in order, messages once and in order, budgets kept."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stretto.comm.policy import Managed
from stretto.comm.units import rate

from .columns import Events, Ints, RecordingColumns
from .findings import SHOWN, Findings

# Repeated frames and bare acknowledgements are outside the budgets.
_FREE = ("again", "acknowledge")


def prove_clocks(columns: RecordingColumns, findings: Findings) -> None:
    """Check clocks: ticks are consecutive, every attempt starts from its checkpoint, events name their clock."""
    recording, workers = columns.recording, columns.workers
    findings.numbers["restarts"] = columns.incarnations - 1
    findings.numbers["ticks"] = len(recording.ticks)
    ticks = np.array([(t.order, t.worker, t.clock) for t in recording.ticks], dtype=np.int64).reshape(-1, 3)
    now = np.array([t.now for t in recording.ticks])
    life = columns.life_of(ticks[:, 0])
    reached = np.tile(columns.begins[:, None], (1, workers))  # [attempts, workers] the clock each worker reached
    for worker in range(workers):
        mine = ticks[:, 1] == worker
        for k in range(columns.incarnations):
            some = np.flatnonzero(mine & (life == k))
            expect = columns.begins[k] + 1 + np.arange(len(some))
            for at in some[ticks[some, 2] != expect][:1].tolist():
                want = expect[np.flatnonzero(some == at)[0]]
                what = f"worker {worker} ticked to clock {ticks[at, 2]} ({now[at]:.6g} s), where {want} was next"
                findings.add("clock", what, int(ticks[at, 0]), float(now[at]))
            reached[k, worker] += len(some)
    findings.numbers["clocks"] = int(reached[-1].max(initial=0))
    for restart, k in zip(recording.restarts, range(1, columns.incarnations), strict=True):
        # A worker that had ended before is not called again.
        behind = np.flatnonzero((reached[k - 1] < restart.clock) & _called(columns, k))
        for worker in behind[:1].tolist():
            what = (
                f"the restart at {restart.now:.6g} s went to clock {restart.clock}, which worker {worker} had not "
                f"reached (it was at {reached[k - 1, worker]})"
            )
            findings.add("clock", what, restart.order, restart.now)
    both: tuple[tuple[str, tuple[Events, ...]], ...] = (("added to", columns.adds), ("read", columns.reads))
    for verb, tables in both:
        for table, events in enumerate(tables):
            so_far = _clocks_at(columns, ticks, life, events.worker, events.incarnation, events.position)
            for at in np.flatnonzero(so_far != events.clock)[:SHOWN].tolist():
                what = (
                    f"worker {events.worker[at]} {verb} table {columns.tables[table].name!r} at clock "
                    f"{events.clock[at]}, having ticked to {so_far[at]}"
                )
                findings.add("clock", what, int(events.position[at]))


def _called(columns: RecordingColumns, life: int) -> NDArray[np.bool_]:
    """[workers] which workers read, added or ticked in this attempt."""
    found = np.zeros(columns.workers, dtype=bool)
    every: tuple[Events, ...] = (*columns.adds, *columns.reads)
    for events in every:
        found[events.worker[events.incarnation == life]] = True
    for tick in columns.recording.ticks:
        found[tick.worker] |= columns.undone[life] < tick.order and (
            life + 1 == columns.incarnations or tick.order < columns.undone[life + 1]
        )
    return found


def _clocks_at(
    columns: RecordingColumns, ticks: Ints, life: Ints, worker: Ints, incarnation: Ints, position: Ints
) -> Ints:
    """[n] the clock of a worker at a position, from its ticks."""
    # Ticks of one worker and attempt are contiguous; those before a position are counted by two searches.
    span = int(ticks[:, 0].max(initial=0)) + int(position.max(initial=0)) + 2
    group = life * columns.workers + ticks[:, 1]
    sorted_ticks = np.sort(group * span + ticks[:, 0])
    mine = (incarnation * columns.workers + worker) * span
    made = np.searchsorted(sorted_ticks, mine + position) - np.searchsorted(sorted_ticks, mine)
    return columns.begins[incarnation] + made


def prove_order(columns: RecordingColumns, findings: Findings) -> None:
    """Check that messages of one node to another arrive as 1, 2, 3 …, none left out, none twice."""
    taken = columns.recording.deliveries
    findings.numbers["deliveries"] = len(taken)
    table = np.array([(d.incarnation, d.source, d.target, d.sequence, d.order) for d in taken], dtype=np.int64)
    table = table.reshape(-1, 5)
    nodes = columns.layout.nodes
    link = (table[:, 0] * nodes + table[:, 1]) * nodes + table[:, 2]
    order = np.argsort(link, kind="stable")
    link, sequence = link[order], table[order, 3]
    first = np.flatnonzero(np.append(True, link[1:] != link[:-1])) if len(link) else np.zeros(0, np.int64)
    findings.numbers["links"] = len(np.unique(link % (nodes * nodes)))
    expect = np.arange(len(link)) - np.repeat(first, np.diff(np.append(first, len(link)))) + 1
    wrong = np.flatnonzero(sequence != expect)
    # Only the first of each link says something: all after it are displaced.
    _, firsts = np.unique(link[wrong], return_index=True)
    for at in wrong[firsts][:SHOWN].tolist():
        delivery = taken[order[at]]
        how = "again" if sequence[at] < expect[at] else f"where number {expect[at]} was next"
        what = (
            f"node {delivery.target} took message {delivery.sequence} of node {delivery.source} {how} "
            f"({delivery.now:.6g} s, life {delivery.incarnation})"
        )
        findings.add("order", what, delivery.order, delivery.now)
    # A message of an earlier attempt must not be taken in a later one.
    life = columns.life_of(table[:, 4])
    for at in np.flatnonzero(life != table[:, 0])[:SHOWN].tolist():
        one = taken[at]
        what = f"node {one.target} took a message of life {one.incarnation} in life {life[at]} ({one.now:.6g} s)"
        findings.add("order", what, one.order, one.now)


def prove_budget(columns: RecordingColumns, findings: Findings) -> None:
    """Check budgets: over any window no side of a node and no limited link exceeds rate × window + 1 message."""
    policy, sends = columns.layout.policy, columns.recording.sends
    findings.numbers["sends"] = len(sends)
    findings.numbers["bytes"] = sum(send.nbytes for send in sends)
    if not isinstance(policy, Managed):
        return
    paid = [send for send in sends if send.reason not in _FREE]
    life = columns.life_of(np.array([send.order for send in paid], dtype=np.int64))
    now = np.array([send.now for send in paid])
    size = np.array([send.nbytes for send in paid], dtype=np.float64)
    sides: dict[tuple[int, int, str], list[int]] = {}
    links: dict[tuple[int, int, int, str], list[int]] = {}
    for at, send in enumerate(paid):
        sides.setdefault((int(life[at]), send.source, send.side), []).append(at)
        if (send.source, send.target) in policy.links:
            links.setdefault((int(life[at]), send.source, send.target, send.side), []).append(at)
    used = 0.0
    for (_, node, side), some in sides.items():
        allowed = rate(policy.budget) * _share(policy, side)
        used = max(used, _prove_bucket(allowed, now[some], size[some], f"node {node} sent {side}", findings))
    for (_, source, target, side), some in links.items():
        allowed = rate(policy.links[source, target]) * _share(policy, side)
        who = f"node {source} sent {side} to node {target}"
        used = max(used, _prove_bucket(allowed, now[some], size[some], who, findings))
    findings.numbers["buckets"] = len(sides) + len(links)
    findings.numbers["used"] = used


def _share(policy: Managed, side: str) -> float:
    """Of a budget, that of the node or of a link: `split` is for updates, the rest for rows."""
    return policy.split if side == "updates" else 1 - policy.split


def _prove_bucket(
    allowed: float, now: NDArray[np.float64], size: NDArray[np.float64], who: str, findings: Findings
) -> float:
    """One bucket. Returns the share of the rate that was used between the first and the last message."""
    # Sent in the window from message i to message j: what came before j, from i on, must have drained by then, and j
    # itself is the one message more. With x = sent before − rate · time, that is x[j] ≤ x[i] for all i < j.
    before = np.cumsum(size) - size
    ahead = before - allowed * (now - now[0])
    over = ahead - np.minimum.accumulate(ahead)
    # Times are float64 seconds: what one step of the last of them is worth, and a byte, which is below any message.
    wrong = np.flatnonzero(over > 1.0 + 4 * allowed * np.spacing(np.abs(now).max(initial=0.0)))
    for at in wrong[:1].tolist():
        begin = int(np.argmin(ahead[: at + 1]))
        window, total = now[at] - now[begin], before[at] + size[at] - before[begin]
        what = (
            f"{who}: {total:.0f} bytes in {window:.6g} s ({now[begin]:.6g} to {now[at]:.6g} s); {allowed:.6g} bytes/s "
            f"allow {allowed * window:.0f} and the last message of {size[at]:.0f}"
        )
        findings.add("budget", what, -1, float(now[at]))
    findings.more("budget", len(wrong) - 1)
    return float(before[-1] / (allowed * (now[-1] - now[0]))) if len(now) > 1 and now[-1] > now[0] else 0.0
