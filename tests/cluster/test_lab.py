"""The laboratory itself: hosts reach each other, limits limit, counters count, and nothing stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from lab import LOCK, Lab, LabError, Sampler
from machines import PREFIX, QUOTAS, sweep
from network import Counted, bits

SERVE = """
import socket, sys
with socket.create_server(("0.0.0.0", int(sys.argv[1]))) as server:
    print("ready", flush=True)
    peer, _ = server.accept()
    while peer.recv(1 << 20):
        pass
    peer.sendall(b"!")
"""
SEND = """
import socket, sys, time
began = time.monotonic()
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=20) as peer:
    peer.sendall(bytes(int(sys.argv[3])))
    peer.shutdown(socket.SHUT_WR)
    assert peer.recv(1) == b"!"
print(time.monotonic() - began)
"""
SPIN = """
import time
began, spent = time.monotonic(), time.process_time()
while time.monotonic() - began < 1.0:
    pass
print(time.process_time() - spent)
"""
DATA, RAY = 20_000, 9_000  # ports: the data plane's, and one of Ray's


def send(lab: Lab, nbytes: int, port: int = DATA) -> float:
    """Seconds to send so many bytes from host 0 to host 1."""
    server = lab.machines[1].start([sys.executable, "-c", SERVE, str(port)], stdout=subprocess.PIPE)
    assert server.stdout is not None
    with server.stdout:
        assert server.stdout.readline() == "ready\n"
        done = lab.machines[0].run([sys.executable, "-c", SEND, lab.machines[1].ip, str(port), str(nbytes)], timeout=40)
    assert done.returncode == 0, done.stdout
    server.wait(20)
    return float(done.stdout)


def test_hosts_reach_each_other_at_the_speed_of_their_cables(lab: Lab) -> None:
    before = lab.bytes(0)
    seconds = send(lab, 5_000_000)
    after = lab.bytes(0)
    assert 0.35 < seconds < 1.5  # 100 Mbit carry 5 MB in 0.4 s
    assert 5_000_000 < after.data - before.data < 5_500_000  # headers are counted too
    assert after.ray == before.ray


def test_a_cable_can_be_made_slower(lab: Lab) -> None:
    lab.limit(0, "20Mbit")
    try:
        assert 0.75 < send(lab, 2_500_000) < 2.5  # 1 s
    finally:
        lab.limit(0, "100Mbit")
    assert send(lab, 2_500_000) < 0.75


def test_rays_ports_are_counted_apart(lab: Lab) -> None:
    before = lab.bytes(0)
    send(lab, 1_000_000, RAY)
    after = lab.bytes(0)
    assert after.ray - before.ray > 1_000_000
    assert after.data - before.data < 10_000


def test_no_second_carries_more_than_the_cable(lab: Lab) -> None:
    with lab.sample([0]) as looks:
        send(lab, 20_000_000)
    assert looks.total(0) > 20_000_000
    assert 0.8 * 12.5e6 < looks.most(0) < 1.05 * 12.5e6


def test_the_busiest_second_of_some_samples() -> None:
    from lab import Sample

    sampler = Sampler.__new__(Sampler)
    sent = [0, 10, 10, 40, 40, 40]  # at 0.0, 0.5, … seconds
    sampler.samples = {0: [Sample(k / 2, Counted(n, 0, n, 0)) for k, n in enumerate(sent)]}
    assert sampler.most(0) == 30.0
    assert sampler.total(0) == 40
    assert bits("1.5Gbit") == 1_500_000_000
    with pytest.raises(ValueError, match="a rate is like"):
        bits("fast")


def test_a_pulled_cable_comes_back_and_connections_live_on(lab: Lab) -> None:
    down = lab.link_down(1, seconds=1.0)
    began = time.monotonic()
    send(lab, 100_000)  # TCP tries again until it is up
    assert time.monotonic() - began > 0.9
    down.join()


def test_machines_see_only_themselves(lab: Lab) -> None:
    done = lab.run(["sh", "-c", "hostname; ls -d /proc/[0-9]* | wc -l; ip -o link | wc -l"], host=1)
    name, processes, links = done.stdout.split()
    assert name == "lab-1"
    assert int(processes) < 12
    assert int(links) == 2
    (lab.machines[1].folder / "note").write_text("here")
    assert lab.run(["cat", str(lab.machines[1].inside / "note")], host=1).stdout == "here"
    assert lab.run(["cat", str(lab.machines[1].inside / "note")], host=0).returncode != 0


def test_quotas_hold(lab: Lab) -> None:
    if not (QUOTAS / "cpu.cfs_quota_us").exists():
        pytest.skip("no control groups of version 1 for CPU time here")
    before = lab.machines[0].throttled()
    lab.machines[0].limit(0.2)
    try:
        used = float(lab.run(SPIN).stdout)
    finally:
        lab.machines[0].limit(None)
    assert 0.02 < used < 0.3
    assert lab.machines[0].throttled() > before


def test_what_takes_too_long_is_killed_with_what_it_said(lab: Lab) -> None:
    with pytest.raises(subprocess.TimeoutExpired) as caught:
        lab.run("print('so far', flush=True)\nimport time; time.sleep(60)", timeout=2.0)
    assert "so far" in str(caught.value.output)
    assert not [line for line in lab.machines[0].processes().values() if "time.sleep" in line]


def test_a_second_laboratory_waits_its_turn(lab: Lab) -> None:
    with pytest.raises(LabError, match=str(LOCK)):
        Lab(hosts=1, wait=0.3)


ALONE = """
import sys
sys.path.insert(0, {here!r})
import lab
lab.LOCK = lab.Path({lock!r})
made = lab.Lab(hosts=2, link="100Mbit")
started, _ = made.start("import time; time.sleep(1000)", host=1)
print(made.folder, *(machine.pid for machine in made.machines), flush=True)
sys.stdin.read()
{then}
"""


@pytest.mark.parametrize("how", ["closed", "killed"])
def test_nothing_is_left_behind(allowed: None, how: str, tmp_path: Path) -> None:
    code = ALONE.format(here=str(Path(__file__).parent), lock=str(tmp_path / "lock"), then="made.close()")
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdin is not None
    with process.stdout, process.stdin:
        folder, *pids = process.stdout.readline().split()
        assert pids
        assert Path(folder).is_dir()
        if how == "killed":
            process.send_signal(signal.SIGKILL)
        else:
            process.stdin.close()
        process.wait(20)
    deadline = time.monotonic() + 10
    while any(_alive(int(pid)) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(_alive(int(pid)) for pid in pids)
    if how == "killed":
        swept = sweep()  # what the next laboratory does first
        assert folder in swept
    left = [*Path("/tmp").glob(f"{PREFIX}-{process.pid}-*"), *QUOTAS.glob(f"{PREFIX}-{process.pid}-*")]
    assert left == []


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_sweeping_leaves_what_is_in_use(tmp_path: Path) -> None:
    mine, other = tmp_path / f"{PREFIX}-{os.getpid()}-a", tmp_path / f"{PREFIX}-notanumber-a"
    mine.mkdir()
    other.mkdir()
    gone = tmp_path / f"{PREFIX}-4194304-a"  # above any process number
    gone.mkdir()
    assert str(gone) in sweep(tmp_path)
    assert mine.is_dir()
    assert other.is_dir()
