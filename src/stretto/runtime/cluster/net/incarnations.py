"""The incarnations of a job that run here: which frames are current, which came early, which are too late.

The hosts of a job begin an incarnation one after another. So a host may get frames of one that it has not begun: they
are kept, up to `EARLY` bytes, until it does. Frames of an incarnation that has ended are dropped.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from .envelope import ReceivedMessage
from .frame_checks import Checker, Malformed

EARLY = 16 << 20  # bytes kept of incarnations that other hosts have begun and this one has not


class Incarnation(NamedTuple):
    """An incarnation that runs: the host of each node (None: any host may send for any node), and its checks."""

    where: tuple[int, ...] | None
    check: Checker


class Early(NamedTuple):
    """A message that arrived before its incarnation began here."""

    host: int
    letter: ReceivedMessage
    size: int


@dataclass(slots=True)
class Incarnations:
    """Those that have begun, those that have ended, and the messages of those to come.

    Attributes
    ----------
    live : dict
        Begun and not ended, by number.
    newest : int
        The newest that has begun.
    """

    live: dict[int, Incarnation]
    newest: int = -1
    _over: set[int] = field(default_factory=set)  # ended, of those above the floor
    _floor: int = -1  # all up to this one have ended
    _early: list[Early] = field(default_factory=list)

    def begin(self, number: int, begun: Incarnation, oldest: int) -> list[int]:
        """Begin one; those below `oldest` are over. Returns the live ones among them, which the caller must `end`."""
        self.live[number] = begun
        self.newest = max(self.newest, number)
        self._floor = max(self._floor, oldest - 1)
        self._over = {one for one in self._over if one > self._floor}
        return [one for one in self.live if one <= self._floor]

    def end(self, numbers: Collection[int]) -> None:
        """End these; what came early for them is dropped."""
        for number in numbers:
            self.live.pop(number, None)
            if number > self._floor:
                self._over.add(number)
        self._early = [one for one in self._early if one.letter.incarnation not in numbers]

    def keep(self, host: int, letter: ReceivedMessage, size: int) -> bool:
        """Keep a message of an incarnation to come; False if that is over, or if too much is kept already."""
        to_come = letter.incarnation > self._floor and letter.incarnation not in self._over
        if to_come and sum(one.size for one in self._early) + size <= EARLY:
            self._early.append(Early(host, letter, size))
            return True
        return False

    def take_early(self) -> list[Early]:
        """The messages that were kept; they are no longer kept here."""
        early, self._early = self._early, []
        return early

    def takes_part(self, host: int) -> bool:
        """Whether a host has a part in what runs here. One that has none may not have met this host yet."""
        return any(one.where is None or host in one.where for one in self.live.values())

    def checked(self, letter: ReceivedMessage, sender: int, receiver: int) -> Checker:
        """The checks for a message of a live incarnation.

        Raises
        ------
        Malformed
            If its source is not a node of the sending host, or its target none of the receiving one.
        """
        where, check = self.live[letter.incarnation]
        source, target = letter.source, letter.target
        if where is not None and not (source < len(where) and target < len(where)):
            raise Malformed("no such node")
        if where is not None and (where[source] != sender or where[target] != receiver):
            raise Malformed("a node of another host")
        return check
