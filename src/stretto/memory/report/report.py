"""A plan for people: whether it fits, how slow it will be, what moves when; in words and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stretto.memory.planner.planner import Planned
from stretto.memory.planner.program import AGAIN, IN, OUT, curve, total
from stretto.plan.cost import show_bytes


class Report:
    """A plan of a training step: whether it fits, how slow it will be, what moves when.

    Parameters
    ----------
    planned : Planned
        The plan.
    lifted : Lifted
        The traced step.

    Attributes
    ----------
    planned : Planned
        The plan.
    lifted : Lifted
        The traced step.

    Examples
    --------
    >>> import torch, stretto as st
    >>> model = torch.nn.Linear(4, 2)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> batch = torch.zeros(8, 4), torch.zeros(8, 2)
    >>> report = st.memory.plan(model, torch.nn.functional.mse_loss, optimizer, batch, budget="1MiB", device="cpu")
    >>> 0 < report.peak <= 2**20
    True
    """

    def __init__(self, planned: Planned, lifted: Any) -> None:
        self.planned, self.lifted = planned, lifted

    @property
    def peak(self) -> int:
        """The most bytes on the device."""
        return self.planned.costs.peak + self.lifted.borrowed  # type: ignore[no-any-return]

    @property
    def seconds(self) -> float:
        """Predicted seconds of one step."""
        return self.planned.costs.seconds

    def explain(self) -> str:
        """The plan in a few lines."""
        planned, graph = self.planned, self.planned.program.graph
        costs, instructions = planned.costs, planned.program.instructions
        computing = sum(node.seconds for node in graph.nodes)
        persistent = sum(s.nbytes for s in graph.storages if s.lasting)
        away = sum(graph.storages[s].nbytes for s in planned.program.on_host)
        slower = costs.seconds / computing if computing else 1.0
        budget = show_bytes(planned.settings.budget + self.lifted.borrowed)
        at = "before the first operation" if costs.peak_at < 0 else self._where(costs.peak_at)
        lines = [
            f"{len(graph.nodes):,} operations, {len(graph.storages):,} storages; budget {budget}",
            f"at most {show_bytes(self.peak)} on the device ({at}); {show_bytes(costs.host)} on the host",
            f"a step takes about {costs.seconds * 1e3:.1f} ms: {slower:.2f} times the computing alone "
            f"(waiting for copies {costs.waited * 1e3:.1f} ms, recomputing {costs.repeated * 1e3:.1f} ms)",
            f"parameters, optimizer state and buffers: {show_bytes(persistent)}, "
            f"of which {show_bytes(away)} are kept on the host",
            f"{total(instructions, OUT):,} copies to the host ({show_bytes(costs.bytes_out)}), "
            f"{total(instructions, IN):,} from it ({show_bytes(costs.bytes_in)}), "
            f"{total(instructions, AGAIN):,} operations recomputed",
        ]
        return "\n".join([*lines, *planned.notes])

    def __str__(self) -> str:
        return self.explain()

    def _where(self, at: int) -> str:
        what, which = self.planned.program.instructions[at]
        graph = self.planned.program.graph
        name = graph.nodes[which].name if what <= AGAIN else graph.storages[which].name
        return f"at {name}"

    def draw(self, path: str | Path, title: str = "") -> Path:
        """Draw the bytes on the device over one step, by kind, with the budget and the copies. Needs matplotlib.

        Parameters
        ----------
        path : str or Path
            File to write the picture to.
        title : str, default ""
            Title of the picture.
        """
        from .picture import draw

        return draw(self.planned, Path(path), borrowed=self.lifted.borrowed, title=title)

    def curve(self) -> list[int]:
        """Bytes on the device after each instruction."""
        return curve(self.planned.program)
