"""Which host is lost: when some do not hear each other, and when one lives but makes no progress; and when a job gives
up. Decisions, without a clock or a network: the cluster's driver and the simulator's run the same."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping

BUSY = 6.0  # times patience, for a host that answers the driver: it may compile, or be short of processor time
VISITS = 20.0  # times the longest visit
FIRST = 120.0  # times patience, for the first visit of all
STARTS = 6  # losses in a row before a host has begun, or without progress: random kills rarely get there


def lost_one(
    silences: Mapping[tuple[int, int], float], answering: Collection[int], patience: float
) -> tuple[int, int, float] | None:
    """(host, how many others do not hear it, for how long) of the one that counts as lost; None: nobody does yet.

    silences: (by, whom) → seconds in which `by` heard nothing of `whom`. answering: hosts that answer the driver.
    Of several the one that most others do not hear is lost, of equals the one with the highest number.

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
    """Which host is lost, from reports of hosts that have not heard another for longer than `patience`.

    Reports are collected for `grace` seconds. Then those who made them are asked again, and `lost_one` decides.

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
        """A new incarnation: nobody has reported anything."""
        self._accused.clear()

    def silent(self, now: float, by: int, whom: int, seconds: float) -> None:
        """A host reports that it has not heard another for so many seconds."""
        self._accused[by, whom] = seconds
        self._judge_at = now + self._grace

    def judge(
        self, now: float, silence: Callable[[int, int], float], answering: Collection[int]
    ) -> tuple[int, int, float] | None:
        """(host, how many do not hear it, for how long) of the one that counts as lost; None: nobody does yet.

        silence : (by, whom) → seconds in which `by` has heard nothing of `whom`, asked again
        answering : hosts that answer the driver
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
    """How often hosts were lost, and whether the job gives up. restarts: how many losses may be in all."""

    def __init__(self, restarts: float = math.inf) -> None:
        self._restarts = restarts
        self._early: Counter[int] = Counter()  # losses of a host since it last began
        self._vain = 0  # losses of any host since the job last got further
        self._all = 0

    def lost(self, host: int) -> str:
        """A host was lost. Returned: why the job gives up; "" when it goes on."""
        self._early[host] += 1
        self._vain += 1
        self._all += 1
        return given_up(host, self._early[host], self._vain, self._all, self._restarts)

    def began(self) -> None:
        """All hosts have begun their work."""
        self._early.clear()

    def progressed(self) -> None:
        """The job has got further than it ever was: losses before are no sign that it never will."""
        self._vain = 0


def given_up(host: int, early: int, vain: int, losses: int, restarts: float) -> str:
    """Why a job ends instead of replacing a host again; "" when it goes on.

    early: losses of this host in a row before it had begun its work. vain: of any host in a row, between which the job
    got no further. losses: of all hosts, restarts: how many may be.

    >>> given_up(1, early=2, vain=2, losses=2, restarts=100)
    ''
    >>> given_up(1, early=6, vain=6, losses=6, restarts=100)
    'host 1 was lost 6 times in a row before it had begun its work'
    >>> given_up(1, early=1, vain=6, losses=9, restarts=100)
    'hosts were lost 6 times in a row, and the job got no further in between'
    """
    if early >= STARTS:
        return f"host {host} was lost {early} times in a row before it had begun its work"
    if vain >= STARTS:
        return f"hosts were lost {vain} times in a row, and the job got no further in between"
    if losses > restarts:
        return f"{losses} times a host of the cluster was lost, and restarts={restarts}"
    return ""


class Standstill:
    """Who has stopped getting on in a rotation, though there is something it could do.

    still = Standstill(patience=5.0)
    still.see(now, {0: ((3, 17), 2), 1: ((3, 20), 0)})   # by node: a mark that changes as it gets on, what it could do
    still.stuck(now, longest=0.2)                        # (node, seconds), or None
    still.idle(now)                                      # seconds in which nobody got on and nobody had anything to do

    A visit takes as long as it takes: a node is stuck when one lasts VISITS times the longest that was seen anywhere,
    and BUSY times patience at least; before any has ended nothing is known, and FIRST times patience must do.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._nodes: dict[int, tuple[tuple[int, ...], bool, float]] = {}  # mark, whether busy, since when both are so
        self._moved = -1.0  # when any of it last changed

    def see(self, now: float, told: Mapping[int, tuple[tuple[int, ...], int]]) -> None:
        """What nodes that make a run said of it; of those that have made it, nothing."""
        before, self._nodes = self._nodes, {}
        for node, (mark, busy) in told.items():
            known = before.get(node)
            if known is not None and known[:2] == (mark, busy > 0):
                self._nodes[node] = known
            else:
                self._nodes[node] = (mark, busy > 0, now)
        if self._moved < 0 or before != self._nodes:
            self._moved = now

    def stuck(self, now: float, longest: float) -> tuple[int, float] | None:
        """The node that has something to do and has not got on for longest, if that is too long, and for how long.

        longest: seconds of the longest visit so far, 0 if none has ended.
        """
        node, seconds = self.slowest(now)
        return (node, seconds) if seconds > self.limit(longest) else None

    def limit(self, longest: float) -> float:
        """Seconds after which a node that has something to do and does not get on counts as lost."""
        return max(BUSY * self._patience, VISITS * longest) if longest else FIRST * self._patience

    def slowest(self, now: float) -> tuple[int, float]:
        """The node that has something to do and has not got on for longest, and for how long; −1 and 0 without one."""
        busy = [(since, node) for node, (_, busy, since) in self._nodes.items() if busy]
        since, node = min(busy, default=(now, -1))
        return node, now - since

    def idle(self, now: float) -> float:
        """For how long nobody has got on, while nobody had anything to do: blocks must be on their way."""
        if not self._nodes or any(busy for _, busy, _ in self._nodes.values()):
            return 0.0
        return now - self._moved
