"""`SimulatedSettings`: the options of a simulated cluster, checked, and what follows from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from numbers import Real
from typing import Any

from stretto.checks import number, whole
from stretto.comm.units import rate, seconds
from stretto.errors import PlanError
from stretto.runtime.cluster.hosts.failure_detector import BUSY

from .faults import Crash, Delay, Fault, Pause, SlowNode, check

# Seconds that handling a message costs a node: per message, and per byte. `bench/simulated.py`, matrix factorisation on
# 64 nodes at three ranks, measures 36 µs and 2.7 ns a byte of one core for both ends and the simulated network between
# them. Four fifths of it are our own protocol, and each end pays half.
MESSAGE_COST = (15e-6, 1.0e-9)
_STRAGGLERS = ("share", "slow", "seconds")


@dataclass(frozen=True)
class SimulatedSettings:
    """The parameters of `st.Simulated`, which documents them."""

    nodes: int = 64
    threads: int = 16
    link: str | float | Sequence[str | float] = "1Gbit"
    latency: str | float = "100us"
    speed: float | Sequence[float] = 1.0
    stragglers: Mapping[str, float] | Callable[[int, float], float] | None = None
    failures: str | float | Sequence[Crash] | None = None
    seed: int = 0
    racks: int | Sequence[int] | None = None
    uplink: str | float | None = None
    seconds_per_item: float = 1e-6
    message_cost: tuple[float, float] = MESSAGE_COST
    jitter: str | float = 0.0
    faults: Sequence[Fault] = ()
    detect: str | float = 5.0
    back_after: str | float = 10.0
    save: str | float = "200MB"

    def __post_init__(self) -> None:
        self._set("nodes", whole("nodes", self.nodes, 1, "Simulated"))
        self._set("threads", whole("threads", self.threads, 1, "Simulated"))
        self._set("seed", whole("seed", self.seed, 0, "Simulated"))
        self._set("link", self._each("link", self.link, rate))
        self._set("speed", self._each("speed", self.speed, _positive))
        for name in ("latency", "jitter", "detect", "back_after"):
            self._set(name, seconds(getattr(self, name)))
        self._set("save", rate(self.save))
        self._set("seconds_per_item", _number("seconds_per_item", self.seconds_per_item))
        self._set("message_cost", self._cost())
        self._set("stragglers", self._slow())
        self._set("racks", self._racks())
        if self.uplink is not None:
            if self.racks is None:
                raise PlanError("Simulated(uplink=…): an uplink joins racks, and there are none; give racks=… as well")
            self._set("uplink", rate(self.uplink))
        self._set("faults", check(self.faults, self.nodes))
        self._failures()
        self._set("_single", [fault for fault in self.faults if isinstance(fault, SlowNode)])  # for speed; no field

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _each(self, name: str, value: Any, read: Callable[[Any], float]) -> float | tuple[float, ...]:
        if isinstance(value, str) or not hasattr(value, "__len__"):
            return read(value)
        if len(value) != self.nodes:
            raise PlanError(f"Simulated({name}=…): {len(value)} values for {self.nodes} nodes; give one each, or one")
        return tuple(read(entry) for entry in value)

    def _cost(self) -> tuple[float, float]:
        try:
            per_message, per_byte = self.message_cost
        except (TypeError, ValueError):
            raise PlanError(
                f"Simulated(message_cost={self.message_cost!r}): give (seconds per message, seconds per byte)"
            ) from None
        return _number("message_cost", per_message), _number("message_cost", per_byte)

    def _slow(self) -> Any:
        given = self.stragglers
        if isinstance(given, Stragglers):
            return replace(given, seed=self.seed)
        if given is None or callable(given):
            return given
        if (
            not isinstance(given, Mapping)
            or set(given) != set(_STRAGGLERS)
            or not all(isinstance(value, Real) for value in given.values())
        ):
            raise PlanError(
                f"Simulated(stragglers={given!r}): give {{'share': …, 'slow': …, 'seconds': …}}, or a function of "
                "(node, seconds) that says how many times slower"
            )
        share, slow, every = (float(given[name]) for name in _STRAGGLERS)
        if not (0 <= share <= 1 and 1 <= slow < math.inf and 0 < every < math.inf):
            raise PlanError(f"Simulated(stragglers={given!r}): share within 0 and 1, slow at least 1, seconds above 0")
        return Stragglers(share, slow, every, self.seed)

    def _racks(self) -> int | tuple[int, ...] | None:
        if self.racks is None:
            return None
        if isinstance(self.racks, Sequence):
            if len(self.racks) != self.nodes:
                raise PlanError(f"Simulated(racks=…): {len(self.racks)} racks named for {self.nodes} nodes")
            return tuple(whole("racks", rack, 0, "Simulated") for rack in self.racks)
        racks = whole("racks", self.racks, 1, "Simulated")
        if racks > self.nodes:
            raise PlanError(f"Simulated(racks={racks}): there are only {self.nodes} nodes to fill them with")
        return racks

    def _failures(self) -> None:
        given = self.failures
        if given is None:
            return
        if isinstance(given, str | Real):
            mean = seconds(given)
            if mean <= 0:
                raise PlanError(f"Simulated(failures={given!r}): the mean time to failure must be above 0")
            self._set("failures", mean)
            return
        crashes = check(given, self.nodes)  # type: ignore[arg-type]
        if not all(isinstance(fault, Crash) for fault in crashes):
            raise PlanError("Simulated(failures=[…]): only Crash belongs here; other faults go to faults=[…]")
        self._set("failures", crashes)

    # The given values, after the checks.

    @property
    def links(self) -> tuple[float, ...]:
        """Bytes per second of each node's link."""
        return self.link if isinstance(self.link, tuple) else (float(self.link),) * self.nodes  # type: ignore[arg-type]

    @property
    def speeds(self) -> tuple[float, ...]:
        """Speed of each node."""
        return self.speed if isinstance(self.speed, tuple) else (float(self.speed),) * self.nodes  # type: ignore[arg-type]

    @property
    def rack_of(self) -> tuple[int, ...] | None:
        """Rack of each node; None without racks."""
        if self.racks is None or isinstance(self.racks, tuple):
            return self.racks
        return tuple(node * self.racks // self.nodes for node in range(self.nodes))  # type: ignore[operator]

    @property
    def save_rate(self) -> float:
        """Bytes per second that a node can save."""
        return float(self.save)

    def slowness(self, node: int, now: float) -> float:
        """How many times slower than usual a node is.

        Parameters
        ----------
        node : int
            The node.
        now : float
            Virtual seconds since the run began.
        """
        factor = self.stragglers(node, now) if callable(self.stragglers) else 1.0
        single: list[SlowNode] = self._single  # type: ignore[attr-defined]
        for fault in single:
            factor *= fault.slowness(node, now)
        return factor

    @property
    def can_fail(self) -> bool:
        """Whether a node may be lost: by a crash, or by a stall or a delay of messages that counts as silence."""
        detect = float(self.detect)
        silences = [float(fault.seconds) >= detect for fault in self.faults if isinstance(fault, Pause)]
        silences += [float(fault.extra) >= BUSY * detect for fault in self.faults if isinstance(fault, Delay)]
        return (
            self.failures not in (None, ()) or any(isinstance(fault, Crash) for fault in self.faults) or any(silences)
        )

    def mean_failure(self) -> float | None:
        """Seconds between two failures of one node; None if that is not known."""
        return self.failures if isinstance(self.failures, float) else None

    @property
    def patience(self) -> float:
        """Seconds that the driver of a rotation waits for news of a node before it checks whether the node is lost."""
        return max(float(self.detect), 1.0)

    @property
    def workers(self) -> int:
        """Threads of all nodes."""
        return self.nodes * self.threads

    def config(self) -> dict[str, Any]:
        """The settings as plain values, for run records."""
        return {entry.name: getattr(self, entry.name) for entry in fields(self)}


@dataclass(frozen=True)
class Stragglers:
    """Which nodes are slow when: in each interval of `seconds`, a share of the nodes is drawn at random."""

    share: float
    slow: float
    seconds: float
    seed: int

    def __call__(self, node: int, now: float) -> float:
        """How many times slower than usual."""
        return self.slow if drawn(self.seed, node, int(now / self.seconds)) < self.share else 1.0


_WORD = (1 << 64) - 1


def drawn(*keys: int) -> float:
    """A number in [0, 1) that depends only on the keys (splitmix64, a round for each key)."""
    state = 0x9E3779B97F4A7C15
    for key in keys:
        state = (state ^ (key & _WORD)) * 0xBF58476D1CE4E5B9 & _WORD
        state = ((state ^ (state >> 27)) + 0x9E3779B97F4A7C15) * 0x94D049BB133111EB & _WORD
        state ^= state >> 31
    return state / 2.0**64


def _number(name: str, value: Any) -> float:
    number(name, value, least=0, owner="Simulated")
    return float(value)


def _positive(value: Any) -> float:
    found = _number("speed", value)
    if found == 0:
        raise PlanError("Simulated(speed=0): such a node never finishes anything; give a number above 0")
    return found
