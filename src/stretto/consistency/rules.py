"""The rules: how fresh a read must be.

A row is *through* clock c when it holds every update of clocks < c, by all workers. A read at clock t must be through

    BSP      t          exactly: updates of clocks < t and the reader's own, nothing else
    SSP(s)   t − s      a floor: all updates of clocks ≤ t − s − 1; more may be seen
    ASP      nothing

Other texts count differently. The dissertation (section 3.1) says what is said here. The SoCC text blocks while
t − age ≥ S, with age the oldest clock some of whose updates are missing (our `through`): a reader at clock t could
never read a row through t with S = 0, which nobody at clock t can be beyond, so every worker would wait for ever; its
S is our s + 1. Alt's τ_max counts the clocks that may be missing, the reader's own open one included: τ_max = s + 1.

    >>> SSP(2).need(5), BSP().need(5), ASP().need(5)
    (3, 5, 0)
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import index

from stretto.errors import PlanError


@dataclass(frozen=True)
class BSP:
    """Every read sees exactly the clocks before its own. Grade: identical."""

    exact = True
    speculate = False

    def need(self, clock: int) -> int:
        """What a row must be through to be read at this clock."""
        return clock


@dataclass(frozen=True)
class SSP:
    """Reads may miss the last `s` clocks and the open one. Grade: replayable.

    speculate: also allow a read past the bound when no update that is missing touches the keys about to be read; works
    for keys that workers announced (`table.announce`), and is checked like everything else.
    """

    s: int = 0
    speculate: bool = False
    exact = False

    def __post_init__(self) -> None:
        try:
            s = index(self.s)
        except TypeError:
            raise PlanError(f"SSP(s={self.s!r}): the bound is a whole number of clocks, 0 or more") from None
        if s < 0:
            raise PlanError(
                f"SSP(s={s}): the bound is a whole number of clocks, 0 or more; st.tables.ASP() has no bound"
            )
        if not isinstance(self.speculate, bool):
            raise PlanError(f"SSP(speculate={self.speculate!r}): give True or False")

    def need(self, clock: int) -> int:
        """What a row must be through to be read at this clock."""
        return max(0, clock - self.s)


@dataclass(frozen=True)
class ASP:
    """No bound: a read takes what is there. Grade: replayable."""

    exact = False
    speculate = False

    def need(self, clock: int) -> int:
        """Nothing."""
        return 0


Rule = BSP | SSP | ASP
