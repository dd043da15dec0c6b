"""The stage scheduler and the task graph: rules of placement, bounded starvation, dependencies, nothing lost."""

from __future__ import annotations

import heapq
from collections import Counter
from itertools import combinations
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from stretto.errors import PlanError, RunError
from stretto.schedule.stages.stage_placement import place
from stretto.schedule.stages.stage_scheduler import StageScheduler
from stretto.schedule.stages.stage_values import Assignment, NodeSlots, SchedulingHistory, StageRequest
from stretto.schedule.stages.task_graph import TaskGraph

DATA = ("a", "b", "c")


def nodes(*workers: int, data: tuple[str, ...] = ()) -> list[NodeSlots]:
    """Nodes 0, 1, … with these workers; `data` has a letter per data set of each node."""
    return [NodeSlots(k, n, frozenset(data[k]) if k < len(data) else frozenset()) for k, n in enumerate(workers)]


def where(found: list[Assignment]) -> dict[str, dict[int, int]]:
    return {each.stage: dict(each.workers_by_node) for each in found}


# Placement


def test_a_specification_is_followed_even_if_it_has_to_wait() -> None:
    scheduler = StageScheduler(nodes(4, 4))
    scheduler.submit(0.0, StageRequest("t", "first", 3))
    assert where(scheduler.schedule(0.0)) == {"first": {0: 3}}
    scheduler.submit(0.0, StageRequest("t", "second", 4, placement={0: 2, 1: 2}))
    assert scheduler.schedule(0.0) == []
    scheduler.finished(1.0, "t", "first")
    assert where(scheduler.schedule(1.0)) == {"second": {0: 2, 1: 2}}


def test_one_stage_after_another_visits_the_nodes_that_hold_the_data_in_turn() -> None:
    scheduler = StageScheduler(nodes(2, 2, 2, 2, data=("a", "", "a", "a")))
    visited: list[int] = []
    for k in range(7):
        scheduler.submit(k, StageRequest("t", f"s{k}", 2, data=frozenset("a")))
        (found,) = scheduler.schedule(k)
        visited += found.workers_by_node
        scheduler.finished(k + 0.5, "t", f"s{k}")
    assert visited == [0, 2, 3, 0, 2, 3, 0]
    assert [record.time for record in scheduler.history("t")] == list(range(7))
    assert [list(record.assignment.workers_by_node) for record in scheduler.history("t")] == [[n] for n in visited]
    scheduler.forget("t")
    assert scheduler.history("t") == ()


def test_a_wide_stage_takes_few_nodes_and_those_with_its_data() -> None:
    scheduler = StageScheduler(nodes(4, 4, 4, 4, data=("", "a", "", "a")))
    scheduler.submit(0.0, StageRequest("t", "wide", 7, data=frozenset("a")))
    assert where(scheduler.schedule(0.0)) == {"wide": {1: 4, 3: 3}}


@given(st.data())
@settings(max_examples=300)
def test_places_follow_the_rules(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 5))
    held = data.draw(st.lists(st.sets(st.sampled_from(DATA)), min_size=count, max_size=count))
    known = {k: NodeSlots(k, 6, frozenset(held[k])) for k in range(count)}
    free = {k: data.draw(st.integers(0, 6)) for k in range(count)}
    request = StageRequest(
        "t", "s", data.draw(st.integers(1, 12)), data=frozenset(data.draw(st.sets(st.sampled_from(DATA))))
    )
    history = SchedulingHistory()
    for turn, node in enumerate(data.draw(st.lists(st.integers(0, count - 1), max_size=6))):
        history.add(float(turn), Assignment("t", f"s{turn}", {node: 1}), turn)
    found = place(request, known, free, history)
    if sum(free.values()) < request.workers:
        assert found is None
        return
    assert found is not None
    assert sum(found.values()) == request.workers
    assert all(0 < workers <= free[node] for node, workers in found.items())

    def holds(node: int) -> bool:
        return not request.data or bool(known[node].data & request.data)

    def enough(chosen: tuple[int, ...]) -> bool:
        return sum(free[node] for node in chosen) >= request.workers

    fewest = next(n for n in range(1, count + 1) if any(map(enough, combinations(range(count), n))))
    assert len(found) == fewest
    possible = [chosen for chosen in combinations(range(count), fewest) if enough(chosen)]
    assert sum(map(holds, found)) == max(sum(map(holds, chosen)) for chosen in possible)
    if fewest == 1:
        (node,) = found
        rivals = [chosen[0] for chosen in possible if holds(chosen[0]) == holds(node)]
        assert history.last_used(node) == min(map(history.last_used, rivals))


# Order, thresholds, refusals


def test_priority_goes_first_and_waiting_raises_it() -> None:
    scheduler = StageScheduler(nodes(1), aging=2.0)
    scheduler.submit(0.0, StageRequest("t", "runs", 1))
    scheduler.schedule(0.0)
    scheduler.submit(0.0, StageRequest("t", "old", 1))
    scheduler.submit(1.0, StageRequest("t", "urgent", 1, priority=10.0))
    scheduler.submit(2.0, StageRequest("t", "late", 1, priority=3.0))
    order = ["runs"]
    for now in (3.0, 4.0, 5.0):
        scheduler.finished(now, "t", order[-1])
        (found,) = scheduler.schedule(now)
        order.append(found.stage)
    assert order[1:] == ["urgent", "old", "late"]


def test_scheduling_waits_for_the_threshold_or_the_period() -> None:
    assert StageScheduler(nodes(4)).due_at is None
    scheduler = StageScheduler(nodes(4), threshold=3, period=10.0)
    for k in range(4):
        scheduler.submit(0.0, StageRequest("t", f"s{k}", 1))
    assert scheduler.due_at == 0.0
    assert len(scheduler.schedule(0.0)) == 4
    scheduler.submit(1.0, StageRequest("t", "next", 1))
    scheduler.finished(2.0, "t", "s0")
    assert scheduler.due_at == 10.0
    assert scheduler.schedule(2.0) == []
    scheduler.finished(3.0, "t", "s1")
    scheduler.finished(3.0, "t", "s2")
    assert scheduler.due_at == 3.0
    assert where(scheduler.schedule(3.0)) == {"next": {0: 1}}
    assert scheduler.due_at is None


def test_what_never_fits_is_refused_with_what_would() -> None:
    scheduler = StageScheduler(nodes(2, 3))
    with pytest.raises(PlanError, match="all nodes together have 5; ask for at most 5"):
        scheduler.submit(0.0, StageRequest("t", "s", 6))
    with pytest.raises(PlanError, match="ask for at most 2 there"):
        scheduler.submit(0.0, StageRequest("t", "s", 3, placement={0: 3}))
    with pytest.raises(PlanError, match="node 7, which does not exist; the nodes are: 0, 1"):
        scheduler.submit(0.0, StageRequest("t", "s", 1, placement={7: 1}))
    with pytest.raises(PlanError, match="make them equal"):
        StageRequest("t", "s", 3, placement={0: 2})
    scheduler.submit(0.0, StageRequest("t", "s", 1))
    with pytest.raises(PlanError, match="has not finished"):
        scheduler.submit(0.0, StageRequest("t", "s", 1))
    with pytest.raises(RunError, match="not running"):
        scheduler.finished(0.0, "t", "s")


def test_a_lost_node_gives_its_stages_back_and_a_draining_one_ends_them() -> None:
    scheduler = StageScheduler(nodes(2, 2))
    scheduler.submit(0.0, StageRequest("t", "wide", 4))
    scheduler.schedule(0.0)
    (lost,) = scheduler.node_left(1.0, 1)
    assert lost.stage == "wide"
    assert scheduler.free == {0: 2}
    assert "at most 2" in scheduler.stuck["t", "wide"]
    scheduler.submit(1.0, StageRequest("t", "narrow", 1))
    assert where(scheduler.schedule(100.0)) == {"narrow": {0: 1}}, "a stage that cannot fit locks nothing"
    assert scheduler.node_left(101.0, 0, drain=True) == []
    scheduler.node_joined(101.0, NodeSlots(5, 4))
    assert where(scheduler.schedule(101.0)) == {"wide": {5: 4}}
    assert list(scheduler.nodes) == [0, 5]
    scheduler.finished(102.0, "t", "narrow")
    assert list(scheduler.nodes) == [5]


def test_a_cancelled_task_keeps_its_workers_until_its_stages_end() -> None:
    scheduler = StageScheduler(nodes(2))
    scheduler.submit(0.0, StageRequest("t", "runs", 1))
    scheduler.schedule(0.0)
    scheduler.submit(0.0, StageRequest("t", "waits", 2))
    assert [each.stage for each in scheduler.cancel(1.0, "t")] == ["runs"]
    assert scheduler.waiting == []
    assert scheduler.free == {0: 1}
    scheduler.finished(2.0, "t", "runs")
    assert scheduler.free == {0: 2}


# Starvation


def simulated(
    scheduler: StageScheduler, arrivals: list[tuple[float, StageRequest, float]]
) -> dict[str, tuple[float, int, float]]:
    """Run stages (time, request, duration) to the end; by stage: its start, the stages ahead of it, its submission."""
    lasts = {request.stage: seconds for _, request, seconds in arrivals}
    events: list[tuple[float, int, Any]] = [(at, k, request) for k, (at, request, _) in enumerate(arrivals)]
    heapq.heapify(events)
    number, ahead, submitted, starts = len(events), {}, {}, {}
    while events:
        now, _, what = heapq.heappop(events)
        if isinstance(what, StageRequest):
            ahead[what.stage], submitted[what.stage] = len(scheduler.waiting), now
            scheduler.submit(now, what)
        elif what is not None:
            scheduler.finished(now, "t", what)
        for found in scheduler.schedule(now):
            starts[found.stage] = now
            heapq.heappush(events, (now + lasts[found.stage], number := number + 1, found.stage))
        if scheduler.due_at is not None:
            heapq.heappush(events, (scheduler.due_at, number := number + 1, None))
    return {stage: (starts[stage], ahead[stage], submitted[stage]) for stage in starts}


@given(st.data())
def test_starvation_is_bounded(data: st.DataObject) -> None:
    """Times are whole numbers, so that no bound is missed by rounding."""
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    threshold = data.draw(st.integers(1, sum(sizes)))
    period, starvation = data.draw(st.integers(0, 5)), data.draw(st.integers(0, 20))
    scheduler = StageScheduler(
        nodes(*sizes), threshold=threshold, period=period, starvation=starvation, aging=data.draw(st.integers(0, 2))
    )
    longest = data.draw(st.integers(1, 8))
    arrivals = []
    for k in range(data.draw(st.integers(1, 40))):
        placement = None
        if data.draw(st.booleans()):
            wanted = {n: data.draw(st.integers(0, size)) for n, size in enumerate(sizes)}
            placement = {n: workers for n, workers in wanted.items() if workers} or None
        workers = sum(placement.values()) if placement else data.draw(st.integers(1, sum(sizes)))
        request = StageRequest("t", f"s{k}", workers, placement, priority=data.draw(st.integers(0, 100)))
        arrivals.append((float(data.draw(st.integers(0, 40))), request, float(data.draw(st.integers(1, longest)))))
    found = simulated(scheduler, arrivals)
    assert len(found) == len(arrivals), "everything that is submitted runs"
    for start, ahead, submitted in found.values():
        assert start <= submitted + starvation + (ahead + 1) * (longest + (period if threshold > 1 else 0))
    assert scheduler.running == []
    assert scheduler.waiting == []


@pytest.mark.parametrize("placement", [None, {0: 4}])
def test_a_wide_stage_runs_however_many_narrow_ones_arrive(placement: dict[int, int] | None) -> None:
    """Two narrow stages arrive every second on each node and last 1.5 s, so that four workers never come free
    together.
    """
    narrow = [
        (k / 2, StageRequest("t", f"n{k}/{node}", 1, {node: 1}, priority=1000.0), 1.5)
        for k in range(1000)
        for node in range(2)
    ]
    workers = 4 if placement else 8
    wide = (10.25, StageRequest("t", "wide", workers, placement), 1.0)
    found = simulated(StageScheduler(nodes(4, 4), starvation=20.0), [*narrow, wide])
    start, ahead, _ = found["wide"]
    assert 30.25 <= start <= 10.25 + 20.0 + (ahead + 1) * 1.5
    patient = simulated(StageScheduler(nodes(4, 4), starvation=1e9), [*narrow, wide])
    assert patient["wide"][0] > 400.0, "without a starvation list it waits for the narrow ones to stop"


def test_locked_workers_are_kept() -> None:
    scheduler = StageScheduler(nodes(2, 2), starvation=5.0)
    scheduler.submit(0.0, StageRequest("t", "runs", 3))
    scheduler.schedule(0.0)
    scheduler.submit(1.0, StageRequest("t", "wide", 4))
    scheduler.submit(2.0, StageRequest("t", "narrow", 1, priority=-100.0))
    assert where(scheduler.schedule(2.0)) == {"narrow": {1: 1}}
    scheduler.submit(6.0, StageRequest("t", "more", 1))
    scheduler.finished(6.0, "t", "narrow")
    assert [each.stage for each in scheduler.starving(6.0)] == ["wide"]
    assert scheduler.schedule(6.0) == []
    assert scheduler.locked == {0: 0, 1: 1}
    scheduler.finished(7.0, "t", "runs")
    assert where(scheduler.schedule(7.0)) == {"wide": {0: 2, 1: 2}}


# The graph of tasks


def test_a_graph_starts_tasks_in_order_and_shares_data() -> None:
    graph = TaskGraph()
    graph.add("load", data=["x"])
    graph.add("train", after=["load"], data=["x", "y"])
    graph.add("other", data=["y"])
    assert graph.ready() == ["load", "other"]
    assert graph.started("load") == {"x"}
    with pytest.raises(RunError, match="comes after load"):
        graph.started("train")
    end = graph.ended("load")
    assert (end.ready, end.freed) == (("train",), frozenset())
    assert graph.started("train") == {"y"}
    assert graph.started("other") == frozenset()
    assert graph.ended("train").freed == {"x"}
    assert graph.ended("other").freed == {"y"}
    assert graph.loaded == frozenset()


def test_a_cycle_is_refused_and_named() -> None:
    graph = TaskGraph()
    graph.add("a", after=["b"])
    graph.add("b", after=["c"])
    assert graph.missing == {"b": ["c"]}
    with pytest.raises(PlanError, match="c → a → b → c"):
        graph.add("c", after=["a"])
    with pytest.raises(PlanError, match="d → d"):
        graph.add("d", after=["d"])
    graph.add("c")
    assert graph.ready() == ["c"]


def test_what_comes_after_a_failure_is_skipped() -> None:
    graph = TaskGraph()
    for task, after in {"a": "", "b": "a", "c": "b", "d": ""}.items():
        graph.add(task, after=after, data=[task])
    graph.started("a")
    graph.started("d")
    end = graph.ended("a", failed=True)
    assert (end.ready, end.skipped, end.freed) == ((), ("b", "c"), frozenset("a"))
    assert graph.needed == {"d"}
    assert [graph.status(task) for task in "abcd"] == ["failed", "skipped", "skipped", "running"]
    with pytest.raises(PlanError, match="comes after c, which failed"):
        graph.add("e", after="c")


# All together


class Machine(RuleBasedStateMachine):
    """Tasks with dependencies and stages on nodes that come and go, against plain bookkeeping."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.names = 0.0, 0
        self.scheduler = StageScheduler(nodes(2, 3, data=("a", "b")), threshold=2, period=4.0, starvation=15.0)
        self.sizes = {0: 2, 1: 3}
        self.graph = TaskGraph()
        self.after: dict[str, list[str]] = {}
        self.left: dict[str, int] = {}  # stages that a started task has still to submit
        self.open: dict[tuple[str, str], StageRequest] = {}  # submitted and not finished
        self.running: dict[tuple[str, str], Assignment] = {}
        self.done: list[str] = []
        self.data: dict[str, set[str]] = {}

    @rule(seconds=st.integers(0, 10))
    def wait(self, seconds: int) -> None:
        self.now += seconds

    @rule(data=st.data(), stages=st.integers(1, 4))
    def task(self, data: st.DataObject, stages: int) -> None:
        name = f"t{len(self.after)}"
        usable = [each for each in self.after if self.graph.status(each) not in ("failed", "skipped")]
        self.after[name] = data.draw(st.lists(st.sampled_from(usable), max_size=2)) if usable else []
        self.data[name] = data.draw(st.sets(st.sampled_from(DATA)))
        self.graph.add(name, self.after[name], self.data[name])
        self.left[name] = stages

    @precondition(lambda self: self.graph.ready())
    @rule(data=st.data())
    def start(self, data: st.DataObject) -> None:
        task = data.draw(st.sampled_from(self.graph.ready()))
        assert set(self.after[task]) <= set(self.done)
        loaded = self.graph.loaded
        assert self.graph.started(task) == self.data[task] - loaded

    @rule(data=st.data(), workers=st.integers(1, 5), placed=st.booleans(), priority=st.integers(0, 5))
    def submit(self, data: st.DataObject, workers: int, placed: bool, priority: int) -> None:
        active = [task for task in self.left if self.left[task] and self.graph.status(task) == "running"]
        assume(active)
        task = data.draw(st.sampled_from(active))
        placement = None
        if placed and self.sizes:
            node = data.draw(st.sampled_from(sorted(self.sizes)))
            placement, workers = {node: min(workers, 2)}, min(workers, 2)
        request = StageRequest(task, f"s{self.names}", workers, placement, frozenset(self.data[task]), priority)
        self.names += 1
        never = workers > sum(self.sizes.values()) if placement is None else workers > self.sizes[node]
        if never:
            with pytest.raises(PlanError, match="ask for at most"):
                self.scheduler.submit(self.now, request)
            return
        self.scheduler.submit(self.now, request)
        self.open[request.key] = request
        self.left[task] -= 1

    @rule()
    def schedule(self) -> None:
        due = self.scheduler.due_at
        found = self.scheduler.schedule(self.now)
        assert not found or (due is not None and due <= self.now)
        for each in found:
            request = self.open[each.key]
            assert each.key not in self.running
            assert sum(each.workers_by_node.values()) == request.workers
            assert set(each.workers_by_node) <= set(self.sizes), "no stage starts on a node that leaves"
            if request.placement is not None:
                assert each.workers_by_node == request.placement
            self.running[each.key] = each
            assert self.scheduler.history(each.task)[-1].assignment.task == each.task

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        self._finish(data.draw(st.sampled_from(sorted(self.running))))

    def _finish(self, key: tuple[str, str]) -> None:
        self.scheduler.finished(self.now, *key)
        del self.running[key], self.open[key]
        task = key[0]
        if self.graph.status(task) == "running" and not self.left[task] and not any(k[0] == task for k in self.open):
            end = self.graph.ended(task)
            self.done.append(task)
            self.scheduler.forget(task)
            unfinished = [t for t in self.after if self.graph.status(t) in ("waiting", "running")]
            assert all(not any(name in self.data[t] for t in unfinished) for name in end.freed)

    @precondition(lambda self: len(self.sizes) < 4)
    @rule(workers=st.integers(1, 3), data=st.sets(st.sampled_from(DATA)))
    def join(self, workers: int, data: set[str]) -> None:
        number = 10 + self.names
        self.names += 1
        self.scheduler.node_joined(self.now, NodeSlots(number, workers, frozenset(data)))
        self.sizes[number] = workers

    @precondition(lambda self: len(self.sizes) > 1)
    @rule(data=st.data(), drain=st.booleans())
    def leave(self, data: st.DataObject, drain: bool) -> None:
        number = data.draw(st.sampled_from(sorted(self.sizes)))
        hit = {key for key, each in self.running.items() if number in each.workers_by_node}
        back = self.scheduler.node_left(self.now, number, drain=drain)
        assert {each.key for each in back} == (set() if drain else hit)
        for each in back:
            del self.running[each.key]
        del self.sizes[number]

    @precondition(lambda self: any(self.graph.status(task) == "running" for task in self.after))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        task = data.draw(st.sampled_from([each for each in self.after if self.graph.status(each) == "running"]))
        still = self.scheduler.cancel(self.now, task)
        assert {each.key for each in still} == {key for key in self.running if key[0] == task}
        self.open = {key: each for key, each in self.open.items() if key[0] != task or key in self.running}
        self.graph.ended(task, failed=True)

    @invariant()
    def no_worker_twice(self) -> None:
        used: Counter[int] = Counter()
        for each in self.running.values():
            used.update(each.workers_by_node)
        known = self.scheduler.nodes
        assert set(used) <= set(known)
        assert {n: node.workers - used[n] for n, node in known.items()} == self.scheduler.free
        assert all(free >= 0 for free in self.scheduler.free.values())

    @invariant()
    def nothing_is_lost(self) -> None:
        waiting = {each.key for each in self.scheduler.waiting}
        assert waiting | set(self.running) == set(self.open)
        assert waiting.isdisjoint(self.running)
        assert {each.key for each in self.scheduler.running} == set(self.running)

    def teardown(self) -> None:
        """When stages end and the nodes hold them, everything that was submitted ends."""
        stuck = set(self.scheduler.stuck)
        for _ in range(2 * len(self.open) + 1):
            self.now += 4.0
            self.schedule()
            for key in list(self.running):
                self._finish(key)
        assert set(self.open) == stuck


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=150, stateful_step_count=50)
