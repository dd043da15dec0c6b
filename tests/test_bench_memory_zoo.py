"""The bench of the zoo at tiny size on a CPU: what it writes, how it ends, and the page made of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'stretto[memory]'")

from bench import memory_zoo
from bench.memory_zoo_observe import distance
from bench.memory_zoo_one import OneModel
from bench.memory_zoo_options import Options, names_of, shares_of
from bench.memory_zoo_page import SERIES, latest, publish, series

from stretto.memory import front_end
from stretto.memory.capture.side_effects import CannotCapture

ROOT = Path(memory_zoo.__file__).parent.parent
TINY = ["--device=cpu", "--size=tiny", "--steps=1", "--chunks=none"]


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_a_model_is_measured_beside_eager_and_peers(tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    here = ["--here", "--models=graph_network", "--shares=0.7,0.01", "--peers=checkpoint", f"--out={out}"]
    memory_zoo.main([*TINY, *here])
    rows = rows_of(out)
    assert [row["method"] for row in rows] == ["eager", "ours", "ours", "ours", "checkpoint"]
    eager, fits, refused, smallest, peer = rows
    assert eager["own_bits"]
    assert fits["budget"] == int(0.7 * eager["reserved"])
    assert fits["predicted_peak"] <= fits["budget"]
    assert fits["bits"]
    assert 0 < fits["planning"] <= fits["prepared"]
    assert refused["smallest"] == smallest["budget"] > refused["budget"]
    assert smallest["bits"]
    assert peer["agrees"]
    assert peer["seconds"] > 0


@pytest.mark.slow
def test_a_step_that_is_not_planned_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise CannotCapture("for this test")

    monkeypatch.setattr(front_end, "check_kinds", refuse)
    out = tmp_path / "rows.jsonl"
    memory_zoo.main([*TINY, "--here", "--models=branching", "--shares=0.5", f"--out={out}"])
    ours = rows_of(out)[-1]
    assert ours["fallback"]
    assert ours["agrees"]


def test_what_does_not_begin_in_time_is_left_out() -> None:
    rows: list[dict[str, Any]] = []
    OneModel("dlrm", Options(device="cpu", size="tiny", seconds=-1.0), rows.append).run()
    assert [row["failed"] for row in rows] == ["left out: the -1 seconds of this model were over"]


@pytest.mark.slow
def test_every_model_has_a_process_that_is_ended_in_time(tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    options = ["--models=dlrm,graph_network", "--shares=0.8", "--time-limit=100", f"--out={out}"]
    command = [sys.executable, "-m", "bench", "memory_zoo", *TINY, *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert [row["model"] for row in rows_of(out) if row["method"] == "ours"] == ["dlrm", "graph_network"]
    assert "2 models in" in done.stdout
    out.unlink()
    memory_zoo.main([*TINY, "--models=dlrm", "--time-limit=-30", f"--out={out}"])  # it is ended as soon as it began
    assert not out.exists()


@pytest.mark.parametrize("option", ["--models=llama3", "--shares=-1", "--peers=nobody"])
def test_options_that_are_wrong_are_named(option: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=option.partition("=")[0]):
        memory_zoo.main([*TINY, option, f"--out={tmp_path / 'rows.jsonl'}"])


def test_lists_on_the_command_line() -> None:
    assert shares_of("1.0, 0.5") == (1.0, 0.5)
    assert shares_of("") == ()
    assert names_of("all", ["a", "b"], "--models") == ("a", "b")
    assert names_of("b", ["a", "b"], "--models") == ("b",)


def test_distances_are_zero_for_equal_bits_only() -> None:
    import torch

    one = torch.ones(4)
    assert distance(one, one.clone(), "cpu") == 0.0
    assert distance(one, one + 1e-6, "cpu") == pytest.approx(1e-6, rel=0.1)
    assert distance(one / 0, one, "cpu") == float("inf")


def row(method: str, share: float | None = None, **more: Any) -> dict[str, Any]:
    found = {"model": "vit_l", "dtype": "bf16", "seen": True, "method": method, "machine": "H200", "date": "today"}
    found |= {} if share is None else {"share": share, "budget": int(share * 2**30)}
    ran = {"seconds": 0.1, "reserved": 2**29, "allocated": 2**28, "bits": True, "agrees": True}
    return found | (more if "failed" in more else ran | more)


def test_the_page_names_models_that_break_a_promise(tmp_path: Path) -> None:
    rows = [
        row("eager", reserved=2**30),
        row("ours", 1.0, planning=1.0),
        row(
            "ours",
            0.35,
            planning=11.0,
            reserved=2**29,
            bits=False,
            agrees=False,
            loss_difference=0.1,
            state_difference=0.2,
        ),
        row("ours", 0.15, failed="Infeasible: no plan", smallest=2**28),
        row("compile-0.5", seconds=0.05),
        row("fsdp2", failed="RuntimeError: a | b"),
    ]
    publish(rows, tmp_path)
    page = (tmp_path / "memory_zoo.md").read_text()
    lines = {line.split("|")[1].strip(): line for line in page.splitlines() if line.startswith("| ")}
    assert lines["100%"].count("vit_l") == 0
    assert lines["35%"].count("vit_l") == 3  # over its budget, results, planning
    assert lines["15%"].count("vit_l") == 1
    assert "**1.43**" in page
    assert "the smallest is 0.25 GiB" in page
    assert "a / b" in page


def test_later_rows_replace_earlier_ones_and_series_are_few() -> None:
    assert latest([row("ours", 0.5, seconds=1.0), row("ours", 0.5, seconds=2.0)])[0]["seconds"] == 2.0
    assert len(SERIES) <= 6
    assert series(row("ours, compiled", 0.5)) == "ours, compiled"
    assert series(row("ours", 0.5)) == "ours"
    assert series(row("compile-0.3")) == "compile"
    assert series(row("eager")) is None
