"""explain() and plan() of a sparse regression: schedule, storage of the data, safe width of a round."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stretto.data.records.digest import digest_of
from stretto.plan.cost import Cost
from stretto.plan.job import JobPlan
from stretto.plan.plan import Physical
from stretto.programs.auto import candidate_facts
from stretto.programs.values import ProgramIdentity
from stretto.runtime.chosen import name_of, runtime_words
from stretto.runtime.runtimes import Runtime, Threads
from stretto.schedule.automatic.auto import Auto
from stretto.schedule.automatic.candidates import COMPILED
from stretto.schedule.clustered import Clustered
from stretto.schedule.prioritised import Prioritised
from stretto.schedule.spec import Schedule
from stretto.schedule.width import safe_width, spectral_radius
from stretto.text import WIDE, fact_page, show_bytes

if TYPE_CHECKING:
    from .problem import CoordinateProgramBase

_ITERATIONS = 30  # of the power iteration for the spectral radius, which is only printed


def explain(program: CoordinateProgramBase, pipeline: int = 1, runtime: Runtime | None = None) -> str:
    """Several lines of text about a sparse regression."""
    rows, size = program.design.shape
    kind = f"{program.loss} loss, alpha={program.alpha:g}, l1_ratio={program.l1_ratio:g}"
    heading = f"plan {program.fingerprint(pipeline)}: {program.name} on {rows:,} × {size:,}, {kind}"
    return fact_page(heading, _facts(program, pipeline, runtime or Threads()), WIDE)


def plan(program: CoordinateProgramBase, pipeline: int, seed: int, runtime: Runtime) -> JobPlan:
    """The plan of a run. Nothing is allocated."""
    rows, size = program.design.shape
    facts = [fact for fact in _facts(program, pipeline, runtime) if fact[0] not in ("grade", "runs on")]
    kind = f"{program.loss} loss, alpha={program.alpha:g}, l1_ratio={program.l1_ratio:g}, seed={seed}"
    start = digest_of(program.params["coef"], program.params["intercept"])
    values = {**identity(program, pipeline, seed).values, "start": start}
    state = sum(int(array.nbytes) for array in program.params.values())
    return JobPlan(
        program.name,
        f"{rows:,} × {size:,}, {program.design.nnz:,} entries",
        values,
        Cost(program.design.nnz, program.design.nbytes, pipeline * state, program.design.nbytes + 2 * state,
             4 * program.design.nnz),
        facts=(("parameters", kind), *facts),
        physical=Physical(name_of(runtime), runtime.workers),
        undrawn="coordinates are chosen round by round, so there is no block grid",
        each="sweep",
        known=program.fingerprint(pipeline, seed),
    )  # fmt: skip


def identity(program: CoordinateProgramBase, pipeline: int, seed: int) -> ProgramIdentity:
    """What decides the bits of a run, besides where it starts."""
    values = {"alpha": program.alpha, "l1_ratio": program.l1_ratio, "loss": program.loss}
    values |= {"intercept": program.intercept, "schedule": repr(program.schedule), "pipeline": pipeline, "seed": seed}
    cut = program.cut(width_of(program.schedule))[0]
    blocks = f"{cut.blocks} of rows, summed by {'rows' if cut.by_rows else 'columns'}"
    return ProgramIdentity(values | {"blocks": blocks, "data digest": digest_of(*_stored(program), program.y)})


def width_of(schedule: Schedule) -> int:
    """The most coordinates of a round."""
    return schedule.parts if isinstance(schedule, Clustered) else int(getattr(schedule, "width", 0) or 0)


def _stored(program: CoordinateProgramBase) -> tuple[Any, ...]:
    return program.columns.values, program.columns.indices, program.columns.indptr


def _facts(program: CoordinateProgramBase, pipeline: int, runtime: Runtime) -> list[tuple[str, str]]:
    schedule, columns = program.schedule, program.columns
    width = width_of(schedule)
    cut, why = program.cut(width)
    rho = spectral_radius(columns, iterations=_ITERATIONS)
    safe = safe_width(rho, columns.size)
    note = f"; {program.design.note}" if program.design.note else ""
    data = f"{program.design.storage}, {show_bytes(program.design.nbytes)}{note}"
    facts = [
        ("grade", "identical: same fingerprint, same bits: serially and at any number of workers and nodes"),
        ("data", data),
        ("intercept", "fitted; columns count as centred" if program.intercept else "none"),
        ("schedule", schedule.explain()),
    ]
    if isinstance(schedule, Prioritised):
        bound = schedule.bound(columns.size, pipeline)
        facts.append(("", f"every coordinate is visited within {bound:,} rounds"))
    if isinstance(schedule, Auto):
        facts += candidate_facts(program, columns.size, columns, pipeline, runtime, COMPILED)
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
    if not isinstance(schedule, Prioritised | Clustered | Auto) and width > safe:
        text = f"{width} coordinates run together and may conflict, more than the safe {safe}: progress will slow"
        facts.append(("warning", f"{text} down or turn back; take a smaller width, or st.schedule.prioritised()"))
    return [*facts, ("runs on", runtime_words(runtime))]
