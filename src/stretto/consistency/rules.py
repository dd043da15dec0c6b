"""Consistency rules BSP, SSP and ASP: how fresh a read must be.

A row is *through* clock c when it holds every update of clocks < c, by all workers. A read at clock t must be through

    BSP      t          exactly: updates of clocks < t and the reader's own, no others
    SSP(s)   t − s      a lower bound: all updates of clocks ≤ t − s − 1; more may be seen
    ASP      no bound

Other texts count differently. The dissertation (section 3.1) counts as we do. The SoCC text blocks while t − age ≥ S,
where age is the oldest clock with missing updates (our `through`). With S = 0 a reader at clock t could never read a
row through t, and no row can be beyond that, so every worker would always wait. Its S is our s + 1. Alt's τ_max counts
the clocks that may be missing, with the reader's own open one: τ_max = s + 1.

    >>> SSP(2).need(5), BSP().need(5), ASP().need(5)
    (3, 5, 0)
"""

from __future__ import annotations

from dataclasses import dataclass

from stretto.checks import flags, number


@dataclass(frozen=True)
class BSP:
    """Bulk-synchronous reads: a read sees exactly the updates of the clocks before its own. Grade: identical.

    Attributes
    ----------
    exact : bool
        True: a read sees these updates and no others.
    speculate : bool
        False: reads never go past the bound.

    Examples
    --------
    >>> import stretto as st
    >>> st.BSP().need(5)
    5
    """

    exact = True
    speculate = False

    def need(self, clock: int) -> int:
        """The clock that a row must be complete through before it is read at this clock.

        Parameters
        ----------
        clock : int
            The clock of the reader.
        """
        return clock


@dataclass(frozen=True)
class SSP:
    """Stale-synchronous reads: a read may miss the last `s` clocks and the current one. Grade: replayable.

    Parameters
    ----------
    s : int, default 0
        Staleness: how many clocks a read may be behind.
    speculate : bool, default False
        Also allow a read past the bound if no missing update touches the keys of the read. Works for keys that workers
        announced with `table.announce`.

    Attributes
    ----------
    exact : bool
        False: a read may see more than the bound demands.

    Examples
    --------
    >>> import stretto as st
    >>> st.SSP(2).need(5)
    3
    """

    s: int = 0
    speculate: bool = False
    exact = False

    def __post_init__(self) -> None:
        number("s", self.s, least=0, whole=True, owner="SSP", why="st.ASP() has no bound")
        flags(speculate=self.speculate, owner="SSP")

    def need(self, clock: int) -> int:
        """The clock that a row must be complete through before it is read at this clock.

        Parameters
        ----------
        clock : int
            The clock of the reader.
        """
        return max(0, clock - self.s)


@dataclass(frozen=True)
class ASP:
    """Asynchronous reads without a bound: a read takes the values the cache has. Grade: replayable.

    Attributes
    ----------
    exact : bool
        False: a read may see updates of any clock.
    speculate : bool
        False: there is no bound to go past.

    Examples
    --------
    >>> import stretto as st
    >>> st.ASP().need(5)
    0
    """

    exact = False
    speculate = False

    def need(self, clock: int) -> int:
        """The clock that a row must be complete through before it is read: always 0.

        Parameters
        ----------
        clock : int
            The clock of the reader.
        """
        return 0


Rule = BSP | SSP | ASP
