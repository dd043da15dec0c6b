"""A sparse regression in words: how rounds are chosen, how the data are held and why, and how wide is safe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stretto.plan.cost import show_bytes
from stretto.plan.explain import show
from stretto.runtime.chosen import runtime_words
from stretto.runtime.runtimes import Runtime, Threads
from stretto.schedule.clustered import Clustered
from stretto.schedule.prioritised import Prioritised
from stretto.schedule.width import safe_width, spectral_radius

from .explain import WIDTH

if TYPE_CHECKING:
    from .coordinates import SparseRegression

_ITERATIONS = 30  # of the spectral radius, which is only told


def explain(program: SparseRegression, pipeline: int = 1, runtime: Runtime | None = None) -> str:
    """Several lines of text about a sparse regression."""
    rows, size = program.design.shape
    kind = f"{program.loss} loss, alpha={program.alpha:g}, l1_ratio={program.l1_ratio:g}"
    heading = f"plan {program.fingerprint(pipeline)}: {program.name} on {rows:,} × {size:,}, {kind}"
    return "\n".join([heading, *show(_facts(program, pipeline, runtime or Threads()), WIDTH)])


def _facts(program: SparseRegression, pipeline: int, runtime: Runtime) -> list[tuple[str, str]]:
    schedule, columns = program.schedule, program.columns
    width = schedule.parts if isinstance(schedule, Clustered) else getattr(schedule, "width", 0)
    cut, why = program.cut(width)
    rho = spectral_radius(columns, iterations=_ITERATIONS)
    safe = safe_width(rho, columns.size)
    note = f"; {program.design.note}" if program.design.note else ""
    data = f"{program.design.storage}, {show_bytes(program.design.nbytes)}{note}"
    facts = [
        ("grade", "identical: same fingerprint, same bits: serially and at any number of workers"),
        ("data", data),
        ("intercept", "fitted; columns count as centred" if program.intercept else "none"),
        ("schedule", schedule.explain()),
    ]
    if isinstance(schedule, Prioritised):
        bound = schedule.bound(columns.size, pipeline)
        facts.append(("", f"every coordinate is visited within {bound:,} rounds"))
    if cut.by_rows:
        facts += [
            ("by rows", f"sums over {cut.blocks} blocks of samples, folded in a fixed tree: {why}"),
            ("state", "what is fitted: owned, in blocks along the rows; coefficients: replicated"),
        ]
    else:
        facts += [
            ("by columns", f"{cut.tasks} groups of a round's features, each over all samples: {why}"),
            ("state", "coefficients: owned; what is fitted: replicated, one copy for all threads of a process"),
        ]
    overlap = "a round is chosen and made when the one before it is over"
    if pipeline > 1:
        overlap = f"round t is chosen from, and reads, the parameters after round t − {pipeline}"
    facts.append(("pipeline", f"{pipeline}: {overlap}"))
    facts.append(
        (
            "safe width",
            f"{safe:,} at random: the spectral radius is about {rho:,.4g} (1 + M/(ρ − 1) for M = {columns.size:,})",
        )
    )
    if not isinstance(schedule, Prioritised | Clustered) and width > safe:
        text = f"{width} coordinates go together whatever they disturb, more than the safe {safe}: progress will slow"
        facts.append(("warning", f"{text} down or turn back; take a smaller width, or st.schedule.prioritised()"))
    return [*facts, ("runs on", runtime_words(runtime))]
