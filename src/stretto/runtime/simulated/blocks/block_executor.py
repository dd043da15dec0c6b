"""Run the steps of a static plan on a simulated cluster: the cluster's own driver, with hosts in virtual time.

Steps with a spec run on simulated nodes; `StepOutcome.seconds` and logs are in virtual time. Other steps run on the
driver's threads and take no virtual time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.step import BlockStep, StepOutcome
from stretto.runtime.cluster.blocks.block_executor import ClusterCrew
from stretto.runtime.cluster.parts.calls import HostCall
from stretto.runtime.cluster.parts.driver import RemoteParts, RemoteValues
from stretto.runtime.simulated.settings import SimulatedSettings
from stretto.schedule.orders.order import Ints

from .host import make_virtual_parts, make_virtual_task
from .hosts import VirtualHosts
from .report import PassReport, RotationReport

_FAILURE_SECONDS = 86_400.0  # mean time between losses of one node, unless the spec gives it


class SimulatedCrew(ClusterCrew):
    """A crew with simulated hosts. `report`: what the nodes did so far, in virtual time."""

    hosts: VirtualHosts
    _make_task = staticmethod(make_virtual_task)

    def __init__(self, spec: SimulatedSettings) -> None:
        hosts = VirtualHosts(spec)
        super().__init__(hosts, hosts.now)
        hosts.asked = lambda: self.asked or self._ending
        self._spec = spec
        self.report = RotationReport(spec.nodes, spec.threads)

    def run(self, step: BlockStep, profile: str, *args: Any, **options: Any) -> StepOutcome:
        """Run a step as `ClusterCrew.run` does."""
        began = self.hosts.now()
        done = super().run(step, profile, *args, **options)
        if step.spec is None:
            # Which thread made which visit when is not part of the simulation.
            log = done.log[np.argsort(done.log[:, 0], kind="stable")]
            log[:, 1:] = 0
            return replace(done, seconds=0.0, log=log)
        self._note(step, began, done)
        return done

    apart = 0  # counting takes no virtual time and runs in this process

    def shares(self, count: int, readers: Ints | None = None) -> list[Sequence[int]]:
        """One share: everything runs in this process."""
        return Crew.shares(self, count)

    def apply(self, function: Callable[[Any, Crew], Any], items: Sequence[Any]) -> list[Any]:
        """Apply the function in this process."""
        return Crew.apply(self, function, items)

    def _make_parts(self) -> RemoteParts:
        return VirtualParts(self)

    def note_call(self, name: str, began: float, computed: float) -> None:
        """Add a call of a function over parts to the report."""
        elapsed = self.hosts.now() - began
        waited = np.zeros(self._spec.nodes)
        self.report.passes.append(PassReport(name, began, elapsed, elapsed, computed, 0, waited))
        self._note_time()

    def _gather(self) -> None:
        super()._gather()
        self._note_time()

    def _note(self, step: BlockStep, began: float, done: StepOutcome) -> None:
        ran = self.ran
        computed = float((done.log[:, 3] - done.log[:, 2]).sum()) * 1e-9
        waited = np.array([ran[node].waited if node in ran else 0.0 for node in range(self._spec.nodes)])
        moved, elapsed = sum(one.moved for one in ran.values()), self.hosts.now() - began
        self.report.passes.append(PassReport(step.name, began, elapsed, done.seconds, computed, moved, waited))
        self._note_time()

    def _note_time(self) -> None:
        self.report.seconds = self.hosts.now()
        self.report.driver_bytes = self.hosts.carried
        self.report.losses = list(self.hosts.losses)

    def _failure_seconds(self) -> float:
        return self._spec.mean_failure() or _FAILURE_SECONDS

    def _send(self, what: str, values: dict[int, Any], within: float, ending: Callable[[], bool]) -> None:
        self.hosts.ask_each(what, {node: ({node: value},) for node, value in values.items()})

    def _together(self, calls: list[Callable[[], Any]], ending: Callable[[], bool]) -> None:
        for call in calls:
            call()


class VirtualParts(RemoteParts):
    """Parts on simulated nodes, whose calls are in the crew's report."""

    def __init__(self, crew: SimulatedCrew) -> None:
        super().__init__(crew.hosts, make_virtual_parts(crew), crew._leave_steps)
        self._crew = crew

    def call(self, held: RemoteValues, work: HostCall | None) -> dict[int, Any]:
        """Call as `RemoteParts.call` does, and add the call to the report."""
        began = self._crew.hosts.now()
        found = super().call(held, work)
        name, items = (held.function, held.items) if work is None else (work.function, work.items)
        self._crew.note_call(name.__name__, began, items * self._crew.hosts.spec.seconds_per_item)
        return found
