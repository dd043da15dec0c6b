"""Jobs whose hosts are killed, stopped or broken while they start: replaced, or one reason, and never a hang."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stretto as st
from stretto.errors import RunError
from stretto.runtime.cluster.hosts import host_checks, hosts, local_fleet, ray_address
from stretto.runtime.cluster.hosts.calls import Address
from stretto.runtime.cluster.hosts.fleet import HostLost, HostSettings, NotStarted
from stretto.runtime.cluster.hosts.host import versions
from stretto.runtime.cluster.hosts.hosts import Hosts
from stretto.runtime.cluster.hosts.local_fleet import LocalFleet

pytest.importorskip("zmq", reason="the extra stretto[cluster] is not installed")

ROWS = 16


def worker(w: Any) -> None:
    x = w.table("x")
    for clock in w.clocks(6):
        keys = (np.arange(5) + w.number + clock) % ROWS
        x.add(keys, 0.5 * x.read(keys) + w.number + 1)


def run(runtime: Any) -> Any:
    found = st.run(worker, workers=4, tables={"x": st.tables.Table(rows=ROWS, cols=2, dtype="f4")}, runtime=runtime)
    return found.tables["x"]


@pytest.fixture(scope="module")
def undisturbed() -> Any:
    return run(st.Serial())


@pytest.fixture(scope="module")
def ratings() -> Any:
    data = st.generate_ratings(5_000, 200, 150).data
    return data, factors(data, st.Serial())


def factors(data: Any, runtime: Any) -> Any:
    model = st.MatrixFactorization(n_components=4, max_iter=3, random_state=0, runtime=runtime).fit(data)
    return model.user_factors_


class Kill:
    """kill -9 of the process behind one call of a host: as soon as it was sent (when="sent"), or answered. times: so
    often at most."""

    def __init__(self, method: str, when: str, host: int = 1, times: int = 1, word: str = "") -> None:
        self.method, self.when, self.host, self.left, self.word = method, when, host, times, word
        self.killed = 0

    def fits(self, member: Any, method: str, args: tuple[Any, ...]) -> bool:
        return (
            self.left > 0
            and member.number == self.host
            and method == self.method
            and (not self.word or args[0] == self.word)
        )

    def now(self, member: Any) -> None:
        self.left -= 1
        self.killed += 1
        os.kill(member._process.pid, signal.SIGKILL)


@pytest.fixture
def kill(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Kill]:
    def make(*args: Any, **more: Any) -> Kill:
        plan = Kill(*args, **more)
        call = local_fleet._Process.call

        def killing(self: Any, method: str, *args: Any) -> Any:
            fits = plan.fits(self, method, args)
            answer = call(self, method, *args)
            if fits and plan.when == "sent":
                plan.now(self)
            elif fits:
                answer.result(60)
                plan.now(self)
            return answer

        monkeypatch.setattr(local_fleet._Process, "call", killing)
        return plan

    return make


def cluster(**more: Any) -> st.Cluster:
    return st.Cluster("processes", nodes=2, **more)


# -- killed at each stage ---------------------------------------------------------------------------------------------


slow = pytest.mark.slow


@pytest.mark.parametrize(
    ("method", "when"),
    [
        ("open", "sent"),
        pytest.param("open", "answered", marks=slow),
        pytest.param("address", "answered", marks=slow),
        ("begin", "sent"),
        pytest.param("begin", "answered", marks=slow),
    ],
)
def test_a_host_killed_while_a_job_over_tables_starts_is_replaced(
    kill: Callable[..., Kill], undisturbed: Any, method: str, when: str
) -> None:
    plan = kill(method, when)
    with pytest.warns(RuntimeWarning, match=r"host 1.* was lost: .*SIGKILL"):
        found = run(cluster())
    assert plan.killed == 1
    np.testing.assert_array_equal(found, undisturbed)


@pytest.mark.parametrize(
    ("word", "when"),
    [
        ("put", "sent"),
        pytest.param("put", "answered", marks=slow),
        *(pytest.param(word, when, marks=slow) for word in ("load", "warm", "run") for when in ("sent", "answered")),
    ],
)
def test_a_host_killed_while_a_rotation_starts_is_replaced(
    kill: Callable[..., Kill], ratings: Any, word: str, when: str
) -> None:
    data, wanted = ratings
    plan = kill("ask", when, word=word)
    with pytest.warns(RuntimeWarning, match=r"host 1.* was lost: .*SIGKILL"):
        found = factors(data, cluster())
    assert plan.killed == 1
    np.testing.assert_array_equal(found, wanted)


@slow
def test_a_replacement_that_is_killed_while_it_starts_is_replaced_too(
    kill: Callable[..., Kill], undisturbed: Any
) -> None:
    plan = kill("open", "sent", times=3)
    with pytest.warns(RuntimeWarning, match=r"host 1 \(process .* was lost"):
        found = run(cluster())
    assert plan.killed == 3
    np.testing.assert_array_equal(found, undisturbed)


@slow
def test_where_all_replacements_are_killed_the_others_go_on(kill: Callable[..., Kill], undisturbed: Any) -> None:
    kill("open", "sent", times=99)
    with (
        pytest.warns(RuntimeWarning, match=r"host 1 \(process .* was lost"),
        pytest.warns(RuntimeWarning, match=r"host 1 was not replaced: .*SIGKILL.*the others share its work"),
    ):
        found = run(cluster())
    np.testing.assert_array_equal(found, undisturbed)


@slow
def test_a_host_that_dies_whenever_it_begins_ends_the_job_with_the_reason(kill: Callable[..., Kill]) -> None:
    plan = kill("begin", "sent", times=99)
    with (
        pytest.warns(RuntimeWarning, match="host 1 on .* was lost"),
        pytest.raises(RunError, match=r"host 1 was lost 6 times in a row before it had begun.*on .*log: .*SIGKILL"),
    ):
        run(cluster())
    assert plan.killed == 6


def test_a_host_that_is_stopped_while_it_is_sent_much_does_not_hold_up_the_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local_fleet, "_STUCK", 1)
    with Hosts(cluster()) as crew:
        member: Any = crew._calls.members[1]
        os.kill(member._process.pid, signal.SIGSTOP)
        answer = member.call("ask", "nothing", np.zeros(4 << 20))
        with pytest.raises(HostLost, match="SIGKILL"):
            answer.result(20)


# -- broken -----------------------------------------------------------------------------------------------------------


def test_a_host_that_cannot_listen_ends_the_job_with_the_reason_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def elsewhere(spec: Any, settings: HostSettings) -> LocalFleet:
        return LocalFleet(HostSettings(settings.job, 1, True, 5.0, ip="203.0.113.1"))

    monkeypatch.setattr(hosts, "fleet_of", elsewhere)
    with pytest.raises(RunError, match=r"host 0 .*did not start: .*cannot listen on 203"):
        run(cluster())


def test_a_host_that_says_nothing_ends_the_job_when_start_within_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    start = LocalFleet.start

    def stopped(self: Any, numbers: Iterable[int]) -> Any:
        members = start(self, numbers)
        os.kill(members[0]._process.pid, signal.SIGSTOP)
        return members

    monkeypatch.setattr(LocalFleet, "start", stopped)
    with pytest.raises(
        RunError, match=r"host 0 \(process \d+ of this machine\) did not start within 2 s; give it longer"
    ):
        run(cluster(start_within=2.0))


def test_no_place_for_the_log_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "file"))
    with pytest.raises(RunError, match=r"no process can be started for host 0: .*TMPDIR"):
        run(cluster())


def test_another_version_than_the_drivers_is_found_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    here = versions()
    monkeypatch.setattr(host_checks, "versions", lambda: here | {"numba": "0.1"})
    with pytest.raises(RunError, match=r"numba is .* on .* and 0\.1 on the driver's machine, .*install one of them"):
        run(cluster())


def test_lack_of_memory_is_said_and_the_third_time_it_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    crew = Hosts(cluster())

    def address(starved: int, machine: str = "lab-1") -> Address:
        return Address(1, "tcp://127.0.0.1:1", "", machine, 1, "/tmp/log", {}, "", starved)

    crew.addresses[1] = address(2)
    crew._check_out_of_memory(1, address(2))
    crew._check_out_of_memory(1, address(1, "lab-2"))
    crew._check_out_of_memory(1, address(-1))
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match=r"host 1 on lab-1 \(log: /tmp/log\) was lost when .* out of memory"):
            crew._check_out_of_memory(1, address(1))
    with pytest.raises(RunError, match="third time; use more nodes, or machines with more memory"):
        crew._check_out_of_memory(1, address(1))


MEMORY = Path("/sys/fs/cgroup/memory")


@pytest.fixture
def little_memory() -> Iterator[str]:
    """A group of processes that may have 600 MB together (Linux control groups, version 1)."""
    group = MEMORY / f"stretto-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        (group / "memory.limit_in_bytes").write_text(str(600 << 20))
        yield str(group)
    finally:
        with suppress(OSError):  # its last process may still be ending
            group.rmdir()


@slow
def test_a_host_that_the_kernel_ends_for_lack_of_memory_is_said_to_be(little_memory: str) -> None:
    def hungry(w: Any) -> None:
        for clock in w.clocks(4):
            if w.number == 1 and clock == 2:
                Path(little_memory, "cgroup.procs").write_text(str(os.getpid()))
                np.ones(1 << 27)
            w.table("x").add([w.number], [1.0])

    with (
        pytest.warns(RuntimeWarning, match=r"host 1 on .* was lost: .*SIGKILL"),
        pytest.warns(RuntimeWarning, match=r"host 1 on .* \(log: .*\) was lost when that machine ran out of memory"),
        pytest.raises(RunError, match=r"host 1 on .*out of memory.*third time; use more nodes"),
    ):
        st.run(hungry, workers=2, tables={"x": st.tables.Table(rows=4)}, runtime=cluster())


# -- finding Ray ------------------------------------------------------------------------------------------------------


@pytest.fixture
def listener() -> Any:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def address_of(listener: socket.socket) -> str:
    return f"127.0.0.1:{listener.getsockname()[1]}"


def test_an_address_where_nobody_listens_is_said_at_once(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = address_of(listener)
    listener.close()
    with pytest.raises(RunError, match=r"no Ray cluster answers at 127.*Connection refused"):
        ray_address.found(address)
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(RunError, match=r"no Ray cluster answers at 127.*RAY_ADDRESS"):
        ray_address.found("auto")
    assert ray_address.found("local") == ""


def test_somebody_who_listens_and_is_not_ray_is_not_waited_for(listener: socket.socket) -> None:
    assert ray_address.no_answer(address_of(listener), 0.2) == "no answer within 0.2 s"
    listener.accept()[0].close()

    def rude(words: bytes) -> None:
        with listener.accept()[0] as caller:
            caller.recv(64)
            caller.sendall(words)

    for words, why in ((b"HTTP/1.1 400 Bad Request\r\n", "is not Ray"), (b"", "closes the connection")):
        thread = threading.Thread(target=rude, args=(words,))
        thread.start()
        assert why in ray_address.no_answer(address_of(listener), 5.0)
        thread.join()


def test_what_ray_remembers_of_a_cluster_that_is_over_is_passed_over(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray_address, "_on_this_machine", lambda: ["127.0.0.1:1"])
    with pytest.warns(RuntimeWarning, match=r"127\.0\.0\.1:1 \(Connection refused\); a new one is started"):
        assert ray_address.found("auto") == ""
    monkeypatch.setattr(ray_address, "_on_this_machine", lambda: [])
    assert ray_address.found("auto") == ""


@pytest.mark.parametrize("address", ["nonsense", "10.0.0.5", ":", "host:port"])
def test_what_is_no_address_is_said(address: str) -> None:
    with pytest.raises(RunError, match="not of the form host:port"):
        ray_address.found(address)


def test_a_host_that_did_not_start_is_a_lost_one() -> None:
    assert issubclass(NotStarted, HostLost)
