"""`Report`, the description of a plan: whether it fits, how long a step takes, what is copied when."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from stretto.memory.planner.instructions import IN, OUT, RECOMPUTE, total
from stretto.memory.planner.planner import PlannedProgram
from stretto.memory.planner.program import curve
from stretto.text import show_bytes, show_ms


class Report:
    """A plan of a step: `explain()` describes it as text, `draw(path)` as a plot (needs matplotlib).

    `st.memory.plan` returns a report; `step.report` is that of a planned step.

    Attributes
    ----------
    planned : PlannedProgram
        The plan, with its program and predicted costs.
    lifted : Lifted
        The step as a graph of storages.

    Examples
    --------
    >>> import torch
    >>> import stretto as st
    >>> model = torch.nn.Linear(64, 64)
    >>> optimizer = torch.optim.Adam(model.parameters())
    >>> batch = torch.ones(256, 64), torch.ones(256, 64)
    >>> loss_fn = torch.nn.functional.mse_loss
    >>> report = st.memory.plan(model, loss_fn, optimizer, batch, budget="1MiB", device="cpu")
    >>> 0 < report.peak <= 1 << 20
    True
    """

    def __init__(self, planned: PlannedProgram, lifted: Any) -> None:
        self.planned, self.lifted = planned, lifted

    @property
    def peak(self) -> int:
        """Bytes on the device at most, predicted."""
        return self.planned.costs.peak + self.lifted.borrowed  # type: ignore[no-any-return]

    @property
    def seconds(self) -> float:
        """Predicted seconds of one step."""
        return self.planned.costs.seconds

    def explain(self) -> str:
        """Describe the plan in a few lines.

        Returns
        -------
        str
            Operations, peak, time, copies and recomputed operations, then notes on what was changed in the step.
        """
        planned, graph = self.planned, self.planned.program.graph
        costs, instructions = planned.costs, planned.program.instructions
        computing = sum(node.seconds for node in graph.nodes)
        persistent = sum(s.nbytes for s in graph.storages if s.persistent)
        away = sum(graph.storages[s].nbytes for s in planned.program.on_host)
        slower = costs.seconds / computing if computing else 1.0
        budget = show_bytes(planned.settings.budget + self.lifted.borrowed)
        at = "before the first operation" if costs.peak_at < 0 else self._where(costs.peak_at)
        lines = [
            f"{len(graph.nodes):,} operations, {len(graph.storages):,} storages; budget {budget}",
            f"at most {show_bytes(self.peak)} on the device ({at}); {show_bytes(costs.host)} on the host",
            f"a step takes about {show_ms(costs.seconds)}: {slower:.2f} times the computing alone "
            f"(waiting for copies {show_ms(costs.waited)}, recomputing {show_ms(costs.repeated)})",
            f"parameters, optimizer state and buffers: {show_bytes(persistent)}, "
            f"of which {show_bytes(away)} are kept on the host",
            f"{total(instructions, OUT):,} copies to the host ({show_bytes(costs.bytes_out)}), "
            f"{total(instructions, IN):,} from it ({show_bytes(costs.bytes_in)}), "
            f"{total(instructions, RECOMPUTE):,} operations recomputed",
        ]
        return "\n".join([*lines, *planned.notes])

    def __str__(self) -> str:
        return self.explain()

    def _repr_html_(self) -> str:
        """The lines of `explain()`, for notebooks."""
        return f"<pre>{escape(self.explain())}</pre>"

    def _where(self, at: int) -> str:
        """The operation or storage of an instruction, as part of a sentence."""
        what, which = self.planned.program.instructions[at]
        graph = self.planned.program.graph
        name = graph.nodes[which].name if what <= RECOMPUTE else graph.storages[which].name
        return f"at {name}"

    def draw(self, path: str | Path, title: str = "") -> Path:
        """Plot the bytes on the device over one step, by kind, with the budget and the copies.

        Parameters
        ----------
        path : str or Path
            The file to write; its ending selects the format.
        title : str, default ""
            The title. Default: one that gives the peak and the budget.

        Returns
        -------
        Path
            The file.
        """
        from .picture import draw

        return draw(self.planned, Path(path), borrowed=self.lifted.borrowed, title=title)

    def curve(self) -> list[int]:
        """Bytes on the device after each instruction."""
        return curve(self.planned.program)
