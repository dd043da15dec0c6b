"""Plan a step for several devices of one kind: choose the device of each operation, and estimate the costs.

    plan = st.memory.experimental_plan_several(
        model, loss_fn, optimizer, batch, devices=4, budget="12GiB", chunks={"batch": 20}
    )
    print(plan.explain())

Of a dimension in 20 chunks each of 4 devices has 5: what VMesh calls a cluster shape of 4 and a device shape of 5. Each
parameter is on one device, with its optimizer state: in their order, with equal bytes on each device; parameters in a
list (experts) go to the devices in turn. Operations that are not in chunks run on the device that holds most of their
inputs. Values that a device lacks are sent to it (`split`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from stretto.memory.planner.graph import Graph
from stretto.memory.planner.planner import PlannerSettings
from stretto.text import show_bytes, show_ms

from .split import JointPlan, make_all, split


@dataclass(frozen=True, eq=False)
class MultiDeviceReport:
    """Plans for several devices, as `st.memory.experimental_plan_several` returns them.

    Attributes
    ----------
    together : JointPlan
        A plan for each device, all on one clock.
    budget : int
        Bytes of each device.
    borrowed : int
        Bytes of a batch that belongs to the caller; every device has it.
    notes : list of str
        What the planner reports.
    peak : int
        The most bytes on a device.
    seconds : float
        Predicted seconds of one step.
    """

    together: JointPlan
    budget: int
    borrowed: int
    notes: list[str]

    @property
    def peak(self) -> int:
        """The most bytes on a device."""
        return max(costs.peak for costs in self.together.joint.costs) + self.borrowed

    @property
    def seconds(self) -> float:
        """Predicted seconds of one step."""
        return self.together.joint.seconds

    def explain(self) -> str:
        """Describe the plans in a few lines."""
        joint = self.together.joint
        lines = [
            f"{len(joint.costs)} devices, budget {show_bytes(self.budget)} each; a step takes about "
            f"{show_ms(joint.seconds)}; at most {show_bytes(joint.posted)} in transit between them"
        ]
        for d, (part, costs, idle) in enumerate(zip(self.together.parts, joint.costs, joint.idle, strict=True)):
            lines.append(
                f"device {d}: {len(part.graph.nodes):,} operations; at most {show_bytes(costs.peak + self.borrowed)}, "
                f"{show_bytes(costs.host)} on the host; waits {show_ms(idle)} for others"
            )
        return "\n".join([*lines, *self.notes])

    def __str__(self) -> str:
        return self.explain()


def distribute(
    graph: Graph,
    chunks: Mapping[str, tuple[int, int]],
    devices: int,
    settings: PlannerSettings,
    *,
    borrowed: int = 0,
    notes: Sequence[str] = (),
) -> MultiDeviceReport:
    """Distribute a step over devices and plan each of them.

    Parameters
    ----------
    graph : Graph
        The step with its costs.
    chunks : mapping
        By name of an operation: (number of its chunk, how many chunks).
    devices : int
        How many devices.
    settings : PlannerSettings
        For every device.
    borrowed : int
        Bytes of the budget that are in use already.
    notes : sequence of str
        What was changed in the step.
    """
    parts = split(graph, device_of_nodes(graph, chunks, devices), devices)
    left = replace(settings, budget=max(1, settings.budget - borrowed))
    other_bytes = {"batch": borrowed} if borrowed else {}
    return MultiDeviceReport(make_all(parts, left, other_bytes), settings.budget, borrowed, list(notes))


def device_of_nodes(graph: Graph, chunks: Mapping[str, tuple[int, int]], devices: int) -> list[int]:
    """By node: the device that runs it. chunks: as for `distribute`."""
    at = _owners(graph, devices)  # by storage: its device; first the persistent ones that the step changes
    on: list[int] = []
    for node in graph.nodes:
        if node.writes:
            d = at.get(node.writes[0], 0)
        elif node.name in chunks:
            k, of = chunks[node.name]
            d = k * devices // of
        else:
            d = _most(graph, node.reads, at, devices)
        on.append(d)
        for s in node.makes:
            at[s] = d
    return on


def _owners(graph: Graph, devices: int) -> dict[int, int]:
    """By storage that operations change: its device. Storages that one operation changes are on one device."""
    changed = [node.writes for node in graph.nodes if node.writes]
    sizes = [sum(graph.storages[s].nbytes for s in writes) for writes in changed]
    total, before = max(1, sum(sizes)), 0
    owner: dict[int, int] = {}
    for writes, nbytes in zip(changed, sizes, strict=True):
        last = graph.storages[writes[0]].name.rpartition(".")[2]
        d = int(last) % devices if last.isdigit() else min(devices - 1, before * devices // total)
        before += nbytes
        known = [owner[s] for s in writes if s in owner]
        for s in writes:
            owner[s] = known[0] if known else d
    return owner


def _most(graph: Graph, reads: Sequence[int], at: Mapping[int, int], devices: int) -> int:
    """The device that holds most bytes of some storages."""
    present = [0] * devices  # by device: bytes
    for s in reads:
        if s in at:
            present[at[s]] += graph.storages[s].nbytes
    return present.index(max(present))
