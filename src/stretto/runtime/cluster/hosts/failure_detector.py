"""Failure detection: which host is lost, which node makes no progress, and when a job gives up.

Pure decisions, without a clock or a network: the cluster's driver and the simulator use the same.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping

BUSY = 6.0  # times patience, for a host that answers the driver: it may compile, or be short of processor time
VISITS = 20.0  # times the longest visit
FIRST = 120.0  # times patience, for the first visit of all
STARTS = 6  # losses in a row before a host has begun, or without progress: random kills rarely reach it


def lost_one(
    silences: Mapping[tuple[int, int], float], answering: Collection[int], patience: float
) -> tuple[int, int, float] | None:
    """The host that counts as lost: (host, how many others do not hear it, for how long), or None.

    Of several hosts, the one that most others do not hear is lost; of equals the one with the highest number.

    Parameters
    ----------
    silences : mapping
        (by, whom) → seconds in which `by` heard nothing of `whom`.
    answering : collection of int
        Hosts that answer the driver.
    patience : float
        Seconds of silence after which a host that does not answer the driver is lost.

    Examples
    --------
    >>> lost_one({(0, 2): 6.0, (1, 2): 7.0, (2, 0): 6.0}, answering=(), patience=5.0)
    (2, 2, 7.0)
    >>> lost_one({(0, 2): 6.0}, answering=(2,), patience=5.0)
    """
    votes = Counter(whom for _, whom in silences)
    for whom, count in sorted(votes.items(), key=lambda entry: (entry[1], entry[0]), reverse=True):
        longest = max(silence for (_, other), silence in silences.items() if other == whom)
        if longest >= (BUSY if whom in answering else 1.0) * patience:
            return whom, count, longest
    return None


class FailureDetector:
    """Decides which host is lost, from reports of hosts that have not heard another for longer than `patience`.

    Reports are collected for `grace` seconds. Then the reporting hosts are asked again, and `lost_one` decides.

    >>> detector = FailureDetector(patience=5.0, grace=1.0)
    >>> detector.silent(10.0, by=0, whom=2, seconds=5.0)
    >>> detector.judge(10.5, silence=lambda by, whom: 5.5, answering=())
    >>> detector.judge(11.0, silence=lambda by, whom: 6.0, answering=())
    (2, 1, 6.0)
    """

    def __init__(self, patience: float, grace: float) -> None:
        self.patience, self._grace = patience, grace
        self._accused: dict[tuple[int, int], float] = {}  # (by, whom) → seconds of silence
        self._judge_at = math.inf

    def begin(self) -> None:
        """Start a new incarnation without reports."""
        self._accused.clear()

    def silent(self, now: float, by: int, whom: int, seconds: float) -> None:
        """Record that host `by` has heard nothing of host `whom` for `seconds`."""
        self._accused[by, whom] = seconds
        self._judge_at = now + self._grace

    def judge(
        self, now: float, silence: Callable[[int, int], float], answering: Collection[int]
    ) -> tuple[int, int, float] | None:
        """The host that counts as lost: (host, how many do not hear it, for how long), or None.

        Parameters
        ----------
        silence : function(by, whom) -> float
            Seconds in which `by` has heard nothing of `whom`, asked again.
        answering : collection of int
            Hosts that answer the driver.
        """
        if not self._accused or now < self._judge_at:
            return None
        self._judge_at = now + self._grace
        for by, whom in list(self._accused):
            seconds = silence(by, whom)
            if seconds < self.patience:
                del self._accused[by, whom]
            else:
                self._accused[by, whom] = seconds
        return lost_one(self._accused, answering, self.patience)


class Losses:
    """Counts losses of hosts and decides whether the job gives up.

    Parameters
    ----------
    restarts : float
        Losses in all after which it does.
    """

    def __init__(self, restarts: float = math.inf) -> None:
        self._restarts = restarts
        self._early: Counter[int] = Counter()  # losses of a host since it last began
        self._without_progress = 0  # losses of any host since the job last made progress
        self._all = 0

    def lost(self, host: int) -> str:
        """Count the loss of a host; return why the job gives up, "" if it goes on."""
        self._early[host] += 1
        self._without_progress += 1
        self._all += 1
        return given_up(host, self._early[host], self._without_progress, self._all, self._restarts)

    def began(self) -> None:
        """All hosts have begun their work."""
        self._early.clear()

    def progressed(self) -> None:
        """The job has got further than ever before: earlier losses no longer count as losses without progress."""
        self._without_progress = 0


def given_up(host: int, early: int, no_progress: int, losses: int, restarts: float) -> str:
    """Why a job ends instead of replacing a host again; "" if it goes on.

    Parameters
    ----------
    host : int
        The host that was lost.
    early : int
        Losses of this host in a row before it had begun its work.
    no_progress : int
        Losses of any host in a row without progress of the job in between.
    losses, restarts : int, float
        Losses of all hosts, and how many are allowed.

    Examples
    --------
    >>> given_up(1, early=2, no_progress=2, losses=2, restarts=100)
    ''
    >>> given_up(1, early=6, no_progress=6, losses=6, restarts=100)
    'host 1 was lost 6 times in a row before it had begun its work'
    >>> given_up(1, early=1, no_progress=6, losses=9, restarts=100)
    'hosts were lost 6 times in a row, and the job got no further in between'
    """
    if early >= STARTS:
        return f"host {host} was lost {early} times in a row before it had begun its work"
    if no_progress >= STARTS:
        return f"hosts were lost {no_progress} times in a row, and the job got no further in between"
    if losses > restarts:
        return f"hosts of the cluster were lost {losses} times, and restarts={restarts}"
    return ""


class StallDetector:
    """Detects a node of a rotation that makes no progress although it has work.

    still = Standstill(patience=5.0)
    still.see(now, {0: ((3, 17), 2), 1: ((3, 20), 0)})   # by node: a mark that changes with progress, work items
    still.stuck(now, longest=0.2)                        # (node, seconds), or None
    still.idle(now)                                      # seconds in which no node had progress or work

    Visits differ in length. A node is stuck when a visit lasts VISITS times the longest one seen so far, and at least
    BUSY times patience; before any visit has ended the limit is FIRST times patience.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._nodes: dict[int, tuple[tuple[int, ...], bool, float]] = {}  # mark, busy, since when
        self._moved = -1.0  # time of the last change

    def see(self, now: float, reports: Mapping[int, tuple[tuple[int, ...], int]]) -> None:
        """Record the progress reports of nodes that are in a run; nodes that have finished are not included."""
        before, self._nodes = self._nodes, {}
        for node, (mark, busy) in reports.items():
            known = before.get(node)
            if known is not None and known[:2] == (mark, busy > 0):
                self._nodes[node] = known
            else:
                self._nodes[node] = (mark, busy > 0, now)
        if self._moved < 0 or before != self._nodes:
            self._moved = now

    def stuck(self, now: float, longest: float) -> tuple[int, float] | None:
        """The busy node with the longest time without progress, and that time, if it is over the limit.

        Parameters
        ----------
        longest : float
            Seconds of the longest visit so far, 0 if none has ended.
        """
        node, seconds = self.slowest(now)
        return (node, seconds) if seconds > self.limit(longest) else None

    def limit(self, longest: float) -> float:
        """Seconds without progress after which a busy node counts as lost."""
        return max(BUSY * self._patience, VISITS * longest) if longest else FIRST * self._patience

    def slowest(self, now: float) -> tuple[int, float]:
        """The busy node with the longest time without progress, and that time; −1 and 0 without one."""
        busy = [(since, node) for node, (_, busy, since) in self._nodes.items() if busy]
        since, node = min(busy, default=(now, -1))
        return node, now - since

    def idle(self, now: float) -> float:
        """Seconds in which no node had work or made progress: blocks must be in flight."""
        if not self._nodes or any(busy for _, busy, _ in self._nodes.values()):
            return 0.0
        return now - self._moved
