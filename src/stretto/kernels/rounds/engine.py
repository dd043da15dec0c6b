"""The engine of rounds: every worker takes the next task of a fixed sequence and waits for its inputs.

Round t is chosen (S), gathered (U, several tasks), updated (A) and applied (R, one task for each row block). With
pipeline depth s

    S(t)     needs A(t − s): it first records the changes of its last round up to t − s
    U(t, k)  needs S(t) and R(t − s), all of it or, by rows, its own block
    A(t)     needs U(t) and A(t − 1)
    R(t, b)  needs A(t) and U(t + s − 1), R(1, b) all U before it: the old values of the rows are unused from then on

so round t reads the parameters exactly as they were after round t − s, for any assignment of tasks to workers. Tasks
are numbered in an order that respects these dependencies, step by step (step u: U(u), A(u − s + 1), S(u + 1),
R(u − s + 1)), and are taken by number. A worker waits only for tasks that other workers have taken already, so there is
no deadlock. The sequence may be interrupted between any two steps; the arrays hold all rounds in progress.

A worker without a task spins for a moment, then yields.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from stretto.kernels.core import atomics
from stretto.kernels.core.compile import kernel, merged
from stretto.kernels.linear import coordinate

from . import choosing

# Slots of `Engine.plan`.
DEPTH, BY_ROWS, TASKS, BLOCKS, QUEUES = range(5)
PLAN = 5
# Slots of `Engine.span`: first step, end of the steps, last round of the run.
FIRST, END, LAST = range(3)
# Slots of `Engine.control`, each in a cache line of its own: the next task, the last round whose update is done.
LINE = 8
NEXT, RENEWED = 0, LINE
CONTROL = 2 * LINE
# Columns of `Engine.cycles`: cycles spent in choosing, and in all tasks.
CHOOSING, ALL = range(2)
_SPINS = 200


class Engine(NamedTuple):
    """Plan and progress of the rounds. Counters are a cache line apart."""

    plan: Any  # [5] int64: see the slots above
    span: Any  # [3] int64: see the slots above
    control: Any  # [16] int64: see the slots above
    chosen: Any  # [8 Q] int64: the last round that each scheduler chose
    gathered: Any  # [8 D] int64: gathering tasks done so far in the rounds of this ring index
    applied: Any  # [8 B] int64: the last round applied to each row block
    cycles: Any  # [workers, 8] int64: see the columns above
    read_jobs: Any  # [rounds, width] int64: record of this call (length 0: none): jobs of each round
    read_count: Any  # [rounds] int64: how many jobs
    read_from: Any  # [rounds, tasks, 2] int64: oldest and newest round of the rows that each gathering task read


@merged
def _wait(counter, at, value):
    """Wait until counter[at] is at least `value`."""
    spins = 0
    while atomics.load(counter, at) < value:
        spins += 1
        if spins > _SPINS:
            atomics.rest()


@merged
def _rows_seen(engine, k):
    """Return the oldest and the newest round that was applied to the rows of a gathering task."""
    if engine.plan[BY_ROWS] != 0:
        at = atomics.load(engine.applied, LINE * k)
        return at, at
    oldest = newest = atomics.load(engine.applied, 0)
    for b in range(1, engine.plan[BLOCKS]):
        at = atomics.load(engine.applied, LINE * b)
        oldest, newest = min(oldest, at), max(newest, at)
    return oldest, newest


@merged
def _gathering_done(engine, t, ring):
    """Return the value of a ring index's counter when the gathering of a round is over."""
    return engine.plan[TASKS] * ((t - 1) // ring + 1)


@merged
def _choose(engine, choice, table, problem, t):
    plan, ring = engine.plan, problem.count.shape[0]
    queues = plan[QUEUES]
    q = (t - 1) % queues
    _wait(engine.chosen, LINE * q, t - queues)
    _wait(engine.control, RENEWED, t - plan[DEPTH])
    began = atomics.cycles()
    before = t - queues * ((plan[DEPTH] + queues - 1) // queues)
    if before >= 1:
        for k in range(problem.count[before % ring]):
            choosing.learn(choice, problem.jobs[before % ring, k], problem.change[before % ring, k])
    problem.count[t % ring] = choosing.choose(choice, table, q, problem.jobs[t % ring])
    atomics.store(engine.chosen, LINE * q, t)
    return began


@merged
def _gather(engine, problem, t, k):
    plan, ring = engine.plan, problem.count.shape[0]
    _wait(engine.chosen, LINE * ((t - 1) % plan[QUEUES]), t)
    if plan[BY_ROWS] != 0:
        _wait(engine.applied, LINE * k, t - plan[DEPTH])
    else:
        for b in range(plan[BLOCKS]):
            _wait(engine.applied, LINE * b, t - plan[DEPTH])
    began = atomics.cycles()
    recording = engine.read_count.shape[0] > 0
    at = t - max(1, engine.span[FIRST])
    if recording:
        engine.read_from[at, k, 0] = _rows_seen(engine, k)[0]
        if k == 0:
            engine.read_count[at] = problem.count[t % ring]
            for i in range(problem.count[t % ring]):
                engine.read_jobs[at, i] = problem.jobs[t % ring, i]
    if plan[BY_ROWS] != 0:
        coordinate.gather_rows(problem, t % ring, k)
    else:
        coordinate.gather_columns(problem, t % ring, k, plan[TASKS])
    if recording:
        engine.read_from[at, k, 1] = _rows_seen(engine, k)[1]
    atomics.add(engine.gathered, LINE * (t % ring), 1)
    return began


@merged
def _renew(engine, problem, t):
    ring = problem.count.shape[0]
    _wait(engine.control, RENEWED, t - 1)
    _wait(engine.gathered, LINE * (t % ring), _gathering_done(engine, t, ring))
    began = atomics.cycles()
    coordinate.renew(problem, t, engine.plan[DEPTH])
    atomics.store(engine.control, RENEWED, t)
    return began


@merged
def _apply(engine, problem, t, b):
    ring, newest = problem.count.shape[0], min(t + engine.plan[DEPTH] - 1, engine.span[LAST])
    _wait(engine.control, RENEWED, t)
    _wait(engine.applied, LINE * b, t - 1)
    # The first rounds all read the initial rows; later rounds have waited for their readers before.
    for reader in range(1 if t == 1 else newest, newest + 1):
        _wait(engine.gathered, LINE * (reader % ring), _gathering_done(engine, reader, ring))
    began = atomics.cycles()
    coordinate.apply_changes(problem, t, b)
    atomics.store(engine.applied, LINE * b, t)
    return began


@kernel
def rounds_worker(engine, choice, table, problem, worker):
    """Take tasks until all tasks of the span are taken."""
    plan, last = engine.plan, engine.span[LAST]
    depth, tasks, blocks = plan[DEPTH], plan[TASKS], plan[BLOCKS]
    each = tasks + blocks + 2
    size = (engine.span[END] - engine.span[FIRST]) * each
    # The update waits for the gathering of its own step only without a pipeline; otherwise it can go first.
    gathers_from = 0 if depth == 1 else 2
    renews_at = tasks if depth == 1 else 0
    while True:
        number = atomics.add(engine.control, NEXT, 1)
        if number >= size:
            return
        u = engine.span[FIRST] + number // each
        at = number % each
        t = u - depth + 1
        began = 0
        if at == renews_at:
            if 1 <= t <= last:
                began = _renew(engine, problem, t)
        elif at == renews_at + 1:
            if u + 1 <= last:
                began = _choose(engine, choice, table, problem, u + 1)
        elif at < tasks + 2:
            if 1 <= u <= last:
                began = _gather(engine, problem, u, at - gathers_from)
        elif 1 <= t <= last:
            began = _apply(engine, problem, t, at - tasks - 2)
        if began != 0:
            spent = atomics.cycles() - began
            engine.cycles[worker, ALL] += spent
            if at == renews_at + 1:
                engine.cycles[worker, CHOOSING] += spent
