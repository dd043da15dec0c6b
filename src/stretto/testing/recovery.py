"""Recovery schedules: nodes fail at chosen stages of a simulated run, and its result must not change.

    python -m stretto.testing.recovery --seed 4711          one schedule again, and what it does
    python -m stretto.testing.recovery --first 0 --count 300

    run_seed(4711)                                          the same from Python; raises ScheduleFailed

A schedule is run twice. The first run loses no node and says when its cuts were made and when it ended. The second
loses nodes at stages of that run: before the first cut, while a cut is made, while the parts of a cut that will be
evaluated arrive, while all restart, just after it, while the results are gathered. Nodes crash, one or all of them, or
stall until the others count them as lost; frames are lost and doubled. Under BSP() tables, workers' own values and
evaluations must have the same bits. Under SSP(s) the replay checker must find nothing, and evaluations must be of
ascending clocks. What decides in these runs decides on a cluster: `runtime.tables.run.table_run`,
`runtime.tables.run.node_cuts` and `runtime.cluster.hosts.failure_detector`.
"""

from __future__ import annotations

import random
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from stretto.comm.policy import Eager, Lazy
from stretto.consistency.rules import BSP, SSP
from stretto.errors import RunError
from stretto.runtime.simulated.faults import Crash, Fault, Pause, Reset
from stretto.runtime.simulated.spec import Simulated
from stretto.runtime.simulated.tables.job import SimulatedCluster
from stretto.runtime.tables.job import TableJob, TableOutcome

from .draws import DrawnSchedule, draw
from .replay import check_replay
from .schedules import ScheduleFailed, command_line, compare, run_on

COMMAND = "python -m stretto.testing.recovery --seed"
STAGES = (
    "before the first cut", "during a cut", "before an evaluation", "anywhere", "during the restart",
    "after the restart", "gathering",
)  # fmt: skip
_NEVER = Crash(0, at=1e6)  # a crash that never comes: nodes can fail, so cuts are made and results are gathered


@dataclass
class Stages:
    """When what happened in a run that lost no node, in virtual seconds."""

    cuts: list[tuple[float, float]] = field(default_factory=list)  # from the first part to the last
    evaluated: list[tuple[float, float]] = field(default_factory=list)  # the same of cuts that are evaluated
    finished: float = 0.0
    gathered: float = 0.0
    read: float = 0.0  # seconds that reading a cut takes

    def window(self, stage: str, dice: random.Random) -> tuple[float, float]:
        """The time of a stage."""
        if stage == "before the first cut":
            return 0.0, self.cuts[0][1] if self.cuts else self.finished
        if stage == "during a cut" and self.cuts:
            return dice.choice(self.cuts)
        if stage == "before an evaluation" and self.evaluated:
            return dice.choice(self.evaluated)
        if stage == "gathering":
            return self.finished, self.gathered
        return 0.0, self.finished


class TracedCluster(Simulated):
    """A simulated cluster that notes the stages of a run."""

    name = "simulated"

    def serve(self, job: TableJob) -> TableOutcome:
        """Run a job over tables."""
        cluster = SimulatedCluster(self, job)
        run, stages = cluster.state, Stages()
        first: dict[int, float] = {}
        honest_part, honest_keep, honest_at_cut = run.worker_part, run.keep, run.at_cut

        def worker_part(clock: int, worker: int, part: Any) -> Any:
            first.setdefault(clock, cluster.hub.now)
            return honest_part(clock, worker, part)

        def keep(cut: Any) -> None:
            stages.cuts.append((first.get(cut.clock, 0.0), cluster.hub.now))
            stages.read = cut.size() / self.save_rate
            honest_keep(cut)

        def at_cut(cut: Any) -> Any:
            due = honest_at_cut(cut)
            if due:
                stages.evaluated.append((first[cut.clock], cluster.hub.now))
            return due

        run.worker_part, run.keep, run.at_cut = worker_part, keep, at_cut  # type: ignore[method-assign]
        try:
            outcome = cluster.run()
        finally:
            cluster.close()
        stages.finished, stages.gathered = outcome.seconds, cluster.hub.now
        object.__setattr__(self, "stages", stages)
        return outcome


def draw_base(seed: int, **given: Any) -> DrawnSchedule:
    """A schedule that loses no node; frames may be lost and doubled. given: as for `draws.draw`."""
    dice = random.Random(f"stretto recovery {seed}")
    chosen: dict[str, Any] = {
        "nodes": dice.randint(1 if dice.random() < 0.1 else 2, 4),
        "rule": dice.choice((BSP(), BSP(), SSP(0), SSP(1), SSP(2))),
        "clocks": dice.randint(3, 6),
        "checkpoint": dice.choice((None, 1, 1, 2)),
        "policy": dice.choice((None, Eager(), Eager(), Eager("f2"), Lazy())),
    }
    base = draw(seed, crashes=0, **(chosen | given))
    latency = float(base.cluster["latency"])
    more = {
        "detect": dice.uniform(4, 20) * latency,
        "back_after": dice.uniform(0, 30) * latency,
        "jitter": latency * dice.choice((0, 2, 10)),
        "save": dice.choice((3e3, 3e4, 3e5)),
        "faults": (*(fault for fault in base.faults if isinstance(fault, Reset)), _NEVER),
    }
    # What was drawn as None is drawn once more by `draw`: there, a cut is made when it is worth its price.
    return replace(base, cluster=base.cluster | more, checkpoint=(chosen | given)["checkpoint"])


def draw_losses(schedule: DrawnSchedule, stages: Stages) -> tuple[Fault, ...]:
    """Nodes that are lost at stages of the run."""
    dice = random.Random(f"stretto losses {schedule.seed}")
    nodes, detect = schedule.cluster["nodes"], float(schedule.cluster["detect"])
    stage = dice.choice(STAGES)
    at = dice.uniform(*stages.window(stage, dice))
    if dice.random() < 0.2:  # a node stalls, sometimes not for long enough to count as lost
        faults: list[Fault] = [Pause(dice.randrange(nodes), at, detect * dice.choice((0.5, 1.5, 4.0)))]
        back = float(schedule.cluster["back_after"])
    else:
        back = dice.uniform(0, 3) * detect
        gone = dice.sample(range(nodes), nodes if dice.random() < 0.1 else 1)
        faults = [Crash(node, at, back) for node in gone]
    restart = at + max(detect, back)  # and a little for reading the cut
    if stage == "during the restart":
        then = dice.uniform(at, restart + stages.read)
        faults.append(Crash(dice.randrange(nodes), then, dice.uniform(0, 2) * detect))
    elif stage == "after the restart":
        soon = restart + stages.read + dice.uniform(0, stages.finished)
        faults.append(Crash(dice.randrange(nodes), soon, dice.uniform(0, 2) * detect))
    return tuple(faults)


def fingerprint(view: Any) -> float:
    """An evaluation that any other bit in a table changes."""
    names = [name for name, found in view.tables.items() if not isinstance(found, tuple)]
    return float(zlib.crc32(b"".join(view[name].tobytes() for name in names)))


def run_seed(seed: int, **given: Any) -> int:
    """Draw a schedule, run it without and with lost nodes, compare; how often the second one restarted."""
    base = draw_base(seed, **given)
    faults: tuple[Fault, ...] = ()
    more: dict[str, Any] = {"watch": fingerprint, "checkpoint_every": base.checkpoint}
    try:
        calm = TracedCluster(**base.cluster)
        expected = run_on(base, calm, **more)
        faults = draw_losses(base, calm.stages)  # type: ignore[attr-defined]
        found = run_on(base, Simulated(**base.cluster | {"faults": (*base.faults, *faults)}), record="full", **more)
        check_replay(found.recording)
        check_history(found.history, max(found.clocks))
        if isinstance(base.rule, BSP):
            compare(found, expected)
            same = [[(look.clock, look.objective) for look in result.history] for result in (found, expected)]
            if same[0] != same[1]:
                raise RunError(f"evaluations are {same[0]}, without lost nodes {same[1]}")
        return len(found.recording.restarts)
    except Exception as error:
        again = f"{COMMAND} {seed}" if not given else f"run_seed({seed}, {given})"
        drawn = "\n".join([base.described(), *(f"  {fault}" for fault in faults)])
        raise ScheduleFailed(f"{type(error).__name__}: {error}\n{drawn}\nto run it again: {again}") from error


def check_history(history: Sequence[Any], last: int) -> None:
    """Evaluations are of ascending clocks, from the start to the last, in the order in which they were made."""
    clocks = [look.clock for look in history]
    if clocks != sorted(set(clocks)) or clocks[0] != 0 or clocks[-1] != last:
        raise RunError(f"evaluations are of clocks {clocks}, and the run ended at clock {last}")
    seconds = [look.seconds for look in history]
    if seconds != sorted(seconds):
        raise RunError(f"evaluations are not in the order of time: {seconds}")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    return command_line("recovery", run_seed, lambda seed: draw_base(seed).described(steps=True), arguments)


if __name__ == "__main__":
    sys.exit(main())
