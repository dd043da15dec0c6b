"""`stretto simulate`: a job file, sweeps, the table and the picture."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from clirun import stretto
from stretto.comm.policy import Lazy, Managed
from stretto.consistency.rules import ASP, BSP, SSP
from stretto.tables.jobfile import parse_rule, read_job, with_values

SCRIPT = """
import numpy as np

TRUTH = np.linspace(-1, 1, 32).astype("f4")

def worker(w):
    x = w.table("weights")
    keys = np.arange(32)
    for clock in w.clocks(12):
        x.add(keys, (TRUTH - x.read(keys)) * 0.5 / w.workers)
        w.work(1000)

def loss(view):
    return float(((view["weights"] - TRUTH) ** 2).mean())

def start(keys):
    return np.ones((len(keys), 1), "f4")
"""
JOB = """
worker = "job.py:worker"
watch = "job.py:loss"
target = 0.01
sync = "bsp"
[cluster]
nodes = 2
threads = 2
link = "10Mbit"
[tables.weights]
rows = 32
start = "job.py:start"
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "job.py").write_text(SCRIPT, encoding="utf-8")
    (tmp_path / "job.toml").write_text(JOB, encoding="utf-8")
    return tmp_path / "job.toml"


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_sweep_answers_what_it_would_take(job: Path, tmp_path: Path) -> None:
    to, plot = tmp_path / "sweep.csv", tmp_path / "sweep.png"
    asked = ["--sweep", "link=1Mbit,100Mbit", "--sweep", "nodes=2,4", "--to", str(to), "--plot", str(plot)]
    done = stretto("simulate", str(job), *asked)
    assert "drawn in" in done.out
    rows = rows_of(to)
    assert [(row["link"], row["nodes"]) for row in rows] == [
        ("1Mbit", "2"), ("1Mbit", "4"), ("100Mbit", "2"), ("100Mbit", "4")
    ]  # fmt: skip
    for slow, quick in ((rows[0], rows[2]), (rows[1], rows[3])):
        # The same bits on another network: only the time differs.
        assert slow["objective"] == quick["objective"]
        assert slow["clocks"] == quick["clocks"]
        assert float(slow["to target"]) > 2 * float(quick["to target"])
        assert float(slow["seconds"]) > float(quick["seconds"])
        assert 0 < float(slow["computing"]) < float(quick["computing"]) < 1  # plain numbers, whatever the table shows
        assert int(slow["sent"]) > 1000
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_the_same_file_gives_the_same_numbers(job: Path, tmp_path: Path) -> None:
    found = []
    for name in ("one.csv", "two.csv"):
        options = ["--sweep", "sync=ssp(1),asp", "--sweep", "budget=1Mbit", "--to", str(tmp_path / name), "--quiet"]
        assert stretto("simulate", str(job), *options).out == ""
        found.append((tmp_path / name).read_bytes())
    assert found[0] == found[1]


def test_histories_and_a_sweep_of_staleness_with_a_straggler(job: Path, tmp_path: Path) -> None:
    to, histories = tmp_path / "table.csv", tmp_path / "histories.csv"
    job.write_text(JOB.replace("target = 0.01", ""), encoding="utf-8")
    asked = ("--sweep", "staleness=0,4", "--straggler", "1=20", "--to", str(to), "--csv", str(histories), "--quiet")
    stretto("simulate", str(job), *asked)
    rows = rows_of(to)
    assert [row["staleness"] for row in rows] == ["0", "4"]
    assert "restarts" not in rows[0]
    looks = rows_of(histories)
    assert list(looks[0]) == ["staleness", "clock", "seconds", "bytes", "objective"]
    for row in rows:
        mine = [look for look in looks if look["staleness"] == row["staleness"]]
        assert [int(look["clock"]) for look in mine] == sorted({int(look["clock"]) for look in mine})
        assert (mine[0]["clock"], mine[-1]["objective"]) == ("0", row["objective"])
    stretto("simulate", str(job), "--to", str(to), "--quiet")
    assert float(rows_of(to)[0]["seconds"]) < float(rows[0]["seconds"]) / 5  # without the straggler


def test_crashes_failures_and_evaluations_by_time(job: Path, tmp_path: Path) -> None:
    to, histories = tmp_path / "table.csv", tmp_path / "histories.csv"
    job.write_text(JOB.replace("target = 0.01", "checkpoint_every = 2"), encoding="utf-8")
    stretto("simulate", str(job), "--to", str(to), "--quiet")
    calm = rows_of(to)[0]
    asked = ("--crash", "1@6ms+1ms", "--sweep", "detect=1ms", "--every-seconds", "5ms", "--csv", str(histories))
    stretto("simulate", str(job), *asked, "--to", str(to), "--quiet")
    crashed = rows_of(to)[0]
    assert (crashed["restarts"], crashed["objective"]) == ("1", calm["objective"])
    assert float(crashed["seconds"]) > float(calm["seconds"])
    assert len(rows_of(histories)) >= 3
    often = ("--failures", "20ms", "--sweep", "detect=1ms", "--sweep", "back_after=1ms", "--to", str(to), "--quiet")
    stretto("simulate", str(job), *often)
    assert int(rows_of(to)[0]["restarts"]) > 0
    text = job.read_text(encoding="utf-8").replace(
        "threads = 2", 'threads = 2\ndetect = 1e-3\nfaults = ["crash 1@6ms+1ms"]'
    )
    job.write_text(text, encoding="utf-8")
    stretto("simulate", str(job), "--to", str(to), "--quiet")
    assert rows_of(to)[0]["restarts"] == "1"


@pytest.mark.parametrize(
    "wrong", [("--crash", "2"), ("--straggler", "0@1s"), ("--crash", "9@1s"), ("--failures", "soon")]
)
def test_wrong_faults_are_refused(job: Path, wrong: tuple[str, str]) -> None:
    said = stretto("simulate", str(job), *wrong, code=2).err
    assert "is not a fault; write 'crash NODE@TIME+BACK'" in said or "no node 9" in said or "not a time" in said


def test_one_policy_is_compared_with_another(job: Path, tmp_path: Path) -> None:
    """What only one of them knows does not stand in the way of the other."""
    job.write_text(JOB.replace("bsp", "ssp(1)") + '[comm]\npolicy = "managed"\nbudget = "1Mbit"\n', encoding="utf-8")
    to = tmp_path / "sweep.csv"
    stretto("simulate", str(job), "--sweep", "policy=eager,lazy,managed", "--to", str(to), "--quiet")
    assert len({row["sent"] for row in rows_of(to)}) == 3
    # A file that says so itself is still reported.
    job.write_text(job.read_text(encoding="utf-8").replace('"managed"', '"eager"'), encoding="utf-8")
    assert "has no 'budget'" in stretto("simulate", str(job), code=2).err


def test_values_with_commas_and_values_of_other_kinds(job: Path, tmp_path: Path) -> None:
    to = tmp_path / "sweep.csv"
    rules = "weights.apply=proximal(0.1, 0.01),adagrad(0.1)"
    bursts = "burst=[5, 5],[10, 10]"
    asked = ("--sweep", rules, "--sweep", bursts, "--sweep", "budget=1Mbit", "--to", str(to), "--quiet")
    stretto("simulate", str(job), *asked)
    rows = rows_of(to)
    assert [row["weights.apply"] for row in rows] == ["proximal(0.1, 0.01)"] * 2 + ["adagrad(0.1)"] * 2
    assert [row["burst"] for row in rows] == ["[5, 5]", "[10, 10]"] * 2
    asked_for = read_job(job)
    assert with_values(asked_for, {"weights.check_finite": "false"}).tables["weights"]["check_finite"] is False
    other = with_values(asked_for, {"cluster.seed": "7", "seed": "3", "comm.budget": "1Mbit"})
    assert (other.simulated.seed, other.plain["seed"], other.policy) == (7, 3, Managed("1Mbit"))


def test_where_nothing_can_be_written_is_said_before_anything_runs(job: Path, tmp_path: Path) -> None:
    job.with_name("job.py").write_text("def worker(w): raise RuntimeError('ran')\ndef loss(v): return 0\n")
    job.write_text(JOB.replace('start = "job.py:start"', ""), encoding="utf-8")
    for option in ("--to", "--plot"):
        said = stretto("simulate", str(job), option, str(tmp_path / "no" / "such.file"), code=2).err
        assert "there is no folder" in said
        assert "ran" not in said


@pytest.mark.parametrize(
    ("sweep", "said"),
    [
        ("link", "NAME=VALUE"),
        ("colour=red", "cannot be swept"),
        ("link=fast", "not a rate"),
        ("sync=sometimes", "bsp, ssp"),
        ("policy=greedy", "eager, lazy, managed"),
    ],
)
def test_what_cannot_be_swept_is_refused(job: Path, sweep: str, said: str) -> None:
    assert said in stretto("simulate", str(job), "--sweep", sweep, code=2).err


def test_the_parts_of_a_job(job: Path) -> None:
    asked = read_job(job)
    assert isinstance(asked.rule, BSP)
    assert asked.simulated.nodes == 2
    other = with_values(asked, {"budget": "5Mbit", "rank": "random", "weights.cols": "3", "sync": "ssp(4)"})
    assert other.policy == Managed("5Mbit", rank="random")
    assert other.tables["weights"]["cols"] == 3
    assert other.rule == SSP(4)
    assert isinstance(with_values(asked, {"policy": "lazy"}).policy, Lazy)
    assert isinstance(parse_rule("asp"), ASP)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('worker = "job.py:worker"', ""), "no worker"),
        (("sync =", "sink ="), "unknown name 'sink'"),
        (("rows = 32", "lines = 32"), "no 'lines'"),
        (("job.py:loss", "job.py:lost"), "has no 'lost'"),
        (("target = 0.01", "target = "), "not a TOML file"),
        (("rows = 32", 'rows = 32\napply = "momentum(0.1)"'), "choose add"),
        (("rows = 32", "rows = 32\napply = 3"), "apply = 3"),
        (("threads = 2", "cores = 2"), "[cluster] has no 'cores'"),
        (("target = 0.01", 'target = "low"'), "target = 'low'"),
        (('watch = "job.py:loss"', ""), "target = 0.01 of what"),
        (('worker = "job.py:worker"', "worker = 3"), "worker = 3; name a function"),
        (("[tables.weights]", "[tables]\nother = 3\n[tables.weights]"), "write [tables.other]"),
        (("[cluster]", '[comm]\nbudget = "1Mbit"\nburst = 10\n[cluster]'), "burst=10"),
    ],
)
def test_wrong_jobs_are_refused(job: Path, change: tuple[str, str], said: str) -> None:
    job.write_text(JOB.replace(*change), encoding="utf-8")
    assert said in stretto("simulate", str(job), code=2).err
