"""Faults that users describe for a simulated cluster: pauses, slow nodes and links, delays, connection resets, crashes.

    st.Simulated(nodes=4, faults=[Pause(2, at=1.0, seconds=0.5), Reset(0, 3, at=2.0, lost=2), Crash(1, at=4.0)])

Times are virtual seconds since the run began, as numbers or such as "20ms". `of_seed` draws crashes from a mean time to
failure, and `parse_fault` reads the text form of job files and the command line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields

from stretto.checks import number
from stretto.comm.units import seconds
from stretto.errors import PlanError

Time = str | float
FOR_EVER = 1e18


class _Fault:
    """Converts times to seconds and checks node numbers."""

    def __post_init__(self) -> None:
        for entry in fields(self):  # type: ignore[arg-type]
            value = getattr(self, entry.name)
            if entry.name in ("at", "seconds", "back_after", "extra"):
                object.__setattr__(self, entry.name, seconds(value))
            elif entry.name in ("node", "a", "b", "lost", "doubled"):
                number(entry.name, value, least=0, whole=True, owner=type(self).__name__)
        if getattr(self, "factor", 1.0) < 1:
            raise PlanError(f"{self!r}: factor says how many times slower; give a number of 1 or more")
        if hasattr(self, "a") and self.a == getattr(self, "b", None):
            raise PlanError(f"{self!r}: a link joins two different nodes; give different numbers")

    def nodes(self) -> tuple[int, ...]:
        """Numbers of the nodes that the fault concerns."""
        return tuple(getattr(self, name) for name in ("node", "a", "b") if hasattr(self, name))


@dataclass(frozen=True)
class Pause(_Fault):
    """A node stalls: it neither computes nor answers, and messages to it wait.

    Parameters
    ----------
    node : int
        The node.
    at : str or float
        When the stall begins: virtual seconds since the run began, or a time such as "20ms".
    seconds : str or float
        How long it lasts.

    Examples
    --------
    >>> import stretto as st
    >>> st.faults.Pause(2, at=1.0, seconds="500ms")
    Pause(node=2, at=1.0, seconds=0.5)
    """

    node: int
    at: Time
    seconds: Time


@dataclass(frozen=True)
class SlowNode(_Fault):
    """A single straggler: computing takes `factor` times as long on this node.

    Parameters
    ----------
    node : int
        The node.
    at : str or float, default 0.0
        When it begins: virtual seconds since the run began, or a time such as "20ms".
    seconds : str or float, default 1e+18
        How long it lasts; by default to the end of the run.
    factor : float, default 10.0
        How many times slower, 1 or more.

    Examples
    --------
    >>> import stretto as st
    >>> st.faults.SlowNode(1, at=2.0, seconds=3.0, factor=4.0).slowness(node=1, now=2.5)
    4.0
    """

    node: int
    at: Time = 0.0
    seconds: Time = FOR_EVER
    factor: float = 10.0

    def slowness(self, node: int, now: float) -> float:
        """How many times slower than usual a node is, by this fault alone.

        Parameters
        ----------
        node : int
            The node in question.
        now : float
            Virtual seconds since the run began.
        """
        began = float(self.at)
        return self.factor if node == self.node and began <= now < began + float(self.seconds) else 1.0


@dataclass(frozen=True)
class SlowLink(_Fault):
    """A slow link between two nodes: messages take `factor` times as long, both ways.

    Parameters
    ----------
    a : int
        A node.
    b : int
        The other node.
    at : str or float
        When it begins: virtual seconds since the run began, or a time such as "20ms".
    seconds : str or float, default 1e+18
        How long it lasts; by default to the end of the run.
    factor : float, default 10.0
        How many times slower, 1 or more.

    Examples
    --------
    >>> import stretto as st
    >>> st.faults.SlowLink(0, 3, at="2s", seconds=1.0, factor=5.0)
    SlowLink(a=0, b=3, at=2.0, seconds=1.0, factor=5.0)
    """

    a: int
    b: int
    at: Time
    seconds: Time = FOR_EVER
    factor: float = 10.0


@dataclass(frozen=True)
class Delay(_Fault):
    """Messages from one node to another arrive later. They keep their order; other pairs of nodes are not affected.

    In a job over tables the receiver hears nothing of the sender until the first of them arrives. A sender that is
    silent for six times `detect` is lost, although it answers the driver.

    Parameters
    ----------
    a : int
        The node that sends.
    b : int
        The node that receives.
    at : str or float
        When it begins: virtual seconds since the run began, or a time such as "20ms".
    seconds : str or float, default 1e+18
        How long it lasts; by default to the end of the run.
    extra : str or float, default 0.01
        How much later a message arrives.

    Examples
    --------
    >>> import stretto as st
    >>> st.faults.Delay(0, 1, at=1.0, seconds=2.0, extra="50ms").extra
    0.05
    """

    a: int
    b: int
    at: Time
    seconds: Time = FOR_EVER
    extra: Time = 0.01


@dataclass(frozen=True)
class Reset(_Fault):
    """The connection between two nodes breaks and is opened again, both ways.

    Some messages on the way are lost, and so is everything that is sent until both ends notice, one latency later. Then
    each end sends what was not acknowledged a second time. A message that had arrived without an answer arrives twice.

    Parameters
    ----------
    a : int
        A node.
    b : int
        The other node.
    at : str or float
        When the connection breaks: virtual seconds since the run began, or a time such as "20ms".
    lost : int, default 1000000000
        Of the messages on the way in each direction, how many of the last ones are lost.
    doubled : int, default 0
        Of those that do arrive, how many of the last ones arrive twice at once.

    Examples
    --------
    >>> import stretto as st
    >>> st.faults.Reset(0, 3, at=2.0, lost=2)
    Reset(a=0, b=3, at=2.0, lost=2, doubled=0)
    """

    a: int
    b: int
    at: Time
    lost: int = 1_000_000_000
    doubled: int = 0


@dataclass(frozen=True)
class Crash(_Fault):
    """A node loses its memory and comes back, empty, some time later.

    Parameters
    ----------
    node : int
        The node.
    at : str or float
        When it crashes: virtual seconds since the run began, or a time such as "20ms".
    back_after : str or float, default 10.0
        Seconds until the node is back.

    Examples
    --------
    >>> import stretto as st
    >>> st.Simulated(nodes=4, faults=[st.faults.Crash(1, at=4.0)]).faults
    (Crash(node=1, at=4.0, back_after=10.0),)
    """

    node: int
    at: Time
    back_after: Time = 10.0


Fault = Pause | SlowNode | SlowLink | Delay | Reset | Crash


def check(faults: Iterable[object], nodes: int) -> tuple[Fault, ...]:
    """The faults as a tuple; PlanError for an unknown kind or node."""
    if not isinstance(faults, Iterable):
        raise PlanError(f"{faults!r}: faults are given as a list; write a single one as [{faults!r}]")
    found: list[Fault] = []
    for fault in faults:
        if not isinstance(fault, Fault):
            raise PlanError(f"{fault!r} is not a fault; give Pause, SlowNode, SlowLink, Delay, Reset or Crash")
        for node in fault.nodes():
            if node >= nodes:
                raise PlanError(f"{fault!r}: there is no node {node}; the nodes are 0 to {nodes - 1}")
        found.append(fault)
    return tuple(found)


_FAULT = re.compile(r"\s*(crash|pause|straggler)\s+(\d+)(?:=([0-9.]+))?(?:@([^+]+))?(?:\+(.+))?\s*")


def parse_fault(text: str) -> Fault:
    """Parse a fault as it is written in job files and on the command line.

    >>> parse_fault("crash 2@1.5s+3s")
    Crash(node=2, at=1.5, back_after=3.0)
    >>> parse_fault("straggler 0=4"), parse_fault("pause 1@20ms+5ms")
    (SlowNode(node=0, at=0.0, seconds=1e+18, factor=4.0), Pause(node=1, at=0.02, seconds=0.005))
    """
    found = _FAULT.fullmatch(text)
    if found is not None:
        kind, node, factor, at, lasts = found[1], int(found[2]), found[3], found[4], found[5]
        if kind == "crash" and at and not factor:
            return Crash(node, _time(at), _time(lasts)) if lasts else Crash(node, _time(at))
        if kind == "pause" and at and lasts and not factor:
            return Pause(node, _time(at), _time(lasts))
        if kind == "straggler" and factor:
            return SlowNode(node, _time(at or "0"), _time(lasts) if lasts else FOR_EVER, float(factor))
    raise PlanError(
        f"{text!r} is not a fault; write 'crash NODE@TIME+BACK', 'pause NODE@TIME+SECONDS' or "
        "'straggler NODE=FACTOR@TIME+SECONDS', such as 'crash 2@1.5s+3s' or 'straggler 0=4'"
    )


def _time(text: str) -> Time:
    """A number of seconds, or text with a unit."""
    try:
        return float(text)
    except ValueError:
        return text.strip()
