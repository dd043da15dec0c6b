"""Jobs on four hosts of the laboratory, through Ray and real sockets: the same bits, whatever happens on the way."""

from __future__ import annotations

import importlib.metadata
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from drivers import Driver, factorise, regression, struck, topics
from lab import Lab
from machines import Machine

import stretto as st

pytest.importorskip("zmq", reason="the extra stretto[cluster] is not installed")

NODES = 4
FACTORISE: dict[str, Any] = {"epochs": 60}
REGRESSION: dict[str, Any] = {"clocks": 120}


@pytest.fixture(scope="module")
def driver(cluster: Lab) -> Iterator[Driver]:
    made = Driver(cluster)
    yield made
    made.close()


@pytest.fixture(scope="module")
def factorised() -> dict[str, Any]:
    """Undisturbed, one visit after another."""
    return factorise(st.Serial(), **FACTORISE)


@pytest.fixture(scope="module")
def regressed() -> dict[str, Any]:
    """Undisturbed, one worker after another."""
    return regression(st.Serial(), **REGRESSION)


def appears(path: Path, within: float = 60.0) -> None:
    """Wait until a job has made its mark."""
    deadline = time.monotonic() + within
    while not path.exists():
        assert time.monotonic() < deadline, "the job was not under way in time"
        time.sleep(0.01)


def fine(answer: dict[str, Any]) -> dict[str, Any]:
    assert "error" not in answer, (answer["error"], answer["notes"])
    return answer


# -- the same answer --------------------------------------------------------------------------------------------------


def test_factorising_by_rotation_gives_the_same_bits_everywhere(driver: Driver, factorised: dict[str, Any]) -> None:
    assert factorise(st.Threads(2), **FACTORISE)["digest"] == factorised["digest"]
    found = fine(driver.ask("factorise", nodes=NODES, **FACTORISE))
    assert found["fingerprint"] == factorised["fingerprint"]
    assert found["digest"] == factorised["digest"]
    assert found["said"] == []


@pytest.mark.slow
def test_topics_by_rotation_have_the_same_bits_everywhere_and_a_host_is_killed(
    cluster: Lab, driver: Driver, tmp_path: Path
) -> None:
    wanted = topics(st.Threads(2))
    found = fine(driver.ask("topics", nodes=NODES))
    assert found["fingerprint"] == wanted["fingerprint"]
    assert (found["digest"], found["objective"]) == (wanted["digest"], wanted["objective"])
    driver.tell("topics", nodes=NODES, mark=str(tmp_path / "mark"))
    appears(tmp_path / "mark")
    assert cluster.kill_actor(1)
    assert fine(driver.answer(90))["digest"] == wanted["digest"]


def test_regression_by_tables_gives_the_same_bits_everywhere(driver: Driver, regressed: dict[str, Any]) -> None:
    assert regression(st.Threads(2), **REGRESSION)["digest"] == regressed["digest"]
    found = fine(driver.ask("regression", nodes=NODES, **REGRESSION))
    assert found["digest"] == regressed["digest"]
    assert found["looks"] == [list(look) for look in regressed["looks"]]
    assert regressed["objective"] > 0.8
    assert found["said"] == []


# -- faults -----------------------------------------------------------------------------------------------------------


# Rotations are killed above, with topics.
@pytest.mark.parametrize("job", [pytest.param("factorise", marks=pytest.mark.slow), "regression"])
def test_a_host_is_killed_and_the_bits_are_the_same(
    cluster: Lab,
    driver: Driver,
    job: str,
    factorised: dict[str, Any],
    regressed: dict[str, Any],
    tmp_path: Path,
) -> None:
    wanted, options = (factorised, FACTORISE) if job == "factorise" else (regressed, REGRESSION)
    driver.tell(job, nodes=NODES, mark=str(tmp_path / "mark"), **options)
    appears(tmp_path / "mark")
    assert cluster.kill_actor(2)
    found = fine(driver.answer(90))
    assert found["digest"] == wanted["digest"]
    if job == "regression":
        assert any("was lost" in text and "lab-2" in text for text in found["said"])


@pytest.mark.slow
def test_a_cable_out_for_three_seconds_loses_nothing(
    cluster: Lab, driver: Driver, regressed: dict[str, Any], tmp_path: Path
) -> None:
    driver.tell("regression", nodes=NODES, mark=str(tmp_path / "mark"), patience=15.0, **REGRESSION)
    appears(tmp_path / "mark")
    cluster.link_down(1, seconds=3.0)
    found = fine(driver.answer(60))
    assert found["digest"] == regressed["digest"]
    assert found["restarts"] == 0
    assert found["took"] > 2.5


@pytest.mark.slow
def test_a_tenth_of_the_bandwidth_changes_no_bit(
    cluster: Lab, driver: Driver, factorised: dict[str, Any], tmp_path: Path
) -> None:
    driver.tell("factorise", nodes=NODES, mark=str(tmp_path / "mark"), **FACTORISE)
    appears(tmp_path / "mark")
    cluster.limit(1, "100Mbit")
    try:
        found = fine(driver.answer(60))
    finally:
        cluster.limit(1, cluster.link)
    assert found["digest"] == factorised["digest"]
    assert found["said"] == []


# -- errors: one root cause, where it was, within 30 seconds ----------------------------------------------------------


def test_a_worker_that_raises_is_named_with_its_machine_and_log(driver: Driver) -> None:
    found = driver.ask("failing", nodes=NODES)
    assert "worker 3 failed at clock 4: ValueError: the well is dry" in found["error"]
    notes = "\n".join(found["notes"])
    assert re.search(r"on host \d on lab-\d \(10\.77\.0\.\d\) \(log: /", notes)
    assert "drivers.py" in notes  # where it was raised
    assert found["seconds"] < 30


def test_no_room_is_said_with_what_there_is(driver: Driver) -> None:
    found = driver.ask("failing", nodes=NODES, threads=64, start_within=3.0)
    assert "did not fit within 3 s" in found["error"]
    assert "4 machines with 8 CPUs" in found["error"]
    assert found["seconds"] < 30


def test_another_version_on_one_machine_is_found_before_anything_runs(cluster: Lab, driver: Driver) -> None:
    with other_version(cluster.machines[3], "numpy", "1.0.99"):
        found = driver.ask("failing", nodes=NODES)
    # Whichever machine holds the first host is named second.
    assert re.search(r"numpy is .*1\.0\.99 on lab-3", found["error"]), found["error"]
    assert "install one of them everywhere" in found["error"]
    assert found["seconds"] < 30


class other_version:
    """One machine sees another version of a package: its metadata is covered by a file that says so."""

    def __init__(self, machine: Machine, package: str, version: str) -> None:
        self.machine = machine
        real = importlib.metadata.distribution(package)
        path = next(file for file in real.files or () if file.name == "METADATA")
        self.covered = str(Path(str(path.locate())).resolve())
        text = Path(self.covered).read_text()
        self.file = machine.folder / "METADATA"
        self.file.write_text(text.replace(f"Version: {real.version}\n", f"Version: {version}\n", 1))

    def __enter__(self) -> None:
        assert self.machine.run(["mount", "--bind", str(self.file), self.covered]).returncode == 0

    def __exit__(self, *_: object) -> None:
        assert self.machine.run(["umount", self.covered]).returncode == 0


# -- slow -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_dead_raylet_takes_its_machine_out_and_the_job_goes_on(
    cluster: Lab, driver: Driver, regressed: dict[str, Any], tmp_path: Path
) -> None:
    driver.tell("regression", nodes=NODES, mark=str(tmp_path / "mark"), replace_within=10.0, **REGRESSION)
    appears(tmp_path / "mark")
    assert cluster.kill_raylet(3)
    found = fine(driver.answer(120))
    assert found["digest"] == regressed["digest"]
    assert found["restarts"] >= 1
    added = cluster.add_host()
    assert added == NODES
    again = fine(driver.ask("regression", nodes=NODES, **REGRESSION))
    assert again["digest"] == regressed["digest"]


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_fifty_kills_across_ten_jobs(cluster: Lab, driver: Driver, capsys: pytest.CaptureFixture[str]) -> None:
    """Every job finishes, with the bits of an undisturbed one; what a kill costs is printed."""
    draw = random.Random(7)
    plans: dict[str, dict[str, Any]] = {
        "factorise": {"epochs": 240},
        "regression": {"clocks": 240, "pause": 0.03},
    }
    calm = {job: fine(driver.ask(job, nodes=NODES, timeout=120, **options)) for job, options in plans.items()}
    killed, lost = 0, 0.0
    for number in range(10):
        job = list(plans)[number % 2]
        found, kills = struck(cluster, driver, job, 5 + max(0, 5 * number - killed), draw, nodes=NODES, **plans[job])
        assert fine(found)["digest"] == calm[job]["digest"], (job, kills)
        killed += kills
        lost += found["seconds"] - calm[job]["seconds"]
    with capsys.disabled():
        print(f"\n{killed} kills in 10 jobs: {lost / max(1, killed):.1f} s lost by each")
    assert killed >= 45
