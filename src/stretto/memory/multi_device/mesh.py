"""A step on several devices of one kind, planned: where each operation runs, and what that comes to.

    plan = st.memory.experimental_plan_several(
        model, loss_fn, optimizer, batch, devices=4, budget="12GiB", chunks={"batch": 20}
    )
    print(plan.explain())

Of a dimension in 20 pieces each of 4 devices has 5: what VMesh calls a cluster shape of 4 and a device shape of 5.
Parameters live on one device each, with what their optimizer keeps: in their order, as many bytes on each device; of
those in a list (experts) one after another on all devices in turn. Operations that are not in pieces run where most of
what they take is. What a device lacks is sent to it (`several`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from stretto.memory.planner.graph import Graph
from stretto.memory.planner.planner import Settings
from stretto.plan.cost import show_bytes

from .split import Together, make_all, split


@dataclass(frozen=True, eq=False)
class Devices:
    """Plans for several devices.

    Attributes
    ----------
    together : Together
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

    together: Together
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
        """The plans in a few lines."""
        joint = self.together.joint
        lines = [
            f"{len(joint.costs)} devices, budget {show_bytes(self.budget)} each; a step takes about "
            f"{joint.seconds * 1e3:.1f} ms; at most {show_bytes(joint.posted)} on the way between them"
        ]
        for d, (part, costs, idle) in enumerate(zip(self.together.parts, joint.costs, joint.idle, strict=True)):
            lines.append(
                f"device {d}: {len(part.graph.nodes):,} operations; at most {show_bytes(costs.peak + self.borrowed)}, "
                f"{show_bytes(costs.host)} on the host; waits {idle * 1e3:.1f} ms for others"
            )
        return "\n".join([*lines, *self.notes])

    def __str__(self) -> str:
        return self.explain()


def spread(
    graph: Graph,
    pieces: Mapping[str, tuple[int, int]],
    devices: int,
    settings: Settings,
    *,
    borrowed: int = 0,
    notes: Sequence[str] = (),
) -> Devices:
    """Plans for so many devices. pieces: by name of an operation, which piece it is of how many. borrowed: bytes of the
    budget that are taken already."""
    parts = split(graph, placed(graph, pieces, devices), devices)
    left = replace(settings, budget=max(1, settings.budget - borrowed))
    besides = {"batch": borrowed} if borrowed else {}
    return Devices(make_all(parts, left, besides), settings.budget, borrowed, list(notes))


def placed(graph: Graph, pieces: Mapping[str, tuple[int, int]], devices: int) -> list[int]:
    """By node, its device."""
    at = _homes(graph, devices)  # by storage that lasts and is changed
    on: list[int] = []
    for node in graph.nodes:
        if node.writes:
            d = at.get(node.writes[0], 0)
        elif node.name in pieces:
            k, of = pieces[node.name]
            d = k * devices // of
        else:
            d = _most(graph, node.reads, at, devices)
        on.append(d)
        for s in node.makes:
            at[s] = d
    return on


def _homes(graph: Graph, devices: int) -> dict[int, int]:
    """By storage that operations change: its device. What is changed together is together."""
    changed = [node.writes for node in graph.nodes if node.writes]
    sizes = [sum(graph.storages[s].nbytes for s in writes) for writes in changed]
    total, before = max(1, sum(sizes)), 0
    home: dict[int, int] = {}
    for writes, nbytes in zip(changed, sizes, strict=True):
        last = graph.storages[writes[0]].name.rpartition(".")[2]
        d = int(last) % devices if last.isdigit() else min(devices - 1, before * devices // total)
        before += nbytes
        known = [home[s] for s in writes if s in home]
        for s in writes:
            home[s] = known[0] if known else d
    return home


def _most(graph: Graph, reads: Sequence[int], at: Mapping[int, int], devices: int) -> int:
    """The device that has most of some storages."""
    there = [0] * devices
    for s in reads:
        if s in at:
            there[at[s]] += graph.storages[s].nbytes
    return there.index(max(there))
